"""Fill a database of core with alerts and actions, by SQL."""

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from core.common.database import Transaction
from core.common.database.location import PostgresqlUrl
from core.common.database.sqlite.database import SqliteDatabase
from core.models import Action, Alert
from core.store.database.opening import open_database
from core.store.database.schema import migrate

KEY = "a-key-of-the-benchmark"
KEYS = (KEY, *(f"{KEY}-{n}" for n in range(1, 32)))
"""Of ANALYST and 31 others: core starts one run of a login at a time."""
SERVICE_KEY = "a-service-key-of-the-benchmark"
ANALYST = "bench@responder-bot.local"
RESPONDER = "Idle_1_0"
NOW = 1_760_000_000_000

_REPORT = {
    "message": "The host was looked up in four lists; two of them know it.",
    "lists": [
        {"list": f"list-{n}", "found": n % 2 == 0, "since": "2025-02-11T10:00:00Z", "note": "seen with port scans " * 9}
        for n in range(8)
    ],
}


def alert(number: int) -> Alert:
    """An alert such as a SIEM sends."""
    return Alert(
        id_=f"~{number}",
        id=f"~{number}",
        created_by=ANALYST,
        created_at=NOW,
        type="siem",
        source="suricata",
        source_ref=f"event-{number}",
        title="ET SCAN Suspicious inbound to mySQL port 3306",
        description="Suricata saw repeated inbound connections to a database port from one outside address. " * 6,
        severity=2,
        date=NOW,
        tags=["suricata", "scan", "mysql", "inbound"],
        tlp=2,
        pap=2,
        custom_fields={},
        artifacts=[],
    )


def action(number: int, alert_id: int) -> Action:
    """A run that has ended, with a report of 2 KB: ten of them make an answer of 28 KB."""
    return Action(
        id_=f"~{number}",
        id=f"~{number}",
        responder_id="r-idle",
        responder_name=RESPONDER,
        responder_definition=RESPONDER,
        engine_id="local",
        engine_job_id=f"local-{number}",
        object_type="Alert",
        object_id=f"~{alert_id}",
        status="Success",
        start_date=NOW,
        end_date=NOW + 900,
        operations="[]",
        report=json.dumps({"success": True, "full": _REPORT, "summary": {}, "artifacts": []}),
        created_by=ANALYST,
        created_at=NOW,
    )


def fill(path: Path, alerts: int, actions: int) -> None:
    """Create alerts `~1` up to `~alerts`, with actions spread over them, so that those of one alert lie far apart.

    Blocks, and runs an event loop of its own: call it in a thread.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(_create(path))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    for sql, rows in _statements(alerts, actions):
        connection.executemany(sql, rows)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


async def fill_postgresql(url: str, actions: int = 0) -> None:
    """The same in a PostgreSQL, with one alert."""

    def work(tx: Transaction) -> None:
        for sql, rows in _statements(1, actions):
            for row in rows:
                tx.run(sql, row)

    database = open_database(PostgresqlUrl(url))
    await database.transaction(work)
    await database.close()


def _statements(alerts: int, actions: int) -> Iterator[tuple[str, Iterable[dict[str, Any]]]]:
    """Statements, each with the rows of values that it is run with."""
    users = [("bot@responder-bot.local", "service", SERVICE_KEY)]
    users += [(f"{n or ''}{ANALYST}", "analyst", key) for n, key in enumerate(KEYS)]
    yield (
        'INSERT INTO "user" (login, profile, clearance, disabled, created_at) VALUES (:login, :profile, 2, 0, :now)',
        ({"login": login, "profile": profile, "now": NOW} for login, profile, _ in users),
    )
    yield (
        "INSERT INTO api_key (hash, login, name, prefix, created_at, addresses)"
        " VALUES (:hash, :login, 'default', '', :now, '[]')",
        ({"hash": key_hash(key), "login": login, "now": NOW} for login, _, key in users),
    )
    link = {"login": ANALYST}
    yield "INSERT INTO slack_link (team, slack_user, login) VALUES ('T0BENCH', 'U0BENCH', :login)", [link]
    yield "INSERT INTO object (id, kind, unique_key, doc) VALUES (:id, 'alert', :key, :doc)", _alert_rows(alerts)
    yield (
        "INSERT INTO action (id, kind, object_id, root_id, responder_name, engine_name, engine_responder_id, status,"
        " created_by, acted_through, created_at, dispatched_at, engine_job_id, parameters, run_id, doc)"
        " VALUES (:id, 'alert', :alert, :alert, :responder, 'local', 'r-idle', 'Success', :login, :login, :now, :now,"
        " :job, '{}', :run, :doc)",
        _action_rows(alerts, actions),
    )
    yield "UPDATE sequence SET last = :last", [{"last": alerts + actions}]


async def _create(path: Path) -> None:
    """Create the file as core does: its page size is set at creation."""
    await SqliteDatabase(path, migrate).close()


def _alert_rows(alerts: int) -> Iterator[dict[str, Any]]:
    template = alert(123_456_789).to_json()
    for number in range(1, alerts + 1):
        doc = template.replace("123456789", str(number))
        yield {"id": number, "key": f"siem;suricata;event-{number}", "doc": doc}


def _action_rows(alerts: int, actions: int) -> Iterator[dict[str, Any]]:
    template = action(123_456_789, 987_654_321).to_json()
    for n in range(actions):
        number, alert_id = alerts + 1 + n, n % alerts + 1
        doc = template.replace("123456789", str(number)).replace("987654321", str(alert_id))
        run = {"responder": RESPONDER, "login": ANALYST, "now": NOW, "job": f"local-{number}-5e", "run": f"{number}-5e"}
        yield {"id": number, "alert": alert_id, **run, "doc": doc}


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
