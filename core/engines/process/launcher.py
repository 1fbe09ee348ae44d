"""Starts a responder's program, and stays as its supervisor.

Core starts it by `python -I -S launcher.py JOB STATUS_FD CWD LIMITS PROGRAM...` with the responder's environment, in a
session of its own, its output going to `JOB/printed`. It imports nothing of core and little else, since every run waits
for it.

It forks. The child becomes the program, in a session of its own. The parent stays as the run's supervisor: all that the
program leaves behind becomes its child (PR_SET_CHILD_SUBREAPER), also what has begun a new session and cleared its
environment; it kills all of that once the program has ended, then ends the way the program did.

What a later core may rely on:

- `JOB/gate` is locked while a launcher decides. Two launchers for one job are served one after the other, and the
  second finds `started` and gives up: nothing runs twice, even when the first was sent off by a core that died.
- `JOB/started` appears whole (written, synced, renamed) before the program runs, with the program's pid and start time
  in ticks, its supervisor's, boot id and time of day. A run has ended when its supervisor has.
- `JOB/stop` forbids the start.

Nothing here asks for a signal when core dies: a run and its supervisor outlive core.
"""

import ctypes
import fcntl
import os
import resource
import sys
import time

ALREADY_STARTED = 75
"""Exit code (EX_TEMPFAIL): another launcher was first, or the job was stopped before it began."""

CANNOT_START = 126
"""Exit code when the program could not be executed; the reason goes to `JOB/printed`."""

_GATE_S = 60

_SIGHUP, _SIGINT, _SIGKILL, _SIGTERM = 1, 2, 9, 15
_DEFAULT, _IGNORE = 0, 1


def main(arguments: list[str]) -> int:
    """Start the program; returns only if that can't be done."""
    job, status_text, folder, limits, *program = arguments
    status = int(status_text)
    os.set_inheritable(status, False)
    close_all_but(status)
    os.umask(0o077)
    try:
        if not start(job, status):
            return ALREADY_STARTED
        os.chdir(folder)
        apply_limits(limits)
        forbid_new_privileges()
        os.execve(program[0], program, os.environ)  # noqa: S606 - becoming that program is the purpose; there is no shell
    except OSError as error:
        sentence = f"{program[0]} could not be started: {error.strerror}."
        print(sentence, file=sys.stderr)  # noqa: T201 - this is the file of what the run printed
    return CANNOT_START


def close_all_but(status: int) -> None:
    """Whatever core has open and forgot to keep to itself is none of a responder's business."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != status:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself


def start(job: str, status: int) -> bool:
    """Return True in the child that is to become the program, False when there is nothing to start.

    The supervisor never returns. It writes to `status` what it wrote to `JOB/started`, and closes it. Raises OSError.
    """
    gate = locked_gate(job)
    if os.path.lexists(f"{job}/started") or os.path.lexists(f"{job}/stop"):
        return False
    adopt_orphans()
    held, release = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(release)
        os.close(gate)
        if os.read(held, 1) != b"1":  # the supervisor has died, or could not write `started`
            os._exit(ALREADY_STARTED)
        os.close(held)
        return True
    os.close(held)
    try:
        announced = facts(pid)
        announce(job, announced)
    except OSError:
        os.close(release)
        os.waitpid(pid, 0)
        raise
    os.close(gate)
    try:  # noqa: SIM105 - to import contextlib takes as long as all the rest
        os.write(status, announced)
    except OSError:
        pass  # core may have died; the run outlives it
    os.close(status)
    os.write(release, b"1")
    os.close(release)
    supervise(pid)
    os._exit(CANNOT_START)


def locked_gate(job: str) -> int:
    """The lock that lets one launcher decide. Who waits too long for it is ended by SIGALRM: somebody keeps it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    gate = os.open(f"{job}/gate", flags, 0o600)
    libc = ctypes.CDLL(None)
    libc.alarm(_GATE_S)
    fcntl.flock(gate, fcntl.LOCK_EX)
    libc.alarm(0)
    return gate


def announce(job: str, announced: bytes) -> None:
    """Write `JOB/started`, whole or not at all. Raises OSError."""
    new = f"{job}/started.new"
    if os.path.lexists(new):
        os.unlink(new)  # of a launcher that died while it wrote it
    started = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.write(started, announced)
    os.fsync(started)
    os.close(started)
    os.rename(new, f"{job}/started")
    directory = os.open(job, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)


def facts(pid: int) -> bytes:
    """One line of JSON, written by hand since the json module would double the time this takes."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    own = os.getpid()
    return (
        f'{{"pid": {pid}, "pid_started": {ticks_of(pid)}, "supervisor": {own}, "supervisor_started": {ticks_of(own)}, '
        f'"boot": "{boot}", "at": {time.time():.3f}}}\n'
    ).encode()


def ticks_of(pid: int) -> int:
    """When a process started, in clock ticks since boot; with its number, that names it for good."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def adopt_orphans() -> None:
    """From here on this process, not init, becomes the parent of what its descendants leave behind."""
    pr_set_child_subreaper = 36
    if ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "what it leaves behind can't be kept track of")


def supervise(pid: int) -> None:
    """Wait for the program, kill all that it left behind, then end the way it did. Never returns."""
    try:
        for number in (_SIGHUP, _SIGINT, _SIGTERM):
            handle(number, _IGNORE)
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED)  # whoever else ends meanwhile would stay a zombie
            if ended is not None and ended.si_pid == pid:
                break
        kill_children()
        if ended.si_code == os.CLD_EXITED:
            os._exit(ended.si_status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        handle(ended.si_status, _DEFAULT)
        os.kill(os.getpid(), ended.si_status)
    finally:  # never with an exit code, which would say that nothing was left behind
        os.kill(os.getpid(), _SIGKILL)


def handle(number: int, way: int) -> None:
    """As signal.signal does it; to import that module would double the time that a launcher takes."""
    ctypes.CDLL(None).signal(number, ctypes.c_void_p(way))


def kill_children() -> None:
    """Kill all descendants: those of a child that ends become children in their turn."""
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
    """The children of this process. Looked for in all of /proc, since the short list there may leave some out."""
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
    """Set each limit of `cpu=600,as=...`; one above what this account may have is set as high as it may be."""
    for pair in limits.split(","):
        name, _, value = pair.partition("=")
        kind = getattr(resource, f"RLIMIT_{name.upper()}")
        wanted = int(value) + (tasks_of_this_account() if name == "nproc" else 0)
        _, ceiling = resource.getrlimit(kind)
        if ceiling != resource.RLIM_INFINITY:
            wanted = min(wanted, ceiling)
        # Five seconds between "end, please" (SIGXCPU) and the kill; the other kinds have no second step.
        hard = wanted + 5 if name == "cpu" and ceiling == resource.RLIM_INFINITY else wanted
        resource.setrlimit(kind, (wanted, hard))


def forbid_new_privileges() -> None:
    """From here on no program gets more rights than its caller had, whatever its file says (setuid, capabilities)."""
    pr_set_no_new_privs = 38
    if ctypes.CDLL(None, use_errno=True).prctl(pr_set_no_new_privs, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the rights of its programs can't be bounded")


def tasks_of_this_account() -> int:
    """How many tasks the account has now: the kernel counts processes by account, so the limit goes on top of these."""
    mine, count = os.getuid(), 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            facts_of_tasks = os.stat(f"/proc/{name}/task")
        except OSError:
            continue
        if facts_of_tasks.st_uid == mine:
            count += facts_of_tasks.st_nlink - 2
    return count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
