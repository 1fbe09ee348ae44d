"""An alert that its source sends again as more severe is shown where it was too low before."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from core.settings import SourceSection
from tests.bot.outbox.harness import all_sent
from tests.bot.people import Person, card_of, find_card, message_in, reply_to, updated
from tests.bot.running import ANNA, SOC, BotEnvironment, running_bot

HIGH = "C0HIGH"
CHANNELS: list[dict[str, Any]] = [
    {"id": SOC, "clearance": "amber", "alerts": {}, "group": {"after": 1}, "mention": {"critical": "S0ONCALL"}},
    {
        "id": HIGH,
        "clearance": "amber",
        "alerts": {"severity_at_least": 3},
        "group": False,
        "mention": {"high": "S0DAY", "critical": "S0ONCALL"},
    },
]
EDGE = SourceSection.model_validate(
    {"map": {"title": "title", "description": "title", "sourceRef": "id", "severity": "severity"}}
)


@asynccontextmanager
async def fed(tmp_path: Path) -> AsyncIterator[tuple[BotEnvironment, Person]]:
    async with running_bot(tmp_path, channels=CHANNELS, source={"edge": EDGE}) as env:
        env.emulator.add_channel(HIGH, name="high")
        await env.bot.channels.refresh()
        yield env, await env.person(ANNA)


async def send(env: BotEnvironment, number: int, severity: int) -> str:
    """Send an alert as the source does; returns its id."""
    headers = {"Authorization": f"Bearer {await env.core.key('source', 'edge')}"}
    body = {"id": str(number), "title": f"Incident {number}", "severity": severity}
    answer = await env.core.http.post("/api/ingest/edge", json=body, headers=headers)
    assert answer.status_code in (200, 201), answer.text
    return str((await env.core.send("GET", f"/api/alert/alert;edge;{number}")).json()["id"])


async def test_an_alert_that_was_raised_gets_a_card_where_it_was_too_low_before(tmp_path: Path) -> None:
    async with fed(tmp_path) as (env, anna):
        alert_id = await send(env, 1, severity=1)
        card = await anna.sees(card_of(alert_id))
        assert await send(env, 1, severity=3) == alert_id
        raised = await anna.sees(card_of(alert_id, channel=HIGH))
        await anna.sees(updated(card, "was Low until"))
        assert "was Low until" in str(raised)
        await send(env, 1, severity=4)
        await anna.sees(card_of(alert_id, "was High until", channel=HIGH))
        await anna.sees(reply_to(card, "S0ONCALL"))
        await anna.sees(reply_to(raised, "S0DAY", "HIGH Incident", channel=HIGH))
        await anna.sees(reply_to(raised, "S0ONCALL", "CRITICAL Incident", channel=HIGH))
        assert len(await anna.messages(HIGH)) == 1
        assert len(await anna.messages(SOC)) == 1


async def test_an_alert_of_a_group_that_becomes_critical_gets_a_card_of_its_own(tmp_path: Path) -> None:
    async with fed(tmp_path) as (env, anna):
        ids = [await send(env, number, severity=1) for number in range(3)]
        await anna.sees(message_in(SOC, "3 alerts that say the same"))
        assert find_card(await anna.messages(SOC), ids[2]) is None
        await send(env, 2, severity=3)
        await anna.sees(card_of(ids[2], channel=HIGH))
        await anna.sees(message_in(SOC, "1 high"))
        await all_sent(env.bot)
        assert find_card(await anna.messages(SOC), ids[2]) is None  # the group says how many are high
        await send(env, 2, severity=4)
        await anna.sees(card_of(ids[2]))
