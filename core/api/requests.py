"""A request before its handler: headers, size limits, credentials, and the body from bytes to a validated model."""

import asyncio
import base64
import math
import os
import re
import time
import zlib
from codecs import BOM_UTF8
from collections.abc import Coroutine, Mapping, Sequence
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, unquote
from weakref import WeakValueDictionary

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.types import Receive, Scope

from core.access import Caller
from core.api import forms
from core.api.endpoint import Endpoint
from core.api.errors import field_errors
from core.common.decoding import has_more_values
from core.common.errors import ResponderBotError
from core.common.listener import BODY_TIMEOUT_S, ClientDisconnected, read_body
from core.field_types import INT_LIMIT, ErrorCount
from core.models import ArtifactsInput, Input

BODY_LIMIT_BYTES = 1_048_576
QUERY_LIMIT_BYTES = 8_192
HEADERS_LIMIT_BYTES = 32_768
PATH_LIMIT_BYTES = 2_048
QUERY_LIMIT_FIELDS = 64
VALUES_LIMIT = 30_000  # decoding and validating as many takes 10 to 20 ms of the event loop
AT_ONCE_S = 0.1  # a body that takes longer outlives the check of who sends it
SEARCHES_PER_CALLER = 2  # of the store's four at once, so that one caller can't keep others waiting

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_process_id = os.urandom(4).hex()
_request_numbers = count(1)  # random ones would let other threads in between at each request
_MAYBE_HUGE_NUMBER = re.compile(rb"[0-9]{19}|[0-9][eE]\+?[0-9]{2}")


def _next_request_id() -> str:
    return f"{_process_id}{next(_request_numbers):08x}"


class RequestContext:
    """One request on its way through the checks, and what the log says of it."""

    __slots__ = (
        "acted_through",
        "endpoint",
        "headers",
        "headers_bytes",
        "is_body_late",
        "login",
        "method",
        "query_string",
        "raw_path",
        "request_id",
        "unread",
    )

    def __init__(self, scope: Scope) -> None:
        raw_headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        self.method: str = scope["method"]
        path: str = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        self.raw_path = "/" + path.lstrip("/")  # clients append `/api/...` to a base URL that ends in a slash
        self.query_string: bytes = scope["query_string"]
        self.headers: dict[str, str] = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw_headers}
        self.headers_bytes = sum(len(name) + len(value) for name, value in raw_headers)
        client_id = self.headers.get("x-request-id", "")
        self.request_id = client_id if _REQUEST_ID.fullmatch(client_id) else _next_request_id()
        self.endpoint: Endpoint | None = None
        self.login = ""
        self.acted_through = ""
        self.is_body_late = False
        """The caller may have lost their rights while the body arrived."""
        self.unread = False
        """The rest of the body has not been read and won't be, so the connection must be closed."""

    def set_caller(self, caller: Caller) -> None:
        """Keep for the log who acts, and through whose key."""
        self.login, self.acted_through = caller.login, caller.acted_through

    @property
    def route(self) -> str:
        """The endpoint's path with its parameters' names, so that clients can't create labels of metrics."""
        return self.endpoint.path if self.endpoint else "none"

    @property
    def lookup_method(self) -> str:
        """The method whose endpoint answers: GET for HEAD."""
        return "GET" if self.method == "HEAD" else self.method

    @property
    def needs_key(self) -> bool:
        """Whether a missing key is a 401 even before a 404 or 405: everything under `/api` but the documentation."""
        path = unquote(self.raw_path).rstrip("/")
        return (path == "/api" or path.startswith("/api/")) and path not in ("/api/docs", "/api/openapi.json")

    def check_sizes(self) -> None:
        """Raises ResponderBotError("too_large") for headers, path or query over their limits."""
        for what, size, limit in (
            ("headers are", self.headers_bytes, HEADERS_LIMIT_BYTES),
            ("path is", len(self.raw_path), PATH_LIMIT_BYTES),
            ("query is", len(self.query_string), QUERY_LIMIT_BYTES),
        ):
            if size > limit:
                raise ResponderBotError("too_large", f"The {what} over the limit of {limit} bytes.")

    @property
    def content_length(self) -> int:
        """What the header says; 0 if it says nothing valid."""
        text = self.headers.get("content-length", "0")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0

    def query(self) -> dict[str, str]:
        """Query parameters by name; values of a repeated one (`sort=a&sort=b`) are joined by commas.

        Raises ResponderBotError("bad_request") for too many.
        """
        if not self.query_string:
            return {}
        try:
            text = self.query_string.decode("latin-1")
            pairs = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=QUERY_LIMIT_FIELDS)
        except ValueError as error:
            sentence = f"The query has more than {QUERY_LIMIT_FIELDS} parameters."
            raise ResponderBotError("bad_request", sentence) from error
        params: dict[str, str] = {}
        for name, value in pairs:
            params[name] = f"{params[name]},{value}" if name in params else value
        return params


