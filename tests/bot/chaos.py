"""An installation for tests that kill it at random: responders of several kinds, and processes on the same files."""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bot.slack_emulator import SlackEmulator
from core.common.clock import now_ms
from core.common.database.location import Location
from core.models import Profile
from core.people import People
from tests import stores
from tests.bot.running import ANNA, BEN, LEA
from tests.bot.serving import ROOT
from tests.ports import free_port
from tests.responder_folders import write_responder

CHANNELS = tuple(f"C0SOC{number}" for number in range(6))
"""Several, since a channel takes one post a second; an alert's source decides on its channel."""
SOURCES = tuple(f"sensor{number}" for number in range(len(CHANNELS)))
MANY = 1_000
"""Operations of one run: enough for a kill to fall between two slices of them."""
LOGS = 2
START_S = 60.0
TRIGGER_S = 3.0

PROGRAM = '''
"""Counts its run in a file outside the job folder, then does what its kind does."""
import json, os, sys, time
from pathlib import Path

KIND, COUNTS = {kind!r}, Path({counts!r})
run = Path(sys.argv[1])
data = json.loads((run / "input" / "input.json").read_text())["data"]
target = data["id"]
with open(COUNTS / f"{{KIND}} {{target}}", "a") as counted:
    counted.write("one run\\n")
report = {{"success": True, "full": {{"message": f"{{KIND}} is done"}}, "operations": []}}
tag = [{{"type": "AddTagToAlert", "tag": f"{{KIND}}"}}]


def quick():
    report["operations"] = tag


def slow():
    time.sleep(0.3 + int(target[1:]) % 7 / 3)
    report["operations"] = tag


def long():
    report["full"]["text"] = "\\n".join(f"line {{n}} of the report" for n in range(300))


def many():
    report["operations"] = [{{"type": "CreateTask", "title": f"{{target}} {{n}}"}} for n in range({many})]


def logging():
    report["operations"] = [{{"type": "AddLogToTask", "content": f"{{target}} {{n}}"}} for n in range({logs})]


def approved():
    report["operations"] = [*tag, {{"type": "MarkAlertAsRead"}}]


def confirmed():
    report["operations"] = tag


def failing():
    report.update(success=False, errorMessage="The firewall said no.", operations=[])


def daemon():
    """Leaves a process that has a session of its own and nothing that marks it."""
    alive, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(told, str(os.getpid()).encode())
            os.closerange(0, 100)
            os.execve(sys.executable, [sys.executable, "-c", "import signal; signal.pause()"], {{}})
        os._exit(0)
    pid = int(os.read(alive, 100))
    began = open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[19]
    (COUNTS / f"daemon of {{target}}").write_text(f"{{pid}} {{began}}")


globals()[KIND.lower()]()
(run / "output" / "output.json").write_text(json.dumps(report))
'''

ON_ALERTS = ("Quick", "Slow", "Long", "Approved", "Confirmed", "Failing", "Daemon")
ON_CASES = ("Many",)
ON_TASKS = ("Logging",)
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "Approved": {"approval": 1},
    "Confirmed": {"confirm": "Blocks the host. It can be undone at the firewall."},
}

USERS: Sequence[tuple[str, Profile, str]] = (
    ("anna", "analyst", ANNA),
    ("ben", "analyst", BEN),
    ("lea", "org-admin", LEA),
    ("sensor", "source", ""),
    ("bot", "service", ""),
)


