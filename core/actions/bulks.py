"""Runs of one responder on several objects, asked for at once (core/docs/semantics.md#runs-on-several-objects)."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, NamedTuple, TypeVar

import structlog

from core.actions.approvals import Approvals, Choice
from core.actions.lifecycle import Lifecycle
from core.actions.parts import Parts, Service
from core.actions.runs import CheckedRun, Runs, secret_names
from core.audit import trail
from core.authorization import Caller
from core.common.clock import FOR_EVER
from core.common.database import Reads, Row, Transaction
from core.common.errors import ERRORS, Code, ResponderBotError
from core.models import (
    OPEN_STATUSES,
    Action,
    ActionStatus,
    Bulk,
    BulkCounts,
    BulkInput,
    BulkTarget,
    Outcome,
    RunTarget,
    parse_id,
)
from core.records import clearance
from core.reports import report as reports
from core.responders import target as targets
from core.responders.guards import Guards, when_free
from core.responders.registry import Registry
from core.store import actions as stored_actions
from core.store import bulks as stored
from core.store import objects

PARAMETERS_LIMIT_BYTES = reports.LISTED_PARAMETERS_BYTES  # each action keeps a copy of them
MOST_PEOPLE = 20  # who approved, and who undid
SHORTENED_CHARS = 2 * 1_048_576  # longer answers to a repeated key have their reports shortened

log = structlog.get_logger()

T = TypeVar("T")


class Refusal(NamedTuple):
    """Why a target has no action."""

    code: Code
    message: str
    until: int | None = None
    """When a rate is free again (ms)."""
    rule: str | None = None
    """The rule of the settings, or the permission."""
    fact: str = ""
    """What stays true of it, unlike a message that advises what to do first."""
    covered_by: int | None = None
    """The action of the run that covers it."""
    target: Sequence[str] = ()
    """The artifacts that the request named there."""

    @staticmethod
    def of(error: ResponderBotError) -> "Refusal":
        """The refusal that an error means for a target."""
        until = error.details.get("until")
        rule = error.details.get("rule") or error.details.get("permission")
        before = error.details.get("action")
        fact = f"it was asked for already, by {before['createdBy']} ({before['id']})" if before else ""
        until = until if isinstance(until, int) else None
        return Refusal(error.code, error.message, until=until, rule=rule, fact=fact)

    def fields(self) -> dict[str, Any]:
        """What an answer says of it."""
        status, kind = ERRORS[self.code]
        covered = {"coveredBy": f"~{self.covered_by}"} if self.covered_by else {}
        named = {"target": self.target} if self.target else {}
        return {"status": status, "type": kind, "message": self.message, **named, **covered}


class BulkOutcomes(NamedTuple):
    """A bulk with its targets as the request named them: the JSON of each one's action, or why there is none."""

    id: str
    targets: Sequence[tuple[str, str | Refusal]]


_Checked = tuple[CheckedRun, reports.SerializedParameters] | Refusal


class _Recorded(NamedTuple):
    """A run of a bulk, what it acts on, the clearance that it takes, and what it covers that takes no more."""

    acts_on: Set[str]
    action: Action
    level: int
    also_for: dict[str, None]


NOT_SHOWN = Refusal("conflict", "Still waiting.")


