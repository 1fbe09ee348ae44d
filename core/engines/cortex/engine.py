"""The remote engine: starts a job on a Cortex server once, finds it again after a lost answer, and follows it."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

from core.common.errors import ResponderBotError
from core.engines.base import Catalogue, Engine, Job, OnProgress, Progress, Report
from core.engines.cortex.http import CortexAnswer, CortexHttp, NoAnswer
from core.engines.cortex.job_poller import MAX_UNUSABLE, JobPoller
from core.engines.cortex.timing import Deadline, PollTiming
from core.engines.cortex.translate import describe_refusal, find_job, label_of, parse_catalogue, parse_id
from core.models import KINDS


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
        timing: PollTiming = PollTiming(),  # noqa: B008 - frozen
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
