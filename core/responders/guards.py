"""The rules of the settings for each responder: who, on what, how often (core/docs/guards.md).

They are checked in the transaction that records a run, and again in the one that dispatches it. A responder without
rules costs no query.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import combinations
from typing import Any

from core.audit.verify import canonical, digest
from core.authorization import expand, full_login, profiles_with
from core.common.clock import Clock, time_text
from core.common.database import Reads, Row
from core.common.errors import Code, ResponderBotError
from core.common.words import count, listed
from core.models import OVERRIDE, SEVERITY_NAMES, Action, Override, Refusal, parse_id
from core.protection import BLOCK, KINDS, Parsed, ProtectedTargets, Unread, parse
from core.responders.profiles import is_undo, with_profile
from core.responders.target import Target, applies, artifacts_of, named_by
from core.settings import Rate, ResponderSection, section_for
from core.store import actions as stored
from core.store import blocklist, objects, people

MAX_NAMED = 10
"""How many of those who may decide are named."""
MAX_COMPARED = 262_144  # characters, with 16 for each text
_ORDER = {
    rule: number
    for number, rule in enumerate(
        ("target", "run_by", "only_on", "approval", "protect", "blocklist", "rate", "rate_per_target"),
    )
}
_TEMPORARY = ("rate", "rate_per_target")
_CODES: Mapping[str, Code] = {
    "run_by": "forbidden",
    "only_on": "bad_request",
    "approval": "conflict",
    "protect": "bad_request",
    "blocklist": "conflict",
    "rate": "rate_limited",
    "rate_per_target": "rate_limited",
}


@dataclass(frozen=True)
class AskedRun:
    """A run as the rules see it."""

    responder_name: str
    login: str
    """The requester."""
    target: Target
    parameters: Mapping[str, Any]
    number: int = 0
    """The number of the action that is about to be dispatched; 0 for a run that isn't recorded yet."""
    undoes: bool = False
    """Whether it undoes a run. It gets the target of that run and nothing else, so it may run on a protected one."""
    types: Mapping[str, str] = field(default_factory=dict)
    """The declared types of its parameters."""


