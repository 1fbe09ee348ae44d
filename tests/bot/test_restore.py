"""Backups put back: the bot and core know each other's databases, and no old message tells of a new alert."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.app import running
from bot.cards.message import Message
from bot.outbox import DesiredMessage, MessageOutbox, RateLimiter, forget_messages
from bot.slack_emulator import EmulatorView
from core.app import serving
from core.client import CoreClient
from core.common.clock import now_ms
from core.models import RunInput
from core.settings import ResponderSection
from core.store.backup import copy, put_back
from tests.bot.features.test_runs import blocks
from tests.bot.running import ANNA, SOC, UNLIMITED, BotEnvironment, find_card, running_bot
from tests.core.core_process import until

CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
FORGET = "`responder-bot forget-messages`"


async def refused(scene: BotEnvironment) -> str:
    """What the bot says once it has seen that this is another database."""
    return await until(lambda: scene.bot.notifier.problem if FORGET in scene.bot.notifier.problem else "", "a refusal")


def buttons(message: dict[str, Any]) -> list[dict[str, Any]]:
    elements = [e for b in blocks(message) for e in [*b.get("elements", []), b.get("accessory") or {}]]
    return [e for e in elements if e.get("type") == "button" and e.get("action_id") and not e.get("url")]


def put_marked(folder: Path) -> None:
    put_back(folder / "copy.db", folder / "core.db", "sequence")


def put_raw(folder: Path) -> None:
    """As somebody does who copies files by hand, from a time before anything knew that it is a backup."""
    shutil.copy(folder / "copy.db", folder / "core.db")
    with closing(sqlite3.connect(folder / "core.db")) as connection, connection:
        connection.execute("DELETE FROM backup")


def put_another(folder: Path) -> None:
    """Another database with the same people, whose feed is further on."""
    with closing(sqlite3.connect(folder / "core.db")) as connection, connection:
        connection.execute("UPDATE identity SET id = 'another'")
        connection.execute("DELETE FROM object")
        connection.execute("UPDATE sqlite_sequence SET seq = seq + 100 WHERE name = 'event'")


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (put_marked, "it was restored from a backup"),
        (put_raw, "it ends at event"),
        (put_another, "it is another one"),
    ],
)
async def test_the_messages_of_another_database_are_left_alone_until_they_are_forgotten(
    tmp_path: Path, put: Callable[[Path], None], why: str
) -> None:
    async with running_bot(tmp_path) as scene:
        anna = await scene.person(ANNA)
        await scene.card(anna, await scene.post_alert(title="In the backup"))
        copy(tmp_path / "core.db", tmp_path / "copy.db", now_ms())
        lost = await scene.post_alert(sourceRef="lost", title="After the backup")
        old = await scene.card(anna, lost)
        before = await anna.messages(SOC)
        settings = await scene.stop_core()
        put(tmp_path)
        async with serving(settings, grace_s=0):
            said = await refused(scene)
            assert f"messages tell of ({why}" in said
            assert not all(check.ok for check in await scene.bot.health())
            new = await scene.post_alert(sourceRef="new", title="Somebody else's machine")
            assert (new == lost) == (put is put_raw)  # its id is used again: the reason for all this
            button = buttons(old)[0]
            await anna.click(SOC, old["ts"], action_id=button["action_id"], value=button["value"])
            await anna.until(lambda view: [m for m in view.ephemerals(SOC) if FORGET in m["text"]])
            assert [m for m in await anna.messages(SOC) if not m.get("ephemeral")] == before
            assert await forget_messages(tmp_path / "slack.db") >= 2
            await until(lambda: scene.bot.outbox.cursor(), "a bot that begins anew")
            later = await scene.post_alert(sourceRef="later", title="And one more")
            await anna.until(lambda view: titled(view, "And one more"))
            await until(lambda: not scene.bot.notifier.problem, "a bot that is content")
            assert [m for m in await anna.messages(SOC) if m["ts"] <= old["ts"]] == before
            assert later != lost


def titled(view: EmulatorView, title: str) -> list[dict[str, Any]]:
    return [m for m in view.messages(SOC) if title in str(m)]


async def test_a_raw_copy_that_has_run_on_is_known_by_its_events(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as scene:
        anna = await scene.person(ANNA)
        await scene.card(anna, await scene.post_alert())
        copy(tmp_path / "core.db", tmp_path / "copy.db", now_ms())
        await scene.card(anna, await scene.post_alert(sourceRef="lost"))
        await scene.bot.close()
        settings = await scene.stop_core()
        put_raw(tmp_path)
        async with serving(settings, grace_s=0):
            for number in range(5):
                await scene.post_alert(sourceRef=str(number))
            async with (
                CoreClient(scene.core.url, scene.service_key) as core,
                running(scene.settings, core, clock_ms=now_ms, rate_limiter=RateLimiter(**UNLIMITED)) as scene.bot,
            ):
                assert "was another one" in await refused(scene)


async def test_with_both_databases_restored_the_bot_goes_on_and_shows_what_ended(tmp_path: Path) -> None:
    async with running_bot(tmp_path, responder={CLOSE: ResponderSection(approval=1)}) as scene:
        anna = await scene.person(ANNA)
        alert_id = await scene.post_alert()
        await scene.card(anna, alert_id)
        asked = RunInput.model_validate({"responderId": CLOSE, "objectType": "alert", "objectId": alert_id})
        await scene.client.run(asked)
        await anna.until(lambda view: "approval" in str(find_card(view.messages(SOC), alert_id)))
        copy(tmp_path / "slack.db", tmp_path / "copy.db.slack", now_ms())
        copy(tmp_path / "core.db", tmp_path / "copy.db", now_ms())
        await scene.card(anna, await scene.post_alert(sourceRef="lost"))
        await scene.bot.close()
        settings = await scene.stop_core()
        put_back(tmp_path / "copy.db", tmp_path / "core.db", "sequence")
        put_back(tmp_path / "copy.db.slack", tmp_path / "slack.db", "message")
        async with (
            serving(settings, grace_s=0),
            CoreClient(scene.core.url, scene.service_key) as core,
            running(scene.settings, core, clock_ms=now_ms, rate_limiter=RateLimiter(**UNLIMITED)),
        ):
            told = await anna.until(
                lambda view: [
                    m
                    for m in view.thread(SOC, (find_card(view.messages(SOC), alert_id) or {"ts": ""})["ts"])
                    if "restored from a backup of" in str(m)
                ]
            )
            assert "it may have run" in str(told)
            await anna.until(lambda view: "failed" in str(find_card(view.messages(SOC), alert_id)).lower())
            later = await scene.post_alert(sourceRef="later")
            await scene.card(anna, later)


async def test_a_click_that_a_backup_caught_is_not_carried_out(tmp_path: Path) -> None:
    slack = AsyncWebClient(token="xoxb-none")
    delivery = MessageOutbox(tmp_path / "slack.db", slack, now_ms)
    await delivery.inbox.accept("click", {"what": "run"})
    await delivery.watches.add("T0LOCAL", ANNA, "responder:Mailer_1_0")
    await delivery.watches.add("T0LOCAL", ANNA, "~1")
    await delivery.upsert(DesiredMessage("alert:~1:C0SOC", "C0SOC", Message("An alert"), subject="~1"))
    copy(tmp_path / "slack.db", tmp_path / "copy.db", now_ms())
    await delivery.close()
    for name in ("copy.db", "copy.db"):  # the second time it is a live database
        delivery = MessageOutbox(tmp_path / name, slack, lambda: now_ms() + 3_600_000)
        assert await delivery.inbox.take_over_abandoned() == []
        assert not await delivery.inbox.accept("click", {"what": "run"})
        assert (shown := delivery.message("alert:~1:C0SOC")) is not None
        assert shown.attempted_at  # it is looked for in Slack before it is posted
        await delivery.close()
    assert await forget_messages(tmp_path / "copy.db") == 1
    delivery = MessageOutbox(tmp_path / "copy.db", slack, now_ms)
    assert await delivery.watches.of_user("T0LOCAL", ANNA) == ["responder:Mailer_1_0"]
    await delivery.close()
