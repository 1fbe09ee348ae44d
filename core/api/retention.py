"""Routes of retention and of the audit: what is closed, and who decided what."""

from starlette.responses import Response

from core.api.http.endpoint import Endpoint, Request, Routes, int_param, json_list_response, json_response
from core.audit.reader import MAX_ROWS, AuditReader
from core.models import AuditRow, ClosedObjects
from core.retention.pruning import Retention

DEFAULT_ROWS = 100
MAX_NUMBER = 10**15


def endpoints(retention: Retention, audit: AuditReader) -> list[Endpoint]:
    """`/api/closed` and `/api/audit`."""
    route = Routes()

    @route(
        "GET /api/closed",
        "Since when all of these objects' alerts and cases is over",
        response=ClosedObjects,
        query={"ids": "up to 200 ids of objects and actions, with commas between"},
    )
    async def closed(request: Request) -> Response:
        ids = [text.strip() for text in request.query.get("ids", "").split(",")]
        return json_response(await retention.closed(ids))

    @route(
        "GET /api/audit",
        "Read who decided what, oldest first",
        response=list[AuditRow],
        permission="readAudit",
        purpose="read the audit",
        query={
            "object": "only what is about this alert, case, run (`~12`), login or group (`@containment`)",
            "after": "the number of the last row that you have",
            "limit": f"how many rows, at most {MAX_ROWS:,} (default {DEFAULT_ROWS})",
        },
    )
    async def rows(request: Request) -> Response:
        after, limit = int_param(request, "after", 0, MAX_NUMBER), int_param(request, "limit", DEFAULT_ROWS, MAX_NUMBER)
        return json_list_response(await audit.rows(request.caller, request.query.get("object", ""), after, limit))

    @route(
        "GET /api/audit/{id}",
        "Read who decided what about an alert, a case, a run or a bulk that you may see",
        response=list[AuditRow],
        errors=(403, 404),
    )
    async def story(request: Request) -> Response:
        return json_list_response(await audit.story(request.caller, request.path["id"]))

    @route(
        "GET /api/audit/heads",
        "Read the head, which is the last row of those that you may see; nothing if you have it",
        response=list[AuditRow],
        permission="readAudit",
        purpose="read the audit",
        query={"after": "the number of the head that you have"},
    )
    async def heads(request: Request) -> Response:
        return json_list_response(await audit.heads(request.caller, int_param(request, "after", 0, MAX_NUMBER)))

    return [*route]
