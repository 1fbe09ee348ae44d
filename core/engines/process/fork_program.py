"""The program of a fork server: forks responders' programs inside their environment, with common modules imported.

Core runs `python fork_program.py CONTROL_FD IDLE_S PADDING` (see `fork_server.py`) with a language, a time zone and
padding as its only variables. It has one thread and never sees data of a run: for each run core sends a socket, from
which only the forked child reads what to run. So the memory from which the next run is forked holds no secrets. It ends
when core does, or when idle; the programs forked from it go on.

The control socket carries packets. The server begins with `{"modules": [...], "path": [...]}`, the modules that it has
imported and its `sys.path`. Then it answers the commands of core:

- `run`, with a socket: forks a child; answers its pid, or 0 if that failed
- `look N`: answers how child N ended, as `CODE STATUS` of waitid, or `-` if it has not
- `reap N`: as `look`, and reaps it
- `wait N`: as `reap`, but waits for its end

On the socket of a run core writes one line of JSON (`ForkRequest` in `fork_server.py`). The child forks again, as the
launcher does: it becomes the supervisor, and its own child the program. It writes the content of `JOB/started` to the
socket and closes it. If it closes it without that, it has started nothing, and core may send a launcher: the gate of
the job folder lets only one of them start the program.
"""

import atexit
import builtins
import ctypes
import gc
import importlib
import io
import json
import os
import random
import select
import socket
import sys
import threading
import time
import types
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from typing import NoReturn

LOADED = (
    *("json", "re", "datetime", "ipaddress", "logging", "hashlib", "ssl", "smtplib", "urllib.request", "http.client"),
    *("email.mime.multipart", "email.mime.text", "email.utils", "tempfile", "traceback", "subprocess"),
    *("cortexutils.responder", "requests", "urllib3", "certifi"),
)
"""Modules that are imported if they are installed; never a responder's own."""

CANNOT_START = 126


class _NeedsExec(Exception):
    """This process can't be forked safely, so core has to start programs by exec."""


def prepare() -> dict[str, list[str]]:
    """Import the modules and check that this process can be forked. Returns its greeting. Raises _NeedsExec."""
    for name in LOADED:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: S112 - the responder that imports it will report it
            continue
    if threading.active_count() != 1 or len(os.listdir("/proc/self/task")) != 1:
        raise _NeedsExec("a module has started a thread")
    if len(os.listdir("/proc/self/fd")) > 5:  # three standard ones, the control socket, this listing
        raise _NeedsExec("a module keeps something open")
    gc.collect()
    gc.freeze()  # so that the first collection in a child doesn't copy all pages
    modules = {name.partition(".")[0] for name in sys.modules}
    return {"modules": sorted(modules), "path": [part for part in sys.path if part]}


def serve(control: socket.socket, idle_s: float) -> socket.socket:
    """Answer commands until core has gone or this server is idle, then exit. Returns in each child, with its socket."""
    children: set[int] = set()
    while select.select([control], [], [], None if children else idle_s)[0]:
        packet, descriptors, _, _ = socket.recv_fds(control, 64, 1)
        command, _, number = packet.decode().partition(" ")
        if command == "run":
            pid = _fork()
            if pid == 0:
                control.close()
                return socket.socket(fileno=descriptors[0])
            os.close(descriptors[0])
            children.add(pid)
            control.send(str(max(pid, 0)).encode())
        elif command in ("look", "reap", "wait"):
            control.send(_exit_of(int(number), command).encode())
            if command != "look":
                children.discard(int(number))
        else:
            break  # core has gone
    os._exit(0)


def _fork() -> int:
    try:
        return os.fork()
    except OSError:
        return -1


def _exit_of(pid: int, command: str) -> str:
    flags = {"look": os.WNOHANG | os.WNOWAIT, "reap": os.WNOHANG, "wait": 0}[command]
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | flags)
    except ChildProcessError:
        return "-"
    return f"{ended.si_code} {ended.si_status}" if ended else "-"


def fork_program(
    run: socket.socket, launcher: types.ModuleType, confine: Callable[[str], None]
) -> tuple[list[str], str]:
    """In a child, do what the launcher and exec would do before the program runs.

    Stays as the supervisor. Returns in the process of the program, with its arguments and its working directory.
    """
    os.setsid()
    with run.makefile("rb") as file:
        line = file.readline()
    if not line.endswith(b"\n"):
        os._exit(0)  # core has given up
    request = json.loads(line)
    argv: list[str] = [request["program"], request["home"]]
    launcher.close_all_but(run.fileno())
    os.umask(0o077)
    if not overwrite_arguments([sys.executable, *argv], _set_environment(request["environment"])):
        os._exit(0)  # the padding is too small
    _redirect(f"{request['job']}/printed")
    try:
        if not launcher.start(request["job"], run.fileno()):
            os._exit(launcher.ALREADY_STARTED)
        run.close()
        os.chdir(request["folder"])
        launcher.apply_limits(request["limits"])
        confine(request["ruleset"])
    except OSError as error:
        print(f"{argv[0]} could not be started: {error.strerror}.", file=sys.stderr)  # noqa: T201 - into JOB/printed
        os._exit(CANNOT_START)
    random.seed()
    time.tzset()
    return argv, request["folder"]


