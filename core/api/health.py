"""How core is: `/health` for people and probes, `/metrics` for Prometheus (`semantics.md 11`)."""

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Literal

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import Response

from core.api.endpoint import Endpoint, Request, json_response
from core.common import logs
from core.common.database.probe import Probe
from core.common.database.sqlite import Database
from core.common.errors import ResponderBotError
from core.models import ApiModel
from core.store import measures

COUNT_EVERY_S = 15.0  # the usual distance between two scrapes; counting looks at every action
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


@dataclass(frozen=True)
class ComponentHealth:
    """One part of core and how it is; without a `vital` one core is down, without another it is degraded."""

    name: str
    ok: bool
    message: str = ""
    vital: bool = False


class HealthPartModel(ApiModel):
    """A part on the wire."""

    name: str
    ok: bool
    message: str


class HealthModel(ApiModel):
    """The answer of `/health`."""

    status: Literal["ok", "degraded", "down"]
    parts: list[HealthPartModel]


def overall_health(parts: Sequence[ComponentHealth]) -> HealthModel:
    """Health of the whole, from its parts."""
    status: Literal["ok", "degraded", "down"] = "ok"
    if any(not part.ok for part in parts):
        status = "down" if any(part.vital and not part.ok for part in parts) else "degraded"
    words = [HealthPartModel(name=part.name, ok=part.ok, message=part.message) for part in parts]
    return HealthModel(status=status, parts=words)


class StoreProbe:
    """The store as a part of core; see `core.store.probe`."""

    def __init__(self, database: Database, seconds: Callable[[], float] = time.monotonic) -> None:
        self._probe = Probe(database, measures.touch, seconds)

    @property
    def write_s(self) -> float:
        return self._probe.write_s

    async def check(self) -> ComponentHealth:
        found = await self._probe.look()
        return ComponentHealth("store", not found.message, found.message, vital=found.is_down)


class Metrics:
    """What Prometheus is told, in a registry of its own."""

    def __init__(
        self, database: Database, probe: StoreProbe, engines: Callable[[], Iterable[tuple[str, bool]]]
    ) -> None:
        self._database = database
        self._probe = probe
        self._engines = engines
        self._lock = asyncio.Lock()
        self._counted = float("-inf")
        self._of_route: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self.registry = CollectorRegistry()

        def gauge(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(f"responder_bot_{name}", text, labels, registry=self.registry)

        self._requests = Counter(
            "responder_bot_requests", "Requests answered", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "responder_bot_request_seconds",
            "Time to an answer, long polls included",
            ("route",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._actions = gauge("actions", "Actions in the store", ("status", "responder"))
        self._queue = gauge("queue", "Actions that wait for an engine or for approval")
        self._up = gauge("engine_up", "1 while an engine answers", ("engine",))
        self._lag = gauge("event_lag_seconds", "How long the oldest event of the last read had waited for its reader")
        self._store_up = gauge("store_up", "1 while the store can be read and written")
        self._size = gauge("store_bytes", "Size of the database file")
        self._write = gauge("store_write_seconds", "How long the last probe's durable write took")

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answer."""
        found = self._of_route.get((route, method, status))
        if found is None:
            found = self._requests.labels(method, route, str(status)), self._seconds.labels(route)
            self._of_route[route, method, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def set_event_lag(self, seconds: float) -> None:
        """Note how late a reader of the feed was."""
        self._lag.set(max(seconds, 0.0))

    async def render(self) -> bytes:
        """Everything, in Prometheus' text format."""
        async with self._lock:
            part = await self._probe.check()
            self._store_up.set(int(part.ok))
            with suppress(ResponderBotError):  # the figures of before stay: that the store can't be read is one too
                await self._count()
                self._queue.set(measures.queued(self._database))
                self._size.set(measures.size_bytes(self._database))
            self._write.set(self._probe.write_s)
            for name, up in self._engines():
                self._up.labels(name).set(1 if up else 0)
            return generate_latest(self.registry)

    async def _count(self) -> None:
        if time.monotonic() - self._counted < COUNT_EVERY_S:
            return
        rows = await measures.action_counts(self._database)
        self._counted = time.monotonic()
        self._actions.clear()
        for row in rows:
            self._actions.labels(row["status"], row["responder_name"] or "").set(row["count"])


_QUOTED_PATH = re.compile(r"""(['"`])(/[^'"`\n]*)\1""")
# Not in the middle of a word or a URL; what ends a sentence or a list is no part of it.
_PATH = re.compile(r"""(?<![\w:/.~%-])/(?:[^\s'"`,;:()\[\]/]+/+)*([^\s'"`,;:()\[\]/]+)""")


def strip_paths(text: str, folders: Iterable[Path] = ()) -> str:
    """A sentence with names in place of absolute paths.

    `folders` are known ones, in which there may be blanks: what is below them keeps its path from there.
    """
    for folder in sorted((str(folder) for folder in folders), key=len, reverse=True):
        if len(folder) > 1:
            begins = rf"(?<![\w:/.~%-]){re.escape(folder)}"
            text = re.sub(rf"{begins}/+(?=\S)", "", text)
            text = re.sub(rf"{begins}(?![\w-])", PurePath(folder).name, text)
    text = _QUOTED_PATH.sub(lambda found: f"{found[1]}{PurePath(found[2]).name}{found[1]}", text)
    return _PATH.sub(lambda found: found[1], text)


def endpoints(
    probe: StoreProbe,
    metrics: Metrics,
    parts: Sequence[Callable[[], Sequence[ComponentHealth]]],
    folders: Iterable[Path] = (),
) -> Sequence[Endpoint]:
    """`parts` are asked at each look; the store is always one. `folders` are those that sentences may name.

    Only an org-admin's own key is shown where files lie on this machine; all others get names.
    """

    async def health(request: Request) -> Response:
        found = [await probe.check(), *(part for ask in parts for part in ask())]
        if trouble := logs.trouble():
            found.append(ComponentHealth("log", False, trouble))
        if not request.caller.may("manageUser"):
            found = [replace(part, message=strip_paths(part.message, folders)) for part in found]
        word = overall_health(found)
        return json_response(word, 503 if word.status == "down" else 200)

    async def prometheus(request: Request) -> Response:
        return Response(await metrics.render(), 200, {"Content-Type": CONTENT_TYPE_LATEST})

    return [
        Endpoint("GET", "/health", health, "Say how core is", response=HealthModel, is_public=True, errors=(503,)),
        Endpoint("GET", "/metrics", prometheus, "Figures for Prometheus", response="text/plain", is_public=True),
    ]
