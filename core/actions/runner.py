"""Dispatches accepted actions to their engines and follows each to its end, also those of a core that died."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import structlog

from core.actions.lifecycle import LEASE_MS, Lifecycle
from core.actions.offers import Offers
from core.common import leases
from core.common.clock import Clock
from core.common.database import Database, Row, Transaction
from core.common.errors import ResponderBotError
from core.engines.base import Engine, Job, Progress, Report
from core.store import actions as stored

T = TypeVar("T")
log = structlog.get_logger()

TICK_S = LEASE_MS / 3000  # a lease is renewed three times before it could end
STOP_WAIT_S = 2.0  # a killed responder usually ends within this, so the answer shows its end
STORE_RETRY_S = 1.0  # between attempts to store an end while the store can't be written

_INTERNAL_ERROR = Report(
    False, message="Core had an internal error; its log has the details. Look at the target before you run it again."
)


class EngineQueue:
    """The free slots of one engine, and the actions that wait for one, oldest first."""

    def __init__(self, slots: int) -> None:
        self.free = slots
        self.waiting: OrderedDict[int, None] = OrderedDict()


class Runner:
    """Runs the actions whose lease this process holds, one task for each that has a slot on its engine."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        offers: Offers,
        database: Database,
        clock: Clock,
        *,
        tick_s: float = TICK_S,
    ) -> None:
        self._lifecycle = lifecycle
        self._offers = offers
        self._database = database
        self._clock = clock
        self._tick_s = tick_s
        self._holder = lifecycle.holder
        self._following: dict[int, asyncio.Task[None]] = {}
        self._job_id_known: dict[int, asyncio.Event] = {}
        self._keep_job_files: set[int] = set()
        self._queues = {
            state.engine.name: EngineQueue(state.engine.capacity)
            for state in offers.states()
            if state.engine.capacity is not None
        }
        self._is_closed = False
        self._ticking: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Clean up after an earlier core, take over its actions, then look for more at intervals."""
        for state in self._offers.states():
            await state.engine.clean_up_ended(self._open_action_ids)
        await self.tick()
        # Two tasks: looking for actions may have to wait for long searches, the lease may not.
        self._ticking = [asyncio.create_task(self._repeat(job)) for job in (self._renew, self._adopt_and_expire)]

    async def _open_action_ids(self) -> list[str]:
        return [f"~{number}" for number in await self._database.read(stored.open_ids)]

    async def close(self) -> None:
        """Stop following; running jobs go on, and the next core takes over."""
        self._is_closed = True
        tasks = [*self._following.values(), *self._ticking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(ResponderBotError):
            await self._database.transaction(lambda tx: stored.release_lease(tx, self._holder))

    def accept(self, number: int, engine_name: str) -> None:
        """Queue a recorded action, whose lease this process holds, for a slot on its engine."""
        self._queue(number, engine_name, is_dispatched=False)

    def take_slot(self, engine_name: str) -> EngineQueue | None:
        """A free slot of an engine, for an action that is dispatched as it is recorded; None if it has none to give.

        Pass it to `follow` or `return_slot`.
        """
        queue = self._queues.get(engine_name)
        if queue is None or not queue.free or queue.waiting or self._is_closed:
            return None
        queue.free -= 1
        return queue

    def return_slot(self, engine_name: str, slot: EngineQueue) -> None:
        """Give a slot that was not needed to the next that waits."""
        slot.free += 1
        self._start_waiting(slot, engine_name)

    def follow(self, number: int, engine_name: str, slot: EngineQueue, job: Job | Report) -> None:
        """Follow an action that was dispatched as it was recorded."""
        if self._is_closed or self._is_followed(number):  # a tick may have found it first
            self.return_slot(engine_name, slot)
        else:
            self._following[number] = asyncio.create_task(self._follow(number, engine_name, slot, job))

    async def stop(self, number: int) -> None:
        """Have the engine stop a dispatched action, and wait a moment for its end.

        Raises ResponderBotError("conflict") if the engine can't stop it.
        """
        engine_name, job = await self._lifecycle.running_job(number)
        await self._offers.engine(engine_name).cancel(job)
        task = self._following.get(number)
        if task is not None:
            await asyncio.wait([task], timeout=STOP_WAIT_S)

    async def wait_for_job_id(self, number: int, timeout_s: float) -> None:
        """Return once the engine has given its job id, at the action's end, or after the timeout."""
        if self._is_followed(number):
            known = self._job_id_known.setdefault(number, asyncio.Event())
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await known.wait()

    def followed(self) -> int:
        """The number of actions that this process follows, with those that wait for a slot."""
        return len(self._following) + sum(len(queue.waiting) for queue in self._queues.values())

    async def tick(self) -> None:
        """Renew the lease, take over the actions of dead cores, end actions whose approval expired."""
        await self._renew()
        await self._adopt_and_expire()

    async def _renew(self) -> None:
        if self.followed():
            until = self._clock() + LEASE_MS
            await self._database.transaction(lambda tx: stored.renew_lease(tx, self._holder, until))

    async def _adopt_and_expire(self) -> None:
        for row in await self._database.fetch_in_background(stored.LEASE_HOLDERS):
            if row["id"] != self._holder:
                await self._take_over(row["id"])
        for row in await self._database.fetch_in_background(stored.HELD_IDS, {"holder": self._holder}):
            if not self._is_followed(row["id"]):  # its task failed, or its client hung up while it was committed
                action = await self._database.read(partial(stored.find, action_id=row["id"]))
                if action is not None and action["owner"] == self._holder:
                    self._queue(row["id"], action["engine_name"], is_dispatched=action["dispatched_at"] is not None)
        for number in await self._database.read(lambda reads: stored.approvals_due(reads, self._clock())):
            await self._lifecycle.expire(number)

    def _is_followed(self, number: int) -> bool:
        return number in self._following or any(number in queue.waiting for queue in self._queues.values())

    def _queue(self, number: int, engine_name: str, *, is_dispatched: bool) -> None:
        """Follow an action once its engine has a slot; at once if an earlier core dispatched it, as it may run already.

        Thousands may wait, so a queued action is a number and not a task.
        """
        if self._is_closed or self._is_followed(number):
            return
        queue = self._queues.get(engine_name)
        if queue is None or (is_dispatched and not queue.free):
            self._following[number] = asyncio.create_task(self._follow(number, engine_name, None))
        else:
            queue.waiting[number] = None
            self._start_waiting(queue, engine_name)

    def _start_waiting(self, queue: EngineQueue, engine_name: str) -> None:
        while queue.free and queue.waiting and not self._is_closed:
            queue.free -= 1
            number, _ = queue.waiting.popitem(last=False)
            self._following[number] = asyncio.create_task(self._follow(number, engine_name, queue))

    async def _take_over(self, old_holder: str) -> None:
        is_dead, now = leases.is_dead(old_holder), self._clock()
        until = await self._database.read(lambda reads: stored.lease_until(reads, old_holder))
        if not leases.is_over(old_holder, until, now):
            return

        def work(tx: Transaction) -> list[Row]:
            if not leases.is_over(old_holder, stored.lease_until(tx, old_holder), now):
                return []  # it has renewed its lease
            stored.release_lease(tx, old_holder)
            taken = stored.take_over(tx, old_holder, self._holder)
            if taken:  # or a third core would take them in turn, before our next tick
                stored.renew_lease(tx, self._holder, now + LEASE_MS)
            return taken

        for row in await self._database.transaction(work):
            log.info("action_taken_over", action_id=f"~{row['id']}", from_holder=old_holder)
            if not is_dead:
                self._keep_job_files.add(row["id"])
            self._queue(row["id"], row["engine_name"], is_dispatched=row["dispatched_at"] is not None)

    async def _follow(
        self, number: int, engine_name: str, queue: EngineQueue | None, job: Job | Report | None = None
    ) -> None:
        """Follow an action to its end; `queue` is the one whose slot it has taken, if it needed one.

        `job` is what its dispatch gave, if it was dispatched already.
        """
        try:
            await self._run(number, engine_name, job)
        except Exception:
            log.exception("action_follow_failed", action_id=f"~{number}")
            await self._apply_report(number, _INTERNAL_ERROR)
        finally:
            del self._following[number]
            known = self._job_id_known.pop(number, None)
            if known is not None:
                known.set()  # there will be no job id any more: nobody should wait for it
            if queue is not None:
                self.return_slot(engine_name, queue)

    async def _run(self, number: int, engine_name: str, job: Job | Report | None) -> None:
        try:
            engine = self._offers.engine(engine_name)
        except ResponderBotError as error:
            await self._apply_report(
                number, Report(False, message=f"{error.message}; it is no longer in the settings.")
            )
            return
        if job is None:
            job = await _retry_until_writable(lambda: self._lifecycle.dispatch(number))
        if job is None:
            return
        if isinstance(job, Report):
            await self._apply_report(number, job)
            return
        is_reported = job.resumed and await self._lifecycle.has_stored_report(number)
        report = None if is_reported else await self._run_job(engine, number, job)
        if await self._apply_report(number, report):
            await self._clean_up(engine, number, job)  # otherwise another core follows it and needs the job's files

    async def _run_job(self, engine: Engine, number: int, job: Job) -> Report:
        async def on_progress(progress: Progress) -> None:
            await self._lifecycle.progress(number, progress)
            known = self._job_id_known.get(number)
            if known is not None and progress.engine_job_id:
                known.set()

        if job.resumed and await self._lifecycle.is_cancelled(number):
            try:  # an earlier core didn't finish that
                await engine.cancel(job)
            except ResponderBotError:
                await self._lifecycle.withdraw_cancel(number)
        try:
            return await engine.run(job, on_progress)
        except Exception:
            log.exception("engine_failed", action_id=job.action_id, engine=engine.name)
            message = f"The engine {engine.name} had an internal error; core's log has the details."
            return Report(False, message=f"{message} Look at the target before you run it again.")

    async def _clean_up(self, engine: Engine, number: int, job: Job) -> None:
        """Have the engine clean up after the job, unless it was taken over from a core that is still alive.

        That core may only have been suspended; without the job's files it would run the job again. The next
        start removes them.
        """
        if number in self._keep_job_files:
            self._keep_job_files.discard(number)
        else:
            await engine.clean_up(job.action_id)

    async def _apply_report(self, number: int, report: Report | None) -> bool:
        """Store the end; False if the action isn't this process's to end."""
        return await _retry_until_writable(lambda: self._lifecycle.apply_report(number, report))

    async def _repeat(self, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            try:
                await job()
            except ResponderBotError as error:
                log.warning("lease_tick_failed", reason=error.message)
            except Exception:  # without ticks all actions would be lost to another core
                log.exception("lease_tick_failed")


async def _retry_until_writable(change: Callable[[], Awaitable[T]]) -> T:
    """Make a change, again until the store can be written: what it records has already happened."""
    while True:
        try:
            return await change()
        except ResponderBotError as error:
            if error.code != "unavailable":
                raise
            log.warning("store_not_writable", reason=error.message)
            await asyncio.sleep(STORE_RETRY_S)
