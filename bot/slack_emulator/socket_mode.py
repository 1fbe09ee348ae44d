"""Socket Mode: sends each envelope to one of the app's WebSocket connections and awaits its acknowledgement."""

import asyncio
import itertools
import json
import secrets
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

from bot.slack_emulator.state import Json

CONNECTION_LIMIT = 10
CONNECTION_LIFETIME_S = 18_060  # `approximate_connection_time` in Slack's `hello`


@dataclass(eq=False)
class Connection:
    """One WebSocket of the app, with the envelopes it has not acknowledged."""

    request: web.Request
    socket: web.WebSocketResponse
    pending: dict[str, asyncio.Future[Json]] = field(default_factory=dict)
    retiring: bool = False

    def acknowledge(self, envelope_id: str, payload: Json) -> None:
        """Resolve the envelope that the app acknowledged."""
        future = self.pending.pop(envelope_id, None)
        if future is not None and not future.done():
            future.set_result(payload)

    def fail_pending(self) -> None:
        """Fail all pending envelopes: the connection is closed."""
        for future in self.pending.values():
            if not future.done():
                future.set_exception(ConnectionError("the app's connection closed"))
        self.pending.clear()


class SocketMode:
    """The app's Socket Mode connections."""

    def __init__(self, app_id: str) -> None:
        self._app_id = app_id
        self._tickets: set[str] = set()
        self._open: list[Connection] = []
        self._turn = itertools.count()
        self._changed = asyncio.Condition()

    @property
    def count(self) -> int:
        """Number of open connections."""
        return len(self._open)

    def issue_ticket(self) -> str:
        """A single-use ticket for apps.connections.open."""
        ticket = secrets.token_urlsafe(24)
        self._tickets.add(ticket)
        return ticket

    async def wait_for(self, count: int) -> None:
        """Wait until the app has at least this many connections."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.count >= count)

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one connection until it closes."""
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets:
            raise web.HTTPForbidden(text="Unknown or used ticket. Call apps.connections.open for a new one.")
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        connection = Connection(request, socket)
        if self.count >= CONNECTION_LIMIT:
            await socket.send_json(_disconnect("too_many_websockets"))
            await socket.close()
            return socket
        # `hello` must come first: payloads may follow as soon as the connection is listed
        await socket.send_json(self._hello())
        self._open.append(connection)
        await self._notify()
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    _handle_acknowledgement(connection, message.data)
        finally:
            self._remove(connection)
            await self._notify()
        return socket

    async def send(self, kind: str, payload: Json, *, answers: bool, retry: tuple[int, str] | None = None) -> Json:
        """Send an envelope to one connection and return the payload of its acknowledgement.

        The caller sets the deadline. Raises ConnectionError if there is no connection or it closes.
        """
        connection = await self._next_connection()
        envelope_id = str(uuid.uuid4())
        envelope: Json = {"envelope_id": envelope_id, "type": kind, "payload": payload}
        envelope["accepts_response_payload"] = answers
        if kind == "events_api":
            envelope["retry_attempt"], envelope["retry_reason"] = retry or (0, "")
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        connection.pending[envelope_id] = future
        try:
            await connection.socket.send_json(envelope)
            return await future
        finally:
            connection.pending.pop(envelope_id, None)

    async def disconnect_all(self, reason: str) -> None:
        """Send every connection a `disconnect`; `reason` is `warning` (10 seconds left) or `refresh_requested`."""
        for connection in self._open:
            connection.retiring = True
        await self._each(lambda connection: connection.socket.send_json(_disconnect(reason)))

    def drop(self) -> None:
        """Abort every connection without a `disconnect`."""
        for connection in list(self._open):
            self._remove(connection)
            if connection.request.transport is not None:
                connection.request.transport.abort()

    async def close(self) -> None:
        """Close every connection."""
        await self._each(lambda connection: connection.socket.close(code=1001))

    async def _next_connection(self) -> Connection:
        """The next usable connection, round-robin. Waits for one that is being opened."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._usable() or not (self._open or self._tickets))
        usable = self._usable()
        if not usable:
            raise ConnectionError("the app isn't connected")
        return usable[next(self._turn) % len(usable)]

    def _usable(self) -> list[Connection]:
        return [connection for connection in self._open if not connection.retiring]

    async def _each(self, do: Callable[[Connection], Awaitable[object]]) -> None:
        for connection in list(self._open):
            await do(connection)

    def _remove(self, connection: Connection) -> None:
        if connection in self._open:
            self._open.remove(connection)
        connection.fail_pending()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _hello(self) -> Json:
        debug = {"host": "local", "build_number": 1, "approximate_connection_time": CONNECTION_LIFETIME_S}
        info = {"app_id": self._app_id}
        return {
            "type": "hello",
            "num_connections": self.count + 1,
            "debug_info": debug,
            "connection_info": info,
        }


def _handle_acknowledgement(connection: Connection, text: str) -> None:
    try:
        response = json.loads(text)
    except ValueError:
        return
    if isinstance(response, dict) and isinstance(response.get("envelope_id"), str):
        connection.acknowledge(response["envelope_id"], response.get("payload") or {})


def _disconnect(reason: str) -> Json:
    return {"type": "disconnect", "reason": reason, "debug_info": {"host": "local"}}
