"""Makes the engines of these tests; also for the programs that stand for a core, so without pytest."""

from pathlib import Path
from typing import Any

from core.engines.process.engine import ProcessEngine
from core.engines.process.fork_server import ForkServers
from core.engines.process.starter import ProgramStarter, RunLimits
from core.settings import ResponderSection

RESPONDERS = Path(__file__).parents[3] / "responders"


class ForkOnlyStarter(ProgramStarter):
    """Fails where a run would be started by exec."""

    def spawn(self, *_: Any) -> int:
        raise RuntimeError("this run should be forked")


def engine_in(
    place: Path,
    *,
    config: dict[str, dict[str, Any]] | None = None,
    folders: tuple[Path, ...] = (RESPONDERS,),
    limits: RunLimits | None = None,
    grace_s: float = 5.0,
    keep_jobs: bool = False,
    name: str = "local",
    python: Path | None = None,
) -> ProcessEngine:
    """An engine whose state is below `place`; `config` gives values by responder name.

    It forks its runs if there is a file `fork` in `place`, else it starts them by exec.
    """
    engine = ProcessEngine(
        name,
        organisation="default",
        product="thehive",
        folders=folders,
        responders={key: ResponderSection(config=values) for key, values in (config or {}).items()},
        jobs=place / "jobs",
        environments=place / "environments",
        capacity=4,
        keep_jobs=keep_jobs,
        python=python,
        limits=limits,
        grace_s=grace_s,
    )
    if (place / "fork").exists():
        engine._starter = ForkOnlyStarter(limits or RunLimits(), ForkServers(wait_s=30.0))
    return engine
