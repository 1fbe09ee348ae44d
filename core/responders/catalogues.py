"""Catalogues of several engines merged into one, without responders that can be taken for others."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pydantic import TypeAdapter

from core.common.settings_file import variable_name
from core.common.words import spaced
from core.engines.base import Catalogue, Engine, Responder, Skipped, name_of, title_of
from core.settings import OWN_ENGINE


@dataclass(frozen=True)
class MergedResponder:
    """A responder, merged by name over all engines that have it."""

    name: str
    by_engine: tuple[tuple[str, Responder], ...]
    """Engine name and that engine's own responder, in the order of the settings; the first gives id and texts."""

    @property
    def first(self) -> Responder:
        return self.by_engine[0][1]

    def on(self, engine_name: str) -> Responder | None:
        return next((responder for name, responder in self.by_engine if name == engine_name), None)


def without_duplicates(catalogue: Catalogue) -> Catalogue:
    """The catalogue with the first responder of each id and of each name; the others are skipped with that reason."""
    by_key: dict[tuple[str, str], Responder] = {}

    def skipped(responder: Responder) -> Skipped | None:
        keys = ("id", responder.id), ("name", responder.name)
        duplicate = next((key for key in keys if key in by_key), None)
        if duplicate is None:
            by_key.update(dict.fromkeys(keys, responder))
            return None
        first, what = by_key[duplicate].name, duplicate[0]
        reason = f"another responder of this engine, {first}, has the same {what} and comes first"
        return Skipped(responder.name, f"{reason[0].upper()}{reason[1:]}.", public_reason=reason)

    return _without(catalogue, skipped)


def _without(catalogue: Catalogue, skipped: Callable[[Responder], Skipped | None]) -> Catalogue:
    """The catalogue without the responders that `skipped` skips, which is called for each in turn."""
    why = [(responder, skipped(responder)) for responder in catalogue.responders]
    if not (more := [reason for _, reason in why if reason]):
        return catalogue
    kept = tuple(responder for responder, reason in why if not reason)
    return replace(catalogue, responders=kept, skipped=(*catalogue.skipped, *more))


@dataclass(frozen=True)
class ListedCatalogue:
    engine_name: str
    catalogue: Catalogue
    is_own: bool
    """Whether its definitions are files of this host, or core's own, rather than what a server says."""

    @staticmethod
    def of(engine: Engine, catalogue: Catalogue) -> "ListedCatalogue":
        return ListedCatalogue(engine.name, catalogue, engine.runs_here or engine.name == OWN_ENGINE)


def without_lookalikes(listed: Sequence[ListedCatalogue], named: Collection[str]) -> list[Catalogue]:
    """The catalogues without what servers list under a name or id that can be taken for another responder's.

    The rules of that other responder would not hold for it. Names are taken by the settings (`named`) first, then by
    definitions of this host, then by servers in their order.
    """
    own = {
        responder.name for item in listed if item.engine_name == OWN_ENGINE for responder in item.catalogue.responders
    }
    listed = [item if item.engine_name == OWN_ENGINE else _without_own(item, own) for item in listed]
    owners = {skeleton(name): name for name in named}
    for item in listed:
        if item.is_own:
            skipped = [skipped.responder for skipped in item.catalogue.skipped if skipped.responder]
            for responder in [*skipped, *item.catalogue.responders]:
                owners |= dict.fromkeys(_marks(responder), responder.name)
    return [item.catalogue if item.is_own else _without_lookalikes(item.catalogue, owners, named) for item in listed]


def _without_own(item: ListedCatalogue, names: Collection[str]) -> ListedCatalogue:
    """The catalogue without responders that are core's own by name."""
    reason = "core has one with this name itself; give it another"

    def skipped(one: Responder) -> Skipped | None:
        return Skipped(one.name, f"{one.name}: {reason}.", public_reason=reason) if one.name in names else None

    return replace(item, catalogue=_without(item.catalogue, skipped))


def _without_lookalikes(catalogue: Catalogue, owners: dict[str, str], named: Collection[str]) -> Catalogue:
    """One catalogue; `owners` are names by what they are known by, and get those of its responders."""

    def skipped(responder: Responder) -> Skipped | None:
        marks = _marks(responder)
        others = (owners.get(mark, responder.name) for mark in marks)
        if other := next((name for name in others if not _is_same(name, responder.name, named)), ""):
            reason = f"it can be taken for {other}; give it another name on its server"
            return Skipped(responder.name, f"{responder.name}: {reason}.", responder, reason)
        owners.update(dict.fromkeys(marks, responder.name))
        return None

    return _without(catalogue, skipped)


def _marks(responder: Responder) -> tuple[str, ...]:
    """What people and requests know a responder by."""
    return skeleton(responder.name), responder.name, responder.id


def _is_same(other: str, name: str, named: Collection[str]) -> bool:
    """Whether these are one name, or a section of the settings and the responder that it is for."""
    return other == name or (other in named and variable_name(other) == variable_name(name))


_ALIKE = str.maketrans("01i|", "olll")


@lru_cache(maxsize=4_096)  # each name several times whenever a catalogue changes
def skeleton(name: str) -> str:
    """The same for names that look alike, or that differ in case or separators only."""
    text = name.lower().translate(_ALIKE).replace("rn", "m").replace("vv", "w")
    text = re.sub(r"[\W_]+(?![ol2-9]+(?:[\W_]|$))", "", text)  # those before numbers count
    return re.sub(r"[\W_]+", "_", text)


def merge(catalogues: Iterable[tuple[str, Catalogue]]) -> Mapping[str, MergedResponder]:
    """Responders by name, sorted by it, of engines in this order; the first of two engines of one name counts."""
    by_name: dict[str, dict[str, Responder]] = {}
    for engine_name, catalogue in catalogues:
        for responder in catalogue.responders:
            by_name.setdefault(responder.name, {}).setdefault(engine_name, responder)
    return {name: MergedResponder(name, tuple(by_name[name].items())) for name in sorted(by_name)}


def distinct_titles(responders: Iterable[Responder]) -> Mapping[str, str]:
    """Titles by name. Where two would look alike they get their version, or else the whole name."""
    names: dict[str, Sequence[str]] = {}
    for responder in responders:
        bare = name_of(responder.name, responder.version)
        title = responder.title or title_of(bare) or responder.name
        with_version = f"{title} {responder.version}".strip()
        names[responder.name] = (title, with_version, f"{spaced(bare)} {responder.version}".strip(), responder.name)
    for _ in range(3):
        shared = Counter(skeleton(titles[0]) for titles in names.values())
        names = {name: titles[shared[skeleton(titles[0])] > 1 :] for name, titles in names.items()}
    return {name: titles[0] for name, titles in names.items()}


_CATALOGUE = TypeAdapter(Catalogue)


def parse_catalogue(doc: str) -> Catalogue:
    """A stored catalogue. Raises ValueError if it is damaged, or of another release."""
    return _CATALOGUE.validate_json(doc)
