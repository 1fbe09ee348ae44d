"""Starts a responder's program, and stays as its supervisor.

Core runs `python -I -S launcher.py JOB STATUS_FD CWD LIMITS ACCOUNT RULESET PROGRAM...` with the environment of the
program, in a session of its own, with `JOB/printed` as its output. It imports nothing of core and few modules, since
every run waits for it.

It forks. The child becomes the program, in a session of its own. The parent stays as the supervisor: as a child
subreaper (PR_SET_CHILD_SUBREAPER) it adopts all processes that the program leaves behind, even those that began a new
session and cleared their environment. When the program has ended, it kills them and then ends the way the program did.
While the program runs, it looks ten times a second at what the run has written and how many tasks it has, which no
limit of the kernel bounds for all of its processes together.

Core relies on this:

- `JOB/gate` is locked while a launcher decides whether to start. Of two launchers for one job the second one waits,
  finds `started` and gives up: nothing runs twice, even if a core that has died sent the first one.
- `JOB/started` appears atomically and synced, before the program runs. It names the pids and start times (in clock
  ticks) of program and supervisor, the boot id and the time of day. A run has ended when its supervisor has.
- `JOB/stop` forbids the start. The supervisor that ends a run over a bound writes there which one.

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
    from collections.abc import Callable, Sequence

ALREADY_STARTED = 75
"""Exit code (EX_TEMPFAIL): another launcher was first, or the job was stopped before its start."""

CANNOT_START = 126
"""Exit code when the program could not be executed; the reason is in `JOB/printed`."""

_GATE_TIMEOUT_S = 60

_LOOK_EVERY_S = 0.1
_PROCESSES_EVERY = 10
"""Processes are looked at only at one look of so many."""

_OWN_TASKS = 2
"""Those of bwrap, beside the program's."""

_BWRAP_SIGNAL = 128
"""An exit code of bwrap that is higher tells the signal that ended the program."""

_SIGHUP, _SIGINT, _SIGKILL, _SIGTERM, _SIGXFSZ = 1, 2, 9, 15, 25
_DEFAULT, _IGNORE = 0, 1


def main(arguments: list[str]) -> int:
    """Become the program. Returns an exit code only if that fails."""
    job, status_text, folder, limits, account, ruleset, *program = arguments
    status = int(status_text)
    os.set_inheritable(status, False)
    close_all_but(status)
    os.umask(0o077)
    try:
        if not start(job, status, limits, ruleset):
            return ALREADY_STARTED
        become(account)
        os.chdir(folder)
        apply_limits(limits)
        program = list(confinement()(ruleset, program))
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


def start(job: str, status: int, limits: str, ruleset: str) -> bool:
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
    supervise(pid, Bounds(job, limits), in_bwrap=ruleset.startswith("bwrap "))
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


