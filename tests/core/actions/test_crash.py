"""Core is killed at each point of an action's life; the next core ends every action and runs nothing twice.

One core is brought to all points at once, each with an action of its own, and killed; then another starts on the same
files. Each row of the table is a test.
"""

import asyncio
import fcntl
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from core.engines.process.processes import StartRecord, pidfd_if_alive, wait_readable
from core.models import Action
from core.reports.operations import SLICE_SIZE
from tests import stores
from tests.core.core_process import (
    CoreProcess,
    CoreSetup,
    alert_in,
    core_process,
    events_of,
    open_pipe_for_writing,
    run_body,
    setup_in,
    until,
    write_pipe,
)
from tests.fake_cortex import DelayedAnswer, FakeCortex

SLOTS = 9
"""Slots of the local engine: one for each row that needs one, so that one more action has to wait."""


def once(point: str) -> list[dict[str, str]]:
    """Operations of a run: the first two are applied, the third fails."""
    return [
        {"type": "AddTagToAlert", "tag": "seen"},
        {"type": "AddArtifactToAlert", "dataType": "other", "data": point},
        {"type": "CreateTask", "title": "not here"},
    ]


@dataclass(frozen=True)
class ActionOutcome:
    """The outcome of one action."""

    found: str
    """The status that the killed core had stored."""
    action: Action
    runs: int
    """How often its program ran."""
    events: list[str]

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.action.report)
        return report

    @property
    def message(self) -> str:
        return str(self.report["message"])


@dataclass
class Scene:
    """The state that the steps of the scenario share."""

    setup: CoreSetup
    cortex: FakeCortex
    alert: str = ""
    actions: dict[str, Action] = field(default_factory=dict)
    gate: int = -1
    """The descriptor whose lock holds launchers at their gate."""

    def pipe(self, name: str) -> Path:
        """A named pipe, made at the first call."""
        path = self.setup.folder / name.replace(" ", "_")
        if not path.exists():
            os.mkfifo(path)
        return path

    async def run(
        self, core: CoreProcess, point: str, *steps: str, responder: str = "Stepwise_1_0", **more: Any
    ) -> None:
        """Start the action of one row; `steps` may name the row's own pipes as `notify` and `wait`."""
        pipes = {"notify": self.pipe(f"{point} notify"), "wait": self.pipe(f"{point} wait")}
        for name in ("end_at_second_sigterm", "child"):
            pipes[name] = pipes["notify"]
        commands = [f"{step} {pipes[step]}" if step in pipes else step for step in steps or ("count", "write")]
        body = run_body(self.alert, responder)
        body["parameters"] = {"runs": str(self.setup.runs(point)), "steps": commands, "operations": once(point)}
        self.actions[point] = await core.client().run(body)

    async def notified(self, point: str) -> None:
        """Wait until the program of a row writes to its pipe."""
        await asyncio.to_thread(self.pipe(f"{point} notify").read_text)

    async def go(self, point: str) -> None:
        """Let the program of a row go on."""
        await write_pipe(self.pipe(f"{point} wait"))

    def job(self, point: str) -> Path:
        return self.setup.job(self.actions[point])

    def started(self, point: str) -> StartRecord | None:
        return StartRecord.read(self.job(point) / "started")

    def status(self, point: str) -> str:
        """The stored status, read without a core."""
        found = dict(stores.rows(self.setup.database, "SELECT id, status FROM action"))
        return str(found[int(self.actions[point].id[1:])])


async def program_ended(started: StartRecord | None) -> None:
    """Wait for the end of a program, whichever process is its parent by now."""
    assert started is not None
    watch = pidfd_if_alive(started)
    if watch is not None:
        await wait_readable(watch)
        os.close(watch)


# --- before the kill --------------------------------------------------------------------------------------------------

ENDED = "the end was stored"
HALF = "handed over, its job folder half written"
GATE = "job folder written, launcher at its gate"
SILENT = "its program runs, its start is not stored"
STARTED = "its program has started and done nothing yet"
RUNNING = "its program runs"
EARLY = "its output is written, its program runs on"
ALONE = "its program ends while no core looks"
READ = "its program has ended, its end is not stored"
STOPPING = "cancelled, its program is about to end"
QUEUED = "recorded, waiting for its turn"
ASKING = "recorded, waiting for approval"
UNANSWERED = "the remote engine has it and has not answered"
REMOTE = "the remote engine runs it"
REMOTE_ALONE = "the remote engine ends it while no core looks"

