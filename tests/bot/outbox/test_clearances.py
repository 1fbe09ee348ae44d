"""Nothing is sent that its channel may not show, and nobody but the leader writes."""

import asyncio
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.clearance import RedactedView, Subject
from bot.outbox.outbox import MessageOutbox
from bot.outbox.sending.sender import ClearanceGuard
from bot.outbox.store import open_stores
from core.common.errors import ResponderBotError
from tests.bot.outbox.harness import (
    REPORT,
    SOC,
    all_sent,
    cancelled,
    desired,
    files_in,
    look_on,
    outbox_environment,
    until,
)


async def test_a_message_rendered_for_a_higher_clearance_is_held_back(tmp_path: Path) -> None:
    held = asyncio.Event()
    ceilings = {SOC: 0}
    async with outbox_environment(tmp_path, guard=ClearanceGuard(ceilings.__getitem__, held.set)) as env:
        secret = Subject("alert", "~1", "the secret", 2, root_id="~1")
        await env.outbox.upsert(desired("alert:~1:C0SOC", "the secret", view=RedactedView(secret, 2)))
        await asyncio.wait_for(held.wait(), 5)
        assert await env.anna.messages(SOC) == []
        await env.outbox.upsert(desired("alert:~1:C0SOC", "withheld", view=RedactedView(secret, 0)))
        await env.shows("withheld")


async def test_a_withdrawn_file_is_deleted_though_its_message_is_held_back(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card", file=REPORT))
        await all_sent(env)
        go = asyncio.Event()
        env.emulator.faults.hold("chat.update", go)
        await env.outbox.upsert(desired("alert:~1:C0SOC", "withheld"))
        await until(lambda: env.emulator.faults.waiting("chat.update") == 0)
        await env.outbox.invalidate_clearances()
        go.set()
        await all_sent(env)
        assert [f["mode"] for f in await files_in(env.anna)] == ["tombstone"]


async def test_a_message_is_held_back_after_a_gap_until_it_was_checked(tmp_path: Path) -> None:
    held = asyncio.Event()
    async with outbox_environment(tmp_path, send=False, guard=ClearanceGuard(on_blocked=held.set)) as env:
        secret = Subject("alert", "~1", "the secret", 2, root_id="~1")
        await env.outbox.upsert(desired("alert:~1:C0SOC", "the secret", view=RedactedView(secret, 2)))
        await env.outbox.invalidate_clearances()
        sending = asyncio.create_task(env.outbox.sender.run())
        await until(held.is_set)
        await env.outbox.enforce_clearance([], {"alert:~1:C0SOC": 2})
        await env.shows("the secret")
        await cancelled(sending)


async def test_a_late_write_of_a_replica_that_no_longer_leads_changes_nothing(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        other = MessageOutbox(open_stores(env.location), AsyncWebClient(token="x"), env.clock, lease_clock=env.clock)
        assert await other.replicas.acquire()
        await other.commit_page([desired("alert:~1:C0SOC", "withheld")], 10)
        await look_on(env.outbox, env.clock.advance)
        assert await env.outbox.replicas.acquire()
        for write in (
            other.upsert(desired("alert:~1:C0SOC", "the secret")),
            other.commit_page([desired("alert:~1:C0SOC", "the secret")], 12),
            other.commit_refresh([desired("alert:~1:C0SOC", "the secret")], []),
            other.enforce_clearance([desired("alert:~1:C0SOC", "the secret")], {}),
        ):
            with pytest.raises(ResponderBotError, match="Another replica"):
                await write
        assert await env.outbox.cursor() == 10
        await env.shows("withheld")
        await other.close()
