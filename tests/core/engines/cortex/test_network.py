"""Connections to a remote engine: proxies, private CAs, and no API key for an untrusted server."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from core.common.errors import ResponderBotError
from core.engines.cortex import CortexEngine
from tests.certificates import Certificates, certificates_in
from tests.core.engines.cortex.conftest import JOB, ProgressLog
from tests.fake_cortex import FakeCortex, at_once


@dataclass
class Proxy:
    """A proxy for one request per connection: CONNECT, or a request with an absolute URL."""

    password: str = ""
    requests: list[str] = field(default_factory=list)
    url: str = ""
    _server: asyncio.Server | None = None
    _busy: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            await self._pass_on(reader, writer)
        finally:
            self._busy.discard(task)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split("\r\n")[0].split(" ")
        self.requests.append(f"{method} {target}")
        login = base64.b64encode(f"core:{self.password}".encode()).decode()
        if self.password and f"Basic {login}" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        address = urlsplit(f"//{target}" if method == "CONNECT" else target)
        there, back = await asyncio.open_connection(address.hostname, address.port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            back.write(head.replace(target, address.path + (f"?{address.query}" if address.query else "")).encode())
        await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    made = Proxy()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates_in(tmp_path_factory.mktemp("ca"))


@pytest.fixture
async def secure(certificates: Certificates) -> AsyncIterator[FakeCortex]:
    server = FakeCortex(drive_job=at_once)
    await server.start(ssl_context=certificates.server)
    yield server
    await server.stop()


async def test_a_private_ca_is_trusted(
    secure: FakeCortex, certificates: Certificates, make_engine: Callable[..., CortexEngine], progress: ProgressLog
) -> None:
    engine = make_engine(url=secure.url, ca_file=certificates.ca)
    assert (await engine.run(JOB, progress)).success
    assert len((await engine.catalogue()).responders) == 1


@pytest.mark.parametrize("which", ["public", "other"])
async def test_a_server_with_an_untrusted_certificate_gets_no_key(
    secure: FakeCortex,
    certificates: Certificates,
    make_engine: Callable[..., CortexEngine],
    progress: ProgressLog,
    which: str,
) -> None:
    engine = make_engine(url=secure.url, ca_file=None if which == "public" else certificates.other_ca)
    report = await engine.run(JOB, progress)
    assert "its certificate is not trusted (is ca_file right?). Nothing was started" in report.message
    with pytest.raises(ResponderBotError, match="certificate is not trusted"):
        await engine.catalogue()
    assert secure.calls == []


def test_a_ca_file_that_cannot_be_read_is_refused_at_once(tmp_path: Path) -> None:
    for path in (tmp_path / "none.pem", tmp_path / "empty.pem"):
        with pytest.raises(ResponderBotError, match="ca_file"):
            CortexEngine("soar", url="https://cortex:9001", api_key="k" * 10, ca_file=path)
        (tmp_path / "empty.pem").touch()


async def test_plain_calls_go_through_the_proxy(
    cortex: FakeCortex, proxy: Proxy, make_engine: Callable[..., CortexEngine], progress: ProgressLog
) -> None:
    cortex.drive_job = at_once
    proxy.password = "let-me-out"
    url = proxy.url.replace("http://", "http://core:let-me-out@")
    assert (await make_engine(proxy=url).run(JOB, progress)).success
    assert proxy.requests[0].startswith(f"POST {cortex.url}/api/responder/")


async def test_secure_calls_go_through_the_proxy_with_its_password(
    secure: FakeCortex,
    certificates: Certificates,
    proxy: Proxy,
    make_engine: Callable[..., CortexEngine],
    progress: ProgressLog,
) -> None:
    proxy.password = "let-me-out"
    url = proxy.url.replace("http://", "http://core:let-me-out@")
    engine = make_engine(url=secure.url, ca_file=certificates.ca, proxy=url)
    assert (await engine.run(JOB, progress)).success
    assert set(proxy.requests) == {f"CONNECT {secure.url.removeprefix('https://')}"}
    assert "let-me-out" not in repr(vars(engine)) + repr(engine)


async def test_a_proxy_that_refuses_starts_nothing(
    secure: FakeCortex,
    certificates: Certificates,
    proxy: Proxy,
    make_engine: Callable[..., CortexEngine],
    progress: ProgressLog,
) -> None:
    proxy.password = "let-me-out"
    engine = make_engine(url=secure.url, ca_file=certificates.ca, proxy=proxy.url)
    assert "the proxy refused the connection. Nothing was started" in (await engine.run(JOB, progress)).message


async def test_a_proxy_that_is_down_starts_nothing(
    cortex: FakeCortex, proxy: Proxy, make_engine: Callable[..., CortexEngine], progress: ProgressLog
) -> None:
    await proxy.stop()
    assert "the proxy refused the connection" in (await make_engine(proxy=proxy.url).run(JOB, progress)).message


def test_an_invalid_proxy_is_refused_without_showing_its_password() -> None:
    with pytest.raises(ResponderBotError, match="proxy must look like") as caught:
        CortexEngine("soar", url="http://cortex:9001", api_key="k" * 10, proxy="core:let-me-out@proxy")
    assert "let-me-out" not in str(caught.value)


async def test_a_hundred_and_fifty_jobs_do_not_keep_the_catalogue_waiting(
    cortex: FakeCortex, make_engine: Callable[..., CortexEngine]
) -> None:
    engine = make_engine()
    runs = [asyncio.create_task(engine.run(JOB, ProgressLog())) for _ in range(150)]
    await cortex.until_job(150)
    await cortex.until("wait", 150)
    assert len((await engine.catalogue()).responders) == 1
    for job_id in list(cortex.jobs):
        await cortex.succeed(job_id)
    assert all(report.success for report in await asyncio.gather(*runs))
