"""One HTTP/1.1 connection: every request gets exactly one response, and all that a client can hold is limited.

httptools parses heads only. The ends of heads and bodies are found here and in framing.py, so that what follows them
(trailers, pipelined requests, garbage) is never taken for a part of them. A pipelined request waits until the one
before it is answered. A response may be sent before the request's body has arrived; the rest of the body is then read
and dropped, within limits, because a client that is disconnected while it sends loses the response.
"""

import asyncio
import json
import socket
import struct
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

from core.common.framing import BodyFraming, head_refusal

BUFFER_LIMIT_BYTES = 65_536  # received but not consumed; above it reading pauses
CHUNKED_STEP_BYTES = 32_768  # of a chunked body per event loop iteration, since chunks may be a byte each
WRITE_STEP_BYTES = 262_144
_NO_LINGER = struct.pack("ii", 1, 0)

log = structlog.get_logger("core.listener")


@dataclass(frozen=True)
class ConnectionLimits:
    """What a client can hold, and for how long."""

    head_timeout_s: float = 20.0
    """For the request line and the headers."""
    head_limit_bytes: int = 65_536
    """Above the application's own limit, so that most clients get its JSON error."""
    idle_timeout_s: float = 75.0
    """Between two requests; longer than the feed's longest wait, so that pollers keep their connection."""
    drain_timeout_s: float = 10.0
    """For the rest of a body that is already answered, and for the client to close its side."""
    drain_limit_bytes: int = 67_108_864
    write_timeout_s: float = 20.0
    """For reading the next WRITE_STEP_BYTES of a response, or the rest of it."""
    unsent_limit_bytes: int = 67_108_864
    """Of all responses that clients have not read; above it the longest stalled ones are disconnected."""
    check_every_s: float = 1.0


@dataclass
class ListenerState:
    """What all connections of a listener share."""

    app: ASGIApp
    limits: ConnectionLimits
    slow: "set[HttpConnection]" = field(default_factory=set)
    """Connections whose client doesn't read its response as fast as it is written."""

    def make_room(self) -> None:
        """Disconnect the longest stalled clients until the unsent bytes are within their limit."""
        sizes = {connection: connection.unsent() for connection in self.slow}
        total = sum(sizes.values())
        for connection in sorted(sizes, key=lambda one: one.stalled_since or 0.0)[:-1]:  # a single one may exceed it
            if total <= self.limits.unsent_limit_bytes:
                break
            connection.disconnect("unsent_limit")
            total -= sizes[connection]


