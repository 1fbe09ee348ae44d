"""Makes the engines of these tests; also for the programs that stand for a core, so without pytest."""

from pathlib import Path
from typing import Any

from core.engines.process.engine import ProcessEngine, RunLimits
from core.engines.process.fork_server import ForkServers
from core.settings import ResponderSection

RESPONDERS = Path(__file__).parents[3] / "responders"


class NeverByExec(ProcessEngine):
    """An engine that has to fork each run."""

    def _spawn(self, *_: Any) -> int:
        raise RuntimeError("this run was to be forked")


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
    forks = (place / "fork").exists()
    return (NeverByExec if forks else ProcessEngine)(
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
        fork_servers=ForkServers(wait_s=30.0) if forks else None,
    )