def supervise(pid: int, bounds: "Bounds", *, in_bwrap: bool) -> None:
    """Wait for the program, kill its descendants, then end the way it did. Never returns."""
    try:
        for number in (_SIGHUP, _SIGINT, _SIGTERM):
            handle(number, _IGNORE)
        ended, code, status = watch(pid, bounds)
        if ended and in_bwrap and code != os.CLD_EXITED:
            # A signal to the group ends bwrap's outer process at once. The program ends with its inner one, which is
            # a child of this process by now.
            for inner in children()[:1]:
                ended, code, status = watch(inner, bounds)
        kill_descendants()
        if not ended:
            status = _SIGXFSZ
        if in_bwrap and code == os.CLD_EXITED and status > _BWRAP_SIGNAL:
            code, status = os.CLD_KILLED, status - _BWRAP_SIGNAL
        if ended and code == os.CLD_EXITED:
            os._exit(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        handle(status, _DEFAULT)
        os.kill(os.getpid(), status)
    finally:  # without an exit code, which would mean that all descendants are gone
        os.kill(os.getpid(), _SIGKILL)


def watch(pid: int, bounds: "Bounds") -> "tuple[bool, int, int]":
    """Reap all children until `pid` ends: True, and its si_code and si_status. False once the run is over a bound."""
    pidfd = os.pidfd_open(pid)
    pause_s = _LOOK_EVERY_S
    while True:
        wait_readable(pidfd, pause_s)
        while True:  # of all children, so that none stays a zombie
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
            if ended is None:
                break
            if ended.si_pid == pid:
                os.close(pidfd)
                return True, ended.si_code, ended.si_status
        began = time.monotonic()
        if reason := bounds.exceeded():
            bounds.note(reason)
            return False, 0, 0
        pause_s = max(_LOOK_EVERY_S, 10 * (time.monotonic() - began))  # a run with many files doesn't keep us busy


def wait_readable(descriptor: int, seconds: float) -> None:
    """Do what select.poll does, by the library: importing that module would take longer."""
    ctypes.CDLL(None).poll(ctypes.byref(_PollFd(descriptor, 1, 0)), 1, int(seconds * 1000))


class _PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class Bounds:
    """What all processes of a run together may use: bytes, files and tasks. The kernel has no limit for that."""

    def __init__(self, job: str, limits: str) -> None:
        """`limits` as `apply_limits` takes them."""
        self._job = job
        numbers = {name: int(value) for name, _, value in (pair.partition("=") for pair in limits.split(","))}
        self._bytes, self._files = numbers["disk"], numbers["files"]
        self._tasks = numbers["nproc"] + _OWN_TASKS
        self._looks = 0
        self._tasks_before = tasks_of_machine()

    def exceeded(self) -> str:
        """Which bound the run is over: "disk", "files" or "processes"; else "".

        The processes are looked at only now and then, or when the machine has many more of them than at the start.
        """
        self._looks += 1
        used = Usage(self._bytes, self._files)
        used.add_folders(self._job)
        if not used.over and (
            self._looks % _PROCESSES_EVERY == 0 or tasks_of_machine() - self._tasks_before > self._tasks // 2
        ):
            pids, tasks = descendants()
            if tasks > self._tasks:
                return "processes"
            used.add_open_files(pids)
        return used.over

    def note(self, reason: str) -> None:
        """Write `JOB/stop`, unless core has: its reason came first."""
        try:
            stop = os.open(f"{self._job}/stop", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.write(stop, reason.encode())
            os.close(stop)
        except OSError:
            return  # there, or no room: the way that the supervisor ends says it too


class Usage:
    """Adds up the files of a run, until it is over one of the bounds."""

    def __init__(self, most_bytes: int, most_files: int) -> None:
        self.over = ""
        self._bytes, self._files = most_bytes, most_files
        self._seen: set[tuple[int, int]] = set()

    def add_folders(self, job: str) -> None:
        """The folders that the program may write to, and what it printed. A folder that can't be read is too much."""
        for name in ("run/output", "run/tmp", "printed"):
            try:
                path_fd = os.open(f"{job}/{name}", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                continue  # an earlier release had no such folder, or the program has replaced it
            try:
                self._add_path(path_fd)
            except FileNotFoundError:
                continue  # removed meanwhile
            except OSError:
                self.over = "files"
            finally:
                os.close(path_fd)

    def _add_path(self, path_fd: int) -> None:
        stat_result = os.fstat(path_fd)
        if stat_result.st_mode & 0o170000 != 0o040000:
            self._add(stat_result)
            return
        folder = os.open(f"/proc/self/fd/{path_fd}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        waiting = [folder]
        try:
            while waiting:
                here = waiting.pop()
                try:
                    waiting += self._add_folder(here)
                finally:
                    os.close(here)
        finally:
            for left in waiting:
                os.close(left)

    def _add_folder(self, folder: int) -> "list[int]":
        """Add what is in a folder, and return descriptors of the folders in it. Raises OSError."""
        found: list[int] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if self.over:
                    break
                try:
                    self._add(entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                        found.append(os.open(entry.name, flags, dir_fd=folder))
                except (FileNotFoundError, NotADirectoryError):
                    continue  # removed or replaced meanwhile
                except OSError:
                    self.over = "files"  # closed to its owner, or more folders than this process can open
        return found

    def add_open_files(self, pids: "list[int]") -> None:
        """Files that have no name any more, or never had one, but are open or mapped."""
        for pid in pids:
            try:
                for name in os.listdir(f"/proc/{pid}/fd"):
                    stat_result = os.stat(f"/proc/{pid}/fd/{name}")
                    if stat_result.st_nlink == 0 and stat_result.st_mode & 0o170000 == 0o100000:
                        self._add(stat_result)
            except OSError:
                continue  # it has ended
            if self.over:
                return

    def _add(self, stat_result: os.stat_result) -> None:
        identity = (stat_result.st_dev, stat_result.st_ino)
        if identity in self._seen:
            return
        self._seen.add(identity)
        self._bytes -= stat_result.st_blocks * 512
        self._files -= 1
        if self._bytes < 0 or self._files < 0:
            self.over = "disk" if self._bytes < 0 else "files"


def tasks_of_machine() -> int:
    """How many processes and threads this machine has."""
    with open("/proc/loadavg", encoding="ascii") as file:
        return int(file.read().split()[3].partition("/")[2])


def descendants() -> "tuple[list[int], int]":
    """Pids of all processes below this one, and how many tasks they have."""
    below: dict[int, list[tuple[int, int]]] = {}
    for pid, parent, tasks in processes():
        below.setdefault(parent, []).append((pid, tasks))
    found, total, waiting = [], 0, [os.getpid()]
    while waiting:
        for pid, tasks in below.get(waiting.pop(), ()):
            found.append(pid)
            total += tasks
            waiting.append(pid)
    return found, total


def processes() -> "list[tuple[int, int, int]]":
    """Pid, parent and number of tasks of each process. /proc/PID/task/TID/children may be incomplete."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        found.append((int(name), int(fields[1]), int(fields[17])))
    return found


def kill_descendants() -> None:
    """Kill all processes below this one, faster than they can fork, and reap them."""
    pause_s, is_first = 0.001, True
    while True:
        try:
            while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is not None:
                continue
        except ChildProcessError:
            return
        if is_first:  # bwrap's inner process ends by itself right now; to look for all processes would take longer
            is_first = False
            time.sleep(pause_s)
            continue
        try:  # noqa: SIM105 - importing contextlib would take as long as everything else
            os.setpriority(os.PRIO_PROCESS, 0, -20)
        except OSError:
            pass  # an ordinary user: there the kernel bounds their number
        for pid in descendants()[0]:
            try:
                os.kill(pid, _SIGKILL)
            except OSError:
                continue  # it has just ended
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.05)


def handle(number: int, handler: int) -> None:
    """Do what signal.signal does: importing that module would double the time that a launcher takes."""
    ctypes.CDLL(None).signal(number, ctypes.c_void_p(handler))


def children() -> "list[int]":
    """Pids of the children of this process."""
    own = os.getpid()
    return [pid for pid, parent, _ in processes() if parent == own]


def become(account: str) -> None:
    """Go on as `UID:GID:GROUP,GROUP...` if this isn't empty. Raises OSError."""
    if account:
        user, group, groups = account.split(":")
        os.setgroups([int(number) for number in groups.split(",") if number])
        os.setresgid(int(group), int(group), int(group))
        os.setresuid(int(user), int(user), int(user))


def apply_limits(limits: str) -> None:
    """Set each limit of `cpu=600,as=...`, or the highest that this account may set. The rest are those of `Bounds`."""
    for pair in limits.split(","):
        name, _, value = pair.partition("=")
        if name in ("disk", "files"):
            continue
        kind = getattr(resource, f"RLIMIT_{name.upper()}")
        wanted = int(value) + (tasks_of_this_account() if name == "nproc" else 0)
        _, ceiling = resource.getrlimit(kind)
        if ceiling != resource.RLIM_INFINITY:
            wanted = min(wanted, ceiling)
        # 5 s between SIGXCPU and SIGKILL; the other limits have no such second step.
        hard = wanted + 5 if name == "cpu" and ceiling == resource.RLIM_INFINITY else wanted
        resource.setrlimit(kind, (wanted, hard))


def confinement() -> "Callable[..., Sequence[str]]":
    """The function `apply` of `confine.py` beside this file."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, folder)
    import confine  # type: ignore[import-not-found]  # found in that folder only

    sys.path.remove(folder)
    apply: Callable[..., Sequence[str]] = confine.apply
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
