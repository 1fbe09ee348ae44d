"""Fill a database of core with alerts and actions, by SQL."""

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from core.common.database.sqlite import SqliteDatabase
from core.models import Action, Alert
from core.store.schema import migrate

KEY = "a-key-of-the-benchmark"
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
    connection.executemany(
        "INSERT INTO user (login, profile, clearance, key_hash, disabled, created_at) VALUES (?, ?, 2, ?, 0, ?)",
        [(ANALYST, "analyst", _hash(KEY), NOW), ("bot@responder-bot.local", "service", _hash(SERVICE_KEY), NOW)],
    )
    connection.execute("INSERT INTO slack_link (team, slack_user, login) VALUES ('T0BENCH', 'U0BENCH', ?)", (ANALYST,))
    connection.executemany(
        "INSERT INTO object (id, kind, unique_key, doc) VALUES (?, 'alert', ?, ?)", _alert_rows(alerts)
    )
    connection.executemany(
        "INSERT INTO action (id, kind, object_id, root_id, responder_name, engine_name, engine_responder_id, status,"
        " created_by, acted_through, created_at, dispatched_at, engine_job_id, parameters, doc)"
        " VALUES (?1, 'alert', ?2, ?2, ?3, 'local', 'r-idle', 'Success', ?4, ?4, ?5, ?5, ?6, '{}', ?7)",
        _action_rows(alerts, actions),
    )
    connection.execute("UPDATE sequence SET last = ?", (alerts + actions,))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


async def _create(path: Path) -> None:
    """Create the file as core does: its page size is set at creation."""
    await SqliteDatabase(path, migrate).close()


def _alert_rows(alerts: int) -> Iterator[tuple[int, str, str]]:
    template = alert(123_456_789).to_json()
    for number in range(1, alerts + 1):
        yield number, f"siem;suricata;event-{number}", template.replace("123456789", str(number))


def _action_rows(alerts: int, actions: int) -> Iterator[tuple[int, int, str, str, int, str, str]]:
    template = action(123_456_789, 987_654_321).to_json()
    for n in range(actions):
        number, alert_id = alerts + 1 + n, n % alerts + 1
        doc = template.replace("123456789", str(number)).replace("987654321", str(alert_id))
        yield number, alert_id, RESPONDER, ANALYST, NOW, f"local-{number}", doc


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
