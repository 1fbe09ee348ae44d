"""Decide what a responder's program may reach on this machine (`core/docs/responder-process.md#confinement`).

The kernel holds it to that, see `process/confine.py`: a program reads its interpreter, its own folder, its input and
the system's libraries, and writes its output and a temporary folder of its own.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from core.engines.process import confine

Mode = Literal["landlock", "bwrap", "none"]

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

_KEPT_S = 10.0
"""How long resolved links of the system are cached."""

DEVICES = ("/dev/null", "/dev/full")

_FRESH_MOUNTS = ("/proc", "/dev")
"""Under bwrap these are mounted fresh instead of being bound."""

_PROBE_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Confinement:
    """What one run may reach in addition to the system: folders, files, and the network."""

    readable: tuple[Path, ...]
    writable: tuple[Path, ...]
    network: bool = True

    def ruleset(self) -> str:
        """The text that `confine.apply` takes. Raises ValueError for a path with a line break."""
        lines = [f"read {path}" for path in (*_system(int(time.monotonic() / _KEPT_S)), *_resolved(self.readable))]
        lines += [f"write {path}" for path in _resolved((*map(Path, DEVICES), *self.writable))]
        return self._text(lines)

    def bwrap_ruleset(self, folder: Path) -> str:
        """The text that makes `confine.apply` run the program under bubblewrap, in `folder`. Raises as `ruleset` does.

        The program gets namespaces of its own, and a file system in which nothing else exists.
        """
        return self._text([f"bwrap {argument}" for argument in (_bwrap(), *self._bwrap_arguments(folder))])

    def _text(self, lines: Sequence[str]) -> str:
        if any("\n" in line for line in lines):
            raise ValueError("A path with a line break can't be granted to a responder; rename that folder.")
        return "\n".join([*lines, "network"] if self.network else lines)

    def _bwrap_arguments(self, folder: Path) -> list[str]:
        arguments = ["--unshare-all", *(["--share-net"] if self.network else []), "--cap-drop", "ALL"]
        arguments += ["--proc", "/proc"]  # remounted below: root's programs could write the kernel's settings there
        for device in (*DEVICES, "/dev/zero", "/dev/random", "/dev/urandom"):
            arguments += ["--dev-bind-try", device, device]
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            arguments += ["--symlink", f"/proc/self/fd/{number}", f"/dev/{name}"]
        arguments += ["--symlink", "/proc/self/fd", "/dev/fd"]
        for path, option in self._mounts():
            arguments += [option, path, path]
        return [*arguments, "--dir", str(folder), "--remount-ro", "/proc", "--remount-ro", "/", "--chdir", str(folder)]

    def _mounts(self) -> list[tuple[str, str]]:
        """Paths and how to bind them, those that hold others first. What is beneath a writable folder is writable."""
        writable = {os.path.realpath(path) for path in self.writable}
        readable = {*_system(int(time.monotonic() / _KEPT_S)), *_resolved(self.readable)}
        options = {path: "--ro-bind-try" for path in readable if not _is_beneath(path, _FRESH_MOUNTS)}
        options |= dict.fromkeys((*map(str, self.writable), *writable), "--bind-try")
        mounts: dict[str, str] = {}
        for path in sorted(options, key=lambda path: path.count("/")):
            is_covered = _is_beneath(path, mounts) and (options[path] == "--ro-bind-try" or path not in writable)
            if not is_covered:
                mounts[path] = options[path]
        return list(mounts.items())


def _is_beneath(path: str, roots: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(root) for root in roots)


@lru_cache(maxsize=1)
def _system(_period: int) -> list[str]:
    """SYSTEM with where its links lead, which is looked up once in a period: every run needs it."""
    return _resolved(map(Path, SYSTEM))


def _resolved(paths: Iterable[Path]) -> list[str]:
    """Each path, and its target if it contains a link, as `/etc/resolv.conf` may. `/proc/self` is kept."""
    resolved = dict.fromkeys(str(path) for path in paths)
    for path in list(resolved):
        if not path.startswith("/proc/"):
            resolved[os.path.realpath(path)] = None
    return list(resolved)


def interpreter_folders(interpreter: Path) -> tuple[Path, ...]:
    """Where an interpreter and what it imports stand: its environment, and the installation that this was made from.

    The links on the way are followed one by one, since under bwrap each of them has to exist.
    """
    places = [interpreter]
    while places[-1].is_symlink() and len(places) < 40:
        places.append(Path(os.path.normpath(places[-1].parent / places[-1].readlink())))
    return tuple(dict.fromkeys(place.parent.parent for place in (*places, Path(os.path.realpath(interpreter)))))


def unavailable(mode: Mode = "landlock") -> str:
    """Why programs can't be confined in this way here, in one sentence; empty when they can."""
    if mode == "none":
        return ""
    return _bwrap_unavailable() if mode == "bwrap" else _landlock_unavailable()


def nothing_confines(mode: Mode) -> str:
    """Why no foreign program may be started in this mode, and what to do; "" if one may."""
    if mode != "landlock" or confine.landlock_version():
        return ""  # bwrap that doesn't work refuses each run, and "none" is somebody's decision
    return (
        'this kernel has no Landlock to confine it; set confinement = "bwrap", or "none" to let it run with all rights'
        " of core's account."
    )


def _bwrap() -> str:
    return shutil.which("bwrap") or "/usr/bin/bwrap"


