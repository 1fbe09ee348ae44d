"""Calls to a Cortex server, bounded in time and size. Each returns a CortexAnswer or raises NoAnswer."""

import asyncio
import base64
import functools
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler

from core.common.decoding import INLINE_BYTES, TooManyValues, decode_json
from core.common.errors import ResponderBotError
from core.engines.secret_redaction import Redactor, secrets_in_url

ANSWER_LIMIT_BYTES = 4 * 1024**2
"""Far more than any report; keeps a broken server from filling the memory."""


class NoAnswer(Exception):
    """No answer was received. `sent` is False only if the request certainly did not reach the server."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


@dataclass(frozen=True)
class CortexAnswer:
    status: int
    body: Any = None
    """Its parsed JSON; None if `problem` says why it can't be used."""
    problem: str = ""
    retry_after_s: float | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_refusal(self) -> bool:
        """Whether a retry would get the same error."""
        return 300 <= self.status < 500 and self.status not in (408, 429)

    @property
    def message(self) -> str:
        """The server's error message on one line, cut to 300 characters."""
        message = self.body.get("message") if isinstance(self.body, Mapping) else None
        return " ".join(message.split())[:300] if isinstance(message, str) else ""

    @property
    def type(self) -> str:
        """The type of the server's error, such as `NotFoundError`."""
        error_type = self.body.get("type") if isinstance(self.body, Mapping) else None
        return error_type if isinstance(error_type, str) else ""


class CortexHttp:
    """A client for one server, to be kept and closed."""

    def __init__(
        self,
        name: str,
        *,
        url: str,
        api_key: str,
        proxy: str,
        ca_file: Path | None,
        timeout_s: float,
    ) -> None:
        self._api_key = api_key.strip()
        self._redactor = Redactor({self._api_key, *secrets_in_url(proxy if "://" in proxy else f"http://{proxy}")})
        self._timeout_s = timeout_s
        self._base_url = _base_url(name, url)
        self._headers = {
            "Authorization": f"Bearer {_check_key(name, self._api_key)}",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        self._proxy, self._proxy_headers = _proxy(name, proxy)
        self._ssl_context = _ssl_context(name, ca_file)
        self._session: aiohttp.ClientSession | None = None

    async def call(self, method: str, path: str, body: Any = None, *, extra_s: float = 0) -> CortexAnswer:
        """Make one call. `extra_s` is added to its timeout, for a long poll. Raises NoAnswer."""
        if self._session is None:
            self._session = self._new_session()
        timeout_s = self._timeout_s + extra_s
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method,
                    self._base_url + path,
                    data=None if body is None else json.dumps(body).encode(),
                    headers={} if body is None else {"Content-Type": "application/json"},
                    allow_redirects=False,
                    proxy=self._proxy,
                    proxy_headers=self._proxy_headers,
                ) as response,
            ):
                return await self._read(response)
        # `from None`: errors of the library contain the request with the API key.
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _no_answer(error, timeout_s) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _new_session(self) -> aiohttp.ClientSession:
        """The session of the running event loop; it follows no proxy of the environment, and keeps no cookie."""
        return aiohttp.ClientSession(
            headers=self._headers,
            connector=BoundedConnector(ANSWER_LIMIT_BYTES, self._ssl_context),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            # `call` bounds the whole; connecting has half of that: then it is known that nothing was sent.
            timeout=aiohttp.ClientTimeout(connect=self._timeout_s / 2, sock_connect=self._timeout_s / 2),
        )

    async def _read(self, response: aiohttp.ClientResponse) -> CortexAnswer:
        if (encoding := response.headers.get("Content-Encoding", "identity").lower()) != "identity":
            problem = f"it is encoded ({encoding[:40]}), which core did not ask for"
            return CortexAnswer(response.status, problem=problem)
        raw = bytearray()
        async for chunk in response.content.iter_any():
            raw += chunk
            if len(raw) > ANSWER_LIMIT_BYTES:
                return CortexAnswer(response.status, problem=f"it is longer than {ANSWER_LIMIT_BYTES} bytes")
        in_thread = len(raw) > INLINE_BYTES
        content = bytes(raw)
        body, problem = await asyncio.to_thread(self._decode, content) if in_thread else self._decode(content)
        return CortexAnswer(response.status, body, problem, _retry_after_s(response.headers.get("Retry-After")))

    def _decode(self, raw: bytes) -> tuple[Any, str]:
        """The body and `""`, or None and what is wrong with it."""
        try:
            # A server that echoes its request must not get the API key into a report or a log.
            return self._redactor.value(read_json(raw)), ""
        except ValueError as error:
            return None, str(error)


