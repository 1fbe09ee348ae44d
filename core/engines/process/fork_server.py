"""Fork servers: one warm process for each environment, from which runs are forked faster than they could be started.

`fork_program.py` is the program of a fork server, and documents what is said on its sockets. Fork servers are only an
optimisation: whatever is unusual about one, the run is started by the launcher.
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
"""A server ends after this time without a request."""

RENEWED_AFTER = 500
"""A server is replaced after this many runs."""

WAIT_S = 2.0
"""A run waits this long for a server that has just been started: importing the same modules itself takes as long."""

MOST = 8
"""Servers at a time; each takes some 25 MB."""

ANSWER_S = 5.0
"""A server that doesn't answer within this time is killed. It usually takes a millisecond."""

_PADDING_BYTES = 8192
"""Memory for a run's arguments and variables, see `fork_program.overwrite_arguments`."""

_PROGRAM = Path(__file__).with_name("fork_program.py")

_CONTROL_FD = 3
"""The number of the server's end of the control socket in the server."""

_LOCALE = ("LANG", "LC_ALL", "TZ")


@dataclass(frozen=True)
class ForkRequest:
    """What a forked child needs to know to become a responder's program."""

    job: Path
    home: Path
    """The part of the job folder that is the program's argument."""
    folder: Path
    """The working directory."""
    program: Path
    limits: str
    """As `launcher.apply_limits` takes them."""
    ruleset: str
    """As `confine.apply` takes it."""
    environment: Mapping[str, str]

    def to_line(self) -> bytes:
        paths = {"job": self.job, "home": self.home, "folder": self.folder, "program": self.program}
        texts = {name: str(path) for name, path in paths.items()}
        texts |= {"limits": self.limits, "ruleset": self.ruleset}
        return json.dumps({**texts, "environment": dict(self.environment)}).encode() + b"\n"


