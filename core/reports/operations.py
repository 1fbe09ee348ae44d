"""The changes that a successful responder may request (core/docs/semantics.md#operations-of-a-responder).

A new operation is one function here and one line in `OPERATIONS`. The function gets the unit of work and the operation
as the responder wrote it, and raises ResponderBotError with a sentence if it can't be applied. It changes nothing
before its last check. Where there was nothing to do, it returns a sentence that says so.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog
from pydantic import ValidationError

from core.common.database import Transaction
from core.common.errors import ResponderBotError
from core.models import Alert, Artifact, ArtifactInput, Case, Kind, LogInput, StoredModel, Task, TaskInput, number_of
from core.records import alerts, artifacts, cases
from core.records.artifacts import StoredArtifact
from core.records.cases import custom_fields
from core.records.writes import check_growth
from core.store import objects

Operation = Mapping[str, Any]
S = TypeVar("S", bound=StoredModel)
_LISTS = ("tags", "tag_levels", "custom_fields", "field_levels", "artifacts")


@dataclass(frozen=True)
class OperationContext:
    """The object that a responder ran on, and the user that its operations count for."""

    kind: Kind
    object_id: int
    user: str
    now: int
    """The time of the changes (ms)."""
    level: int
    """The clearance that it takes to see the run; the least TLP of what it adds."""


@dataclass
class UnitOfWork:
    """What operations read and change; without it, each tag of an alert would read and write the whole alert.

    `alert`, `case`, `task` and `artifact` load the object that an operation works on. They raise
    ResponderBotError("bad_request") if the responder ran on an object without one.
    """

    tx: Transaction
    context: OperationContext
    _before: dict[Kind, Any] = field(default_factory=dict)
    """The objects as they are stored."""
    _loaded: dict[Kind, Any] = field(default_factory=dict)
    """The objects with their changes; their lists are copies."""
    _tags: dict[Kind, set[str]] = field(default_factory=dict)
    _artifacts: set[tuple[str, ...]] = field(default_factory=set)
    """The identities of the loaded alert's artifacts."""
    _changed: dict[Kind, None] = field(default_factory=dict)

    def alert(self, operation: Operation) -> Alert:
        number = self._alert_number()
        if number is None:
            raise missing(operation, "alert")
        return self._load_once("alert", lambda: alerts.load(self.tx, number))

    def case(self, operation: Operation) -> Case:
        return self._load_once("case", lambda: self._case(operation))

    def task(self, operation: Operation) -> Task:
        if self.context.kind not in ("case_task", "case_task_log"):
            raise missing(operation, "task")
        load = cases.load_task if self.context.kind == "case_task" else cases.task_of_log
        return self._load_once("case_task", lambda: load(self.tx, self.context.object_id))

    def artifact(self, operation: Operation) -> Artifact:
        if self.context.kind != "case_artifact":
            raise missing(operation, "artifact")
        return self._load_once("case_artifact", lambda: self._stored_artifact().artifact)

    def change(self, kind: Kind, **update: Any) -> None:
        """Change a loaded object."""
        self._loaded[kind] = self._loaded[kind].model_copy(update=update)
        self._changed[kind] = None

    def add_tag(self, kind: Kind, tag: str) -> None:
        """Add a tag to a loaded object, unless it has it. Raises ResponderBotError("bad_request") if it is full."""
        tags, levels = self._loaded[kind].tags, getattr(self._loaded[kind], "tag_levels", {})
        known = self._tags.setdefault(kind, set(tags))
        self._count(levels, tag, is_new=tag not in known)
        if tag not in known:
            self._check_room(kind, "tags")
            tags.append(tag)
            known.add(tag)
        self._changed[kind] = None

    def add_artifact(self, requested: ArtifactInput) -> bool:
        """Add an artifact to the loaded alert; False if the alert has it.

        Raises ResponderBotError("bad_request") if the alert is full.
        """
        alert: Alert = self._loaded["alert"]
        self._artifacts = self._artifacts or set(map(artifacts.identity, alert.artifacts))
        if artifacts.identity(requested) in self._artifacts:
            return False
        self._check_room("alert", "artifacts")
        number = objects.next_id(self.tx)
        objects.insert_alert_artifacts(self.tx, alert.number, [number])
        alert.artifacts.append(artifacts.artifact_of(number, requested, self.context.user, self.context.now))
        self._artifacts.add(artifacts.identity(requested))
        self._changed["alert"] = None
        return True

    def set_field(self, kind: Kind, name: str, value_kind: str, value: Any) -> None:
        """Set a custom field of a loaded object.

        Raises ResponderBotError: invalid_fields, bad_request if the object is full.
        """
        fields, had = (loaded := self._loaded[kind]).custom_fields, loaded.custom_fields.get(name, {})
        checked = custom_fields({name: {value_kind: value, "order": len(fields) + 1}}, "customFields")
        if name not in fields:
            self._check_room(kind, "custom_fields")
        self._count(loaded.field_levels, name, is_new=had.get(value_kind) != checked[name][value_kind])
        fields.update(checked)
        self._changed[kind] = None

    def reload(self, kind: Kind) -> None:
        """Read an object again when it is next used, since it was saved without this unit."""
        for state in (self._before, self._loaded, self._changed, self._tags):
            state.pop(kind, None)

    def save(self) -> None:
        """Save the changed objects, each with one event."""
        for kind in sorted(self._changed, key=lambda kind: kind == "case_artifact"):  # which is in the alert, too
            _SAVE[kind](self.tx, self._loaded[kind], self.context.user, self.context.now, self._before[kind])
        self._changed.clear()

    def _count(self, levels: dict[str, int], name: str, *, is_new: bool) -> None:
        """Have a tag or a field that this run adds count as high as the lowest of the runs that did."""
        before = levels.pop(name, 0)
        if level := self.context.level if is_new else min(before, self.context.level):
            levels[name] = level

    def _load_once(self, kind: Kind, load: Callable[[], S]) -> S:
        if kind not in self._loaded:
            self._before[kind] = stored = load()
            copies = {name: copy(getattr(stored, name)) for name in _LISTS if hasattr(stored, name)}
            self._loaded[kind] = stored.model_copy(update=copies)
        loaded: S = self._loaded[kind]
        return loaded

    def _check_room(self, kind: Kind, name: str) -> None:
        check_growth(self._before[kind], self._loaded[kind], name)

    def _case(self, operation: Operation) -> Case:
        if self.context.kind not in ("alert", "case_artifact"):
            return cases.case_of(self.tx, self.context.kind, self.context.object_id)
        number = self._stored_artifact().case_id if self.context.kind == "case_artifact" else None
        if number is not None:
            return cases.load_case(self.tx, number)
        alert = self.alert(operation)
        if alert.case is None:
            raise missing(operation, "case")
        return cases.load_case(self.tx, number_of(alert.case))

    def _alert_number(self) -> int | None:
        """The alert itself, or the first that has the artifact."""
        if self.context.kind == "alert":
            return self.context.object_id
        if self.context.kind != "case_artifact":
            return None
        return next(iter(objects.alerts_with(self.tx, self._stored_artifact().artifact.number)), None)

    def _stored_artifact(self) -> StoredArtifact:
        return artifacts.load(self.tx, self.context.object_id)


_SAVE: Mapping[Kind, Callable[[Transaction, Any, str, int, Any], object]] = {
    "alert": alerts.save,
    "case": cases.save_case,
    "case_task": lambda tx, task, user, now, _: cases.save_task(tx, task, user, now),
    "case_artifact": lambda tx, artifact, user, now, _: artifacts.save(tx, artifact, user, now),
}


def missing(operation: Operation, what: str) -> ResponderBotError:
    """The error of an operation that needs an object which the responder's doesn't belong to."""
    return ResponderBotError("bad_request", f"Unable to apply action {operation['type']} without {what}")


# --- the operations ---------------------------------------------------------------------------------------------------


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
