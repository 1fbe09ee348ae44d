"""Definition files of responders: found, read and checked. A file that can't be used is skipped, with the reason."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.common.decoding import decode_json
from core.common.words import SECRET_WORDS
from core.engines import files
from core.engines.base import Skipped, title_of
from core.engines.files import raise_if_exhausted
from core.models import Parameter, parse_parameters

BUNDLED = Path(__file__).parents[1] / "bundled"
"""The folder of the bundled responders."""

_LIMIT_BYTES = 4 * 1024**2
_ITEM_TYPES = ("text", "string", "number", "boolean")
_PLACEHOLDER = re.compile(
    r"abcdef|012345|xxx|x\.x\.x|example|my-?company|(change|update)-?me|localhh|hurukai|^(foo|bar|user|password)$", re.I
)
_NAME = re.compile(r"[^\x00-\x1f\x7f/\\]{1,200}")


class UnusableDefinitionError(Exception):
    """Why a definition can't be used, as a sentence for administrators."""


@dataclass(frozen=True)
class ConfigurationItem:
    """One of the `configurationItems` of a definition."""

    name: str
    type: str
    multi: bool
    """True for a list of values of that type."""
    required: bool
    default: Any
    is_secret: bool = False
    """True when its name or description contains one of SECRET_WORDS: reports never show its value."""
    description: str = ""

    @property
    def has_placeholder(self) -> bool:
        """Whether its default only shows what a value looks like, so that it counts as none."""
        return self.default not in (None, "", []) and (self.is_secret or bool(_PLACEHOLDER.search(str(self.default))))


@dataclass(frozen=True)
class Definition:
    """A usable definition of a program, without values from the settings."""

    name: str
    """The definition's id, such as `Mailer_1_0`."""
    version: str
    description: str
    data_types: tuple[str, ...]
    file: Path
    root: Path
    """The folder that holds the responder folders: the working directory of a run."""
    config: Mapping[str, Any]
    items: tuple[ConfigurationItem, ...]
    title: str
    """Its title for people."""
    parameters: tuple[Parameter, ...]
    """The parameters that it declares."""
    target: tuple[str, ...]
    """The data types of the artifacts that it acts on, if it declares them."""
    folder: Path
    """The responder's folder, which holds the program and `requirements.txt`."""
    program: Path
    is_python: bool


@dataclass(frozen=True)
class LoadedDefinitions:
    """The definitions found in some folders."""

    definitions: Sequence[Definition]
    skipped: Sequence[Skipped]
    unreadable: Sequence[str]
    """A sentence for each folder that can't be read."""


def load(roots: Sequence[Path]) -> LoadedDefinitions:
    """Read all definition files of the folders `roots`; the first one of a name is used.

    Raises OSError when the machine is out of descriptors or memory, so that a full catalogue isn't replaced by an
    empty one.
    """
    by_name: dict[str, Definition] = {}
    skipped: list[Skipped] = []
    unreadable: list[str] = []
    for root in roots:
        try:
            files = list(definition_files(root))
        except OSError as error:
            raise_if_exhausted(error)
            unreadable.append(
                f"The folder of responders {root} can't be read ({error.strerror}); create it, or remove it from"
                " [[engine]] responders."
            )
            continue
        for definition in map(_read, files):
            if isinstance(definition, Skipped):
                skipped.append(definition)
                continue
            first = by_name.setdefault(definition.name, definition)
            if first is not definition:
                skipped.append(
                    Skipped(
                        definition.name, f"{definition.file}: {definition.name} is already defined by {first.file}."
                    )
                )
    return LoadedDefinitions(list(by_name.values()), skipped, unreadable)


def definition_files(root: Path) -> Iterator[Path]:
    """The definition files below `root`, sorted. `root` holds responder folders, or is itself a responder's folder.

    Raises OSError when `root` can't be read.
    """
    if _is_responder_folder(root):
        yield from _json_files(root)
        return
    for folder in sorted(path for path in root.iterdir() if os.path.isdir(path) and not path.name.startswith(".")):
        yield from _json_files(folder)


def _is_responder_folder(root: Path) -> bool:
    for file in _json_files(root):
        try:
            if {"command", "dockerImage"} & _object(_read_json(file)).keys():
                return True
        except UnusableDefinitionError:
            continue
    return False


