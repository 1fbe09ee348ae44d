"""Who is asked to approve, how often, and what tells whoever asked how it ended: what phones show."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bot.block_kit import ids
from bot.slack_emulator import EmulatorView
from core.client import CoreClient
from core.models import Action, Alert
from tests.bot.features.approvals.test_decisions import button, direct, in_thread
from tests.bot.features.environment import FeatureEnvironment, feature_environment, text_of, within_limits
from tests.bot.outbox.harness import all_sent
from tests.bot.running import CHANNELS, approve

ISOLATE: Mapping[str, Any] = {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"}
ONCALL = "S0ONCALL"


@asynccontextmanager
async def asking(folder: Path, rules: Mapping[str, Any] = ISOLATE, **options: Any) -> AsyncIterator[FeatureEnvironment]:
    async with feature_environment(folder, {"Isolate": rules}, **options) as env:
        yield env


async def isolate(env: FeatureEnvironment, alert: Alert, by: str = "anna") -> Action:
    """Have somebody ask to isolate it."""
    body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id}
    async with CoreClient(env.core.url, env.service_key) as bot:
        return await bot.as_user(by).run(body)


def phone(env: FeatureEnvironment, name: str) -> list[str]:
    """What this person's phone showed."""
    return [str(shown["text"]) for shown in env[name].live_view.notifications]


def on_phone(words: str, number: int = 1) -> Any:
    """Looks for so many notifications with these words; returns the last."""

    def look(view: EmulatorView) -> str | None:
        found = [str(shown["text"]) for shown in view.notifications if words in str(shown["text"])]
        return found[-1] if len(found) >= number else None

    return look


def asked(words: str = "asks to run") -> Any:
    def look(view: EmulatorView) -> dict[str, Any] | None:
        return next((m for m in direct(view) if words in text_of(m)), None)

    return look


def calls(env: FeatureEnvironment) -> Counter[str]:
    """Posts and edits in channels and in direct messages, so far."""
    counts: Counter[str] = Counter()
    for _, what, body, _ in env.emulator.traffic:
        if what in ("chat.postMessage", "chat.update"):
            where = "" if str(body["channel"]).startswith("C") else "direct "
            counts[where + ("post" if what == "chat.postMessage" else "edit")] += 1
    return counts


async def test_one_containment_with_one_approver_and_undo_rings_three_times(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["ben"]}, channels=CHANNELS[:1]) as env:
        alert, card = await env.alert_and_card("anna")
        await isolate(env, alert)
        request = within_limits(await env.until("ben", asked()))
        here = await env["ben"].dm(env.emulator.bot_user_id)
        await approve(env["ben"], here, request["ts"], action_id=button(request, ids.APPROVE))
        told = await env.until("anna", on_phone("approved"))
        assert told.startswith("ben approved: Isolate on ip 203[.]0[.]113[.]7 for 1 hour, done.")
        shown = within_limits(await env.until("anna", asked("ben approved:")))
        assert "in force until" in text_of(shown)
        await all_sent(env.bot)
        await env.until("ben", in_thread(card["ts"], "*Isolate* done"))
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").undo((await env.ended_run(alert)).id)
        assert "ben undid Isolate on ip 203[.]0[.]113[.]7" in await env.until("anna", on_phone("undid"))
        await env.until("ben", in_thread(card["ts"], "*Tell* done"))
        await all_sent(env.bot)
        assert calls(env) == {"post": 4, "edit": 5, "direct post": 3, "direct edit": 1}
        assert len(phone(env, "ben")) == 2  # the mention, and the request
