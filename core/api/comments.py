"""Routes of comments on alerts and cases."""

from functools import partial

from core.api.http.endpoint import Endpoint, Routes, changing, getting, search_endpoint
from core.models import Comment, CommentInput
from core.records.comments import Comments

BASE = "/api/comment"


def endpoints(comments: Comments) -> list[Endpoint]:
    """Routes of comments. Who may change one depends on its alert or case, so `Comments` checks permissions."""
    route, one = Routes(), f"{BASE}/{{id}}"
    of_comment = partial(route, response=Comment, errors=(404,))

    of_comment(f"GET {one}", "Get a comment")(getting(comments.get_json))
    of_comment(f"PATCH {one}", "Change your own comment", body=CommentInput)(changing(comments.update))
    of_comment(f"DELETE {one}", "Delete your own comment; an org-admin may delete any")(changing(comments.delete))

    add = partial(of_comment, body=CommentInput, status=201, purpose="create comment")
    for kind, what, permission in (("alert", "an alert", "manageAlert"), ("case", "a case", "manageCase")):
        handler = changing(partial(comments.add, kind=kind), 201)
        add(f"POST /api/{kind}/{{id}}/comment", f"Comment on {what}", permission=permission)(handler)

    return [*route, search_endpoint(BASE, partial(comments.search, "comment"), list[Comment], "comments")]