LOCAL_PIPES = {HALF: "half.pem", GATE: "gate.pem", SILENT: "silent.pem"}
"""A certificate file that is a pipe holds core where it copies it into the job folder."""


async def to_all_points(scene: Scene, core: CoreProcess) -> Callable[[], None]:
    """Bring one action to each point; returns a function that releases the database lock."""
    await scene.run(core, ENDED)
    await core.ended(scene.actions[ENDED].id)
    remote = asyncio.create_task(to_the_remote_points(scene, core))
    await scene.run(core, ASKING, responder="Asking_1_0")
    await scene.run(core, HALF, responder="Half_1_0")
    await scene.run(core, GATE, responder="Gate_1_0")
    await scene.run(core, SILENT, "count", "notify", "wait", "write", responder="Silent_1_0")
    await scene.run(core, STARTED, "wait", "count", "write")
    await scene.run(core, RUNNING, "count", "notify", "wait", "write")
    await scene.run(core, EARLY, "count", "write early", "notify", "wait", "write")
    await scene.run(core, ALONE, "count", "notify", "wait", "write")
    await scene.run(core, READ, "count", "notify", "wait", "write")
    await scene.run(core, STOPPING, "end_at_second_sigterm", "count", "notify", "wait", "write")
    for point in (RUNNING, EARLY, ALONE, READ, STOPPING):
        await scene.notified(point)
        await core.running(scene.actions[point].id)
    await core.running(scene.actions[STARTED].id)
    await scene.run(core, QUEUED)
    await remote
    half = await open_pipe_for_writing(scene.pipe(LOCAL_PIPES[HALF]))
    await hold_the_gate(scene)
    cancelling = asyncio.create_task(core.client().cancel(scene.actions[STOPPING].id))
    await scene.notified(STOPPING)  # it has got SIGTERM; core is killed before it can store the end
    lock = stores.hold(scene.setup.database)
    await write_pipe(scene.pipe(LOCAL_PIPES[SILENT]))
    await scene.notified(SILENT)
    await scene.go(READ)
    started = scene.started(READ)
    assert started is not None
    await until(lambda: not Path(f"/proc/{started.pid}").exists(), "core collecting the program")

    def release() -> None:
        cancelling.cancel()
        lock.close()
        os.close(half)

    return release


