"""Definition files of responders: read, checked, each either on offer or left out with a sentence that says why."""

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.engines.base import Skipped
from core.engines.redaction import SECRET_WORDS

DEFAULT_TIMEOUT_MINUTES = 30.0
RUN_SETTINGS = ("jobTimeout", "check_tlp", "max_tlp", "check_pap", "max_pap", "proxy_http", "proxy_https", "cacerts")
"""What every responder may be told beside its own configuration items."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR, errno.EIO, errno.ESTALE)

_TYPES = ("text", "string", "number", "boolean")
_NAME = re.compile(r"[^\x00-\x1f\x7f/\\]{1,200}")


class _Unusable(Exception):
    """Why a definition can't be used; the loader turns it into a `Skipped`."""


class _Unconfigured(_Unusable):
    """Required configuration items that have no value."""

    def __init__(self, name: str, missing: Sequence[str]) -> None:
        many = "s" if len(missing) > 1 else ""
        super().__init__(
            f"required configuration without a value: {', '.join(missing)}."
            f' Set the value{many} in [responder."{name}"] config.'
        )
        self.missing = missing


@dataclass(frozen=True)
class ConfigurationItem:
    """One configuration item of a definition."""

    name: str
    type: str
    multi: bool
    required: bool
    default: Any
    secret: bool = False
    """Its name or its description speaks of a secret (`semantics.md 5`)."""


@dataclass(frozen=True)
class Definition:
    """A usable definition file with its program, not yet configured."""

    name: str
    """The definition's id, such as `Mailer_1_0`."""
    version: str
    description: str
    data_types: tuple[str, ...]
    file: Path
    folder: Path
    """The responder's folder, which holds the program and `requirements.txt`."""
    root: Path
    """The folder that holds the responder folders; a run's working directory."""
    program: Path
    is_python: bool
    config: Mapping[str, Any]
    items: tuple[ConfigurationItem, ...]


@dataclass(frozen=True)
class ConfiguredResponder:
    """A definition with its values: what one run needs to know."""

    definition: Definition
    config: Mapping[str, Any]
    """The definition's fixed values, then the items'."""
    secret_names: frozenset[str]
    check_tlp: bool
    max_tlp: int
    check_pap: bool
    max_pap: int
    timeout_minutes: float
    proxy_http: str | None
    proxy_https: str | None
    cacerts: str | None
    """PEM text, or the path of a file."""


def definition_id(name: str, version: str) -> str:
    """`Mailer` and `1.0` give `Mailer_1_0` (`responder-process.md 1`)."""
    return f"{name}_{version.replace('.', '_')}"


def responder_id(organisation: str, name: str) -> str:
    """The id on a local engine: the same after every restart and on every machine."""
    return hashlib.sha256(f"{organisation}\0{name}".encode()).hexdigest()[:32]


def raise_if_exhausted(error: OSError) -> None:
    """Raise it again where it speaks of the machine and not of the file: another try may find what is there.

    To be called wherever an error means that a file is missing or unfit.
    """
    if error.errno in _EXHAUSTED:
        raise error


def definition_files(root: Path) -> Iterator[Path]:
    """Every definition file below `root`, in order; `root` may also be one responder's own folder."""
    if _is_responder_folder(root):
        yield from _json_files(root)
        return
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")):
        yield from _json_files(folder)


