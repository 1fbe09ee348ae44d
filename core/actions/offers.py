"""Which responders can run on an object, and why the others can't (core/docs/semantics.md#responders-on-offer)."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

import structlog

from core.actions import target as targets
from core.actions.guards import Guards, RulesFor
from core.actions.hosts import Host
from core.actions.target import Target, applies
from core.common.clock import Clock
from core.common.database import Database, Reads, Transaction
from core.common.errors import ResponderBotError
from core.common.settings_file import variable_name
from core.common.words import spaced
from core.engines.base import Catalogue, Engine, Responder, Skipped, name_of, title_of
from core.models import (
    OBJECT_TYPES,
    TLP_NAMES,
    InputTitle,
    Kind,
    OfferedResponder,
    OfferedTarget,
    Parameter,
    Policy,
    Refusal,
    parse_parameters,
)
from core.settings import ResponderSection
from core.store import catalogues, hosts

log = structlog.get_logger()

REFRESH_S = 10.0  # between requests for an engine's catalogue
OPEN_TIMEOUT_S = 2.0  # an engine that takes longer to answer at start is known by its last stored catalogue


@dataclass(frozen=True)
class Offer:
    """A responder, merged by name over all engines that have it."""

    name: str
    entries: tuple[tuple[str, Responder], ...]
    """Engine name and that engine's own entry, in the order of the settings; the first gives id and texts."""

    @property
    def first(self) -> Responder:
        return self.entries[0][1]

    def on(self, engine_name: str) -> Responder | None:
        return next((entry for name, entry in self.entries if name == engine_name), None)


@dataclass(frozen=True)
class Choice:
    """The engine of a run, with its own entry of the responder; the action keeps the offer's id."""

    offer: Offer
    engine_name: str
    engine: Engine | None
    """None if only other hosts can run it."""
    responder: Responder


@dataclass
class EngineState:
    """What is known of one engine."""

    engine: Engine
    catalogue: Catalogue = field(default_factory=Catalogue)
    """As the engine lists it."""
    offered: Catalogue = field(default_factory=Catalogue)
    """The same without responders that can be taken for others; these are skipped."""
    up: bool = False
    """Whether it answered the last time it was asked for its catalogue."""
    message: str = "not asked yet"
    """Why it isn't up."""
    has_answered: bool = False
    """Whether the catalogue is its answer to this process, rather than a stored one."""
    is_stored: bool = False
    """Whether other hosts can read all this, if it has answered."""


@dataclass(frozen=True)
class EngineElsewhere:
    """What is known of an engine of another host."""

    host: str
    name: str
    catalogue: Catalogue
    up: bool
    capacity: int | None
    why_not: str
    """Why it takes no runs, such as "it is draining"; "" if it does."""

    def has(self, responder_name: str) -> bool:
        return any(responder.name == responder_name for responder in self.catalogue.responders)


