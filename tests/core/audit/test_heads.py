"""Heads of the audit in the log, and at a log server by syslog over TLS."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from core.audit import trail
from core.audit.heads import SEND_S, send_forever
from core.common.database import Database
from core.settings import CoreSection
from tests.certificates import Certificates, certificates_in
from tests.clock import SetClock
from tests.core.audit.test_delivery import write
from tests.core.core_process import until
from tests.core.running import running_core
from tests.stores import opened

SAID = re.compile(
    rb"<109>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ [!-~]+ responder-bot - audit_head - head=(\d+):[0-9a-f]{64}"
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates_in(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def trusted(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))


@dataclass
class LogServer:
    """Takes framed messages; `is_rude`: it hangs up without a word, as soon as it has read."""

    is_rude: bool = False
    heads: asyncio.Queue[int] = field(default_factory=asyncio.Queue)
    """The numbers that came."""
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while length := await reader.readuntil(b" "):
                found = SAID.fullmatch(await reader.readexactly(int(length)))
                self.heads.put_nowait(int(found[1]) if found else 0)
                if self.is_rude:
                    writer.transport.abort()
                    return
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    async def next(self, count: int) -> Sequence[int]:
        async with asyncio.timeout(60):
            return [await self.heads.get() for _ in range(count)]


@asynccontextmanager
async def listening(server: LogServer, tls: ssl.SSLContext, port: int = 0) -> AsyncIterator[int]:
    running = await asyncio.start_server(server.serve, "127.0.0.1", port, ssl=tls)
    try:
        yield running.sockets[0].getsockname()[1]
    finally:
        running.close()


@asynccontextmanager
async def sending(database: Database, port: int, clock: SetClock) -> AsyncIterator[None]:
    task = asyncio.create_task(send_forever(database, clock, f"tls://127.0.0.1:{port}", "h", tick_s=0.01))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("is_rude", [False, True])
async def test_the_last_head_comes_at_the_start_and_then_each_new_one(
    database: Database, certificates: Certificates, is_rude: bool
) -> None:
    clock, server = SetClock(), LogServer(is_rude)
    await write(database, clock, 3)
    async with listening(server, certificates.server) as port, sending(database, port, clock):
        assert await server.next(1) == [3]
        await write(database, clock, 1)
        assert await server.next(1) == [4]
        await database.transaction(lambda tx: trail.record(tx, clock(), "hold.set", by="lead@x", object="~1"))
        await write(database, clock, 1)
        assert await server.next(1) == [6]  # the fifth row is not published yet
    assert server.connections == 3


@pytest.mark.usefixtures("trusted")
async def test_what_could_not_be_sent_is_sent_once_the_server_is_back(
    database: Database, certificates: Certificates
) -> None:
    clock, server = SetClock(), LogServer()
    await write(database, clock, 1)
    async with listening(server, certificates.server) as port:
        pass
    with capture_logs() as logged:
        async with sending(database, port, clock):
            await until(lambda: logged or None, "a warning")
            await write(database, clock, 60)  # more than are read at once
            async with listening(server, certificates.server, port):
                assert await server.next(61) == list(range(1, 62))
    assert logged[0]["event"] == "work_failed"


@dataclass
class SilentServer:
    """Accepts connections, and says nothing."""

    accepted: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    ended: asyncio.Queue[None] = field(default_factory=asyncio.Queue)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.put_nowait(None)
        with suppress(ConnectionError):
            await reader.read()
        self.ended.put_nowait(None)
        writer.close()


@asynccontextmanager
async def silent_server() -> AsyncIterator[tuple[SilentServer, int]]:
    server = SilentServer()
    running = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    try:
        yield server, running.sockets[0].getsockname()[1]
    finally:
        running.close()


async def test_core_ends_at_once_beside_a_log_server_that_says_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "core.db") as database:
        await write(database, SetClock(), 2)
    async with silent_server() as (server, port):
        async with running_core(tmp_path, core={"audit_syslog": f"tls://127.0.0.1:{port}"}):
            await server.accepted.get()
        async with asyncio.timeout(SEND_S / 2):
            await server.ended.get()


@pytest.mark.slow
async def test_a_log_server_that_says_nothing_is_given_up(database: Database) -> None:
    clock = SetClock()
    await write(database, clock, 1)
    with capture_logs() as logged:
        async with silent_server() as (server, port), sending(database, port, clock):
            for _ in range(2):
                await server.accepted.get()
    assert [entry["reason"] for entry in logged] == [f"tls://127.0.0.1:{port}: TimeoutError"]


@pytest.mark.usefixtures("trusted")
async def test_what_nobody_expected_ends_nothing(database: Database, certificates: Certificates) -> None:
    clock, server = SetClock(), LogServer()
    clock.now_ms = 2**63  # which is no time
    await write(database, SetClock(), 1)
    with capture_logs() as logged:
        async with listening(server, certificates.server) as port, sending(database, port, clock):
            await until(lambda: logged or None, "an error")
            clock.now_ms = 0
            assert await server.next(1) == [1]
    assert logged[0]["exc_info"]


@pytest.mark.parametrize("which", ["public", "other"])
async def test_a_server_that_is_not_trusted_gets_nothing(
    database: Database, certificates: Certificates, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, server = SetClock(), LogServer()
    if which == "other":
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.other_ca))
    await write(database, clock, 1)
    with capture_logs() as logged:
        async with listening(server, certificates.server) as port, sending(database, port, clock):
            await until(lambda: logged or None, "a warning")
    assert logged[0]["event"] == "work_failed"
    assert "certificate" in logged[0]["reason"].lower()
    assert server.heads.empty()


@pytest.mark.usefixtures("trusted")
async def test_core_sends_the_heads_of_its_audit(tmp_path: Path, certificates: Certificates) -> None:
    server = LogServer()
    async with opened(tmp_path / "core.db") as database:
        await write(database, SetClock(), 2)
    async with (
        listening(server, certificates.server) as port,
        running_core(tmp_path, core={"audit_syslog": f"tls://127.0.0.1:{port}"}),
    ):
        assert await server.next(1) == [2]


@pytest.mark.parametrize(
    "url", ["logs.example.org", "tcp://logs.example.org", "tls://", "tls://a@b", "tls://a:b", "tls://a:65536"]
)
def test_only_an_address_of_a_server_is_taken(url: str) -> None:
    with pytest.raises(ValueError, match="audit_syslog"):
        CoreSection(audit_syslog=url)


@pytest.mark.parametrize("url", ["tls://logs.example.org", "tls://192.0.2.1:6515", "tls://[2001:db8::1]:6514"])
def test_addresses_of_servers(url: str) -> None:
    assert CoreSection(audit_syslog=url).audit_syslog == url
