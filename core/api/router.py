"""The ASGI application of core: finds the endpoint of a request, checks the request in a fixed order, and answers.

The order is part of the interface (core/docs/http-interface.md#order-of-checks).
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from urllib.parse import unquote

import structlog
from pydantic import ValidationError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.access import Access, Caller
from core.api.endpoint import Endpoint, Request
from core.api.errors import MethodNotAllowedError, error_response
from core.api.requests import BODY_LIMIT_BYTES, BodyReader, RequestContext, SearchLimiter, credentials
from core.common.errors import ResponderBotError
from core.common.listener import BODY_TIMEOUT_S, ClientDisconnected

TRANSLATE_IN_THREAD_BYTES = 65_536  # translating a larger response would block the event loop

_COMMON_HEADERS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
_ANONYMOUS = Caller("", frozenset(), "", "read-only", 0)

ResponseObserver = Callable[[str, str, int, float], None]
"""Called for each response with route, method, status and seconds."""


class _Node:
    """A segment of a path: which segments may follow, and which endpoints end here."""

    __slots__ = ("children", "endpoints", "parameter")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.endpoints: dict[str, tuple[Endpoint, tuple[str, ...]]] = {}
        """By method, with the names of the path's parameters."""


_Match = tuple[_Node, tuple[str, ...]]
"""A node and the values of the parameters on the way to it."""


class RouteTable:
    """The endpoints as a tree of path segments: a lookup takes the same time however many there are."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = _Node()
        for endpoint in endpoints:
            self._add(endpoint)

    def find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
        """The endpoint for a percent-encoded path, and the values of its parameters.

        Raises ResponderBotError("not_found") and ("method_not_allowed").
        """
        segments = path.rstrip("/").split("/")[1:]
        if "%" in path:
            segments = [unquote(segment) for segment in segments]
        # The first match decides: `/api/alert/_search` is never an alert with the id `_search`.
        match = self._match(self._root, segments, (), method)
        if match is None:
            raise ResponderBotError("not_found", "There is no route at this address; /api/docs lists all of them.")
        node, values = match
        found = node.endpoints.get(method)
        if found is None:
            raise MethodNotAllowedError(sorted(node.endpoints))
        return found[0], dict(zip(found[1], values, strict=True))

    def _add(self, endpoint: Endpoint) -> None:
        node, names = self._root, []
        for segment in endpoint.path.split("/")[1:]:
            if segment.startswith("{"):
                names.append(segment.strip("{}"))
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.children.setdefault(segment, _Node())
        if endpoint.method in node.endpoints:
            raise ValueError(f"{endpoint.method} {endpoint.path} is in the table twice.")
        node.endpoints[endpoint.method] = (endpoint, tuple(names))

    def _match(self, node: _Node, segments: Sequence[str], values: tuple[str, ...], method: str) -> _Match | None:
        if not segments:
            return (node, values) if node.endpoints else None
        segment, rest = segments[0], segments[1:]
        child, match = node.children.get(segment), None
        if child is not None:
            match = self._match(child, rest, values, method)
        if node.parameter is not None and segment and (match is None or method not in match[0].endpoints):
            other = self._match(node.parameter, rest, (*values, segment), method)
            if match is None or (other and method in other[0].endpoints and other[0].endpoints[method][0].by_name):
                match = other
        return match


class Router:
    """The ASGI application."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        access: Access,
        *,
        body_limit_bytes: int = BODY_LIMIT_BYTES,
        body_timeout_s: float = BODY_TIMEOUT_S,
        observe: ResponseObserver | None = None,
        last_event: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        """`last_event` gives the number of the newest event, which the response to a change names."""
        self._routes = RouteTable(endpoints)
        self._access = access
        self._bodies = BodyReader(body_limit_bytes, body_timeout_s)
        self._searches = SearchLimiter()
        self._observe = observe
        self._last_event = last_event
        self._log = structlog.get_logger("core.api").bind()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"core speaks HTTP only, not {scope['type']}")
        started = time.perf_counter()
        context = RequestContext(scope)
        try:
            response = await self._respond(context, receive)
        except ClientDisconnected:
            return
        response.raw_headers.append((b"x-request-id", context.request_id.encode()))
        if context.method != "GET" and response.status_code < 300 and self._last_event is not None:
            with suppress(ResponderBotError):  # the change is made; that the database failed since is told elsewhere
                response.raw_headers.append((b"x-last-event", str(await self._last_event()).encode()))
        response.raw_headers.extend(_COMMON_HEADERS)
        self._record(context, response.status_code, time.perf_counter() - started)
        await response(scope, receive, send)

    async def _respond(self, context: RequestContext, receive: Receive) -> Response:
        """The response of the handler, or the one for the error that stopped the request."""
        try:
            response = await self._handle(context, receive)
        except ResponderBotError as error:
            response = error_response(error, context.request_id)
        except ClientDisconnected:
            raise
        except asyncio.CancelledError:  # only the listener cancels, when it stops; the client gets an answer
            sentence = "Core is stopping; try again in a moment."
            response = error_response(ResponderBotError("unavailable", sentence), context.request_id)
        except Exception as error:
            response = error_response(self._unexpected(context, error), context.request_id)
        if context.unread:
            response.headers["Connection"] = "close"
        endpoint = context.endpoint
        if endpoint is not None and endpoint.translate_response is not None:
            response = await _translated(response, endpoint.translate_response)
        return response

    def _unexpected(self, context: RequestContext, error: Exception) -> ResponderBotError:
        """Log an error that no check foresees, with its traceback; returns what the client is told."""
        # Bodies of requests raise ResponderBotError, so these two come from what is stored.
        if isinstance(error, ValidationError | json.JSONDecodeError):
            self._log.exception("record_unreadable", request_id=context.request_id, route=context.route)
            sentence = (
                f"The stored record can't be read; the log says why, under request id {context.request_id}."
                " Restore a backup."
            )
            return ResponderBotError("unavailable", sentence)
        self._log.exception("request_failed", request_id=context.request_id, method=context.method, route=context.route)
        sentence = f"An internal error occurred; the log has the details under request id {context.request_id}."
        return ResponderBotError("internal", sentence)

    async def _handle(self, context: RequestContext, receive: Receive) -> Response:
        """Check the request in the documented order and call its handler."""
        caller = await self._authenticate(context) if context.needs_key else _ANONYMOUS
        context.check_sizes()
        endpoint, path_params = self._routes.find(context.lookup_method, context.raw_path)
        context.endpoint = endpoint
        if caller is _ANONYMOUS and not endpoint.is_public:  # whatever spelling of an address led here
            caller = await self._authenticate(context)
        elif caller is _ANONYMOUS and "authorization" in context.headers:  # /health tells org-admins more
            with suppress(ResponderBotError):
                caller = await self._authenticate(context)
        raw, body = await self._bodies.read(context, endpoint, receive)
        if context.is_body_late and caller is not _ANONYMOUS:
            caller = await self._authenticate(context)
        _authorize(endpoint, caller)
        limiter = partial(self._searches.run, caller.login, receive)
        headers = context.headers
        request = Request(caller, body, path_params, context.query(), headers, raw, context.request_id, limiter)
        return await endpoint.handler(request)

    async def _authenticate(self, context: RequestContext) -> Caller:
        key, login = credentials(context.headers)
        name = context.headers.get("x-on-behalf-of")
        caller = await self._access.authenticate(key, login=login, on_behalf_of=name)
        context.set_caller(caller)
        return caller

    def _record(self, context: RequestContext, status: int, seconds: float) -> None:
        """Count the response for the metrics and log it: errors and changes as info, reads as debug."""
        if self._observe is not None:
            self._observe(context.route, context.method, status, seconds)
        level = logging.INFO if status >= 400 or (context.endpoint and context.endpoint.writes) else logging.DEBUG
        if not self._log.is_enabled_for(level):
            return
        self._log.log(
            level,
            "request_answered",
            request_id=context.request_id,
            method=context.method,
            route=context.route,
            status=status,
            ms=round(seconds * 1000, 1),
            login=context.login,
            **({"acted_through": context.acted_through} if context.acted_through != context.login else {}),
        )


