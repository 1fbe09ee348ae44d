"""Which responders can run on an object, and why the others can't (core/docs/semantics.md#available-responders)."""

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice

import structlog

from core.common.clock import Clock
from core.common.database import Database, Reads
from core.common.errors import ResponderBotError
from core.common.settings_file import variable_name
from core.common.tasks import cancel_and_wait, repeat
from core.engines.base import Catalogue, Engine, Responder, Skipped, name_of, title_of
from core.hosts import Host
from core.models import (
    OBJECT_TYPES,
    RED,
    TLP_NAMES,
    InputTitle,
    Kind,
    OfferedResponder,
    OfferedTarget,
    Parameter,
    Policy,
    Refusal,
    TargetArtifact,
    parse_parameters,
)
from core.protection import BLOCK, UNBLOCK, Blockable, Parsed
from core.responders import target as targets
from core.responders.catalogues import (
    ListedCatalogue,
    MergedResponder,
    distinct_titles,
    merge,
    parse_catalogue,
    without_duplicates,
    without_lookalikes,
)
from core.responders.guards import RulesFor, why_protected
from core.responders.profiles import (
    is_undo,
    lacking,
    profile_of,
    receivers,
    why_lacking,
    why_not_configured,
    with_profile,
)
from core.responders.settings_section import settings_problems
from core.responders.target import Target, applies
from core.settings import ResponderSection, section_for
from core.store import hosts as stored

log = structlog.get_logger()

REFRESH_S = 10.0  # between requests for an engine's catalogue
SHOWN_UNFIT = 5  # of the observables that can't be acted on
OPEN_TIMEOUT_S = 2.0  # an engine that takes longer to answer at start is known by its last stored catalogue


@dataclass(frozen=True)
class EngineChoice:
    """The engine of a run, and the responder as that engine has it; the action gets the id of the merged one."""

    merged: MergedResponder
    engine_name: str
    engine: Engine | None
    """None if only other hosts can run it."""
    responder: Responder


@dataclass
class EngineState:
    engine: Engine
    catalogue: Catalogue = field(default_factory=Catalogue)
    """As the engine lists it."""
    usable: Catalogue = field(default_factory=Catalogue)
    """The same without responders that can be taken for others; these are skipped."""
    up: bool = False
    """Whether it answered the last request for its catalogue."""
    message: str = "not asked yet"
    """Why it isn't up."""
    has_answered: bool = False
    """Whether the catalogue is its answer to this process, rather than a stored one."""
    is_stored: bool = False
    """Whether other hosts can read all this, if it has answered."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it was asked for its catalogue, whatever it answered."""


@dataclass(frozen=True)
class PeerEngine:
    """What is known of an engine of another host."""

    host: str
    name: str
    catalogue: Catalogue
    up: bool
    why_not: str
    """Why it takes no runs, such as "it is draining"; "" if it does."""

    def has(self, responder_name: str) -> bool:
        return any(responder.name == responder_name for responder in self.catalogue.responders)


