"""Routes of searches and lists: range and sort in the query string or the body, the total in a header."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from starlette.responses import Response

from core.api.http.endpoint import Endpoint, Request, bool_param, json_list_response, json_response
from core.models import SearchInput
from core.records.search import SearchResult
from core.store.search import Window

SearchFunction = Callable[[SearchInput], Coroutine[Any, Any, SearchResult]]

_QUERY = {
    "range": "`all`, or `from-to` without its end; default: 0-10",
    "sort": "fields, with `-` in front for descending, such as `-createdAt,title`",
    "count": "`false` for an answer without `X-Total`, which takes less time",
}


def endpoint(path: str, search: SearchFunction, response: Any, what: str, *, is_list: bool = False) -> Endpoint:
    """`POST <path>/_search`, or as a list `GET <path>`, without a query; `response` is the type of its list."""

    async def handler(request: Request) -> Response:
        overrides: dict[str, Any] = {name: request.query[name] for name in _QUERY if name in request.query}
        if "count" in overrides:
            overrides["count"] = bool_param(request, "count")
        search_input: SearchInput = request.body or SearchInput()
        result = await request.run_search(search(search_input.model_copy(update=overrides)))
        return json_response(result.json, headers=None if result.total is None else {"X-Total": str(result.total)})

    if is_list:
        return Endpoint("GET", path, handler, f"List {what}", response=response, query=_QUERY)
    address, body = f"{path}/_search", SearchInput
    return Endpoint("POST", address, handler, f"Search {what}", body=body, response=response, query=_QUERY)


def partial_list_response(docs: Sequence[str], total: int, window: Window) -> Response:
    """Some of a list, with its total and a link to the next part."""
    headers, end = {"X-Total": str(total)}, window.offset + len(docs)
    if docs and end < total:
        headers["Link"] = f'<?range={end}-{end + len(docs)}>; rel="next"'
    return json_list_response(docs, headers=headers)
