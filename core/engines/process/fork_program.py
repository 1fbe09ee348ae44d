"""Forks responders' programs, inside their own environment, where what most of them import is loaded already.

Core starts it by `python fork_program.py CONTROL_FD IDLE_S FILLER` (see `fork_server.py`), with an environment that
holds nothing but a language, a time zone and room. It has one thread, and never sees anything of a run: core sends a
socket for each, and only the forked child reads from it what to run. So no run's secret is ever in the memory that the
next one is forked from. It ends when core does, or when nobody has needed it for a while; what it forked goes on.

On the control socket (packets), core's words and the answers:

- first of all an answer without a word: `{"modules": [...], "path": [...]}`, what is loaded and where from
- `run`, with a socket: the child's number, 0 when there is none
- `look N`, `reap N`: how the child N ended, as `CODE STATUS` of waitid, `-` when it hasn't; `reap` forgets it
- `wait N`: as `reap`, but waits for the end

On a run's socket core writes one line of JSON (`Order` in `fork_server.py`). The child forks once more, as the launcher
does: it becomes the run's supervisor, and its own child the program. It writes what stands in `JOB/started` to the
socket, and closes; without that it has run nothing, and core may do so by other means: the gate of the job folder lets
only one start.
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
from importlib.machinery import SourceFileLoader
from typing import NoReturn

LOADED = (
    *("json", "re", "datetime", "ipaddress", "logging", "hashlib", "ssl", "smtplib", "urllib.request", "http.client"),
    *("email.mime.multipart", "email.mime.text", "email.utils", "tempfile", "traceback", "subprocess"),
    *("cortexutils.responder", "requests", "urllib3", "certifi"),
)
"""What is imported beforehand, where it is installed; never a responder's own code."""

CANNOT_START = 126


class _NeedsExec(Exception):
    """Something is not as it should be: nothing is forked, core starts the program by other means."""


def prepare() -> dict[str, list[str]]:
    """Import what is to be loaded, and see that it can be forked. Raises `_NeedsExec`."""
    for name in LOADED:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: S112 - whatever it is, the responder that imports it will say so
            continue
    if threading.active_count() != 1 or len(os.listdir("/proc/self/task")) != 1:
        raise _NeedsExec("a module has started a thread")
    if len(os.listdir("/proc/self/fd")) > 5:  # three standard ones, the control socket, this listing
        raise _NeedsExec("a module keeps something open")
    gc.collect()
    gc.freeze()  # so that a child's first collection doesn't copy all pages
    modules = {name.partition(".")[0] for name in sys.modules}
    return {"modules": sorted(modules), "path": [part for part in sys.path if part]}


def serve(control: socket.socket, idle_s: float) -> socket.socket:
    """Answer core until it is gone or silent for long, then end. Returns in each child, with its run's socket."""
    children: set[int] = set()
    while select.select([control], [], [], None if children else idle_s)[0]:
        said, descriptors, _, _ = socket.recv_fds(control, 64, 1)
        word, _, number = said.decode().partition(" ")
        if word == "run":
            pid = _fork()
            if pid == 0:
                control.close()
                return socket.socket(fileno=descriptors[0])
            os.close(descriptors[0])
            children.add(pid)
            control.send(str(max(pid, 0)).encode())
        elif word in ("look", "reap", "wait"):
            control.send(_end_of(int(number), word).encode())
            if word != "look":
                children.discard(int(number))
        else:
            break  # core has gone
    os._exit(0)


def _fork() -> int:
    try:
        return os.fork()
    except OSError:
        return -1


def _end_of(pid: int, word: str) -> str:
    flags = {"look": os.WNOHANG | os.WNOWAIT, "reap": os.WNOHANG, "wait": 0}[word]
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | flags)
    except ChildProcessError:
        return "-"
    return f"{ended.si_code} {ended.si_status}" if ended else "-"


def become(run: socket.socket, launcher: types.ModuleType) -> tuple[list[str], str]:
    """In a child: all that launcher and exec would do, up to the program itself; its arguments, and its root.

    Returns in the program's process; this one stays as its supervisor.
    """
    os.setsid()
    with run.makefile("rb") as file:
        line = file.readline()
    if not line.endswith(b"\n"):
        os._exit(0)  # core has thought better of it
    order = json.loads(line)
    argv: list[str] = [order["program"], order["home"]]
    launcher.close_all_but(run.fileno())
    os.umask(0o077)
    if not show([sys.executable, *argv], _renewed(order["environment"])):
        os._exit(0)  # no room for it
    _redirect(f"{order['job']}/printed")
    try:
        if not launcher.start(order["job"], run.fileno()):
            os._exit(launcher.ALREADY_STARTED)
        run.close()
        os.chdir(order["folder"])
        launcher.apply_limits(order["limits"])
        launcher.forbid_new_privileges()
    except OSError as error:
        print(f"{argv[0]} could not be started: {error.strerror}.", file=sys.stderr)  # noqa: T201 - into `printed`
        os._exit(CANNOT_START)
    random.seed()
    time.tzset()
    return argv, order["folder"]


