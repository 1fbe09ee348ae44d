"""The replicas of the bot: each holds a lease, and one of them is the leader, which follows core's feed and sends.

What that means for messages and clicks is in bot/docs/delivery.md#leases-and-replicas.
"""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from core.common import leases
from core.common.clock import Clock, boot_ms
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.common.leases import Leases, all_in

LEASE_MS = 6_000  # shorter than a core's, since who loses the lead for no reason loses nothing else
RENEW_MS = 2_000  # how often each renews its lease
LOOK_MS = 1_000  # how often each looks at the others
FORGET_MS = 3_600_000  # how long a lost replica is still listed
_LEADER = "SELECT * FROM replica WHERE leads = 1"


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


class Replicas:
    """Holds this replica's lease and perhaps the lead, and tells which leases of others are over."""

    def __init__(self, store: Database, clock_ms: Clock, *, lease_clock: Clock = boot_ms) -> None:
        """`lease_clock` measures how long ago something was, in ms; nobody else reads its values."""
        self._store = store
        self._clock = clock_ms
        self._leases = Leases(store, "replica", LEASE_MS, clock_ms, lease_clock)
        self.holder = self._leases.holder
        self.left_ms = self._leases.left_ms

    async def acquire(self) -> bool:
        """Renew this replica's lease, and take or keep the lead; False while another replica leads."""
        await self.look()
        rows = self._leases.rows
        is_fresh = any(row["holder"] == self.holder for row in rows) and self.left_ms() > LEASE_MS - RENEW_MS
        if is_fresh and any(row["leads"] and self._holds(row) for row in rows):
            return False
        forgotten = [row for row in rows if self._may_be_forgotten(row)]

        def work(tx: Transaction) -> bool:
            if self._leases.renew(tx) is None:
                self._leases.take(tx, self.holder, socket.gethostname(), pid=os.getpid())
            for row in forgotten:
                tx.run("DELETE FROM replica WHERE holder = :holder AND beat = :beat", dict(row))
            leader = tx.row(_LEADER)
            if leader is not None and self._holds(leader):
                return False
            tx.run("UPDATE replica SET leads = 0 WHERE leads = 1 AND holder <> :holder", {"holder": self.holder})
            tx.run("UPDATE replica SET leads = 1 WHERE leads = 0 AND holder = :holder", {"holder": self.holder})
            return True

        return await self._leases.hold(work)

    def refuse_others(self, reads: Reads) -> None:
        """Raise ResponderBotError("conflict") if another replica leads by now, so that a late write changes nothing."""
        row = reads.row(_LEADER)
        if row and row["holder"] != self.holder:
            raise ResponderBotError("conflict", "Another replica of the bot leads now; this one waits.")

    def is_over(self, holder: str, until: int = 0) -> bool:
        """Whether another replica has lost what it holds, as of the last `look`.

        `until` counts for one that has taken no lease yet.
        """
        row = next((row for row in self._leases.rows if row["holder"] == holder), None)
        if row is not None:
            return self._is_over(row)
        return holder != self.holder and (leases.is_dead(holder) or until <= self._clock())

    async def all(self) -> Sequence[Replica]:
        """All replicas, the leader first, then those that stand by, then those that are lost."""
        await self.look()
        hosts = [row["host"] for row in self._leases.rows]
        replicas = [
            Replica(
                row["host"] if hosts.count(row["host"]) == 1 else f"{row['host']} (process {row['pid']})",
                row["version"],
                bool(row["leads"]) and not is_over,
                max(1, self._leases.silent_ms(row)) if is_over else 0,
            )
            for row in self._leases.rows
            for is_over in [self._is_over(row)]
        ]
        return sorted(replicas, key=lambda replica: (not replica.leads, replica.silent_ms, replica.name))

    async def release(self) -> None:
        """End this replica's lease, so that another one may lead at once."""
        sql, values = "DELETE FROM replica WHERE holder = :holder", {"holder": self.holder}
        await self._store.transaction(lambda tx: tx.run(sql, values))

    async def look(self) -> None:
        """See which replicas have renewed their leases since the last look."""
        self._leases.look(await self._store.read(lambda reads: all_in(reads, "replica")))

    def _is_over(self, row: Row) -> bool:
        is_lost = leases.is_dead(row["holder"]) or self._leases.silent_ms(row) >= LEASE_MS
        return row["holder"] != self.holder and is_lost

    def _holds(self, row: Row) -> bool:
        """Whether that is another replica, which has not lost its lease."""
        return row["holder"] != self.holder and not self._is_over(row)

    def _may_be_forgotten(self, row: Row) -> bool:
        return self._is_over(row) and (leases.is_dead(row["holder"]) or self._leases.silent_ms(row) >= FORGET_MS)
