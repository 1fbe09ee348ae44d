"""Clients that send or read slowly, or too much, don't delay others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.core.core_process import ALERT, CoreProcess, core_process, setup_in

MANY = 40
PROMPT_S = 15.0  # others' requests together; one slow client alone would take longer
CUT_OFF_S = 20.0  # how long a head or a body may take

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def clients(core: CoreProcess, number: int, sent: bytes) -> AsyncIterator[list[Client]]:
    """Connections that have sent this and nothing more, and read nothing."""
    address = urlsplit(core.url)
    opened = [await asyncio.open_connection(address.hostname, address.port, limit=1024) for _ in range(number)]
    try:
        for _, writer in opened:
            writer.write(sent)
        yield opened
    finally:
        for _, writer in opened:
            writer.transport.abort()


def head(core: CoreProcess, first_line: str, *more: str) -> bytes:
    key = core.setup.keys["lead"]
    lines = [first_line, "Host: core", f"Authorization: Bearer {key}", *more]
    return ("\r\n".join(lines) + "\r\n").encode()


def nothing(core: CoreProcess) -> bytes:
    return b""


def half_a_head(core: CoreProcess) -> bytes:
    return head(core, "GET /api/event HTTP/1.1")


def half_a_body(core: CoreProcess) -> bytes:
    return head(core, "POST /api/alert HTTP/1.1", "Content-Length: 1000") + b'\r\n{"type": '


def endless_chunks(core: CoreProcess) -> bytes:
    return head(core, "POST /api/alert HTTP/1.1", "Transfer-Encoding: chunked") + b"\r\n10\r\n" + b" " * 16 + b"\r\n"


def too_much_claimed(core: CoreProcess) -> bytes:
    return head(core, "POST /api/alert HTTP/1.1", "Content-Length: 99999999999") + b'\r\n{"type": '


def reads_nothing(core: CoreProcess) -> bytes:
    """Several large answers asked for at once on each connection."""
    return (head(core, "GET /api/alert/siem;tests;large HTTP/1.1") + b"\r\n") * 8


KINDS = (nothing, half_a_head, half_a_body, endless_chunks, too_much_claimed, reads_nothing)


async def test_slow_clients_do_not_delay_others(core: CoreProcess) -> None:
    async with AsyncExitStack() as stack:
        for kind in KINDS:
            await stack.enter_async_context(clients(core, MANY, kind(core)))
        async with asyncio.timeout(PROMPT_S):
            for number in range(10):
                made = await core.client("lead").create_alert({**ALERT, "sourceRef": f"{number}"})
                assert (await core.client().alert(made.id)).id == made.id
            assert (await core.client().health())["status"] == "ok"


async def test_a_body_that_is_too_large_is_refused_early(core: CoreProcess) -> None:
    more_than_fits = (b"10000\r\n" + b" " * 0x10000 + b"\r\n") * 17
    for sent in (too_much_claimed(core), endless_chunks(core) + more_than_fits):
        async with clients(core, 1, sent) as [(reader, _)], asyncio.timeout(PROMPT_S):
            answered = await reader.readuntil(b"\r\n\r\n")
        assert answered.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in answered.lower()


@pytest.mark.slow
async def test_a_head_or_body_that_never_ends_times_out(core: CoreProcess) -> None:
    async with (
        clients(core, MANY, nothing(core)) as silent,
        clients(core, MANY, half_a_head(core)) as heads,
        clients(core, MANY, half_a_body(core)) as bodies,
        asyncio.timeout(CUT_OFF_S + PROMPT_S),
    ):
        ends = await asyncio.gather(*(reader.read() for reader, _ in (*silent, *heads)))
        answers = await asyncio.gather(*(reader.read() for reader, _ in bodies))
    assert set(ends) == {b""}
    assert {answer[:12] for answer in answers} == {b"HTTP/1.1 400"}


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[CoreProcess]:
    setup = await setup_in(tmp_path)
    async with core_process(setup) as core:
        large = {**ALERT, "sourceRef": "large", "description": "x" * 900_000}
        await core.client("lead").create_alert(large)
        yield core
