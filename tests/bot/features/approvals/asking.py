"""Ask to isolate an alert or several, with the phones of all people on."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from core.client import CoreClient
from core.common.clock import now_ms
from core.common.database import Transaction
from core.models import Action, Alert, BulkAnswer, BulkInput, RunTarget
from core.store import due
from tests import stores
from tests.bot.features.environment import FeatureEnvironment, feature_environment

ISOLATE: Mapping[str, Any] = {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"}


@asynccontextmanager
async def asking(folder: Path, rules: Mapping[str, Any] = ISOLATE, **options: Any) -> AsyncIterator[FeatureEnvironment]:
    """With everybody's phone on."""
    async with feature_environment(folder, {"Isolate": rules}, **options) as env:
        for person in env.people.values():
            await person.connect()
        yield env


async def isolate(env: FeatureEnvironment, alert: Alert, by: str = "anna", minutes: int = 60) -> Action:
    """Have somebody ask to isolate it."""
    body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id, "undoAfterMinutes": minutes}
    async with CoreClient(env.core.url, env.service_key) as bot:
        return await bot.as_user(by).run(body)


async def expire(env: FeatureEnvironment) -> None:
    """Let the time of what waits for approval be over."""
    database = env.core.core.database
    waiting = await database.read(lambda reads: reads.rows("SELECT id FROM approval"))

    def end(tx: Transaction) -> None:
        tx.run("UPDATE approval SET expires_at = 1")
        for row in waiting:
            due.put(tx, "approval", row["id"], 1, 1)

    await database.transaction(end)


def end_by_itself(env: FeatureEnvironment) -> None:
    """Let the time of what is in force be over."""
    core = env.folder / "core.db"
    stores.rows(core, "UPDATE sequence SET last = last + 1 WHERE name = 'due'")
    newest = "(SELECT last FROM sequence WHERE name = 'due')"
    stores.rows(core, f"UPDATE due SET number = {newest}, wait = 0 WHERE kind = 'undo'")  # noqa: S608


async def bulk_of(
    env: FeatureEnvironment, by: str, levels: Sequence[int], red: Sequence[int] = ()
) -> tuple[BulkAnswer, list[Alert]]:
    """A bulk that waits on alerts with these severities, each with an address of its own; some of them TLP:RED."""
    alerts = [
        await env.create_alert(
            sourceRef=f"{n}-{now_ms()}",
            severity=level,
            tlp=3 if n in red else 2,
            artifacts=[{"dataType": "ip", "data": f"203.0.113.{n}"}],
        )
        for n, level in enumerate(levels)
    ]
    targets = [RunTarget(object_type="alert", object_id=alert.id) for alert in alerts]
    async with CoreClient(env.core.url, env.service_key) as bot:
        return await bot.as_user(by).run_bulk(BulkInput(responder_id="Isolate_1_0", targets=targets)), alerts
