"""When a TLP or a clearance changes, Slack's content follows: cards, threads, files, direct messages."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.app import Bot, running
from bot.clearance import MASK, SHARED, may_see
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.settings import BotSettings
from core.client import CoreClient
from core.common.clock import now_ms
from core.common.database import Dialect
from core.models import TLP_NAMES, Action, RunInput
from core.settings import EngineSection
from tests import stores
from tests.bot.core_proxy import CoreProxy
from tests.bot.features.environment import write_responders
from tests.bot.outbox.harness import ManualClock, all_sent, until, until_read
from tests.bot.people import Person, card_of
from tests.bot.running import ANNA, AT_ONCE, BEN, OPEN, RED, SOC, BotEnvironment, running_bot
from tests.responder_folders import write_responder

TITLE, OBSERVED, LOGGED = "Zebra beacons", "198.51.100.77", "Okapi was here"
REPORTED = ("Looked it up.", "The firewall said no.", "line 150 of the report")
SECRETS = (TITLE, OBSERVED, LOGGED, *REPORTED)
CASED = "Quagga case"
"""The title of the case, which responders get with its observables."""
ECHO = '''"""Repeats the titles that it got."""
import json, re, sys
from pathlib import Path
job = Path(sys.argv[1])
titles = re.findall('"title": *"([^"]*)"', (job / "input" / "input.json").read_text())
report = {"success": True, "full": {"message": "It got " + ", ".join(titles)}, "operations": []}
(job / "output" / "output.json").write_text(json.dumps(report))
'''
ROUTED = (SOC, OPEN, RED)


@dataclass
class PostedAlert:
    """An alert and its case, with every kind of message about them."""

    scene: BotEnvironment
    anna: Person
    ben: Person
    alert_id: str = ""
    case_id: str = ""
    task_id: str = ""
    direct: str = ""  # the channel of the bot's direct messages to ben

    async def begin(self) -> None:
        """Post a card, the ends of two runs (one with a file), an approval request, a task log, a direct message."""
        scene = self.scene
        observed = [{"dataType": "ip", "data": OBSERVED}]
        self.alert_id = await scene.post_alert(title=TITLE, artifacts=observed)
        await self.anna.sees(card_of(self.alert_id))
        self.direct = await self.ben.dm(scene.emulator.bot_user_id)
        for name in ("Report_1_0", "Fail_1_0"):
            await self.ran(name)
        await self.started("Isolate_1_0", address=OBSERVED)  # the card of an alert with a case shows no observables
        self.case_id = (await scene.client.create_case_from_alert(self.alert_id)).id
        await scene.client.mark_alert_unread(self.alert_id)  # the card of one that is closed has no observables
        assert (await scene.core.send("PATCH", f"/api/case/{self.case_id}", {"title": CASED})).status_code == 200
        self.task_id = (await scene.client.add_task(self.case_id, {"title": "Look"})).id
        await self.log()
        await settled(scene, scene.bot)

    async def log(self) -> None:
        await self.scene.client.add_log(self.task_id, {"message": LOGGED})

    async def started(self, name: str, by: CoreClient | None = None, **inputs: str) -> Action:
        body = RunInput(
            responder_id=name, object_type="alert", object_id=self.alert_id, parameters=inputs, only_if_idle=False
        )
        return await (by or self.scene.client).run(body)

    async def echoed(self, kind: str) -> None:
        """Have the observable, the alert or the case run through the responder that repeats it."""
        alert = (await self.scene.core.send("GET", f"/api/alert/{self.alert_id}")).json()
        observable = next(item["id"] for item in alert["artifacts"] if item["dataType"] == "ip")
        object_id = {"case_artifact": observable, "alert": self.alert_id, "case": self.case_id}[kind]
        body = RunInput.model_validate({"responderId": "Echo_1_0", "objectType": kind, "objectId": object_id})
        await self._ended(await self.scene.client.run(body))

    async def ran(self, name: str) -> None:
        async with CoreClient(self.scene.core.url, self.scene.service_key) as bot:
            await self._ended(await self.started(name, by=bot.as_user("ben")))

    async def rerun(self) -> None:
        """Run what succeeds once more, asked for by somebody who may see everything."""
        await self._ended(await self.started("Report_1_0"))

    async def _ended(self, action: Action) -> None:
        while action.end_date is None:
            action = await self.scene.client.action(action.id, wait_s=10)

    async def level(self, tlp: int) -> None:
        """Set the TLP of both."""
        for path in (f"/api/alert/{self.alert_id}", f"/api/case/{self.case_id}"):
            assert (await self.scene.core.send("PATCH", path, {"tlp": tlp})).status_code == 200

    async def seen(self, channel: str) -> set[str]:
        """The secrets in any message or file of a channel."""
        everything = await stored(self.ben, channel)
        return {secret for secret in SECRETS if secret in everything}


async def stored(who: Person, channel: str) -> str:
    """Everything that the emulator keeps of a channel: messages with their threads and metadata, and files."""
    shown = await messages(who, channel)
    files = [f["id"] for m in shown for f in m.get("files") or [] if f.get("mode") != "tombstone"]
    contents = [await content(who, file_id) for file_id in files]
    return json.dumps(shown, ensure_ascii=False).replace("[.]", ".") + "\n".join(contents)


async def messages(who: Person, channel: str) -> list[dict[str, Any]]:
    """The messages of a channel with their threads."""
    roots = [m for m in await who.messages(channel) if not m.get("ephemeral")]
    return [message for root in roots for message in await who.thread(channel, root["ts"])]


async def texts(who: Person, channel: str) -> set[str]:
    """What messages say; nothing of those that had only a file which is gone."""
    return {str(m["blocks"]) if m.get("blocks") else m["text"] for m in await messages(who, channel)} - {""}


async def content(who: Person, file_id: str) -> str:
    try:
        return (await who.file(file_id)).decode()
    except aiohttp.ClientResponseError as error:
        assert error.status == 404  # deleted just now
        return ""


async def settled(scene: BotEnvironment, bot: Bot) -> None:
    """Wait until the bot has followed all events, and Slack has all messages as desired."""
    last = (await scene.core.core.feed.page(None, 0)).last

    async def is_at_rest() -> bool:
        clearance = bot.channels.clearance
        stale = [one for one in ROUTED if await bot.outbox.stale_roots(one, clearance(one) or 0)]
        return await bot.outbox.cursor() == last and not stale and await bot.outbox.waiting() == 0

    await until_read(is_at_rest, bool)


async def shared(scene: BotEnvironment, is_shared: bool, channel: str = SOC) -> None:
    """Share the channel with another company, or stop it, and wait until the bot has noticed."""
    scene.emulator.share(channel, is_shared)
    own = next(c.clearance for c in scene.settings.channel if c.id == channel)
    await until(lambda: scene.bot.channels.clearance(channel) == (SHARED if is_shared else own))
    await settled(scene, scene.bot)


def with_clearance(settings: BotSettings, channel: str, clearance: int) -> BotSettings:
    """The settings with another clearance for one channel."""
    sections = [s.model_copy(update={"clearance": clearance}) if s.id == channel else s for s in settings.channel]
    return settings.model_copy(update={"channel": tuple(sections)})


@asynccontextmanager
async def posted_alert(folder: Path, **more: Any) -> AsyncIterator[PostedAlert]:
    os.mkfifo(folder / "go")
    policies = write_responders(folder)
    write_responder(folder / "responders", "Echo", ECHO, dataTypeList=["ip", "thehive:alert", "thehive:case"])
    engine = EngineSection(name="local", responders=(folder / "responders",))
    parts = {"engine": (engine,), "responder": policies, **more}
    async with running_bot(folder, **parts) as scene:
        made = PostedAlert(scene, await scene.person(ANNA), await scene.person(BEN))
        await made.begin()
        yield made


@asynccontextmanager
async def another_bot(scene: BotEnvironment, settings: BotSettings) -> AsyncIterator[Bot]:
    """Restart the bot with other settings."""
    await scene.bot.close()
    async with (
        CoreClient(scene.core.url, scene.service_key) as core,
        running(settings, core, clock_ms=now_ms, rate_limiter=RateLimiter(**AT_ONCE)) as bot,
    ):
        await bot.leading.wait()
        yield bot


def calls(scene: BotEnvironment, *names: str) -> int:
    return sum(what in names for _, what, _, _ in scene.emulator.traffic)


CHANGES = ("chat.update", "files.delete", "files.completeUploadExternal", "chat.postMessage")


async def test_a_shared_channel_shows_only_what_is_clear_until_it_is_unshared(tmp_path: Path) -> None:
    async with posted_alert(tmp_path) as it:
        assert await it.seen(SOC) == set(SECRETS)
        assert await it.seen(OPEN) == set()
        assert await texts(it.ben, OPEN) != {"Not shown in a shared channel."}
        before = {channel: len(await messages(it.ben, channel)) for channel in (SOC, OPEN)}
        for channel in (SOC, OPEN):
            await shared(it.scene, True, channel)
        await it.ran("Report_1_0")
        await it.log()
        await settled(it.scene, it.scene.bot)
        for channel in (SOC, OPEN):  # neither what was withheld there before, nor what happens meanwhile
            assert await texts(it.ben, channel) == {"Not shown in a shared channel."}
            assert len(await messages(it.ben, channel)) == before[channel]
        await it.level(0)
        await settled(it.scene, it.scene.bot)
        assert await it.seen(SOC) == {TITLE, LOGGED}  # the observable is amber still
        assert "withheld" not in (await stored(it.ben, SOC)).replace(MASK, "")
        await it.level(2)
        await shared(it.scene, False)
        assert await it.seen(SOC) == set(SECRETS)


async def test_a_rising_tlp_withholds_everything_and_a_falling_one_shows_it_again(
    tmp_path: Path,
) -> None:
    async with posted_alert(tmp_path) as it:
        await it.level(3)
        await settled(it.scene, it.scene.bot)
        assert await it.seen(SOC) == set()
        assert await it.seen(RED) == set(SECRETS)
        assert await it.seen(it.direct) == set()  # ben may see up to amber
        await it.level(0)
        await settled(it.scene, it.scene.bot)
        assert await it.seen(SOC) == set(SECRETS)
        assert {TITLE, REPORTED[1]} <= await it.seen(it.direct)


async def test_a_message_that_cannot_be_rendered_is_withheld_until_it_can(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with posted_alert(tmp_path, core_proxy=proxy.serve) as it:
        before = await it.seen(SOC)
        proxy.fail("GET /api/document")
        await it.scene.bot.outbox.invalidate_clearances()
        await it.scene.bot.channels.refresh()

        async def is_withheld() -> bool:
            return "just now" in str([one.payload for one in await it.scene.bot.outbox.messages_of(it.alert_id)])

        await until_read(is_withheld, bool)
        await all_sent(it.scene.bot)
        assert not await it.seen(SOC) & set(REPORTED)
        proxy.release()
        await it.scene.bot.channels.refresh()
        await settled(it.scene, it.scene.bot)
        assert await it.seen(SOC) == before


async def test_a_new_hidden_observable_is_masked_in_older_messages(tmp_path: Path) -> None:
    async with posted_alert(tmp_path) as it:
        hidden = [{"dataType": "other", "data": "Zebra", "tlp": 3}, {"dataType": "ip", "data": OBSERVED}]
        path = f"/api/alert/{it.alert_id}"
        assert (await it.scene.core.send("PATCH", path, {"artifacts": hidden})).status_code == 200
        await settled(it.scene, it.scene.bot)
        assert await it.seen(SOC) == {OBSERVED, LOGGED}
        assert "HIGH: Isolate" in await stored(it.ben, SOC)
        assert not [m for m in await it.ben.messages(it.direct) if "Zebra" in str(m)]


async def test_changed_settings_are_enforced_after_a_restart(tmp_path: Path) -> None:
    async with posted_alert(tmp_path) as it:
        async with another_bot(it.scene, with_clearance(it.scene.settings, SOC, 1)) as bot:
            await settled(it.scene, bot)
            assert await it.seen(SOC) == set()
        gone = it.scene.settings.model_copy(update={"channel": it.scene.settings.channel[1:]})
        async with another_bot(it.scene, gone) as bot:
            await settled(it.scene, bot)
            assert await it.seen(SOC) == set()
        async with another_bot(it.scene, it.scene.settings) as bot:
            await settled(it.scene, bot)
            assert await it.seen(SOC) == set(SECRETS)


async def test_what_changed_while_the_bot_was_away_is_enforced_and_nothing_is_sent_where_nothing_did(
    tmp_path: Path,
) -> None:
    async with posted_alert(tmp_path) as it:
        before = calls(it.scene, *CHANGES)
        async with another_bot(it.scene, with_clearance(it.scene.settings, SOC, 3)) as bot:  # both cover amber
            await bot.channels.refresh()
            await settled(it.scene, bot)
        assert calls(it.scene, *CHANGES) == before
        await it.level(3)
        await it.scene.core.prune_events(-1)  # a gap in the feed
        async with another_bot(it.scene, it.scene.settings) as bot:
            await settled(it.scene, bot)
            assert await it.seen(SOC) == set()
            assert await it.seen(RED) == set(SECRETS)
        await it.level(2)
        it.scene.emulator.share(SOC, True)
        async with another_bot(it.scene, it.scene.settings) as bot:
            await settled(it.scene, bot)
            assert await texts(it.ben, SOC) == {"Not shown in a shared channel."}


async def test_while_slack_cannot_be_asked_posted_messages_stay_and_new_ones_are_withheld(
    tmp_path: Path,
) -> None:
    async with posted_alert(tmp_path) as it:
        it.scene.emulator.faults.fail("conversations.info", times=3)
        async with another_bot(it.scene, it.scene.settings) as bot:
            other = await it.scene.post_alert(title="Lemur calls home", sourceRef="other")
            await it.anna.sees(card_of(other))
            await it.anna.sees(card_of(other, channel=OPEN))
            assert "Lemur" not in await stored(it.ben, SOC)
            assert await it.seen(SOC) == set(SECRETS)
            await bot.channels.refresh()
            await settled(it.scene, bot)
            assert "Lemur" in await stored(it.ben, SOC)
            assert await it.seen(SOC) == set(SECRETS)


async def test_while_slack_cannot_be_asked_only_what_is_not_sent_yet_is_withheld(tmp_path: Path) -> None:
    async with posted_alert(tmp_path) as it:
        posted = {message["ts"] for message in await messages(it.ben, SOC)}
        faults = it.scene.emulator.faults
        faults.ratelimit("chat.postMessage", retry_after_s=60, times=len(ROUTED))
        await it.log()
        await until(lambda: not faults.waiting("chat.postMessage"))
        await it.scene.bot.close()
        faults.fail("conversations.info", times=100)  # a slow machine asks again
        async with another_bot(it.scene, it.scene.settings) as bot:
            await until_read(bot.outbox.waiting, lambda waiting: not waiting)
        (late,) = [message for message in await messages(it.ben, SOC) if message["ts"] not in posted]
        assert LOGGED not in str(late)
        assert await it.seen(SOC) == set(SECRETS)


@pytest.mark.parametrize("dialect", stores.DIALECTS)
async def test_every_replica_notices_that_a_channel_was_shared(tmp_path: Path, dialect: Dialect) -> None:
    """Also one that has just started, and has yet to look what others have heard."""
    with stores.using(dialect):
        async with (
            running_bot(tmp_path) as scene,
            CoreClient(scene.core.url, scene.service_key) as core,
            running(scene.settings, core, clock_ms=now_ms) as second,
        ):
            await scene.emulator.wait_connected(2)
            scene.emulator.share(SOC)  # Slack tells one of them
            await until(lambda: [bot.channels.clearance(SOC) for bot in (scene.bot, second)] == [SHARED, SHARED])


async def test_direct_messages_to_an_unlinked_person_are_withheld(tmp_path: Path) -> None:
    clock = ManualClock()
    async with posted_alert(tmp_path, clock_ms=clock) as it:
        assert REPORTED[1] in await it.seen(it.direct)
        await it.scene.core.core.people.unlink("ben")
        clock.ahead_ms = 11_000  # identities are cached for 10 s
        await it.scene.bot.channels.refresh()
        await it.ben.until(lambda s: all(TITLE not in str(m) for m in s.messages(it.direct)))
        await settled(it.scene, it.scene.bot)
        assert await it.seen(it.direct) == set()


@pytest.mark.parametrize("is_raised_first", [True, False])
async def test_what_a_run_says_counts_as_high_as_the_case_that_it_got(tmp_path: Path, is_raised_first: bool) -> None:
    """An amber alert in a red case: runs on its observables show on its card, and got the case."""
    async with posted_alert(tmp_path) as it:
        path = f"/api/case/{it.case_id}"
        if is_raised_first:
            assert (await it.scene.core.send("PATCH", path, {"tlp": 3})).status_code == 200
        for kind in ("case_artifact", "case"):
            before = (await stored(it.ben, SOC)).count(CASED)
            await it.echoed(kind)
            await settled(it.scene, it.scene.bot)
            assert is_raised_first or (await stored(it.ben, SOC)).count(CASED) > before
        if not is_raised_first:
            assert (await it.scene.core.send("PATCH", path, {"tlp": 3})).status_code == 200
            await settled(it.scene, it.scene.bot)
        shown = {channel: await stored(it.ben, channel) for channel in (*ROUTED, it.direct)}
    assert [channel for channel, text in shown.items() if CASED in text] in ([RED], [])
    assert TITLE in shown[SOC]  # the alert is amber


async def test_an_observable_shows_nowhere_above_the_level_of_its_alert_though_its_case_is_lower(
    tmp_path: Path,
) -> None:
    """A run on the case's observable is told in the thread of the alert, from which the observable came."""
    async with posted_alert(tmp_path) as it:
        await it.echoed("case_artifact")
        await settled(it.scene, it.scene.bot)
        assert OBSERVED in await stored(it.ben, SOC)
        assert (await it.scene.core.send("PATCH", f"/api/alert/{it.alert_id}", {"tlp": 3})).status_code == 200
        await settled(it.scene, it.scene.bot)
        assert OBSERVED not in await stored(it.ben, SOC)
        assert OBSERVED in await stored(it.ben, RED)