async def _translated(response: Response, translate: Callable[[bytes], bytes]) -> Response:
    body = bytes(response.body)
    if len(body) < TRANSLATE_IN_THREAD_BYTES:
        translated = translate(body)
    else:
        translated = await asyncio.to_thread(translate, body)
    headers = {k: v for k, v in response.headers.items() if k not in ("content-length", "content-type")}
    return Response(translated, response.status_code, headers, response.media_type)


def _authorize(endpoint: Endpoint, caller: Caller) -> None:
    """Raises ResponderBotError("forbidden") if the caller's permissions or profile don't suffice."""
    if endpoint.is_public:
        return
    reason = ""
    if endpoint.permission and not (endpoint.or_permission and caller.may(endpoint.or_permission)):
        purpose = endpoint.purpose or endpoint.summary
        reason = caller.why_not(endpoint.permission, purpose, label=endpoint.permission_label)
    if endpoint.writes and not endpoint.for_bot and caller.may("actOnBehalf"):
        hint = "this key may only read; to change something, say for whom in the header X-On-Behalf-Of"
        reason = f"{reason}; {hint}" if reason else f"{hint[0].upper()}{hint[1:]}."
    elif caller.profile == "source" and (reason or not (endpoint.permission or endpoint.allow_source_profile)):
        hint = "a key with the profile source may only create alerts"
        reason = f"{reason or 'You are not authorized to read this'}; {hint}"
    if reason:
        is_missing = endpoint.permission is not None and not caller.may(endpoint.permission)
        raise ResponderBotError("forbidden", reason, details={"permission": endpoint.permission} if is_missing else {})
