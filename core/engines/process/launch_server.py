"""Core's side of a launch server: one process for each engine that starts launchers quickly (`launch_program.py`).

It is only an optimisation: where it fails, core starts the launcher itself. If it failed halfway, both may have been
started; the gate of the job folder lets only one of them start the program.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from core.engines.process import launch_program

ANSWER_S = 5.0
"""A server that doesn't answer within this time is killed. It usually takes a millisecond."""

_PROGRAM = Path(launch_program.__file__)
_CONTROL_FD = 3


class LaunchServer:
    """Starts its process at the first launch, and again when that has ended. For any thread; its methods block."""

    def __init__(self, answer_s: float = ANSWER_S) -> None:
        """`answer_s`: see ANSWER_S."""
        self._answer_s = answer_s
        self._lock = threading.Lock()
        self._pid = 0
        self._control: socket.socket | None = None
        self._is_closed = os.uname().machine not in launch_program.CLONE

    @property
    def pid(self) -> int:
        """Of its process; 0 if there is none."""
        return self._pid

    def launch(self, arguments: Sequence[str], environment: Mapping[str, str], status: int) -> int | None:
        """Start a launcher, as a child of this process. Returns its pid, or None if the caller has to do it.

        `status` replaces the second argument. The launcher leads a session, with `printed` in the folder of the first
        argument as its output, and gets these variables only.
        """
        variables = [f"{name}={value}" for name, value in environment.items()]
        request = os.fsencode("\0".join([str(len(arguments)), *arguments, *variables]))
        if len(request) >= launch_program.LIMIT_BYTES or "\0" in "".join([*arguments, *variables]):
            return None
        with self._lock:
            if self._is_closed:
                return None
            try:
                control = self._control or self._start()
                with _pipe_with(request) as pipe:
                    socket.send_fds(control, [b"1"], [pipe, status])
                pid = int(control.recv(64))
            except (OSError, ValueError):
                self._end()
                return None
        return pid if pid > 0 else None

    def close(self) -> None:
        """End its process. What it has launched goes on."""
        with self._lock:
            self._is_closed = True
            self._end()

    def _start(self) -> socket.socket:
        """Start a process that inherits nothing of core but one end of a socket."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(self._answer_s)
        with theirs:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", str(_PROGRAM), str(_CONTROL_FD)],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), _CONTROL_FD),
                    *((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGXFSZ],
            )
        return self._control

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._pid:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitid(os.P_PID, self._pid, os.WEXITED)
            self._pid = 0


@contextlib.contextmanager
def _pipe_with(content: bytes) -> Iterator[int]:
    """The end from which to read it."""
    read_end, write_end = os.pipe()
    try:
        with os.fdopen(write_end, "wb") as pipe:
            pipe.write(content)
        yield read_end
    finally:
        os.close(read_end)
