"""Alerts on the wire (`semantics.md 2`)."""

from typing import Any

from starlette.responses import Response

from core.api import search
from core.api.endpoint import Endpoint, Request, json_list_response, json_response
from core.models import (
    Alert,
    AlertInput,
    AlertsUpdate,
    AlertUpdate,
    Artifact,
    ArtifactsInput,
    Case,
    CreateCaseInput,
    MergeInput,
)
from core.records.alerts import Alerts

BASE = "/api/alert"


def endpoints(alerts: Alerts) -> list[Endpoint]:
    """Everything below `/api/alert`."""

    async def create(request: Request) -> Response:
        return json_response(await alerts.create(request.caller, request.body), status=201)

    async def one(request: Request) -> Response:
        return json_response(alerts.json(request.path["id"]))

    async def add_artifact(request: Request) -> Response:
        added = await alerts.add_artifacts(request.caller, request.path["id"], request.body)
        return json_list_response(added, status=201)

    async def update(request: Request) -> Response:
        return json_response(await alerts.update(request.caller, request.path["id"], request.body))

    async def update_all(request: Request) -> Response:
        asked: AlertsUpdate = request.body
        return json_list_response(await alerts.update_all(request.caller, asked.ids, asked))

    async def mark_read(request: Request) -> Response:
        return json_response(await alerts.mark_read(request.caller, request.path["id"]))

    async def mark_unread(request: Request) -> Response:
        return json_response(await alerts.mark_unread(request.caller, request.path["id"]))

    async def follow(request: Request) -> Response:
        return json_response(await alerts.set_follow(request.caller, request.path["id"], True))

    async def unfollow(request: Request) -> Response:
        return json_response(await alerts.set_follow(request.caller, request.path["id"], False))

    async def create_case(request: Request) -> Response:
        asked: CreateCaseInput = request.body
        case = await alerts.create_case(request.caller, request.path["id"], asked.case_template)
        return json_response(case, status=201)

    async def merge(request: Request) -> Response:
        return json_response(await alerts.merge_into(request.caller, [request.path["id"]], request.path["caseId"]))

    async def merge_all(request: Request) -> Response:
        asked: MergeInput = request.body
        return json_response(await alerts.merge_into(request.caller, asked.alert_ids, asked.case_id))

    def changes(method: str, path: str, handler: Any, summary: str, **options: Any) -> Endpoint:
        options = {
            "response": Alert,
            "permission": "manageAlert",
            "purpose": "change alert",
            "errors": (404,),
            **options,
        }
        return Endpoint(method, f"{BASE}/{{id}}{path}", handler, summary, **options)

    into_case: dict[str, Any] = {"response": Case, "permission": "manageCase", "purpose": "create case"}
    return [
        Endpoint(
            "POST",
            BASE,
            create,
            "Create an alert",
            body=AlertInput,
            response=Alert,
            status=201,
            permission="manageAlert",
            or_permission="createAlert",
            purpose="create alert",
        ),
        search.endpoint(BASE, alerts.search, list[Alert], "alerts"),
        Endpoint(
            "GET",
            f"{BASE}/{{id}}",
            one,
            "One alert, by id or by `type;source;sourceRef`",
            response=Alert,
            errors=(404,),
        ),
        search.listing(BASE, alerts.search, list[Alert], "alerts"),
        changes(
            "POST",
            "/artifact",
            add_artifact,
            "Add an artifact to an alert, or several with a list as `data`",
            body=ArtifactsInput,
            response=list[Artifact],
            status=201,
        ),
        changes("PATCH", "", update, "Change an alert", body=AlertUpdate),
        Endpoint(
            "PATCH",
            f"{BASE}/_bulk",
            update_all,
            "Change several alerts, all or none",
            body=AlertsUpdate,
            response=list[Alert],
            permission="manageAlert",
            purpose="change alert",
            errors=(404,),
        ),
        changes("POST", "/markAsRead", mark_read, "Mark an alert as read"),
        changes("POST", "/markAsUnread", mark_unread, "Mark an alert as unread"),
        changes("POST", "/follow", follow, "Follow an alert"),
        changes("POST", "/unfollow", unfollow, "Stop following an alert"),
        changes(
            "POST", "/createCase", create_case, "Make a case of an alert", body=CreateCaseInput, status=201, **into_case
        ),
        Endpoint(
            "POST",
            f"{BASE}/merge/_bulk",
            merge_all,
            "Make several alerts a part of a case, all or none",
            body=MergeInput,
            errors=(404,),
            **into_case,
        ),
        changes("POST", "/merge/{caseId}", merge, "Make an alert a part of a case", **into_case),
    ]
