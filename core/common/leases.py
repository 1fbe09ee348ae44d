"""Holders of leases. A lease is the right to follow actions or to send messages while its holder renews it."""

import os
import secrets

from core.common.process_identity import boot_id, read_stat


def new_holder() -> str:
    """A name for this process as a lease holder, never given twice.

    It is `<boot>/<pid namespace>:<pid>:<start time>:<random>`.
    """
    return f"{_pid_namespace()}:{os.getpid()}:{_start_time(os.getpid())}:{secrets.token_hex(16)}"


def is_dead(holder: str) -> bool:
    """Whether that process has certainly ended; False for one of another machine or container."""
    namespace, _, rest = holder.partition(":")
    pid, _, rest = rest.partition(":")
    started = rest.partition(":")[0]
    if not namespace or namespace != _pid_namespace() or not pid.isdigit():
        return False
    return _start_time(int(pid)) != started


def _pid_namespace() -> str:
    """This boot of this machine and this pid namespace; "" if the system doesn't tell."""
    try:
        return f"{boot_id()}/{os.readlink('/proc/self/ns/pid').removeprefix('pid:')}"
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """The start time of a process; "" when it has ended."""
    stat = read_stat(pid)
    return "" if stat is None or stat.state in "ZX" else str(stat.pid_started)
