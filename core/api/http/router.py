"""The ASGI application of core: finds the endpoint of a request, checks the request in a fixed order, and answers.

The order is part of the interface (core/docs/http-interface.md#order-of-checks).
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from ipaddress import ip_network
from urllib.parse import unquote

import structlog
from pydantic import ValidationError
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from core.api.http.endpoint import ANONYMOUS, Endpoint, Request, SearchTurns, has_left
from core.api.http.errors import MethodNotAllowedError, error_response
from core.api.http.requests import BODY_LIMIT_BYTES, BodyReader, check_sizes, client_address, credentials, query_of
from core.audit import trail
from core.audit.trail import Refusals
from core.authorization import Caller
from core.common.errors import AuthenticationError, RefusedKey, ResponderBotError
from core.common.listener import BODY_TIMEOUT_S, ClientDisconnected
from core.models import RunInput
from core.people import People
from core.sources.ingest import SIGNATURE_HEADER

TRANSLATE_IN_THREAD_BYTES = 65_536  # translating a larger response would block the event loop

_OPERATION = re.compile(r"_[A-Za-z]+", re.ASCII)  # such as `_bulk`: never an id, so that a 404 blames the address
_SLACK_ORIGIN = re.compile(r"[A-Z0-9]{0,32}:[A-Z0-9]{0,32}:[A-Z0-9]{0,32}", re.ASCII)
_COMMON_HEADERS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]

SIGNED_PATH = "/api/ingest/"

ResponseObserver = Callable[[str, str, int, float], None]
"""Called for each response with route, method, status and seconds."""


_compiled = cache(compile_path)
_shape_of: Callable[[str], str] = cache(partial(re.sub, r"{\w+}", "{}"))

_Path = tuple[re.Pattern[str], dict[str, Endpoint]]
"""A path as Starlette compiles it, and its endpoints by method."""


def _paths(endpoints: Iterable[Endpoint]) -> dict[int, list[_Path]]:
    """The paths by their number of segments; where two match, the one with a literal segment comes first."""
    by_shape: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        methods = by_shape.setdefault(_shape_of(endpoint.path), {})
        if methods.setdefault(endpoint.method, endpoint) is not endpoint:
            raise ValueError(f"{endpoint.method} {endpoint.path} is in the table twice.")
    paths: dict[int, list[_Path]] = {}
    for shape in sorted(by_shape, key=lambda shape: [segment == "{}" for segment in shape.split("/")]):
        regex, *_ = _compiled(next(iter(by_shape[shape].values())).path)
        paths.setdefault(shape.count("/"), []).append((regex, by_shape[shape]))
    return paths


class Router:
    """The ASGI application."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        people: People,
        *,
        body_limit_bytes: int = BODY_LIMIT_BYTES,
        body_timeout_s: float = BODY_TIMEOUT_S,
        observe: ResponseObserver | None = None,
        refusals: Refusals | None = None,
        proxies: Sequence[str] = (),
        refused_key: Callable[[RefusedKey], None] = lambda _: None,
        last_event: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        """`last_event` gives the number of the newest event, which the response to a change names.

        `proxies` are networks whose `X-Forwarded-For` counts; `refused_key` is called for each 401.
        """
        self.endpoints = tuple(endpoints)
        self._paths = _paths(self.endpoints)
        self._people = people
        self._bodies = BodyReader(body_limit_bytes, body_timeout_s)
        self._turns = SearchTurns()
        self._observe = observe
        self._refusals = refusals
        self._proxies = [ip_network(proxy) for proxy in proxies]
        self._refused_key = refused_key
        self._last_event = last_event
        self._log = structlog.get_logger("core.api").bind()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"core speaks HTTP only, not {scope['type']}")
        started = time.perf_counter()
        request = Request(scope, receive, self._turns)
        forwarded = request.headers.get("x-forwarded-for", "") if self._proxies else ""
        request.address = client_address(request.address, forwarded, self._proxies)
        try:
            response = await self._respond(request, receive)
        except ClientDisconnected:
            return
        response.raw_headers.append((b"x-request-id", request.id.encode()))
        if request.method != "GET" and response.status_code < 300 and self._last_event is not None:
            with suppress(ResponderBotError):  # the change is made, and other requests report a failed database
                response.raw_headers.append((b"x-last-event", str(await self._last_event()).encode()))
        names = {name for name, _ in response.raw_headers}
        response.raw_headers.extend(header for header in _COMMON_HEADERS if header[0] not in names)
        self._record(request, response.status_code, time.perf_counter() - started)
        await response(scope, receive, send)

    async def _respond(self, request: Request, receive: Receive) -> Response:
        """The response of the handler, or the one for the error that stopped the request."""
        try:
            response = await self._handle(request)
        except ResponderBotError as error:
            response = error_response(await self._audited(request, error), request.id)
        except ClientDisconnected:
            raise
        except asyncio.CancelledError:  # only the listener cancels, when it stops
            if await has_left(receive):
                raise ClientDisconnected from None
            sentence = "Core is stopping; try again in a moment."
            response = error_response(ResponderBotError("unavailable", sentence), request.id)
        except Exception as error:
            response = error_response(self._unexpected(request, error), request.id)
        if request.is_unread:
            response.headers["Connection"] = "close"
        endpoint = request.endpoint
        if endpoint is not None and endpoint.translate_response is not None:
            response = await _translated(response, endpoint.translate_response)
        return response

    async def _audited(self, request: Request, error: ResponderBotError) -> ResponderBotError:
        """The error for the client: this one, or if it is a refusal that the audit could not record, why not."""
        if self._refusals is None:
            return error
        try:
            if isinstance(error, AuthenticationError):
                self._refused_key(error.reason)
                await self._refusals.login(request.address)
            elif request.caller is not ANONYMOUS:
                body = request.body
                run = body if isinstance(body, RunInput) else None
                was_chosen = error.code != "forbidden" or "rule" in error.details
                await self._refusals.request(
                    error,
                    login=request.caller.login,
                    request=f"{request.method} {request.route}",
                    object=run.object_id if run else next(iter(request.path.values()), ""),
                    run=run if was_chosen else None,
                )
        except ResponderBotError as unavailable:
            return unavailable
        return error

    def _unexpected(self, request: Request, error: Exception) -> ResponderBotError:
        """Log an unexpected error with its traceback; returns the error for the client."""
        # Bodies of requests raise ResponderBotError, so these two come from what is stored.
        if isinstance(error, ValidationError | json.JSONDecodeError):
            self._log.exception("record_unreadable", route=request.route)
            sentence = (
                f"The stored record can't be read; the log says why, under request id {request.id}. Restore a backup."
            )
            return ResponderBotError("unavailable", sentence)
        self._log.exception("request_failed", method=request.method, route=request.route)
        sentence = f"An internal error occurred; the log has the details under request id {request.id}."
        return ResponderBotError("internal", sentence)

    async def _handle(self, request: Request) -> Response:
        """Check the request in the documented order and call its handler."""
        if needs_key(request.raw_path) and not is_signed(request):
            await self._authenticate(request)
        check_sizes(request)
        request.endpoint = endpoint = self._find(request)
        if endpoint.reads_bytes:
            request.read_bytes = partial(self._bodies.receive, request)
            return await endpoint.handler(request)
        if request.caller is ANONYMOUS and not endpoint.is_public:
            await self._authenticate(request)
        elif request.caller is ANONYMOUS and "authorization" in request.headers:  # /health tells org-admins more
            with suppress(ResponderBotError):
                await self._authenticate(request)
        if await self._bodies.read(request, endpoint) and not endpoint.is_public:
            await self._authenticate(request)
        _authorize(endpoint, request.caller)
        request.query = query_of(request)
        return await endpoint.handler(request)

    async def _authenticate(self, request: Request) -> None:
        key, login = credentials(request.headers)
        name = request.headers.get("x-on-behalf-of")
        caller = request.caller = await self._people.authenticate(
            key, login=login, on_behalf_of=name, address=request.address
        )
        slack = request.headers.get("x-slack-origin", "") if caller.is_on_behalf else ""
        slack = slack if _SLACK_ORIGIN.fullmatch(slack) else ""
        trail.set_origin(trail.Origin(caller.login, caller.acted_through, caller.key, slack))

    def _find(self, request: Request) -> Endpoint:
        """The endpoint at the request's address, whose parameters it sets.

        Raises ResponderBotError("not_found") and ("method_not_allowed").
        """
        method = "GET" if request.method == "HEAD" else request.method
        path, allowed = request.raw_path.rstrip("/"), list[str]()
        for regex, endpoints in self._paths.get(path.count("/"), ()):
            match = regex.match(path)
            if match is None:
                continue
            # The first match decides: `/api/alert/_search` is never an alert with the id `_search`.
            endpoint, values = endpoints.get(method), list(map(unquote, match.groups()))
            is_id = not any(map(_OPERATION.fullmatch, values))
            if endpoint is not None and (endpoint.by_name or (is_id and not allowed)):
                request.path = dict(zip(endpoint.parameters, values, strict=True))
                return endpoint
            allowed = allowed or (sorted(endpoints) if is_id else [])
        if allowed:
            raise MethodNotAllowedError(allowed)
        raise ResponderBotError("not_found", "There is no route at this address; /api/docs lists all of them.")

    def _record(self, request: Request, status: int, seconds: float) -> None:
        """Count the response for the metrics and log it: errors and changes as info, reads as debug."""
        if self._observe is not None:
            self._observe(request.route, request.method, status, seconds)
        level = logging.INFO if status >= 400 or (request.endpoint and request.endpoint.writes) else logging.DEBUG
        if not self._log.is_enabled_for(level):
            return
        self._log.log(
            level,
            "request_answered",
            method=request.method,
            route=request.route,
            status=status,
            ms=round(seconds * 1000, 1),
            login=request.caller.login,
            address=request.address,
            **({"prefix": request.caller.key_prefix} if request.caller.key_prefix else {}),
            **({"acted_through": request.caller.acted_through} if request.caller.is_on_behalf else {}),
        )