class Guards:
    """Checks the rules of the settings."""

    def __init__(
        self,
        sections: Mapping[str, ResponderSection],
        clock: Clock,
        *,
        protected: ProtectedTargets | None = None,
        user_domain: str = "",
        max_blocked: int = 10_000,
    ) -> None:
        """`max_blocked`: how many targets may be in force of Block at once."""
        self._max_blocked = max_blocked
        self._sections = sections
        self._clock = clock
        self._protected = protected or ProtectedTargets()
        self._domain = user_domain
        self._rules: dict[str, _Rules] = {}
        self._has_own = any(_Rules.of(section, name).is_any for name, section in sections.items())

    def section(self, responder_name: str) -> ResponderSection:
        """The settings of a responder; the defaults without any."""
        return self._rules_of(responder_name).section

    def policy(self, responder_name: str) -> str:
        """The hash of these settings, for the audit."""
        return self._rules_of(responder_name).policy

    def is_undo(self, responder_name: str) -> bool:
        """Whether the settings or a profile name it as what undoes another."""
        return is_undo(responder_name, self._sections)

    def login(self, name: str) -> str:
        """A login or its first part as the whole login."""
        return full_login(name, self._domain)

    def _rules_of(self, responder_name: str) -> "_Rules":
        if responder_name not in self._rules:
            section = section_for(responder_name, self._sections) or ResponderSection()
            self._rules[responder_name] = _Rules.of(section, responder_name)
        return self._rules[responder_name]

    # --- runs -------------------------------------------------------------------------------------------------------

    def refusals(self, reads: Reads, run: AskedRun) -> list[Refusal]:
        """The rules that block a run now."""
        section = self.section(run.responder_name)
        refusals = [*self.of_caller(reads, run), *self.of_target(reads, run)]
        if section.approval and not run.number:
            refusals += self.of_approval(reads, run)
        refusals += self.of_protect(reads, run) if self.compares(run.responder_name) else ()
        return sorted(refusals, key=lambda refusal: _ORDER[refusal.rule])

    def has_rules(self, responder_name: str) -> bool:
        """Whether any rule may block its runs."""
        return self.has_own_rules(responder_name) or self.compares(responder_name)

    def has_own_rules(self, responder_name: str) -> bool:
        """Whether it has rules of its own, in its section of the settings; `[protect]` is not one of them."""
        return responder_name == BLOCK or (self._has_own and self._rules_of(responder_name).is_any)

    def of_caller(self, reads: Reads, run: AskedRun) -> Iterator[Refusal]:
        """The rules that block it on any target."""
        section = self.section(run.responder_name)
        yield from self._of_run_by(reads, section, run.login)
        yield from self._of_rates(reads, run, per_target=False)

    def of_target(self, reads: Reads, run: AskedRun) -> Iterator[Refusal]:
        """The rules that block it on this target, except `[protect]`."""
        yield from _of_only_on(self.section(run.responder_name), run.target)
        if run.responder_name == BLOCK and blocklist.count(reads, run.number) + _targets(run) > self._max_blocked:
            what = f"the block list is full, with {self._max_blocked} entries"
            yield _refusal("blocklist", what, "unblock some, or an administrator may raise [blocklist] max_entries")
        yield from self._of_rates(reads, run, per_target=True)

    def require(self, reads: Reads, run: AskedRun, reason: str | None, profile: str) -> Override | None:
        """Require that no rule blocks a run, or return what it overrides, if it has a `reason` to.

        Raises ResponderBotError: forbidden, bad_request, conflict or rate_limited, for the first rule that blocks it.
        """
        refusals = self.refusals(reads, run)
        if reason is not None and profile != "org-admin":
            raise ResponderBotError("forbidden", "You are not authorized to override rules, only an administrator is.")
        for refusal in refusals:
            if reason is None or not refusal.overridable:
                raise _error(run.responder_name, refusal, self._clock())
        if reason is None:
            return None
        if not refusals:
            sentence = "No rule blocks this run, so there is nothing to override; leave out breakGlass."
            raise ResponderBotError("bad_request", sentence)
        for refusal in self.of_approval(reads, run, is_override=True):
            raise _error(run.responder_name, refusal, self._clock())
        return Override(reason=reason, overrides=refusals)

    def compare(self, reads: Reads, run: AskedRun) -> None:
        """Compare a run with the protected targets before its transaction, which then finds the answers in memory."""
        for _ in self.of_protect(reads, run):
            pass

    @property
    def has_protected(self) -> bool:
        """Whether anything is protected."""
        return bool(self._protected)

    def compares(self, responder_name: str) -> bool:
        """Whether `[protect]` holds for a responder."""
        return self.has_protected and self._rules_of(responder_name).is_protected

    def why_not_dispatch(self, reads: Reads, row: Row, run: AskedRun) -> str:
        """Why a recorded action may no longer start, as a sentence, or `""`."""
        return _why_not_run(row, self.refusals(reads, run))

    def why_protected(self, reads: Reads, row: Row, run: AskedRun) -> str:
        """Why a recorded action may not run on what is protected now, as a sentence, or `""`."""
        return _why_not_run(row, self.of_protect(reads, run)) if self.compares(run.responder_name) else ""

    def require_now(self, reads: Reads, row: Row, run: AskedRun) -> None:
        """Raise for a rule that blocks for a time only, so that the action can be approved later."""
        for refusal in _not_overridden(row, self.refusals(reads, run)):
            if refusal.rule in _TEMPORARY:
                raise _error(run.responder_name, refusal, self._clock())

    def counts_targets(self, responder_name: str) -> bool:
        """Whether a rate counts its runs for each target."""
        return any(per_target for _, per_target in self._rules_of(responder_name).rates)

    # --- approvals --------------------------------------------------------------------------------------------------

    def is_among(self, reads: Reads, names: Sequence[str] | None, login: str) -> bool:
        """Whether a rule names somebody; None names everybody."""
        return names is None or login in expand(reads, names, self._domain)

    # --- for administrators -----------------------------------------------------------------------------------------

    def problems(self, reads: Reads) -> list[str]:
        """A sentence for each rule that can't work as intended: such as an unknown login."""
        problems = [problem] if (problem := self._protected.current().problem) else []
        for name, section in self._sections.items():
            if sentence := self._unapproved(reads, name, section):
                problems.append(sentence)
            for key, names in (("run_by", section.run_by), ("approve_by", section.approve_by)):
                problems += [
                    f"{key} of {name} names the group {group[1:]}, which has no members;"
                    f" `responder-bot group add {group[1:]} LOGIN` puts somebody into it."
                    for group in names or ()
                    if group.startswith("@") and not expand(reads, [group], self._domain)
                ]
                problems += [
                    f"{key} of {name} names {login}, which is nobody's login; correct it, or"
                    f" `responder-bot user add {login} --profile analyst`."
                    for login in names or ()
                    if not login.startswith("@") and people.by_login(reads, full_login(login, self._domain)) is None
                ]
        return problems

    # --- the rules --------------------------------------------------------------------------------------------------

    def _of_run_by(self, reads: Reads, section: ResponderSection, login: str) -> Iterator[Refusal]:
        if self.is_among(reads, section.run_by, login):
            return
        if not section.run_by:
            yield _refusal("run_by", "nobody may run it", "an administrator may name somebody in its run_by")
        else:
            yield _refusal("run_by", f"only {listed(section.run_by)} may run it", "ask one of them")

    def of_protect(self, reads: Reads, run: AskedRun) -> Iterator[Refusal]:
        """The protected targets that a run names; the same for all responders that `[protect]` holds for."""
        if not self._protected:
            return
        protected = self._protected.current()
        if isinstance(protected, Unread):
            yield _refusal("protect", protected.problem.rstrip("."), "an administrator has to correct it")
            return
        left = MAX_COMPARED
        for where, named in _named_by(reads, run):
            for one in named:
                left -= 16 + len(one.value if isinstance(one, Parsed) else one)
                if left < 0:
                    yield _refusal(
                        "protect", f"it is given too much to compare with [protect], from {where} on", OVERRIDE
                    )
                    return
                if (why := protected.entry_for(one)) is not None:
                    yield _refusal("protect", f"{where} is {why}", OVERRIDE)
                    break
        for (name, first), (other, last) in combinations(_ends_in(run), 2):
            if (why := protected.entry_between(first, last)) is not None:
                yield _refusal("protect", f"the range from its input {name} to its input {other} is {why}", OVERRIDE)

    def of_approval(self, reads: Reads, run: AskedRun, *, is_override: bool = False) -> Iterator[Refusal]:
        """Whether too few of those who are able to decide could approve a run that somebody asks for."""
        section = self.section(run.responder_name)
        needed, names = section.approval + is_override, section.approve_by if section.approval else ()
        able = partial(self.able_to_decide, reads, but=[run.login], clearance=run.target.clearance)
        named = {row["login"] for row in able(names, limit=section.approval)}
        found = named if not is_override else {row["login"] for row in able(names, limit=needed, or_admins=True)}
        has_admin = not is_override or able((), limit=1, or_admins=True)
        if len(found) >= needed and len(named) >= section.approval and has_admin:
            return
        who = "nobody else" if not found else f"only {len(found)} of the {needed} people that it takes"
        lift = "an administrator may give somebody the right, a higher clearance or a link to Slack"
        if section.approve_by is not None:
            lift += f", or let others than {listed(section.approve_by)} approve it"
        yield _refusal("approval", f"{who} could approve it", lift)

    def able_to_decide(
        self,
        reads: Reads,
        names: Sequence[str] | None,
        *,
        limit: int,
        but: Iterable[str] = (),
        clearance: int = 0,
        or_admins: bool = False,
        in_slack: bool = False,
    ) -> list[Row]:
        """Those of a rule's names (None: everybody) who may decide on what takes this clearance, as `people` has them.

        At most `limit`; `or_admins` adds the org-admins.
        """
        return people.able_to_decide(
            reads,
            named=None if names is None else [name if name.startswith("@") else self.login(name) for name in names],
            profiles=profiles_with("manageAction"),
            always=profiles_with("manageUser") if or_admins else (),
            but=but,
            clearance=clearance,
            limit=limit,
            in_slack=in_slack,
        )

    def _unapproved(self, reads: Reads, name: str, section: ResponderSection) -> str:
        """Why no run of a responder could be approved, whoever asked for it, as a sentence; or `""`."""
        if not section.approval:
            return ""
        able = {row["login"] for row in self.able_to_decide(reads, section.approve_by, limit=section.approval + 1)}
        # With just as many as it takes, somebody else has to ask for it.
        others = able if len(able) == section.approval else ()
        askers = partial(self.able_to_decide, reads, section.run_by, limit=1)
        if len(able) > section.approval or not askers() or (others and askers(but=others)):
            return ""
        able_to = "1 person" if len(able) == 1 else f"{len(able)} people"
        return (
            f"No run of {name} can be approved: each takes {section.approval} beside who asks for it, and {able_to} may"
            " approve; give somebody the right, or change its approval."
        )

    def _of_rates(self, reads: Reads, run: AskedRun, *, per_target: bool) -> Iterator[Refusal]:
        for rate in (rate for rate, is_per in self._rules_of(run.responder_name).rates if is_per == per_target):
            on = self._same_target(reads, run) if per_target else None
            used, free_at = self._used(reads, run.responder_name, rate, on, but=run.number)
            what = f"the limit of {count(rate.runs, 'run')} in {_period(rate)} is reached"
            if used >= rate.runs and on:  # the runs may be on an artifact that the caller may not see
                yield _refusal("rate_per_target", f"{what} on this target", OVERRIDE)
            elif used >= rate.runs:
                reached = what if free_at else f"{what}, counting runs that have yet to end"
                yield _refusal("rate", reached, OVERRIDE, until=free_at)

    def usage(self, reads: Reads, run: AskedRun) -> list[str]:
        """How much of each rate is used; not of rates for a target, whose runs the caller may not see."""
        notes = []
        for rate, per_target in self._rules_of(run.responder_name).rates:
            used, _ = (0, None) if per_target else self._used(reads, run.responder_name, rate)
            if 0 < used < rate.runs:
                notes.append(f"{used} of {rate.runs} runs in {_period(rate)} are used")
        return notes

    def free_at(self, reads: Reads, responder_name: str) -> int | None:
        """When its rates for all targets together are free again (ms); None if they are, or if that is unknown."""
        rates = [rate for rate, per_target in self._rules_of(responder_name).rates if not per_target]
        used_up = [at for rate in rates for used, at in [self._used(reads, responder_name, rate)] if used >= rate.runs]
        return None if None in used_up else max(filter(None, used_up), default=None)

    def _used(
        self, reads: Reads, name: str, rate: Rate, on: stored.SameTarget | None = None, *, but: int = 0
    ) -> tuple[int, int | None]:
        """How many runs of a rate are used, and when one is free again (ms) if all are; None if that is unknown.

        A waiting run counts, until its dispatch, which counts for one period. So do times in the future, which are
        there after the clock was set back.
        """
        now = self._clock()
        times = stored.dispatched(reads, name, now - rate.ms, now + rate.ms, rate.runs, but=but, on=on)
        waiting = 0 if but else stored.count_waiting(reads, name, on=on)
        used = min(len(times) + waiting, rate.runs)
        over = len(times) + waiting - rate.runs  # how many more of the newest must end first
        if over < 0 or len(times) <= over:
            return used, None
        return used, min(times[len(times) - 1 - over], now) + rate.ms

    def _same_target(self, reads: Reads, run: AskedRun) -> stored.SameTarget:
        target = run.target
        if target.kind == "case_artifact":
            named = named_by(target.json)
            return stored.SameTarget(True, target.id, [] if named is None else [named.digest])
        roots = [target.root_id]
        if target.kind == "alert":
            case = parse_id(str(target.json.get("case") or ""))
            roots += [case] if case is not None else []
        else:
            roots += objects.alerts_of(reads, target.root_id, 1_000)
        return stored.SameTarget(False, target.id, (), roots)


