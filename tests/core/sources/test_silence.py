"""What is over, what opens again, and sources that say nothing any more."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.authorization import COMMAND_LINE
from core.common.clock import HOUR_MS, MINUTE_MS
from core.common.database import Database
from core.models import Alert, AlertUpdate
from core.people import People
from core.records.alerts import Alerts
from core.settings import SourceSection
from core.sources.ingest import Received, Sources
from tests import stores
from tests.clock import SetClock
from tests.core.sources.running import EVENT, MINE

DOMAIN = "soc.example"


@dataclass
class Scene:
    """Sources on a real database, with a clock that is set."""

    database: Database
    clock: SetClock
    people: People
    sources: Sources
    alerts: Alerts

    async def send(self, event: dict[str, Any], name: str = "mine") -> Received:
        caller = await self.people.authenticate((await self.people.new_key(COMMAND_LINE, name)).key)
        sender = self.sources.sender(name, caller, {})
        return await self.sources.receive(sender, json.dumps(event).encode())

    async def all(self) -> list[Alert]:
        rows = await self.database.read(
            lambda reads: reads.rows("SELECT doc FROM object WHERE kind = 'alert' ORDER BY id")
        )
        return [Alert.model_validate_json(row["doc"]) for row in rows]


@asynccontextmanager
async def scene(folder: Path, *, uptime: SetClock | None = None, **changes: Any) -> AsyncIterator[Scene]:
    clock = SetClock()
    async with stores.opened(folder / "core.db") as database:
        people = People(database, DOMAIN, clock)
        await people.add("mine", "source")
        await people.add("anna", "analyst")
        section = SourceSection.model_validate({**MINE, **changes})
        sources = Sources({"mine": section}, {}, database, clock, DOMAIN, uptime=uptime or clock)
        await sources.open()
        yield Scene(database, clock, people, sources, Alerts(database, clock, "default"))


async def test_the_sender_closes_what_nobody_is_assigned_to(tmp_path: Path) -> None:
    over = {**EVENT, "state": "resolved"}
    async with scene(tmp_path) as made:
        await made.send(EVENT)
        await made.send({**EVENT, "id": "2"})
        anna = await made.people.authenticate((await made.people.new_key(COMMAND_LINE, "anna")).key)
        second = (await made.all())[1]
        await made.alerts.update(anna, second.id, AlertUpdate(assignee=f"anna@{DOMAIN}"))
        outcomes = [await made.send(over), await made.send({**over, "id": "2"}), await made.send({**over, "id": "3"})]
        shown = [(alert.status, alert.resolved_by, alert.count) for alert in await made.all()]
        # It opens at once if it is sent again: the sender takes back its own word.
        await made.send(EVENT)
        opened = (await made.all())[0]
    assert [(outcome.resolved, outcome.skipped) for outcome in outcomes] == [(1, 0), (1, 0), (0, 1)]
    assert shown == [("Ignored", "mine", None), ("New", "mine", None)]
    assert (opened.status, opened.resolved_by, opened.count) == ("New", None, 2)


async def test_what_a_person_closed_opens_after_a_time_only(tmp_path: Path) -> None:
    async with scene(tmp_path, reopen_after="2h") as made:
        await made.send(EVENT)
        anna = await made.people.authenticate((await made.people.new_key(COMMAND_LINE, "anna")).key)
        await made.alerts.mark_read(anna, (await made.all())[0].id)
        statuses = []
        for _ in range(3):
            made.clock.now_ms += HOUR_MS
            await made.send(EVENT)
            statuses.append((await made.all())[0].status)
    assert statuses == ["Ignored", "New", "New"]


async def test_a_repeat_leaves_what_is_in_an_open_case(tmp_path: Path) -> None:
    async with scene(tmp_path, reopen_after="1h") as made:
        await made.send(EVENT)
        anna = await made.people.authenticate((await made.people.new_key(COMMAND_LINE, "anna")).key)
        await made.alerts.create_case(anna, (await made.all())[0].id)
        made.clock.now_ms += 5 * HOUR_MS
        await made.send(EVENT)
        (alert,) = await made.all()
    assert (alert.status, alert.count) == ("Imported", 2)


async def test_an_alert_is_over_at_the_time_that_its_sender_names(tmp_path: Path) -> None:
    async with scene(tmp_path, ends="until") as made:
        ends_s = made.clock.now_ms // 1000 + 60
        await made.send({**EVENT, "until": ends_s})
        made.clock.now_ms += 2 * MINUTE_MS
        await made.send({**EVENT, "until": ends_s + 3_600})
        again = (await made.all())[0]
        outcome = await made.send({**EVENT, "until": ends_s})
        (over,) = await made.all()
    assert (again.status, again.count, again.resolved_by) == ("New", 2, None)
    assert (outcome.resolved, over.status, over.resolved_by) == (1, "Ignored", "mine")


async def test_an_alert_that_comes_after_its_end_is_kept_and_closed(tmp_path: Path) -> None:
    async with scene(tmp_path, ends="until") as made:
        outcome = await made.send({**EVENT, "until": made.clock.now_ms // 1000 - 60})
        (late,) = await made.all()
    assert (outcome.created, late.status, late.resolved_by) == (1, "Ignored", "mine")


async def test_unreadable_messages_of_an_hour_are_one_alert_whatever_the_clock_strikes(tmp_path: Path) -> None:
    async with scene(tmp_path) as made:
        for minutes in (0, 50, 9, 2):  # the first two at 22:13 and 23:03
            made.clock.now_ms += minutes * MINUTE_MS
            await made.send({"id": "no title"})
        alerts = await made.all()
    assert [(alert.type, alert.count) for alert in alerts] == [("unreadable", 3), ("unreadable", None)]


async def test_a_silent_source_is_told_once_and_until_it_speaks(tmp_path: Path) -> None:
    async with scene(tmp_path, expect_every="6h") as made:
        await made.send(EVENT)
        counts, problems = [], []
        for hours in (5, 2, 3, 20):
            made.clock.now_ms += hours * HOUR_MS
            await made.sources.tick()
            counts.append(len(await made.all()))
            problems.append(await made.sources.problems())
        silent = (await made.all())[1]
        await made.send({**EVENT, "id": "2"})
        after = [(alert.type, alert.status, alert.resolved_by) for alert in await made.all()]
        gone = await made.sources.problems()
        made.clock.now_ms += 7 * HOUR_MS
        await made.sources.tick()
        again = len(await made.all())
    assert counts == [1, 2, 2, 2]
    assert [len(found) for found in problems] == [0, 1, 1, 1]
    assert "has sent nothing since 2023-11-14 22:13 UTC" in problems[1][0]
    assert (silent.type, silent.source, silent.title, silent.severity) == (
        "silence",
        "mine",
        "Nothing comes from mine",
        3,
    )
    assert after == [("alert", "New", None), ("silence", "Ignored", "mine"), ("alert", "New", None)]
    assert (gone, again) == ([], 4)


async def test_a_core_that_was_down_calls_nobody_silent_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path, expect_every="6h") as made:
        await made.send(EVENT)
        made.clock.now_ms += 50 * HOUR_MS
        later = Sources(
            {"mine": SourceSection.model_validate({**MINE, "expect_every": "6h"})},
            {},
            made.database,
            made.clock,
            DOMAIN,
            uptime=made.clock,
        )
        await later.tick()
        at_once = len(await made.all())
        made.clock.now_ms += 16 * MINUTE_MS
        await later.tick()
        await made.sources.tick()  # another core tells no second time
        assert (at_once, len(await made.all())) == (1, 2)


@pytest.mark.parametrize("jump_ms", [-2 * HOUR_MS, 2 * HOUR_MS])
async def test_a_clock_that_is_set_makes_no_source_silent_earlier_or_later(tmp_path: Path, jump_ms: int) -> None:
    uptime = SetClock(5_000)
    async with scene(tmp_path, uptime=uptime, expect_every="1h") as made:
        await made.send(EVENT)
        await made.sources.tick()
        made.clock.now_ms += jump_ms
        uptime.now_ms += HOUR_MS
        await made.sources.tick()
        early = len(await made.all())
        await made.send({**EVENT, "id": "2"})
        made.clock.now_ms += jump_ms
        await made.sources.tick()
        uptime.now_ms += HOUR_MS
        await made.sources.tick()
        again = len(await made.all())
        uptime.now_ms += 1
        await made.sources.tick()
        late = [alert.type for alert in await made.all()]
    assert (early, again, late) == (1, 2, ["alert", "alert", "silence"])


async def test_one_that_never_said_anything_is_silent_too(tmp_path: Path) -> None:
    async with scene(tmp_path, expect_every="1h") as made:
        made.clock.now_ms += 2 * HOUR_MS
        await made.sources.tick()
        (alert,) = await made.all()
    assert alert.description.startswith(
        "mine has sent nothing at all, since it is in the settings: 2023-11-14 22:13 UTC"
    )


async def test_a_source_without_a_user_is_a_problem(tmp_path: Path) -> None:
    async with scene(tmp_path) as made:
        await made.people.set_profile("mine", "analyst")
        assert await made.sources.problems() == [
            "mine has no user; `responder-bot user add mine --profile source` makes it."
        ]