def _renewed(environment: dict[str, str]) -> dict[str, str]:
    """Make `environment` this process's own; with what Python itself puts there at its start."""
    whole = dict(environment)
    if "LC_CTYPE" in os.environ:
        whole.setdefault("LC_CTYPE", os.environ["LC_CTYPE"])
    os.environ.clear()
    os.environ.update(whole)
    return whole


def show(arguments: list[str], environment: dict[str, str]) -> bool:
    """Have /proc show these arguments and variables instead of those that this process was started with.

    Core finds what a run has left behind by the HOME that its processes show (`processes.py`). False: no room.
    """
    with open("/proc/self/stat", "rb") as file:
        places = [int(part) for part in file.read().rpartition(b")")[2].split()[45:49]]
    variables = [f"{name}={value}" for name, value in environment.items()]
    return _overwritten(places[2], places[3], variables, whole=True) and _overwritten(places[0], places[1], arguments)


def _overwritten(begin: int, end: int, texts: list[str], *, whole: bool = False) -> bool:
    block = b"".join(os.fsencode(text) + b"\0" for text in texts)
    room = end - begin
    if begin == 0 or room <= 0 or (whole and len(block) > room):
        return False
    # The arguments are for people only, so they may be cut; the last byte stays 0, or /proc would read on behind it.
    ctypes.memmove(begin, block[: room - 1].ljust(room, b"\0"), room)
    return True


def _redirect(printed: str) -> None:
    """Standard input from nowhere, output to the job folder's file."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    output = os.open(printed, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    for wanted, source in ((0, nowhere), (1, output), (2, output)):
        os.dup2(source, wanted)
    os.close(nowhere)
    os.close(output)


def run_program(argv: list[str], root: str) -> NoReturn:
    """Run the file as `__main__`, as the interpreter does it for the first file that it is given, and end."""
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
        exec(compile(source, path, "exec", dont_inherit=True), vars(module))  # noqa: S102 - that is the purpose
    except SystemExit as asked:
        code = asked.code
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # shown as it would be, without the frames of this file
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    end(code, root)  # not before: an exception keeps alive what its functions had open


def end(code: object, root: str) -> NoReturn:
    """Do what the interpreter does at its end, but for taking apart what was loaded before the fork.

    That would be most of the time of a short run, and nobody would see it. When anything is unusual, the interpreter
    does it after all, in its own way.
    """
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)  # noqa: T201 - as Python does
        code = 1
    number = int(code or 0) & 0xFF
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
        atexit._run_exitfuncs()
        if len(os.listdir("/proc/self/task")) == 1:  # a thread that goes on would see what is taken from it
            _let_go(root)
            sys.stdout.flush()
            sys.stderr.flush()
            ctypes.PyDLL(None).exit(number)  # also flushes what extensions have printed
    except BaseException:  # noqa: S110 - the interpreter will come upon it again
        pass
    sys.exit(number)


def _let_go(root: str) -> None:
    """Drop what the responder's own modules hold: files that it left open are written and closed by that."""
    for name, module in list(sys.modules.items()):
        if name == "__main__" or str(getattr(module, "__file__", "")).startswith(f"{root}/"):
            _emptied(vars(module))
    gc.collect()


def _emptied(names: dict[str, object]) -> None:
    """In the interpreter's own order: private names first; what Python itself puts there stays."""
    for private in (True, False):
        for name in list(names):
            if not name.startswith("__") and name.startswith("_") == private:
                names[name] = None


def _launcher() -> types.ModuleType:
    """The launcher beside this file, under no name that a responder might import."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")
    module = types.ModuleType("responder_bot_launcher")
    with io.open_code(path) as file:
        exec(compile(file.read(), path, "exec", dont_inherit=True), vars(module))  # noqa: S102 - our own file
    return module


def main() -> None:
    """Serve; what comes back from that is a child, which becomes its program."""
    sys.path.pop(0)  # this file's folder, which is none of a responder's business
    control = socket.socket(fileno=int(sys.argv[1]))
    idle_s = float(sys.argv[2])
    launcher = _launcher()
    os.environ.pop("ROOM", None)
    os.chdir("/")
    launcher.close_all_but(control.fileno())
    show([sys.executable, __file__], dict(os.environ))
    try:
        facts = prepare()
        control.send(json.dumps(facts).encode())
    except (_NeedsExec, OSError):
        os._exit(1)
    run_program(*become(serve(control, idle_s), launcher))


if __name__ == "__main__":
    main()
