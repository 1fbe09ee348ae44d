"""`/health` and `/metrics` of the bot, for probes and Prometheus; they need no key and name nobody."""

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot.app.workers import Workers
from bot.outbox.outbox import MessageOutbox
from core.common.errors import ResponderBotError
from core.common.listener import has_token
from core.models import Check, HealthModel

_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 3.0)  # Slack waits for 3 s


class BotHealth(Collector):
    """The bot's health and metrics; gauges are computed at each scrape."""

    def __init__(
        self,
        health: Callable[[], Awaitable[Sequence[Check]]],
        outbox: MessageOutbox,
        is_leading: Callable[[], bool],
        workers: Workers,
        deleted: Mapping[str, int],
        metrics_token: str,
    ) -> None:
        """`deleted`: how much retention has deleted so far, by kind."""
        self._deleted = deleted
        self._metrics_token = metrics_token
        self._health = health
        self._outbox = outbox
        self._is_leading = is_leading
        self._workers = workers
        self._messages: Sequence[Metric] = ()  # counted before each scrape
        disable_created_metrics()  # type: ignore[no-untyped-call] # in the whole process
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._acknowledged = Histogram(
            "responder_bot_acknowledge_seconds",
            "From Slack's payload to its acknowledgement",
            ["surface"],
            buckets=_BUCKETS,
            registry=self._registry,
        )

    @contextmanager
    def time_acknowledgement(self, interaction_type: str) -> Iterator[None]:
        """Measure how long a payload waits for its acknowledgement."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._acknowledged.labels(interaction_type).observe(time.perf_counter() - started)

    def collect(self) -> Iterable[Metric]:
        restarts = "Workers that broke and were started again"
        yield CounterMetricFamily("responder_bot_worker_restarts", restarts, self._workers.restarts)
        commits = "Durable commits of this process to the database"
        yield CounterMetricFamily("responder_bot_store_commits", commits, self._outbox.commits)
        pruned = CounterMetricFamily("responder_bot_pruned", "What retention has deleted", labels=["kind"])
        for kind, count in self._deleted.items():
            pruned.add_metric([kind], count)
        yield pruned
        yield from self._messages
        yield GaugeMetricFamily(
            "responder_bot_leads", "1 where this replica follows and sends", int(self._is_leading())
        )

    async def _count_messages(self) -> Sequence[Metric]:
        waiting = "Messages that Slack doesn't yet show as desired"
        stuck = "Messages that can't be delivered until somebody does something; doctor says what"
        grouped = "New alerts that share a card, in storms that go on"
        problems, storms = await self._outbox.problems(), await self._outbox.storms()
        return [
            GaugeMetricFamily("responder_bot_messages_waiting", waiting, await self._outbox.waiting()),
            GaugeMetricFamily("responder_bot_messages_stuck", stuck, sum(problem.waiting for problem in problems)),
            GaugeMetricFamily("responder_bot_storm_alerts", grouped, sum(storm.alerts for storm in storms)),
        ]

    def routes(self) -> list[Route]:
        """The routes, for each address where the bot listens."""
        return [Route("/health", self._health_response), Route("/metrics", self._metrics_response)]

    async def _health_response(self, _request: Request) -> Response:
        health = HealthModel.of(await self._health())
        return Response(health.to_json(), 503 if health.status == "down" else 200, media_type="application/json")

    async def _metrics_response(self, request: Request) -> Response:
        if not has_token(request.headers, self._metrics_token):
            return Response("Send [core] metrics_token as a bearer token.", 401, {"WWW-Authenticate": "Bearer"})
        self._messages = ()
        with suppress(ResponderBotError):  # /health says that the database can't be read
            self._messages = await self._count_messages()
        return Response(generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
