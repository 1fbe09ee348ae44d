"""Searches on the wire: range and sort from the address or from the body, the total in a header."""

from collections.abc import Callable, Coroutine
from typing import Any

from starlette.responses import Response

from core.api.endpoint import Endpoint, Request, json_response
from core.models import SearchInput
from core.records.search import Found
from core.store.search import Window

_QUERY = {
    "range": "`all`, or `from-to` such as 0-10 (which is what you get without it); the end is not included",
    "sort": "fields with `-` before what is to descend, such as `-createdAt,title`",
}


def endpoint(path: str, search: Callable[[SearchInput], Coroutine[Any, Any, Found]], many: Any, what: str) -> Endpoint:
    """`POST <path>/_search`; `many` is the list that it answers."""

    async def handler(request: Request) -> Response:
        return await _found(search, request, request.body)

    return Endpoint("POST", f"{path}/_search", handler, f"Search {what}", body=SearchInput, response=many, query=_QUERY)


def listing(path: str, search: Callable[[SearchInput], Coroutine[Any, Any, Found]], many: Any, what: str) -> Endpoint:
    """`GET <path>`: the same without a query."""

    async def handler(request: Request) -> Response:
        return await _found(search, request, SearchInput())

    return Endpoint("GET", path, handler, f"List {what}", response=many, query=_QUERY)


async def _found(
    search: Callable[[SearchInput], Coroutine[Any, Any, Found]], request: Request, asked: SearchInput
) -> Response:
    given = {name: request.query[name] for name in _QUERY if name in request.query}
    found = await request.run_search(search(asked.model_copy(update=given)))
    return json_response(found.json, headers={"X-Total": str(found.total)})


def answer_found(found: Found, request: Request, window: Window) -> Response:
    """A part of a list, with how many there are in all and where the next part is."""
    headers, end = {"X-Total": str(found.total)}, window.offset + len(found.docs)
    if found.docs and end < found.total:
        headers["Link"] = f'<?range={end}-{end + len(found.docs)}>; rel="next"'
    return json_response(found.json, headers=headers)
