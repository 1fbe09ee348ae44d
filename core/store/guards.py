"""SQL for the rules of responders: runs that rates count."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from core.common.database import Reads


@dataclass(frozen=True)
class SameTarget:
    """Selects the actions on the same target as a run."""

    is_artifact: bool
    object_id: int
    names: Sequence[str]
    """The targets that an artifact names, as hashes; empty for other kinds."""
    roots: Sequence[int] = ()
    """For other kinds: the alerts and the case that count as one target."""


_SAME_TARGET = (
    " AND CASE WHEN :is_artifact = 1 THEN kind = 'case_artifact' AND (object_id = :object_id OR id IN"
    " (SELECT action_id FROM action_target WHERE target IN (SELECT value FROM json_each(:names))))"
    " ELSE kind <> 'case_artifact' AND root_id IN (SELECT CAST(value AS BIGINT) FROM json_each(:roots)) END"
)


def dispatched(
    reads: Reads, responder_name: str, since: int, until: int, limit: int, *, but: int, on: SameTarget | None = None
) -> list[int]:
    """The times of the newest dispatches of a responder, after `since` and up to `until` (ms), newest first.

    Excludes the action `but`; with `on` only those on that target.
    """
    return reads.column(
        "SELECT dispatched_at AS at FROM action WHERE responder_name = :name AND dispatched_at > :since"
        f" AND dispatched_at <= :until AND id <> :but{_SAME_TARGET if on else ''}"
        " ORDER BY dispatched_at DESC LIMIT :limit",
        {"name": responder_name, "since": since, "until": until, "limit": limit, "but": but, **_values(on)},
    )


def count_waiting(reads: Reads, responder_name: str, *, on: SameTarget | None = None) -> int:
    """How many runs of a responder wait for approval or for their engine."""
    return reads.number(
        "SELECT count(*) AS total FROM action WHERE status = 'Waiting' AND responder_name = :name"
        f" AND dispatched_at IS NULL{_SAME_TARGET if on else ''}",
        {"name": responder_name, **_values(on)},
    )


def _values(on: SameTarget | None) -> dict[str, object]:
    if on is None:
        return {}
    return {
        "is_artifact": on.is_artifact,
        "object_id": on.object_id,
        "names": json.dumps(list(on.names)),
        "roots": json.dumps(list(on.roots)),
    }
