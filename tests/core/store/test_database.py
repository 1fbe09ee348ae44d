"""The store keeps what it acknowledged, and one caller's mistake costs nobody else."""

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils

from bot.outbox.store import inbox_file, open_stores
from bot.outbox.store import migrate as migrate_bot
from core.common.database import Database, Dialect, Reads, Search, Transaction
from core.common.database.group_commit import Work, Writer
from core.common.database.sqlite.connection import WAL_BYTES
from core.common.database.sqlite.database import SqliteDatabase
from core.common.errors import ResponderBotError
from core.models import parse_id
from core.store import objects
from core.store.database import sequences
from core.store.database.opening import open_database
from core.store.database.schema import migrate
from core.store.database.sequences import touch
from tests import programs, stores, templates
from tests.stores import opened


@pytest.fixture(params=stores.DIALECTS)
def each_database(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a test run on SQLite and on PostgreSQL."""
    with stores.using(request.param):
        yield


@pytest.fixture(autouse=True)
def sqlite_otherwise(request: pytest.FixtureRequest) -> Iterator[None]:
    """Most of these tests are about SQLite's files."""
    if "each_database" in request.fixturenames:
        yield
        return
    with stores.using("sqlite"):
        yield


@pytest.mark.parametrize("content", [b"a diary, no database\n" * 100, b"SQLite format 3\0" + b"rubbish" * 1_000])
def test_a_file_that_is_no_database_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.db").write_bytes(content)
    with pytest.raises(ResponderBotError, match=r"a\.db can't be opened \(.*\); restore a backup, or name another"):
        SqliteDatabase(tmp_path / "a.db", migrate)


@pytest.mark.usefixtures("each_database")
async def test_numbers_are_given_once_to_many_writers_of_two_connections(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as one, opened(tmp_path / "a.db") as other:
        numbers = await asyncio.gather(
            *(database.transaction(objects.next_id) for database in (one, other) for _ in range(200))
        )
    assert sorted(numbers) == list(range(1, 401))


async def test_a_commit_that_breaks_costs_its_own_callers_alone() -> None:
    breaks = [True, False]

    def commit(works: list[Work]) -> None:
        if breaks.pop(0):
            raise OSError("no descriptor is left")

    writer = Writer(commit)
    async with asyncio.timeout(30):
        with pytest.raises(OSError, match="no descriptor"):
            await writer.run(lambda tx: None)
        await writer.run(lambda tx: None)
        await writer.close()


@pytest.mark.usefixtures("each_database")
async def test_work_that_raises_is_undone_alone(tmp_path: Path) -> None:
    def good(tx: Transaction) -> int:
        return objects.next_id(tx)

    def bad(tx: Transaction) -> int:
        objects.insert(tx, 900, "alert", "{}")
        raise ResponderBotError("conflict", "no")

    async with opened(tmp_path / "a.db") as database:
        results = await asyncio.gather(
            database.transaction(good),
            database.transaction(bad),
            database.transaction(good),
            return_exceptions=True,
        )
        assert [results[0], results[2]] == [1, 2]
        assert isinstance(results[1], ResponderBotError)
        assert await database.read(lambda reads: objects.find(reads, "alert", 900)) is None


@pytest.mark.usefixtures("each_database")
async def test_of_works_that_share_a_commit_each_has_its_own_end(tmp_path: Path) -> None:
    def insert(number: int) -> Callable[[Transaction], int]:
        def work(tx: Transaction) -> int:
            objects.insert(tx, number, "alert", "{}")
            if number % 3 == 0:
                raise ValueError(number)
            return number

        return work

    def refuse(tx: Transaction) -> None:
        raise ResponderBotError("conflict", "no")

    async with opened(tmp_path / "a.db") as database:
        works = [refuse if number % 5 == 0 else insert(number) for number in range(1, 31)]
        results = await asyncio.gather(*(database.transaction(work) for work in works), return_exceptions=True)
        kept = [row["id"] for row in await database.fetch_in_background("SELECT id FROM object ORDER BY id")]
    expected = [number for number in range(1, 31) if number % 3 and number % 5]
    assert kept == [result for result in results if isinstance(result, int)] == expected
    for number, result in enumerate(results, 1):
        kind = ResponderBotError if number % 5 == 0 else ValueError if number % 3 == 0 else int
        assert isinstance(result, kind)


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize("seq", [1, 2**63], ids=["is taken", "too large"])
async def test_an_insert_that_fails_costs_its_own_work_alone(tmp_path: Path, seq: int) -> None:
    """Also if its work goes on without it."""

    def insert(tx: Transaction, seq: int | None, name: str) -> None:
        number = sequences.take(tx, "event")[0] if seq is None else seq
        tx.run(
            'INSERT INTO event (seq, at, type, object_type, object_id, root_id, "user")'
            " VALUES (:seq, 1, :name, 'case', :id, 1, 'u')",
            {"seq": number, "name": name, "id": objects.next_id(tx)},
        )

    def reads_on(tx: Transaction) -> None:
        insert(tx, seq, "bad")
        tx.row("SELECT 1")

    def goes_on(tx: Transaction) -> None:
        with suppress(Exception), tx.savepoint():
            insert(tx, seq, "bad")
        insert(tx, None, "kept")

    works: list[Callable[[Transaction], Any]] = [
        lambda tx: insert(tx, None, "good"),
        lambda tx: insert(tx, seq, "bad"),
        lambda tx: tx.rows("SELECT 1"),
        reads_on,
        goes_on,
        lambda tx: insert(tx, None, "last"),
    ]
    async with opened(tmp_path / "a.db") as database:
        await database.transaction(lambda tx: insert(tx, None, "first"))
        results = await asyncio.gather(*map(database.transaction, works), return_exceptions=True)
        found = await database.read(lambda reads: reads.rows("SELECT seq, type, object_id FROM event ORDER BY seq"))
    assert [isinstance(result, Exception) for result in results] == [False, True, False, True, False, False]
    assert [(row["seq"], row["type"]) for row in found] == [(1, "first"), (2, "good"), (3, "kept"), (4, "last")]
    assert len({row["object_id"] for row in found}) == 4
    async with opened(tmp_path / "a.db") as database:
        assert await database.transaction(objects.next_id) > max(row["object_id"] for row in found)


@pytest.mark.usefixtures("each_database")
async def test_inserts_that_fail_again_and_again_cost_no_other_work(tmp_path: Path) -> None:
    """Not even those that PostgreSQL is to keep a plan for meanwhile, nor one that goes on after an error."""
    sql = (
        'INSERT INTO event (seq, at, type, object_type, object_id, root_id, "user")'
        " VALUES (:seq, 1, :type, 'case', 1, 1, 'u')"
    )

    def insert(tx: Transaction, *types: str | None, sql: str = sql) -> None:
        tx.run_all(sql, [{"seq": sequences.take(tx, "event")[0], "type": type_} for type_ in types])

    def goes_on(tx: Transaction) -> None:
        with suppress(Exception), tx.savepoint():
            insert(tx, None)
        objects.insert(tx, objects.next_id(tx), "case", "{}")

    works: list[Callable[[Transaction], Any]] = [
        lambda tx: objects.insert(tx, 1, "case", "{}"),
        lambda tx: insert(tx, None, sql=f"{sql} "),
        goes_on,
        lambda tx: insert(tx, "good"),
        lambda tx: insert(tx, None, "bad"),
    ]
    async with opened(tmp_path / "a.db") as database:
        await database.transaction(lambda tx: objects.insert(tx, objects.next_id(tx), "case", "{}"))
        for _ in range(10):
            results = await asyncio.gather(*map(database.transaction, works), return_exceptions=True)
            assert [isinstance(result, Exception) for result in results] == [True, True, False, False, True]
        found = await database.read(lambda reads: reads.rows("SELECT type FROM event"))
        assert [row["type"] for row in found] == ["good"] * 10
        assert await database.transaction(objects.next_id) == 12


@pytest.mark.usefixtures("each_database")
async def test_a_part_that_raises_leaves_the_rest_of_its_transaction(tmp_path: Path) -> None:
    def fail_half_way(tx: Transaction) -> None:
        with tx.savepoint():
            objects.insert(tx, 2, "case", "{}")
            raise ValueError("half-way")

    def work(tx: Transaction) -> None:
        objects.insert(tx, 1, "case", "{}")
        with pytest.raises(ValueError, match="half-way"):
            fail_half_way(tx)

    async with opened(tmp_path / "a.db") as database:
        await database.transaction(work)
        kept = await database.read(lambda reads: [objects.exists(reads, "case", number) for number in (1, 2)])
    assert kept == [True, False]


@pytest.mark.usefixtures("each_database")
async def test_a_reader_sees_what_was_acknowledged(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        await database.transaction(lambda tx: objects.insert(tx, 7, "alert", '{"a":1}'))
        row = await database.read(lambda reads: objects.find(reads, "alert", 7))
        assert row is not None
        assert row["doc"] == '{"a":1}'
        assert [r["doc"] for r in await database.fetch_in_background("SELECT doc FROM object")] == ['{"a":1}']


@pytest.mark.usefixtures("each_database")
async def test_a_snapshot_reads_one_moment_and_writes_nothing(tmp_path: Path) -> None:
    first_read, committed = threading.Event(), threading.Event()

    def work(reads: Reads) -> list[bool]:
        before = objects.exists(reads, "alert", 1)
        first_read.set()
        assert committed.wait(30)
        return [before, objects.exists(reads, "alert", 1)]

    def write(reads: Reads) -> None:
        reads.rows("DELETE FROM object")

    async with opened(tmp_path / "a.db") as database:
        reading = asyncio.ensure_future(database.snapshot(work))
        await asyncio.to_thread(first_read.wait, 30)
        await database.transaction(lambda tx: objects.insert(tx, 1, "alert", "{}"))
        committed.set()
        assert await reading == [False, False]
        with pytest.raises(ResponderBotError, match=r"read-?only"):
            await database.snapshot(write)
        assert await database.snapshot(lambda reads: objects.exists(reads, "alert", 1))


@pytest.mark.usefixtures("each_database")
async def test_a_caller_that_gives_up_does_not_disturb_its_batch(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        leaving = asyncio.ensure_future(database.transaction(objects.next_id))
        staying = asyncio.ensure_future(database.transaction(objects.next_id))
        await asyncio.sleep(0)  # both are handed in; not a wait
        leaving.cancel()
        assert await staying == 2


async def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with opened(path) as database:
        await database.read(lambda reads: reads.rows("SELECT 1"))
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("CREATE TABLE spoiler (x)")
        blocker.execute("DROP TABLE sequence")
        blocker.close()
        with pytest.raises(ResponderBotError, match="can't be written") as caught:
            await database.transaction(objects.next_id)
    assert caught.value.code == "unavailable"


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    """A process that prints each number after its commit and is killed while it writes has lost none of them."""
    program = """
import asyncio, os, sys
from pathlib import Path
from core.common.database.sqlite.database import SqliteDatabase
from core.store.database.schema import migrate
from core.store import objects
from core.store.database import sequences
async def main():
    database = SqliteDatabase(Path(sys.argv[1]), migrate)
    while True:
        number = await database.transaction(objects.next_id)
        print(number, flush=True)
asyncio.run(main())
"""
    path = tmp_path / "a.db"
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = [int(process.stdout.readline()) for _ in range(50)]
    process.kill()
    acknowledged += [int(line) for line in process.stdout.read().splitlines() if line]
    process.stdout.close()
    process.wait()
    connection = sqlite3.connect(path)
    last = connection.execute("SELECT last FROM sequence").fetchone()[0]
    connection.close()
    assert last >= acknowledged[-1]


@pytest.mark.parametrize("text", ["12", "~", "~x", "~-1", "~١", "~~1", "", "~" + "9" * 40])
def test_what_is_no_id_names_nothing(text: str) -> None:
    assert parse_id(text) is None


def test_an_id_is_a_tilde_and_digits() -> None:
    assert parse_id("~12") == 12


def migrate_further(db: sqlite_utils.Database) -> None:
    """As a later release does, with one more migration."""
    migrate(db)
    later = sqlite_utils.Migrations("core")
    later(name="from_the_future")(lambda db: db.execute("CREATE TABLE later (x)"))
    later.apply(db)


async def test_a_database_of_a_newer_release_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    await SqliteDatabase(tmp_path / "a.db", migrate_further).close()
    before = (tmp_path / "a.db").read_bytes()
    with pytest.raises(ResponderBotError, match="made by a newer release; run that one, or name another") as refused:
        SqliteDatabase(tmp_path / "a.db", migrate)
    assert refused.value.code == "bad_request"
    assert (tmp_path / "a.db").read_bytes() == before


def test_a_file_with_tables_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    mail = tmp_path / "mail.db"
    with closing(sqlite_utils.Database(mail)) as db:
        db.table("letter").insert({"id": 1})
    with pytest.raises(ResponderBotError, match=r"has other tables than core's, such as \w+; name another file\."):
        SqliteDatabase(mail, migrate)
    with pytest.raises(ResponderBotError, match="Core has no database in "):
        open_stores(mail)
    assert not inbox_file(mail).exists()
    with closing(sqlite_utils.Database(mail)) as db:
        assert db.table_names() == ["letter"]


def test_a_command_on_a_newer_database_ends_with_one_sentence(tmp_path: Path) -> None:
    db = sqlite_utils.Database(tmp_path / "responder-bot.db")
    migrate_further(db)
    db.close()
    for command in (["core"], ["user", "list"]):
        ended = programs.run("core.cli", *command, cwd=tmp_path, env={**os.environ, "RESPONDER_BOT_CORE_PORT": "0"})
        assert (ended.returncode, ended.stderr.count("\n"), ended.stdout) == (2, 1, "")
        assert "made by a newer release" in ended.stderr


def test_a_database_from_before_the_first_release_is_refused(tmp_path: Path) -> None:
    """Its migration has the same number, and other tables; so have the bot's, where core is of this release."""
    path = tmp_path / "responder-bot.db"
    sentence = f"{path} is from before 0.2.0 and can't be upgraded; move it away, or name another file."
    with closing(sqlite_utils.Database(path)) as db:
        migrate(db)
        migrate_bot(db)
        db.execute("DELETE FROM _sqlite_migrations WHERE name <> '1'")  # later ones came with releases
        db.execute("DROP TABLE channel_alert")
    with pytest.raises(ResponderBotError, match=re.escape(sentence)) as refused:
        open_stores(path)
    assert refused.value.code == "bad_request"
    with closing(sqlite_utils.Database(path)) as db:
        db.execute("DROP TABLE in_force")
    ended = programs.run("core.cli", "core", cwd=tmp_path, env={**os.environ, "RESPONDER_BOT_CORE_PORT": "0"})
    assert (ended.returncode, ended.stderr, ended.stdout) == (2, f"{sentence}\n", "")


@pytest.mark.usefixtures("each_database")
async def test_work_for_a_closed_store_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        pass
    with pytest.raises(ResponderBotError, match="closed") as caught:
        await database.transaction(objects.next_id)
    assert caught.value.code == "unavailable"


async def test_a_file_that_is_damaged_while_in_use_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with opened(path) as database:
        await database.transaction(lambda tx: objects.insert(tx, 1, "case", "x" * 100_000))
        other = sqlite3.connect(path)
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (path.stat().st_size - 4096))
        with pytest.raises(ResponderBotError, match="restore a backup") as caught:
            await database.read(lambda reads: objects.find(reads, "case", 1))
    assert caught.value.code == "unavailable"


async def test_the_write_ahead_log_stays_short_and_becomes_short_again(tmp_path: Path) -> None:
    """A reader that stands still keeps the log from being reused; once it is gone, the log is cut to its limit."""
    path, log = tmp_path / "a.db", tmp_path / "a.db-wal"
    megabyte, limit = "x" * 1_000_000, WAL_BYTES
    slack = 2_000_000  # a log is copied once a commit has made it too long

    async def write(database: Database, first: int, count: int) -> None:
        for number in range(first, first + count):
            await database.transaction(lambda tx, n=number: objects.insert(tx, n, "case", megabyte))  # type: ignore[misc] # n is bound here

    async with opened(path) as database:
        await write(database, 1, 40)
        assert log.stat().st_size <= limit + slack
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM object").fetchone()
            await write(database, 100, 40)
            assert log.stat().st_size > 2 * limit
        await write(database, 200, 2)
        assert log.stat().st_size <= limit + slack


async def test_the_write_ahead_log_stays_short_though_somebody_always_reads(tmp_path: Path) -> None:
    """SQLite reuses the log only when nobody reads; two readers that relieve each other leave no such moment."""
    path, log = tmp_path / "core.db", tmp_path / "core.db-wal"
    megabyte, is_over, sizes = "x" * 1_000_000, threading.Event(), list[int]()

    def read() -> None:
        with (
            closing(sqlite3.connect(path, isolation_level=None)) as one,
            closing(sqlite3.connect(path, isolation_level=None)) as other,
        ):
            one.execute("BEGIN").execute("SELECT count(*) FROM written").fetchone()
            while not is_over.is_set():
                other.execute("BEGIN").execute("SELECT count(*) FROM written").fetchone()
                one.execute("COMMIT")
                one, other = other, one

    database = open_database(path)
    try:
        await database.transaction(lambda tx: tx.run("CREATE TABLE written (text TEXT)"))
        reading = asyncio.create_task(asyncio.to_thread(read))
        for _ in range(80):
            await database.transaction(lambda tx: tx.run("INSERT INTO written VALUES (:text)", {"text": megabyte}))
            sizes.append(log.stat().st_size)
        is_over.set()
        await reading
    finally:
        is_over.set()
        await database.close()
    assert max(sizes) < 4 * WAL_BYTES


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


def endless(search: Search) -> None:
    next(search.rows(ENDLESS))


def first_rows(search: Search) -> list[Any]:
    rows = search.rows("SELECT value FROM json_each('[1, 2, 3]')")
    return [next(rows)["value"], next(rows)["value"]]


async def test_a_search_that_takes_too_long_is_stopped_and_says_so(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "core.db", migrate, search_limit_s=0.1)
    try:
        searches = await asyncio.gather(*(database.search(endless) for _ in range(8)), return_exceptions=True)
        assert {str(error) for error in searches} == {
            "The search took over 0.1 s and was stopped; ask for less, or more precisely."
        }
        assert await database.search(first_rows) == [1, 2]
    finally:
        await database.close()


async def test_a_search_that_nobody_waits_for_is_stopped(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "core.db", migrate, search_limit_s=600)
    try:
        searches = [asyncio.create_task(database.search(endless)) for _ in range(8)]
        await asyncio.sleep(0)
        for search in searches:
            search.cancel()
        await asyncio.gather(*searches, return_exceptions=True)
        async with asyncio.timeout(30):
            assert await database.search(first_rows) == [1, 2]
    finally:
        await database.close()


async def test_a_search_sees_what_was_written_after_one_that_stopped_early(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "core.db", migrate)
    count = "SELECT last FROM sequence WHERE name = 'probe'"

    def newest(search: Search) -> int:
        return int(next(search.rows(count))["last"])

    try:
        errors = []  # an error keeps the frames of the search that it ended, and so what that has open
        for number in range(1, 10):
            await database.transaction(touch)
            errors += await asyncio.gather(*(database.search(stopped) for _ in range(4)), return_exceptions=True)
            assert await asyncio.gather(*(database.search(newest) for _ in range(4))) == [number] * 4
        assert {str(error) for error in errors} == {"early"}
    finally:
        await database.close()


def stopped(search: Search) -> None:
    rows = search.rows("SELECT value FROM json_each('[1, 2, 3]'), sequence")
    next(rows)
    raise ResponderBotError("bad_request", "early")


@pytest.mark.parametrize("dialect", stores.DIALECTS)
async def test_sql_may_name_the_index_that_sqlite_takes(tmp_path: Path, dialect: Dialect) -> None:
    sql = (
        "SELECT ' INDEXED BY nothing' AS word, count(*) AS number"
        " FROM channel_alert p INDEXED BY channel_alert_of_group WHERE p.group_key = :key AND p.group_key <> ''"
    )
    with stores.using(dialect):
        async with stores.opened_bots(templates.made(stores.location(tmp_path / "bot.db"))) as bots:
            (row,) = await bots.messages.read(lambda reads: reads.rows(sql, {"key": "k"}))
    assert dict(row) == {"word": " INDEXED BY nothing", "number": 0}
