"""What the bot keeps of alerts goes long after they were closed, and what Slack shows stays there."""

import asyncio
import sys
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.message import Intent
from bot.outbox.alert_groups import OWN_CARD, ChannelAlert, GroupChanges
from bot.outbox.models import DesiredMessage, RefreshRequest
from bot.outbox.retention import CONTENT_KEEP_MS, Retention
from core.common.clock import DAY_MS
from core.common.errors import ResponderBotError
from core.models import ClosedObjects
from tests import stores
from tests.bot.outbox.harness import REPORT, SOC, OutboxEnvironment, all_sent, desired, outbox_environment
from tests.core.core_process import until

DAYS = 400
TABLES = ("message", "file", "button_set", "channel_alert")


@dataclass
class Core:
    """What core says; `database` is the one that the messages belong to, unless a test says otherwise."""

    closed_at: dict[str, int] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    database: str = "d"
    asked: list[Collection[str]] = field(default_factory=list)

    async def closed(self, ids: Collection[str]) -> ClosedObjects:
        self.asked.append(ids)
        closed_at = {one: at for one, at in self.closed_at.items() if one in ids}
        return ClosedObjects(closed_at=closed_at, missing=sorted(self.missing & set(ids)), database=self.database)


def retention(env: OutboxEnvironment, core: Core, days: int = DAYS) -> Retention:
    return env.outbox.retention(days, core.closed)


def counts(env: OutboxEnvironment) -> dict[str, int]:
    return {table: int(stores.rows(env.location, f"SELECT count(*) FROM {table}")[0][0]) for table in TABLES}  # noqa: S608


async def alert(env: OutboxEnvironment, root_id: str, *, file: tuple[str, str] | None = None) -> None:
    """A card and a reply with buttons, and an alert."""
    card, end = f"alert:{root_id}:{SOC}", f"end:{root_id}1:{SOC}"
    reply = DesiredMessage(end, SOC, desired(end, f"end {root_id}").message, root_id=root_id, thread_of=card, file=file)
    changes = GroupChanges()
    alert = ChannelAlert(SOC, root_id, "alike", "", OWN_CARD, env.clock(), 2, 2)
    changes.alerts[root_id, SOC] = alert
    shown = DesiredMessage(card, SOC, desired(card, f"card {root_id}").message, root_id=root_id)
    await env.outbox.commit_page([shown, reply], 1, grouped=changes)
    await env.outbox.buttons.issue(SOC, card, lambda button: button(Intent("refresh", root_id)))