class Offers:
    """The responders on offer, merged over engines and hosts; refreshed in the background, so that no request waits.

    Engines with the same name on several hosts are one engine, with the slots of all.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        sections: Mapping[str, ResponderSection],
        database: Database,
        clock: Clock,
        guards: Guards | None = None,
        host: Host = Host("", ""),  # noqa: B008 - frozen
    ) -> None:
        self._host = host
        self._elsewhere: Sequence[EngineElsewhere] = ()
        self._docs: dict[tuple[str, str], tuple[int, Catalogue]] = {}
        """Catalogues of other hosts, by host and engine, with the time at which each was stored."""
        self.guards = guards or Guards(sections, clock)
        self._states = {engine.name: EngineState(engine) for engine in engines}
        self._sections = sections
        self._maxima = {
            variable_name(name): section
            for name, section in sections.items()
            if (section.max_tlp, section.max_pap) != (None, None)
        }
        self._database = database
        self._clock = clock
        self._by_name: Mapping[str, Offer] = {}
        self._titles: Mapping[str, str] = {}
        self._parameters: Mapping[str, Sequence[Parameter]] = {}
        self._names_by_id: Mapping[str, str] = {}
        self._logged_problems: Collection[str] = ()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Ask all engines for their catalogues, at most OPEN_TIMEOUT_S; until it answers, the stored one counts."""
        for name, state in self._states.items():
            try:
                kept = await self._database.read(partial(self._kept, engine_name=name))
                if kept is not None:
                    state.catalogue = without_duplicates(_catalogue(kept))
            except (ResponderBotError, ValueError, KeyError, TypeError) as error:  # damaged, or of another release
                log.warning("stored_catalogue_unusable", engine=name, reason=str(error))
        self._merge()
        names = json.dumps(list(self._states))
        await self._database.transaction(lambda tx: hosts.begin_catalogues(tx, self._host.id, names))
        first = [asyncio.create_task(self._refresh(state)) for state in self._states.values()]
        if first:
            await asyncio.wait(first, timeout=OPEN_TIMEOUT_S)
        self._tasks = [
            asyncio.create_task(self._refresh_repeatedly(state, task))
            for state, task in zip(self._states.values(), first, strict=True)
        ]

    def _kept(self, reads: Reads, engine_name: str) -> str | None:
        """The JSON of an engine's last catalogue on this host or, at its first start, on any."""
        return hosts.catalogue_of(reads, self._host.id, engine_name) or catalogues.find(reads, engine_name)

    async def close(self) -> None:
        """Stop asking for catalogues; the engines stay open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def refresh(self) -> None:
        """Ask all engines for their catalogues now."""
        await asyncio.gather(*(self._refresh(state) for state in self._states.values()))

    def states(self) -> Sequence[EngineState]:
        """The engines of this host."""
        return list(self._states.values())

    async def look_elsewhere(self, why_not: Mapping[str, str]) -> None:
        """Read what other hosts offer. `why_not` is by host id: why one takes no runs, or "" if it does.

        One that it doesn't name is stopped.
        """
        rows = await self._database.snapshot(lambda reads: hosts.catalogues_elsewhere(reads, self._host.id))
        docs: dict[tuple[str, str], tuple[int, Catalogue]] = {}
        for row in rows:
            key = row["host_id"], row["engine"]
            known = self._docs.get(key)
            if known is None or known[0] != row["at"]:
                known = row["at"], await self._stored_elsewhere(*key)
            docs[key] = known
        self._docs = docs
        found = [
            EngineElsewhere(
                row["host"],
                row["engine"],
                self._docs[row["host_id"], row["engine"]][1],
                bool(row["up"]),
                row["capacity"],
                why_not.get(row["host_id"], "it is stopped"),
            )
            for row in rows
        ]
        if found != self._elsewhere:
            self._elsewhere = found
            self._merge()

    async def _stored_elsewhere(self, host_id: str, engine_name: str) -> Catalogue:
        doc = await self._database.snapshot(lambda reads: hosts.catalogue_of(reads, host_id, engine_name))
        try:
            return without_duplicates(_catalogue(doc)) if doc else Catalogue()
        except (ValueError, KeyError, TypeError) as error:  # of another release
            log.warning("stored_catalogue_unusable", engine=engine_name, reason=str(error))
            return Catalogue()

    def names_here(self, engine_name: str) -> Sequence[str] | None:
        """The responders whose runs on an engine this host may claim; None for all, if there is no other host."""
        if not self._elsewhere:
            return None
        state = self._states[engine_name]
        return [
            responder.name
            for responder in state.catalogue.responders
            if state.up or not self._is_up_elsewhere(engine_name, responder.name)
        ]

    def may_be_run(self, engine_name: str, responder_name: str) -> bool:
        """Whether a host that takes runs has that responder on that engine."""
        state = self._states.get(engine_name)
        is_here = state is not None and any(one.name == responder_name for one in state.catalogue.responders)
        return is_here or any(
            one.name == engine_name and not one.why_not and one.has(responder_name) for one in self._elsewhere
        )

    def may_come_back(self, engine_name: str, responder_name: str) -> bool:
        """Whether a host that takes no runs now has that responder on that engine."""
        return any(one.name == engine_name and one.has(responder_name) for one in self._elsewhere)

    def has_engine(self, engine_name: str) -> bool:
        """Whether this host, or another that takes runs, has that engine."""
        return engine_name in self._engine_names()

    def runs_here(self, engine_name: str) -> bool:
        """Whether programs of an engine run on this host."""
        state = self._states.get(engine_name)
        return state is not None and state.engine.runs_here

    def is_unlimited_here(self, engine_name: str, responder_name: str) -> bool:
        """Whether this host runs a responder on that engine at once, however many run."""
        return self._here(engine_name, responder_name) is not None and self._states[engine_name].engine.capacity is None

    def _here(self, engine_name: str, responder_name: str) -> Engine | None:
        """This host's engine, if it is to run the responder: not while it is down and another host's is up."""
        state = self._states.get(engine_name)
        if state is None or not any(one.name == responder_name for one in state.catalogue.responders):
            return None
        return state.engine if state.up or not self._is_up_elsewhere(engine_name, responder_name) else None

    def _is_up_elsewhere(self, engine_name: str, responder_name: str) -> bool:
        return any(
            one.name == engine_name and one.up and not one.why_not and one.has(responder_name)
            for one in self._elsewhere
        )

    def _is_up(self, engine_name: str, responder_name: str) -> bool:
        state = self._states.get(engine_name)
        return (state is not None and state.up) or self._is_up_elsewhere(engine_name, responder_name)

    def _engine_names(self) -> Sequence[str]:
        """The engines of all hosts, this host's first."""
        return list(dict.fromkeys([*self._states, *(one.name for one in self._elsewhere if not one.why_not)]))

    def all(self) -> Sequence[Offer]:
        """All offers, sorted by name."""
        return list(self._by_name.values())

    def find(self, responder_name: str) -> Offer | None:
        """The offer of this name."""
        return self._by_name.get(responder_name)

    def skipped(self) -> Sequence[tuple[str, Skipped]]:
        """Engine name and definition, for each that can't be used."""
        return [(name, skipped) for name, state in self._states.items() for skipped in state.offered.skipped]

    def section(self, responder_name: str) -> ResponderSection:
        """The settings of a responder; the defaults without any."""
        return self.guards.section(responder_name)

    def settings_problems(self) -> list[str]:
        """As the function `settings_problems`, for the engines that have answered."""
        answers = [state.catalogue for state in self._states.values() if state.has_answered]
        is_complete = len(answers) == len(self._states)
        elsewhere = [one.catalogue for one in self._elsewhere]
        return settings_problems(self._sections, answers, is_complete=is_complete, elsewhere=elsewhere)

    def engine(self, name: str) -> Engine:
        """Raises ResponderBotError("not_found")."""
        state = self._states.get(name)
        if state is None:
            raise ResponderBotError("not_found", f"Engine {name} not found")
        return state.engine

    def offered(self, target: Target, rules: RulesFor | None = None) -> list[OfferedResponder]:
        """The responders that can run on an object, with `rules` only those that somebody may run on it now."""
        return [
            _offered(offer)
            for offer in self._by_name.values()
            if any(not self._reasons_not(offer, entry, target) for _, entry in offer.entries)
            and not (rules and self._refusals(offer, target, rules))
        ]

    def names_for(self, kind: Kind, data_type: str, tlp: int, pap: int) -> list[str]:
        """The names of the responders that can run on an object of this kind, with these levels, at once.

        Rules of the settings are left to `RulesFor`.
        """
        target = Target(kind, 0, 0, tlp, pap, {}, data_type)
        return [
            offer.name
            for offer in self._by_name.values()
            if any(not self._reasons_not(offer, entry, target) for _, entry in offer.entries)
            and any(self._is_up(name, offer.name) for name, _ in offer.entries)
        ]

    def explained(
        self,
        target: Target,
        *,
        may_run: bool,
        open_runs: Mapping[str, str],
        why_not: str = "",
        rules: RulesFor | None = None,
        clearance: int = targets.RED,
    ) -> list[OfferedResponder]:
        """All responders with verdict, reasons and policy; `open_runs` is `rights.open_runs` of the object.

        `rules` are those of the settings, for the caller. `why_not` is why the caller may not act on this object, if
        so. With those that can't be used at all, if they are for this kind of object. No artifact above `clearance` is
        named as one to act on.
        """
        more_reasons = [why_not] if why_not else []
        if not may_run:
            more_reasons.append("you haven't the permission manageAction; an org-admin can give it")
        usable = [
            self._explain(offer, target, more_reasons, open_runs.get(offer.name), rules, clearance)
            for offer in self._by_name.values()
        ]
        return sorted([*usable, *self._unusable(target)], key=lambda responder: responder.name)

    def target_types(self, offer: Offer) -> targets.TargetTypes:
        """What a responder acts on, as the settings or else its definition declare."""
        return targets.TargetTypes(self.section(offer.name).target or offer.first.target, is_required=True)

    def _reasons_not(self, offer: Offer, entry: Responder, target: Target) -> list[str]:
        """Why a responder of an engine can't run on an object."""
        reasons = _reasons_not(entry, target)
        why = "" if not _fits(entry, target) else targets.why_none_fits(target, self.target_types(offer))
        return [*reasons, why] if why else reasons

    def _target(self, offer: Offer, target: Target, clearance: int) -> OfferedTarget | None:
        """What a run on this object would act on."""
        types = self.target_types(offer)
        found = targets.fitting(target, types) if _fits(offer.first, target) else None
        if found is None:
            return None
        return OfferedTarget(
            data_types=list(types.names) or [target.data_type],
            artifacts=[artifact for artifact in found if artifact.tlp <= clearance][: targets.MAX_SHOWN],
            total=len(found),
            required=types.is_required and len(found) > 1,
        )

    def _refusals(self, offer: Offer, target: Target, rules: RulesFor) -> list[Refusal]:
        """The rules that stand in the way on whatever a run may choose to act on."""
        refusals = rules.refusals(offer.name, target)
        types = self.target_types(offer)
        found = targets.fitting(target, types) or ()
        if len(found) < 2 or not types.is_required or not any(refusal.rule == "protect" for refusal in refusals):
            return refusals
        alone = (targets.acting_on(target, types, [artifact.id]) for artifact in found[: targets.MAX_SHOWN])
        return min((rules.refusals(offer.name, one) for one in alone), key=len)

    def choose(
        self, target: Target, responder_id: str, engine_name: str | None, *, full: Collection[str] = ()
    ) -> Choice:
        """The engine for a run on an object (core/docs/semantics.md#which-engine-runs-it).

        Without `engine_name`, the first that has the responder and is up; if none is up, the first, as it may be back
        by the time it is called. Engines in `full` are passed over if another is up. Raises ResponderBotError:
        not_found for an unknown engine or responder, bad_request with the reason if it can't be used or can't run on
        this object.
        """
        if engine_name is not None and not self.has_engine(engine_name):
            self.engine(engine_name)
        offer = self._by_name.get(self.name(responder_id))
        entries = [entry for entry in offer.entries if engine_name in (None, entry[0])] if offer else []
        if offer is None or not entries:
            raise self._missing(responder_id, offer.name if offer else responder_id, engine_name)
        allowed = [entry for entry in entries if not self._reasons_not(offer, entry[1], target)]
        if not allowed:
            reasons = self._reasons_not(offer, entries[0][1], target)
            raise ResponderBotError("bad_request", _cannot_run(offer.name, reasons))
        up = [entry for entry in allowed if self._is_up(entry[0], offer.name)] or allowed[:1]
        name, entry = next((entry for entry in up if entry[0] not in full), up[0])
        return Choice(offer, name, self._here(name, offer.name), entry)

    def full(self, slots_taken: Mapping[str, int]) -> Collection[str]:
        """The engines without a free slot on any host, by how many are taken on each."""
        slots: dict[str, list[int | None]] = {name: [state.engine.capacity] for name, state in self._states.items()}
        for one in self._elsewhere:
            if not one.why_not:
                slots.setdefault(one.name, []).append(one.capacity)
        return [
            name
            for name, capacities in slots.items()
            if None not in capacities and slots_taken.get(name, 0) >= sum(filter(None, capacities))
        ]

    def why_not(self, target: Target, responder_name: str, engine_name: str) -> str:
        """Why an engine may no longer run a responder on an object, or `""`; checked again just before it is called."""
        offer = self._by_name.get(responder_name)
        entry = offer.on(engine_name) if offer else None
        if offer is None or entry is None:
            return f"The engine {engine_name} no longer offers {responder_name}."
        reasons = _reasons_not(entry, target)  # what it acts on was settled when it was asked for
        return _cannot_run(responder_name, reasons) if reasons else ""

    def _missing(self, responder_id: str, name: str, engine_name: str | None) -> ResponderBotError:
        """The error for a responder that isn't on offer: it can't be used, or no engine has it."""
        for engine, skipped in self.skipped():
            known = (skipped.name, *((skipped.responder.id, skipped.responder.name) if skipped.responder else ()))
            if engine_name in (None, engine) and (name in known or responder_id in known):
                reason = skipped.public_reason or "it can't be used; `responder-bot responders list` says why"
                return ResponderBotError("bad_request", f"{skipped.name} can't run on the engine {engine}: {reason}.")
        for one in self._elsewhere:
            for responder in one.catalogue.responders:
                if one.why_not and engine_name in (None, one.name) and responder_id in (responder.id, responder.name):
                    sentence = f"{responder.name} can't run now: only host {one.host} has it, and {one.why_not}."
                    return ResponderBotError("bad_request", sentence)
        return ResponderBotError("not_found", f"Responder {responder_id} not found")

    def _explain(
        self,
        offer: Offer,
        target: Target,
        more_reasons: Sequence[str],
        open_run: str | None,
        rules: RulesFor | None,
        clearance: int,
    ) -> OfferedResponder:
        reasons = min((self._reasons_not(offer, entry, target) for _, entry in offer.entries), key=len)
        reasons = [*reasons, *more_reasons]
        # What a responder isn't for needs no further reason.
        refusals = self._refusals(offer, target, rules) if rules and _fits(offer.first, target) else []
        if not any(self._is_up(name, offer.name) for name, _ in offer.entries):
            names = ", ".join(name for name, _ in offer.entries)
            reasons = [*reasons, f"its engine {names} does not answer"]
        notes = [open_run] if open_run else []
        notes += rules.usage(offer.name, target) if rules and not refusals else []
        return _offered(offer).model_copy(
            update={
                "title": self.title(offer.name),
                "parameters": list(self.parameters(offer)),
                "target": self._target(offer, target, clearance),
                "verdict": "cannot_run" if reasons or refusals else "can_run",
                "reasons": [*reasons, *notes],
                "refusals": refusals or None,
                "policy": self.policy(offer.name),
            }
        )

    def _unusable(self, target: Target) -> list[OfferedResponder]:
        found: dict[str, OfferedResponder] = {}
        away = [
            (one.name, responder, f"only host {one.host} has it, and {one.why_not}")
            for one in self._elsewhere
            if one.why_not
            for responder in one.catalogue.responders
        ]
        skipped = [(engine, item.responder, item.public_reason) for engine, item in self.skipped() if item.responder]
        for engine_name, responder, reason in [*away, *skipped]:
            if responder.name in self._by_name or not _fits(responder, target):
                continue
            offered = _offered(Offer(responder.name, ((engine_name, responder),)))
            verdict = {
                "title": self.title(responder.name),
                "parameters": [],
                "verdict": "cannot_run",
                "reasons": [reason],
                "policy": self.policy(responder.name),
            }
            found.setdefault(responder.name, offered.model_copy(update=verdict))
        return list(found.values())

    def name(self, responder_id: str) -> str:
        """The name of a responder that a request names by its id or its name; what it says, if there is none."""
        return responder_id if responder_id in self._by_name else self._names_by_id.get(responder_id, responder_id)

    def title(self, responder_name: str) -> str:
        """A responder's name as people read it, unlike that of any other on offer."""
        return self._titles.get(responder_name) or title_of(name_of(responder_name))

    def parameters(self, offer: Offer) -> Sequence[Parameter]:
        """The inputs that a responder declares, or that the settings declare for it."""
        declared = self.section(offer.name).parameter or self._parameters.get(offer.name)
        return parse_parameters(offer.first.parameters) if declared is None else declared  # no longer on offer

    def input_titles(self, responder_name: str) -> Sequence[InputTitle]:
        """What people call the inputs of a responder; none of one that isn't on offer."""
        offer = self._by_name.get(responder_name)
        declared = self.parameters(offer) if offer else ()
        return [InputTitle(name=one.name, title=one.title, type=one.type) for one in declared]

    def policy(self, responder_name: str) -> Policy:
        """What the settings say of a responder, whether it is on offer or not."""
        section = self.section(responder_name)
        return Policy(
            confirm=section.confirm,
            approval=section.approval,
            run_by=None if section.run_by is None else list(section.run_by),
            approve_by=None if section.approve_by is None else list(section.approve_by),
            rate=list(section.rate) or None,
            rate_per_target=list(section.rate_per_target) or None,
            undo=section.undo or None,
            undo_after_minutes=section.undo_after_minutes or None,
            allow_permanent=section.allow_permanent if section.undo else None,
        )

    async def _refresh_repeatedly(self, state: EngineState, first: asyncio.Task[None]) -> None:
        await first
        while True:
            await asyncio.sleep(REFRESH_S)
            await self._refresh(state)

    async def _refresh(self, state: EngineState) -> None:
        try:
            catalogue = without_duplicates(await state.engine.catalogue())
        except ResponderBotError as error:
            await self._set_down(state, error.message)
            return
        except Exception:  # it is asked again: what failed once may work the next time
            log.exception("engine_failed", engine=state.engine.name)
            message = "Listing its responders failed with an internal error; core's log has the details."
            await self._set_down(state, message)
            return
        changed = not state.has_answered or not state.up or catalogue != state.catalogue
        state.catalogue, state.up, state.message, state.has_answered = catalogue, True, "", True
        if changed:
            state.is_stored = False
            self._merge()
            self._log_settings_problems()
        await self._save(state)

    async def _set_down(self, state: EngineState, message: str) -> None:
        state.is_stored = state.is_stored and not state.up
        state.up, state.message = False, message
        await self._save(state)

    def store_again(self) -> None:
        """Store again what this host offers; others may have forgotten it while it was lost."""
        for state in self._states.values():
            state.is_stored = False

    async def _save(self, state: EngineState) -> None:
        """Store what an engine of this host offers, for other hosts and the next start, unless it is stored."""
        if state.is_stored or not state.has_answered:
            return
        state.is_stored = True  # until it changes, maybe meanwhile
        doc, now = json.dumps(asdict(state.catalogue)), self._clock()
        values = {
            **{"host_id": self._host.id, "host": self._host.name, "engine": state.engine.name, "up": int(state.up)},
            **{"capacity": state.engine.capacity, "doc": doc, "at": now},
        }

        def work(tx: Transaction) -> None:
            catalogues.save(tx, state.engine.name, doc, now)  # a host of another name may start with it
            hosts.save_catalogue(tx, values)

        try:
            await self._database.transaction(work)
        except ResponderBotError:  # it shows in health; the catalogue in memory is right all the same
            state.is_stored = False

    def _log_settings_problems(self) -> None:
        problems = self.settings_problems()
        for problem in problems:
            if problem not in self._logged_problems:
                log.warning("settings_invalid", reason=problem)
        self._logged_problems = problems

    def _merge(self) -> None:
        """Merge what is on offer; each part is replaced as a whole, since threads read them meanwhile."""
        states, elsewhere = list(self._states.values()), [one for one in self._elsewhere if not one.why_not]
        listed = [ListedCatalogue(state.engine.name, state.catalogue, state.engine.runs_here) for state in states]
        listed += [ListedCatalogue(one.name, one.catalogue, False) for one in elsewhere]
        offered = without_lookalikes(listed, self._sections)
        for state, catalogue in zip(states, offered, strict=False):
            self._log_skipped(state, catalogue)
            state.offered = catalogue
        found = zip((one.engine_name for one in listed), offered, strict=True)
        by_name = merge((name, self._limited(catalogue)) for name, catalogue in found)
        skipped = [skipped.responder for _, skipped in self.skipped() if skipped.responder is not None]
        skipped += [responder for one in self._elsewhere if one.why_not for responder in one.catalogue.responders]
        skipped = [responder for responder in skipped if responder.name not in by_name]
        names_by_id: dict[str, str] = {}
        away = [one.catalogue for one in self._elsewhere if one.why_not]
        for catalogue in [*offered, *away]:
            for entry in catalogue.responders:
                names_by_id.setdefault(entry.id, entry.name)
        self._titles = distinct_titles([*(offer.first for offer in by_name.values()), *skipped])
        self._parameters = {name: parse_parameters(offer.first.parameters) for name, offer in by_name.items()}
        self._by_name, self._names_by_id = by_name, names_by_id

    def _limited(self, catalogue: Catalogue) -> Catalogue:
        """The catalogue with the maxima of the settings, where these are lower."""
        responders = list(catalogue.responders)
        for place, responder in enumerate(responders):
            if section := self._maxima.get(variable_name(responder.name)):
                tlp = min(responder.max_tlp, _or_red(section.max_tlp))
                responders[place] = replace(
                    responder, max_tlp=tlp, max_pap=min(responder.max_pap, _or_red(section.max_pap))
                )
        return replace(catalogue, responders=tuple(responders))

    def _log_skipped(self, state: EngineState, offered: Catalogue) -> None:
        """Log what is skipped here and not by the engine itself, once."""
        known = {skipped.name for skipped in (*state.catalogue.skipped, *state.offered.skipped)}
        for skipped in offered.skipped:
            if skipped.name not in known:
                name, reason = skipped.name, skipped.reason
                log.warning("responder_skipped", engine=state.engine.name, responder=name, reason=reason)


