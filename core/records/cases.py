"""Cases, with their tasks, logs and artifacts (core/docs/semantics.md#cases-tasks-logs-and-artifacts)."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from core.authorization import Caller
from core.common.database import Reads, Transaction
from core.common.errors import ResponderBotError
from core.field_types import CustomFields, wrong_fields
from core.models import (
    Artifact,
    ArtifactsInput,
    ArtifactUpdate,
    Case,
    CaseInput,
    CaseTemplate,
    CaseTemplateInput,
    CaseUpdate,
    Kind,
    Log,
    LogInput,
    LogUpdate,
    StoredModel,
    Task,
    TaskInput,
    TaskUpdate,
    parse_id,
)
from core.records import artifacts, clearance
from core.records.writes import (
    Records,
    check_growth,
    insert_children,
    made,
    merge_tags,
    new_task,
    record_event,
    requested_changes,
)
from core.store import events, objects
from core.store.search import newest

MAX_ALERTS = 10_000  # of a case, whose level changes
T = TypeVar("T")
S = TypeVar("S", bound=StoredModel)


class Cases(Records):
    """Cases and what is in them, as people and clients read and change them."""

    async def create(self, caller: Caller, request: CaseInput) -> Case:
        """Create a case. Raises ResponderBotError("not_found") for an unknown template."""
        return await self._change(lambda tx, now: new_case(tx, request, caller.login, now))

    async def add_task(self, caller: Caller, case_id: str, request: TaskInput) -> Task:
        """Add a task to a case. Raises ResponderBotError("not_found")."""

        def add(tx: Transaction, number: int, now: int) -> Task:
            return new_tasks(tx, load_case(tx, number), [request], caller.login, now)[0]

        return await self._on(caller, "case", case_id, "create task", add)

    async def add_log(self, caller: Caller, task_id: str, request: LogInput) -> Log:
        """Add a log to a task; a `Waiting` task becomes `InProgress`. Raises ResponderBotError("not_found")."""

        def add(tx: Transaction, number: int, now: int) -> Log:
            return new_log(tx, load_task(tx, number), request, caller.login, now)

        return await self._on(caller, "case_task", task_id, "create log", add)

    async def add_artifacts(self, caller: Caller, case_id: str, request: ArtifactsInput) -> list[Artifact]:
        """Add artifacts to a case, all or none.

        Raises ResponderBotError: not_found, exists if the case has one of them already, bad_request, too_large.
        """
        new = artifacts.expand_artifacts([request])

        def add(tx: Transaction, number: int, now: int) -> list[Artifact]:
            return artifacts.add_to_case(tx, load_case(tx, number), new, caller.login, now, caller.why_not_cleared)

        return await self._on(caller, "case", case_id, "create artifact", add)

    async def update_case(self, caller: Caller, case_id: str, request: CaseUpdate) -> Case:
        """Change named fields. Raises ResponderBotError: not_found, bad_request (too many tags or fields)."""

        def change(tx: Transaction, number: int, now: int) -> Case:
            case = load_case(tx, number)
            changes = requested_changes(request, case)
            if request.status in ("Resolved", "Duplicate"):
                changes.setdefault("end_date", now)
            return save_case(tx, case.model_copy(update=changes), caller.login, now, before=case)

        return await self._on(caller, "case", case_id, "change case", change)

    async def update_task(self, caller: Caller, task_id: str, request: TaskUpdate) -> Task:
        """Change what the request names. Raises ResponderBotError("not_found")."""

        def change(tx: Transaction, number: int, now: int) -> Task:
            return save_task(tx, load_task(tx, number).model_copy(update=requested_changes(request)), caller.login, now)

        return await self._on(caller, "case_task", task_id, "change task", change)

    async def update_log(self, caller: Caller, log_id: str, request: LogUpdate) -> Log:
        """Change what the request names. Raises ResponderBotError("not_found")."""

        def change(tx: Transaction, number: int, now: int) -> Log:
            log = Log.model_validate_json(objects.require(tx, "case_task_log", number)["doc"])
            changed = log.model_copy(update=requested_changes(request))
            return _save(tx, "case_task_log", changed, caller.login, now)

        return await self._on(caller, "case_task_log", log_id, "change log", change)

    async def update_artifact(self, caller: Caller, artifact_id: str, request: ArtifactUpdate) -> Artifact:
        """Change what the request names.

        Raises ResponderBotError: not_found, exists if an equal one is there, bad_request for a text as a file.
        """

        def change(tx: Transaction, number: int, now: int) -> Artifact:
            stored = artifacts.load(tx, number)
            changed = stored.artifact.model_copy(update=requested_changes(request))
            if changed.data_type != stored.artifact.data_type:
                changed = artifacts.with_new_type(tx, stored, changed)
            return artifacts.save(tx, changed, caller.login, now)

        return await self._on(caller, "case_artifact", artifact_id, "change artifact", change)

    async def get_json(self, kind: Kind, text: str) -> str:
        """The JSON of what has this id, or of the case with this number. Raises ResponderBotError("not_found")."""

        def read(reads: Reads) -> str:
            number = _number(reads, kind, text)
            if kind == artifacts.KIND:
                return artifacts.load(reads, number).artifact.to_json()
            return str(objects.require(reads, kind, number)["doc"])

        return await self._database.read(read)

    async def _on(
        self, caller: Caller, kind: Kind, text: str, purpose: str, change: Callable[[Transaction, int, int], T]
    ) -> T:
        """Change what has this id, or this case number, or what is in it, if the caller may see it."""

        def work(tx: Transaction, now: int) -> T:
            number = _number(tx, kind, text)
            clearance.require(tx, caller, number, purpose)
            return change(tx, number, now)

        return await self._change(work)


# --- for use within a transaction -----------------------------------------------------------------------------------


def resolve_case(reads: Reads, text: str) -> int:
    """The number in the id of a case, given by id or case number. Raises ResponderBotError("not_found")."""
    return int(objects.named(reads, "case", text, [text])["id"])


def load_case(reads: Reads, object_id: int) -> Case:
    """The case under a number. Raises ResponderBotError("not_found"), as do the next functions."""
    return Case.model_validate_json(objects.require(reads, "case", object_id)["doc"])


def load_task(reads: Reads, object_id: int) -> Task:
    return Task.model_validate_json(objects.require(reads, "case_task", object_id)["doc"])


def task_of_log(reads: Reads, log_id: int) -> Task:
    return load_task(reads, objects.require(reads, "case_task_log", log_id)["parent_id"])


def case_of(reads: Reads, kind: Kind, object_id: int) -> Case:
    """The case that a task or log belongs to; a case itself."""
    return load_case(reads, _root(reads, kind, object_id))


def new_case(tx: Transaction, request: CaseInput, user: str, now: int, **levels: dict[str, int]) -> Case:
    """Add a case (core/docs/semantics.md#a-case-from-a-template). Raises ResponderBotError("not_found")."""
    template: CaseTemplate | CaseTemplateInput = CaseTemplateInput(name="none")
    if request.template:
        template = by_name(tx, request.template)
    prefix = template.title_prefix.rstrip()
    last = newest(tx, "case")
    number, case_number = objects.next_id(tx), 1 if last is None else int(json.loads(last["doc"])["caseId"]) + 1
    own = {
        "case_id": case_number,
        "title": f"{prefix} {request.title}" if prefix else request.title,
        "start_date": now if request.start_date is None else request.start_date,
        "owner": request.owner or user,
        "tags": merge_tags(template.tags, request.tags),
        **levels,
        "template": request.template or None,
        "custom_fields": with_ids(tx, {**template.custom_fields, **request.custom_fields}),
    }
    silent = {name: getattr(template, name) for name in ("severity", "tlp", "pap") if getattr(request, name) is None}
    case = Case(**{**vars(request), **made(number, user, now), **own, **silent})
    objects.insert(tx, number, "case", case.to_json(), unique_key=str(case_number))
    record_event(tx, "case", "created", number, number, user, now)
    from_template = [
        TaskInput(title=task.title, group=task.group, description=task.description, order=task.order)
        for task in template.tasks
    ]
    new_tasks(tx, case, [*from_template, *request.tasks], user, now)
    return case


def new_tasks(tx: Transaction, case: Case, requested: Sequence[TaskInput], user: str, now: int) -> list[Task]:
    """Add tasks to a case, in this order."""
    numbers = objects.next_ids(tx, len(requested))
    tasks = [_task_of(number, task, user, now) for number, task in zip(numbers, requested, strict=True)]
    rows = [objects.NewObject(task.number, task.to_json()) for task in tasks]
    insert_children(tx, "case_task", rows, case.number, user, now)
    return tasks


def new_log(tx: Transaction, task: Task, request: LogInput, user: str, now: int) -> Log:
    """Add a log to a task; a `Waiting` task becomes `InProgress`."""
    number, task_number = objects.next_id(tx), task.number
    log = Log(
        **made(number, user, now),
        message=request.message,
        start_date=now if request.start_date is None else request.start_date,
        owner=user,
    )
    objects.insert(tx, number, "case_task_log", log.to_json(), parent_id=task_number)
    record_event(tx, "case_task_log", "created", number, _root(tx, "case_task", task_number), user, now)
    if task.status == "Waiting":
        save_task(tx, task.model_copy(update={"status": "InProgress"}), user, now)
    return log


def save_case(tx: Transaction, case: Case, user: str, now: int, before: Case) -> Case:
    """Store a changed case; returns it with who changed it and when.

    `before` is the stored case. Raises ResponderBotError("bad_request") for too many tags or custom fields.
    """
    number = case.number
    check_growth(before, case)
    fields = with_ids(tx, case.custom_fields, before.custom_fields)
    saved = case.model_copy(update={"custom_fields": fields, "updated_by": user, "updated_at": now})
    objects.update(tx, number, saved.to_json())
    record_event(tx, "case", "updated", number, number, user, now)
    if saved.tlp != before.tlp:  # what runs on artifacts of its alerts have said may be shown elsewhere now
        for alert in objects.alerts_of(tx, number, MAX_ALERTS):
            record_event(tx, "alert", "updated", alert, alert, user, now)
    return saved


def save_task(tx: Transaction, task: Task, user: str, now: int) -> Task:
    """Store a changed task, with the start and end dates of its status."""
    return _save(tx, "case_task", _dated(task, now), user, now)


def _save(tx: Transaction, kind: Kind, model: S, user: str, now: int) -> S:
    number = model.number
    saved = model.model_copy(update={"updated_by": user, "updated_at": now})
    objects.update(tx, number, saved.to_json())
    record_event(tx, kind, "updated", number, _root(tx, kind, number), user, now)
    return saved


def _task_of(number: int, request: TaskInput, user: str, now: int) -> Task:
    task = new_task(number, request, user, now).model_copy(update=requested_changes(request))
    return _dated(task, now)


def _dated(task: Task, now: int) -> Task:
    """The task with a start date once it has begun, and an end date once it is completed."""
    if task.status in ("InProgress", "Completed") and task.start_date is None:
        task = task.model_copy(update={"start_date": now})
    if task.status == "Completed" and task.end_date is None:
        task = task.model_copy(update={"end_date": now})
    return task


def _root(reads: Reads, kind: Kind, object_id: int) -> int:
    row = objects.require(reads, kind, object_id)
    if kind == "case":
        return int(row["id"])
    if kind == "case_task_log":
        return _root(reads, "case_task", row["parent_id"])
    return int(row["parent_id"])


def _number(reads: Reads, kind: Kind, text: str) -> int:
    """The number in an id; a case may also be named by its case number. Raises ResponderBotError("not_found")."""
    number = parse_id(text)
    if number is None and kind == "case":
        return resolve_case(reads, text)
    if number is None:
        raise objects.missing(kind)
    return number


# --- case templates and custom fields (core/docs/semantics.md#case-templates) -----------------------------------------


TEMPLATE = "case_template"

_FIELDS: TypeAdapter[dict[str, dict[str, Any]]] = TypeAdapter(CustomFields)


class CaseTemplates(Records):
    """Case templates as people and clients read and create them."""

    async def create(self, caller: Caller, request: CaseTemplateInput) -> CaseTemplate:
        """Create a case template. Raises ResponderBotError("exists") if its name is taken."""
        return await self._change(lambda tx, now: _create(tx, request, caller.login, now))

    async def get_json(self, id_or_name: str) -> str:
        """A template's JSON. Raises ResponderBotError("not_found")."""
        row = await self._database.read(lambda reads: objects.named(reads, TEMPLATE, id_or_name, [id_or_name]))
        return str(row["doc"])


def by_name(reads: Reads, name: str) -> CaseTemplate:
    """The template of exactly that name. Raises ResponderBotError("not_found")."""
    row = objects.find_unique(reads, TEMPLATE, name)
    if row is None:
        raise objects.missing(TEMPLATE)
    return CaseTemplate.model_validate_json(row["doc"])


def custom_fields(raw: Any, path: str) -> dict[str, Any]:
    """Custom fields in their long form, each with a value under its kind and an `order`.

    Raises ResponderBotError("invalid_fields") naming each wrong one as `<path>.<name>.<kind>`.
    """
    try:
        return _FIELDS.validate_python(raw)
    except ValidationError as error:
        entries = [
            {
                "name": ".".join([path, *map(str, item["loc"])]),
                "type": "InvalidFormatAttributeError",
                "format": item["msg"].removeprefix("Input should be "),
            }
            for item in error.errors(include_url=False)
        ]
        raise wrong_fields(entries) from None


def with_ids(
    tx: Transaction, fields: Mapping[str, Any], known: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """The custom fields with an `_id` each, last in the entry.

    A field in `known`, the stored ones, keeps its `_id`; what a client sends as one is ignored.
    """
    ids = {name: entry["_id"] for name, entry in (known or {}).items() if "_id" in entry}
    new = [name for name in fields if name not in ids]
    if new:
        ids |= zip(new, map("~{}".format, objects.next_ids(tx, len(new))), strict=True)
    return {
        name: {**{key: item for key, item in entry.items() if key != "_id"}, "_id": ids[name]}
        for name, entry in fields.items()
    }


def _create(tx: Transaction, request: CaseTemplateInput, user: str, now: int) -> CaseTemplate:
    if objects.find_unique(tx, TEMPLATE, request.name) is not None:
        raise ResponderBotError("exists", f'The case template "{request.name}" already exists')
    number, task_numbers = objects.next_id(tx), objects.next_ids(tx, len(request.tasks))
    own = {
        "tasks": [new_task(number, task, user, now) for number, task in zip(task_numbers, request.tasks, strict=True)],
        "custom_fields": with_ids(tx, request.custom_fields),
    }
    template = CaseTemplate(**{**vars(request), **made(number, user, now), **own})
    objects.insert(tx, number, TEMPLATE, template.to_json(), unique_key=request.name)
    events.record(
        tx, number, at=now, type="case_template.created", object_type="CaseTemplate", root_id=number, user=user
    )
    return template
