"""Who wants a direct message when a run ends."""

import json
from collections.abc import Callable, Sequence

from core.common.database import Database

RESPONDER = "responder:"  # before a responder's name
APPROVALS = "approvals"  # requests for approval


class Watches:
    """What people watch: an id (`~12`), a responder (RESPONDER and its name) or APPROVALS."""

    def __init__(self, store: Database, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock_ms

    async def add(self, team: str, user: str, watched: str) -> bool:
        """Start to watch; False if they do already."""
        sql = """INSERT INTO watch (team, "user", watched, at) VALUES (:team, :user, :watched, :now)
                 ON CONFLICT DO NOTHING"""
        values = {"team": team, "user": user, "watched": watched, "now": self._clock()}
        return await self._store.transaction(lambda tx: bool(tx.run(sql, values)))

    async def remove(self, team: str, user: str, watched: str) -> bool:
        """Stop to watch; False if they don't."""
        sql = 'DELETE FROM watch WHERE team = :team AND "user" = :user AND watched = :watched'
        values = {"team": team, "user": user, "watched": watched}
        return await self._store.transaction(lambda tx: bool(tx.run(sql, values)))

    async def of_user(self, team: str, user: str) -> Sequence[str]:
        """What this person watches, oldest first."""
        sql = 'SELECT watched FROM watch WHERE team = :team AND "user" = :user ORDER BY at'
        rows = await self._store.read(lambda reads: reads.rows(sql, {"team": team, "user": user}))
        return [row["watched"] for row in rows]

    async def watchers(self, watched: Sequence[str]) -> list[tuple[str, str]]:
        """Team and user of those who watch any of these; each person once."""
        sql = 'SELECT DISTINCT team, "user" FROM watch WHERE watched IN (SELECT value FROM json_each(:watched))'
        rows = await self._store.read(lambda reads: reads.rows(sql, {"watched": json.dumps(watched)}))
        return [(row["team"], row["user"]) for row in rows]
