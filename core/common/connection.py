"""One HTTP/1.1 connection: each request gets one answer, and nothing that a client holds is unbounded.

httptools reads heads only. Where a head and a body end is decided here, so that what follows them (trailers, pipelined
requests, rubbish) is never taken for a part of them, and one request is looked at only after the one before it has
been answered. An answer may come before its body does; the rest of the body is then read and thrown away, within
bounds, since a client that is cut off while it sends loses the answer.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httptools
import structlog
from starlette.types import ASGIApp, Message, Scope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

BUFFER_LIMIT_BYTES = 65_536  # of what nobody has taken yet; nothing more is read while there is so much
TURN_BYTES = 32_768  # of a body in chunks, which may be of a byte each, at a time
LINE_LIMIT_BYTES = 4_096  # of one line between two chunks
FRAMING_LIMIT_BYTES = 262_144  # chunk sizes, extensions and trailers, beyond as many bytes as the body has
WRITE_STEP_BYTES = 262_144

ONCE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"expect",
        b"host",
        b"idempotency-key",
        b"transfer-encoding",
        b"x-on-behalf-of",
        b"x-slack-request-timestamp",
        b"x-slack-signature",
    }
)
"""Headers that decide something: of two, a proxy may have checked the one that is not obeyed here."""

_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")

log = structlog.get_logger("core.listener")


@dataclass(frozen=True)
class ConnectionLimits:
    """What a client may hold, and for how long."""

    head_timeout_s: float = 20.0
    """For the first line and the headers."""
    head_limit_bytes: int = 65_536
    """Above the application's own limit, so that most clients get its JSON answer."""
    idle_timeout_s: float = 75.0
    """Between two requests; longer than a feed's longest wait, so that a poller keeps its connection."""
    drain_timeout_s: float = 10.0
    """For the rest of a body whose answer has been given, and for the client's end of a connection that ends."""
    drain_limit_bytes: int = 67_108_864
    write_timeout_s: float = 20.0
    """For taking the next WRITE_STEP_BYTES of an answer, or what is left of it."""
    unsent_limit_bytes: int = 67_108_864
    """Of all answers that clients have yet to take; above it those who have waited longest are cut off."""
    check_every_s: float = 1.0


@dataclass
class ListenerState:
    """What all connections of a listener have in common."""

    app: ASGIApp
    bounds: ConnectionLimits
    slow: "set[HttpConnection]" = field(default_factory=set)
    """Those whose client does not take its answer as fast as it comes."""

    def make_room(self) -> None:
        """Cut off those who have taken nothing for longest, until what is unsent is within its bound."""
        sizes = {connection: connection.unsent() for connection in self.slow}
        total = sum(sizes.values())
        for connection in sorted(sizes, key=lambda one: one.stalled_since or 0.0)[:-1]:  # one alone may be above it
            if total <= self.bounds.unsent_limit_bytes:
                break
            connection.cut_off("too much is unsent")
            total -= sizes[connection]


