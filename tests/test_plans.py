"""No statement reads or sorts a table as a whole that grows for years."""

import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import cache, partial
from pathlib import Path

import psycopg
import pytest
import sqlite_utils

from bot.outbox.store import STORES
from core.common.clock import now_ms
from core.common.database import Dialect
from core.common.database.schema import Opening
from core.retention.erasure import Eraser
from core.retention.pruning import Retention
from core.store.database.opening import STORE as CORES
from core.store.objects import OPEN_ALERTS
from core.store.people import ABLE_TO_DECIDE
from tests import statements, stores
from tests.bench.grown import fill_postgresql
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.people import app_home, card_of
from tests.bot.running import SOC
from tests.documents import ROOT

FEW = {
    "api_key",
    "approval",
    "backup",
    "blocklist_entry",
    "blocklist_hold",
    "blocklist_reader",
    "dropped_file",
    "group_member",
    "host_catalogue",
    "identity",
    "lost_host",
    "migration",
    "owner",
    "place",
    "refresh",
    "repeated_alert",
    "replica",
    "restore",
    "sequence",
    "setting",
    "slack_link",
    "source",
    "state",
    "user",
}
"""Tables of people, responders and hosts, of what is in force, and of what is done soon."""

FEW_IN = {
    "action_open",
    "action_open_by",
    "action_unfinished",
    "action_unclaimed",
    "alert_group_changed",
    "approval_waiting",
    "due_damaged",
    "audit_erased",
    "file_pending",
    "in_force_active",
    "in_force_responder",
    "in_force_target",
    "inbox_pending",
    "message_doubt",
    "message_next",
    "message_pending",
    "pause_open",
}
"""Indexes of what is open or pending, and of erasures."""

BOUNDED: Mapping[str, str] = {
    r"FROM \(SELECT CAST\(substr\(": "artifacts in the documents of some alerts",
    r"FROM \(SELECT \* FROM \(SELECT id, doc FROM object WHERE kind": "custom fields of the newest alerts and cases",
    r"IN \(SELECT CAST\(value AS BIGINT\) FROM json_each\(\?\)\) ORDER BY id": "those that are asked for",
    r"root_id IN \(SELECT CAST\(\? AS BIGINT\) UNION ALL": "actions on one alert, or on one case and its alerts",
    r"FROM action AS this JOIN action AS later": "actions on one object",
    r"FROM action WHERE engine_name = \? AND status IN \(\?\) AND owner IS NULL": "runs that wait for a slot",
    r"SELECT run_id FROM action WHERE status IN \(\?\)": "open actions, by the smallest index that has them all",
    r"FROM (?:object|action) o0": "a client's own search, which sorts and counts what matches",
    r"FROM object_text (?:WHERE|CROSS)|FROM object_text_fts": "counts the newest thousand, or reads the index of words",
    r"FROM object_text WHERE object_id = \?": "the four levels of one alert",
    r"^DELETE FROM (?:action|object(?:_text)?)$": "of tests: rows that are gone, words that are made again",
    r"FROM action WHERE (?:object_id = \? AND )?kind = \? AND object_id": "actions on one object",
    r"FROM action WHERE object_id = \? AND kind": "actions on one object",
    r"FROM action WHERE status IN \(\?\) AND": "open actions",
    r"FROM action WHERE bulk_id (?:IN|=)": "the actions of some bulks",
    r"FROM action WHERE created_by = \? AND id IN \(SELECT action_id FROM in_force WHERE": "what is in force",
    r"FROM action GROUP BY responder_name, status": "metrics, by an index and in the background",
    r"FROM inbox WHERE done_at|(?:FROM|UPDATE) channel_alert|(?:FROM|UPDATE) alert_group": "kept a day, or thirty",
    r"min\(seq\) FROM event": "the first",
    r"FROM event ORDER BY seq DESC LIMIT \?": "the last",
    r"FROM message m .* WHERE m.root_id = \?": "the messages of one alert or case",
    r"FROM button_set WHERE message_key": "the buttons of one message",
    r"FROM message m LEFT JOIN file f ON .* m.clearance < \?": "what a change of a clearance made stale",
    r"UPDATE message SET clearance = (?:\? WHERE clearance <> \?|CASE root_id)|max\(created_at, changed_at\)": (
        "after events were lost"
    ),
    r'^SELECT \? FROM "\w+" LIMIT \?$': "whether a table is empty",
    r"FROM pg_tables": "the tables of a store that moves",
    r'^SELECT "[^(]+ FROM "\w+" ORDER BY "[^(]+ LIMIT \?$': "a store that moves, by pages",
    r"SELECT DISTINCT number FROM audit_text WHERE number IN": "texts of what is erased",
    r"FROM audit_text WHERE number IN": "the texts of a page of rows",
    r"FROM audit WHERE number IN .* UNION": "the next thousand rows on one alert, case or action",
    r"FROM message WHERE key IN \(.* UNION SELECT number FROM message": "messages of what is erased",
    r"PARTITION BY channel": "what is pending",
    r"PARTITION BY object.tlp": "what was decided on one target",
    r"SELECT channel, problem, count": "what is pending and can't be delivered",
    r"SELECT \* FROM \(SELECT root_id FROM message": "the newest of a channel",
    r"SELECT min\(channel\) FROM message": "a step for each channel",
}
"""Statements that may scan or sort, by a part of them, and why that is little."""


