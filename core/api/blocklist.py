"""The lists that firewalls, proxies and resolvers read (core/docs/blocklist.md)."""

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.actions.blocklist import BlockLists
from core.api.http.endpoint import Endpoint, Request, Routes
from core.common.connection import WHEN_READ
from core.protection import ListName
from core.protection.blockable import LISTS

STEP_BYTES = 16_384
_QUERY = {
    "ip": {"family": "`4` or `6`: addresses and networks of this version alone"},
    "domain": {"subdomains": "`yes`: for each also `.evil.example`, which means what is below it"},
    "url": {"scheme": "`no`: without the scheme"},
    "hash": {},
}


class _Noted(Response):
    """A response that calls `read` once the client has read the whole of it, and closed the connection."""

    def __init__(self, read: Callable[[], None], *args: Any) -> None:
        super().__init__(*args)
        self._read = read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            return await super().__call__(scope, receive, send)
        scope[WHEN_READ] = self._read
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for start in range(0, len(self.body), STEP_BYTES):  # each waits until the client has read most of what was sent
            await send({"type": "http.response.body", "body": self.body[start : start + STEP_BYTES], "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return None


def endpoints(lists: BlockLists) -> list[Endpoint]:
    route = Routes("/api/blocklist/")

    async def read(name: ListName, request: Request) -> Response:
        body = await lists.read(request.caller, name, request.query)
        headers = {"ETag": body.etag, "Cache-Control": "private, no-store", "Connection": "close"}
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        was_read = partial(lists.was_read, request.caller, name, body)
        if known & {body.etag, "*"}:
            return _Noted(was_read, None, 304, headers)
        return _Noted(was_read, body.content, 200, headers, "text/plain")

    for name in LISTS:
        route(
            f"GET {name}.txt",
            f"Get what is blocked, as a list of one {name} a line",
            response="text/plain",
            errors=(304,),
            query=_QUERY[name],
            request_headers={"If-None-Match": "the `ETag` of an earlier answer; 304 without a body if nothing changed"},
            programs=("reader",),
        )(partial(read, name))
    return route
