"""Connections of the HTTP server: one response for each request, and limits on what a client can hold."""

import asyncio
import gc
import http.client
import itertools
import json
import re
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from core.common.connection import ConnectionLimits, HttpConnection
from core.common.listener import bind, http_server
from tests.core.core_process import until
from tests.core.running import RunningCore
from tests.core.running import core as core

pytestmark = pytest.mark.asyncio(loop_scope="module")


LARGE = 300_000  # more than the buffers between client and core take at once
MIB = 1_048_576
TEMPLATE = b'{"name":"%s"}'
ALERT = b'{"type":"t","source":"s","sourceRef":"%s","title":"t","description":"d"}'


async def exchange(url: str, *sent: bytes) -> bytes:
    """What a raw connection hears until core ends it, or has been silent for long enough to be known to say no more."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        for part in sent:
            writer.write(part)
            await writer.drain()
        return await reader.read()
    finally:
        writer.close()


def request(first_line: str, *headers: str, body: bytes = b"", host: str = "Host: core") -> bytes:
    return "\r\n".join([line for line in (first_line, host, *headers) if line] + ["", ""]).encode("latin-1") + body


def statuses(received: bytes) -> list[int]:
    """The status of each answer in what was received."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", received)]


def chunked(*parts: bytes, trailers: str = "") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + f"0\r\n{trailers}\r\n".encode()


# --- answers that come before the body ------------------------------------------------------------------------------

EARLY: Sequence[tuple[str, str, str, dict[str, str], int]] = (
    ("no key", "POST", "/api/alert", {}, 401),
    ("no right to act for others", "POST", "/api/alert", {"as": "analyst", "X-On-Behalf-Of": "x"}, 403),
    ("no such address", "POST", "/api/nothing", {"as": "analyst"}, 404),
    ("no such method", "PUT", "/api/alert", {"as": "analyst"}, 405),
    ("a body on GET", "GET", "/api/user/current", {"as": "analyst"}, 200),
    ("too large", "POST", "/api/alert", {"as": "analyst", "size": "9"}, 413),
)


async def headers_of(core: RunningCore, options: dict[str, str]) -> dict[str, str]:
    sent = {name: value for name, value in options.items() if name.startswith("X-")}
    if "as" in options:
        sent["Authorization"] = f"Bearer {await core.key('analyst')}"
    return sent


def with_http_client(url: str, method: str, path: str, headers: dict[str, str], body: Any) -> list[int]:
    """Twice on one connection, then something plain: what is left of a body must not be taken for a request."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        found = []
        for _ in range(2):
            is_plain = isinstance(body, bytes)
            content = body if is_plain else iter(body)
            connection.request(method, path, content, headers, encode_chunked=not is_plain)
            answer = connection.getresponse()
            answer.read()
            found.append(answer.status)
        connection.request("GET", "/api/nowhere")
        found.append(connection.getresponse().status)
        return found
    finally:
        connection.close()


def with_urllib(url: str, method: str, path: str, headers: dict[str, str], body: Any) -> list[int]:
    content = body if isinstance(body, bytes) else iter(body)
    http_request = urllib.request.Request(url + path, content, headers, method=method)  # noqa: S310 - our own core
    try:
        with urllib.request.urlopen(http_request, timeout=30) as answer:  # noqa: S310 - as above
            return [answer.status]
    except urllib.error.HTTPError as error:
        with error:
            return [error.code]


async def with_httpx(url: str, method: str, path: str, headers: dict[str, str], body: Any) -> list[int]:
    async def parts() -> AsyncIterator[bytes]:
        for part in body:
            yield part

    content = body if isinstance(body, bytes) else parts()
    async with httpx.AsyncClient(timeout=30) as client:
        return [(await client.request(method, url + path, content=content, headers=headers)).status_code]


@pytest.mark.parametrize("is_chunked", [False, True], ids=["plain", "chunked"])
@pytest.mark.parametrize(("what", "method", "path", "options", "status"), EARLY, ids=[one[0] for one in EARLY])
async def test_every_client_gets_a_response_sent_before_its_body(
    core: RunningCore, what: str, method: str, path: str, options: dict[str, str], status: int, is_chunked: bool
) -> None:
    size = int(options["size"]) * MIB + LARGE if "size" in options else LARGE
    plain = b" " * size
    body: Any = [plain[at : at + 16_384] for at in range(0, size, 16_384)] if is_chunked else plain
    headers = await headers_of(core, options)
    head = {**headers, "Transfer-Encoding": "chunked"} if is_chunked else headers
    for _ in range(2 if "size" in options else 5):
        found = await asyncio.to_thread(with_http_client, core.url, method, path, head, body)
        assert found == [status, status, 401]
        assert await asyncio.to_thread(with_urllib, core.url, method, path, headers, body) == [status]
        assert await with_httpx(core.url, method, path, headers, body) == [status]


async def test_the_rest_of_an_answered_body_is_not_another_request(core: RunningCore) -> None:
    for framing, body in (
        (f"Content-Length: {LARGE}", b" " * LARGE),
        ("Transfer-Encoding: chunked", chunked(*[b" " * 10_000] * 30)),
    ):
        sent = request("POST /api/alert HTTP/1.1", framing)
        after = request("GET /health HTTP/1.1", "Connection: close")
        assert statuses(await exchange(core.url, sent, body, after)) == [401, 200]


async def test_a_refused_expect_continue_gets_its_response_and_closes(core: RunningCore) -> None:
    """Nobody knows whether the body still comes, so the connection can't go on."""
    head = request("POST /api/alert HTTP/1.1", "Content-Length: 100", "Expect: 100-continue")
    received = await exchange(core.url, head)
    assert statuses(received) == [401]
    assert b"connection: close" in received.lower()


