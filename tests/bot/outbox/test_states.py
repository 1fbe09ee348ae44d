"""Whatever happens, messages change their state as bot/docs/delivery.md#states-of-a-message draws it, and Slack shows
in the end what is desired."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.clearance import RedactedView, Subject
from bot.message import Message
from bot.outbox.models import DesiredMessage, RefreshRequest, Status
from bot.outbox.outbox import MessageOutbox
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.outbox.sending.sender import ClearanceGuard
from bot.outbox.store import open_stores
from bot.slack_emulator import SlackEmulator
from core.common.database import Dialect
from core.common.errors import ResponderBotError
from tests import stores, templates
from tests.bot.outbox.harness import ManualClock, cancelled, look_on
from tests.bot.people import Person
from tests.bot.running import UNLIMITED

T = TypeVar("T")

SOC, OPEN, ANNA = "C0SOC", "C0OPEN", "U0ANNA"
MESSAGES = {  # key: the message that it replies to
    "alert:~1:C0SOC": "",
    "alert:~1:C0OPEN": "",
    "alert:~2:C0SOC": "",
    "end:~11:C0SOC": "alert:~1:C0SOC",
    "end:~12:C0SOC": "alert:~1:C0SOC",
    "end:~21:C0SOC": "alert:~2:C0SOC",
    "told:~11:T0LOCAL:U0ANNA": "",
}
ROOTS = {"~1": "~1", "~2": "~2", "~11": "~1", "~12": "~1", "~21": "~2"}
TRANSITIONS = {
    (None, "unsent"),
    ("unsent", "posting"),
    ("posting", "unsent"),
    ("posting", "shown"),
    ("posting", "outdated"),
    ("shown", "outdated"),
    ("outdated", "shown"),
    ("outdated", "deleted"),
    ("deleted", "unsent"),
    ("unsent", "deleted"),  # a reply, with its root
    ("posting", "deleted"),  # a reply whose thread is gone
    ("shown", "deleted"),  # a reply, when its file finds no thread
}
RECORD_TRANSITIONS: Mapping[Dialect, Sequence[str]] = {
    "sqlite": (
        "CREATE TABLE seen (key TEXT, before TEXT, after TEXT)",
        "CREATE TRIGGER seen_insert AFTER INSERT ON message"
        " BEGIN INSERT INTO seen VALUES (NEW.key, NULL, NEW.status); END",
        "CREATE TRIGGER seen_update AFTER UPDATE OF status ON message WHEN OLD.status <> NEW.status"
        " BEGIN INSERT INTO seen VALUES (NEW.key, OLD.status, NEW.status); END",
    ),
    "postgresql": (
        "CREATE TABLE seen (key TEXT, before TEXT, after TEXT)",
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO seen VALUES (NEW.key, OLD.status, NEW.status); RETURN NEW; END'",
        "CREATE TRIGGER seen_insert AFTER INSERT ON message FOR EACH ROW EXECUTE FUNCTION see()",
        "CREATE TRIGGER seen_update AFTER UPDATE OF status ON message FOR EACH ROW WHEN (OLD.status <> NEW.status)"
        " EXECUTE FUNCTION see()",
    ),
}
keys = st.sampled_from(sorted(MESSAGES))
levels = st.integers(0, 2)


class Replica:
    """An outbox with its sender running."""

    def __init__(self, machine: "Delivery") -> None:
        slack = AsyncWebClient(token=machine.emulator.bot_token, base_url=machine.emulator.api_url, retry_handlers=[])
        guard = ClearanceGuard(lambda channel: machine.ceilings[channel])
        self.lease_clock = 0
        self.outbox = MessageOutbox(
            open_stores(machine.location),
            slack,
            machine.clock,
            rate_limiter=RateLimiter(**UNLIMITED),
            guard=guard,
            lease_clock=lambda: self.lease_clock,
        )
        self.sending = asyncio.create_task(self.outbox.sender.run())

    def advance(self, ms: int) -> None:
        self.lease_clock += ms

    async def stop(self) -> None:
        assert not self.sending.done()
        await cancelled(self.sending)
        await self.outbox.close()


class Delivery(RuleBasedStateMachine):
    """People, core's events, faults, kills and two replicas, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.clock = ManualClock()
        self.emulator = SlackEmulator(rates=False, clock=lambda: self.clock() / 1000)
        self.ceilings = {SOC: 2, OPEN: 2, ANNA: 2}
        self.desired: dict[str, DesiredMessage] = {}
        self.deleted: set[str] = set()
        self.release = asyncio.Event()
        self.count = self.calls_seen = self.faulty_posts = 0
        self.above_allowed = Counter[str]()
        self.above: dict[str, int] = {}
        self.others: list[Replica] = []

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def begin(self) -> None:
        self.do(self._begin())

    async def _begin(self) -> None:
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.location = templates.made(stores.location(Path(folder) / "core.db"), bots=True)
        self.emulator.add_user(ANNA, name="anna")
        for channel in (SOC, OPEN):
            self.emulator.add_channel(channel, name=channel[2:].lower())
        await self.stack.enter_async_context(self.emulator)
        person = Person(self.emulator.url, self.emulator.page_token, ANNA)
        self.anna = await self.stack.enter_async_context(person)
        self.slack = AsyncWebClient(token=self.emulator.bot_token, base_url=self.emulator.api_url, retry_handlers=[])
        self.direct = await self.anna.dm(self.emulator.bot_user_id)
        self.leader = Replica(self)
        for sql in RECORD_TRANSITIONS[stores.dialect()]:
            stores.rows(self.location, sql)
        assert await self.leader.outbox.replicas.acquire()

    # --- what core and people do ------------------------------------------------------------------------------------

    def render(self, key: str, level: int, **more: Any) -> DesiredMessage:
        """New content of a message, for the clearance that its channel has now."""
        self.count += 1
        root_id, channel = ROOTS[key.split(":")[1]], key.split(":")[-1]
        clearance = self.ceilings[channel]
        shown = min(level, clearance)
        view = RedactedView(Subject("alert", root_id, "", shown, shown), clearance)
        message = Message(f"{key} level={shown} content {self.count}")
        desired = DesiredMessage(key, channel, message, thread_of=MESSAGES[key], root_id=root_id, view=view, **more)
        self.desired[key] = desired
        return desired

    def rendered(self, named: list[str], level: int, **more: Any) -> list[DesiredMessage]:
        """Roots come before their replies, and with their first ones, as the Notifier renders them."""
        named = list({*named, *(MESSAGES[key] for key in named if MESSAGES[key] not in self.desired)} - {""})
        return [self.render(key, level, **more) for key in sorted(named, key=lambda key: (bool(MESSAGES[key]), key))]

    @rule(named=st.lists(keys, min_size=1, max_size=4, unique=True), level=levels, is_progress=st.booleans())
    def events_change_messages(self, named: list[str], level: int, is_progress: bool) -> None:
        outbox = self.leader.outbox
        desired = self.rendered(named, level, is_progress=is_progress)
        self.do(outbox.commit_page(desired, (self.do(outbox.cursor()) or 0) + 1))

    @rule(key=st.sampled_from([key for key in sorted(MESSAGES) if MESSAGES[key]]), level=levels, is_kept=st.booleans())
    def a_report_comes_as_a_file(self, key: str, level: int, is_kept: bool) -> None:
        file = (f"{key.split(':')[1]}.txt", "a\nlong\nreport") if is_kept else None
        root = [] if MESSAGES[key] in self.desired else [self.render(MESSAGES[key], level)]
        self.do(self.leader.outbox.upsert(*root, self.render(key, level, file=file, by_person=True)))

    @precondition(lambda self: self.desired)
    @rule(data=st.data())
    def nothing_changes(self, data: st.DataObject) -> None:
        desired = self.desired[data.draw(st.sampled_from(sorted(self.desired)))]
        before = self.do(self.leader.outbox.message(desired.key))
        self.do(self.leader.outbox.upsert(desired))
        after = self.do(self.leader.outbox.message(desired.key))
        assert before is not None
        assert after is not None
        assert before.version == after.version

    @rule(channel=st.sampled_from([SOC, OPEN, ANNA]), level=levels)
    def a_clearance_changes(self, channel: str, level: int) -> None:
        if level < self.ceilings[channel]:  # what was chosen already is on its way: one call of each sender, late posts
            late = self.faulty_posts - self.emulator.faults.waiting("chat.postMessage")
            self.above_allowed[channel] += 1 + len(self.others) + late
        self.ceilings[channel] = level

    @rule()
    def clearances_are_enforced(self) -> None:
        self.do(self._enforce())

    async def _enforce(self) -> None:
        outbox = self.leader.outbox
        for channel, ceiling in self.ceilings.items():
            found = [
                message
                for root_id in await outbox.stale_roots(channel, ceiling)
                for message in await outbox.messages_of(root_id)
                if message.channel == channel and message.clearance != ceiling
            ]
            await outbox.enforce_clearance([self.render(message.key, 0) for message in found], {})
            assert await outbox.stale_roots(channel, ceiling) == []

    @rule(root_id=st.sampled_from(["~1", "~2"]), is_for_event=st.booleans())
    def a_person_asks(self, root_id: str, is_for_event: bool) -> None:
        outbox = self.leader.outbox
        after = (self.do(outbox.cursor()) or 0) + 1 if is_for_event else None
        self.do(outbox.finish([RefreshRequest(root_id, after=after)]))

    @rule()
    def requests_are_served(self) -> None:
        self.do(self._serve())

    async def _serve(self) -> None:
        outbox = self.leader.outbox
        requests = await outbox.refresh_requests(10)
        roots = {request.root_id for request in requests}
        cards = [key for key in self.desired if not MESSAGES[key] and ROOTS[key.split(":")[1]] in roots]
        await outbox.commit_refresh(self.rendered([key for key in cards if key.startswith("alert")], 1), requests)
        assert await outbox.refresh_requests(10) == []

    @precondition(lambda self: self.desired)
    @rule(data=st.data())
    def somebody_deletes_a_message(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.desired)))
        message = self.do(self.leader.outbox.message(key))
        if message and message.ts and message.status in ("shown", "outdated"):
            self.do(self._delete(key, message.slack_channel, message.ts))

    async def _delete(self, key: str, channel: str, ts: str) -> None:
        try:
            await self.slack.api_call("chat.delete", json={"channel": channel, "ts": ts})
        except SlackApiError:
            return  # deleted before
        self.deleted |= {key, *(reply for reply, root in MESSAGES.items() if root == key)}

    # --- what fails -------------------------------------------------------------------------------------------------

    @rule(
        method=st.sampled_from(["chat.postMessage", "chat.update", "files.completeUploadExternal", "files.delete"]),
        kind=st.sampled_from(["lose_answer", "lose_request", "fail", "ratelimit"]),
    )
    def slack_fails(self, method: str, kind: str) -> None:
        getattr(self.emulator.faults, kind)(method)
        self.faulty_posts += method == "chat.postMessage"

    @rule(method=st.sampled_from(["chat.postMessage", "chat.update"]))
    def slack_is_slow(self, method: str) -> None:
        self.emulator.faults.hold(method, self.release)
        self.faulty_posts += method == "chat.postMessage"

    @rule()
    def a_post_arrives_late(self) -> None:
        self.emulator.faults.late("chat.postMessage", self.release)
        self.faulty_posts += 1

    @rule()
    def slack_is_quick_again(self) -> None:
        self.do(self._release())

    async def _release(self) -> None:
        self.release.set()
        self.release = asyncio.Event()
        self.faulty_posts = self.emulator.faults.waiting("chat.postMessage")
        await asyncio.sleep(0.005)

    @rule(ms=st.sampled_from([100, 2_100, 3_100]), breaths=st.integers(1, 4))
    def time_passes(self, ms: int, breaths: int) -> None:
        self.do(self._pass(ms, breaths))

    async def _pass(self, ms: int, breaths: int) -> None:
        self.clock.ahead_ms += ms
        for replica in (self.leader, *self.others):
            replica.outbox.sender.wake()
        for _ in range(breaths):
            await asyncio.sleep(0.003)

    @rule(ms=st.integers(0, 8))
    def the_bot_is_killed(self, ms: int) -> None:
        self.do(self._kill(ms))

    async def _kill(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)
        await self.leader.outbox.replicas.release()  # as another process sees that the holder is dead
        await self.leader.stop()
        await self._release()  # what was under way arrives before the next process asks
        self.leader = Replica(self)
        assert await self.leader.outbox.replicas.acquire()

    @precondition(lambda self: not self.others)
    @rule(level=levels, ms=st.integers(0, 8))
    def another_replica_takes_the_lease(self, level: int, ms: int) -> None:
        self.do(self._take_over(level, ms))

    async def _take_over(self, level: int, ms: int) -> None:
        """The former leader was stopped for a while, and goes on as if it still led."""
        former, self.leader = self.leader, Replica(self)
        self.others.append(former)
        await look_on(self.leader.outbox, self.leader.advance)
        assert await self.leader.outbox.replicas.acquire()
        before = dict(self.desired)
        with pytest.raises(ResponderBotError, match="Another replica"):
            await former.outbox.commit_page(self.rendered(sorted(MESSAGES), level), 1_000_000)
        self.desired = before
        await asyncio.sleep(ms / 1000)

    @precondition(lambda self: self.others)
    @rule()
    def the_former_leader_ends(self) -> None:
        self.do(self._end_former())

    async def _end_former(self) -> None:
        await self._release()
        await self._pass(0, 3)
        await self.others.pop().stop()

    # --- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def states_change_as_drawn(self) -> None:
        if not hasattr(self, "leader"):
            return
        taken = set(stores.rows(self.location, "SELECT DISTINCT before, after FROM seen"))
        statuses = {status for (status,) in stores.rows(self.location, "SELECT DISTINCT status FROM message")}
        assert not (taken - TRANSITIONS), taken - TRANSITIONS
        assert statuses <= set(get_args(Status))

    @invariant()
    def nothing_above_the_clearance_is_sent(self) -> None:
        calls = [one for one in self.emulator.traffic if one[1] in ("chat.postMessage", "chat.update")]
        for _, _, body, _ in calls[self.calls_seen :]:
            text = str(body.get("text", ""))
            if "level=" in text:
                channel, level = text.split(" ")[0].split(":")[-1], int(text.split("level=")[1][0])
                if level > self.ceilings[channel]:
                    self.above_allowed[channel] -= 1
                    assert self.above_allowed[channel] >= 0, text
        self.calls_seen = len(calls)

    def teardown(self) -> None:
        try:
            if hasattr(self, "leader"):
                self.do(self._end())
        finally:
            self.runner.run(self._close())
            self.runner.close()

    async def _close(self) -> None:
        self.release.set()
        for replica in (*self.others, *([self.leader] if hasattr(self, "leader") else [])):
            await cancelled(replica.sending)
            await replica.outbox.close()
        await self.stack.aclose()

    async def _end(self) -> None:
        """All faults are over: Slack shows just what is desired."""
        while self.others:
            await self._end_former()
        await self._enforce()
        await self._settle()
        outbox = self.leader.outbox
        cursor = (await outbox.cursor() or 0) + 1
        await outbox.commit_page(self.rendered(sorted(self.desired), 2), cursor)  # finds what was deleted
        await self._settle()
        await outbox.finish([RefreshRequest(root_id) for root_id in ("~1", "~2")])
        await self._serve()
        await self._settle()
        self.states_change_as_drawn()
        shown, files = await self._in_slack()
        expected: Counter[str] = Counter()
        for key, desired in self.desired.items():
            message = await outbox.message(key)
            assert message is not None
            if message.status == "deleted":
                assert key in self.deleted
                assert not key.startswith("alert")
                continue
            assert message.status == "shown", (key, message.status)
            expected[desired.message.text] += 1
            wanted = [desired.file[0]] if desired.file else []
            assert [name for name in files if name == f"{key.split(':')[1]}.txt"] == wanted or key in self.deleted
        # A reply whose answer was lost may stand in the thread of a card that was deleted and is posted again.
        for text in [text for text in shown if MESSAGES[text.split(" ")[0]] and text.split(" ")[0] in self.deleted]:
            expected.pop(text, None)
            del shown[text]
        assert shown == expected, (shown - expected, expected - shown)

    async def _settle(self) -> None:
        outbox = self.leader.outbox
        await self._release()
        for method in ("chat.postMessage", "chat.update", "files.completeUploadExternal", "files.delete"):
            while self.emulator.faults.take(method):
                pass
        for _ in range(400):
            await self._pass(2_100, 1)
            suspected = stores.rows(self.location, "SELECT key FROM message WHERE duplicate_check_at > 0")
            if await outbox.waiting() == 0 and not suspected:
                return
        left = stores.rows(
            self.location,
            "SELECT m.key, m.status, f.status, m.ts, m.problem, m.duplicate_check_at, m.clearance"
            " FROM message m LEFT JOIN file f ON f.message_key = m.key",
        )
        raise AssertionError(f"These wait: {left}, {self.ceilings}")

    async def _in_slack(self) -> tuple[Counter[str], list[str]]:
        """The texts of all messages, and the names of all files."""
        messages: dict[str, dict[str, Any]] = {}
        for channel in (SOC, OPEN, self.direct):
            for root in await self.anna.messages(channel):
                for message in await self.anna.thread(channel, root["ts"]):
                    messages[message["ts"]] = message
        files = [f["name"] for m in messages.values() for f in m.get("files") or [] if f.get("mode") != "tombstone"]
        return Counter(m["text"] for m in messages.values() if "level=" in m["text"]), files


def test_slack_shows_in_the_end_what_is_desired() -> None:
    run_state_machine_as_test(Delivery, settings=settings(stateful_step_count=15))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_slack_shows_in_the_end_what_is_desired_after_many_steps() -> None:
    long = settings(stateful_step_count=30, max_examples=60)
    run_state_machine_as_test(Delivery, settings=long)
