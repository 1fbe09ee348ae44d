"""Reads the settings file: sections, the environment before the file, and one sentence for what is wrong.

Core and bot keep their sections in one file; each reads its own with these functions (`surface.md`).
"""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from core.errors import ResponderBotError

DEFAULT_FILE = Path("responder-bot.toml")
SECTIONS = ("core", "engine", "responder", "bot", "slack", "channel")
"""All sections of the file, whoever reads them."""
PREFIX = "RESPONDER_BOT_"


@dataclass(frozen=True)
class Sections:
    """What the file and the environment say, not yet checked key by key."""

    folder: Path
    """Relative paths start here."""
    source: str
    """How sentences name the file."""
    tables: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)


SectionT = TypeVar("SectionT", bound=BaseModel)


def read_sections(path: Path | None, environ: Mapping[str, str]) -> Sections:
    """Read the file. Raises ResponderBotError("bad_request") where it can't be read or has an unknown section."""
    file = DEFAULT_FILE if path is None else path
    found: Mapping[str, Any] = {}
    if path is not None or file.exists():
        found = _toml(file)
    own = {name: value for name, value in environ.items() if name.startswith(PREFIX) and value}
    sections = Sections(file.absolute().parent, str(file), found, dict(environ))
    for name in found:
        refuse_unknown(name, SECTIONS, f"{file} has no section [{name}]")
    words = [name.upper() for name in SECTIONS if name != "channel"]
    for variable in own:
        word = variable.removeprefix(PREFIX).partition("_")[0]
        refuse_unknown(word, words, f"The environment variable {variable} belongs to no section")
    return sections


def section(model: type[SectionT], name: str, sections: Sections, *, also: Mapping[str, str] | None = None) -> SectionT:
    """One section `[name]`, the environment before the file.

    `also` names further variables by key, such as `{"bot_token": "SLACK_BOT_TOKEN"}`; the section's own win.
    Raises ResponderBotError("bad_request").
    """
    table = sections.tables.get(name, {})
    place = f"{sections.source}: [{name}]"
    if not isinstance(table, Mapping):
        raise wrong(f"{place} is to be a table of keys and values.")
    given = variables(sections.environ, f"{PREFIX}{name.upper()}_", tuple(model.model_fields), name)
    for key, variable in (also or {}).items():
        value = with_file(sections.environ, variable)
        if value:
            given.setdefault(key, value)
    return checked(model, {**table, **given}, place, sections.folder)


def section_list(model: type[SectionT], name: str, sections: Sections) -> tuple[SectionT, ...]:
    """The sections `[[name]]`, of the file alone. Raises ResponderBotError("bad_request")."""
    return tuple(
        checked(model, table, f"{sections.source}: [[{name}]] number {number}", sections.folder)
        for number, table in enumerate(tables_of(name, sections), 1)
    )


def plain(name: str) -> str:
    """A name as it can stand in an environment variable: upper case, other characters `_` (`surface.md`)."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def tables_of(name: str, sections: Sections) -> Sequence[Mapping[str, Any]]:
    found = sections.tables.get(name, [])
    if not isinstance(found, list) or not all(isinstance(table, Mapping) for table in found):
        raise wrong(f"{sections.source}: write [[{name}]], with two brackets: there may be several.")
    return found


def variables(environ: Mapping[str, str], prefix: str, keys: Sequence[str], name: str) -> dict[str, Any]:
    """The keys that variables with this prefix set. Raises for one that is no key."""
    by_word = {plain(key): key for key in keys}
    found: dict[str, Any] = {}
    for variable in sorted(environ):
        word = variable.removeprefix(prefix)
        if not variable.startswith(prefix) or not environ[variable]:
            continue
        base = word if word in by_word else word.removesuffix("_FILE")
        refuse_unknown(base, list(by_word), f"The environment variable {variable} is no key of [{name}]")
        found[by_word[base]] = with_file(environ, prefix + base)
    return found


def with_file(environ: Mapping[str, str], variable: str) -> str:
    """The value of a variable, or what is in the file that `<variable>_FILE` names; "" without either."""
    value, file = environ.get(variable, ""), environ.get(f"{variable}_FILE", "")
    if value and file:
        raise wrong(f"Both {variable} and {variable}_FILE are set; unset one of them.")
    if not file:
        return value
    try:
        return Path(file).read_text().strip()
    except (OSError, ValueError) as error:
        raise wrong(f"The file {file} of {variable}_FILE can't be read ({error}).") from error


def _toml(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise wrong(
            f"The settings file {file} can't be read ({error.strerror}); give another with --config."
        ) from error
    except ValueError as error:
        raise wrong(f"The settings file {file} is no TOML: {error}.") from error


def checked(model: type[SectionT], values: Mapping[str, Any], place: str, folder: Path) -> SectionT:
    _refuse_unknown_keys(model, values, place)
    try:
        made = model.model_validate(dict(values))
    except ValidationError as error:
        raise wrong(_sentence(error, place)) from None  # the cause would show values, and some are secrets
    return made.model_copy(update=_absolute(made, folder))


def _refuse_unknown_keys(model: type[BaseModel], values: Mapping[str, Any], place: str) -> None:
    for key, value in values.items():
        refuse_unknown(key, list(model.model_fields), f'{place} has no key "{key}"')
        annotation = model.model_fields[key].annotation
        for inner in (annotation, *get_args(annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel) and isinstance(value, Mapping):
                _refuse_unknown_keys(inner, value, f"{place} {key}")


def _sentence(error: ValidationError, place: str) -> str:
    """The first thing that is wrong; without the value, which may be a secret."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[0]
    key = ".".join(str(part) for part in found["loc"])
    if found["type"] == "missing":
        return f"{place} needs a value for {key}."
    said = found["msg"].removeprefix("Value error, ")
    return f"{place} {key}: {said[:1].lower()}{said[1:]}."


def _absolute(made: BaseModel, folder: Path) -> dict[str, Any]:
    """The paths of a section, from the folder of the file; `~` is the home folder."""
    found: dict[str, Any] = {}
    for key, item in type(made).model_fields.items():
        value = getattr(made, key)
        if isinstance(value, Path):
            found[key] = _from(folder, value)
        elif Path in get_args(item.annotation) and isinstance(value, tuple):
            found[key] = tuple(_from(folder, path) for path in value)
    return found


def _from(folder: Path, path: Path) -> Path:
    return Path(os.path.normpath(folder / path.expanduser()))


def refuse_unknown(name: str, known: Sequence[str], sentence: str) -> None:
    if name in known:
        return
    near = get_close_matches(name, known, 1, 0.5)
    hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(known)}."
    raise wrong(f"{sentence}; {hint}")


def wrong(sentence: str) -> ResponderBotError:
    return ResponderBotError("bad_request", sentence)
