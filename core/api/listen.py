"""The listener: uvicorn on a socket, with bounds on how long and how large a request's head may be."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from core.errors import ResponderBotError

HEAD_TIMEOUT_S = 20.0  # for the first line and the headers; uvicorn itself would wait for ever
HEAD_LIMIT_BYTES = 65_536  # above the application's own limit, so that most clients get its JSON answer
IDLE_TIMEOUT_S = 75  # longer than a feed's longest wait, so that a poller keeps its connection
GRACE_S = 3.0  # how long requests on their way may take when core stops


_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)


class _Bounded(HttpToolsProtocol):
    """A connection that must finish the head of each request in time and in size.

    A head that comes whole, as nearly all do, needs no timer.
    """

    _late: asyncio.TimerHandle | None = None
    _in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(_without_upgrade(data) if b"h2c" in data and not self._in_body() else data)
        if not self._in_head and self.cycle is not None and not self.cycle.response_complete:
            return
        self._head_bytes += len(data)
        if self._late is None:
            self._expect_head()
        if self._head_bytes > HEAD_LIMIT_BYTES:
            self._refuse(413, "Content Too Large", "TooLargeError", "The head of the request is too large.")

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._forget_head()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP at all gets the same form of error as everything else."""
        self._refuse(400, "Bad Request", "BadRequest", msg)

    def _in_body(self) -> bool:
        return self.cycle is not None and self.cycle.more_body

    def _expect_head(self) -> None:
        self._late = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def _forget_head(self) -> None:
        self._in_head = False
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, status: int, reason: str, kind: str, message: str) -> None:
        body = json.dumps({"type": kind, "message": message}).encode()
        head = (
            f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self._forget_head()
        self.transport.write(head.encode() + body)
        self.transport.close()


def _without_upgrade(data: bytes) -> bytes:
    """A request without its offer of HTTP/2, which Java's client makes each time.

    Nobody here takes it up, but the parser would take the body for the first bytes of that protocol.
    """
    head, end, body = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"", head) + end + body


def bind(host: str, port: int) -> socket.socket:
    """A listening place; port 0 takes a free one. Raises ResponderBotError("unavailable")."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, or asyncio would not switch off Nagle: every answer would then wait 40 ms for the client to nod.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        sentence = f"Can't listen on {host}:{port} ({error}); choose another with [core] host and port."
        raise ResponderBotError("unavailable", sentence) from error
    return sock


def address(sock: socket.socket) -> str:
    """The URL under which a client on this machine reaches a bound socket."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read here, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def listening(app: ASGIApp, sock: socket.socket, *, grace_s: float = GRACE_S) -> AsyncIterator[str]:
    """Serve `app` on `sock` in this loop; gives the URL. Signals stay the business of who runs the loop."""
    config = uvicorn.Config(
        app,
        http=_Bounded,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on the client's address
        timeout_keep_alive=IDLE_TIMEOUT_S,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    url = address(sock)
    await server.startup([sock])
    ticking = asyncio.create_task(server.main_loop())  # keeps the Date header
    try:
        yield url
    finally:
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
        await _shut(server, sock, grace_s)


async def _shut(server: uvicorn.Server, sock: socket.socket, grace_s: float) -> None:
    """Stop, and wait for requests that are cut off, so that nobody uses the store after it is closed."""
    for listener in server.servers:
        listener.close()
    sock.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()
    tasks: list[asyncio.Task[Any]] = list(server.server_state.tasks)
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=grace_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
    await asyncio.sleep(0)  # connections that were told to close say so in the loop's next turn
