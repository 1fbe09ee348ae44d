"""Delivery against the local emulator: what is desired stands in Slack once, whatever goes wrong on the way."""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils
from slack_sdk.web.async_client import AsyncWebClient

from bot.cards.message import Intent, Message
from bot.outbox import ClearanceGuard, DesiredMessage, MessageOutbox, RateLimiter, messages
from bot.outbox.store import migrations, open_store
from bot.redaction import RedactedView, Subject
from bot.slack_emulator import EmulatedUser, EmulatorView, SlackEmulator
from core.common.clock import now_ms
from core.common.errors import ResponderBotError
from tests.bot.running import UNLIMITED

SOC = "C0SOC"


@dataclass
class Desk:
    """A delivery that sends, and somebody who looks at the channel."""

    delivery: MessageOutbox
    emulator: SlackEmulator
    anna: EmulatedUser
    clock: "Clock"

    async def shows(self, *texts: str) -> None:
        """Wait until the channel holds just these, in any order."""
        await self.anna.until(lambda view: sorted(texts) == sorted(texts_in(view)) or None)


class Clock:
    """Real time, moved by hand."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self._stopped_ms = 0

    def stop(self) -> None:
        """From now on no time passes but what a test adds."""
        self._stopped_ms = now_ms()

    def __call__(self) -> int:
        return (self._stopped_ms or now_ms()) + self.ahead_ms


def texts_in(view: EmulatorView) -> list[str]:
    return [m["text"] for root in view.messages(SOC) for m in (view.thread(SOC, root["ts"]) or [root])]


def desired(key: str, text: str, **more: Any) -> DesiredMessage:
    return DesiredMessage(key, SOC, Message(text), subject="~1", **more)


@asynccontextmanager
async def desk(
    folder: Path, *, send: bool = True, rate_limiter: RateLimiter | None = None, guard: ClearanceGuard | None = None
) -> AsyncIterator[Desk]:
    async with AsyncExitStack() as stack:
        emulator = await stack.enter_async_context(emulator_with_channel())
        anna = await stack.enter_async_context(EmulatedUser(emulator.url, emulator.page_token, "U0ANNA"))
        clock = Clock()
        slack = AsyncWebClient(token=emulator.bot_token, base_url=emulator.api_url, retry_handlers=[])
        delivery = MessageOutbox(
            folder / "slack.db", slack, clock, rate_limiter=rate_limiter or RateLimiter(**UNLIMITED), guard=guard
        )
        stack.push_async_callback(delivery.close)
        if send:
            sending = asyncio.create_task(delivery.sender.run())
            stack.push_async_callback(ended, sending)
        yield Desk(delivery, emulator, anna, clock)


def emulator_with_channel() -> SlackEmulator:
    emulator = SlackEmulator(rates=False)
    emulator.add_user("U0ANNA", name="anna")
    emulator.add_channel(SOC, name="soc")
    return emulator


async def ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_ten_states_that_pile_up_become_one(tmp_path: Path) -> None:
    async with desk(tmp_path, send=False) as it:
        for number in range(10):
            await it.delivery.upsert(desired("alert:~1:C0SOC", f"state {number}"))
        sending = asyncio.create_task(it.delivery.sender.run())
        await it.shows("state 9")
        await ended(sending)
        assert [what for _, what, _, _ in it.emulator.traffic if what.startswith("chat.")] == ["chat.postMessage"]


async def test_a_reply_waits_for_the_message_that_it_answers(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        await it.delivery.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC"))
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.shows("card", "done")


@pytest.mark.parametrize("trouble", ["lose_answer", "lose_request", "fail", "ratelimit"])
async def test_a_post_that_meets_trouble_stands_once(tmp_path: Path, trouble: str) -> None:
    async with desk(tmp_path) as it:
        getattr(it.emulator.faults, trouble)("chat.postMessage")
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.delivery.upsert(DesiredMessage("alert:~2:C0SOC", SOC, Message("another"), subject="~2"))
        await it.shows("card", "another")


async def test_a_card_that_slack_held_back_says_so(tmp_path: Path) -> None:
    block = {"type": "section", "text": {"type": "plain_text", "text": "card"}}
    async with desk(tmp_path) as it:
        it.emulator.faults.ratelimit("chat.postMessage", retry_after_s=30)
        await it.delivery.upsert(DesiredMessage("alert:~1:C0SOC", SOC, Message("card", (block,)), subject="~1"))
        await until(it.delivery.problems)
        it.clock.ahead_ms = 31_000
        it.delivery.sender.wake()
        await it.shows("card")
        (message,) = await it.anna.messages(SOC)
        assert "Slack held this back for 31 s." in str(message["blocks"])


async def test_what_a_person_wants_does_not_wait_for_a_machine_that_wanted_the_same(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.shows("card")
        await it.delivery.upsert(desired("alert:~1:C0SOC", "running"))
        await it.shows("running")
        it.clock.stop()
        await it.delivery.upsert(desired("alert:~1:C0SOC", "done"))  # bundled: due in 3 s
        await it.delivery.upsert(desired("alert:~1:C0SOC", "done", by_person=True))
        await it.shows("done")


async def test_a_reply_whose_answer_was_lost_stands_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.shows("card")
        it.emulator.faults.lose_answer("chat.postMessage", 2)
        await it.delivery.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC"))
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card, ended", by_person=True))
        await it.shows("card, ended", "done")


@pytest.mark.parametrize("where", ["the channel", "a thread"])
async def test_of_a_post_that_arrives_after_it_was_repeated_one_stands(tmp_path: Path, where: str) -> None:
    async with desk(tmp_path) as it:
        root = "alert:~1:C0SOC" if where == "a thread" else ""
        if root:
            await it.delivery.upsert(desired(root, "card"))
            await it.shows("card")
        others = ["card"] if root else []
        arrive = asyncio.Event()
        it.emulator.faults.late("chat.postMessage", arrive)
        await it.delivery.upsert(desired("end:~2:C0SOC", "done", thread_of=root))
        await it.shows("done", *others)  # repeated, since the first was nowhere
        arrive.set()
        await it.shows("done", "done", *others)
        it.clock.ahead_ms = 61_000
        it.delivery.sender.wake()
        await it.shows("done", *others)
        await it.delivery.upsert(desired("end:~2:C0SOC", "it is ours", thread_of=root, by_person=True))
        await it.shows("it is ours", *others)


async def test_a_double_is_found_also_after_slack_has_said_nothing_for_long(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        arrive = asyncio.Event()
        it.emulator.faults.late("chat.postMessage", arrive)
        await it.delivery.upsert(desired("alert:~1:C0SOC", "done"))
        await it.shows("done")
        arrive.set()
        await it.shows("done", "done")
        it.emulator.faults.ratelimit("conversations.history", times=20)
        faults = it.emulator.faults

        async def looked(left: int) -> None:
            it.clock.ahead_ms += 61_000
            it.delivery.sender.wake()
            await until(lambda: faults.waiting("conversations.history") == left)

        for left in reversed(range(20)):
            await looked(left)
        it.clock.ahead_ms += 61_000
        it.delivery.sender.wake()
        await it.shows("done")


async def test_a_post_is_not_repeated_because_it_could_not_be_looked_for(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        it.emulator.faults.lose_answer("chat.postMessage")
        it.emulator.faults.ratelimit("conversations.history")
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await until(lambda: it.emulator.faults.waiting("conversations.history") == 0)
        await rest(it)
        await it.shows("card")
        assert [m["text"] for m in await it.anna.messages(SOC)] == ["card"]


async def test_what_slack_does_not_take_is_said_plainly(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        wrong = Message("High alert ~1", ({"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3001}},))
        await it.delivery.upsert(DesiredMessage("alert:~1:C0SOC", SOC, wrong, subject="~1"))
        await it.shows("High alert ~1")


async def test_a_channel_without_the_bot_is_a_problem_until_it_is_invited(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        it.emulator.add_channel("C0LATER", name="later", is_private=True, bot=False)
        await it.delivery.upsert(DesiredMessage("alert:~1:C0LATER", "C0LATER", Message("card"), subject="~1"))
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.shows("card")
        await until(it.delivery.problems)
        (problem,) = it.delivery.problems()
        assert (problem.channel, problem.waiting) == ("C0LATER", 1)
        assert "invite" in problem.message
        it.emulator.add_channel("C0LATER", name="later", is_private=True)
        await it.delivery.retry_now("C0LATER")
        await it.anna.until(lambda view: view.messages("C0LATER"))


async def test_a_deleted_card_comes_back_only_when_a_person_asks(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.shows("card")
        it.emulator.faults.error("chat.update", "message_not_found")
        await it.delivery.upsert(desired("alert:~1:C0SOC", "news of a machine"))
        await until(lambda: it.delivery.cards("~1") == [])
        await it.delivery.upsert(desired("alert:~1:C0SOC", "a person asked", by_person=True))
        await it.shows("card", "a person asked")


async def test_a_file_is_put_under_its_message_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        it.emulator.faults.lose_answer("files.completeUploadExternal")
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.delivery.upsert(
            desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=("report.txt", "a\nlong\nreport"))
        )
        await until(lambda: it.delivery.waiting() == 0)
        files = [
            file
            for root in await it.anna.messages(SOC)
            for message in await it.anna.thread(SOC, root["ts"])
            for file in message.get("files") or []
        ]
        assert [file["name"] for file in files] == ["report.txt"]


REPORT = ("report.txt", "a\nlong\nreport")


@pytest.mark.parametrize(
    ("method", "code", "said"),
    [
        ("files.getUploadURLExternal", "missing_scope", "Slack refuses files in C0SOC (missing_scope)"),
        ("files.getUploadURLExternal", "unknown_method", "Slack refuses files in C0SOC (unknown_method)"),
        ("files.completeUploadExternal", "invalid_arguments", "Slack refuses files in C0SOC (invalid_arguments)"),
    ],
)
async def test_a_refused_file_is_told_as_such_and_leaves_its_message_as_it_is(
    tmp_path: Path, method: str, code: str, said: str
) -> None:
    async with desk(tmp_path) as it:
        it.emulator.faults.error(method, code, times=100)
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.delivery.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=REPORT))
        await until(it.delivery.problems)
        (problem,) = it.delivery.problems()
        assert problem.message.startswith(said)
        assert "files:write" in problem.message
        await it.delivery.upsert(desired("end:~2:C0SOC", "done now", thread_of="alert:~1:C0SOC", file=REPORT))
        await it.shows("card", "done now")


async def test_a_file_is_put_once_into_a_long_thread_too(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.shows("card")
        (root,) = await it.anna.messages(SOC)
        for number in range(205):
            await it.anna.say(SOC, f"talk {number}", root["ts"])
        it.emulator.faults.lose_answer("files.completeUploadExternal")
        await it.delivery.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=REPORT))
        await rest(it)
        assert len(await files_in(it.anna)) == 1


async def files_in(anna: EmulatedUser) -> list[dict[str, Any]]:
    roots = await anna.messages(SOC)
    threads = [await anna.thread(SOC, root["ts"]) for root in roots]
    return [file for thread in threads for message in thread for file in message.get("files") or []]


async def rest(it: Desk) -> None:
    await until(lambda: it.delivery.waiting() == 0)


async def test_a_file_goes_and_comes_as_it_is_desired(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        for wanted in (REPORT, None, None, REPORT, REPORT):
            await it.delivery.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=wanted))
            await rest(it)
            standing = [f["name"] for f in await files_in(it.anna) if f.get("mode") != "tombstone"]
            assert standing == ([REPORT[0]] if wanted else [])
        names = [what for _, what, _, _ in it.emulator.traffic if what.startswith("files.")]
        up = ["files.getUploadURLExternal", "files.completeUploadExternal"]
        assert names == [*up, "files.delete", *up]


@pytest.mark.parametrize("method", ["files.getUploadURLExternal", "files.completeUploadExternal"])
async def test_a_file_that_must_go_while_it_is_on_its_way_does_not_stay(tmp_path: Path, method: str) -> None:
    async with desk(tmp_path) as it:
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.delivery.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC"))
        await rest(it)
        go = asyncio.Event()
        it.emulator.faults.hold(method, go)
        await it.delivery.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=REPORT))
        await until(lambda: it.emulator.faults.waiting(method) == 0)
        await it.delivery.upsert(desired("end:~2:C0SOC", "withheld", thread_of="alert:~1:C0SOC"))
        go.set()
        await it.shows("card", "withheld", "")
        await rest(it)
        assert [f["mode"] for f in await files_in(it.anna)] == ["tombstone"]


async def test_a_file_that_shall_stand_again_while_it_is_taken_away_does(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.delivery.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=REPORT))
        await rest(it)
        it.emulator.faults.lose_answer("files.delete")
        await it.delivery.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC"))
        await until(lambda: it.emulator.faults.waiting("files.delete") == 0)
        await it.delivery.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=REPORT))
        await rest(it)
        assert [f.get("mode") for f in await files_in(it.anna)] == ["tombstone", "hosted"]


async def test_the_file_of_a_reply_that_somebody_deleted_goes_too(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.delivery.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=REPORT))
        await rest(it)
        it.emulator.faults.error("chat.update", "message_not_found")
        await it.delivery.upsert(desired("end:~2:C0SOC", "withheld", thread_of="alert:~1:C0SOC"))
        await rest(it)
        assert [f["mode"] for f in await files_in(it.anna)] == ["tombstone"]


async def test_what_was_made_for_a_higher_clearance_than_now_does_not_leave(tmp_path: Path) -> None:
    held = asyncio.Event()
    ceilings = {SOC: 0}
    async with desk(tmp_path, guard=ClearanceGuard(ceilings.__getitem__, held.set)) as it:
        secret = Subject("alert", "~1", "the secret", 2, root_id="~1")
        await it.delivery.upsert(desired("alert:~1:C0SOC", "the secret", view=RedactedView(secret, 2)))
        await asyncio.wait_for(held.wait(), 5)
        assert await it.anna.messages(SOC) == []
        await it.delivery.upsert(desired("alert:~1:C0SOC", "withheld", view=RedactedView(secret, 0)))
        await it.shows("withheld")


async def test_a_file_that_must_go_goes_also_before_its_message_was_looked_at(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card", file=REPORT))
        await rest(it)
        go = asyncio.Event()
        it.emulator.faults.hold("chat.update", go)
        await it.delivery.upsert(desired("alert:~1:C0SOC", "withheld"))
        await until(lambda: it.emulator.faults.waiting("chat.update") == 0)
        await it.delivery.invalidate_clearances()
        go.set()
        await rest(it)
        assert [f["mode"] for f in await files_in(it.anna)] == ["tombstone"]


async def test_what_may_have_changed_unheard_does_not_leave_before_it_was_looked_at(tmp_path: Path) -> None:
    held = asyncio.Event()
    async with desk(tmp_path, send=False, guard=ClearanceGuard(on_held=held.set)) as it:
        secret = Subject("alert", "~1", "the secret", 2, root_id="~1")
        await it.delivery.upsert(desired("alert:~1:C0SOC", "the secret", view=RedactedView(secret, 2)))
        await it.delivery.invalidate_clearances()
        sending = asyncio.create_task(it.delivery.sender.run())
        await until(held.is_set)
        assert await it.delivery.enforce_clearance([], {"alert:~1:C0SOC": 2}, since=it.delivery.last_write())
        await it.shows("the secret")
        await ended(sending)


async def test_who_read_core_before_another_wrote_undoes_nothing_and_is_told(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        before = RedactedView(Subject("alert", "~1", "the secret", 2, root_id="~1"), 2)
        after = RedactedView(Subject("alert", "~1", "the secret", 3, root_id="~1"), 2)
        await it.delivery.commit_page([desired("alert:~1:C0SOC", "the secret", view=before)], 10)
        since = it.delivery.last_write()
        await it.delivery.upsert(desired("alert:~1:C0SOC", "withheld", view=after, by_person=True), since=since)
        late = [desired("alert:~1:C0SOC", "the secret", view=before, by_person=True), desired("alert:~2:C0SOC", "b")]
        assert await it.delivery.upsert(*late, since=since) == {"~1"}
        assert await it.delivery.commit_page(late, 12, since=since) == {"~1"}
        assert not await it.delivery.enforce_clearance([], {"alert:~1:C0SOC": 0}, since=since)
        assert it.delivery.cursor() == 10
        assert it.delivery.stale_subjects(SOC, 2) == ["~1"]  # the other one, which was made for nobody
        await it.shows("withheld", "b")
        assert await it.delivery.commit_page(late, 12, since=it.delivery.last_write()) == set()
        assert it.delivery.cursor() == 12
        await it.shows("the secret", "b")


async def test_a_new_card_does_not_wait_for_many_that_are_made_anew(tmp_path: Path) -> None:
    rate_limiter = RateLimiter(post_burst=1000, posts_per_s=1000, updates_a_minute=30.0)
    async with desk(tmp_path, rate_limiter=rate_limiter) as it:
        old = [f"alert:~{n}:C0SOC" for n in range(20)]
        await it.delivery.upsert(*[desired(key, "old") for key in old])
        await it.shows(*["old"] * 20)
        await it.delivery.upsert(*[desired(key, "anew", in_bulk=True) for key in old])
        await it.anna.until(lambda view: "anew" in texts_in(view))
        await it.delivery.upsert(desired("alert:~99:C0SOC", "new"))
        await it.delivery.upsert(desired(old[-1], "news"))
        seen = await it.anna.until(lambda view: texts_in(view) if {"new", "news"} <= set(texts_in(view)) else [])
        assert "old" in seen


async def test_an_old_reply_that_is_made_anew_does_not_say_how_long_that_took(tmp_path: Path) -> None:
    block = {"type": "section", "text": {"type": "plain_text", "text": "withheld"}}
    async with desk(tmp_path) as it:
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await rest(it)
        it.emulator.faults.ratelimit("chat.update", retry_after_s=30)
        anew = Message("withheld", (block,))
        await it.delivery.upsert(DesiredMessage("alert:~1:C0SOC", SOC, anew, subject="~1", in_bulk=True))
        await until(it.delivery.problems)
        it.clock.ahead_ms = 31_000
        it.delivery.sender.wake()
        await it.shows("withheld")
        (message,) = await it.anna.messages(SOC)
        assert "held this back" not in str(message["blocks"])


async def test_news_of_machines_repaint_at_most_every_three_seconds(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.shows("card")
        await it.delivery.upsert(desired("alert:~1:C0SOC", "running"))
        await it.shows("running")
        it.clock.stop()
        await it.delivery.upsert(desired("alert:~1:C0SOC", "still running"))
        message = it.delivery.message("alert:~1:C0SOC")
        assert message is not None
        assert message.sent_version < message.version
        await it.delivery.upsert(desired("alert:~1:C0SOC", "a person clicked", by_person=True))
        await it.shows("a person clicked")


async def test_an_end_does_not_wait_because_progress_was_just_shown(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.shows("card")
        await it.delivery.upsert(replace(desired("alert:~1:C0SOC", "running"), is_progress=True))
        await it.shows("running")
        await until(lambda: it.delivery.waiting() == 0)
        it.clock.stop()
        await it.delivery.upsert(desired("alert:~1:C0SOC", "ended"))
        await it.shows("ended")
        await until(lambda: it.delivery.waiting() == 0)
        for late in (desired("alert:~1:C0SOC", "the next ended"), desired("alert:~1:C0SOC", "the last ended")):
            await it.delivery.upsert(late)
            message = it.delivery.message("alert:~1:C0SOC")
            assert message is not None
            assert message.sent_version < message.version


# --- buttons --------------------------------------------------------------------------------------------------------


async def test_a_button_counts_in_its_message_only(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        intent = Intent("cancel", "~7")
        token = (await it.delivery.buttons.issue(SOC, "alert:~1:C0SOC", [intent]))(intent)
        await it.delivery.upsert(desired("alert:~1:C0SOC", "card"))
        await it.shows("card")
        await until(lambda: it.delivery.waiting() == 0)
        ts = (await it.anna.messages(SOC))[0]["ts"]
        press = it.delivery.buttons.resolve
        assert await press(token, channel=SOC, message_ts=ts, user="U0ANNA") == intent
        assert await press(token, channel=SOC, message_ts=ts, user="U0BEN") == intent
        for channel, at in ((SOC, "1.000001"), ("C0OTHER", ts)):
            with pytest.raises(ResponderBotError, match="does not belong here"):
                await press(token, channel=channel, message_ts=at, user="U0ANNA")
        with pytest.raises(ResponderBotError, match="does not belong here"):
            await press("forged", channel=SOC, message_ts=ts, user="U0ANNA")
        it.clock.ahead_ms = 8 * 86_400_000
        with pytest.raises(ResponderBotError, match="too old") as old:
            await press(token, channel=SOC, message_ts=ts, user="U0ANNA")
        assert old.value.details == {"subject": "~1"}


async def test_a_button_for_one_person_is_no_use_to_another(tmp_path: Path) -> None:
    async with desk(tmp_path, send=False) as it:
        intent = Intent("run", "~1")
        token = (await it.delivery.buttons.issue(SOC, "only:T0LOCAL:U0ANNA:confirm", [intent]))(intent)
        assert await it.delivery.buttons.resolve(token, channel=SOC, message_ts="", user="U0ANNA") == intent
        with pytest.raises(ResponderBotError):
            await it.delivery.buttons.resolve(token, channel=SOC, message_ts="", user="U0BEN")


async def test_an_unchanged_card_keeps_its_buttons(tmp_path: Path) -> None:
    async with desk(tmp_path, send=False) as it:
        intents = [Intent("menu", "~1", "alert"), Intent("refresh", "~1")]
        first = await it.delivery.buttons.issue(SOC, "alert:~1:C0SOC", intents)
        second = await it.delivery.buttons.issue(SOC, "alert:~1:C0SOC", intents)
        assert [first(i) for i in intents] == [second(i) for i in intents]
        assert len(first(intents[0])) >= 22  # 128 bits


def test_a_message_from_before_the_levels_is_still_known_and_to_be_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    before = sqlite_utils.Database(path)
    migrations.apply(before, stop_before="levels_and_doubts")
    columns = before.table("message").columns
    row = {column.name: "x" if column.type == "TEXT" else 1 for column in columns}
    before.table("message").insert({**row, "key": "alert:~1:C0SOC"})
    before.close()
    store = open_store(path)
    found = store.row("SELECT * FROM message")
    asyncio.run(store.close())
    assert found is not None
    assert (found["key"], found["ts"], found["clearance"]) == ("alert:~1:C0SOC", "x", messages.UNKNOWN)


# --- inbox, lease, watches ------------------------------------------------------------------------------------------


async def test_a_click_is_taken_once_and_left_behind_only_while_undone(tmp_path: Path) -> None:
    async with desk(tmp_path, send=False) as it:
        assert await it.delivery.inbox.accept("k1", {"n": 1}) is True
        assert await it.delivery.inbox.accept("k1", {"n": 1}) is False
        assert await it.delivery.inbox.take_over_abandoned() == []
        it.clock.ahead_ms = 61_000
        assert [left.payload for left in await it.delivery.inbox.take_over_abandoned()] == [{"n": 1}]
        await it.delivery.inbox.complete("k1")
        it.clock.ahead_ms = 200_000
        assert await it.delivery.inbox.take_over_abandoned() == []
        assert await it.delivery.inbox.accept("k1", {"n": 1}) is False


async def test_one_of_two_replicas_holds_the_lease(tmp_path: Path) -> None:
    async with desk(tmp_path, send=False) as it:
        other = MessageOutbox(tmp_path / "slack.db", AsyncWebClient(token="x"), it.clock)
        assert await it.delivery.leader.acquire()
        assert not await other.leader.acquire()
        it.clock.ahead_ms = 11_000
        assert await other.leader.acquire()
        assert not await it.delivery.leader.acquire()
        await other.leader.release()
        assert await it.delivery.leader.acquire()
        await other.close()


async def test_a_replica_is_told_of_what_another_wants(tmp_path: Path) -> None:
    async with desk(tmp_path) as it:
        other = MessageOutbox(tmp_path / "slack.db", AsyncWebClient(token="x"), it.clock)
        await other.upsert(desired("alert:~1:C0SOC", "card"))
        await it.shows("card")
        await other.close()


# --- killed at any point --------------------------------------------------------------------------------------------

SENDER = """
import asyncio, sys
from pathlib import Path
from slack_sdk.web.async_client import AsyncWebClient
from bot.cards.message import Message
from bot.outbox import DesiredMessage, MessageOutbox, RateLimiter
from core.common.clock import now_ms

