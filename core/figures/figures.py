"""How long people took: from an alert to who works on it, to a run, to what contains it; and for approvals.

Counted in the transaction in which it happens (core/docs/stats.md).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, get_args

from core.common.clock import DAY_MS, Clock
from core.common.database import Database, Row, Transaction
from core.common.errors import bad_request
from core.figures import store as stored
from core.models import Figure
from core.store import objects

Kind = Literal["assigned", "first_run", "contained", "approved", "denied", "expired"]
KINDS: Sequence[Kind] = get_args(Kind)
By = Literal["day", "week", "source", "responder"]
MAX_DAYS = 400
WITHIN = tuple(stored.WITHIN_MS)
MONDAY = 4  # 5 January 1970, in days since 1970


def count_first(tx: Transaction, kind: Kind, alert_id: int, responder: str, now: int) -> None:
    """Count how long after an alert was created something happened for the first time; nothing for what is none."""
    row = objects.find(tx, "alert", alert_id) if stored.is_first(tx, alert_id, kind) else None
    if row is not None:
        alert = objects.parsed(row["doc"])
        stored.count(tx, kind, str(alert.get("source") or ""), responder, now - int(alert["createdAt"]), now)


def count_decision(tx: Transaction, kind: Kind, row: Row, now: int) -> None:
    """Count how long an action has waited for the decision that ends its wait."""
    stored.count(tx, kind, "", row["responder_name"], now - row["created_at"], now)


class Figures:
    """Reads what was counted."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def listed(self, since: int, until: int, by: str) -> Sequence[Figure]:
        """The figures of the days from `since` to `until` (ms), summed up by `by`, oldest first.

        Raises ResponderBotError("bad_request") for another `by`, and for more than MAX_DAYS.
        """
        if by not in get_args(By):
            raise bad_request(f"`by` must be one of {', '.join(get_args(By))}")
        first, last = since // DAY_MS, (until or self._clock()) // DAY_MS
        if last - first >= MAX_DAYS:
            raise bad_request(f"`since` and `until` must be at most {MAX_DAYS} days apart")
        rows = await self._database.snapshot(lambda reads: stored.of_days(reads, max(first, 0), last))
        grouped: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            grouped.setdefault((_group(row, by), row["figure"]), []).append(row)
        ordered = sorted(grouped.items(), key=lambda group: (group[0][0], KINDS.index(group[0][1])))
        return [_figure(about, figure, group) for (about, figure), group in ordered]


def _group(row: Row, by: str) -> str:
    if by in ("source", "responder"):
        return str(row[by])
    day = row["day"] if by == "day" else row["day"] - (row["day"] - MONDAY) % 7
    return f"{datetime.fromtimestamp(day * DAY_MS / 1000, UTC):%Y-%m-%d}"


def _figure(about: str, figure: str, rows: Sequence[Row]) -> Figure:
    number = sum(row["number"] for row in rows)
    total = sum(row["total_ms"] for row in rows)
    return Figure(
        about=about,
        figure=figure,
        number=number,
        mean_ms=round(total / number),
        max_ms=max(row["max_ms"] for row in rows),
        within={name: sum(row[f"within_{name}"] for row in rows) for name in stored.WITHIN_MS},
    )