class Bulks(Service):
    """Starts, decides on, reads and repeats bulks."""

    def __init__(self, parts: Parts, runs: Runs, approvals: Approvals, lifecycle: Lifecycle) -> None:
        super().__init__(parts)
        self._runs = runs
        self._approvals = approvals
        self._lifecycle = lifecycle

    async def start(self, caller: Caller, request: BulkInput, *, key: str = "", body: str = "") -> BulkOutcomes:
        """Start a run on each target that allows it, all in one durable commit.

        Each target is checked as a run on it alone would be. `key` and `body`: as `Runs.start`. Raises
        ResponderBotError: key_reused, bad_request for parameters that are too long to be kept with each action; of one
        that retries another as `retry` does.
        """
        if request.retries is not None:
            return await self.retry(caller, request.retries, request, key=key, body=f"bulk {body}")
        return await self._start(caller, request, key, f"bulk {body}")

    async def retry(
        self, caller: Caller, bulk_id: str, request: BulkInput | None = None, *, key: str = "", body: str = "retry"
    ) -> BulkOutcomes:
        """Run again, as a new bulk, where it did not succeed or was undone; with a `request` as that says.

        Raises ResponderBotError: not_found, forbidden (neither its requester nor an org-admin), conflict (some are
        still open, all have succeeded, it was retried already, or all would be refused again), rate_limited (likewise,
        with `until`), key_reused.
        """

        def read(reads: Reads) -> tuple[int, Row, int | None, list[BulkTarget]]:
            number, row = self._find(reads, bulk_id)
            clearance.require(reads, caller, number, "create action")
            return number, row, self._runs.remembered(reads, caller, key, f"{body} ~{number}"), _states(reads, row)

        number, row, earlier, states = await self._database.snapshot(read)
        if earlier is not None:
            return await self._outcomes(earlier)
        # As for a cancel, the profile and not a permission: an org-admin may do so from Slack too.
        if row["created_by"] != caller.login and caller.profile != "org-admin":
            raise ResponderBotError("forbidden", f"Only {row['created_by']} or an administrator may run this again.")
        _require_not_retried(row)
        if any(state.action_status in OPEN_STATUSES for state in states):
            raise ResponderBotError("conflict", "Some of these runs have not ended; wait until they have.")
        failed = [target for target, state in zip(json.loads(row["targets"]), states, strict=True) if state.has_failed]
        if not failed:
            raise ResponderBotError("conflict", "All of these runs have succeeded, so there is nothing to run again.")
        request = request or BulkInput.model_validate({**json.loads(row["request"]), "targets": failed})
        request = request.model_copy(update={"retries": f"~{number}"})
        if reports.has_lost_secret(request.parameters):
            sentence = "Its inputs had a secret, which isn't kept, so run it on these objects with new inputs."
            raise ResponderBotError("conflict", sentence)
        return await self._start(caller, request, key, f"{body} ~{number}", retries=number)

    async def decide(
        self, caller: Caller, bulk_id: str, choice: Choice, *, shown: Sequence[str] | None = None, message: str = ""
    ) -> BulkOutcomes:
        """Vote on each run that waits for approval and, with `shown`, is named there; returns the outcome of each.

        An extension is decided only if `shown` names it; then runs that wait and aren't named are left out of the
        outcomes. All votes are one commit; a run that is refused or isn't named goes on waiting. Raises
        ResponderBotError: not_found; conflict if none waits; the first reason if each is refused.
        """
        number, asked = parse_id(bulk_id), f"{choice} an action"
        if choice == "approve" and number is not None:
            await self._lifecycle.compare(await self._database.read(lambda reads: stored.awaiting(reads, number)))

        def work(tx: Transaction) -> tuple[list[tuple[str, str | Refusal]], list[Action]]:
            number, row = self._find(tx, bulk_id)
            clearance.require(tx, caller, number, asked)
            waiting = _waiting(tx, number, shown)
            if not waiting:
                raise ResponderBotError("conflict", "None of these runs waits for approval any more.")
            outcomes: list[tuple[str, str | Refusal]] = []
            ready: list[Action] = []
            for target in json.loads(row["targets"]):
                if target.get("action") not in waiting:
                    continue
                id_, extension_id = f"~{target['action']}", waiting[target["action"]]
                vote = partial(self._approvals.vote, extension_id=extension_id, message=message)
                is_shown = shown is None or (extension_id or id_) in shown
                outcome = attempted(tx, partial(vote, tx, caller, id_, choice)) if is_shown else NOT_SHOWN
                if not isinstance(outcome, Refusal):
                    outcomes.append((target["objectId"], outcome.action.to_json()))
                    if outcome.is_ready:
                        ready.append(outcome.action)
                    continue
                if is_shown:
                    _audit(tx, self._clock(), "request.refused", caller, id_, outcome, bulk=bulk_id, asked=asked)
                outcomes.append((target["objectId"], outcome._replace(target=target.get("target", ()))))
            _require_any([outcome for _, outcome in outcomes], "Nothing was changed", self._clock())
            return outcomes, ready

        outcomes, ready = await self._database.transaction(work)
        for action in ready:
            self._runs.follow(action)
        return BulkOutcomes(bulk_id, outcomes)

    async def get(self, bulk_id: str) -> Bulk:
        """The progress of a bulk, what all its runs get, and each target. Raises ResponderBotError("not_found")."""

        def read(reads: Reads) -> Bulk:
            number, row = self._find(reads, bulk_id)
            (counts,) = read_counts(reads, self._registry, self._guards, [number])
            asked = json.loads(row["request"])
            given = {"parameters": json.dumps(asked["parameters"], ensure_ascii=False), "note": asked["note"]}
            given["undo_after_minutes"] = asked.get("undoAfterMinutes")  # unless a run has another
            return Bulk(**given | counts.model_dump(exclude_none=True), targets=_states(reads, row))

        return await self._database.snapshot(read)

    async def _start(
        self, caller: Caller, request: BulkInput, key: str, body: str, *, retries: int | None = None
    ) -> BulkOutcomes:
        earlier = await self._database.read(lambda reads: self._runs.remembered(reads, caller, key, body))
        if earlier is not None:
            return await self._outcomes(earlier)
        _require_short(request.parameters)
        # Not on the event loop: a hundred artifacts are a hundred alerts to read.
        checked = await self._database.snapshot(lambda reads: self._check(reads, caller, request))

        def work(tx: Transaction) -> tuple[int, list[Action]]:
            earlier = self._runs.remembered(tx, caller, key, body)
            if earlier is not None:
                return earlier, []
            number, now = objects.next_id(tx), self._clock()
            if retries is not None:
                _require_not_retried(self._find(tx, f"~{retries}")[1])
                stored.set_retried(tx, retries, number)
                trail.record(tx, now, "bulk.retried", by=caller.login, object=f"~{number}", root=f"~{retries}")
            outcomes = self._record_all(tx, number, now, caller, request, checked)
            if retries is not None:
                _require_any(outcomes, "Nothing can run again now", now)
            stored.insert(tx, self._row(number, now, caller, request, outcomes))
            if key:
                stored_actions.remember(tx, caller.login, key, body, number, now)
            return number, [outcome for outcome in outcomes if isinstance(outcome, Action)]

        # Shielded, so that recorded runs are queued even if the client hangs up.
        return await asyncio.shield(asyncio.ensure_future(self._record_and_queue(work)))

    async def _record_and_queue(self, work: Callable[[Transaction], tuple[int, list[Action]]]) -> BulkOutcomes:
        number, actions = await self._database.transaction(work)
        for action in actions:
            self._runs.queue(action)
        return await self._outcomes(number)

    def _check(self, reads: Reads, caller: Caller, request: BulkInput) -> list[_Checked]:
        """Each target, checked as a run on it alone would be."""
        checked: list[_Checked] = []
        for target in request.targets:
            try:
                run = self._runs.check(reads, caller, request.on(target))
                self._runs.compare(reads, run)
                checked.append((run, run.serialized()))
            except ResponderBotError as error:
                checked.append(Refusal.of(error))
            except ValueError:  # one damaged record must not spoil the others
                log.exception("record_unreadable", object_id=target.object_id)
                checked.append(Refusal("unavailable", "The stored record can't be read; restore a backup."))
        return checked

    def _record_all(
        self, tx: Transaction, number: int, now: int, caller: Caller, request: BulkInput, checked: Iterable[_Checked]
    ) -> list[Action | Refusal]:
        """Record a run for each target of a bulk, or the row of the audit that says why it has none."""
        done = list[_Recorded]()
        outcomes = [self._record(tx, target, number, done) for target in checked]
        name = self._registry.name(request.responder_id)
        for target, outcome in zip(request.targets, outcomes, strict=True):
            if isinstance(outcome, Refusal):
                what: trail.What = "run.covered" if outcome.covered_by else "run.refused"
                _audit(tx, now, what, caller, target.object_id, outcome, bulk=f"~{number}", responder=name)
        for _, action, _, also_for in done:
            if ids := [id_ for id_ in also_for if id_ != action.object_id]:
                stored_actions.change(tx, action.number, doc=action.model_copy(update={"also_for": ids}).to_json())
        return outcomes

    def _record(self, tx: Transaction, checked: _Checked, bulk_id: int, done: list[_Recorded]) -> Action | Refusal:
        """Record it, unless one that is `done` covers it."""
        if isinstance(checked, Refusal):
            return checked
        on, target = self._acts_on(checked[0]), checked[0].target
        if by := next((one for one in done if on <= one.acts_on), None):
            by.also_for.update({f"~{target.id}": None} if target.clearance <= by.level else {})
            sentence = f"The run on {by.action.object_id} ({by.action.id}) acts on the same, and is for this as well."
            return Refusal("bad_request", sentence, covered_by=by.action.number)
        outcome = attempted(tx, lambda: self._runs.record(tx, *checked, bulk_id=bulk_id)[0])
        done += [_Recorded(on, outcome, target.clearance, {})] if isinstance(outcome, Action) else []
        return outcome

    def _acts_on(self, run: CheckedRun) -> Set[str]:
        """What one run of a bulk does for all that are on it: contain or release that, or else what its object gets."""
        section, target, acts_on = run.section, run.target, run.target.acts_on or ()
        is_once = section.contains or section.undo or self._guards.is_undo(run.choice.merged.name)
        named = targets.acted_on(acts_on, target).values() if is_once else ()
        return {one.digest for one in named} or {" ".join([str(target.id), *(artifact.id for artifact in acts_on)])}

    def _row(
        self, number: int, now: int, caller: Caller, request: BulkInput, outcomes: Sequence[Action | Refusal]
    ) -> Mapping[str, Any]:
        recorded = [
            {
                **(outcome._asdict() if isinstance(outcome, Refusal) else {"action": outcome.number}),
                **json.loads(target.to_json()),
            }
            for target, outcome in zip(request.targets, outcomes, strict=True)
        ]
        counted = [outcome for outcome in outcomes if not (isinstance(outcome, Refusal) and outcome.covered_by)]
        return {
            "id": number,
            "created_by": caller.login,
            "created_at": now,
            "responder_name": self._registry.name(request.responder_id),
            "request": self._without_secrets(request).model_dump_json(
                by_alias=True, exclude={"targets"}, exclude_none=True
            ),
            "targets": json.dumps(recorded),
            "total": len(counted),
            "refused": sum(isinstance(outcome, Refusal) for outcome in counted),
        }

    def _without_secrets(self, request: BulkInput) -> BulkInput:
        """The request as it is kept, to be run again; each action has the secrets for as long as it needs them."""
        merged = self._registry.find(self._registry.name(request.responder_id))
        # The parameters of an unknown responder may all be secret.
        names = frozenset(request.parameters) if merged is None else secret_names(self._registry.parameters(merged))
        note = reports.why_without_secrets(request.note.strip(), request.parameters, names)
        parameters = reports.without_secrets(request.parameters, names)
        return request.model_copy(update={"parameters": parameters, "note": note})

    async def _outcomes(self, number: int) -> BulkOutcomes:
        def read(reads: Reads) -> BulkOutcomes:
            _, row = self._find(reads, f"~{number}")
            docs = stored.docs_of(reads, number)
            if sum(map(len, docs.values())) > SHORTENED_CHARS:
                docs = {number: reports.shorten(doc) for number, doc in docs.items()}
            asked = json.loads(row["targets"])
            outcomes = [(one["objectId"], _refusal(one) or docs[one["action"]]) for one in asked]
            return BulkOutcomes(f"~{number}", outcomes)

        return await self._database.snapshot(read)

    def _find(self, reads: Reads, bulk_id: str) -> tuple[int, Row]:
        row = stored.find(reads, parse_id(bulk_id) or 0)
        if row is None:
            raise ResponderBotError("not_found", "Bulk not found")
        return row["id"], row