def read_json(raw: bytes | str) -> Any:
    """Parse JSON as `decode_json` does. Raises ValueError with the reason as the end of a sentence."""
    try:
        return decode_json(raw)
    except TooManyValues:
        raise
    except ValueError:
        raise ValueError("it is not usable JSON") from None


def _retry_after_s(retry_after: str | None) -> float | None:
    """The seconds of the header; None for a date, which is rare: then the usual pauses apply."""
    if retry_after is None or not retry_after.isascii() or not retry_after.isdigit():
        return None
    return float(retry_after[:9])


def _no_answer(error: BaseException, timeout_s: float) -> NoAnswer:
    if isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError):
        return NoAnswer("the proxy refused the connection", sent=False)
    if isinstance(error, aiohttp.ClientSSLError):
        return NoAnswer("its certificate is not trusted (is ca_file right?)", sent=False)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return NoAnswer("its host name can't be resolved", sent=False)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.InvalidURL):
        return NoAnswer("it accepts no connection", sent=False)
    if isinstance(error, TooMuchError):
        return NoAnswer(str(error), sent=True)
    if isinstance(error, TimeoutError):
        return NoAnswer(f"no answer within {timeout_s:g} s", sent=True)
    return NoAnswer(f"the connection broke ({type(error).__name__})", sent=True)


def _base_url(name: str, url: str) -> str:
    root = url.strip().rstrip("/").removesuffix("/api")
    if (parsed := _http_url(root)) is None or "@" in parsed.netloc:
        raise ResponderBotError(
            "bad_request", f"Engine {name!r}: url must look like https://host:9001, without user or password in it."
        )
    return f"{root}/api/"


def _http_url(url: str) -> SplitResult | None:
    """The parts of an address that HTTP can use, else None."""
    try:
        parsed = urlsplit(url)
        is_usable = parsed.scheme in ("http", "https") and bool(parsed.hostname) and parsed.port != 0
    except ValueError:
        return None
    return parsed if is_usable and not any(character.isspace() for character in url) else None


def _check_key(name: str, key: str) -> str:
    if not key or not key.isascii() or not key.isprintable():
        raise ResponderBotError("bad_request", f"Engine {name!r}: put the API key of a user there into api_key.")
    return key


def _proxy(name: str, proxy: str) -> tuple[str | None, Mapping[str, str] | None]:
    """Its address without user and password, and the headers for it."""
    if not proxy:
        return None, None
    if (parsed := _http_url(proxy)) is None:
        raise ResponderBotError("bad_request", f"Engine {name!r}: proxy must look like http://host:3128.")
    login, _, address = parsed.netloc.rpartition("@")
    if not login:
        return proxy, None
    user_and_password = base64.b64encode(unquote(login).encode()).decode()
    # aiohttp sends it as Proxy-Authorization.
    return f"{parsed.scheme}://{address}", {"Authorization": f"Basic {user_and_password}"}


def _ssl_context(name: str, ca_file: Path | None) -> ssl.SSLContext:
    """A private CA replaces the public ones, so that no other one can vouch for the engine."""
    if ca_file is None:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise ResponderBotError(
            "bad_request", f"Engine {name!r}: ca_file {ca_file} can't be read as certificates ({error})."
        ) from error


# --- connections that end when a server sends more than an answer can need --------------------------------------------


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
    """A connection, whose counts begin again with each request.

    aiohttp reads informational responses (100, 103) and the framing of a body without bound, and a chunk of them at a
    time without a pause for others.
    """

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
