"""Programs of ours as processes of their own, quickly: each is forked from a process that has imported what they need.

An interpreter that starts and imports takes ten times as long as most commands do then. This module as a program is
that process, one for all workers of pytest; what it forks runs a module as `python -m` does, but for the end: an
interpreter that takes itself apart writes to all of the shared memory, which is copied for it first, and that took two
thirds of a command's time. `tests/test_wheel.py` and others start real ones.
"""

import asyncio
import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from core.protection import blockable
from tests import statements

ROOT = Path(__file__).parents[1]
_IMPORTED = (
    *("bot.app", "bot.cli", "bot.demo", "bot.doctor", "bot.outbox.store", "core.app", "core.cli", "core.client"),
    *(
        "core.store.database.backup",
        "core.store.database.opening",
        "psycopg",
        "uvloop",
        "tests.core.engines.process.engines",
    ),
)
PIPE = subprocess.PIPE
_NUMBER = struct.Struct("i")


class Program:
    """As `asyncio.subprocess.Process`."""

    def __init__(self, connection: socket.socket) -> None:
        self.pid: int = _NUMBER.unpack(connection.recv(_NUMBER.size))[0]
        self.returncode: int | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._connection = connection
        self._outputs: dict[int, asyncio.StreamReader] = {}
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(connection, self._on_end)

    def _open(self, descriptor: int) -> asyncio.StreamReader:
        os.set_blocking(descriptor, False)
        reader = self._outputs[descriptor] = asyncio.StreamReader()
        asyncio.get_running_loop().add_reader(descriptor, self._read, descriptor)
        return reader

    def _read(self, descriptor: int) -> None:
        """Read what there is now, and close it at its end."""
        with suppress(BlockingIOError):
            while data := os.read(descriptor, 65_536):
                self._outputs[descriptor].feed_data(data)
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        self._outputs.pop(descriptor).feed_eof()

    def _on_end(self) -> None:
        (self.returncode,) = _NUMBER.unpack(self._connection.recv(_NUMBER.size))
        asyncio.get_running_loop().remove_reader(self._connection)
        self._connection.close()
        for descriptor in list(self._outputs):
            self._read(descriptor)
        for descriptor in list(self._outputs):  # which a program that it has left keeps open
            self._close(descriptor)
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        out, err, _ = await asyncio.gather(
            self.stdout.read() if self.stdout else _nothing(),
            self.stderr.read() if self.stderr else _nothing(),
            self.wait(),
        )
        return out, err

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


AnyProcess = Program | asyncio.subprocess.Process


async def _nothing() -> bytes:
    return b""


