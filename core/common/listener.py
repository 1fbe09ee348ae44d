"""The listener: uvicorn's server on a socket, with connections that bound what a client may hold."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Receive

from core.common.connection import ConnectionLimits, HttpConnection, ListenerState
from core.common.errors import ResponderBotError

GRACE_S = 3.0  # how long requests on their way may take when core stops
BODY_TIMEOUT_S = 20.0  # a client that takes longer to send 1 MiB is stuck, or means harm


class ClientDisconnected(Exception):
    """The client has hung up: there is nobody to answer."""


async def read_body(receive: Receive, limit_bytes: int, timeout_s: float = BODY_TIMEOUT_S) -> bytes:
    """The body of a request, whatever its headers claim.

    Raises ResponderBotError("too_large") as soon as it is, TimeoutError, and ClientDisconnected.
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
    """A listening place; port 0 takes a free one. Raises ResponderBotError("unavailable"), which names `setting`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, or asyncio would not switch off Nagle: every answer would then wait 40 ms for the client to nod.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        sentence = f"Can't listen on {host}:{port} ({error}); choose another with {setting}."
        raise ResponderBotError("unavailable", sentence) from error
    return sock


def local_url(sock: socket.socket) -> str:
    """The URL under which a client on this machine reaches a bound socket."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read here, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def http_server(
    app: ASGIApp, sock: socket.socket, *, grace_s: float = GRACE_S, bounds: ConnectionLimits | None = None
) -> AsyncIterator[str]:
    """Serve `app` on `sock` in this loop; gives the URL. Signals stay the business of who runs the loop."""
    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False)
    config.load()
    bounds = bounds or ConnectionLimits()
    made = partial(HttpConnection, ListenerState(app, bounds))
    config.http_protocol_class = cast(Any, made)  # uvicorn calls it, and names a class only
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    url = local_url(sock)
    await server.startup([sock])
    ticking = asyncio.create_task(server.main_loop())  # keeps the Date header
    looking = asyncio.create_task(_look_after(server, bounds.check_every_s))
    try:
        yield url
    finally:
        for task in (ticking, looking):
            task.cancel()
        await asyncio.gather(ticking, looking, return_exceptions=True)
        await _shut(server, sock, grace_s)


def _connections(server: uvicorn.Server) -> list[HttpConnection]:
    return cast(list[HttpConnection], list(server.server_state.connections))


async def _look_after(server: uvicorn.Server, every_s: float) -> None:
    """Have each connection end what takes too long: one timer for all costs less than one for each request."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(every_s)
        now = loop.time()
        for connection in _connections(server):
            connection.enforce_limits(now)


async def _shut(server: uvicorn.Server, sock: socket.socket, grace_s: float) -> None:
    """Stop, and wait for requests that are cut off, so that nobody uses the store after it is closed."""
    for listener in server.servers:
        listener.close()
    sock.close()
    for connection in _connections(server):
        connection.shutdown()
    tasks: list[asyncio.Task[Any]] = list(server.server_state.tasks)
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=grace_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
    for connection in _connections(server):
        connection.transport.close()
    await asyncio.sleep(0)  # connections that were told to close say so in the loop's next turn
    for connection in _connections(server):
        connection.transport.abort()  # its client does not take what it is given
    await asyncio.sleep(0)
