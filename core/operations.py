"""What a finished responder may change (`semantics.md 6`).

A new operation is one function here, and one line in `OPERATIONS`: it gets the place and the operation as the responder
wrote it, and raises ResponderBotError with a sentence where it can't be applied.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from core import alerts, cases
from core.case_templates import custom_fields
from core.errors import ResponderBotError
from core.models import Alert, ArtifactInput, Case, Kind, LogInput, Task, TaskInput
from core.store.database import Transaction


@dataclass(frozen=True)
class Place:
    """Where operations are applied: the object that the responder ran on, and in whose name."""

    kind: Kind
    object_id: int
    user: str
    now: int


Operation = Mapping[str, Any]
Apply = Callable[[Transaction, Place, Operation], None]


def apply_all(tx: Transaction, place: Place, asked: Iterable[Any]) -> list[dict[str, Any]]:
    """Apply each operation alone, in order; returns each with `type`, `status` and `message` for the action's record.

    One that can't be applied changes nothing and stops nothing else.
    """
    return [_apply(tx, place, operation) for operation in asked]


def _apply(tx: Transaction, place: Place, operation: Any) -> dict[str, Any]:
    if not isinstance(operation, Mapping) or not isinstance(operation.get("type"), str):
        return {"type": "", "asked": operation, "status": "Failure", "message": "This is no operation: it has no type."}
    name = operation["type"]
    apply = OPERATIONS.get(name)
    if apply is None:
        return {**operation, "status": "Failure", "message": f"Unknown operation {name}; nothing was done."}
    try:
        with tx.part():
            apply(tx, place, operation)
    except ResponderBotError as error:
        return {**operation, "status": "Failure", "message": error.message}
    return {**operation, "status": "Success", "message": ""}


def _add_tag_to_alert(tx: Transaction, place: Place, operation: Operation) -> None:
    alert = _alert(tx, place, operation)
    _save_alert(tx, place, alert, {"tags": _with(alert.tags, _text(operation, "tag"))})


def _mark_alert_as_read(tx: Transaction, place: Place, operation: Operation) -> None:
    alert = _alert(tx, place, operation)
    if alert.status in ("New", "Updated"):
        _save_alert(tx, place, alert, {"status": "Ignored" if alert.case is None else "Imported"})


def _add_tag_to_case(tx: Transaction, place: Place, operation: Operation) -> None:
    case = _case(tx, place, operation)
    _save_case(tx, place, case, {"tags": _with(case.tags, _text(operation, "tag"))})


def _add_tag_to_artifact(tx: Transaction, place: Place, operation: Operation) -> None:
    if place.kind != "case_artifact":
        raise _without(operation, "artifact")
    artifact = cases.load_artifact(tx, place.object_id)
    changed = artifact.model_copy(update={"tags": _with(artifact.tags, _text(operation, "tag"))})
    cases.save_artifact(tx, changed, place.user, place.now)


def _create_task(tx: Transaction, place: Place, operation: Operation) -> None:
    case = _case(tx, place, operation)
    task = TaskInput(title=_text(operation, "title"), description=_text(operation, "description", default=""))
    cases.new_task(tx, case, task, place.user, place.now)


def _close_task(tx: Transaction, place: Place, operation: Operation) -> None:
    task = _task(tx, place, operation)
    cases.save_task(tx, task.model_copy(update={"status": "Completed"}), place.user, place.now)


def _add_log_to_task(tx: Transaction, place: Place, operation: Operation) -> None:
    log = LogInput(message=_text(operation, "content"))
    cases.new_log(tx, _task(tx, place, operation), log, place.user, place.now)


def _add_custom_fields(tx: Transaction, place: Place, operation: Operation) -> None:
    name, kind = _text(operation, "name"), _text(operation, "tpe")
    if place.kind == "alert":
        alert = _alert(tx, place, operation)
        if alert.case is None:
            fields = _with_field(alert.custom_fields, name, kind, operation.get("value"))
            _save_alert(tx, place, alert, {"custom_fields": fields})
            return
    case = _case(tx, place, operation)
    _save_case(tx, place, case, {"custom_fields": _with_field(case.custom_fields, name, kind, operation.get("value"))})


def _add_artifact_to_case(tx: Transaction, place: Place, operation: Operation) -> None:
    case = _case(tx, place, operation)
    known = {key: value for key, value in operation.items() if key != "type"}
    try:
        artifact = TypeAdapter(ArtifactInput).validate_python(known)
    except ValidationError as error:
        first = error.errors()[0]
        raise ResponderBotError(
            "bad_request", f"The artifact's {first['loc'][-1]} is wrong: {first['msg']}."
        ) from error
    cases.new_artifact(tx, case, artifact, place.user, place.now)


def _assign_case(tx: Transaction, place: Place, operation: Operation) -> None:
    _save_case(tx, place, _case(tx, place, operation), {"owner": _text(operation, "owner")})


OPERATIONS: Mapping[str, Apply] = {
    "AddTagToAlert": _add_tag_to_alert,
    "AddTagToCase": _add_tag_to_case,
    "AddTagToArtifact": _add_tag_to_artifact,
    "MarkAlertAsRead": _mark_alert_as_read,
    "CreateTask": _create_task,
    "CloseTask": _close_task,
    "AddLogToTask": _add_log_to_task,
    "AddCustomFields": _add_custom_fields,
    "AddArtifactToCase": _add_artifact_to_case,
    "AssignCase": _assign_case,
}


def _alert(tx: Transaction, place: Place, operation: Operation) -> Alert:
    if place.kind != "alert":
        raise _without(operation, "alert")
    return alerts.load(tx, place.object_id)


def _task(tx: Transaction, place: Place, operation: Operation) -> Task:
    if place.kind == "case_task":
        return cases.load_task(tx, place.object_id)
    if place.kind == "case_task_log":
        return cases.task_of_log(tx, place.object_id)
    raise _without(operation, "task")


def _case(tx: Transaction, place: Place, operation: Operation) -> Case:
    if place.kind == "alert":
        alert = alerts.load(tx, place.object_id)
        if alert.case is None:
            raise _without(operation, "case")
        return cases.load_case(tx, int(alert.case[1:]))
    return cases.case_of(tx, place.kind, place.object_id)


def _save_alert(tx: Transaction, place: Place, alert: Alert, update: Mapping[str, Any]) -> None:
    alerts.save(tx, alert.model_copy(update=dict(update)), place.user, place.now)


def _save_case(tx: Transaction, place: Place, case: Case, update: Mapping[str, Any]) -> None:
    cases.save_case(tx, case.model_copy(update=dict(update)), place.user, place.now)


def _text(operation: Operation, key: str, default: str | None = None) -> str:
    value = operation.get(key, default)
    if not isinstance(value, str) or (not value and default is None):
        raise ResponderBotError("bad_request", f"The operation {operation['type']} needs a text in {key!r}.")
    return value


def _with(tags: list[str], tag: str) -> list[str]:
    return tags if tag in tags else [*tags, tag]


def _with_field(fields: Mapping[str, Any], name: str, kind: str, value: Any) -> dict[str, Any]:
    checked = custom_fields({name: {kind: value, "order": len(fields) + 1}}, "customFields")
    return {**fields, **checked}


def _without(operation: Operation, what: str) -> ResponderBotError:
    return ResponderBotError("bad_request", f"Unable to apply action {operation['type']} without {what}")
