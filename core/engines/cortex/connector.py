"""Connections of aiohttp that end when a server sends more than an answer can need.

aiohttp reads informational responses (100, 103) and the framing of a body without bound, and a chunk of them at a time
without a pause for others.
"""

import asyncio
import functools
import ssl
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

CONNECTIONS = 1000
"""At a time: each followed job holds one for its long poll."""

RESPONSES = 16
"""For one request: its answer, and informational responses before it."""

_PIECE_BYTES = 16_384
"""Parsed at a time before the bounds are looked at."""


class TooMuchError(aiohttp.ClientError):
    """The server has sent more than an answer can need."""


class BoundedConnector(aiohttp.TCPConnector):
    """For one server; a connection of it lasts 5 s without a call."""

    def __init__(self, answer_limit_bytes: int, ssl_context: ssl.SSLContext) -> None:
        super().__init__(limit=CONNECTIONS, keepalive_timeout=5, ssl=ssl_context)
        # aiohttp has no public way to choose the protocol of its connections.
        self._factory = functools.partial(  # type: ignore[assignment]
            _BoundedProtocol, asyncio.get_running_loop(), 2 * answer_limit_bytes + 262_144
        )


class _BoundedProtocol(ResponseHandler):
    """A connection, whose counts begin again with each request."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int) -> None:
        super().__init__(loop)
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._responses = 0

    def set_response_params(self, **params: Any) -> None:
        self._bytes = self._responses = 0
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        self._responses += 1
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), _PIECE_BYTES) or (0,):
            piece = data[start : start + _PIECE_BYTES]
            self._bytes += len(piece)
            super().data_received(piece)
            if self._bytes > self._limit_bytes or self._responses > RESPONSES:
                self._give_up()
                return

    def _give_up(self) -> None:
        error = TooMuchError("it sends more than an answer can need")
        if self._payload is not None:
            self._payload.set_exception(error)
        self.set_exception(error)
        if self.transport is not None:
            self.transport.abort()