async def start(
    module: str,
    *args: str,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Program:
    """Start `python -m MODULE ARGS`; the rest is as for `asyncio.create_subprocess_exec`."""
    ours: dict[str, int] = {}
    theirs: list[int] = []

    def end_of(name: str, given: int | None, own: int) -> int:
        if given == PIPE:
            ours[name], given = os.pipe()
        elif given == subprocess.DEVNULL:
            given = os.open(os.devnull, os.O_WRONLY)
        else:
            return own if given is None else given
        theirs.append(given)
        return given

    outputs = end_of("stdout", stdout, 1), end_of("stderr", stderr, 2)
    try:
        connection = _forked(module, args, cwd, env, -1, *outputs)
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    program = Program(connection)
    if "stdout" in ours:
        program.stdout = program._open(ours["stdout"])
    if "stderr" in ours:
        program.stderr = program._open(ours["stderr"])
    return program


def run(
    module: str, *args: str, cwd: Path = ROOT, env: Mapping[str, str] | None = None, umask: int = -1
) -> subprocess.CompletedProcess[str]:
    """Run `python -m MODULE ARGS` to its end; the rest is as for `subprocess.run`."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with _forked(module, args, cwd, env, umask, out.fileno(), err.fileno()) as connection:
            connection.recv(_NUMBER.size)
            (code,) = _NUMBER.unpack(connection.recv(_NUMBER.size))
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([module, *args], code, out.read(), err.read())


def _forked(
    module: str, args: tuple[str, ...], cwd: Path, env: Mapping[str, str] | None, umask: int, out: int, err: int
) -> socket.socket:
    """A connection that tells the process id, and the exit code once it has ended."""
    request = [module, args, str(cwd), dict(os.environ if env is None else env), umask]
    mine, its = socket.socketpair()
    with its, open(os.devnull, "rb") as stdin:
        socket.send_fds(_server(), [json.dumps(request).encode()], [its.fileno(), stdin.fileno(), out, err])
    return mine


@cache
def _server() -> socket.socket:
    """A connection to the process that forks, which the first worker that needs it starts."""
    folder = Path(os.environ["TEST_PROGRAMS"])  # `conftest.py` has made it
    address = folder / "socket"
    mine, listening = (socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
    with listening, open(folder / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            mine.connect(str(address))
        except (FileNotFoundError, ConnectionRefusedError):
            address.unlink(missing_ok=True)
            listening.bind(str(address))
            listening.listen()
            mine.connect(str(address))  # first, since it ends once nobody is connected
            command = [sys.executable, "-m", "tests.programs", str(listening.fileno())]
            passed = [listening.fileno()]
            process = subprocess.Popen(command, cwd=ROOT, pass_fds=passed, stdin=subprocess.DEVNULL)
            atexit.register(process.wait)
    atexit.register(mine.close)  # before that wait, which ends with the last worker
    return mine


# --- the process that forks -------------------------------------------------------------------------------------------


def _serve(listening: socket.socket) -> None:
    """Fork what is asked for until nobody can ask any more. Returns in those processes too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with pytest
    for name in _IMPORTED:
        importlib.import_module(name)
    for only_icann in (False, True):
        blockable._suffixes(only_icann)  # each program would read the list for itself
    statements.record_in_folder()
    gc.collect()
    gc.freeze()  # so that the processes share this memory
    ends: dict[int, tuple[int, socket.socket]] = {}  # of what runs, by a descriptor that is readable once it has ended
    controls: dict[int, socket.socket] = {}
    watched = select.poll()
    watched.register(listening, select.POLLIN)
    while True:
        for descriptor, _ in watched.poll():
            if descriptor == listening.fileno():
                control, _ = listening.accept()
                controls[control.fileno()] = control
                watched.register(control, select.POLLIN)
                continue
            if descriptor in ends:
                watched.unregister(descriptor)
                os.close(descriptor)
                program, connection = ends.pop(descriptor)
                _, status = os.waitpid(program, 0)
                with connection, suppress(OSError):  # nobody wants to know any more
                    connection.send(_NUMBER.pack(os.waitstatus_to_exitcode(status)))
                continue
            data, descriptors, _, _ = socket.recv_fds(controls[descriptor], 1_000_000, 4)
            if not data:
                watched.unregister(descriptor)
                controls.pop(descriptor).close()
                if not controls:
                    os._exit(0)
                continue
            program = os.fork()
            if program == 0:
                for inherited in (listening, *controls.values()):
                    inherited.close()
                os.close(descriptors[0])
                for number, (_, connection) in ends.items():
                    os.close(number)
                    connection.close()
                return _become(descriptors[1:], *json.loads(data))
            for number in descriptors[1:]:
                os.close(number)
            connection = socket.socket(fileno=descriptors[0])
            connection.send(_NUMBER.pack(program))
            end = os.pidfd_open(program)
            ends[end] = program, connection
            watched.register(end, select.POLLIN)


def _become(
    outputs: list[int], module: str, args: list[str], cwd: str, environment: dict[str, str], umask: int
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(outputs):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    if umask != -1:
        os.umask(umask)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *args]
    sys.modules.pop(module, None)  # it is executed again, as the main module
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        _end(end.code or 0)
    _end(0)


def _end(code: int) -> None:
    """End as an interpreter does, except that the kernel takes the memory back."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # the interpreter's own end says that it can't
    os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
