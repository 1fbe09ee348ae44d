"""The lists that firewalls, proxies and resolvers read (core/docs/blocklist.md)."""

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.actions.blocklist import BlockLists
from core.api.http.endpoint import Endpoint, Request, Routes, has_left
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
    """A response that calls `sent` once the whole of it was sent, and not only its head."""

    def __init__(self, sent: Callable[[], None], *args: Any) -> None:
        super().__init__(*args)
        self._sent = sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            return await super().__call__(scope, receive, send)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for start in range(0, len(self.body), STEP_BYTES):  # each waits until the client has read most of what was sent
            await send({"type": "http.response.body", "body": self.body[start : start + STEP_BYTES], "more_body": True})
        if await has_left(receive):
            return None
        await send({"type": "http.response.body", "body": b""})
        self._sent()
        return None


def endpoints(lists: BlockLists) -> list[Endpoint]:
    route = Routes("/api/blocklist/")

    async def read(name: ListName, request: Request) -> Response:
        body = await lists.read(request.caller, name, request.query)
        headers = {"ETag": body.etag, "Cache-Control": "private, no-store"}
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        sent = partial(lists.was_sent, request.caller, name, body)
        if known & {body.etag, "*"}:
            return _Noted(sent, None, 304, headers)
        return _Noted(sent, body.content, 200, headers, "text/plain")

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