# --- random changes --------------------------------------------------------------------------------------------------

levels = st.integers(0, 3)
steps = st.one_of(
    st.tuples(st.just("alert"), levels),
    st.tuples(st.just("case"), levels),
    st.tuples(st.just("observable"), levels),
    st.tuples(st.sampled_from(["share", "unshare"]), st.sampled_from([SOC, RED])),
    st.tuples(st.just("echo"), st.sampled_from(["case_artifact", "alert", "case"])),
    st.tuples(st.sampled_from(["run", "log", "settle"]), st.none()),
    st.tuples(
        st.sampled_from(["ratelimit", "lose_answer", "lose_request", "fail"]),
        st.sampled_from(["chat.update", "chat.postMessage", "files.delete", "files.completeUploadExternal"]),
    ),
)


@dataclass
class ChangingLevels:
    """Messages whose TLP and clearances change, with the current values."""

    posted: PostedAlert
    alert: int = 2
    case: int = 2
    observed: dict[str, int] = field(default_factory=dict)
    shared: dict[str, bool] = field(default_factory=lambda: {SOC: False, RED: False, OPEN: False})

    async def begin(self) -> None:
        """Back to the first values; runs and logs stay."""
        for change in (("alert", 2), ("case", 2), ("unshare", SOC), ("unshare", RED)):
            await self.take(*change)
        body = {"artifacts": [{"dataType": "ip", "data": OBSERVED}]}
        assert (
            await self.posted.scene.core.send("PATCH", f"/api/alert/{self.posted.alert_id}", body)
        ).status_code == 200
        self.observed = {OBSERVED: 2}

    async def take(self, what: str, given: Any) -> None:
        it, send = self.posted, self.posted.scene.core.send
        if what in ("alert", "case"):
            object_id = it.alert_id if what == "alert" else it.case_id
            assert (await send("PATCH", f"/api/{what}/{object_id}", {"tlp": given})).status_code == 200
            setattr(self, what, given)
        elif what == "observable":
            data = f"observable{len(self.observed)}end"
            body = {"dataType": "other", "data": data, "tlp": given}
            assert (await send("POST", f"/api/alert/{it.alert_id}/artifact", body)).status_code == 201
            self.observed[data] = given
        elif what in ("share", "unshare"):
            self.shared[given] = what == "share"
            it.scene.emulator.share(given, self.shared[given])
        elif what == "run":
            await it.rerun()
        elif what == "echo":
            await it.echoed(given)
        elif what == "log":
            await it.log()
        elif what == "settle":
            await self.settled()
        else:
            getattr(it.scene.emulator.faults, what)(given)

    async def settled(self) -> None:
        bot = self.posted.scene.bot
        for channel in ROUTED:
            await until(lambda channel=channel: bot.channels.clearance(channel) == self.clearance(channel))  # type: ignore[misc]  # mypy can't infer a lambda with a default
        await settled(self.posted.scene, bot)

    def clearance(self, channel: str) -> int:
        own = {SOC: 2, OPEN: 0, RED: 3}.get(channel, 2)  # direct messages to ben, who may see up to amber
        return SHARED if self.shared.get(channel) else own

    async def check(self) -> None:
        """No message or file has what is above the clearance, and everything else is there."""
        await self.settled()
        highest = max([self.alert, *self.observed.values()])
        rising = {TITLE: self.alert, LOGGED: self.case, **dict.fromkeys(REPORTED, highest)}
        for channel in (*ROUTED, self.posted.direct):
            clearance, everything = self.clearance(channel), await stored(self.posted.ben, channel)
            for words, level in rising.items():
                is_shown = may_see(clearance, level) and self._is_told(words, channel)
                assert (words in everything) is is_shown, (channel, words)
            assert CASED not in everything or may_see(clearance, self.case), channel
            for data, level in self.observed.items():
                assert data not in everything or may_see(clearance, max(level, self.alert)), (channel, data)

    def _is_told(self, words: str, channel: str) -> bool:
        """Whether it is posted there at all: a direct message only tells ben of his run that failed."""
        return channel != self.posted.direct or words in (TITLE, REPORTED[1])


