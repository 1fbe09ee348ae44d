"""What is known of bundled responders, and of public ones that contain something.

See core/docs/responders.md#public-responders.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator

from core.common.settings_file import SettingsSection, checked
from core.settings import ResponderSection, by_commas

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
    protect: bool = True
    """Whether `[protect]` holds for it."""


@cache
def profiles() -> Mapping[str, Profile]:
    """All profiles, by the name of the responder, which ends with its version."""
    tables = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return {name: checked(Profile, table, f"{_FILE.name}: {name}", _FILE.parent) for name, table in tables.items()}


def with_profile(section: ResponderSection, name: str) -> ResponderSection:
    """The settings of a responder and, for the keys that they leave out, its profile."""
    profile = profiles().get(name)
    if profile is None:
        return section
    known = {"contains": profile.contains, "confirm": profile.effect, "undo": profile.undo, "protect": profile.protect}
    return section.model_copy(update={key: known[key] for key in known.keys() - section.model_fields_set})


def is_undo(responder_name: str) -> bool:
    """Whether a profile names it as what undoes another."""
    return responder_name in _undos()


@cache
def _undos() -> frozenset[str]:
    return frozenset(profile.undo for profile in profiles().values() if profile.undo)
