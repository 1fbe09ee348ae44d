"""An alert that its source sends again as more severe is shown where it was too low before."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bot.slack_emulator import EmulatedUser
from core.settings import SourceSection
from tests.bot.outbox.harness import all_sent
from tests.bot.running import ANNA, SOC, BotEnvironment, find_card, running_bot

HIGH = "C0HIGH"
CHANNELS: list[dict[str, Any]] = [
    {"id": SOC, "clearance": "amber", "alerts": {}, "group": {"after": 1}, "mention": {"critical": "S0ONCALL"}},
    {"id": HIGH, "clearance": "amber", "alerts": {"severity_at_least": 3}, "group": False},
]
EDGE = SourceSection.model_validate(
    {"map": {"title": "title", "description": "title", "sourceRef": "id", "severity": "severity"}}
)


@asynccontextmanager
async def fed(tmp_path: Path) -> AsyncIterator[tuple[BotEnvironment, EmulatedUser]]:
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
        card = await env.card(anna, alert_id)
        assert await send(env, 1, severity=3) == alert_id
        raised = await env.card(anna, alert_id, HIGH)
        await anna.until(lambda view: "was Low until" in str(view.message(SOC, card["ts"])))
        assert "was Low until" in str(raised)
        await send(env, 1, severity=4)
        await anna.until(lambda view: "was High until" in str(find_card(view.messages(HIGH), alert_id)))
        await anna.until(lambda view: [m for m in view.thread(SOC, card["ts"]) if "S0ONCALL" in str(m)])
        assert len(await anna.messages(HIGH)) == 1
        assert len(await anna.messages(SOC)) == 1


async def test_an_alert_of_a_group_that_becomes_critical_gets_a_card_of_its_own(tmp_path: Path) -> None:
    async with fed(tmp_path) as (env, anna):
        ids = [await send(env, number, severity=1) for number in range(3)]
        await anna.until(
            lambda view: [m for m in view.messages(SOC) if m["text"].startswith("3 alerts that say the same")]
        )
        assert find_card(await anna.messages(SOC), ids[2]) is None
        await send(env, 2, severity=3)
        await env.card(anna, ids[2], HIGH)
        await anna.until(lambda view: [m for m in view.messages(SOC) if "1 high" in m["text"]])
        await all_sent(env.bot)
        assert find_card(await anna.messages(SOC), ids[2]) is None  # the group says how many are high
        await send(env, 2, severity=4)
        await env.card(anna, ids[2])
