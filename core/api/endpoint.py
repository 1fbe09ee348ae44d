"""What a resource's module is written with: its endpoints, the request that a handler gets, and JSON responses."""

import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.responses import Response

from core.access import Caller
from core.common.errors import ResponderBotError
from core.models import ApiModel, Input, Permission

JSON_TYPE = "application/json"

T = TypeVar("T")

Handler = Callable[["Request"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Request:
    """What a handler gets: an authenticated caller with the endpoint's permission, and a validated body."""

    caller: Caller
    body: Any
    """An instance of the endpoint's Input; None if the endpoint takes none."""
    path: Mapping[str, str]
    """Path parameters by name."""
    query: Mapping[str, str]
    """Query parameters by name."""
    headers: Mapping[str, str]
    """Names in lower case."""
    raw: Any = None
    """The body as plain JSON; None if there is none."""
    request_id: str = ""
    search_limiter: Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]] | None = None

    async def run_search(self, search: Coroutine[Any, Any, T]) -> T:
        """Await a search. Each caller runs only a few at once, and a search stops if its client disconnects."""
        result: T = await (self.search_limiter(search) if self.search_limiter else search)
        return result


@dataclass(frozen=True)
class Endpoint:
    """One route with its handler and all that the router and the OpenAPI document need to know of it."""

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
    """What the caller wants to do, for the 403: `You are not authorized to <purpose>`; default: the summary."""
    permission_label: str = ""
    """How the 403 names the permission; default: its name."""
    errors: tuple[int, ...] = ()
    """Statuses beyond those that every endpoint may answer, for OpenAPI."""
    is_public: bool = False
    """No key is needed (health, docs)."""
    allow_source_profile: bool = False
    """Whether a key with the profile `source` may read it too."""
    for_bot: bool = False
    """Whether a key that acts for others may change it without saying for whom."""
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

    @property
    def takes_body(self) -> bool:
        return self.method not in ("GET", "DELETE")

    @property
    def writes(self) -> bool:
        """Whether it changes anything; searches only read, although they are POSTs."""
        return self.method != "GET" and not self.path.endswith(("/_search", "/query"))


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


def wait_seconds(request: Request, name: str, maximum: float) -> float:
    """The query parameter `name` as seconds to wait, at most `maximum`. Raises ResponderBotError("bad_request")."""
    text = request.query.get(name, "0")
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text, re.ASCII):
        raise ResponderBotError("bad_request", f"{name} must be a number of seconds from 0 to {maximum:g}.")
    return min(float(text), maximum)


def bool_param(request: Request, name: str) -> bool:
    """The query parameter `name` as a flag, set by `true` or `1`."""
    return request.query.get(name, "").lower() in ("true", "1")
