"""What people wait for, in stores of very different sizes: what a read costs must not depend on it."""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from tests.bench import comparison
from tests.bench.comparison import Goal, Row, Sample, Scale
from tests.bench.dataset import KEY, NOW
from tests.bench.grown import EVERYWHERE, READER, fill, rare_tag, rare_word
from tests.bench.load import LoadMeter, request
from tests.bench.processes import ServerProcess, serving

ENGINE = "/api/connector/engine"
SEARCH = "/api/alert/_search"
VARIED = 200
"""Requests that a read is repeated with, on random alerts, so that not all of them stay in the page cache."""
Requests = Callable[[int], tuple[str, str, Any]]
"""Method, path and body of a request about an alert."""


def _run(number: int) -> tuple[str, str, Any]:
    return "POST", f"{ENGINE}/action", {"responderId": "r-idle", "objectType": "alert", "objectId": f"~{number}"}


def _search(query: Any, **options: Any) -> tuple[str, str, Any]:
    return "POST", SEARCH, {"query": query, **options}


def _get(path: str) -> Requests:
    return lambda _: ("GET", path, None)


NEWEST = f"{ENGINE}/action/_newest"
READS: Mapping[str, Requests] = {
    "list responders": lambda n: ("GET", f"{ENGINE}/responder/alert/~{n}", None),
    "list actions": lambda n: ("GET", f"{ENGINE}/action/alert/~{n}", None),
    "run accepted": _run,
    "event poll": _get("/api/event?after=0&wait=0"),
    "find a rare word": lambda n: ("GET", f"/api/alert/_find?text={rare_word(n)}", None),
    "find a word that's in every alert": _get(f"/api/alert/_find?text={EVERYWHERE}"),
    "find half a word that's in every alert": _get(f"/api/alert/_find?text={EVERYWHERE[:3]}"),
    "find two words, each in every alert": _get("/api/alert/_find?text=database%20suricata"),
    "search by sourceRef": lambda n: _search({"sourceRef": rare_word(n)}),
    "search by a tag of 100 alerts": lambda n: _search({"tags": rare_tag(n)}),
    "newest 20 alerts": lambda _: _search({}, sort="-createdAt", range="0-20", count=False),
    "Home's own alerts": _get(f"/api/alert/_open?assignee={quote(READER)}"),
    "mine": _get(f"{NEWEST}?state=ended&by={quote(READER)}"),
    "failed": _get(f"{NEWEST}?state=failed&since={NOW - 10**12}"),
    "pending": _get(f"{NEWEST}?state=waiting"),
}
"""Those with a goal."""
COUNTED: Mapping[str, Requests] = {
    "newest 20 alerts, with X-Total": lambda _: _search({}, sort="-createdAt", range="0-20"),
}


def sizes(scale: Scale) -> Sequence[int]:
    return [scale.alerts // 10**power for power in (3, 2, 1, 0)]


async def measure(folder: Path, scale: Scale) -> list[Row]:
    async with AsyncExitStack() as stack:
        servers = {}
        for alerts in sizes(scale):
            await fill(folder / str(alerts) / "core.db", alerts)
            server = serving("servers.core", folder / str(alerts), mode="ends_at_once")
            servers[alerts] = await stack.enter_async_context(server)
        return await compared(servers, scale, "processor time")


async def compared(servers: Mapping[int, ServerProcess], scale: Scale, what: str) -> list[Row]:
    base, rows = sizes(scale)[1], []
    for name, requests in {**READS, **COUNTED}.items():
        samples = await _samples(servers, requests, scale)
        goal = Goal("at most", 1.5) if name in READS else None
        rows += _against_base(f"{name}; {what}", samples, base, comparison.milliseconds, goal)
    memory = {str(alerts): [server.memory_mb()] for alerts, server in servers.items()}
    return [*rows, *_against_base("memory of core at the end", memory, base, megabytes, Goal("at most", 1.2))]


async def _samples(
    servers: Mapping[int, ServerProcess], requests: Requests, scale: Scale
) -> Mapping[str, Sequence[Sample]]:
    """Of each size, in seconds of processor time for an answer."""
    meter = LoadMeter()
    trials = {
        str(alerts): partial(_sample, meter, server, alerts, requests, scale) for alerts, server in servers.items()
    }
    await comparison.interleaved(trials, scale.rounds)
    return {name: spent[1:] for name, spent in meter.cpu_s_per_answer.items()}


def _against_base(
    name: str,
    samples: Mapping[str, Sequence[Sample]],
    base: int,
    show: Callable[[Sequence[Sample]], str],
    goal: Goal | None,
) -> list[Row]:
    return [
        comparison.row(f"{name}, {int(alerts):,} alerts", samples, alerts, str(base), show, goal)
        for alerts in samples
        if alerts != str(base)
    ]


async def _sample(meter: LoadMeter, server: ServerProcess, alerts: int, requests: Requests, scale: Scale) -> Sample:
    """The median time of an answer, one request at a time."""
    chosen = random.choices(range(1, alerts + 1), k=VARIED)  # noqa: S311 - which alert is read
    headers = {"Authorization": f"Bearer {KEY}"}
    sent = []
    for number in chosen:
        method, path, body = requests(number)
        sent.append(request(method, server.url, path, headers=headers, body=body))
    status = 201 if requests is _run else 200
    return await meter.median_s(str(alerts), server, sent, seconds=scale.seconds, status=status)


def megabytes(samples: Sequence[Sample]) -> str:
    return f"{median(samples):.0f} MB"