@cache
def _bwrap_unavailable() -> str:
    """Tried with a program that does nothing, confined as a responder's would be. Blocks for some milliseconds."""
    if not confine.can_filter():
        return f"The system calls of {os.uname().machine} can't be filtered, so responders can't run under bwrap."
    if not shutil.which("bwrap"):
        return "There is no bwrap on this machine; install bubblewrap."
    command = [_bwrap(), *Confinement((), (), network=False)._bwrap_arguments(Path("/")), "/bin/sh", "-c", ":"]
    try:
        lines = _tried(command, {"PATH": os.defpath})
    except (OSError, subprocess.SubprocessError) as error:
        return f"bwrap can't be started here ({error})."
    return f"bwrap doesn't work here ({lines[0]})." if lines else ""


def _tried(command: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
    """What a command of ours says when it fails; nothing when it succeeds. Raises OSError or SubprocessError."""
    tried = subprocess.run(  # noqa: S603 - our own command
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_TIMEOUT_S, env=environment, check=False
    )
    lines = tried.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {tried.returncode}"]
    return lines if tried.returncode else []


@cache
def _landlock_unavailable() -> str:
    version = confine.landlock_version()
    if not version:
        return "This kernel has no Landlock, so only bundled responders run, with all rights of core's account."
    if version < confine.COMPLETE:
        return "This kernel's Landlock can't hold back signals (Linux 6.12 can), so a responder could stop core."
    if not confine.can_filter():
        return f"The system calls of {os.uname().machine} can't be filtered, so responders run without that."
    return ""


_TRY_LANDLOCK = """
import os, sys
sys.path.insert(0, sys.argv[1])
import confine
program = confine.apply(sys.argv[2], ["/bin/sh", "-c", ":"])
try:
    os.close(os.open(sys.argv[3], os.O_RDONLY))
except PermissionError:
    os.execv(program[0], program)
sys.exit("a file that isn't granted can be read")
"""


def try_landlock() -> str:
    """Why Landlock doesn't hold a program here, as a part of a sentence; "" if it does. Blocks for some milliseconds.

    Unlike `unavailable` this confines a program, as a launcher would.
    """
    if reason := _landlock_unavailable():
        return reason.rstrip(".")
    with tempfile.NamedTemporaryFile() as secret:
        arguments = [str(Path(confine.__file__).parent), Confinement((), (), network=False).ruleset(), secret.name]
        command = [sys.executable, "-E", "-s", "-S", "-c", _TRY_LANDLOCK, *arguments]
        try:
            lines = _tried(command)
        except (OSError, subprocess.SubprocessError) as error:
            return f"it can't be tried ({error})"
    return lines[-1] if lines else ""


def bwrap_cure(sysctl: Path = Path("/proc/sys")) -> str:
    """What an administrator has to allow, so that bwrap works; `sysctl` has the kernel's settings."""
    if not shutil.which("bwrap"):
        return "install bubblewrap"
    for key, off, cure in (
        (
            *("kernel/apparmor_restrict_unprivileged_userns", "1"),
            "give bwrap an AppArmor profile with `userns,`, or set kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("kernel/unprivileged_userns_clone", "0", "set kernel.unprivileged_userns_clone=1 with sysctl"),
        ("user/max_user_namespaces", "0", "set user.max_user_namespaces=10000 with sysctl"),
    ):
        try:
            if (sysctl / key).read_text().strip() == off:
                return cure
        except OSError:  # another kernel has no such setting
            continue
    return (
        "allow this account user namespaces (in the unit of systemd without RestrictNamespaces= and"
        " ProtectKernelTunables=; in a container by its seccomp profile)"
    )


def advice(mode: Mode, landlock: str, bwrap: str, cure: str) -> tuple[bool, str]:
    """Whether programs are confined by `mode`, and what works here and what to do, as a sentence without a full stop.

    `landlock` and `bwrap` are why each doesn't work, or "". `cure` is what makes bwrap work.
    """
    if not landlock and not bwrap:
        return True, f"Landlock and bwrap work here, and {_in_force(mode)}"
    bwrap = bwrap.rstrip(".")
    if not landlock:
        if mode != "bwrap":
            return True, f"Landlock works here, and {_in_force(mode)}; bwrap doesn't ({bwrap}); to have it, {cure}"
        return False, f'bwrap doesn\'t work here ({bwrap}); {cure}, or set [core] confinement = "landlock", which works'
    if not bwrap:
        if mode == "landlock":
            return False, f'Landlock doesn\'t ({landlock}), bwrap does: set [core] confinement = "bwrap"'
        return True, f"bwrap works here, and {_in_force(mode)}; Landlock doesn't ({landlock})"
    todo = f'{cure} and set [core] confinement = "bwrap", or run Linux 6.12 or newer'
    return (
        mode == "none",
        f"nothing can confine responders here: {landlock}, and {bwrap[:1].lower()}{bwrap[1:]}; {todo}",
    )


def _in_force(mode: Mode) -> str:
    return "[core] confinement is off" if mode == "none" else f"[core] confinement is {mode}"


def exposed(paths: Sequence[Path], confinement: Confinement) -> list[Path]:
    """Which of these paths a confined program could still read; core's own files should not be among them."""
    readable = [Path(path) for path in _resolved((*map(Path, SYSTEM), *confinement.readable, *confinement.writable))]
    return [path for path in paths if any(Path(os.path.realpath(path)).is_relative_to(root) for root in readable)]
