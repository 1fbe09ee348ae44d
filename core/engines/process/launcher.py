"""Becomes a responder's program: limits, `JOB/started` with a lock on it, then exec.

Core starts it by `python -I -S launcher.py JOB STATUS_FD CWD LIMITS PROGRAM...` with the responder's environment, in a
session of its own, its output going to `JOB/printed`. It imports nothing of core and little else, since every run waits
for it.

What a later core may rely on (`responder-process.md 2`):

- `JOB/gate` is locked while a launcher decides. Two launchers for one job are served one after the other, and the
  second finds `started` and gives up: nothing runs twice, even when the first was sent off by a core that died.
- `JOB/started` appears whole (written, synced, renamed), with pid, start time in ticks, boot id and time of day.
- A lock (flock) on that file is held through exec, so it ends with the program. Children get it too when the program
  forks without closing descriptors, and a program may close it: so a held lock means "something of this run may live",
  while pid and start time say whether the program itself lives. Only the latter decides between adopt and collect.
- `JOB/stop` forbids the start.

Nothing here asks for a signal when core dies: a run must outlive core.
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
"""Exit code when the program could not be executed; the reason goes to STATUS_FD and to `JOB/printed`."""


def main(arguments: list[str]) -> int:
    """Start the program; returns only if that can't be done."""
    job, status_text, folder, limits, *program = arguments
    status = int(status_text)
    os.set_inheritable(status, False)
    close_all_but(status)
    try:
        os.umask(0o077)
        if not announce(job):
            return ALREADY_STARTED
        os.chdir(folder)
        apply_limits(limits)
        forbid_new_privileges()
        os.execve(program[0], program, os.environ)  # noqa: S606 - becoming that program is the purpose; there is no shell
    except OSError as error:
        sentence = f"{program[0]} could not be started: {error.strerror}."
        print(sentence, file=sys.stderr)  # noqa: T201 - this is the file of what the run printed
        os.write(status, sentence.encode())
    return CANNOT_START


def close_all_but(status: int) -> None:
    """Whatever core has open and forgot to keep to itself is none of a responder's business."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != status:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself


def announce(job: str) -> bool:
    """Write `JOB/started` and hold its lock, unless that was done before or the job was stopped."""
    gate = os.open(f"{job}/gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(gate, fcntl.LOCK_EX)
    if os.path.exists(f"{job}/started") or os.path.exists(f"{job}/stop"):
        return False
    started = os.open(f"{job}/started.new", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    fcntl.flock(started, fcntl.LOCK_EX)
    os.write(started, facts().encode())
    os.fsync(started)
    os.rename(f"{job}/started.new", f"{job}/started")
    directory = os.open(job, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)
    os.set_inheritable(started, True)
    os.close(gate)
    return True


def facts() -> str:
    """One JSON object, written by hand since the json module would double the time this takes."""
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return f'{{"pid": {os.getpid()}, "pid_started": {ticks}, "boot": "{boot}", "at": {time.time():.3f}}}\n'


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
