"""What can run on an object, and why the rest can't (`semantics.md 4`)."""

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import structlog

from core.actions.target import Target
from core.common.clock import Clock
from core.common.database.sqlite import Database
from core.common.errors import ResponderBotError
from core.common.settings_file import plain
from core.engines.base import Catalogue, Engine, Responder, Skipped
from core.models import OBJECT_TYPES, TLP_NAMES, Kind, OfferedResponder, Policy
from core.settings import ResponderSection
from core.store import catalogues

log = structlog.get_logger()

REFRESH_S = 10.0  # how soon a changed folder or an engine that is back shows
FIRST_LOOK_S = 2.0  # at start an engine may take this long before what was last known of it is used


@dataclass(frozen=True)
class Offer:
    """A responder by its name, over all engines that have it, in the order of the settings."""

    name: str
    entries: tuple[tuple[str, Responder], ...]
    """Engine name and that engine's own entry; the first gives id and text."""

    @property
    def first(self) -> Responder:
        return self.entries[0][1]

    def on(self, engine_name: str) -> Responder | None:
        return next((entry for name, entry in self.entries if name == engine_name), None)


@dataclass(frozen=True)
class Choice:
    """Where a run goes: the merged id stays with the action, the engine is called with its own."""

    offer: Offer
    engine: Engine
    responder: Responder


@dataclass
class EngineState:
    """What is known of one engine."""

    engine: Engine
    catalogue: Catalogue = field(default_factory=Catalogue)
    up: bool = False
    message: str = "not asked yet"
    heard: bool = False


