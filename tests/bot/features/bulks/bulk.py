"""Ask for a responder on several alerts, and look at the message of that bulk."""

import re
from typing import Any

from bot.slack_emulator import EmulatorView
from tests.bot.features.environment import FeatureEnvironment
from tests.bot.people import modal, text_of
from tests.bot.running import SOC


async def alerts(env: FeatureEnvironment, count: int, **more: Any) -> list[str]:
    return [(await env.create_alert(sourceRef=f"{n}-{more}", **more)).id for n in range(count)]


async def asked(env: FeatureEnvironment, name: str, responder: str, alert_ids: list[str]) -> dict[str, Any]:
    """The form after the command, whose button is the deed."""
    await env[name].command(SOC, f"/responder run {responder} {' '.join(alert_ids)}")
    return await env[name].sees(modal("Each is checked"))


async def start(env: FeatureEnvironment, name: str, responder: str, alert_ids: list[str]) -> None:
    question = await asked(env, name, responder, alert_ids)
    await env[name].submits(question)


def bulk_messages(view: EmulatorView, words: str = "") -> list[dict[str, Any]]:
    """Those that have these words, with no further count behind them."""
    wanted = re.compile(re.escape(words) + r"(?!, \d)")
    return [m for m in view.messages(SOC) if "Show each" in text_of(m) and wanted.search(text_of(m))]


async def shown(env: FeatureEnvironment, words: str) -> dict[str, Any]:
    """The message of a bulk, once it has these words."""
    return await env["anna"].sees(lambda view: next(iter(bulk_messages(view, words)), None))


def posted_to(env: FeatureEnvironment, channel: str) -> list[dict[str, Any]]:
    """What the bot posted there, also in threads."""
    found = [body for _, what, body, _ in env.emulator.traffic if what == "chat.postMessage"]
    return [body for body in found if body["channel"] == channel]


async def reviewed(env: FeatureEnvironment, name: str, message: dict[str, Any], words: str) -> dict[str, Any]:
    """What Review shows this person."""
    await env[name].presses("Review", message)
    return await env[name].sees(modal(words))
