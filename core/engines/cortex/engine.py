"""The remote engine: starts a job on a Cortex server once, finds it again after a lost answer, and follows it."""

import asyncio
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from core.common.errors import ResponderBotError
from core.common.tasks import Backoff
from core.engines.base import Catalogue, Engine, Job, OnProgress, Progress, Report
from core.engines.cortex.http import CortexAnswer, CortexHttp, NoAnswer
from core.engines.cortex.translate import (
    JobUpdate,
    describe_refusal,
    find_job,
    label_of,
    parse_catalogue,
    parse_id,
    parse_update,
)
from core.models import KINDS

# --- when and for how long calls are repeated -------------------------------------------------------------------------


@dataclass(frozen=True)
class PollTiming:
    """Pauses, lengths and limits of the calls to a remote engine, in seconds."""

    backoff: Backoff = Backoff(0.5, 15)  # noqa: RUF009 - frozen
    """After failed calls, and between searches for a lost job. The server's index lags about a second behind."""
    searches: int = 6
    """How often a lost job is looked for."""
    start_s: float = 60
    """How long starting a job is retried while the server can't be reached or limits its rate."""
    retry_after_s: float = 60
    """The longest `Retry-After` that is respected."""
    waiting_poll_s: int = 2
    """Length of a long poll while the job waits. It is short because the server answers only when the job has ended,
    not when it starts, and people want to see that it runs."""
    running_poll_s: int = 30
    """Length of a long poll while the job runs."""
    quick_poll_s: float = 0.5
    """Pause after a long poll that returned at once, as some versions do for a waiting job."""
    waiting_limit_s: float = 24 * 3600
    """A job that the server has not started by then is given up."""


