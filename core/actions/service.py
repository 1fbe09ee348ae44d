"""Actions for the API: start, cancel, approve, deny, read, list, search and wait."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from core.access import Caller
from core.actions import inputs, rights
from core.actions import report as reports
from core.actions import target as targets
from core.actions.lifecycle import Lifecycle, find
from core.actions.offers import Choice, Offers
from core.actions.runner import EngineQueue, Runner
from core.actions.target import Target
from core.common.clock import Clock
from core.common.database.sqlite import Database, Reads, Search, Transaction
from core.common.errors import ResponderBotError
from core.engines.base import Job, Report
from core.models import OPEN_STATUSES, Action, Kind, RunInput, SearchInput
from core.records.events import Feed
from core.records.search import SearchResult, search
from core.store import actions as stored
from core.store import objects
from core.store.search import Window, within_limit

IDEMPOTENCY_KEY_MS = 24 * 3_600_000  # how long a repeated Idempotency-Key finds the action of the first request
JOB_ID_WAIT_S = 2.0  # how long an answer waits for a remote engine's job id
SHORT_LIST = 20  # fewer actions than this are read on the event loop, which is quickest
SHORT_LIST_CHARS = 262_144
LIST_LIMIT = 1_000  # of actions in one answer; even with their reports shortened that is 1 to 2 MB


class StartedRun(NamedTuple):
    """The action of a request; `new` is False if an earlier request with the same Idempotency-Key started it."""

    action: Action
    new: bool


class Actions:
    """The one face of actions: what people ask for and read."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        runner: Runner,
        offers: Offers,
        database: Database,
        feed: Feed,
        clock: Clock,
        *,
        spread_load: bool = False,
    ) -> None:
        self._lifecycle = lifecycle
        self._runner = runner
        self._offers = offers
        self._database = database
        self._feed = feed
        self._clock = clock
        self._spread_load = spread_load

    async def start(self, caller: Caller, request: RunInput, *, key: str = "", body: str = "") -> StartedRun:
        """Record a run, durably, and queue it for its engine (core/docs/semantics.md#starting-an-action).

        `key` is the Idempotency-Key, `body` the decoded body that repeats are compared with. Raises ResponderBotError:
        not_found, log_not_found, forbidden, bad_request, conflict (with `action`), key_reused.
        """
        earlier = self._earlier(self._database, caller, key, body)
        if earlier is not None:
            return StartedRun(earlier, False)
        target = targets.load(self._database, request.object_type, objects.parse_id(request.object_id), on_run=True)
        caller.require_clearance(target.tlp, "create action")
        choice = self._offers.choose(target, request.responder_id, request.engine_id)
        section = self._offers.section(choice.offer.name)
        values = inputs.checked(self._database, self._offers.parameters(choice.offer), request.parameters)
        request = request.model_copy(update={"parameters": values})
        parameters = await _serialized(values)

        slot = None if section.approval else self._runner.take_slot(choice.engine.name)

        def work(tx: Transaction) -> tuple[StartedRun, Job | Report | None]:
            earlier = self._earlier(tx, caller, key, body)
            if earlier is not None:
                return StartedRun(earlier, False), None
            on = _as_now(tx, target)
            if request.only_if_idle:
                rights.require_idle(tx, on, choice.offer.name)
            with_slot = self._with_free_slot(tx, choice, request, on)
            action = self._lifecycle.record(tx, caller, request, on, with_slot, section, parameters)
            if key:
                stored.remember(tx, caller.login, key, body, _number(action), action.created_at)
            # One commit for both, if it can start at once. Engines that name their jobs themselves are called only
            # later: after a crash in between nobody could tell whether such an engine has it.
            job = None
            if slot is not None and action.engine_job_id and with_slot.engine is choice.engine:
                job = self._lifecycle.dispatch_in(tx, _number(action))
            return StartedRun(action, True), job

        # Shielded: if the client hangs up meanwhile, what was recorded is followed all the same.
        return await asyncio.shield(asyncio.ensure_future(self._record_and_follow(work, choice.engine.name, slot)))

    async def _record_and_follow(
        self,
        work: Callable[[Transaction], tuple[StartedRun, Job | Report | None]],
        engine_name: str,
        slot: EngineQueue | None,
    ) -> StartedRun:
        """Record a run and follow or queue it; `slot` is one of that engine which it may take."""
        try:
            started, job = await self._database.transaction(work)
            action = started.action
            if slot is not None and job is not None:
                self._runner.follow(_number(action), engine_name, slot, job)
                slot = None
            elif started.new and action.approval is None:
                self._runner.accept(_number(action), action.engine_id)
            return started
        finally:
            if slot is not None:
                self._runner.return_slot(engine_name, slot)

    async def with_job_id(self, action: Action) -> Action:
        """The action with its engine's job id; waits up to JOB_ID_WAIT_S for one that the engine has yet to give."""
        if action.engine_job_id or action.approval is not None:
            return action
        await self._runner.wait_for_job_id(_number(action), JOB_ID_WAIT_S)
        row = stored.find(self._database, _number(action))
        return action.model_copy(update={"engine_job_id": row["engine_job_id"] if row else ""})

    async def cancel(self, caller: Caller, action_id: str) -> None:
        """End an action that is not dispatched yet, or have its engine stop it.

        Raises ResponderBotError: not_found, forbidden (neither its requester nor an org-admin), conflict (it has
        ended, or its engine can't stop it).
        """
        action, is_first = await self._lifecycle.cancel(caller, action_id)
        if action.status not in OPEN_STATUSES:
            return
        try:
            await self._runner.stop(_number(action))
        except ResponderBotError:
            if is_first:  # an earlier cancel may have ended it just now, and stays
                await self._lifecycle.withdraw_cancel(_number(action))
            raise

    async def approve(self, caller: Caller, action_id: str) -> Action:
        """Vote for an action that waits for approval; the last vote needed queues it for its engine.

        If the requester may no longer run responders, the action ends and this is a conflict. Raises
        ResponderBotError: not_found, forbidden, conflict.
        """

        def work(tx: Transaction) -> tuple[Action, str]:
            row = find(tx, action_id)
            action, approval = rights.require_vote(tx, caller, row, self._clock())
            rights.require_clearance(tx, caller, row, "approve an action")
            if reason := rights.why_requester_may_not(tx, row["created_by"]):
                return self._lifecycle.end_without_report(tx, row, "failed", reason, caller.login), reason
            return self._lifecycle.vote(tx, caller, row, action, approval), ""

        action, reason = await self._database.transaction(work)
        if reason:
            raise ResponderBotError("conflict", reason)
        if action.approval is not None and len(action.approval.approved_by) >= action.approval.needed:
            self._runner.accept(_number(action), action.engine_id)
        return action

    async def deny(self, caller: Caller, action_id: str, message: str = "") -> Action:
        """End an action that waits for approval. Raises ResponderBotError: not_found, forbidden, conflict."""

        def work(tx: Transaction) -> Action:
            row = find(tx, action_id)
            _, approval = rights.require_vote(tx, caller, row, self._clock())
            rights.require_clearance(tx, caller, row, "deny an action")
            sentence = f"Denied by {caller.login}: {message}" if message else f"Denied by {caller.login}"
            return self._lifecycle.deny(tx, caller, row, approval, sentence)

        return await self._database.transaction(work)

    def get_json(self, action_id: str) -> str:
        """An action's JSON with its whole report and parameters. Raises ResponderBotError("not_found")."""
        number = objects.parse_id(action_id)
        row = None if number is None else stored.whole_doc(self._database, number)
        if row is None:
            raise ResponderBotError("not_found", "Action not found")
        parts = ("report", "operations", "parameters")
        whole = {key: row[f"whole_{key}"] for key in parts if row[f"whole_{key}"] is not None}
        return Action.model_validate_json(row["doc"]).model_copy(update=whole).to_json() if whole else str(row["doc"])

    async def wait(self, action_id: str, wait_s: float) -> str:
        """An open action's JSON after its next change, or after `wait_s` without one; of an ended one at once.

        Raises ResponderBotError("not_found").
        """
        position = self._feed.position()
        found = before = self.get_json(action_id)
        if wait_s and json.loads(before)["status"] in OPEN_STATUSES:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    while found == before:
                        await self._feed.changed(position)
                        position = self._feed.position()
                        found = self.get_json(action_id)
        return found

    def list_json(self, kind: Kind, object_id: str) -> str | None:
        """The JSON array of an object's actions, newest first; None if it is too long to be read on the event loop.

        Raises ResponderBotError("not_found").
        """
        number = targets.existing(self._database, kind, objects.parse_id(object_id))
        docs = stored.newest_docs_of(self._database, kind, number, SHORT_LIST)
        return f"[{','.join(docs)}]" if len(docs) < SHORT_LIST and sum(map(len, docs)) < SHORT_LIST_CHARS else None

    async def list_range(self, kind: Kind, object_id: str, window: Window) -> SearchResult:
        """A range of an object's actions, newest first, at most LIST_LIMIT; long ones have their reports shortened.

        Raises ResponderBotError("not_found").
        """
        number = targets.existing(self._database, kind, objects.parse_id(object_id))
        limit = LIST_LIMIT if window.limit is None else min(window.limit, LIST_LIMIT)

        def read(search: Search) -> SearchResult:
            total = stored.count_of(search, kind, number)
            docs = stored.docs_of(search, kind, number, window.offset, limit)
            return SearchResult(list(within_limit(docs, total, reports.shorten)), total)

        return await self._database.search(read)

    async def search(self, request: SearchInput) -> SearchResult:
        """Search actions. Raises ResponderBotError("bad_request") for an invalid query."""
        return await search(self._database, "action", request, reports.shorten)

    def running_on(self, target: Target) -> Mapping[str, str]:
        """Responder name to requester, for each open action on an object."""
        return {row["responder_name"]: row["created_by"] for row in stored.open_on(self._database, target.id)}

    def _with_free_slot(self, tx: Transaction, choice: Choice, request: RunInput, target: Target) -> Choice:
        """The choice, or with `spread_load`, if its engine is full, the next engine with a free slot.

        Decided in the transaction that takes the slot, so that two runs never count on the same one.
        """
        if not self._spread_load or request.engine_id is not None or choice.engine.capacity is None:
            return choice
        full = self._offers.full(stored.slots_taken(tx, self._lifecycle.holder))
        return self._offers.choose(target, request.responder_id, None, full=full)

    def _earlier(self, reads: Reads, caller: Caller, key: str, body: str) -> Action | None:
        """The action that this caller started with the same key. Raises ResponderBotError("key_reused")."""
        known = stored.remembered(reads, caller.login, key, self._clock() - IDEMPOTENCY_KEY_MS) if key else None
        if known is None:
            return None
        if known["body"] != body:
            raise ResponderBotError(
                "key_reused", "This Idempotency-Key was used before with another body; use a new key for a new request."
            )
        row = stored.find(reads, known["action_id"])
        return None if row is None else Action.model_validate_json(row["doc"])


def _as_now(reads: Reads, target: Target) -> Target:
    """The target; an artifact with the id and the case that it may have got since it was read."""
    return targets.load(reads, target.kind, target.id) if target.kind == "case_artifact" else target


async def _serialized(parameters: Mapping[str, Any]) -> reports.SerializedParameters:
    """Without parameters, as usual, at once; else in a thread, since they may be as large as a request."""
    if not parameters:
        return reports.SerializedParameters.of(parameters)
    return await asyncio.to_thread(reports.SerializedParameters.of, parameters)


def _number(action: Action) -> int:
    return int(action.id[1:])
