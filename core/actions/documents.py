"""Alerts and cases with all that their cards show, read at one moment (core/docs/http-interface.md#documents)."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Literal, get_args

from pydantic_core import from_json

from core.actions import bulks, decided, in_force, measures, rights
from core.actions.parts import Parts, Service
from core.authorization import Caller
from core.common.database import Reads, Row
from core.models import OBJECT_TYPES, Action, Event, Kind, number_of, parse_id, parse_ids
from core.records import artifacts
from core.records.clearance import level_of
from core.records.events import Feed
from core.reports import report as reports
from core.responders import target as targets
from core.responders.guards import Guards, RulesFor
from core.responders.registry import Registry
from core.store import actions as stored
from core.store import approvals as stored_approvals
from core.store import bulks as stored_bulks
from core.store import events as stored_events
from core.store import objects

LIMIT_CHARS = 4 * 1_048_576  # of a page, which ends after the event or id that reaches it
LISTED_CHARS = 524_288  # of the actions on one object that nothing names; the others have their reports compacted
LISTED_ACTIONS = 30  # a card has lines for half of them
MAX_ALERTS = 20  # of a case
MOST_COUNTED = 10_000
MOST_RAN = 50  # undos since a run was asked for that are compared with it

Part = Literal["case_task", "case_task_log", "case_artifact"]
_PARTS: tuple[tuple[Part, str], ...] = (
    ("case_task", "tasks"),
    ("case_task_log", "logs"),
    ("case_artifact", "artifacts"),
)
_PART_OF: dict[str, Part] = {OBJECT_TYPES[kind]: kind for kind, _ in _PARTS}
ById = Literal[
    "asked", "already", "decided", "mayDecide", "whyNotDecide", "responders", "artifactResponders", "alertsWith"
]
"""What a document says of single objects and actions, by their ids."""


class Documents(Service):
    """Reads documents, for pages of the event feed and by the ids of objects."""

    def __init__(self, parts: Parts, feed: Feed) -> None:
        super().__init__(parts)
        self._feed = feed

    async def page(self, caller: Caller, seq: int) -> bytes:
        """The JSON of an EventPage of the events after that number, with their documents.

        It ends early, by whole events, once its documents reach LIMIT_CHARS.
        """

        def read(reads: Reads) -> bytes:
            page, reader = self._feed.read(reads, seq), _DocumentReader(reads, self._registry, self._guards, caller)
            page_events: list[Event] = []
            for event in page.events:
                reader.add_event(event)
                page_events.append(event)
                if reader.chars >= LIMIT_CHARS:
                    break
            last = str(page_events[-1].seq if page_events else page.last)
            return self._answer(reads, reader, events=_array(event.to_json() for event in page_events), last=last)

        return await self._database.snapshot(read)

    async def of_ids(self, caller: Caller, ids: Sequence[str], *, with_responders: bool) -> bytes:
        """The JSON of a DocumentList, for ids of objects and actions.

        `with_responders` adds the responders for each object, as `caller` may run them. Raises as `parse_ids` does.
        """
        numbers = parse_ids(ids)

        def read(reads: Reads) -> bytes:
            reader = _DocumentReader(reads, self._registry, self._guards, caller)
            missing: list[str] = []
            left: Sequence[str] = ()
            for position, (text, number) in enumerate(numbers.items()):
                kind = reader.add(number)
                if kind is None:
                    missing.append(text)
                elif with_responders and kind != "action" and kind != "bulk":
                    reader.add_responders(kind, number, caller)
                if reader.chars >= LIMIT_CHARS:
                    left = [*numbers][position + 1 :]
                    break
            return self._answer(reads, reader, missing=json.dumps(missing), left=json.dumps(left))

        return await self._database.snapshot(read)

    def _answer(self, reads: Reads, reader: "_DocumentReader", **more: str) -> bytes:
        counts = bulks.read_counts(reads, self._registry, self._guards, reader.bulk_ids) if reader.bulk_ids else ()
        shown = {
            "asOf": str(stored_events.last(reads)),
            "database": json.dumps(self._feed.database_id),
            "documents": _array(map(self._json, reader.documents.values())),
            "bulks": _array(bulk.to_json() for bulk in counts),
        }
        return _object({**more, **shown}).encode()

    def _json(self, document: "_Document") -> str:
        names = sorted(document.responder_names)
        policies = {name: self._registry.policy(name).to_json() for name in names}
        titles = {name: json.dumps(self._registry.title(name)) for name in names}
        declared = {name: self._registry.input_titles(name) for name in names}
        inputs = {
            name: _array(title.to_json() for title in parameters) for name, parameters in declared.items() if parameters
        }
        others = sorted(document.others.keys() - document.parts[artifacts.KIND].keys())
        shown = {
            "id": f'"~{document.root_id}"',
            "deleted": json.dumps(document.is_deleted),
            **({document.kind: document.root} if document.kind else {}),
            **({} if document.case_tlp is None else {"caseTlp": str(document.case_tlp)}),
            "alertIds": _ids(document.alert_ids[:MAX_ALERTS]),
            "alertCount": str(len(document.alert_ids)),
            "isComplete": json.dumps(document.is_complete),
            **{name: _array(document.parts[kind].values()) for kind, name in _PARTS},
            "otherArtifacts": _array(document.others[number] for number in others),
            "alertArtifacts": _array(document.of_alerts),
            "actions": _array(document.actions[number] for number in sorted(document.actions, reverse=True)),
            "actionCounts": _object({f"~{number}": str(count) for number, count in document.counts.items()}),
            "shortened": _ids(sorted(document.shortened, reverse=True)),
            "unreadable": _ids(document.unreadable),
            "policies": _object(policies),
            "titles": _object(titles),
            "inputs": _object(inputs),
            **{name: _object(texts) for name, texts in document.by_id.items()},
        }
        return _object(shown)


@dataclass
class _Document:
    """What is known of one root, as JSON texts by number."""

    root_id: int
    kind: Literal["alert", "case", ""] = ""
    root: str = ""
    is_deleted: bool = True
    case_tlp: int | None = None
    """Of an alert in a case: that of the case."""
    alert_ids: Sequence[int] = ()
    is_complete: bool = True
    """Whether all artifacts that its texts may repeat are known."""
    parts: dict[Part, dict[int, str]] = field(default_factory=lambda: {kind: {} for kind, _ in _PARTS})
    others: dict[int, str] = field(default_factory=dict)
    """The artifacts of a case or of an alert's case; `parts` may have some as well."""
    of_alerts: list[str] = field(default_factory=list)
    """Of a case: the artifacts of its alerts that it doesn't have."""
    actions: dict[int, str] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    shortened: set[int] = field(default_factory=set)
    """Actions whose report, operations or parameters are not whole."""
    compacted: set[int] = field(default_factory=set)
    """Those of them that listings show in more detail."""
    unreadable: dict[int, None] = field(default_factory=dict)
    """Objects and actions whose stored JSON is damaged."""
    by_id: dict[str, dict[str, str]] = field(default_factory=lambda: {name: {} for name in get_args(ById)})
    responder_names: set[str] = field(default_factory=set)


