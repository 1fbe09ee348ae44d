"""Fill the tables of core as years do: alerts with observables, cases, and actions of every end."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from core.common.database.sqlite.database import SqliteDatabase
from core.models import Action, Alert, Approval, Artifact, ArtifactTarget, Undo
from core.store import texts
from core.store.database.schema import migrate
from tests.bench.dataset import KEY, NOW, RESPONDER, action, alert, key_hash

ANALYSTS = [f"analyst-{n}@responder-bot.local" for n in range(20)]
READER = ANALYSTS[0]
"""The user with KEY."""
EVERYWHERE = "mysql"
"""A word of every alert."""
OPEN_UNTIL = 4_000_000_000_000
DAY_MS = 86_400_000
WORKED_ON = 1_000
"""Of so many alerts, the newest, open ones have an assignee and runs wait for approval."""
PER_DAY = 1_000
"""Alerts, and as many actions."""

Table = tuple[str, Sequence[str], Iterable[Sequence[Any]]]
"""Name, columns and rows."""


def rare_word(number: int) -> str:
    """A word of this alert only."""
    return f"event-{number:07}x"


def rare_tag(number: int) -> str:
    """A tag of a hundred alerts."""
    return f"campaign-{number // 100}"


async def fill(path: Path, alerts: int) -> None:
    """On SQLite: alerts `~1` up to `~alerts`, and as many actions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    await SqliteDatabase(path, migrate).close()  # as core does: the page size is set at creation
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -300000"):
        connection.execute(f"PRAGMA {setting}")
    connection.execute("BEGIN")
    for table, columns, rows in _tables(alerts):
        places = ", ".join("?" * len(columns))
        connection.executemany(f'INSERT INTO "{table}" ({", ".join(columns)}) VALUES ({places})', rows)  # noqa: S608
    connection.execute(_LAST_IDS.format(alerts))
    connection.execute("COMMIT")
    connection.close()


def fill_postgresql(url: str, alerts: int) -> None:
    """The same on PostgreSQL, in a schema that core has made."""
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        for table, columns, rows in _tables(alerts):
            with cursor.copy(f'COPY "{table}" ({", ".join(columns)}) FROM STDIN'.encode()) as copy:
                for row in rows:
                    copy.write_row(row)
        cursor.execute(_LAST_IDS.format(alerts).encode())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


_LAST_IDS = "UPDATE sequence SET last = 5 * {} WHERE name = 'id'"


