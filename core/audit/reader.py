"""Reads the audit over HTTP: all of it, or the story of one object within the reader's clearance."""

import json
from collections.abc import Callable
from functools import cache

from core.audit import trail
from core.audit.sentences import sentence
from core.authorization import Caller
from core.common.clock import Clock
from core.common.database import Database, Reads, Transaction
from core.common.errors import ResponderBotError
from core.models import RED, AuditRow, parse_id
from core.store import audit as stored

MAX_ROWS = 1_000
LOOK_BACK = 100
"""How many rows are looked at for one that the caller may see."""
_OF_GONE = RED

LevelOf = Callable[[Reads, int], int | None]
"""The clearance that it takes to see an object or a run; None for what is gone."""


class AuditReader:
    """Reads rows, and adds one for each reading."""

    def __init__(self, database: Database, clock: Clock, level_of: LevelOf) -> None:
        self._database = database
        self._clock = clock
        self._level_of = level_of

    async def rows(self, caller: Caller, object_: str, after: int, limit: int) -> list[AuditRow]:
        """The next rows after number `after`, oldest first; with `object_` those about it and what belongs to it."""

        def work(tx: Transaction) -> None:
            trail.record(tx, self._clock(), "audit.read", by=caller.login, object=object_ or "audit")

        await self._database.transaction(work)
        return await self._database.snapshot(
            lambda reads: self._rows(reads, caller, object_, after, min(limit, MAX_ROWS))
        )

    async def story(self, caller: Caller, object_id: str) -> list[AuditRow]:
        """The rows about an alert, a case, a run or a bulk that the caller may see. Raises "not_found", "forbidden"."""
        number = parse_id(object_id)
        if number is None:
            raise ResponderBotError("not_found", f"{object_id[:64]} is no id; give one such as ~12.")

        def read(reads: Reads) -> None:
            level = self._level_of(reads, number)
            if level is None and not stored.of_object(reads, f"~{number}", 0, 1):
                raise ResponderBotError("not_found", f"Nothing has the id ~{number}.")
            caller.require_clearance(_OF_GONE if level is None else level, "read the audit of it")

        await self._database.read(read)
        return await self.rows(caller, f"~{number}", 0, MAX_ROWS)

    async def heads(self, caller: Caller, after: int) -> list[AuditRow]:
        """The last row of those that the caller may see, if its number is greater than `after`."""

        def read(reads: Reads) -> list[AuditRow]:
            last = stored.last(reads)
            first = 0 if last is None else max(after, last["number"] - LOOK_BACK)
            return self._rows(reads, caller, "", first, LOOK_BACK)[-1:]

        return await self._database.snapshot(read)

    def _rows(self, reads: Reads, caller: Caller, object_: str, after: int, limit: int) -> list[AuditRow]:
        rows = stored.of_object(reads, object_, after, limit) if object_ else stored.page(reads, after, None, limit)
        texts = stored.texts(reads, [row["number"] for row in rows])
        levels = cache(lambda number: self._level_of(reads, number))
        found = []
        for row in rows:
            doc = json.loads(row["doc"])
            about = parse_id(doc["object"])
            if about is not None and caller.why_not_cleared(_OF_GONE if (of := levels(about)) is None else of):
                continue
            said = {text.name: text.text for text in texts[row["number"]]}
            of_row = {"number": row["number"], "hash": row["hash"], "row": doc}
            found.append(AuditRow(**{**doc, **of_row, "sentence": sentence(doc, said), "texts": said}))
        return found
