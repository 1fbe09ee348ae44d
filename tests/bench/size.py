"""What is kept of an alert with one run, on SQLite and PostgreSQL, and what a year of such alerts takes."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median

from bot.outbox.retention import Retention as BotRetention
from bot.outbox.store import open_stores
from core.common import logs
from core.common.clock import DAY_MS, now_ms
from core.common.settings_file import RetentionSection
from core.models import ClosedObjects
from core.retention.pruning import Retention
from core.settings import EngineSection
from core.store.database.opening import open_database
from tests import stores
from tests.bench import comparison
from tests.bench.comparison import Goal, Row, Sample, Scale
from tests.bench.dataset import alert
from tests.bench.responder_runs import RESPONDERS
from tests.bot.running import SOC, BotEnvironment, running_bot
from tests.core.core_process import until

A_DAY, DAYS_A_YEAR = 5_000, 365
REPORTS: Mapping[str, int] = {"a sentence": 100, "2 kB": 2_000}
"""Bytes."""
LATER_DAYS = 60
"""Then events have gone, and in the bot contents, buttons and places."""
AT_ONCE = 8
"""So few that no alert goes into a digest."""
GOAL = 5_000.0
"""Bytes of an alert with one run."""


async def measure(folder: Path, scale: Scale) -> list[Row]:
    logs.configure("error")
    rows = []
    for dialect, (report, size) in product(stores.DIALECTS, REPORTS.items()):
        with stores.using(dialect):
            few, many = [
                await _stored(folder / dialect / report / str(n), n, size) for n in (scale.calls, 4 * scale.calls)
            ]
        new, later = ((many[n] - few[n]) / (3 * scale.calls) for n in (0, 1))
        what = f"kept by {dialect} of an alert with one run, its report {report}"
        year = A_DAY * (LATER_DAYS * new + (DAYS_A_YEAR - LATER_DAYS) * later)
        rows += [
            _against_goal(f"{what}, new", new, GOAL),
            _against_goal(f"{what}, {LATER_DAYS} days later", later, GOAL),
            _against_goal(f"{what}: a year of {A_DAY:,} alerts a day", year, GOAL * A_DAY * DAYS_A_YEAR),
        ]
    return rows


def _against_goal(name: str, kept: float, goal: float) -> Row:
    samples = {"kept": [kept], "goal": [goal]}
    return comparison.row(name, samples, "kept", "goal", _bytes, Goal("at most", 1))


def _bytes(samples: Sequence[Sample]) -> str:
    size = median(samples)
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size:,.0f} bytes"


async def _stored(folder: Path, alerts: int, report: int) -> tuple[int, int]:
    """The bytes of a database with so many closed alerts: new, and later."""
    engine = EngineSection(name="local", python=sys.executable, responders=(RESPONDERS,))
    channels = [{"id": SOC, "clearance": "amber", "alerts": {}, "group": False}]
    folder.mkdir(parents=True)
    path = folder / "core.db"
    async with running_bot(folder, channels=channels, engine=(engine,)) as env:
        offered = await env.client.responders("alert", await _sent(env, 0))
        (responder,) = [one.id for one in offered if one.name == "Bench_Reporting_1_0"]
        for start in range(1, alerts, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, alerts))
            await asyncio.gather(*(_worked_on(env, number, responder, report) for number in numbers))
            await until(partial(_is_sent, path), "all messages are sent")
    new = _size(path)
    await _age(path)
    return new, _size(path)


def _size(path: Path) -> int:
    """The bytes of a database; on PostgreSQL of its tables, without the rows that a vacuum removes."""
    if stores.dialect() == "sqlite":
        return path.stat().st_size
    stores.rows(path, "VACUUM FULL")
    sizes = "SELECT sum(pg_total_relation_size(CAST(relid AS OID))) FROM pg_stat_user_tables"
    return int(stores.rows(path, f"{sizes} WHERE schemaname = ANY (current_schemas(false))")[0][0])


async def _sent(env: BotEnvironment, number: int) -> str:
    sent = alert(number)
    artifacts = [
        {"dataType": "ip", "data": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"},
        {"dataType": "domain", "data": f"host-{number}.example.org"},
    ]
    fields = {"type": sent.type, "sourceRef": sent.source_ref, "title": sent.title, "description": sent.description}
    return await env.post_alert(**fields, severity=sent.severity, tags=sent.tags, artifacts=artifacts)


async def _worked_on(env: BotEnvironment, number: int, responder: str, report: int) -> None:
    """A run on an alert, which is then closed."""
    object_id = await _sent(env, number)
    asked = {"responderId": responder, "objectType": "alert", "objectId": object_id, "parameters": {"bytes": report}}
    action = await env.client.run(asked)
    while action.end_date is None:
        action = await env.client.action(action.id, wait_s=20)
    await env.client.close_alerts([object_id])


def _is_sent(path: Path) -> bool | None:
    """Whether Slack shows all."""
    pending = "SELECT 1 FROM message WHERE status <> 'shown' UNION ALL SELECT 1 FROM file WHERE status <> 'shown'"
    return not stores.rows(path, f"{pending} LIMIT 1") or None


async def _age(path: Path) -> None:
    """Let core and bot forget what they keep for some time only."""

    def later() -> int:
        return now_ms() + LATER_DAYS * DAY_MS

    database = open_database(stores.location(path))
    await Retention(database, later, RetentionSection(), event_days=30, pause_s=0).prune()
    await database.close()
    store = open_stores(stores.location(path))
    await BotRetention(store, later, RetentionSection().message_days, _nothing_closed, pause_s=0).prune()
    await store.close()


async def _nothing_closed(_: object) -> ClosedObjects:
    raise AssertionError("nothing is as old as that")
