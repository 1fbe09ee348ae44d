"""Fork servers: a process for each environment that forks runs quicker than they could be started.

The program that they run, and what is said on their sockets: `fork_program.py`. Nothing depends on a fork server: when
anything about one is unusual, the run is started by the launcher.
"""

import contextlib
import importlib.machinery
import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from core.engines.process import processes
from core.engines.process.processes import StartRecord

IDLE_S = 300.0
"""A server that nobody needed for this long ends."""

RENEWED_AFTER = 500
"""Runs that one server forks, then a new one takes its place."""

WAIT_S = 2.0
"""A run waits so long for a server that was just started, since to import the same by itself would take as long."""

MOST = 8
"""Servers at once; each holds some 25 MB."""

ANSWER_S = 5.0
"""A server answers in a millisecond; one that doesn't in this time is killed."""

_ROOM_BYTES = 8192
"""For a run's variables and arguments, see `fork_program.show`."""

_PROGRAM = Path(__file__).with_name("fork_program.py")

_CONTROL = 3
"""The server's end of the socket, there."""

_LOCALE = ("LANG", "LC_ALL", "TZ")


@dataclass(frozen=True)
class ForkRequest:
    """What a child needs to know to become a responder's program."""

    job: Path
    home: Path
    """The part of the job folder that the program is given."""
    folder: Path
    """Its working directory."""
    program: Path
    limits: str
    """As the launcher takes them."""
    environment: Mapping[str, str]

    def line(self) -> bytes:
        paths = {"job": self.job, "home": self.home, "folder": self.folder, "program": self.program}
        told = {name: str(path) for name, path in paths.items()}
        return json.dumps({**told, "limits": self.limits, "environment": dict(self.environment)}).encode() + b"\n"