def _or_red(maximum: int | None) -> int:
    return 3 if maximum is None else maximum


def without_duplicates(catalogue: Catalogue) -> Catalogue:
    """The catalogue with the first responder of each id and of each name; the others are skipped with that reason."""
    kept: list[Responder] = []
    skipped: list[Skipped] = []
    by_key: dict[tuple[str, str], Responder] = {}
    for responder in catalogue.responders:
        keys = ("id", responder.id), ("name", responder.name)
        taken = next((key for key in keys if key in by_key), None)
        if taken is None:
            kept.append(responder)
            by_key |= dict.fromkeys(keys, responder)
        else:
            reason = f"another responder of this engine, {by_key[taken].name}, has the same {taken[0]} and comes first"
            skipped.append(Skipped(responder.name, f"{reason[0].upper()}{reason[1:]}.", public_reason=reason))
    if not skipped:
        return catalogue
    return replace(catalogue, responders=tuple(kept), skipped=(*catalogue.skipped, *skipped))


@dataclass(frozen=True)
class ListedCatalogue:
    """What an engine lists."""

    engine_name: str
    catalogue: Catalogue
    is_own: bool
    """Whether its definitions are files of this host, rather than what a server says."""


def without_lookalikes(listed: Sequence[ListedCatalogue], named: Collection[str]) -> list[Catalogue]:
    """The catalogues without what servers list under a name or id that can be taken for another responder's.

    Its rules would not hold. The others are those that the settings name (`named`), those of this host, and those of
    servers before it.
    """
    taken = {skeleton(name): name for name in named}
    for one in listed:
        if one.is_own:
            skipped = [item.responder for item in one.catalogue.skipped if item.responder]
            for responder in [*skipped, *one.catalogue.responders]:
                taken |= dict.fromkeys(_marks(responder), responder.name)
    return [one.catalogue if one.is_own else _without_lookalikes(one.catalogue, taken, named) for one in listed]


