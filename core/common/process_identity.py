"""Which process holds a piece of work, and whether that process still lives."""

import os
import secrets
from pathlib import Path


def me() -> str:
    """A name for this process and this use of it: place, pid, start time, and something random."""
    return f"{_place()}:{os.getpid()}:{_started(os.getpid())}:{secrets.token_hex(4)}"


def is_dead(owner: str) -> bool:
    """Whether that process certainly ended; a process elsewhere can't be seen from here, so it counts as alive."""
    place, _, rest = owner.partition(":")
    pid, _, rest = rest.partition(":")
    started = rest.partition(":")[0]
    if not place or place != _place() or not pid.isdigit():
        return False
    return _started(int(pid)) != started


def _place() -> str:
    """This boot of this machine and this pid namespace; empty where the system doesn't tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid').removeprefix('pid:')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """The process's start time in clock ticks since boot, field 22 of `stat`; empty when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
