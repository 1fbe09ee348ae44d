"""The kinds of engine. `ENGINES` maps the `type` of an `[[engine]]` section to the function that makes one.

To add a kind, see README.md in this folder. Engines are imported lazily, so that unused ones cost nothing at start.
"""

from collections.abc import Callable, Mapping

from core.engines.base import Engine
from core.engines.own import Around, OwnEngine
from core.settings import CoreSettings, EngineSection

Factory = Callable[[EngineSection, CoreSettings], Engine]


def _process(section: EngineSection, settings: CoreSettings) -> Engine:
    from core.engines.process.engine import EngineOptions, ProcessEngine

    core = settings.core
    options = EngineOptions(
        section.name,
        organisation=core.organisation,
        responders=settings.responder,
        # One folder per engine: at start an engine removes job folders that it does not know.
        jobs=core.jobs / section.name,
        environments=core.environments,
        capacity=core.max_concurrent_actions,
        keep_jobs=core.keep_jobs,
    )
    return ProcessEngine(options, folders=section.responders, python=section.python, confinement=core.confinement)


def _cortex(section: EngineSection, settings: CoreSettings) -> Engine:
    from core.engines.cortex import CortexEngine

    return CortexEngine(
        section.name,
        url=section.url,
        api_key=section.api_key,
        proxy=section.proxy,
        ca_file=section.ca_file,
    )


ENGINES: Mapping[str, Factory] = {"process": _process, "cortex": _cortex}

LOCAL = EngineSection(name="local", type="process")
"""The only engine beside core's own when the settings have no `[[engine]]`."""


def make(settings: CoreSettings, around: Around | None = None) -> list[Engine]:
    """Core's own engine, and those of the settings in their order."""
    return [
        OwnEngine(settings, around),
        *(ENGINES[section.type](section, settings) for section in settings.engine or (LOCAL,)),
    ]
