"""A process of this host that holds leases, for what others do once it has ended."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HOLD = "from core.common.leases import new_holder; print(new_holder(), flush=True); input()"


class OtherProcess:
    """A process that lives until `end`; `holder` is its name as a lease holder."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.holder = process.stdout.readline().strip()
        self._process = process

    def end(self) -> None:
        """Kill it. Nobody reaps it, as where a container's first process doesn't."""
        self._process.kill()
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)


@contextmanager
def other_process() -> Iterator[OtherProcess]:
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield OtherProcess(process)
        finally:
            process.kill()