def _without_lookalikes(catalogue: Catalogue, taken: dict[str, str], named: Collection[str]) -> Catalogue:
    kept: list[Responder] = []
    skipped = list(catalogue.skipped)
    for responder in catalogue.responders:
        marks = _marks(responder)
        others = (taken.get(mark, responder.name) for mark in marks)
        other = next((name for name in others if not _is_same(name, responder.name, named)), "")
        if other:
            reason = f"it can be taken for {other}; give it another name on its server"
            skipped.append(Skipped(responder.name, f"{responder.name}: {reason}.", responder, reason))
        else:
            kept.append(responder)
            taken |= dict.fromkeys(marks, responder.name)
    return replace(catalogue, responders=tuple(kept), skipped=tuple(skipped))


def _marks(responder: Responder) -> tuple[str, ...]:
    """What people and requests know a responder by."""
    return skeleton(responder.name), responder.name, responder.id


def _is_same(other: str, name: str, named: Collection[str]) -> bool:
    """Whether these are one name, or a section of the settings and the responder that it is for."""
    return other == name or (other in named and variable_name(other) == variable_name(name))


_ALIKE = str.maketrans("01i|", "olll")


def skeleton(name: str) -> str:
    """The same for names that look alike, or that differ in case or separators only."""
    text = name.lower().translate(_ALIKE).replace("rn", "m").replace("vv", "w")
    text = re.sub(r"[\W_]+(?![ol2-9]+(?:[\W_]|$))", "", text)  # those before numbers count
    return re.sub(r"[\W_]+", "_", text)


