"""The processes of a run: finding them, waiting for their end without polling, killing them."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from core.common.process_identity import ProcessStat, boot_id, read_stat
from core.engines.files import read_regular

_STARTED_LIMIT_BYTES = 4096
_Pid = Annotated[int, Field(gt=1, lt=2**22)]
"""Not that of init; the kernel's own upper limit is above every pid."""

_KILL_ROUNDS = 20
"""How often leftovers are searched for: processes may fork while they are killed."""

_CAUSES = {
    "SIGXCPU": ", its limit of processor time was reached",
    "SIGXFSZ": ", it reached a limit of what it may write",
    "SIGKILL": ", by another process or because the machine ran out of memory",
    "SIGSEGV": ", a crash",
}


@dataclass(frozen=True)
class StartRecord:
    """The content of `JOB/started`: which processes were started, and when."""

    pid: _Pid
    """Of the program, which leads a session and a process group."""
    pid_started: int
    """Clock ticks from boot to the start of the program; with pid and boot id they identify it."""
    supervisor: _Pid
    """Pid of the process that ends after the program and all its descendants: its end is that of the run."""
    supervisor_started: int
    """Clock ticks from boot to the start of the supervisor."""
    boot: str
    """The boot id of the machine."""

    @property
    def running_s(self) -> float:
        """Seconds since the program was started, by the clock of the boot, which nobody sets; that must be this one."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.pid_started / os.sysconf("SC_CLK_TCK")

    @classmethod
    def read(cls, path: Path) -> "StartRecord | None":
        """Read the file; None when nothing was started.

        Raises OSError or ValueError when the program has replaced it: the launcher writes it atomically.
        """
        try:
            content = read_regular(path.parent.parent, path.parent.name, path.name, limit_bytes=_STARTED_LIMIT_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None  # or there is no job folder
        return cls.parse(content)

    @staticmethod
    def parse(content: bytes) -> "StartRecord":
        """Parse what the launcher writes. Raises ValueError when it is something else."""
        try:
            return _RECORD.validate_json(content)
        except ValidationError:
            raise ValueError("not what the launcher writes") from None


_RECORD = TypeAdapter(StartRecord)


def pidfd_if_alive(record: StartRecord) -> int | None:
    """Open a pidfd that becomes readable when the run ends; None when it has ended, even if its pid was reused."""
    if is_of_earlier_boot(record):
        return None
    try:
        descriptor = os.pidfd_open(record.supervisor)
    except OSError:
        return None
    if _is_alive(record.supervisor, record.supervisor_started):
        return descriptor
    os.close(descriptor)
    return None


def is_of_earlier_boot(record: StartRecord) -> bool:
    """Whether the machine was restarted since the run began."""
    return record.boot != boot_id()


def _is_alive(pid: int, pid_started: int) -> bool:
    """Whether the process with that pid and start time runs; a zombie doesn't."""
    stat = read_stat(pid)
    return stat is not None and stat.pid_started == pid_started and stat.state not in "ZX"


async def wait_readable(descriptor: int) -> None:
    """Wait until `descriptor` is readable: a pidfd is when its process has ended."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def resolve() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(descriptor, resolve)
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)


def signal_group(record: StartRecord, number: signal.Signals) -> None:
    """Signal the program's process group. Call it only while the run is known to be alive."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(record.pid, number)


def kill_supervisor(record: StartRecord) -> None:
    """Kill a supervisor that does not end after its program was killed, since somebody has stopped it."""
    if _is_alive(record.supervisor, record.supervisor_started):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(record.supervisor, signal.SIGKILL)


def kill_leftovers(record: StartRecord | None, home: Path, *, just_ended: bool) -> None:
    """Kill the processes of a run whose supervisor can't do it any more.

    They are the program, its session, and all processes with `home` as HOME: it lies in the job folder, so it also
    marks those that began a session of their own. The session id is trusted only if the run has `just_ended`, since
    the id may be reused later. Without `record`, HOME alone decides.
    """
    if record and is_of_earlier_boot(record):
        return
    variable = b"HOME=" + os.fsencode(home)
    just_ended = just_ended or (record is not None and _is_alive(record.pid, record.pid_started))
    for _ in range(_KILL_ROUNDS):
        pids = _leftovers(record, variable, just_ended)
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _leftovers(record: StartRecord | None, variable: bytes, just_ended: bool) -> list[int]:
    leftovers = []
    for pid, stat in _own_processes():
        if record and stat.pid_started < record.pid_started:
            continue  # older than the run
        is_identified = record is not None and (
            (just_ended and stat.session == record.pid) or (pid, stat.pid_started) == (record.pid, record.pid_started)
        )
        if is_identified or variable in _variables_of(pid):
            leftovers.append(pid)
    return leftovers


def homes_in_use() -> set[bytes]:
    """The values of HOME in all processes of this account."""
    variables = (variable for pid, _ in _own_processes() for variable in _variables_of(pid))
    return {variable.removeprefix(b"HOME=") for variable in variables if variable.startswith(b"HOME=")}


def _own_processes() -> Iterator[tuple[int, ProcessStat]]:
    """The running processes of this account except this one; for root, whose programs may become others, all."""
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid() or not _is_of_this_account(name):
            continue
        stat = read_stat(int(name))
        if stat and stat.state not in "ZX":
            yield int(name), stat


def _is_of_this_account(pid: str) -> bool:
    try:
        return os.getuid() in (0, os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return False


def _variables_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def exit_of_child(pid: int, *, reap: bool) -> str:
    """How a child of this process ended, in words; `""` when it runs, is no child (an adopted run), or was reaped."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | (0 if reap else os.WNOWAIT))
    except ChildProcessError:
        return ""
    return describe_exit(ended.si_code, ended.si_status) if ended else ""


def is_exit(description: str) -> bool:
    """Whether a description of `describe_exit` means that the process exited by itself, not by a signal."""
    return description.startswith("exit code")


def describe_exit(code: int, status: int) -> str:
    """How a process ended, in words; `code` and `status` are si_code and si_status of waitid."""
    if code == os.CLD_EXITED:
        return f"exit code {status}"
    names = {item.value: item.name for item in signal.Signals}
    name = names.get(status, f"signal {status}")
    return f"ended by {name}{_CAUSES.get(name, '')}"
