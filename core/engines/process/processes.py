"""Processes of a run: which of them live, waiting for their end without polling, ending them."""

import asyncio
import contextlib
import json
import math
import os
import signal
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from core.engines.files import read_regular

_STARTED_LIMIT_BYTES = 4096
_PIDS = 2**22
"""The kernel gives no process a number as high as this."""

_ROUNDS = 20
"""How often leftovers are looked for: a family that forks while it is killed needs more than one round."""


_MEANINGS = {
    "SIGXCPU": ", its processor time was used up",
    "SIGXFSZ": ", a file grew over its limit",
    "SIGKILL": ", by somebody else or for want of memory",
    "SIGSEGV": ", a crash",
}


@dataclass(frozen=True)
class StartRecord:
    """What `JOB/started` says."""

    pid: int
    """The program's, which leads a session and a group."""
    pid_started: int
    """Clock ticks since boot."""
    boot: str
    at: float
    """Seconds since the epoch."""
    supervisor: int = 0
    """The process that ends once the program and all that it left behind have ended; 0: started by a release that had
    none."""
    supervisor_started: int = 0

    @classmethod
    def read(cls, path: Path) -> "StartRecord | None":
        """None when nothing was started. The launcher writes the file whole, so it is never half there.

        Raises OSError or ValueError when somebody put something else in its place.
        """
        try:
            content = read_regular(path.parent.parent, path.parent.name, path.name, limit_bytes=_STARTED_LIMIT_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None  # not even a job folder
        return cls.parsed(content)

    @classmethod
    def parsed(cls, content: bytes) -> "StartRecord":
        """Raises ValueError when it is not what the launcher writes."""
        try:
            facts = json.loads(content)
            numbers = [int(facts[name]) for name in ("pid", "pid_started")]
            numbers += [int(facts.get(name, 0)) for name in ("supervisor", "supervisor_started")]
            boot, at = str(facts["boot"]), float(facts["at"])
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"not what the launcher writes ({error})") from error
        if not (1 < numbers[0] < _PIDS and 0 <= numbers[2] < _PIDS and math.isfinite(at)):
            raise ValueError("no process has such a number")
        return cls(numbers[0], numbers[1], boot, at, numbers[2], numbers[3])

    @property
    def watched(self) -> tuple[int, int]:
        """Number and start of the process whose end is the run's."""
        return (self.supervisor, self.supervisor_started) if self.supervisor else (self.pid, self.pid_started)


@dataclass(frozen=True)
class ProcessStat:
    """The fields of `/proc/<pid>/stat` that matter here."""

    state: str
    session: int
    pid_started: int


def read_stat(pid: int) -> ProcessStat | None:
    """None when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return ProcessStat(fields[0].decode(), int(fields[3]), int(fields[19])) if len(fields) > 19 else None


def boot_id() -> str:
    """Changes with each start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pidfd_if_alive(started: StartRecord) -> int | None:
    """A pidfd that tells the run's end, None when it has ended.

    A number that another process has by now doesn't fool it.
    """
    if started.boot != boot_id():
        return None
    pid, pid_started = started.watched
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    if _is(pid, pid_started):
        return descriptor
    os.close(descriptor)
    return None


def _is(pid: int, pid_started: int) -> bool:
    """Whether that very process lives."""
    stat = read_stat(pid)
    return stat is not None and stat.pid_started == pid_started and stat.state not in "ZX"


async def wait_readable(descriptor: int) -> None:
    """Return when `descriptor` has something to say: for a pidfd, that the process has ended."""
    loop = asyncio.get_running_loop()
    said: asyncio.Future[None] = loop.create_future()

    def note() -> None:
        if not said.done():
            said.set_result(None)

    loop.add_reader(descriptor, note)
    try:
        await said
    finally:
        loop.remove_reader(descriptor)


def signal_group(started: StartRecord, number: signal.Signals) -> None:
    """Signal the program's group, while the run is known to go on."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(started.pid, number)


def kill_supervisor(started: StartRecord) -> None:
    """For one that does not end though its program was killed: somebody has stopped it."""
    if started.supervisor and _is(started.supervisor, started.supervisor_started):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(started.supervisor, signal.SIGKILL)


def kill_leftovers(started: StartRecord | None, homes: Collection[Path], *, just_ended: bool) -> None:
    """Kill what is left of a run whose supervisor did not do it: was killed, or never was.

    That is the program itself, its session, and whoever carries one of `homes` as HOME: it lies in the job folder, so
    it marks also those that began a session of their own. The session's number alone is trusted only when the run has
    just ended, since later it may belong to somebody else. Without `started`, HOME alone tells.
    """
    if started and started.boot != boot_id():
        return
    marks = {b"HOME=" + os.fsencode(home) for home in homes}
    just_ended = just_ended or (started is not None and _is(started.pid, started.pid_started))
    for _ in range(_ROUNDS):
        left = _members(started, marks, just_ended)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _members(started: StartRecord | None, marks: Collection[bytes], just_ended: bool) -> list[int]:
    found = []
    for pid, stat in _ours():
        if started and stat.pid_started < started.pid_started:
            continue  # older than the run
        by_number = started is not None and (
            (just_ended and stat.session == started.pid)
            or (pid, stat.pid_started) == (started.pid, started.pid_started)
        )
        if by_number or any(mark in marks for mark in _variables_of(pid)):
            found.append(pid)
    return found


def homes_in_use() -> set[bytes]:
    """The HOME of every process of this account."""
    variables = (variable for pid, _ in _ours() for variable in _variables_of(pid))
    return {variable.removeprefix(b"HOME=") for variable in variables if variable.startswith(b"HOME=")}


def _ours() -> Iterator[tuple[int, ProcessStat]]:
    """The living processes of this account but this one."""
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid() or not _is_ours(name):
            continue
        stat = read_stat(int(name))
        if stat and stat.state not in "ZX":
            yield int(name), stat


def _is_ours(pid: str) -> bool:
    """Belongs to this account, as every program of a run does; asked first, since it is the cheapest question."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def _variables_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def exit_of_child(pid: int, *, reap: bool) -> str:
    """How a child of this process ended, in words; "" when it is not ours (adopted) or was asked for before."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | (0 if reap else os.WNOWAIT))
    except ChildProcessError:
        return ""
    return describe_exit(ended.si_code, ended.si_status) if ended else ""


def is_exit(ended: str) -> bool:
    """Whether these words say that it ended by itself, and not by a signal."""
    return ended.startswith("exit code")


def describe_exit(code: int, status: int) -> str:
    """How a process ended; `code` and `status` as waitid has them."""
    if code == os.CLD_EXITED:
        return f"exit code {status}"
    names = {item.value: item.name for item in signal.Signals}
    name = names.get(status, f"signal {status}")
    return f"ended by {name}{_MEANINGS.get(name, '')}"
