"""Databases of earlier commits open and go on."""

import gzip
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest
import sqlite_utils
from slack_sdk.web.async_client import AsyncWebClient

from bot.outbox import FeedCheckpoint, MessageOutbox
from bot.outbox import store as bot_schema
from bot.outbox.store import open_store
from core.common.clock import now_ms
from core.common.errors import ResponderBotError
from core.models import Action
from core.store import schema as core_schema
from core.store.opening import open_database
from tests import programs
from tests.core.core_process import CoreProcess, core_process, run_body, setup_in

pytestmark = pytest.mark.sqlite  # files of earlier releases

EARLIER = Path(__file__).parent / "earlier"
WITH_ACTIONS = ("core-fd6a9e2", "core-6ed1461", "core-f3ef3d2")
OF_THE_BOT = tuple(sorted(file.name.removesuffix(".db.gz") for file in EARLIER.glob("bot-*.db.gz")))


def unpacked(name: str, target: Path) -> None:
    target.write_bytes(gzip.decompress((EARLIER / f"{name}.db.gz").read_bytes()))


def shape(path: Path) -> tuple[dict[str, set[str]], set[str]]:
    """The columns of each table, and the names of the indexes."""
    with closing(sqlite3.connect(path)) as connection:
        made = connection.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite%'").fetchall()
        columns = {
            name: {row[1] for row in connection.execute(f"PRAGMA table_info([{name}])")}
            for kind, name in made
            if kind == "table"
        }
    return columns, {name for kind, name in made if kind == "index"}


@pytest.mark.parametrize("name", ["core-070e4f5", *WITH_ACTIONS, "core-95a74fa"])
async def test_a_database_of_any_earlier_core_gets_the_tables_of_today(tmp_path: Path, name: str) -> None:
    unpacked(name, tmp_path / "core.db")
    for path in (tmp_path / "core.db", tmp_path / "new.db", tmp_path / "core.db"):  # the second time nothing is to do
        await open_database(path).close()
    assert shape(tmp_path / "core.db") == shape(tmp_path / "new.db")


@pytest.mark.parametrize("name", WITH_ACTIONS)
async def test_what_an_earlier_core_left_open_goes_on(tmp_path: Path, name: str) -> None:
    unpacked(name, tmp_path / "core.db")
    setup = await setup_in(tmp_path, responders={"Stepwise": {}, "Asking": {"approval": 1}})
    async with core_process(setup) as core:
        assert (await core.client().alert("~1")).title == "Beacon"
        assert (await core.client().action("~2")).status == "Success"
        assert [await status(core, number) for number in ("~4", "~6")] == ["Success", "Success"]
        waiting = await core.client().action("~5")
        assert waiting.status == "Waiting"
        assert waiting.parameters is not None  # its approvers see what they approve
        assert "steps" in json.loads(waiting.parameters)
        await core.client("lead").approve("~5")
        assert await status(core, "~5") == "Success"
        lost = await core.ended("~3")  # its program ended with the machine of that time
        assert (lost.status, json.loads(lost.report)["success"]) == ("Failure", False)
        again = await core.client().run(run_body("~1", parameters={"steps": ["write"]}))
        assert int(again.id[1:]) > 6
        assert await status(core, again.id) == "Success"


async def test_outcomes_that_an_earlier_core_only_wrote_into_its_reports(tmp_path: Path) -> None:
    unpacked("core-95a74fa", tmp_path / "core.db")
    with closing(sqlite3.connect(tmp_path / "core.db")) as connection, connection:
        connection.execute(
            "INSERT INTO action (id, kind, object_id, status, created_by, created_at, doc)"
            " SELECT id + 100, kind, object_id, status, created_by, created_at, '{' FROM action"
        )
    await open_database(tmp_path / "core.db").close()
    with closing(sqlite3.connect(tmp_path / "core.db")) as connection, connection:
        assert connection.execute("DELETE FROM action WHERE doc = '{'").rowcount == 6  # damage is left as it is
        docs = [json.loads(doc) for (doc,) in connection.execute("SELECT doc FROM action ORDER BY id")]
        (alert,) = connection.execute("SELECT doc FROM object WHERE kind = 'alert'").fetchone()
    assert json.loads(alert)["assignee"] is None
    assert [(doc["status"], doc.get("outcome"), doc.get("endedBy")) for doc in docs] == [
        ("Failure", "denied", "ben@example.org"),
        ("Deleted", "cancelled", "lead@example.org"),
        ("Failure", "expired", None),
        ("Failure", "stopped", "lead@example.org"),
        ("Failure", None, None),
        ("Success", None, None),
    ]
    assert [Action.model_validate(doc).id for doc in docs] == [doc["id"] for doc in docs]


@pytest.mark.parametrize("schema", [core_schema, bot_schema])
def test_what_a_release_of_before_has_to_go_on_with_is_only_added_to(tmp_path: Path, schema: ModuleType) -> None:
    """After NEEDED: a process of the release before goes on using the tables."""
    with closing(sqlite_utils.Database(memory=True)) as empty:
        names = [one.name for one in schema.migrations.pending(empty)]
    later = [*names[names.index(schema.NEEDED) + 1 :], ""]
    db = sqlite_utils.Database(tmp_path / "a.db")
    schema.migrations.apply(db, stop_before=later[0]) if later[0] else schema.migrations.apply(db)
    before = constraints(db)
    schema.migrations.apply(db)
    after = constraints(db)
    assert {name: after[name] for name in before} == before
    db.close()


