"""Routes of comments on alerts and cases."""

from collections.abc import Callable
from typing import Any, Literal

from starlette.responses import Response

from core.api.http import search
from core.api.http.endpoint import Endpoint, Request, json_response
from core.models import Comment, CommentInput, Permission
from core.records.comments import Comments

BASE = "/api/comment"


def endpoints(comments: Comments) -> list[Endpoint]:
    """Routes of comments. Who may change one depends on its alert or case, so `Comments` checks permissions."""

    async def get(request: Request) -> Response:
        return json_response(await comments.get_json(request.path["id"]))

    async def update(request: Request) -> Response:
        return json_response(await comments.update(request.caller, request.path["id"], request.body))

    async def delete(request: Request) -> Response:
        return json_response(await comments.delete(request.caller, request.path["id"]))

    def comment_endpoint(method: str, handler: Callable[[Request], Any], summary: str, **options: Any) -> Endpoint:
        return Endpoint(method, f"{BASE}/{{id}}", handler, summary, response=Comment, errors=(404,), **options)

    return [
        _create_endpoint(comments, "alert", "manageAlert"),
        _create_endpoint(comments, "case", "manageCase"),
        comment_endpoint("GET", get, "Get a comment"),
        comment_endpoint("PATCH", update, "Change your own comment", body=CommentInput),
        comment_endpoint("DELETE", delete, "Delete your own comment; an org-admin may delete any"),
        search.endpoint(BASE, comments.search, list[Comment], "comments"),
    ]


def _create_endpoint(comments: Comments, kind: Literal["alert", "case"], permission: Permission) -> Endpoint:
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
