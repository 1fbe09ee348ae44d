"""`responder-bot erase`: nothing of it is left in the databases, in Slack, in the log, or in a restored backup."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from bot.clearance import defang
from bot.outbox import state
from bot.outbox.sending.erasure import Erasure
from bot.outbox.store import open_stores
from core.audit.verify import verify
from core.common.database.location import PostgresqlUrl
from core.models import RunInput
from core.settings import ResponderSection
from tests import programs, stores, templates
from tests.bot.features.alert_groups.grouping import CHANNELS, group_card, group_cards
from tests.bot.features.alert_groups.grouping import post as post_alike
from tests.bot.running import ANNA, SOC, BotEnvironment, running_bot
from tests.core.core_process import until
from tests.core.test_cli import Ended
from tests.postgresql_process import PostgresqlServer
from tests.programs import PIPE
from tests.responder_folders import write_responder

VALUE = "203.0.113.7"
ZORA = "U0ZORAQUAGGA"
NEIGHBOUR = "203.0.113.70"
LOOKUP = "Look_1_0"
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
asked = json.loads((folder / "input/input.json").read_text())
said = "seen: " + asked["data"]["title"]
operations = [{"type": "AddTagToAlert", "tag": "looked"}]
report = {"success": True, "full": {"message": said}, "operations": operations}
(folder / "output/output.json").write_text(json.dumps(report))
"""


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[BotEnvironment]:
    async with scene_in(tmp_path) as scene:
        yield scene


@asynccontextmanager
async def scene_in(tmp_path: Path, **parts: Any) -> AsyncIterator[BotEnvironment]:
    write_responder(tmp_path / "responders", "Look", PROGRAM)
    async with running_bot(
        tmp_path,
        engine=({"name": "local", "responders": (tmp_path / "responders",)},),
        responder={LOOKUP: ResponderSection()},
        **parts,
    ) as scene:
        yield scene


