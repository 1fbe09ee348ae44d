"""The object that a responder runs on, with the levels that count and the JSON that the responder gets."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from core.common.database import Reads, Row
from core.common.errors import Code, ResponderBotError
from core.models import KINDS, OBJECT_TYPES, Alert, Kind
from core.records import artifacts
from core.records.writes import number_of
from core.store import objects

_MISSING: Mapping[Kind, str] = {
    "alert": "Alert not found",
    "case": "Case not found",
    "case_task": "Task not found",
    "case_task_log": "Log not found",
    "case_artifact": "Artifact not found",
}


@dataclass(frozen=True)
class Target:
    """An object that a responder runs on.

    `tlp` and `pap` are the levels that count: a task and a log have those of their case, an artifact its own TLP and
    the PAP of its case or, without one, its alert (core/docs/semantics.md#levels-that-count).
    """

    kind: Kind
    id: int
    root_id: int
    """The number of the alert or case that it belongs to."""
    tlp: int
    pap: int
    json: Mapping[str, Any]
    """As the interface shows it, with its parents (core/docs/semantics.md#what-a-responder-gets)."""
    data_type: str = ""
    """Of an artifact, such as `ip`."""

    @property
    def object_type(self) -> str:
        return OBJECT_TYPES[self.kind]


def applies(data_types: Iterable[str], kind: Kind, data_type: str = "") -> bool:
    """Whether a responder is for this kind of object, or for artifacts of this data type.

    Case and product prefix (`thehive:`) don't count; data types have no prefix.
    """
    of_data = data_type.lower()
    if of_data in KINDS or ":" in of_data:
        of_data = ""
    names = [name.lower() for name in data_types]
    return any(name.rpartition(":")[2] == kind or (of_data and name == of_data) for name in names)


def parse_kind(text: str) -> Kind:
    """The kind that a path names, as in requests (`alert`) or as in answers (`Alert`).

    Raises ResponderBotError("not_found").
    """
    for kind in KINDS:
        if text in (kind, OBJECT_TYPES[kind]):
            return kind
    raise ResponderBotError("not_found", f"There is no kind of object {text!r}; kinds are {', '.join(KINDS)}.")


def load(reads: Reads, kind: Kind, object_id: int | None, *, on_run: bool = False) -> Target:
    """The object of that kind and number.

    Raises ResponderBotError("not_found"). With `on_run` also if the object or its case is deleted, and
    "log_not_found" for a missing log, which has an error type of its own then.
    """
    if kind == artifacts.KIND and object_id is not None:
        target = _artifact(reads, object_id)
    else:
        row = None if object_id is None else objects.find(reads, kind, object_id)
        if row is None:
            code: Code = "log_not_found" if on_run and kind == "case_task_log" else "not_found"
            raise ResponderBotError(code, _MISSING[kind])
        target = _LOADERS[kind](reads, row)
    if on_run:
        _refuse_deleted(target)
    return target


def of_action(reads: Reads, row: Row) -> tuple[Target, str]:
    """The object that a stored action runs on, and `""`.

    An alert's artifact may have been removed since: then it has nothing but its id, and the text says so.
    """
    try:
        return load(reads, row["kind"], row["object_id"]), ""
    except ResponderBotError as error:
        if error.code != "not_found":
            raise
        number = row["object_id"]
        ids = {"_id": f"~{number}", "id": f"~{number}"}
        reason = f"~{number} was removed from its alert, so nothing ran on it; add it again if that was a mistake."
        return Target(row["kind"], number, row["root_id"] or number, 0, 0, ids), reason


def _refuse_deleted(target: Target) -> None:
    """A deleted object can be read and opened again, but no responder may act on it or on what belongs to it."""
    doc: Any = target.json
    while isinstance(doc, Mapping):  # an imported alert only has the id of its case, and doesn't belong to it
        if doc.get("status") == "Deleted":
            what = _MISSING[doc["_type"]].removesuffix(" not found")
            raise ResponderBotError("not_found", f"{what} {doc['id']} is deleted; open it again to run a responder.")
        doc = doc.get("case_task") or doc.get("case")


def existing(reads: Reads, kind: Kind, object_id: int | None) -> int:
    """The number, if there is such an object, without reading it. Raises ResponderBotError("not_found").

    Of an artifact it is the one that it has now, also if its alert doesn't have it any more.
    """
    if kind == artifacts.KIND and object_id is not None:
        object_id = artifacts.current_number(reads, object_id)
        if object_id is not None:
            return object_id
    if object_id is None or not objects.exists(reads, kind, object_id):
        raise ResponderBotError("not_found", _MISSING[kind])
    return object_id


def _alert(reads: Reads, row: Row) -> Target:
    doc = objects.parsed(row["doc"])
    return Target("alert", row["id"], row["id"], doc["tlp"], doc["pap"], doc)


def _case(reads: Reads, row: Row) -> Target:
    doc = objects.parsed(row["doc"])
    return Target("case", row["id"], row["id"], doc["tlp"], doc["pap"], doc)


def _task(reads: Reads, row: Row) -> Target:
    case = load(reads, "case", row["parent_id"])
    doc = {**objects.parsed(row["doc"]), "case": case.json}
    return Target("case_task", row["id"], case.root_id, case.tlp, case.pap, doc)


def _log(reads: Reads, row: Row) -> Target:
    task = load(reads, "case_task", row["parent_id"])
    doc = {**objects.parsed(row["doc"]), "case_task": task.json}
    return Target("case_task_log", row["id"], task.root_id, task.tlp, task.pap, doc)


def _artifact(reads: Reads, object_id: int) -> Target:
    stored = artifacts.load(reads, object_id)
    artifact, parent_kind = stored.artifact, "case" if stored.alert is None else "alert"
    parent = load(reads, "case", stored.case_id) if stored.alert is None else _of_alert(stored.alert)
    shown = {**from_json(artifact.to_json()), parent_kind: parent.json}
    return Target(
        "case_artifact", number_of(artifact), parent.root_id, artifact.tlp, parent.pap, shown, artifact.data_type
    )


def of_alert_artifact(alert: Mapping[str, Any], artifact: Mapping[str, Any], pap: int) -> Target:
    """An artifact that an alert's JSON shows, with the PAP that counts for it."""
    number = int(alert["id"][1:])
    shown, kind = {**artifact, "alert": alert}, artifacts.KIND
    return Target(kind, int(artifact["id"][1:]), number, artifact["tlp"], pap, shown, artifact["dataType"])


def _of_alert(alert: Alert) -> Target:
    number = number_of(alert)
    return Target("alert", number, number, alert.tlp, alert.pap, from_json(alert.to_json()))


_LOADERS: Mapping[Kind, Callable[[Reads, Row], Target]] = {
    "alert": _alert,
    "case": _case,
    "case_task": _task,
    "case_task_log": _log,
}
