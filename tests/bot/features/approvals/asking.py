"""Ask to isolate an alert, with the phones of all people on."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from core.client import CoreClient
from core.models import Action, Alert
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
