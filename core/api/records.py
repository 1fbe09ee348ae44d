"""Routes of alerts, of cases with their tasks, logs and artifacts, of case templates, comments and files."""

from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from core.api.http.endpoint import (
    Endpoint,
    Request,
    Routes,
    bool_param,
    changing,
    getting,
    json_list_response,
    json_response,
    search_endpoint,
)
from core.common.database import Database
from core.common.errors import ResponderBotError
from core.models import (
    Alert,
    AlertInput,
    AlertsUpdate,
    AlertUpdate,
    Artifact,
    ArtifactsInput,
    ArtifactUpdate,
    Case,
    CaseInput,
    CaseTaskInput,
    CaseTemplate,
    CaseTemplateInput,
    CaseUpdate,
    Comment,
    CommentInput,
    CreateCaseInput,
    Kind,
    Log,
    LogInput,
    LogUpdate,
    MergeInput,
    OpenAlert,
    Permission,
    SearchInput,
    Task,
    TaskUpdate,
)
from core.records import artifacts
from core.records.alerts import Alerts
from core.records.cases import Cases, CaseTemplates
from core.records.comments import Comments

ALERT = "/api/alert"


def alert_endpoints(alerts: Alerts) -> list[Endpoint]:
    """Routes under `/api/alert`."""
    route = Routes(ALERT)
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
        search_endpoint(ALERT, partial(alerts.search, "alert"), list[Alert], "alerts"),
        search_endpoint(ALERT, partial(alerts.search, "alert"), list[Alert], "alerts", is_list=True),
    ]


# --- cases ------------------------------------------------------------------------------------------------------------


CASE, TASK, LOG, ARTIFACT = "/api/case", "/api/case/task", "/api/case/task/log", "/api/case/artifact"


def case_endpoints(cases: Cases) -> list[Endpoint]:
    """Routes under `/api/case`, except case templates."""
    route = Routes()

    async def add_artifacts(request: Request) -> Response:
        """Answers a single artifact as an object, several as a list."""
        added = await cases.add_artifacts(request.caller, request.path["id"], request.body)
        return json_response(added[0], status=201) if len(added) == 1 else json_list_response(added, status=201)

    @route(
        f"GET {TASK}/{{id}}/log",
        "List the logs of a task",
        response=list[Log],
        errors=(404,),
        query={"range": "`all`, or `from-to` such as 0-10"},
    )
    async def list_logs(request: Request) -> Response:
        await cases.get_json("case_task", request.path["id"])  # which says if there is no such task
        of_task = {"_parent": {"_type": "case_task", "_query": {"_id": request.path["id"]}}}
        search_input = SearchInput(query=of_task, range=request.query.get("range", "all"))
        result = await request.run_search(cases.search("case_task_log", search_input))
        return json_response(result.json, headers={"X-Total": str(result.total)})

    @route(
        f"DELETE {CASE}/{{id}}",
        "Mark a case as deleted; it stays, and can be opened again",
        response=Case,
        permission="manageCase",
        purpose="delete case",
        errors=(404,),
    )
    async def delete(request: Request) -> Response:
        return json_response(await cases.update_case(request.caller, request.path["id"], CaseUpdate(status="Deleted")))

    made: Sequence[tuple[str, str, Any, Any, Any, Permission]] = (
        (CASE, "case", changing(cases.create, 201), CaseInput, Case, "manageCase"),
        (f"{CASE}/{{id}}/task", "task", changing(cases.add_task, 201), CaseTaskInput, Task, "manageTask"),
        (f"{TASK}/{{id}}/log", "log", changing(cases.add_log, 201), LogInput, Log, "manageTask"),
        (f"{CASE}/{{id}}/artifact", "artifact", add_artifacts, ArtifactsInput, Artifact | list[Artifact], "manageCase"),
    )
    for path, name, create, body, response, permission in made:
        options = _options(body, response, permission, f"create {name}")
        route(f"POST {path}", f"Create {_with_article(name)}", status=201, **options)(create)

    kept: Sequence[tuple[str, str, Kind, Any, Any, Any, Permission]] = (
        (CASE, "case", "case", cases.update_case, CaseUpdate, Case, "manageCase"),
        (TASK, "task", "case_task", cases.update_task, TaskUpdate, Task, "manageTask"),
        (LOG, "log", "case_task_log", cases.update_log, LogUpdate, Log, "manageTask"),
        (ARTIFACT, "artifact", "case_artifact", cases.update_artifact, ArtifactUpdate, Artifact, "manageCase"),
    )
    for path, name, kind, update, body, response, permission in kept:
        address, what = f"{path}/{{id}}", _with_article(name)
        get = getting(partial(cases.get_json, kind))
        route(f"GET {address}", f"Get {what}", response=response, errors=(404,))(get)
        options = _options(body, response, permission, f"change {name}")
        route(f"PATCH {address}", f"Change {what}", **options)(changing(update))

    return [
        *route,
        search_endpoint(CASE, partial(cases.search, "case"), list[Case], "cases", is_list=True),
        search_endpoint(CASE, partial(cases.search, "case"), list[Case], "cases"),
        search_endpoint(TASK, partial(cases.search, "case_task"), list[Task], "tasks"),
        search_endpoint(LOG, partial(cases.search, "case_task_log"), list[Log], "logs"),
        search_endpoint(ARTIFACT, partial(cases.search, "case_artifact"), list[Artifact], "artifacts"),
    ]


