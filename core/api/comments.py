"""Routes of comments on alerts and cases."""

from functools import partial
from typing import Literal

from starlette.responses import Response

from core.api.http import search
from core.api.http.endpoint import Endpoint, Request, Routes, changing, getting, json_response
from core.models import Comment, CommentInput, Permission
from core.records.comments import Comments

BASE = "/api/comment"


def endpoints(comments: Comments) -> list[Endpoint]:
    """Routes of comments. Who may change one depends on its alert or case, so `Comments` checks permissions."""
    route = Routes(BASE)
    of_comment = partial(route, response=Comment, errors=(404,))

    of_comment("GET /{id}", "Get a comment")(getting(comments.get_json))
    of_comment("PATCH /{id}", "Change your own comment", body=CommentInput)(changing(comments.update))
    of_comment("DELETE /{id}", "Delete your own comment; an org-admin may delete any")(changing(comments.delete))

    return [
        *route,
        _create_endpoint(comments, "alert", "manageAlert"),
        _create_endpoint(comments, "case", "manageCase"),
        search.endpoint(BASE, partial(comments.search, "comment"), list[Comment], "comments"),
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
