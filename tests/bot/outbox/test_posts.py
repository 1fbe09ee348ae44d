"""Posts reach Slack once, whatever fails on the way."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient
from structlog.testing import capture_logs

from bot.message import Message
from bot.outbox.models import DesiredMessage, RefreshRequest
from bot.outbox.replicas import LEASE_MS
from bot.outbox.sending.sender import ANSWER_MS
from tests.bot.outbox.harness import SOC, all_sent, cancelled, desired, outbox_environment, until, until_read


async def test_a_reply_waits_until_its_root_is_posted(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC"))
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.shows("card", "done")


@pytest.mark.parametrize("trouble", ["lose_answer", "lose_request", "fail", "ratelimit", "error service_unavailable"])
async def test_a_post_that_fails_is_in_slack_once(tmp_path: Path, trouble: str) -> None:
    async with outbox_environment(tmp_path) as env:
        kind, *code = trouble.split()
        getattr(env.emulator.faults, kind)("chat.postMessage", *code)
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.outbox.upsert(DesiredMessage("alert:~2:C0SOC", SOC, Message("another"), root_id="~2"))
        await env.shows("card", "another")


@pytest.mark.sqlite
async def test_sending_is_not_resumed_while_nothing_can_be_stored(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("a", "old"))
        await env.shows("old")
        await all_sent(env)
        await env.outbox._store.transaction(lambda tx: tx.rows("PRAGMA busy_timeout = 100"))
        go = asyncio.Event()
        env.emulator.faults.hold("chat.update", go)
        await env.outbox.upsert(desired("a", "new"))
        await until(lambda: env.emulator.faults.waiting("chat.update") == 0)
        with closing(sqlite3.connect(tmp_path / "core.db", isolation_level=None)) as other, capture_logs() as logs:
            other.execute("BEGIN IMMEDIATE")
            go.set()
            await until(lambda: [what for _, what, _, _ in env.emulator.traffic].count("chat.update") > 2)
            said = [line["event"] for line in logs if line["event"].startswith(("sending_", "store_"))]
            assert said == ["store_unwritable", "sending_stopped"]
            other.execute("COMMIT")
            await all_sent(env)
            await until(lambda: [line for line in logs if line["event"] == "sending_resumed"])


async def test_a_replica_that_leads_again_sends_where_its_call_was_under_way(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        go = asyncio.Event()
        env.emulator.faults.hold("chat.postMessage", go)
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        sending = asyncio.create_task(env.outbox.sender.run())
        await until(lambda: env.emulator.faults.waiting("chat.postMessage") == 0)
        await cancelled(sending)
        env.clock.advance(ANSWER_MS)
        again = asyncio.create_task(env.outbox.sender.run())
        await env.shows("card")
        await cancelled(again)
        go.set()


async def test_a_card_that_rate_limits_delayed_says_so(tmp_path: Path) -> None:
    block = {"type": "section", "text": {"type": "plain_text", "text": "card"}}
    async with outbox_environment(tmp_path) as env:
        env.emulator.faults.ratelimit("chat.postMessage", retry_after_s=30)
        await env.outbox.upsert(DesiredMessage("alert:~1:C0SOC", SOC, Message("card", (block,)), root_id="~1"))
        await until_read(env.outbox.problems, bool)
        env.clock.ahead_ms = 31_000
        env.outbox.sender.wake()
        await env.shows("card")
        (message,) = await env.anna.messages(SOC)
        assert "Delayed 31 s by Slack's rate limit." in str(message["blocks"])


async def test_a_reply_whose_answer_was_lost_is_in_slack_once(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.shows("card")
        env.emulator.faults.lose_answer("chat.postMessage", 2)
        await env.outbox.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC"))
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card, ended", by_person=True))
        await env.shows("card, ended", "done")


@pytest.mark.parametrize("where", ["the channel", "a thread"])
async def test_a_post_that_arrives_after_it_was_repeated_is_deleted(tmp_path: Path, where: str) -> None:
    async with outbox_environment(tmp_path) as env:
        root = "alert:~1:C0SOC" if where == "a thread" else ""
        if root:
            await env.outbox.upsert(desired(root, "card"))
            await env.shows("card")
        others = ["card"] if root else []
        arrive = asyncio.Event()
        env.emulator.faults.late("chat.postMessage", arrive)
        await env.outbox.upsert(desired("end:~2:C0SOC", "done", thread_of=root))
        await env.shows("done", *others)  # repeated, since the first was not found
        arrive.set()
        await env.shows("done", "done", *others)
        env.clock.ahead_ms = 61_000
        env.outbox.sender.wake()
        await env.shows("done", *others)
        await env.outbox.upsert(desired("end:~2:C0SOC", "it is ours", thread_of=root, by_person=True))
        await env.shows("it is ours", *others)


async def test_a_duplicate_is_deleted_after_many_failed_checks(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        arrive = asyncio.Event()
        env.emulator.faults.late("chat.postMessage", arrive)
        await env.outbox.upsert(desired("alert:~1:C0SOC", "done"))
        await env.shows("done")
        arrive.set()
        await env.shows("done", "done")
        env.emulator.faults.ratelimit("conversations.history", times=20)
        faults = env.emulator.faults

        def next_check() -> bool:
            """Move the clock until the checks have failed: each check schedules the next one a minute later."""
            env.clock.ahead_ms += 61_000
            env.outbox.sender.wake()
            return not faults.waiting("conversations.history")

        await until(next_check)
        deleted = asyncio.create_task(env.shows("done"))
        await until(lambda: next_check() and deleted.done())
        await deleted


async def test_a_duplicate_is_deleted_though_the_lease_ended_while_it_was_looked_for(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        arrive, answer = asyncio.Event(), asyncio.Event()
        env.emulator.faults.late("chat.postMessage", arrive)
        await env.outbox.upsert(desired("alert:~1:C0SOC", "done"))
        await env.shows("done")
        arrive.set()
        await env.shows("done", "done")
        env.emulator.faults.hold("conversations.history", answer)
        env.clock.ahead_ms = 61_000
        await env.outbox.replicas.acquire()
        env.outbox.sender.wake()
        await until(lambda: not env.emulator.faults.waiting("conversations.history"))
        env.clock.ahead_ms += LEASE_MS
        with capture_logs() as logs:
            answer.set()
            await until(lambda: any(line["event"] == "duplicate_check_failed" for line in logs))
        await env.shows("done", "done")
        for _ in range(21):  # a minute with a lease, as a bot that runs has one
            await env.outbox.replicas.acquire()
            env.clock.ahead_ms += LEASE_MS // 2
        env.outbox.sender.wake()
        await env.shows("done")


async def test_a_post_is_not_repeated_before_it_could_be_looked_for(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        env.emulator.faults.lose_answer("chat.postMessage")
        env.emulator.faults.ratelimit("conversations.history")
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await until(lambda: env.emulator.faults.waiting("conversations.history") == 0)
        await all_sent(env)
        await env.shows("card")
        assert [m["text"] for m in await env.anna.messages(SOC)] == ["card"]


async def test_a_message_whose_blocks_slack_refuses_is_sent_as_text(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        wrong = Message("High alert ~1", ({"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3001}},))
        await env.outbox.upsert(DesiredMessage("alert:~1:C0SOC", SOC, wrong, root_id="~1"))
        await env.shows("High alert ~1")


async def test_a_channel_without_the_bot_is_a_problem_until_it_is_invited(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        env.emulator.add_channel("C0LATER", name="later", is_private=True, bot=False)
        await env.outbox.upsert(DesiredMessage("alert:~1:C0LATER", "C0LATER", Message("card"), root_id="~1"))
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.shows("card")
        await until_read(env.outbox.problems, bool)
        (problem,) = await env.outbox.problems()
        assert (problem.channel, problem.waiting) == ("C0LATER", 1)
        assert "invite" in problem.message
        env.emulator.add_channel("C0LATER", name="later", is_private=True)
        await env.outbox.retry_now("C0LATER")
        await env.anna.until(lambda view: view.messages("C0LATER"))


async def test_a_deleted_card_is_posted_again_only_for_a_person(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.shows("card")
        env.emulator.faults.error("chat.update", "message_not_found")
        await env.outbox.upsert(desired("alert:~1:C0SOC", "news of a machine"))
        await until_read(lambda: env.outbox.cards("~1"), lambda cards: not cards)
        await env.outbox.upsert(desired("alert:~1:C0SOC", "more news"))
        await env.outbox.finish([RefreshRequest("~1")])
        requests = await env.outbox.refresh_requests(10)
        await env.outbox.commit_refresh([desired("alert:~1:C0SOC", "a person asked")], requests)
        await env.shows("card", "a person asked")
        assert await env.outbox.refresh_requests(10) == []


async def test_replies_follow_a_deleted_card_that_a_person_waits_for(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.shows("card")
        (card,) = await env.anna.messages(SOC)
        slack = AsyncWebClient(token=env.emulator.bot_token, base_url=env.emulator.api_url)
        await slack.chat_delete(channel=SOC, ts=card["ts"])
        await env.outbox.upsert(
            desired("alert:~1:C0SOC", "card, running", by_person=True),
            desired("approval:~2:C0SOC", "Who approves?", thread_of="alert:~1:C0SOC", by_person=True),
        )
        await env.shows("card, running", "Who approves?")


def test_the_payload_of_a_message_is_json() -> None:
    assert json.loads(desired("k", "text").payload()) == {"text": "text", "blocks": []}