@dataclass
class ForkServer:
    """One fork server, as core sees it; its lock is held for each question with its answer."""

    pid: int
    control: socket.socket
    mark: object
    """What its environment's files looked like."""
    started: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)
    modules: frozenset[str] = frozenset()
    path: tuple[Path, ...] = ()
    is_ready: bool = False
    runs: int = 0
    holds: int = 0
    """Launches under way, and children whose end nobody has asked for."""
    is_retired: bool = False
    is_reaped: bool = False

    def greeted(self, wait_s: float) -> bool:
        """Whether it has said that it is ready; waits until so long after its start.

        Raises OSError or ValueError if it can't be.
        """
        left = max(0.0, self.started + wait_s - time.monotonic())
        if not self.is_ready and select.select([self.control], [], [], left)[0]:
            said = self.control.recv(1 << 20)
            if not said:
                raise ConnectionResetError("it has ended")
            facts = json.loads(said)
            self.modules, self.path = frozenset(facts["modules"]), tuple(Path(part) for part in facts["path"])
            self.mark = (self.mark, _mark_of(self.path))
            self.is_ready = True
        return self.is_ready

    def asked(self, word: str, *descriptors: int) -> str:
        """Its answer to `word`. Raises OSError when it has ended or does not answer."""
        with self.lock:
            socket.send_fds(self.control, [word.encode()], descriptors)
            answer = self.control.recv(64)
        if not answer:
            raise ConnectionResetError("it has ended")
        return answer.decode().strip()

    def fork(self, order: ForkRequest) -> tuple[int, socket.socket]:
        """Have a child forked and tell it what to run: its number, and the socket on which it answers.

        Raises OSError or ValueError.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                pid = int(self.asked("run", theirs.fileno()))
            if pid == 0:
                raise BlockingIOError("the machine has no room for a process")
            ours.sendall(order.line())
        except BaseException:
            ours.close()
            raise
        return pid, ours

    def end(self) -> None:
        """Let it go and wait until it has ended; what it forked goes on. May be called twice."""
        if self.is_reaped:
            return
        self.is_reaped = True
        self.control.close()
        with contextlib.suppress(OSError):
            watch = os.pidfd_open(self.pid)
            if not select.select([watch], [], [], ANSWER_S)[0]:
                os.kill(self.pid, signal.SIGKILL)
            os.close(watch)
            os.waitid(os.P_PID, self.pid, os.WEXITED)

    def has_ended(self) -> bool:
        """Whether it went by itself, as an idle one does."""
        if not self.lock.acquire(blocking=False):
            return False  # somebody speaks with it, and will see
        try:
            readable, _, _ = select.select([self.control], [], [], 0)
            return bool(readable) and self.control.recv(1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True
        finally:
            self.lock.release()


class ForkServers:
    """The fork servers of one engine. Its methods block for some milliseconds; call them in threads."""

    def __init__(
        self,
        *,
        idle_s: float = IDLE_S,
        renewed_after: int = RENEWED_AFTER,
        most: int = MOST,
        answer_s: float = ANSWER_S,
        wait_s: float = WAIT_S,
    ) -> None:
        """Times in seconds, see the constants above."""
        self._idle_s = idle_s
        self._renewed_after = renewed_after
        self._most = most
        self._answer_s = answer_s
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._servers: dict[tuple[object, ...], ForkServer] = {}
        self._unusable: dict[tuple[object, ...], object] = {}
        self._of_child: dict[int, ForkServer] = {}

    def servers(self) -> tuple[ForkServer, ...]:
        """Those that take runs now."""
        with self._lock:
            return tuple(self._servers.values())

    def launch(self, interpreter: Path, order: ForkRequest) -> StartRecord | None:
        """Fork a run; returns when the child has announced itself or given up.

        None: nothing was started here, or nobody knows: the job folder tells.
        """
        server = self.take(interpreter, order)
        if server is None:
            return None
        started = None
        try:
            started = self._forked(server, order)
        except (OSError, ValueError):
            self._drop(server)
        finally:
            if started is None:
                self._release(server)
        return started

    def take(self, interpreter: Path, order: ForkRequest) -> ForkServer | None:
        """The server to fork that run; None while there is none that can."""
        locale = {name: order.environment[name] for name in _LOCALE if name in order.environment}
        try:
            with self._lock:
                server = self._found(interpreter, locale)
            if server is None:
                return None
            with server.lock:
                ready = server.greeted(self._wait_s)
        except (OSError, ValueError):
            if server is not None:
                self._give_up(server)
            return None
        with self._lock:
            if not ready or server.is_retired or server.modules & _names_in(order.program.parent):
                return None
            server.holds += 1
            server.runs += 1
            if server.runs >= self._renewed_after:
                self._retire(server)
        return server

    def ended(self, pid: int, *, reap: bool) -> str:
        """How a child ended, in words; "" when it is none of ours, still runs, or its server is gone."""
        server = self._of_child.get(pid)
        if server is None:
            return ""
        try:
            said = server.asked(f"{'reap' if reap else 'look'} {pid}").split()
        except OSError:
            said = []
        if reap and self._of_child.pop(pid, None) is not None:
            self._release(server)
        return processes.describe_exit(int(said[0]), int(said[1])) if len(said) == 2 else ""

    def close(self) -> None:
        """End all servers. What they forked goes on."""
        with self._lock:
            for server in (*self._servers.values(), *self._of_child.values()):
                server.is_retired = True
                server.end()
            self._servers.clear()
            self._of_child.clear()

    def _forked(self, server: ForkServer, order: ForkRequest) -> StartRecord | None:
        """What the child announced, None when it did not."""
        pid, run = server.fork(order)
        with run, run.makefile("rb") as said:
            announced = said.read()
        if not announced:
            server.asked(f"wait {pid}")
            return None
        self._of_child[pid] = server
        return StartRecord.parsed(announced)

    def _found(self, interpreter: Path, locale: Mapping[str, str]) -> ForkServer | None:
        key = (interpreter, *locale.items())
        mark = _mark_of((interpreter, interpreter.parent.parent))
        for known in list(self._servers.values()):
            if known.has_ended() and known.is_ready:
                self._retire(known)
        server = self._servers.get(key)
        if server and server.is_ready and server.mark != (mark, _mark_of(server.path)):
            self._retire(server)
            server = None
        if server is None and self._unusable.get(key) != mark and self._has_room():
            server = self._servers[key] = _start(interpreter, locale, mark, self._idle_s, self._answer_s)
        return server

    def _has_room(self) -> bool:
        if len(self._servers) < self._most:
            return True
        unused = [server for server in self._servers.values() if server.is_ready and not server.holds]
        if unused:
            self._retire(unused[0])
        return bool(unused)

    def _retire(self, server: ForkServer) -> None:
        """It takes no more runs, and ends with the last of those that it has."""
        self._servers = {key: known for key, known in self._servers.items() if known is not server}
        if not server.is_retired and not server.holds:
            server.end()
        server.is_retired = True

    def _release(self, server: ForkServer) -> None:
        with self._lock:
            server.holds -= 1
            if server.is_retired and not server.holds:
                server.end()

    def _give_up(self, server: ForkServer) -> None:
        """It can't be used, and a new one could not either as long as nothing changes."""
        with self._lock:
            for key, known in self._servers.items():
                if known is server:
                    self._unusable[key] = server.mark
            self._retire(server)

    def _drop(self, server: ForkServer) -> None:
        with self._lock:
            if not server.is_reaped:  # else the number may be another's
                os.kill(server.pid, signal.SIGKILL)
            self._retire(server)


def _start(interpreter: Path, locale: Mapping[str, str], mark: object, idle_s: float, answer_s: float) -> ForkServer:
    """Send a server off, with nothing of ours but one end of a socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(answer_s)
    room = "-" * _ROOM_BYTES
    with theirs:
        pid = os.posix_spawn(
            interpreter,
            [str(interpreter), str(_PROGRAM), str(_CONTROL), str(idle_s), room],
            {"PATH": os.defpath, "HOME": "/nonexistent", **locale, "ROOM": room},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), _CONTROL),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGXFSZ],
        )
    return ForkServer(pid, ours, mark)


def _mark_of(paths: Iterable[Path]) -> tuple[object, ...]:
    """Changes when something is installed there, or the interpreter is another."""
    marks: list[object] = []
    for path in paths:
        with contextlib.suppress(OSError):
            facts = path.stat()
            marks.append((str(path), facts.st_mtime_ns, facts.st_ino))
    return tuple(marks)


def _names_in(folder: Path) -> frozenset[str]:
    """What a program in that folder can import from beside itself: such a name wins over an installed one."""
    suffixes = tuple(importlib.machinery.all_suffixes())
    with os.scandir(folder) as entries:
        found = [entry.name for entry in entries if entry.is_dir() or entry.name.endswith(suffixes)]
    return frozenset(name.partition(".")[0] for name in found)
