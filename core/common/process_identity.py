"""Process identity: a pid with boot id and start time, from `/proc`, identifies one process for ever."""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
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


@cache  # its metadata are parsed each time
def own_version() -> str:
    """The version of responder-bot that this process runs."""
    return version("responder-bot")


def boot_id() -> str:
    """Different after each boot of the machine. Raises OSError."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
