"""Routes of retention: holds, and what is closed."""

from typing import Any, Literal

from starlette.responses import Response

from core.actions.retention import Retention
from core.api.http.endpoint import Endpoint, Request, json_list_response, json_response
from core.models import Alert, Case, ClosedObjects, HeldObject, HoldInput
from core.records.holds import Holds


def endpoints(holds: Holds, retention: Retention) -> list[Endpoint]:
    """`/api/hold`, `/hold` below an alert or a case, and `/api/closed`."""

    async def list_all(request: Request) -> Response:
        return json_list_response(await holds.all(request.caller))

    async def closed(request: Request) -> Response:
        ids = [text.strip() for text in request.query.get("ids", "").split(",")]
        return json_response(await retention.closed(ids))

    return [
        Endpoint("GET", "/api/hold", list_all, "List what is on hold", response=list[HeldObject]),
        Endpoint(
            "GET",
            "/api/closed",
            closed,
            "Since when all of these objects' alerts and cases is over",
            response=ClosedObjects,
            query={"ids": "up to 200 ids of objects and actions, with commas between"},
        ),
        *_of(holds, "alert", Alert),
        *_of(holds, "case", Case),
    ]


def _of(holds: Holds, kind: Literal["alert", "case"], answer: Any) -> list[Endpoint]:
    async def put(request: Request) -> Response:
        body: HoldInput = request.body
        return json_response(await holds.set(request.caller, kind, request.path["id"], body.reason))

    async def lift(request: Request) -> Response:
        return json_response(await holds.lift(request.caller, kind, request.path["id"]))

    path, a = f"/api/{kind}/{{id}}/hold", "an alert" if kind == "alert" else "a case"
    options: dict[str, Any] = {"response": answer, "errors": (403, 404, 409)}
    return [
        Endpoint("POST", path, put, f"Put {a} on hold, so that nothing of it is deleted", body=HoldInput, **options),
        Endpoint("DELETE", path, lift, f"Lift the hold on {a}", **options),
    ]
