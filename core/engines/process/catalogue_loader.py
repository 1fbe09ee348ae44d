"""The responders of a process engine: their definitions, configuration and interpreters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core.engines import catalogue_loader
from core.engines.base import Responder, Skipped
from core.engines.configuration import ConfiguredResponder
from core.engines.confinement import Mode, nothing_confines
from core.engines.definitions import BUNDLED, ProgramDefinition, load, read_program
from core.engines.environments import Environments, EnvironmentSpec, Interpreter, Unavailable
from core.engines.files import digest_of
from core.settings import ResponderSection, section_for


@dataclass(frozen=True)
class RunnableResponder:
    """A responder of the catalogue, with everything that a run needs."""

    responder: Responder
    configured: ConfiguredResponder[ProgramDefinition]
    interpreter: Interpreter
    section: ResponderSection
    """What its program may reach and use."""


def environment_specs(roots: Sequence[Path], sections: Mapping[str, ResponderSection]) -> tuple[EnvironmentSpec, ...]:
    """The environments that the responders below `roots` need, for `responders install`. Raises OSError."""
    definitions = load(roots, read_program).definitions
    return tuple(
        EnvironmentSpec(definition.folder, (section_for(definition.name, sections) or ResponderSection()).allow_builds)
        for definition in definitions
    )


class CatalogueLoader(catalogue_loader.CatalogueLoader[ProgramDefinition, RunnableResponder]):
    """Finds the interpreter of each responder, in the environment that was built for it."""

    def __init__(
        self,
        engine: str,
        *,
        organisation: str,
        folders: Sequence[Path],
        sections: Mapping[str, ResponderSection],
        environments: Environments,
        confinement: Mode = "none",
    ) -> None:
        self._environments = environments
        self._confinement = confinement
        super().__init__(
            engine,
            organisation=organisation,
            roots=folders,
            sections=sections,
            read=read_program,
            installed=environments.root,
        )

    def equip(
        self, responder: Responder, configured: ConfiguredResponder[ProgramDefinition], section: ResponderSection
    ) -> RunnableResponder | Skipped:
        definition = configured.definition
        mode = section.confinement or self._confinement
        if not definition.folder.is_relative_to(BUNDLED) and (obstacle := nothing_confines(mode)):
            return Skipped(definition.name, f"{definition.file}: {obstacle}", responder, "nothing can confine it here")
        interpreter = self._environments.interpreter(EnvironmentSpec(definition.folder, section.allow_builds))
        if isinstance(interpreter, Unavailable):
            return Skipped(
                definition.name,
                f"{definition.file}: unavailable: {interpreter.reason}",
                responder,
                "its environment is not ready; an administrator can run `responder-bot responders install`",
            )
        code = digest_of(definition.folder)
        return RunnableResponder(replace(responder, code=code), configured, interpreter, section)
