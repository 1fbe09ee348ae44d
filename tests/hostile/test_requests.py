"""Requests that attack core by their size, their content, or by how they are sent and read."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx
import pytest
import pytest_asyncio

from tests.core.core_process import ALERT, CoreProcess, alert_in, core_process, setup_in
from tests.hostile.bystander import Latencies, assert_unaffected, measure_idle, measured_bystander

pytestmark = pytest.mark.hostile

AT_ONCE = 4
TCP_ESTABLISHED = 1  # the first byte of TCP_INFO is the state, by the kernel's numbers
TEMPLATE = "/api/case/template"

BOMBS: dict[str, tuple[str, bytes]] = {
    "numbers as tasks": (TEMPLATE, b'{"name":"x","tasks":[' + b"1," * 523_990 + b"1]}"),
    "numbers as tags": (TEMPLATE, b'{"name":"x","tags":[' + b"1," * 523_990 + b"1]}"),
    "empty objects as tasks": (TEMPLATE, b'{"name":"x","tasks":[' + b"{}," * 349_000 + b"{}]}"),
    "wrong custom fields": (
        TEMPLATE,
        b'{"name":"x","customFields":{' + b",".join(b'"f%d":1' % n for n in range(87_000)) + b"}}",
    ),
    "right custom fields": (
        TEMPLATE,
        b'{"name":"x","customFields":{' + b",".join(b'"f%d":{"integer":1}' % n for n in range(40_000)) + b"}}",
    ),
    "valid tasks": (TEMPLATE, b'{"name":"x","tasks":[' + b",".join([b'{"title":"t"}'] * 70_000) + b"]}"),
    "valid tags": (TEMPLATE, b'{"name":"x","tags":[' + b",".join(b'"%d"' % n for n in range(120_000)) + b"]}"),
    "numbers as artifacts": ("/api/alert", b'{"title":"x","artifacts":[' + b"1," * 523_990 + b"1]}"),
    "valid artifacts": (
        "/api/alert",
        b'{"type":"t","source":"s","sourceRef":"bomb","title":"x","description":"d","artifacts":['
        + b",".join(b'{"dataType":"ip","data":"%d"}' % n for n in range(30_000))
        + b"]}",
    ),
    "a deep search": ("/api/alert/_search", b'{"query":' + b'{"_and":[' * 40_000 + b"]}" * 40_000 + b"}"),
    "a wide search": ("/api/alert/_search", b'{"query":{"_or":[' + b",".join([b'{"title":"x"}'] * 60_000) + b"]}}"),
    "numbers in a search": (
        "/api/alert/_search",
        b'{"query":{"_in":{"_field":"a","_values":[' + b"1," * 500_000 + b"1]}}}",
    ),
    "many keys": ("/api/alert", b"{" + b",".join(b'"k%d":1' % n for n in range(90_000)) + b"}"),
    "a deep body": ("/api/alert", b"[" * 1_000_000),
    "a long number": ("/api/alert", b'{"severity":' + b"9" * 1_000_000 + b"}"),
    "escapes": ("/api/alert", b'{"title":"' + b"\\u0000" * 170_000 + b'"}'),
    "a bulk of ids": (
        "PATCH /api/alert/_bulk",
        b'{"ids":[' + b",".join([b'"~1"'] * 90_000) + b'],"tags":["x"]}',
    ),
    "a query of many steps": ("/api/v1/query", b'{"query":[' + b",".join([b'{"_name":"listAlert"}'] * 40_000) + b"]}"),
}
"""Bodies of at most 1 MiB, with their path; they are sent compressed."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CoreProcess]:
    setup = await setup_in(tmp_path_factory.mktemp("requests"))
    async with core_process(setup) as core:
        yield core


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def baseline(core: CoreProcess) -> Latencies:
    return await measure_idle(core)


def key_of(core: CoreProcess, name: str = "lead") -> dict[str, str]:
    return {"Authorization": f"Bearer {core.setup.keys[name]}"}


@pytest.mark.parametrize("what", BOMBS)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_small_body_that_is_expensive_to_parse_delays_no_one(
    core: CoreProcess, baseline: Latencies, what: str
) -> None:
    address, body = BOMBS[what]
    method, _, path = address.rpartition(" ")
    assert len(body) <= 1_048_576, "a body over the limit would only test the limit"
    headers = {**key_of(core), "Content-Type": "application/json", "Content-Encoding": "gzip"}
    async with httpx.AsyncClient(base_url=core.url, timeout=60) as http, measured_bystander(core) as latencies:
        sending = [
            http.request(method or "POST", path, content=gzip.compress(body), headers=headers) for _ in range(AT_ONCE)
        ]
        answers = await asyncio.gather(*sending)
    assert_unaffected(latencies, baseline, what)
    for answer in answers:
        assert answer.status_code in (200, 201, 400, 404, 413), answer.text[:300]
        assert len(answer.content) < 2_000_000
        if answer.status_code >= 400:
            assert answer.json()["message"]
            assert len(answer.json().get("errors", [])) <= 1_000


