"""The parts of a resource's module: endpoints, the request that a handler gets, and JSON responses."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from starlette.responses import Response
from starlette.types import Receive, Scope

from core.authorization import Caller
from core.common import logs
from core.common.errors import ResponderBotError
from core.common.listener import ClientDisconnected
from core.common.tasks import cancel_and_wait
from core.models import ApiModel, Input, Permission, Profile, SearchInput
from core.records.search import SearchResult
from core.store.search import Window

JSON_TYPE = "application/json"
MAX_WAIT_S = 60  # for what has not happened yet
ANONYMOUS = Caller("", frozenset(), "", "read-only", 0)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_process_id = os.urandom(4).hex()
_numbers = count(1)  # random ones would let other threads in between at each request

T = TypeVar("T")

Handler = Callable[["Request"], Awaitable[Response]]
SearchTurns = WeakValueDictionary[str, asyncio.Lock]
"""By login: each runs one search at a time of the store's four, so that few callers can't keep others waiting."""


class Request:
    """One request; the router sets caller, endpoint and body as it checks them."""

    __slots__ = (
        *("method", "raw_path", "raw_query", "headers", "headers_bytes", "id", "address", "receive", "_turns"),
        *("caller", "endpoint", "path", "query", "raw", "body", "is_unread", "read_bytes"),
    )

    def __init__(self, scope: Scope, receive: Receive, turns: SearchTurns) -> None:
        self.method: str = scope["method"]
        path: str = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        self.raw_path = "/" + path.lstrip("/")  # clients append `/api/...` to a base URL that ends in a slash
        self.raw_query: bytes = scope["query_string"]
        raw_headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw_headers}
        """Names in lower case."""
        self.headers_bytes = sum(len(name) + len(value) for name, value in raw_headers)
        client_id = self.headers.get("x-request-id", "")
        self.id = client_id if _REQUEST_ID.fullmatch(client_id) else f"{_process_id}{next(_numbers):08x}"
        logs.set_request_id(self.id)
        client = scope.get("client")
        self.address: str = client[0] if client else ""
        self.receive, self._turns = receive, turns
        self.caller = ANONYMOUS
        self.endpoint: Endpoint | None = None
        self.path: Mapping[str, str] = {}
        """Path parameters by name."""
        self.query: Mapping[str, str] = {}
        """Query parameters by name."""
        self.raw: Any = None
        """The body as plain JSON; None if there is none."""
        self.body: Any = None
        """An instance of the endpoint's Input; None if the endpoint takes none."""
        self.is_unread = False
        """Whether the rest of the body won't be read, so that the connection must be closed."""
        self.read_bytes: Callable[[], Awaitable[bytes]]
        """Reads the body, of an endpoint with `reads_bytes`."""

    @property
    def route(self) -> str:
        """The endpoint's path with its parameters' names, so that clients can't create labels of metrics."""
        return self.endpoint.path if self.endpoint else "none"

    async def run_search(self, search: Coroutine[Any, Any, T]) -> T:
        """Await a search, as `unless_left` does; those of a caller run one after the other."""
        turn = self._turns.setdefault(self.caller.login, asyncio.Lock())

        async def search_in_turn() -> T:
            async with turn:
                return await search

        try:
            return await self.unless_left(search_in_turn())
        finally:
            search.close()  # it may not have started

    async def unless_left(self, work: Coroutine[Any, Any, T]) -> T:
        """Await it. Raises ClientDisconnected, and stops it, if the client hangs up."""
        working, hang_up = asyncio.create_task(work), asyncio.create_task(self._disconnected())
        try:
            await asyncio.wait((working, hang_up), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClientDisconnected
            return working.result()
        finally:
            await cancel_and_wait(working, hang_up)
            del working, hang_up  # an error refers to this frame, and with it to all that a search had read

    async def _disconnected(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass


@dataclass(frozen=True)
class Endpoint:
    """One route with its handler and all that the router and the OpenAPI document need."""

    method: str
    path: str
    """Such as `/api/alert/{id}`; a literal segment wins over a parameter."""
    handler: Handler
    summary: str
    body: type[Input] | None = None
    response: Any = None
    """Body of a success, for OpenAPI: a model, `list[model]`, or a media type such as `text/html`."""
    status: int = 200
    permission: Permission | None = None
    or_permission: Permission | None = None
    """An alternative to `permission`; a 403 names only `permission`."""
    purpose: str = ""
    """The purpose in a 403, `You are not authorized to <purpose>`; default: the summary."""
    permission_label: str = ""
    """How the 403 names the permission; default: its name."""
    errors: tuple[int, ...] = ()
    """Statuses beyond those that every endpoint may answer, for OpenAPI."""
    is_public: bool = False
    """No key is needed (health, docs)."""
    programs: tuple[Profile, ...] = ()
    """Which of the profiles that may read nothing else, `source` and `reader`, may read it."""
    reads_bytes: bool = False
    """The handler reads the body itself, as bytes, and checks who sends it, who may sign it in place of a key."""
    by_name: bool = False
    """Whether the last segment is a name that users choose: it also matches a literal route of another method."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Query parameters and their descriptions, for OpenAPI."""
    request_headers: Mapping[str, str] = field(default_factory=dict)
    """Request headers beyond those of every endpoint, and their descriptions, for OpenAPI."""
    translate_request: Callable[[Any], Any] | None = None
    """Maps the field names of a decoded body to core's own (see alias.py and v1.py)."""
    translate_response: Callable[[bytes], bytes] | None = None
    """Maps the field names of a response body to the client's, in errors too (see alias.py and v1.py)."""

    @cached_property
    def parameters(self) -> list[str]:
        """The names of the path's parameters."""
        return re.findall(r"{(\w+)}", self.path)

    @property
    def takes_body(self) -> bool:
        return self.method not in ("GET", "DELETE")

    @property
    def writes(self) -> bool:
        """Whether it changes anything; searches only read, although they are POSTs."""
        return self.method != "GET" and not self.path.endswith(("/_search", "/query"))


class Routes(list[Endpoint]):
    """The endpoints of a resource: `@routes("GET /{id}", "Get it", response=Alert)` adds a handler."""

    def __init__(self, base: str = "") -> None:
        """`base` is what all their paths begin with."""
        super().__init__()
        self._base = base

    def __call__(self, address: str, summary: str, **options: Any) -> Callable[[Handler], Handler]:
        """`options` are further fields of the Endpoint."""
        method, _, path = address.partition(" ")

        def add(handler: Handler) -> Handler:
            self.append(Endpoint(method, self._base + path, handler, summary, **options))
            return handler

        return add


def json_response(
    content: str | bytes | ApiModel, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A response with a model, or with JSON text as it is."""
    text = content.to_json() if isinstance(content, ApiModel) else content
    return Response(text, status, headers, JSON_TYPE)


def json_list_response(
    items: Iterable[str | ApiModel], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A response with a JSON array of models or JSON texts."""
    texts = (item.to_json() if isinstance(item, ApiModel) else item for item in items)
    return Response("[" + ",".join(texts) + "]", status, headers, JSON_TYPE)


def getting(json_of: Callable[..., Awaitable[str]]) -> Handler:
    """A handler that answers with the JSON of what the path names."""

    async def handle(request: Request) -> Response:
        return json_response(await json_of(*request.path.values()))

    return handle


def changing(change: Callable[..., Awaitable[ApiModel]], status: int = 200) -> Handler:
    """A handler that has the caller change what the path names, with the body if it takes one."""

    async def handle(request: Request) -> Response:
        body = () if request.body is None else (request.body,)
        return json_response(await change(request.caller, *request.path.values(), *body), status)

    return handle


def wait_seconds(request: Request, name: str = "wait", maximum: float = MAX_WAIT_S) -> float:
    """The query parameter `name` as seconds to wait, at most `maximum`. Raises ResponderBotError("bad_request")."""
    text = request.query.get(name, "0")
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text, re.ASCII):
        raise ResponderBotError("bad_request", f"{name} must be a number of seconds from 0 to {maximum:g}.")
    return min(float(text), maximum)


def int_param(request: Request, name: str, default: int, maximum: int) -> int:
    """The query parameter `name` as a number up to `maximum`. Raises ResponderBotError("bad_request")."""
    text = request.query.get(name, str(default))
    if not re.fullmatch(r"[0-9]{1,16}", text, re.ASCII) or int(text) > maximum:
        raise ResponderBotError("bad_request", f"{name} must be a number from 0 to {maximum}.")
    return int(text)


def bool_param(request: Request, name: str) -> bool:
    """The query parameter `name` as a flag, set by `true` or `1`."""
    return request.query.get(name, "").lower() in ("true", "1")


async def has_left(receive: Receive) -> bool:
    """Whether the client has closed the connection, as one does that waited for events."""
    try:
        async with asyncio.timeout(0):
            return bool((await receive())["type"] == "http.disconnect")
    except TimeoutError:
        return False


# --- searches and lists: range and sort in the query string or the body, the total in a header ------------------------


SearchFunction = Callable[[SearchInput], Coroutine[Any, Any, SearchResult]]

_SEARCH_QUERY = {
    "range": "`all`, or `from-to` without its end; default: 0-10",
    "sort": "fields, with `-` in front for descending, such as `-createdAt,title`",
    "count": "`false` for an answer without `X-Total`, which takes less time",
}


def search_endpoint(path: str, search: SearchFunction, response: Any, what: str, *, is_list: bool = False) -> Endpoint:
    """`POST <path>/_search`, or as a list `GET <path>`, without a query; `response` is the type of its list."""

    async def handler(request: Request) -> Response:
        overrides: dict[str, Any] = {name: request.query[name] for name in _SEARCH_QUERY if name in request.query}
        if "count" in overrides:
            overrides["count"] = bool_param(request, "count")
        search_input: SearchInput = request.body or SearchInput()
        result = await request.run_search(search(search_input.model_copy(update=overrides)))
        return json_response(result.json, headers=None if result.total is None else {"X-Total": str(result.total)})

    if is_list:
        return Endpoint("GET", path, handler, f"List {what}", response=response, query=_SEARCH_QUERY)
    address, body = f"{path}/_search", SearchInput
    return Endpoint("POST", address, handler, f"Search {what}", body=body, response=response, query=_SEARCH_QUERY)


def partial_list_response(docs: Sequence[str], total: int, window: Window) -> Response:
    """Some of a list, with its total and a link to the next part."""
    headers, end = {"X-Total": str(total)}, window.offset + len(docs)
    if docs and end < total:
        headers["Link"] = f'<?range={end}-{end + len(docs)}>; rel="next"'
    return json_list_response(docs, headers=headers)
