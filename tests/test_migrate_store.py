"""`migrate-store` copies core's database and the bot's from SQLite to PostgreSQL and back."""

import asyncio
import json
import shutil
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bot.outbox.store import STORE as BOTS
from bot.outbox.store import open_store
from core.common.clock import now_ms
from core.common.database.copying import Copied, Store, copy
from core.common.database.location import Location, PostgresqlUrl
from core.common.errors import ResponderBotError
from core.store import events
from core.store.opening import STORE as CORES
from core.store.opening import open_database
from tests import programs
from tests.core.core_process import core_process, run_body, setup_in, until
from tests.core.store.test_earlier import EARLIER, unpacked
from tests.core.test_cli import Ended, is_one_sentence
from tests.programs import PIPE, Program
from tests.stores import on_postgresql

TEXTS = ("", "ä \ue000 😀", "tab\tnew\nline\r\\N \\. \\u0041 '\"", "x" * 3_000)
NUMBERS = (0, -1, 2**63 - 1, -(2**63))
EARLIER_ONES = sorted(file.name.removesuffix(".db.gz") for file in EARLIER.glob("*.db.gz"))
BOTH = pytest.mark.parametrize("store", [CORES, BOTS], ids=["core", "bot"])


async def opened(store: Store, location: Location) -> None:
    await (open_database if store is CORES else open_store)(location).close()


