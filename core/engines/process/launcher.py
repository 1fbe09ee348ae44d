"""Starts a responder's program, and stays as its supervisor.

Core runs `python -E -s -S launch.py JOB FOLDER LIMITS RULESET PROGRAM...` with the environment of the program, in a
session of its own, with `JOB/printed` as its output and a pipe to core as descriptor STATUS_FD. FOLDER is the program's
working directory, RULESET as `confine.apply` takes it. LIMITS are words `NAME=NUMBER`: `disk_bytes`, `files` and
`processes` of the whole run, and those of the kernel for each process by their names in `resource`.

Each run waits for its launcher, so it imports little: nothing of core but the files beside it, and neither json nor
typing, contextlib nor signal, which import much.

It forks. The child becomes the program, in a session of its own. The parent stays as the supervisor: as a child
subreaper (PR_SET_CHILD_SUBREAPER) it adopts all processes that the program leaves behind, even those that began a new
session and cleared their environment. When the program has ended, it kills them and then ends the way the program did.
While the program runs, it looks ten times a second at what the run has written and how many tasks it has, which no
limit of the kernel bounds for all of its processes together.

Core relies on this:

- `JOB/gate` is locked while a launcher decides whether to start. Of two launchers for one job the second one waits,
  finds `started` and gives up: nothing runs twice, even if a core that has died sent the first one.
- `JOB/started` appears atomically and synced, before the program runs. It names the pids and start times (in clock
  ticks) of program and supervisor, and the boot id. A run has ended when its supervisor has.
- `JOB/stop` forbids the start. The supervisor that ends a run over a bound writes there which one.

No parent-death signal is set: a run and its supervisor outlive core.
"""

import _signal as signal  # type: ignore[import-not-found] # what `signal` wraps in enums
import ctypes
import fcntl
import os
import resource
import select
import sys
import time

STATUS_FD = 3
"""Where core reads what is written to `JOB/started`."""

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


class suppress:
    """As that of contextlib."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


def main(job: str, folder: str, limits_text: str, ruleset: str, *program: str) -> int:
    """Become the program. Returns an exit code only if that fails."""
    from confine import apply  # type: ignore[import-not-found]  # the file beside this one

    limits = {name: int(number) for name, _, number in (word.partition("=") for word in limits_text.split())}
    os.set_inheritable(STATUS_FD, False)
    close_inherited()
    os.umask(0o077)
    try:
        if not start(job, limits, in_bwrap=ruleset.startswith("bwrap ")):
            return ALREADY_STARTED
        os.chdir(folder)
        apply_limits(limits)
        program = apply(ruleset, program)
        os.execve(program[0], program, os.environ)  # noqa: S606 - without a shell
    except OSError as error:
        sentence = f"{program[0]} could not be started: {error.strerror}."
        print(sentence, file=sys.stderr)  # noqa: T201 - into JOB/printed
    return CANNOT_START


def close_inherited() -> None:
    """Close what was inherited from core, except standard streams and STATUS_FD: it is not for the responder."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > STATUS_FD:
            with suppress(OSError):  # the descriptor of this listing
                os.close(int(name))


def start(job: str, limits: dict[str, int], *, in_bwrap: bool) -> bool:
    """Fork. Returns True in the child, which is to become the program; False, without a fork, if it must not start.

    The parent stays as the supervisor and doesn't return. It writes the content of `JOB/started` to STATUS_FD and
    closes it. Raises OSError.
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
    with suppress(OSError):  # core may have died; the run outlives it
        os.write(STATUS_FD, record)
    os.close(STATUS_FD)
    os.write(release_end, b"1")
    os.close(release_end)
    supervise(pid, Bounds(job, limits), in_bwrap=in_bwrap)
    os._exit(CANNOT_START)


def lock_gate(job: str) -> int:
    """Lock `JOB/gate`. SIGALRM ends a launcher that waits too long, since the program may hold the lock."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    gate = os.open(f"{job}/gate", flags, 0o600)
    signal.alarm(_GATE_TIMEOUT_S)
    fcntl.flock(gate, fcntl.LOCK_EX)
    signal.alarm(0)
    return gate


def write_started(job: str, record: bytes) -> None:
    """Write `JOB/started` atomically. Raises OSError."""
    new = f"{job}/started.new"
    with suppress(FileNotFoundError):
        os.unlink(new)  # left by a launcher that died
    with open(new, "xb", buffering=0) as started:
        started.write(record)
        os.fsync(started)
    os.rename(new, f"{job}/started")
    directory = os.open(job, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)


