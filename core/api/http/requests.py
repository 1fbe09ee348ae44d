"""The steps before a handler: headers, size limits, credentials, and the body from bytes to a model."""

import base64
import math
import re
import time
import zlib
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from core.api.http import forms
from core.api.http.endpoint import Endpoint, Request
from core.api.http.errors import field_errors
from core.common.decoding import VALUES_LIMIT, has_more_values
from core.common.errors import AuthenticationError, ResponderBotError, bad_request
from core.common.listener import BODY_TIMEOUT_S, read_body
from core.field_types import INT_LIMIT, ErrorCount
from core.models import ArtifactsInput, Input

BODY_LIMIT_BYTES = 1_048_576
QUERY_LIMIT_BYTES = 8_192
HEADERS_LIMIT_BYTES = 32_768
PATH_LIMIT_BYTES = 2_048
QUERY_LIMIT_FIELDS = 64
AT_ONCE_S = 0.1  # after a slower body the caller is authenticated again

_MAYBE_HUGE_NUMBER = re.compile(rb"[0-9]{19}|[0-9][eE]\+?[0-9]{2}")


def check_sizes(request: Request) -> None:
    """Raises ResponderBotError("too_large") for headers, path or query over their limits."""
    for what, size, limit in (
        ("headers are", request.headers_bytes, HEADERS_LIMIT_BYTES),
        ("path is", len(request.raw_path), PATH_LIMIT_BYTES),
        ("query is", len(request.raw_query), QUERY_LIMIT_BYTES),
    ):
        if size > limit:
            raise ResponderBotError("too_large", f"The {what} over the limit of {limit} bytes.")


def query_of(request: Request) -> dict[str, str]:
    """Query parameters by name; values of a repeated one (`sort=a&sort=b`) are joined by commas.

    Raises ResponderBotError("bad_request") for too many.
    """
    params: dict[str, str] = {}
    if not request.raw_query:
        return params
    try:
        text = request.raw_query.decode("latin-1")
        pairs = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=QUERY_LIMIT_FIELDS)
    except ValueError as error:
        raise bad_request(f"The query has more than {QUERY_LIMIT_FIELDS} parameters") from error
    for name, value in pairs:
        params[name] = f"{params[name]},{value}" if name in params else value
    return params


class BodyReader:
    """Reads a body within its limits, decompresses, decodes and validates it."""

    def __init__(self, limit_bytes: int = BODY_LIMIT_BYTES, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self._limit_bytes = limit_bytes
        self._timeout_s = timeout_s

    async def read(self, request: Request, endpoint: Endpoint) -> bool:
        """Set `raw` and `body` of a request; returns whether the body was so late that rights may have changed.

        Raises ResponderBotError("bad_request"), "invalid_fields" and "too_large", and ClientDisconnected.
        """
        if not endpoint.takes_body:
            return False
        began = time.monotonic()
        content = await self.receive(request)
        is_late = time.monotonic() - began > AT_ONCE_S
        kind = request.headers.get("content-type", "")
        are_fields = forms.are_fields(kind, content)
        if are_fields:
            request.raw = forms.fields(content, endpoint.body, VALUES_LIMIT)
        elif content and forms.is_form(kind):
            text, files = forms.split(content, kind)
            takes_file, limit = endpoint.body is ArtifactsInput, self._limit_bytes
            request.raw = forms.insert_files(decode_body(text), files, takes_file=takes_file, limit_bytes=limit)
        elif content:
            request.raw = decode_body(content)
        elif endpoint.body is not None and has_required_fields(endpoint.body):
            raise bad_request("The body is empty; it must be a JSON object")
        if endpoint.translate_request is not None:
            request.raw = endpoint.translate_request(request.raw)
        if endpoint.body is not None:
            # Without anything to say, some clients send no body and others null.
            is_nothing = request.raw is None and not has_required_fields(endpoint.body)
            request.body = _validate(endpoint.body, {} if is_nothing else request.raw, is_strict=not are_fields)
        return is_late

    async def receive(self, request: Request) -> bytes:
        """The body without its Content-Encoding. Raises as `read` does."""
        request.is_unread = True
        text = request.headers.get("content-length", "0")
        if text.isascii() and text.isdigit() and len(text) < 16 and int(text) > self._limit_bytes:
            raise self._too_large()
        try:
            body = await read_body(request.receive, self._limit_bytes, self._timeout_s)
        except TimeoutError:
            raise bad_request(f"The body did not arrive within {self._timeout_s:g} s; send it again") from None
        request.is_unread = False
        return self._decompress(request.headers.get("content-encoding", "").lower(), body)

    def _decompress(self, encoding: str, content: bytes) -> bytes:
        """The body without its Content-Encoding; the limit holds for the result too."""
        if encoding in ("", "identity") or not content:
            return content
        if encoding not in ("gzip", "x-gzip"):
            raise bad_request("The only supported Content-Encoding is gzip; use it, or none")
        decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            text = decompressor.decompress(content, self._limit_bytes + 1)
        except zlib.error as error:
            raise bad_request("The body is not gzip, although its header says so") from error
        if len(text) > self._limit_bytes:
            raise self._too_large()
        if not decompressor.eof or decompressor.unused_data:
            raise bad_request("The body is not one complete gzip stream; send it again")
        return text

    def _too_large(self) -> ResponderBotError:
        return ResponderBotError("too_large", f"The body is over the limit of {self._limit_bytes} bytes.")


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
    raise AuthenticationError("missing")


def client_address(peer: str, forwarded: str, proxies: Sequence[IPv4Network | IPv6Network]) -> str:
    """Where a request comes from: behind proxies the last of `X-Forwarded-For` that is none of them; "" if unknown."""
    address = _plain(peer)
    for text in reversed(forwarded.split(",")) if forwarded else ():
        if not address or not any(ip_address(address) in proxy for proxy in proxies):
            break
        if not (before := _plain(text.strip())):
            break
        address = before
    return address


def _plain(address: str) -> str:
    """An address in its usual form, IPv4 also where IPv6 carries it; "" for what is none."""
    try:
        found = ip_address(address)
    except ValueError:
        return ""
    return str(getattr(found, "ipv4_mapped", None) or found)


def decode_body(content: bytes) -> Any:
    """The JSON value of a body. Raises ResponderBotError("bad_request").

    The parser rejects NaN, lone surrogates and deep nesting; numbers of over 64 bits and too many values are rejected
    here, since the store can't hold the former and the latter would block the event loop.
    """
    if has_more_values(content, VALUES_LIMIT):
        raise bad_request(f"The body holds over {VALUES_LIMIT} values; send fewer at once")
    try:
        value = from_json(content.removeprefix(BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise bad_request(f"The body is not valid JSON: {error}") from error
    if _MAYBE_HUGE_NUMBER.search(content) and not _numbers_fit(value):
        raise bad_request("The body holds a number out of range; send it as a string")
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


def _validate(model: type[Input], raw: Any, *, is_strict: bool) -> Input:
    """The body as the model; unless `is_strict`, texts stand for numbers and flags too. Raises "invalid_fields"."""
    try:
        # By alias only: Python's names are not part of the interface, and checks on aliases would not see them.
        strict = None if is_strict else False
        return model.model_validate(raw, strict=strict, context=ErrorCount(), by_alias=True, by_name=False)
    except ValidationError as error:
        raise field_errors(error) from None  # its cause would keep the whole body alive


def has_required_fields(model: type[BaseModel]) -> bool:
    return any(item.is_required() for item in model.model_fields.values())
