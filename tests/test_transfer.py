"""`store export` and `store import` move the database from SQLite to PostgreSQL and back."""

import io
import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.outbox.store import STORES, inbox_file
from core.common.clock import now_ms
from core.common.database import Transaction
from core.common.database.location import Location
from core.common.database.schema import Opening
from core.common.database.transfer import Store, export, load, tables
from core.common.errors import ResponderBotError
from core.store import events
from core.store.database.opening import STORE as CORES
from core.store.database.opening import open_database
from tests import programs, stores, templates
from tests.core.core_process import core_process, run_body, setup_in
from tests.core.test_cli import Ended
from tests.programs import PIPE
from tests.stores import on_postgresql

TEXTS = ("", "ä \ue000 😀", "tab\tnew\nline\r\\N \\. \\u0041 '\"", "x" * 3_000)
NUMBERS = (0, -1, 2**63 - 1, -(2**63))
BOTS, INBOX = STORES
EACH = pytest.mark.parametrize("store", [CORES, BOTS, INBOX], ids=lambda store: store.name)
LATER = 2**63 - 1  # when no lease stands


async def exported(store: Store, location: Location) -> str:
    database, file = store.open(location, Opening()), io.StringIO()
    try:
        await export(store, database, file, LATER)
    finally:
        await database.close()
    return file.getvalue()


async def imported(store: Store, location: Location, text: str) -> None:
    if store is not CORES:
        templates.made(location)
    database = store.open(location, Opening())
    try:
        await load(store, database, io.StringIO(text))
    finally:
        await database.close()


def fill(path: Path, store: Store) -> None:
    """Put 250 rows with unusual values into every table of a store, whatever its columns are."""
    with closing(sqlite3.connect(inbox_file(path) if store is INBOX else path)) as connection, connection:
        for name in (table.name for table in tables(store)):
            info = connection.execute(f"PRAGMA table_info('{name}')").fetchall()
            for number in range(250):
                values = {column: value_for(column, kind, key, number) for _, column, kind, _, _, key in info}
                columns = ", ".join(f'"{column}"' for column in values)
                sql = f'INSERT OR REPLACE INTO "{name}" ({columns}) VALUES ({", ".join("?" for _ in values)})'  # noqa: S608
                connection.execute(sql, list(values.values()))


def value_for(column: str, kind: str, key: int, number: int) -> str | int:
    if key or column in ("key", "id"):
        return f"{column}{number}" if kind == "TEXT" else 1000 - number
    if column in ("doc", "unique_key", "name"):
        return json.dumps({"n": number, "t": TEXTS[number % 4]}, ensure_ascii=False)
    if column in ("responder_name", "made_at", "at", "action_id"):
        return f"R_{number}" if kind == "TEXT" else number
    return TEXTS[number % 4] if kind == "TEXT" else NUMBERS[number % 4]


@EACH
async def test_every_table_and_value_comes_back_as_it_was(tmp_path: Path, store: Store) -> None:
    source, back = tmp_path / "source.db", tmp_path / "back.db"
    await store.open(templates.made(source), Opening()).close()
    fill(source, store)
    text = await exported(store, source)
    between = on_postgresql(tmp_path / "between")
    await imported(store, between, text)
    assert await exported(store, between) == text
    await imported(store, back, text)
    assert await exported(store, back) == text
    last = json.loads(text.splitlines()[-1])["tables"]
    assert {name: count for name, (count, _) in last.items() if count < 250} == {}


@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
async def test_numbers_go_on_where_they_were(tmp_path: Path, target: str) -> None:
    """Also those whose rows are gone: nobody gets a number that was given before."""

    def append(tx: Transaction) -> int:
        events.record(tx, 1, at=now_ms(), type="alert.created", object_type="alert", root_id=1, user="ann")
        tx.run("DELETE FROM event")
        return events.last(tx)

    async def next_event(location: Location) -> int:
        database = open_database(location)
        try:
            return await database.transaction(append)
        finally:
            await database.close()

    async def next_message(location: Location, key: str) -> int:
        sql = "INSERT INTO message (key, channel, payload, version, post_id, ts) VALUES (:key, 'C', '', 1, '', '')"
        database = BOTS.open(location, Opening())
        try:
            row = await database.transaction(lambda tx: tx.row(f"{sql} RETURNING number", {"key": key}))
        finally:
            await database.close()
        assert row is not None
        return int(row["number"])

    place = tmp_path / "a.db"
    assert [await next_event(place), await next_event(place)] == [1, 2]
    assert [await next_message(place, key) for key in "ab"] == [1, 2]
    new = on_postgresql(tmp_path / "b") if target == "postgresql" else tmp_path / "b.db"
    for store in (CORES, BOTS):
        await imported(store, new, await exported(store, place))
    assert await next_event(new) == 3
    assert await next_message(new, "c") == 3


