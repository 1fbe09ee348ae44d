"""Processes of a run: which of them live, waiting for their end without polling, ending them."""

import asyncio
import contextlib
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

_ROUNDS = 20
"""How often leftovers are looked for: a family that forks while it is killed needs more than one round."""


_MEANINGS = {
    "SIGXCPU": ", its processor time was used up",
    "SIGXFSZ": ", a file grew over its limit",
    "SIGKILL": ", by somebody else or for want of memory",
    "SIGSEGV": ", a crash",
}


@dataclass(frozen=True)
class Started:
    """What `JOB/started` says."""

    pid: int
    pid_started: int
    """Clock ticks since boot."""
    boot: str
    at: float
    """Seconds since the epoch."""

    @classmethod
    def read(cls, path: Path) -> "Started | None":
        """None when nothing was started. The launcher writes the file whole, so it is never half there."""
        try:
            facts = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        return cls(int(facts["pid"]), int(facts["pid_started"]), str(facts["boot"]), float(facts["at"]))


@dataclass(frozen=True)
class Stat:
    """The fields of `/proc/<pid>/stat` that matter here."""

    state: str
    session: int
    pid_started: int


def stat_of(pid: int) -> Stat | None:
    """None when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return Stat(fields[0].decode(), int(fields[3]), int(fields[19])) if len(fields) > 19 else None


def boot_id() -> str:
    """Changes with each start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def open_if_alive(started: Started) -> int | None:
    """A pidfd of the program, None when it has ended. A number that another process has by now doesn't fool it."""
    if started.boot != boot_id():
        return None
    try:
        descriptor = os.pidfd_open(started.pid)
    except OSError:
        return None
    stat = stat_of(started.pid)
    if stat and stat.pid_started == started.pid_started and stat.state not in "ZX":
        return descriptor
    os.close(descriptor)
    return None


async def readable(descriptor: int) -> None:
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


def signal_group(started: Started, number: signal.Signals) -> None:
    """Signal the program's group, while the program is known to live."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(started.pid, number)


def kill_leftovers(started: Started, home: Path, *, just_ended: bool) -> None:
    """Kill what the program left behind: its session, and whoever carries its HOME (`responder-process.md 2`).

    HOME is the job folder, so it marks also those that began a session of their own. The session's number alone is
    trusted only when the program has just ended, since later it may belong to somebody else.
    """
    if started.boot != boot_id():
        return
    for _ in range(_ROUNDS):
        left = _members(started, home, just_ended)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _members(started: Started, home: Path, just_ended: bool) -> list[int]:
    mark = b"HOME=" + os.fsencode(home)
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid() or not _is_ours(name):
            continue
        stat = stat_of(int(name))
        if not stat or stat.state in "ZX" or stat.pid_started < started.pid_started:
            continue
        if (just_ended and stat.session == started.pid) or _has_in_environment(name, mark):
            found.append(int(name))
    return found


def _is_ours(pid: str) -> bool:
    """Belongs to this account, as every program of a run does; asked first, since it is the cheapest question."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def _has_in_environment(pid: str, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def exit_of_child(pid: int, *, reap: bool) -> str:
    """How a child of this process ended, in words; "" when it is not ours (adopted) or was asked for before."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | (0 if reap else os.WNOWAIT))
    except ChildProcessError:
        return ""
    return in_words(ended.si_code, ended.si_status) if ended else ""


def in_words(code: int, status: int) -> str:
    """How a process ended; `code` and `status` as waitid has them."""
    if code == os.CLD_EXITED:
        return f"exit code {status}"
    names = {item.value: item.name for item in signal.Signals}
    name = names.get(status, f"signal {status}")
    return f"ended by {name}{_MEANINGS.get(name, '')}"