def merge(found: Iterable[tuple[str, Catalogue]]) -> Mapping[str, Offer]:
    """Offers by responder name, sorted by it; engines in the order given, the first of those with one name."""
    entries: dict[str, list[tuple[str, Responder]]] = {}
    for engine_name, catalogue in found:
        for responder in catalogue.responders:
            of_name = entries.setdefault(responder.name, [])
            if not any(name == engine_name for name, _ in of_name):
                of_name.append((engine_name, responder))
    return {name: Offer(name, tuple(entries[name])) for name in sorted(entries)}


def distinct_titles(responders: Iterable[Responder]) -> Mapping[str, str]:
    """Titles by name. Where two would look alike they get their version, or else the whole name."""
    names: dict[str, Sequence[str]] = {}
    for responder in responders:
        bare = name_of(responder.name, responder.version)
        title = responder.title or title_of(bare) or responder.name
        with_version = f"{title} {responder.version}".strip()
        names[responder.name] = (title, with_version, f"{spaced(bare)} {responder.version}".strip(), responder.name)
    for _ in range(3):
        shared = Counter(skeleton(choices[0]) for choices in names.values())
        names = {name: choices[shared[skeleton(choices[0])] > 1 :] for name, choices in names.items()}
    return {name: choices[0] for name, choices in names.items()}