class Exchange:
    """A request and its response: the application's `receive` and `send`. A response body comes in one message."""

    def __init__(self, connection: "HttpConnection", scope: Scope, *, keep_alive: bool, expects_continue: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.body = bytearray()
        """Arrived, but not yet received by the application."""
        self.is_complete = False
        """The whole body has arrived."""
        self.is_answered = False
        self.is_broken = False
        """The chunked framing is invalid, so the body has no end."""
        self.is_disconnected = False
        """The client has disconnected."""
        self._connection = connection
        self._expects_continue = expects_continue
        self._is_received = False
        self._start: Message | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def awaits_continue(self) -> bool:
        """The client waits for a `100 Continue` before it sends its body."""
        return self._expects_continue and not self.is_complete and not self.body

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            log.exception("application_failed", method=self.scope["method"])
        if self.is_answered or self.is_disconnected:
            return
        self.is_answered = True
        if self.is_broken:
            self._connection.refuse(400, "BadRequest", "The chunks of the body are not valid; send it again.")
        else:
            self._connection.refuse(500, "InternalError", "An internal error occurred; the log has the details.")

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
        self._connection.update_reading()
        return {"type": "http.request", "body": body, "more_body": not self.is_complete}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        if self._start is None or self.is_answered or message.get("more_body", False):
            raise RuntimeError("A response is one start message and one body message.")
        self.is_answered = True
        if not self.is_disconnected:
            self._connection.respond(self, self._start, message.get("body", b""))

    def _is_over(self) -> bool:
        return self.is_disconnected or self.is_answered or self.is_broken


class HttpConnection(asyncio.Protocol):
    """The protocol that uvicorn's server makes for each connection."""

    transport: asyncio.Transport

    def __init__(
        self,
        listener: ListenerState,
        *,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._listener = listener
        self._limits = listener.limits
        self._state = server_state
        self._loop = _loop or asyncio.get_running_loop()
        self._deadline: float | None = None
        """When the connection is aborted, unless the client does what is expected of it."""
        self._buffer = b""
        self._exchange: Exchange | None = None
        self._body = BodyFraming(0)
        self._drained = 0
        self._is_closing = False
        self._is_reading = True
        self._is_step_scheduled = False
        """The next step of a chunked body is scheduled."""
        self._is_write_paused = False
        """The transport's write buffer is full."""
        self.stalled_since: float | None = None
        """Since when the client has read less than WRITE_STEP_BYTES; None if nothing is unsent."""
        self._unsent_at_stall = 0
        self._reset_parser()

    # --- callbacks of the transport ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a TCP server
        self.transport = transport
        self._server, self._client = get_local_addr(transport), get_remote_addr(transport)
        self._state.connections.add(self)  # type: ignore[arg-type]  # uvicorn names its own protocols only
        self._deadline = self._loop.time() + self._limits.head_timeout_s

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            self._drain(len(data))
            return
        if self._exchange is None and not self._buffer and not self._head_bytes:
            self._deadline = self._loop.time() + self._limits.head_timeout_s
        self._buffer = self._buffer + data if self._buffer else data
        self._advance()

    def eof_received(self) -> None:
        """Treat a client that closes its side as disconnected; it may read what is unsent until the deadline."""
        self._is_closing = True
        self._deadline = self._loop.time() + self._limits.drain_timeout_s
        self._mark_disconnected()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._listener.slow.discard(self)
        self._is_closing = True
        self._mark_disconnected()

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._start_stall(self._loop.time())
        self._listener.slow.add(self)
        self._listener.make_room()
        self.update_reading()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self.stalled_since = None
        self._listener.slow.discard(self)
        if not self._is_closing:
            self._advance()

    # --- called by the listener ---

    def shutdown(self) -> None:
        """Close the connection, after the response in progress if there is one."""
        if self._exchange is None or self._exchange.is_answered:
            self.transport.close()
        else:
            self._exchange.keep_alive = False

    def enforce_limits(self, now: float) -> None:
        """Disconnect a client that takes too long."""
        if self._deadline is not None and now > self._deadline:
            self.transport.abort()
            return
        unsent = self.unsent()
        if not unsent:
            self.stalled_since = None
        elif self.stalled_since is None or unsent <= self._unsent_at_stall - WRITE_STEP_BYTES:
            self._start_stall(now)
        elif now - self.stalled_since > self._limits.write_timeout_s:
            self.disconnect("write_timeout")

    def unsent(self) -> int:
        """Bytes of responses that the client has not read."""
        return self.transport.get_write_buffer_size()

    def disconnect(self, reason: str) -> None:
        """Abort the connection and free all that is kept for its client."""
        log.info("client_disconnected", reason=reason, unsent_bytes=self.unsent())
        self._listener.slow.discard(self)
        # Reset it: the kernel would keep what it has taken to send for minutes, for a client that doesn't read.
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()

    # --- callbacks of httptools, for a head ---

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._is_head_complete = True
        self._keep_alive = (
            self._parser.should_keep_alive()
        )  # the parser forgets it at the end of a request without a body

    # --- requests ---

    def _advance(self) -> None:
        """Process received data as far as possible."""
        while self._buffer and not self._is_closing and not self._is_step_scheduled:
            if self._exchange is None:
                if self._is_write_paused or not self._read_head():
                    break
            elif self._exchange.is_complete or self._exchange.is_broken:
                break  # a pipelined request waits until this one is answered
            else:
                has_more = self._read_body(self._exchange)
                if has_more and not self._is_closing:
                    self._is_step_scheduled = True
                    self._loop.call_soon(self._next_step)  # other requests get their turn first
                    break
                if self._exchange is not None and not self._exchange.is_complete:
                    break
        self.update_reading()

    def _next_step(self) -> None:
        self._is_step_scheduled = False
        self._advance()

    def update_reading(self) -> None:
        """Pause or resume reading, by how much is received but not consumed."""
        exchange = self._exchange
        is_full = self._is_write_paused or len(self._buffer) > BUFFER_LIMIT_BYTES
        if exchange is not None and not exchange.is_answered:
            is_full = is_full or len(exchange.body) > BUFFER_LIMIT_BYTES
        should_read = self._is_closing or not is_full
        if should_read != self._is_reading and not self.transport.is_closing():
            self._is_reading = should_read
            (self.transport.resume_reading if should_read else self.transport.pause_reading)()

    def _reset_parser(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._head_end = b""  # the last bytes of an incomplete head, in case the empty line is split
        self._is_head_complete = False
        self._keep_alive = False

    def _read_head(self) -> bool:
        """Parse received data of a head; returns whether a request has begun."""
        data = self._buffer if self._head_bytes else self._buffer.lstrip(b"\r\n")
        seen = self._head_end + data
        end = seen.find(b"\r\n\r\n")
        size = len(data) if end < 0 else end + 4 - len(self._head_end)
        self._buffer = data[size:]
        self._head_bytes += size
        self._head_end = seen[-3:]
        if self._head_bytes > self._limits.head_limit_bytes:
            self.refuse(413, "TooLargeError", "The head of the request is too large.")
            return False
        try:
            self._parser.feed_data(data[:size])
        except httptools.HttpParserUpgrade:
            pass  # no other protocol is supported; the request is answered as HTTP/1.1
        except httptools.HttpParserError:
            self.refuse(400, "BadRequest", "Invalid HTTP request received.")
            return False
        if end < 0:
            return False
        return self._begin_request()

    def _begin_request(self) -> bool:
        """Start the request whose head is complete; returns False if it is refused."""
        url, headers, parser = self._url, self._headers, self._parser
        is_complete, keep_alive = self._is_head_complete, self._keep_alive
        self._reset_parser()
        try:
            parsed = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError:
            is_complete = False
        if not is_complete:
            self.refuse(400, "BadRequest", "Invalid HTTP request received.")
            return False
        version = parser.get_http_version()
        by_name = dict(headers)
        if refusal := head_refusal(version, headers, by_name):
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
        self._body = BodyFraming(None if b"transfer-encoding" in by_name else int(by_name.get(b"content-length", 0)))
        exchange = Exchange(
            self,
            scope,
            keep_alive=keep_alive,
            expects_continue=version == "1.1" and by_name.get(b"expect", b"").lower() == b"100-continue",
        )
        exchange.is_complete = self._body.is_done
        self._exchange = exchange
        self._deadline = None  # the application limits the time for a body
        self._drained = 0
        task = self._loop.create_task(exchange.run(self._listener.app))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)
        return True

    def _read_body(self, exchange: Exchange) -> bool:
        """Take a step of the body from the buffer; returns whether the buffer may hold more of it."""
        step, later = self._buffer, b""
        if self._body.is_chunked:
            step, later = self._buffer[:CHUNKED_STEP_BYTES], self._buffer[CHUNKED_STEP_BYTES:]
        try:
            part, rest = self._body.take(step)
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
            self._finish_exchange()
        exchange.wake()
        return bool(later) and not self._body.is_done

    # --- responses ---

    def respond(self, exchange: Exchange, start: Message, body: bytes) -> None:
        """Send the response of the current request."""
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
            self._deadline = self._loop.time() + self._limits.drain_timeout_s
        self._finish_exchange()
        self._advance()

    def refuse(self, status: int, kind: str, message: str) -> None:
        """Answer a request that doesn't reach the application, and close the connection."""
        body = json.dumps({"type": kind, "message": message}).encode()
        fields = (b"content-type: application/json", b"content-length: %d" % len(body), b"connection: close", b"", body)
        self.transport.write(STATUS_LINE[status] + b"\r\n".join(fields))
        self._close()

    def _finish_exchange(self) -> None:
        """Get ready for the next request if the current one has arrived and is answered."""
        exchange = self._exchange
        if exchange is not None and exchange.is_answered and exchange.is_complete and not self._is_closing:
            self._exchange = None
            wait_s = self._limits.head_timeout_s if self._buffer else self._limits.idle_timeout_s
            self._deadline = self._loop.time() + wait_s

    def _can_drain(self, exchange: Exchange) -> bool:
        """Whether the rest of the body will come, within the limit of what is dropped."""
        if exchange.is_complete:
            return True
        return not (exchange.awaits_continue or exchange.is_broken or self._body.left > self._limits.drain_limit_bytes)

    def _drain(self, size: int) -> None:
        """Count dropped bytes; over the limit, abort."""
        self._drained += size
        if self._drained > self._limits.drain_limit_bytes:
            self.transport.abort()

    def _close(self) -> None:
        """Close this side and read on until the client closes too; an immediate close would reset unread responses."""
        if self._is_closing:
            return
        self._is_closing = True
        self._buffer = b""
        self._drained = 0
        self._deadline = self._loop.time() + self._limits.drain_timeout_s
        self.transport.write_eof()
        self.update_reading()

    def _mark_disconnected(self) -> None:
        if self._exchange is not None:
            self._exchange.is_disconnected = True
            self._exchange.wake()

    def _start_stall(self, now: float) -> None:
        self.stalled_since, self._unsent_at_stall = now, self.unsent()
