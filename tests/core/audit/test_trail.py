"""Each decision and refusal has a row, in its transaction; tests/audited.py fails what has none."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import pytest

from core.audit import trail
from core.audit.reader import SENTENCES, AuditReader
from core.authorization import COMMAND_LINE
from core.common.database import Database, Transaction
from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.models import GroupInput, Profile
from core.records.clearance import level_of
from core.settings import ResponderSection
from core.store import audit as stored
from core.store import people as stored_people
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, next_run, open_harness, run_input
from tests.core.running import RunningCore, running_core

DOMAIN = "responder-bot.local"
ADMIN = {"X-On-Behalf-Of": "org-admin"}


async def rows_of(database: Database) -> list[dict[str, Any]]:
    return [json.loads(row["doc"]) for row in await database.read(lambda reads: stored.page(reads, 0, None, 10_000))]


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    section = ResponderSection(approval=1, undo="Unblock_1_0", undo_after_minutes=60)
    async with open_harness(tmp_path, policies={"BlockHost_1_0": section}) as opened:
        yield opened


async def test_what_changes_rights_or_runs_without_a_row_fails(harness: Harness) -> None:
    await harness.actions.start(ANNA, run_input(harness))
    changes = (
        "UPDATE \"user\" SET profile = 'org-admin' WHERE login = 'ben@example.org'",
        "UPDATE api_key SET expires_at = 1 WHERE login = 'ben@example.org'",
        "INSERT INTO slack_link (team, slack_user, login) VALUES ('T1', 'U1', 'ben@example.org')",
        "INSERT INTO group_member (name, login) VALUES ('containment', 'ben@example.org')",
        "UPDATE action SET awaits_approval = 0",
        "UPDATE action SET cancelled_by = 'ben@example.org'",
        "DELETE FROM action",
    )
    before = await rows_of(harness.database)
    for sql in changes:
        with pytest.raises(ResponderBotError, match="can't be written"):
            await harness.database.transaction(lambda tx, sql=sql: tx.run(sql))  # type: ignore[misc]
    assert await rows_of(harness.database) == before
    row = await harness.database.read(lambda reads: stored_people.by_login(reads, "ben@example.org"))
    assert row is not None
    assert row["profile"] == "analyst"


async def test_the_rows_of_a_run_tell_its_story(harness: Harness) -> None:
    action = (
        await harness.actions.start(ANNA, run_input(harness, note="it beacons", parameters={"x": "secret?"}))
    ).action
    with pytest.raises(ResponderBotError):
        await harness.actions.decide(ANNA, action.id, "approve")
    await harness.actions.decide(BEN, action.id, "approve")
    run = await next_run(harness.engine)
    run.finish(Report(True))
    await harness.ended(action.id)
    await harness.undos.set_time(ANNA, action.id, 5)
    rows = [row for row in await rows_of(harness.database) if row["object"] == action.id]
    assert [row["what"] for row in rows] == [
        "run.requested",
        "run.approved",
        "run.dispatched",
        "run.ended",
        "undo.moved",
    ]
    assert [row["by"] for row in rows] == [ANNA.login, BEN.login, "core", "core", ANNA.login]
    assert {row.get("policy") for row in rows[:4]} == {harness.guards.policy("BlockHost_1_0")}
    assert rows[0]["texts"].keys() == {"inputs", "note"}
    assert "beacons" not in json.dumps(rows)
    assert rows[3]["outcome"] == "succeeded"
    reader = AuditReader(harness.database, harness.clock, level_of)
    said = [row.sentence for row in await reader.story(ANNA, harness.alert_id)]
    assert said[0] == (
        f"anna@example.org asked to run BlockHost_1_0 on {harness.alert_id} as {action.id}; it needs 1 approval"
        ': "it beacons"'
    )
    assert f"ben@example.org approved {action.id}, BlockHost_1_0 on {harness.alert_id} (1 of 1)" in said


async def test_a_group_commit_has_one_chain(harness: Harness) -> None:

    names = [f"user{number}" for number in range(30)]
    outcomes = await asyncio.gather(
        *(harness.people.add(name, "analyst") for name in [*names, *names]), return_exceptions=True
    )
    assert Counter(map(type, outcomes)) == {str: 30, ResponderBotError: 30}
    rows = await rows_of(harness.database)
    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))
    hashes = [row["hash"] for row in await harness.database.read(lambda reads: stored.page(reads, 0, None, 1_000))]
    assert [row["previous"] for row in rows[1:]] == hashes[:-1]


async def test_nothing_runs_if_the_row_cannot_be_written(harness: Harness) -> None:
    await harness.database.transaction(lambda tx: tx.run("ALTER TABLE audit RENAME TO moved"))
    with pytest.raises(Exception, match="audit"):
        await harness.actions.start(ANNA, run_input(harness))
    await harness.database.transaction(lambda tx: tx.run("ALTER TABLE moved RENAME TO audit"))
    assert harness.engine.taken.empty()
    assert [row for row in await rows_of(harness.database) if row["what"].startswith("run.")] == []


async def test_members_of_a_group_that_stay_the_same_have_no_row(harness: Harness) -> None:
    for _ in range(2):
        await harness.people.set_members(LEAD, "containment", GroupInput(members=["anna", "ben"]))
    await harness.people.remove_member("containment", "ben")
    rows = [row for row in await rows_of(harness.database) if row["what"] == "group.members"]
    assert [(row["by"], row.get("added"), row.get("removed")) for row in rows] == [
        (LEAD.login, [ANNA.login, BEN.login], None),
        (COMMAND_LINE.login, None, [BEN.login]),
    ]
    assert "@" in rows[1]["through"]


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path) as running:
        yield running


async def test_refusals_over_http_have_a_row_and_refused_logins_one_a_minute(core: RunningCore) -> None:
    alert = {"type": "t", "source": "s", "sourceRef": "1", "title": "a secret title", "description": "d"}
    assert (await core.send("POST", "/api/alert", alert, profile="read-only")).status_code == 403
    assert (await core.send("POST", "/api/user/analyst/disable", profile="analyst")).status_code == 403
    for _ in range(5):
        assert (await core.send("GET", "/api/alert/~1", profile=None)).status_code == 401
    rows = await rows_of(core.core.database)
    refused = [row for row in rows if row["what"].endswith("refused")]
    assert [(row["what"], row["by"], row["object"]) for row in refused] == [
        ("request.refused", "read-only@responder-bot.local", "core"),
        ("request.refused", "analyst@responder-bot.local", "core"),
        ("login.refused", "", "core"),
    ]
    assert refused[0]["rule"] == "manageAlert"
    assert refused[0]["asked"] == "POST /api/alert"
    assert rows[0]["what"] == "settings.loaded"
    assert refused[1]["texts"].keys() == {"object", "reason"}
    body = {"responderId": "203.0.113.7", "objectType": "alert", "objectId": "203.0.113.7"}
    assert (await core.send("POST", "/api/connector/engine/action", body, profile="read-only")).status_code == 403
    assert "203.0.113.7" not in json.dumps(await rows_of(core.core.database))
    assert "secret title" not in json.dumps(rows)


async def test_who_acts_through_the_bot_is_named_with_it(core: RunningCore) -> None:
    await core.key("analyst")
    await core.key("org-admin")
    answer = await core.send(
        "POST", "/api/user/analyst/disable", profile="service", headers={**ADMIN, "X-Slack-Origin": "T1:U1:C1"}
    )
    assert answer.status_code == 403, answer.text
    row = (await rows_of(core.core.database))[-1]
    assert (row["what"], row["by"], row["through"]) == (
        "request.refused",
        "org-admin@responder-bot.local",
        "service@responder-bot.local",
    )
    assert row["request"]
    assert row["key"] == "default"
    texts = await core.core.database.read(lambda reads: stored.texts(reads, [row["number"]]))
    assert {text.name: text.text for text in texts[row["number"]]}["slack_origin"] == "T1:U1:C1"


async def test_the_audit_is_read_with_read_audit_or_as_the_story_of_what_one_may_see(core: RunningCore) -> None:
    fields = {"type": "t", "source": "s", "title": "t", "description": "d"}
    red, amber = [
        (await core.send("POST", "/api/alert", {**fields, "sourceRef": str(tlp), "tlp": tlp})).json()["id"]
        for tlp in (3, 2)
    ]
    texts = {"reason": "evidence"}
    for alert in (red, amber):

        def refuse(tx: Transaction, alert: str = alert) -> None:
            trail.record(tx, 0, "request.refused", by=f"org-admin@{DOMAIN}", object=alert, asked="POST /", texts=texts)

        await core.core.database.transaction(refuse)
    await core.key("analyst")
    statuses: dict[Profile | None, int] = {"auditor": 200, "org-admin": 200, "analyst": 403, "source": 403, None: 401}
    for profile, status in statuses.items():
        assert (await core.send("GET", "/api/audit", profile=profile)).status_code == status
    found = (await core.send("GET", f"/api/audit?object={red}", profile="auditor")).json()
    assert found[0]["sentence"] == f'org-admin@{DOMAIN} was refused a request on {red}: "evidence"'
    assert found[0]["texts"] == {"reason": "evidence"}
    acting = {"X-On-Behalf-Of": "analyst"}
    seen = await core.send("GET", f"/api/audit/{amber}", profile="service", headers=acting)
    assert [row["what"] for row in seen.json()] == ["request.refused", "audit.read"]
    for_admin = await core.send("GET", "/api/audit", profile="service", headers=ADMIN)
    assert for_admin.status_code == 403
    hidden = await core.send("GET", f"/api/audit/{red}", profile="service", headers=acting)
    assert hidden.status_code == 403
    assert "TLP:RED" in hidden.text
    for query in ("after=x", "limit=-1", "after=9999999999999999"):
        assert (await core.send("GET", f"/api/audit?{query}", profile="auditor")).status_code == 400
    assert (await core.send("POST", "/api/alert", {**fields, "sourceRef": "9"}, profile="auditor")).status_code == 403
    rows = await rows_of(core.core.database)
    assert sum(row["what"] == "audit.read" for row in rows) == 4


async def test_a_start_names_the_settings_that_changed(tmp_path: Path) -> None:
    async with running_core(tmp_path):
        pass
    async with running_core(tmp_path, core={"organisation": "other"}) as core:
        loaded = [row for row in await rows_of(core.core.database) if row["what"] == "settings.loaded"]
    assert "changed" not in loaded[0]
    assert loaded[1]["changed"] == ["core.organisation"]
    assert loaded[0]["settings"] != loaded[1]["settings"]


def test_each_kind_of_row_has_a_sentence_and_is_in_the_document() -> None:
    cells = re.findall(r"^\| (`[^|]+) \|", Path("core/docs/audit.md").read_text(), re.M)
    documented = {name for cell in cells for name in re.findall(r"`([a-z_.]+)`", cell)}
    assert documented == SENTENCES.keys() == set(get_args(trail.What))