async def test_an_alert_goes_with_all_that_belongs_to_it_and_stays_in_slack(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        env.clock.stop()
        await env.outbox.set_core_database("d")
        await alert(env, "~1", file=REPORT)
        await alert(env, "~2")
        await all_sent(env)
        before = await env.anna.messages(SOC)
        core = Core({"~1": env.clock()})
        env.clock.advance(DAYS * DAY_MS - 1)
        assert await retention(env, core).prune() == Counter(content=4)
        env.clock.advance(2)
        own = retention(env, core)
        foretold = await own.preview()
        assert await own.prune() == foretold == Counter(message=2, file=1)
        assert counts(env) == {"message": 2, "file": 0, "button_set": 0, "channel_alert": 0}
        assert {row[0] for row in stores.rows(env.location, "SELECT root_id FROM message")} == {"~2"}
        assert await env.anna.messages(SOC) == before
        assert own.counts == foretold
        assert await own.prune() == Counter()
        core.missing = {"~2"}
        assert (await retention(env, core).prune())["message"] == 2
        assert set(counts(env).values()) == {0}


async def test_what_waits_stays(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        env.clock.stop()
        await env.outbox.set_core_database("d")
        await alert(env, "~1")
        env.clock.advance((DAYS + 1) * DAY_MS)
        assert await retention(env, Core({"~1": 1})).prune() == Counter()
        assert counts(env)["message"] == 2


async def test_an_alert_that_is_shown_again_stays_as_long_again(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        env.clock.stop()
        await env.outbox.set_core_database("d")
        await alert(env, "~1")
        env.clock.advance(DAYS * DAY_MS)
        await env.outbox.upsert(desired("alert:~1:C0OTHER", "again"))
        await all_sent(env)
        env.clock.advance(2)
        core = Core({"~1": 1})
        assert (await retention(env, core).prune())["message"] == 0
        env.clock.advance(DAYS * DAY_MS)
        assert (await retention(env, core).prune())["message"] == 3


@pytest.mark.parametrize("database", ["other", ""])
async def test_nothing_goes_because_another_core_knows_nothing(tmp_path: Path, database: str) -> None:
    """Such as one with a new, empty database: to that all alerts are missing."""
    async with outbox_environment(tmp_path) as env:
        env.clock.stop()
        await env.outbox.set_core_database("d")
        await alert(env, "~1")
        await all_sent(env)
        env.clock.advance((DAYS + 1) * DAY_MS)
        with pytest.raises(ResponderBotError, match="Core has another database than these messages") as error:
            await retention(env, Core(missing={"~1"}, database=database)).prune()
        assert error.value.code == "conflict"
        assert counts(env)["message"] == 2


async def test_messages_of_no_alert_go_by_their_own_age(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        env.clock.stop()
        await env.outbox.set_core_database("d")
        await env.outbox.upsert(DesiredMessage("bulk:~7:C0SOC", SOC, desired("bulk:~7:C0SOC", "bulk").message))
        await all_sent(env)
        env.clock.advance(DAYS * DAY_MS - 1_000)
        await env.outbox.upsert(DesiredMessage("bulk:~7:C0SOC", SOC, desired("bulk:~7:C0SOC", "ended").message))
        await all_sent(env)
        env.clock.advance(2_000)
        core = Core()
        assert (await retention(env, core).prune())["message"] == 0  # it has changed since
        env.clock.advance(DAYS * DAY_MS)
        assert (await retention(env, core).prune())["message"] == 1
        assert core.asked == []


async def test_days_of_0_keep_all_but_the_content(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        env.clock.stop()
        await env.outbox.set_core_database("d")
        await alert(env, "~1")
        await all_sent(env)
        env.clock.advance((DAYS + 1) * DAY_MS)
        core = Core({"~1": 1})
        assert await retention(env, core, days=0).prune() == Counter(content=2)
        assert core.asked == []


@pytest.mark.sqlite
async def test_sqlite_gives_the_space_of_contents_and_files_back(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        env.clock.stop()
        empty = int(stores.rows(env.location, "PRAGMA page_count")[0][0])
        for number in range(20):
            await alert(env, f"~{number}", file=("report.txt", "x" * 5_000))
        await env.outbox.upsert(*(desired(f"long:{number}", "x" * 2_000) for number in range(60)))
        await all_sent(env)
        full = int(stores.rows(env.location, "PRAGMA page_count")[0][0])
        env.clock.advance(CONTENT_KEEP_MS + 1)
        await retention(env, Core()).prune()
        left = int(stores.rows(env.location, "PRAGMA page_count")[0][0])
        assert left - empty < (full - empty) / 10


async def test_a_message_without_its_content_is_updated_and_posted_again(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        env.clock.stop()
        await env.outbox.set_core_database("d")
        key = f"alert:~1:{SOC}"
        await env.outbox.upsert(desired(key, "card"))
        await all_sent(env)
        env.clock.advance(CONTENT_KEEP_MS + 1)
        assert await retention(env, Core()).prune() == Counter(content=1)
        assert stores.rows(env.location, "SELECT payload FROM message") == [("",)]
        await env.outbox.upsert(desired(key, "card"))  # as it was: Slack is asked for nothing
        assert await env.outbox.waiting() == 0
        await env.outbox.upsert(desired(key, "changed"))
        await env.shows("changed")
        await all_sent(env)
        env.clock.advance(CONTENT_KEEP_MS + 1)
        assert await retention(env, Core()).prune() == Counter(content=1)
        shown = (await env.anna.messages(SOC))[0]["ts"]
        slack = AsyncWebClient(token=env.emulator.bot_token, base_url=env.emulator.api_url)
        await slack.chat_delete(channel=SOC, ts=shown)
        await env.outbox.upsert(desired(key, "later"))
        await all_sent(env)
        message = await env.outbox.message(key)
        assert message is not None
        assert message.status == "deleted"
        await env.outbox.upsert(desired(key, "for a person"))
        await env.outbox.finish([RefreshRequest("~1", after=0)])
        await env.shows("for a person")


async def test_steps_end_when_their_time_is_over(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        env.clock.stop()
        await env.outbox.set_core_database("d")
        for number in range(10, 30):
            await alert(env, f"~{number}")
        await all_sent(env)
        env.clock.advance((DAYS + 1) * DAY_MS)
        core = Core({f"~{number}": 1 for number in range(10, 30)})
        before = env.outbox.commits
        own = Retention(env.outbox._stores, env.clock, DAYS, core.closed, step_s=0, pause_s=0)
        assert (await own.prune())["message"] == 40
        assert env.outbox.commits - before >= 21  # one for the content and one for each alert, at least
        assert [len(ids) for ids in core.asked] == [20]


PRUNE = """
import asyncio, sys
from bot.outbox.retention import Retention
from bot.outbox.store import open_stores
from core.common.database.location import parse_location
from core.models import ClosedObjects

async def closed(ids):
    return ClosedObjects(closed_at={one: 1 for one in ids if int(one[1:]) < 1_000}, missing=[], database="d")

async def main(location, now_ms, days):
    store = open_stores(parse_location(location))
    await Retention(store, lambda: now_ms, days, closed, step_s=0, pause_s=0.001).prune()
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""
"""One alert in each transaction; ~1000 is open."""


@pytest.mark.slow
async def test_killed_in_the_middle_it_leaves_each_alert_whole_or_gone(tmp_path: Path) -> None:
    kills, closed = 50, [f"~{number}" for number in range(100, 220)]
    async with outbox_environment(tmp_path) as env:
        env.clock.stop()
        await env.outbox.set_core_database("d")
        for root_id in (*closed, "~1000"):
            await alert(env, root_id, file=REPORT)
        await all_sent(env)
        env.clock.advance((DAYS + 1) * DAY_MS)
        whole = parts_by_root(env)
        assert set(whole) == {*closed, "~1000"}
        for kill in range(1, kills + 1):
            goal = len(whole) - len(closed) * kill // (kills + 1)
            arguments = stores.setting(env.location), str(env.clock()), str(DAYS)
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", PRUNE, *arguments)
            await until(lambda goal=goal: len(parts_by_root(env)) <= goal or None, f"{goal} alerts are left")  # type: ignore[misc]
            child.kill()
            assert await child.wait() == -9
            left = parts_by_root(env)
            assert left == {root_id: whole[root_id] for root_id in left}
            assert "~1000" in left
        await retention(env, Core(dict.fromkeys(closed, 1))).prune()
        assert parts_by_root(env) == {"~1000": whole["~1000"]}


def parts_by_root(env: OutboxEnvironment) -> dict[str, Counter[str]]:
    """How many rows of each kind an alert has; rows of a message that is gone count for nothing else."""
    sql = """SELECT root_id, 'message' FROM message
        UNION ALL SELECT coalesce(m.root_id, 'none'), 'file' FROM file f LEFT JOIN message m ON m.key = f.message_key"""
    parts: dict[str, Counter[str]] = {}
    for root_id, kind in stores.rows(env.location, sql):
        parts.setdefault(root_id, Counter())[kind] += 1
    return parts
