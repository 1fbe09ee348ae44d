"""Routes of cases and their tasks, logs and artifacts."""

from collections.abc import Sequence
from functools import partial
from typing import Any

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
    Artifact,
    ArtifactsInput,
    ArtifactUpdate,
    Case,
    CaseInput,
    CaseTaskInput,
    CaseUpdate,
    Kind,
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
