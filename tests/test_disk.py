"""How long the disk lasts at the rate of the last week."""

import os
import shutil
from pathlib import Path

import pytest

from bot.outbox.retention import stored_since as messages_since
from core.authorization import Caller
from core.common.clock import DAY_MS, now_ms
from core.common.database import Dialect
from core.common.disk import WEEK_MS, Stored, forecast, stored_in
from core.models import AlertInput
from core.records.alerts import Alerts
from core.store.database.health import stored_since
from tests import programs, stores
from tests.bot.outbox.harness import all_sent, desired, outbox_environment
from tests.clock import SetClock
from tests.core.object_api import ALERT

ANNA = Caller("anna@soc.example", frozenset({"manageAlert"}), "", "analyst", 3)
MB = 1_000_000


async def with_alerts(path: Path, *ages_days: int) -> None:
    """Alerts that are so old."""
    async with stores.opened(path) as database:
        for number, age in enumerate(ages_days):
            alerts = Alerts(database, SetClock(now_ms() - age * DAY_MS), "default")
            await alerts.create(ANNA, AlertInput.model_validate({**ALERT, "sourceRef": str(number)}))


@pytest.mark.parametrize(("days", "is_well"), [(29, False), (31, True)])
def test_a_disk_that_lasts_less_than_a_month_fails(tmp_path: Path, days: int, is_well: bool) -> None:
    new = shutil.disk_usage(tmp_path).free * 7 // days
    stored = [Stored("core's database", 2 * new, new, tmp_path), Stored("job folders", 0, 0, tmp_path)]
    ((well, sentence),) = forecast(stored)
    assert well is is_well
    assert sentence.startswith("core's database and job folders take ")
    assert "that are free last " in sentence
    assert ("make room" in sentence) is not is_well


def test_years_are_told_in_years(tmp_path: Path) -> None:
    new = shutil.disk_usage(tmp_path).free * 7 // (9 * 365)
    assert forecast([Stored("x", new, new, tmp_path)])[0][1].endswith("that are free last 9 years")
    ((_, sentence),) = forecast([Stored("x", 30_500, 1, tmp_path)])
    assert sentence.startswith("x takes 30 kB, 0.0 kB of it from the last 7 days; at that rate the ")
    assert sentence.endswith("last over 100 years")


def test_it_lasts_where_as_much_is_deleted_as_comes(tmp_path: Path) -> None:
    """Of 30 days that are kept, 7 days' news are 7/30."""
    week = shutil.disk_usage(tmp_path).free
    ((well, sentence),) = forecast([Stored("x", week * 30 // 7 + 1, week, tmp_path, days=30)])
    assert well
    assert sentence.endswith(" are free, and as much is deleted as comes")
    ((well, _),) = forecast([Stored("x", week, week, tmp_path, days=30)])
    assert not well
    ((well, sentence),) = forecast([Stored("x", week, 0, tmp_path)])
    assert well
    assert sentence.endswith(" are free, and nothing comes")


def test_the_disk_of_postgresql_is_not_seen(tmp_path: Path) -> None:
    here, there = Stored("x", 5 * MB, MB, tmp_path), Stored("y", 1_234 * MB, MB, None)
    seen, unseen = forecast([here, there])
    assert "x takes 5.0 MB" in seen[1]
    assert unseen == (True, "y takes 1.2 GB, 1.0 MB of it from the last 7 days; PostgreSQL's disk isn't seen from here")


def test_job_folders_count_with_what_they_hold(tmp_path: Path) -> None:
    for name, age_days in (("old", 8), ("new", 6)):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "output.json"
        file.write_bytes(b"x" * 1000)
        os.utime(file, (0, now_ms() / 1000 - age_days * 86_400))
    (tmp_path / "new" / "broken").symlink_to("nothing")
    found = stored_in("job folders", tmp_path, now_ms, 0)
    assert (found.size, found.new) == (2000 + len("nothing"), 1000 + len("nothing"))


@pytest.mark.parametrize("dialect", stores.DIALECTS)
async def test_core_counts_the_alerts_and_cases_of_the_last_week(tmp_path: Path, dialect: Dialect) -> None:
    with stores.using(dialect):
        async with stores.opened(tmp_path / "core.db") as database:
            assert await stored_since(database, 0) == (0, 0)
        await with_alerts(tmp_path / "core.db", 30, 8, 6, 0)
        async with stores.opened(tmp_path / "core.db") as database:
            assert await stored_since(database, now_ms() - WEEK_MS) == (2, 4)


@pytest.mark.parametrize("dialect", stores.DIALECTS)
async def test_the_bot_counts_the_messages_of_the_last_week(tmp_path: Path, dialect: Dialect) -> None:
    with stores.using(dialect):
        async with outbox_environment(tmp_path) as env:
            await env.outbox.commit_page([desired("a", "old")], 1)
            await all_sent(env)
            env.clock.advance(8 * DAY_MS)
            await env.outbox.commit_page([desired("b", "new")], 2)
            await all_sent(env)
            since = env.clock() - WEEK_MS
        async with stores.opened_bots(env.location) as database:
            assert await messages_since(database, since) == (1, 2)


async def test_doctor_tells_it_in_a_line(tmp_path: Path) -> None:
    await with_alerts(tmp_path / "core.db", 8, 6)
    database = stores.setting(tmp_path / "core.db")
    (tmp_path / "responder-bot.toml").write_text(f'[core]\nport = 9\ndatabase = "{database}"\n')
    ran = programs.run("bot.cli", "doctor", cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
    (line,) = [line for line in ran.stdout.splitlines() if line[6:].startswith("disk: ")]
    assert line.startswith("ok    disk: core's database takes ")
    assert " from the last 7 days; " in line
    assert line.endswith("PostgreSQL's disk isn't seen from here" if stores.dialect() == "postgresql" else " years")
