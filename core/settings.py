"""The settings of core, from the TOML file and the environment (`surface.md`).

The bot reads its own sections of the same file with the same functions: `read_sections`, `section`, `section_list`.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import ResponderBotError

DEFAULT_FILE = Path("responder-bot.toml")
SECTIONS = ("core", "engine", "responder", "bot", "slack", "channel")
"""All sections of the file, whoever reads them."""
PREFIX = "RESPONDER_BOT_"

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Also the name of a folder, so no slashes."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CoreSection(_Section):
    """`[core]`. Paths are relative to the folder of the TOML file; the loader makes them absolute."""

    database: Path = Path("responder-bot.db")
    host: str = "127.0.0.1"
    port: int = Field(9000, ge=0, le=65535)
    organisation: str = "default"
    user_domain: str = "responder-bot.local"
    vendor_alias: Annotated[str, Field(pattern=r"^([a-z][a-z0-9_-]*)?$")] = "cortex"
    product: str = "thehive"
    max_concurrent_actions: int = Field(4, ge=1)
    jobs: Path = Path("jobs")
    keep_jobs: bool = False
    environments: Path = Path("environments")
    body_limit_bytes: int = Field(1_048_576, ge=1024)
    report_limit_bytes: int = Field(1_048_576, ge=1024)
    event_days: int = Field(30, ge=1)
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class EngineSection(_Section):
    """`[[engine]]`: `process` runs responders here, `cortex` speaks to a remote engine."""

    name: Name
    type: Literal["process", "cortex"] = "process"
    responders: tuple[Path, ...] = ()
    url: str = ""
    api_key: str = ""
    proxy: str = ""
    ca_file: Path | None = None
    python: Path | None = None


class ResponderSection(_Section):
    """`[responder."Name_1_0"]`: values of its configuration items, and its policy."""

    config: Mapping[str, Any] = Field(default_factory=dict)
    confirm: str = ""
    approval: int = Field(0, ge=0)
    approval_expires_minutes: int = Field(60, ge=1)


class CoreSettings(_Section):
    """All that core is told."""

    core: CoreSection = Field(default_factory=CoreSection)
    engine: tuple[EngineSection, ...] = ()
    responder: Mapping[str, ResponderSection] = Field(default_factory=dict)


# --- reading --------------------------------------------------------------------------------------------------------


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


def load(path: Path | None, environ: Mapping[str, str]) -> CoreSettings:
    """The settings of core; `path` None: the default file, if there is one.

    Raises ResponderBotError("bad_request") with a sentence that names the place and what to do.
    """
    return core_settings(read_sections(path, environ))


def core_settings(sections: Sections) -> CoreSettings:
    """The settings of core, of sections that were read already. Raises as `load` does."""
    return CoreSettings(
        core=section(CoreSection, "core", sections),
        engine=_engines(sections),
        responder=_responders(sections),
    )


def read_sections(path: Path | None, environ: Mapping[str, str]) -> Sections:
    """Read the file. Raises ResponderBotError("bad_request") where it can't be read or has an unknown section."""
    file = DEFAULT_FILE if path is None else path
    tables: Mapping[str, Any] = {}
    if path is not None or file.exists():
        tables = _toml(file)
    own = {name: value for name, value in environ.items() if name.startswith(PREFIX) and value}
    sections = Sections(file.absolute().parent, str(file), tables, dict(environ))
    for name in tables:
        _refuse_unknown(name, SECTIONS, f"{file} has no section [{name}]")
    words = [name.upper() for name in SECTIONS if name != "channel"]
    for variable in own:
        word = variable.removeprefix(PREFIX).partition("_")[0]
        _refuse_unknown(word, words, f"The environment variable {variable} belongs to no section")
    return sections


