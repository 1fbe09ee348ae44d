"""A core as a process of its own, over real HTTP, for tests that kill it, stop it, or start two on one file."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx

from core.client import CoreClient
from core.common.clock import now_ms
from core.models import Action, Profile
from core.people import People
from tests import programs, stores, templates
from tests.programs import AnyProcess
from tests.responder_folders import write_responder

ROOT = Path(__file__).parents[2]
POLL_INTERVAL_S = 0.01  # changes of another process can only be polled
POLL_TIMEOUT_S = 60.0

T = TypeVar("T")

STEPWISE = '''
"""Does the steps in its parameters, in order; `count` counts its runs in a file."""
import json, os, signal, sys, time

job = sys.argv[1]
with open(f"{job}/input/input.json") as file:
    asked = json.load(file)["parameters"]


def count():
    if "runs" in asked:
        with open(asked["runs"], "a") as runs:
            runs.write("one run\\n")


def write(message="done"):
    report = {"success": True, "full": {"message": message}, "operations": asked.get("operations", [])}
    with open(f"{job}/output/output.json", "w") as file:
        file.write(json.dumps(report))


def notify(pipe, text="here"):
    with open(pipe, "w") as file:
        file.write(f"{text}\\n")


def wait(pipe):
    with open(pipe) as file:
        file.readline()


def sleep(seconds):
    time.sleep(float(seconds))


def end_at_second_sigterm(pipe):
    """Writes to the pipe at the first SIGTERM, and ends at the second."""
    def on_first(*_):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        notify(pipe)
    signal.signal(signal.SIGTERM, on_first)


def child(pipe):
    """Starts a child that never ends, and writes its pid to the pipe."""
    pid = os.fork()
    if not pid:
        while True:
            signal.pause()
    notify(pipe, pid)


for step in asked.get("steps", ["count", "write"]):
    name, _, value = step.partition(" ")
    globals()[name](*([value] if value else []))
'''
"""A responder's program that does the steps in its parameters."""


@dataclass
class CoreSetup:
    """A folder with settings, responders and users for cores on one database file."""

    folder: Path
    keys: dict[str, str] = field(default_factory=dict)
    shared: Path | None = None
    """The database, if it is that of another setup."""

    @property
    def database(self) -> Path:
        return self.shared or self.folder / "core.db"

    def job(self, action: Action, engine: str = "local") -> Path:
        """The job folder of an action."""
        return self.folder / "jobs" / engine / action.engine_job_id

    def runs(self, name: str) -> Path:
        return self.folder / f"{name}.runs"

    def counted(self, name: str) -> int:
        """How often the program of this name has run."""
        return self.runs(name).read_text().count("\n") if self.runs(name).exists() else 0

    async def users(self, *users: tuple[str, Profile]) -> None:
        await templates.copy_to(stores.location(self.database), audited=False)
        async with stores.opened(self.database) as database:
            people = People(database, "example.org", now_ms)
            for name, profile in users:
                self.keys[name] = await people.add(name, profile)


ANALYSTS: tuple[tuple[str, Profile], ...] = (("anna", "analyst"), ("ben", "analyst"), ("lead", "org-admin"))


async def setup_in(
    folder: Path,
    *,
    responders: Mapping[str, Mapping[str, Any]] | None = None,
    engines: Sequence[Mapping[str, Any]] = (),
    beside: CoreSetup | None = None,
    **core: Any,
) -> CoreSetup:
    """Settings with a `local` engine, further `engines`, and Stepwise responders `<name>_1_0`.

    `responders` gives each one's section; `core` is what differs in `[core]`. With `beside` it is another host on the
    database, and with the users, of that setup.
    """
    root = folder / "responders"
    names = responders if responders is not None else {"Stepwise": {}}
    for name in names:
        stepwise(root, name)
    local = {"name": "local", "responders": [str(root)], "python": sys.executable}
    # Programs of these tests write to pipes and count their runs outside their job folders.
    lines = ["[core]", "port = 0", *_pairs({"confinement": "none", **core})]
    for engine in (local, *engines):
        lines += ["[[engine]]", *_pairs(engine)]
    for name, section in names.items():
        lines += [f'[responder."{name}_1_0"]', *_pairs({key: v for key, v in section.items() if key != "config"})]
        lines += [f'[responder."{name}_1_0".config]', *_pairs(section.get("config", {}))]
    setup = CoreSetup(folder) if beside is None else CoreSetup(folder, beside.keys, beside.database)
    lines[1:1] = _pairs({"database": stores.setting(setup.database)})
    (folder / "settings.toml").write_text("\n".join(lines) + "\n")
    if beside is None:
        await setup.users(*ANALYSTS)
    return setup


async def hosts_in(folder: Path, names: Sequence[str], **options: Any) -> list[CoreSetup]:
    """A setup for each of several hosts on one database, with folders of their own; `options` as of `setup_in`."""
    setups: list[CoreSetup] = []
    for name in names:
        (folder / name).mkdir()
        beside = setups[0] if setups else None
        setups.append(await setup_in(folder / name, beside=beside, host_name=name, **options))
    return setups


def stepwise(root: Path, name: str) -> None:
    """Write the responder `<name>_1_0`, whose program is STEPWISE."""
    write_responder(root, name, STEPWISE, dataTypeList=["thehive:alert", "thehive:case"])


def _pairs(values: Mapping[str, Any]) -> list[str]:
    """TOML of plain values: JSON's strings, numbers, booleans and lists are TOML's too."""
    return [f"{key} = {json.dumps(value)}" for key, value in values.items()]