def _require_short(parameters: Mapping[str, Any]) -> None:
    size = len(json.dumps(parameters, ensure_ascii=False).encode("utf-8", "replace"))
    if size > PARAMETERS_LIMIT_BYTES:
        most = f"Parameters for several objects have at most {PARAMETERS_LIMIT_BYTES} bytes, not {size}"
        raise ResponderBotError("bad_request", f"{most}; run it on one after the other, or give it less.")


def _waiting(reads: Reads, number: int, shown: Sequence[str] | None) -> dict[int, str]:
    """What waits for a decision, by the number of its action: the id of an extension, or "" for the run."""
    runs, extensions = dict.fromkeys(stored.awaiting(reads, number), ""), stored.later_ends(reads, number)
    if shown is None or not {*extensions.values()}.intersection(shown):
        return runs
    return {id_: "" for id_ in runs if f"~{id_}" in shown} | extensions


def read_counts(reads: Reads, registry: Registry, guards: Guards, bulk_ids: Iterable[int]) -> list[BulkCounts]:
    """The progress of several bulks; unknown ids are left out."""
    ids = list(bulk_ids)
    counts, people = stored.counts(reads, ids), stored.people(reads, ids)
    return [
        BulkCounts(
            id=f"~{row['id']}",
            title=registry.title(row["responder_name"]),
            objects=len({target["objectId"] for target in json.loads(row["targets"])}),
            free_at=guards.free_at(reads, row["responder_name"]) if _is_rated(row["targets"]) else None,
            retries=json.loads(row["request"]).get("retries"),
            retried_by=f"~{row['retried_by']}" if row["retried_by"] else None,
            **{name: row[name] for name in ("created_by", "created_at", "responder_name", "total", "refused")},
            **_counted(reads, [one for one in counts if one["bulk_id"] == row["id"]]),
            **_people([one for one in people if one["bulk_id"] == row["id"]]),
        )
        for row in stored.find_all(reads, ids)
    ]


