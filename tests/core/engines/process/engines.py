"""Creates the engines of these tests. Without pytest, since programs that stand for a core use it too."""

from pathlib import Path
from typing import Any

from core.engines.confinement import Mode
from core.engines.process.engine import ProcessEngine
from core.engines.process.fork_server import ForkServers
from core.engines.process.starter import ProgramStarter, RunLimits
from core.engines.secret_reader import SecretReader
from core.settings import ResponderSection

RESPONDERS = Path(__file__).parents[3] / "responders"


class ForkOnlyStarter(ProgramStarter):
    """Fails where a run would be started by exec."""

    def spawn(self, *_: Any) -> int:
        raise RuntimeError("this run should be forked")


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
    It forks its programs if there is a file `fork` in `folder`, else it starts them by exec.
    """
    engine = ProcessEngine(
        name,
        organisation="default",
        product="thehive",
        folders=folders,
        responders=sections or {key: ResponderSection(config=values) for key, values in (config or {}).items()},
        jobs=folder / "jobs",
        environments=folder / "environments",
        capacity=4,
        keep_jobs=keep_jobs,
        python=python,
        limits=limits,
        grace_s=grace_s,
        confinement=confinement,
        secret_reader=secret_reader,
    )
    if (folder / "fork").exists():
        engine._starter = ForkOnlyStarter(limits, ForkServers(wait_s=30.0), confinement)
    return engine