def _options(body: Any, response: Any, permission: Permission, purpose: str) -> dict[str, Any]:
    return {"body": body, "response": response, "permission": permission, "purpose": purpose, "errors": (404,)}


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


# --- case templates ---------------------------------------------------------------------------------------------------


TEMPLATE = "/api/case/template"


def case_template_endpoints(templates: CaseTemplates) -> list[Endpoint]:
    """Routes under `/api/case/template`."""
    route = Routes(TEMPLATE)

    route(
        "POST",
        "Create a case template",
        body=CaseTemplateInput,
        response=CaseTemplate,
        status=201,
        permission="manageCaseTemplate",
        purpose="create case template",
    )(changing(templates.create, 201))

    route(
        "GET /{idOrName}", "Get a case template by id or by name", by_name=True, response=CaseTemplate, errors=(404,)
    )(getting(templates.get_json))

    return [
        *route,
        search_endpoint(TEMPLATE, partial(templates.search, "case_template"), list[CaseTemplate], "case templates"),
    ]


# --- comments on alerts and cases -------------------------------------------------------------------------------------


COMMENT = "/api/comment"


def comment_endpoints(comments: Comments) -> list[Endpoint]:
    """Routes of comments. Who may change one depends on its alert or case, so `Comments` checks permissions."""
    route, one = Routes(), f"{COMMENT}/{{id}}"
    of_comment = partial(route, response=Comment, errors=(404,))

    of_comment(f"GET {one}", "Get a comment")(getting(comments.get_json))
    of_comment(f"PATCH {one}", "Change your own comment", body=CommentInput)(changing(comments.update))
    of_comment(f"DELETE {one}", "Delete your own comment; an org-admin may delete any")(changing(comments.delete))

    add = partial(of_comment, body=CommentInput, status=201, purpose="create comment")
    for kind, what, permission in (("alert", "an alert", "manageAlert"), ("case", "a case", "manageCase")):
        handler = changing(partial(comments.add, kind=kind), 201)
        add(f"POST /api/{kind}/{{id}}/comment", f"Comment on {what}", permission=permission)(handler)

    return [*route, search_endpoint(COMMENT, partial(comments.search, "comment"), list[Comment], "comments")]


# --- downloads of the files of artifacts ------------------------------------------------------------------------------


ANY_TYPE = "application/octet-stream"
_FILE = "/api/datastore/{fileId}"
_FILES_IN_1 = (
    "/api/v1/observable/{observableId}/attachment/{fileId}/download",
    "/api/v1/attachment/{fileId}/download",
)
_FILE_QUERY = {"name": "the name under which the file is to be saved; without it, its id"}


def file_endpoints(database: Database) -> list[Endpoint]:
    """The download of a file by its id."""
    route = Routes()
    summary = "The content of a file, by the `id` of an artifact's `attachment`"

    @route(f"GET {_FILE}", summary, response=ANY_TYPE, query=_FILE_QUERY, errors=(404,))
    async def download(request: Request) -> Response:
        return await _download(database, request)

    return route


def version_1_of_files(database: Database) -> list[Endpoint]:
    """The same under the addresses of version 1; the file's id is enough to find it."""

    async def download(request: Request) -> Response:
        if bool_param(request, "asZip"):
            raise ResponderBotError("bad_request", "Files are not sent as a zip; leave out asZip.")
        return await _download(database, request)

    return [
        Endpoint("GET", path, download, "Download a file", response=ANY_TYPE, errors=(404,)) for path in _FILES_IN_1
    ]


async def _download(database: Database, request: Request) -> Response:
    file_id = request.path["fileId"]
    content = await database.read(lambda reads: artifacts.file_content(reads, file_id))
    name = quote(request.query.get("name") or file_id, safe="")
    # Foreign content: no browser may ever show it as a page of core's.
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}", "Content-Security-Policy": "sandbox"}
    return Response(content, 200, headers, ANY_TYPE)
