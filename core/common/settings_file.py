"""Read the settings file. The environment overrides the file, and an error is one sentence.

Core and bot have their sections in one file; each reads its own with these functions
(core/docs/operations.md#settings).
"""

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError
from pydantic.fields import FieldInfo

from core.common.database.location import Location, parse_location
from core.common.errors import ResponderBotError

DEFAULT_FILE = Path("responder-bot.toml")
SECTIONS = (
    *("core", "engine", "responder", "protect", "retention", "source", "blocklist", "reader"),
    *("bot", "slack", "channel"),
)
"""All sections of the file, core's and the bot's."""
PREFIX = "RESPONDER_BOT_"


class SettingsSection(BaseModel):
    """Base of all sections: immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)  # built when first used


class RetentionSection(SettingsSection):
    """`[retention]`: after how many days what is closed goes (core/docs/storage.md#retention); 0 for never."""

    alert_days: int = Field(0, ge=0, le=36_500)
    report_days: int = Field(0, ge=0, le=36_500)
    audit_days: int = Field(0, ge=0, le=36_500)
    message_days: int = Field(400, ge=0, le=36_500)
    """Of the bot's messages; the others are core's."""


SlackId = Annotated[str, Field(pattern=r"^[SUW][A-Z0-9]+$")]
"""The id of a user group in Slack or of a person: who is mentioned, which gives no right."""


DatabaseLocation = Annotated[
    Location,
    PlainValidator(parse_location),
    Field(
        description="the path of a SQLite file, such as data/responder-bot.db, or the URL of a PostgreSQL, such as"
        " postgresql://USER:PASSWORD@HOST/DATABASE"
    ),
]


DATABASE = "responder-bot.db"
"""The SQLite file in `state`, unless `database` names another."""


class SharedSection(SettingsSection):
    """The keys of `[core]` that the bot reads, too."""

    database: DatabaseLocation = Path(DATABASE)
    state: Path = Path(".")
    """The folder of job folders, environments, and the SQLite file that has no other place."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    metrics_token: str = ""
    """What whoever reads `/metrics`, of core or of the bot, has to send; "" asks for nothing."""


@dataclass(frozen=True)
class Sections:
    """The file and the environment, before their keys are validated."""

    folder: Path
    """Relative paths are resolved from here."""
    source: str
    """The file's name in error sentences."""
    tables: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)


SectionT = TypeVar("SectionT", bound=BaseModel)


def read_sections(path: Path | None, environ: Mapping[str, str]) -> Sections:
    """Read the file. Raises ResponderBotError("bad_request") if it can't be read or has an unknown section."""
    file = DEFAULT_FILE if path is None else path
    tables: Mapping[str, Any] = {}
    if path is not None or file.exists():
        tables = _toml(file)
    own = {name: value for name, value in environ.items() if name.startswith(PREFIX) and value}
    sections = Sections(file.absolute().parent, str(file), tables, dict(environ))
    for name, value in tables.items():
        if name not in SECTIONS and not isinstance(value, dict | list):
            raise settings_error(f"{file}: {name} is outside any section; move it into one, such as [core].")
        reject_unknown(name, SECTIONS, f"{file} has no section [{name}]")
    prefixes = [name.upper() for name in SECTIONS if name not in ("source", "reader", "channel")]
    for variable in own:
        word = variable.removeprefix(PREFIX).partition("_")[0]
        reject_unknown(word, prefixes, f"The environment variable {variable} belongs to no section")
    return sections


