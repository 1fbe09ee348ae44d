"""Leases: the right to follow actions, or to send messages, while its holder renews it.

Clocks of hosts differ and jump, so no lease is over at a time of day: it is over for a process that has looked on for
its length and seen no renewal, by a clock that nobody sets (core/docs/semantics.md#several-hosts).
"""

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from core.common.clock import Clock
from core.common.database import Database, Reads, Row, Transaction
from core.common.process_identity import boot_id, own_version, read_stat

T = TypeVar("T")

COLUMNS = (
    "holder TEXT PRIMARY KEY, host TEXT NOT NULL, version TEXT NOT NULL, started_at INTEGER NOT NULL,"
    " lease_until INTEGER NOT NULL, beat INTEGER NOT NULL DEFAULT 0"
)
"""What each table of leases has. beat: how often it was renewed. lease_until: by the holder's clock, for commands."""


@dataclass(frozen=True)
class _Seen:
    """A lease as it was when this process first saw it so."""

    beat: int
    at: int
    """By the clock of leases (ms)."""


class Leases:
    """This process's lease in a table, and for how long the others there have not been renewed."""

    def __init__(self, database: Database, table: str, length_ms: int, clock: Clock, lease_clock: Clock) -> None:
        """`lease_clock` measures how long ago something was, in ms; nothing but this process reads its values."""
        self.holder = new_holder()
        """This process, until it loses its lease; then it may go on under another name."""
        self.rows: Sequence[Row] = ()
        """All leases as of the last look, by host."""
        self._database = database
        self._table = table
        self._length_ms = length_ms
        self._clock = clock
        self._lease_clock = lease_clock
        self._started_at = clock()
        self._renewed_at: int | None = None
        self._seen: dict[str, _Seen] = {}
        self._looked_at = lease_clock()

    async def hold(self, work: Callable[[Transaction], T]) -> T:
        """Do this work, which takes or renews the lease, in a transaction."""
        began = self._lease_clock()
        done = await self._database.transaction(work)
        self._renewed_at = began
        return done

    def take(self, tx: Transaction, holder: str, host: str, **more: object) -> None:
        """Take a lease; `more` is what the table has beside COLUMNS."""
        about = {"holder": holder, "host": host, "version": own_version(), "started_at": self._started_at}
        tx.insert(self._table, {**about, "lease_until": self._clock() + self._length_ms, **more})

    def renew(self, tx: Transaction) -> Row | None:
        """Renew the lease. Returns its row; None if it was lost."""
        rows = tx.rows(
            f"UPDATE {self._table} SET lease_until = :until, beat = beat + 1 WHERE holder = :holder RETURNING *",
            {"holder": self.holder, "until": self._clock() + self._length_ms},
        )
        return rows[0] if rows else None

    def find(self, reads: Reads) -> Row | None:
        """The row of this process's lease; None if it was lost."""
        return reads.row(f"SELECT * FROM {self._table} WHERE holder = :holder", {"holder": self.holder})

    def left_ms(self) -> int:
        """How long this lease still lasts, if it isn't renewed; 0 once others may have found it over."""
        if self._renewed_at is None:
            return self._length_ms
        return max(0, self._renewed_at + self._length_ms - self._lease_clock())

    def look(self, rows: Sequence[Row]) -> list[Row]:
        """Note all leases as they are now. Returns those that were renewed since the last look.

        After a pause in which maybe nobody could renew, such as without a database, all last for their length again.
        """
        now = self._lease_clock()
        before = self._seen
        known = before if now - self._looked_at <= self._length_ms * 2 // 3 else {}
        self.rows, self._looked_at = rows, now
        self._seen = {row["holder"]: _as_seen(row, known.get(row["holder"]), now) for row in rows}
        return [row for row in rows if row["holder"] in before and before[row["holder"]].beat != row["beat"]]

    def silent_ms(self, row: Row) -> int:
        """For how long this process has looked on and seen no renewal of another's lease (ms)."""
        seen = self._seen.get(row["holder"])
        return 0 if seen is None or seen.beat != row["beat"] else self._lease_clock() - seen.at


def _as_seen(row: Row, before: _Seen | None, now: int) -> _Seen:
    return before if before is not None and before.beat == row["beat"] else _Seen(row["beat"], now)


def all_in(reads: Reads, table: str) -> list[Row]:
    """All leases of a table, those that are over too, by host."""
    return reads.rows(f"SELECT * FROM {table} ORDER BY host, started_at, holder")


def new_holder() -> str:
    """A name for this process as a lease holder, never given twice.

    It is `<boot>/<pid namespace>:<pid>:<start time>:<random>`.
    """
    return f"{_pid_namespace()}:{os.getpid()}:{_start_time(os.getpid())}:{secrets.token_hex(16)}"


def is_dead(holder: str) -> bool:
    """Whether that process has certainly ended; False for one of another machine or container."""
    namespace, _, rest = holder.partition(":")
    pid, _, rest = rest.partition(":")
    started = rest.partition(":")[0]
    if not namespace or namespace != _pid_namespace() or not pid.isdigit():
        return False
    return _start_time(int(pid)) != started


def _pid_namespace() -> str:
    """This boot of this machine and this pid namespace; "" if the system doesn't tell."""
    try:
        return f"{boot_id()}/{os.readlink('/proc/self/ns/pid').removeprefix('pid:')}"
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """The start time of a process; "" when it has ended."""
    stat = read_stat(pid)
    return "" if stat is None or stat.state in "ZX" else str(stat.pid_started)
