"""Restored backups: cards come to the state of the backup, and no message that is newer runs anything."""

import asyncio
import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.app import Bot, running
from bot.message import Message
from bot.outbox.models import DesiredMessage
from bot.outbox.outbox import MessageOutbox
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.outbox.store import open_stores
from bot.slack_emulator.elements import all_blocks
from core.app import serving
from core.client import CoreClient
from core.common.clock import now_ms
from core.common.errors import ResponderBotError
from core.models import RunInput
from core.settings import CoreSettings, ResponderSection
from core.store.database.backup import copy, restore_backup
from tests import templates
from tests.bot.people import card_of, modal, reply_to, text_of
from tests.bot.running import SOC, UNLIMITED, BotEnvironment, running_bot

pytestmark = pytest.mark.sqlite  # databases on PostgreSQL are backed up and restored by its own tools

CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"


def buttons(message: dict[str, Any]) -> list[dict[str, Any]]:
    elements = [e for b in all_blocks(message) for e in [*b.get("elements", []), b.get("accessory") or {}]]
    return [e for e in elements if e.get("type") == "button" and e.get("action_id") and not e.get("url")]


async def start_again(scene: BotEnvironment, settings: CoreSettings, stack: AsyncExitStack) -> Bot:
    """Core and bot, as after their restart."""
    await stack.enter_async_context(serving(settings, grace_s=0))
    core = await stack.enter_async_context(CoreClient(scene.core.url, scene.service_key))
    bot = running(scene.settings, core, clock_ms=now_ms, rate_limiter=RateLimiter(**UNLIMITED))
    return await stack.enter_async_context(bot)


@pytest.mark.parametrize("is_core_first", [True, False])
async def test_a_restore_shows_what_was_interrupted_and_a_newer_message_runs_nothing(
    tmp_path: Path, is_core_first: bool
) -> None:
    async with (
        running_bot(tmp_path, responder={CLOSE: ResponderSection(approval=1)}) as scene,
        AsyncExitStack() as stack,
    ):
        anna, alert_id, _ = await scene.first_card()
        request = RunInput.model_validate({"responderId": CLOSE, "objectType": "alert", "objectId": alert_id})
        await scene.client.run(request)
        await anna.sees(card_of(alert_id, "approval"))
        copy(tmp_path / "core.db", tmp_path / "copy.db", now_ms())
        _, lost = await scene.new_card(anna, sourceRef="lost", title="After the backup")
        await scene.bot.close()
        settings = await scene.stop_core()
        _, kept = restore_backup(tmp_path / "copy.db", tmp_path / "core.db")
        assert kept is not None
        assert kept.with_name(f"{kept.name}-inbox").exists()
        if is_core_first:
            async with serving(settings, grace_s=0):
                pass
        await start_again(scene, settings, stack)
        card = await anna.sees(card_of(alert_id))
        assert "it may have run" in text_of(await anna.sees(reply_to(card, "restored from a backup of")))
        await anna.sees(card_of(alert_id, "failed"))
        button = buttons(lost)[0]
        await anna.click(SOC, lost["ts"], action_id=button["action_id"], value=button["value"])
        await anna.sees(modal("is from before a restore of"))
        assert [m for m in await anna.messages(SOC) if m["ts"] == lost["ts"]] == [lost]
        later, _ = await scene.new_card(anna, sourceRef="later")
        assert await scene.client.actions("alert", later) == []


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_click_of_before_the_restore_is_not_carried_out(tmp_path: Path, is_lost: bool) -> None:
    slack, database = AsyncWebClient(token="xoxb-none"), tmp_path / "core.db"
    outbox = MessageOutbox(open_stores(templates.made(database)), slack, now_ms)
    await outbox.inbox.accept("click", {"what": "run"})
    await outbox.upsert(DesiredMessage("alert:~1:C0SOC", "C0SOC", Message("An alert"), root_id="~1"))
    copy(database, tmp_path / "copy.db", now_ms())
    await outbox.close()
    if is_lost:
        database.unlink()
    restore_backup(tmp_path / "copy.db", database)
    for _ in range(2):  # the second time as a live database
        outbox = MessageOutbox(open_stores(database), slack, lambda: now_ms() + 3_600_000)
        assert await outbox.inbox.take_over_abandoned() == []
        assert (message := await outbox.message("alert:~1:C0SOC")) is not None
        assert message.attempted_at  # it is looked for in Slack before it is posted
        await outbox.close()


async def test_a_bot_whose_core_has_another_database_changes_nothing_and_ends(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as scene, AsyncExitStack() as stack:
        anna, _, card = await scene.first_card()
        before = await anna.messages(SOC)
        settings = await scene.stop_core()
        elsewhere = tmp_path / "elsewhere.db"
        copy(tmp_path / "core.db", elsewhere, now_ms())
        with closing(sqlite3.connect(elsewhere)) as connection, connection:
            connection.execute("UPDATE identity SET id = 'another'")
            connection.execute("DELETE FROM backup")
        core = settings.core.model_copy(update={"database": elsewhere})
        other = settings.model_copy(update={"core": core})
        await stack.enter_async_context(serving(other, grace_s=0))
        with pytest.raises(ResponderBotError, match="has another database than this bot's messages are of") as ended:
            async with asyncio.timeout(30):
                await scene.bot.until_ended()
        assert ended.value.code == "conflict"
        assert not all(check.ok for check in await scene.bot.health())
        await scene.post_alert(sourceRef="new", title="Somebody else's machine")
        assert await anna.messages(SOC) == before
        await scene.bot.close()
        client = await stack.enter_async_context(CoreClient(scene.core.url, scene.service_key))
        with pytest.raises(ResponderBotError, match="has another database"):
            await stack.enter_async_context(running(scene.settings, client, clock_ms=now_ms))
        assert [m for m in await anna.messages(SOC) if m["ts"] <= card["ts"]] == before