async def main(database, url, token):
    slack = AsyncWebClient(token=token, base_url=url, retry_handlers=[])
    rate_limiter = RateLimiter(post_burst=1000, posts_per_s=1000, updates_a_minute=60000)
    outbox = MessageOutbox(Path(database), slack, now_ms, rate_limiter=rate_limiter)
    for n in range(1, 4):
        root = f"alert:~{n}:C0SOC"
        card = DesiredMessage(root, "C0SOC", Message(f"card {n} at its end"), subject=f"~{n}", by_person=True)
        await outbox.upsert(card)
        await outbox.upsert(DesiredMessage(f"end:{n}", "C0SOC", Message(f"reply {n}"), thread_of=root, subject=f"~{n}"))
    print("wanted", flush=True)
    await outbox.sender.run()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("point", ["before the post", "after the post", "in a reply", "in an update"])
async def test_killed_at_any_point_each_message_stands_once(tmp_path: Path, point: str) -> None:
    async with (
        emulator_with_channel() as emulator,
        EmulatedUser(emulator.url, emulator.page_token, "U0ANNA") as anna,
    ):
        never = asyncio.Event()
        method = "chat.postMessage"
        if point == "before the post":
            emulator.faults.hold(method, never)
        elif point == "after the post":
            emulator.faults.lose_answer(method)
        elif point == "in a reply":
            emulator.faults.slow(method, 0, 3)
            emulator.faults.hold(method, never)
        first = await started(tmp_path, emulator)
        if point == "before the post":
            await until(lambda: not emulator.faults.waiting(method))
        elif point == "in an update":
            await anna.until(lambda view: len(texts_in(view)) == 6)
        elif point == "in a reply":
            await until(lambda: not emulator.faults.waiting(method))
            assert begun(tmp_path, "end:%")
        else:
            await anna.until(lambda view: texts_in(view))
        first.send_signal(signal.SIGKILL)
        await first.wait()
        second = await started(tmp_path, emulator)
        try:
            wanted = sorted([f"card {n} at its end" for n in (1, 2, 3)] + [f"reply {n}" for n in (1, 2, 3)])
            await anna.until(lambda view: sorted(texts_in(view)) == wanted or None)
            never.set()
            await anna.until(lambda view: len(texts_in(view)) >= 6)
            assert sorted(await all_texts(anna)) == wanted
        finally:
            second.kill()
            await second.wait()


async def started(folder: Path, emulator: SlackEmulator) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SENDER,
        str(folder / "slack.db"),
        emulator.api_url,
        emulator.bot_token,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"wanted\n"
    return process


async def all_texts(anna: EmulatedUser) -> list[str]:
    roots = await anna.messages(SOC)
    return [m["text"] for root in roots for m in await anna.thread(SOC, root["ts"])]


def begun(folder: Path, keys: str) -> bool:
    """Whether an attempt to post one of these is on its way."""
    reads = sqlite3.connect(folder / "slack.db")
    found = reads.execute("SELECT 1 FROM message WHERE key LIKE ? AND tried_at > 0", [keys]).fetchone()
    reads.close()
    return found is not None


async def until(claim: Callable[[], object]) -> None:
    """Wait for something that has no event of its own, such as a request that has come to the emulator."""
    while not claim():  # noqa: ASYNC110  # see above
        await asyncio.sleep(0.02)


def test_the_payload_of_a_message_is_json() -> None:
    assert json.loads(desired("k", "text").payload()) == {"text": "text", "blocks": [], "attachments": []}
