"""The remote engine: starts a job on a Cortex server once, finds it again if need be, and follows it to its end."""

import asyncio
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from urllib.parse import quote

from core.common.errors import ResponderBotError
from core.engines.base import Catalogue, Job, OnProgress, Progress, Report
from core.engines.cortex.backoff import Backoff, PollInterval
from core.engines.cortex.http import ANSWER_LIMIT_BYTES, CortexAnswer, CortexHttp, NoAnswer
from core.engines.cortex.job_poller import JobPoller
from core.engines.cortex.translate import catalogue_of, find_ours, job_id_of, refusal, run_body

KINDS = ("alert", "case", "case_task", "case_task_log", "case_artifact")


class CortexEngine:
    """Cortex 3 or 4 at `url` (`responder-process.md 4`). `proxy` is a URL, `ca_file` a private CA in PEM form.

    `timeout_s` bounds each call, `deadline_minutes` a job from its start (`semantics.md 5`). Raises
    ResponderBotError("bad_request") for settings that can't work.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str,
        api_key: str,
        proxy: str = "",
        ca_file: Path | None = None,
        timeout_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        deadline_minutes: float = 30,
        pace: PollInterval = PollInterval(),  # noqa: B008 - frozen
        product: str = "thehive",
        answer_limit_bytes: int = ANSWER_LIMIT_BYTES,
    ) -> None:
        self._name = name
        self._url = url
        self._wire = CortexHttp(
            name,
            url=url,
            api_key=api_key,
            proxy=proxy,
            ca_file=ca_file,
            timeout_s=timeout_s,
            answer_limit_bytes=answer_limit_bytes,
        )
        self._timeout_s = timeout_s
        self._clock = clock
        self._deadline_minutes = deadline_minutes
        self._pace = pace
        self._product = product

    def __repr__(self) -> str:
        return f"CortexEngine({self._name!r}, url={self._url!r})"

    @property
    def name(self) -> str:
        return self._name

    @property
    def capacity(self) -> int | None:
        """It queues by itself, without a bound that it would tell."""
        return None

    async def catalogue(self) -> Catalogue:
        try:
            async with asyncio.timeout(self._timeout_s):
                return catalogue_of(await self._entries())
        except TimeoutError:
            raise self._unavailable(f"gave no list of responders within {self._timeout_s:g} s") from None
        except NoAnswer as lost:
            raise self._unavailable(f"can't be reached: {lost.reason}") from lost

    def job_id(self, action_id: str) -> str:
        return ""

    async def run(self, job: Job, on_progress: OnProgress) -> Report:
        engine_job_id = job.engine_job_id
        if not engine_job_id:
            begun = await (self._find(job, "core was restarted meanwhile") if job.resumed else self._start(job))
            if isinstance(begun, Report):
                return begun
            engine_job_id = begun
            await on_progress(Progress(engine_job_id))
        return await JobPoller(
            self._name, self._wire, engine_job_id, on_progress, self._clock, self._pace, self._deadline_minutes
        ).to_the_end()

    async def cancel(self, job: Job) -> None:
        raise ResponderBotError(
            "conflict",
            f"Engine {self._name!r} is remote and can't stop a responder once it has it. "
            "Wait for its end, or stop it on that server.",
        )

    async def clean_up(self, action_id: str) -> None:
        """Nothing of a remote job is kept here."""

    async def sweep(self, open_action_ids: Callable[[], Collection[str]]) -> None:
        """Nothing either."""

    async def close(self) -> None:
        await self._wire.close()

    async def _entries(self) -> list[Any]:
        answer = await self._wire.call("POST", "responder/_search", {"query": {}, "range": "all"})
        if answer.status in (404, 405):
            return await self._entries_by_kind()
        return self._list_in(answer)

    async def _entries_by_kind(self) -> list[Any]:
        """The call of versions that have no search; a responder for several kinds comes several times."""
        entries: dict[str, Any] = {}
        for kind in KINDS:
            answer = await self._wire.call("GET", f"responder/type/{self._product}:{kind}")
            for entry in self._list_in(answer):
                entries.setdefault(job_id_of(entry) or f"?{len(entries)}", entry)
        return list(entries.values())

    def _list_in(self, answer: CortexAnswer) -> list[Any]:
        if answer.status in (401, 403):
            raise ResponderBotError("unavailable", refusal(self._name, answer, "list responders"))
        if not answer.ok:
            raise self._unavailable(f"answers {answer.status} to the question for its responders. {answer.message}")
        if not isinstance(answer.body, list):
            raise self._unavailable("gives no list of responders" + (f": {answer.flaw}" if answer.flaw else ""))
        return answer.body

    async def _start(self, job: Job) -> str | Report:
        """Hand the job over, at most once. Asked again only where the engine surely has not taken it."""
        patience = Backoff(self._clock, self._pace.start_s, self._pace)
        path = f"responder/{quote(job.responder_id, safe='')}/run"
        while True:
            asked_s = None
            try:
                answer = await self._wire.call("POST", path, run_body(job))
            except NoAnswer as lost:
                if lost.sent:
                    return await self._find(job, lost.reason)
                why = f"Engine {self._name!r} can't be reached: {lost.reason}. Nothing was started; try again later."
            else:
                if answer.status != 429:
                    return await self._begun(job, answer)
                why = f"Engine {self._name!r} takes no more runs for now, so nothing was started. {answer.message}"
                asked_s = answer.retry_after_s
            if not await patience.pause(asked_s):
                return Report(False, why.strip())

    async def _begun(self, job: Job, answer: CortexAnswer) -> str | Report:
        if answer.ok or answer.status >= 500:
            found = job_id_of(answer.body) if answer.ok else ""
            return found or await self._find(job, f"it answered {answer.status} without a job")
        if answer.status == 404:
            return Report(
                False,
                f"Engine {self._name!r} does not know responder {job.responder_name} any more: the engine forgot it. "
                "Nothing was started; enable the responder there.",
            )
        return Report(False, refusal(self._name, answer, f"run {job.responder_name}") + " Nothing was started.")

    async def _find(self, job: Job, why: str) -> str | Report:
        """Look for a job whose id is not known, by its label. It is never started again (`responder-process.md 4`)."""
        patience = Backoff(self._clock, self._deadline_minutes * 60, self._pace)
        for pause_s in (*self._pace.search_s, 0):
            listed = await self._labelled(job, patience)
            if isinstance(listed, str):
                why = f"{why}; {listed}"
                break
            if found := find_ours(listed, job):
                return found
            if not await patience.rest(pause_s):
                break
        return Report(False, f"{self._unknown(job)} ({why.rstrip('.')}.)")

    async def _labelled(self, job: Job, patience: Backoff) -> list[Any] | str:
        """The jobs with its label, asked for until the engine lists them; else why it never did."""
        query = {"query": {"_field": "label", "_value": job.action_id}, "range": "0-20", "sort": ["-createdAt"]}
        trouble, rubbish = "", 0
        while rubbish <= len(self._pace.backoff_s):
            asked_s = None
            try:
                answer = await self._wire.call("POST", "job/_search", query)
            except NoAnswer as lost:
                trouble = lost.reason
            else:
                if answer.ok and isinstance(answer.body, list):
                    return answer.body
                if answer.refused:
                    return refusal(self._name, answer, "search jobs")
                trouble, asked_s = answer.flaw or f"it answers {answer.status} to the search", answer.retry_after_s
                rubbish += answer.ok
            if not await patience.pause(asked_s):
                break
        return trouble

    def _unknown(self, job: Job) -> str:
        return (
            f"It is not known whether {job.responder_name} ran on engine {self._name!r}: no answer to the call came "
            f"back, and no job with the label {job.action_id} was found there. It was not started again; "
            "look at its effect, then run it anew if it is missing."
        )

    def _unavailable(self, what: str) -> ResponderBotError:
        return ResponderBotError("unavailable", f"Engine {self._name!r} {what.strip().rstrip('.')}.")
