"""Generate HTTP load over keep-alive connections, at little cost to the client."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from statistics import median
from typing import Any, cast
from urllib.parse import urlsplit

from tests.bench.processes import CLOCK_TICK_S, ServerProcess

IDLE_POLL_S = 0.1
IDLE_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class LoadResult:
    """Throughput of a load, and the number of its answers."""

    per_second: float
    count: int
    median_s: float
    """Of the time that an answer took."""


def request(method: str, url: str, path: str, *, headers: Mapping[str, str] | None = None, body: Any = None) -> bytes:
    """The bytes of a request; `body` is sent as JSON, or as it is if it is bytes."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {urlsplit(url).netloc}"]
    defaults = {"Content-Type": "application/json", "Content-Length": str(len(content))} if content else {}
    lines += [f"{name}: {value}" for name, value in {**defaults, **(headers or {})}.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


@dataclass
class _LoadState:
    """What the connections of one load share."""

    requests: Iterator[bytes]
    expect: bytes
    until: float
    over: asyncio.Future[None]
    times: list[float] = field(default_factory=list)
    open: int = 0

    def fail(self, why: str) -> None:
        if not self.over.done():
            self.over.set_exception(RuntimeError(why))


class _Connection(asyncio.Protocol):
    """Sends the next request when the answer to the one before is complete."""

    def __init__(self, state: _LoadState) -> None:
        self._state = state
        self._head = b""
        self._left = 0
        self._sent = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        self._state.open += 1
        self._send()

    def _send(self) -> None:
        assert self._transport is not None
        self._sent = time.perf_counter()
        self._transport.write(next(self._state.requests))

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._left -= len(data)
        else:
            data = self._head + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._head = data
                return
            self._head = b""
            if not data.startswith(self._state.expect):
                self._state.fail(data[:600].decode("utf-8", "replace"))
                return
            at = data[:end].lower().find(b"content-length: ") + 16
            self._left = int(data[at : data.find(b"\r", at)]) - (len(data) - end - 4)
        if not self._left:
            self._answered()

    def _answered(self) -> None:
        state, now = self._state, time.perf_counter()
        state.times.append(now - self._sent)
        if now < state.until:
            self._send()
            return
        assert self._transport is not None
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        state = self._state
        state.open -= 1
        if exc is not None or time.perf_counter() < state.until:
            state.fail(f"the server hung up: {exc}")
        if not state.open and not state.over.done():
            state.over.set_result(None)


async def load(
    url: str, requests: Sequence[bytes], *, seconds: float, at_once: int = 32, status: int = 200
) -> LoadResult:
    """Repeat `requests` over `at_once` connections. Raises RuntimeError for an answer with another status."""
    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    expect = f"HTTP/1.1 {status} ".encode()
    state = _LoadState(cycle(requests), expect, started + seconds, loop.create_future())
    parts = urlsplit(url)
    for _ in range(at_once):
        await loop.create_connection(lambda: _Connection(state), str(parts.hostname), parts.port or 80)
    await state.over
    rate = len(state.times) / (time.perf_counter() - started)
    return LoadResult(rate, len(state.times), median(state.times))


class LoadMeter:
    """Measures throughput, and the server's processor time for each answer.

    Where other programs use the machine too, the processor time is the more reliable of the two.
    """

    def __init__(self) -> None:
        self.cpu_s_per_answer: dict[str, list[float]] = {}
        """Samples by the server's name, in seconds."""

    async def rate(
        self, name: str, server: ServerProcess, requests: Sequence[bytes], *, seconds: float, status: int = 200
    ) -> float:
        """Answers per second, 32 at once."""
        return (await self._load(name, server, requests, 32, seconds, status)).per_second

    async def median_s(
        self, name: str, server: ServerProcess, requests: Sequence[bytes], *, seconds: float, status: int = 200
    ) -> float:
        """The median time of an answer, one at a time."""
        return (await self._load(name, server, requests, 1, seconds, status)).median_s

    async def _load(
        self, name: str, server: ServerProcess, requests: Sequence[bytes], at_once: int, seconds: float, status: int
    ) -> LoadResult:
        before = server.cpu_s()
        result = await load(server.url, requests, seconds=seconds, at_once=at_once, status=status)
        await _wait_until_idle(server)
        self.cpu_s_per_answer.setdefault(name, []).append(max(server.cpu_s() - before, CLOCK_TICK_S) / result.count)
        return result


async def _wait_until_idle(server: ServerProcess) -> None:
    """Wait for work in the background: it is part of an answer's cost, and would slow the next trial."""
    async with asyncio.timeout(IDLE_TIMEOUT_S):
        before = server.cpu_s()
        while True:
            await asyncio.sleep(IDLE_POLL_S)
            now = server.cpu_s()
            if now - before <= CLOCK_TICK_S:
                return
            before = now
