"""Restored backups: the bot notices another database of core, and no old message shows a new alert."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.app import running
from bot.message import Message
from bot.outbox import DesiredMessage, MessageOutbox, RateLimiter, forget_messages
from bot.outbox.store import open_store
from bot.slack_emulator import EmulatorView
from core.app import serving
from core.client import CoreClient
from core.common.clock import now_ms
from core.common.errors import ResponderBotError
from core.models import RunInput
from core.settings import ResponderSection
from core.store.database.backup import copy, restore_backup
from tests.bot.features.runs.test_runs import blocks
from tests.bot.outbox.harness import until_read
from tests.bot.running import ANNA, SOC, UNLIMITED, BotEnvironment, find_card, running_bot
from tests.core.core_process import until

pytestmark = pytest.mark.sqlite  # databases on PostgreSQL are backed up and restored by its own tools

CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
FORGET = "`responder-bot forget-messages`"


async def refused(scene: BotEnvironment) -> str:
    """The bot's problem once it has noticed that this is another database."""
    return await until(lambda: scene.bot.notifier.problem if FORGET in scene.bot.notifier.problem else "", "a refusal")


def buttons(message: dict[str, Any]) -> list[dict[str, Any]]:
    elements = [e for b in blocks(message) for e in [*b.get("elements", []), b.get("accessory") or {}]]
    return [e for e in elements if e.get("type") == "button" and e.get("action_id") and not e.get("url")]


def put_marked(folder: Path) -> None:
    restore_backup(folder / "copy.db", folder / "core.db", "sequence")


def put_raw(folder: Path) -> None:
    """Restore a plain copy of the file, which isn't marked as a backup, where no core has seen what came since."""
    shutil.copy(folder / "copy.db", folder / "core.db")
    for memory in folder.rglob("last-event"):
        memory.unlink()
    with closing(sqlite3.connect(folder / "core.db")) as connection, connection:
        connection.execute("DELETE FROM backup")


def put_another(folder: Path) -> None:
    """Put another database there, with the same users and a longer feed."""
    with closing(sqlite3.connect(folder / "core.db")) as connection, connection:
        connection.execute("UPDATE identity SET id = 'another'")
        connection.execute("DELETE FROM object")
        connection.execute("UPDATE sequence SET last = last + 100 WHERE name = 'event'")


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (put_marked, "it was restored from a backup"),
        (put_raw, "it ends at event"),
        (put_another, "it is another one"),
    ],
)
async def test_messages_of_another_database_are_left_alone_until_they_are_forgotten(
    tmp_path: Path, put: Callable[[Path], None], why: str
) -> None:
    async with running_bot(tmp_path) as scene:
        anna = await scene.person(ANNA)
        await scene.card(anna, await scene.post_alert(title="In the backup"))
        copy(tmp_path / "core.db", tmp_path / "copy.db", now_ms())
        lost, old = await scene.new_card(anna, sourceRef="lost", title="After the backup")
        before = await anna.messages(SOC)
        settings = await scene.stop_core()
        put(tmp_path)
        async with serving(settings, grace_s=0):
            sentence = await refused(scene)
            assert f"messages were made from ({why}" in sentence
            assert not all(check.ok for check in await scene.bot.health())
            new = await scene.post_alert(sourceRef="new", title="Somebody else's machine")
            assert (new == lost) == (
                put is put_raw
            )  # its id is used again, which is why old messages must not be touched
            button = buttons(old)[0]
            await anna.click(SOC, old["ts"], action_id=button["action_id"], value=button["value"])
            await anna.until(lambda view: FORGET in str(view.modal))
            assert [m for m in await anna.messages(SOC) if not m.get("ephemeral")] == before
            assert await forget_messages(tmp_path / "slack.db") >= 2
            await until_read(scene.bot.outbox.cursor, bool)  # a first start
            later = await scene.post_alert(sourceRef="later", title="And one more")
            await anna.until(lambda view: titled(view, "And one more"))
            await until(lambda: not scene.bot.notifier.problem, "no problem")
            assert [m for m in await anna.messages(SOC) if m["ts"] <= old["ts"]] == before
            assert later != lost