def is_bounded(sql: str) -> bool:
    return any(re.search(part, re.sub(r"\s+", " ", sql)) for part in BOUNDED)


def is_of_tests(sql: str) -> bool:
    """Whether tests ask for this, and the product doesn't."""
    return sql in _source("tests") and sql not in _source("core", "bot")


@cache
def _source(*folders: str) -> str:
    return "".join(file.read_text() for folder in folders for file in sorted((ROOT / folder).rglob("*.py")))


def much(found: Mapping[str, str], plan: Callable[[str], list[str]]) -> str:
    """The statements that read too much, a line each."""
    plans = {sql: excess(plan(sql)) for key, sql in found.items() if not is_bounded(key) and not is_of_tests(sql)}
    return "\n".join(f"{too_much}: {sql}" for sql, too_much in plans.items() if too_much)


def excess(plan: list[str]) -> list[str]:
    """The lines of a plan that read too much."""
    made = {words[1] for line in plan if (words := line.split())[0] in ("CO-ROUTINE", "MATERIALIZE")}

    def reads_much(line: str) -> bool:
        if "TEMP B-TREE" in line:
            return not any(f" {name} " in f" {other} " for other in plan for name in FEW)
        table = re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", line)
        if table is None or "VIRTUAL TABLE" in line or "CONSTANT ROW" in line:
            return False
        return table[1] not in FEW | made and (table[2] or "") not in FEW_IN

    return [line for line in plan if reads_much(line)]


async def flows(env: FeatureEnvironment) -> None:
    """What people do every day, and what an erasure looks for."""
    anna, lea = env["anna"], env["lea"]
    alerts = [await env.create_alert(sourceRef=str(n)) for n in range(3)]
    first, second, _ = alerts
    await anna.sees(card_of(first))
    for command in ("find beacon", "mine", "failed", "pending", "help", f"list {first.id}"):
        await anna.command(SOC, f"/responder {command}")
    await anna.command(SOC, f"/responder run fail {first.id}")
    await anna.reads("Started *Fail* on")
    await env.ended_run(first)
    await anna.command(SOC, f"/responder run isolate {second.id}")
    await anna.sees(card_of(second, "needs 1 approval"))
    await anna.open_home()
    await anna.sees(app_home())
    await lea.command(SOC, "/responder pending")
    await lea.reads("Waiting for your approval")
    case = await env.client.create_case_from_alert(second.id)
    await env.client.merge_alerts([first.id], case.id)
    await anna.sees(card_of(first, case.id))
    core, domain = env.core.core, env.core.core.settings.core.user_domain
    eraser = Eraser(core.database, now_ms, Retention.of(core.settings, core.database, now_ms), domain)
    assert (await eraser.of_person("eve", "")).slack


async def test_no_statement_reads_a_table_that_grows_as_a_whole(tmp_path: Path) -> None:
    with stores.using("sqlite"):
        await CORES.open(stores.location(tmp_path / "first.db"), Opening()).close()  # migrates, which may read all
        with statements.recorded() as found:
            async with feature_environment(tmp_path) as env:
                await flows(env)
    assert len(found) > 100
    assert not much_on_sqlite(found)


