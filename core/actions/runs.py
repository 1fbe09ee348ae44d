"""Starting runs: each is checked, recorded and queued for its engine (core/docs/semantics.md#starting-an-action)."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.actions import in_force, rights
from core.actions.lifecycle import Lifecycle
from core.actions.parts import Parts, Service
from core.actions.runner import EngineSlots, Runner
from core.authorization import Caller, require_person
from core.common.database import Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.engines.base import Job, Report
from core.engines.secret_redaction import redact_keys
from core.field_types import wrong_fields
from core.models import OWN_PARAMETERS, Action, Parameter, RunInput, Undo, parse_id
from core.records import artifacts
from core.reports import report as reports
from core.responders import target as targets
from core.responders.guards import AskedRun
from core.responders.registry import EngineChoice
from core.responders.target import Target
from core.settings import ResponderSection
from core.store import actions as stored
from core.store import objects


class StartedRun(NamedTuple):
    """The action of a request; `new` is False if an earlier request with the same Idempotency-Key started it."""

    action: Action
    new: bool


@dataclass(frozen=True)
class Undoing:
    """What a run undoes of what another one has left in force."""

    number: int
    """Of the action."""
    rows: frozenset[int] = frozenset()
    """What of it; none: all that can be undone."""
    is_due: bool = False
    """Whether core starts this at its time, in the transaction that has found it due."""

    def require(self, reads: Reads) -> tuple[Row, list[Row]]:
        """The action, and what can be undone of it now. Raises ResponderBotError("conflict")."""
        return in_force.require_undoable(reads, self.number, self.rows)

    def target(self, reads: Reads) -> Target:
        """What the run gets. Raises as `require` does, and ResponderBotError("not_found")."""
        row, rows = self.require(reads)
        return targets.to_undo(reads, row, {one["digest"] for one in rows})


@dataclass(frozen=True)
class CheckedRun:
    """A request that may be recorded; the transaction that records it checks again what may have changed."""

    caller: Caller
    request: RunInput
    """With the parameters as the responder gets them."""
    target: Target
    choice: EngineChoice
    section: ResponderSection
    undoing: Undoing | None
    undo: Undo | None
    """How the run can be undone in turn."""
    secret_names: frozenset[str] = frozenset()
    """The parameters that hold a secret."""

    def serialized(self) -> reports.SerializedParameters:
        """The parameters as JSON without secrets; takes time in proportion to their size."""
        return reports.SerializedParameters.of(self.request.parameters, self.secret_names)


class Runs(Service):
    """Starts runs. Every run goes through `check` and `record`, also bulks and timed undos."""

    def __init__(self, parts: Parts, lifecycle: Lifecycle, runner: Runner) -> None:
        super().__init__(parts)
        self._lifecycle = lifecycle
        self._runner = runner

    async def start(
        self, caller: Caller, request: RunInput, *, key: str = "", body: str = "", undoing: Undoing | None = None
    ) -> StartedRun:
        """Record a run, durably, and queue it for its engine.

        `key` is the Idempotency-Key; a repeat must have the same decoded `body`. Raises ResponderBotError:
        not_found, log_not_found, forbidden, bad_request, conflict (with `action`), key_reused, rate_limited.
        """
        checked = await self._database.read(
            lambda reads: self._earlier(reads, caller, key, body) or self.check(reads, caller, request, undoing)
        )
        if isinstance(checked, Action):
            return StartedRun(checked, False)
        # They may be as large as a request, so they take a thread; usually there are none.
        parameters = await asyncio.to_thread(checked.serialized) if checked.request.parameters else checked.serialized()
        if self._guards.compares(checked.choice.merged.name):
            await self._database.snapshot(lambda reads: self.compare(reads, checked))

        engine_name = checked.choice.engine_name
        waits = bool(checked.section.approval or checked.request.override or checked.choice.engine is None)
        slot = None if waits else self._runner.take_slot(engine_name)

        def work(tx: Transaction) -> tuple[StartedRun, Job | Report | None]:
            earlier = self._earlier(tx, caller, key, body)
            if earlier is not None:
                return StartedRun(earlier, False), None
            action, job = self.record(tx, checked, parameters, slot_on=engine_name if slot else None)
            if key:
                stored.remember(tx, caller.login, key, body, action.number, action.created_at)
            return StartedRun(action, True), job

        # Shielded, so that a recorded run is followed even if the client hangs up.
        return await asyncio.shield(asyncio.ensure_future(self._record_and_follow(work, engine_name, slot)))

    def check(self, reads: Reads, caller: Caller, request: RunInput, undoing: Undoing | None = None) -> CheckedRun:
        """Check a request as far as nothing can change until `record`. Raises as `start` does."""
        if undoing is not None:
            target = undoing.target(reads)
        else:
            target = targets.load(reads, request.object_type, parse_id(request.object_id), on_run=True)
        caller.require_clearance(target.clearance, "create action")
        choice = self._registry.choose(target, request.responder_id, request.engine_id)
        if undoing is None:
            target = self._acting(caller, target, request, choice)
        declared = self._registry.parameters(choice.merged)
        values, secrets = (
            check_parameters(reads, declared, request.parameters, self._guards.login),
            secret_names(declared),
        )
        note = reports.why_without_secrets(request.note.strip(), values, secrets)
        override = request.override
        if override is not None:
            reason = reports.why_without_secrets(override.reason, values, secrets)
            override = override.model_copy(update={"reason": reason})
        checked = request.model_copy(update={"parameters": values, "override": override, "note": note})
        section = self._registry.section(choice.merged.name)
        if section.run_by is None and (undoing is None or not undoing.is_due):
            rights.require_may_undo(reads, self._guards, caller, choice.merged.name, target)
        undo = None
        if undoing is None:
            is_installed = self._registry.find(section.undo) is not None
            undo = in_force.undo_of_run(section, request.undo_after_minutes, is_installed=is_installed)
        return CheckedRun(caller, checked, target, choice, section, undoing, undo, secrets)

    def compare(self, reads: Reads, checked: CheckedRun) -> None:
        """Compare a run with `[protect]` before its transaction, which then finds the answers in memory."""
        if self._guards.compares(checked.choice.merged.name):
            self._guards.compare(reads, self._asked(checked, checked.target))

    def _asked(self, checked: CheckedRun, target: Target) -> AskedRun:
        merged, parameters = checked.choice.merged, checked.request.parameters
        types, undoes = self._registry.parameter_types(merged), checked.undoing is not None
        return AskedRun(merged.name, checked.caller.login, target, parameters, undoes=undoes, types=types)

    def record(
        self,
        tx: Transaction,
        checked: CheckedRun,
        parameters: reports.SerializedParameters,
        *,
        slot_on: str | None = None,
        bulk_id: int | None = None,
    ) -> tuple[Action, Job | Report | None]:
        """Check a run again and record it; `queue` it once the transaction is committed.

        `slot_on` is the engine on which a slot was taken for it: then it is dispatched as well, if that names no jobs
        itself, and the job returned. Raises as `start` does.
        """
        request, choice, undoing = checked.request, checked.choice, checked.undoing
        is_ruled = self._guards.has_rules(choice.merged.name) or request.override is not None
        if undoing is not None:
            target = undoing.target(tx)
        else:
            target = _as_now(tx, checked.target, is_whole=is_ruled or slot_on is not None)
            target = self._acting(checked.caller, target, request, choice)
        rights.require_start(tx, checked.caller, target)
        override = None
        if is_ruled:
            run = self._asked(checked, target)
            reason = request.override.reason if request.override else None
            override = self._guards.require(tx, run, reason, checked.caller.profile)
        if request.only_if_idle:
            rights.require_idle(tx, target, choice.merged.name, checked.caller.login, bulk_id)
        action = self._lifecycle.record(
            tx,
            checked.caller,
            request,
            target,
            choice,
            checked.section,
            parameters,
            has_slot=choice.engine_name == slot_on,
            bulk_id=bulk_id,
            undo=checked.undo,
            undoes=None if undoing is None else undoing.number,
            override=override,
        )
        if undoing is not None:
            in_force.undo_started(tx, *undoing.require(tx), action, self._clock(), is_due=undoing.is_due)
        # One commit for both, if it can start at once. Engines that name their jobs themselves are called only later:
        # after a crash in between nobody could tell whether such an engine has it.
        can_start = slot_on is not None and action.engine_job_id and action.engine_id == slot_on
        return action, self._lifecycle.dispatch_in(tx, action.number, target) if can_start else None

    def _acting(self, caller: Caller, target: Target, request: RunInput, choice: EngineChoice) -> Target:
        """The target with what the run is to act on. Raises ResponderBotError("bad_request")."""
        types = self._registry.target_types(choice.merged)
        return targets.acting_on(target, types, request.target, caller.sees_up_to)

    def queue(self, action: Action) -> None:
        """Queue a recorded action for its engine, unless it waits for approval."""
        if action.approval is None:
            self.follow(action)

    def follow(self, action: Action) -> None:
        """Queue an action that waits for no approval for its engine."""
        self._runner.accept(action.number, action.engine_id)

    async def _record_and_follow(
        self,
        work: Callable[[Transaction], tuple[StartedRun, Job | Report | None]],
        engine_name: str,
        slot: EngineSlots | None,
    ) -> StartedRun:
        """Record a run, then follow or queue it; `slot` is a free one of that engine, or None."""
        try:
            started, job = await self._database.transaction(work)
            if slot is not None and started.new and started.action.engine_id == engine_name:
                self._runner.follow(started.action.number, engine_name, slot, job)
                slot = None
            elif started.new:
                self.queue(started.action)
            return started
        finally:
            if slot is not None:
                self._runner.return_slot(slot)

    def _earlier(self, reads: Reads, caller: Caller, key: str, body: str) -> Action | None:
        """The action that this caller started with the same key. Raises ResponderBotError("key_reused")."""
        number = self.remembered(reads, caller, key, body)
        row = None if number is None else stored.find(reads, number)
        return None if row is None else Action.model_validate_json(row["doc"])

    def remembered(self, reads: Reads, caller: Caller, key: str, body: str) -> int | None:
        """What this caller started with the same key. Raises ResponderBotError("key_reused")."""
        return stored.remembered(reads, caller.login, key, body, self._clock()) if key else None


def _as_now(reads: Reads, target: Target, *, is_whole: bool) -> Target:
    """The target as it is now; unless `is_whole`, only an artifact, for its id and the case that it may have got."""
    if is_whole:
        return targets.load(reads, target.kind, target.id, on_run=True)
    if target.kind != artifacts.KIND:
        return target
    number = artifacts.current_number(reads, target.id)
    was_in_case, is_in_case = "case" in target.json, number is not None and objects.exists(reads, target.kind, number)
    # The usual case: its alert, which may be large, need not be read again.
    is_unmoved = number == target.id and was_in_case == is_in_case
    return target if is_unmoved else targets.load(reads, target.kind, target.id)


# --- their parameters (core/docs/semantics.md#inputs-of-a-run) --------------------------------------------------------


SHOWN_CHARS = 100


def check_parameters(
    reads: Reads, declared: Sequence[Parameter], parameters: Mapping[str, Any], full_login: Callable[[str], str]
) -> dict[str, Any]:
    """The values as the responder gets them, with defaults; all values unchanged, if it declares no parameters.

    Raises ResponderBotError("invalid_fields") with an entry for each that is unknown, missing or wrong.
    """
    if not declared:
        return dict(parameters)
    known = {parameter.name for parameter in declared}
    errors = [_unknown(name, declared) for name in parameters if name not in known and name not in OWN_PARAMETERS]
    values: dict[str, Any] = {}
    for parameter in declared:
        value = parameters.get(parameter.name)
        value = parameter.default if value is None or value in ("", []) else value
        if value is None and parameter.required:
            errors.append({"name": f"parameters.{parameter.name}", "type": "MissingAttributeError"})
        if value is None:
            continue
        try:
            values[parameter.name] = _read(reads, parameter, value, full_login)
        except ValueError as error:
            errors.append(_wrong(parameter, str(error), value))
    if errors:
        raise wrong_fields(errors)
    return values


def secret_names(declared: Iterable[Parameter]) -> frozenset[str]:
    return frozenset(parameter.name for parameter in declared if parameter.secret)


def _read(reads: Reads, parameter: Parameter, value: Any, full_login: Callable[[str], str]) -> Any:
    read = parameter.read(value)
    if parameter.type != "user":
        return read
    try:
        return require_person(reads, full_login(read))
    except ResponderBotError as error:
        raise ValueError("the login of a person with access") from error


def _unknown(name: str, declared: Sequence[Parameter]) -> dict[str, Any]:
    known = ", ".join(parameter.name for parameter in declared)
    return {"name": f"parameters.{name[:SHOWN_CHARS]}", "type": "UnknownAttributeError", "format": f"one of {known}"}


def _wrong(parameter: Parameter, expected: str, value: Any) -> dict[str, Any]:
    entry = {"name": f"parameters.{parameter.name}", "type": "InvalidFormatAttributeError", "format": expected}
    if not isinstance(value, bool | int | float | str):
        return entry
    shown = redact_keys({parameter.name: value}, secret_names([parameter]))[parameter.name]
    return {**entry, "value": f"{shown[:SHOWN_CHARS]}…" if isinstance(shown, str) and shown[SHOWN_CHARS:] else shown}