@dataclass
class ForkServer:
    """Core's end of one fork server. Its lock is held during each command with its answer."""

    pid: int
    control: socket.socket
    fingerprint: object
    """What the files of its environment looked like when it was started."""
    started: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)
    modules: frozenset[str] = frozenset()
    """Top-level modules that it has imported."""
    path: tuple[Path, ...] = ()
    """Its `sys.path`."""
    is_ready: bool = False
    runs: int = 0
    references: int = 0
    """Launches in progress, and children that are not reaped."""
    is_retired: bool = False
    is_reaped: bool = False

    def wait_ready(self, wait_s: float) -> bool:
        """Whether it is ready, `wait_s` after its start at the latest. Raises OSError or ValueError if it failed."""
        remaining = max(0.0, self.started + wait_s - time.monotonic())
        if not self.is_ready and select.select([self.control], [], [], remaining)[0]:
            greeting = self.control.recv(1 << 20)
            if not greeting:
                raise ConnectionResetError("it has ended")
            facts = json.loads(greeting)
            self.modules, self.path = frozenset(facts["modules"]), tuple(Path(part) for part in facts["path"])
            self.fingerprint = (self.fingerprint, _fingerprint(self.path))
            self.is_ready = True
        return self.is_ready

    def command(self, command: str, *descriptors: int) -> str:
        """Send a command and return its answer. Raises OSError when the server has ended or does not answer."""
        with self.lock:
            socket.send_fds(self.control, [command.encode()], descriptors)
            answer = self.control.recv(64)
        if not answer:
            raise ConnectionResetError("it has ended")
        return answer.decode().strip()

    def fork(self, request: ForkRequest) -> tuple[int, socket.socket]:
        """Fork a child and send it the request. Returns its pid, and the socket on which it answers.

        Raises OSError or ValueError.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                pid = int(self.command("run", theirs.fileno()))
            if pid == 0:
                raise BlockingIOError("the machine has no room for a process")
            ours.sendall(request.to_line())
        except BaseException:
            ours.close()
            raise
        return pid, ours

    def end(self) -> None:
        """Close the control socket and reap the server; the programs forked from it go on. May be called twice."""
        if self.is_reaped:
            return
        self.is_reaped = True
        self.control.close()
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(self.pid)
            if not select.select([pidfd], [], [], ANSWER_S)[0]:
                os.kill(self.pid, signal.SIGKILL)
            os.close(pidfd)
            os.waitid(os.P_PID, self.pid, os.WEXITED)

    def has_ended(self) -> bool:
        """Whether it has ended by itself, as it does when idle."""
        if not self.lock.acquire(blocking=False):
            return False  # a command is in progress, and will fail if so
        try:
            readable, _, _ = select.select([self.control], [], [], 0)
            return bool(readable) and self.control.recv(1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True
        finally:
            self.lock.release()


class ForkServers:
    """The fork servers of one engine. Its methods block for some milliseconds: call them in threads."""

    def __init__(
        self,
        *,
        idle_s: float = IDLE_S,
        renewed_after: int = RENEWED_AFTER,
        most: int = MOST,
        answer_s: float = ANSWER_S,
        wait_s: float = WAIT_S,
    ) -> None:
        """Times are in seconds; see the constants above."""
        self._idle_s = idle_s
        self._renewed_after = renewed_after
        self._most = most
        self._answer_s = answer_s
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._servers: dict[tuple[object, ...], ForkServer] = {}
        self._unusable: dict[tuple[object, ...], object] = {}
        """Fingerprints of environments in which no server could be started."""
        self._servers_by_child: dict[int, ForkServer] = {}

    def servers(self) -> tuple[ForkServer, ...]:
        """Those that take runs now."""
        with self._lock:
            return tuple(self._servers.values())

    def launch(self, interpreter: Path, request: ForkRequest) -> StartRecord | None:
        """Fork a run; return when the child has written its start record or given up.

        None means that the program was not started, or that this is unknown: then the job folder tells.
        """
        server = self.acquire(interpreter, request)
        if server is None:
            return None
        record = None
        try:
            record = self._fork(server, request)
        except (OSError, ValueError):
            self._kill(server)
        finally:
            if record is None:
                self._release(server)
        return record

    def acquire(self, interpreter: Path, request: ForkRequest) -> ForkServer | None:
        """A server that can fork this run, with a reference to it taken; None if there is none."""
        locale = {name: request.environment[name] for name in _LOCALE if name in request.environment}
        try:
            with self._lock:
                server = self._find_or_start(interpreter, locale)
            if server is None:
                return None
            with server.lock:
                is_ready = server.wait_ready(self._wait_s)
        except (OSError, ValueError):
            if server is not None:
                self._mark_unusable(server)
            return None
        with self._lock:
            if not is_ready or server.is_retired or server.modules & _importable_names(request.program.parent):
                return None
            server.references += 1
            server.runs += 1
            if server.runs >= self._renewed_after:
                self._retire(server)
        return server

    def exit_of_child(self, pid: int, *, reap: bool) -> str:
        """How a forked child ended, in words; `""` when it runs, is unknown here, or its server is gone."""
        server = self._servers_by_child.get(pid)
        if server is None:
            return ""
        try:
            answer = server.command(f"{'reap' if reap else 'look'} {pid}").split()
        except OSError:
            answer = []
        if reap and self._servers_by_child.pop(pid, None) is not None:
            self._release(server)
        return processes.describe_exit(int(answer[0]), int(answer[1])) if len(answer) == 2 else ""

    def close(self) -> None:
        """End all servers. The programs forked from them go on."""
        with self._lock:
            for server in (*self._servers.values(), *self._servers_by_child.values()):
                server.is_retired = True
                server.end()
            self._servers.clear()
            self._servers_by_child.clear()

    def _fork(self, server: ForkServer, request: ForkRequest) -> StartRecord | None:
        pid, run = server.fork(request)
        with run, run.makefile("rb") as pipe:
            announced = pipe.read()
        if not announced:
            server.command(f"wait {pid}")
            return None
        self._servers_by_child[pid] = server
        return StartRecord.parse(announced)

    def _find_or_start(self, interpreter: Path, locale: Mapping[str, str]) -> ForkServer | None:
        key = (interpreter, *locale.items())
        fingerprint = _fingerprint((interpreter, interpreter.parent.parent))
        for known in list(self._servers.values()):
            if known.has_ended() and known.is_ready:
                self._retire(known)
        server = self._servers.get(key)
        if server and server.is_ready and server.fingerprint != (fingerprint, _fingerprint(server.path)):
            self._retire(server)
            server = None
        if server is None and self._unusable.get(key) != fingerprint and self._has_room():
            server = self._servers[key] = _start(interpreter, locale, fingerprint, self._idle_s, self._answer_s)
        return server

    def _has_room(self) -> bool:
        if len(self._servers) < self._most:
            return True
        unused = [server for server in self._servers.values() if server.is_ready and not server.references]
        if unused:
            self._retire(unused[0])
        return bool(unused)

    def _retire(self, server: ForkServer) -> None:
        """Give it no more runs, and end it after the last of those that it has."""
        self._servers = {key: known for key, known in self._servers.items() if known is not server}
        if not server.is_retired and not server.references:
            server.end()
        server.is_retired = True

    def _release(self, server: ForkServer) -> None:
        with self._lock:
            server.references -= 1
            if server.is_retired and not server.references:
                server.end()

    def _mark_unusable(self, server: ForkServer) -> None:
        """Retire a server that failed at its start, and start no other one until its environment changes."""
        with self._lock:
            for key, known in self._servers.items():
                if known is server:
                    self._unusable[key] = server.fingerprint
            self._retire(server)

    def _kill(self, server: ForkServer) -> None:
        with self._lock:
            if not server.is_reaped:  # afterwards its pid may be reused
                os.kill(server.pid, signal.SIGKILL)
            self._retire(server)


def _start(
    interpreter: Path, locale: Mapping[str, str], fingerprint: object, idle_s: float, answer_s: float
) -> ForkServer:
    """Start a server that inherits nothing of core but one end of a socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(answer_s)
    padding = "-" * _PADDING_BYTES
    with theirs:
        pid = os.posix_spawn(
            interpreter,
            [str(interpreter), str(_PROGRAM), str(_CONTROL_FD), str(idle_s), padding],
            {"PATH": os.defpath, "HOME": "/nonexistent", **locale, "PADDING": padding},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), _CONTROL_FD),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGXFSZ],
        )
    return ForkServer(pid, ours, fingerprint)


def _fingerprint(paths: Iterable[Path]) -> tuple[object, ...]:
    """Changes when something is installed in one of `paths`, or an interpreter is replaced."""
    found: list[object] = []
    for path in paths:
        with contextlib.suppress(OSError):
            stat = path.stat()
            found.append((str(path), stat.st_mtime_ns, stat.st_ino))
    return tuple(found)


def _importable_names(folder: Path) -> frozenset[str]:
    """The modules that a program in that folder can import from it: they win over installed ones."""
    suffixes = tuple(importlib.machinery.all_suffixes())
    with os.scandir(folder) as entries:
        found = [entry.name for entry in entries if entry.is_dir() or entry.name.endswith(suffixes)]
    return frozenset(name.partition(".")[0] for name in found)