def _tables(alerts: int) -> Iterator[Table]:
    """Ids: alerts, their two observables each, actions, cases."""
    yield "user", ("login", "profile", "clearance", "disabled", "created_at"), [(READER, "analyst", 3, 0, NOW)]
    keys = [(key_hash(KEY), READER, "default", KEY[:6], NOW, "[]")]
    yield "api_key", ("hash", "login", "name", "prefix", "created_at", "addresses"), keys
    yield "object", ("id", "kind", "unique_key", "doc"), _alerts(alerts)
    artifacts = ((alerts + n, (n + 1) // 2, alerts + n) for n in range(1, 2 * alerts + 1))
    yield "alert_artifact", ("id", "alert_id", "artifact_id"), artifacts
    tags = ((tag, number) for number in range(1, alerts + 1) for tag in ("suricata", rare_tag(number)))
    yield "alert_tag", ("tag", "alert_id"), tags
    yield "object_text", ("id", "object_id", "level", '"until"', "words"), _words(alerts)
    yield "object", ("id", "kind", "unique_key", "doc"), _cases(alerts)
    columns = ("id", "kind", "object_id", "root_id", "responder_name", "engine_name", "engine_responder_id", "status")
    more = ("created_by", "acted_through", "created_at", "dispatched_at", "engine_job_id", "parameters", "run_id")
    yield "action", (*columns, *more, "awaits_approval", "doc"), _actions(alerts)
    columns = ("id", "action_id", "asked_by", "asked_at", "needed", "expires_at", "is_waiting", "votes")
    yield "approval", columns, _approvals(alerts)


def _at(alerts: int, number: int) -> int:
    """When: the last one at NOW."""
    return NOW - (alerts - number) * DAY_MS // PER_DAY


def _alert_values(alerts: int, number: int) -> dict[str, str]:
    in_case = f'"~{4 * alerts + number // 100}"' if number % 100 == 0 else "null"
    is_open, is_new = number % 20 == 1, number > alerts - WORKED_ON
    status = "Imported" if number % 100 == 0 else "New" if is_open else "Ignored"
    assignee = json.dumps(ANALYSTS[number // 20 % 20]) if is_new or not is_open else "null"
    return {
        "111111101": str(number),
        "111111102": str(alerts + 2 * number - 1),
        "111111103": str(alerts + 2 * number),
        "111111104": str(_at(alerts, number)),
        '"caseHere"': in_case,
        "statusHere": status,
        '"assigneeHere"': assignee,
        "111111105": str(number % 4 + 1),
        "tagHere": rare_tag(number),
        "refHere": rare_word(number),
        "192.0.2.254": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        "nameHere": f"host-{number % 5000}.example.org",
    }


def _alerts(alerts: int) -> Iterator[tuple[Any, ...]]:
    template = _Template(_alert().to_json(), _alert_values(alerts, 1))
    for number in range(1, alerts + 1):
        doc = template.fill(_alert_values(alerts, number))
        yield number, "alert", f"siem;suricata;{rare_word(number)}", doc


def _words(alerts: int) -> Iterator[tuple[Any, ...]]:
    ((_, _, words),) = texts.words_by_level(_alert())
    places = {"taghere": "tag", "refhere": "ref", "192 0 2 254": "ip", "namehere": "name"}
    template = _Template(words, places)
    for number in range(1, alerts + 1):
        values = _alert_values(alerts, number)
        plain = {
            "taghere": values["tagHere"],
            "refhere": values["refHere"],
            "192 0 2 254": values["192.0.2.254"],
            "namehere": values["nameHere"],
        }
        words = template.fill({key: " ".join(texts.words_of(value)) for key, value in plain.items()})
        yield number * 4 + 2, number, 2, 99, words


def _alert() -> Alert:
    artifacts = [
        Artifact(
            id_=f"~{n}",
            id=f"~{n}",
            created_by=READER,
            created_at=111111104,
            data_type=kind,
            data=data,
            target=ArtifactTarget.of(kind, data.lower()),
        )
        for n, kind, data in ((111111102, "ip", "192.0.2.254"), (111111103, "domain", "nameHere"))
    ]
    values = {"id_": "~111111101", "id": "~111111101", "source_ref": "refHere", "tags": ["suricata", "tagHere"]}
    times = {"created_at": 111111104, "date": 111111104, "severity": 111111105}
    names = {"case": "caseHere", "assignee": "assigneeHere", "status": "statusHere"}
    return alert(1).model_copy(update={**values, **times, **names, "artifacts": artifacts})


def _cases(alerts: int) -> Iterator[tuple[Any, ...]]:
    for number in range(1, alerts // 100 + 1):
        case_id = f"~{4 * alerts + number}"
        doc = {"id": case_id, "caseId": number, "title": "Scan", "status": "Open", "severity": 2, "createdAt": NOW}
        yield 4 * alerts + number, "case", str(number), json.dumps({**doc, "tags": ["scan"], "owner": ANALYSTS[1]})


def _actions(alerts: int) -> Iterator[tuple[Any, ...]]:
    """Of 100 eight failed, one each was denied, has expired, was cancelled and is in force; of the newest some wait."""
    success = action(111111101, 111111102)
    asked = Approval(needed=1, approved_by=[], votes=[], expires_at=OPEN_UNTIL)
    ends = {
        "succeeded": success,
        "failed": success.model_copy(update={"status": "Failure"}),
        "denied": success.model_copy(update={"status": "Failure"}),
        "expired": success.model_copy(update={"status": "Failure"}),
        "cancelled": success.model_copy(update={"status": "Deleted"}),
    }
    docs = {name: each.model_copy(update={"outcome": name}) for name, each in ends.items()}
    docs["in force"] = success.model_copy(update={"undo": Undo(responder="Release_1_0", status="available")})
    docs["waiting"] = success.model_copy(
        update={"status": "Waiting", "approval": asked, "end_date": None, "report": "{}"}
    )
    changed = {"created_by": "loginHere", "start_date": 111111103, "created_at": 111111103}
    templates = {
        name: _Template(_dated(each.model_copy(update=changed)).to_json(), _action_values(alerts, 1))
        for name, each in docs.items()
    }
    for number in range(1, alerts + 1):
        is_new = number > alerts - WORKED_ON
        name = "waiting" if is_new and _awaits_approval(number) else _END_OF.get(number % 100, "succeeded")
        values, at = _action_values(alerts, number), _at(alerts, number)
        status, by = docs[name].status, values["loginHere"]
        is_waiting = name == "waiting"
        kind, on = ("case_artifact", alerts + 2 * number) if number % 50 == 49 else ("alert", number)
        row = (3 * alerts + number, kind, on, number, RESPONDER, "local", "r-idle", status, by, by, at)
        begun = None if is_waiting else at
        yield (*row, begun, f"local-{number}", "{}", f"{number}-5e", int(is_waiting), templates[name].fill(values))


def _awaits_approval(number: int) -> bool:
    return number % 50 == 25


def _approvals(alerts: int) -> Iterator[tuple[Any, ...]]:
    for number in range(max(alerts - WORKED_ON, 0) + 1, alerts + 1):
        if _awaits_approval(number):
            run, by = 3 * alerts + number, _action_values(alerts, number)["loginHere"]
            yield run, run, by, _at(alerts, number), 1, OPEN_UNTIL, 1, "[]"


_END_OF = {**dict.fromkeys(range(8), "failed"), 8: "denied", 9: "expired", 10: "cancelled", 11: "in force"}


def _dated(each: Action) -> Action:
    return each if each.end_date is None else each.model_copy(update={"end_date": 111111104})


def _action_values(alerts: int, number: int) -> dict[str, str]:
    at = _at(alerts, number)
    login = ANALYSTS[number * 7 % 20]
    numbers = {"111111101": str(3 * alerts + number), "111111102": str(number)}
    return {**numbers, "111111103": str(at), "111111104": str(at + 900), "loginHere": login}


class _Template:
    """A text with places that are filled, cut once."""

    def __init__(self, text: str, places: Iterable[str]) -> None:
        escaped = text.replace("%", "%%")
        for place in places:
            escaped = escaped.replace(place, f"%({place})s")
        self._text = escaped

    def fill(self, values: dict[str, str]) -> str:
        return self._text % values
