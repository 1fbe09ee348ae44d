"""The replicas of the bot: each holds a lease, and one of them is the leader, which follows core's feed and sends.

Hosts have clocks of their own, which may differ and jump, so a lease isn't over at a time of day: it is over when its
holder has not renewed it for LEASE_MS while this replica looked on (bot/docs/delivery.md#leases-and-replicas).
"""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from core.common import leases
from core.common.clock import Clock, boot_ms
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError

LEASE_MS = 6_000  # a replica that hasn't renewed its lease for so long loses what it holds
RENEW_MS = 2_000  # how often each renews it
LOOK_MS = 1_000  # how often each looks at the others
PAUSE_MS = 4_000  # after a pause between looks that is longer, the others have LEASE_MS again: maybe nobody could renew
FORGET_MS = 3_600_000  # how long a lost replica is still listed
_LEADER = "SELECT holder, beat FROM replica WHERE leads = 1"


@dataclass(frozen=True)
class Replica:
    """A bot on this database, for people."""

    name: str
    """Its host, with the process where several run on one."""
    version: str
    leads: bool
    silent_ms: int
    """How long it has not renewed its lease; 0 while that isn't over."""


def summary(replicas: Sequence[Replica]) -> str:
    """Which of these sends, which stand by, and which are lost, such as `web-1 sends; web-2 stands by`."""
    leaders = [replica.name for replica in replicas if replica.leads]
    waiting = [replica.name for replica in replicas if not replica.leads and not replica.silent_ms]
    parts = [f"{leaders[0]} sends" if leaders else "none sends yet"]
    if waiting:
        parts.append(f"{', '.join(waiting)} {'stands' if len(waiting) == 1 else 'stand'} by")
    parts += [
        f"{replica.name} has not answered for {replica.silent_ms // 1000} s"
        for replica in replicas
        if replica.silent_ms
    ]
    return "; ".join(parts)


@dataclass(frozen=True)
class _Seen:
    """A lease as it was when this replica first saw it so."""

    beat: int
    at: int
    """By the clock of leases (ms)."""


class Replicas:
    """Holds this replica's lease and perhaps the lead, and tells which leases of others are over."""

    def __init__(self, store: Database, clock_ms: Clock, *, lease_clock: Clock = boot_ms) -> None:
        """`lease_clock` measures how long ago something was, in ms; nobody else reads its values."""
        self._store = store
        self._clock = clock_ms
        self._lease_clock = lease_clock
        self.holder = leases.new_holder()
        self._started_at = clock_ms()
        self._renewed_at: int | None = None
        self._seen: dict[str, _Seen] = {}
        self._looked_at = lease_clock()
        self._rows: Sequence[Row] = ()
        self._leader: Row | None = None

    async def acquire(self) -> bool:
        """Renew this replica's lease, and take or keep the lead; False while another replica leads."""
        began = self._lease_clock()
        await self.look()
        leader = self._leader
        if leader is not None and leader["holder"] != self.holder and not self.is_over(leader["holder"]):
            if self._renewed_at is None or began - self._renewed_at >= RENEW_MS:
                await self._store.transaction(self._renew)
                self._renewed_at = began
            return False
        seen = self._seen.get(leader["holder"]) if leader is not None else None
        forgotten = [row for row in self._rows if self._may_be_forgotten(row)]

        def work(tx: Transaction) -> bool:
            self._renew(tx)
            for row in forgotten:
                tx.run("DELETE FROM replica WHERE holder = :holder AND beat = :beat", dict(row))
            now = tx.row(_LEADER)
            if now is not None and now["holder"] != self.holder:
                if leader is None or now["holder"] != leader["holder"]:
                    return False
                if seen is None or now["beat"] != seen.beat:
                    return False  # it has come back
            tx.run("UPDATE replica SET leads = 0 WHERE leads = 1 AND holder <> :holder", {"holder": self.holder})
            tx.run("UPDATE replica SET leads = 1 WHERE leads = 0 AND holder = :holder", {"holder": self.holder})
            return True

        leads = await self._store.transaction(work)
        self._renewed_at = began
        return leads

    def left_ms(self) -> int:
        """How long this replica's lease still lasts, if it isn't renewed; 0 once others may have found it over."""
        if self._renewed_at is None:
            return LEASE_MS
        return max(0, self._renewed_at + LEASE_MS - self._lease_clock())

    def refuse_others(self, reads: Reads) -> None:
        """Raise ResponderBotError("conflict") if another replica leads by now, so that a late write changes nothing."""
        row = reads.row(_LEADER)
        if row and row["holder"] != self.holder:
            raise ResponderBotError("conflict", "Another replica of the bot leads now; this one waits.")

    def is_over(self, holder: str, until: int = 0) -> bool:
        """Whether another replica has lost what it holds, as of the last `look`.

        `until` counts for one that has taken no lease yet.
        """
        if holder == self.holder:
            return False
        if leases.is_dead(holder):
            return True
        seen = self._seen.get(holder)
        return until <= self._clock() if seen is None else self._lease_clock() - seen.at >= LEASE_MS

    async def all(self) -> Sequence[Replica]:
        """All replicas, the leader first, then those that stand by, then those that are lost."""
        await self.look()
        leader = self._leader["holder"] if self._leader is not None else ""
        hosts = [row["host"] for row in self._rows]
        replicas = [
            Replica(
                row["host"] if hosts.count(row["host"]) == 1 else f"{row['host']} (process {row['pid']})",
                row["version"],
                row["holder"] == leader and not silent_ms,
                silent_ms,
            )
            for row in self._rows
            for silent_ms in [self._silent_ms(row["holder"])]
        ]
        return sorted(replicas, key=lambda replica: (not replica.leads, replica.silent_ms, replica.name))

    async def release(self) -> None:
        """End this replica's lease, so that another one may lead at once."""

        def work(tx: Transaction) -> None:
            tx.run("DELETE FROM replica WHERE holder = :holder", {"holder": self.holder})

        await self._store.transaction(work)
        self._renewed_at = None

    def _renew(self, tx: Transaction) -> None:
        tx.run(
            """INSERT INTO replica (holder, host, pid, version, started_at, beat, leads, lease_until)
               VALUES (:holder, :host, :pid, :version, :started_at, 1, 0, :until)
               ON CONFLICT (holder) DO UPDATE SET beat = replica.beat + 1, lease_until = :until""",
            {
                "holder": self.holder,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "version": version("responder-bot"),
                "started_at": self._started_at,
                "until": self._clock() + LEASE_MS,
            },
        )

    async def look(self) -> None:
        """See which replicas have renewed their leases since the last look."""

        sql = "SELECT * FROM replica ORDER BY host, started_at, holder"
        self._rows = await self._store.read(lambda reads: reads.rows(sql))
        self._leader = next((row for row in self._rows if row["leads"]), None)
        now = self._lease_clock()
        known = self._seen if now - self._looked_at <= PAUSE_MS else {}
        self._seen = {row["holder"]: _as_seen(row, known.get(row["holder"]), now) for row in self._rows}
        self._looked_at = now

    def _silent_ms(self, holder: str) -> int:
        seen = self._seen.get(holder)
        if seen is None or not self.is_over(holder):
            return 0
        return max(1, self._lease_clock() - seen.at)

    def _may_be_forgotten(self, row: Row) -> bool:
        return self._silent_ms(row["holder"]) >= (1 if leases.is_dead(row["holder"]) else FORGET_MS)


def _as_seen(row: Row, before: _Seen | None, now: int) -> _Seen:
    return before if before is not None and before.beat == row["beat"] else _Seen(row["beat"], now)
