"""Give free pages of a SQLite file back to the file system; PostgreSQL's VACUUM does so by itself."""

import asyncio
import time

from core.common.database.base import Database, Transaction

# Of all that deletes in steps.
STEP_S = 0.008  # of the writer's time; the commit comes on top
PAUSE_S = 0.05  # after each step, for all others


async def shrink(database: Database, step_s: float = STEP_S, pause_s: float = PAUSE_S) -> None:
    """Give back all free pages, in steps of that length for the writer, with a pause after each."""
    is_done = database.dialect != "sqlite"
    while not is_done:
        is_done = await database.transaction(lambda tx: _give_back(tx, step_s))
        await asyncio.sleep(pause_s)


def _give_back(tx: Transaction, step_s: float) -> bool:
    """Whether none is left. A file that was made without auto_vacuum keeps its pages."""
    until, before, free = time.monotonic() + step_s, -1, _free_pages(tx)
    while free not in (0, before):
        tx.rows("PRAGMA incremental_vacuum(1)")
        before, free = free, _free_pages(tx)
        if time.monotonic() >= until:  # after one page at least, however short the step
            return free in (0, before)
    return True


def _free_pages(tx: Transaction) -> int:
    return tx.number("PRAGMA freelist_count")
