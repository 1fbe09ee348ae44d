"""SQL for figures: how long people took, by day (core/docs/stats.md)."""

from collections.abc import Sequence

from core.common.clock import DAY_MS, HOUR_MS, MINUTE_MS
from core.common.database import Reads, Row, Transaction

WITHIN_MS = {"5m": 5 * MINUTE_MS, "15m": 15 * MINUTE_MS, "1h": HOUR_MS, "4h": 4 * HOUR_MS, "1d": DAY_MS}
"""The times within which something happened, by the end of their columns."""
FOR_EVER = -1
"""The day under which all days are counted."""
MAX_KINDS = 500  # of sources and responders together, of each figure
OTHER = "(other)"
_COUNTS = ("number", "total_ms", *(f"within_{name}" for name in WITHIN_MS))


def count(tx: Transaction, figure: str, source: str, responder: str, ms: int, now: int) -> None:
    """Count that something took so long, under the day of `now` and for ever.

    Senders name the sources: those beyond MAX_KINDS are one, OTHER.
    """
    took = max(ms, 0)
    known = {"day": FOR_EVER, "figure": figure, "source": source, "responder": responder}
    of_figure = "FROM figure WHERE day = :day AND figure = :figure"
    if tx.row(f"SELECT 1 {of_figure} AND source = :source AND responder = :responder", known) is None:
        kinds = tx.row(f"SELECT count(*) AS total {of_figure}", known)
        source = OTHER if kinds is not None and kinds["total"] >= MAX_KINDS else source
    values = {f"within_{name}": int(took <= limit) for name, limit in WITHIN_MS.items()}
    columns = ", ".join(_COUNTS)
    tx.run_all(
        f"INSERT INTO figure (day, figure, source, responder, max_ms, {columns})"
        f" VALUES (:day, :figure, :source, :responder, :total_ms, {', '.join(f':{name}' for name in _COUNTS)})"
        " ON CONFLICT (day, figure, source, responder) DO UPDATE SET"
        " max_ms = CASE WHEN excluded.max_ms > figure.max_ms THEN excluded.max_ms ELSE figure.max_ms END,"
        f" {', '.join(f'{name} = figure.{name} + excluded.{name}' for name in _COUNTS)}",
        [
            {"day": day, "figure": figure, "source": source, "responder": responder, "number": 1, "total_ms": took}
            | values
            for day in (now // DAY_MS, FOR_EVER)
        ],
    )


def is_first(tx: Transaction, alert_id: int, figure: str) -> bool:
    """Note that this happened to an alert; False if it had happened before, and for what is none."""
    sql = (
        "INSERT INTO first_time (alert_id, figure) SELECT id, :figure FROM object WHERE id = :id AND kind = 'alert'"
        " ON CONFLICT DO NOTHING"
    )
    return bool(tx.run(sql, {"id": alert_id, "figure": figure}))


def of_days(reads: Reads, first: int, last: int) -> Sequence[Row]:
    """The figures of these days since 1970 (UTC), both among them."""
    return reads.rows(
        f"SELECT day, figure, source, responder, max_ms, {', '.join(_COUNTS)} FROM figure"
        " WHERE day BETWEEN :first AND :last ORDER BY day, figure, source, responder",
        {"first": first, "last": last},
    )


def of_all_days(reads: Reads) -> Sequence[Row]:
    """The figures of all days: `figure, source, responder, number, total_ms`."""
    sql = "SELECT figure, source, responder, number, total_ms FROM figure WHERE day = :day"
    return reads.rows(sql, {"day": FOR_EVER})
