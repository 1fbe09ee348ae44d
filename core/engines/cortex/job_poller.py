"""Follows one job on a Cortex server by long polls, until it ends or reaches core's own deadline."""

import asyncio
import math
import time
from dataclasses import dataclass
from urllib.parse import quote

from core.engines.base import OnProgress, Progress, Report
from core.engines.cortex.http import CortexAnswer, CortexHttp, NoAnswer
from core.engines.cortex.timing import Deadline, PollTiming
from core.engines.cortex.translate import JobUpdate, describe_refusal, parse_update

MAX_UNUSABLE = 6
_GIVE_UP_AFTER = {"missing": 3, "unusable": MAX_UNUSABLE}
"""The number of such answers in a row after which the job is given up; a single one may come from a proxy."""


@dataclass
class JobPoller:
    """The state of following one job. The deadline counts from the start of its program."""

    _name: str
    _http: CortexHttp
    _engine_job_id: str
    _on_progress: OnProgress
    _timing: PollTiming
    _deadline_minutes: float
    _running: bool = False
    _last_kind: str = ""
    _repeats: int = 0
    _last_problem: str = ""

    def __post_init__(self) -> None:
        self._deadline = Deadline(self._deadline_minutes * 60, self._timing)
        self._queueing = Deadline(self._timing.waiting_limit_s, self._timing)

    async def poll(self) -> Report:
        """Poll until there is a report, or it is clear that there will be none."""
        while True:
            asked_at = time.monotonic()
            answer = await self._ask()
            if isinstance(answer, CortexAnswer) and answer.is_refusal and answer.status != 404:
                reason = describe_refusal(self._name, answer, "read jobs")
                return Report(False, f"{reason} The responder may still run there.")
            if isinstance(answer, NoAnswer):
                update = JobUpdate("busy", problem=answer.reason)
            else:
                update = await asyncio.to_thread(parse_update, answer)  # a report may be large
            await self._report_start(update)
            if (report := self._final_report(update)) is not None:
                return report
            if not await self._pause(update, is_quick=time.monotonic() - asked_at < self._poll_s() / 2):
                return self._timed_out()

    async def _ask(self) -> CortexAnswer | NoAnswer:
        poll_s = min(self._poll_s(), max(1, math.ceil(self._deadline.left_s)))
        path = f"job/{quote(self._engine_job_id, safe='')}/waitreport?atMost={poll_s}seconds"
        try:
            return await self._http.call("GET", path, extra_s=poll_s)
        except NoAnswer as lost:
            return lost

    def _poll_s(self) -> int:
        return self._timing.running_poll_s if self._running else self._timing.waiting_poll_s

    async def _report_start(self, update: JobUpdate) -> None:
        if not update.started or self._running:
            return
        self._running = True
        self._deadline.set_limit(self._deadline_minutes * 60)
        await self._on_progress(Progress(self._engine_job_id, running=True))

    def _final_report(self, update: JobUpdate) -> Report | None:
        """The report of the update, or a failure if the last updates in a row mean that there will be none."""
        if update.report is not None:
            return update.report
        self._last_problem = update.problem
        self._repeats = self._repeats + 1 if update.kind == self._last_kind else 1
        self._last_kind = update.kind
        if self._repeats < _GIVE_UP_AFTER.get(update.kind, math.inf):
            return None
        if update.kind == "missing":
            return Report(
                False,
                f"Engine {self._name!r} no longer knows job {self._engine_job_id}. "
                "It is not known how the responder ended; check its effect.",
            )
        return Report(
            False,
            f"Engine {self._name!r} returned no usable report on job {self._engine_job_id}: {update.problem}. "
            "It is not known how the responder ended; check that server.",
        )

    async def _pause(self, update: JobUpdate, *, is_quick: bool) -> bool:
        """Wait before the next poll. False after the deadline."""
        if update.kind in ("missing", "unusable", "busy"):
            return await self._deadline.pause(update.retry_after_s)
        self._deadline.reset()
        limit = self._deadline
        if update.kind == "waiting" and not self._running:
            # The job is queued on the server: the deadline counts from the start of its program, or until it answers.
            self._deadline.set_limit(min(self._deadline_minutes * 60, self._queueing.left_s))
            limit = self._queueing
        return await limit.sleep(self._timing.quick_poll_s if is_quick else 0)

    def _timed_out(self) -> Report:
        sentence = f"Timed out after {self._deadline_minutes:g} minutes."
        if self._queueing.left_s == 0 and not self._running:
            sentence = f"Engine {self._name!r} had not started it after {self._timing.waiting_limit_s / 3600:g} hours."
        problem = f" The engine's last problem: {self._last_problem}." if self._last_problem else ""
        return Report(False, f"{sentence} The responder may still run on engine {self._name!r}.{problem}")
