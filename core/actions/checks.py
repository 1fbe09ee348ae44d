"""Checks whether what runs have left is in force (core/docs/in-force.md#checks).

A check is a run of the responder that `verify` names, with a row in `action` like any other, so that it runs once, is
bounded and confined, and is found again after a crash. Its row is deleted with its end: only its answer stays.
"""

import structlog

from core.actions import in_force
from core.actions.lifecycle import Lifecycle
from core.actions.runner import Runner
from core.actions.undos import common_parameters
from core.common.clock import MINUTE_MS, Clock
from core.common.database import Database, Row, Transaction
from core.common.errors import ResponderBotError
from core.common.tasks import repeat
from core.responders import target as targets
from core.responders.registry import Registry
from core.settings import duration_ms
from core.store import actions as stored_actions
from core.store import measures as stored

AT_ONCE = 2  # of all cores; as many slots of engines they take at most
BATCH = 100  # looked at in one transaction
TICK_S = 0.5  # how late a check may begin
RETRY_MS = MINUTE_MS  # until what is being changed is looked at again; the end of that change asks for it earlier

log = structlog.get_logger()


class Checks:
    """Has what is in force checked: right after its run, after whatever may have changed it, and at intervals."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        runner: Runner,
        registry: Registry,
        database: Database,
        clock: Clock,
    ) -> None:
        self._lifecycle = lifecycle
        self._runner = runner
        self._registry = registry
        self._database = database
        self._clock = clock

    async def open(self) -> None:
        """Have checked what the settings say by now, such as what began before `verify` was in them."""
        await self._database.transaction(self._follow_settings)

    async def run(self) -> None:
        """Begin what is due until cancelled; checks that run go on then."""
        await repeat("checks", TICK_S, self.run_due)

    async def run_due(self) -> bool:
        """Begin the checks that are due, as many as may run at once; returns whether any was."""
        due = await self._database.read(lambda reads: stored.next_to_check(reads, self._clock()))
        if due is not None:
            for number, engine_name in await self._database.transaction(self._begin):
                self._runner.accept(number, engine_name)
        return due is not None

    def _follow_settings(self, tx: Transaction) -> None:
        for measure in stored.all_of(tx):
            row = stored_actions.find(tx, measure["action_id"])
            is_verified = row is not None and bool(self._registry.section(row["responder_name"]).verify)
            if is_verified != (measure["verify_at"] is not None) and measure["state"] != "starting":
                stored.set_verify_at(tx, measure["action_id"], self._clock() if is_verified else None)

    def _begin(self, tx: Transaction) -> list[tuple[int, str]]:
        """Record checks; returns their numbers and engines."""
        begun: list[tuple[int, str]] = []
        free = AT_ONCE - stored.open_checks(tx)
        for _ in range(BATCH):
            measure = stored.next_to_check(tx, self._clock()) if len(begun) < free else None
            if measure is None:
                break
            try:
                with tx.savepoint():
                    begun += self._begin_one(tx, measure)
            except ValueError:  # one record that is damaged must not hold up the others
                log.exception("record_unreadable", action_id=f"~{measure['action_id']}")
                self._wait(tx, measure)
        return begun

    def _begin_one(self, tx: Transaction, measure: Row) -> list[tuple[int, str]]:
        """Record the check of a measure, or note why there can be none now."""
        now, number = self._clock(), measure["action_id"]
        row = stored_actions.find(tx, number)
        section = None if row is None else self._registry.section(row["responder_name"])
        if row is None or section is None or not section.verify:
            stored.set_verify_at(tx, number, None)
            return []
        if in_force.is_changing(tx, measure):
            self._wait(tx, measure)
            return []
        later = now + duration_ms(section.verify_every)
        try:
            target = targets.to_undo(tx, row)
            choice = self._registry.choose(target, section.verify, None)
        except ResponderBotError as error:
            stored.begin_check(tx, number, None, now, later)
            in_force.set_answer(tx, measure, "unknown", error.message, now)
            return []
        values = common_parameters(row, self._registry.parameters(choice.merged))
        check = self._lifecycle.record_check(tx, row, target, choice, values)
        stored.begin_check(tx, number, check, now, later)
        return [(check, choice.engine_name)]

    def _wait(self, tx: Transaction, measure: Row) -> None:
        stored.begin_check(tx, measure["action_id"], None, self._clock(), self._clock() + RETRY_MS)
