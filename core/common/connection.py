"""One HTTP/1.1 connection: uvicorn's, with bounds on what a client can hold, and strict framing of requests."""

import fcntl
import json
import socket
import struct
import sys
import termios
from dataclasses import dataclass
from typing import Any, Literal, cast

import httptools
import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

STEP_BYTES = 4_096  # parsed per event loop iteration, since chunks and pipelined requests may be tiny
WRITE_STEP_BYTES = 262_144
_FRAMING_HEADERS = (b"content-length", b"transfer-encoding")
_NO_LINGER = struct.pack("ii", 1, 0)

SINGLE_HEADERS = frozenset(
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
        b"x-slack-origin",
        b"x-slack-request-timestamp",
        b"x-slack-signature",
    }
)
"""Headers that must not be repeated: a proxy may have checked the one that is not used here."""

WHEN_READ = "responder_bot.when_read"
"""In the scope of a request with `Connection: close` in its response: called once the client has read all of that."""

log = structlog.get_logger("core.listener")


@dataclass(frozen=True)
class ConnectionLimits:
    """What a client can hold, and for how long."""

    head_timeout_s: float = 20.0
    """For the request line and the headers."""
    head_limit_bytes: int = 65_536
    """Above the application's own limit, so that most clients get its JSON error. Also for the size lines and trailers
    of a chunked body, beyond twice its length."""
    idle_timeout_s: int = 75
    """Between two requests; longer than the feed's longest wait, so that pollers keep their connection."""
    drain_timeout_s: float = 10.0
    """For the rest of a body that is already answered, and for the client to close its side."""
    write_timeout_s: float = 20.0
    """For reading the next WRITE_STEP_BYTES of a response, or the rest of it."""
    unsent_limit_bytes: int = 67_108_864
    """Of all responses that clients have not read; above it the longest stalled ones are disconnected."""
    check_every_s: float = 1.0


