"""Cases on the wire, with their tasks, logs and artifacts (`semantics.md 2`)."""

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.responses import Response

from core.api import search
from core.api.endpoint import Endpoint, Request, json_list_response, json_response
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
    """Everything below `/api/case` but the templates."""

    async def create(request: Request) -> Response:
        return json_response(await cases.create(request.caller, request.body), status=201)

    async def add_artifacts(request: Request) -> Response:
        """One is answered as itself, several as a list."""
        added = await cases.add_artifacts(request.caller, request.path["id"], request.body)
        return json_response(added[0], status=201) if len(added) == 1 else json_list_response(added, status=201)

    async def logs(request: Request) -> Response:
        task = cases.get_task(request.path["id"])
        of_task = {"_parent": {"_type": "case_task", "_query": {"_id": task.id}}}
        asked = SearchInput(query=of_task, range=request.query.get("range", "all"))
        found = await request.run_search(cases.search("case_task_log", asked))
        return json_response(found.json, headers={"X-Total": str(found.total)})

    async def delete(request: Request) -> Response:
        return json_response(await cases.update_case(request.caller, request.path["id"], CaseUpdate(status="Deleted")))

    return [
        _adds(CASE, create, CaseInput, Case, "case", "manageCase", errors=(404,)),
        _adds(f"{CASE}/{{id}}/task", _within(cases.add_task), CaseTaskInput, Task, "task", "manageTask", errors=(404,)),
        _adds(f"{TASK}/{{id}}/log", _within(cases.add_log), LogInput, Log, "log", "manageTask", errors=(404,)),
        _adds(
            f"{CASE}/{{id}}/artifact",
            add_artifacts,
            ArtifactsInput,
            Artifact | list[Artifact],
            "artifact",
            "manageCase",
            errors=(404,),
        ),
        _reads(CASE, cases.json_case, Case, "case"),
        _reads(TASK, cases.json_task, Task, "task"),
        _reads(LOG, cases.json_log, Log, "log"),
        Endpoint(
            "GET",
            f"{TASK}/{{id}}/log",
            logs,
            "The logs of a task",
            response=list[Log],
            errors=(404,),
            query={"range": "`all`, or `from-to` such as 0-10"},
        ),
        _reads(ARTIFACT, cases.json_artifact, Artifact, "artifact"),
        _changes(CASE, cases.update_case, CaseUpdate, Case, "case", "manageCase"),
        _changes(TASK, cases.update_task, TaskUpdate, Task, "task", "manageTask"),
        _changes(LOG, cases.update_log, LogUpdate, Log, "log", "manageTask"),
        _changes(ARTIFACT, cases.update_artifact, ArtifactUpdate, Artifact, "artifact", "manageCase"),
        Endpoint(
            "DELETE",
            f"{CASE}/{{id}}",
            delete,
            "Mark a case as deleted; it stays, and can be opened again",
            response=Case,
            permission="manageCase",
            purpose="delete case",
            errors=(404,),
        ),
        search.listing(CASE, partial(cases.search, "case"), list[Case], "cases"),
        search.endpoint(CASE, partial(cases.search, "case"), list[Case], "cases"),
        search.endpoint(TASK, partial(cases.search, "case_task"), list[Task], "tasks"),
        search.endpoint(LOG, partial(cases.search, "case_task_log"), list[Log], "logs"),
        search.endpoint(ARTIFACT, partial(cases.search, "case_artifact"), list[Artifact], "artifacts"),
    ]


def _within(add: Callable[..., Any]) -> Callable[[Request], Any]:
    async def handler(request: Request) -> Response:
        return json_response(await add(request.caller, request.path["id"], request.body), status=201)

    return handler


def _adds(
    path: str, handler: Any, body: Any, word: Any, name: str, permission: Permission, errors: tuple[int, ...]
) -> Endpoint:
    return Endpoint(
        "POST",
        path,
        handler,
        f"Create {_one(name)}",
        body=body,
        response=word,
        status=201,
        permission=permission,
        purpose=f"create {name}",
        errors=errors,
    )


def _one(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _reads(path: str, json_of: Callable[[str], str], word: Any, name: str) -> Endpoint:
    async def handler(request: Request) -> Response:
        return json_response(json_of(request.path["id"]))

    return Endpoint("GET", f"{path}/{{id}}", handler, f"One {name}", response=word, errors=(404,))


def _changes(
    path: str, update: Callable[..., Any], body: Any, word: Any, name: str, permission: Permission
) -> Endpoint:
    async def handler(request: Request) -> Response:
        return json_response(await update(request.caller, request.path["id"], request.body))

    return Endpoint(
        "PATCH",
        f"{path}/{{id}}",
        handler,
        f"Change {_one(name)}",
        body=body,
        response=word,
        permission=permission,
        purpose=f"change {name}",
        errors=(404,),
    )
