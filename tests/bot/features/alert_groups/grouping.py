"""A bot that groups alerts, alerts that say the same, and their card."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from core.settings import EngineSection
from tests.bot.features.environment import write_responders
from tests.bot.people import Person, message_in
from tests.bot.running import ANNA, OPEN, SOC, BotEnvironment, running_bot

CHANNELS = [{"id": SOC, "clearance": "amber", "alerts": {}}, {"id": OPEN, "clearance": "clear", "alerts": {}}]
SAME = "alerts that say the same"


@asynccontextmanager
async def grouping_bot(folder: Path, **more: Any) -> AsyncIterator[tuple[BotEnvironment, Person]]:
    responders = write_responders(folder)
    engine = EngineSection(name="local", responders=(folder / "responders",))
    parts = {"channels": CHANNELS, "engine": (engine,), "responder": responders, **more}
    async with running_bot(folder, **parts) as env:
        yield env, await env.person(ANNA)


async def post(env: BotEnvironment, numbers: range, **changes: Any) -> list[str]:
    """Alerts that say the same; only numbers and addresses in their titles differ."""
    posted = []
    for n in numbers:
        artifacts = [{"dataType": "ip", "data": f"198.51.100.{n % 3}"}]
        title = f"Logon failed {n} times from 198.51.100.{n}"
        alert = {"sourceRef": f"ref-{n}", "title": title, "severity": 1, "artifacts": artifacts, **changes}
        posted.append(await env.post_alert(**alert))
    return posted


def group_cards(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in messages if SAME in message["text"]]


async def group_card(anna: Person, count: int, channel: str = SOC) -> dict[str, Any]:
    """The card of the group once it counts so many alerts."""
    return await anna.sees(message_in(channel, f'"{count} {SAME}'))


async def choose_responder(anna: Person, asked: dict[str, Any], title: str) -> set[str]:
    """Choose a responder for the alerts of a group; the titles of all that were offered."""
    await anna.chooses(title, asked, "Responder")
    (menu,) = [block["accessory"] for block in asked["blocks"] if block.get("block_id") == "responder"]
    return {option["text"]["text"] for option in menu["options"]}