class _LingeringTransport:
    """Closes this side first, then waits for the client: an immediate close would reset unread responses."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.is_lingering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self.is_lingering or bool(self._transport.is_closing())

    def close(self) -> None:
        if not self.is_closing():
            self.is_lingering = True
            self._transport.write_eof()
            self._transport.resume_reading()


class _Flow(FlowControl):
    """Pauses reading while requests wait, and until all received data is parsed."""

    def __init__(self, connection: "HttpConnection") -> None:
        super().__init__(connection.transport)
        self._connection = connection

    def resume_reading(self) -> None:
        if self.read_paused and not self._connection.pipeline:
            self.read_paused = False
            self._connection.loop.call_soon(self._connection.parse)


class HttpConnection(HttpToolsProtocol):
    """Every request gets one response, in order. Data that can't be parsed gets one too, and ends the connection."""

    def __init__(self, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._timeouts_s = {
            "head": limits.head_timeout_s,
            "body": limits.drain_timeout_s,
            "close": limits.drain_timeout_s,
        }
        self._received = b""
        """Not parsed yet."""
        self._part: Literal["head", "body", ""] = "head"
        """The part of a request that the client sends next."""
        self._framing_bytes = 0
        """Received for a head, or for a body beyond three times its length."""
        self._refusal: bytes | None = None
        """The response to data that can't be parsed; later data is ignored."""
        self._expected: tuple[str, object] = ("head", None)
        """What the client must do by the deadline, and the request before it."""
        self._expected_since = 0.0
        self._unsent = 0
        self._unsent_since = 0.0

    # --- callbacks of the transport ---

    def connection_made(self, transport: Any) -> None:
        super().connection_made(cast(Any, _LingeringTransport(transport)))
        self.flow = _Flow(self)
        self._expected_since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Parse in steps: uvicorn would turn all that was read into requests that wait, with 3 kB each."""
        if self._refusal is None and not self.transport.is_closing():
            self._received += data
            self.parse()

    def eof_received(self) -> None:
        """Tell who waits for it that the client has read its response: if it closes before that, it sends a reset."""
        if self.cycle is None or not self.cycle.response_complete or self.unsent():
            return
        when_read = cast(dict[str, Any], self.cycle.scope).get(WHEN_READ)
        if when_read is not None and self._unacknowledged() <= 1:  # the end of this side counts as a byte
            when_read()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn doesn't, if the client has reset the connection

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent, self._unsent_since = self.unsent(), self.loop.time()
        self._make_room()

    # --- callbacks of the parser ---

    def on_message_begin(self) -> None:
        if self._part != "body":
            self._unset_keepalive_if_required()
            self._part, self._framing_bytes = "head", 0
            super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Ignore trailers: the request was authenticated by its head."""
        if self._part != "body":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._part == "body":
            return
        super().on_headers_complete()
        self._unset_keepalive_if_required()  # a response before it may have set it since the head began
        self._part, self._framing_bytes = "body", 0
        if self.expect_100_continue:
            self.cycle.keep_alive = False  # after an early response nobody knows whether the body still comes

    def on_body(self, body: bytes) -> None:
        self._framing_bytes -= 3 * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            self._part, self._framing_bytes = "", 0
            super().on_message_complete()

    # --- requests ---

    def parse(self) -> None:
        """Parse the next step of what has been received."""
        if self.parser is None or self._refusal is not None or self.transport.is_closing():
            self._received = b""
            return
        step, self._received = self._received[:STEP_BYTES], self._received[STEP_BYTES:]
        self._framing_bytes += len(step)
        try:
            self._feed(step)
        except httptools.HttpParserError:
            self._refuse(400, "BadRequest", "Invalid HTTP request received.")
        if self._framing_bytes > self._limits.head_limit_bytes:
            if self._part == "body":
                self._refuse(400, "BadRequest", "The chunks of the body are not valid; send it again.")
            else:
                self._refuse(413, "TooLargeError", "The head of the request is too large.")
        if self.flow.read_paused:
            return
        if self._received:
            self.transport.pause_reading()
            self.loop.call_soon(self.parse)
        else:
            self.transport.resume_reading()

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # No upgrade is supported. The parser takes the body for the other protocol, so a new parser continues
            # there.
            self.parser = httptools.HttpRequestParser(self)
            lines = [b"%s: %s" % header for header in self.headers if header[0] in _FRAMING_HEADERS]
            self.parser.feed_data(b"\r\n".join([b"POST / HTTP/1.1", *lines, b"", b""]))
            self._feed(data[upgrade.args[0] :])

    def on_response_complete(self) -> None:
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last and self._refusal is not None:
            self._send_refusal()

    def _refuse(self, status: int, kind: str, message: str) -> None:
        """Answer what can't be parsed, after the requests before it, and close the connection."""
        if self._refusal is not None:
            return
        response = _refusal(status, kind, message)
        headers = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
        self._refusal = STATUS_LINE[status] + headers + b"\r\n" + bytes(response.body)
        if self._part == "body" and self.pipeline:
            self.pipeline.popleft()  # its body can't be read
        elif self._part == "body" and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._send_refusal()
        elif self._part == "body":
            self.transport.close()
        elif not self._is_answering():
            self._send_refusal()

    def _send_refusal(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(self._refusal or b"")
            self.transport.close()

    def _is_answering(self) -> bool:
        return bool(self.pipeline) or (self.cycle is not None and not self.cycle.response_complete)

    # --- limits ---

    def enforce_limits(self, now: float) -> None:
        """Disconnect a client that takes too long."""
        unsent = self.unsent()
        if not unsent or not self._unsent or unsent <= self._unsent - WRITE_STEP_BYTES:
            self._unsent, self._unsent_since = unsent, now
        elif now - self._unsent_since > self._limits.write_timeout_s:
            self._disconnect("write_timeout")
        expected = "close" if self.transport.is_closing() else "" if self._is_answering() else self._part
        if unsent or not expected or self._expected != (expected, self.cycle):
            self._expected, self._expected_since = (expected, self.cycle), now
        elif now - self._expected_since > self._timeouts_s[expected]:
            self.transport.abort()

    def unsent(self) -> int:
        """Bytes of responses that the client has not read."""
        return int(self.transport.get_write_buffer_size())

    def _unacknowledged(self) -> int:
        """Bytes that the kernel has taken, and the client's has not."""
        descriptor = self.transport.get_extra_info("socket").fileno()
        return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)

    def _make_room(self) -> None:
        """Disconnect the longest stalled clients until the unsent bytes of all are within their limit."""
        connections = cast("set[HttpConnection]", self.connections)
        stalled = sorted((other for other in connections if other.flow.write_paused), key=lambda it: it._unsent_since)
        total = sum(other.unsent() for other in stalled)
        for other in stalled[:-1]:  # a single one may exceed it
            if total <= self._limits.unsent_limit_bytes:
                break
            total -= other.unsent()
            other._disconnect("unsent_limit")

    def _disconnect(self, reason: str) -> None:
        log.info("client_disconnected", reason=reason, unsent_bytes=self.unsent())
        # Reset it: the kernel would keep what it has taken to send for minutes, for a client that doesn't read.
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()


def checked(app: ASGIApp) -> ASGIApp:
    """Wrap `app`, so that it gets no request with an ambiguous head."""

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        await (_head_refusal(scope) or app)(scope, receive, send)

    return check


def _head_refusal(scope: Scope) -> Response | None:
    """The response to a head that must be rejected."""
    version: str = scope["http_version"]
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    by_name = dict(headers)
    if version not in ("1.0", "1.1"):
        return _refusal(505, "BadRequest", "Only HTTP/1.1 and HTTP/1.0 are supported; use one of them.")
    if len(by_name) < len(headers):
        names = [name for name, _ in headers]
        if repeated := sorted(name.decode() for name in SINGLE_HEADERS & by_name.keys() if names.count(name) > 1):
            message = f"The request has more than one {repeated[0]} header; send it once."
            return _refusal(400, "BadRequest", message)
    if version == "1.1" and b"host" not in by_name:
        return _refusal(400, "BadRequest", "The request has no Host header; send it with one.")
    coding = by_name.get(b"transfer-encoding")
    if coding is not None and (version == "1.0" or coding.lower() != b"chunked" or b"content-length" in by_name):
        message = "The only Transfer-Encoding is chunked, without Content-Length; use one of the two."
        return _refusal(400, "BadRequest", message)
    return None


def _refusal(status: int, kind: str, message: str) -> Response:
    body = json.dumps({"type": kind, "message": message})
    return Response(body, status, {"Connection": "close"}, media_type="application/json")
