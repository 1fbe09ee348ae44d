"""An HTTP server: uvicorn's, with connections that limit what a client can hold."""

import asyncio
import errno
import hmac
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Receive

from core.common.connection import ConnectionLimits, HttpConnection, checked
from core.common.errors import ResponderBotError
from core.common.tasks import cancel_and_wait, repeat

GRACE_S = 3.0  # for requests in progress when the server stops
BODY_TIMEOUT_S = 20.0  # a client that takes longer to send 1 MiB is stuck or hostile


class ClientDisconnected(Exception):
    """The client has closed the connection, so there is nobody to answer."""


def has_token(headers: Mapping[str, str], token: str) -> bool:
    """Whether a request with these headers, named in lower case, sends this bearer token; any does if it is ""."""
    sent = headers.get("authorization", "").encode()
    return not token or hmac.compare_digest(sent, f"Bearer {token}".encode())


async def read_body(receive: Receive, limit_bytes: int, timeout_s: float = BODY_TIMEOUT_S) -> bytes:
    """The body of a request, with limits that don't rely on its headers.

    Raises ResponderBotError("too_large") as soon as the limit is passed, TimeoutError, and ClientDisconnected.
    """
    parts: list[bytes] = []
    size = 0
    async with asyncio.timeout(timeout_s):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if size > limit_bytes:
                raise ResponderBotError("too_large", f"The body is over the limit of {limit_bytes} bytes.")
            if not message.get("more_body", False):
                return b"".join(parts)


def bind(host: str, port: int, setting: str = "[core] host and port") -> socket.socket:
    """A bound socket; port 0 takes any free port. Raises ResponderBotError("unavailable"), which names `setting`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named; without it responses wait 40 ms for a delayed ACK.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        cure = f"choose another with {setting}."
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            cure = f"end what listens there, perhaps another responder-bot, or {cure}"
        sentence = f"Can't listen on {host}:{port} ({error}); {cure}"
        raise ResponderBotError("unavailable", sentence) from error
    return sock


def local_url(sock: socket.socket) -> str:
    """The URL at which a client on this machine reaches a bound socket."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read here, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def http_server(
    app: ASGIApp, sock: socket.socket, *, grace_s: float = GRACE_S, limits: ConnectionLimits | None = None
) -> AsyncIterator[str]:
    """Serve `app` on `sock` in this event loop; yields the URL. Handling signals is left to the caller."""
    limits = limits or ConnectionLimits()
    config = uvicorn.Config(
        checked(app),
        http=cast(Any, partial(HttpConnection, limits)),  # uvicorn only calls it, but types it as a class
        interface="asgi3",
        proxy_headers=False,
        server_header=False,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=limits.idle_timeout_s,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    url = local_url(sock)
    await server.startup([sock])
    main_loop = asyncio.create_task(server.main_loop())  # keeps the Date header
    enforce = partial(_enforce_limits, server)
    watchdog = asyncio.create_task(repeat("limits of connections", limits.check_every_s, enforce))
    try:
        yield url
    finally:
        await cancel_and_wait(main_loop, watchdog)
        await _shut_down(server, sock, grace_s)


def _connections(server: uvicorn.Server) -> list[HttpConnection]:
    return cast(list[HttpConnection], list(server.server_state.connections))


async def _enforce_limits(server: uvicorn.Server) -> None:
    """Have each connection enforce its timeouts: one timer for all costs less than one per request."""
    now = asyncio.get_running_loop().time()
    for connection in _connections(server):
        connection.enforce_limits(now)


async def _shut_down(server: uvicorn.Server, sock: socket.socket, grace_s: float) -> None:
    """Stop and wait for the requests in progress, so that none uses the store after it is closed."""
    for listener in server.servers:
        listener.close()
    sock.close()
    for connection in _connections(server):
        connection.shutdown()
    if tasks := list(server.server_state.tasks):
        _, pending = await asyncio.wait(tasks, timeout=grace_s)
        for connection in _connections(server):
            if connection.unsent():
                connection.transport.abort()  # a task waits until its client reads
        await cancel_and_wait(*pending)
    for connection in _connections(server):
        connection.transport.abort()
    await asyncio.sleep(0)  # they unregister in the next iteration of the event loop