def start_record(pid: int) -> bytes:
    """The content of `JOB/started`: one line of JSON."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    own = os.getpid()
    pids = f'"pid": {pid}, "pid_started": {ticks_of(pid)}, "supervisor": {own}, "supervisor_started": {ticks_of(own)}'
    return f'{{{pids}, "boot": "{boot}"}}\n'.encode()


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
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        ended, code, status = watch(pid, bounds)
        if ended and in_bwrap and code != os.CLD_EXITED:
            # A signal to the group ends bwrap's outer process at once. The program ends with its inner one, which is
            # a child of this process by now.
            for inner in children()[:1]:
                ended, code, status = watch(inner, bounds)
        kill_descendants()
        if not ended:
            status = signal.SIGXFSZ
        if in_bwrap and code == os.CLD_EXITED and status > _BWRAP_SIGNAL:
            code, status = os.CLD_KILLED, status - _BWRAP_SIGNAL
        if ended and code == os.CLD_EXITED:
            os._exit(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # SIGKILL has no other
            signal.signal(status, signal.SIG_DFL)
        os.kill(os.getpid(), status)
    finally:  # without an exit code, which would mean that all descendants are gone
        os.kill(os.getpid(), signal.SIGKILL)


def watch(pid: int, bounds: "Bounds") -> tuple[bool, int, int]:
    """Reap all children until `pid` ends: True, and its si_code and si_status. False once the run is over a bound."""
    pidfd = os.pidfd_open(pid)
    pause_s = _LOOK_EVERY_S
    while True:
        select.select([pidfd], [], [], pause_s)
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


class Bounds:
    """What all processes of a run together may use: bytes, files and tasks. The kernel has no limit for that."""

    def __init__(self, job: str, limits: dict[str, int]) -> None:
        self._job = job
        self._bytes, self._files = limits["disk_bytes"], limits["files"]
        self._tasks = limits["processes"] + _OWN_TASKS
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
        # Without room the way that the supervisor ends says it too.
        with suppress(OSError), open(f"{self._job}/stop", "x", encoding="ascii") as stop:
            stop.write(reason)


class Usage:
    """Adds up the files of a run, until it is over one of the bounds."""

    def __init__(self, most_bytes: int, most_files: int) -> None:
        self.over = ""
        self._bytes, self._files = most_bytes, most_files
        self._seen: set[tuple[int, int]] = set()

    def add_folders(self, job: str) -> None:
        """The folders that the program may write to, and what it printed. A folder that can't be read is too much."""
        for names in (("run", "output"), ("run", "tmp"), ("printed",)):
            try:
                path_fd = open_path(job, *names)
            except OSError:
                continue  # the program has replaced it
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
        folder = os.open(f"/proc/self/fd/{path_fd}", os.O_RDONLY | os.O_DIRECTORY)
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

    def _add_folder(self, folder: int) -> list[int]:
        """Add what is in a folder, and return descriptors of the folders in it. Raises OSError."""
        folders: list[int] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if self.over:
                    break
                try:
                    self._add(entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                        folders.append(os.open(entry.name, flags, dir_fd=folder))
                except (FileNotFoundError, NotADirectoryError):
                    continue  # removed or replaced meanwhile
                except OSError:
                    self.over = "files"  # closed to its owner, or more folders than this process can open
        return folders

    def add_open_files(self, pids: list[int]) -> None:
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


def open_path(job: str, *names: str) -> int:
    """An O_PATH descriptor of what `names` lead to. Raises OSError, also if a symlink leads there."""
    path_fd = os.open(job, os.O_PATH | os.O_NOFOLLOW)
    for name in names:
        parent = path_fd
        try:
            path_fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
        finally:
            os.close(parent)
    return path_fd


def tasks_of_machine() -> int:
    """How many processes and threads this machine has."""
    with open("/proc/loadavg", encoding="ascii") as file:
        return int(file.read().split()[3].partition("/")[2])


def descendants() -> tuple[list[int], int]:
    """Pids of all processes below this one, and how many tasks they have."""
    below: dict[int, list[tuple[int, int]]] = {}
    for pid, parent, tasks in processes():
        below.setdefault(parent, []).append((pid, tasks))
    pids, total, waiting = [], 0, [os.getpid()]
    while waiting:
        for pid, tasks in below.get(waiting.pop(), ()):
            pids.append(pid)
            total += tasks
            waiting.append(pid)
    return pids, total


def processes() -> list[tuple[int, int, int]]:
    """Pid, parent and number of tasks of each process. /proc/PID/task/TID/children may be incomplete."""
    listed = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        listed.append((int(name), int(fields[1]), int(fields[17])))
    return listed


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
        with suppress(OSError):  # an ordinary user: there the kernel bounds their number
            os.setpriority(os.PRIO_PROCESS, 0, -20)
        for pid in descendants()[0]:
            with suppress(OSError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.05)


def children() -> list[int]:
    """Pids of the children of this process."""
    own = os.getpid()
    return [pid for pid, parent, _ in processes() if parent == own]


def apply_limits(limits: dict[str, int]) -> None:
    """Set each limit of the kernel, or the highest that this account may set."""
    kernel = {name: limit for name, limit in limits.items() if name.startswith("RLIMIT_")}
    for name, limit in {**kernel, "RLIMIT_NPROC": limits["processes"] + tasks_of_this_account()}.items():
        kind = getattr(resource, name)
        _, ceiling = resource.getrlimit(kind)
        soft = limit if ceiling == resource.RLIM_INFINITY else min(limit, ceiling)
        # 5 s between SIGXCPU and SIGKILL; the other limits have no such second step.
        hard = soft + 5 if name == "RLIMIT_CPU" and ceiling == resource.RLIM_INFINITY else soft
        resource.setrlimit(kind, (soft, hard))


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
