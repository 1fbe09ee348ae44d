"""The lease that makes one of several replicas the leader."""

from collections.abc import Callable

from core.common import leases
from core.common.database import Database, Transaction
from core.common.errors import ResponderBotError

LEASE_MS = 10_000
_LEADER = "lead"


class LeaderLease:
    """Held by the one replica that follows core's feed and sends."""

    def __init__(self, store: Database, clock_ms: Callable[[], int], holder: str, lease_ms: int = LEASE_MS) -> None:
        self._store = store
        self._clock = clock_ms
        self._holder = holder
        self._lease_ms = lease_ms

    async def acquire(self) -> bool:
        """Take or renew the lease; False while another process holds it."""
        now = self._clock()

        def work(tx: Transaction) -> bool:
            row = tx.row("SELECT * FROM lease WHERE name = :name", {"name": _LEADER})
            if row and row["holder"] != self._holder and not leases.is_over(row["holder"], row["until"], now):
                return False
            tx.run(
                """INSERT INTO lease (name, holder, until) VALUES (:name, :holder, :until)
                   ON CONFLICT (name) DO UPDATE SET holder = :holder, until = :until""",
                {"name": _LEADER, "holder": self._holder, "until": now + self._lease_ms},
            )
            return True

        return await self._store.transaction(work)

    def refuse_others(self, tx: Transaction) -> None:
        """Raise ResponderBotError("conflict") if another replica leads by now, so that a late write changes nothing."""
        row = tx.row("SELECT holder FROM lease WHERE name = :name", {"name": _LEADER})
        if row and row["holder"] != self._holder:
            raise ResponderBotError("conflict", "Another replica of the bot leads now; this one waits.")

    async def release(self) -> None:
        """Let another replica lead at once."""
        sql = "DELETE FROM lease WHERE name = :name AND holder = :holder"
        await self._store.transaction(lambda tx: tx.run(sql, {"name": _LEADER, "holder": self._holder}))