async def _translated(response: Response, translate: Callable[[bytes], bytes]) -> Response:
    body = bytes(response.body)
    if len(body) < TRANSLATE_IN_THREAD_BYTES:
        translated = translate(body)
    else:
        translated = await asyncio.to_thread(translate, body)
    headers = {k: v for k, v in response.headers.items() if k not in ("content-length", "content-type")}
    return Response(translated, response.status_code, headers, response.media_type)


def needs_key(raw_path: str) -> bool:
    """Whether a missing key is a 401 even before a 404 or 405: everything under `/api` but the documentation."""
    path = unquote(raw_path).rstrip("/")
    return (path == "/api" or path.startswith("/api/")) and path not in ("/api/docs", "/api/openapi.json")


def is_signed(request: Request) -> bool:
    """Whether it has a signature in place of a key, which its handler checks once it has read the body."""
    return (
        SIGNATURE_HEADER in request.headers
        and "authorization" not in request.headers
        and request.method == "POST"
        and unquote(request.raw_path).startswith(SIGNED_PATH)
    )


_ONLY = {"source": "may only create alerts", "reader": "may only read the block lists"}
"""What a key of a program may do, by its profile."""


def _authorize(endpoint: Endpoint, caller: Caller) -> None:
    """Raises ResponderBotError("forbidden") if the caller's permissions or profile don't suffice."""
    if endpoint.is_public:
        return
    reason = _why_not_permitted(endpoint, caller)
    if endpoint.writes and caller.may("actOnBehalf"):
        hint = "this key may only read; to change something, name the user in the header X-On-Behalf-Of"
        reason = f"{reason}; {hint}" if reason else f"{hint[0].upper()}{hint[1:]}."
    elif caller.profile in _ONLY and (reason or not (endpoint.permission or caller.profile in endpoint.programs)):
        reason = reason or "You are not authorized to read this"
        reason = f"{reason}; a key with the profile {caller.profile} {_ONLY[caller.profile]}"
    if reason:
        is_missing = endpoint.permission is not None and not caller.may(endpoint.permission)
        raise ResponderBotError("forbidden", reason, details={"permission": endpoint.permission} if is_missing else {})


def _why_not_permitted(endpoint: Endpoint, caller: Caller) -> str:
    """Which permission the caller lacks, as a sentence; "" if none."""
    if not endpoint.permission or (endpoint.or_permission and caller.may(endpoint.or_permission)):
        return ""
    purpose = endpoint.purpose or endpoint.summary
    return caller.why_not(endpoint.permission, purpose, label=endpoint.permission_label)