@pytest.mark.asyncio(loop_scope="module")
async def test_large_answers_that_nobody_reads_and_refused_ones_hold_neither_memory_nor_connection(
    core: CoreProcess, baseline: Latencies
) -> None:
    for number in range(20):
        alert = {**ALERT, "type": "unread", "sourceRef": f"{number}", "description": "x" * 900_000}
        await core.client("lead").create_alert(alert)
    before = memory_kib(core)
    async with measured_bystander(core) as latencies:
        async with connections(core, 20, search(core, "all")) as readers:
            async with asyncio.timeout(90):
                heads = [await reader.readline() for reader in readers]
            assert memory_kib(core) - before < 300_000
        async with connections(core, 20, search(core, "0-8")) as readers:
            async with asyncio.timeout(90):
                for reader in readers:
                    await wait_closed_by_core(reader)
            assert memory_kib(core) - before < 300_000
    assert {head.split()[1] for head in heads} == {b"400"}, "they ask for more than an answer may hold"
    assert core.log.read_text().count("write_timeout") == 20
    assert_unaffected(latencies, baseline, "readers who don't read")


def search(core: CoreProcess, wanted: str) -> bytes:
    body, key = '{"query":{"type":"unread"}}', key_of(core)["Authorization"]
    head = f"POST /api/alert/_search?range={wanted} HTTP/1.1\r\nHost: core\r\nContent-Type: application/json"
    return f"{head}\r\nAuthorization: {key}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@asynccontextmanager
async def connections(core: CoreProcess, count: int, sent: bytes) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many connections on which this was sent; in the end they are closed."""
    host, port = core.url.removeprefix("http://").split(":")
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(count):
            reader, writer = await asyncio.open_connection(host, port, limit=1024)
            stack.push_async_callback(closed, writer)
            writer.write(sent)
            readers.append(reader)
        yield readers


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def wait_closed_by_core(reader: asyncio.StreamReader) -> None:
    """Wait until core has closed the connection, without reading what it sent."""
    reader._transport.pause_reading()  # type: ignore[attr-defined]  # nothing public stops a stream's reading
    connection = reader._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    while connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_ESTABLISHED:  # noqa: ASYNC110 - see below
        await asyncio.sleep(0.1)  # nothing notifies of a change of this state


def memory_kib(core: CoreProcess) -> int:
    with open(f"/proc/{core.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


@pytest.mark.asyncio(loop_scope="module")
async def test_abandoned_searches_delay_no_one(core: CoreProcess, baseline: Latencies) -> None:
    await alert_in(core, "searched")
    slow = {"query": {"_or": [{"_string": f"a*b*c*{n}"} for n in range(8)]}}
    slower = {"query": {"_like": {"_field": "description", "_value": "*a*b*c*d*e*f*"}}}
    async with measured_bystander(core) as latencies:
        async with httpx.AsyncClient(base_url=core.url, timeout=60) as http:
            for body in (slow, slower) * 10:
                with suppress(httpx.TimeoutException):
                    await http.post("/api/alert/_search?range=all", json=body, headers=key_of(core), timeout=0.05)
        async with httpx.AsyncClient(base_url=core.url, timeout=20) as http:
            found = await http.post(
                "/api/alert/_search", json={"query": {"sourceRef": "searched"}}, headers=key_of(core)
            )
    assert_unaffected(latencies, baseline, "searches that were given up")
    assert found.status_code == 200
    assert len(found.json()) == 1


PARTIAL: dict[str, bytes] = {
    "nothing": b"",
    "half a line": b"POST /api/al",
    "half a head": b"POST /api/alert HTTP/1.1\r\nHost: core\r\nAuth",
    "half a body": b"POST /api/alert HTTP/1.1\r\nHost: core\r\nContent-Length: 100000\r\n\r\n{",
    "half a chunk": b"POST /api/alert HTTP/1.1\r\nHost: core\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nx",
}


@pytest.mark.parametrize("what", PARTIAL)
@pytest.mark.asyncio(loop_scope="module")
async def test_half_sent_requests_delay_no_one(core: CoreProcess, baseline: Latencies, what: str) -> None:
    async with measured_bystander(core) as latencies, connections(core, 200, PARTIAL[what]):
        for _ in range(3):
            assert (await core.client().health())["status"] == "ok"
    assert_unaffected(latencies, baseline, what)


EARLY: dict[str, Callable[[httpx.AsyncClient, dict[str, str]], Awaitable[httpx.Response]]] = {
    "401": lambda http, key: http.post("/api/alert", content=b"x" * 300_000),
    "403": lambda http, key: http.post("/api/alert", content=b"x" * 300_000, headers={**key, "X-On-Behalf-Of": "x@y"}),
    "404": lambda http, key: http.post("/api/nothing", content=b"x" * 300_000, headers=key),
    "405": lambda http, key: http.put("/api/alert", content=b"x" * 300_000, headers=key),
    "200": lambda http, key: http.request("GET", "/api/user/current", content=b"x" * 300_000, headers=key),
}


@pytest.mark.parametrize("status", EARLY)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_early_answer_is_sent_once(core: CoreProcess, baseline: Latencies, status: str) -> None:
    async with httpx.AsyncClient(base_url=core.url, timeout=60) as http, measured_bystander(core) as latencies:
        answers = [await EARLY[status](http, key_of(core)) for _ in range(15)]
        then = await http.get("/health")
    assert_unaffected(latencies, baseline, f"early {status}")
    assert {answer.status_code for answer in answers} == {int(status)}
    assert then.status_code == 200
