"""What a finished responder may change.

A new operation is one function here, and one line in `OPERATIONS`: it gets the objects and the operation as the
responder wrote it, and raises ResponderBotError with a sentence where it can't be applied. It changes nothing before
its last check.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from core.common.database.sqlite import StoreTrouble, Transaction
from core.common.errors import ResponderBotError
from core.models import Alert, Artifact, ArtifactInput, Case, Kind, LogInput, Task, TaskInput
from core.records import alerts, cases
from core.records.case_templates import custom_fields

SLICE = 100
"""So many are applied in one transaction; other writers come in between."""

_SHOWN_NAME = 100

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class OperationContext:
    """Where operations are applied: the object that the responder ran on, and in whose name."""

    kind: Kind
    object_id: int
    user: str
    now: int


@dataclass(frozen=True)
class Limits:
    """How much one run may ask for."""

    count: int = 1000
    bytes: int = 1_048_576
    """Of all its operations together, as JSON."""


@dataclass
class Objects:
    """The objects that a slice of operations changes: each is read once, and saved once by `save`.

    Otherwise each tag of an alert would cost a read and a write of the whole alert.
    """

    tx: Transaction
    place: OperationContext
    _before: dict[Kind, Any] = field(default_factory=dict)
    """As they are kept."""
    _loaded: dict[Kind, Any] = field(default_factory=dict)
    """As they are to be; their lists are our own."""
    _tags: dict[Kind, set[str]] = field(default_factory=dict)
    _changed: dict[Kind, None] = field(default_factory=dict)

    def alert(self, operation: "Operation") -> Alert:
        if self.place.kind != "alert":
            raise _without(operation, "alert")
        alert: Alert = self._once("alert", lambda: alerts.load(self.tx, self.place.object_id))
        return alert

    def case(self, operation: "Operation") -> Case:
        case: Case = self._once("case", lambda: self._case(operation))
        return case

    def task(self, operation: "Operation") -> Task:
        if self.place.kind not in ("case_task", "case_task_log"):
            raise _without(operation, "task")
        load = cases.load_task if self.place.kind == "case_task" else cases.task_of_log
        task: Task = self._once("case_task", lambda: load(self.tx, self.place.object_id))
        return task

    def artifact(self, operation: "Operation") -> Artifact:
        if self.place.kind != "case_artifact":
            raise _without(operation, "artifact")
        artifact: Artifact = self._once("case_artifact", lambda: cases.load_artifact(self.tx, self.place.object_id))
        return artifact

    def change(self, kind: Kind, **update: Any) -> None:
        """Change an object that was loaded."""
        self._loaded[kind] = self._loaded[kind].model_copy(update=update)
        self._changed[kind] = None

    def add_tag(self, kind: Kind, tag: str) -> None:
        """Add a tag to an object that was loaded, unless it has it."""
        tags = self._loaded[kind].tags
        known = self._tags.setdefault(kind, set(tags))
        if tag not in known:
            tags.append(tag)
            try:
                self._refuse_growth(kind)
            except ResponderBotError:
                tags.pop()
                raise
            known.add(tag)
        self._changed[kind] = None

    def set_field(self, kind: Kind, name: str, value_kind: str, value: Any) -> None:
        """Set a custom field of an object that was loaded. Raises ResponderBotError("invalid_fields")."""
        fields = self._loaded[kind].custom_fields
        checked = custom_fields({name: {value_kind: value, "order": len(fields) + 1}}, "customFields")
        is_new = name not in fields
        fields.update(checked)
        try:
            self._refuse_growth(kind)
        except ResponderBotError:
            if is_new:
                del fields[name]
            raise
        self._changed[kind] = None

    def forget(self, kind: Kind) -> None:
        """Read an object again at its next use: it was saved beside us."""
        for kept in (self._before, self._loaded, self._changed, self._tags):
            kept.pop(kind, None)

    def save(self) -> None:
        """Save what has changed, each with one event."""
        for kind in self._changed:
            _SAVE[kind](self.tx, self._loaded[kind], self.place.user, self.place.now, self._before[kind])
        self._changed.clear()

    def _once(self, kind: Kind, load: Callable[[], Any]) -> Any:
        if kind not in self._loaded:
            self._before[kind] = kept = load()
            own = {name: copy(getattr(kept, name)) for name in ("tags", "custom_fields") if hasattr(kept, name)}
            self._loaded[kind] = kept.model_copy(update=own)
        return self._loaded[kind]

    def _refuse_growth(self, kind: Kind) -> None:
        cases.refuse_growth(self._before[kind], self._loaded[kind])

    def _case(self, operation: "Operation") -> Case:
        if self.place.kind != "alert":
            return cases.case_of(self.tx, self.place.kind, self.place.object_id)
        alert = self.alert(operation)
        if alert.case is None:
            raise _without(operation, "case")
        return cases.load_case(self.tx, int(alert.case[1:]))


_SAVE: Mapping[Kind, Callable[[Transaction, Any, str, int, Any], object]] = {
    "alert": lambda tx, alert, user, now, before: alerts.save(tx, alert, user, now, before=before),
    "case": lambda tx, case, user, now, before: cases.save_case(tx, case, user, now, before=before),
    "case_task": lambda tx, task, user, now, _: cases.save_task(tx, task, user, now),
    "case_artifact": lambda tx, artifact, user, now, _: cases.save_artifact(tx, artifact, user, now),
}

Operation = Mapping[str, Any]
Apply = Callable[[Objects, Operation], None]


def bounded(asked: Sequence[Any], limits: Limits) -> list[Any]:
    """As many of the first operations as the limits allow."""
    left = limits.bytes
    for number, operation in enumerate(asked[: limits.count]):
        left -= len(json.dumps(operation, ensure_ascii=False).encode())
        if left < 0:
            return list(asked[:number])
    return list(asked[: limits.count])


def apply_slice(tx: Transaction, place: OperationContext, slice_: Sequence[Any]) -> list[str]:
    """Apply each operation alone, in order; returns for each why it failed, `""` where it didn't.

    One that can't be applied changes nothing and stops nothing else.
    """
    try:
        with tx.part():
            return _together(tx, place, slice_)
    except ResponderBotError as error:  # one of them can't be kept, and only each alone tells which
        if len(slice_) == 1:
            return [error.message]
        return [outcome for operation in slice_ for outcome in apply_slice(tx, place, [operation])]


def _together(tx: Transaction, place: OperationContext, slice_: Sequence[Any]) -> list[str]:
    objects = Objects(tx, place)
    outcomes = [_apply(objects, operation) for operation in slice_]
    objects.save()
    return outcomes


def recorded(operations: Sequence[Any], outcomes: Sequence[str], left_out: int, limits: Limits) -> list[dict[str, Any]]:
    """The operations for the action's record, each with `type`, `status` and `message`.

    One entry at the end stands for the `left_out` that were over the limits.
    """
    entries = [_recorded(*pair) for pair in zip(operations, outcomes, strict=True)]
    if left_out:
        message = (
            f"{left_out} more operations were not applied: a run may ask for at most {limits.count}, of"
            f" {limits.bytes} bytes together (max_operations and operations_limit_bytes in the settings)."
        )
        entries.append({"type": "", "status": "Failure", "message": message})
    return entries


def _recorded(operation: Any, outcome: str) -> dict[str, Any]:
    told = {"status": "Failure" if outcome else "Success", "message": outcome}
    return {**operation, **told} if _is_operation(operation) else {"type": "", "asked": operation, **told}


def _is_operation(operation: Any) -> bool:
    return isinstance(operation, Mapping) and isinstance(operation.get("type"), str)


def _apply(objects: Objects, operation: Any) -> str:
    if not _is_operation(operation):
        return "This is no operation: it has no type."
    name = operation["type"]
    apply = OPERATIONS.get(name)
    if apply is None:
        return f"Unknown operation {name[:_SHOWN_NAME]}; nothing was done."
    try:
        with objects.tx.part():
            apply(objects, operation)
    except ResponderBotError as error:
        return error.message
    except ValidationError as error:
        first = error.errors()[0]
        return f"The operation {name} is wrong at {'.'.join(map(str, first['loc']))}: {first['msg']}."
    except StoreTrouble:
        raise  # the whole transaction is in doubt
    except Exception:  # an action that can't be ended would be tried for ever
        log.exception("operation failed", operation=name)
        return f"The operation {name} could not be applied; core's log says why."
    return ""


def _add_tag_to_alert(objects: Objects, operation: Operation) -> None:
    objects.alert(operation)
    objects.add_tag("alert", _text(operation, "tag"))


def _mark_alert_as_read(objects: Objects, operation: Operation) -> None:
    alert = objects.alert(operation)
    if alert.status in ("New", "Updated"):
        objects.change("alert", status="Ignored" if alert.case is None else "Imported")


def _add_tag_to_case(objects: Objects, operation: Operation) -> None:
    objects.case(operation)
    objects.add_tag("case", _text(operation, "tag"))


def _add_tag_to_artifact(objects: Objects, operation: Operation) -> None:
    objects.artifact(operation)
    objects.add_tag("case_artifact", _text(operation, "tag"))


def _create_task(objects: Objects, operation: Operation) -> None:
    case = objects.case(operation)
    task = TaskInput(title=_text(operation, "title"), description=_text(operation, "description", default=""))
    cases.new_task(objects.tx, case, task, objects.place.user, objects.place.now)


def _close_task(objects: Objects, operation: Operation) -> None:
    objects.task(operation)
    objects.change("case_task", status="Completed")


def _add_log_to_task(objects: Objects, operation: Operation) -> None:
    task, content = objects.task(operation), _text(operation, "content")
    cases.new_log(objects.tx, task, LogInput(message=content), objects.place.user, objects.place.now)
    if task.status == "Waiting":  # the log has begun it
        objects.forget("case_task")


def _add_custom_fields(objects: Objects, operation: Operation) -> None:
    name, kind = _text(operation, "name"), _text(operation, "tpe")
    if objects.place.kind == "alert" and objects.alert(operation).case is None:
        objects.set_field("alert", name, kind, operation.get("value"))
        return
    objects.case(operation)
    objects.set_field("case", name, kind, operation.get("value"))


def _add_artifact_to_case(objects: Objects, operation: Operation) -> None:
    case = objects.case(operation)
    known = {key: value for key, value in operation.items() if key != "type"}
    try:
        artifact = TypeAdapter(ArtifactInput).validate_python(known)
    except ValidationError as error:
        first = error.errors()[0]
        raise ResponderBotError(
            "bad_request", f"The artifact's {first['loc'][-1]} is wrong: {first['msg']}."
        ) from error
    cases.new_artifact(objects.tx, case, artifact, objects.place.user, objects.place.now)


def _assign_case(objects: Objects, operation: Operation) -> None:
    objects.case(operation)
    objects.change("case", owner=_text(operation, "owner"))


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


def _text(operation: Operation, key: str, default: str | None = None) -> str:
    value = operation.get(key, default)
    if not isinstance(value, str) or (not value and default is None):
        raise ResponderBotError("bad_request", f"The operation {operation['type']} needs a text in {key!r}.")
    return value


def _without(operation: Operation, what: str) -> ResponderBotError:
    return ResponderBotError("bad_request", f"Unable to apply action {operation['type']} without {what}")
