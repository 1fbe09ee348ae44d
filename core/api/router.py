"""The service end of the wire: an HTTP request in, checked in a fixed order, and a JSON answer out.

The order is `semantics.md 1`: who asks (401), the address (404, 405), the body (400), the right to do it (403); what
follows (404 of an object, the business rule) is the handler's. Every failure becomes one error body by `ERRORS`.
"""

import asyncio
import base64
import json
import logging
import math
import os
import re
import time
import zlib
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote
from weakref import WeakValueDictionary

import structlog
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.access import Access, Caller
from core.api import forms
from core.common.errors import Code, ResponderBotError
from core.common.listener import BODY_TIMEOUT_S, ClientDisconnected, read_body
from core.models import ERRORS_LIMIT, ApiModel, ArtifactsInput, ErrorCount, Input, Permission

ERRORS: Mapping[Code, tuple[int, str]] = {
    "authentication": (401, "AuthenticationError"),
    "bad_request": (400, "BadRequest"),
    "invalid_fields": (400, "AttributeCheckingError"),
    "exists": (400, "CreateError"),
    "forbidden": (403, "AuthorizationError"),
    "not_found": (404, "NotFoundError"),
    "log_not_found": (404, "AuthenticationError"),  # as the interface gives it (interface.md 7)
    "method_not_allowed": (405, "MethodNotAllowed"),
    "conflict": (409, "ConflictError"),
    "gone": (410, "GoneError"),
    "too_large": (413, "TooLargeError"),
    "key_reused": (422, "KeyReusedError"),
    "unavailable": (503, "UnavailableError"),
    "internal": (500, "InternalError"),
}
"""What each code is on the wire: status and `type`. The only such table; `core.client` reads it backwards."""

BODY_LIMIT_BYTES = 1_048_576
QUERY_LIMIT_BYTES = 8_192
HEADERS_LIMIT_BYTES = 32_768
PATH_LIMIT_BYTES = 2_048
QUERY_LIMIT_FIELDS = 64
VALUES_LIMIT = 30_000  # what a body costs to decode and check grows with its values: so many take 10 to 20 ms
VALUE_LIMIT_CHARS = 100
INT_LIMIT = 2**63  # what the store can hold

ASIDE_BYTES = 65_536  # more than this is put into other words beside the loop
SEARCHES_EACH = 2  # of one caller at once, of the store's four: the rest wait, so that others' do not

JSON_TYPE = "application/json"

T = TypeVar("T")

Handler = Callable[["Request"], Awaitable[Response]]
ResponseObserver = Callable[[str, str, int, float], None]
"""Told of each answer: route, method, status, seconds."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a handler gets: its caller is known, its body decoded, its permission checked."""

    caller: Caller
    body: Any
    """The endpoint's Input, or None where it takes none."""
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    raw: Any = None
    """The body as plain JSON; None where there was none."""
    request_id: str = ""
    wait_turn: Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]] | None = None

    async def long_read(self, read: Coroutine[Any, Any, T]) -> T:
        """Await a search: each caller has a few at once at most, and it is stopped when the client hangs up."""
        result: T = await (self.wait_turn(read) if self.wait_turn else read)
        return result


@dataclass(frozen=True)
class Endpoint:
    """One row of the routes table; OpenAPI is made from it too."""

    method: str
    path: str
    """Such as `/api/alert/{id}`; a fixed segment wins over a named one."""
    handler: Handler
    summary: str
    body: type[Input] | None = None
    response: Any = None
    """What a success holds, for OpenAPI: a model, or `list[model]`."""
    status: int = 200
    permission: Permission | None = None
    or_permission: Permission | None = None
    """One that is enough too; a 403 names the other."""
    purpose: str = ""
    """The words after `You are not authorized to` in a 403."""
    permission_label: str = ""
    """The words after `you haven't the permission`, where they are not just the permission."""
    errors: tuple[int, ...] = ()
    """Statuses of errors that the handler may answer, for OpenAPI; those of every endpoint need not be named."""
    is_public: bool = False
    """Needs no key (health, docs)."""
    allow_source_profile: bool = False
    """Also for a key with the profile `source`: it reads nothing else that needs a key."""
    by_name: bool = False
    """Its last segment may be a name that people chose, also one that is an address of its own for other methods."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Query parameters and what they mean, for OpenAPI."""
    request_headers: Mapping[str, str] = field(default_factory=dict)
    """Request headers beyond those of every endpoint, for OpenAPI."""
    translate_request: Callable[[Any], Any] | None = None
    """Turns a decoded body into the interface's words (alias.py)."""
    translate_response: Callable[[bytes], bytes] | None = None
    """Turns an answer's bytes into the caller's words, errors too (alias.py)."""

    @property
    def takes_body(self) -> bool:
        return self.method not in ("GET", "DELETE")

    @property
    def writes(self) -> bool:
        """Does it change anything? Searches are reads that need a body."""
        return self.method != "GET" and not self.path.endswith(("/_search", "/query"))


