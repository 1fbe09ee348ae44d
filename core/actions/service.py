"""Actions for the API: start, cancel, approve, deny, read, list, search and wait."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

from core.actions import decided, in_force
from core.actions.approvals import Approvals, Choice
from core.actions.lifecycle import Lifecycle
from core.actions.measures import digests_in
from core.actions.parts import Parts, Service
from core.actions.runner import Runner
from core.actions.runs import Runs, StartedRun
from core.authorization import Caller
from core.common.database import Reads, Search
from core.common.errors import ResponderBotError
from core.models import OPEN_STATUSES, Action, Kind, RunInput, SearchInput, parse_id, parse_ids
from core.records.events import Feed
from core.records.search import SearchResult, search
from core.reports import report as reports
from core.responders import target as targets
from core.store import actions as stored
from core.store.search import Window, docs_of, within_limit

JOB_ID_WAIT_S = 2.0  # how long an answer waits for a remote engine's job id
SHORT_LIST = 20  # fewer actions than this are read on the event loop, which is quickest
SHORT_LIST_CHARS = 262_144
LIST_LIMIT = 1_000  # of actions in one answer; even with their reports shortened that is 1 to 2 MB


class Actions(Service):
    """What the API does with actions."""

    def __init__(self, parts: Parts, lifecycle: Lifecycle, approvals: Approvals, runner: Runner, feed: Feed) -> None:
        super().__init__(parts)
        self.runs = Runs(parts, lifecycle, runner)
        self._lifecycle = lifecycle
        self._approvals = approvals
        self._runner = runner
        self._feed = feed
        self._turns = WeakValueDictionary[str, asyncio.Lock]()
        """By login: each starts one run at a time, so that who asks for many at once keeps nobody else waiting."""
        self._cancelling = WeakValueDictionary[str, asyncio.Lock]()
        """By action: one cancel at a time, so that none relies on the mark of another that is withdrawn afterwards."""

    async def start(self, caller: Caller, request: RunInput, *, key: str = "", body: str = "") -> StartedRun:
        async with self._turns.setdefault(caller.login, asyncio.Lock()):
            await asyncio.sleep(0)  # what others ask comes in between
            return await self.runs.start(caller, request, key=key, body=body)

    async def with_job_id(self, action: Action) -> Action:
        """The action with its engine's job id; waits up to JOB_ID_WAIT_S for one that the engine has yet to give."""
        if action.engine_job_id or action.approval is not None:
            return action
        await self._runner.wait_for_job_id(action.number, JOB_ID_WAIT_S)
        row = await self._database.read(lambda reads: stored.find(reads, action.number))
        return action.model_copy(update={"engine_job_id": row["engine_job_id"] if row else ""})

    async def cancel(self, caller: Caller, action_id: str, why: str = "") -> None:
        """End an action that is not dispatched yet, or have its engine stop it.

        Raises ResponderBotError: not_found, forbidden (neither its requester nor an org-admin), conflict (it has
        ended, or its engine can't stop it).
        """
        async with self._cancelling.setdefault(action_id, asyncio.Lock()):
            action, is_first = await self._lifecycle.cancel(caller, action_id, why)
            if action.status not in OPEN_STATUSES:
                return
            try:
                await self._runner.stop(action.number)
            except ResponderBotError:
                if is_first:  # an earlier cancel may have stopped it just now, so its mark stays
                    await self._lifecycle.withdraw_cancel(action.number)
                raise

    async def decide(
        self, caller: Caller, action_id: str, choice: Choice, *, extension_id: str = "", message: str = ""
    ) -> Action:
        """As `Approvals.vote`; the last vote that a run needs queues it for its engine.

        Raises "conflict" too if the vote ended the run.
        """
        number, vote = parse_id(action_id), partial(self._approvals.vote, extension_id=extension_id, message=message)
        if choice == "approve" and number is not None:
            await self._lifecycle.compare([number])
        voted = await self._database.transaction(lambda tx: vote(tx, caller, action_id, choice))
        if voted.ended:
            raise ResponderBotError("conflict", voted.ended)
        if voted.is_ready:
            self.runs.follow(voted.action)
        return voted.action

    async def get_json(self, action_id: str) -> str:
        """An action's JSON with its whole report and parameters. Raises ResponderBotError("not_found")."""
        number = parse_id(action_id)
        row = None if number is None else await self._database.read(lambda reads: stored.whole_doc(reads, number))
        if row is None:
            raise ResponderBotError("not_found", "Action not found")
        parts = ("report", "operations", "parameters")
        whole = {key: row[f"whole_{key}"] for key in parts if row[f"whole_{key}"] is not None}
        return Action.model_validate_json(row["doc"]).model_copy(update=whole).to_json() if whole else str(row["doc"])

    async def wait(self, action_id: str, wait_s: float) -> str:
        """An open action's JSON after its next change, at most `wait_s` later; an ended action's JSON at once.

        Raises ResponderBotError("not_found").
        """
        position = self._feed.position()
        current = before = await self.get_json(action_id)
        if wait_s and json.loads(before)["status"] in OPEN_STATUSES:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    while current == before:
                        await self._feed.changed(position)
                        position = self._feed.position()
                        current = await self.get_json(action_id)
        return current

    async def list_json(self, kind: Kind, object_id: str) -> str | None:
        """The JSON array of an object's actions, newest first; None if it is too long to be read on the event loop.

        Raises ResponderBotError("not_found").
        """

        def read(reads: Reads) -> list[str]:
            number = targets.existing(reads, kind, parse_id(object_id))
            return stored.newest_docs_of(reads, kind, number, SHORT_LIST)

        docs = await self._database.read(read)
        return f"[{','.join(docs)}]" if len(docs) < SHORT_LIST and sum(map(len, docs)) < SHORT_LIST_CHARS else None

    async def newest(self, state: str, by: str, since: int, limit: int) -> list[str]:
        """The JSON of the newest actions in a state, of one person with `by`; long lists have their reports shortened.

        Raises ResponderBotError("bad_request") for another state, or one that needs `by`.
        """

        def read(reads: Reads) -> list[str]:
            ids = stored.newest_ids(reads, state, by, since, limit)
            docs = docs_of(reads, self._database.dialect, "action", iter(ids))
            return list(within_limit(docs, reports.shorten))

        return await self._database.snapshot(read)

    async def decided(self, caller: Caller, responder: str, object_ids: Sequence[str]) -> list[Action]:
        """The runs of a responder (its name) on each target in these objects that somebody decided against last.

        As `decided.last` says, as far as the caller may see. Raises ResponderBotError: bad_request, not_found,
        forbidden.
        """
        numbers, asked_at, undo = parse_ids(object_ids), self._clock(), self._registry.policy(responder).undo

        def read(reads: Reads) -> list[Action]:
            found = list[Action]()
            for text, number in numbers.items():
                digests = in_force.digests_of(text, ()) | digests_in(reads, caller, [number])
                deed = decided.Deed(responder, undo or responder, number, digests, asked_at)
                found += decided.last(reads, deed, caller.sees_up_to)
            return found

        return await self._database.snapshot(read)

    async def list_range(self, kind: Kind, object_id: str, window: Window) -> tuple[list[str], int]:
        """A range of an object's actions, newest first, at most LIST_LIMIT, and how many it has.

        Long lists have their reports shortened.

        Raises ResponderBotError("not_found").
        """
        number = await self._database.read(lambda reads: targets.existing(reads, kind, parse_id(object_id)))
        limit = LIST_LIMIT if window.limit is None else min(window.limit, LIST_LIMIT)

        def read(search: Search) -> tuple[list[str], int]:
            total = stored.count_of(search, kind, number)
            ids = stored.ids_of(search, kind, number, window.offset, limit)
            docs = docs_of(search, self._database.dialect, "action", ids)
            return list(within_limit(docs, reports.shorten)), total

        return await self._database.search(read)

    async def search(self, request: SearchInput) -> SearchResult:
        """Search actions. Raises ResponderBotError("bad_request") for an invalid query."""
        return await search(self._database, "action", request, reports.shorten)