class Exchange:
    """A request and its answer: the application's `receive` and `send`. An answer's body comes in one piece."""

    def __init__(self, connection: "HttpConnection", scope: Scope, *, keep_alive: bool, expects_continue: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.body = bytearray()
        """What has arrived and was not yet received."""
        self.is_complete = False
        """The body has arrived to its end."""
        self.is_answered = False
        self.is_broken = False
        """The body's framing is wrong: it has no end."""
        self.is_gone = False
        """There is nobody to answer any more."""
        self._connection = connection
        self._expects_continue = expects_continue
        self._is_received = False
        self._start: Message | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def awaits_continue(self) -> bool:
        """The client holds its body back until it is told to send it."""
        return self._expects_continue and not self.is_complete and not self.body

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            log.exception("application_failed", method=self.scope["method"])
        if self.is_answered or self.is_gone:
            return
        self.is_answered = True
        if self.is_broken:
            self._connection.refuse(400, "BadRequest", "The chunks of the body are not valid; send it again.")
        else:
            self._connection.refuse(500, "InternalError", "Something went wrong inside; the log says what.")

    async def receive(self) -> Message:
        if self.awaits_continue and not self._is_over():
            self._expects_continue = False
            self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not self._is_over() and not self.body and (self._is_received or not self.is_complete):
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._is_over():
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        self._is_received = self.is_complete
        self._connection.regulate()
        return {"type": "http.request", "body": body, "more_body": not self.is_complete}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        if self._start is None or self.is_answered or message.get("more_body", False):
            raise RuntimeError("An answer is one head and one body.")
        self.is_answered = True
        if not self.is_gone:
            self._connection.answer(self, self._start, message.get("body", b""))

    def _is_over(self) -> bool:
        return self.is_gone or self.is_answered or self.is_broken


class _Body:
    """Where a body ends: after so many bytes, or, in chunks (`length` None), after an empty one and the trailers."""

    def __init__(self, length: int | None) -> None:
        self.left = length or 0
        """Bytes still to come of the body, or of this chunk."""
        self.is_chunked = length is None
        self.is_done = length == 0
        self._is_in_trailers = False
        self._is_after_chunk = False
        self._framing_bytes = 0
        self._body_bytes = 0

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """The body's part of what arrived, and what is left of it. Raises ValueError where the framing is wrong."""
        if not self.is_chunked:
            part, rest = data[: self.left], data[self.left :]
            self.left -= len(part)
            self.is_done = not self.left
            return part, rest
        parts: list[bytes] = []
        at = 0
        while at < len(data) and not self.is_done:
            if self.left:
                part = data[at : at + self.left]
                parts.append(part)
                self.left -= len(part)
                self._body_bytes += len(part)
                self._is_after_chunk = not self.left
                at += len(part)
                continue
            end = data.find(b"\r\n", at, at + LINE_LIMIT_BYTES)
            if end < 0:
                if len(data) - at >= LINE_LIMIT_BYTES:
                    raise ValueError("a line is too long")
                break
            self._line(data[at:end])
            self._framing_bytes += end + 2 - at
            if self._framing_bytes > FRAMING_LIMIT_BYTES + self._body_bytes:
                raise ValueError("more is said about the body than there is of it")
            at = end + 2
        return b"".join(parts), data[at:]

    def _line(self, line: bytes) -> None:
        if self._is_after_chunk:
            if line:
                raise ValueError("a chunk is longer than its size")
            self._is_after_chunk = False
        elif self._is_in_trailers:
            if b"\n" in line or b"\r" in line:
                raise ValueError("a trailer is not one line")
            self.is_done = not line  # no trailer says anything: who sent the request was settled by its head
        else:
            found = _CHUNK.fullmatch(line)
            if found is None:
                raise ValueError("a chunk has no size")
            self.left = int(found[1], 16)
            self._is_in_trailers = not self.left


class HttpConnection(asyncio.Protocol):
    """The protocol that uvicorn's server makes for each connection; it looks after its own bounds when told to."""

    transport: asyncio.Transport

    def __init__(
        self,
        shared: ListenerState,
        *,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._shared = shared
        self._bounds = shared.bounds
        self._state = server_state
        self._loop = _loop or asyncio.get_running_loop()
        self._deadline: float | None = None
        """When the client is to have done what it owes."""
        self._buffer = b""
        self._exchange: Exchange | None = None
        self._body = _Body(0)
        self._drained = 0
        self._is_closing = False
        self._is_reading = True
        self._has_turn = False
        """More of a body in chunks is taken in the loop's next turn."""
        self._is_unsent = False
        """More of an answer waits for the client than is sensible."""
        self.stalled_since: float | None = None
        """Since when the client has not taken much of what waits for it; None while nothing waits."""
        self._unsent_then = 0
        self._new_head()

    # what the transport tells

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a TCP server
        self.transport = transport
        self._server, self._client = get_local_addr(transport), get_remote_addr(transport)
        self._state.connections.add(self)  # type: ignore[arg-type]  # uvicorn names its own protocols only
        self._deadline = self._loop.time() + self._bounds.head_timeout_s

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            self._drain(len(data))
            return
        if self._exchange is None and not self._buffer and not self._head_bytes:
            self._deadline = self._loop.time() + self._bounds.head_timeout_s
        self._buffer = self._buffer + data if self._buffer else data
        self._advance()

    def eof_received(self) -> None:
        """A client that ends its side is taken to be gone; what it has yet to take it may take until the deadline."""
        self._is_closing = True
        self._deadline = self._loop.time() + self._bounds.drain_timeout_s
        self._lose()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._shared.slow.discard(self)
        self._is_closing = True
        self._lose()

    def pause_writing(self) -> None:
        self._is_unsent = True
        self._stall(self._loop.time())
        self._shared.slow.add(self)
        self._shared.make_room()
        self.regulate()

    def resume_writing(self) -> None:
        self._is_unsent = False
        self.stalled_since = None
        self._shared.slow.discard(self)
        if not self._is_closing:
            self._advance()

    # what the listener asks

    def shutdown(self) -> None:
        """End after the answer that is on its way, if any."""
        if self._exchange is None or self._exchange.is_answered:
            self.transport.close()
        else:
            self._exchange.keep_alive = False

    def enforce_limits(self, now: float) -> None:
        """End what takes too long."""
        if self._deadline is not None and now > self._deadline:
            self.transport.abort()
            return
        unsent = self.unsent()
        if not unsent:
            self.stalled_since = None
        elif self.stalled_since is None or unsent <= self._unsent_then - WRITE_STEP_BYTES:
            self._stall(now)
        elif now - self.stalled_since > self._bounds.write_timeout_s:
            self.cut_off("the answer is not taken")

    def unsent(self) -> int:
        """Bytes that the client has yet to take."""
        return self.transport.get_write_buffer_size()

    def cut_off(self, reason: str) -> None:
        """Let go of everything that is kept for this client."""
        log.info("client_cut_off", reason=reason, unsent_bytes=self.unsent())
        self._shared.slow.discard(self)
        self.transport.abort()

    # what httptools tells of a head

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._is_head_complete = True
        self._keep_alive = self._parser.should_keep_alive()  # it forgets this at the end of a request without a body

    # requests

    def _advance(self) -> None:
        """Take what has arrived as far as it is its turn."""
        while self._buffer and not self._is_closing and not self._has_turn:
            if self._exchange is None:
                if self._is_unsent or not self._read_head():
                    break
            elif self._exchange.is_complete or self._exchange.is_broken:
                break  # the next request waits until this one is answered
            else:
                is_more = self._read_body(self._exchange)
                if is_more and not self._is_closing:
                    self._has_turn = True
                    self._loop.call_soon(self._take_turn)  # after what others have to do
                    break
                if self._exchange is not None and not self._exchange.is_complete:
                    break
        self.regulate()

    def _take_turn(self) -> None:
        self._has_turn = False
        self._advance()

    def regulate(self) -> None:
        """Read only as fast as somebody takes it."""
        exchange = self._exchange
        is_full = self._is_unsent or len(self._buffer) > BUFFER_LIMIT_BYTES
        if exchange is not None and not exchange.is_answered:
            is_full = is_full or len(exchange.body) > BUFFER_LIMIT_BYTES
        wanted = self._is_closing or not is_full
        if wanted != self._is_reading and not self.transport.is_closing():
            self._is_reading = wanted
            (self.transport.resume_reading if wanted else self.transport.pause_reading)()

    def _new_head(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._head_end = b""  # the last bytes of a head that is not complete
        self._is_head_complete = False
        self._keep_alive = False

    def _read_head(self) -> bool:
        """Take as much of a head as there is; says whether it was all of it, and a request has begun."""
        data = self._buffer if self._head_bytes else self._buffer.lstrip(b"\r\n")
        seen = self._head_end + data
        end = seen.find(b"\r\n\r\n")
        size = len(data) if end < 0 else end + 4 - len(self._head_end)
        self._buffer = data[size:]
        self._head_bytes += size
        self._head_end = seen[-3:]
        if self._head_bytes > self._bounds.head_limit_bytes:
            self.refuse(413, "TooLargeError", "The head of the request is too large.")
            return False
        try:
            self._parser.feed_data(data[:size])
        except httptools.HttpParserUpgrade:
            pass  # nobody here speaks another protocol; the request is answered as one of HTTP/1.1
        except httptools.HttpParserError:
            self.refuse(400, "BadRequest", "Invalid HTTP request received.")
            return False
        if end < 0:
            return False
        return self._begin()

    def _begin(self) -> bool:
        """Start on the request whose head is complete, unless it is refused."""
        url, headers, parser = self._url, self._headers, self._parser
        is_complete, keep_alive = self._is_head_complete, self._keep_alive
        self._new_head()
        try:
            parsed = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError:
            is_complete = False
        if not is_complete:
            self.refuse(400, "BadRequest", "Invalid HTTP request received.")
            return False
        version = parser.get_http_version()
        given = dict(headers)
        if refusal := _refusal(version, headers, given):
            self.refuse(*refusal)
            return False
        raw_path = parsed.path or b"/"
        path = raw_path.decode("ascii")
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": "http",
            "method": parser.get_method().decode("ascii"),
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": parsed.query or b"",
            "headers": headers,
            "state": {},
        }
        self._body = _Body(None if b"transfer-encoding" in given else int(given.get(b"content-length", 0)))
        exchange = Exchange(
            self,
            scope,
            keep_alive=keep_alive,
            expects_continue=version == "1.1" and given.get(b"expect", b"").lower() == b"100-continue",
        )
        exchange.is_complete = self._body.is_done
        self._exchange = exchange
        self._deadline = None  # how long a body may take is the application's to say
        self._drained = 0
        task = self._loop.create_task(exchange.run(self._shared.app))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)
        return True

    def _read_body(self, exchange: Exchange) -> bool:
        """Take what there is of a body; says whether there may be more, since tiny chunks are taken in turns."""
        turn, later = self._buffer, b""
        if self._body.is_chunked:
            turn, later = self._buffer[:TURN_BYTES], self._buffer[TURN_BYTES:]
        try:
            part, rest = self._body.take(turn)
        except ValueError:
            self._buffer = b""
            exchange.is_broken = True
            exchange.wake()
            if exchange.is_answered:
                self._close()
            return False
        self._buffer = rest + later
        if exchange.is_answered:
            self._drain(len(part))
        else:
            exchange.body += part
        if self._body.is_done:
            exchange.is_complete = True
            self._next()
        exchange.wake()
        return bool(later) and not self._body.is_done

    # answers

    def answer(self, exchange: Exchange, start: Message, body: bytes) -> None:
        """Send the answer of the request in hand."""
        status: int = start["status"]
        headers: list[tuple[bytes, bytes]] = [*self._state.default_headers, *start.get("headers", [])]
        names = {name.lower(): value for name, value in headers}
        if b"content-length" not in names and status not in (204, 304):
            headers.append((b"content-length", str(len(body)).encode()))
        if b"close" in names.get(b"connection", b"").lower():
            exchange.keep_alive = False
        elif not exchange.keep_alive or not self._can_drain(exchange):
            exchange.keep_alive = False
            headers.append((b"connection", b"close"))
        content = [STATUS_LINE[status]]
        for name, value in headers:
            if b"\n" in value or b"\r" in value:
                raise RuntimeError(f"The header {name.decode()} has a line break in it.")
            content += (name, b": ", value, b"\r\n")
        content.append(b"\r\n")
        if exchange.scope["method"] != "HEAD":
            content.append(body)
        self.transport.write(b"".join(content))
        exchange.body.clear()
        exchange.wake()
        if not exchange.keep_alive:
            self._close()
            return
        if not exchange.is_complete:
            self._deadline = self._loop.time() + self._bounds.drain_timeout_s
        self._next()
        self._advance()

    def refuse(self, status: int, kind: str, message: str) -> None:
        """Answer what no application gets to see, and end the connection."""
        body = json.dumps({"type": kind, "message": message}).encode()
        fields = (b"content-type: application/json", b"content-length: %d" % len(body), b"connection: close", b"", body)
        self.transport.write(STATUS_LINE[status] + b"\r\n".join(fields))
        self._close()

    def _next(self) -> None:
        """Be ready for the next request, once this one has arrived and has its answer."""
        exchange = self._exchange
        if exchange is not None and exchange.is_answered and exchange.is_complete and not self._is_closing:
            self._exchange = None
            wait_s = self._bounds.head_timeout_s if self._buffer else self._bounds.idle_timeout_s
            self._deadline = self._loop.time() + wait_s

    def _can_drain(self, exchange: Exchange) -> bool:
        """Whether the rest of the body will come, and may."""
        if exchange.is_complete:
            return True
        return not (exchange.awaits_continue or exchange.is_broken or self._body.left > self._bounds.drain_limit_bytes)

    def _drain(self, size: int) -> None:
        """Count what is thrown away."""
        self._drained += size
        if self._drained > self._bounds.drain_limit_bytes:
            self.transport.abort()

    def _close(self) -> None:
        """Say the end, and read on until the client does too: closing at once would reset what it has yet to read."""
        if self._is_closing:
            return
        self._is_closing = True
        self._buffer = b""
        self._drained = 0
        self._deadline = self._loop.time() + self._bounds.drain_timeout_s
        self.transport.write_eof()
        self.regulate()

    def _lose(self) -> None:
        if self._exchange is not None:
            self._exchange.is_gone = True
            self._exchange.wake()

    def _stall(self, now: float) -> None:
        self.stalled_since, self._unsent_then = now, self.unsent()


def _refusal(
    version: str, headers: Sequence[tuple[bytes, bytes]], given: dict[bytes, bytes]
) -> tuple[int, str, str] | None:
    """Why a request is refused whatever it asks for; None where it isn't."""
    if version not in ("1.0", "1.1"):
        return 505, "BadRequest", "Only HTTP/1.1 and HTTP/1.0 are spoken here; send the request as one of them."
    if len(given) < len(headers):
        names = [name for name, _ in headers]
        if repeated := sorted(name.decode() for name in ONCE & given.keys() if names.count(name) > 1):
            return 400, "BadRequest", f"The request has more than one {repeated[0]} header; send it once."
    if version == "1.1" and b"host" not in given:
        return 400, "BadRequest", "The request has no Host header; send it with one."
    coding = given.get(b"transfer-encoding")
    if coding is not None and (version == "1.0" or coding.lower() != b"chunked" or b"content-length" in given):
        return 400, "BadRequest", "Of transfer encodings only chunked is known; send the body so, or with its length."
    return None
