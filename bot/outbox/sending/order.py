"""What goes to Slack next: see bot/docs/delivery.md#what-goes-first."""

# ruff: noqa: S608  # every fragment is a constant of this module or of `messages`, every value is bound

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from bot.outbox.messages import PENDING, selected
from bot.outbox.models import LAST_ALERT, NEWS, WITHHOLDING, MessageRecord, record_of
from bot.outbox.sending.files import DELETE_FILE, UPLOAD_FILE
from core.common.database import Reads, Row

AGE_MS = 100_000  # a message that has waited for this long goes with those of the next higher rank
STARVING_MS = 600_000
NEWEST_FIRST_ABOVE = 30  # new alerts of one severity in a channel

POST, UPDATE = "chat.postMessage", "chat.update"

_OF_RANK = f"m.{PENDING} AND m.channel = :channel AND m.status = :status AND m.rank = :rank"
_HEAD = f"""{selected("message m INDEXED BY message_next")}
    WHERE {_OF_RANK} AND m.due_at <= :now AND (m.thread_of = '' OR root.ts <> '')"""


@dataclass
class Call:
    """A call of Slack's `method` for a message that may be sent now."""

    message: MessageRecord
    method: str
    rank: int
    """The message's rank, which rises with its age, but not to that of what a person waits for or what must go."""
    is_for_age: bool = False
    """It goes ahead of a higher rank because it has waited for so long."""
    post_began_at: int = 0
    """When the post that this call makes was recorded."""

    @property
    def is_new_post(self) -> bool:
        """Whether it must be recorded before it is made; a post that may have arrived is looked for first."""
        return self.method == POST and self.message.status == "unsent"


def due(reads: Reads, now: int, busy: Collection[str], aged: Collection[tuple[str, str]]) -> list[Call]:
    """What may be sent next: of each channel that isn't busy at most one post, one update and one file, since each has
    its own rate limit.

    A reply waits until its root is posted, a file until its message is shown. `aged`: the channels and methods
    whose last call went ahead for its age; there the next one doesn't.
    """
    heads: dict[tuple[str, str], list[Row]] = {}
    for channel, status, rank in _lines(reads):
        if channel not in busy:
            values = {"channel": channel, "status": status, "rank": rank, "now": now}
            method = UPDATE if status == "outdated" else POST
            rows = reads.rows(f"{_HEAD} ORDER BY m.pending_since, m.number LIMIT 1", values)
            heads.setdefault((channel, method), []).extend(rows)
    calls = [
        _chosen(reads, rows, method, now, may_be_for_age=(channel, method) not in aged)
        for (channel, method), rows in heads.items()
        if rows
    ]
    return [*calls, *_files(reads, now, busy)]


def _lines(reads: Reads) -> Iterator[tuple[str, str, int]]:
    """Channel, status and rank of what is pending; a loose index scan, since they are few."""
    last: dict[str, str | int] = {"channel": "", "status": "", "rank": 0}
    while row := reads.row(
        f"""SELECT channel, status, rank FROM message INDEXED BY message_next
            WHERE {PENDING} AND (channel, status, rank) > (:channel, :status, :rank)
            ORDER BY channel, status, rank LIMIT 1""",
        last,
    ):
        last = {name: row[name] for name in last}
        yield row["channel"], row["status"], row["rank"]


def _chosen(reads: Reads, heads: Sequence[Row], method: str, now: int, *, may_be_for_age: bool) -> Call:
    """Of the oldest messages of each rank: that of the highest rank, or one that has waited too long.

    Of many new alerts of one severity the newest goes first.
    """
    first = min(heads, key=lambda row: (row["rank"], row["status"] != "posting", row["pending_since"]))
    if first["rank"] <= WITHHOLDING:
        return Call(record_of(first), method, first["rank"])
    oldest = min(heads, key=lambda row: row["rank"] * AGE_MS + row["pending_since"])
    is_starving = now - oldest["pending_since"] >= STARVING_MS
    row = _newest(reads, first, now) if first["status"] == "unsent" and first["rank"] <= LAST_ALERT else first
    if row["key"] != oldest["key"] and may_be_for_age and (oldest["rank"] > first["rank"] or is_starving):
        return Call(record_of(oldest), method, _risen(oldest, now), is_for_age=True)
    return Call(record_of(row), method, _risen(row, now))


def _newest(reads: Reads, oldest: Row, now: int) -> Row:
    """The newest alert of this one's channel and severity if many wait, else this one."""
    values = {"channel": oldest["channel"], "status": oldest["status"], "rank": oldest["rank"], "now": now}
    many = reads.row(
        f"""SELECT m.key FROM message m INDEXED BY message_next WHERE {_OF_RANK}
            ORDER BY m.pending_since LIMIT 1 OFFSET {NEWEST_FIRST_ABOVE}""",
        values,
    )
    newest = reads.row(f"{_HEAD} ORDER BY m.pending_since DESC, m.number DESC LIMIT 1", values) if many else None
    return newest or oldest


def _risen(row: Row, now: int) -> int:
    """A rank that has risen with the message's age; that of an update at most to that of news."""
    rank, waited_ms = int(row["rank"]), max(0, now - row["pending_since"])
    highest = NEWS if row["status"] == "outdated" else WITHHOLDING + 1
    return rank if rank <= highest else max(highest, int(rank - waited_ms // AGE_MS))


def _files(reads: Reads, now: int, busy: Collection[str]) -> Iterator[Call]:
    rows = reads.rows(
        f"""SELECT * FROM (
              SELECT *, row_number() OVER (
                  PARTITION BY channel ORDER BY file_status = 'removing' DESC, rank, pending_since, number) AS nth
              FROM ({selected("file f JOIN message m ON m.key = f.message_key")}
                WHERE f.status <> 'shown' AND f.due_at <= :now AND (m.status = 'shown' OR f.status = 'removing')
                    AND m.channel NOT IN (SELECT value FROM json_each(:busy))) AS due
            ) AS numbered WHERE nth = 1""",
        {"now": now, "busy": json.dumps(list(busy))},
    )
    for row in rows:
        method = DELETE_FILE if row["file_status"] == "removing" else UPLOAD_FILE
        must_go = method == DELETE_FILE and row["rank"] > WITHHOLDING
        yield Call(record_of(row), method, WITHHOLDING if must_go else _risen(row, now))