def json_response(
    content: str | bytes | ApiModel, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON answer: of stored text as it is, or of a word."""
    text = content.to_json() if isinstance(content, ApiModel) else content
    return Response(text, status, headers, JSON_TYPE)


def json_list_response(
    contents: Iterable[str | ApiModel], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON list of stored texts or words."""
    texts = (item.to_json() if isinstance(item, ApiModel) else item for item in contents)
    return Response("[" + ",".join(texts) + "]", status, headers, JSON_TYPE)


def wait_seconds(request: Request, name: str, most: int) -> float:
    """A query parameter that says how long to wait; at most `most`. Raises ResponderBotError("bad_request")."""
    text = request.query.get(name, "0")
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text, re.ASCII):
        raise ResponderBotError("bad_request", f"{name} is to be a number of seconds, from 0 to {most}.")
    return min(float(text), float(most))


def bool_param(request: Request, name: str) -> bool:
    """A query parameter that is a choice: `true` or `1` is yes."""
    return request.query.get(name, "").lower() in ("true", "1")


# --- errors ---------------------------------------------------------------------------------------------------------


def error_body(error: ResponderBotError, request_id: str) -> tuple[int, str]:
    """Status and JSON of an error (`semantics.md 1`)."""
    status, kind = ERRORS[error.code]
    body: dict[str, Any] = {"type": kind, "message": error.message}
    if error.fields:
        body["errors"] = list(error.fields)
    for key, value in error.details.items():
        body.setdefault(key, json.loads(value.to_json()) if isinstance(value, ApiModel) else value)
    body.setdefault("requestId", request_id)
    return status, json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=str)


_FORMATS: Mapping[str, str] = {
    "string_type": "string",
    "int_type": "integer",
    "float_type": "number",
    "bool_type": "boolean",
    "list_type": "array",
    "tuple_type": "array",
    "dict_type": "object",
    "mapping_type": "object",
    "model_type": "object",
    "model_attributes_type": "object",
    "string_too_short": "non-empty string",
}


def field_errors(error: ValidationError) -> ResponderBotError:
    """All wrong fields of a body at once, in the form of `semantics.md 1`."""
    found = error.errors(include_url=False, include_context=True)
    if any(not item["loc"] for item in found):
        return ResponderBotError("bad_request", "The body is to be a JSON object.")
    return invalid_fields([_field_error(item) for item in found[:ERRORS_LIMIT]])


def invalid_fields(entries: Sequence[Mapping[str, Any]]) -> ResponderBotError:
    """The error of wrong fields; its message is made of the first ten."""
    texts = [_field_text(entry) for entry in entries[:10]]
    if len(entries) > 10:
        texts.append(f"and {len(entries) - 10} more")
    return ResponderBotError("invalid_fields", "".join(f"[{text}]" for text in texts), fields=entries)


def field_name(loc: Sequence[str | int]) -> str:
    """Nested names, dotted and indexed: `tasks[0].title`."""
    name = ""
    for part in loc:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name


def _field_error(error: ErrorDetails) -> dict[str, Any]:
    name, kind = field_name(error["loc"]), error["type"]
    if kind == "missing":
        return {"name": name, "type": "MissingAttributeError"}
    if kind == "too_long":
        expected = f"at most {error['ctx']['max_length']} entries"
    else:
        expected = _FORMATS.get(kind) or error["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return {
        "name": name,
        "type": "InvalidFormatAttributeError",
        "format": expected,
        "value": _bounded(error["input"]),
    }


def _field_text(entry: Mapping[str, Any]) -> str:
    if entry["type"] == "MissingAttributeError":
        return f"Attribute {entry['name']} is missing"
    return f"Invalid format for {entry['name']}, expected {entry.get('format', 'something else')}"


