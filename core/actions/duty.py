"""Asks people to approve what waits, or to work on an alert, one step of a duty after the other (core/docs/duty.md).

The next step is a row. The core that finds it due takes the step: in one transaction it reads who may decide by then,
stores who is asked, and replaces the row. The bot reads in the feed who was asked, and tells them. Which alerts nobody
is assigned to is read in the feed too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import structlog

from core.actions import undo_state
from core.actions.undo_state import Entry
from core.audit import trail
from core.authorization import Caller, deciders, expand
from core.common.clock import MINUTE_MS, Clock, boot_ms
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.common.settings_file import ChannelAlerts
from core.common.tasks import repeat
from core.models import ASK_CHANNEL, Action, Alert, AskedStep, Duty, parse_id
from core.records import clearance
from core.responders import target as targets
from core.responders.guards import Guards
from core.settings import DutyStep
from core.store import actions as stored_actions
from core.store import bulks as stored_bulks
from core.store import duty as stored
from core.store import events, objects

TICK_S = 1.0  # how late a step may be
ALERTS_AT_MOST = 10
"""About how many alerts of a severity or a higher one a duty begins to ask within LATELY_MS; senders set it."""
LATELY_MS = 10 * MINUTE_MS
EVENTS_AT_ONCE = 200  # of the feed, in one transaction
STEPS_AT_ONCE = 100  # in one transaction, so that thousands which are due together come in time

log = structlog.get_logger()


def begin(tx: Transaction, guards: Guards, number: int, responder_name: str, now: int, expires_at: int) -> None:
    """Have people asked, and reminded, about an action or a bulk that waits for approval from `now` (ms) on."""
    stored.delete(tx, number)
    _, steps = guards.duty(responder_name)
    if steps:
        stored.add(tx, number, 0, now + steps[0].after_ms, steps[0].after_ms)
    half = (expires_at - now) // 2
    stored.add(tx, number, stored.REMINDER, now + half, half)


class _Step(NamedTuple):
    """The next step of something, which differs from those before it."""

    number: int
    step: int
    due_at: int


@dataclass(frozen=True)
class _Waiting:
    """What waits for approval (an action, an extension of one, or a bulk), or an alert that nobody is assigned to."""

    number: int
    name: str
    """Of its duty in the settings, as `steps`."""
    steps: Sequence[DutyStep]
    duty: Duty | None
    able: Callable[[], Sequence[str]]
    """The logins of those in Slack who could decide on it, or work on it, now."""
    save: Callable[[Duty, Entry], None]
    """Stores who was asked, with an event and a row of the audit."""
    channel: str | None = None
    """The channel that has the duty; None where the responder has."""
    asked: trail.What = "approval.asked"
    declined: trail.What = "approval.declined"


class Duties:
    """Takes the steps that are due."""

    def __init__(
        self,
        database: Database,
        guards: Guards,
        clock: Clock,
        user_domain: str,
        *,
        channels: Sequence[ChannelAlerts] = (),
        steady_clock: Clock = boot_ms,
    ) -> None:
        """`steady_clock` measures how long is left to a step; nobody sets it. `channels` are those with a duty."""
        self._database = database
        self._guards = guards
        self._clock = clock
        self._domain = user_domain
        self._channels = channels
        self._steady = steady_clock
        self._due_at: dict[_Step, int] = {}
        """When the next steps are due, by the steady clock."""
        self._looked_at: int | None = None

    async def run(self) -> None:
        """Take the steps that are due until cancelled."""
        await repeat("duty", TICK_S, self.run_due)

    async def run_due(self) -> int:
        """Take the steps that are due; returns how many were."""
        try:
            await self._look_for_unassigned()
        finally:  # nothing in the feed holds up a step
            due = self._due(await self._database.read(stored.all_of))
            for start in range(0, len(due), STEPS_AT_ONCE):
                some = due[start : start + STEPS_AT_ONCE]
                await self._database.transaction(partial(self._take_some, due=some))
        return len(due)

    async def not_me(self, caller: Caller, number: str) -> Duty:
        """Note that somebody who was asked won't decide; who was asked last brings the next step.

        Raises ResponderBotError: not_found, forbidden (they weren't asked), conflict (nothing waits any more).
        """

        def work(tx: Transaction) -> Duty:
            clearance.require(tx, caller, parse_id(number) or 0, "pass on a request")
            waiting = self._find(tx, parse_id(number) or 0)
            duty = waiting.duty if waiting is not None else None
            if duty is not None and caller.login in duty.not_me:
                return duty
            if waiting is None or duty is None:
                raise ResponderBotError("conflict", "It no longer waits for anybody.")
            if caller.login not in duty.logins:
                raise ResponderBotError("forbidden", "Nobody has asked you about this.")
            duty = duty.model_copy(update={"not_me": [*duty.not_me, caller.login]})
            following = next((row for row in stored.of(tx, waiting.number) if _is_step_of(row, waiting.name)), None)
            if following is not None and caller.login in duty.asked[-1].logins:
                stored.delete(tx, waiting.number, following["step"])
                duty = self._take(tx, waiting, duty, following["step"], 0)
            waiting.save(duty, Entry(waiting.declined, by=caller.login, to=duty.asked[-1].logins))
            return duty

        return await self._database.transaction(work)

    def _due(self, rows: Sequence[Row]) -> list[tuple[_Step, int]]:
        """The steps that are due, each with how long it has been (ms).

        What is left to a step is read once from the wall clock, which may jump and differs on other hosts: it is never
        more than the step had to wait in all and, of one that wasn't there at the last look, hardly less.
        """
        now, steady = self._clock(), self._steady()
        known: dict[_Step, int] = {}
        for row in rows:
            step = _Step(row["id"], row["step"], row["due_at"])
            left = min(step.due_at - now, row["wait"])
            if self._looked_at is not None:
                left = max(left, row["wait"] - (steady - self._looked_at))
            known[step] = self._due_at.get(step, steady + left)
        self._due_at, self._looked_at = known, steady
        due = [(step, steady - due_at) for step, due_at in known.items() if due_at <= steady]
        return sorted(due, key=lambda one: (-one[1], one[0].step != stored.LATELY))  # what bars a step, before it

    def _take_some(self, tx: Transaction, due: Sequence[tuple[_Step, int]]) -> None:
        for step, late in due:
            try:
                with tx.savepoint():
                    self._take_due(tx, step, late)
            except (ValueError, TypeError, LookupError):  # nobody can decide on a record that is damaged
                log.exception("record_unreadable", id=f"~{step.number}")
                stored.delete(tx, step.number, step.step)
            except ResponderBotError as error:  # what it acts on is damaged; the step stays until its time is over
                log.warning("step_postponed", id=f"~{step.number}", reason=error.message)

    def _take_due(self, tx: Transaction, step: _Step, late: int) -> None:
        rows = (row for row in stored.of(tx, step.number) if _Step(row["id"], row["step"], row["due_at"]) == step)
        if (row := next(rows, None)) is None:
            return  # another core has taken it, or somebody has brought it
        stored.delete(tx, step.number, step.step)
        number = step.step
        if number == stored.LATELY:
            return
        waiting = self._find(tx, step.number)
        if waiting is None:
            return
        duty, steps = waiting.duty or Duty(), waiting.steps
        if number == stored.REMINDER:
            waiting.save(duty.model_copy(update={"reminded_at": self._clock()}), Entry("approval.reminded"))
            return
        if not _is_step_of(row, waiting.name):  # the channel has another duty by now
            self._begin(tx, step.number)
            return
        while number + 1 < len(steps) and late >= (gap := _gap(steps, number)):
            number, late = number + 1, late - gap  # after a long time without a core only the latest one counts
        if number >= len(steps):
            return
        duty = self._take(tx, waiting, duty, number, late)
        waiting.save(duty, Entry(waiting.asked, to=duty.asked[-1].logins))

    def _take(self, tx: Transaction, waiting: _Waiting, duty: Duty, step: int, late: int) -> Duty:
        """Ask the people of a step, and store when the next one comes."""
        before, steps, now = len(duty.asked), waiting.steps, self._clock()
        duty = self._ask(tx, waiting, duty, step)
        following = step + len(duty.asked) - before
        if following >= len(steps):
            return duty
        wait = _gap(steps, following - 1) - (late if following == step + 1 else 0)
        stored.add(tx, waiting.number, following, now + wait, wait, waiting.name if waiting.channel else None)
        return duty.model_copy(update={"next_ask": steps[following].ask, "next_at": now + wait})

    def _ask(self, tx: Transaction, waiting: _Waiting, duty: Duty, first: int) -> Duty:
        """Ask the people of a step; if nobody of them can decide, those of the next at once."""
        able, asked, now = waiting.able(), list(duty.asked), self._clock()
        for step in waiting.steps[first:]:
            before = {*duty.not_me, *(login for earlier in asked for login in earlier.logins)}
            logins = [login for login in self._named(tx, step.ask, able) if login not in before]
            asked.append(AskedStep(ask=step.ask, at=now, logins=logins))
            if logins:
                break
        changes = {"name": waiting.name, "channel": waiting.channel, "asked": asked, "next_ask": None, "next_at": None}
        return duty.model_copy(update=changes)

    def _named(self, reads: Reads, ask: str, able: Sequence[str]) -> list[str]:
        if ask == ASK_CHANNEL:
            return list(able)
        named = expand(reads, [ask], self._domain)
        return [login for login in able if login in named]

    def _find(self, tx: Transaction, number: int) -> _Waiting | None:
        """What waits by its number; None if it doesn't, or its time is over."""
        row, now = stored_actions.find(tx, number), self._clock()
        if row is None:
            return self._bulk(tx, number) or self._alert(tx, number)
        action = Action.model_validate_json(row["doc"])
        if row["approval_expires_at"] is not None and action.approval is not None:
            approval = action.approval

            def save(duty: Duty, entry: Entry) -> None:
                changed = approval.model_copy(update={"duty": duty})
                stored_actions.set_vote(tx, number, action.model_copy(update={"approval": changed}).to_json())
                entry.record(tx, now, row)
                _record_event(tx, row, now)

            if approval.expires_at <= now:
                return None
            able = partial(self._able, tx, row, action, row["created_by"], approval.approved_by)
            return _Waiting(number, *self._guards.duty(row["responder_name"]), approval.duty, able, save)
        extension = action.undo.extension if action.undo is not None else None
        if extension is None or extension.outcome is not None or extension.approval.expires_at <= now:
            return None
        of_extension = extension.approval

        def save_extension(duty: Duty, entry: Entry) -> None:
            asked = extension.model_copy(update={"approval": of_extension.model_copy(update={"duty": duty})})
            undo_state.save(tx, row, row["created_by"], now, row["undo_at"], entry, extension=asked)

        able = partial(self._able, tx, row, action, extension.asked_by, of_extension.approved_by)
        return _Waiting(number, *self._guards.duty(row["responder_name"]), of_extension.duty, able, save_extension)

    def _bulk(self, tx: Transaction, number: int) -> _Waiting | None:
        bulk, waiting = stored_bulks.find(tx, number), stored_bulks.awaiting(tx, number)
        rows = [row for row in (stored_actions.find(tx, one) for one in waiting) if row is not None]
        if bulk is None or not rows or rows[0]["approval_expires_at"] <= self._clock():
            return None

        def able() -> list[str]:
            alike: dict[tuple[Any, ...], list[str]] = {}
            for row in rows:
                action = Action.model_validate_json(row["doc"])
                approved_by = action.approval.approved_by if action.approval is not None else []
                key = _clearance(tx, row, action), *approved_by
                if key not in alike:
                    alike[key] = self._able(tx, row, action, row["created_by"], approved_by)
            return list(dict.fromkeys(login for logins in alike.values() for login in logins))

        def save(duty: Duty, entry: Entry) -> None:
            stored_bulks.set_duty(tx, number, duty.to_json())
            trail.record(tx, self._clock(), entry.what, by=entry.by, object=f"~{number}", **entry.details)
            _record_event(tx, rows[0], self._clock())

        duty = Duty.model_validate_json(bulk["duty"]) if bulk["duty"] else None
        return _Waiting(number, *self._guards.duty(bulk["responder_name"]), duty, able, save)

    async def _look_for_unassigned(self) -> None:
        """Begin to ask about the alerts that nobody is assigned to since the last look."""
        if not self._channels and self._looked_at is not None:
            return
        seen, last = await self._database.read(lambda reads: (stored.seen(reads), events.last(reads)))
        if not self._channels:
            if seen is not None:  # what comes until there is such a duty again stays unasked
                await self._database.transaction(partial(stored.set_seen, seq=None))
        elif seen is None:
            await self._database.transaction(lambda tx: stored.set_seen(tx, events.last(tx)))
        elif seen < last:
            while await self._database.transaction(self._begin_some):
                pass

    def _begin_some(self, tx: Transaction) -> bool:
        """Read the next events; whether there may be more."""
        rows = events.after(tx, stored.seen(tx) or 0, EVENTS_AT_ONCE)
        if not rows:
            return False
        changed = dict.fromkeys(row["root_id"] for row in rows if row["object_type"] == "Alert")
        severity, left_out = min(channel.unassigned_severity_at_least for channel in self._channels), []
        for number in stored.unassigned(tx, changed, severity):
            try:
                if not self._begin(tx, number):
                    left_out.append(f"~{number}")
            except ValueError:  # nobody can work on a record that is damaged
                log.exception("record_unreadable", id=f"~{number}")
        if left_out:
            log.warning("unassigned_not_asked", ids=left_out, reason="the duty was asked about too many alerts lately")
        stored.set_seen(tx, rows[-1]["seq"])
        return len(rows) == EVENTS_AT_ONCE

    def _begin(self, tx: Transaction, number: int) -> bool:
        """Have people asked about an alert, or go on where they were; False if there are too many others."""
        waiting, rows, now = self._alert(tx, number), stored.of(tx, number), self._clock()
        if waiting is None or any(_is_step_of(row, waiting.name) for row in rows):
            return True
        name, steps = waiting.name, waiting.steps
        asked = [step.ask for step in waiting.duty.asked] if waiting.duty is not None else []
        first = max((at for at, step in enumerate(steps, 1) if step.ask in asked), default=0)
        if first == len(steps):
            return True
        if not first and not any(row["step"] == stored.LATELY and row["name"] == name for row in rows):
            if stored.asked_lately(tx, name, number) >= ALERTS_AT_MOST:
                return False
            stored.delete(tx, number, stored.LATELY)
            stored.add(tx, number, stored.LATELY, now + LATELY_MS, LATELY_MS, name)
        stored.delete(tx, number)  # steps of the duty that it had before
        wait = _gap(steps, first - 1) if first else steps[0].after_ms
        stored.add(tx, number, first, now + wait, wait, name)
        return True

    def _alert(self, tx: Transaction, number: int) -> _Waiting | None:
        row = objects.find(tx, "alert", number)
        alert = Alert.model_validate_json(row["doc"]) if row is not None else None
        if alert is None or alert.status != "New" or alert.assignee is not None:
            return None
        severe = (one for one in self._channels if alert.severity >= one.unassigned_severity_at_least)
        channel = next((one for one in severe if _is_posted(alert, one)), None)
        if channel is None:
            return None

        def save(duty: Duty, entry: Entry) -> None:
            now = self._clock()
            objects.update(tx, number, alert.model_copy(update={"duty": duty}).to_json())
            trail.record(tx, now, entry.what, by=entry.by, object=alert.id, **entry.details)
            changed: dict[str, Any] = {"type": "alert.updated", "object_type": "Alert", "root_id": number}
            events.record(tx, number, at=now, user=alert.created_by, **changed)

        whats: tuple[trail.What, trail.What] = ("assignment.asked", "assignment.declined")
        name = channel.unassigned
        able = partial(_able_to_act, tx, alert.tlp)
        return _Waiting(number, name, self._guards.steps(name), alert.duty, able, save, channel.id, *whats)

    def _able(self, reads: Reads, row: Row, action: Action, asked_by: str, approved_by: Sequence[str]) -> list[str]:
        """Who in Slack could decide on a run, or on an extension of it, and hasn't."""
        able = self._guards.able_to_approve(reads, action, asked_by, _clearance(reads, row, action))
        return [one.login for one in able if one.is_linked and one.login not in approved_by]


def _clearance(reads: Reads, row: Row, action: Action) -> int:
    """The highest TLP of what somebody sees who decides on a run."""
    return max([targets.of_action(reads, row)[0].clearance, *(artifact.tlp for artifact in action.target or ())])


def _is_posted(alert: Alert, channel: ChannelAlerts) -> bool:
    fields: dict[str, Any] = {"severity": alert.severity, "source": alert.source, "type": alert.type}
    return channel.alerts is not None and channel.alerts.matches(tags=alert.tags, **fields)


def _able_to_act(reads: Reads, clearance: int) -> list[str]:
    """Who in Slack may act on what has this clearance: who may run responders may also be assigned."""
    return [one.login for one in deciders(reads) if one.is_linked and one.sees >= clearance]


def _is_step_of(row: Row, name: str) -> bool:
    """Whether a row is a step of the duty with this name."""
    return row["step"] >= 0 and row["name"] in (None, name)


def _gap(steps: Sequence[DutyStep], number: int) -> int:
    """How long the step after this one comes later (ms)."""
    return steps[number + 1].after_ms - steps[number].after_ms


def _record_event(tx: Transaction, row: Row, now: int) -> None:
    user = row["created_by"]
    events.record(tx, row["id"], at=now, type="action.updated", object_type="Action", root_id=row["root_id"], user=user)
