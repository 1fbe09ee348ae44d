"""Reads definition files into a catalogue, for all engines that have responders on disk."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import structlog
from pydantic_core import from_json

from core.engines.base import Catalogue, Responder, Skipped
from core.engines.configuration import RUN_SETTINGS, ConfiguredResponder, configure
from core.engines.definitions import BUNDLED, D, load, responder_id
from core.engines.files import raise_if_exhausted
from core.settings import ResponderSection, section_for

log = structlog.get_logger(__name__)


class Runnable(Protocol):
    """A responder of the catalogue, with everything that a run needs."""

    @property
    def responder(self) -> Responder: ...

    @property
    def configured(self) -> ConfiguredResponder[Any]: ...


R = TypeVar("R", bound=Runnable)


@dataclass(frozen=True)
class LoadedCatalogue(Generic[R]):
    """A catalogue, and the state of the files that it was read from."""

    signature: tuple[object, ...]
    by_id: Mapping[str, R]
    catalogue: Catalogue


class CatalogueLoader(ABC, Generic[D, R]):
    """Reads the catalogue, again only when a file has changed. Its methods block: call them in a thread."""

    def __init__(
        self,
        engine: str,
        *,
        organisation: str,
        roots: Sequence[Path],
        sections: Mapping[str, ResponderSection],
        read: Callable[[Path], Iterable[D | Skipped]],
        installed: Path,
    ) -> None:
        """Of responders with the same name in two `roots` the first is used. `sections` are those of the settings.

        `installed` is the folder that `responder-bot responders install` fills for them.
        """
        self._engine = engine
        self._organisation = organisation
        self._roots = roots
        self._sections = sections
        self._read_file = read
        self._installed = installed
        self._loaded: LoadedCatalogue[R] | None = None

    @abstractmethod
    def equip(self, responder: Responder, configured: ConfiguredResponder[D], section: ResponderSection) -> R | Skipped:
        """The responder with what runs it; Skipped when that isn't installed."""

    def load(self) -> LoadedCatalogue[R]:
        """The catalogue as of now. Raises OSError or RuntimeError when the machine is out of resources."""
        signature = self.signature()
        if self._loaded is None or self._loaded.signature != signature:
            skipped_before = self._loaded.catalogue.skipped if self._loaded else ()
            self._loaded = self._read(signature)
            new = [skipped for skipped in self._loaded.catalogue.skipped if skipped not in skipped_before]
            for skipped in new:
                if skipped.is_wanted:
                    log.warning("responder_skipped", engine=self._engine, responder=skipped.name, reason=skipped.reason)
            if idle := [skipped.name for skipped in new if not skipped.is_wanted]:
                log.info("responders_not_configured", engine=self._engine, count=len(idle), names=", ".join(idle))
        return self._loaded

    def signature(self) -> tuple[object, ...]:
        """Changes with every definition, each file beside it, and with what is installed."""
        fingerprints: list[object] = [_fingerprint(self._installed)]
        for root in self._roots:
            fingerprints.append(_fingerprint(root))
            try:
                with os.scandir(root) as entries:
                    for entry in sorted(entries, key=lambda item: item.name):
                        fingerprints += _entry_fingerprints(entry)
            except NotADirectoryError:
                continue  # a file with many definitions
            except OSError as error:
                raise_if_exhausted(error)
        return tuple(fingerprints)

    def wanted(self) -> list[D]:
        """The definitions to install: complete ones, and of files with many only those that the settings name."""
        return [
            definition
            for definition in load(self._roots, self._read_file).definitions
            if self.is_wanted(definition)
            and not isinstance(configure(definition, _values(self._section(definition))), Skipped)
        ]

    def _read(self, signature: tuple[object, ...]) -> LoadedCatalogue[R]:
        loaded = load(self._roots, self._read_file)
        skipped = list(loaded.skipped)
        by_id: dict[str, R] = {}
        for definition in loaded.definitions:
            prepared = self._prepare(definition)
            if isinstance(prepared, Skipped):
                skipped.append(prepared)
            else:
                by_id[prepared.responder.id] = prepared
        catalogue = Catalogue(
            tuple(sorted((runnable.responder for runnable in by_id.values()), key=lambda responder: responder.name)),
            tuple(sorted(map(_in_unicode, skipped), key=lambda item: item.name)),
            tuple(loaded.unreadable),
        )
        # Reading may have created the plain environment: with its old fingerprint the next call would read all again.
        return LoadedCatalogue((_fingerprint(self._installed), *signature[1:]), by_id, catalogue)

    def _prepare(self, definition: D) -> R | Skipped:
        section = self._section(definition)
        configured = configure(definition, _values(section))
        responder = self._responder(definition)
        if isinstance(configured, Skipped):
            return replace(configured, responder=responder, is_wanted=self.is_wanted(definition))
        responder = replace(responder, max_tlp=configured.max_tlp, max_pap=configured.max_pap)
        return self.equip(responder, configured, section)

    def is_wanted(self, definition: D) -> bool:
        """Whether it should be usable: the settings name it, or it isn't one of many."""
        is_one_of_many = definition.file.is_relative_to(BUNDLED) or definition.file in self._roots
        return not is_one_of_many or section_for(definition.name, self._sections) is not None

    def _section(self, definition: D) -> ResponderSection:
        section = section_for(definition.name, self._sections)
        return section if isinstance(section, ResponderSection) else ResponderSection()

    def _responder(self, definition: D) -> Responder:
        return Responder(
            id=responder_id(self._organisation, definition.name),
            name=definition.name,
            version=definition.version,
            description=definition.description,
            data_types=definition.data_types,
            definition=definition.name,
            title=definition.title,
            parameters=tuple(from_json(parameter.to_json()) for parameter in definition.parameters),
            target=definition.target,
            items=(*(item.name for item in definition.items), *RUN_SETTINGS),
        )


def _in_unicode(skipped: Skipped) -> Skipped:
    """Replace what is no Unicode: names of files may be any bytes."""
    name, reason = (text.encode("utf-8", "replace").decode() for text in (skipped.name, skipped.reason))
    return replace(skipped, name=name, reason=reason)


def _values(section: ResponderSection) -> Mapping[str, object]:
    maxima = {"max_tlp": section.max_tlp, "max_pap": section.max_pap}
    return {**section.config, **{key: value for key, value in maxima.items() if value is not None}}


def _fingerprint(path: Path) -> object:
    """Changes when the file does; None when it is missing."""
    try:
        stat_result = path.stat()
    except OSError:
        return None
    return (str(path), stat_result.st_mtime_ns, stat_result.st_size, stat_result.st_ino)


def _entry_fingerprints(entry: os.DirEntry[str]) -> list[object]:
    """Those of a responder's folder, which changes when files come and go, and of the files in it."""
    fingerprints = [_fingerprint(Path(entry.path))]
    try:
        with os.scandir(entry.path) as files:
            relevant = [file.path for file in files if file.is_file()]
    except OSError as error:
        raise_if_exhausted(error)
    else:
        fingerprints += [_fingerprint(Path(file)) for file in sorted(relevant)]
    return fingerprints
