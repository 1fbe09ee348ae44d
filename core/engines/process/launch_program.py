"""The program of a launch server: starts launchers without starting an interpreter for each.

Core runs `python -I -S launch_program.py CONTROL_FD` once. For each run it sends two descriptors: a pipe with the
arguments and variables of a launcher, and the one on which that reports. The answer is the launcher's pid, or -1. The
launcher is forked, and goes on as if it had been started by itself (`launcher.py`): it starts the responder's program
by exec, so nothing of this process is in the memory of that. This process runs nothing but the standard library,
`launcher.py` and `confine.py`, never code of a responder; it reads nothing of a run, and ends when core does.

A launcher is a child of core, not of this process (CLONE_PARENT), so core waits for it and reads its exit code.
"""

import ctypes
import gc
import os
import socket
import sys
from collections.abc import Callable

LIMIT_BYTES = 60_000
"""Of one request: it has to fit into a pipe."""

CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of clone(2), by machine."""

_CLONE_PARENT, _SIGCHLD = 0x8000, 17
_CANNOT_START = 126


def main() -> None:
    """Serve until core has gone."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import launcher  # type: ignore[import-not-found]  # found in that folder only

    sys.path.pop(0)
    launcher.confinement()  # imported here once, not by each launcher
    control = socket.socket(fileno=int(sys.argv[1]))
    launcher.close_all_but(control.fileno())
    libc = ctypes.PyDLL(None)  # keeps the interpreter's lock, which a forked process could not wait for
    clone = CLONE[os.uname().machine]
    os.chdir("/")
    gc.collect()
    gc.freeze()  # so that a collection in a launcher doesn't copy all pages
    while True:
        command, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not command:
            return
        pid = libc.syscall(ctypes.c_long(clone), ctypes.c_long(_CLONE_PARENT | _SIGCHLD), 0, 0, 0, 0)
        if pid == 0:
            control.close()
            os._exit(_launch(launcher.main, *descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(b"%d" % pid)


def _launch(become_program: "Callable[[list[str]], int]", request: int, status: int) -> int:
    """Become the launcher that is asked for: the number of its arguments, these, its variables, joined by zero bytes.

    `status` takes the place of the second argument. Returns only if that fails.
    """
    with os.fdopen(request, "rb") as pipe:
        count, *texts = os.fsdecode(pipe.read()).split("\0")
    arguments, variables = texts[: int(count)], texts[int(count) :]
    arguments[1] = str(status)
    os.setsid()
    os.environ.clear()
    for variable in variables:
        name, _, value = variable.partition("=")
        os.environ[name] = value
    # Not through a symlink, and without waiting for the reader of a named pipe.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        for number, path, how in ((0, os.devnull, os.O_RDONLY), (1, f"{arguments[0]}/printed", flags)):
            descriptor = os.open(path, how, 0o600)
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.dup2(1, 2)
        return become_program(arguments)
    except OSError:
        return _CANNOT_START
    finally:
        sys.stderr.flush()


if __name__ == "__main__":
    main()