def settings_problems(
    sections: Mapping[str, ResponderSection],
    catalogues: Iterable[Catalogue],
    *,
    is_complete: bool = True,
    elsewhere: Iterable[Catalogue] = (),
) -> list[str]:
    """A sentence for each setting that no engine can follow, on this host or `elsewhere`.

    These are folders that can't be read and, once all engines have answered (`is_complete`), unknown responders and
    unknown items in `[responder."..."]`: a confirmation or an approval under a misspelt name would be missing.
    """
    found = list(catalogues)
    problems = [sentence for catalogue in found for sentence in catalogue.unreadable]
    if not is_complete:
        return problems
    found += elsewhere
    known: dict[str, list[Responder]] = {}
    usable = {responder.name for catalogue in found for responder in catalogue.responders}
    for catalogue in found:
        for responder in catalogue.responders:
            known.setdefault(responder.name, []).append(responder)
        for skipped in catalogue.skipped:
            known.setdefault(skipped.name, []).extend([skipped.responder] if skipped.responder else [])
    by_variable_name = {variable_name(name): responders for name, responders in known.items()}
    for name, section in sections.items():
        if variable_name(name) not in by_variable_name:
            problems.append(_unknown_section(name, list(known)))
        elif responders := by_variable_name[variable_name(name)]:
            problems += _unknown_items(name, section, [item for responder in responders for item in responder.items])
        if section.undo:
            problems += _undo_problems(name, section.undo, known, usable)
            of_undo = sections.get(section.undo, ResponderSection()).parameter
            problems += _undo_secrets(name, section.undo, of_undo or _declared(known.get(section.undo, ())))
    return problems


