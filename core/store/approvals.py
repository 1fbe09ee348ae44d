"""SQL for approvals that runs, and later ends of what they left in force, take until they end."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.common.database import Reads, Row, Transaction
from core.models import Approval, Vote
from core.store import due

_COLUMNS = "id, action_id, asked_by, asked_at, needed, expires_at, is_waiting, ends_at, votes"


@dataclass(frozen=True)
class StoredApproval:
    """The approval of a run, or of a later end of what it left in force."""

    id: int
    """The number of the run, or of the extension."""
    action_id: int
    asked_by: str
    asked_at: int
    needed: int
    expires_at: int
    is_waiting: bool = True
    """False once a run has all the votes that it needs."""
    ends_at: int | None = None
    """The later end (ms); None for no end, and for a run."""
    votes: Sequence[Vote] = field(default=())

    @property
    def is_of_run(self) -> bool:
        return self.id == self.action_id

    @property
    def approved_by(self) -> list[str]:
        """Those who have approved it, in the order of their votes."""
        return [vote.login for vote in self.votes if vote.vote == "approve"]

    def shown(self) -> Approval:
        """As actions and extensions have it."""
        votes = list(self.votes)
        return Approval(needed=self.needed, approved_by=self.approved_by, expires_at=self.expires_at, votes=votes)


def insert(tx: Transaction, approval: StoredApproval) -> None:
    due.put(tx, "approval", approval.id, approval.expires_at, approval.asked_at)
    tx.insert("approval", {**vars(approval), "is_waiting": 1, "votes": "[]"})


def find(reads: Reads, number: int | None) -> StoredApproval | None:
    """The approval of a run or of an extension, by its number."""
    return _read(reads.row(f"SELECT {_COLUMNS} FROM approval WHERE id = :id", {"id": number}))


def waiting_of(reads: Reads, action_id: int) -> StoredApproval | None:
    """The one that waits: of a run, or of an extension of it."""
    sql = f"SELECT {_COLUMNS} FROM approval WHERE action_id = :id AND is_waiting = 1"
    return _read(reads.row(sql, {"id": action_id}))


def set_votes(tx: Transaction, approval: StoredApproval) -> None:
    """Store the votes, and whether it still waits."""
    if not approval.is_waiting:
        due.drop(tx, "approval", approval.id)
    votes = json.dumps([vote.model_dump(by_alias=True, exclude_none=True) for vote in approval.votes])
    tx.run(
        "UPDATE approval SET votes = :votes, is_waiting = :is_waiting WHERE id = :id",
        {"id": approval.id, "votes": votes, "is_waiting": int(approval.is_waiting)},
    )


def delete_of(tx: Transaction, action_id: int) -> None:
    """Delete that of a run which has ended, or of its extension."""
    for row in tx.rows("DELETE FROM approval WHERE action_id = :id RETURNING id", {"id": action_id}):
        due.drop(tx, "approval", row["id"])


def _read(row: Row | None) -> StoredApproval | None:
    if row is None:
        return None
    votes = tuple(Vote.model_validate(vote) for vote in json.loads(row["votes"]))
    return StoredApproval(**{**row, "is_waiting": bool(row["is_waiting"]), "votes": votes})
