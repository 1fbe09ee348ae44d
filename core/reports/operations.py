"""The changes that a successful responder may request (core/docs/semantics.md#operations-of-a-responder).

A new operation is one function here and one line in `OPERATIONS`. The function gets the unit of work and the operation
as the responder wrote it, and raises ResponderBotError with a sentence if it can't be applied. It changes nothing
before its last check. Where there was nothing to do, it returns a sentence that says so.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import ValidationError

from core.common.database import Transaction
from core.common.errors import ResponderBotError
from core.models import ArtifactInput, LogInput, TaskInput
from core.records import artifacts, cases
from core.reports.unit_of_work import Operation, OperationContext, UnitOfWork

SLICE_SIZE = 100
"""How many operations share a transaction; other writers come in between."""

_SHOWN_NAME = 100
_ARTIFACT_KEYS = ("dataType", "data", "message", "tlp", "tags", "ioc", "sighted")

log = structlog.get_logger(__name__)

Apply = Callable[[UnitOfWork, Operation], str | None]
OperationOutcome = Mapping[str, str]
"""`status` and `message` of an operation."""


@dataclass(frozen=True)
class OperationLimits:
    """How much one run may request."""

    count: int = 1000
    bytes: int = 1_048_576
    """Of all its operations together, as JSON."""


def within_limits(requested: Sequence[Any], limits: OperationLimits) -> list[Any]:
    """The first operations, as many as the limits allow."""
    left = limits.bytes
    for number, operation in enumerate(requested[: limits.count]):
        left -= len(json.dumps(operation, ensure_ascii=False).encode())
        if left < 0:
            return list(requested[:number])
    return list(requested[: limits.count])


def apply_slice(tx: Transaction, context: OperationContext, slice_: Sequence[Any]) -> list[OperationOutcome]:
    """Apply operations in order; returns the outcome of each.

    One that fails changes nothing and stops nothing else.
    """
    if not slice_:
        return []
    try:
        with tx.savepoint():
            unit = UnitOfWork(tx, context)
            outcomes = [_apply(unit, operation) for operation in slice_]
            unit.save()
            return outcomes
    except Exception as error:  # one of the changes can't be saved, and applied alone each shows which
        if tx.is_in_doubt(error):
            raise
        if len(slice_) == 1:
            return [_unsaved(slice_[0], error)]
        return [outcome for operation in slice_ for outcome in apply_slice(tx, context, [operation])]


def with_outcomes(
    operations: Sequence[Any], outcomes: Sequence[OperationOutcome], omitted_count: int, limits: OperationLimits
) -> list[dict[str, Any]]:
    """The operations as the action shows them, each with `type`, `status` and `message`.

    One more entry at the end says how many were omitted because they were over the limits.
    """
    entries: list[dict[str, Any]] = []
    for operation, outcome in zip(operations, outcomes, strict=True):
        shown = operation if _is_operation(operation) else {"type": "", "asked": operation}
        entries.append({**shown, **outcome})
    if omitted_count:
        message = (
            f"{omitted_count} more operations were not applied: a run may ask for at most {limits.count}, of"
            f" {limits.bytes} bytes together."
        )
        entries.append({"type": "", **_failure(message)})
    return entries


def _is_operation(operation: Any) -> bool:
    return isinstance(operation, Mapping) and isinstance(operation.get("type"), str)


def _failure(message: str) -> OperationOutcome:
    return {"status": "Failure", "message": message}


def _apply(unit: UnitOfWork, operation: Any) -> OperationOutcome:
    if not _is_operation(operation):
        return _failure("This is not an operation: it has no type.")
    name = operation["type"]
    apply = OPERATIONS.get(name)
    if apply is None:
        return _failure(f"Unknown operation {name[:_SHOWN_NAME]}; nothing was done.")
    try:
        with unit.tx.savepoint():
            return {"status": "Success", "message": apply(unit, operation) or ""}
    except ValidationError as error:
        first = error.errors()[0]
        return _failure(f"The operation {name} is wrong at {'.'.join(map(str, first['loc']))}: {first['msg']}.")
    except Exception as error:
        if unit.tx.is_in_doubt(error):
            raise
        return _unsaved(operation, error)


def _unsaved(operation: Operation, error: Exception) -> OperationOutcome:
    """The outcome of an operation that the store refuses, such as a text that is too long for an index.

    Raised, the error would keep the action from ending.
    """
    if isinstance(error, ResponderBotError):
        return _failure(error.message)
    name = operation["type"]
    log.error("operation_failed", operation=name, exc_info=error)
    return _failure(f"The operation {name} could not be applied; core's log says why.")


def _add_tag_to_alert(unit: UnitOfWork, operation: Operation) -> None:
    unit.alert(operation)
    unit.add_tag("alert", _text(operation, "tag"))


def _mark_alert_as_read(unit: UnitOfWork, operation: Operation) -> None:
    alert = unit.alert(operation)
    if alert.status in ("New", "Updated"):
        unit.change("alert", status="Ignored" if alert.case is None else "Imported")


def _add_tag_to_case(unit: UnitOfWork, operation: Operation) -> None:
    unit.case(operation)
    unit.add_tag("case", _text(operation, "tag"))


def _add_tag_to_artifact(unit: UnitOfWork, operation: Operation) -> None:
    unit.artifact(operation)
    unit.add_tag("case_artifact", _text(operation, "tag"))


def _create_task(unit: UnitOfWork, operation: Operation) -> None:
    case = unit.case(operation)
    task = TaskInput(title=_text(operation, "title"), description=_text(operation, "description", default=""))
    cases.new_tasks(unit.tx, case, [task], unit.context.user, unit.context.now)


def _close_task(unit: UnitOfWork, operation: Operation) -> None:
    unit.task(operation)
    unit.change("case_task", status="Completed")


def _add_log_to_task(unit: UnitOfWork, operation: Operation) -> None:
    task, content = unit.task(operation), _text(operation, "content")
    cases.new_log(unit.tx, task, LogInput(message=content), unit.context.user, unit.context.now)
    if task.status == "Waiting":  # the log has started it
        unit.reload("case_task")


def _add_custom_fields(unit: UnitOfWork, operation: Operation) -> None:
    name, kind = _text(operation, "name"), _text(operation, "tpe")
    if unit.context.kind == "alert" and unit.alert(operation).case is None:
        unit.set_field("alert", name, kind, operation.get("value"))
        return
    unit.case(operation)
    unit.set_field("case", name, kind, operation.get("value"))


def _add_artifact_to_alert(unit: UnitOfWork, operation: Operation) -> str | None:
    alert = unit.alert(operation)
    artifact = _artifact(operation, max(alert.tlp, unit.context.level))
    return None if unit.add_artifact(artifact) else f"The alert has this {artifact.data_type} already."


def _add_artifact_to_case(unit: UnitOfWork, operation: Operation) -> str | None:
    case = unit.case(operation)
    artifact = _artifact(operation, max(case.tlp, unit.context.level))
    try:
        artifacts.add_to_case(unit.tx, case, [artifact], unit.context.user, unit.context.now)
    except ResponderBotError as error:
        if error.code != "exists":
            raise
        return error.message
    return None


def _artifact(operation: Operation, least_tlp: int) -> ArtifactInput:
    """The artifact that an operation adds; its TLP is `least_tlp`, or higher if the operation says so."""
    known = {key: operation[key] for key in _ARTIFACT_KEYS if operation.get(key) is not None}
    try:
        artifact = ArtifactInput.model_validate({"tlp": least_tlp, **known})
    except ValidationError as error:
        first = error.errors()[0]
        raise ResponderBotError(
            "bad_request", f"The artifact's {first['loc'][-1]} is wrong: {first['msg']}."
        ) from error
    return artifact.model_copy(update={"tlp": max(artifact.tlp, least_tlp)})


def _assign_case(unit: UnitOfWork, operation: Operation) -> None:
    unit.case(operation)
    unit.change("case", owner=_text(operation, "owner"))


OPERATIONS: Mapping[str, Apply] = {
    "AddTagToAlert": _add_tag_to_alert,
    "AddTagToCase": _add_tag_to_case,
    "AddTagToArtifact": _add_tag_to_artifact,
    "MarkAlertAsRead": _mark_alert_as_read,
    "CreateTask": _create_task,
    "CloseTask": _close_task,
    "AddLogToTask": _add_log_to_task,
    "AddCustomFields": _add_custom_fields,
    "AddArtifactToAlert": _add_artifact_to_alert,
    "AddArtifactToCase": _add_artifact_to_case,
    "AssignCase": _assign_case,
}


def _text(operation: Operation, key: str, default: str | None = None) -> str:
    value = operation.get(key, default)
    if not isinstance(value, str) or (not value and default is None):
        raise ResponderBotError("bad_request", f"The operation {operation['type']} needs a text in {key!r}.")
    return value