def _unknown_section(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, 1)
    hint = f'did you mean "{near[0]}"?' if near else "`responder-bot responders list` shows their names."
    return f'The settings\' [responder."{name}"] names no responder that an engine knows; {hint}'


def _undo_problems(name: str, undo: str, known: Collection[str], usable: Collection[str]) -> list[str]:
    place = f'The settings\' [responder."{name}"] undo names'
    if undo == name:
        return [f"{place} the responder itself; name the one that undoes its runs."]
    if undo in usable:
        return []
    if undo in known:
        return [f"{place} {undo}, which can't be used, so nothing undoes its runs; correct that first."]
    near = get_close_matches(undo, known, 1)
    hint = f'did you mean "{near[0]}"?' if near else "`responder-bot responders list` shows their names."
    return [f'{place} "{undo}", which no engine knows, so nothing undoes its runs; {hint}']


def _declared(responders: Sequence[Responder]) -> Sequence[Parameter]:
    return parse_parameters(responders[0].parameters) if responders else ()


def _undo_secrets(name: str, undo: str, declared: Iterable[Parameter]) -> list[str]:
    return [
        f'The settings\' [responder."{name}"] undo names {undo}, which requires the secret input {one.name}; none is'
        " kept to undo a run, so put it into that responder's config."
        for one in declared
        if one.required and one.secret
    ]