def constraints(db: sqlite_utils.Database) -> dict[str, object]:
    """What each table demands of a row, each trigger, and each unique index."""
    found: dict[str, object] = {}
    for table in db.tables:
        columns = db.execute(f"PRAGMA table_info([{table.name}])").fetchall()
        # An added column is one that INSERTs may leave out; of a former one the name, the type and the rest stay.
        found |= {f"{table.name}.{name}": rest for _, name, *rest in columns}
        demanded = {name for _, name, _, not_null, default, key in columns if not_null and default is None and not key}
        found[f"{table.name} demands"] = demanded
        found[f"{table.name} unique"] = {tuple(index.columns) for index in table.indexes if index.unique}
    return found


async def status(core: CoreProcess, action_id: str) -> str:
    return (await core.ended(action_id)).status


@pytest.mark.parametrize("name", OF_THE_BOT)
async def test_a_database_of_any_earlier_bot_gets_the_tables_of_today(tmp_path: Path, name: str) -> None:
    path = tmp_path / "slack.db"
    unpacked(name, path)
    with closing(sqlite3.connect(path)) as connection:
        before = connection.execute("SELECT key, ts FROM message ORDER BY key").fetchall()
    for file in (path, tmp_path / "new.db", path):
        await open_store(file).close()
    assert shape(path) == shape(tmp_path / "new.db")
    assert before
    delivery = MessageOutbox(path, AsyncWebClient(token="xoxb-none"), now_ms)
    assert [(key, message.ts) for key, _ in before if (message := await delivery.message(key))] == before
    assert await delivery.cursor()
    await delivery.close()


async def test_the_message_and_the_watch_of_the_first_bot_are_still_known(tmp_path: Path) -> None:
    unpacked("bot-8954479", tmp_path / "slack.db")
    delivery = MessageOutbox(tmp_path / "slack.db", AsyncWebClient(token="xoxb-none"), now_ms)
    assert (await delivery.cursor(), await delivery.waiting()) == (7, 1)
    assert [shown.key for shown in await delivery.cards("~1")] == ["alert:~1:C0SOC"]
    assert await delivery.watches.watchers(["~1"]) == [("T0LOCAL", "U0ANNA")]
    await delivery.close()


async def test_what_an_earlier_bot_left_pending_goes_on(tmp_path: Path) -> None:
    unpacked("bot-95a74fa", tmp_path / "slack.db")
    outbox = MessageOutbox(tmp_path / "slack.db", AsyncWebClient(token="xoxb-none"), now_ms)
    found = [await outbox.message(f"alert:~{number}:C0SOC") for number in (99, 98, 97)]
    assert [(m.root_id, m.by_person, m.in_bulk, m.version, m.status) for m in found if m] == [
        ("~99", True, False, 1, "unsent"),
        ("~98", False, True, 1, "unsent"),
        ("~97", False, False, 2, "unsent"),
    ]
    assert await outbox.checkpoint() == FeedCheckpoint(
        24, "b6bd298dfa22207361bd7e181587d299", "24 1795333492337 case_template.created ~24"
    )
    assert await outbox.channels_changed_at() == "1795333522002"
    assert await outbox.watches.watchers(["responder:Mailer_1_0"]) == [("T0LOCAL", "U0ANNA")]
    assert [pending.key for pending in await outbox.inbox.take_over_abandoned()] == ["click"]
    assert await outbox.replicas.acquire()
    await outbox.close()


@pytest.mark.parametrize("name", ["core-f3ef3d2", "bot-f3ef3d2"])
def test_a_newer_database_is_refused_with_a_sentence_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / "newer.db"
    unpacked(name, path)
    kind = name.partition("-")[0]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO _sqlite_migrations VALUES (NULL, ?, 'of_tomorrow', '2040-01-01')", [kind])
    before = shape(path)
    with pytest.raises(ResponderBotError, match="made by a newer release; run that one, or name another"):
        (open_database if kind == "core" else open_store)(path)
    assert shape(path) == before


def test_a_command_on_a_newer_database_ends_with_one_sentence(tmp_path: Path) -> None:
    unpacked("core-f3ef3d2", tmp_path / "responder-bot.db")
    with closing(sqlite3.connect(tmp_path / "responder-bot.db")) as connection, connection:
        connection.execute("INSERT INTO _sqlite_migrations VALUES (NULL, 'core', 'of_tomorrow', '2040-01-01')")
    for command in (["core"], ["user", "list"]):
        environ = {**os.environ, "RESPONDER_BOT_CORE_PORT": "0"}
        ended = programs.run("core.cli", *command, cwd=tmp_path, env=environ)
        assert (ended.returncode, ended.stderr.count("\n"), ended.stdout) == (2, 1, "")
        assert "made by a newer release" in ended.stderr