class RulesFor:
    """The rules for one caller, for lists; reads once what doesn't depend on the target."""

    def __init__(self, guards: Guards, reads: Reads, login: str) -> None:
        self._guards = guards
        self._reads = reads
        self._login = login
        self._of_approval: dict[tuple[object, ...], list[Refusal]] = {}
        self._of_caller: dict[str, list[Refusal]] = {}
        able = partial(guards.able_to_decide, reads, but=[login], limit=MAX_NAMED, in_slack=True)
        self._able = cache(lambda names, clearance: able(names, clearance=clearance))
        self._protected: dict[tuple[str, int, str], list[Refusal]] = {}

    def refusals(self, responder_name: str, target: Target) -> list[Refusal]:
        """As `Guards.refusals`, for a run without parameters."""
        refusals: list[Refusal] = []
        run = AskedRun(responder_name, self._login, target, {})
        if self._guards.has_own_rules(responder_name):
            if responder_name not in self._of_caller:
                self._of_caller[responder_name] = list(self._guards.of_caller(self._reads, run))
            refusals = [*self._of_caller[responder_name], *self._guards.of_target(self._reads, run)]
        if (section := self._guards.section(responder_name)).approval:
            who = section.approval, section.approve_by, target.clearance
            if who not in self._of_approval:
                self._of_approval[who] = list(self._guards.of_approval(self._reads, run))
            refusals += self._of_approval[who]
        return sorted([*refusals, *self.of_protect(responder_name, target)], key=lambda refusal: _ORDER[refusal.rule])

    def allowed(self, responder_names: Sequence[str], target: Target) -> list[str]:
        """The responders that no rule blocks."""
        is_protected = bool(self.of_protect("", target))
        if not is_protected and not any(map(self._guards.has_own_rules, responder_names)):
            return list(responder_names)
        return [name for name in responder_names if not self.refusals(name, target)]

    def of_protect(self, responder_name: str, target: Target) -> list[Refusal]:
        """As `Guards.of_protect`; none if `[protect]` doesn't hold for the responder."""
        if not self._guards.compares(responder_name):
            return []
        key = target.kind, target.id, " ".join(artifact.id for artifact in target.acts_on or ())
        if key not in self._protected:
            run = AskedRun(responder_name, self._login, target, {})
            self._protected[key] = list(self._guards.of_protect(self._reads, run))
        return self._protected[key]

    def approvers(self, responder_name: str, target: Target) -> list[str] | None:
        """Those in Slack who could approve a run, as many as are asked; those who decided last first. None for none."""
        section = self._guards.section(responder_name)
        rows = self._able(section.approve_by, target.clearance) if section.approval else ()
        return list(dict.fromkeys(row["login"] for row in rows)) or None

    def usage(self, responder_name: str, target: Target) -> list[str]:
        """As `Guards.usage`."""
        return self._guards.usage(self._reads, AskedRun(responder_name, self._login, target, {}))