def _bounded(value: Any) -> Any:
    """What a client sent, short enough to send back."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= VALUE_LIMIT_CHARS else text[:VALUE_LIMIT_CHARS] + "…"


# --- decoding -------------------------------------------------------------------------------------------------------

_MAYBE_HUGE = re.compile(rb"[0-9]{19}|[0-9][eE]\+?[0-9]{2}")


def decode(content: bytes) -> Any:
    """JSON of a body. Raises ResponderBotError("bad_request") for what no store or reader could take.

    NaN, lone surrogates and depth bombs are refused by the parser, numbers out of range and too many values here.
    """
    if _has_too_many_values(content):
        raise ResponderBotError("bad_request", f"The body holds over {VALUES_LIMIT} values; send fewer at once.")
    try:
        value = from_json(content.removeprefix(BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise ResponderBotError("bad_request", f"The body is no JSON that can be read: {error}.") from error
    if _MAYBE_HUGE.search(content) and not _in_range(value):
        raise ResponderBotError("bad_request", "The body holds a number out of range; send it as a string.")
    return value


def _has_too_many_values(content: bytes) -> bool:
    """Whether JSON holds more values than the limit, told without decoding them; what is no JSON may get either answer.

    A value follows a comma or opens a list or an object, which is counted outside of strings. Each step is one pass in
    C, as this runs on the loop before anything else has been checked.
    """
    if _marks(content) <= VALUES_LIMIT:
        return False
    unescaped = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 4 * VALUES_LIMIT:  # two quotes for each value, two for its key
        return True
    return _marks(b"".join(unescaped.split(b'"')[::2])) > VALUES_LIMIT


def _marks(content: bytes) -> int:
    return content.count(b",") + content.count(b"[") + content.count(b"{")


def _in_range(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -INT_LIMIT <= value < INT_LIMIT
    if isinstance(value, dict):
        return all(_in_range(item) for item in value.values())
    if isinstance(value, list):
        return all(_in_range(item) for item in value)
    return True


def _validated(model: type[Input], raw: Any) -> Input:
    try:
        # Names of the wire only: those of our own code are no promise, and a check before us would not know them.
        return model.model_validate(raw, context=ErrorCount(), by_alias=True, by_name=False)
    except ValidationError as error:
        raise field_errors(error) from None  # the cause holds the client's whole body


def _credentials(headers: Mapping[str, str]) -> tuple[str, str | None]:
    """Key and, with Basic, login of a request. Raises ResponderBotError("authentication")."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    value = value.strip(" \t")  # and no other blanks: they are a part of the key
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


# --- the routes -----------------------------------------------------------------------------------------------------


class _Node:
    """One segment of the addresses: what may come next, and what answers if nothing does."""

    __slots__ = ("ends", "fixed", "named")

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.named: _Node | None = None
        self.ends: dict[str, tuple[Endpoint, tuple[str, ...]]] = {}