def titled(view: EmulatorView, title: str) -> list[dict[str, Any]]:
    return [m for m in view.messages(SOC) if title in str(m)]


async def test_a_plain_copy_that_got_new_events_is_recognized_by_them(tmp_path: Path) -> None:
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


async def test_with_both_databases_restored_the_bot_goes_on_and_shows_what_was_interrupted(tmp_path: Path) -> None:
    async with running_bot(tmp_path, responder={CLOSE: ResponderSection(approval=1)}) as scene:
        anna, alert_id, _ = await scene.first_card()
        request = RunInput.model_validate({"responderId": CLOSE, "objectType": "alert", "objectId": alert_id})
        await scene.client.run(request)
        await anna.until(lambda view: "approval" in str(find_card(view.messages(SOC), alert_id)))
        copy(tmp_path / "slack.db", tmp_path / "copy.db.slack", now_ms())
        copy(tmp_path / "core.db", tmp_path / "copy.db", now_ms())
        await scene.card(anna, await scene.post_alert(sourceRef="lost"))
        await scene.bot.close()
        settings = await scene.stop_core()
        restore_backup(tmp_path / "copy.db", tmp_path / "core.db", "sequence")
        restore_backup(tmp_path / "copy.db.slack", tmp_path / "slack.db", "message")
        async with (
            serving(settings, grace_s=0),
            CoreClient(scene.core.url, scene.service_key) as core,
            running(scene.settings, core, clock_ms=now_ms, rate_limiter=RateLimiter(**UNLIMITED)),
        ):
            responses = await anna.until(
                lambda view: [
                    m
                    for m in view.thread(SOC, (find_card(view.messages(SOC), alert_id) or {"ts": ""})["ts"])
                    if "restored from a backup of" in str(m)
                ]
            )
            assert "it may have run" in str(responses)
            await anna.until(lambda view: "failed" in str(find_card(view.messages(SOC), alert_id)).lower())
            _later, _ = await scene.new_card(anna, sourceRef="later")


async def test_an_interaction_that_was_pending_in_a_backup_is_not_carried_out(tmp_path: Path) -> None:
    slack = AsyncWebClient(token="xoxb-none")
    outbox = MessageOutbox(open_store(tmp_path / "slack.db"), slack, now_ms)
    await outbox.inbox.accept("click", {"what": "run"})
    await outbox.upsert(DesiredMessage("alert:~1:C0SOC", "C0SOC", Message("An alert"), root_id="~1"))
    copy(tmp_path / "slack.db", tmp_path / "copy.db", now_ms())
    await outbox.close()
    for name in ("copy.db", "copy.db"):  # the second time as a live database
        outbox = MessageOutbox(open_store(tmp_path / name), slack, lambda: now_ms() + 3_600_000)
        assert await outbox.inbox.take_over_abandoned() == []
        assert not await outbox.inbox.accept("click", {"what": "run"})
        assert (shown := await outbox.message("alert:~1:C0SOC")) is not None
        assert shown.attempted_at  # it is looked for in Slack before it is posted
        await outbox.close()
    with pytest.raises(ResponderBotError, match="so it needs its messages; nothing was forgotten"):
        await forget_messages(tmp_path / "copy.db")
    outbox = MessageOutbox(open_store(tmp_path / "copy.db"), slack, now_ms)
    assert await outbox.message("alert:~1:C0SOC") is not None
    await outbox.reject_database("Core's database is another one.")
    await outbox.close()
    assert await forget_messages(tmp_path / "copy.db") == 1
    outbox = MessageOutbox(open_store(tmp_path / "copy.db"), slack, now_ms)
    await outbox.close()
