"""Starts the program of a run by a launcher."""

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from core.engines.configuration import ConfiguredResponder
from core.engines.confinement import Confinement, Mode, interpreter_folders, unavailable
from core.engines.job_folder import JobFolder
from core.engines.process import launcher
from core.engines.process.catalogue_loader import RunnableResponder
from core.engines.process.processes import StartRecord

_LAUNCH = str(Path(__file__).with_name("launch.py"))
_PASSED_ON = ("LANG", "LC_ALL", "TZ")
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True)
class RunLimits:
    """What each process of a run may use."""

    cpu_s: int = 1800
    memory_bytes: int = 2 * 1024**3
    """Address space."""
    file_bytes: int = 64 * 1024**2
    """Size of any file that it writes; output.json and the file of its output stream are among them."""
    open_files: int = 512
    processes: int = 256
    """Beside those that the account runs already. The kernel doesn't apply it to root, but the supervisor does."""
    disk_bytes: int = 256 * 1024**2
    """All that it writes to its output, its temporary folder and its output stream, together."""
    files: int = 20_000
    """How many files and folders it may have there."""

    def for_launcher(self) -> str:
        """The limits as the launcher takes them."""
        limits = {
            "disk_bytes": self.disk_bytes,
            "files": self.files,
            "processes": self.processes,
            "RLIMIT_CPU": self.cpu_s,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_CORE": 0,
            "RLIMIT_AS": self.memory_bytes,
        }
        return " ".join(f"{name}={limit}" for name, limit in limits.items())


class ProgramStarter:
    """Starts programs, each confined to what it needs."""

    def __init__(self, limits: RunLimits | None, confinement: Mode) -> None:
        """`limits` in place of those of the settings; `confinement` where a responder's settings name none."""
        self._limits = limits
        self._confinement = confinement

    def start(self, folder: JobFolder, runnable: RunnableResponder) -> StartRecord | None:
        """Start the program; return when it runs, or None when it can't be started or must not be.

        Blocks for some milliseconds. Call it in a thread, so that it finishes even when core stops meanwhile. Raises
        OSError or ValueError.
        """
        read_end, write_end = os.pipe()
        try:
            pid = self.spawn(folder, runnable, write_end)
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            announced = pipe.read()  # ends when the launcher closes its end: by exec, or by its own end
        if announced:
            return StartRecord.parse(announced)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED)
        return StartRecord.read(folder.started)  # another launcher may have been first

    def spawn(self, folder: JobFolder, runnable: RunnableResponder, status: int) -> int:
        """Start the launcher, which reports on the descriptor `status`. Returns its pid."""
        definition = runnable.configured.definition
        limits, ruleset = self._limits_of(runnable).for_launcher(), self._ruleset(folder, runnable)
        interpreter = [str(runnable.interpreter)] if definition.is_python else []
        program = [*interpreter, str(definition.program), str(folder.run)]
        arguments = [str(folder.path), str(definition.root), limits, ruleset, *program]
        # Not through a symlink, and without waiting for the reader of a named pipe.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        # Unlike fork, this takes as long with much memory in use.
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-E", "-s", "-S", _LAUNCH, *arguments],
            program_environment(folder, runnable.configured, runnable.interpreter, os.environ),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(folder.printed), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, status, launcher.STATUS_FD),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGXFSZ],
        )

    def mode(self, runnable: RunnableResponder) -> Mode:
        """How the program is confined."""
        mode = runnable.section.confinement or self._confinement
        return "none" if mode == "landlock" and unavailable() else mode

    def refusal(self, runnable: RunnableResponder) -> str:
        """Why it must not be started, as a sentence, or "". Blocks at the first call."""
        if self.mode(runnable) != "bwrap":
            return ""
        reason = unavailable("bwrap")
        return reason and f"{reason} The settings want it for this responder, so it was not started."

    def _limits_of(self, runnable: RunnableResponder) -> RunLimits:
        section, mib = runnable.section, 1024**2
        return self._limits or RunLimits(
            memory_bytes=section.memory_mib * mib,
            processes=section.processes,
            disk_bytes=section.disk_mib * mib,
        )

    def _ruleset(self, folder: JobFolder, runnable: RunnableResponder) -> str:
        """What the program may reach, for `confine.apply`; empty where it is not confined."""
        section, mode = runnable.section, self.mode(runnable)
        if mode == "none":
            return ""
        definition = runnable.configured.definition
        own = (definition.folder, folder.run, *interpreter_folders(runnable.interpreter))
        confinement = Confinement(
            readable=(*own, *section.readable),
            writable=(folder.run / "output", folder.home, *section.writable),
            network=section.network == "all",
        )
        if mode == "bwrap":
            return confinement.bwrap_ruleset(definition.root)
        return replace(confinement, writable=(*confinement.writable, folder.printed)).ruleset()


def program_environment(
    folder: JobFolder, configured: ConfiguredResponder, interpreter: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    """The environment variables of a program: an allow-list of `environ`, which is core's own, and those of its run."""
    passed_on = {name: environ[name] for name in (*_PASSED_ON, *_PROXY_VARIABLES) if name in environ}
    variables = {"LANG": "C.UTF-8", **passed_on, "PATH": _path(interpreter, environ)}
    variables |= {"HOME": str(folder.home), "TMPDIR": str(folder.home)}
    for scheme, proxy in (("http", configured.proxy_http), ("https", configured.proxy_https)):
        if proxy:
            variables |= {f"{scheme}_proxy": proxy, f"{scheme.upper()}_PROXY": proxy}
    if configured.cacerts:
        variables["REQUESTS_CA_BUNDLE"] = str(folder.cacerts)
    return variables


def _path(interpreter: Path, environ: Mapping[str, str]) -> str:
    """PATH with the programs of the responder's environment first, and without those of core's."""
    own = os.path.join(sys.prefix, "bin")
    rest = [part for part in environ.get("PATH", os.defpath).split(os.pathsep) if part and part != own]
    return os.pathsep.join([str(interpreter.parent), *rest])