def _counted(reads: Reads, rows: Sequence[Row]) -> dict[str, Any]:
    """The part of BulkCounts that is counted in its actions, of rows of `stored.counts`."""
    counts, outcomes = Counter[ActionStatus](), Counter[Outcome]()
    for row in rows:
        counts[row["status"]] += row["count"]
        if row["outcome"] is not None:
            outcomes[row["outcome"]] += row["count"]
    sums = ("later_ends", "timed", "endless", "undoing", "undone", "not_released")
    return {
        "counts": counts,
        "outcomes": outcomes,
        "undo_after_minutes": _undo_after_minutes(reads, rows),
        "release_at": max((row["release_at"] or 0 for row in rows), default=0) or None,
        "first_release_at": min((at for row in rows if (at := row["first_release_at"]) is not None), default=None),
        **_awaiting(rows),
        **{name: sum(row[name] for row in rows) for name in sums},
    }


def _undo_after_minutes(reads: Reads, rows: Sequence[Row]) -> int | None:
    """How long all its runs last, as the first does; 0: until somebody undoes them, None: nothing undoes them."""
    first = stored_actions.find(reads, rows[0]["first_id"]) if rows else None
    undo = None if first is None else json.loads(first["doc"]).get("undo")
    return None if undo is None else undo.get("afterMinutes", 0)


