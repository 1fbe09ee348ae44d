"""What a run leaves in force: from its dispatch until it is undone (core/docs/in-force.md#measures)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from core.actions import undo_state
from core.audit import trail
from core.authorization import Caller
from core.common.database import Reads, Row, Transaction
from core.models import Action, MeasureOfRun, Outcome, TargetArtifact
from core.protection import BLOCK, Parsed, look_of
from core.records import block_readers
from core.responders import target as targets
from core.responders.guards import time_text
from core.responders.target import Target
from core.settings import OWN_ENGINE, ResponderSection
from core.store import actions as stored_actions
from core.store import measures as stored

FOR_EVER = 2**62


def begin(tx: Transaction, action: Action, row: Row, section: ResponderSection, target: Target, now: int) -> None:
    """Note that a run which contains something begins to."""
    kind = action.undo.responder if action.undo else action.responder_name if section.contains else ""
    if not kind or action.undoes is not None:
        return
    values = {"action_id": row["id"], "kind": kind, "root_id": row["root_id"], "state": "starting", "since": now}
    named = targets.acted_on(action, target)
    possible = [targets.named_by(item) for item in target.json.get("artifacts", ())] if action.target is None else []
    names = _names(action, target)
    stored.insert(tx, values, names, {one.digest for one in possible if one is not None} - names)
    stored.insert_looks(tx, row["id"], [(one.digest, look_of(one)) for one in named])


State = Literal["in_force", "unknown"]


def state_at_end(measure: Row | None, outcome: Outcome, *, is_known: bool) -> State | None:
    """What a run that has ended leaves; None for nothing."""
    if measure is None or (is_known and outcome != "succeeded"):
        return None
    return "in_force" if outcome == "succeeded" and not measure["is_crossed"] else "unknown"


def settle(tx: Transaction, measure: Row, state: State | None, ends_at: int | None) -> None:
    """Store what a run that has ended leaves."""
    if state:
        stored.set_state(tx, measure["action_id"], state, ends_at)
    else:
        stored.delete(tx, measure["action_id"])


def end_undone(tx: Transaction, row: Row, by: Action, target: Target, now: int) -> None:
    """End what a successful run undoes: all that its responder undoes on what it acted on.

    What began while it ran is unknown from then on.
    """
    named = None if row["undoes"] is None else stored_actions.find(tx, row["undoes"])
    if named is not None:
        end(tx, named, by.created_by, now, action_id=by.id)
    names = _names(by, target)
    for measure in stored.on(tx, row["responder_name"], names):
        undone = stored_actions.find(tx, measure["action_id"])
        if undone is None or not _covers(tx, row, names, undone):
            continue
        if measure["state"] == "starting":
            stored.cross(tx, undone["id"])
        elif measure["since"] <= (row["dispatched_at"] or 0) or undone["engine_name"] == OWN_ENGINE:
            end(tx, undone, by.created_by, now, action_id=by.id)
        else:
            doubt(tx, undone, measure["ends_at"], now)
    for measure in _alike(tx, row["responder_name"], targets.acted_on(by, target)):
        other = stored_actions.find(tx, measure["action_id"])
        if measure["state"] == "starting":
            stored.cross(tx, measure["action_id"])
        elif other is not None and other["engine_name"] != OWN_ENGINE:
            sentence = f"{by.id} undid what may be the same. Look at the target, then undo this or mark it as ended."
            doubt(tx, other, measure["ends_at"], now, sentence)


def undone_by(reads: Reads, responder_name: str, target: Target) -> list[Row]:
    """The rows of the runs whose effect a run of this responder on this target would end."""
    names = {f"object\0~{target.id}"} if target.acts_on is None else set()
    digests = {sha256(name.encode()).hexdigest() for name in names}
    digests |= {Parsed(one.kind, one.data.strip()).digest for one in target.acts_on or ()}
    found = (stored_actions.find(reads, row["action_id"]) for row in stored.on(reads, responder_name, digests))
    return [row for row in found if row is not None]


def _alike(reads: Reads, kind: str, named: Iterable[Parsed]) -> list[Row]:
    """The measures of this kind from runs that act on what may be the same as one of these."""
    return stored.alike(reads, kind, [(one.digest, look_of(one)) for one in named])


def end(
    tx: Transaction, row: Row, login: str, now: int, *, action_id: str | None, message: str | None = None
) -> Action:
    """Note that what a run left is no longer in force: it was undone by an action, or somebody says so (`message`)."""
    measure = stored.find(tx, row["id"])
    shown = None
    if measure is not None:
        shown = MeasureOfRun(state="ended", since=measure["since"], ended_at=now, ended_by=login, message=message)
    stored.delete(tx, row["id"])
    stored_actions.forget_target(tx, row["id"])
    changes = {"status": "undone", "at": None, "action_id": action_id, "message": message}
    entry = undo_state.Entry("measure.ended", by=trail.CORE if action_id else login, text=message, action=action_id)
    action = undo_state.save(tx, row, login, now, None, entry, measure=shown, **changes)
    if row["responder_name"] == BLOCK:
        block_readers.ended(tx, row["id"])
    return action


def doubt(tx: Transaction, row: Row, ends_at: int | None, now: int, message: str | None = None) -> None:
    """Note that nobody knows whether what a run left is in force; `message` is why, for its threads."""
    measure = stored.find(tx, row["id"])
    if measure is not None and measure["state"] != "unknown":
        stored.set_state(tx, row["id"], "unknown", ends_at)
        shown = MeasureOfRun(state="unknown", since=measure["since"], message=message)
        entry = undo_state.Entry("undo.doubted", text=message)
        undo_state.save(tx, row, row["created_by"], now, row["undo_at"], entry, measure=shown)


def doubt_all(tx: Transaction, now: int) -> None:
    """Note that nobody knows what is in force."""
    for measure in stored.all_of(tx):
        row = stored_actions.find(tx, measure["action_id"])
        if row is not None and row["engine_name"] != OWN_ENGINE:  # whose effect is what is in force
            doubt(tx, row, measure["ends_at"], now)


@dataclass(frozen=True)
class Holder:
    """Another run that keeps in force what this one left."""

    number: int
    is_settled: bool
    """False while it starts or is being undone."""
    is_whole: bool
    """Whether it keeps all of it, so that this one need not be undone by itself."""


def holder(reads: Reads, row: Row) -> Holder | None:
    """What keeps in force, for longer, what a run left; None if it decides itself when that ends."""
    own = stored.find(reads, row["id"])
    if own is None:
        return None
    names = stored.names_of(reads, row["id"])
    others = [other for other in stored.on(reads, own["kind"], names) if other["action_id"] != row["id"]]
    found: list[Holder] = []
    for other in others:
        number = other["action_id"]
        action = stored_actions.find(reads, number)
        is_open = other["state"] == "starting"
        if action is None or not (is_open or end_of(other) > end_of(own)):
            continue
        undo = Action.model_validate_json(action["doc"]).undo
        is_settled = not is_open and (undo is None or undo.status != "running")
        found.append(Holder(number, is_settled, _covers(reads, action, stored.names_of(reads, number), row)))
    return max(found, key=lambda one: (not one.is_settled, one.is_whole, one.number), default=None)


def lookalike(reads: Reads, row: Row) -> Row | None:
    """A measure that lasts longer and may be on the same as what a run left, or None."""
    own = stored.find(reads, row["id"])
    if own is None or row["target"] is None:
        return None
    target, _ = targets.of_action(reads, row)
    named = targets.acted_on(Action.model_validate_json(row["doc"]), targets.as_asked(row, target))
    others = (other for other in _alike(reads, own["kind"], named) if other["action_id"] != row["id"])
    later = [other for other in others if other["state"] == "starting" or end_of(other) > end_of(own)]
    return max(later, key=end_of, default=None)


class Lookalikes:
    """What is in force on what may be the same as a target, for somebody who is about to contain that."""

    def __init__(self, reads: Reads, caller: Caller) -> None:
        self._reads = reads
        self._sees_up_to = caller.sees_up_to
        self._by_look: dict[tuple[str, str], list[Row]] = {}
        for row in stored.looks(reads):
            self._by_look.setdefault((row["kind"], row["look"]), []).append(row)

    def sentences(self, kind: str, artifacts: Iterable[TargetArtifact], now: int) -> list[str]:
        """Such as `lt-0198 looks like LT-0198.corp.example, which ~12 has in force until 15:31 UTC`."""
        found: dict[int, str] = {}
        for artifact in artifacts if kind and self._by_look else ():
            named = Parsed(artifact.kind, artifact.data.strip())
            look = look_of(named)
            rows = [row for one in look.whole for row in self._by_look.get((kind, one), ())]
            rows += [row for one in look.label for row in self._by_look.get((kind, one), ()) if not row["is_label"]]
            for row in rows if artifact.kind != "file" else ():
                if row["name"] != named.digest:
                    found.setdefault(row["action_id"], self._sentence(artifact, row, now))
        return [sentence for _, sentence in sorted(found.items()) if sentence]

    def _sentence(self, artifact: TargetArtifact, look: Row, now: int) -> str:
        row, measure = stored_actions.find(self._reads, look["action_id"]), stored.find(self._reads, look["action_id"])
        if row is None or measure is None or targets.of_action(self._reads, row)[0].clearance > self._sees_up_to:
            return ""
        acted_on = Action.model_validate_json(row["doc"]).target or ()
        known = (one for one in acted_on if Parsed(one.kind, one.data.strip()).digest == look["name"])
        other = next((one.data for one in known if one.tlp <= self._sees_up_to), "")
        until = f" until {time_text(measure['ends_at'], now)}" if measure["ends_at"] is not None else ""
        return f"{artifact.data} looks like {other}, which ~{row['id']} has in force{until}" if other else ""


def _covers(reads: Reads, row: Row, names: frozenset[str], other: Row) -> bool:
    """Whether a run acts on all that another one, which left a measure, acts on; `names` are those of the first."""
    is_known = Action.model_validate_json(other["doc"]).target is not None
    return stored.names_of(reads, other["id"]) <= names and (is_known or targets.covers(row, other))


def end_of(measure: Row) -> tuple[int, int]:
    """When a measure ends, so that of several with the same end one is the last."""
    return (FOR_EVER if measure["ends_at"] is None else measure["ends_at"]), measure["action_id"]


@dataclass
class Group:
    """The measures that are one, since they are of one kind and act on the same."""

    rows: list[Row] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    @property
    def last(self) -> Row:
        """The one that ends last, and so decides when all of it ends."""
        return max(self.rows, key=end_of)


def groups(reads: Reads) -> Sequence[Group]:
    """All that is in force, by kind and what it acts on; oldest first."""
    names = stored.names_by_action(reads)
    found: list[Group] = []
    by_name: dict[tuple[str, str], Group] = {}
    for row in stored.all_of(reads):
        certain, _ = names.get(row["action_id"], (set(), set()))
        keys = [(row["kind"], name) for name in sorted(certain)]
        merged = Group([row], set(certain))
        for group in {id(group): group for key in keys if (group := by_name.get(key))}.values():
            merged = Group([*group.rows, *merged.rows], group.names | merged.names)
            found.remove(group)
        found.append(merged)
        by_name |= dict.fromkeys(((row["kind"], name) for name in merged.names), merged)
    return sorted(found, key=lambda group: min(row["action_id"] for row in group.rows))


def _names(action: Action, target: Target) -> frozenset[str]:
    """What a run acts on, as digests; its object, if nobody knows."""
    if action.target is None:
        return frozenset({sha256(f"object\0{action.object_id}".encode()).hexdigest()})
    return frozenset(one.digest for one in targets.acted_on(action, target))