class BodyReader:
    """Reads a body within its limits, decompresses, decodes and validates it."""

    def __init__(self, limit_bytes: int = BODY_LIMIT_BYTES, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self._limit_bytes = limit_bytes
        self._timeout_s = timeout_s

    async def read(self, context: RequestContext, endpoint: Endpoint, receive: Receive) -> tuple[Any, Input | None]:
        """The body as plain JSON and as the endpoint's Input; None for each that there isn't.

        Raises ResponderBotError("bad_request"), "invalid_fields" and "too_large", and ClientDisconnected.
        """
        if not endpoint.takes_body:
            return None, None
        content = self._decompress(context, await self._receive(context, receive))
        is_optional = endpoint.body is None or not has_required_fields(endpoint.body)
        if content:
            raw = self._decode(context, endpoint, content)
        elif is_optional:
            raw = None
        else:
            raise ResponderBotError("bad_request", "The body is empty; it must be a JSON object.")
        if endpoint.translate_request is not None:
            raw = endpoint.translate_request(raw)
        if endpoint.body is None:
            return raw, None
        # Without anything to say, some clients send no body and others null.
        return raw, _validate(endpoint.body, {} if raw is None and is_optional else raw)

    async def _receive(self, context: RequestContext, receive: Receive) -> bytes:
        if context.content_length > self._limit_bytes:
            raise self._too_large()
        began = time.monotonic()
        try:
            body = await read_body(receive, self._limit_bytes, self._timeout_s)
            context.is_body_late = time.monotonic() - began > AT_ONCE_S
            return body
        except TimeoutError:
            context.unread = True
            sentence = f"The body did not arrive within {self._timeout_s:g} s; send it again."
            raise ResponderBotError("bad_request", sentence) from None

    def _decompress(self, context: RequestContext, content: bytes) -> bytes:
        """The body without its Content-Encoding; the limit holds for the result too."""
        encoding = context.headers.get("content-encoding", "").lower()
        if encoding in ("", "identity") or not content:
            return content
        if encoding not in ("gzip", "x-gzip"):
            raise ResponderBotError("bad_request", "The only supported Content-Encoding is gzip; use it, or none.")
        decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            text = decompressor.decompress(content, self._limit_bytes + 1)
        except zlib.error as error:
            raise ResponderBotError("bad_request", "The body is not gzip, although its header says so.") from error
        if len(text) > self._limit_bytes:
            raise self._too_large()
        if not decompressor.eof or decompressor.unused_data:
            raise ResponderBotError("bad_request", "The body is not one complete gzip stream; send it again.")
        return text

    def _decode(self, context: RequestContext, endpoint: Endpoint, content: bytes) -> Any:
        content_type = context.headers.get("content-type", "")
        if not forms.is_form(content_type):
            return decode_body(content)
        text, files = forms.split(content, content_type)
        takes_file = endpoint.body is ArtifactsInput
        return forms.insert_files(decode_body(text), files, takes_file=takes_file, limit_bytes=self._limit_bytes)

    def _too_large(self) -> ResponderBotError:
        return ResponderBotError("too_large", f"The body is over the limit of {self._limit_bytes} bytes.")


class SearchLimiter:
    """Lets each caller run a few searches at once; further ones wait."""

    def __init__(self) -> None:
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def run(self, login: str, receive: Receive, search: Coroutine[Any, Any, Any]) -> Any:
        """Await `search` in a slot of this caller. Raises ClientDisconnected, and stops it, if the client hangs up."""
        slots = self._slots.get(login)
        if slots is None:
            slots = self._slots[login] = asyncio.Semaphore(SEARCHES_PER_CALLER)

        async def search_in_slot() -> Any:
            async with slots:
                return await search

        searching, hang_up = asyncio.create_task(search_in_slot()), asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((searching, hang_up), return_when=asyncio.FIRST_COMPLETED)
            if not searching.done():
                raise ClientDisconnected
            return searching.result()
        finally:
            searching.cancel()
            hang_up.cancel()
            await asyncio.gather(searching, hang_up, return_exceptions=True)
            search.close()  # it may not have started
            del searching, hang_up  # an error refers to this frame, and with it to all that the search had read


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def credentials(headers: Mapping[str, str]) -> tuple[str, str | None]:
    """The API key and, with Basic, the login. Raises ResponderBotError("authentication")."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    value = value.strip(" \t")  # other white space is a part of the key
    if scheme.lower() == "bearer" and value:
        return value, None
    if scheme.lower() == "basic":
        try:
            login, colon, key = base64.b64decode(value, validate=True).decode().partition(":")
        except ValueError:
            colon = login = key = ""
        if colon:
            return key, login
    raise ResponderBotError("authentication", "Authentication failure")


def decode_body(content: bytes) -> Any:
    """The JSON value of a body. Raises ResponderBotError("bad_request").

    The parser rejects NaN, lone surrogates and deep nesting; numbers of over 64 bits and too many values are rejected
    here, since the store can't hold the former and the latter would block the event loop.
    """
    if has_more_values(content, VALUES_LIMIT):
        raise ResponderBotError("bad_request", f"The body holds over {VALUES_LIMIT} values; send fewer at once.")
    try:
        value = from_json(content.removeprefix(BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise ResponderBotError("bad_request", f"The body is not valid JSON: {error}.") from error
    if _MAYBE_HUGE_NUMBER.search(content) and not _numbers_fit(value):
        raise ResponderBotError("bad_request", "The body holds a number out of range; send it as a string.")
    return value


def _numbers_fit(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -INT_LIMIT <= value < INT_LIMIT
    if isinstance(value, dict):
        return all(_numbers_fit(item) for item in value.values())
    if isinstance(value, list):
        return all(_numbers_fit(item) for item in value)
    return True


def _validate(model: type[Input], raw: Any) -> Input:
    try:
        # By alias only: Python's names are not part of the interface, and checks on aliases would not see them.
        return model.model_validate(raw, context=ErrorCount(), by_alias=True, by_name=False)
    except ValidationError as error:
        raise field_errors(error) from None  # its cause would keep the whole body alive


def has_required_fields(model: type[BaseModel]) -> bool:
    return any(item.is_required() for item in model.model_fields.values())