def _json_files(folder: Path) -> list[Path]:
    """Sorted; empty when the folder can't be read. `Path.glob` would hide the error from Python 3.13 on."""
    try:
        return sorted(folder / name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError as error:
        raise_if_exhausted(error)
        return []


def definition_id(name: str, version: str) -> str:
    """The id of `Mailer` version `1.0` is `Mailer_1_0`."""
    return f"{name}_{version.replace('.', '_')}"


def responder_id(organisation: str, name: str) -> str:
    """The id on an engine that runs programs: a hash, so it is the same after a restart and on every machine."""
    return hashlib.sha256(f"{organisation}\0{name}".encode()).hexdigest()[:32]


def is_secret(name: str, description: str) -> bool:
    """Whether a configuration item is a secret, by its name or the words of its description.

    The description counts because public definitions have items such as `api`, which only it calls a key.
    """
    words = re.findall(r"[a-z]+", description.lower())
    return any(word in name.lower() for word in SECRET_WORDS) or any(word in SECRET_WORDS for word in words)


def _read(file: Path) -> Definition | Skipped:
    try:
        return read_definition(file)
    except UnusableDefinitionError as reason:
        return Skipped(file.stem, f"{file}: {reason}")
    except OSError as error:
        raise_if_exhausted(error)
        return Skipped(file.stem, f"{file}: its program can't be read: {error.strerror or error}.")


def read_definition(file: Path) -> Definition:
    """Read and check one file. Raises UnusableDefinitionError, or OSError when its program can't be read."""
    raw = _object(_read_json(file))
    name, version = _required_text(raw, "name"), _required_text(raw, "version")
    if not _NAME.fullmatch(name) or not _NAME.fullmatch(version):
        raise UnusableDefinitionError("name and version must be short and without slashes or control characters.")
    data_types, config, items = _data_types(raw), _optional_object(raw, "config"), _items(raw)
    title, parameters, target = _title(raw, name), _parameters(raw), _target(raw)
    folder, root = _real(file.parent), _real(file.parent.parent)
    program = _program(raw, root)
    return Definition(
        name=definition_id(name, version),
        version=version,
        description=str(raw.get("description") or ""),
        data_types=data_types,
        file=file,
        root=root,
        config=config,
        items=items,
        title=title,
        parameters=parameters,
        target=target,
        folder=_requirements_folder(program, root, folder),
        program=program,
        is_python=_is_python(program),
    )


def _read_json(file: Path) -> Any:
    try:
        return decode_json(files.read_in_folder(file.parent, file.name, limit_bytes=_LIMIT_BYTES))
    except OSError as error:
        raise_if_exhausted(error)
        raise UnusableDefinitionError(f"the file can't be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise UnusableDefinitionError(f"the file is not usable JSON: {error}.") from error


def _object(raw: Any) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise UnusableDefinitionError("it is not a JSON object.")
    return raw


def _required_text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    if value is None or value == "":
        raise UnusableDefinitionError(f"the key {key!r} is missing.")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise UnusableDefinitionError(f"the key {key!r} must be a string.")
    return value


def _optional_object(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnusableDefinitionError(f"the key {key!r} must be an object.")
    return value


def _data_types(raw: Mapping[str, Any]) -> tuple[str, ...]:
    value = raw.get("dataTypeList")
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise UnusableDefinitionError("the key 'dataTypeList' must be a list of at least one string.")
    return tuple(value)


def _program(raw: Mapping[str, Any], root: Path) -> Path:
    if not raw.get("command") and raw.get("dockerImage"):
        raise UnusableDefinitionError(
            "it has only a dockerImage and no command; let a Cortex server run it, by an [[engine]] of type cortex."
        )
    command = _required_text(raw, "command")
    if "\0" in command:
        raise UnusableDefinitionError("the command contains a zero byte.")
    program = _real(root / command)
    if not program.is_relative_to(root):
        raise UnusableDefinitionError(f"the command {command!r} leads out of the folder {root}.")
    if not program.is_file():
        raise UnusableDefinitionError(f"the program {command!r} is missing below {root}.")
    if not _is_python(program) and not program.stat().st_mode & 0o111:
        raise UnusableDefinitionError(f"the program {command!r} is neither a Python file nor executable.")
    return program


def _real(path: Path) -> Path:
    """The resolved path. `Path.resolve` raises RuntimeError for a loop of links."""
    return Path(os.path.realpath(path))


def _requirements_folder(program: Path, root: Path, folder: Path) -> Path:
    """The folder below `root` that holds the program; `folder`, the definition's, for a program directly in `root`."""
    parts = program.relative_to(root).parts
    return root / parts[0] if len(parts) > 1 else folder


def _is_python(program: Path) -> bool:
    if program.suffix == ".py":
        return True
    with os.fdopen(files.open_regular(program.parent, program.name), "rb") as file:
        first_line = file.readline(200)
    return first_line.startswith(b"#!") and b"python" in first_line


def _title(raw: Mapping[str, Any], name: str) -> str:
    title = raw.get("title")
    if title is not None and (not isinstance(title, str) or not _NAME.fullmatch(title)):
        raise UnusableDefinitionError("the key 'title' must be a short text of one line.")
    base = raw.get("baseConfig")
    return title or title_of(name, base if isinstance(base, str) else "")


def _parameters(raw: Mapping[str, Any]) -> tuple[Parameter, ...]:
    try:
        return parse_parameters(raw.get("parameters") or ())
    except ValueError as reason:
        raise UnusableDefinitionError(str(reason)) from reason


def _target(raw: Mapping[str, Any]) -> tuple[str, ...]:
    value = raw.get("target")
    if not isinstance(value, str | None):
        raise UnusableDefinitionError("the key 'target' must be data types with commas between, such as hostname,ip.")
    return tuple(part.strip() for part in (value or "").split(",") if part.strip())


def _items(raw: Mapping[str, Any]) -> tuple[ConfigurationItem, ...]:
    value = raw.get("configurationItems")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise UnusableDefinitionError("the key 'configurationItems' must be a list of objects.")
    return tuple(_item(item) for item in value)


def _item(raw: Mapping[str, Any]) -> ConfigurationItem:
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        raise UnusableDefinitionError("a configuration item has no name.")
    kind = raw.get("type", "string")
    if kind not in _ITEM_TYPES:
        known = ", ".join(_ITEM_TYPES)
        raise UnusableDefinitionError(f"the configuration item {name!r} has the unknown type {kind!r}; known: {known}.")
    description = str(raw.get("description") or "")
    return ConfigurationItem(
        name,
        kind,
        multi=raw.get("multi") is True,
        required=raw.get("required") is True,
        default=raw.get("defaultValue"),
        is_secret=kind != "boolean" and is_secret(name, description),
        description=description,
    )
