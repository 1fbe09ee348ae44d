"""How long people took: counted once, at the right time, and by the right day."""

from pathlib import Path

import pytest

from core.common.clock import DAY_MS, HOUR_MS, MINUTE_MS
from core.common.database import Transaction
from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.figures import store as stored
from core.figures.figures import Figures
from core.models import AlertInput, AlertUpdate, Figure
from core.records.alerts import Alerts
from core.settings import ResponderSection
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, next_run, open_harness, run_input
from tests.core.running import running_core

BLOCK, OTHER = "BlockHost_1_0", "Other_1_0"
START = 1_700_000_000_000  # Tuesday, 14 November 2023, 22:13 UTC


async def listed(harness: Harness, by: str = "responder") -> list[Figure]:
    return list(await Figures(harness.database, harness.clock).listed(START, 0, by))


def short(figures: list[Figure]) -> list[tuple[str, str, int, float]]:
    return [(one.about, one.figure, one.number, one.mean_ms / MINUTE_MS) for one in figures]


async def test_an_alert_is_assigned_and_contained_once(tmp_path: Path) -> None:
    policies = {BLOCK: ResponderSection(undo=OTHER)}
    async with open_harness(tmp_path, policies=policies) as harness:
        alerts = Alerts(harness.database, harness.clock, "soc")

        async def assign(login: str) -> None:
            await alerts.update(LEAD, harness.alert_id, AlertUpdate(assignee=login))

        harness.clock.now_ms += 4 * MINUTE_MS
        await assign(ANNA.login)
        harness.clock.now_ms += HOUR_MS
        await assign("")
        await assign(BEN.login)
        for minutes in (6, 600):
            action = (await harness.actions.start(ANNA, run_input(harness))).action
            run = await next_run(harness.engine)
            harness.clock.now_ms += minutes * MINUTE_MS
            run.finish(Report(True))
            await harness.ended(action.id)
        assert short(await listed(harness)) == [
            ("", "assigned", 1, 4),
            (BLOCK, "first_run", 1, 64),
            (BLOCK, "contained", 1, 70),
        ]
        (assigned, *_) = await listed(harness, "source")
        assert (assigned.about, assigned.max_ms, assigned.within) == (
            "s",
            4 * MINUTE_MS,
            {"5m": 1, "15m": 1, "1h": 1, "4h": 1, "1d": 1},
        )
        assert [one.within["1h"] for one in await listed(harness, "week")] == [1, 0, 0]


async def test_what_fails_contains_nothing_and_an_undo_is_no_first_run(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies={BLOCK: ResponderSection(undo=OTHER)}) as harness:
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        (await next_run(harness.engine)).finish(Report(False, message="no"))
        await harness.ended(action.id)
        assert short(await listed(harness)) == [(BLOCK, "first_run", 1, 0)]


async def test_decisions_count_from_when_they_were_asked_for(tmp_path: Path) -> None:
    policies = {BLOCK: ResponderSection(approval=1, approval_expires_minutes=60)}
    async with open_harness(tmp_path, policies=policies) as harness:
        for minutes, decide in ((3, harness.actions.approve), (9, harness.actions.approve), (20, harness.actions.deny)):
            action = (await harness.actions.start(ANNA, run_input(harness))).action
            harness.clock.now_ms += minutes * MINUTE_MS
            await decide(BEN, action.id)
        cancelled = (await harness.actions.start(ANNA, run_input(harness))).action
        await harness.actions.cancel(ANNA, cancelled.id)
        expired = (await harness.actions.start(ANNA, run_input(harness))).action
        harness.clock.now_ms += 61 * MINUTE_MS
        await harness.lifecycle.expire(expired.number)
        decisions = [one for one in short(await listed(harness)) if one[1] != "first_run"]
        assert decisions == [(BLOCK, "approved", 2, 6), (BLOCK, "denied", 1, 20), (BLOCK, "expired", 1, 61)]


async def test_days_and_weeks_are_of_utc(tmp_path: Path) -> None:
    policies = {BLOCK: ResponderSection(approval=1)}
    async with open_harness(tmp_path, policies=policies) as harness:
        for _ in range(3):
            action = (await harness.actions.start(ANNA, run_input(harness))).action
            await harness.actions.deny(BEN, action.id)
            harness.clock.now_ms += 3 * DAY_MS
        assert [(one.about, one.number) for one in await listed(harness, "week")] == [
            ("2023-11-13", 2),
            ("2023-11-20", 1),
        ]
        assert [one.about for one in await listed(harness, "day")] == ["2023-11-14", "2023-11-17", "2023-11-20"]
        with pytest.raises(ResponderBotError, match="must be one of day, week, source, responder"):
            await listed(harness, "channel")


async def test_a_clock_that_was_set_back_counts_no_time(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        harness.clock.now_ms -= HOUR_MS
        await Alerts(harness.database, harness.clock, "soc").update(
            LEAD, harness.alert_id, AlertUpdate(assignee=ANNA.login)
        )
        (one,) = await Figures(harness.database, harness.clock).listed(START - DAY_MS, 0, "week")
        assert (one.number, one.mean_ms) == (1, 0)


async def test_senders_can_not_make_figures_without_end(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:

        def count(tx: Transaction) -> None:
            for number in range(stored.MAX_KINDS + 20):
                stored.count(tx, "assigned", f"s{number}", "", 1, START)

        await harness.database.transaction(count)
        found = await listed(harness, "source")
        assert len(found) == stored.MAX_KINDS + 1
        assert {one.about: one.number for one in found}[stored.OTHER] == 20


async def test_over_http(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        fields = {"type": "t", "source": "=cmd()", "sourceRef": "1", "title": "t", "description": "d"}
        alert = (
            await core.send("POST", "/api/alert", AlertInput.model_validate(fields).model_dump(by_alias=True))
        ).json()
        login = "analyst@responder-bot.local"
        await core.key("analyst")
        await core.send("PATCH", f"/api/alert/{alert['id']}", {"assignee": login})
        (one,) = (await core.send("GET", "/api/stats?by=source", profile="read-only")).json()
        assert (one["about"], one["figure"], one["number"]) == ("=cmd()", "assigned", 1)
        assert one["within"] == {"5m": 1, "15m": 1, "1h": 1, "4h": 1, "1d": 1}
        table = await core.send("GET", "/api/stats?by=source&format=csv", profile="read-only")
        assert table.headers["content-type"].startswith("text/csv")
        head, row = table.text.splitlines()
        assert head == "about,figure,number,mean_ms,max_ms,within_5m,within_15m,within_1h,within_4h,within_1d"
        assert row.startswith("'=cmd(),assigned,1,")  # which no spreadsheet takes for a formula
        metrics = (await core.send("GET", "/metrics", profile=None)).text
        assert 'responder_bot_figures{figure="assigned",responder="",source="=cmd()"} 1.0' in metrics
        for query, words in (
            ("by=channel", "`by` must be one of"),
            ("format=xml", "`format` must be json or csv"),
            ("since=0", "at most 400 days apart"),
            ("since=x", "since must be a number"),
            ("until=1", None),
            ("since=9007199254740992&until=1", None),
        ):
            response = await core.send("GET", f"/api/stats?{query}")
            assert response.status_code == (200 if words is None else 400), response.text
            assert words is None or words in response.text
        assert (await core.send("GET", "/api/stats", profile=None)).status_code == 401