class Deadline:
    """A deadline, and growing pauses until then."""

    def __init__(self, limit_s: float, timing: PollTiming) -> None:
        self.set_limit(limit_s)
        self._timing = timing
        self._failures = 0

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; 0 after it."""
        return max(0.0, self._deadline - time.monotonic())

    def set_limit(self, limit_s: float) -> None:
        """Move the deadline to `limit_s` from now."""
        self._deadline = time.monotonic() + limit_s

    def reset(self) -> None:
        """Begin with the shortest pause again, after a call that succeeded."""
        self._failures = 0

    async def pause(self, retry_after_s: float | None = None) -> bool:
        """Wait before a retry: as long as the server asked (bounded), else the next pause. False after the deadline."""
        self._failures += 1
        pause_s = self._timing.backoff.after(self._failures)
        return await self.sleep(pause_s if retry_after_s is None else min(retry_after_s, self._timing.retry_after_s))

    async def sleep(self, seconds: float) -> bool:
        """Wait, at most until the deadline. False after the deadline."""
        await asyncio.sleep(min(seconds, self.left_s))
        return self.left_s > 0


# --- the engine -------------------------------------------------------------------------------------------------------


class CortexEngine(Engine):
    """The engine described in core/docs/responder-process.md#remote-cortex-engines."""

    def __init__(
        self,
        name: str,
        *,
        url: str,
        api_key: str,
        proxy: str = "",
        ca_file: Path | None = None,
        timeout_s: float = 10.0,
        deadline_minutes: float = 30,
        timing: PollTiming = PollTiming(),
    ) -> None:
        """`proxy` is a URL, `ca_file` a private CA in PEM form.

        `timeout_s` bounds each call, `deadline_minutes` a job from the start of its program. Raises
        ResponderBotError("bad_request") for settings that can't work.
        """
        self._name = name
        self._url = url
        self._http = CortexHttp(
            name,
            url=url,
            api_key=api_key,
            proxy=proxy,
            ca_file=ca_file,
            timeout_s=timeout_s,
        )
        self._timeout_s = timeout_s
        self._deadline_minutes = deadline_minutes
        self._timing = timing

    def __repr__(self) -> str:
        return f"CortexEngine({self._name!r}, url={self._url!r})"

    @property
    def name(self) -> str:
        return self._name

    async def catalogue(self) -> Catalogue:
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._http.call("POST", "responder/_search", {"query": {}, "range": "all"})
                if answer.status in (404, 405):
                    return parse_catalogue(await self._entries_by_kind())
                return parse_catalogue(self._require_list(answer))
        except TimeoutError:
            raise self._unavailable(f"returned no list of responders within {self._timeout_s:g} s") from None
        except NoAnswer as lost:
            raise self._unavailable(f"can't be reached: {lost.reason}") from lost

    async def run(self, job: Job, on_progress: OnProgress) -> Report:
        engine_job_id = job.engine_job_id
        if not engine_job_id:
            result = await (self._find(job, "core was restarted meanwhile") if job.resumed else self._start(job))
            if isinstance(result, Report):
                return result
            engine_job_id = result
            await on_progress(Progress(engine_job_id))
        return await JobPoller(
            self._name, self._http, engine_job_id, on_progress, self._timing, self._deadline_minutes
        ).poll()

    async def cancel(self, job: Job) -> None:
        raise ResponderBotError(
            "conflict",
            f"Engine {self._name!r} is remote and can't stop a responder once it has it. "
            "Wait for its end, or stop it on that server.",
        )

    async def close(self) -> None:
        await self._http.close()

    async def _entries_by_kind(self) -> list[Any]:
        """For versions without the search. A responder for several kinds is listed several times."""
        entries: dict[str, Any] = {}
        for kind in KINDS:
            answer = await self._http.call("GET", f"responder/type/thehive:{kind}")
            for entry in self._require_list(answer):
                entries.setdefault(parse_id(entry) or f"?{len(entries)}", entry)
        return list(entries.values())

    def _require_list(self, answer: CortexAnswer) -> list[Any]:
        if answer.status in (401, 403):
            raise ResponderBotError("unavailable", describe_refusal(self._name, answer, "list responders"))
        if not answer.ok:
            raise self._unavailable(f"answered {answer.status} when asked for its responders. {answer.message}")
        if not isinstance(answer.body, list):
            raise self._unavailable(
                "returned no list of responders" + (f": {answer.problem}" if answer.problem else "")
            )
        return answer.body

    async def _start(self, job: Job) -> str | Report:
        """Start the job at most once: retry only if the server certainly has not received it. Returns its id."""
        deadline = Deadline(self._timing.start_s, self._timing)
        path = f"responder/{quote(job.responder_id, safe='')}/run"
        while True:
            retry_after_s = None
            try:
                answer = await self._http.call("POST", path, {"label": label_of(job), **job.input()})
            except NoAnswer as lost:
                if lost.sent:
                    return await self._find(job, lost.reason)
                why = f"Engine {self._name!r} can't be reached: {lost.reason}. Nothing was started; try again later."
            else:
                if answer.status != 429:
                    return await self._started_id(job, answer)
                why = f"Engine {self._name!r} accepts no more runs now, so nothing was started. {answer.message}"
                retry_after_s = answer.retry_after_s
            if not await deadline.pause(retry_after_s):
                return Report(False, why.strip())

    async def _started_id(self, job: Job, answer: CortexAnswer) -> str | Report:
        if answer.ok or answer.status >= 500:
            job_id = parse_id(answer.body) if answer.ok else ""
            return job_id or await self._find(job, f"it answered {answer.status} without a job")
        if answer.status == 404:
            return Report(
                False,
                f"Engine {self._name!r} no longer knows responder {job.responder_name}. "
                "Nothing was started; enable the responder there.",
            )
        return Report(
            False, describe_refusal(self._name, answer, f"run {job.responder_name}") + " Nothing was started."
        )

    async def _find(self, job: Job, why: str) -> str | Report:
        """Search for a job by its label, when the answer to its start was lost. It is never started again."""
        deadline = Deadline(self._deadline_minutes * 60, self._timing)
        for failures in range(self._timing.searches):
            if failures and not await deadline.sleep(self._timing.backoff.after(failures)):
                break
            listed = await self._search(job, deadline)
            if isinstance(listed, str):
                why = f"{why}; {listed}"
                break
            if job_id := find_job(listed, job):
                return job_id
        return Report(False, f"{self._describe_lost_job(job)} ({why.rstrip('.')}.)")

    async def _search(self, job: Job, deadline: Deadline) -> list[Any] | str:
        """The jobs with its label, after retries; or why the server doesn't list them."""
        query = {"query": {"_field": "label", "_value": label_of(job)}, "range": "0-20", "sort": ["-createdAt"]}
        problem, unusable = "", 0
        while unusable < MAX_UNUSABLE:
            retry_after_s = None
            try:
                answer = await self._http.call("POST", "job/_search", query)
            except NoAnswer as lost:
                problem = lost.reason
            else:
                if answer.ok and isinstance(answer.body, list):
                    return answer.body
                if answer.is_refusal:
                    return describe_refusal(self._name, answer, "search jobs")
                problem = answer.problem or f"it answered the search with {answer.status}"
                retry_after_s = answer.retry_after_s
                unusable += answer.ok
            if not await deadline.pause(retry_after_s):
                break
        return problem

    def _describe_lost_job(self, job: Job) -> str:
        return (
            f"It is not known whether {job.responder_name} ran on engine {self._name!r}: the answer to the call was "
            f"lost, and no job with the label {label_of(job)} was found there. It was not started again; "
            "check its effect, and run it again if that is missing."
        )

    def _unavailable(self, what: str) -> ResponderBotError:
        return ResponderBotError("unavailable", f"Engine {self._name!r} {what.strip().rstrip('.')}.")


# --- following a job by long polls, until it ends or reaches core's own deadline --------------------------------------


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