class Registry:
    """The responders of all engines and hosts, merged; refreshed in the background, so that no request waits.

    Engines with the same name on several hosts are one engine, with the slots of all.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        sections: Mapping[str, ResponderSection],
        database: Database,
        clock: Clock,
        host: Host = Host("", ""),  # noqa: B008 - frozen
        blockable: Blockable | None = None,
    ) -> None:
        self._host = host
        self._blockable = blockable or Blockable()
        self._peers: Sequence[PeerEngine] = ()
        self._peer_catalogues: dict[tuple[str, str], tuple[int, Catalogue]] = {}
        """By host and engine, with the time at which each was stored."""
        self._states = {engine.name: EngineState(engine) for engine in engines}
        self._sections = sections
        self._section = cache(lambda name: section_for(name, sections) or ResponderSection())
        self._maxima = {
            variable_name(name): section
            for name, section in sections.items()
            if (section.max_tlp, section.max_pap) != (None, None)
        }
        self._database = database
        self._clock = clock
        self._by_name: Mapping[str, MergedResponder] = {}
        self._titles: Mapping[str, str] = {}
        self._parameters: Mapping[str, Sequence[Parameter]] = {}
        self._names_by_id: Mapping[str, str] = {}
        self._logged_problems: Collection[str] = ()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Ask all engines for their catalogues, at most OPEN_TIMEOUT_S; until it answers, the stored one counts."""
        for name, state in self._states.items():
            with suppress(ResponderBotError):  # the next transaction says so
                state.catalogue = await self._stored_catalogue(name, stored.last_catalogue, self._host.id)
        self._merge()
        names = json.dumps(list(self._states))
        await self._database.transaction(lambda tx: stored.begin_catalogues(tx, self._host.id, names))
        self._tasks = [
            asyncio.create_task(repeat(f"responders of {name}", REFRESH_S, partial(self._refresh, state)))
            for name, state in self._states.items()
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                for state in self._states.values():
                    await state.asked.wait()

    async def close(self) -> None:
        """Stop asking for catalogues; the engines stay open."""
        await cancel_and_wait(*self._tasks)

    async def refresh(self) -> None:
        """Ask all engines for their catalogues now."""
        await asyncio.gather(*(self._refresh(state) for state in self._states.values()))

    def states(self) -> Sequence[EngineState]:
        return list(self._states.values())

    # --- engines and hosts ------------------------------------------------------------------------------------------

    async def refresh_peers(self, why_not: Mapping[str, str]) -> None:
        """Read the catalogues of other hosts. `why_not` is by host id: why one takes no runs, or "" if it does.

        A host that it doesn't name is stopped.
        """
        rows = await self._database.snapshot(lambda reads: stored.peer_engines(reads, self._host.id))
        catalogues: dict[tuple[str, str], tuple[int, Catalogue]] = {}
        for row in rows:
            key = row["host_id"], row["engine"]
            known = self._peer_catalogues.get(key)
            if known is None or known[0] != row["at"]:
                known = row["at"], await self._stored_catalogue(row["engine"], stored.catalogue_of, row["host_id"])
            catalogues[key] = known
        self._peer_catalogues = catalogues
        peers = [
            PeerEngine(
                row["host"],
                row["engine"],
                catalogues[row["host_id"], row["engine"]][1],
                bool(row["up"]),
                why_not.get(row["host_id"], "it is stopped"),
            )
            for row in rows
        ]
        if peers != self._peers:
            self._peers = peers
            self._merge()

    async def _stored_catalogue(
        self, engine_name: str, read: Callable[[Reads, str, str], str | None], host_id: str
    ) -> Catalogue:
        doc = await self._database.snapshot(lambda reads: read(reads, host_id, engine_name))
        try:
            return without_duplicates(parse_catalogue(doc)) if doc else Catalogue()
        except ValueError as error:  # damaged, or of another release
            log.warning("stored_catalogue_unusable", engine=engine_name, reason=str(error))
            return Catalogue()

    def claimable(self, engine_name: str) -> Sequence[str] | None:
        """The responders whose runs on an engine this host may claim; None for all, if there is no other host."""
        if not self._peers:
            return None
        state = self._states[engine_name]
        return [
            responder.name
            for responder in state.catalogue.responders
            if state.up or not self._is_up_on_peer(engine_name, responder.name)
        ]

    def has_taker(self, engine_name: str, responder_name: str) -> bool:
        """Whether a host that takes runs has that responder on that engine."""
        return self._lists(engine_name, responder_name) or any(
            not peer.why_not for peer in self._peers_with(engine_name, responder_name)
        )

    def may_come_back(self, engine_name: str, responder_name: str) -> bool:
        """Whether a host that takes no runs now has that responder on that engine."""
        return any(self._peers_with(engine_name, responder_name))

    def has_engine(self, engine_name: str) -> bool:
        """Whether this host, or another that takes runs, has that engine."""
        return engine_name in self._states or any(peer.name == engine_name and not peer.why_not for peer in self._peers)

    def _peers_with(self, engine_name: str, responder_name: str) -> Iterator[PeerEngine]:
        return (peer for peer in self._peers if peer.name == engine_name and peer.has(responder_name))

    def runs_here(self, engine_name: str) -> bool:
        """Whether programs of an engine run on this host."""
        state = self._states.get(engine_name)
        return state is not None and state.engine.runs_here

    def is_unlimited_here(self, engine_name: str, responder_name: str) -> bool:
        """Whether this host runs a responder on that engine at once, however many run."""
        return self._here(engine_name, responder_name) is not None and self._states[engine_name].engine.capacity is None

    def engine(self, name: str) -> Engine:
        """Raises ResponderBotError("not_found")."""
        state = self._states.get(name)
        if state is None:
            raise ResponderBotError("not_found", f"Engine {name} not found")
        return state.engine

    def _lists(self, engine_name: str, responder_name: str) -> bool:
        state = self._states.get(engine_name)
        return state is not None and any(item.name == responder_name for item in state.catalogue.responders)

    def _here(self, engine_name: str, responder_name: str) -> Engine | None:
        """This host's engine, if it is to run the responder: not while it is down and another host's is up."""
        if not self._lists(engine_name, responder_name):
            return None
        state = self._states[engine_name]
        return state.engine if state.up or not self._is_up_on_peer(engine_name, responder_name) else None

    def _is_up_on_peer(self, engine_name: str, responder_name: str) -> bool:
        return any(peer.up and not peer.why_not for peer in self._peers_with(engine_name, responder_name))

    def _is_up(self, engine_name: str, responder_name: str) -> bool:
        state = self._states.get(engine_name)
        return (state is not None and state.up) or self._is_up_on_peer(engine_name, responder_name)

    # --- responders -------------------------------------------------------------------------------------------------

    def all(self) -> Sequence[MergedResponder]:
        """All available responders, sorted by name."""
        return list(self._by_name.values())

    def find(self, responder_name: str) -> MergedResponder | None:
        return self._by_name.get(responder_name)

    def skipped(self) -> Sequence[tuple[str, Skipped]]:
        """Engine name and definition, for each that can't be used."""
        return [(name, skipped) for name, state in self._states.items() for skipped in state.usable.skipped]

    def settings_problems(self) -> list[str]:
        """As the function `settings_problems`, for the engines that have answered."""
        answers = [state.catalogue for state in self._states.values() if state.has_answered]
        is_complete = len(answers) == len(self._states)
        peers = [peer.catalogue for peer in self._peers]
        return settings_problems(self._sections, answers, is_complete=is_complete, peers=peers)

    def name(self, responder_id: str) -> str:
        """The name of a responder that a request names by id or name; the same text, if there is none."""
        return responder_id if responder_id in self._by_name else self._names_by_id.get(responder_id, responder_id)

    def title(self, responder_name: str) -> str:
        """A responder's name as people read it, unlike that of any other available one."""
        return self._titles.get(responder_name) or title_of(name_of(responder_name))

    def parameters(self, merged: MergedResponder) -> Sequence[Parameter]:
        """The parameters that a responder declares, or that the settings declare for it."""
        declared = self._section(merged.name).parameter or self._parameters.get(merged.name)
        return parse_parameters(merged.first.parameters) if declared is None else declared  # no longer available

    def parameter_types(self, merged: MergedResponder) -> Mapping[str, str]:
        """The type of each parameter, by name."""
        return {parameter.name: parameter.type for parameter in self.parameters(merged)}

    def input_titles(self, responder_name: str) -> Sequence[InputTitle]:
        """What people call the parameters of a responder; none of one that isn't available."""
        merged = self._by_name.get(responder_name)
        declared = self.parameters(merged) if merged else ()
        return [InputTitle(name=item.name, title=item.title, type=item.type) for item in declared]

    def section(self, responder_name: str) -> ResponderSection:
        """The settings of a responder, with what its profile adds to them."""
        return with_profile(self._section(responder_name), responder_name)

    def policy(self, responder_name: str) -> Policy:
        """What the settings, or else its profile, say of a responder, whether it is available or not.

        Without the undo of a profile that isn't installed.
        """
        section = self.section(responder_name)
        undo = section.undo if self._section(responder_name).undo or section.undo in self._by_name else ""
        return Policy(
            confirm=section.confirm,
            approval=section.approval,
            run_by=None if section.run_by is None else list(section.run_by),
            approve_by=None if section.approve_by is None else list(section.approve_by),
            ask=list(section.ask) or None,
            rate=list(section.rate) or None,
            rate_per_target=list(section.rate_per_target) or None,
            undo=undo or None,
            undo_title=self.title(undo) if undo else None,
            undo_after_minutes=section.undo_after_minutes or None,
            allow_permanent=section.allow_permanent if undo else None,
            contains=section.contains or bool(undo) or None,
            is_undo=is_undo(responder_name, self._sections) or None,
            sends_to=receivers(section, responder_name),
        )

    # --- on an object -----------------------------------------------------------------------------------------------

    def offered(self, target: Target, rules: RulesFor | None = None) -> list[OfferedResponder]:
        """The responders that can run on an object, with `rules` only those that somebody may run on it now."""
        return [
            _offered(merged)
            for merged in self._by_name.values()
            if self._can_run(merged, target) and not self._refusals(merged, target, rules)
        ]

    def names_for(self, kind: Kind, data_type: str, tlp: int, pap: int) -> list[str]:
        """The names of the responders that can run at once on an object of this kind, with these levels.

        Rules of the settings are left to `RulesFor`.
        """
        target = Target(kind, 0, 0, tlp, pap, {}, data_type)
        return [
            merged.name
            for merged in self._by_name.values()
            if self._can_run(merged, target) and any(self._is_up(name, merged.name) for name, _ in merged.by_engine)
        ]

    def explained(
        self,
        target: Target,
        *,
        may_run: bool,
        open_runs: Mapping[str, Sequence[targets.OpenRun]],
        why_not: str = "",
        rules: RulesFor | None = None,
        clearance: int = RED,
        recent_runs: Mapping[str, int] | None = None,
        lookalikes: Callable[[str, Sequence[TargetArtifact], int], Sequence[str]] = lambda *_: (),
    ) -> list[OfferedResponder]:
        """All responders with verdict, reasons and policy; `open_runs` is `rights.open_runs` of the object.

        `rules` are those of the settings, for the caller. `why_not` is why the caller may not act on this object, or
        "". The list includes those that can't be used at all, if they are for this kind of object. No artifact above
        `clearance` is named as one to act on. `recent_runs` counts runs by responder.
        `lookalikes` says what is in force on what may be the same, by what undoes it, the artifacts and the time now.
        """
        more_reasons = [why_not] if why_not else []
        if not may_run:
            more_reasons.append("you have no right to run responders; an administrator can give it")
        usable = [
            self._explain(
                merged, target, more_reasons, open_runs.get(merged.name, ()), rules, clearance, lookalikes
            ).model_copy(update={"recent_runs": (recent_runs or {}).get(merged.name, 0)})
            for merged in self._by_name.values()
        ]
        return sorted([*usable, *self._unusable(target)], key=lambda responder: responder.name)

    def target_types(self, merged: MergedResponder) -> targets.TargetTypes:
        """What a responder acts on, as the settings, or else its definition, or else its profile declare."""
        names = self._section(merged.name).target or merged.first.target or profile_of(merged.name).target
        return targets.TargetTypes(names, is_required=True, why_not=partial(self.why_not_on, merged.name))

    def why_not_on(self, responder_name: str, named: Parsed) -> str:
        """Why no run of it can act on a target, as a sentence without its full stop, or `""`."""
        could_be_listed = named.kind != "host" or "." in named.value
        is_of_list = responder_name == BLOCK or (responder_name == UNBLOCK and not could_be_listed)
        return self._blockable.why_not(named) if is_of_list else ""

    def _reasons_not(self, merged: MergedResponder, responder: Responder, target: Target) -> list[str]:
        """Why a responder of an engine can't run on an object."""
        unset = why_not_configured(merged.name, responder.items, self._section(merged.name).config)
        reasons = [*_reasons_not(responder, target), *filter(None, [unset])]
        if _fits(responder, target):
            lacks = why_lacking(lacking(merged.name, target)) if target.json else ""  # `names_for` has no object
            reasons += filter(None, (targets.why_none_fits(target, self.target_types(merged)), lacks))
        return reasons

    def _unfit(self, merged: MergedResponder, target: Target, clearance: int) -> list[Refusal]:
        """Why there is nothing that a run could act on, if no artifact of its types can be acted on."""
        types = self.target_types(merged)
        if targets.fitting(target, types) != []:
            return []
        found = targets.unfit(target, types, clearance).values()
        return [Refusal(rule="target", message=one.problem, lift=one.lift) for one in found][:SHOWN_UNFIT]

    def _can_run(self, merged: MergedResponder, target: Target) -> bool:
        return any(not self._reasons_not(merged, responder, target) for _, responder in merged.by_engine)

    def _target(
        self, merged: MergedResponder, target: Target, open_runs: Sequence[targets.OpenRun], clearance: int
    ) -> OfferedTarget | None:
        """What a run on this object would act on."""
        types = self.target_types(merged)
        artifacts = targets.fitting(target, types) if _fits(merged.first, target) else None
        if artifacts is None:
            return None
        offered = [artifact for artifact in artifacts if artifact.tlp <= clearance][: targets.MAX_SHOWN]
        open_on = (
            (one.id, run) for one in offered for run in reversed(open_runs) if targets.overlap([one], run.acts_on)
        )
        return OfferedTarget(
            data_types=list(types.names) or [target.data_type],
            artifacts=offered,
            open_runs={id_: run.how_far for id_, run in open_on},
            total=len(artifacts),
            required=types.is_required and len(artifacts) > 1,
        )

    def _refusals(
        self, merged: MergedResponder, target: Target, rules: RulesFor | None, clearance: int = RED
    ) -> list[Refusal]:
        """The rules that block a run whatever it may choose to act on; what it isn't for needs no further reason."""
        if not _fits(merged.first, target):
            return []
        if unfit := self._unfit(merged, target, clearance):
            return unfit
        if rules is None:
            return []
        refusals = rules.refusals(merged.name, target)
        types = self.target_types(merged)
        artifacts = targets.fitting(target, types) or ()
        if len(artifacts) < 2 or not types.is_required or not any(refusal.rule == "protect" for refusal in refusals):
            return refusals
        alone = (targets.acting_on(target, types, [artifact.id]) for artifact in artifacts[: targets.MAX_SHOWN])
        return min((rules.refusals(merged.name, one) for one in alone), key=len)

    def choose(self, target: Target, responder_id: str, engine_name: str | None) -> EngineChoice:
        """The engine for a run on an object (core/docs/semantics.md#which-engine-runs-it).

        Without `engine_name`, the first that has the responder and is up; if none is up, the first, as it may be back
        by the time it is called. Raises ResponderBotError: not_found for an unknown engine or responder, bad_request
        with the reason if it can't be used or can't run on this object.
        """
        if engine_name is not None and not self.has_engine(engine_name):
            self.engine(engine_name)
        merged = self._by_name.get(self.name(responder_id))
        by_engine = [pair for pair in merged.by_engine if engine_name in (None, pair[0])] if merged else []
        if merged is None or not by_engine:
            raise self._missing(responder_id, merged.name if merged else responder_id, engine_name)
        allowed = [pair for pair in by_engine if not self._reasons_not(merged, pair[1], target)]
        if not allowed:
            reasons = self._reasons_not(merged, by_engine[0][1], target)
            raise ResponderBotError("bad_request", _cannot_run(merged.name, reasons))
        name, responder = next((pair for pair in allowed if self._is_up(pair[0], merged.name)), allowed[0])
        return EngineChoice(merged, name, self._here(name, merged.name), responder)

    def why_not(self, target: Target, responder_name: str, engine_name: str) -> str:
        """Why an engine may no longer run a responder on an object, or `""`; checked again just before it is called."""
        merged = self._by_name.get(responder_name)
        responder = merged.on(engine_name) if merged else None
        if responder is None:
            return f"The engine {engine_name} no longer offers {responder_name}."
        reasons = _reasons_not(responder, target)  # what it acts on was settled when it was asked for
        return _cannot_run(responder_name, reasons) if reasons else ""

    def _missing(self, responder_id: str, name: str, engine_name: str | None) -> ResponderBotError:
        """The error for a responder that isn't available: it can't be used, or no engine has it."""
        for engine, skipped in self.skipped():
            known = (skipped.name, *((skipped.responder.id, skipped.responder.name) if skipped.responder else ()))
            if engine_name in (None, engine) and (name in known or responder_id in known):
                reason = skipped.public_reason or "it can't be used; `responder-bot responders list` says why"
                return ResponderBotError("bad_request", f"{skipped.name} can't run on the engine {engine}: {reason}.")
        for peer, responder in self._away():
            if engine_name in (None, peer.name) and responder_id in (responder.id, responder.name):
                sentence = f"{responder.name} can't run now: only host {peer.host} has it, and {peer.why_not}."
                return ResponderBotError("bad_request", sentence)
        return ResponderBotError("not_found", f"Responder {responder_id} not found")

    def _away(self) -> list[tuple[PeerEngine, Responder]]:
        """The responders of hosts that take no runs."""
        return [(peer, responder) for peer in self._peers if peer.why_not for responder in peer.catalogue.responders]

    def _explain(
        self,
        merged: MergedResponder,
        target: Target,
        more_reasons: Sequence[str],
        open_runs: Sequence[targets.OpenRun],
        rules: RulesFor | None,
        clearance: int,
        lookalikes: Callable[[str, Sequence[TargetArtifact], int], Sequence[str]],
    ) -> OfferedResponder:
        """A responder with its verdict, the reasons for that, and what else there is to know of a run."""
        reasons = min((self._reasons_not(merged, responder, target) for _, responder in merged.by_engine), key=len)
        reasons = [*reasons, *more_reasons, *self._why_down(merged)]
        refusals = self._refusals(merged, target, rules, clearance)
        notes = [] if refusals else list(self._notes(merged, target, rules, clearance))
        acts_on, can_run = self._target(merged, target, open_runs, clearance), not reasons and not refusals
        if acts_on is not None and can_run and rules and acts_on.required:
            acts_on = _with_protected(acts_on, rules.of_protect(merged.name, target))
            notes += acts_on.protected.values()
        may_act_on = _artifacts(acts_on) if not reasons else ()
        return _offered(merged).model_copy(
            update={
                "title": self.title(merged.name),
                "parameters": list(self.parameters(merged)),
                "target": acts_on,
                "verdict": "can_run" if can_run else "cannot_run",
                "reasons": [*reasons, *notes],
                "hints": list(lookalikes(self._undone_by(merged), may_act_on, self._clock())) or None,
                "open_run": _open_run(open_runs, acts_on),
                "lacks": list(lacking(merged.name, target)) or None,
                "refusals": refusals or None,
                "policy": self.policy(merged.name),
                "approvers": rules.approvers(merged.name, target) if rules and can_run else None,
            }
        )

    def _why_down(self, merged: MergedResponder) -> Iterator[str]:
        """The reason of a responder whose engines don't answer."""
        names = [name for name, _ in merged.by_engine]
        if not any(self._is_up(name, merged.name) for name in names):
            yield f"its engine {', '.join(names)} does not answer"

    def _notes(self, merged: MergedResponder, target: Target, rules: RulesFor | None, clearance: int) -> Iterator[str]:
        """What a run can't act on, and how much of each rate is used, of a responder that no rule blocks."""
        if _fits(merged.first, target):
            for one in islice(targets.unfit(target, self.target_types(merged), clearance).values(), SHOWN_UNFIT):
                yield f"not offered: {one.problem}" + ("" if one.lift == targets.CHOOSE else f"; {one.lift}")
        if rules:
            yield from rules.usage(merged.name, target)

    def _undone_by(self, merged: MergedResponder) -> str:
        """What undoes its runs; itself, if they leave something in force that nothing undoes."""
        section = self.section(merged.name)
        return section.undo or (merged.name if section.contains else "")

    def _unusable(self, target: Target) -> list[OfferedResponder]:
        """The responders that can't be used at all, but are for this kind of object, with the reason."""
        unusable: dict[str, OfferedResponder] = {}
        away = [
            (peer.name, responder, f"only host {peer.host} has it, and {peer.why_not}")
            for peer, responder in self._away()
        ]
        skipped = [(engine, item.responder, item.public_reason) for engine, item in self.skipped() if item.responder]
        for engine_name, responder, reason in [*away, *skipped]:
            if responder.name in self._by_name or not _fits(responder, target):
                continue
            verdict = {
                "title": self.title(responder.name),
                "parameters": [],
                "verdict": "cannot_run",
                "reasons": [reason],
                "policy": self.policy(responder.name),
            }
            offered = _offered(MergedResponder(responder.name, ((engine_name, responder),)))
            unusable.setdefault(responder.name, offered.model_copy(update=verdict))
        return list(unusable.values())

    # --- refreshing -------------------------------------------------------------------------------------------------

    async def _refresh(self, state: EngineState) -> None:
        try:
            await self._ask(state)
        finally:
            state.asked.set()

    async def _ask(self, state: EngineState) -> None:
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
        """Store this host's catalogues again; other hosts may have deleted them while it was lost."""
        for state in self._states.values():
            state.is_stored = False

    async def _save(self, state: EngineState) -> None:
        """Store an engine's catalogue, for other hosts and the next start, unless it is stored."""
        if state.is_stored or not state.has_answered:
            return
        state.is_stored = True  # until it changes, maybe meanwhile
        doc = json.dumps(state.catalogue, default=vars)  # its dataclasses as objects
        values = {
            **{"host_id": self._host.id, "host": self._host.name, "engine": state.engine.name, "up": int(state.up)},
            **{"capacity": state.engine.capacity, "doc": doc, "at": self._clock()},
        }
        try:
            await self._database.transaction(lambda tx: stored.save_catalogue(tx, values))
        except ResponderBotError:  # it shows in health; the catalogue in memory is right all the same
            state.is_stored = False

    def _log_settings_problems(self) -> None:
        problems = self.settings_problems()
        for problem in problems:
            if problem not in self._logged_problems:
                log.warning("settings_invalid", reason=problem)
        self._logged_problems = problems

    def _merge(self) -> None:
        """Merge all catalogues; each part is replaced as a whole, since threads read them meanwhile."""
        usable = self._find_usable()
        by_name = merge((engine_name, self._limited(catalogue)) for engine_name, catalogue in usable)
        away = [responder for _, responder in self._away()]
        named = [*(responder for _, catalogue in usable for responder in catalogue.responders), *away]
        unusable = [*(skipped.responder for _, skipped in self.skipped() if skipped.responder is not None), *away]
        others = [responder for responder in unusable if responder.name not in by_name]
        self._titles = distinct_titles([*(merged.first for merged in by_name.values()), *others])
        self._parameters = {name: parse_parameters(merged.first.parameters) for name, merged in by_name.items()}
        names_by_id = {responder.id: responder.name for responder in reversed(named)}  # the first with each id
        self._by_name, self._names_by_id = by_name, names_by_id

    def _find_usable(self) -> list[tuple[str, Catalogue]]:
        """Engine name and what can be used of its catalogue, on this host and on others that take runs.

        The states of this host's engines have it from then on.
        """
        states, peers = list(self._states.values()), [peer for peer in self._peers if not peer.why_not]
        listed = [ListedCatalogue.of(state.engine, state.catalogue) for state in states]
        listed += [ListedCatalogue(peer.name, peer.catalogue, False) for peer in peers]
        usable = without_lookalikes(listed, self._sections)
        for state, catalogue in zip(states, usable, strict=False):
            self._log_skipped(state, catalogue)
            state.usable = catalogue
        return [(item.engine_name, catalogue) for item, catalogue in zip(listed, usable, strict=True)]

    def _limited(self, catalogue: Catalogue) -> Catalogue:
        """The catalogue with the maxima of the settings, where these are lower."""
        responders = list(catalogue.responders)
        for place, responder in enumerate(responders):
            if section := self._maxima.get(variable_name(responder.name)):
                tlp = min(responder.max_tlp, _or_red(section.max_tlp))
                pap = min(responder.max_pap, _or_red(section.max_pap))
                responders[place] = replace(responder, max_tlp=tlp, max_pap=pap)
        return replace(catalogue, responders=tuple(responders))

    def _log_skipped(self, state: EngineState, usable: Catalogue) -> None:
        """Log what is skipped here and not by the engine itself, once."""
        known = {skipped.name for skipped in (*state.catalogue.skipped, *state.usable.skipped)}
        for skipped in usable.skipped:
            if skipped.name not in known:
                name, reason = skipped.name, skipped.reason
                log.warning("responder_skipped", engine=state.engine.name, responder=name, reason=reason)


def _or_red(maximum: int | None) -> int:
    return 3 if maximum is None else maximum


def _fits(responder: Responder, target: Target) -> bool:
    return applies(responder.data_types, target.kind, target.data_type)


def _reasons_not(responder: Responder, target: Target) -> list[str]:
    reasons = []
    if not _fits(responder, target):
        what = f"{OBJECT_TYPES[target.kind]}, {target.data_type}" if target.data_type else OBJECT_TYPES[target.kind]
        reasons.append(f"it is not for this kind of target ({what})")
    if target.tlp > responder.max_tlp:
        reasons.append(_too_high("TLP", target.tlp, responder.max_tlp))
    if target.pap > responder.max_pap:
        reasons.append(_too_high("PAP", target.pap, responder.max_pap))
    return reasons


def _too_high(scale: str, level: int, limit: int) -> str:
    return f"{scale}:{TLP_NAMES[level].upper()} is above the {scale}:{TLP_NAMES[limit].upper()} that it may see"


def _cannot_run(name: str, reasons: Sequence[str]) -> str:
    return f"{name} can't run on this: {'; '.join(reasons)}."


def _open_run(open_runs: Sequence[targets.OpenRun], acts_on: OfferedTarget | None) -> str | None:
    """How far its newest open run is, if another could act on nothing else."""
    can_act = acts_on is not None and len(acts_on.open_runs) < len(acts_on.artifacts)
    return open_runs[0].how_far if open_runs and not can_act else None


def _artifacts(acts_on: OfferedTarget | None) -> Sequence[TargetArtifact]:
    return acts_on.artifacts if acts_on is not None else ()


def _with_protected(acts_on: OfferedTarget, refusals: Sequence[Refusal]) -> OfferedTarget:
    """With why those of its artifacts that are protected are, by these refusals of its alert."""
    why = {one.id: why for one in acts_on.artifacts if (why := why_protected(one.id, refusals))}
    return acts_on.model_copy(update={"protected": why})


def _offered(merged: MergedResponder) -> OfferedResponder:
    first = merged.first
    return OfferedResponder(
        id=first.id,
        name=first.name,
        version=first.version,
        description=first.description,
        data_type_list=list(first.data_types),
        engine_ids=[name for name, _ in merged.by_engine],
    )