class Responders:
    """The responders on offer, merged over engines; kept current beside requests, so that no list waits."""

    def __init__(
        self,
        engines: Sequence[Engine],
        policies: Mapping[str, ResponderSection],
        database: Database,
        clock: Clock,
    ) -> None:
        self._states = {engine.name: EngineState(engine) for engine in engines}
        self._policies = policies
        self._database = database
        self._clock = clock
        self._offers: Mapping[str, Offer] = {}
        self._names_by_id: dict[str, str] = {}
        self._complaints_told: Collection[str] = ()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Look at every engine, side by side and bounded; one that is silent is known by what it last offered."""
        for name, state in self._states.items():
            try:
                kept = catalogues.kept(self._database, name)
                if kept is not None:
                    state.catalogue = each_once(_catalogue(kept))
            except (ResponderBotError, ValueError, KeyError, TypeError) as error:  # damaged, or of another release
                log.warning("catalogue_not_kept", engine=name, reason=str(error))
        self._merge()
        looks = [asyncio.create_task(self._look(state)) for state in self._states.values()]
        if looks:
            await asyncio.wait(looks, timeout=FIRST_LOOK_S)
        self._tasks = [
            asyncio.create_task(self._keep_looking(state, look))
            for state, look in zip(self._states.values(), looks, strict=True)
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def refresh(self) -> None:
        """Look at every engine now."""
        await asyncio.gather(*(self._look(state) for state in self._states.values()))

    def states(self) -> Sequence[EngineState]:
        return list(self._states.values())

    def offers(self) -> Sequence[Offer]:
        """All of them, sorted by name."""
        return list(self._offers.values())

    def skipped(self) -> Sequence[tuple[str, Skipped]]:
        """Engine name and definition, for each that can't be used."""
        return [(name, left_out) for name, state in self._states.items() for left_out in state.catalogue.skipped]

    def policy(self, responder_name: str) -> ResponderSection:
        return self._policies.get(responder_name) or ResponderSection()

    def complaints(self) -> list[str]:
        """What is wrong with the settings' folders and `[responder."..."]`, as far as engines have been heard."""
        heard = [state.catalogue for state in self._states.values() if state.heard]
        return complaints(self._policies, heard, all_heard=len(heard) == len(self._states))

    def engine(self, name: str) -> Engine:
        """Raises ResponderBotError("not_found")."""
        state = self._states.get(name)
        if state is None:
            raise ResponderBotError("not_found", f"Engine {name} not found")
        return state.engine

    def offered(self, target: Target) -> list[OfferedResponder]:
        """What may run on `target` (`interface.md 4.2`)."""
        return [
            _wire(offer)
            for offer in self._offers.values()
            if any(not _objections(entry, target) for _, entry in offer.entries)
        ]

    def explained(self, target: Target, *, may_run: bool, running: Mapping[str, str]) -> list[OfferedResponder]:
        """All responders with verdict, reasons and policy; `running`: responder name to who started it.

        One that is for this kind of object, but not fit for use, is among them with the reason.
        """
        found = [self._explain(offer, target, may_run, running.get(offer.name)) for offer in self._offers.values()]
        return sorted([*found, *self._unfit(target)], key=lambda one: one.name)

    def choose(
        self, target: Target, responder_id: str, engine_name: str | None, *, full: Collection[str] = ()
    ) -> Choice:
        """Where a run on `target` goes (`semantics.md 4, 5`).

        Without an engine's name the first that has it and is up; where none is up the first, since it may be back by
        the time it is called. One in `full` stands back for the next that is up. Raises ResponderBotError:
        "not_found" for an unknown engine or responder, "bad_request" with the reason where it can't be used, or may not
        run on this object.
        """
        if engine_name is not None:
            self.engine(engine_name)
        offer = self._offers.get(self._names_by_id.get(responder_id, responder_id))
        entries = [entry for entry in offer.entries if engine_name in (None, entry[0])] if offer else []
        if offer is None or not entries:
            raise self._missing(responder_id, offer.name if offer else responder_id, engine_name)
        allowed = [entry for entry in entries if not _objections(entry[1], target)]
        if not allowed:
            raise ResponderBotError("bad_request", _sentence(offer.name, _objections(entries[0][1], target)))
        up = [entry for entry in allowed if self._states[entry[0]].up] or allowed[:1]
        name, entry = next((entry for entry in up if entry[0] not in full), up[0])
        return Choice(offer, self._states[name].engine, entry)

    def full(self, places_taken: Mapping[str, int]) -> Collection[str]:
        """The engines that have no place free, of how many are taken on each."""
        return [
            name
            for name, state in self._states.items()
            if state.engine.capacity is not None and places_taken.get(name, 0) >= state.engine.capacity
        ]

    def refuse(self, target: Target, responder_name: str, engine_name: str) -> str:
        """Why this may no longer run on `target`, or `""`; asked again just before an engine is called."""
        offer = self._offers.get(responder_name)
        entry = offer.on(engine_name) if offer else None
        if entry is None:
            return f"The engine {engine_name} no longer offers {responder_name}."
        objections = _objections(entry, target)
        return _sentence(responder_name, objections) if objections else ""

    def _missing(self, responder_id: str, name: str, engine_name: str | None) -> ResponderBotError:
        """Why a responder is not on offer: it can't be used, or there is none of this id or name."""
        for engine, skipped in self.skipped():
            known = (skipped.name, *((skipped.responder.id, skipped.responder.name) if skipped.responder else ()))
            if engine_name in (None, engine) and (name in known or responder_id in known):
                reason = skipped.objection or "it can't be used; `responder-bot responders list` says why"
                return ResponderBotError("bad_request", f"{skipped.name} can't run on the engine {engine}: {reason}.")
        return ResponderBotError("not_found", f"Responder {responder_id} not found")

    def _explain(self, offer: Offer, target: Target, may_run: bool, started_by: str | None) -> OfferedResponder:
        objections = min((_objections(entry, target) for _, entry in offer.entries), key=len)
        if not may_run:
            objections = [*objections, "you haven't the permission manageAction; an org-admin can give it"]
        if not any(self._states[name].up for name, _ in offer.entries):
            names = ", ".join(name for name, _ in offer.entries)
            objections = [*objections, f"its engine {names} does not answer"]
        notes = [f"already running, started by {started_by}"] if started_by else []
        return _wire(offer).model_copy(
            update={
                "verdict": "cannot_run" if objections else "can_run",
                "reasons": [*objections, *notes],
                "policy": self._policy(offer.name),
            }
        )

    def _unfit(self, target: Target) -> list[OfferedResponder]:
        found: dict[str, OfferedResponder] = {}
        for name, skipped in self.skipped():
            would_be = skipped.responder
            if would_be is None or would_be.name in self._offers or not applies(would_be.data_types, target.kind):
                continue
            shown = _wire(Offer(would_be.name, ((name, would_be),)))
            verdict = {"verdict": "cannot_run", "reasons": [skipped.objection], "policy": self._policy(would_be.name)}
            found.setdefault(would_be.name, shown.model_copy(update=verdict))
        return list(found.values())

    def _policy(self, responder_name: str) -> Policy:
        section = self.policy(responder_name)
        return Policy(confirm=section.confirm, approval=section.approval)

    async def _keep_looking(self, state: EngineState, first: asyncio.Task[None]) -> None:
        await first
        while True:
            await asyncio.sleep(REFRESH_S)
            await self._look(state)

    async def _look(self, state: EngineState) -> None:
        try:
            catalogue = each_once(await state.engine.catalogue())
        except ResponderBotError as error:
            state.up, state.message = False, error.message
            return
        except Exception:  # it is looked at again: what broke once may work the next time
            log.exception("an engine broke", engine=state.engine.name)
            state.up, state.message = False, "It broke when it was asked for its responders; the log says why."
            return
        changed = not state.heard or catalogue != state.catalogue
        state.catalogue, state.up, state.message, state.heard = catalogue, True, "", True
        if not changed:
            return
        self._merge()
        complaints = self.complaints()
        for complaint in complaints:
            if complaint not in self._complaints_told:
                log.warning("wrong settings", reason=complaint)
        self._complaints_told = complaints
        doc, now = json.dumps(asdict(catalogue)), self._clock()
        with suppress(
            ResponderBotError
        ):  # a store that can't be written shows in health; the list is right all the same
            await self._database.transaction(lambda tx: catalogues.keep(tx, state.engine.name, doc, now))

    def _merge(self) -> None:
        self._offers = merge((name, state.catalogue) for name, state in self._states.items())
        self._names_by_id = {}
        for state in self._states.values():
            for entry in state.catalogue.responders:
                self._names_by_id.setdefault(entry.id, entry.name)


