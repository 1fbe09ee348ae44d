"""The responders that a process engine offers: their definitions, configuration and interpreters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.common.accounts import Account, account_named
from core.engines import catalogue_loader
from core.engines.base import Responder, Skipped
from core.engines.configuration import ConfiguredResponder
from core.engines.definitions import ProgramDefinition, read_program
from core.engines.environments import Environments, Interpreter, Unavailable
from core.settings import ResponderSection


@dataclass(frozen=True)
class RunnableResponder:
    """An entry of the catalogue with all that a run needs."""

    responder: Responder
    configured: ConfiguredResponder[ProgramDefinition]
    interpreter: Interpreter
    section: ResponderSection
    """What its program may reach and use."""
    account: Account | None = None
    """Whom its program runs as, if not as core does."""


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
    ) -> None:
        self._environments = environments
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
        interpreter = self._environments.interpreter(definition.folder)
        if isinstance(interpreter, Unavailable):
            return Skipped(
                definition.name,
                f"{definition.file}: unavailable: {interpreter.reason}",
                responder,
                "its environment is not ready; an administrator can run `responder-bot responders install`",
            )
        try:
            account = account_named(section.run_as) if section.run_as else None
        except LookupError as error:
            return Skipped(definition.name, f"{definition.file}: {error}", responder)
        return RunnableResponder(responder, configured, interpreter, section, account)