def _unknown_items(name: str, section: ResponderSection, known: Sequence[str]) -> list[str]:
    place = f'The settings\' [responder."{name}"] config'
    if section.config and not known:
        return [f"{place} does nothing: only a remote engine has that responder; set it there."]
    as_variables = {variable_name(item): item for item in known}
    sentences = []
    for item in section.config:
        if variable_name(item) in as_variables:
            continue
        near = get_close_matches(variable_name(item), as_variables, 1)
        hint = f'did you mean "{as_variables[near[0]]}"?' if near else f"there are {', '.join(as_variables.values())}."
        sentences.append(f'{place} names an item "{item}" that the responder does not have; {hint}')
    return sentences


def _fits(responder: Responder, target: Target) -> bool:
    return applies(responder.data_types, target.kind, target.data_type)


def _reasons_not(responder: Responder, target: Target) -> list[str]:
    reasons = []
    if not _fits(responder, target):
        what = f"{OBJECT_TYPES[target.kind]}, {target.data_type}" if target.data_type else OBJECT_TYPES[target.kind]
        reasons.append(f"it is not for this kind of object ({what})")
    if target.tlp > responder.max_tlp:
        reasons.append(_too_high("TLP", target.tlp, responder.max_tlp))
    if target.pap > responder.max_pap:
        reasons.append(_too_high("PAP", target.pap, responder.max_pap))
    return reasons


def _too_high(scale: str, level: int, limit: int) -> str:
    return f"{scale}:{TLP_NAMES[level].upper()} is above the {scale}:{TLP_NAMES[limit].upper()} that it may see"


def _cannot_run(name: str, reasons: Sequence[str]) -> str:
    return f"{name} can't run on this object: {'; '.join(reasons)}."


def _offered(offer: Offer) -> OfferedResponder:
    first = offer.first
    return OfferedResponder(
        id=first.id,
        name=first.name,
        version=first.version,
        description=first.description,
        data_type_list=list(first.data_types),
        engine_ids=[name for name, _ in offer.entries],
    )


def _catalogue(doc: str) -> Catalogue:
    stored = json.loads(doc)
    return Catalogue(
        tuple(_responder(entry) for entry in stored["responders"]),
        tuple(_skipped(entry) for entry in stored["skipped"]),
    )


def _skipped(entry: Mapping[str, Any]) -> Skipped:
    responder = entry["responder"]
    return Skipped(**{**entry, "responder": _responder(responder) if responder else None})


def _responder(entry: Mapping[str, Any]) -> Responder:
    lists = {name: tuple(entry[name]) for name in ("data_types", "items", "parameters", "target")}
    return Responder(**{**entry, **lists})
