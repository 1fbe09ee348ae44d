"""Comments on the wire."""

from collections.abc import Callable
from typing import Any, Literal

from starlette.responses import Response

from core.api import search
from core.api.endpoint import Endpoint, Request, json_response
from core.models import Comment, CommentInput, Permission
from core.records.comments import Comments

BASE = "/api/comment"


def endpoints(comments: Comments) -> list[Endpoint]:
    """Those of one comment; whether it may be changed depends on what it belongs to, so the handlers look."""

    async def one(request: Request) -> Response:
        return json_response(comments.json(request.path["id"]))

    async def update(request: Request) -> Response:
        return json_response(await comments.update(request.caller, request.path["id"], request.body))

    async def delete(request: Request) -> Response:
        return json_response(await comments.delete(request.caller, request.path["id"]))

    def single(method: str, handler: Callable[[Request], Any], summary: str, **options: Any) -> Endpoint:
        return Endpoint(method, f"{BASE}/{{id}}", handler, summary, response=Comment, errors=(404,), **options)

    return [
        _adds(comments, "alert", "manageAlert"),
        _adds(comments, "case", "manageCase"),
        single("GET", one, "One comment"),
        single("PATCH", update, "Change a comment of one's own", body=CommentInput),
        single("DELETE", delete, "Delete a comment of one's own; an org-admin may delete any"),
        search.endpoint(BASE, comments.search, list[Comment], "comments"),
    ]


def _adds(comments: Comments, kind: Literal["alert", "case"], permission: Permission) -> Endpoint:
    async def add(request: Request) -> Response:
        return json_response(await comments.add(request.caller, kind, request.path["id"], request.body), status=201)

    return Endpoint(
        "POST",
        f"/api/{kind}/{{id}}/comment",
        add,
        f"Comment on {'an' if kind == 'alert' else 'a'} {kind}",
        body=CommentInput,
        response=Comment,
        status=201,
        permission=permission,
        purpose="create comment",
        errors=(404,),
    )
