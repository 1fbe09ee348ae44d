"""Interactions that were acknowledged by a bot that was then killed."""

import asyncio
import json
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient
from structlog.testing import capture_logs

from bot.outbox.outbox import MessageOutbox
from bot.outbox.store import open_stores
from core.common.clock import now_ms
from core.common.database import Transaction
from tests import stores, templates
from tests.bot.core_proxy import CoreProxy
from tests.bot.outbox.harness import ManualClock, all_sent, until
from tests.bot.people import ephemeral, message_in, modal
from tests.bot.running import ANNA, LEA, SOC, running_bot

MINUTE_MS = 60_000
EXTRACT = "ResponderBot_ExtractIndicators_1_0"


async def leave_pending(folder: Path, pending: Mapping[str, Any], minutes: int) -> None:
    """Put an interaction into the inbox, as a bot that was killed that many minutes ago."""
    location = templates.made(stores.location(folder / "core.db"))
    earlier = MessageOutbox(open_stores(location), AsyncWebClient(), lambda: now_ms() - minutes * MINUTE_MS)
    assert await earlier.inbox.accept("the-click", pending)
    await earlier.close()


def command(text: str) -> dict[str, Any]:
    body = {
        "command": "/responder",
        "text": text,
        "team_id": "T0LOCAL",
        "user_id": ANNA,
        "channel_id": SOC,
        "trigger_id": "1.2.3",
    }
    return {"surface": "command", "body": body}


@pytest.mark.parametrize(
    ("minutes", "answer"), [(2, "Nothing has the id ~404"), (11, "The bot was away when you asked")]
)
async def test_pending_command_is_replayed_unless_it_is_too_old(tmp_path: Path, minutes: int, answer: str) -> None:
    await leave_pending(tmp_path, command(f"run {EXTRACT} ~404"), minutes)
    async with running_bot(tmp_path) as env:
        anna = await env.person(ANNA)
        response = await anna.sees(ephemeral())
    assert answer in response["text"]


async def test_what_takes_over_a_minute_is_not_carried_out_a_second_time_meanwhile(tmp_path: Path) -> None:
    clock, proxy = ManualClock(), CoreProxy()
    async with running_bot(tmp_path, clock_ms=clock, core_proxy=proxy.serve) as env:
        anna = await env.person(ANNA)
        proxy.hold("/api/document")
        await anna.command(SOC, f"/responder run {EXTRACT} ~404")
        await proxy.request_held.wait()
        clock.advance(MINUTE_MS + 1)
        now = clock()
        await until(lambda: stores.clicks(tmp_path / "core.db", "SELECT leased_until FROM inbox")[0][0] > now)
        proxy.release()
        await anna.sees(ephemeral())
        await env.bot.close()  # it finishes first what it has accepted
        (response,) = await anna.ephemerals(SOC)
        assert "Nothing has the id ~404" in response["text"]


async def test_what_the_database_did_not_take_of_a_click_in_a_modal_is_told_in_it(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        anna, alert_id, _ = await env.first_card()
        await env.client.request("POST", "/api/case/template", {"name": "Phishing"})
        await all_sent(env.bot)
        await anna.command(SOC, f"/responder case {alert_id}")
        asked = await anna.sees(modal("Phishing"))
        with closing(stores.hold(stores.inbox(tmp_path / "core.db"), bots=True)):
            await anna.presses("Use", asked)
            told = await anna.sees(modal("database can't be used now, so nothing was done"))
        assert told["id"] == asked["id"]
        assert (await env.client.alert(alert_id)).case is None


async def test_a_click_that_the_database_did_not_take_in_time_is_never_carried_out(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        anna, alert_id, _ = await env.first_card()
        await all_sent(env.bot)
        with closing(stores.hold(stores.inbox(tmp_path / "core.db"), bots=True)):
            await anna.command(SOC, f"/responder run {EXTRACT} {alert_id}")
            response = await anna.sees(ephemeral())
        assert "database can't be used now, so nothing was done" in response["text"]

        def is_withdrawn() -> bool:
            return stores.clicks(tmp_path / "core.db", "SELECT done_at > 0, payload FROM inbox") == [(True, "")]

        await until(is_withdrawn)
        assert await env.client.actions("alert", alert_id) == []
        await anna.command(SOC, f"/responder run {EXTRACT} {alert_id}")
        await anna.sees(message_in(SOC, "Extract Indicators done"))
        assert len(await env.client.actions("alert", alert_id)) == 1


@pytest.mark.sqlite
async def test_what_was_done_while_the_database_was_away_is_noted_at_once_when_it_is_back(tmp_path: Path) -> None:
    proxy, inbox = CoreProxy(), stores.inbox(tmp_path / "core.db")
    async with running_bot(tmp_path, core_proxy=proxy.serve) as env:
        anna = await env.person(ANNA)
        proxy.hold("/api/document")
        await anna.command(SOC, f"/responder run {EXTRACT} ~404")
        await proxy.request_held.wait()
        await env.bot.outbox.inbox._store.transaction(lambda tx: tx.rows("PRAGMA busy_timeout = 100"))
        with closing(stores.hold(inbox, bots=True)), capture_logs() as logs:
            proxy.release()
            await until(lambda: "store_unwritable" in [line["event"] for line in logs])
        async with asyncio.timeout(30):  # it is replayed after a minute
            await until(lambda: stores.clicks(tmp_path / "core.db", "SELECT done_at > 0 FROM inbox") == [(True,)])


async def test_a_submission_that_was_acknowledged_late_is_carried_out_by_the_next_bot(tmp_path: Path) -> None:
    proxy, first, following = CoreProxy(), tmp_path / "first", tmp_path / "next"
    first.mkdir()
    following.mkdir()
    async with running_bot(first, core_proxy=proxy.serve) as env:
        lea = await env.person(LEA)
        await lea.command(SOC, "/responder template")
        form = await lea.sees(modal('"name"'))
        proxy.hold("/api/case/template")
        await lea.submits(form, name="Phishing")
        await lea.sees(modal("Still working"))
        ((pending,),) = stores.clicks(first / "core.db", "SELECT payload FROM inbox WHERE done_at = 0")
        proxy.release()
        await lea.sees(modal("was created"))
        assert stores.clicks(first / "core.db", "SELECT 1 FROM inbox WHERE done_at = 0") == []
    await leave_pending(following, json.loads(pending), 1)
    async with running_bot(following) as env:
        await until(lambda: not stores.clicks(following / "core.db", "SELECT 1 FROM inbox WHERE done_at = 0"))
        assert (await env.client.case_template("Phishing")).created_by == "lea@responder-bot.local"


async def test_a_click_is_stored_and_acknowledged_while_core_s_writer_works(tmp_path: Path) -> None:
    is_over = threading.Event()

    def work(tx: Transaction) -> None:
        tx.run("UPDATE sequence SET last = last + 1 WHERE name = 'probe'")
        is_over.wait(30)

    async with running_bot(tmp_path) as env:
        anna, alert_id, _ = await env.first_card()
        await all_sent(env.bot)
        working = asyncio.create_task(env.core.core.database.transaction(work))
        try:
            await anna.command(SOC, f"/responder run {EXTRACT} {alert_id}")
            await until(lambda: stores.clicks(tmp_path / "core.db", "SELECT 1 FROM inbox WHERE done_at = 0"))
            assert not working.done()
        finally:
            is_over.set()
        await working
        await anna.sees(message_in(SOC, "Extract Indicators done"))
        assert len(await env.client.actions("alert", alert_id)) == 1