def section(model: type[SectionT], name: str, sections: Sections, *, also: Mapping[str, str] | None = None) -> SectionT:
    """One section `[name]`, the environment before the file.

    `also` names further variables by key, such as `{"bot_token": "SLACK_BOT_TOKEN"}`; the section's own win.
    Raises ResponderBotError("bad_request").
    """
    table = sections.tables.get(name, {})
    place = f"{sections.source}: [{name}]"
    if not isinstance(table, Mapping):
        raise _wrong(f"{place} is to be a table of keys and values.")
    given = _variables(sections.environ, f"{PREFIX}{name.upper()}_", tuple(model.model_fields), name)
    for key, variable in (also or {}).items():
        value = _with_file(sections.environ, variable)
        if value:
            given.setdefault(key, value)
    return _checked(model, {**table, **given}, place, sections.folder)


def section_list(model: type[SectionT], name: str, sections: Sections) -> tuple[SectionT, ...]:
    """The sections `[[name]]`, of the file alone. Raises ResponderBotError("bad_request")."""
    return tuple(
        _checked(model, table, f"{sections.source}: [[{name}]] number {number}", sections.folder)
        for number, table in enumerate(_tables(name, sections), 1)
    )


def plain(name: str) -> str:
    """A name as it can stand in an environment variable: upper case, other characters `_` (`surface.md`)."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _engines(sections: Sections) -> tuple[EngineSection, ...]:
    tables = _tables("engine", sections)
    prefix = f"{PREFIX}ENGINE_"
    given = {name for name, value in sections.environ.items() if name.startswith(prefix) and value}
    if not tables and given:
        tables = [{"name": "local"}]  # the one that exists where none is named
    engines = []
    # Longest name first: the variables of `soc_2` are not those of a key `2_url` of `soc`.
    for table in sorted(tables, key=lambda table: -len(str(table.get("name", "")))):
        own = f"{prefix}{plain(str(table.get('name', '')))}_"
        mine = {name: sections.environ[name] for name in given if name.startswith(own)}
        given -= mine.keys()
        keys = tuple(key for key in EngineSection.model_fields if key != "name")
        place = f"{sections.source}: [[engine]] {table.get('name', 'without a name')}"
        found = _variables(mine, own, keys, "engine")
        engines.append((table, _engine({**table, **found}, place, sections.folder)))
    for variable in sorted(given):
        raise _wrong(f"The environment variable {variable} names no [[engine]] of {sections.source}.")
    ordered = [next(engine for of, engine in engines if of is table) for table in tables]
    _refuse_twice([engine.name for engine in ordered], sections.source)
    return tuple(ordered)


def _engine(table: Mapping[str, Any], place: str, folder: Path) -> EngineSection:
    values = dict(table)
    if isinstance(values.get("responders"), str):
        values["responders"] = [part for part in values["responders"].split(os.pathsep) if part]
    engine = _checked(EngineSection, values, place, folder)
    missing = [key for key in ("url", "api_key") if engine.type == "cortex" and not getattr(engine, key)]
    if missing:
        raise _wrong(f"{place} is of type cortex and needs {' and '.join(missing)}.")
    return engine


def _refuse_twice(names: Sequence[str], source: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise _wrong(f"{source} has two [[engine]] called {name}; names must differ.")


def _responders(sections: Sections) -> Mapping[str, ResponderSection]:
    tables = sections.tables.get("responder", {})
    if not isinstance(tables, Mapping) or not all(isinstance(table, Mapping) for table in tables.values()):
        raise _wrong(f'{sections.source}: [responder] needs the name of a responder, such as [responder."Mailer_1_0"].')
    values: dict[str, dict[str, Any]] = {name: dict(table) for name, table in tables.items()}
    for name, item, value in _responder_variables(sections.environ, values):
        config = dict(values.setdefault(name, {}).get("config", {}))
        config[next((key for key in config if plain(key) == item), item)] = value
        values[name]["config"] = config
    return {
        name: _checked(ResponderSection, table, f'{sections.source}: [responder."{name}"]', sections.folder)
        for name, table in values.items()
    }


# A definition's id ends with its version (`Mailer_1_0`), which tells where an unlisted responder's name ends.
_RESPONDER_VARIABLE = re.compile(r"(.+?_[0-9]+(?:_[0-9]+)*)_([^0-9].*)")


def _responder_variables(
    environ: Mapping[str, str], known: Mapping[str, Mapping[str, Any]]
) -> Iterable[tuple[str, str, str]]:
    """Name, item (in plain form) and value of each `RESPONDER_BOT_RESPONDER_<NAME>_<ITEM>`."""
    prefix = f"{PREFIX}RESPONDER_"
    names = sorted(known, key=len, reverse=True)
    found: dict[tuple[str, str], str] = {}
    for variable in sorted(name for name, value in environ.items() if name.startswith(prefix) and value):
        rest = variable.removeprefix(prefix)
        name = next((name for name in names if rest.startswith(f"{plain(name)}_")), "")
        match = _RESPONDER_VARIABLE.fullmatch(rest)
        if not name and match is None:
            raise _wrong(f"The environment variable {variable} is to end with a responder's name and an item's.")
        item = rest[len(name) + 1 :] if name or match is None else match[2]
        name = name or (match[1] if match else "")
        is_item = item in {plain(key) for key in known.get(name, {}).get("config", {})}
        base = variable if is_item or not item.endswith("_FILE") else variable.removesuffix("_FILE")
        item = item if base == variable else item.removesuffix("_FILE")
        found[name, item] = environ[variable] if is_item else _with_file(environ, base)
    return [(name, item, value) for (name, item), value in found.items()]


def _tables(name: str, sections: Sections) -> Sequence[Mapping[str, Any]]:
    tables = sections.tables.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise _wrong(f"{sections.source}: write [[{name}]], with two brackets: there may be several.")
    return tables


def _variables(environ: Mapping[str, str], prefix: str, keys: Sequence[str], name: str) -> dict[str, Any]:
    """The keys that variables with this prefix set. Raises for one that is no key."""
    by_word = {plain(key): key for key in keys}
    found: dict[str, Any] = {}
    for variable in sorted(environ):
        word = variable.removeprefix(prefix)
        if not variable.startswith(prefix) or not environ[variable]:
            continue
        base = word if word in by_word else word.removesuffix("_FILE")
        _refuse_unknown(base, list(by_word), f"The environment variable {variable} is no key of [{name}]")
        found[by_word[base]] = _with_file(environ, prefix + base)
    return found


def _with_file(environ: Mapping[str, str], variable: str) -> str:
    """The value of a variable, or what is in the file that `<variable>_FILE` names; "" without either."""
    value, file = environ.get(variable, ""), environ.get(f"{variable}_FILE", "")
    if value and file:
        raise _wrong(f"Both {variable} and {variable}_FILE are set; unset one of them.")
    if not file:
        return value
    try:
        return Path(file).read_text().strip()
    except (OSError, ValueError) as error:
        raise _wrong(f"The file {file} of {variable}_FILE can't be read ({error}).") from error


def _toml(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _wrong(
            f"The settings file {file} can't be read ({error.strerror}); give another with --config."
        ) from error
    except ValueError as error:
        raise _wrong(f"The settings file {file} is no TOML: {error}.") from error


def _checked(model: type[SectionT], values: Mapping[str, Any], place: str, folder: Path) -> SectionT:
    for key in values:
        _refuse_unknown(key, list(model.model_fields), f'{place} has no key "{key}"')
    try:
        made = model.model_validate(dict(values))
    except ValidationError as error:
        raise _wrong(_sentence(error, place)) from None  # the cause would show values, and some are secrets
    return made.model_copy(update=_absolute(made, folder))


def _sentence(error: ValidationError, place: str) -> str:
    """The first thing that is wrong; without the value, which may be a secret."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[0]
    key = ".".join(str(part) for part in found["loc"])
    if found["type"] == "missing":
        return f"{place} needs a value for {key}."
    return f"{place} {key}: {found['msg'][:1].lower()}{found['msg'][1:]}."


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


def _refuse_unknown(name: str, known: Sequence[str], sentence: str) -> None:
    if name in known:
        return
    near = get_close_matches(name, known, 1, 0.5)
    hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(known)}."
    raise _wrong(f"{sentence}; {hint}")


def _wrong(sentence: str) -> ResponderBotError:
    return ResponderBotError("bad_request", sentence)