@pytest.mark.slow
def test_after_random_changes_nothing_in_slack_is_above_its_clearance(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        made = ChangingLevels(runner.run(stack.enter_async_context(posted_alert(tmp_path))))

        @given(st.lists(steps, min_size=1, max_size=12))
        @settings(max_examples=12)
        def check(sequence: list[tuple[str, Any]]) -> None:
            runner.run(made.begin())
            for what, given_ in sequence:
                runner.run(made.take(what, given_))
            runner.run(made.check())

        try:
            check()
        finally:
            runner.run(stack.aclose())


# --- killed meanwhile -----------------------------------------------------------------------------------------------

BOT = """
import asyncio, sys
from pathlib import Path
from bot.app import running
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.settings import BotSettings
from core.client import CoreClient
from core.common.clock import now_ms
from core.common.database import Dialect

async def main(text):
    settings = BotSettings.model_validate_json(text)
    async with CoreClient(settings.bot.core_url, settings.bot.core_api_key) as core:
        async with running(settings, core, clock_ms=now_ms, rate_limiter=RateLimiter(update_every_s=0.2)) as bot:
            await bot.leading.wait()
            print("leads", flush=True)
            await asyncio.Event().wait()

asyncio.run(main(sys.stdin.read()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["chat.update", "files.delete"])
@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_bot_killed_while_it_withholds_goes_on_after_its_start(tmp_path: Path, method: str, point: str) -> None:
    async with posted_alert(tmp_path) as it:
        await it.scene.bot.close()
        lowered = with_clearance(it.scene.settings, SOC, 0)
        faults, never = it.scene.emulator.faults, asyncio.Event()
        if point == "before":
            faults.hold(method, never)
        else:
            faults.lose_answer(method)
        first = await bot_process(lowered)
        await until(lambda: faults.waiting(method) == 0)
        first.send_signal(signal.SIGKILL)
        await first.wait()
        assert point == "after" or await it.seen(SOC) != set()
        second = await bot_process(lowered)
        try:
            while await it.seen(SOC):
                pass
        finally:
            second.kill()
            await second.wait()


async def bot_process(settings: BotSettings) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        BOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    posted = settings.model_dump(mode="json", exclude={"core": {"database"}})
    posted["core"]["database"] = stores.setting(settings.core.database)
    posted["channel"] = [{**one, "clearance": TLP_NAMES[one["clearance"]]} for one in posted["channel"]]
    process.stdin.write(json.dumps(posted).encode())
    process.stdin.close()
    while (line := await process.stdout.readline()) != b"leads\n":
        assert line, "the bot has ended"  # else a line of its log
    return process