class _DocumentReader:
    """The documents of one snapshot of the database, each read when something first names it."""

    def __init__(self, reads: Reads, registry: Registry, guards: Guards, caller: Caller) -> None:
        self._reads = reads
        self._registry = registry
        self._guards = guards
        self._caller = caller
        self._sees_up_to = caller.sees_up_to
        self._deciders: dict[tuple[object, ...], str] = {}
        self._by_artifact: dict[int, Mapping[int, tuple[int, int]]] = {}  # alerts with each, by case
        self._covered: dict[int, Mapping[int, Set[int]]] = {}  # alerts by the run that covers them, by bulk
        self.documents: dict[int, _Document] = {}
        self.chars = 0
        """The length of all JSON read so far."""
        self.bulk_ids: set[int] = set()
        """The bulks that were named, those of the actions that were named, and those with runs on what has changed."""

    @cached_property
    def _recent_runs(self) -> Mapping[str, int]:
        return stored.recent_runs(self._reads)

    def add_event(self, event: Event) -> None:
        """Add the object of an event. Case templates have no document."""
        if event.object_type == "CaseTemplate":
            return
        number, root_id = number_of(event.object_id), number_of(event.root_id)
        document, bulk_ids = self._document(root_id), stored_bulks.told_of(self._reads, root_id)
        self.bulk_ids.update(bulk_ids)
        if event.object_type == "Action":
            self._add_action(document, number)
            row = stored.find(self._reads, number)
            if row is not None and row["kind"] == artifacts.KIND:
                self._add_alerts_with(row["object_id"], number)
        elif event.object_type in _PART_OF and document.kind == "case":
            self._add_part(document, _PART_OF[event.object_type], number)
        for action_id, alert_ids in chain(*(self._covered_in(bulk_id).items() for bulk_id in bulk_ids)):
            left = from_json(document.actions.get(action_id, "{}")).get("measure")
            is_shown = left is not None and (left["state"] != "ended" or action_id == number)
            for alert_id in alert_ids if is_shown else ():  # whose cards say so, as far as this one's level allows
                self._document(alert_id)

    def _covered_in(self, bulk_id: int) -> Mapping[int, Set[int]]:
        """The runs of a bulk that cover other alerts of it, each with these."""
        if bulk_id not in self._covered:
            covered = self._covered[bulk_id] = defaultdict[int, set[int]](set)
            for one in stored_bulks.targets_of(self._reads, bulk_id):
                if one.get("covered_by") and one["objectType"] == "alert":
                    covered[one["covered_by"]].add(number_of(one["objectId"]))
        return self._covered[bulk_id]

    def _put_covering(self, document: _Document) -> None:
        """Add what runs on other alerts have in force for this one too."""
        all_covered = map(self._covered_in, stored_bulks.refused_on(self._reads, document.root_id))
        by = [id_ for covered in all_covered for id_, alert_ids in covered.items() if document.root_id in alert_ids]
        with suppress(ValueError):  # an alert that has them is damaged
            found = [one for id_ in by for one in measures.of_run(self._reads, id_, self._sees_up_to, self._registry)]
            if found:
                self._put(document, "already", f"~{document.root_id}", _array(one.to_json() for one in found))

    def _add_alerts_with(self, artifact_id: int, action_id: int) -> None:
        """Add the alerts that have an artifact: the action on it shows there as well as in its case."""
        for number in objects.alerts_with(self._reads, artifact_id)[:MAX_ALERTS]:
            self._add_action(self._document(number), action_id)

    def add(self, number: int) -> Kind | Literal["action", "bulk"] | None:
        """Add an object, an action or a bulk. Returns its kind; None if there is none that documents show."""
        row = objects.find_any(self._reads, number)
        stored_artifact = artifacts.find(self._reads, number) if row is None else None
        if stored_artifact is not None:
            self._add_artifact(number)
            return artifacts.KIND
        if row is None:
            action = stored.find_shown(self._reads, number)
            if action is None:
                if stored_bulks.find(self._reads, number) is None:
                    return None
                self.bulk_ids.add(number)
                return "bulk"
            self._add_action(self._document(action["root_id"]), number)
            return "action"
        kind: Kind | None = next((known for known in OBJECT_TYPES if known == row["kind"]), None)
        if kind in ("alert", "case"):
            self._document(number)
        elif kind is not None:
            target = targets.load(self._reads, kind, number)
            self._add_part(self._document(target.root_id), kind, number)  # type: ignore[arg-type]
        return kind

    def _add_artifact(self, number: int) -> None:
        """Add an artifact of an alert, by its id now or an earlier one."""
        target = targets.load(self._reads, artifacts.KIND, number)
        document = self._document(target.root_id)
        if document.kind == "case":
            self._add_part(document, artifacts.KIND, target.id)

    def add_responders(self, kind: Kind, number: int, caller: Caller) -> None:
        """Add the responders for an object that has been added, with those that can't run on it and why."""
        target = targets.load(self._reads, kind, number)
        rules = RulesFor(self._guards, self._reads, caller.login)
        explained = rights.explained(self._reads, self._registry, rules, caller, target, self._recent_runs)
        document = self.documents[target.root_id]
        self._put(document, "responders", f"~{number}", _array(offered.to_json() for offered in explained))
        if kind == "alert" and '"case_artifact"' in document.root:
            self._add_artifact_responders(document, caller, rules)

    def _add_artifact_responders(self, document: _Document, caller: Caller, rules: RulesFor) -> None:
        """Add the names of the responders that `caller` can run on each artifact of an alert."""
        alert = from_json(document.root)
        case, in_case = self._artifacts_in_case(alert)
        by_levels: dict[tuple[str, int, int, int], list[str]] = {}
        for artifact in alert["artifacts"]:
            target = targets.of_artifact(artifact, case if artifact["id"] in in_case else alert)
            levels = target.tlp, target.pap
            key = target.data_type, *levels, target.clearance
            if key not in by_levels:
                may_run = caller.may("manageAction") and not caller.why_not_cleared(target.clearance)
                by_levels[key] = self._registry.names_for(target.kind, target.data_type, *levels) if may_run else []
            named = targets.named_by(artifact)
            names = [one for one in by_levels[key] if named is not None and not self._registry.why_not_on(one, named)]
            self._put(document, "artifactResponders", artifact["id"], json.dumps(rules.allowed(names, target)))

    def _artifacts_in_case(self, alert: Mapping[str, Any]) -> tuple[Mapping[str, Any], set[str]]:
        """An alert's case, and the ids of the artifacts that belong to it as well."""
        case_id = parse_id(alert["case"] or "")
        case = None if case_id is None else objects.find(self._reads, "case", case_id)
        if case is None:
            return {}, set()
        ids = [number_of(artifact["id"]) for artifact in alert["artifacts"]]
        known = objects.existing(self._reads, artifacts.KIND, ids)
        return objects.parsed(case["doc"]), {f"~{number}" for number in known}

    def _document(self, root_id: int) -> _Document:
        if root_id in self.documents:
            return self.documents[root_id]
        document = self.documents[root_id] = _Document(root_id)
        row = objects.find_any(self._reads, root_id)
        if row is None or row["kind"] not in ("alert", "case"):
            return document
        document.is_deleted = False
        root = self._read(document, row)
        if root is not None:
            document.kind, document.root = row["kind"], row["doc"]
            document.is_deleted = row["kind"] == "case" and root.get("status") == "Deleted"
        if row["kind"] == "case":
            document.alert_ids = objects.alerts_of(self._reads, root_id, MOST_COUNTED)
        self._list_actions(document, row["kind"], root_id)
        if document.kind == "alert":
            numbers = [number_of(artifact["id"]) for artifact in root.get("artifacts", ())]
            self._list_actions_on_artifacts(document, numbers)
            self._put_covering(document)
            case_id = parse_id(root.get("case") or "")
            if case_id is not None:
                document.case_tlp = level_of(self._reads, case_id)
            self._add_others(document, case_id, but=set(numbers))
        elif document.kind == "case":
            self._add_others(document, root_id)
            self._add_of_alerts(document)
            for number, (_, alerts) in self._alerts_with(root_id).items():
                self._put(document, "alertsWith", f"~{number}", str(alerts))
            for number in stored.newest_on_artifacts(self._reads, root_id, LISTED_ACTIONS):
                self._add_action(document, number, is_named=False)
        return document

    def _read(self, document: _Document, row: Row) -> Any:
        """The JSON of a row; None if it is damaged, which must not spoil the page for all."""
        self.chars += len(row["doc"])
        doc = None
        with suppress(ValueError):
            doc = from_json(row["doc"])
        if not isinstance(doc, dict):
            document.unreadable[row["id"]] = None
            return None
        return doc

    def _add_part(self, document: _Document, kind: Part, number: int) -> None:
        """Add a task, a log or an artifact, with the actions on it."""
        if number in document.parts[kind]:
            return
        row = objects.find(self._reads, kind, number)
        doc = None if row is None else self._read(document, row)
        if row is not None and doc is not None:
            of_case = kind == artifacts.KIND
            document.parts[kind][number] = self._artifact(doc, row, document.root_id) if of_case else row["doc"]
            self._list_actions(document, kind, number)

    def _artifact(self, doc: Mapping[str, Any], row: Row, case_id: int) -> str:
        """The JSON of an artifact of a case: where alerts have it as well, the highest TLP of all counts."""
        level, _ = self._alerts_with(case_id).get(row["id"], (0, 0))
        return row["doc"] if doc.get("tlp", 0) >= level else json.dumps({**doc, "tlp": level})

    def _alerts_with(self, case_id: int) -> Mapping[int, tuple[int, int]]:
        """The highest TLP of the alerts that have each artifact of a case, and how many do."""
        if case_id not in self._by_artifact:
            self._by_artifact[case_id] = objects.alerts_by_artifact(self._reads, case_id)
        return self._by_artifact[case_id]

    def _add_others(self, document: _Document, case_id: int | None, *, but: Collection[int] = ()) -> None:
        """Add the artifacts of a case to those that texts of the document may repeat."""
        if case_id is None:
            return
        for part in objects.children(self._reads, artifacts.KIND, case_id):
            if part["id"] not in but and (doc := self._read(document, part)) is not None:
                document.others[part["id"]] = self._artifact(doc, part, case_id)

    def _add_of_alerts(self, document: _Document) -> None:
        """Add the artifacts of its alerts that a case doesn't have, each as high as its alert at least."""
        rows = objects.alerts_with_others(self._reads, document.root_id, MAX_ALERTS + 1)
        alerts = [self._read(document, row) for row in rows[:MAX_ALERTS]]
        document.is_complete &= len(rows) <= MAX_ALERTS and None not in alerts
        for alert in filter(None, alerts):
            for artifact in alert.get("artifacts", ()):
                if number_of(artifact["id"]) not in document.others:
                    level = max(artifact.get("tlp", 0), alert.get("tlp", 0))
                    document.of_alerts.append(json.dumps({**artifact, "tlp": level}, ensure_ascii=False))

    def _list_actions_on_artifacts(self, document: _Document, numbers: Sequence[int]) -> None:
        """The actions on an alert's artifacts, which are in the alert's own JSON."""
        if not numbers:
            return
        rows, counts = stored.shown_on_artifacts(self._reads, numbers, LISTED_ACTIONS)
        document.counts |= {number: counts.get(number, 0) for number in numbers}
        self._put_actions(document, rows)

    def _list_actions(self, document: _Document, kind: str, number: int) -> None:
        rows, document.counts[number] = stored.shown_of(self._reads, kind, number, LISTED_ACTIONS)
        self._put_actions(document, rows)

    def _put_actions(self, document: _Document, rows: Iterable[Row]) -> None:
        """Add the actions of a list."""
        left = LISTED_CHARS
        for row in rows:
            left -= len(row["doc"])
            if row["id"] not in document.actions:
                self._put_action(document, row, is_compacted=left < 0)

    def _add_action(self, document: _Document, number: int, *, is_named: bool = True) -> None:
        """Add an action and its object; a named one in full, as listings show it."""
        row = stored.find_shown(self._reads, number)
        if row is None:
            return
        if is_named and row["bulk_id"] is not None:
            self.bulk_ids.add(row["bulk_id"])
        if document.kind == "case" and row["kind"] in document.parts:
            self._add_part(document, row["kind"], row["object_id"])
        if is_named and (number not in document.actions or number in document.compacted):
            self._put_action(document, row, is_compacted=False)

    def _put_action(self, document: _Document, row: Row, *, is_compacted: bool) -> None:
        number, text = row["id"], row["doc"]
        try:
            text = reports.compact(text) if is_compacted else text
            doc = from_json(text)
            undo = doc.get("undo") or {}
            extension = undo.get("extension") or {"outcome": ""}
            if (doc.get("approval") and doc["status"] == "Waiting") or "outcome" not in extension:
                self._put_decision(document, number)
            if (doc.get("measure") or {}).get("state", "ended") != "ended":
                self._put_already(document, Action.model_validate_json(text))
        except (ValueError, TypeError, KeyError, AttributeError):
            document.unreadable[number] = None
            return
        is_compacted = text != row["doc"]
        self.chars += len(text)
        document.actions[number] = text
        document.responder_names |= {row["responder_name"], undo.get("responder", row["responder_name"])}
        for numbers, is_in in (
            (document.compacted, is_compacted),
            (document.shortened, is_compacted or row["is_cut"]),
        ):
            (numbers.add if is_in else numbers.discard)(number)

    def _put_already(self, document: _Document, action: Action) -> None:
        before = measures.already(self._reads, action, self._sees_up_to, self._registry)
        if action.approval is not None and action.status == "Waiting":
            undo, since = in_force.what_undoes(action), action.created_at
            ran = in_force.known(stored.dispatched_since(self._reads, undo, since, MOST_RAN)) if action.undo else []
            asked = in_force.waiting_on(self._reads, stored.targets_of(self._reads, action.number))
            before += measures.beside(self._reads, action, [*ran, *asked], self._sees_up_to, self._registry)
        self._put(document, "already", action.id, _array(one.to_json() for one in before))

    def _put_decision(self, document: _Document, number: int) -> None:
        """Add who may decide on a run that waits for approval, or on its extension, and what they decide by.

        That is what an alert's run gets, what is in force on its targets, and who denied or undid the same before.
        """
        row, approval = stored.find(self._reads, number), stored_approvals.waiting_of(self._reads, number)
        if row is None or approval is None:
            return
        if approval.is_of_run and row["kind"] == "alert":
            asked = targets.asked_artifacts(self._reads, row)
            self._put(document, "asked", f"~{number}", json.dumps(asked, ensure_ascii=False))
        action = Action.model_validate_json(row["doc"])
        if approval.is_of_run:
            digests, undo = in_force.digests_of(action.object_id, action.target or ()), in_force.what_undoes(action)
            deed = decided.Deed(action.responder_name, undo, row["object_id"], digests, action.created_at)
            found = decided.before(self._reads, deed, self._sees_up_to)
            self._put(document, "decided", action.id, _array(one.to_json() for one in found))
        clearance = level_of(self._reads, number)
        if clearance > self._sees_up_to:  # the key of the reader, with which they would decide, binds them too
            return
        if approval.is_of_run:
            self._put_already(document, action)
        # The runs of a bulk, up to a hundred, differ in nothing that counts here.
        key = row["responder_name"], approval.asked_by, clearance, action.override is not None, *approval.approved_by
        if key not in self._deciders:
            people = rights.who_may_decide(self._reads, self._guards, action, approval, clearance)
            self._deciders[key] = _array(person.to_json() for person in people)
        self._put(document, "mayDecide", f"~{number}", self._deciders[key])
        if self._caller.is_on_behalf:
            why_not = rights.why_not_decide(self._reads, self._guards, self._caller, action, approval)
            self._put(document, "whyNotDecide", f"~{number}", json.dumps(why_not))

    def _put(self, document: _Document, name: ById, id_: str, text: str) -> None:
        document.by_id[name][id_] = text
        self.chars += len(text)


def _ids(numbers: Iterable[int]) -> str:
    return json.dumps([f"~{number}" for number in numbers])


def _object(parts: Mapping[str, str]) -> str:
    """A JSON object of JSON texts."""
    return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{text}" for key, text in parts.items()) + "}"


def _array(texts: Iterable[str]) -> str:
    return "[" + ",".join(texts) + "]"