@dataclass(frozen=True)
class _Rules:
    """The settings of a responder, and its rates with whether each is for a target."""

    section: ResponderSection
    rates: Sequence[tuple[Rate, bool]]
    policy: str
    """The hash of the section."""
    is_protected: bool
    """Whether `[protect]` holds for it."""

    @staticmethod
    def of(section: ResponderSection, responder_name: str) -> "_Rules":
        whole, per_target = (map(Rate.parse, texts) for texts in (section.rate, section.rate_per_target))
        rates = [*((rate, False) for rate in whole), *((rate, True) for rate in per_target)]
        policy = digest(canonical(section.model_dump(mode="json")))
        return _Rules(section, rates, policy, with_profile(section, responder_name).protect)

    @property
    def is_any(self) -> bool:
        section = self.section
        return bool(section.run_by is not None or section.only_on or section.approval or self.rates)


def _of_only_on(section: ResponderSection, target: Target) -> Iterator[Refusal]:
    rule, lift = section.only_on, "an administrator may change its only_on"
    if rule is None:
        return
    if rule.data_types and not applies(rule.data_types, target.kind, target.data_type):
        yield _refusal("only_on", f"it runs on {listed(rule.data_types)} only", lift)
    tags = {tag.casefold() for doc in target.with_parents() for tag in doc.get("tags") or ()}
    if rule.tags and not {tag.casefold() for tag in rule.tags} & tags:
        yield _refusal("only_on", f"it runs only on what is tagged {' or '.join(rule.tags)}", lift)
    severity = next((doc["severity"] for doc in target.with_parents() if "severity" in doc), 0)
    if severity < rule.severity_at_least:
        word = SEVERITY_NAMES[rule.severity_at_least]
        yield _refusal("only_on", f"it runs from severity {word} on", lift)