def each_once(catalogue: Catalogue) -> Catalogue:
    """The catalogue with the first responder of each id and of each name; the others are left out, with the reason."""
    found: list[Responder] = []
    left_out: list[Skipped] = []
    by_key: dict[tuple[str, str], Responder] = {}
    for responder in catalogue.responders:
        keys = ("id", responder.id), ("name", responder.name)
        taken = next((key for key in keys if key in by_key), None)
        if taken is None:
            found.append(responder)
            by_key |= dict.fromkeys(keys, responder)
        else:
            reason = f"another responder of this engine, {by_key[taken].name}, has the same {taken[0]} and comes first"
            left_out.append(Skipped(responder.name, f"{reason[0].upper()}{reason[1:]}.", objection=reason))
    if not left_out:
        return catalogue
    return replace(catalogue, responders=tuple(found), skipped=(*catalogue.skipped, *left_out))


def merge(found: Iterable[tuple[str, Catalogue]]) -> Mapping[str, Offer]:
    """Offers by responder name, sorted; engines in the order given."""
    entries: dict[str, list[tuple[str, Responder]]] = {}
    for engine_name, catalogue in found:
        for responder in catalogue.responders:
            entries.setdefault(responder.name, []).append((engine_name, responder))
    return {name: Offer(name, tuple(entries[name])) for name in sorted(entries)}


def complaints(
    sections: Mapping[str, ResponderSection], catalogues: Iterable[Catalogue], *, all_heard: bool = True
) -> list[str]:
    """A sentence for each thing of the settings that no engine can follow.

    A folder that can't be read; a name that no engine has: a question or an approval under a misspelt name would be
    missing (not while an engine that may have it is silent); an item that the responder does not have.
    """
    found = list(catalogues)
    wrong = [sentence for catalogue in found for sentence in catalogue.unreadable]
    if not all_heard:
        return wrong
    read: dict[str, list[Responder]] = {}
    for catalogue in found:
        for responder in catalogue.responders:
            read.setdefault(responder.name, []).append(responder)
        for left_out in catalogue.skipped:
            read.setdefault(left_out.name, []).extend([left_out.responder] if left_out.responder else [])
    by_plain = {plain(name): responders for name, responders in read.items()}
    for name, section in sections.items():
        if plain(name) not in by_plain:
            wrong.append(_unknown_section(name, list(read)))
        elif responders := by_plain[plain(name)]:
            wrong += _unknown_items(name, section, [item for one in responders for item in one.items])
    return wrong


def _unknown_section(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, 1)
    hint = f'did you mean "{near[0]}"?' if near else "`responder-bot responders list` shows their names."
    return f'The settings\' [responder."{name}"] names no responder that an engine knows; {hint}'


def _unknown_items(name: str, section: ResponderSection, known: Sequence[str]) -> list[str]:
    place = f'The settings\' [responder."{name}"] config'
    if section.config and not known:
        return [f"{place} does nothing: only a remote engine has that responder; set it there."]
    as_variables = {plain(item): item for item in known}
    sentences = []
    for item in section.config:
        if plain(item) in as_variables:
            continue
        near = get_close_matches(plain(item), as_variables, 1)
        hint = f'did you mean "{as_variables[near[0]]}"?' if near else f"there are {', '.join(as_variables.values())}."
        sentences.append(f'{place} names an item "{item}" that the responder does not have; {hint}')
    return sentences


def applies(data_types: Iterable[str], kind: Kind) -> bool:
    """Whether a responder is for this kind: compared without case and without the product (`semantics.md 4`)."""
    return any(data_type.rpartition(":")[2].lower() == kind for data_type in data_types)


def _objections(responder: Responder, target: Target) -> list[str]:
    objections = []
    if not applies(responder.data_types, target.kind):
        objections.append(f"it is not for this kind of object ({OBJECT_TYPES[target.kind]})")
    if target.tlp > responder.max_tlp:
        objections.append(_too_high("TLP", target.tlp, responder.max_tlp))
    if target.pap > responder.max_pap:
        objections.append(_too_high("PAP", target.pap, responder.max_pap))
    return objections


def _too_high(scale: str, level: int, limit: int) -> str:
    return f"{scale}:{TLP_NAMES[level].upper()} is above the {scale}:{TLP_NAMES[limit].upper()} that it may see"


def _sentence(name: str, objections: Sequence[str]) -> str:
    return f"{name} can't run on this object: {'; '.join(objections)}."


def _wire(offer: Offer) -> OfferedResponder:
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
    kept = json.loads(doc)
    return Catalogue(
        tuple(_responder(entry) for entry in kept["responders"]),
        tuple(_skipped(entry) for entry in kept["skipped"]),
    )


def _skipped(entry: Mapping[str, Any]) -> Skipped:
    would_be = entry.get("responder")
    return Skipped(**{**entry, "responder": _responder(would_be) if would_be else None})


def _responder(entry: Mapping[str, Any]) -> Responder:
    return Responder(**{**entry, "data_types": tuple(entry["data_types"]), "items": tuple(entry.get("items", ()))})
