"""Updates are merged and sent in the right order."""

import asyncio
from dataclasses import replace
from pathlib import Path

from bot.message import Message
from bot.outbox.models import DesiredMessage, RefreshRequest, bulk_key
from bot.outbox.sending.rate_limiter import RateLimiter
from tests.bot.outbox.harness import SOC, all_sent, cancelled, desired, outbox_environment, texts_in, until_read


async def test_ten_updates_that_pile_up_become_one_post(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        for number in range(10):
            await env.outbox.upsert(desired("alert:~1:C0SOC", f"state {number}"))
        sending = asyncio.create_task(env.outbox.sender.run())
        await env.shows("state 9")
        await cancelled(sending)
        assert [what for _, what, _, _ in env.emulator.traffic if what.startswith("chat.")] == ["chat.postMessage"]


async def test_what_a_person_waits_for_is_due_at_once_though_an_event_asked_for_the_same(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.shows("card")
        await env.outbox.upsert(desired("alert:~1:C0SOC", "running"))
        await env.shows("running")
        env.clock.stop()
        await env.outbox.upsert(desired("alert:~1:C0SOC", "done"))  # due in 3 s
        await env.outbox.commit_page([], 7)
        await env.outbox.finish([RefreshRequest("~1", after=7)])
        await env.shows("done")


async def test_what_a_person_waits_for_is_due_at_once_when_its_event_comes(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.shows("card")
        await env.outbox.upsert(desired("alert:~1:C0SOC", "running"))
        await env.shows("running")
        env.clock.stop()
        await env.outbox.finish([RefreshRequest("~1", after=8)])
        await env.outbox.commit_page([desired("alert:~1:C0SOC", "still running")], 7)
        message = await env.outbox.message("alert:~1:C0SOC")
        assert message is not None
        assert message.status == "outdated"
        await env.outbox.commit_page([desired("alert:~1:C0SOC", "done")], 8)
        await env.shows("done")
        assert await env.outbox.refresh_requests(10) == []


async def test_what_is_asked_for_while_it_is_rendered_is_rendered_again(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        env.clock.stop()
        await env.outbox.commit_page([], 7, reminders=[("~1", env.clock() + 60_000)])
        await env.outbox.finish([RefreshRequest("~1")])
        requests = await env.outbox.refresh_requests(10)
        await env.outbox.finish([RefreshRequest("~1")])
        await env.outbox.commit_refresh([], requests)
        await env.outbox.commit_page([], 8)
        (again,) = await env.outbox.refresh_requests(10)
        await env.outbox.commit_refresh([], [again])
        assert await env.outbox.refresh_requests(10) == []
        env.clock.advance(60_000)
        assert [request.reminds_at > 0 for request in await env.outbox.refresh_requests(10)] == [True]


async def test_a_reminder_that_becomes_due_while_a_card_is_rendered_is_not_lost(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        env.clock.stop()
        due = [env.clock() + 60_000, env.clock() + 120_000]
        await env.outbox.commit_page([], 7, reminders=[("~1", at) for at in due])
        await env.outbox.finish([RefreshRequest("~1")])
        for at in due:
            requests = await env.outbox.refresh_requests(10)
            env.clock.advance(60_000)
            await env.outbox.commit_refresh([], requests)
            assert [request.reminds_at for request in await env.outbox.refresh_requests(10)] == [at]


async def test_a_card_is_updated_before_the_reply_that_came_with_its_change_is_posted(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await all_sent(env)
        reply = desired("end:~5:C0SOC", "report", thread_of="alert:~1:C0SOC")
        await env.outbox.commit_page([reply, desired("alert:~1:C0SOC", "done")], 7)
        await env.shows("done", "report")
        calls = [what for _, what, _, _ in env.emulator.traffic if what.startswith("chat.")]
        assert calls == ["chat.postMessage", "chat.update", "chat.postMessage"]


async def test_a_new_card_does_not_wait_for_bulk_updates(tmp_path: Path) -> None:
    rate_limiter = RateLimiter(post_burst=1000, posts_per_s=1000, updates_a_minute=30.0)
    async with outbox_environment(tmp_path, rate_limiter=rate_limiter) as env:
        old = [f"alert:~{n}:C0SOC" for n in range(20)]
        await env.outbox.upsert(*[desired(key, "old") for key in old])
        await env.shows(*["old"] * 20)
        await env.outbox.upsert(*[desired(key, "again", in_bulk=True) for key in old])
        await env.anna.until(lambda view: "again" in texts_in(view))
        await env.outbox.upsert(desired("alert:~99:C0SOC", "new"))
        await env.outbox.upsert(desired(old[-1], "news"))
        seen = await env.anna.until(lambda view: texts_in(view) if {"new", "news"} <= set(texts_in(view)) else [])
        assert "old" in seen


async def test_a_bulk_update_does_not_say_that_it_is_late(tmp_path: Path) -> None:
    block = {"type": "section", "text": {"type": "plain_text", "text": "withheld"}}
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await all_sent(env)
        env.emulator.faults.ratelimit("chat.update", retry_after_s=30)
        again = Message("withheld", (block,))
        await env.outbox.upsert(DesiredMessage("alert:~1:C0SOC", SOC, again, root_id="~1", in_bulk=True))
        await until_read(env.outbox.problems, bool)
        env.clock.ahead_ms = 31_000
        env.outbox.sender.wake()
        await env.shows("withheld")
        (message,) = await env.anna.messages(SOC)
        assert "by Slack's rate limit" not in str(message["blocks"])


async def test_events_update_a_message_at_most_every_three_seconds(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.shows("card")
        env.clock.stop()
        await env.outbox.upsert(desired("alert:~1:C0SOC", "running"))
        await env.shows("running")
        await env.outbox.upsert(desired("alert:~1:C0SOC", "still running"))
        message = await env.outbox.message("alert:~1:C0SOC")
        assert message is not None
        assert message.status == "outdated"
        await env.outbox.upsert(desired("alert:~1:C0SOC", "a person clicked", by_person=True))
        await env.shows("a person clicked")


async def test_direct_messages_of_a_short_run_on_several_show_its_end_alone(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        here = desired(bulk_key("~9", SOC), "asks")
        both = [here, replace(here, key=bulk_key("~9", "T1:U0ANNA"), channel="U0ANNA")]
        await env.outbox.upsert(*both)
        await all_sent(env)
        env.clock.stop()
        for state in ("running", "still running"):
            await env.outbox.upsert(*(replace(one, message=Message(state), is_progress=True) for one in both))
            await env.outbox.commit_page([], 7)
            await env.outbox.finish([RefreshRequest("~1", after=7)])  # as a person waits for it
            await env.shows(state)
        await env.outbox.upsert(*(replace(one, message=Message("ended")) for one in both))
        await all_sent(env)
        shown = [body["text"] for _, what, body, _ in env.emulator.traffic if what == "chat.update"]
        assert shown == ["running", "still running", "ended", "ended"]
        await env.outbox.upsert(*(replace(one, message=Message("is undone"), is_progress=True) for one in both))
        await env.outbox.finish([RefreshRequest("~1", after=7)])
        await env.shows("is undone")
        env.clock.ahead_ms += 3_000
        await all_sent(env)


async def test_the_end_of_a_run_does_not_wait_because_progress_was_just_shown(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.shows("card")
        await env.outbox.upsert(replace(desired("alert:~1:C0SOC", "running"), is_progress=True))
        await env.shows("running")
        await all_sent(env)
        env.clock.stop()
        await env.outbox.upsert(desired("alert:~1:C0SOC", "ended"))
        await env.shows("ended")
        await all_sent(env)
        for late in (desired("alert:~1:C0SOC", "the next ended"), desired("alert:~1:C0SOC", "the last ended")):
            await env.outbox.upsert(late)
            message = await env.outbox.message("alert:~1:C0SOC")
            assert message is not None
            assert message.status == "outdated"
