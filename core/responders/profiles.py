"""What is known of bundled responders, and of public ones that contain something.

See core/docs/responders.md#public-responders.
"""

import re
import tomllib
from collections.abc import Container, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from core.common.settings_file import SettingsSection, checked, variable_name
from core.responders.target import Target
from core.settings import ResponderSection, by_commas

CASE = "case"
_RECEIVER = re.compile(r"([^/?#:@\s]+@[^/?#:@\s]+)$|(?:[a-z]+://)?(?:[^/?#]*@)?(\[[^]]*\]|[^/?#:@]+)", re.IGNORECASE)
"""A mail address, or the host in a URL."""
_FILE = Path(__file__).with_name("profiles.toml")


class Profile(SettingsSection):
    """A bundled responder, or a public one that leaves something in force, or ends that."""

    effect: str = ""
    """What a run does, as a sentence for people."""
    contains: bool = False
    """Whether a run leaves something in force."""
    target: Annotated[tuple[str, ...], BeforeValidator(by_commas)] = ()
    """The data types that its code takes; empty if it takes any, or doesn't act on what it is given."""
    undo: str = ""
    """The responder that undoes a run."""
    undo_after_minutes: int = 0
    """How long a run lasts if nobody says; it may last longer, or have no end."""
    protect: bool = True
    """Whether `[protect]` holds for it."""
    sends_to: str = ""
    """The configuration item that says where it sends what it gets: a URL, or mail addresses."""
    needs: Annotated[tuple[str, ...], BeforeValidator(by_commas)] = ()
    """What its code reads beside the target: `case`, or the names of custom fields."""
    config: Annotated[tuple[str, ...], BeforeValidator(by_commas)] = ()
    """Configuration items that its code requires and its definition doesn't; of `a|b` one."""


@cache
def profiles() -> Mapping[str, Profile]:
    """All profiles, by the name of the responder, which ends with its version."""
    tables = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return {name: checked(Profile, table, f"{_FILE.name}: {name}", _FILE.parent) for name, table in tables.items()}


def profile_of(name: str) -> Profile:
    """The profile of a responder; one that says nothing if there is none."""
    return profiles().get(name) or Profile()


def with_profile(section: ResponderSection, name: str) -> ResponderSection:
    """The settings of a responder and, for the keys that they leave out, its profile."""
    profile = profile_of(name)
    timed = profile.undo_after_minutes if "undo_after_minutes" not in section.model_fields_set else 0
    known: dict[str, Any] = {"undo_after_minutes": timed, "allow_permanent": True} if timed else {}
    known |= {"contains": profile.contains, "confirm": profile.effect, "undo": profile.undo, "protect": profile.protect}
    return section.model_copy(update={key: known[key] for key in known.keys() - section.model_fields_set})


def receivers(section: ResponderSection, name: str) -> Sequence[str] | None:
    """The mail addresses or hosts to which it sends what it gets, if it only reads or tells; nothing else of a URL.

    None if it may act on that, or leaves something in force.
    """
    if section.protect or section.contains or section.undo:
        return None
    item = variable_name(profile_of(name).sends_to)
    given = next((value for key, value in section.config.items() if variable_name(key) == item), None)
    texts = given if isinstance(given, list) else [given]
    found = (_RECEIVER.match(text) for text in texts if isinstance(text, str))
    return list(dict.fromkeys(match[1] or match[2] for match in found if match is not None))


def lacking(responder_name: str, target: Target) -> Sequence[str]:
    """What a responder needs by its profile and an object lacks.

    Custom fields are those of the object or of its case; of an observable without a case, those of its alert, which a
    case that is made of that has too.
    """
    needs, json = profile_of(responder_name).needs, target.json
    of = json if target.kind in ("alert", "case") else json.get("case") or json.get("alert") or {}
    has_case = target.kind == "case" or bool(json.get("case")) or bool(json.get("case_task"))
    fields = of.get("customFields") or {} if isinstance(of, Mapping) else {}
    return [need for need in needs if not (has_case if need == CASE else _has_value(fields.get(need)))]


def why_not_configured(responder_name: str, items: Container[str], config: Mapping[str, Any]) -> str:
    """The reason why it can't run with what the settings give of its configuration items, or `""`."""
    given = {variable_name(name) for name, value in config.items() if value not in (None, "")}
    ways = (need.split("|") for need in profile_of(responder_name).config)
    missing = [way for way in ways if way[0] in items and given.isdisjoint(map(variable_name, way))]
    names = ", ".join(" or ".join(way) for way in missing)
    return names and f"not configured: {names} missing; an administrator can set it"


def why_lacking(lacks: Sequence[str]) -> str:
    """The reason why it can't run without what is lacking, or `""`."""
    if CASE in lacks:
        return "it reads the case, and there is none; make a case of the alert"
    names = ", ".join(lacks)
    return names and f"it reads the custom field{'s' if len(lacks) > 1 else ''} {names}, without a value here; set it"


def _has_value(field: Any) -> bool:
    """Whether a custom field, such as `{"string": "003", "order": 0}`, has a value."""
    values = field.items() if isinstance(field, Mapping) else ()
    return any(value not in (None, "") for key, value in values if key not in ("order", "_id"))


def is_undo(responder_name: str, sections: Mapping[str, ResponderSection]) -> bool:
    """Whether the settings or a profile name it as what undoes another."""
    return responder_name in _undos() or any(section.undo == responder_name for section in sections.values())


@cache
def _undos() -> frozenset[str]:
    return frozenset(profile.undo for profile in profiles().values() if profile.undo)