def why_protected(artifact_id: str, refusals: Iterable[Refusal]) -> str:
    """Which of these refusals of an alert is about this one of its artifacts, as a sentence, or `""`."""
    return next((one.message for one in refusals if one.message.startswith(f"{_name_of(artifact_id)} ")), "")


def _name_of(artifact_id: str) -> str:
    return f"the observable {artifact_id}"


def _named_by(reads: Reads, run: AskedRun) -> Iterator[tuple[str, Sequence[Parsed | str]]]:
    """What a run's target and inputs name, each with how a sentence on it begins; a text where no type is declared."""
    target = run.target
    for artifact in () if run.undoes else artifacts_of(reads, target):
        what = "its target" if target.kind == "case_artifact" else _name_of(artifact.get("id", ""))
        named = named_by(artifact)
        if named is None:
            yield what, [artifact["data"]]
        elif named.kind == "file":
            yield what, [Parsed("file", digest) for digest in artifact["attachment"]["hashes"]]
        else:
            yield what, [named]
    for name, value in run.parameters.items():
        typed = run.types.get(name) in KINDS and isinstance(value, str)
        yield f"its input {name}", [parse(run.types[name], value)] if typed else list(_texts_in(value))


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts_in(item)


def _ends_in(run: AskedRun) -> Iterator[tuple[str, Parsed]]:
    """The inputs that are declared as an address."""
    for name, value in run.parameters.items():
        if run.types.get(name) == "ip" and isinstance(value, str):
            yield name, parse("ip", value)