def _json_files(folder: Path) -> list[Path]:
    """In order; none where the folder can't be read. (`Path.glob` hides from Python 3.13 on why it found nothing.)"""
    try:
        return sorted(folder / name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError as error:
        raise_if_exhausted(error)
        return []


def responder_folders(roots: Sequence[Path]) -> tuple[Path, ...]:
    """The folders of all responders below `roots`, usable or not; for `responders install`."""
    found: dict[Path, None] = {}
    for root in roots:
        with contextlib.suppress(OSError):
            found |= dict.fromkeys(file.parent for file in definition_files(root))
    return tuple(found)


def _is_responder_folder(root: Path) -> bool:
    for file in _json_files(root):
        try:
            if "command" in json.loads(file.read_bytes()):
                return True
        except OSError as error:
            raise_if_exhausted(error)
        except (ValueError, TypeError):
            continue
    return False


@dataclass(frozen=True)
class LoadedDefinitions:
    """What was found in some folders."""

    definitions: Sequence[Definition]
    skipped: Sequence[Skipped]
    unreadable: Sequence[str]
    """A sentence for each folder that can't be read."""


def load(folders: Sequence[Path]) -> LoadedDefinitions:
    """All definitions of `folders`; of a name that comes twice the first is taken.

    Raises OSError where the machine is exhausted: then nothing is known of what is there.
    """
    taken: dict[str, Definition] = {}
    skipped: list[Skipped] = []
    unreadable: list[str] = []
    for root in folders:
        try:
            files = list(definition_files(root))
        except OSError as error:
            raise_if_exhausted(error)
            unreadable.append(
                f"The folder of responders {root} can't be read ({error.strerror}); make it, or take it out of"
                " [[engine]] responders."
            )
            continue
        for file in files:
            _take(file, taken, skipped)
    return LoadedDefinitions(list(taken.values()), skipped, unreadable)


def _take(file: Path, taken: dict[str, Definition], skipped: list[Skipped]) -> None:
    try:
        definition = read_definition(file)
    except _Unusable as reason:
        skipped.append(Skipped(file.stem, f"{file}: {reason}"))
        return
    except OSError as error:
        raise_if_exhausted(error)
        skipped.append(Skipped(file.stem, f"{file}: its program can't be read: {error.strerror}."))
        return
    first = taken.setdefault(definition.name, definition)
    if first is not definition:
        skipped.append(Skipped(definition.name, f"{file}: {definition.name} is taken from {first.file} already."))


def read_definition(file: Path) -> Definition:
    """Read and check one file. Raises `_Unusable` with the reason."""
    raw = _read_json(file)
    name, version = _text(raw, "name"), _text(raw, "version")
    if not _NAME.fullmatch(name) or not _NAME.fullmatch(version):
        raise _Unusable("name and version must be short and without slashes or control characters.")
    folder, root = file.parent, file.parent.parent
    program = _program(raw, root)
    return Definition(
        name=definition_id(name, version),
        version=version,
        description=str(raw.get("description") or ""),
        data_types=_data_types(raw),
        file=file,
        folder=_folder_of(program, root.resolve(), folder.resolve()),
        root=root.resolve(),
        program=program,
        is_python=_is_python(program),
        config=_object(raw, "config"),
        items=_items(raw),
    )


def _read_json(file: Path) -> Mapping[str, Any]:
    try:
        raw = json.loads(file.read_bytes())
    except OSError as error:
        raise_if_exhausted(error)
        raise _Unusable(f"the file can't be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise _Unusable(f"the file is not valid JSON: {error}.") from error
    if not isinstance(raw, dict):
        raise _Unusable("the file holds no JSON object.")
    return raw


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    if value is None or value == "":
        raise _Unusable(f"the key {key!r} is missing.")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise _Unusable(f"the key {key!r} must be a text.")
    return value


def _object(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Unusable(f"the key {key!r} must be an object.")
    return value


def _data_types(raw: Mapping[str, Any]) -> tuple[str, ...]:
    value = raw.get("dataTypeList")
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise _Unusable("the key 'dataTypeList' must be a list of at least one text.")
    return tuple(value)


def _program(raw: Mapping[str, Any], root: Path) -> Path:
    if not raw.get("command") and raw.get("dockerImage"):
        raise _Unusable("it has only a dockerImage and no command; this engine runs programs, not images.")
    command = _text(raw, "command")
    if "\0" in command:
        raise _Unusable("the command holds a zero byte.")
    program = (root / command).resolve()
    if not program.is_relative_to(root.resolve()):
        raise _Unusable(f"the command {command!r} leads out of the folder {root}.")
    if not program.is_file():
        raise _Unusable(f"the program {command!r} is missing below {root}.")
    if not _is_python(program) and not _is_executable(program):
        raise _Unusable(f"the program {command!r} is no Python file and has no run bit.")
    return program


def _folder_of(program: Path, root: Path, folder: Path) -> Path:
    """The folder of the program's requirements: its own top folder below the root, normally that of the definition."""
    parts = program.relative_to(root).parts
    return root / parts[0] if len(parts) > 1 else folder


def _is_python(program: Path) -> bool:
    if program.suffix == ".py":
        return True
    with program.open("rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first


def _is_executable(program: Path) -> bool:
    return bool(program.stat().st_mode & 0o111)


def _items(raw: Mapping[str, Any]) -> tuple[ConfigurationItem, ...]:
    value = raw.get("configurationItems")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise _Unusable("the key 'configurationItems' must be a list of objects.")
    return tuple(_item(item) for item in value)


def _item(raw: Mapping[str, Any]) -> ConfigurationItem:
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        raise _Unusable("a configuration item has no name.")
    kind = raw.get("type", "string")
    if kind not in _TYPES:
        raise _Unusable(f"the configuration item {name!r} has the type {kind!r}; known are {', '.join(_TYPES)}.")
    return ConfigurationItem(
        name,
        kind,
        raw.get("multi") is True,
        raw.get("required") is True,
        raw.get("defaultValue"),
        kind != "boolean" and is_secret(name, str(raw.get("description") or "")),
    )


def configure(definition: Definition, given: Mapping[str, Any]) -> ConfiguredResponder | Skipped:
    """Put the settings' values into a definition; a `Skipped` when they don't fit or one is missing."""
    try:
        return _configure(definition, given)
    except _Unconfigured as reason:
        objection = f"not configured: {', '.join(reason.missing)} missing; an administrator can set it"
        return Skipped(definition.name, f"{definition.file}: {reason}", objection=objection)
    except _Unusable as reason:
        objection = f"not configured well: {str(reason).rstrip('.')}; an administrator can mend it"
        return Skipped(definition.name, f"{definition.file}: {reason}", objection=objection)


def _configure(definition: Definition, given: Mapping[str, Any]) -> ConfiguredResponder:
    values = {_plain(key): value for key, value in given.items()} | dict(given)
    config: dict[str, Any] = dict(definition.config)
    missing = []
    for item in definition.items:
        value = _value(item, values.get(item.name, values.get(_plain(item.name))))
        if item.required and value in (None, [], ""):
            missing.append(item.name)
        config[item.name] = value
    if missing:
        raise _Unconfigured(definition.name, missing)
    run = _RunSettings(config, values)
    check_tlp, check_pap = run.boolean("check_tlp"), run.boolean("check_pap")
    return ConfiguredResponder(
        definition=definition,
        config={key: value for key, value in config.items() if key not in RUN_SETTINGS},
        secret_names=secret_names(config) | {item.name for item in definition.items if item.secret},
        check_tlp=check_tlp,
        max_tlp=run.maximum("max_tlp", check_tlp),
        check_pap=check_pap,
        max_pap=run.maximum("max_pap", check_pap),
        timeout_minutes=run.minutes("jobTimeout"),
        proxy_http=run.text("proxy_http"),
        proxy_https=run.text("proxy_https"),
        cacerts=run.text("cacerts"),
    )


def secret_names(config: Mapping[str, Any]) -> frozenset[str]:
    """The items whose values must never be shown: by words in the name (`semantics.md 5`)."""
    return frozenset(name for name in config if any(word in name.lower() for word in SECRET_WORDS))


def is_secret(name: str, description: str) -> bool:
    """Whether an item is a secret: public definitions have an `api` whose description alone says that it is a key."""
    words = re.findall(r"[a-z]+", description.lower())
    return any(word in name.lower() for word in SECRET_WORDS) or any(word in SECRET_WORDS for word in words)


def _plain(name: str) -> str:
    """A name as it can stand in an environment variable (`surface.md`)."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def section_for(name: str, sections: Mapping[str, Any]) -> Any:
    """The settings of the responder `name`, also when an environment variable gave the name in capitals."""
    if name in sections:
        return sections[name]
    return next((section for key, section in sections.items() if _plain(key) == _plain(name)), None)


def _value(item: ConfigurationItem, given: Any) -> Any:
    if given is None or (given == "" and (item.multi or item.type in ("number", "boolean"))):
        given = item.default  # an empty text that was given stays: it takes away a default such as a login
    if item.multi:
        return [_single(item, value) for value in _as_list(item.name, given)]
    return None if given is None or (given == "" and item.type in ("number", "boolean")) else _single(item, given)


def _as_list(name: str, given: Any) -> Sequence[Any]:
    """A text for a list comes from an environment variable: a JSON list, or values with commas between them."""
    if given is None or given == "":
        return ()
    if isinstance(given, list | tuple):
        return given
    if not isinstance(given, str):
        return (given,)
    if given.lstrip().startswith("["):
        try:
            return list(json.loads(given))
        except ValueError as error:
            raise _Unusable(f"the list of the configuration item {name!r} is not valid JSON.") from error
    return [part.strip() for part in given.split(",")]


def _single(item: ConfigurationItem, value: Any) -> Any:
    """`value` as the item's type has it; text that says a number or a truth is taken for it."""
    if item.type == "boolean":
        return _as_boolean(item.name, value)
    if item.type == "number":
        return _as_number(item.name, value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _Unusable(f"the configuration item {item.name!r} must be a text.")
    return value if isinstance(value, str) else str(value)


def _as_boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise _Unusable(f"the configuration item {name!r} must be true or false.")


def _as_number(name: str, value: Any) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value.strip())
            except ValueError:
                continue
    raise _Unusable(f"the configuration item {name!r} must be a number.")


@dataclass(frozen=True)
class _RunSettings:
    """What is asked of every run: the settings' values before the definition's fixed ones."""

    fixed: Mapping[str, Any]
    given: Mapping[str, Any]

    def _get(self, name: str) -> Any:
        value = self.given.get(name, self.given.get(_plain(name)))
        return self.fixed.get(name) if value is None or value == "" else value

    def boolean(self, name: str) -> bool:
        value = self._get(name)
        return False if value is None else _as_boolean(name, value)

    def maximum(self, name: str, check: bool) -> int:
        """Check on without a maximum 2, check off without a maximum 3 (`semantics.md 4`)."""
        value = self._get(name)
        return (2 if check else 3) if value is None else int(_as_number(name, value))

    def minutes(self, name: str) -> float:
        value = self._get(name)
        minutes = DEFAULT_TIMEOUT_MINUTES if value is None else _as_number(name, value)
        if not 0 < minutes < float("inf"):
            raise _Unusable(f"{name} must be a number of minutes above 0.")
        return minutes

    def text(self, name: str) -> str | None:
        value = self._get(name)
        return None if value is None or value == "" else str(value)
