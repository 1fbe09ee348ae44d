"""Creates the engines of these tests. Without pytest, since programs that stand for a core use it too."""

from pathlib import Path
from typing import Any

from core.engines.confinement import Mode
from core.engines.process.engine import EngineOptions, ProcessEngine, RunLimits
from core.engines.secret_reader import SecretReader
from core.settings import ResponderSection

RESPONDERS = Path(__file__).parents[3] / "responders"


def engine_in(
    folder: Path,
    *,
    config: dict[str, dict[str, Any]] | None = None,
    folders: tuple[Path, ...] = (RESPONDERS,),
    limits: RunLimits | None = None,
    grace_s: float = 5.0,
    keep_jobs: bool = False,
    name: str = "local",
    python: Path | None = None,
    confinement: Mode = "none",
    sections: dict[str, ResponderSection] | None = None,
    secret_reader: SecretReader | None = None,
) -> ProcessEngine:
    """An engine with its state below `folder`; `config` holds values by responder name.

    Programs of these tests write to files outside their job folders, so only tests of confinement confine them.
    """
    options = EngineOptions(
        name,
        organisation="default",
        responders=sections or {key: ResponderSection(config=values) for key, values in (config or {}).items()},
        jobs=folder / "jobs",
        environments=folder / "environments",
        capacity=4,
        keep_jobs=keep_jobs,
        grace_s=grace_s,
    )
    return ProcessEngine(
        options, folders=folders, python=python, limits=limits, confinement=confinement, secret_reader=secret_reader
    )
