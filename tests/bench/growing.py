"""Listing an alert's actions and starting one, in a store that is full and in one that is empty."""

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path

from tests.bench import figures
from tests.bench.accepting import started_rate
from tests.bench.figures import Figure, Goal, Row, Scale
from tests.bench.filling import KEY, fill
from tests.bench.load import Weighed, request
from tests.bench.programs import Child, serving

ALERTS_LOOKED_AT = 2000
FEW = 10
"""Alerts in the store that counts as empty: each with as many actions as in the full one."""


async def measure(folder: Path, scale: Scale) -> list[Row]:
    each = scale.actions // scale.alerts
    await asyncio.to_thread(fill, folder / "full" / "core.db", scale.alerts, scale.actions)
    await asyncio.to_thread(fill, folder / "empty" / "core.db", FEW, FEW * each)
    size_gb = (folder / "full" / "core.db").stat().st_size / 1e9
    async with (
        serving("servers.ours", folder / "full", manner="ends") as full,
        serving("servers.ours", folder / "empty", manner="ends") as empty,
    ):
        looking, starting = Weighed(), Weighed()
        listed = await figures.in_turns(
            {
                "full": lambda: _listed_rate(looking, "full", full, scale, scale.alerts),
                "empty": lambda: _listed_rate(looking, "empty", empty, scale, FEW),
            },
            scale.rounds,
        )
        # Started on alerts of their own, since each run makes its alert's list longer.
        started = await figures.in_turns(
            {
                "full": lambda: started_rate(starting, "full", full, scale, range(1, min(scale.alerts, 2000))),
                "empty": lambda: started_rate(starting, "empty", empty, scale, range(1, FEW)),
            },
            scale.rounds,
        )
    stores = f"{scale.alerts:,} alerts and {scale.actions:,} actions ({size_gb:.1f} GB)"
    return [
        *_rows(f"list an alert's {each} actions among {stores}", listed, looking),
        *_rows(f"start a run among {stores}", started, starting),
    ]


def _rows(what: str, found: Mapping[str, list[Figure]], weighed: Weighed) -> list[Row]:
    goal = Goal("at most", 1.5)
    return [
        figures.row(what, found, "full", "empty", figures.per_second, goal, turned=True),
        figures.row("the same, processor time", weighed.spent, "full", "empty", figures.microseconds, goal),
    ]


async def _listed_rate(weighed: Weighed, name: str, server: Child, scale: Scale, alerts: int) -> Figure:
    """Of alerts chosen at random; `ALERTS_LOOKED_AT` of them, so that they don't all stay in the store's cache."""
    headers = {"Authorization": f"Bearer {KEY}"}
    chosen = random.choices(range(1, alerts + 1), k=ALERTS_LOOKED_AT)  # noqa: S311 - which alert is looked at
    paths = (f"/api/connector/engine/action/alert/~{number}" for number in chosen)
    requests = [request("GET", server.url, path, headers=headers) for path in paths]
    return await weighed.rate(name, server, requests, seconds=scale.seconds)
