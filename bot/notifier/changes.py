"""What pages of core's event feed say."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.models import NEW_ALERT, RAISED_ALERT, BulkCounts, Document, Event, EventPage

WITHOUT_DOCUMENT = "CaseTemplate"
MAX_HELD = 500  # events
PROGRESS = ("action.created", "action.updated")  # more is likely to follow soon


@dataclass(frozen=True)
class FeedChanges:
    """The ids that events name, each once, in the order of the feed. A root is an alert or a case."""

    created_alerts: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    raised: frozenset[str] = frozenset()  # alerts whose source says that they are more severe
    actions: tuple[tuple[str, str], ...] = ()  # action, root
    acted_on: frozenset[str] = frozenset()  # roots with such actions, but for new alerts
    ended: frozenset[str] = frozenset()  # actions
    changed: frozenset[str] = frozenset()  # roots that changed themselves, and not only their actions
    deleted: frozenset[str] = frozenset()  # roots
    logs: tuple[tuple[str, str], ...] = ()  # task log, case
    request_ids: Mapping[str, Mapping[str, None]] = field(default_factory=dict)  # by root: behind these events

    def actions_of(self, root_id: str) -> list[str]:
        return [action_id for action_id, of_root in self.actions if of_root == root_id]

    @staticmethod
    def of(events: Sequence[Event]) -> "FeedChanges":
        created_alerts = _unique(e.object_id for e in events if e.type == NEW_ALERT)
        return FeedChanges(
            created_alerts=created_alerts,
            roots=_unique(e.root_id for e in events if e.object_type != WITHOUT_DOCUMENT),
            raised=frozenset(e.object_id for e in events if e.type == RAISED_ALERT),
            actions=tuple(dict.fromkeys((e.object_id, e.root_id) for e in events if e.object_type == "Action")),
            acted_on=frozenset(e.root_id for e in events if e.object_type == "Action").difference(created_alerts),
            ended=frozenset(e.object_id for e in events if e.type == "action.ended"),
            changed=frozenset(e.root_id for e in events if e.object_type != "Action"),
            deleted=frozenset(e.root_id for e in events if e.type in ("alert.deleted", "case.deleted")),
            logs=tuple(dict.fromkeys((e.object_id, e.root_id) for e in events if e.type == "case_task_log.created")),
            request_ids=_request_ids(events),
        )


@dataclass
class ReadDocument:
    """A document, and the newest event that all of it reflects."""

    document: Document
    as_of: int


@dataclass
class HeldEvents:
    """Events that were read and are not committed yet, with the newest documents of what they are about."""

    events: list[Event] = field(default_factory=list)
    documents: dict[str, ReadDocument] = field(default_factory=dict)
    bulks: dict[str, tuple[BulkCounts, int]] = field(default_factory=dict)  # and the event that they reflect
    last: int | None = None
    """Number of the last event that was read."""
    commit_at: float | None = None
    """On the loop's clock: when to commit them at the latest; None: nothing is held."""

    def add(self, page: EventPage) -> None:
        self.events += page.events
        self.last = page.last
        self.bulks |= {bulk.id: (bulk, page.as_of or page.last) for bulk in page.bulks or ()}
        for document in page.documents or ():
            read, earlier = ReadDocument(document, page.as_of or page.last), self.documents.get(document.id)
            if earlier is not None:  # a page has only the parts that its own events name
                read = ReadDocument(merge(earlier.document, document), min(earlier.as_of, read.as_of))
            self.documents[document.id] = read

    def is_due(self, now: float) -> bool:
        """Whether to commit them: progress, and new alerts with it, may wait to be shown with what is to follow."""
        if self.commit_at is None:
            return False
        types = {event.type for event in self.events}
        is_progress = not types.isdisjoint(PROGRESS) and types <= {*PROGRESS, NEW_ALERT}
        return now >= self.commit_at or not is_progress or len(self.events) >= MAX_HELD


def has_new_alerts(page: EventPage) -> bool:
    return any(event.type == NEW_ALERT for event in page.events)


def merge(earlier: Document, later: Document) -> Document:
    """One document of two responses that each have a part of it: the later one, with what only the earlier one has."""

    def both(name: str) -> list[Any]:
        of_later = getattr(later, name)
        known = {part.id for part in of_later}
        return [*of_later, *(part for part in getattr(earlier, name) if part.id not in known)]

    actions = both("actions")
    only_earlier = {action.id for action in actions} - {action.id for action in later.actions}

    def of_both(name: str) -> dict[str, Any]:
        of_earlier = {id: value for id, value in getattr(earlier, name).items() if id in only_earlier}
        return {**of_earlier, **getattr(later, name)}

    return later.model_copy(
        update={
            **{name: both(name) for name in ("tasks", "logs", "artifacts")},
            "actions": sorted(actions, key=lambda action: action.number, reverse=True),
            "action_counts": {**earlier.action_counts, **later.action_counts},
            "shortened": [*later.shortened, *only_earlier.intersection(earlier.shortened)],
            "unreadable": list(dict.fromkeys([*earlier.unreadable, *later.unreadable])),
            **{name: of_both(name) for name in ("asked", "may_decide")},
            "policies": {**earlier.policies, **later.policies},
            "titles": {**earlier.titles, **later.titles},
        }
    )


def _request_ids(events: Iterable[Event]) -> Mapping[str, Mapping[str, None]]:
    request_ids: dict[str, dict[str, None]] = {}
    for event in events:
        if event.request_id and event.object_type != WITHOUT_DOCUMENT:
            request_ids.setdefault(event.root_id, {})[event.request_id] = None
    return request_ids


def _unique(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))
