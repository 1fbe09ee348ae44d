"""A load of HTTP requests over connections that stay open, cheap enough not to be what is measured."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, cast
from urllib.parse import urlsplit

from tests.bench.programs import TICK_S, Child

IDLE_LOOK_S = 0.1
IDLE_WITHIN_S = 30.0


@dataclass(frozen=True)
class Served:
    """What a load of some seconds has seen."""

    per_second: float
    count: int


def request(method: str, url: str, path: str, *, headers: Mapping[str, str] | None = None, body: Any = None) -> bytes:
    """The bytes of a request; `body` is sent as JSON, or as it is if it is bytes."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {urlsplit(url).netloc}"]
    given = {"Content-Type": "application/json", "Content-Length": str(len(content))} if content else {}
    lines += [f"{name}: {value}" for name, value in {**given, **(headers or {})}.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


@dataclass
class _Run:
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
    """One request after another."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._head = b""
        self._left = 0
        self._sent = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        self._run.open += 1
        self._send()

    def _send(self) -> None:
        assert self._transport is not None
        self._sent = time.perf_counter()
        self._transport.write(next(self._run.requests))

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
            if not data.startswith(self._run.expect):
                self._run.fail(data[:600].decode("utf-8", "replace"))
                return
            at = data[:end].lower().find(b"content-length: ") + 16
            self._left = int(data[at : data.find(b"\r", at)]) - (len(data) - end - 4)
        if not self._left:
            self._answered()

    def _answered(self) -> None:
        run, now = self._run, time.perf_counter()
        run.times.append(now - self._sent)
        if now < run.until:
            self._send()
            return
        assert self._transport is not None
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        run = self._run
        run.open -= 1
        if exc is not None or time.perf_counter() < run.until:
            run.fail(f"the server hung up: {exc}")
        if not run.open and not run.over.done():
            run.over.set_result(None)


async def load(url: str, requests: Sequence[bytes], *, seconds: float, at_once: int = 32, status: int = 200) -> Served:
    """Send `requests`, again and again, over `at_once` connections. Any other answer than `status` ends it."""
    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    expect = f"HTTP/1.1 {status} ".encode()
    run = _Run(cycle(requests), expect, started + seconds, loop.create_future())
    parts = urlsplit(url)
    for _ in range(at_once):
        await loop.create_connection(lambda: _Connection(run), str(parts.hostname), parts.port or 80)
    await run.over
    return Served(len(run.times) / (time.perf_counter() - started), len(run.times))


class Weighed:
    """Loads on servers, each with the processor time that its server spent on an answer.

    Where other programs use the machine too, the time is the truer figure of the two.
    """

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}
        """Seconds for an answer, by the server's name, a figure for each turn."""

    async def rate(
        self, name: str, server: Child, requests: Sequence[bytes], *, seconds: float, status: int = 200
    ) -> float:
        """Answers in a second."""
        before = server.busy_s()
        served = await load(server.url, requests, seconds=seconds, status=status)
        await _idle(server)
        self.spent.setdefault(name, []).append(max(server.busy_s() - before, TICK_S) / served.count)
        return served.per_second


async def _idle(server: Child) -> None:
    """Until it has done what it was left with: that is part of its answers' cost, and would slow the next turn."""
    async with asyncio.timeout(IDLE_WITHIN_S):
        before = server.busy_s()
        while True:
            await asyncio.sleep(IDLE_LOOK_S)
            now = server.busy_s()
            if now - before <= TICK_S:
                return
            before = now