@dataclass
class CoreProcess:
    """A core that runs as `responder-bot core` does."""

    setup: CoreSetup
    process: AnyProcess
    url: str
    log: Path
    clients: dict[str, CoreClient] = field(default_factory=dict)

    def client(self, name: str = "anna") -> CoreClient:
        """Core's own client, with the key of one of the users."""
        if name not in self.clients:
            self.clients[name] = CoreClient(self.url, self.setup.keys[name], timeout_s=30)
        return self.clients[name]

    async def kill(self) -> None:
        """Send SIGKILL."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def lists_hosts(self, **states: str) -> None:
        """Return once core lists exactly these hosts with these states."""
        async with asyncio.timeout(POLL_TIMEOUT_S):
            while {host["name"]: host["state"] for host in await self.hosts()} != states:  # noqa: ASYNC110
                await asyncio.sleep(POLL_INTERVAL_S)

    async def hosts(self) -> list[dict[str, Any]]:
        """The hosts as an org-admin sees them."""
        found: list[dict[str, Any]] = (await self.send("GET", "/api/host")).json()
        return found

    async def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """The answer to a request of an org-admin."""
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {self.setup.keys['lead']}"}) as client:
            return await client.request(method, f"{self.url}{path}", json=body)

    async def ended(self, action_id: str, name: str = "anna") -> Action:
        """The action, once it has ended."""
        while True:
            action = await self.client(name).action(action_id, wait_s=20)
            if action.end_date is not None:
                return action

    async def running(self, action_id: str) -> Action:
        """The action, once it is known to run."""
        while True:
            action = await self.client().action(action_id)
            if action.status != "Waiting":
                return action
            await self.client().action(action_id, wait_s=20)


@asynccontextmanager
async def core_process(
    setup: CoreSetup, name: str = "core", *, wrapper: Sequence[str] = (), code: Path = ROOT
) -> AsyncIterator[CoreProcess]:
    """Start a core on the settings of `setup`; at the end it is killed, if it still lives.

    `wrapper` is a command that executes the command after it, `code` the folder of another release.
    """
    log = setup.folder / f"{name}-{os.urandom(2).hex()}.log"
    with log.open("wb") as errors:
        args = ("core.cli", "core", "--config", str(setup.folder / "settings.toml"))
        environment = {**os.environ, "PYTHONPATH": str(code)}
        process: AnyProcess
        if wrapper or code != ROOT:
            command = (*wrapper, sys.executable, "-m", *args)
            process = await asyncio.create_subprocess_exec(
                *command, cwd=code, env=environment, stdout=asyncio.subprocess.PIPE, stderr=errors
            )
        else:
            process = await programs.start(
                *args, env=environment, stdout=asyncio.subprocess.PIPE, stderr=errors.fileno()
            )
    core = CoreProcess(setup, process, "", log)
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        assert line.startswith("core: "), log.read_text()
        core.url = line.removeprefix("core: ").strip()
        yield core
    finally:
        for client in core.clients.values():
            await client.close()
        await core.kill()


async def until(poll: Callable[[], T | None], what: str) -> T:
    """Poll until `poll` returns something true, and return that."""
    try:
        async with asyncio.timeout(POLL_TIMEOUT_S):
            while not (found := poll()):  # noqa: ASYNC110 - see POLL_INTERVAL_S
                await asyncio.sleep(POLL_INTERVAL_S)
            return found
    except TimeoutError:
        raise AssertionError(f"{what} did not happen within a minute") from None


async def write_pipe(fifo: Path, text: str = "go\n") -> None:
    """Wait for a reader of this named pipe, write a text to it, and close it."""
    descriptor = await open_pipe_for_writing(fifo)
    os.write(descriptor, text.encode())
    os.close(descriptor)


async def open_pipe_for_writing(fifo: Path) -> int:
    """Wait for a reader of a named pipe. The reader waits until the descriptor that is returned is closed."""

    def opened() -> int | None:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads yet
            return None

    return await until(opened, f"a reader of {fifo}")


ALERT: Mapping[str, Any] = {"type": "siem", "source": "tests", "sourceRef": "1", "title": "t", "description": "d"}


async def alert_in(core: CoreProcess, ref: str = "1") -> str:
    """The id of a new alert."""
    return (await core.client("lead").create_alert({**ALERT, "sourceRef": ref})).id


def run_body(alert_id: str, responder: str = "Stepwise_1_0", **more: Any) -> dict[str, Any]:
    """The body of a run on an alert."""
    return {"responderId": responder, "objectType": "alert", "objectId": alert_id, **more}


def counting(setup: CoreSetup, name: str, *steps: str) -> dict[str, Any]:
    """The parameters of a Stepwise run that is counted under a name and does these steps."""
    return {"parameters": {"runs": str(setup.runs(name)), "steps": ["count", *steps, "write"]}}


async def held(core: CoreProcess, alert_id: str, pipe: Path) -> Action:
    """A run, counted under the pipe's name, whose program ends once something is written to this new named pipe."""
    os.mkfifo(pipe)
    return await core.client().run(run_body(alert_id, **counting(core.setup, pipe.stem, f"wait {pipe}")))


async def events_of(core: CoreProcess, action_id: str) -> list[str]:
    """The types of an action's events, in order, from the beginning of the feed."""
    after, types = 0, list[str]()
    while True:
        page = await core.client().events(after, 0)
        if not page.events:
            return types
        types += [event.type for event in page.events if event.object_id == action_id]
        after = page.last