def _awaiting(rows: Iterable[Row]) -> dict[str, Any]:
    """How many of its runs wait for approval, and until when."""
    waiting = next((row for row in rows if row["awaits"]), None)
    if waiting is None:
        return {"awaiting": 0}
    return {"awaiting": waiting["count"], "expires_at": waiting["expires_at"], "severity": waiting["severity"]}


def _people(rows: Sequence[Row]) -> dict[str, Any]:
    """Who decided on it and ended what it did, of rows of `stored.people`."""
    return {
        "approved_by": _first(login for row in rows for login in json.loads(row["approved_by"] or "[]")),
        "undone_by": _first(row["undone_by"] for row in rows if row["undone_by"]),
        "undone_at": max((row["undone_at"] or 0 for row in rows), default=0) or None,
        "by_itself": sum(row["by_itself"] for row in rows),
    }


def _first(logins: Iterable[str]) -> list[str]:
    """The first of them, each once."""
    return list(dict.fromkeys(logins))[:MOST_PEOPLE]


def _is_rated(targets: str) -> bool:
    """Whether a rate refused some of them."""
    return any(target.get("rule") == "rate" for target in json.loads(targets))


def _states(reads: Reads, row: Row) -> list[BulkTarget]:
    """The targets of a bulk, as they are now."""
    actions = {action["id"]: action for action in stored.actions_of(reads, row["id"])}
    return [_state(target, actions) for target in json.loads(row["targets"])]