@dataclass
class Installation:
    """Settings, responders and users in a folder, and a local Slack to connect to."""

    folder: Path
    emulator: SlackEmulator
    keys: dict[str, str] = field(default_factory=dict)
    core_url: str = ""

    def any_core(self, chance: random.Random) -> str:
        """The address of a core; "" while none has said where it is."""
        return self.core_url

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return stores.rows(self.folder / "core.db", sql)

    def rows_of_inbox(self, sql: str) -> list[tuple[Any, ...]]:
        return stores.clicks(self.folder / "core.db", sql)

    @property
    def counts(self) -> Path:
        return self.folder / "counts"

    def counted(self, responder: str, object_id: str) -> int:
        """How often a responder's program ran on an object."""
        file = self.counts / f"{responder} {object_id}"
        return file.read_text().count("\n") if file.exists() else 0

    def environment(self) -> dict[str, str]:
        return {
            "SLACK_BOT_TOKEN": self.emulator.bot_token,
            "SLACK_APP_TOKEN": self.emulator.app_token,
            "SLACK_API_URL": self.emulator.api_url,
            "RESPONDER_BOT_BOT_CORE_API_KEY": self.keys["bot"],
            "PYTHONPATH": str(ROOT),
        }

    def logs(self) -> Iterator[tuple[str, str]]:
        """What each process logged."""
        for file in sorted(self.folder.glob("*.log")):
            yield file.name, file.read_text(errors="replace")

    def job_folders(self) -> list[Path]:
        """What stands where job folders are kept."""
        return list((self.folder / "jobs").glob("*/*"))

    def processes(self) -> list[str]:
        """Processes that work here, and the daemons of responders, if any lives."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    facts = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    if os.fsencode(self.folder) in facts + os.fsencode(os.readlink(entry / "cwd")):
                        found.append(f"{entry.name}: {(entry / 'cmdline').read_bytes().decode(errors='replace')}")
        for file in self.counts.glob("daemon of *"):
            pid, began = file.read_text().split()
            with suppress(OSError):
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19] == began:
                    found.append(f"{pid}: {file.name}")
        return found


async def installation(folder: Path, emulator: SlackEmulator) -> Installation:
    """Write the files, and add the users."""
    write_responders(folder)
    core = {"database": stores.setting(folder / "core.db")}
    (folder / "responder-bot.toml").write_text(settings_text(folder, free_port(), core=core))
    made = Installation(folder, emulator)
    await add_users(made, folder / "core.db", USERS)
    return made


async def add_users(made: Installation, path: Location, users: Sequence[tuple[str, Profile, str]]) -> None:
    """Add users with their names in Slack to core's database, and keep their keys."""
    async with stores.opened(path) as database:
        people = People(database, "responder-bot.local", now_ms)
        for name, profile, slack_id in users:
            made.keys[name] = await people.add(name, profile, slack_id=slack_id)


def write_responders(folder: Path) -> None:
    """Write a responder of each kind, and make the folder in which they count their runs."""
    (folder / "counts").mkdir()
    for kinds, data_type in ((ON_ALERTS, "alert"), (ON_CASES, "case"), (ON_TASKS, "case_task")):
        for kind in kinds:
            _responder(folder, kind, f"thehive:{data_type}")


def _responder(folder: Path, kind: str, data_type: str) -> None:
    program = PROGRAM.format(kind=kind, counts=str(folder / "counts"), many=MANY, logs=LOGS)
    write_responder(folder / "responders", kind, program, dataTypeList=[data_type])


def settings_text(
    folder: Path,
    port: int,
    *,
    address: str = "127.0.0.1",
    core: Mapping[str, str],
) -> str:
    """Settings with the responders in `folder`; `core` is added to its section."""
    lines = [
        "[core]",
        f"host = '{address}'",
        f"port = {port}",
        "confinement = 'none'",
        *(f"{key} = {json.dumps(value)}" for key, value in core.items()),
        "[bot]",
        f"core_url = 'http://{address}:{port}'",
        "allow_http = true",
    ]
    lines += [
        "[[engine]]",
        "name = 'local'",
        f"responders = ['{folder / 'responders'}']",
        f"python = '{sys.executable}'",
    ]
    for kind, policy in POLICIES.items():
        lines += [f'[responder."{kind}_1_0"]', *(f"{key} = {json.dumps(value)}" for key, value in policy.items())]
    for channel, source in zip(CHANNELS, SOURCES, strict=True):
        lines += [
            "[[channel]]",
            f"id = '{channel}'",
            "clearance = 'amber'",
            f"alerts = {{ sources = ['{source}'] }}",
            "group = false",
        ]
    return "\n".join(lines) + "\n"


Command = Literal["serve", "core", "bot"]
SAYS: Mapping[str, Sequence[str]] = {"serve": ("core: ", "bot: "), "core": ("core: ",), "bot": ("bot: ",)}


