"""What is wrong with the settings and with what they name, found without starting anything."""

import sys
from pathlib import Path
from typing import Any

from core import engines
from core.common import logs
from core.common.database.location import PostgresqlUrl, check_installed
from core.common.errors import ResponderBotError
from core.common.settings_file import Sections, problems_of, with_line
from core.protection import ProtectedTargets
from core.responders.catalogues import ListedCatalogue, without_duplicates, without_lookalikes
from core.responders.settings_section import settings_problems
from core.settings import (
    READERS,
    CoreSettings,
    core_settings,
    database_problem,
    folder_problems,
    mode_problems,
    secret_problems,
)
from core.sources.ingest import Source


def schema() -> dict[str, Any]:
    """The JSON Schema of core's sections."""
    return CoreSettings.model_json_schema()


async def problems(sections: Sections) -> list[str]:
    """A sentence for each problem of core's settings, with the line of the file where it has one.

    Nothing is created, and no engine is asked that isn't on this machine.
    """
    if found := problems_of(READERS, sections):
        return found
    settings = core_settings(sections)
    found = [*folder_problems(settings), *mode_problems(settings), database_problem(settings)]
    found += secret_problems(settings)
    if isinstance(settings.core.database, PostgresqlUrl):
        try:
            check_installed()
        except ResponderBotError as error:
            found.append(error.message)
    for engine in settings.engine:
        files = {"ca_file": engine.ca_file, "python": engine.python}
        found += [
            f"[[engine]] {engine.name} {key}: there is no file {file}; correct the path."
            for key, file in files.items()
            if file and not file.is_file()
        ]
    for name, section in settings.source.items():
        try:
            Source.of(name, section, settings.responder)
        except ResponderBotError as error:
            place = f'[source."{name}"]'
            found.append(error.message if place in error.message else f"{place} preset: {error.message}")
    found += [*await _of_responders(settings), ProtectedTargets(settings.protect.artifacts).current().problem]
    return [with_line(problem, sections) for problem in found if problem]


async def _of_responders(settings: CoreSettings) -> list[str]:
    """Responders of process engines that can't be used although they are configured, and settings that none follows."""
    logs.silence()  # what is skipped is returned
    local = [engine for engine in settings.engine or (engines.LOCAL,) if engine.type == "process"]
    # Without an interpreter an engine makes an environment: of the account that runs this, which core's may not write.
    local = [engine.model_copy(update={"python": engine.python or Path(sys.executable)}) for engine in local]
    listed = []
    for engine in engines.make(settings.model_copy(update={"engine": tuple(local)})) if local else ():
        listed.append(ListedCatalogue.of(engine, without_duplicates(await engine.catalogue())))
        await engine.close()
    catalogues = without_lookalikes(listed, settings.responder)
    is_complete = len(local) == len(settings.engine or (engines.LOCAL,))
    unusable = [
        f'[responder."{skipped.name}"] can\'t be used: {skipped.reason}'
        for catalogue in catalogues
        for skipped in catalogue.skipped
        if skipped.is_wanted
    ]
    return [*settings_problems(settings.responder, catalogues, is_complete=is_complete), *unusable]
