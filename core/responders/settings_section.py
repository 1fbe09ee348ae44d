"""Sections `[responder."..."]` of the settings: what no engine can follow, and one to paste."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from core.common.settings_file import variable_name
from core.engines.base import Catalogue, Responder
from core.engines.definitions import ConfigurationItem, Definition
from core.models import Parameter, parse_parameters
from core.responders.profiles import CASE, profile_of
from core.settings import ResponderSection


def settings_problems(
    sections: Mapping[str, ResponderSection],
    catalogues: Iterable[Catalogue],
    *,
    is_complete: bool = True,
    peers: Iterable[Catalogue] = (),
) -> list[str]:
    """A sentence for each setting that no engine can follow, on this host or (`peers`) on another.

    These are folders that can't be read and, once all engines have answered (`is_complete`), unknown responders and
    unknown items in `[responder."..."]`: a confirmation or an approval under a misspelt name would be missing.
    """
    listed = list(catalogues)
    problems = [sentence for catalogue in listed for sentence in catalogue.unreadable]
    if not is_complete:
        return problems
    listed += peers
    known = _known(listed)
    by_variable_name = {variable_name(name): responders for name, responders in known.items()}
    usable = {responder.name for catalogue in listed for responder in catalogue.responders}
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


def _known(catalogues: Iterable[Catalogue]) -> Mapping[str, Sequence[Responder]]:
    """The responders of each name in the catalogues, usable or not; none where its definition can't be read."""
    known: dict[str, list[Responder]] = {}
    for catalogue in catalogues:
        for responder in catalogue.responders:
            known.setdefault(responder.name, []).append(responder)
        for skipped in catalogue.skipped:
            known.setdefault(skipped.name, []).extend([skipped.responder] if skipped.responder else [])
    return known


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
        f'The settings\' [responder."{name}"] undo names {undo}, which requires the secret input {parameter.name};'
        " none is kept to undo a run, so put it into that responder's config."
        for parameter in declared
        if parameter.required and parameter.secret
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


# --- one to paste (`responder-bot responders settings`) ---------------------------------------------------------------


_COLUMN = 40


def settings_section(definition: Definition) -> str:
    """TOML with each configuration item, what is required or a placeholder, and what its profile suggests."""
    key = json.dumps(definition.name, ensure_ascii=False)
    lines = [f"# {_one_line(definition.description)}", f"[responder.{key}]", *_policy(definition.name)]
    if definition.items:
        lines += ["", f"[responder.{key}.config]", *(_line(*_item(item, definition.name)) for item in definition.items)]
    return "\n".join(lines) + "\n"


def _policy(name: str) -> Iterator[str]:
    profile = profile_of(name)
    if profile.effect:
        yield f"# {profile.effect} People are asked this first, unless `confirm` says something else."
    if profile.needs:
        yield f"# It reads {_listed(profile.needs)}."
    if profile.contains:
        yield _line("#approval = 1", "one other person has to approve")
        yield _line('#rate = ["10/1h"]', "at most so many runs")
    if profile.undo:
        yield _line(f"#undo = {json.dumps(profile.undo)}", "offered anyway; named here, core can do it by itself")
        yield _line("#undo_after_minutes = 60", "when it does")


def _listed(needs: Sequence[str]) -> str:
    fields = [need for need in needs if need != CASE]
    parts = ["the case"] if CASE in needs else []
    return " and ".join(parts + ([f"the custom fields {', '.join(fields)}"] if fields else []))


def _item(item: ConfigurationItem, responder_name: str) -> tuple[str, str]:
    """Its line, and what is said of it."""
    name = item.name if re.fullmatch(r"[A-Za-z0-9_-]+", item.name) else json.dumps(item.name, ensure_ascii=False)
    nothing: Any = [] if item.multi else ""
    default = json.dumps(nothing if item.default in (None, "") else item.default, ensure_ascii=False)
    ways = [way for way in profile_of(responder_name).config if item.name in way.split("|")]
    about = [*(f"required: {way.replace('|', ' or ')}" for way in ways), _one_line(item.description)]
    if item.is_secret:
        about.append('a secret: { file = "..." } and { command = [...] } work too')
    if not item.required:
        return f"#{name} = {default}", "; ".join(filter(None, about))
    if item.has_placeholder:
        about.insert(0, f"{_one_line(str(item.default))} is a placeholder")
        default = json.dumps(nothing)
    return f"{name} = {default}", "; ".join(filter(None, ["required", *about]))


def _line(text: str, about: str) -> str:
    return f"{text:<{_COLUMN}} # {about}".rstrip(" #") if about else text


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
