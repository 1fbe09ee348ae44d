"""Calls to a Cortex server, bounded in time and size. Each returns a CortexAnswer or raises NoAnswer."""

import asyncio
import base64
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import aiohttp
import httpx
from httpx_aiohttp import HttpxAiohttpClient

from core.common.decoding import INLINE_BYTES, TooManyValues, decode_json
from core.common.errors import ResponderBotError
from core.engines.redaction import Redactor, secrets_in_url

ANSWER_LIMIT_BYTES = 4 * 1024**2
"""Far more than any report; keeps a broken server from filling the memory."""

CONNECTIONS = 1000
"""At a time: each job that is followed holds one with its long poll."""


class NoAnswer(Exception):
    """No answer was received. `sent` is False only when the request certainly did not reach the server."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


@dataclass(frozen=True)
class CortexAnswer:
    """An answer of the server."""

    status: int
    body: Any = None
    """Its parsed JSON; None if `problem` says why it can't be used."""
    problem: str = ""
    retry_after_s: float | None = None
    server_time_ms: int | None = None
    """From the `Date` header."""

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
        answer_limit_bytes: int = ANSWER_LIMIT_BYTES,
    ) -> None:
        self._answer_limit_bytes = answer_limit_bytes
        self._api_key = api_key.strip()
        self._redactor = Redactor({self._api_key, *secrets_in_url(proxy if "://" in proxy else f"http://{proxy}")})
        self._timeout_s = timeout_s
        self._client = HttpxAiohttpClient(
            base_url=_base_url(name, url),
            headers={"Authorization": f"Bearer {_check_key(name, self._api_key)}", "Accept": "application/json"},
            proxy=_proxy(name, proxy),
            verify=_ssl_context(name, ca_file),
            # Only the proxy of the settings, none from the environment.
            trust_env=False,
            # The transport bounds connecting, `call` the whole. Half of it: then it is known that nothing was sent.
            timeout=httpx.Timeout(None, connect=timeout_s / 2, pool=timeout_s / 2),
            limits=httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=20, keepalive_expiry=5),
        )

    async def call(self, method: str, path: str, body: Any = None, *, extra_s: float = 0) -> CortexAnswer:
        """Make one call. `extra_s` is added to its timeout, for a long poll. Raises NoAnswer."""
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(self._timeout_s + extra_s),
                self._client.stream(method, path, content=content, headers=headers) as response,
            ):
                return await self._read(response)
        # `from None`: errors of the libraries contain the request with the API key.
        except TimeoutError:
            raise NoAnswer(f"no answer within {self._timeout_s + extra_s:g} s", sent=True) from None
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError, ValueError) as error:
            raise _no_answer(error.__cause__ or error) from None

    async def close(self) -> None:
        await self._client.aclose()

    async def _read(self, response: httpx.Response) -> CortexAnswer:
        raw = bytearray()
        async for chunk in response.aiter_bytes():
            raw += chunk
            if len(raw) > self._answer_limit_bytes:
                return CortexAnswer(response.status_code, problem=f"it is longer than {self._answer_limit_bytes} bytes")
        in_thread = len(raw) > INLINE_BYTES
        content = bytes(raw)
        body, problem = await asyncio.to_thread(self._decode, content) if in_thread else self._decode(content)
        return CortexAnswer(
            response.status_code,
            body,
            problem,
            _retry_after_s(response.headers.get("Retry-After")),
            _server_time_ms(response.headers),
        )

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


def _server_time_ms(headers: httpx.Headers) -> int | None:
    try:
        return int(parsedate_to_datetime(headers.get("Date", "")).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _no_answer(cause: BaseException) -> NoAnswer:
    """Decide by the error of aiohttp: those of httpx don't tell a refused connection from a broken one."""
    if isinstance(cause, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError):
        return NoAnswer("the proxy refused the connection", sent=False)
    if isinstance(cause, aiohttp.ClientSSLError):
        return NoAnswer("its certificate is not trusted (is ca_file right?)", sent=False)
    if isinstance(cause, aiohttp.ClientConnectorDNSError):
        return NoAnswer("its host name can't be resolved", sent=False)
    if isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.InvalidURL):
        return NoAnswer("it accepts no connection", sent=False)
    return NoAnswer(f"the connection broke ({type(cause).__name__})", sent=True)


def _base_url(name: str, url: str) -> httpx.URL:
    root = url.strip().rstrip("/").removesuffix("/api")
    try:
        parsed = httpx.URL(root + "/api/")
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
        raise ResponderBotError(
            "bad_request", f"Engine {name!r}: url must look like https://host:9001, without user or password in it."
        )
    return parsed


def _check_key(name: str, key: str) -> str:
    if not key or not key.isascii() or not key.isprintable():
        raise ResponderBotError("bad_request", f"Engine {name!r}: put the API key of a user there into api_key.")
    return key


def _proxy(name: str, proxy: str) -> httpx.Proxy | None:
    if not proxy:
        return None
    try:
        parsed = httpx.Proxy(proxy)
    except (ValueError, httpx.InvalidURL):
        # `from None`: the library's error contains the URL, which may contain a password.
        raise ResponderBotError("bad_request", f"Engine {name!r}: proxy must look like http://host:3128.") from None
    if parsed.auth is None:
        return parsed
    # As a header, since aiohttp deprecates the form that the transport uses; aiohttp renames it for the proxy.
    login = base64.b64encode(":".join(parsed.auth).encode()).decode()
    return httpx.Proxy(parsed.url, headers={"Authorization": f"Basic {login}"})


def _ssl_context(name: str, ca_file: Path | None) -> ssl.SSLContext:
    """A private CA replaces the public ones, so that no other one can vouch for the engine."""
    if ca_file is None:
        return httpx.create_ssl_context()
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise ResponderBotError(
            "bad_request", f"Engine {name!r}: ca_file {ca_file} can't be read as certificates ({error})."
        ) from error
