"""Routes of alerts."""

from functools import partial

from starlette.responses import Response

from core.api.http.endpoint import (
    Endpoint,
    Request,
    Routes,
    changing,
    getting,
    json_list_response,
    json_response,
    search_endpoint,
)
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
    OpenAlert,
)
from core.records.alerts import Alerts

BASE = "/api/alert"


def endpoints(alerts: Alerts) -> list[Endpoint]:
    """Routes under `/api/alert`."""
    route = Routes(BASE)
    change = partial(route, response=Alert, permission="manageAlert", purpose="change alert", errors=(404,))
    make_case = partial(route, response=Case, permission="manageCase", purpose="create case", errors=(404,))

    route(
        "POST",
        "Create an alert",
        body=AlertInput,
        response=Alert,
        status=201,
        permission="manageAlert",
        or_permission="createAlert",
        purpose="create alert",
    )(changing(alerts.create, 201))

    route("GET /{id}", "Get an alert by id or by `type;source;sourceRef`", response=Alert, errors=(404,))(
        getting(alerts.get_json)
    )

    @change(
        "POST /{id}/artifact",
        "Add an artifact to an alert, or several if `data` is a list",
        body=ArtifactsInput,
        response=list[Artifact],
        status=201,
    )
    async def add_artifact(request: Request) -> Response:
        added = await alerts.add_artifacts(request.caller, request.path["id"], request.body)
        return json_list_response(added, status=201)

    change("PATCH /{id}", "Change an alert", body=AlertUpdate)(changing(alerts.update))

    @change("PATCH /_bulk", "Change several alerts, all or none", body=AlertsUpdate, response=list[Alert])
    async def update_all(request: Request) -> Response:
        body: AlertsUpdate = request.body
        return json_list_response(await alerts.update_all(request.caller, body.ids, body))

    @route(
        "GET /_find",
        "Find the newest alerts with all words of a text",
        response=list[Alert],
        query={"text": "words, each whole or its beginning"},
    )
    async def find(request: Request) -> Response:
        docs = await request.run_search(alerts.find(request.caller, request.query.get("text", "")))
        return json_list_response(docs)

    @route(
        "GET /_open",
        "List the open alerts of an assignee, the most severe first",
        response=list[OpenAlert],
        query={"assignee": "the login of who works on them; without it those that nobody works on"},
    )
    async def open_of(request: Request) -> Response:
        return json_list_response(await alerts.open_of(request.caller, request.query.get("assignee", "")))

    change("POST /{id}/markAsRead", "Mark an alert as read")(changing(alerts.mark_read))

    change("POST /{id}/markAsUnread", "Mark an alert as unread")(changing(alerts.mark_unread))

    change("POST /{id}/follow", "Follow an alert")(changing(partial(alerts.set_follow, follow=True)))

    change("POST /{id}/unfollow", "Stop following an alert")(changing(partial(alerts.set_follow, follow=False)))

    make_case("POST /{id}/createCase", "Create a case from an alert", body=CreateCaseInput, status=201)(
        changing(alerts.create_case, 201)
    )

    @make_case("POST /{id}/merge/{caseId}", "Merge an alert into a case")
    async def merge(request: Request) -> Response:
        return json_response(await alerts.merge_into(request.caller, [request.path["id"]], request.path["caseId"]))

    @make_case("POST /merge/_bulk", "Merge several alerts into a case, all or none", body=MergeInput)
    async def merge_all(request: Request) -> Response:
        body: MergeInput = request.body
        return json_response(await alerts.merge_into(request.caller, body.alert_ids, body.case_id))

    return [
        *route,
        search_endpoint(BASE, partial(alerts.search, "alert"), list[Alert], "alerts"),
        search_endpoint(BASE, partial(alerts.search, "alert"), list[Alert], "alerts", is_list=True),
    ]