def _targets(run: AskedRun) -> int:
    return max(1, len(run.target.acts_on or ()))


def _refusal(rule: Any, message: str, lift: str, *, until: int | None = None) -> Refusal:
    return Refusal(rule=rule, message=message, lift=lift, until=until)


def _why_not_run(row: Row, refusals: Iterable[Refusal]) -> str:
    blocking = next(_not_overridden(row, refusals), None)
    return "" if blocking is None else f"{row['responder_name']} did not run: {blocking.message}; {blocking.lift}."


def _not_overridden(row: Row, refusals: Iterable[Refusal]) -> Iterator[Refusal]:
    """The refusals that block a recorded action."""
    found = list(refusals)
    override = Action.model_validate_json(row["doc"]).override if found else None
    return (one for one in found if override is None or not _is_overridden(one, override.overrides))


def _is_overridden(refusal: Refusal, overrides: Iterable[Refusal]) -> bool:
    """Whether this refusal was overridden; a protected target must be the same one."""
    return any(
        known.rule == refusal.rule and (refusal.rule != "protect" or known.message == refusal.message)
        for known in overrides
    )


def _error(name: str, refusal: Refusal, now: int) -> ResponderBotError:
    code, details = _CODES[refusal.rule], {"rule": refusal.rule, **when_free(refusal.until, now)}
    what = f"You are not authorized to run {name}" if refusal.rule == "run_by" else f"{name} can't run"
    free = f"; free again at {time_text(refusal.until)}" if refusal.until is not None else ""
    return ResponderBotError(code, f"{what}: {refusal.message}{free}; {refusal.lift}.", details=details)


def when_free(until: int | None, now: int) -> Mapping[str, int]:
    """What an error says of when a rate is free again; nothing if that is unknown."""
    return {} if until is None else {"until": until, "retryAfter": max(1, -(-(until - now) // 1000))}


def _period(rate: Rate) -> str:
    """A period for people, such as `2 hours`."""
    number, unit = int(rate.text.partition("/")[2][:-1]), rate.text[-1]
    word = {"s": "second", "m": "minute", "h": "hour", "d": "day"}[unit]
    return count(number, word)