class BotProcess:
    """One process of `responder-bot`, from its start to its end."""

    def __init__(
        self, installed: Installation, process: asyncio.subprocess.Process, command: Command, *, wrapped: bool = False
    ) -> None:
        self._wrapped = wrapped
        self._installed, self._process, self._command = installed, process, command
        self.is_up = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        waits_for = list(SAYS[self._command])
        while line := (await self._process.stdout.readline()).decode():
            if line.startswith("core: "):
                self._installed.core_url = line.removeprefix("core: ").strip()
            waits_for = [start for start in waits_for if not line.startswith(start)]
            if not waits_for:
                self.is_up.set()

    @property
    def pid(self) -> int:
        """Its number: the only child's of a program that has started it elsewhere and waits for it, such as nsenter."""
        pid = self._process.pid
        if self._wrapped:
            with suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                return int(children[0]) if children else pid
        return pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    async def up(self) -> None:
        """Wait until it serves. Raises AssertionError where it ends before."""
        serving, ended = asyncio.create_task(self.is_up.wait()), asyncio.create_task(self._process.wait())
        async with asyncio.timeout(START_S):
            await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        assert self.is_up.is_set(), f"{self._command} ended with {self._process.returncode}"
        ended.cancel()

    async def kill(self) -> None:
        """SIGKILL. Raises AssertionError where it had ended before."""
        assert self._process.returncode is None, f"{self._command} ended by itself with {self._process.returncode}"
        os.kill(self.pid, signal.SIGKILL)
        await self.ended()

    async def stop(self) -> int:
        """SIGTERM; gives the exit code."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Wait for its end; gives the exit code."""
        code = await self._process.wait()
        await self._reader
        return code


async def start_process(installed: Installation, command: Command, wrapper: Sequence[str] = ()) -> BotProcess:
    """Start a process; `wrapper` is a command that runs the command after it as its child."""
    with (installed.folder / f"{command}-{os.urandom(3).hex()}.log").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(*wrapper, sys.executable, "-m", "bot.cli", command),
            cwd=installed.folder,
            env={**os.environ, **installed.environment()},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    return BotProcess(installed, process, command, wrapped=bool(wrapper))


KillTrigger = Callable[[], Awaitable[object]]
"""Returns when something begins that a kill may fall into."""


class Killer:
    """Keeps processes of one kind alive, and kills each at a random moment of its life, until there were enough."""

    def __init__(
        self,
        installed: Installation,
        command: Command,
        chance: random.Random,
        kills: int,
        triggers: Sequence[KillTrigger],
    ) -> None:
        self._installed, self._command, self._chance = installed, command, chance
        self._wanted = kills
        self._triggers = triggers
        self.kills = 0
        self.last: BotProcess | None = None
        self._start_s = 2.0
        """How long the newest start took; on a busy machine most of it is spent on imports."""

    async def run(self) -> None:
        """Returns with one that lives on as `last`."""
        loop = asyncio.get_running_loop()
        while self.kills < self._wanted:
            began = loop.time()
            self.last = await start_process(self._installed, self._command)
            if self._chance.random() < 0.2:  # while it comes up
                await asyncio.sleep(self._chance.uniform(0.75, 1.05) * self._start_s)
            else:
                await self.last.up()
                self._start_s = loop.time() - began
                await self._wait_for_trigger()
            await self.last.kill()
            self.kills += 1
        self.last = await start_process(self._installed, self._command)
        await self.last.up()

    async def _wait_for_trigger(self) -> None:
        """Any, or just after one of those that matter."""
        await asyncio.sleep(self._chance.uniform(0.0, 1.5))
        if self._chance.random() < 0.7:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._chance.choice(self._triggers)(), TRIGGER_S)
            await asyncio.sleep(self._chance.choice((0.0, 0.005, 0.02, 0.05, 0.2)))

    async def stop(self) -> int:
        """SIGTERM for the last one; gives its exit code."""
        assert self.last is not None
        return await self.last.stop()

    async def close(self) -> None:
        """Leave nothing behind, however the test went."""
        if self.last is not None:
            await self.last.stop()
