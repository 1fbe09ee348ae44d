"""A fake Cortex server over real HTTP, with the life cycle of its jobs and with faults on demand."""

import asyncio
import json
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from tests.ports import free_port

JsonObject = Mapping[str, Any]
Operation = Literal["search_responders", "responders_of_kind", "responder", "run", "wait", "job", "search_jobs"]
Status = Literal["Waiting", "InProgress", "Success", "Failure", "Deleted"]
ENDED = ("Success", "Failure", "Deleted")

BLOCKER: JsonObject = {
    "id": "5b2a5b6e9c", "name": "Blocker_1_0", "version": "1.0", "workerDefinitionId": "Blocker_1_0",
    "description": "Blocks an address", "dataTypeList": ["thehive:alert", "thehive:case_artifact"],
}  # fmt: skip


@dataclass(frozen=True)
class Reply:
    """Send this answer instead."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    """Sent unchanged in place of `body`."""


@dataclass(frozen=True)
class CutConnection:
    """Abort the connection before an answer, or after some bytes of its body.

    With `done` the call takes effect first, so only its answer is lost.
    """

    after_bytes: int | None = None
    done: bool = False


@dataclass(frozen=True)
class DelayedAnswer:
    """Answer only when `until` is set; with `done` the call takes effect before."""

    until: asyncio.Event
    done: bool = False


Fault = Reply | CutConnection | DelayedAnswer


@dataclass
class FakeJob:
    id: str
    worker: JsonObject
    body: JsonObject
    """The body of the run call."""
    status: Status = "Waiting"
    created_ms: int = 0
    start_ms: int | None = None
    report: Any = "Waiting"
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    hidden: bool = False
    """Not indexed yet, so that searches do not find it."""

    def to_json(self) -> dict[str, Any]:
        job = {
            "_type": "job", "_id": self.id, "id": self.id, "workerId": self.worker["id"],
            "workerName": self.worker["name"], "workerDefinitionId": self.worker.get("workerDefinitionId"),
            "status": self.status, "date": self.created_ms, "createdAt": self.created_ms, "organization": "soc",
            "type": "responder", "dataType": self.body.get("dataType"), "data": self.body.get("data"),
            "tlp": self.body.get("tlp"), "pap": self.body.get("pap"), "message": self.body.get("message", ""),
            "parameters": self.body.get("parameters", {}), "label": self.body.get("label"),
        }  # fmt: skip
        return job if self.start_ms is None else job | {"startDate": self.start_ms}


@dataclass(frozen=True)
class Call:
    operation: str
    path: str
    query: Mapping[str, str]
    body: Any
    authorization: str


class FakeCortex:
    """A server for an engine with this `url`. Tests drive its jobs, or pass `drive_job`, which drives each new job.

    `behave(operation, fault, ...)` queues faults for the next calls; `always(operation, fault)` applies to all calls.
    """

    def __init__(
        self,
        *,
        api_key: str = "cortex-key-for-tests",
        responders: list[JsonObject] | None = None,
        drive_job: Callable[["FakeCortex", FakeJob], Awaitable[None]] | None = None,
        has_search: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.api_key = api_key
        self.responders = [BLOCKER] if responders is None else responders
        self.jobs: dict[str, FakeJob] = {}
        self.calls: list[Call] = []
        self.url = ""
        self.drive_job = drive_job
        self.has_search = has_search
        self._clock = clock
        self._faults: dict[str, deque[Fault]] = {}
        self._always: dict[str, Fault] = {}
        self._called = asyncio.Condition()
        self._playing: set[asyncio.Task[None]] = set()
        self._runner: web.AppRunner | None = None

    # The server

    async def start(self, host: str = "127.0.0.1", port: int = 0, ssl_context: ssl.SSLContext | None = None) -> None:
        """Serve at this port, or at one that is kept for the next start."""
        app = web.Application()
        app.add_routes(
            [
                web.post("/api/responder/_search", self._handler("search_responders", self._search_responders)),
                web.get("/api/responder/type/{kind}", self._handler("responders_of_kind", self._of_kind)),
                web.get("/api/responder/{id}", self._handler("responder", self._responder)),
                web.post("/api/responder/{id}/run", self._handler("run", self._run)),
                web.post("/api/job/_search", self._handler("search_jobs", self._search_jobs)),
                web.get("/api/job/{id}", self._handler("job", self._job)),
                web.get("/api/job/{id}/waitreport", self._handler("wait", self._wait)),
                web.delete("/api/job/{id}", self._handler("delete", self._delete)),
                web.get("/api/status", self._status),
            ]
        )
        # A hanging call must not hold up the end of a test.
        self._runner = web.AppRunner(app, shutdown_timeout=0.05, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port or free_port(), ssl_context=ssl_context, backlog=1024)
        await site.start()
        bound = self._runner.addresses[0][1]
        self.url = f"{'https' if ssl_context else 'http'}://{host}:{bound}"

    async def stop(self) -> None:
        for task in self._playing:
            task.cancel()
        await asyncio.gather(*self._playing, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    async def restart(self) -> None:
        """Do what Cortex does: waiting jobs run again, running ones stay InProgress for ever."""
        for task in self._playing:
            task.cancel()
        await asyncio.gather(*self._playing, return_exceptions=True)
        for job in self.jobs.values():
            if job.status == "Waiting":
                self._play(job)

    # The life cycle of a job

    async def begin(self, job_id: str) -> None:
        self.jobs[job_id].start_ms = int(self._clock() * 1000)
        await self._change(job_id, "InProgress", "Running")

    async def succeed(self, job_id: str, full: Any = None, **more: Any) -> None:
        report: dict[str, Any] = {
            "summary": {"taxonomies": []},
            "full": full if full is not None else {"message": "done"},
        }
        await self._change(job_id, "Success", {**report, "success": True, "artifacts": [], "operations": [], **more})

    async def fail(self, job_id: str, error_message: Any, returned: JsonObject | None = None) -> None:
        """Cortex stores `input` as text."""
        text = None if returned is None else json.dumps(returned)
        await self._change(job_id, "Failure", {"errorMessage": error_message, "input": text, "success": False})

    async def remove(self, job_id: str) -> None:
        await self._change(job_id, "Deleted", "Deleted")

    async def say(self, job_id: str, status: Status, report: Any) -> None:
        """Set any status and report."""
        await self._change(job_id, status, report)

    def forget(self, job_id: str) -> None:
        del self.jobs[job_id]

    def seed(self, body: JsonObject, worker: JsonObject = BLOCKER, status: Status = "Waiting") -> FakeJob:
        job = FakeJob(f"AXj{len(self.jobs):04}", worker, body, status, int(self._clock() * 1000))
        self.jobs[job.id] = job
        return job

    # Observing and waiting

    def count(self, operation: Operation) -> int:
        return sum(call.operation == operation for call in self.calls)

    async def until(self, operation: Operation, times: int = 1) -> Call:
        """Wait for the given number of calls; returns the last of them."""
        async with self._called:
            await self._called.wait_for(lambda: self.count(operation) >= times)
        return [call for call in self.calls if call.operation == operation][times - 1]

    async def until_job(self, count: int = 1) -> FakeJob:
        """Wait until there are so many jobs; returns the last of them."""
        async with self._called:
            await self._called.wait_for(lambda: len(self.jobs) >= count)
        return list(self.jobs.values())[-1]

    def behave(self, operation: Operation, *faults: Fault) -> None:
        self._faults.setdefault(operation, deque()).extend(faults)

    def always(self, operation: Operation, fault: Fault | None) -> None:
        if fault is None:
            self._always.pop(operation, None)
        else:
            self._always[operation] = fault

    # The operations

    async def _search_responders(self, request: web.Request, body: Any) -> web.Response:
        if not self.has_search:
            return _error(404, "NotFound", "no such route")
        return web.json_response(self.responders, headers={"X-Total": str(len(self.responders))})

    async def _of_kind(self, request: web.Request, body: Any) -> web.Response:
        kind = request.match_info["kind"]
        return web.json_response([one for one in self.responders if kind in one["dataTypeList"]])

    async def _responder(self, request: web.Request, body: Any) -> web.Response:
        worker = self._worker(request.match_info["id"])
        return _error(404, "NotFoundError", "worker not found") if worker is None else web.json_response(worker)

    async def _run(self, request: web.Request, body: Any) -> web.Response:
        worker = self._worker(request.match_info["id"])
        if worker is None:
            return _error(404, "NotFoundError", "worker not found")
        if not isinstance(body, dict) or "dataType" not in body or "data" not in body:
            return _error(400, "AttributeCheckingError", "[Attribute dataType is missing]")
        job = self.seed(body, worker)
        self._play(job)
        async with self._called:
            self._called.notify_all()
        return web.json_response(job.to_json())

    async def _job(self, request: web.Request, body: Any) -> web.Response:
        job = self.jobs.get(request.match_info["id"])
        return _no_job(request) if job is None else web.json_response(job.to_json())

    async def _wait(self, request: web.Request, body: Any) -> web.Response:
        job = self.jobs.get(request.match_info["id"])
        if job is None:
            return _no_job(request)
        at_most_s = float(request.query.get("atMost", "60seconds").removesuffix("seconds"))
        async with job.changed:
            try:
                async with asyncio.timeout(at_most_s):
                    await job.changed.wait_for(lambda: job.status in ENDED)
            except TimeoutError:
                pass
        return web.json_response(job.to_json() | {"report": job.report})

    async def _delete(self, request: web.Request, body: Any) -> web.Response:
        if request.match_info["id"] not in self.jobs:
            return _no_job(request)
        await self.remove(request.match_info["id"])
        return web.Response(status=204)

    async def _search_jobs(self, request: web.Request, body: Any) -> web.Response:
        query = body.get("query") or {}
        found = [
            job.to_json()
            for job in self.jobs.values()
            if not job.hidden and job.status != "Deleted" and _matches(query, job.to_json())
        ]
        found.reverse()
        return web.json_response(found, headers={"X-Total": str(len(found))})

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response({"versions": {"Cortex": "4.1.0"}})

    # Helpers

    def _handler(
        self, operation: str, answer: Callable[[web.Request, Any], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            body = await request.json() if request.can_read_body else None
            authorization = request.headers.get("Authorization", "")
            await self._record(Call(operation, request.path, dict(request.query), body, authorization))
            if authorization != f"Bearer {self.api_key}":
                return _error(401, "AuthenticationError", "Authentication failure")
            queue = self._faults.get(operation)
            fault = queue.popleft() if queue else self._always.get(operation)
            return await self._with_fault(fault, request, lambda: answer(request, body))

        return handle

    async def _with_fault(
        self, fault: Fault | None, request: web.Request, answer: Callable[[], Awaitable[web.Response]]
    ) -> web.StreamResponse:
        if isinstance(fault, Reply):
            text = fault.raw if fault.raw is not None else json.dumps(fault.body).encode()
            return web.Response(status=fault.status, body=text, headers=fault.headers, content_type="application/json")
        if isinstance(fault, CutConnection):
            if fault.done:
                await answer()
            return await _cut(request, fault.after_bytes)
        if isinstance(fault, DelayedAnswer):
            response = await answer() if fault.done else None
            await fault.until.wait()
            return response or await answer()
        return await answer()

    async def _record(self, call: Call) -> None:
        async with self._called:
            self.calls.append(call)
            self._called.notify_all()

    async def _change(self, job_id: str, status: Status, report: Any) -> None:
        job = self.jobs[job_id]
        async with job.changed:
            job.status, job.report = status, report
            job.changed.notify_all()

    def _worker(self, worker_id: str) -> JsonObject | None:
        return next((one for one in self.responders if one["id"] == worker_id), None)

    def _play(self, job: FakeJob) -> None:
        if self.drive_job is None:
            return

        async def play(drive_job: Callable[["FakeCortex", FakeJob], Awaitable[None]]) -> None:
            await drive_job(self, job)

        task = asyncio.create_task(play(self.drive_job))
        self._playing.add(task)
        task.add_done_callback(self._playing.discard)


async def at_once(cortex: FakeCortex, job: FakeJob) -> None:
    """For `drive_job`: every job runs and succeeds at once."""
    await cortex.begin(job.id)
    await cortex.succeed(job.id)


def _matches(query: JsonObject, job: JsonObject) -> bool:
    if "_and" in query:
        return all(_matches(part, job) for part in query["_and"])
    return "_field" not in query or job.get(query["_field"]) == query.get("_value")


def _error(status: int, kind: str, message: str) -> web.Response:
    return web.json_response({"type": kind, "message": message}, status=status)


def _no_job(request: web.Request) -> web.Response:
    return _error(404, "NotFoundError", f"job {request.match_info['id']} not found")


async def _cut(request: web.Request, after_bytes: int | None) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "100000"})
    if after_bytes is not None:
        await response.prepare(request)
        await response.write(b'{"id":"' + b"x" * after_bytes)
    if request.transport is not None:
        request.transport.abort()
    return response
