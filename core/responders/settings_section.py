"""The section of the settings for a responder of a process engine, to paste (`responder-bot responders settings`)."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from core.engines.definitions import ConfigurationItem, Definition
from core.responders.profiles import CASE, profile_of

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
