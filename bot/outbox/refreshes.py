"""What people wait to see: requests that the leader renders, or shows ahead of what events cause."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bot.outbox import messages
from bot.outbox.models import RefreshRequest
from core.common.database import Reads, Transaction


@dataclass(frozen=True)
class StoredRequest:
    """Requests to render the messages of an alert or a case again, up to the one with this number."""

    number: int
    about: str
    """The `root_id` that was asked for."""
    also: str
    """The key of a message that is to be rendered with it, or ""."""
    reminds_at: int = 0
    """When (ms) half of the time was over to decide on what waits there; 0: it is no reminder."""

    @property
    def root_id(self) -> str:
        """Id of the alert or case, or the key of the message of a group or a bulk."""
        return self.about.split(":")[1] if self.about.startswith("alert:") else self.about

    @property
    def channel(self) -> str:
        """The only channel in which an alert is to leave its group; "" for all."""
        return self.about.split(":")[2] if self.about.startswith("alert:") else ""


def add(tx: Transaction, request: RefreshRequest, cursor: int, now: int) -> None:
    """Store a request. If the messages reflect the event already (`cursor`), they are only sent first."""
    if request.after is not None and request.after <= cursor:
        messages.prioritize(tx, request.root_id, now)
        return
    tx.insert("refresh", {"root_id": request.root_id, "log_id": request.also, "after_event": request.after or 0})


def add_later(tx: Transaction, root_id: str, at: int) -> None:
    """Store a reminder: a request that is due at that time (ms)."""
    tx.insert("refresh", {"root_id": root_id, "log_id": "", "after_event": 0, "due_at": at})


def pending(reads: Reads, limit: int, now: int) -> Sequence[StoredRequest]:
    """The oldest requests that are due and that no event of the feed fulfils; those for the same messages are one."""
    rows = reads.rows(
        """SELECT max(number) AS number, root_id, log_id, max(due_at) AS reminds_at FROM refresh
           WHERE after_event = 0 AND due_at <= :now GROUP BY root_id, log_id ORDER BY min(number) LIMIT :limit""",
        {"limit": limit, "now": now},
    )
    return [StoredRequest(row["number"], row["root_id"], row["log_id"], row["reminds_at"]) for row in rows]


def fulfil(tx: Transaction, requests: Iterable[StoredRequest], now: int) -> None:
    """Show first what was rendered for these requests."""
    for request in requests:
        messages.prioritize(tx, request.root_id, now)
        tx.run(
            """DELETE FROM refresh WHERE after_event = 0 AND root_id = :root_id AND log_id = :log_id
                   AND number <= :number AND due_at <= :at""",
            {"at": request.reminds_at, "root_id": request.about, "log_id": request.also, "number": request.number},
        )


def fulfil_until(tx: Transaction, cursor: int, now: int) -> None:
    """Show first what was requested with an event that has been followed by now."""
    values = {"cursor": cursor}
    for row in tx.rows("SELECT DISTINCT root_id FROM refresh WHERE after_event BETWEEN 1 AND :cursor", values):
        messages.prioritize(tx, row["root_id"], now)
    tx.run("DELETE FROM refresh WHERE after_event BETWEEN 1 AND :cursor", values)
