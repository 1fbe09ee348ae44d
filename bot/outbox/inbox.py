"""Acknowledged interactions, kept until they are carried out, so that a crash loses none."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.outbox.replicas import Replicas
from core.common.database import Database, Transaction

LEASE_MS = 60_000  # after this a replica looks again at its own, such as those that its queue had no room for


@dataclass(frozen=True)
class PendingInteraction:
    """An interaction that was acknowledged at `at` (ms) and perhaps not carried out."""

    key: str
    payload: Mapping[str, Any]
    at: int


class Inbox:
    """The interactions that change something. Each is carried out by the replica that holds it, until that is lost."""

    def __init__(self, store: Database, clock_ms: Callable[[], int], replicas: Replicas) -> None:
        self._store = store
        self._clock = clock_ms
        self._replicas = replicas

    async def accept(self, key: str, payload: Mapping[str, Any]) -> bool:
        """Store an interaction before it is acknowledged; False if this key came before."""
        now = self._clock()
        values = {"key": key, "payload": json.dumps(payload), "at": now}
        lease = {"holder": self._replicas.holder, "leased_until": now + LEASE_MS, "done_at": 0}
        return await self._store.transaction(
            lambda tx: bool(tx.insert("inbox", {**values, **lease}, otherwise="DO NOTHING"))
        )

    async def complete(self, key: str) -> None:
        """Note that it was carried out, or refused for good. The content is deleted, the key kept against a repeat."""
        sql = "UPDATE inbox SET done_at = :now, payload = '' WHERE key = :key"
        values = {"key": key, "now": self._clock()}
        await self._store.transaction(lambda tx: tx.run(sql, values))

    async def release(self) -> None:
        """Let another replica carry out at once what this one holds."""
        sql = "UPDATE inbox SET leased_until = 0 WHERE holder = :holder AND done_at = 0"
        values = {"holder": self._replicas.holder}
        await self._store.transaction(lambda tx: tx.run(sql, values))

    async def take_over_abandoned(self) -> list[PendingInteraction]:
        """Hold the interactions of replicas that are lost, and own ones that took too long, oldest first."""
        now = self._clock()
        sql = "SELECT * FROM inbox WHERE done_at = 0 ORDER BY at"
        pending = await self._store.read(lambda reads: reads.rows(sql))
        if pending:
            await self._replicas.look()
        abandoned = [row for row in pending if self._is_abandoned(row["holder"], row["leased_until"])]
        take = """UPDATE inbox SET holder = :holder, leased_until = :until
                 WHERE key = :key AND holder = :before AND done_at = 0"""
        lease = {"holder": self._replicas.holder, "until": now + LEASE_MS}

        def work(tx: Transaction) -> list[PendingInteraction]:
            return [
                PendingInteraction(row["key"], json.loads(row["payload"]), row["at"])
                for row in abandoned
                if tx.run(take, {**lease, "key": row["key"], "before": row["holder"]})
            ]

        return await self._store.transaction(work) if abandoned else []

    def _is_abandoned(self, holder: str, leased_until: int) -> bool:
        if holder == self._replicas.holder:
            return leased_until <= self._clock()
        return self._replicas.is_over(holder, leased_until)

    async def holds(self, key: str) -> bool:
        """Whether this replica may still carry it out: after it was frozen, another one may have."""
        sql = "SELECT 1 AS found FROM inbox WHERE key = :key AND holder = :holder AND done_at = 0"
        values = {"key": key, "holder": self._replicas.holder}
        return await self._store.read(lambda reads: reads.row(sql, values)) is not None
