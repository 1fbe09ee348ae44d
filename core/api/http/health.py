"""Routes for monitoring: `/livez` and `/readyz` for probes, `/health` for people, `/metrics` for Prometheus."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from core.api.http.endpoint import Endpoint, Request, Routes, SearchTurns, json_response
from core.api.http.errors import error_response
from core.common import logs
from core.common.database import Database
from core.common.database.probe import Probe
from core.common.database.schema import Opening
from core.common.errors import ResponderBotError
from core.common.listener import has_token
from core.models import ApiModel, Check, HealthModel
from core.store import actions, sources
from core.store.database import sequences

COUNT_INTERVAL_S = 15.0  # Prometheus' usual scrape interval; counting reads every action
_METHODS = ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS")
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class StoreProbe:
    """Health of the store, by a durable write and a read (see core.common.database.probe)."""

    def __init__(self, database: Database, seconds: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._probe = Probe(database, sequences.touch, seconds)

    @property
    def write_s(self) -> float:
        """The duration of the last probe's write, in seconds."""
        return self._probe.write_s

    async def check(self) -> Check:
        """The store as it is now, or as it was within the last second."""
        result = await self._probe.check()
        message = result.message or self._database.remark()
        return Check("store", not result.message, message, is_vital=result.is_down)


class JobFoldersProbe:
    """Health of the disk with the job folders."""

    def __init__(self, find_problem: Callable[[], str]) -> None:
        """`find_problem` blocks; it returns a sentence, or "" if a run can start."""
        self._find_problem = find_problem
        self._lock = asyncio.Lock()
        self._checked_at = float("-inf")
        self._problem = ""

    async def problem(self) -> str:
        """Why no run can start, or "", as it was within the last second."""
        async with self._lock:
            if time.monotonic() - self._checked_at >= 1:
                self._problem = await asyncio.to_thread(self._find_problem)
                self._checked_at = time.monotonic()
            return self._problem


