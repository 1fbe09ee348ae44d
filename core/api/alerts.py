"""Routes of alerts."""

from typing import Any

from starlette.responses import Response

from core.api.http import search
from core.api.http.endpoint import Endpoint, Request, json_list_response, json_response
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
    """Routes under `/api/alert`."""

    async def create(request: Request) -> Response:
        return json_response(await alerts.create(request.caller, request.body), status=201)

    async def get(request: Request) -> Response:
        return json_response(await alerts.get_json(request.path["id"]))

    async def add_artifact(request: Request) -> Response:
        added = await alerts.add_artifacts(request.caller, request.path["id"], request.body)
        return json_list_response(added, status=201)

    async def update(request: Request) -> Response:
        return json_response(await alerts.update(request.caller, request.path["id"], request.body))

    async def update_all(request: Request) -> Response:
        body: AlertsUpdate = request.body
        return json_list_response(await alerts.update_all(request.caller, body.ids, body))

    async def find(request: Request) -> Response:
        docs = await request.run_search(alerts.find(request.caller, request.query.get("text", "")))
        return json_list_response(docs)

    async def open_of(request: Request) -> Response:
        return json_list_response(await alerts.open_of(request.query.get("assignee", "")))

    async def mark_read(request: Request) -> Response:
        return json_response(await alerts.mark_read(request.caller, request.path["id"]))

    async def mark_unread(request: Request) -> Response:
        return json_response(await alerts.mark_unread(request.caller, request.path["id"]))

    async def follow(request: Request) -> Response:
        return json_response(await alerts.set_follow(request.caller, request.path["id"], True))

    async def unfollow(request: Request) -> Response:
        return json_response(await alerts.set_follow(request.caller, request.path["id"], False))

    async def create_case(request: Request) -> Response:
        return json_response(await alerts.create_case(request.caller, request.path["id"], request.body), status=201)

    async def merge(request: Request) -> Response:
        return json_response(await alerts.merge_into(request.caller, [request.path["id"]], request.path["caseId"]))

    async def merge_all(request: Request) -> Response:
        body: MergeInput = request.body
        return json_response(await alerts.merge_into(request.caller, body.alert_ids, body.case_id))

    def alert_endpoint(method: str, path: str, handler: Any, summary: str, **options: Any) -> Endpoint:
        options = {
            "response": Alert,
            "permission": "manageAlert",
            "purpose": "change alert",
            "errors": (404,),
            **options,
        }
        return Endpoint(method, f"{BASE}/{{id}}{path}", handler, summary, **options)

    case_options: dict[str, Any] = {"response": Case, "permission": "manageCase", "purpose": "create case"}
    return [
        Endpoint(
            "GET",
            f"{BASE}/_find",
            find,
            "Find the newest alerts with all words of a text",
            response=list[Alert],
            query={"text": "words, each whole or its beginning"},
        ),
        Endpoint(
            "GET",
            f"{BASE}/_open",
            open_of,
            "List the newest open alerts of an assignee",
            response=list[Alert],
            query={"assignee": "the login of who works on them; without it those that nobody works on"},
        ),
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
            get,
            "Get an alert by id or by `type;source;sourceRef`",
            response=Alert,
            errors=(404,),
        ),
        search.list_endpoint(BASE, alerts.search, list[Alert], "alerts"),
        alert_endpoint(
            "POST",
            "/artifact",
            add_artifact,
            "Add an artifact to an alert, or several if `data` is a list",
            body=ArtifactsInput,
            response=list[Artifact],
            status=201,
        ),
        alert_endpoint("PATCH", "", update, "Change an alert", body=AlertUpdate),
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
        alert_endpoint("POST", "/markAsRead", mark_read, "Mark an alert as read"),
        alert_endpoint("POST", "/markAsUnread", mark_unread, "Mark an alert as unread"),
        alert_endpoint("POST", "/follow", follow, "Follow an alert"),
        alert_endpoint("POST", "/unfollow", unfollow, "Stop following an alert"),
        alert_endpoint(
            "POST",
            "/createCase",
            create_case,
            "Create a case from an alert",
            body=CreateCaseInput,
            status=201,
            **case_options,
        ),
        Endpoint(
            "POST",
            f"{BASE}/merge/_bulk",
            merge_all,
            "Merge several alerts into a case, all or none",
            body=MergeInput,
            errors=(404,),
            **case_options,
        ),
        alert_endpoint("POST", "/merge/{caseId}", merge, "Merge an alert into a case", **case_options),
    ]