async def hold_the_gate(scene: Scene) -> None:
    """Let the job folder be written, and hold its launcher at the gate."""
    reader = await open_pipe_for_writing(scene.pipe(LOCAL_PIPES[GATE]))
    setup = scene.job(GATE)
    (half,) = setup.parent.glob(f".{setup.name}.*")
    scene.gate = os.open(half / "gate", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(scene.gate, fcntl.LOCK_EX)
    os.close(reader)
    await launchers_at_the_gate(scene, 1)


async def launchers_at_the_gate(scene: Scene, number: int) -> None:
    inode = f":{os.fstat(scene.gate).st_ino} "

    def waiting() -> bool:
        locks = Path("/proc/locks").read_text().splitlines()
        return sum("-> FLOCK" in line and inode in line for line in locks) == number

    await until(waiting, f"{number} launchers at the gate")


async def to_the_remote_points(scene: Scene, core: CoreProcess) -> None:
    for point in (REMOTE, REMOTE_ALONE):
        await scene.run(core, point, responder="Blocker_1_0")
        await scene.cortex.begin(scene.actions[point].engine_job_id)
    scene.cortex.behave("run", DelayedAnswer(asyncio.Event(), done=True))
    await asyncio.gather(
        scene.run(core, UNANSWERED, responder="Blocker_1_0"),
        *(core.running(scene.actions[point].id) for point in (REMOTE, REMOTE_ALONE)),
    )


# --- after the kill ---------------------------------------------------------------------------------------------------


async def while_no_core_looks(scene: Scene) -> None:
    await scene.go(ALONE)
    await program_ended(scene.started(ALONE))
    await scene.cortex.succeed(scene.actions[REMOTE_ALONE].engine_job_id, operations=once(REMOTE_ALONE))


async def to_the_ends(scene: Scene, core: CoreProcess) -> None:
    """Let all actions that the next core found go on to their ends."""
    for pipe in (HALF, GATE):
        await write_pipe(scene.pipe(LOCAL_PIPES[pipe]))
    await launchers_at_the_gate(scene, 2)  # of the killed core and of the next one
    os.close(scene.gate)
    for point in (SILENT, STARTED, RUNNING, EARLY):
        await scene.go(point)
    await core.client("ben").approve(scene.actions[ASKING].id)
    (lost,) = (
        job for job in scene.cortex.jobs.values() if job.body["label"].startswith(f"{scene.actions[UNANSWERED].id}-")
    )
    for point, job_id in ((REMOTE, scene.actions[REMOTE].engine_job_id), (UNANSWERED, lost.id)):
        await scene.cortex.succeed(job_id, operations=once(point))


async def row(scene: Scene, core: CoreProcess, point: str, found: str) -> ActionOutcome:
    action = await core.ended(scene.actions[point].id)
    return ActionOutcome(found, action, scene.setup.counted(point), await events_of(core, action.id))


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of all actions; it is only made once no job folder is left."""

    rows: Mapping[str, ActionOutcome]
    tags: list[str]
    artifacts: list[str | None]
    remote_runs: int


async def play(folder: Path) -> Outcomes:
    async with scene_in(folder) as scene:
        async with core_process(scene.setup) as core:
            scene.alert = await alert_in(core)
            release = await to_all_points(scene, core)
            await core.kill()
        found = {point: scene.status(point) for point in scene.actions}
        release()
        await while_no_core_looks(scene)
        async with core_process(scene.setup) as core:
            await to_the_ends(scene, core)
            rows = {point: await row(scene, core, point, found[point]) for point in scene.actions}
            alert = await core.client().alert(scene.alert)
            await until(lambda: not list((folder / "jobs" / "local").iterdir()), "a folder without jobs")
        return Outcomes(rows, alert.tags, [artifact.data for artifact in alert.artifacts], scene.cortex.count("run"))


@asynccontextmanager
async def scene_in(folder: Path) -> AsyncIterator[Scene]:
    cortex = FakeCortex()
    await cortex.start()
    held = {name: {"config": {"cacerts": str(folder / LOCAL_PIPES[point])}} for name, point in _HELD.items()}
    setup = await setup_in(
        folder,
        responders={"Stepwise": {}, "Asking": {"approval": 1}, **held},
        engines=[{"name": "remote", "type": "cortex", "url": cortex.url, "api_key": cortex.api_key}],
        max_concurrent_actions=SLOTS,
    )
    scene = Scene(setup, cortex)
    for pipe in LOCAL_PIPES.values():
        scene.pipe(pipe)
    try:
        yield scene
    finally:
        await cortex.stop()


_HELD = {"Half": HALF, "Gate": GATE, "Silent": SILENT}


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return asyncio.run(play(tmp_path_factory.mktemp("crash")))


@pytest.mark.parametrize(
    ("point", "found"),
    [
        (QUEUED, "Waiting"),
        (ASKING, "Waiting"),
        (HALF, "Waiting"),
        (GATE, "Waiting"),
        (SILENT, "Waiting"),
        (STARTED, "InProgress"),
        (RUNNING, "InProgress"),
        (EARLY, "InProgress"),
        (ALONE, "InProgress"),
        (READ, "InProgress"),
        (ENDED, "Success"),
    ],
)
def test_a_local_program_runs_once_wherever_core_dies(table: Outcomes, point: str, found: str) -> None:
    row = table.rows[point]
    assert (row.found, row.action.status, row.message, row.runs) == (found, "Success", "done", 1)
    assert [(item["type"], item["status"]) for item in json.loads(row.action.operations)] == [
        ("AddTagToAlert", "Success"),
        ("AddArtifactToAlert", "Success"),
        ("CreateTask", "Failure"),
    ]


@pytest.mark.parametrize(
    ("point", "found"), [(UNANSWERED, "Waiting"), (REMOTE, "InProgress"), (REMOTE_ALONE, "InProgress")]
)
def test_a_remote_job_is_followed_to_its_end_wherever_core_dies(table: Outcomes, point: str, found: str) -> None:
    row = table.rows[point]
    assert (row.found, row.action.status, row.message) == (found, "Success", "done")
    assert table.remote_runs == 3


def test_the_next_core_finishes_a_cancel(table: Outcomes) -> None:
    row = table.rows[STOPPING]
    assert (row.found, row.action.status, row.message) == ("InProgress", "Failure", "Cancelled by anna@example.org")
    assert row.runs == 1


def test_each_event_comes_once_and_in_order(table: Outcomes) -> None:
    for point, row in table.rows.items():
        assert row.events[0] == "action.created", point
        assert row.events[-1] == "action.ended", point
        assert (row.events.count("action.created"), row.events.count("action.ended")) == (1, 1), point
        assert set(row.events[1:-1]) <= {"action.updated"}, point


def test_the_operations_of_all_runs_are_applied(table: Outcomes) -> None:
    assert table.tags == ["seen"]
    assert sorted(map(str, table.artifacts)) == sorted(table.rows.keys() - {STOPPING})


# --- slow tests -------------------------------------------------------------------------------------------------------

MANY = 1_000
"""Operations: applied in slices, which takes longer than the cores below live."""


@pytest.mark.slow
async def test_a_core_killed_while_it_applies_operations_applies_each_once(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path)
    operations = [{"type": "CreateTask", "title": f"task {number}"} for number in range(MANY)]
    async with core_process(setup) as core:
        case = (await core.client().create_case({"title": "t", "description": "d"})).id
        body = {
            **run_body(case, parameters={"runs": str(setup.runs("many")), "operations": operations}),
            "objectType": "case",
        }
        action = await core.client().run(body)
        await until(lambda: setup.counted("many"), "the program")
    counts = []
    for life_s in (0.0, 0.01, 0.02, 0.03, 0.05, 0.1):
        async with core_process(setup):
            await asyncio.sleep(life_s)
        counts.append(tasks_in(setup))
    async with core_process(setup) as core:
        ended = await core.ended(action.id)
        events = await events_of(core, action.id)
    assert ended.status == "Success"
    assert {operation["status"] for operation in json.loads(ended.operations)} == {"Success"}
    assert {count % SLICE_SIZE for count in counts} == {0}
    assert counts == sorted(counts)
    assert titles_in(setup) == {f"task {number}" for number in range(MANY)}
    assert (tasks_in(setup), setup.counted("many"), events.count("action.ended")) == (MANY, 1, 1)


def tasks_in(setup: CoreSetup) -> int:
    return len(titles_of(setup))


def titles_in(setup: CoreSetup) -> set[str]:
    return set(titles_of(setup))


def titles_of(setup: CoreSetup) -> list[str]:
    found = stores.rows(setup.database, "SELECT doc FROM object WHERE kind = 'case_task'")
    return [json.loads(doc)["title"] for (doc,) in found]


@pytest.mark.slow
async def test_a_run_that_nobody_can_know_of_fails_and_is_not_repeated(tmp_path: Path) -> None:
    """The remote engine forgot one job and never got the other call."""
    async with scene_in(tmp_path) as scene:
        async with core_process(scene.setup) as core:
            scene.alert = await alert_in(core)
            await scene.run(core, "forgotten", responder="Blocker_1_0")
            scene.cortex.behave("run", DelayedAnswer(asyncio.Event()))
            await scene.run(core, "lost", responder="Blocker_1_0")
            await scene.cortex.until("run", 2)
            await core.kill()
        scene.cortex.forget(scene.actions["forgotten"].engine_job_id)
        async with core_process(scene.setup) as core:
            rows = {point: await row(scene, core, point, "") for point in scene.actions}
        assert scene.cortex.count("run") == 2
        assert scene.cortex.jobs == {}
    assert {row.action.status for row in rows.values()} == {"Failure"}
    assert rows["forgotten"].message.startswith("Engine 'remote' no longer knows job AXj0000.")
    assert rows["lost"].message.startswith("It is not known whether Blocker_1_0 ran on engine 'remote': ")
    assert "It was not started again" in rows["lost"].message
