"""The objects that a slice of operations changes, each read once and saved once."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar

from core.common.database import Transaction
from core.common.errors import ResponderBotError
from core.models import Alert, Artifact, ArtifactInput, Case, Kind, StoredModel, Task, number_of
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
