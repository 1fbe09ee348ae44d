"""Hands accepted actions to their engines and follows each to its end, also those of a core that died."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import structlog

from core.access import Caller
from core.actions import service as life
from core.actions.catalog import Responders
from core.actions.service import Actions, LeaseHolder
from core.common import process_identity as owner
from core.common.clock import Clock
from core.common.database.sqlite import Database, Row, Transaction
from core.common.errors import ResponderBotError
from core.engines.base import Engine, Job, Progress, Report
from core.models import Action
from core.records.events import Feed
from core.store import actions as stored

T = TypeVar("T")
log = structlog.get_logger()

TICK_S = life.LEASE_MS / 3000  # a lease is renewed three times before it could end
JOB_ID_WAIT_S = 2.0  # a remote engine's job id is waited for this long (semantics.md 5)
STOP_WAIT_S = 2.0  # a killed responder usually ends within this, so the answer shows its end
STORE_RETRY_S = 1.0  # between tries to store an end while the store can't be written


class EngineQueue:
    """The free places of one engine, and the actions that wait for one, the oldest first."""

    def __init__(self, places: int) -> None:
        self.free = places
        self.waiting: OrderedDict[int, None] = OrderedDict()


class Runner:
    """Follows the actions of this process, one task for each that its engine has a place for."""

    def __init__(
        self,
        actions: Actions,
        responders: Responders,
        database: Database,
        feed: Feed,
        clock: Clock,
        *,
        tick_s: float = TICK_S,
    ) -> None:
        self._actions = actions
        self._responders = responders
        self._database = database
        self._feed = feed
        self._clock = clock
        self._tick_s = tick_s
        self._id = owner.me()
        self._follows: dict[int, asyncio.Task[None]] = {}
        self._job_known: dict[int, asyncio.Event] = {}
        self._from_living: set[int] = set()
        self._lines = {
            state.engine.name: EngineQueue(state.engine.capacity)
            for state in responders.states()
            if state.engine.capacity is not None
        }
        self._is_closed = False
        self._ticking: list[asyncio.Task[None]] = []
        actions.own(LeaseHolder(self._id, self._accept))

    async def open(self) -> None:
        """Clean up after an earlier core, take over what it followed, then look again at intervals."""
        for state in self._responders.states():
            await state.engine.sweep(self._open_ids)
        await self.tick()
        # Two tasks: what is looked for may have to wait for long searches, the lease may not.
        self._ticking = [asyncio.create_task(self._keep(deed)) for deed in (self._renew, self._look)]

    async def close(self) -> None:
        """Stop following; what runs goes on, and the next core takes over."""
        self._is_closed = True
        tasks = [*self._follows.values(), *self._ticking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(ResponderBotError):
            await self._database.transaction(lambda tx: stored.forget_owner(tx, self._id))

    def followed(self) -> int:
        """How many actions this process follows, those that wait for a place among them."""
        return len(self._follows) + sum(len(line.waiting) for line in self._lines.values())

    async def with_job_id(self, action: Action) -> Action:
        """The action with its engine's job id, waited for a moment where it was not known when recorded."""
        number = int(action.id[1:])
        if action.engine_job_id or action.approval is not None:
            return action
        if self._is_followed(number):
            known = self._job_known.setdefault(number, asyncio.Event())
            with suppress(TimeoutError):
                async with asyncio.timeout(JOB_ID_WAIT_S):
                    await known.wait()
        row = stored.find(self._database, number)
        return action.model_copy(update={"engine_job_id": row["engine_job_id"] if row else ""})

    async def cancel(self, caller: Caller, action_id: str) -> None:
        """Cancel an action, or stop it where it runs. Raises ResponderBotError as `Actions.cancel` does."""
        action, is_first = await self._actions.cancel(caller, action_id)
        if action.status not in ("Waiting", "InProgress"):
            return
        engine_name, job = self._actions.job_of(action_id)
        try:
            await self._responders.engine(engine_name).cancel(job)
        except ResponderBotError:
            if is_first:  # another's cancel may have ended it just now, and stays true
                await self._actions.keep_running(action_id)
            raise
        follow = self._follows.get(int(action_id[1:]))
        if follow is not None:
            await asyncio.wait([follow], timeout=STOP_WAIT_S)

    async def tick(self) -> None:
        """Renew what is ours, take over what nobody follows any more, end what nobody approved."""
        await self._renew()
        await self._look()

    async def _renew(self) -> None:
        if self.followed():
            until = self._clock() + life.LEASE_MS
            await self._database.transaction(lambda tx: stored.renew(tx, self._id, until))

    async def _look(self) -> None:
        for row in await self._database.rows_aside(stored.OWNERS):
            if row["id"] != self._id:
                await self._take_over(row["id"])
        for row in await self._database.rows_aside(stored.OWN_IDS, {"owner": self._id}):
            if not self._is_followed(row["id"]):  # following it broke, or who asked for it hung up at its commit
                self._accept_again(row["id"])
        for number in stored.approvals_due(self._database, self._clock()):
            await self._actions.expire(number)

    def _open_ids(self) -> list[str]:
        return [f"~{number}" for number in stored.open_ids(self._database)]

    def _is_followed(self, number: int) -> bool:
        return number in self._follows or any(number in line.waiting for line in self._lines.values())

    def _accept(self, number: int, engine_name: str, *, may_run: bool = False) -> None:
        """Follow an action once its engine has a place; at once if it may run already: an earlier core handed it over.

        Until then it is a number in a line: thousands may wait.
        """
        if self._is_closed or self._is_followed(number):
            return
        line = self._lines.get(engine_name)
        if line is None or (may_run and not line.free):
            self._follows[number] = asyncio.create_task(self._follow(number, engine_name, None))
        else:
            line.waiting[number] = None
            self._next(line, engine_name)

    def _accept_again(self, number: int) -> None:
        row = stored.find(self._database, number)
        if row is not None and row["owner"] == self._id:
            self._accept(number, row["engine_name"], may_run=row["handed_at"] is not None)

    def _next(self, line: EngineQueue, engine_name: str) -> None:
        while line.free and line.waiting and not self._is_closed:
            line.free -= 1
            number, _ = line.waiting.popitem(last=False)
            self._follows[number] = asyncio.create_task(self._follow(number, engine_name, line))

    async def _take_over(self, old_owner: str) -> None:
        is_dead, now = owner.is_dead(old_owner), self._clock()
        if not is_dead and stored.lease_until(self._database, old_owner) > now:
            return

        def work(tx: Transaction) -> list[Row]:
            if not is_dead and stored.lease_until(tx, old_owner) > now:
                return []  # it has renewed it
            stored.forget_owner(tx, old_owner)
            taken = stored.take_over(tx, old_owner, self._id)
            if taken:  # or a third core would take them in turn, before our next tick
                stored.renew(tx, self._id, now + life.LEASE_MS)
            return taken

        for row in await self._database.transaction(work):
            log.info("action taken over", action_id=f"~{row['id']}", from_owner=old_owner)
            if not is_dead:
                self._from_living.add(row["id"])
            self._accept(row["id"], row["engine_name"], may_run=row["handed_at"] is not None)

    async def _follow(self, number: int, engine_name: str, line: EngineQueue | None) -> None:
        """Follow an action to its end; `line`: where it has taken a place."""
        try:
            await self._run(number, engine_name)
        except Exception:
            log.exception("following an action failed", action_id=f"~{number}")
            await self._end(number, Report(False, message="Core broke while it followed this; its log says why."))
        finally:
            del self._follows[number]
            known = self._job_known.pop(number, None)
            if known is not None:
                known.set()  # there will be no id any more: nobody is to wait for it
            if line is not None:
                line.free += 1
                self._next(line, engine_name)

    async def _run(self, number: int, engine_name: str) -> None:
        try:
            engine = self._responders.engine(engine_name)
        except ResponderBotError as error:
            await self._end(number, Report(False, message=f"{error.message}; it is no longer in the settings."))
            return
        job = await _once_writable(lambda: self._actions.hand_over(number))
        if job is None:
            return
        if isinstance(job, Report):
            await self._end(number, job)
            return
        report = None if self._actions.is_ending(number) else await self._report(engine, number, job)
        if await self._end(number, report):
            await self._forget(engine, number, job)  # else another core follows it by now and needs what there is of it

    async def _report(self, engine: Engine, number: int, job: Job) -> Report:
        async def told(progress: Progress) -> None:
            await self._actions.progress(number, progress)
            known = self._job_known.get(number)
            if known is not None and progress.engine_job_id:
                known.set()

        if job.resumed and self._actions.to_be_stopped(number):
            await self._stop_again(engine, job)
        try:
            return await engine.run(job, told)
        except Exception:
            log.exception("an engine broke", action_id=job.action_id, engine=engine.name)
            return Report(False, message=f"The engine {engine.name} broke while it ran this; the log says why.")

    async def _forget(self, engine: Engine, number: int, job: Job) -> None:
        """Have the job cleaned up; not where its first owner only stood still: it would find nothing and run it again.

        What is left then goes with the next start's sweep.
        """
        if number in self._from_living:
            self._from_living.discard(number)
        else:
            await engine.clean_up(job.action_id)

    async def _stop_again(self, engine: Engine, job: Job) -> None:
        """Finish what an earlier core was asked to stop, if the engine can do that."""
        try:
            await engine.cancel(job)
        except ResponderBotError:
            await self._actions.keep_running(job.action_id)

    async def _end(self, number: int, report: Report | None) -> bool:
        """Whether this was its end: not if it is somebody else's by now."""
        return await _once_writable(lambda: self._actions.end(number, report))

    async def _keep(self, deed: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            try:
                await deed()
            except ResponderBotError as error:
                log.warning("leases can't be kept", reason=error.message)
            except Exception:  # without ticks all actions would be lost to another core
                log.exception("leases can't be kept")


async def _once_writable(change: Callable[[], Awaitable[T]]) -> T:
    """Make a change, trying until the store can be written again: what it tells of has already happened."""
    while True:
        try:
            return await change()
        except ResponderBotError as error:
            if error.code != "unavailable":
                raise
            log.warning("the store can't be written yet", reason=error.message)
            await asyncio.sleep(STORE_RETRY_S)
