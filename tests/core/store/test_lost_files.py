"""Database files removed or replaced while in use, and a truncated database: nothing more is acknowledged."""

import asyncio
import os
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest

from core.common.database import Database
from core.common.database.sqlite.database import FILE_CHECK_EVERY_S, SqliteDatabase
from core.common.errors import ResponderBotError
from core.store import objects
from core.store.database.schema import migrate
from tests.core.core_process import ALERT, core_process, setup_in

pytestmark = pytest.mark.sqlite  # what others do to the files


@asynccontextmanager
async def filled(path: Path) -> AsyncIterator[Database]:
    """A database with rows in the file and others only in its write-ahead log."""
    database = SqliteDatabase(path, migrate)
    try:
        for number in range(1, 51):
            await insert(database, number)
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for number in range(51, 61):
            await insert(database, number)
        yield database
    finally:
        await database.close()


async def stands(database: Database, number: int) -> bool:
    return await database.read(lambda reads: objects.exists(reads, "case", number))


async def insert(database: Database, number: int) -> None:
    await database.transaction(lambda tx: objects.insert(tx, number, "case", '"' + "x" * 20_000 + '"'))


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    """Replace the file by a copy of itself."""
    shutil.copy2(path, path.with_suffix(".copy"))
    os.replace(path.with_suffix(".copy"), path)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


CASES = [
    *(("a.db", tamper) for tamper in (removed, replaced, cut, emptied)),
    *((name, tamper) for name in ("a.db-wal", "a.db-shm") for tamper in (removed, replaced)),
]


@pytest.mark.parametrize(("name", "tamper"), CASES)
async def test_nothing_is_acknowledged_any_more(tmp_path: Path, name: str, tamper: Callable[[Path], None]) -> None:
    async with filled(tmp_path / "a.db") as database:
        tamper(tmp_path / name)
        await asyncio.sleep(FILE_CHECK_EVERY_S * 2)  # until the files are due for a check
        for number in range(1_000, 1_020):
            with pytest.raises(ResponderBotError) as caught:
                await insert(database, number)
            assert caught.value.code == "unavailable"
        with pytest.raises(
            ResponderBotError, match=f"^{name} was (removed or replaced|cut short) while .* start again"
        ):
            await stands(database, 1)
        assert database.failure(60)


@pytest.mark.parametrize("name", ["a.db", "a.db-wal", "a.db-shm"])
async def test_what_is_put_back_is_used_again(tmp_path: Path, name: str) -> None:
    async with filled(tmp_path / "a.db") as database:
        os.rename(tmp_path / name, tmp_path / "away")
        await asyncio.sleep(FILE_CHECK_EVERY_S * 2)  # as above
        with pytest.raises(ResponderBotError):
            await insert(database, 1_000)
        os.rename(tmp_path / "away", tmp_path / name)
        await insert(database, 1_001)
        assert await stands(database, 1_001)
    with closing(sqlite3.connect(tmp_path / "a.db")) as after:
        assert after.execute("SELECT count(*) FROM object").fetchone()[0] == 61


async def test_a_file_that_others_shrink_and_copy_is_as_good_as_before(tmp_path: Path) -> None:
    """VACUUM and checkpoints of another process make both files shorter."""
    async with filled(tmp_path / "a.db") as database:
        await database.transaction(lambda tx: tx.run("DELETE FROM object WHERE id > 20"))
        before = (tmp_path / "a.db").stat().st_size
        with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
            other.execute("VACUUM")
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            assert (tmp_path / "a.db").stat().st_size < before
            assert (tmp_path / "a.db-wal").stat().st_size == 0
            for number in range(100, 200):  # longer than the log was when it was cut
                await insert(database, number)
                assert await stands(database, number)
            other.execute("VACUUM")
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            await asyncio.gather(*(insert(database, number) for number in range(200, 300)))
        assert await stands(database, 299)


async def test_a_database_behind_a_symbolic_link_is_used(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "real.db").touch()
    (tmp_path / "a.db").symlink_to(tmp_path / "disk" / "real.db")
    async with filled(tmp_path / "a.db") as database:
        await insert(database, 100)
        (tmp_path / "a.db").unlink()
        (tmp_path / "other.db").touch()
        (tmp_path / "a.db").symlink_to(tmp_path / "other.db")
        await asyncio.sleep(FILE_CHECK_EVERY_S * 2)  # as above
        with pytest.raises(ResponderBotError, match=r"a\.db was removed or replaced"):
            await insert(database, 101)


async def test_what_is_in_a_removed_log_is_kept_if_core_is_stopped(tmp_path: Path) -> None:
    async with filled(tmp_path / "a.db") as database:
        (tmp_path / "a.db-wal").unlink()
        with pytest.raises(ResponderBotError, match=r"^a\.db-wal was removed or replaced"):
            await insert(database, 1_000)
    with closing(sqlite3.connect(tmp_path / "a.db")) as after:
        numbers = {row[0] for row in after.execute("SELECT id FROM object")}
    assert set(range(1, 61)) <= numbers


async def post_alert(http: httpx.AsyncClient, key: str, number: int) -> tuple[int, str]:
    """Status and body of the response to a new alert."""
    headers = {"Authorization": f"Bearer {key}"}
    response = await http.post("/api/alert", json={**ALERT, "sourceRef": str(number)}, headers=headers)
    return response.status_code, response.text


@pytest.mark.parametrize("tamper", [removed, replaced, cut])
async def test_core_answers_503_and_its_health_says_why(tmp_path: Path, tamper: Callable[[Path], None]) -> None:
    setup = await setup_in(tmp_path)
    key = setup.keys["lead"]
    # httpx gives up after 5 s by default, and the disk of a busy machine may take longer.
    async with core_process(setup) as core, httpx.AsyncClient(base_url=core.url, timeout=60) as http:
        for number in range(10):
            assert (await post_alert(http, key, number))[0] == 201
        tamper(setup.database)
        await asyncio.sleep(FILE_CHECK_EVERY_S * 2)  # as above
        for number in range(10, 30):
            status, text = await post_alert(http, key, number)
            assert status == 503
            assert "core.db was" in text
        health = await http.get("/health")
        metrics = await http.get("/metrics")
        assert metrics.status_code == 200
        assert "responder_bot_store_up 0.0" in metrics.text
        assert (health.status_code, health.json()["status"]) == (503, "down")
        store = health.json()["parts"][0]
        assert store["message"].startswith("core.db was")
        assert str(tmp_path) not in store["message"]
        core.process.send_signal(signal.SIGTERM)
        assert await core.process.wait() == 0
    assert "Traceback" not in core.log.read_text()