async def command(scene: BotEnvironment, folder: Path, *args: str, has_token: bool = True, database: str = "") -> Ended:
    """Run a command beside core and bot, on the database of `folder` or another one."""
    slack = scene.settings.slack
    environment = {
        "PATH": "/usr/bin:/bin",
        "RESPONDER_BOT_CORE_DATABASE": database or stores.setting(folder / "core.db"),
        "SLACK_BOT_TOKEN": slack.bot_token if has_token else "",
        "SLACK_API_URL": slack.api_url,
    }
    process = await programs.start("bot.cli", *args, cwd=folder, env=environment, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    return Ended(process.returncode or 0, out.decode(), err.decode())


async def seen_and_run(scene: BotEnvironment, **fields: Any) -> str:
    """The id of an alert whose card shows a run that has ended."""
    anna, alert_id, _ = await scene.first_card(**fields)
    body = RunInput(responder_id=LOOKUP, object_type="alert", object_id=alert_id, note=f"about {fields['title']}")
    action = await scene.client.run(body)
    await anna.until(lambda view: action.id in str(view.messages(SOC)) or "Look" in str(view.messages(SOC)))
    while (await scene.client.action(action.id, 20)).end_date is None:
        pass
    return alert_id


async def close(scene: BotEnvironment, alert_id: str) -> None:
    """Close an alert, and wait until Slack shows it."""
    answer = await scene.core.send("PATCH", f"/api/alert/{alert_id}", {"status": "Ignored"})
    assert answer.status_code == 200, answer.text
    await until(lambda: "closed" in in_channels(scene) or None, "the card shows the end")


def hits(content: bytes) -> list[bytes]:
    """Where bytes have the value, plain or defanged, or the Slack id of ZORA."""
    spellings = (VALUE, defang(VALUE), base64.b64encode(VALUE.encode()).decode()[:-4], ZORA)
    return [match[0] for text in spellings for match in re.finditer(re.escape(text.encode()) + rb"(?!\d)", content)]


def files_with(folder: Path) -> dict[str, int]:
    """The files of databases in a folder that have the value, with how often.

    Another process reads them: closing such a file would take SQLite's locks from this one.
    """
    found = {file.name: len(hits(subprocess.check_output(["cat", file]))) for file in folder.glob("*.db*")}
    return {name: count for name, count in found.items() if count}


def in_slack(scene: BotEnvironment) -> int:
    return len(hits(in_channels(scene).encode()))


def in_channels(scene: BotEnvironment) -> str:
    channels = scene.emulator._team.channels.values()
    return json.dumps([list(channel.messages.values()) for channel in channels], ensure_ascii=False)


@pytest.mark.sqlite
async def test_a_value_of_an_alert_is_nowhere_afterwards_nor_in_a_backup_restored_with_the_list(
    scene: BotEnvironment, tmp_path: Path
) -> None:
    with capture_logs() as logs:
        fields = {"title": f"Beacon from {VALUE}", "description": f"first\n{VALUE}\tü", "sourceRef": "1"}
        gone = await seen_and_run(scene, **fields, artifacts=[{"dataType": "ip", "data": VALUE}])
        other = {"title": f"Beacon from {NEIGHBOUR}", "description": "d", "sourceRef": "2"}
        stays = await seen_and_run(scene, **other, artifacts=[{"dataType": "ip", "data": NEIGHBOUR}])
        assert files_with(tmp_path)
        assert in_slack(scene)
        assert (await command(scene, tmp_path, "backup", "copy.backup")).code == 0

        refused = await command(scene, tmp_path, "erase", "alert", gone, "--yes")
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert f"{gone} is open, or a run" in refused.err
        await close(scene, gone)
        listed = await command(scene, tmp_path, "erase", "alert", gone, "--dry-run")
        assert listed.code == 0, listed.err
        assert re.search(r"core +alert +1", listed.out)
        assert re.search(r"bot +message +[1-9]", listed.out)
        assert stays not in listed.out
        assert "repeat it with --yes" in (await command(scene, tmp_path, "erase", "alert", gone)).err
        assert (await scene.core.send("GET", f"/api/alert/{gone}")).status_code == 200

        erased = await command(scene, tmp_path, "erase", "alert", gone, "--yes", "--reason", "asked to")
        assert (erased.code, erased.err) == (0, "Erased.\n")
        assert (await scene.core.send("GET", f"/api/alert/{gone}")).status_code == 404
        assert (await scene.core.send("GET", f"/api/alert/{stays}")).status_code == 200
        assert files_with(tmp_path) == {}
        assert in_slack(scene) == 0
        assert NEIGHBOUR in in_channels(scene)
    assert hits(json.dumps(logs, default=str).encode()) == []

    again = await command(scene, tmp_path, "erase", "alert", gone, "--yes")
    assert (again.code, again.err) == (0, "Nothing has it.\n")
    exported = await command(scene, tmp_path, "audit", "export")
    lines = exported.out.encode().splitlines(keepends=True)
    verify(lines)
    (row,) = [row for line in lines if (row := json.loads(line).get("row", {})).get("what") == "erased"]
    assert row["objects"] == [gone]
    assert row["counts"]["alert"] == 1
    assert row["erased"]
    assert row["messages"]
    assert hits(exported.out.encode()) == []

    restored = tmp_path / "restored"
    restored.mkdir()
    shutil.copy(tmp_path / "copy.backup", restored / "copy.backup")
    (restored / "list.jsonl").write_text(exported.out)
    (restored / "forged.jsonl").write_text(exported.out.replace('"erased"', '"raised"', 1))
    forged = await command(scene, restored, "restore", "copy.backup", "--erasures", "forged.jsonl")
    assert (forged.code, "is no true export of the audit" in forged.err) == (2, True)
    assert not (restored / "core.db").exists()
    done = await command(scene, restored, "restore", "copy.backup", "--erasures", "list.jsonl")
    assert done.code == 0, done.err
    assert files_with(restored) == {}
    assert stores.rows(restored / "core.db", "SELECT count(*) FROM object WHERE kind = 'alert'") == [(1,)]


@pytest.mark.slow
async def test_neither_a_value_nor_a_person_is_in_the_files_of_postgresql_afterwards(tmp_path: Path) -> None:
    """Once somebody has had the write-ahead log removed, as the document says."""
    server = PostgresqlServer(wal_recycle="off")
    await server.create()
    try:
        url = PostgresqlUrl(server.url("both"))
        async with scene_in(tmp_path, core={"database": url}, database=url) as scene:
            with psycopg.connect(url.text, autocommit=True) as connection:
                for table in ("object", "action"):  # so that nothing is compressed, and all is found
                    connection.execute(f"ALTER TABLE {table} ALTER doc SET STORAGE EXTERNAL".encode())
                fields = {"title": f"Beacon from {VALUE}", "description": f"{VALUE} " * 4_000, "sourceRef": "1"}
                gone = await seen_and_run(scene, **fields, artifacts=[{"dataType": "ip", "data": VALUE}])
                await close(scene, gone)
                await seen_and_run(scene, title="Another one", sourceRef="2")
                people = scene.core.core.people
                await people.add("zora", "analyst")
                await people.link("zora", f"{scene.emulator.team_id}:{ZORA}")
                connection.execute("ANALYZE")
                connection.execute("CHECKPOINT")
                found = files_of_server_with(server)
                assert {"base/5/2619"} < found.keys()
                assert any(name.startswith("pg_wal/") for name in found)
                for what in (("alert", gone), ("person", "zora")):
                    erased = await command(scene, tmp_path, "erase", *what, "--yes", database=url.text)
                    assert (erased.code, erased.err) == (0, "Erased.\n")
                for _ in range(2):
                    connection.execute("SELECT pg_switch_wal()")
                    connection.execute("CHECKPOINT")
            assert files_of_server_with(server) == {}
    finally:
        await server.close()


def files_of_server_with(server: PostgresqlServer) -> dict[str, int]:
    """The files of a server that have the value, with how often."""
    folder, found = server._folder / "data", dict[str, int]()
    for file in folder.rglob("*"):
        if file.is_file() and (count := len(hits(file.read_bytes()))):
            found[str(file.relative_to(folder))] = count
    return found


async def test_an_alert_goes_with_its_messages_and_the_texts_of_the_audit(
    scene: BotEnvironment, tmp_path: Path
) -> None:
    gone = await seen_and_run(scene, title="Secret incident", sourceRef="1")
    stays = await seen_and_run(scene, title="Another one", sourceRef="2")
    await close(scene, gone)
    erased = await command(scene, tmp_path, "erase", "alert", gone, "--yes")
    assert (erased.code, erased.err) == (0, "Erased.\n")
    assert "Secret incident" not in in_channels(scene)
    assert "Another one" in in_channels(scene)
    texts = stores.rows(tmp_path / "core.db", "SELECT text FROM audit_text")
    assert "Secret incident" not in str(texts)
    assert "Another one" in str(texts)
    assert (await scene.core.send("GET", f"/api/alert/{stays}")).status_code == 200
    verify((await command(scene, tmp_path, "audit", "export")).out.encode().splitlines(keepends=True))
    again = await command(scene, tmp_path, "erase", "alert", gone, "--yes")
    assert (again.code, again.err) == (0, "Nothing has it.\n")
    missing = await command(scene, tmp_path, "erase", "alert", "~999", "--yes")
    assert (missing.code, missing.err) == (2, "~999 is no alert; give an id such as ~12.\n")


async def test_what_stayed_in_slack_goes_when_it_is_repeated(scene: BotEnvironment, tmp_path: Path) -> None:
    gone = await seen_and_run(scene, title="Secret incident", sourceRef="1")
    await close(scene, gone)
    asked = ("erase", "alert", gone, "--yes")
    refused = await command(scene, tmp_path, *asked, has_token=False)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "set it, and repeat this" in refused.err
    assert (await scene.core.send("GET", f"/api/alert/{gone}")).status_code == 404
    assert "Secret incident" in in_channels(scene)
    stores.rows(tmp_path / "core.db", "UPDATE message SET payload = ''")  # as after 30 days
    repeated = await command(scene, tmp_path, *asked)
    assert (repeated.code, repeated.err) == (0, "Erased.\n")
    assert "Secret incident" not in in_channels(scene)


async def test_a_person_is_exported_and_erased_and_what_they_decided_stays(
    scene: BotEnvironment, tmp_path: Path
) -> None:
    alert_id = await scene.post_alert()
    key = await scene.core.core.people.new_key(
        (await scene.core.core.people.authenticate(await scene.core.key("org-admin", "admin"))), "anna"
    )
    body = {"responderId": LOOKUP, "objectType": "alert", "objectId": alert_id}
    headers = {"Authorization": f"Bearer {key.key}"}
    answer = await scene.core.send("POST", "/api/connector/engine/action", body, headers=headers)
    assert answer.status_code == 201, answer.text
    action_id = answer.json()["id"]
    while (await scene.client.action(action_id, 20)).end_date is None:
        pass
    held = [json.loads(line) for line in (await command(scene, tmp_path, "export", "person", "anna")).out.splitlines()]
    assert {"user", "slack_link", "action", "audit"} <= {row["table"] for row in held if row["in"] == "core"}
    assert not any("hash" in row["row"] for row in held if row["table"] == "api_key")
    erased = await command(scene, tmp_path, "erase", "person", "anna", "--yes")
    assert (erased.code, erased.err) == (0, "Erased.\n")
    people = stores.rows(tmp_path / "core.db", """SELECT login FROM "user" WHERE login LIKE 'anna%'""")
    keys = stores.rows(tmp_path / "core.db", "SELECT login FROM api_key WHERE login LIKE 'anna%'")
    links = stores.rows(tmp_path / "core.db", "SELECT login FROM slack_link WHERE login LIKE 'anna%'")
    assert people == keys == links == []
    assert (await scene.client.action(action_id)).created_by == "anna@responder-bot.local"
    refused = await scene.core.send("GET", "/api/user/current", headers=headers)
    assert refused.status_code == 401
    again = await command(scene, tmp_path, "erase", "person", "anna", "--yes")
    assert (again.code, again.err) == (0, "Nothing has it.\n")
    missing = await command(scene, tmp_path, "erase", "person", "nobody", "--yes")
    assert missing.err == "There is no user nobody@responder-bot.local; `responder-bot user list` has all.\n"


def named(scene: BotEnvironment) -> set[int]:
    """Which of the alerts that say the same Slack names, by the last part of their address."""
    shown = in_channels(scene)
    return {n for n in range(1, 30) if re.search(rf"198(\[\.\]|\.)51(\[\.\]|\.)100(\[\.\]|\.){n}(?!\d)", shown)}


async def test_the_card_of_a_group_goes_with_all_its_alerts(tmp_path: Path) -> None:
    async with scene_in(tmp_path, channels=CHANNELS) as scene:
        anna = await scene.person()
        alerts = await post_alike(scene, range(1, 9))
        await group_card(anna, 8)
        for alert in alerts:
            assert (await scene.core.send("PATCH", f"/api/alert/{alert}", {"status": "Ignored"})).status_code == 200
        assert named(scene)
        erased = await command(scene, tmp_path, "erase", "alert", *alerts, "--yes")
        assert (erased.code, erased.err) == (0, "Erased.\n")
        assert named(scene) == set()
        assert group_cards(await anna.messages(SOC)) == []
        for table in ("channel_alert", "alert_group", "message"):
            assert stores.rows(tmp_path / "core.db", f"SELECT count(*) FROM {table}") == [(0,)], table  # noqa: S608


async def test_the_card_of_a_group_is_posted_again_without_the_alert_that_was_erased(tmp_path: Path) -> None:
    async with scene_in(tmp_path, channels=CHANNELS) as scene:
        anna = await scene.person()
        alerts = await post_alike(scene, range(1, 9))
        await group_card(anna, 8)
        assert (await scene.core.send("PATCH", f"/api/alert/{alerts[7]}", {"status": "Ignored"})).status_code == 200
        erased = await command(scene, tmp_path, "erase", "alert", alerts[7], "--yes")
        assert (erased.code, erased.err) == (0, "Erased.\n")
        await scene.post_alert(title="Something else", sourceRef="other")  # else it may take half a minute
        await group_card(anna, 7)
        assert 8 not in named(scene)
        assert len(group_cards(await anna.messages(SOC))) == 1


def slack_ids(folder: Path) -> list[tuple[Any, ...]]:
    """The rows and texts of the audit that have Anna's id in Slack."""
    found = stores.rows(folder / "core.db", f"SELECT number, doc FROM audit WHERE doc LIKE '%{ANNA}%'")  # noqa: S608
    return found + stores.rows(folder / "core.db", f"SELECT * FROM audit_text WHERE text LIKE '%{ANNA}%'")  # noqa: S608


async def test_no_row_of_the_audit_has_the_slack_id_of_who_was_erased(scene: BotEnvironment, tmp_path: Path) -> None:
    anna, alert_id, _ = await scene.first_card()
    await anna.command(SOC, f"/responder audit {alert_id}")
    await anna.until(lambda view: view.modal)
    assert (await command(scene, tmp_path, "user", "unlink", "anna")).code == 0
    assert (await command(scene, tmp_path, "user", "link", "anna", "--slack-id", ANNA)).code == 0
    assert len(slack_ids(tmp_path)) >= 3
    refused = await command(scene, tmp_path, "erase", "person", "anna", "--yes", has_token=False)
    if refused.code:  # a direct message to her stays
        assert "set it, and repeat this" in refused.err
    erased = await command(scene, tmp_path, "erase", "person", "anna", "--yes")
    assert erased.code == 0, erased.err
    assert slack_ids(tmp_path) == []
    verify((await command(scene, tmp_path, "audit", "export")).out.encode().splitlines(keepends=True))


async def test_who_was_asked_lately_is_forgotten(tmp_path: Path) -> None:
    bots = open_stores(templates.made(stores.location(tmp_path / "core.db")))
    store = bots.messages
    try:
        await store.transaction(lambda tx: state.set_value(tx, "asked", '{"U0BEN": {"at": [1], "more": [0, 0]}}'))
        assert await Erasure(bots, None).delete() == []
        assert await store.read(lambda reads: state.value(reads, "asked")) is None
    finally:
        await bots.close()
