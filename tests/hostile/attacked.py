"""Runs every attempt of `attacker.py` in one mode, as whoever starts this, and prints what came of each as JSON.

    python -m tests.hostile.attacked FOLDER MODE PYTHON

A program of its own, since it also has to run as an ordinary user, with the interpreter that this one can reach.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.engines.base import Report
from core.engines.confinement import Mode
from core.engines.process.engine import ProcessEngine, RunLimits
from core.engines.run_report import LIMIT_MESSAGES
from core.settings import ResponderSection
from tests.core.engines.process.conftest import job_for
from tests.core.engines.process.engines import engine_in

MODES: tuple[Mode, ...] = ("landlock", "bwrap")

OFFLINE = ("connect by IPv4", "connect by IPv6", "send by UDP")
"""Attempts that only `network = "none"` refuses."""

SLEEP = "86397"

ENDED_BY = {
    "fill the disk": "disk",
    "fill the disk with files without names": "disk",
    "fill the disk by maps": "disk",
    "fill the memory with files": "disk",
    "make many files": "files",
    "make deep folders": "files",
}
"""Attempts that the supervisor ends, and the bound."""

UNREADABLE = ("a link as output", "a named pipe as output", "a folder as output")

SLOW = (*ENDED_BY, "fork without end", "leave a daemon", "poison HOME and variables", *UNREADABLE)


def responders_in(root: Path) -> None:
    for name in ("Offline", "Online", "Other"):
        (root / name).mkdir(parents=True)
        program = Path(__file__).with_name("attacker.py").read_text()
        (root / name / "attacker.py").write_text(program)
        definition = {
            "name": name, "version": "1.0", "author": "tests", "url": "", "license": "Apache-2.0",
            "description": "Attacks", "dataTypeList": ["thehive:alert"], "command": f"{name}/attacker.py",
            "baseConfig": name, "configurationItems": [],
        }  # fmt: skip
        (root / name / f"{name}.json").write_text(json.dumps(definition))


class Attacked:
    """What a responder should not reach: files, a process, sockets, the engine in this process."""

    def __init__(self, folder: Path, mode: Mode, python: Path) -> None:
        self.folder, self._mode, self._python = folder, mode, python
        self._number = 0
        self._facts: dict[str, Any] = {}

    async def outcomes(self, quick: list[str]) -> dict[str, str]:
        """What came of each attempt: an error's name, "ended" by the supervisor, or what went wrong."""
        found: dict[str, str] = {}
        with self._world():
            engine = self._engine()
            try:
                for name, names in (("Online", [one for one in quick if one not in OFFLINE]), ("Offline", quick)):
                    report = await self._run(engine, name, "quick", names=names)
                    if not report.success:
                        raise RuntimeError(report.message)
                    for attempt, outcome in report.full["found"].items():
                        found[attempt] = max(found.get(attempt, ""), outcome)  # "done" sorts last
                for attempt in SLOW:
                    found[attempt] = await self._slow(engine, attempt)
                    clean = await self._run(engine, "Offline", "nothing")
                    if not clean.success or clean.full["planted"]:
                        found[attempt] = f"the next run: {clean.message or 'something was planted'}"
                self._look_round(found)
            finally:
                await engine.close()
        return found

    def _engine(self) -> ProcessEngine:
        state = self.folder / "state"
        return engine_in(
            state,
            folders=(self.folder / "responders",),
            confinement=self._mode,
            python=self._python,
            limits=RunLimits(disk_bytes=20 * 1024**2, files=500, processes=40),
            sections={"Offline_1_0": ResponderSection(network="none"), "Online_1_0": ResponderSection()},
        )

    @contextmanager
    def _world(self) -> Iterator[None]:
        (self.folder / "responder-bot.toml").write_text("token")
        (self.folder / "core.db").write_text("rows")
        for path in ("environment/secret.py", "home/.ssh/id", "state/jobs/local-99/run/input/input.json"):
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text("token")
        responders_in(self.folder / "responders")
        os.environ["TOKEN"] = "xoxb-secret"
        victim = subprocess.Popen(["sleep", "600"])
        abstract = f"\0responder-bot-{os.getpid()}"
        with (
            socket.create_server(("127.0.0.1", 0)) as tcp,
            socket.socket(socket.AF_UNIX) as local,
            socket.socket(socket.AF_UNIX) as unnamed,
        ):
            local.bind(str(self.folder / "socket"))
            local.listen()
            unnamed.bind(abstract)
            unnamed.listen()
            self._facts = {
                "place": str(self.folder),
                "victim": victim.pid,
                "core": os.getpid(),
                "abstract": abstract,
                "port": tcp.getsockname()[1],
                "sleep": SLEEP,
            }
            try:
                yield
            finally:
                self._facts["victim ended"] = victim.poll()
                victim.kill()
                victim.wait()

    async def _run(self, engine: ProcessEngine, name: str, attempt: str, **more: Any) -> Report:
        self._number += 1
        job = await job_for(
            engine, f"{name}_1_0", action_id=f"~{self._number}", attempt=attempt, **{**self._facts, **more}
        )
        report = await engine.run(job, _ignore)
        await engine.clean_up(job.run_id)
        return report

    async def _slow(self, engine: ProcessEngine, attempt: str) -> str:
        report = await self._run(engine, "Offline", attempt)
        if attempt in ENDED_BY:
            return "ended" if report.message == LIMIT_MESSAGES[ENDED_BY[attempt]] else f"not ended: {report.message}"
        if attempt in UNREADABLE:
            is_refused = not report.success and "output/output.json that can't be read" in report.message
            return "refused" if is_refused and "token" not in repr(report) else f"read: {report.message}"
        if attempt == "fork without end" and report.message == LIMIT_MESSAGES["processes"]:
            return "ended"
        if not report.success:
            return f"broken: {report.message}"
        return {"fork without end": "EAGAIN", "leave a daemon": "killed"}.get(attempt, "no effect")

    def _look_round(self, found: dict[str, str]) -> None:
        """Add what an attempt has changed though it seemed to be refused."""
        left = [line for line in _command_lines() if SLEEP in line]
        if left:
            found["leave a daemon"] = f"left: {left}"
        if (self.folder / "responder-bot.toml").read_text() != "token":
            found["write the settings"] = "changed"
        if (self.folder / "core.db").read_text() != "rows":
            found["write the database"] = "changed"


def _command_lines() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue


async def _ignore(_progress: object) -> None:
    return None


def main() -> None:
    folder, given, python, names = sys.argv[1:5]
    mode = next(mode for mode in MODES if mode == given)
    os.umask(0o077)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    found = asyncio.run(Attacked(Path(folder), mode, Path(python)).outcomes(json.loads(names)))
    print(json.dumps(found))  # noqa: T201 - for test_attempts.py


if __name__ == "__main__":
    main()