def much_on_sqlite(found: Mapping[str, str]) -> str:
    """The statements that read too much, on empty tables: core and bot never run ANALYZE, so rows change no plan."""
    with ExitStack() as stack:
        databases = []
        for store in (*STORES, CORES):
            databases.append(stack.enter_context(closing(sqlite3.connect(":memory:"))))
            store.migrate(sqlite_utils.Database(databases[-1]))
        return much(found, partial(statements.plan_on_sqlite, databases))


@pytest.mark.parametrize("dialect", stores.DIALECTS)
async def test_home_reads_five_thousand_open_alerts_from_one_index(tmp_path: Path, dialect: Dialect) -> None:
    values = {"assignee": "''", "sees_up_to": "3", "limit": "10000"}
    with stores.using(dialect):
        core = stores.location(tmp_path / "core.db")
        await CORES.open(core, Opening()).close()
        docs = [{"status": "New", "severity": n % 3 + 1, "tlp": 2} for n in range(5000)]
        docs[7]["severity"] = 4
        rows = ", ".join(f"({n}, 'alert', '{json.dumps(doc)}')" for n, doc in enumerate(docs, 1))
        stores.rows(core, f"INSERT INTO object (id, kind, doc) VALUES {rows}")  # noqa: S608
        sql = re.sub(r":(\w+)", lambda name: values[name[1]], OPEN_ALERTS)
        if dialect == "postgresql":
            with closing(psycopg.connect(stores.setting(core), autocommit=True)) as database:
                database.execute("ANALYZE object")  # all would deadlock with other tests
                sql = sql.replace("INDEXED BY object_open", "")
                plan = statements.plan_on_postgresql([database], sql)
        else:
            with closing(sqlite3.connect(str(core))) as database:
                plan = statements.plan_on_sqlite([database], sql)
        (line,) = plan
        assert re.match(r"SEARCH object USING (?:COVERING )?INDEX object_open\b", line)
        found = stores.rows(core, sql)
        assert len(found) == 5000
        assert found[0] == (8, 4)


@pytest.mark.parametrize("dialect", stores.DIALECTS)
async def test_those_who_may_decide_are_read_in_the_order_of_an_index(tmp_path: Path, dialect: Dialect) -> None:
    values = {"profiles": "'[\"analyst\"]'", "named": "'[]'", "always": "'[]'", "but": "'[\"u4999\"]'",
              "is_anybody": "1", "clearance": "2", "in_slack": "1", "limit": "10"}  # fmt: skip
    with stores.using(dialect):
        core = stores.location(tmp_path / "core.db")
        await CORES.open(core, Opening()).close()
        users = ", ".join(f"('u{n:04}', 'analyst', 2, 0, {n})" for n in range(5000))
        stores.rows(core, f'INSERT INTO "user" (login, profile, clearance, disabled, decided_at) VALUES {users}')  # noqa: S608
        links = ", ".join(f"('T1', 'U{n}', 'u{n:04}')" for n in range(5000))
        stores.rows(core, f"INSERT INTO slack_link (team, slack_user, login) VALUES {links}")  # noqa: S608
        sql = re.sub(r":(\w+)", lambda name: values[name[1]], ABLE_TO_DECIDE)
        if dialect == "postgresql":
            with closing(psycopg.connect(stores.setting(core), autocommit=True)) as database:
                database.execute('ANALYZE "user", slack_link')
                (shown,) = zip(*database.execute(f"EXPLAIN {sql}".encode()).fetchall(), strict=True)
                assert any("Index Scan Backward using user_decided_at" in line for line in shown), shown
        else:
            with closing(sqlite3.connect(str(core))) as database:
                plan = statements.plan_on_sqlite([database], sql)
                assert "SCAN user USING INDEX user_decided_at" in plan, plan
                assert [line for line in plan if re.match(r"SCAN (user|slack_link)\b", line)] == [
                    "SCAN user USING INDEX user_decided_at"
                ]
        found = stores.rows(core, sql)
        assert [row[0] for row in found] == [f"u{n:04}" for n in range(4998, 4988, -1)]


suite = pytest.mark.skipif(statements.FOLDER is None, reason="TEST_STATEMENTS names no folder that the suite left")


@suite
@pytest.mark.slow
def test_none_of_the_suite_does_on_sqlite() -> None:
    assert statements.FOLDER
    found = statements.left_on_sqlite(statements.FOLDER)
    assert len(found) > 100
    assert not much_on_sqlite(found)


