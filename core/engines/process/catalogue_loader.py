"""The responders that a process engine offers: their definitions, configuration and interpreters."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from core.common.accounts import Account, account_named
from core.engines.base import Catalogue, Responder, Skipped
from core.engines.configuration import RUN_SETTINGS, ConfiguredResponder, configure, section_for
from core.engines.definitions import BUNDLED, Definition, load, responder_id
from core.engines.environments import Environments, Interpreter, Unavailable
from core.engines.files import raise_if_exhausted
from core.settings import ResponderSection

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RunnableResponder:
    """An entry of the catalogue with all that a run needs."""

    responder: Responder
    configured: ConfiguredResponder
    interpreter: Interpreter
    section: ResponderSection
    """What its program may reach and use."""
    account: Account | None = None
    """Whom its program runs as, if not as core does."""


@dataclass(frozen=True)
class LoadedCatalogue:
    """A catalogue, and what the files that it was read from looked like."""

    signature: tuple[object, ...]
    by_id: Mapping[str, RunnableResponder]
    catalogue: Catalogue


class CatalogueLoader:
    """Reads the catalogue, again only when a file has changed. Its methods block: call them in a thread."""

    def __init__(
        self,
        engine: str,
        *,
        organisation: str,
        folders: Sequence[Path],
        sections: Mapping[str, ResponderSection],
        environments: Environments,
    ) -> None:
        """Of responders with the same name in two `folders` the first is used. `sections` are those of the settings."""
        self._engine = engine
        self._organisation = organisation
        self._folders = folders
        self._sections = sections
        self._environments = environments
        self._loaded: LoadedCatalogue | None = None

    def load(self) -> LoadedCatalogue:
        """The catalogue as of now. Raises OSError or RuntimeError when the machine is out of resources."""
        signature = self._signature()
        if self._loaded is None or self._loaded.signature != signature:
            skipped_before = self._loaded.catalogue.skipped if self._loaded else ()
            self._loaded = self._read(signature)
            for skipped in self._loaded.catalogue.skipped:
                if skipped not in skipped_before:
                    write = log.warning if skipped.is_wanted else log.info
                    write("responder_skipped", engine=self._engine, responder=skipped.name, reason=skipped.reason)
        return self._loaded

    def _signature(self) -> tuple[object, ...]:
        """Changes with every definition, program, `requirements.txt` and environment."""
        fingerprints: list[object] = [_fingerprint(self._environments.root)]
        for root in self._folders:
            fingerprints.append(_fingerprint(root))
            try:
                with os.scandir(root) as entries:
                    for entry in sorted(entries, key=lambda item: item.name):
                        fingerprints += _entry_fingerprints(entry)
            except OSError as error:
                raise_if_exhausted(error)
        return tuple(fingerprints)

    def _read(self, signature: tuple[object, ...]) -> LoadedCatalogue:
        loaded = load(self._folders)
        skipped = list(loaded.skipped)
        by_id: dict[str, RunnableResponder] = {}
        for definition in loaded.definitions:
            found = self._prepare(definition)
            if isinstance(found, Skipped):
                skipped.append(found)
            else:
                by_id[found.responder.id] = found
        catalogue = Catalogue(
            tuple(sorted((runnable.responder for runnable in by_id.values()), key=lambda responder: responder.name)),
            tuple(sorted(skipped, key=lambda item: item.name)),
            tuple(loaded.unreadable),
        )
        # Reading may have created the plain environment: with its old fingerprint the next call would read all again.
        return LoadedCatalogue((_fingerprint(self._environments.root), *signature[1:]), by_id, catalogue)

    def _prepare(self, definition: Definition) -> RunnableResponder | Skipped:
        given = section_for(definition.name, self._sections)
        section = given if isinstance(given, ResponderSection) else ResponderSection()
        configured = configure(definition, section.config)
        responder = self._responder(definition)
        if isinstance(configured, Skipped):
            is_wanted = given is not None or not definition.file.is_relative_to(BUNDLED)
            return replace(configured, responder=responder, is_wanted=is_wanted)
        interpreter = self._environments.interpreter(definition.folder)
        if isinstance(interpreter, Unavailable):
            return Skipped(
                definition.name,
                f"{definition.file}: unavailable: {interpreter.reason}",
                responder,
                "its environment is not ready; an administrator can run `responder-bot responders install`",
            )
        responder = replace(responder, max_tlp=configured.max_tlp, max_pap=configured.max_pap)
        try:
            account = account_named(section.run_as) if section.run_as else None
        except LookupError as error:
            return Skipped(definition.name, f"{definition.file}: {error}", responder)
        return RunnableResponder(responder, configured, interpreter, section, account)

    def _responder(self, definition: Definition) -> Responder:
        return Responder(
            id=responder_id(self._organisation, definition.name),
            name=definition.name,
            version=definition.version,
            description=definition.description,
            data_types=definition.data_types,
            definition=definition.name,
            items=(*(item.name for item in definition.items), *RUN_SETTINGS),
        )


def _fingerprint(path: Path) -> object:
    """Changes when the file does; None when it is missing."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return (str(path), facts.st_mtime_ns, facts.st_size, facts.st_ino)


def _entry_fingerprints(entry: os.DirEntry[str]) -> list[object]:
    """Those of a responder's folder, which changes when files come and go, and of the files that matter in it."""
    fingerprints = [_fingerprint(Path(entry.path))]
    try:
        with os.scandir(entry.path) as files:
            relevant = [file.path for file in files if file.name.endswith(".json") or file.name == "requirements.txt"]
    except OSError as error:
        raise_if_exhausted(error)
    else:
        fingerprints += [_fingerprint(Path(file)) for file in sorted(relevant)]
    return fingerprints
