"""What a page of core's event feed says."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.models import Event


@dataclass(frozen=True)
class FeedChanges:
    """The ids that a page names, each once, in the order of the feed. A root is an alert or a case."""

    created_alerts: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    actions: tuple[tuple[str, str], ...] = ()  # action, root
    ended: frozenset[str] = frozenset()  # actions
    changed: frozenset[str] = frozenset()  # roots that changed themselves, and not only their actions
    logs: tuple[tuple[str, str], ...] = ()  # task log, case

    @staticmethod
    def of(events: Sequence[Event]) -> "FeedChanges":
        return FeedChanges(
            created_alerts=_unique(e.object_id for e in events if e.type == "alert.created"),
            roots=_unique(e.root_id for e in events if e.type != "case_template.created"),
            actions=tuple(dict.fromkeys((e.object_id, e.root_id) for e in events if e.object_type == "Action")),
            ended=frozenset(e.object_id for e in events if e.type == "action.ended"),
            changed=frozenset(e.root_id for e in events if e.object_type != "Action"),
            logs=tuple(dict.fromkeys((e.object_id, e.root_id) for e in events if e.type == "case_task_log.created")),
        )


def _unique(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))