CORES_ROWS = """
    INSERT INTO event (seq, at, type, object_type, object_id, root_id, "user")
    SELECT n, n, 'alert.created', 'Alert', n, n, '' FROM generate_series(1, 50000) AS n;
    INSERT INTO action_target (target, action_id) SELECT 't' || n / 5, n FROM generate_series(1, 50000) AS n;
    INSERT INTO failure (action_id, responder_name, at) SELECT n, 'r' || n % 5, n FROM generate_series(1, 20000) AS n;
    INSERT INTO bulk (id, created_by, created_at, request, targets, total, refused)
    SELECT n, 'a', n, '{}', '[]', 9, n % 9 FROM generate_series(1, 20000) AS n;
    INSERT INTO file_reference (file_id, object_id) SELECT 'f' || n / 2, n FROM generate_series(1, 20000) AS n;
    INSERT INTO idempotency (login, key, digest, action_id, created_at)
    SELECT 'a', 'k' || n, '', n, n FROM generate_series(1, 20000) AS n;
    INSERT INTO audit (number, at, what, object, root, hash, doc)
    SELECT n, n, CASE n % 500 WHEN 1 THEN 'erased' ELSE 'run.ended' END,
      '~' || n, '~' || n / 5, '', '{}'
    FROM generate_series(1, 50000) AS n;
    INSERT INTO audit_text (number, name, salt, text) SELECT n, 'note', '', '' FROM generate_series(1, 50000) AS n;
    INSERT INTO pause (id, responder_name, opened_at, failures, within_minutes, action_id, closed_at)
    SELECT n, 'r' || n % 5, n, 3, 9, n, n FROM generate_series(1, 20000) AS n
"""
BOTS_ROWS = """
    INSERT INTO message (key, channel, root_id, thread_of, payload, version, post_id, ts, status, clearance, created_at)
    SELECT 'k' || n, 'C' || n % 5, '~' || n / 2, CASE n % 2 WHEN 1 THEN 'k' || n - 1 ELSE '' END,
      '{}', 1, '', n, 'shown', 2, n FROM generate_series(1, 50000) AS n;
    INSERT INTO button_set (nonce, channel, message_key, intents, expires_at)
    SELECT 'n' || n, 'C' || n % 5, 'k' || n, '[]', n FROM generate_series(1, 50000) AS n;
    INSERT INTO file (message_key, name, text, slack_id, status) SELECT 'k' || n, '', '', '', 'shown'
    FROM generate_series(1, 20000) AS n;
    INSERT INTO inbox (key, payload, at, done_at) SELECT 'k' || n, '', n, n FROM generate_series(1, 20000) AS n;
    INSERT INTO alert_group (key, channel, alike, began_at, last_at)
    SELECT 'g' || n, 'C' || n % 5, 'a' || n % 50, n, n FROM generate_series(1, 20000) AS n;
    INSERT INTO channel_alert
      (root_id, channel, alike, group_key, card, at, severity, clearance, title, source, facts)
    SELECT '~' || n, 'C' || n % 5, 'a' || n % 50, CASE n % 2 WHEN 1 THEN 'g' || n ELSE '' END, '', n, 2, 2, '', '', ''
    FROM generate_series(1, 50000) AS n
"""
ALERTS = 20_000
"""With 100,000 PostgreSQL chooses the same plans, and the rows take more than a minute."""


@suite
@pytest.mark.slow
async def test_none_of_the_suite_does_on_postgresql(tmp_path: Path) -> None:
    """By its own choice, on tables that have grown: it may take another index than SQLite, or none."""
    assert statements.FOLDER
    found = statements.left_on_postgresql(statements.FOLDER)
    assert len(found) > 300
    connections = []
    url = stores.on_postgresql(tmp_path / "core")
    for store in (CORES, STORES[0]):
        await store.open(url, Opening()).close()
        connections.append(psycopg.connect(url.text, autocommit=True))
    core, bot = connections
    bot.execute("SELECT set_config('search_path', concat(current_schema, '_bot'), false)")
    with closing(bot), closing(core):
        fill_postgresql(url.text, ALERTS)
        for connection, rows in ((core, CORES_ROWS), (bot, BOTS_ROWS)):
            connection.execute(rows.encode())
            connection.execute("ANALYZE")
            connection.execute("SET enable_seqscan = off")  # which it takes for tables that are small here
        assert not much(found, partial(statements.plan_on_postgresql, (bot, core)))
