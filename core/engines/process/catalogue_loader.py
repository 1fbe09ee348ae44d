"""The catalogue of a process engine: definition files, their configuration and interpreters."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from pydantic_core import from_json

from core.engines.base import Catalogue, Responder, Skipped
from core.engines.configuration import RUN_SETTINGS, ConfiguredResponder, configure
from core.engines.confinement import Mode, nothing_confines
from core.engines.definitions import BUNDLED, Definition, load, responder_id
from core.engines.environments import Environments, EnvironmentSpec, Unavailable
from core.engines.files import digest_of, raise_if_exhausted
from core.settings import ResponderSection, section_for

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RunnableResponder:
    """A responder of the catalogue, with everything that a run needs."""

    responder: Responder
    configured: ConfiguredResponder
    interpreter: Path
    section: ResponderSection
    """What its program may reach and use."""


@dataclass(frozen=True)
class LoadedCatalogue:
    """A catalogue, and the state of the files that it was read from."""

    signature: tuple[object, ...]
    by_id: Mapping[str, RunnableResponder]
    catalogue: Catalogue


def environment_specs(roots: Sequence[Path], sections: Mapping[str, ResponderSection]) -> tuple[EnvironmentSpec, ...]:
    """The environments that the responders below `roots` need, for `responders install`. Raises OSError."""
    definitions = load(roots).definitions
    return tuple(
        EnvironmentSpec(definition.folder, (section_for(definition.name, sections) or ResponderSection()).allow_builds)
        for definition in definitions
    )


@dataclass
class CatalogueLoader:
    """Reads the catalogue, again only when a file has changed. Its methods block: call them in a thread."""

    engine: str
    organisation: str
    folders: Sequence[Path]
    """Of responders with the same name in two of them the first is used."""
    sections: Mapping[str, ResponderSection]
    """Those of the settings."""
    environments: Environments
    confinement: Mode = "none"
    _loaded: LoadedCatalogue | None = None

    def load(self) -> LoadedCatalogue:
        """The catalogue as of now. Raises OSError or RuntimeError when the machine is out of resources."""
        signature = self._signature()
        if self._loaded is None or self._loaded.signature != signature:
            skipped_before = self._loaded.catalogue.skipped if self._loaded else ()
            self._loaded = self._read(signature)
            new = [skipped for skipped in self._loaded.catalogue.skipped if skipped not in skipped_before]
            for skipped in new:
                if skipped.is_wanted:
                    log.warning("responder_skipped", engine=self.engine, responder=skipped.name, reason=skipped.reason)
            if idle := [skipped.name for skipped in new if not skipped.is_wanted]:
                log.info("responders_not_configured", engine=self.engine, count=len(idle), names=", ".join(idle))
        return self._loaded

    def _signature(self) -> tuple[object, ...]:
        """Changes with every definition, each file beside it, and with what is installed."""
        fingerprints: list[object] = [_fingerprint(self.environments.root)]
        for root in self.folders:
            fingerprints.append(_fingerprint(root))
            try:
                with os.scandir(root) as entries:
                    for entry in sorted(entries, key=lambda item: item.name):
                        fingerprints += _entry_fingerprints(entry)
            except OSError as error:
                raise_if_exhausted(error)
        return tuple(fingerprints)

    def _read(self, signature: tuple[object, ...]) -> LoadedCatalogue:
        loaded = load(self.folders)
        skipped = list(loaded.skipped)
        by_id: dict[str, RunnableResponder] = {}
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
        return LoadedCatalogue((_fingerprint(self.environments.root), *signature[1:]), by_id, catalogue)

    def _prepare(self, definition: Definition) -> RunnableResponder | Skipped:
        named = section_for(definition.name, self.sections)
        section = named or ResponderSection()
        configured = configure(definition, _values(section))
        is_ours = definition.file.is_relative_to(BUNDLED)
        if named is None and definition.items and not is_ours and not isinstance(configured, Skipped):
            configured = _unnamed(definition)
        responder = self._responder(definition)
        if isinstance(configured, Skipped):
            is_wanted = named is not None or not (definition.items or is_ours)
            return replace(configured, responder=responder, is_wanted=is_wanted)
        responder = replace(responder, max_tlp=configured.max_tlp, max_pap=configured.max_pap)
        return self._equip(responder, configured, section)

    def _equip(
        self, responder: Responder, configured: ConfiguredResponder, section: ResponderSection
    ) -> RunnableResponder | Skipped:
        """The responder with its interpreter, in the environment that was built for it; Skipped without one."""
        definition = configured.definition
        mode = section.confinement or self.confinement
        if not definition.folder.is_relative_to(BUNDLED) and (obstacle := nothing_confines(mode)):
            return Skipped(definition.name, f"{definition.file}: {obstacle}", responder, "nothing can confine it here")
        interpreter = self.environments.interpreter(EnvironmentSpec(definition.folder, section.allow_builds))
        if isinstance(interpreter, Unavailable):
            return Skipped(
                definition.name,
                f"{definition.file}: unavailable: {interpreter.reason}",
                responder,
                "its environment is not ready; an administrator can run `responder-bot responders install`",
            )
        code = digest_of(definition.folder)
        return RunnableResponder(replace(responder, code=code), configured, interpreter, section)

    def _responder(self, definition: Definition) -> Responder:
        return Responder(
            id=responder_id(self.organisation, definition.name),
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


def _unnamed(definition: Definition) -> Skipped:
    """Why a responder isn't offered that has configuration items, each with a default, and no section."""
    command = f"`responder-bot responders settings {definition.name}`"
    reason = f"{definition.file}: the settings don't name it; add the section that {command} prints."
    public = "not configured; an administrator can name it in the settings"
    return Skipped(definition.name, reason, public_reason=public)


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