def _state(target: Mapping[str, Any], actions: Mapping[int, Row]) -> BulkTarget:
    named, refusal = dict(RunTarget.model_validate(target)), _refusal(target)
    action = actions.get(target.get("action") or target.get("covered_by") or 0)
    has_failed = bool(action and (action["is_undone"] or action["status"] not in (*OPEN_STATUSES, "Success")))
    if refusal is not None:
        was = refusal.fields() | {"message": refusal.fact or refusal.message}
        is_refused = not (refusal.covered_by or target.get("is_repeated"))
        is_on_other = action is not None and f"~{action['object_id']}" != target["objectId"]
        return BulkTarget(**named | was, has_failed=is_refused or (is_on_other and has_failed))
    if action is None:  # deleted by hand
        return BulkTarget(**named, status=404)
    return BulkTarget(
        **named,
        status=201,
        action_id=f"~{action['id']}",
        action_status=action["status"],
        outcome=action["outcome"],
        has_failed=has_failed,
    )


def attempted(tx: Transaction, work: Callable[[], T]) -> T | Refusal:
    """What is done for one target, or why it is refused, so that it doesn't stop the others."""
    try:
        with tx.savepoint():
            return work()
    except ResponderBotError as error:
        if error.code == "unavailable":
            raise
        return Refusal.of(error)


def _audit(
    tx: Transaction, now: int, what: trail.What, caller: Caller, id_: str, refusal: Refusal, **details: str
) -> None:
    """Add the row of a target that was refused."""
    texts, code, rule = {"reason": refusal.message}, refusal.code, refusal.rule
    trail.record(tx, now, what, by=caller.login, object=id_, texts=texts, **details, code=code, rule=rule)


def _refusal(target: Mapping[str, Any]) -> Refusal | None:
    """Why a stored target has no action; None if it has one."""
    known = {name: target[name] for name in Refusal._fields if name in target}
    return Refusal(**known) if "code" in target else None


def _require_not_retried(row: Row) -> None:
    if row["retried_by"] is not None:
        raise ResponderBotError("conflict", f"This was asked for again already, as ~{row['retried_by']}.")


def _require_any(outcomes: Sequence[object], prefix: str, now: int) -> None:
    """Raise the first reason if all are refused, as rate_limited, forbidden or conflict, so that nothing changes."""
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
    if len(refused) < len(outcomes) or not refused:
        return
    limited = [refusal for refusal in refused if refusal.rule == "rate"]
    if not limited:
        code: Code = "forbidden" if all(refusal.code == "forbidden" for refusal in refused) else "conflict"
        raise ResponderBotError(code, f"{prefix}: {refused[0].message}")
    first = min(limited, key=lambda refusal: refusal.until or FOR_EVER)
    details = {"rule": first.rule, **when_free(first.until, now)}
    raise ResponderBotError("rate_limited", f"{prefix}: {first.message}", details=details)
