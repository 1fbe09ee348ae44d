"""Listing an alert's actions and starting one, in a store that is full and in one that is empty."""

import asyncio
import random
from pathlib import Path

from tests.bench import figures
from tests.bench.accepting import started_rate
from tests.bench.figures import Figure, Goal, Row, Scale
from tests.bench.filling import KEY, fill
from tests.bench.load import load, request
from tests.bench.programs import Child, serving

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
        listed = await figures.in_turns(
            {
                "full": lambda: _listed_rate(full, scale, scale.alerts),
                "empty": lambda: _listed_rate(empty, scale, FEW),
            },
            scale.rounds,
        )
        # Started on alerts of their own, since each run makes its alert's list longer.
        started = await figures.in_turns(
            {
                "full": lambda: started_rate(full, scale, range(1, min(scale.alerts, 2000))),
                "empty": lambda: started_rate(empty, scale, range(1, FEW)),
            },
            scale.rounds,
        )
    stores = f"{scale.alerts:,} alerts and {scale.actions:,} actions ({size_gb:.1f} GB)"
    return [
        figures.row(
            f"list an alert's {each} actions among {stores}",
            listed,
            "full",
            "empty",
            figures.per_second,
            Goal("at most", 1.5),
            turned=True,
        ),
        figures.row(
            f"start a run among {stores}",
            started,
            "full",
            "empty",
            figures.per_second,
            Goal("at most", 1.5),
            turned=True,
        ),
    ]


async def _listed_rate(server: Child, scale: Scale, alerts: int) -> Figure:
    chosen = random.choices(range(1, alerts + 1), k=2000)  # noqa: S311 - which alert is looked at
    requests = [
        request(
            "GET",
            server.url,
            f"/api/connector/engine/action/alert/~{number}",
            headers={"Authorization": f"Bearer {KEY}"},
        )
        for number in chosen
    ]
    return (await load(server.url, requests, seconds=scale.seconds)).per_second
