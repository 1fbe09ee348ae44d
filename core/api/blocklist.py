"""The lists that firewalls, proxies and resolvers read (core/docs/blocklist.md)."""

from functools import partial

from starlette.responses import Response

from core.actions.blocklist import BlockLists
from core.api.http.endpoint import Endpoint, Request, Routes
from core.protection import ListName
from core.protection.blockable import LISTS

_QUERY = {
    "ip": {"family": "`4` or `6`: addresses and networks of this version alone"},
    "domain": {"subdomains": "`yes`: for each also `.evil.example`, which means what is below it"},
    "url": {"scheme": "`no`: without the scheme"},
    "hash": {},
}


def endpoints(lists: BlockLists) -> list[Endpoint]:
    route = Routes("/api/blocklist/")

    async def read(name: ListName, request: Request) -> Response:
        body = await lists.read(request.caller, name, request.query)
        headers = {"ETag": body.etag, "Cache-Control": "private, no-store"}
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if known & {body.etag, "*"}:
            return Response(None, 304, headers)
        return Response(body.content, 200, headers, "text/plain")

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
