"""Routes of cases and their tasks, logs and artifacts."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from starlette.responses import Response

from core.api.http import search
from core.api.http.endpoint import (
    Endpoint,
    Request,
    Routes,
    changing,
    getting,
    json_list_response,
    json_response,
)
from core.models import (
    Artifact,
    ArtifactsInput,
    ArtifactUpdate,
    Case,
    CaseInput,
    CaseTaskInput,
    CaseUpdate,
    Log,
    LogInput,
    LogUpdate,
    Permission,
    SearchInput,
    Task,
    TaskUpdate,
)
from core.records.cases import Cases

CASE, TASK, LOG, ARTIFACT = "/api/case", "/api/case/task", "/api/case/task/log", "/api/case/artifact"


def endpoints(cases: Cases) -> list[Endpoint]:
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
        task = await cases.get_task(request.path["id"])
        of_task = {"_parent": {"_type": "case_task", "_query": {"_id": task.id}}}
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

    return [
        *route,
        _create_endpoint(CASE, changing(cases.create, 201), CaseInput, Case, "case", "manageCase"),
        _create_endpoint(
            f"{CASE}/{{id}}/task", changing(cases.add_task, 201), CaseTaskInput, Task, "task", "manageTask"
        ),
        _create_endpoint(f"{TASK}/{{id}}/log", changing(cases.add_log, 201), LogInput, Log, "log", "manageTask"),
        _create_endpoint(
            f"{CASE}/{{id}}/artifact",
            add_artifacts,
            ArtifactsInput,
            Artifact | list[Artifact],
            "artifact",
            "manageCase",
        ),
        _get_endpoint(CASE, cases.get_case_json, Case, "case"),
        _get_endpoint(TASK, cases.get_task_json, Task, "task"),
        _get_endpoint(LOG, cases.get_log_json, Log, "log"),
        _get_endpoint(ARTIFACT, cases.get_artifact_json, Artifact, "artifact"),
        _update_endpoint(CASE, cases.update_case, CaseUpdate, Case, "case", "manageCase"),
        _update_endpoint(TASK, cases.update_task, TaskUpdate, Task, "task", "manageTask"),
        _update_endpoint(LOG, cases.update_log, LogUpdate, Log, "log", "manageTask"),
        _update_endpoint(ARTIFACT, cases.update_artifact, ArtifactUpdate, Artifact, "artifact", "manageCase"),
        search.list_endpoint(CASE, partial(cases.search, "case"), list[Case], "cases"),
        search.endpoint(CASE, partial(cases.search, "case"), list[Case], "cases"),
        search.endpoint(TASK, partial(cases.search, "case_task"), list[Task], "tasks"),
        search.endpoint(LOG, partial(cases.search, "case_task_log"), list[Log], "logs"),
        search.endpoint(ARTIFACT, partial(cases.search, "case_artifact"), list[Artifact], "artifacts"),
    ]


def _create_endpoint(path: str, handler: Any, body: Any, response: Any, name: str, permission: Permission) -> Endpoint:
    return Endpoint(
        "POST",
        path,
        handler,
        f"Create {_with_article(name)}",
        body=body,
        response=response,
        status=201,
        permission=permission,
        purpose=f"create {name}",
        errors=(404,),
    )


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _get_endpoint(path: str, json_of: Callable[[str], Awaitable[str]], response: Any, name: str) -> Endpoint:
    summary = f"Get {_with_article(name)}"
    return Endpoint("GET", f"{path}/{{id}}", getting(json_of), summary, response=response, errors=(404,))


def _update_endpoint(
    path: str, update: Callable[..., Any], body: Any, response: Any, name: str, permission: Permission
) -> Endpoint:
    return Endpoint(
        "PATCH",
        f"{path}/{{id}}",
        changing(update),
        f"Change {_with_article(name)}",
        body=body,
        response=response,
        permission=permission,
        purpose=f"change {name}",
        errors=(404,),
    )