async def test_expect_continue_gets_100_continue(core: RunningCore) -> None:
    key, body = await core.key("analyst"), ALERT % b"continue"
    head = request(
        *("POST /api/alert HTTP/1.1", f"Authorization: Bearer {key}", "Expect: 100-continue", "Connection: close"),
        f"Content-Length: {len(body)}",
    )
    address = urlsplit(core.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(head)
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert statuses(await reader.read()) == [201]
    writer.close()


# --- one request, and nothing of another ----------------------------------------------------------------------------


async def test_trailers_are_not_headers(core: RunningCore) -> None:
    key, service = await core.key("analyst"), await core.key("service")
    first, framing = "POST /api/alert HTTP/1.1", "Transfer-Encoding: chunked"
    body = chunked(ALERT % b"trailer", trailers=f"Authorization: Bearer {key}\r\n")
    assert statuses(await exchange(core.url, request(first, framing, "Connection: close", body=body))) == [401]
    body = chunked(ALERT % b"trailer", trailers="X-On-Behalf-Of: analyst\r\n")
    received = await exchange(
        core.url, request(first, framing, f"Authorization: Bearer {service}", "Connection: close", body=body)
    )
    assert statuses(received) == [403]


async def test_garbage_after_a_request_does_not_change_its_response(core: RunningCore) -> None:
    key, body = await core.key("analyst"), ALERT % b"rubbish"
    head = (f"Authorization: Bearer {key}", f"Content-Length: {len(body)}")
    sent = request("POST /api/alert HTTP/1.1", *head, body=body)
    assert statuses(await exchange(core.url, sent + b"\x00\x01 rubbish\r\n\r\n")) == [201, 400]
    body = chunked(ALERT % b"rubbish-2")
    sent = request("POST /api/alert HTTP/1.1", head[0], "Transfer-Encoding: chunked", body=body)
    assert statuses(await exchange(core.url, sent + b"}}}} / rubbish\r\n\r\n")) == [201, 400]
    ends = request("GET /health HTTP/1.1", "Connection: close")
    assert statuses(await exchange(core.url, ends + b"rubbish\r\n\r\n")) == [200]


async def test_pipelined_requests_are_answered_in_order_one_at_a_time(tmp_path: Path) -> None:
    at_work, most, paths = 0, 0, []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        paths.append(scope["path"])
        await asyncio.sleep(0)
        await Response(scope["path"])(scope, receive, send)
        at_work -= 1

    async with http_server(app, bind("127.0.0.1", 0), grace_s=0) as url:
        many = b"".join(request(f"GET /{number} HTTP/1.1") for number in range(2_000))
        received = await exchange(url, many, request("GET /end HTTP/1.1", "Connection: close"))
    assert statuses(received) == [200] * 2_001
    assert paths == [f"/{number}" for number in range(2_000)] + ["/end"]
    assert most == 1


async def test_a_request_with_a_broken_body_is_refused_after_those_before_it(core: RunningCore) -> None:
    key = await core.key("analyst")
    head = ("POST /api/alert HTTP/1.1", f"Authorization: Bearer {key}")
    whole = request(*head, f"Content-Length: {len(BODY)}", body=BODY)
    broken = request(*head, "Transfer-Encoding: chunked", body=b"rubbish\r\n")
    received = await exchange(core.url, whole * 2 + broken + whole)
    assert statuses(received) == [201, 400, 400]
    assert received.endswith(b'"Invalid HTTP request received."}')


async def test_few_of_the_requests_that_are_sent_at_once_wait_in_memory() -> None:
    waiting, may_answer, numbers = asyncio.Event(), asyncio.Event(), itertools.count()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if next(numbers) > 100:
            waiting.set()
            await may_answer.wait()
        await Response(b"")(scope, receive, send)

    async with http_server(app, bind("127.0.0.1", 0), grace_s=0) as url:
        address = urlsplit(url)
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(request("GET / HTTP/1.1") * 20_000)
        await waiting.wait()
        assert held(RequestResponseCycle) < 500
        writer.transport.abort()
        may_answer.set()


async def test_nothing_is_kept_of_a_connection_that_its_client_resets() -> None:
    gc.freeze()  # so that only what is made from now on is looked through
    async with small(ConnectionLimits()) as (url, _):
        for _ in range(20):
            reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
            writer.write(request("GET / HTTP/1.1"))
            await reader.readuntil(b"small")
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        await gone(url, 0)
        await until(lambda: held(HttpConnection) == 0, "all connections collected")


def held(kind: type) -> int:
    """How many objects of a class there are."""
    gc.collect()
    return sum(type(thing) is kind for thing in gc.get_objects())


BODY = ALERT % b"smuggled"
SMUGGLED = "GET /health HTTP/1.1\r\nHost: core\r\n\r\n"
AMBIGUOUS: dict[str, tuple[Sequence[str], bytes]] = {
    "a length and chunks": (("Content-Length: 5", "Transfer-Encoding: chunked"), b"0\r\n\r\n" + SMUGGLED.encode()),
    "chunks and a length": (("Transfer-Encoding: chunked", "Content-Length: 5"), b"0\r\n\r\n" + SMUGGLED.encode()),
    "two lengths": (("Content-Length: 2", "Content-Length: 3"), b"{} "),
    "the same length twice": (("Content-Length: 2", "Content-Length: 2"), b"{}"),
    "a list of lengths": (("Content-Length: 2, 2",), b"{}"),
    "a length with a sign": (("Content-Length: +2",), b"{}"),
    "a length past all bounds": (("Content-Length: 99999999999999999999",), b"{}"),
    "an unknown coding": (("Transfer-Encoding: gzip",), b"{}"),
    "an unknown coding in chunks": (("Transfer-Encoding: gzip, chunked",), chunked(b"{}")),
    "chunks twice": (("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), chunked(b"{}")),
    "a coding in disguise": (("Transfer-Encoding: \x0bchunked",), chunked(b"{}")),
    "a folded header": (("X-A: b", " c: d", "Content-Length: 2"), b"{}"),
    "a blank before the colon": (("Content-Length : 2",), b"{}"),
    "a header without CR": (("X-A: b\nX-C: d", "Content-Length: 2"), b"{}"),
    "a CR alone": (("X-A: b\rX-C: d", "Content-Length: 2"), b"{}"),
    "NUL": (("X-A: \x00", "Content-Length: 2"), b"{}"),
    "a chunk without its size": (("Transfer-Encoding: chunked",), b"xyz\r\n{}\r\n0\r\n\r\n"),
    "a negative chunk": (("Transfer-Encoding: chunked",), b"-2\r\n{}\r\n0\r\n\r\n"),
    "a chunk of hexadecimal with a sign": (("Transfer-Encoding: chunked",), b"0x2\r\n{}\r\n0\r\n\r\n"),
    "a chunk past all bounds": (("Transfer-Encoding: chunked",), b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
    "a chunk longer than its size": (("Transfer-Encoding: chunked",), b"1\r\n{}\r\n0\r\n\r\n"),
    "a chunk's line without CR": (("Transfer-Encoding: chunked",), b"2\n{}\r\n0\r\n\r\n"),
    "an extension without CR": (("Transfer-Encoding: chunked",), b"2;a\n{}\r\n0\r\n\r\n"),
    "an endless extension": (("Transfer-Encoding: chunked",), b"2;" + b"a" * 100_000),
    "an endless trailer": (("Transfer-Encoding: chunked",), b"0\r\nA: " + b"a" * 100_000),
    "endless trailers": (("Transfer-Encoding: chunked",), b"0\r\n" + b"A: b\r\n" * 100_000),
    "more framing than body": (("Transfer-Encoding: chunked",), b"1;aaaaaaaaaaaaaaaa\r\n \r\n" * 30_000),
}


@pytest.mark.parametrize("what", AMBIGUOUS)
async def test_an_ambiguous_request_is_refused_once(core: RunningCore, what: str) -> None:
    headers, body = AMBIGUOUS[what]
    key = await core.key("org-admin")
    sent = request("POST /api/case/template HTTP/1.1", f"Authorization: Bearer {key}", *headers, body=body)
    received = await exchange(core.url, sent)
    assert statuses(received) == [400]
    assert b"connection: close" in received.lower()


async def test_an_upgrade_request_keeps_its_body(core: RunningCore) -> None:
    """However the head is cut: a proxy before core forwards these bytes as the body, so they are no request."""
    key = await core.key("org-admin")
    for offer in ("h2c", "websocket"):
        sent = request(
            *("POST /api/case/template HTTP/1.1", f"Authorization: Bearer {key}", f"Content-Length: {len(SMUGGLED)}"),
            *("Connection: Upgrade", f"Upgrade: {offer}"),
            body=SMUGGLED.encode(),
        )
        after = request("GET /health HTTP/1.1", "Connection: close")
        for cut in (len(sent), 30, sent.index(b"Upgrade: ") + 4, len(sent) - 5):
            assert statuses(await exchange(core.url, sent[:cut], sent[cut:] + after)) == [400, 200]
    for odd in (b"CONNECT core:80 HTTP/1.1\r\nHost: core\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        assert statuses(await exchange(core.url, odd + SMUGGLED.encode())) == [400]


async def test_tiny_chunks_do_not_block_other_requests() -> None:
    """810 kB of them, at most 32 KiB in one turn of the loop."""
    turns = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal turns
        turning = asyncio.create_task(turn())
        while (await receive()).get("more_body"):
            pass
        turning.cancel()
        await Response("done")(scope, receive, send)

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with http_server(app, bind("127.0.0.1", 0), grace_s=0) as url:
        body = b"4\r\nabcd\r\n" * 90_000 + b"0\r\n\r\n"
        sent = request("POST / HTTP/1.1", "Transfer-Encoding: chunked", "Connection: close", body=body)
        assert statuses(await exchange(url, sent)) == [200]
    assert turns >= 20  # the first few are over before the application counts


async def test_a_request_may_arrive_split_anywhere(core: RunningCore) -> None:
    key = await core.key("org-admin")
    head = ("POST /api/case/template HTTP/1.1", f"Authorization: Bearer {key}", "Transfer-Encoding: chunked")
    for number in range(0, 60):
        body = chunked(b'{"name":', b'"cut-%d"}' % number, trailers="A: b\r\n").replace(b"8\r\n", b"8;a=b\r\n", 1)
        sent = b"\r\n" + request(*head, "Connection: close", body=body)
        cut = len(sent) - number - 1
        assert statuses(await exchange(core.url, sent[:cut], sent[cut:])) == [201]


# --- what a head must and must not say ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("Authorization", "Bearer wrong", "Bearer {key}"),
        ("Authorization", "Bearer {key}", "Bearer {key}"),
        ("X-On-Behalf-Of", "analyst", "org-admin"),
        ("Host", "core", "core"),
        ("Content-Type", "application/json", "text/plain"),
        ("Idempotency-Key", "a", "b"),
        ("Content-Encoding", "identity", "gzip"),
    ],
)
async def test_security_relevant_headers_must_not_be_repeated(
    core: RunningCore, name: str, first: str, second: str
) -> None:
    key = await core.key("service" if name.startswith("X-") else "analyst")
    pair = [f"{name}: {value}".format(key=key) for value in (first, second)]
    more = [] if name == "Authorization" else [f"Authorization: Bearer {key}"]
    host = "" if name == "Host" else "Host: core"
    received = await exchange(core.url, request("GET /api/user/current HTTP/1.1", *pair, *more, host=host))
    assert statuses(received) == [400]
    assert f"more than one {name.lower()} header".encode() in received


async def test_host_and_a_supported_version_are_required(core: RunningCore) -> None:
    assert statuses(await exchange(core.url, request("GET /health HTTP/1.1", host=""))) == [400]
    assert statuses(await exchange(core.url, request("GET /health HTTP/1.0", host=""))) == [200]
    for version in ("HTTP/2.0", "HTTP/0.9"):
        assert statuses(await exchange(core.url, request(f"GET /health {version}"))) == [505]
    assert statuses(await exchange(core.url, b"GET /health\r\n\r\n")) == [505]


async def test_only_spaces_and_tabs_are_stripped_from_a_key(core: RunningCore) -> None:
    key = await core.key("analyst")
    for sent, status in ((f" \t{key}\t ", 200), (f"\xa0{key}", 401), (f"{key}\xa0", 401), (f"\x85{key}", 401)):
        received = await exchange(
            core.url,
            request("GET /api/user/current HTTP/1.1", f"Authorization: Bearer {sent}", "Connection: close"),
        )
        assert statuses(received) == [status]


async def test_head_has_the_headers_of_get_and_no_body(core: RunningCore) -> None:
    received = await exchange(core.url, request("HEAD /api/docs HTTP/1.1", "Connection: close"))
    head, _, body = received.partition(b"\r\n\r\n")
    assert (statuses(received), body) == ([200], b"")
    assert int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]) > 0


# --- clients that hold what they should not -------------------------------------------------------------------------


@asynccontextmanager
async def small(bounds: ConnectionLimits, size: int = 4 * MIB) -> AsyncIterator[tuple[str, list[int]]]:
    """A listener with these bounds, whose answers are large; and the process's answers so far."""
    answered: list[int] = []
    content = b"x" * size

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answered.append(1)
        await Response(content if scope["path"] == "/large" else b"small")(scope, receive, send)

    async with http_server(app, bind("127.0.0.1", 0), grace_s=0, limits=bounds) as url:
        yield url, answered


async def unread(url: str, number: int, sent: bytes) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connections that ask and then do not read."""
    address = urlsplit(url)
    opened = []
    for _ in range(number):
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a TCP transport
        writer.write(sent)
        opened.append((reader, writer))
    return opened


async def is_cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> bool:
    """Whether the connection ended before all of the answer came."""
    writer.transport.resume_reading()  # type: ignore[attr-defined]  # of a TCP transport
    got = 0
    try:
        while part := await reader.read(65_536):
            got += len(part)
    except ConnectionError:
        return True
    finally:
        writer.transport.abort()
    return got < size


def served(url: str) -> int:
    """How many connections the listener at this address has not ended (Linux's table of TCP: local port, state)."""
    end = f":{urlsplit(url).port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(end) and row[3] in ("01", "08") for row in rows)  # established, the client's end closed


async def gone(url: str, left: int) -> None:
    """Wait until the listener has no more than so many connections."""
    await until(lambda: served(url) <= left, f"no more than {left} connections")


async def test_a_client_that_does_not_read_its_response_is_disconnected(tmp_path: Path) -> None:
    bounds = ConnectionLimits(write_timeout_s=0.2, check_every_s=0.05, unsent_limit_bytes=1024 * MIB)
    async with small(bounds, 40 * MIB) as (url, answered):
        readers = await unread(url, 5, request("GET /large HTTP/1.1"))
        await until(lambda: len(answered) == 5, "all requests")
        await gone(url, 0)
        assert [await is_cut(*one, 40 * MIB) for one in readers] == [True] * 5


async def test_unsent_bytes_of_all_clients_have_a_limit_and_readers_are_served(tmp_path: Path) -> None:
    bounds = ConnectionLimits(unsent_limit_bytes=60 * MIB, write_timeout_s=600)
    async with small(bounds, 20 * MIB) as (url, answered):
        readers = await unread(url, 12, request("GET /large HTTP/1.1"))
        await until(lambda: len(answered) == 12, "all requests")
        await gone(url, 4)
        async with httpx.AsyncClient(timeout=60) as client:
            assert len((await client.get(f"{url}/large")).content) == 20 * MIB
        for _, writer in readers:
            writer.transport.abort()


async def test_a_pipelined_request_waits_until_the_response_before_it_is_read(tmp_path: Path) -> None:
    async with small(ConnectionLimits(), 20 * MIB) as (url, answered):
        [(_, writer)] = await unread(url, 1, request("GET /large HTTP/1.1") * 1_000)
        async with httpx.AsyncClient() as client:
            for _ in range(200):
                await client.get(f"{url}/small")
        assert len(answered) <= 202
        writer.transport.abort()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nx",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5",
        b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\r\n",
    ],
    ids=[
        *("nothing", "an empty line", "half a head", "half a body", "half a chunk", "no end of its own"),
        *("a request", "a request and an empty line"),
    ],
)
async def test_idle_connections_are_closed(sent: bytes) -> None:
    bounds = ConnectionLimits(head_timeout_s=0.1, idle_timeout_s=1, drain_timeout_s=0.1, check_every_s=0.05)
    async with small(bounds) as (url, _):
        address = urlsplit(url)
        opened = [await asyncio.open_connection(address.hostname, address.port) for _ in range(100)]
        for _, writer in opened:
            writer.write(sent)
        async with asyncio.timeout(60):
            ends = await asyncio.gather(*(reader.read() for reader, _ in opened), return_exceptions=True)
        for _, writer in opened:
            writer.close()
        await gone(url, 0)
    reset = [end for end in ends if isinstance(end, ConnectionResetError)]  # what was sent had not been read
    assert {tuple(statuses(end)) for end in ends if isinstance(end, bytes)} <= {(), (200,)}
    assert len(reset) + sum(isinstance(end, bytes) for end in ends) == len(ends)