def _set_environment(environment: dict[str, str]) -> dict[str, str]:
    """Replace the variables of this process, except LC_CTYPE, which Python itself sets at its start."""
    variables = dict(environment)
    if "LC_CTYPE" in os.environ:
        variables.setdefault("LC_CTYPE", os.environ["LC_CTYPE"])
    os.environ.clear()
    os.environ.update(variables)
    return variables


def overwrite_arguments(arguments: list[str], environment: dict[str, str]) -> bool:
    """Make /proc/PID/cmdline and /proc/PID/environ show these values; False if there is too little memory for them.

    Core finds the leftovers of a run by HOME in /proc/PID/environ (`processes.py`).
    """
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    arg_start, arg_end, env_start, env_end = map(int, fields[45:49])
    variables = [f"{name}={value}" for name, value in environment.items()]
    return _overwrite(env_start, env_end, variables, must_fit=True) and _overwrite(arg_start, arg_end, arguments)


def _overwrite(begin: int, end: int, texts: list[str], *, must_fit: bool = False) -> bool:
    block = b"".join(os.fsencode(text) + b"\0" for text in texts)
    size = end - begin
    if begin == 0 or size <= 0 or (must_fit and len(block) > size):
        return False
    # Arguments are only shown to people, so they may be cut. The last byte stays 0, or /proc would read beyond it.
    ctypes.memmove(begin, block[: size - 1].ljust(size, b"\0"), size)
    return True


def _redirect(printed: str) -> None:
    """Read standard input from /dev/null, write output to the file `printed`."""
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(printed, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    for wanted, source in ((0, null), (1, output), (2, output)):
        os.dup2(source, wanted)
    os.close(null)
    os.close(output)


def run_program(argv: list[str], root: str) -> NoReturn:
    """Run the file as `__main__`, as the interpreter runs a script, and exit."""
    path = argv[0]
    sys.argv = argv
    sys.orig_argv = [sys.executable, *argv]
    sys.path.insert(0, os.path.dirname(path))
    module = types.ModuleType("__main__")
    vars(module).update(
        __file__=path, __builtins__=builtins, __loader__=SourceFileLoader("__main__", path), __cached__=None
    )
    sys.modules["__main__"] = module
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {path!r}: {error}", file=sys.stderr)  # noqa: T201 - as Python does
        sys.exit(2)
    code: object = 0
    try:
        exec(compile(source, path, "exec", dont_inherit=True), vars(module))  # noqa: S102 - the responder's program
    except SystemExit as error:
        code = error.code
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # printed as Python does, without the frames of this file
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    end(code, root)  # outside `except`: an exception would keep alive the files that its frames have open


def end(code: object, root: str) -> NoReturn:
    """Exit as the interpreter does, but without finalising the modules that were imported before the fork.

    That would take most of the time of a short run, without effect. If anything unusual happens, the interpreter exits
    in its own way.
    """
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)  # noqa: T201 - as Python does
        code = 1
    number = int(code or 0) & 0xFF
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
        atexit._run_exitfuncs()
        if len(os.listdir("/proc/self/task")) == 1:  # other threads may still use the modules
            _clear_modules(root)
            sys.stdout.flush()
            sys.stderr.flush()
            ctypes.PyDLL(None).exit(number)  # also flushes the output of C extensions
    except BaseException:  # noqa: S110 - the interpreter will run into it again
        pass
    sys.exit(number)


def _clear_modules(root: str) -> None:
    """Clear the responder's own modules, so that files they left open are flushed and closed."""
    for name, module in list(sys.modules.items()):
        if name == "__main__" or str(getattr(module, "__file__", "")).startswith(f"{root}/"):
            _clear_names(vars(module))
    gc.collect()


def _clear_names(names: dict[str, object]) -> None:
    """In the order of the interpreter: private names first; dunder names stay."""
    for private in (True, False):
        for name in list(names):
            if not name.startswith("__") and name.startswith("_") == private:
                names[name] = None


def _load_launcher() -> types.ModuleType:
    """Load launcher.py under a name that no responder imports."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")
    module = types.ModuleType("responder_bot_launcher")
    vars(module)["__file__"] = path
    with io.open_code(path) as file:
        exec(compile(file.read(), path, "exec", dont_inherit=True), vars(module))  # noqa: S102 - our own file
    return module


def main() -> None:
    """Serve. `serve` returns only in a child, which becomes the program."""
    sys.path.pop(0)  # the folder of this file, which responders must not import from
    control = socket.socket(fileno=int(sys.argv[1]))
    idle_s = float(sys.argv[2])
    launcher = _load_launcher()
    confine = launcher.confinement()
    os.environ.pop("PADDING", None)
    os.chdir("/")
    launcher.close_all_but(control.fileno())
    overwrite_arguments([sys.executable, __file__], dict(os.environ))
    try:
        control.send(json.dumps(prepare()).encode())
    except (_NeedsExec, OSError):
        os._exit(1)
    run_program(*fork_program(serve(control, idle_s), launcher, confine))


if __name__ == "__main__":
    main()