class Metrics:
    """Core's metrics for Prometheus, in a registry of their own."""

    def __init__(
        self,
        database: Database,
        probe: StoreProbe,
        engines: Callable[[], Iterable[tuple[str, bool]]],
        hosts: Callable[[], Awaitable[Mapping[str, bool]]],
        jobs: JobFoldersProbe,
        deleted: Mapping[str, int],
        in_force: Callable[[], Awaitable[Mapping[str, int]]],
    ) -> None:
        """`deleted`: how much retention has deleted so far, by kind."""
        self._deleted = deleted
        self._in_force = in_force
        self._jobs = jobs
        self._hosts = hosts
        self._database = database
        self._probe = probe
        self._engines = engines
        self._lock = asyncio.Lock()
        self._counted_at = float("-inf")
        self._by_route: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        disable_created_metrics()  # type: ignore[no-untyped-call] # in the whole process
        self.registry = CollectorRegistry()

        def gauge(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(f"responder_bot_{name}", text, labels, registry=self.registry)

        self._requests = Counter(
            "responder_bot_requests", "Requests answered", ("method", "route", "status"), registry=self.registry
        )
        self._refused_keys = Counter(
            "responder_bot_refused_keys", "Requests without a valid key", ("reason",), registry=self.registry
        )
        self._commits = Counter(
            "responder_bot_store_commits", "Durable commits of this process to the store", registry=self.registry
        )
        self._commits_counted = 0
        self._seconds = Histogram(
            "responder_bot_request_seconds",
            "Time to an answer, long polls included",
            ("route",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._pruned = Counter("responder_bot_pruned", "What retention has deleted", ("kind",), registry=self.registry)
        self._pruned_counted: dict[str, int] = {}
        self._received = gauge("source_alerts", "What came from a source, by what became of it", ("source", "outcome"))
        self._last_message = gauge("source_last_message_seconds", "When a source sent something last", ("source",))
        self._actions = gauge("actions", "Actions in the store", ("status", "responder"))
        self._queue = gauge("queue", "Actions that wait for an engine or for approval")
        self._up = gauge("engine_up", "1 while an engine answers", ("engine",))
        self._host_up = gauge("host_up", "1 while a core of a host holds its lease, 0 once it is lost", ("host",))
        self._measures = gauge("measures", "Runs that have left something in force", ("state",))
        self._lag = gauge("event_lag_seconds", "How long the oldest event of the last read had waited for its reader")
        self._store_up = gauge("store_up", "1 while the store can be read and written")
        self._jobs_writable = gauge("jobs_writable", "1 while runs can get job folders")
        self._size = gauge("store_bytes", "Size of what is stored")
        self._write = gauge("store_write_seconds", "How long the last probe's durable write took")

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one response."""
        method = method if method in _METHODS else "other"  # any word can be a method
        children = self._by_route.get((route, method, status))
        if children is None:
            children = self._requests.labels(method, route, str(status)), self._seconds.labels(route)
            self._by_route[route, method, status] = children
        children[0].inc()
        children[1].observe(seconds)

    def count_refused_key(self, reason: str) -> None:
        """Count a request without a valid key."""
        self._refused_keys.labels(reason).inc()

    def set_event_lag(self, seconds: float) -> None:
        """Set how many seconds the oldest event of the last page had waited for its reader."""
        self._lag.set(max(seconds, 0.0))

    async def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        async with self._lock:
            store = await self._probe.check()
            self._store_up.set(int(store.ok))
            self._jobs_writable.set(int(not await self._jobs.problem()))
            with suppress(ResponderBotError):  # keep the last values if the store can't be read; store_up says so
                await self._count()
                self._queue.set(await self._database.read(actions.queued))
                self._size.set(await self._database.size_bytes())
                counts = await self._in_force()
                for state in ("starting", "in_force", "unknown"):
                    self._measures.labels(state).set(counts.get(state, 0))
                hosts = await self._hosts()
                for row in await self._database.read(sources.list_all):
                    for outcome in sources.COUNTS:
                        self._received.labels(row["name"], outcome).set(row[outcome])
                    self._last_message.labels(row["name"]).set((row["last_at"] or 0) / 1000)
                self._host_up.clear()
                for host, up in hosts.items():
                    self._host_up.labels(host).set(int(up))
            self._write.set(self._probe.write_s)
            commits = self._database.commits
            self._commits.inc(commits - self._commits_counted)
            self._commits_counted = commits
            for kind, count in self._deleted.items():
                self._pruned.labels(kind).inc(count - self._pruned_counted.get(kind, 0))
            self._pruned_counted = dict(self._deleted)
            for name, up in self._engines():
                self._up.labels(name).set(1 if up else 0)
            return generate_latest(self.registry)

    async def _count(self) -> None:
        if time.monotonic() - self._counted_at < COUNT_INTERVAL_S:
            return
        rows = await actions.counts(self._database)
        self._counted_at = time.monotonic()
        self._actions.clear()
        for row in rows:
            self._actions.labels(row["status"], row["responder_name"] or "").set(row["count"])


_QUOTED_PATH = re.compile(r"""(['"`])(/[^'"`\n]*)\1""")
# Not within a word or a URL, and without the punctuation that ends a sentence or separates a list.
_PATH = re.compile(r"""(?<![\w:/.~%-])/(?:[^\s'"`,;:()\[\]/]+/+)*([^\s'"`,;:()\[\]/]+)""")


def strip_paths(text: str, folders: Iterable[Path] = ()) -> str:
    """A sentence with file names in place of absolute paths.

    Paths below `folders`, whose names may have spaces, become relative to them.
    """
    for folder in sorted((str(folder) for folder in folders), key=len, reverse=True):
        if len(folder) > 1:
            prefix = rf"(?<![\w:/.~%-]){re.escape(folder)}"
            text = re.sub(rf"{prefix}/+(?=\S)", "", text)
            text = re.sub(rf"{prefix}(?![\w-])", PurePath(folder).name, text)
    text = _QUOTED_PATH.sub(lambda match: f"{match[1]}{PurePath(match[2]).name}{match[1]}", text)
    return _PATH.sub(lambda match: match[1], text)


def endpoints(
    probe: StoreProbe,
    metrics: Metrics,
    parts: Callable[[], Awaitable[Sequence[Check]]],
    folders: Iterable[Path] = (),
    metrics_token: str = "",
) -> Sequence[Endpoint]:
    """`parts` give the health of components other than the store; `folders` are those that messages may name.

    Only an org-admin's own key gets the paths of files on this machine; all others get their names.
    """
    route = Routes()

    @route("GET /health", "Report core's health", response=HealthModel, is_public=True, errors=(503,))
    async def get_health(request: Request) -> Response:
        store, others = await asyncio.gather(probe.check(), parts())
        components = [store, *others]
        if problem := logs.problem():
            components.append(Check("log", False, problem))
        if not request.caller.may("manageUser"):
            components = [replace(item, message=strip_paths(item.message, folders)) for item in components]
        health = HealthModel.of(components)
        return json_response(health, 503 if health.status == "down" else 200)

    @route("GET /readyz", "Answer while core's database takes changes", response=Live, is_public=True, errors=(503,))
    async def get_ready(_request: Request) -> Response:
        store = await probe.check()
        if store.is_vital:
            raise ResponderBotError("unavailable", strip_paths(store.message, folders))
        return json_response(Live())

    @route("GET /metrics", "Report metrics for Prometheus", response="text/plain", is_public=True, errors=(401,))
    async def get_metrics(request: Request) -> Response:
        if not has_token(request.headers, metrics_token):
            raise ResponderBotError("authentication", "Authentication failure")
        return Response(await metrics.render(), 200, {"Content-Type": CONTENT_TYPE_LATEST})

    route(f"GET {LIVE}", "Answer while core lives", response=Live, is_public=True)(live)
    return route


# --- while core starts: it lives, and isn't ready until its database is open ------------------------------------------


LIVE = "/livez"


class Live(ApiModel):
    """The answer of `/livez`, and of `/readyz` when core is ready."""

    status: str = "ok"


async def live(_request: Request) -> Response:
    """A response without looking at anything: the event loop turns."""
    return json_response(Live())


class Starting:
    """The ASGI application of a core that is being opened; all goes to `app` once that is set."""

    def __init__(self, opening: Opening) -> None:
        self.app: ASGIApp | None = None
        self._opening = opening

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.app is not None:
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive, SearchTurns())
        if request.raw_path.rstrip("/") == LIVE:
            response = await live(request)
        else:
            sentence = self._opening.sentence or "Core is starting; try again in a moment."
            response = error_response(ResponderBotError("unavailable", sentence), request.id)
            response.headers["Connection"] = "close"  # the body has not been read
        await response(scope, receive, send)
