"""Starts a responder's program, and stays as its supervisor.

Core runs `python -I -S launcher.py JOB STATUS_FD CWD LIMITS RULESET PROGRAM...` with the environment of the program, in
a session of its own, with `JOB/printed` as its output. It imports nothing of core and few modules, since every run
waits for it.

It forks. The child becomes the program, in a session of its own. The parent stays as the supervisor: as a child
subreaper (PR_SET_CHILD_SUBREAPER) it adopts all processes that the program leaves behind, even those that began a new
session and cleared their environment. When the program has ended, it kills them and then ends the way the program did.

Core relies on this:

- `JOB/gate` is locked while a launcher decides whether to start. Of two launchers for one job the second one waits,
  finds `started` and gives up: nothing runs twice, even if a core that has died sent the first one.
- `JOB/started` appears atomically and synced, before the program runs. It names the pids and start times (in clock
  ticks) of program and supervisor, the boot id and the time of day. A run has ended when its supervisor has.
- `JOB/stop` forbids the start.

No parent-death signal is set: a run and its supervisor outlive core.
"""

import ctypes
import fcntl
import os
import resource
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # at run time this import would cost as much as all the others
    from collections.abc import Callable

ALREADY_STARTED = 75
"""Exit code (EX_TEMPFAIL): another launcher was first, or the job was stopped before its start."""

CANNOT_START = 126
"""Exit code when the program could not be executed; the reason is in `JOB/printed`."""

_GATE_TIMEOUT_S = 60

_SIGHUP, _SIGINT, _SIGKILL, _SIGTERM = 1, 2, 9, 15
_DEFAULT, _IGNORE = 0, 1


def main(arguments: list[str]) -> int:
    """Become the program. Returns an exit code only if that fails."""
    job, status_text, folder, limits, ruleset, *program = arguments
    status = int(status_text)
    os.set_inheritable(status, False)
    close_all_but(status)
    os.umask(0o077)
    try:
        if not start(job, status):
            return ALREADY_STARTED
        os.chdir(folder)
        apply_limits(limits)
        confinement()(ruleset)
        os.execve(program[0], program, os.environ)  # noqa: S606 - without a shell
    except OSError as error:
        sentence = f"{program[0]} could not be started: {error.strerror}."
        print(sentence, file=sys.stderr)  # noqa: T201 - into JOB/printed
    return CANNOT_START


def close_all_but(status: int) -> None:
    """Close what was inherited from core, except standard streams and `status`: it is not for the responder."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != status:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of this listing


def start(job: str, status: int) -> bool:
    """Fork. Returns True in the child, which is to become the program; False, without a fork, if it must not start.

    The parent stays as the supervisor and doesn't return. It writes the content of `JOB/started` to `status` and closes
    it. Raises OSError.
    """
    gate = lock_gate(job)
    if os.path.lexists(f"{job}/started") or os.path.lexists(f"{job}/stop"):
        return False
    adopt_orphans()
    wait_end, release_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(release_end)
        os.close(gate)
        if os.read(wait_end, 1) != b"1":  # the supervisor has died, or could not write `started`
            os._exit(ALREADY_STARTED)
        os.close(wait_end)
        return True
    os.close(wait_end)
    try:
        record = start_record(pid)
        write_started(job, record)
    except OSError:
        os.close(release_end)
        os.waitpid(pid, 0)
        raise
    os.close(gate)
    try:  # noqa: SIM105 - importing contextlib would take as long as everything else
        os.write(status, record)
    except OSError:
        pass  # core may have died; the run outlives it
    os.close(status)
    os.write(release_end, b"1")
    os.close(release_end)
    supervise(pid)
    os._exit(CANNOT_START)


def lock_gate(job: str) -> int:
    """Lock `JOB/gate`. SIGALRM ends a launcher that waits too long, since the program may hold the lock."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    gate = os.open(f"{job}/gate", flags, 0o600)
    libc = ctypes.CDLL(None)
    libc.alarm(_GATE_TIMEOUT_S)
    fcntl.flock(gate, fcntl.LOCK_EX)
    libc.alarm(0)
    return gate


