"""Dispatches accepted actions to their engines and follows each to its end, including those of a dead core."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import structlog

from core.actions.lifecycle import Lifecycle
from core.common import leases
from core.common.database import Database, Row
from core.common.errors import ResponderBotError
from core.common.tasks import STORE_RETRY, cancel_and_wait, repeat, until_stored
from core.engines.base import Engine, Job, Progress, Report
from core.hosts import LEASE_MS, Hosts
from core.models import OPEN_STATUSES
from core.responders.registry import Registry
from core.store import actions as stored

log = structlog.get_logger()

TICK_S = LEASE_MS / 3000  # a lease is renewed three times before it could end
STOP_WAIT_S = 2.0  # a killed responder usually ends within this, so the answer shows its end
LOOK_S = 0.25  # between polls for what other cores have recorded or cancelled, while there are other cores
END_LOOK_S = 0.1  # between polls for the end of an action that another host runs
CLAIM_AT_ONCE = 100
WITHOUT_HOST_AT_ONCE = 1_000
WITHOUT_HOST_MS = 300_000  # how long an action waits for a host that has its responder and takes no runs now

_INTERNAL_ERROR = Report(
    False, message="Core had an internal error; its log has the details. Look at the target before you run it again."
)


class EngineSlots:
    """The free slots of one engine of this host."""

    def __init__(self, capacity: int | None) -> None:
        self.is_limited = capacity is not None
        self.free = self.all = CLAIM_AT_ONCE if capacity is None else capacity
        """For an engine without a limit, how many actions are claimed at once."""
        self.has_waiting = True
        """Whether actions may wait for a slot, so that no later one gets it first."""


class Runner:
    """Runs the actions that this process holds, one task for each that has a slot on its engine.

    All others wait in the database, where any core that has the responder and a free slot claims the oldest.
    """

    def __init__(
        self,
        lifecycle: Lifecycle,
        registry: Registry,
        hosts: Hosts,
        database: Database,
        *,
        tick_s: float = TICK_S,
    ) -> None:
        self._lifecycle = lifecycle
        self._registry = registry
        self._hosts = hosts
        self._database = database
        self._tick_s = tick_s
        self._following: dict[int, asyncio.Task[None]] = {}
        self._job_id_known: dict[int, asyncio.Event] = {}
        self._keep_job_files: set[int] = set()
        self._stopping: dict[int, asyncio.Task[None]] = {}
        """Actions that are being stopped for a core of another host."""
        self._without_host: dict[int, int] = {}
        """Actions that no host can run now, with the time (of leases) at which this was noticed."""
        self._slots = {state.engine.name: EngineSlots(state.engine.capacity) for state in registry.states()}
        self._wake = asyncio.Event()
        self.drained = asyncio.Event()
        """Set once this core is draining and runs nothing any more."""
        self._is_closed = False
        self._ticking: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Take a lease, clean up after an earlier core, take over its actions, then look for more at intervals."""
        await self._hosts.open()
        for state in self._registry.states():
            await state.engine.clean_up_ended(partial(self._database.read, stored.open_run_ids))
        await self.tick()
        # Separate tasks: looking for actions may wait for long searches, renewing the lease must not.
        self._ticking = [
            asyncio.create_task(repeat("lease", self._tick_s, self._renew, at_once=False)),
            asyncio.create_task(repeat("actions", self._tick_s, self._adopt, at_once=False)),
            asyncio.create_task(repeat("claims", 0, self._claim_next, backoff=STORE_RETRY)),
        ]

    async def close(self) -> None:
        """Stop following; running jobs go on, and the next core takes over."""
        self._is_closed = True
        await cancel_and_wait(*self._following.values(), *self._ticking, *self._stopping.values())
        with suppress(ResponderBotError):
            await self._hosts.close()

    def accept(self, number: int, engine_name: str) -> None:
        """Queue a recorded action: here, if this process holds it without a slot, else for any core to claim."""
        slots = self._slots.get(engine_name)
        if slots is None:
            return
        if not slots.is_limited:
            self._queue(number, engine_name)  # ends at once, if this process doesn't hold it
        slots.has_waiting = True
        self._wake.set()

    def take_slot(self, engine_name: str) -> EngineSlots | None:
        """A free slot of an engine, for an action that is recorded and dispatched in one commit, or None.

        Pass it to `follow` or `return_slot`.
        """
        slots = self._slots.get(engine_name)
        if slots is None or not slots.is_limited or not slots.free or slots.has_waiting:
            return None
        if self._is_closed or self._hosts.draining:
            return None
        slots.free -= 1
        return slots

    def return_slot(self, slots: EngineSlots) -> None:
        """Give back a slot that is not needed any more."""
        slots.free += 1
        if slots.has_waiting:
            self._wake.set()

    def follow(self, number: int, engine_name: str, slots: EngineSlots | None, job: Job | Report | None) -> None:
        """Follow an action that this process holds; `job` is None if it is still to be dispatched."""
        if self._is_closed or number in self._following:  # a tick may have found it first
            if slots is not None:
                self.return_slot(slots)
        else:
            task = self._following[number] = asyncio.create_task(self._follow(number, engine_name, job))
            task.add_done_callback(lambda _: self._let_go(number, slots))  # also if it is cancelled before it began

    async def stop(self, number: int) -> None:
        """Have the engine stop a dispatched action, and wait a moment for its end.

        Raises ResponderBotError("conflict") if the engine can't stop it.
        """
        engine_name, job = await self._lifecycle.running_job(number)
        if await self._lifecycle.is_elsewhere(number):
            await self._wait_for_end(number)  # the core there finds that it is cancelled
            return
        await self._registry.engine(engine_name).cancel(job)
        task = self._following.get(number)
        if task is not None:
            await asyncio.wait([task], timeout=STOP_WAIT_S)

    async def _wait_for_end(self, number: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_WAIT_S):
                while await self._lifecycle.is_open(number):  # noqa: ASYNC110 - another host ends it
                    await asyncio.sleep(END_LOOK_S)

    async def wait_for_job_id(self, number: int, timeout_s: float) -> None:
        """Return once the engine has given its job id, at the action's end, or after the timeout."""
        if number in self._following:
            known = self._job_id_known.setdefault(number, asyncio.Event())
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await known.wait()

    def followed(self) -> int:
        """The number of actions that this process follows."""
        return len(self._following)

    async def tick(self) -> None:
        """Renew the lease, take over the actions of dead cores, claim others."""
        await self._renew()
        await self._adopt()
        await self._claim()

    async def _renew(self) -> None:
        if not await self._hosts.renew():
            self._registry.store_again()
            await self._drop_all()
        self._check_drained()

    def _check_drained(self) -> None:
        """Set `drained` once nothing runs; runs that are being recorded hold slots too."""
        is_idle = not self.followed() and all(slots.free == slots.all for slots in self._slots.values())
        if self._hosts.draining and is_idle and not self.drained.is_set():
            log.info("drained", host=self._hosts.host.name)
            self.drained.set()

    async def _drop_all(self) -> None:
        """Stop following the actions of a lease that this process has lost.

        Programs of actions that have ended meanwhile are killed; those that another core of this host follows go on.
        """
        dropped = dict(self._following)
        await cancel_and_wait(*dropped.values())
        for number in dropped:
            find = partial(self._database.read, partial(stored.find, action_id=number))
            row = await until_stored(find)
            if row is not None and row["status"] not in OPEN_STATUSES:
                with suppress(ResponderBotError):  # the engine is gone
                    await self._registry.engine(row["engine_name"]).clean_up(row["run_id"])

    async def _adopt(self) -> None:
        for holder in await self._hosts.look():
            await self._take_over(holder)
        await self._registry.refresh_peers(self._hosts.why_no_runs())
        for row in await self._database.fetch_in_background(stored.HELD, {"holder": self._hosts.holder}):
            if row["id"] not in self._following:  # its task failed, or its client hung up while it was committed
                await self._follow_again(row)
        await self._end_without_host()
        self._wake.set()

    async def _take_over(self, old_holder: str) -> None:
        is_dead = leases.is_dead(old_holder)
        for row in await self._database.transaction(lambda tx: self._lifecycle.take_over(tx, old_holder)):
            log.info("action_taken_over", action_id=f"~{row['id']}", from_holder=old_holder)
            if not is_dead:
                self._keep_job_files.add(row["id"])
            self._queue(row["id"], row["engine_name"])

    async def _follow_again(self, row: Row) -> None:
        """Follow an action that this process held when it was read, or give it back if it needs a slot."""
        slots = self._slots.get(row["engine_name"])
        if row["dispatched_at"] is not None or slots is None or not slots.is_limited:
            self._queue(row["id"], row["engine_name"])
        else:
            await self._lifecycle.give_back(row["id"])

    def _queue(self, number: int, engine_name: str) -> None:
        """Follow an action that may run already, or that needs no slot; takes a free slot if there is one."""
        if self._is_closed or number in self._following:
            return
        slots = self._slots.get(engine_name)
        if slots is None or not slots.is_limited or not slots.free:
            self.follow(number, engine_name, None, None)
        else:
            slots.free -= 1
            self.follow(number, engine_name, slots, None)

    async def _end_without_host(self) -> None:
        """End actions that no host can run any more; after WITHOUT_HOST_MS, if such a host may come back."""
        if self._hosts.draining:
            return
        waiting = await self._database.read(lambda reads: stored.unclaimed(reads, WITHOUT_HOST_AT_ONCE))
        unclaimed = {
            row["id"]: row for row in waiting if not self._registry.has_taker(row["engine_name"], row["responder_name"])
        }
        now = self._hosts.elapsed_ms()
        self._without_host = {number: self._without_host.get(number, now) for number in unclaimed}
        for number, row in unclaimed.items():
            name, engine_name = row["responder_name"], row["engine_name"]
            may_come_back = self._registry.may_come_back(engine_name, name)
            if may_come_back and now - self._without_host[number] < WITHOUT_HOST_MS:
                continue
            report, is_remote = None, row["dispatched_at"] is not None  # any host that has its engine can follow it
            if is_remote and engine_name not in self._slots:
                if self._registry.has_engine(engine_name):
                    continue
                what = f"No host follows runs of {name} on the engine {engine_name} any more"
                advice = "Look at the target before you run it again."
                report = Report(False, message=f"{what}, so nobody knows how it ended. {advice}")
            elif may_come_back and not is_remote:
                what = f"No host that has {name} on the engine {engine_name} takes runs, so it did not run."
                report = Report(False, message=f"{what} Start such a host, and run it again.")
            if await self._lifecycle.claim_one(number):
                self.follow(number, engine_name, None, report)

    async def _claim_next(self) -> None:
        """Claim what waits, then wait: until this process has recorded more, or a moment if there are other cores."""
        self._wake.clear()
        await self._claim()
        await self._stop_cancelled()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S if self._hosts.others() else None):
                await self._wake.wait()

    async def _claim(self) -> None:
        """Claim the oldest actions that wait for this host's engines, as many as have a free slot."""
        if self._is_closed or self._hosts.draining:
            return
        for name, slots in self._slots.items():
            if slots.free:
                slots.has_waiting = False
                names, most = self._registry.claimable(name), slots.free + 1
                find = partial(stored.unclaimed_of, engine_name=name, names=names, limit=most)
                waiting = await self._database.read(find)
                if len(waiting) > slots.free or not slots.is_limited:
                    slots.has_waiting = True
                await self._lifecycle.compare(waiting[: slots.free])
                if claimable := min(len(waiting), slots.free):
                    await self._claim_on(name, names, slots, claimable)

    async def _claim_on(self, name: str, names: Sequence[str] | None, slots: EngineSlots, count: int) -> None:
        reserved = count if slots.is_limited else 0
        slots.free -= reserved
        used = 0
        try:
            claimed = await self._database.transaction(lambda tx: self._lifecycle.claim(tx, name, names, count))
            for number, job in claimed:
                self.follow(number, name, slots if slots.is_limited else None, job)
                used += 1
            if not slots.is_limited and len(claimed) == count:
                self._wake.set()  # there may be more
        finally:
            slots.free += max(0, reserved - used)

    async def _stop_cancelled(self) -> None:
        """Stop the programs of actions that were cancelled through a core of another host."""
        if not self._hosts.others():
            return
        for number in await self._database.read(partial(stored.cancelled_of, holder=self._hosts.holder)):
            if number in self._following and number not in self._stopping:
                self._stopping[number] = asyncio.create_task(self._stop_one(number))

    async def _stop_one(self, number: int) -> None:
        try:
            engine_name, job = await self._lifecycle.running_job(number)
            await self._registry.engine(engine_name).cancel(job)
        except ResponderBotError as error:  # it has ended, or can't be stopped now
            log.info("stop_refused", action_id=f"~{number}", reason=error.message)
            await asyncio.sleep(STOP_WAIT_S)
            self._stopping.pop(number, None)
        except Exception:
            log.exception("stop_failed", action_id=f"~{number}")

    async def _follow(self, number: int, engine_name: str, job: Job | Report | None) -> None:
        """Follow an action to its end; `job` is what its dispatch gave, if it was dispatched already."""
        try:
            await self._run(number, engine_name, job)
        except Exception:
            log.exception("action_follow_failed", action_id=f"~{number}")
            await self._apply_report(number, _INTERNAL_ERROR)

    def _let_go(self, number: int, slots: EngineSlots | None) -> None:
        """Forget an action that isn't followed any more, and return its slot."""
        del self._following[number]
        known = self._job_id_known.pop(number, None)
        if known is not None:
            known.set()  # there will be no job id any more: nobody should wait for it
        self._stopping.pop(number, None)
        if slots is not None:
            self.return_slot(slots)
        self._check_drained()

    async def _run(self, number: int, engine_name: str, job: Job | Report | None) -> None:
        if isinstance(job, Report):
            await self._apply_report(number, job)
            return
        try:
            engine = self._registry.engine(engine_name)
        except ResponderBotError as error:
            await self._apply_report(
                number, Report(False, message=f"{error.message}; it is no longer in the settings.")
            )
            return
        if job is None:
            job = await until_stored(lambda: self._lifecycle.dispatch(number))
        if job is None:
            return
        if isinstance(job, Report):
            await self._apply_report(number, job)
            return
        if self._hosts.is_late() and not await until_stored(lambda: self._lifecycle.still_holds(number)):
            return  # the process was frozen, and another core may have taken it over
        is_reported = job.resumed and await until_stored(lambda: self._lifecycle.has_stored_report(number))
        report = None if is_reported else await self._run_job(engine, number, job)
        if await self._apply_report(number, report, job.run_id):
            await self._clean_up(engine, number, job)
        elif not await until_stored(lambda: self._lifecycle.is_open(number)):
            await engine.clean_up(job.run_id)  # another core has ended it; an open action still needs its files

    async def _run_job(self, engine: Engine, number: int, job: Job) -> Report:
        async def on_progress(progress: Progress) -> None:
            await until_stored(lambda: self._lifecycle.progress(number, progress, job.run_id))
            known = self._job_id_known.get(number)
            if known is not None and progress.engine_job_id:
                known.set()

        if job.resumed and await until_stored(lambda: self._lifecycle.is_cancelled(number)):
            try:  # an earlier core didn't finish that
                await engine.cancel(job)
            except ResponderBotError:
                await until_stored(lambda: self._lifecycle.withdraw_cancel(number))
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
            await engine.clean_up(job.run_id)

    async def _apply_report(self, number: int, report: Report | None, run_id: str = "") -> bool:
        """Store the end; False if this process doesn't hold the action."""
        return await until_stored(lambda: self._lifecycle.apply_report(number, report, run_id))