@pytest.mark.slow
async def test_what_an_import_refuses_leaves_nothing(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", on_postgresql(tmp_path / "b")
    await CORES.open(source, Opening()).close()
    fill(source, CORES)
    text = await exported(CORES, source)
    lines = text.splitlines(keepends=True)
    bad = {
        "cut": "".join(lines[:-1]),
        "empty": "",
        "of the bot": text.replace('"core"', '"bot"', 1),
        "no JSON": text.replace("[", "<", 1),
        "changed": text.replace('"R_7"', '"R_8"', 1),
        "a row less": "".join([*lines[:3], *lines[4:]]),
        "a row twice": "".join([*lines[:3], lines[3], *lines[3:]]),
        "a table more": "".join([*lines[:-1], '{"table":"notes","columns":["id"]}\n', lines[-1]]),
    }
    for name, damaged in bad.items():
        with pytest.raises(ResponderBotError) as refused:
            await imported(CORES, target, damaged)
        assert refused.value.code == "bad_request", name
        assert refused.value.message.startswith("Nothing was imported from the file, since "), name
    await imported(CORES, target, text)
    with pytest.raises(ResponderBotError, match="isn't empty; name a new one") as refused:
        await imported(CORES, target, text)
    assert refused.value.code == "exists"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_no_change_of_an_export_is_imported(tmp_path: Path, data: st.DataObject) -> None:
    source = tmp_path / "small.db"
    if not source.exists():
        await BOTS.open(templates.made(source), Opening()).close()
        with closing(sqlite3.connect(source)) as connection, connection:
            connection.execute("INSERT INTO state VALUES ('cursor', '12')")
    text = await exported(BOTS, source)
    place = data.draw(st.integers(0, len(text) - 2))  # the last line break may go
    changed = (
        text[:place] + data.draw(st.sampled_from(["", "0", "1", "x", '"', "[", "\n", "\u00e4"])) + text[place + 1 :]
    )
    target = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
    try:
        await imported(BOTS, target, changed)
    except ResponderBotError as error:
        assert error.code == "bad_request"
    else:
        assert await exported(BOTS, target) == text


def new_alert(title: str) -> dict[str, Any]:
    return {"type": "siem", "source": "x", "sourceRef": title, "title": title, "description": "d", "severity": 2}


# --- the command ------------------------------------------------------------------------------------------------------


async def command(folder: Path, *args: str) -> Ended:
    process = await programs.start("bot.cli", "store", *args, cwd=folder, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    return Ended(process.returncode or 0, out.decode(), err.decode())


@pytest.mark.slow
@pytest.mark.sqlite  # where it begins
async def test_a_core_goes_on_where_it_was(tmp_path: Path) -> None:
    """On PostgreSQL, and back on SQLite: the same lists, the feed without a gap, and what waited goes on."""
    setup = await setup_in(tmp_path, responders={"Stepwise": {}, "Asking": {"approval": 1}})
    before = (tmp_path / "settings.toml").read_text()
    config = ("--config", "settings.toml")

    def move_to(location: Location) -> None:
        place = json.dumps(str(location) if isinstance(location, Path) else location.text)
        (tmp_path / "settings.toml").write_text(before.replace(json.dumps(str(tmp_path / "core.db")), place))

    async with core_process(setup) as core:
        alert = (await core.client().create_alert(new_alert("one"))).id
        ran = await core.client().run(run_body(alert, parameters={"steps": ["write"]}))
        asking = await core.client().run(run_body(alert, "Asking_1_0", parameters={"steps": ["write"]}))
        await core.ended(ran.id)
        refused = await command(tmp_path, "export", "rows", *config)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert "uses this database; stop it first." in refused.err
        assert not (tmp_path / "rows").exists()
        page = await core.client().events(0, 0)
        shown = (await core.client().alert(alert), await core.client().action(ran.id))
        core.process.send_signal(signal.SIGTERM)
        await core.process.wait()

    inbox = "INSERT INTO inbox (key, payload, at, done_at) VALUES ('click', '{}', 1, 0)"
    await INBOX.open(tmp_path / "core.db", Opening()).close()
    stores.rows(inbox_file(tmp_path / "core.db"), inbox)
    for first, place in (("rows", on_postgresql(tmp_path / "core")), ("back", tmp_path / "back.db")):
        written = await command(tmp_path, "export", first, *config)
        assert written.code == 0, written.err
        assert ["action", "2"] in [line.split()[:2] for line in written.out.splitlines()]
        assert oct((tmp_path / first).stat().st_mode & 0o777) == "0o600"
        again = await command(tmp_path, "export", first, *config)
        assert (again.code, again.err.count("\n")) == (2, 1)
        move_to(place)
        filled = await command(tmp_path, "import", first, *config)
        assert (filled.code, filled.out) == (0, written.out), filled.err
        assert stores.clicks(place, "SELECT key FROM inbox") == [("click",)]
        async with core_process(setup, f"on {first}") as core:
            assert (await core.client().alert(alert), await core.client().action(ran.id)) == shown
            feed = await core.client().events(0, 0, database=page.database)
            assert feed.events[: len(page.events)] == page.events
            if first == "back":
                await core.client("lead").approve(asking.id)
                assert (await core.ended(asking.id)).status == "Success"
            core.process.send_signal(signal.SIGTERM)
            await core.process.wait()