def section(
    model: type[SectionT],
    name: str,
    sections: Sections,
    *,
    also: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> SectionT:
    """Read and validate the section `[name]`; the environment overrides the file.

    `defaults` are in place of those of the model. `also` maps keys to further variables, such as
    `{"bot_token": "SLACK_BOT_TOKEN"}`, which `RESPONDER_BOT_...` overrides.
    Raises ResponderBotError("bad_request").
    """
    table = sections.tables.get(name, {})
    location = f"{sections.source}: [{name}]"
    if not isinstance(table, Mapping):
        raise settings_error(f"{location} must be a table: write its keys below a line [{name}].")
    prefix = f"{PREFIX}{name.upper()}_"
    overrides = variables(sections.environ, prefix, tuple(model.model_fields), name)
    names = {key: prefix + variable_name(key) for key in overrides}
    for key, variable in (also or {}).items():
        value = with_file(sections.environ, variable)
        if value and key not in overrides:
            overrides[key], names[key] = value, variable
    return checked(model, {**(defaults or {}), **table, **overrides}, location, sections.folder, names)


def shared_section(sections: Sections) -> SharedSection:
    """What the bot reads of `[core]`, whose other keys are core's. Raises ResponderBotError("bad_request")."""
    table, keys = sections.tables.get("core", {}), SharedSection.model_fields
    own = {key: table[key] for key in keys if key in table} if isinstance(table, Mapping) else table
    prefixes = tuple(f"{PREFIX}CORE_{variable_name(key)}" for key in keys)
    environ = {variable: value for variable, value in sections.environ.items() if variable.startswith(prefixes)}
    shared = replace(sections, tables={"core": own}, environ=environ)
    state = section(SharedSection, "core", shared).state
    return section(SharedSection, "core", shared, defaults={"database": str(state / DATABASE)})


def section_list(model: type[SectionT], name: str, sections: Sections) -> tuple[SectionT, ...]:
    """Read the sections `[[name]]`, from the file only. Raises ResponderBotError("bad_request")."""
    return tuple(
        checked(model, table, f"{sections.source}: [[{name}]] number {number}", sections.folder)
        for number, table in enumerate(tables_of(name, sections), 1)
    )


def problems_of(readers: Mapping[str, Callable[[Sections], Any]], sections: Sections) -> list[str]:
    """The first error of each section, as a sentence with the line of the file where it has one."""
    problems = []
    for read in readers.values():
        try:
            read(sections)
        except ResponderBotError as error:
            problems.append(with_line(error.message, sections))
    return problems


_HEADER = re.compile(r"(\[{1,2}\w[^]]*\]{1,2})(?: number (\d+))?(.*)", re.S)
_KEY = re.compile(r'\s*"?(\w+)"?\s*[.=]\s*(.*)')


def with_line(sentence: str, sections: Sections) -> str:
    """The sentence behind `FILE:LINE`, if the file has the section that it names, written the same way."""
    place, file = _HEADER.search(sentence), Path(sections.source)
    if place is None or not file.is_file():
        return sentence
    header, number, rest = place.groups()
    words = re.findall(r"[\w-]+", rest)
    keys: list[
        dict[str, tuple[int, str]]
    ] = []  # of each table of that header: line and value by key; the header's is ""
    is_inside = False
    for at, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if line.lstrip().startswith("["):
            is_inside = line.lstrip().startswith(header)
            keys += [{"": (at, "")}] if is_inside else []
        elif is_inside and (match := _KEY.match(line)):
            keys[-1].setdefault(match[1], (at, match[2]))
    if number:
        keys = keys[int(number) - 1 :]
    keys.sort(key=lambda table: table.get("name", (0, ""))[1].strip("\"'") not in words)  # an [[engine]] by its name
    if not keys:
        return sentence
    number_of_line, _ = next((keys[0][word] for word in words if word in keys[0]), keys[0][""])
    return f"{sections.source}:{number_of_line}: {sentence.removeprefix(f'{sections.source}: ')}"


@lru_cache(4096)
def variable_name(name: str) -> str:
    """A name as part of an environment variable: upper case, `_` for every other character."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def tables_of(name: str, sections: Sections) -> Sequence[Mapping[str, Any]]:
    """The tables `[[name]]` of the file. Raises ResponderBotError("bad_request") for a single `[name]`."""
    tables = sections.tables.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise settings_error(f"{sections.source}: write [[{name}]], with two brackets: there may be several.")
    return tables


def variables(environ: Mapping[str, str], prefix: str, keys: Sequence[str], name: str) -> dict[str, Any]:
    """The keys that variables with this prefix set. Raises ResponderBotError for an unknown key."""
    by_variable = {variable_name(key): key for key in keys}
    values: dict[str, Any] = {}
    for variable in sorted(environ):
        word = variable.removeprefix(prefix)
        if not variable.startswith(prefix) or not environ[variable]:
            continue
        base = word if word in by_variable else word.removesuffix("_FILE")
        reject_unknown(base, list(by_variable), f"The environment variable {variable} is not a key of [{name}]")
        values[by_variable[base]] = with_file(environ, prefix + base)
    return values


def with_file(environ: Mapping[str, str], variable: str) -> str:
    """The value of a variable, or the content of the file in `<variable>_FILE`; "" without either."""
    value, file = environ.get(variable, ""), environ.get(f"{variable}_FILE", "")
    if value and file:
        raise settings_error(f"Both {variable} and {variable}_FILE are set; unset one of them.")
    if not file:
        return value
    try:
        value = Path(file).read_text().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise settings_error(
            f"{variable}_FILE names {file}, which can't be read ({reason}); correct the path."
        ) from error
    if not value:
        raise settings_error(f"{variable}_FILE names {file}, which is empty; put the value into it.")
    return value


def _toml(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))  # with the mark that editors on Windows put first
    except OSError as error:
        advice = "run this as its account" if isinstance(error, PermissionError) else "give another with --config"
        raise settings_error(f"The settings file {file} can't be read ({error.strerror}); {advice}.") from error
    except UnicodeDecodeError as error:
        raise settings_error(
            f"The settings file {file} is not valid TOML, since it is not UTF-8 text; save it as UTF-8."
        ) from error
    except (ValueError, RecursionError) as error:
        if twice := _given_twice(file, str(error)):
            raise settings_error(f"{twice}; keep one.") from error
        hint = " (quote strings; write true and false in lower case)" if "Invalid value" in str(error) else ""
        raise settings_error(f"The settings file {file} is not valid TOML: {error}; correct that{hint}.") from error


def _given_twice(file: Path, reason: str) -> str:
    """What the file has twice, if that is why it is not TOML; else ""."""
    if not re.match("Cannot overwrite a value|Cannot declare .* twice", reason):
        return ""
    lines = file.read_text(encoding="utf-8-sig").rstrip().splitlines()
    at = re.search(r"at line (\d+)", reason)
    number = int(at[1]) if at else len(lines)
    header = next((line.strip() for line in reversed(lines[: number - 1]) if line.lstrip().startswith("[")), "the file")
    line = lines[number - 1].partition("#")[0].strip()
    if line.startswith("["):
        return f"{file}:{number}: {line} is there twice"
    return f"{file}:{number}: {line.partition('=')[0].strip()} is twice in {header}"


def checked(
    model: type[SectionT],
    values: Mapping[str, Any],
    location: str,
    folder: Path,
    names: Mapping[str, str] | None = None,
) -> SectionT:
    """Validate a section; `names` maps keys to the environment variables that they come from.

    Raises ResponderBotError("bad_request") that says what the first wrong key must be.
    """
    _reject_unknown_keys(model, values, location)
    try:
        made = model.model_validate(dict(values))
    except ValidationError as error:
        raise settings_error(
            _sentence(model, error, location, names or {})
        ) from None  # the cause would show values, secrets too
    return made.model_copy(update=_absolute(made, folder))


def _reject_unknown_keys(model: type[BaseModel], values: Mapping[str, Any], location: str) -> None:
    for key, value in values.items():
        reject_unknown(key, list(model.model_fields), f'{location} has no key "{key}"')
        inner = _section_in(model.model_fields[key])
        if inner is not None and isinstance(value, Mapping):
            _reject_unknown_keys(inner, value, f"{location} {key}")


def _sentence(model: type[BaseModel], error: ValidationError, location: str, names: Mapping[str, str]) -> str:
    """The first validation error in words; without the value, which may be a secret."""
    details = error.errors(include_url=False, include_input=False, include_context=False)[0]
    path = [str(part) for part in details["loc"]]
    item = model.model_fields[path[0]]
    inner = _section_in(item)
    key = path[0]
    if inner is not None and len(path) > 1 and path[1] in inner.model_fields:
        key, item = f"{key}.{path[1]}", inner.model_fields[path[1]]
    if details["type"] == "missing":
        return f"{location} needs a value for {key}: {expected(item)}."
    what = f"The environment variable {names[key]}" if key in names else f"{location} {key}"
    return f"{what} must be {expected(item)}."


def expected(item: FieldInfo) -> str:
    """What a key must be, in words: its description, or its type."""
    if item.description:
        return item.description
    kind = item.annotation
    if get_origin(kind) is UnionType:
        kind = next(choice for choice in get_args(kind) if choice is not NoneType)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if kind is int:
        return _whole_number(item)
    if get_origin(kind) is tuple:
        return 'a list of strings, such as ["one", "two"]'
    names: Mapping[Any, str] = {bool: "true or false", str: "a string in quotes", Path: "a path in quotes"}
    return names.get(kind, "a table, such as { key = value }")


def _whole_number(item: FieldInfo) -> str:
    bounds = {name: getattr(bound, name) for bound in item.metadata for name in ("ge", "le") if hasattr(bound, name)}
    if "le" in bounds:
        return f"a whole number from {bounds['ge']} to {bounds['le']}"
    return f"a whole number, at least {bounds['ge']}" if "ge" in bounds else "a whole number"


def _section_in(item: FieldInfo) -> type[BaseModel] | None:
    kinds = (item.annotation, *get_args(item.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _absolute(made: BaseModel, folder: Path) -> dict[str, Any]:
    """The paths of a section, resolved from `folder`; `~` is expanded."""
    values: dict[str, Any] = {}
    for key, item in type(made).model_fields.items():
        value = getattr(made, key)
        if isinstance(value, Path):
            values[key] = _resolve(folder, value)
        elif Path in get_args(item.annotation) and isinstance(value, tuple):
            values[key] = tuple(_resolve(folder, path) for path in value)
    return values


def _resolve(folder: Path, path: Path) -> Path:
    return Path(os.path.normpath(folder / os.path.expanduser(path)))


def reject_unknown(name: str, known: Sequence[str], sentence: str) -> None:
    """Raises ResponderBotError("bad_request"), `sentence` and the closest known name, for a name that is not known."""
    if name in known:
        return
    near = get_close_matches(name, known, 1, 0.5)
    hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(known) or 'none'}."
    raise settings_error(f"{sentence}; {hint}")


def settings_error(sentence: str) -> ResponderBotError:
    return ResponderBotError("bad_request", sentence)