async def drip(writer: asyncio.StreamWriter) -> None:
    """Send a header at a time until the connection is closed."""
    async with asyncio.timeout(60):
        while not writer.is_closing():
            writer.write(b"X: y\r\n")
            await asyncio.sleep(0.02)


async def for_ever(writer: asyncio.StreamWriter, chunk: bytes) -> None:
    while True:
        writer.write(chunk)
        await writer.drain()


async def test_a_body_without_end_is_cut_off_some_time_after_its_answer() -> None:
    async with small(ConnectionLimits(drain_timeout_s=0.2, check_every_s=0.05)) as (url, answered):
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(60):
            with pytest.raises(ConnectionError):
                await for_ever(writer, b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        assert answered == [1]


async def test_a_head_that_arrives_slowly_times_out() -> None:
    async with small(ConnectionLimits(head_timeout_s=0.2, check_every_s=0.05)) as (url, answered):
        address = urlsplit(url)
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(b"GET / HTTP/1.1\r\n")
        await drip(writer)
        assert answered == []


async def test_idle_connections_do_not_delay_requests(core: RunningCore) -> None:
    address = urlsplit(core.url)
    silent = [await asyncio.open_connection(address.hostname, address.port) for _ in range(500)]
    assert (await core.http.get("/health")).json()["status"] == "ok"
    body = json.loads(ALERT % b"meanwhile")
    assert (await core.send("POST", "/api/alert", body)).status_code == 201
    for _, writer in silent:
        writer.transport.abort()
