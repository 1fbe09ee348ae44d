"""Which process holds a lease, and whether it is alive; what `/proc` tells about processes."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessStat:
    """Some fields of `/proc/<pid>/stat`."""

    state: str
    session: int
    pid_started: int
    """Start time in clock ticks since boot: with the pid it names a process, even after the pid was reused."""


def read_stat(pid: int) -> ProcessStat | None:
    """None when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return ProcessStat(fields[0].decode(), int(fields[3]), int(fields[19])) if len(fields) > 19 else None


def boot_id() -> str:
    """Different after each boot of the machine. Raises OSError."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def new_holder() -> str:
    """A name for this process as a lease holder: `<boot>/<pid namespace>:<pid>:<start time>:<random>`."""
    return f"{_namespace()}:{os.getpid()}:{_started(os.getpid())}:{secrets.token_hex(4)}"


def is_dead(holder: str) -> bool:
    """Whether that process has certainly ended. One in another machine or container can't be seen: not dead."""
    namespace, _, rest = holder.partition(":")
    pid, _, rest = rest.partition(":")
    started = rest.partition(":")[0]
    if not namespace or namespace != _namespace() or not pid.isdigit():
        return False
    return _started(int(pid)) != started


def _namespace() -> str:
    """This boot of this machine and this pid namespace; "" if the system doesn't tell."""
    try:
        return f"{boot_id()}/{os.readlink('/proc/self/ns/pid').removeprefix('pid:')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """The start time of a process; "" when it has ended."""
    stat = read_stat(pid)
    return "" if stat is None or stat.state in "ZX" else str(stat.pid_started)
