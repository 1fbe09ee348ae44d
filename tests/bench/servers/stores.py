"""Write an action and its event durably: through core's database, by separate commits, and without SQLite."""

import asyncio
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from core.common.database import Transaction
from core.common.database.sqlite.connection import PAGE_BYTES, WAL_PAGES
from core.common.database.sqlite.database import SqliteDatabase, SqliteTransaction
from core.store import actions as stored
from core.store import events, objects
from core.store.database.schema import migrate
from tests.bench.comparison import interleaved
from tests.bench.dataset import ANALYST, NOW, RESPONDER, action
from tests.bench.processes import send_line

WRITERS = 32


def write_run(tx: Transaction) -> None:
    """Write what the start of a run writes."""
    number = objects.next_id(tx)
    values = {
        "id": number,
        "kind": "alert",
        "object_id": 1,
        "root_id": 1,
        "responder_name": RESPONDER,
        "engine_name": "local",
        "engine_responder_id": "r-idle",
        "status": "Waiting",
        "created_by": ANALYST,
        "acted_through": ANALYST,
        "created_at": NOW,
        "owner": "1-1-bench",
        "engine_job_id": "",
        "parameters": "{}",
        "whole_parameters": None,
        "awaits_approval": 0,
        "bulk_id": None,
        "undoes": None,
        "target": None,
        "secret_names": "[]",
        "run_id": f"{number}-5e",
        "doc": DOC,
    }
    stored.insert(tx, values)
    events.record(tx, number, at=NOW, type="action.created", object_type="Action", root_id=1, user=ANALYST)


DOC = action(123_456_789, 1).to_json()
RECORD = f"{DOC} action.created Action 123456789 1 {ANALYST}".encode()


def plain_connection(path: Path) -> sqlite3.Connection:
    """A connection with the settings of core's writer."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


async def main(given: dict[str, Any]) -> None:
    folder = Path(given["folder"])
    database = SqliteDatabase(folder / "grouped.db", migrate)
    await SqliteDatabase(folder / "direct.db", migrate).close()
    direct = plain_connection(folder / "direct.db")
    file = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    wal = os.open(folder / "pages", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def commit() -> None:
        direct.execute("BEGIN IMMEDIATE")
        write_run(SqliteTransaction(direct))
        direct.execute("COMMIT")

    def synced(fd: int, content: bytes) -> Callable[[], None]:
        def write() -> None:
            os.write(fd, content)
            os.fdatasync(fd)

        return write

    async def at_once(write: Callable[[], Any]) -> float:
        return await _rate(write, given["seconds"])

    async def grouped() -> None:
        await database.transaction(write_run)

    async def directly() -> None:
        commit()
        await asyncio.sleep(0)  # let the next writer run

    samples = await interleaved(
        {
            "store, 32 at once": lambda: at_once(grouped),
            "separate commits, 32 at once": lambda: at_once(directly),
            "store, sequential": lambda: _latency(grouped, given["calls"]),
            "separate commits, sequential": lambda: _latency(directly, given["calls"]),
            "write + fdatasync": lambda: _sync_latency(synced(file, RECORD), given["calls"]),
            "write of 6 pages + fdatasync": lambda: _sync_latency(
                synced(wal, os.urandom(6 * PAGE_BYTES)), given["calls"]
            ),
        },
        given["rounds"],
    )
    await database.close()
    send_line({"samples": samples})


async def _rate(write: Callable[[], Any], seconds: float) -> float:
    started = time.perf_counter()
    count = 0

    async def writer() -> None:
        nonlocal count
        while time.perf_counter() < started + seconds:
            await write()
            count += 1

    await asyncio.gather(*(writer() for _ in range(WRITERS)))
    return count / (time.perf_counter() - started)


async def _latency(write: Callable[[], Any], calls: int) -> float:
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        await write()
        times.append(time.perf_counter() - started)
    return median(times)


async def _sync_latency(write: Callable[[], None], calls: int) -> float:
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        write()
        times.append(time.perf_counter() - started)
    return median(times)


if __name__ == "__main__":
    uvloop.run(main(json.loads(sys.argv[1])))