def write_started(job: str, record: bytes) -> None:
    """Write `JOB/started` atomically. Raises OSError."""
    new = f"{job}/started.new"
    if os.path.lexists(new):
        os.unlink(new)  # left by a launcher that died
    started = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.write(started, record)
    os.fsync(started)
    os.close(started)
    os.rename(new, f"{job}/started")
    directory = os.open(job, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)


def start_record(pid: int) -> bytes:
    """One line of JSON, formatted by hand: importing json would double the time that a launcher takes."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    own = os.getpid()
    return (
        f'{{"pid": {pid}, "pid_started": {ticks_of(pid)}, "supervisor": {own}, "supervisor_started": {ticks_of(own)}, '
        f'"boot": "{boot}", "at": {time.time():.3f}}}\n'
    ).encode()


def ticks_of(pid: int) -> int:
    """Clock ticks from boot to the start of a process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def adopt_orphans() -> None:
    """Make this process the child subreaper of its descendants."""
    pr_set_child_subreaper = 36
    if ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "orphaned processes can't be adopted")


def supervise(pid: int) -> None:
    """Wait for the program, kill its descendants, then end the way it did. Never returns."""
    try:
        for number in (_SIGHUP, _SIGINT, _SIGTERM):
            handle(number, _IGNORE)
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED)  # of all children, so that none stays a zombie
            if ended is not None and ended.si_pid == pid:
                break
        kill_children()
        if ended.si_code == os.CLD_EXITED:
            os._exit(ended.si_status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        handle(ended.si_status, _DEFAULT)
        os.kill(os.getpid(), ended.si_status)
    finally:  # without an exit code, which would mean that all descendants are gone
        os.kill(os.getpid(), _SIGKILL)


def handle(number: int, handler: int) -> None:
    """Do what signal.signal does: importing that module would double the time that a launcher takes."""
    ctypes.CDLL(None).signal(number, ctypes.c_void_p(handler))


def kill_children() -> None:
    """Kill all descendants: when a child ends, its children become children of this process."""
    pause_s = 0.001
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return
        if ended is not None:
            continue
        for child in children():
            try:
                os.kill(child, _SIGKILL)
            except OSError:
                continue  # it has just ended
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.05)


def children() -> "list[int]":
    """Pids of the children of this process. Read from all of /proc: /proc/PID/task/TID/children may be incomplete."""
    own, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue
        if parent == own:
            found.append(int(name))
    return found


def apply_limits(limits: str) -> None:
    """Set each limit of `cpu=600,as=...`, or the highest that this account may set."""
    for pair in limits.split(","):
        name, _, value = pair.partition("=")
        kind = getattr(resource, f"RLIMIT_{name.upper()}")
        wanted = int(value) + (tasks_of_this_account() if name == "nproc" else 0)
        _, ceiling = resource.getrlimit(kind)
        if ceiling != resource.RLIM_INFINITY:
            wanted = min(wanted, ceiling)
        # 5 s between SIGXCPU and SIGKILL; the other limits have no such second step.
        hard = wanted + 5 if name == "cpu" and ceiling == resource.RLIM_INFINITY else wanted
        resource.setrlimit(kind, (wanted, hard))


def confinement() -> "Callable[[str], None]":
    """The function `apply` of `confine.py` beside this file."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, folder)
    import confine  # type: ignore[import-not-found]  # found in that folder only

    sys.path.remove(folder)
    apply: Callable[[str], None] = confine.apply
    return apply


def tasks_of_this_account() -> int:
    """How many tasks the account has now: RLIMIT_NPROC counts all tasks of the account, so it goes on top of these."""
    own, count = os.getuid(), 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            directory = os.stat(f"/proc/{name}/task")
        except OSError:
            continue
        if directory.st_uid == own:
            count += directory.st_nlink - 2
    return count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
