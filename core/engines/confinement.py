"""Decide what a responder's program may reach on this machine (`core/docs/responder-process.md#confinement`).

The kernel holds it to that, see `process/confine.py`: a program reads its interpreter, its own folder, its input and
the system's libraries, and writes its output and a temporary folder of its own.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from core.engines.process import confine

Mode = Literal["landlock", "none"]

SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin"),
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/alternatives"),
    *("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services"),
    *("/etc/protocols", "/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/magic", "/etc/os-release"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/passwd", "/etc/group", "/etc/python3"),
    *(
        "/proc/self",
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/proc/stat",
        "/proc/uptime",
        "/proc/version",
        "/proc/filesystems",
    ),
    *("/proc/sys", "/sys/devices/system/cpu", "/dev/urandom", "/dev/random", "/dev/zero"),
)
"""What every program may read: libraries, certificates, name resolution, time zones, facts of the machine."""

DEVICES = ("/dev/null", "/dev/full")


@dataclass(frozen=True)
class Confinement:
    """What one run may reach beside the system: folders, files, and the network."""

    readable: tuple[Path, ...]
    writable: tuple[Path, ...]
    network: bool = True

    def ruleset(self) -> str:
        """The text that `confine.apply` takes. Raises ValueError for a path with a line break."""
        lines = [f"read {path}" for path in _resolved((*map(Path, SYSTEM), *self.readable))]
        lines += [f"write {path}" for path in _resolved((*map(Path, DEVICES), *self.writable))]
        if any("\n" in line for line in lines):
            raise ValueError("A path with a line break can't be granted to a responder; rename that folder.")
        return "\n".join([*lines, "network"] if self.network else lines)


def _resolved(paths: Iterable[Path]) -> list[str]:
    """Each path, and where it leads if it is a link, as `/etc/resolv.conf` often is. `/proc/self` stays as it is."""
    found = dict.fromkeys(str(path) for path in paths)
    for path in list(found):
        if os.path.islink(path) and not path.startswith("/proc/"):
            found[os.path.realpath(path)] = None
    return list(found)


def interpreter_folders(interpreter: Path) -> tuple[Path, ...]:
    """Where an interpreter and what it imports stand: its environment, and the installation that this was made from."""
    return tuple(dict.fromkeys((interpreter.parent.parent, Path(os.path.realpath(interpreter)).parent.parent)))


@cache
def unavailable() -> str:
    """Why this kernel can't confine a program, in one sentence; empty when it can."""
    version = confine.landlock_version()
    if not version:
        return "This kernel has no Landlock, so responders run with all rights of core's account."
    if version < confine.COMPLETE:
        return "This kernel's Landlock can't hold back signals (Linux 6.12 can), so a responder could stop core."
    if not confine.can_filter():
        return f"The system calls of {os.uname().machine} can't be filtered, so responders run without that."
    return ""


def exposed(paths: Sequence[Path], confinement: Confinement) -> list[Path]:
    """Which of these paths a confined program could still read; core's own files should not be among them."""
    readable = [Path(path) for path in _resolved((*map(Path, SYSTEM), *confinement.readable, *confinement.writable))]
    return [path for path in paths if any(Path(os.path.realpath(path)).is_relative_to(root) for root in readable)]
