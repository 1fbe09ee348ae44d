"""What an app under test heard, and its manifest."""

import asyncio
import re
from typing import Any

import pytest
from slack_bolt.app.async_app import AsyncApp

from tests.bot.slack_emulator.starter_app import plain

Json = dict[str, Any]


class Heard:
    """What an app heard, and a way to wait for it."""

    def __init__(self) -> None:
        self.things: list[Any] = []
        self._changed = asyncio.Condition()

    async def add(self, thing: Any) -> None:
        async with self._changed:
            self.things.append(thing)
            self._changed.notify_all()

    async def wait(self, count: int) -> list[Any]:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.things) >= count)
            return list(self.things)


MANIFEST = {
    "features": {
        "bot_user": {"display_name": "Responder"},
        "slash_commands": [{"command": "/responder", "description": "Alerts", "usage_hint": "list ~id"}],
        "shortcuts": [{"name": "Show", "type": "message", "callback_id": "show"}],
    },
    "oauth_config": {"scopes": {"bot": ["chat:write", "commands", "channels:read", "app_mentions:read"]}},
    "settings": {"event_subscriptions": {"bot_events": ["app_mention"]}},
}


def option(value: str) -> Json:
    return {"text": plain(value.title()), "value": value}


@pytest.fixture
def heard(app: AsyncApp, connected: object) -> Heard:
    """Every payload that the app gets, acknowledged."""
    heard = Heard()

    @app.middleware
    async def hear(body: Json, next: Any) -> None:  # Bolt's name for it
        await heard.add(body)
        await next()

    async def ack(ack: Any) -> None:
        await ack()

    anything = re.compile(".*")
    app.command(anything)(ack)
    app.action(anything)(ack)
    app.shortcut(anything)(ack)
    app.view(anything)(ack)

    @app.options(anything)
    async def options(ack: Any) -> None:
        await ack(option_groups=[{"label": plain("Can run"), "options": [option("one"), option("two")]}])

    @app.event(anything)
    async def event(ack: Any) -> None:
        await ack()

    return heard
