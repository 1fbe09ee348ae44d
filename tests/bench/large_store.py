"""List an alert's actions, and start one, in a large and in a small database."""

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path

from tests.bench import comparison
from tests.bench.accept_runs import started_rate
from tests.bench.comparison import Goal, Row, Sample, Scale
from tests.bench.dataset import KEY, fill
from tests.bench.load import LoadMeter, request
from tests.bench.processes import ServerProcess, serving

LISTED_ALERTS = 2000
SMALL_ALERTS = 10
"""Alerts in the small database, each with as many actions as in the large one."""


async def measure(folder: Path, scale: Scale) -> list[Row]:
    each = scale.actions // scale.alerts
    await asyncio.to_thread(fill, folder / "large" / "core.db", scale.alerts, scale.actions)
    await asyncio.to_thread(fill, folder / "small" / "core.db", SMALL_ALERTS, SMALL_ALERTS * each)
    size_gb = (folder / "large" / "core.db").stat().st_size / 1e9
    async with (
        serving("servers.core", folder / "large", mode="ends_at_once") as large,
        serving("servers.core", folder / "small", mode="ends_at_once") as small,
    ):
        list_meter, start_meter = LoadMeter(), LoadMeter()
        listed = await comparison.interleaved(
            {
                "large": lambda: _listed_rate(list_meter, "large", large, scale, scale.alerts),
                "small": lambda: _listed_rate(list_meter, "small", small, scale, SMALL_ALERTS),
            },
            scale.rounds,
        )
        # On other alerts, since each run makes its alert's list longer.
        started = await comparison.interleaved(
            {
                "large": lambda: started_rate(start_meter, "large", large, scale, range(1, min(scale.alerts, 2000))),
                "small": lambda: started_rate(start_meter, "small", small, scale, range(1, SMALL_ALERTS)),
            },
            scale.rounds,
        )
    stores = f"{scale.alerts:,} alerts and {scale.actions:,} actions ({size_gb:.1f} GB)"
    return [
        *_rows(f"list an alert's {each} actions among {stores}", listed, list_meter),
        *_rows(f"start a run among {stores}", started, start_meter),
    ]


def _rows(what: str, found: Mapping[str, list[Sample]], meter: LoadMeter) -> list[Row]:
    goal = Goal("at most", 1.5)
    return [
        comparison.row(what, found, "large", "small", comparison.per_second, goal, inverse=True),
        comparison.row(
            "the same, processor time per answer",
            meter.cpu_s_per_answer,
            "large",
            "small",
            comparison.microseconds,
            goal,
        ),
    ]


async def _listed_rate(meter: LoadMeter, name: str, server: ServerProcess, scale: Scale, alerts: int) -> Sample:
    """Lists of `LISTED_ALERTS` random alerts, so that not all of them stay in the page cache."""
    headers = {"Authorization": f"Bearer {KEY}"}
    chosen = random.choices(range(1, alerts + 1), k=LISTED_ALERTS)  # noqa: S311 - which alert is listed
    paths = (f"/api/connector/engine/action/alert/~{number}" for number in chosen)
    requests = [request("GET", server.url, path, headers=headers) for path in paths]
    return await meter.rate(name, server, requests, seconds=scale.seconds)
