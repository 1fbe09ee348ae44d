"""Follows one job on a Cortex server by long poll, up to its end or to core's own deadline."""

import asyncio
import math
from collections.abc import Callable
from urllib.parse import quote

from core.engines.base import OnProgress, Progress, Report
from core.engines.cortex.backoff import Backoff, PollInterval
from core.engines.cortex.http import CortexAnswer, CortexHttp, NoAnswer
from core.engines.cortex.translate import JobUpdate, news_of, refusal

IN_A_ROW = {"missing": 3, "rubbish": 6}
"""So many such answers one after the other are believed; one alone may come from something in between."""


class JobPoller:
    """The state of following one job. The deadline counts from the start of the program (`semantics.md 5`)."""

    def __init__(
        self,
        name: str,
        wire: CortexHttp,
        engine_job_id: str,
        on_progress: OnProgress,
        clock: Callable[[], float],
        pace: PollInterval,
        deadline_minutes: float,
    ) -> None:
        self._name = name
        self._wire = wire
        self._engine_job_id = engine_job_id
        self._on_progress = on_progress
        self._clock = clock
        self._pace = pace
        self._deadline_minutes = deadline_minutes
        self._patience = Backoff(clock, deadline_minutes * 60, pace)
        self._queueing = Backoff(clock, pace.waiting_limit_s, pace)
        self._running = False
        self._last_kind = ""
        self._in_a_row = 0
        self._trouble = ""

    async def to_the_end(self) -> Report:
        while True:
            asked_at = self._clock()
            answer = await self._asked()
            if isinstance(answer, CortexAnswer) and answer.refused and answer.status != 404:
                return self._refused(answer)
            news = await self._news(answer)
            await self._tell(news)
            if (report := self._verdict(news)) is not None:
                return report
            if not await self._paused(news, quick=self._clock() - asked_at < self._poll_s() / 2):
                return self._timed_out()

    async def _asked(self) -> CortexAnswer | NoAnswer:
        poll_s = min(self._poll_s(), max(1, math.ceil(self._patience.left_s)))
        path = f"job/{quote(self._engine_job_id, safe='')}/waitreport?atMost={poll_s}seconds"
        try:
            return await self._wire.call("GET", path, extra_s=poll_s)
        except NoAnswer as lost:
            return lost

    async def _news(self, answer: CortexAnswer | NoAnswer) -> JobUpdate:
        if isinstance(answer, NoAnswer):
            return JobUpdate("busy", why=answer.reason)
        return await asyncio.to_thread(news_of, answer)  # a report may be large

    def _poll_s(self) -> int:
        return self._pace.running_poll_s if self._running else self._pace.waiting_poll_s

    async def _tell(self, news: JobUpdate) -> None:
        if not news.started or self._running:
            return
        self._running = True
        self._patience.limit(max(0.0, self._deadline_minutes * 60 - news.ran_s))
        await self._on_progress(Progress(self._engine_job_id, running=True))

    def _verdict(self, news: JobUpdate) -> Report | None:
        """The report, if there is one now or there will never be one."""
        if news.report is not None:
            return news.report
        self._trouble = news.why
        self._in_a_row = self._in_a_row + 1 if news.kind == self._last_kind else 1
        self._last_kind = news.kind
        if self._in_a_row < IN_A_ROW.get(news.kind, math.inf):
            return None
        if news.kind == "missing":
            return Report(
                False,
                f"Engine {self._name!r} does not know job {self._engine_job_id} any more: the engine forgot it. "
                "It is not known how the responder ended; look at its effect.",
            )
        return Report(
            False,
            f"Engine {self._name!r} gives no usable report on job {self._engine_job_id}: {news.why}. "
            "It is not known how the responder ended; look at that server.",
        )

    async def _paused(self, news: JobUpdate, *, quick: bool) -> bool:
        """Wait until it makes sense to ask again; False when the time is over."""
        if news.kind in ("missing", "rubbish", "busy"):
            return await self._patience.pause(news.retry_after_s)
        self._patience.rested()
        if news.kind == "waiting" and not self._running:
            # The engine is alive and the job queues: only the program's own time counts.
            self._patience.limit(min(self._deadline_minutes * 60, self._queueing.left_s))
        return await self._patience.rest(self._pace.quick_poll_s if quick else 0)

    def _timed_out(self) -> Report:
        sentence = f"Timed out after {self._deadline_minutes:g} minutes."
        if self._queueing.left_s == 0 and not self._running:
            sentence = f"Engine {self._name!r} had not started it after {self._pace.waiting_limit_s / 3600:g} hours."
        trouble = f" The last that was heard of the engine: {self._trouble}." if self._trouble else ""
        return Report(False, f"{sentence} The responder may still run on engine {self._name!r}.{trouble}")

    def _refused(self, answer: CortexAnswer) -> Report:
        return Report(False, f"{refusal(self._name, answer, 'read jobs')} The responder may still run there.")