class RouteTable:
    """The table of endpoints, as a tree of segments: the time to find one does not grow with the table."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = _Node()
        for endpoint in endpoints:
            self._add(endpoint)

    def find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
        """The endpoint of a path that is still percent-encoded, and the values in it.

        Raises ResponderBotError("not_found") and ("method_not_allowed").
        """
        segments = path.rstrip("/").split("/")[1:]
        if "%" in path:
            segments = [unquote(segment) for segment in segments]
        # The first place is the address: `/api/alert/_search` is never the alert that is called `_search`.
        place = self._place(self._root, segments, (), method)
        if place is None:
            raise ResponderBotError("not_found", "There is nothing at this address; /api/docs lists what there is.")
        node, values = place
        found = node.ends.get(method)
        if found is None:
            raise _NotAllowed(sorted(node.ends))
        return found[0], dict(zip(found[1], values, strict=True))

    def _add(self, endpoint: Endpoint) -> None:
        node, names = self._root, []
        for segment in endpoint.path.split("/")[1:]:
            if segment.startswith("{"):
                names.append(segment.strip("{}"))
                node.named = node.named or _Node()
                node = node.named
            else:
                node = node.fixed.setdefault(segment, _Node())
        if endpoint.method in node.ends:
            raise ValueError(f"{endpoint.method} {endpoint.path} is in the table twice.")
        node.ends[endpoint.method] = (endpoint, tuple(names))

    def _place(
        self, node: _Node, segments: Sequence[str], values: tuple[str, ...], method: str
    ) -> tuple[_Node, tuple[str, ...]] | None:
        if not segments:
            return (node, values) if node.ends else None
        segment, rest = segments[0], segments[1:]
        fixed, place = node.fixed.get(segment), None
        if fixed is not None:
            place = self._place(fixed, rest, values, method)
        if node.named is not None and segment and (place is None or method not in place[0].ends):
            named = self._place(node.named, rest, (*values, segment), method)
            if place is None or (named and method in named[0].ends and named[0].ends[method][0].by_name):
                place = named
        return place


class _NotAllowed(ResponderBotError):
    """Carries the methods that are allowed, for the `Allow` header."""

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__("method_not_allowed", f"This address takes {' and '.join(allowed)} only.")
        self.allowed = ", ".join(allowed)


async def _hung_up(receive: Receive) -> None:
    """Return once the client has."""
    while (await receive())["type"] != "http.disconnect":
        pass


# --- the application ------------------------------------------------------------------------------------------------

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_EVERY_ANSWER = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
_NOBODY = Caller("", frozenset(), "", "read-only", 0)


class Router:
    """The ASGI application of core."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        access: Access,
        *,
        body_limit_bytes: int = BODY_LIMIT_BYTES,
        body_timeout_s: float = BODY_TIMEOUT_S,
        observe: ResponseObserver | None = None,
    ) -> None:
        self._routes = RouteTable(endpoints)
        self._access = access
        self._body_limit_bytes = body_limit_bytes
        self._body_timeout_s = body_timeout_s
        self._observe = observe
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._log = structlog.get_logger("core.api").bind()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"core speaks HTTP only, not {scope['type']}")
        started = time.perf_counter()
        visit = _RequestContext(scope)
        try:
            response = await self._respond(visit, receive)
        except ClientDisconnected:
            return
        response.raw_headers.append((b"x-request-id", visit.request_id.encode()))
        response.raw_headers.extend(_EVERY_ANSWER)
        self._note(visit, response.status_code, time.perf_counter() - started)
        await response(scope, receive, send)

    async def _respond(self, visit: "_RequestContext", receive: Receive) -> Response:
        try:
            response = await self._handled(visit, receive)
        except ResponderBotError as error:
            response = self._failed(visit, error)
        except ClientDisconnected:
            raise
        except asyncio.CancelledError:  # only the listener cancels, when it stops; the client is told so
            sentence = "Core is stopping; try again in a moment."
            response = self._failed(visit, ResponderBotError("unavailable", sentence))
        except (
            ValidationError,
            json.JSONDecodeError,
        ):  # the body's own are told as such: this one came out of the store
            self._log.exception("record_unreadable", request_id=visit.request_id, route=visit.route)
            sentence = (
                "What is stored of this can't be read; restore a backup."
                f" The log says more, under request id {visit.request_id}."
            )
            response = self._failed(visit, ResponderBotError("unavailable", sentence))
        except Exception:
            self._log.exception("unforeseen", request_id=visit.request_id, method=visit.method, route=visit.route)
            sentence = f"Something went wrong inside; the log says what, under request id {visit.request_id}."
            response = self._failed(visit, ResponderBotError("internal", sentence))
        if visit.endpoint is not None and visit.endpoint.translate_response is not None:
            body = bytes(response.body)
            rename = visit.endpoint.translate_response
            renamed = rename(body) if len(body) < ASIDE_BYTES else await asyncio.to_thread(rename, body)
            headers = {k: v for k, v in response.headers.items() if k not in ("content-length", "content-type")}
            response = Response(renamed, response.status_code, headers, response.media_type)
        return response

    async def _handled(self, visit: "_RequestContext", receive: Receive) -> Response:
        """The order of checks of `semantics.md 1`."""
        caller = self._caller(visit.headers) if visit.needs_key() else _NOBODY
        visit.came(caller)
        visit.check_sizes()
        endpoint, values = self._routes.find(visit.lookup_method, visit.raw_path)
        visit.endpoint = endpoint
        if caller is _NOBODY and not endpoint.is_public:  # whatever spelling of an address led here
            caller = self._caller(visit.headers)
            visit.came(caller)
        elif caller is _NOBODY and "authorization" in visit.headers:  # needs no key, but may say more to some
            with suppress(ResponderBotError):
                caller = self._caller(visit.headers)
                visit.came(caller)
        raw, body = await self._body(visit, endpoint, receive)
        if endpoint.takes_body and caller is not _NOBODY:
            caller = self._caller(visit.headers)  # who was disabled while the body came may not do it any more
        _permit(endpoint, caller)
        turn = partial(self._in_turn, caller.login, receive)
        request = Request(caller, body, values, visit.query(), visit.headers, raw, visit.request_id, turn)
        return await endpoint.handler(request)

    async def _in_turn(self, login: str, receive: Receive, read: Coroutine[Any, Any, Any]) -> Any:
        """What `read` gives, once this caller has few enough others. Raises ClientDisconnected if it hangs up."""
        turns = self._turns.get(login)
        if turns is None:
            turns = self._turns[login] = asyncio.Semaphore(SEARCHES_EACH)

        async def in_turn() -> Any:
            async with turns:
                return await read

        reading, hung_up = asyncio.create_task(in_turn()), asyncio.create_task(_hung_up(receive))
        try:
            await asyncio.wait((reading, hung_up), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise ClientDisconnected
            return reading.result()
        finally:
            reading.cancel()
            hung_up.cancel()
            await asyncio.gather(reading, hung_up, return_exceptions=True)
            read.close()  # where its turn never came

    def _caller(self, headers: Mapping[str, str]) -> Caller:
        key, login = _credentials(headers)
        caller = self._access.authenticate(key, login=login)
        name = headers.get("x-on-behalf-of")
        return caller if name is None else self._access.on_behalf_of(caller, name)

    async def _body(self, visit: "_RequestContext", endpoint: Endpoint, receive: Receive) -> tuple[Any, Input | None]:
        if not endpoint.takes_body:
            return None, None
        content = self._unpacked(visit, await self._read(visit, receive))
        if not content and (endpoint.body is None or not _required(endpoint.body)):
            raw: Any = None
        elif not content:
            raise ResponderBotError("bad_request", "The body is empty; it is to be a JSON object.")
        elif forms.is_form(content_type := visit.headers.get("content-type", "")):
            text, files = forms.split(content, content_type)
            takes_file = endpoint.body is ArtifactsInput
            raw = forms.filled(decode(text), files, takes_file=takes_file, limit_bytes=self._body_limit_bytes)
        else:
            raw = decode(content)
        if endpoint.translate_request is not None:
            raw = endpoint.translate_request(raw)
        if endpoint.body is None:
            return raw, None
        # A client that has nothing to say says so with no body, or with null.
        return raw, _validated(endpoint.body, {} if raw is None and not _required(endpoint.body) else raw)

    def _unpacked(self, visit: "_RequestContext", content: bytes) -> bytes:
        """The body without its Content-Encoding; what it becomes is bounded like what arrives."""
        encoding = visit.headers.get("content-encoding", "").lower()
        if encoding in ("", "identity") or not content:
            return content
        if encoding not in ("gzip", "x-gzip"):
            raise ResponderBotError("bad_request", "Of encodings of a body only gzip is known; send it so, or plain.")
        packed = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            text = packed.decompress(content, self._body_limit_bytes + 1)
        except zlib.error as error:
            raise ResponderBotError("bad_request", "The body is not the gzip that its header says.") from error
        if len(text) > self._body_limit_bytes:
            raise self._too_large()
        if not packed.eof or packed.unused_data:
            raise ResponderBotError("bad_request", "The body is not one whole gzip; send it again.")
        return text

    async def _read(self, visit: "_RequestContext", receive: Receive) -> bytes:
        """The body, bounded in size and in time, whatever its headers claim."""
        if visit.claimed_length() > self._body_limit_bytes:
            raise self._too_large()
        try:
            return await read_body(receive, self._body_limit_bytes, self._body_timeout_s)
        except TimeoutError:
            visit.unread = True
            sentence = f"The body did not arrive within {self._body_timeout_s:g} s; send it again."
            raise ResponderBotError("bad_request", sentence) from None

    def _too_large(self) -> ResponderBotError:
        return ResponderBotError("too_large", f"The body is over the limit of {self._body_limit_bytes} bytes.")

    def _failed(self, visit: "_RequestContext", error: ResponderBotError) -> Response:
        status, text = error_body(error, visit.request_id)
        headers: dict[str, str] = {}
        if isinstance(error, _NotAllowed):
            headers["Allow"] = error.allowed
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if visit.unread:
            headers["Connection"] = "close"  # the rest of the body is not waited for
        if status == 503:
            headers["Retry-After"] = "1"
        return Response(text, status, headers, JSON_TYPE)

    def _note(self, visit: "_RequestContext", status: int, seconds: float) -> None:
        if self._observe is not None:
            self._observe(visit.route, visit.method, status, seconds)
        level = logging.INFO if status >= 400 or (visit.endpoint and visit.endpoint.writes) else logging.DEBUG
        if not self._log.is_enabled_for(level):
            return
        self._log.log(
            level,
            "answered",
            request_id=visit.request_id,
            method=visit.method,
            route=visit.route,
            status=status,
            ms=round(seconds * 1000, 1),
            login=visit.login,
            **({"through": visit.through} if visit.through != visit.login else {}),
        )


class _RequestContext:
    """One request on its way through the checks."""

    __slots__ = (
        "endpoint",
        "headers",
        "headers_bytes",
        "login",
        "method",
        "query_string",
        "raw_path",
        "request_id",
        "through",
        "unread",
    )

    def __init__(self, scope: Scope) -> None:
        raw_headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        self.method: str = scope["method"]
        path: str = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        self.raw_path = "/" + path.lstrip("/")  # clients put an address that ends in a slash before theirs
        self.query_string: bytes = scope["query_string"]
        self.headers: dict[str, str] = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw_headers}
        self.headers_bytes = sum(len(name) + len(value) for name, value in raw_headers)
        asked = self.headers.get("x-request-id", "")
        self.request_id = asked if _REQUEST_ID.fullmatch(asked) else os.urandom(8).hex()
        self.endpoint: Endpoint | None = None
        self.login = ""
        self.through = ""
        self.unread = False

    def came(self, caller: Caller) -> None:
        """Keep who asks, and through whose key, for the log (`semantics.md 1`: audit keeps both)."""
        self.login, self.through = caller.login, caller.key_owner

    @property
    def route(self) -> str:
        """The endpoint's path; never the address itself, which anybody can make up."""
        return self.endpoint.path if self.endpoint else "none"

    @property
    def lookup_method(self) -> str:
        """HEAD is answered wherever GET is."""
        return "GET" if self.method == "HEAD" else self.method

    def needs_key(self) -> bool:
        """Under /api a missing key is 401 before any 404 or 405; elsewhere and for the docs nothing is secret."""
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

    def claimed_length(self) -> int:
        text = self.headers.get("content-length", "0")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0

    def query(self) -> dict[str, str]:
        """Parameters by name; the values of one that is repeated, as clients do with `sort`, are joined by commas."""
        found: dict[str, str] = {}
        for name, value in self._pairs() if self.query_string else ():
            found[name] = f"{found[name]},{value}" if name in found else value
        return found

    def _pairs(self) -> list[tuple[str, str]]:
        try:
            text = self.query_string.decode("latin-1")
            return parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=QUERY_LIMIT_FIELDS)
        except ValueError as error:
            sentence = f"The query has more than {QUERY_LIMIT_FIELDS} parameters."
            raise ResponderBotError("bad_request", sentence) from error


def _permit(endpoint: Endpoint, caller: Caller) -> None:
    """Raises ResponderBotError("forbidden") where the caller's permissions, or the profile, do not reach."""
    if endpoint.is_public:
        return
    what = endpoint.purpose or endpoint.summary
    refused = caller.refusal(endpoint.permission, what, label=endpoint.permission_label) if endpoint.permission else ""
    if endpoint.or_permission and caller.may(endpoint.or_permission):
        refused = ""
    if endpoint.writes and caller.may("actOnBehalf"):
        hint = "this key may only read; to change something, say for whom in the header X-On-Behalf-Of"
        refused = f"{refused}; {hint}" if refused else f"{hint[0].upper()}{hint[1:]}."
    elif caller.profile == "source" and (refused or not (endpoint.permission or endpoint.allow_source_profile)):
        hint = "a key with the profile source may only create alerts"
        refused = f"{refused or 'You are not authorized to read this'}; {hint}"
    if refused:
        raise ResponderBotError("forbidden", refused)


def _required(model: type[BaseModel]) -> bool:
    return any(item.is_required() for item in model.model_fields.values())