def tables(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [name for (name,) in found if not name.startswith(("sqlite_", "_sqlite_"))]


def content(path: Path) -> dict[str, list[Any]]:
    """All rows by table, of messages also their order, and the last numbers."""
    with closing(sqlite3.connect(path)) as connection:
        found = {}
        for name in (*tables(connection), "sqlite_sequence"):
            columns = sorted(row[1] for row in connection.execute(f"PRAGMA table_info('{name}')"))
            listed = ", ".join(f'"{column}"' for column in ([*columns, "rowid"] if name == "message" else columns))
            found[name] = sorted(connection.execute(f'SELECT {listed} FROM "{name}"').fetchall(), key=repr)  # noqa: S608
        return found


def fill(path: Path) -> None:
    """Put rows with unusual values into every table, whatever its columns are."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for name in tables(connection):
            info = connection.execute(f"PRAGMA table_info('{name}')").fetchall()
            for number in range(1, 5):
                values: dict[str, str | int | None] = {
                    column: value_for(column, kind, key, number) for _, column, kind, _, _, key in info
                }
                if name in ("message", "event"):
                    values["rowid" if name == "message" else "seq"] = 1000 - number  # not in the order of its key
                needed = {row[1] for row in info if row[3] or row[5]}
                if number == 3:
                    values = {column: value if column in needed else None for column, value in values.items()}
                columns = ", ".join(f'"{column}"' for column in values)
                places = ", ".join("?" for _ in values)
                connection.execute(
                    f'INSERT OR REPLACE INTO "{name}" ({columns}) VALUES ({places})',  # noqa: S608
                    list(values.values()),
                )
        if "sequence" in tables(connection):
            connection.execute("DELETE FROM sequence WHERE id = 3")  # PostgreSQL's own
        for name in ("event", "refresh"):
            connection.execute("UPDATE sqlite_sequence SET seq = seq + 500 WHERE name = ?", [name])  # deleted since


def value_for(column: str, kind: str, key: int, number: int) -> str | int:
    if key:
        return f"{column}{number}" if kind == "TEXT" else number
    if column in ("doc", "unique_key", "key_hash"):
        return json.dumps({"n": number, "t": TEXTS[number - 1]}, ensure_ascii=False)
    if column == "responder_name":
        return f"R_{number}"
    return TEXTS[number - 1] if kind == "TEXT" else NUMBERS[number - 1]


@BOTH
async def test_every_table_and_value_comes_back_as_it_was(tmp_path: Path, store: Store) -> None:
    source, back = tmp_path / "source.db", tmp_path / "below" / "back.db"
    await opened(store, source)
    fill(source)
    before = content(source)
    first, second = on_postgresql(tmp_path / "first"), on_postgresql(tmp_path / "second")
    ways: Sequence[tuple[Location, Location]] = ((source, first), (first, second), (second, back))
    copied = [copy(store, *way) for way in ways]
    assert content(back) == content(source) == before
    assert len({tuple(one.tables) for one in copied}) == 1
    assert [one.name for one in copied[0].tables] == [name for name in before if name != "sqlite_sequence"]
    assert all(one.rows for one in copied[0].tables)
    assert oct(back.stat().st_mode & 0o777) == "0o600"
    again = [copy(store, *way) for way in ways]
    assert [one.was_there for one in again] == [True] * 3
    assert again[0].tables == copied[0].tables
    with closing(sqlite3.connect(back)) as connection, connection:
        connection.execute("DELETE FROM refresh" if store is BOTS else "DELETE FROM bulk")
    with pytest.raises(
        ResponderBotError, match=r"back\.db \(TO\) holds other data than FROM; name a new file"
    ) as other:
        copy(store, second, back)
    assert other.value.code == "exists"
    with pytest.raises(
        ResponderBotError, match="holds other data than FROM; name another database, or `DROP SCHEMA t_"
    ):
        copy(store, back, first)


async def test_numbers_go_on_where_they_were(tmp_path: Path) -> None:
    """Also those whose rows are gone: nobody gets a number that was given before."""
    source, target, back = tmp_path / "a.db", on_postgresql(tmp_path / "b"), tmp_path / "c.db"

    async def next_event(location: Location) -> int:
        database = open_database(location)
        try:
            return await database.transaction(append)
        finally:
            await database.close()

    def append(tx: Any) -> int:
        events.append(tx, at=now_ms(), type="alert.created", object_type="alert", object_ids=[1], root_id=1, user="ann")
        row = tx.row("SELECT seq FROM last_event")
        tx.run("DELETE FROM event")
        return int(row["seq"])

    assert [await next_event(source), await next_event(source)] == [1, 2]
    copy(CORES, source, target)
    assert [await next_event(target), await next_event(target)] == [3, 4]
    copy(CORES, target, back)
    assert await next_event(back) == 5


@pytest.mark.parametrize("name", EARLIER_ONES)
async def test_a_database_of_an_earlier_release_is_copied_as_of_today_and_stays_as_it_is(
    tmp_path: Path, name: str
) -> None:
    store = CORES if name.startswith("core") else BOTS
    source, today = tmp_path / "source.db", tmp_path / "today.db"
    unpacked(name, source)
    shutil.copyfile(source, today)
    before = list(lines(source))
    copy(store, source, on_postgresql(tmp_path / "target"))
    copy(store, on_postgresql(tmp_path / "target"), tmp_path / "back.db")
    copy(store, source, tmp_path / "copy.db")
    assert list(lines(source)) == before
    await opened(store, today)
    expected = content(today)
    for path in (tmp_path / "back.db", tmp_path / "copy.db"):
        found = content(path)
        if store is CORES and "identity" not in "".join(before):
            found["identity"] = expected["identity"]  # a random id, made with the table
        assert found == expected


def lines(path: Path) -> Iterator[str]:
    with closing(sqlite3.connect(path)) as connection:
        yield from connection.iterdump()


# --- rows that can't be copied ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("UPDATE object SET doc = '{\"a\": ' WHERE id = 7", "^object 7: the column doc holds no JSON"),
        (
            "UPDATE object SET doc = CAST(x'7b22ff227d' AS TEXT) WHERE id = 7",
            "^object 7: the column doc holds no|UTF-8",
        ),
        ("UPDATE object SET unique_key = CAST(x'ff' AS TEXT) WHERE id = 7", "^object 7: unique_key is not valid UTF-8"),
        ("UPDATE object SET unique_key = x'00' WHERE id = 7", "^object 7: unique_key is neither a text nor"),
        ("UPDATE object SET parent_id = 1.5 WHERE id = 7", "^object 7: parent_id is neither a text nor a whole"),
        ("UPDATE object SET parent_id = 'x' WHERE id = 7", "^object 7 can't be copied .*bigint"),
        (
            "UPDATE object SET unique_key = hex(randomblob(8000)) WHERE id = 7",
            "^object 7 can't be copied .*maximum size",
        ),
        ("INSERT INTO group_member VALUES (NULL, 'ann')", "^group_member 1 can't be copied .*not-null"),
        ("CREATE TABLE notes (id INTEGER)", "^The table notes isn't in both databases"),
    ],
)
async def test_a_row_that_postgresql_cannot_store_is_named_and_nothing_is_copied(
    tmp_path: Path, change: str, sentence: str
) -> None:
    source, target = tmp_path / "core.db", on_postgresql(tmp_path / "target")
    await opened(CORES, source)
    with closing(sqlite3.connect(source)) as connection, connection:
        for number in range(5, 9):
            connection.execute("INSERT INTO object (id, kind, doc) VALUES (?, 'alert', '{}')", [number])
        connection.execute(change)
    with pytest.raises(ResponderBotError, match=sentence) as refused:
        copy(CORES, source, target)
    assert refused.value.code == "bad_request"
    assert relations(target) == []
    with pytest.raises(ResponderBotError, match=r"There is nothing of responder-bot in it \(FROM\)"):
        copy(CORES, target, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


def relations(url: PostgresqlUrl) -> list[str]:
    with psycopg.connect(url.text) as connection:
        found = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(current_setting('search_path'))"
        )
        return [name for (name,) in found]


async def test_a_nul_is_replaced_as_ever_and_its_row_named(tmp_path: Path) -> None:
    source, target = tmp_path / "core.db", on_postgresql(tmp_path / "target")
    await opened(CORES, source)
    with closing(sqlite3.connect(source)) as connection, connection:
        docs = ('{"a": "\\u0000"}', '{"a": "\\\\u0000"}', '{"a": "b"}')
        for number, doc in enumerate(docs, 1):
            connection.execute(
                "INSERT INTO object (id, kind, unique_key, doc) VALUES (?, 'case', ?, ?)", [number, doc, doc]
            )
        connection.execute("INSERT INTO group_member VALUES (?, 'ann')", ["a\0b"])
    copied = copy(CORES, source, target)
    assert copied.changed == ["group_member 1"]
    with psycopg.connect(target.text) as connection_:
        found = connection_.execute("SELECT doc FROM object ORDER BY id").fetchall()
        (group,) = connection_.execute("SELECT name FROM group_member").fetchone() or ("",)
    assert [doc for (doc,) in found] == [*docs]
    assert group == "a\ufffdb"
    assert copy(CORES, source, target) == Copied(copied.tables, True, ())


# --- the command ------------------------------------------------------------------------------------------------------


async def start(folder: Path, *args: str) -> Program:
    return await programs.start("bot.cli", "migrate-store", *args, cwd=folder, stdout=PIPE, stderr=PIPE)


async def command(folder: Path, *args: str) -> Ended:
    process = await start(folder, *args)
    out, err = await process.communicate()
    return Ended(process.returncode or 0, out.decode(), err.decode())


def kill_all(processes: Sequence[Program]) -> None:
    for process in processes:
        if process.returncode is None:
            process.kill()


@pytest.mark.slow
@pytest.mark.sqlite  # where it begins
async def test_a_core_goes_on_where_it_was(tmp_path: Path) -> None:
    """On PostgreSQL, and back on SQLite: the same lists, the feed without a gap, and what waited goes on."""
    setup = await setup_in(tmp_path, responders={"Stepwise": {}, "Asking": {"approval": 1}})
    unpacked("bot-95a74fa", tmp_path / "core.db.slack")
    settings = (tmp_path / "settings.toml").read_text()
    cores, bots = on_postgresql(tmp_path / "core"), on_postgresql(tmp_path / "bot")

    async with core_process(setup) as core:
        alert = (await core.client().create_alert(new_alert("one"))).id
        ran = await core.client().run(run_body(alert, parameters={"steps": ["write"]}))
        asking = await core.client().run(run_body(alert, "Asking_1_0", parameters={"steps": ["write"]}))
        await core.ended(ran.id)
        refused = await command(tmp_path, "core.db", cores.text)
        assert (refused.code, refused.err) == (
            2,
            "core.db is in use; stop every responder-bot that uses it, and copy again.\n",
        )
        page = await core.client().events(0, 0)
        shown = (await core.client().alert(alert), await core.client().action(ran.id))
        await core.kill()

    copied = await command(tmp_path, "core.db", cores.text, "--bot", "core.db.slack", bots.text)
    assert copied.code == 0, copied.err
    assert copied.err == (
        "Set [core] database to that URL and [bot] database to that URL, and start nothing on FROM any more: it stays"
        " as it is, with all that is open in it.\n"
    )
    assert "action          2     " in copied.out
    (tmp_path / "settings.toml").write_text(
        settings.replace(json.dumps(str(tmp_path / "core.db")), json.dumps(cores.text))
    )
    async with core_process(setup, "target") as core:
        assert (await core.client().alert(alert), await core.client().action(ran.id)) == shown
        assert (await core.client().events(0, 0, database=page.database)).events[: len(page.events)] == page.events
        second = (await core.client().create_alert(new_alert("two"))).id
        assert int(second[1:]) == int(asking.id[1:]) + 1
        new = await core.client().events(page.last, 0, database=page.database)
        assert new.events[0].seq == page.last + 1
        await core.client("lead").approve(asking.id)
        assert (await core.ended(asking.id)).status == "Success"
        refused = await command(tmp_path, cores.text, "back.db")
        assert refused.code == 2
        assert " is in use; stop every responder-bot that uses it, and copy again." in refused.err
        assert is_one_sentence(refused.err)
        last = (await core.client().events(None, 0)).last
        await core.kill()

    back = await command(tmp_path, cores.text, "back.db", "--bot", bots.text, "back.db.slack")
    assert back.code == 0, back.err
    (tmp_path / "settings.toml").write_text(settings.replace("core.db", "back.db"))
    async with core_process(setup, "back") as core:
        assert (await core.client().alert(second)).title == "two"
        third = (await core.client().create_alert(new_alert("three"))).id
        assert int(third[1:]) == int(second[1:]) + 1
        new = await core.client().events(last, 0, database=page.database)
        assert [event.object_id for event in new.events if event.type == "alert.created"] == [third]
    expected = tmp_path / "expected.db"
    unpacked("bot-95a74fa", expected)
    await opened(BOTS, expected)
    assert content(tmp_path / "back.db.slack") == content(expected)


def new_alert(title: str) -> dict[str, Any]:
    return {"type": "t", "source": "s", "sourceRef": title, "title": title, "description": "d"}


@pytest.mark.slow
async def test_killed_in_the_middle_it_leaves_nothing_and_works_again(tmp_path: Path) -> None:
    """While it runs nobody opens the half of a store."""
    source = tmp_path / "core.db"
    await opened(CORES, source)
    with closing(sqlite3.connect(source)) as connection, connection:
        doc = json.dumps({"text": "x" * 2_000})
        rows = ((number, "case", doc) for number in range(1, 20_001))
        connection.executemany("INSERT INTO object (id, kind, doc) VALUES (?, ?, ?)", rows)
    url, file = on_postgresql(tmp_path / "target"), tmp_path / "copy.db"
    with ExitStack() as stack, psycopg.connect(url.text, autocommit=True) as watching:

        def backend() -> int:
            sql = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'COPY \"object\"%'"
            row = watching.execute(sql).fetchone()
            return row[0] if row else 0

        def is_over(pid: int) -> bool:
            return watching.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone() is None

        running = [await start(tmp_path, "core.db", url.text)]
        stack.callback(kill_all, running)
        pid = await until(backend, "COPY")
        running[0].send_signal(signal.SIGSTOP)
        shutil.copyfile(source, tmp_path / "other.db")
        running.append(await start(tmp_path, "other.db", str(file)))
        await until(lambda: file.exists() and file.stat().st_size > 1_000_000, "writing")
        running[1].send_signal(signal.SIGSTOP)
        opening = [asyncio.to_thread(open_database, location) for location in (url, file)]
        for error in await asyncio.gather(*opening, return_exceptions=True):
            assert isinstance(error, ResponderBotError), error
            assert error.code == "unavailable"
            assert is_one_sentence(error.message)
        kill_all(running)
        for process in running:
            await process.wait()
        await until(lambda: is_over(pid), "the end of the transaction")
    assert relations(url) == []
    with closing(sqlite3.connect(file)) as connection:
        assert tables(connection) == []
    for target in (url.text, str(file)):
        ended = await command(tmp_path, "core.db", target)
        assert ended.code == 0, ended.err
        assert "object          20000  " in ended.out
        assert ended.err.count("\n") == 1
        assert ended.err.endswith("if it has one, run this again with --bot.\n")
    copy(CORES, url, tmp_path / "back.db")
    assert content(tmp_path / "back.db") == content(source) == content(file)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["nowhere.db", "new.db"], "There is nothing of responder-bot in nowhere.db (FROM); name another."),
        (["core.db", "./core.db"], "FROM and TO are the same database; name two."),
        (["core.db", "mysql://ann:hidden@db/x"], "TO is neither a file nor the URL of a PostgreSQL (postgresql://"),
        (
            ["core.db", "postgresql://ann:hidden@127.0.0.1:1/x"],
            "The database postgresql://127.0.0.1:1/x can't be opened",
        ),
        (
            ["postgresql://ann:hidden@127.0.0.1:1/x", "new.db"],
            "The database postgresql://127.0.0.1:1/x can't be opened",
        ),
        (["core.db", "postgresql://ann:hid den@[/x"], "TO is no URL of a PostgreSQL"),
        (["text.db", "new.db"], "text.db can't be read (file is not a database); correct that."),
        (["core.db", "text.db"], "text.db can't be written (file is not a database); correct that."),
        (
            ["core.db", "new.db", "--bot", "core.db", "new.db.slack"],
            "core.db (FROM) is another database than expected: it has no table message; name another.",
        ),
    ],
)
async def test_what_cannot_be_copied_is_said_in_a_sentence(tmp_path: Path, args: Sequence[str], sentence: str) -> None:
    await opened(CORES, tmp_path / "core.db")
    (tmp_path / "text.db").write_text("not a database, although it is long enough to be the beginning of one" * 20)
    refused = await command(tmp_path, *args)
    assert (refused.code, refused.out) == (2, "")
    assert is_one_sentence(refused.err)
    assert sentence in refused.err
    assert "hidden" not in refused.err
    assert not (tmp_path / "new.db").exists()
