"""On a full disk writes are 503 and health is down; if it is that of the job folders, runs fail and health is degraded.

Both recover once there is space.
"""

import asyncio
import itertools
import json
import os
import re
import resource
import secrets
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from core.common.database.location import PostgresqlUrl
from core.common.database.sqlite.connection import WAL_BYTES
from core.common.database.sqlite.database import LOG_BOUND_BYTES
from core.protection import BLOCK
from tests import programs, stores
from tests.core.core_process import (
    ALERT,
    ANALYSTS,
    CoreProcess,
    CoreSetup,
    alert_in,
    core_process,
    run_body,
    setup_in,
)
from tests.postgresql_process import PostgresqlServer


@contextmanager
def file_system(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MB."""
    with file_system(tmp_path / "disk", "size=40m") as folder:
        yield folder


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass


def fail_beyond(pid: int, size: int) -> None:
    """Have the process fail to write to files beyond this size."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.slow
@pytest.mark.sqlite
async def test_a_log_that_can_not_be_checkpointed_is_told_and_bounded(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path)
    with closing(sqlite3.connect(tmp_path / "core.db")) as database, database:
        database.execute("CREATE TABLE filler (content BLOB)")
        database.execute("INSERT INTO filler VALUES (zeroblob(?))", (LOG_BOUND_BYTES + WAL_BYTES,))
    size = (tmp_path / "core.db").stat().st_size
    log = tmp_path / "core.db-wal"
    async with (
        core_process(setup) as core,
        httpx.AsyncClient(base_url=core.url, headers={"Authorization": f"Bearer {setup.keys['lead']}"}) as http,
    ):
        fail_beyond(core.process.pid, size)  # new pages go to the end of the database
        acknowledged: list[str] = []
        statuses = set[str]()
        told_at, large = 0, {**ALERT, "description": "x" * 500_000}
        while True:
            answer = await http.post("/api/alert", json={**large, "sourceRef": f"s{len(acknowledged)}"})
            if answer.status_code != 201:
                break
            acknowledged.append(answer.json()["id"])
            if not told_at and "checkpoint_failed" in core.log.read_text():
                told_at = log.stat().st_size
            statuses.add((await http.get("/health")).json()["status"])  # which looks at the store once in a second
        sentence = "core.db can't be written (disk I/O error), and its log has over 64 MB, so nothing more is stored"
        assert (answer.status_code, answer.json()["message"]) == (503, f"{sentence}; look at its disk.")
        assert "degraded" in statuses
        assert 0 < told_at < 2 * WAL_BYTES
        assert log.stat().st_size < LOG_BOUND_BYTES + WAL_BYTES
        await until_health(http, 503)
        fail_beyond(core.process.pid, resource.RLIM_INFINITY)
        await until_health(http, 200)
        assert (await http.post("/api/alert", json={**large, "sourceRef": "later"})).status_code == 201
        assert (await http.get("/health")).json()["status"] == "ok"
        await core.kill()
    async with core_process(setup) as again:
        for alert_id in acknowledged:
            assert (await again.client("lead").alert(alert_id)).id == alert_id


@pytest.mark.root
@pytest.mark.sqlite
async def test_health_is_down_while_alerts_find_no_room(small_disk: Path) -> None:
    setup = await setup_in(small_disk)
    async with (
        core_process(setup) as core,
        httpx.AsyncClient(base_url=core.url, headers={"Authorization": f"Bearer {setup.keys['lead']}"}) as http,
    ):
        large = {**ALERT, "description": "x" * 500_000}
        acknowledged = [(await http.post("/api/alert", json=large)).json()["id"]]
        assert (await http.get("/health")).json()["status"] == "ok"
        fill(small_disk / "filler")
        for number in range(2, 30):
            answer = await http.post("/api/alert", json={**large, "sourceRef": str(number)})
            if answer.status_code == 201:
                acknowledged.append(answer.json()["id"])
                continue
            assert answer.status_code == 503
            assert answer.json()["message"].endswith("make room on its disk.")
        assert len(acknowledged) < 29
        await until_health(http, 503)
        health = (await http.get("/health")).json()
        assert health["status"] == "down"
        assert "full" in health["parts"][0]["message"] or "room" in health["parts"][0]["message"]
        os.unlink(small_disk / "filler")
        assert (await http.post("/api/alert", json={**large, "sourceRef": "new"})).status_code == 201
        await until(core, "ok")
        while "store_writable" not in core.log.read_text():  # health tries a write each second
            assert (await http.get("/health")).status_code == 200
        assert core.log.read_text().index("store_unwritable") < core.log.read_text().index("store_writable")
        await core.kill()
    async with core_process(setup) as again:
        for alert_id in acknowledged:
            assert (await again.client("lead").alert(alert_id)).id == alert_id


@pytest.mark.root
@pytest.mark.sqlite
async def test_the_block_list_is_read_on_a_full_disk_and_has_what_was_acknowledged(small_disk: Path) -> None:
    setup = await setup_in(small_disk)
    await setup.users(("edge-fw", "reader"))
    reader, lead = ({"Authorization": f"Bearer {setup.keys[name]}"} for name in ("edge-fw", "lead"))
    async with core_process(setup) as core, httpx.AsyncClient(base_url=core.url, headers=lead, timeout=30) as http:
        artifacts = [{"dataType": "ip", "data": f"198.51.100.{number}"} for number in range(40)]
        alert = (await http.post("/api/alert", json={**ALERT, "artifacts": artifacts})).json()["id"]
        blocked = set[str]()

        async def block(number: int) -> int:
            target = f"198.51.100.{number}"
            answer = await http.post("/api/connector/engine/action", json=run_body(alert, BLOCK, target=target))
            if answer.status_code == 201:
                blocked.add(target)
            return answer.status_code

        async def listed() -> set[str]:
            answer = await http.get("/api/blocklist/ip.txt", headers=reader)
            assert answer.status_code == 200
            return set(answer.text.split())

        assert await block(0) == 201
        await until_listed(listed, {"198.51.100.0"})
        fill(small_disk / "filler")
        statuses = list[int]()
        while 503 not in statuses:
            statuses.append(await block(len(statuses) + 1))
            assert "198.51.100.0" in await listed() <= blocked
        await until(core, "down")
        os.unlink(small_disk / "filler")
        await until(core, "ok")
        assert await block(39) == 201
        await until_listed(listed, blocked)
        shown = [one["readers"][0] for one in (await http.get("/api/connector/engine/measure")).json()]
        await core.kill()
    async with core_process(setup) as core:
        answer = await core.client().measures()
    assert {one.data for measure in answer for one in measure.target or ()} == blocked
    assert {reader["name"] for reader in shown} == {"edge-fw"}


async def until_listed(listed: Callable[[], Awaitable[set[str]]], wanted: set[str]) -> None:
    """A run ends after its request is answered."""
    async with asyncio.timeout(60):
        while await listed() != wanted:  # noqa: ASYNC110 - no event: another process looks
            await asyncio.sleep(0.05)


@pytest.mark.root
@pytest.mark.sqlite
async def test_a_start_on_a_full_disk_says_so(small_disk: Path) -> None:
    setup = await setup_in(small_disk)
    fill(small_disk / "filler")
    program = await programs.start(
        *("core.cli", "core", "--config", str(setup.folder / "settings.toml")),
        stdout=programs.PIPE,
        stderr=programs.PIPE,
    )
    out, errors = await program.communicate()
    assert (program.returncode, out) == (2, b"")
    assert re.fullmatch(r"The database \S+core\.db can't be opened \(.*\); make room on its disk\.\n", errors.decode())


@pytest.mark.root
@pytest.mark.slow
async def test_postgresql_on_a_full_disk_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    """First tables find no room, then its log, for which it stops."""
    with (
        stores.using("postgresql"),
        tempfile.TemporaryDirectory(prefix="responder-bot-disk-") as place,
        file_system(Path(place, "disk"), "size=96m,mode=755") as disk,
    ):
        os.chmod(place, 0o755)  # noqa: S103 - PostgreSQL runs as another user
        server = PostgresqlServer(disk)
        await server.create()
        url: Any = PostgresqlUrl(server.url("core"))
        shared = CoreSetup(tmp_path, shared=url)
        await shared.users(*ANALYSTS)
        (tmp_path / "here").mkdir()
        setup = await setup_in(tmp_path / "here", beside=shared)
        acknowledged: list[str] = []
        async with (
            core_process(setup) as core,
            httpx.AsyncClient(base_url=core.url, headers={"Authorization": f"Bearer {setup.keys['lead']}"}) as http,
        ):

            async def post() -> httpx.Response:
                body = {**ALERT, "sourceRef": secrets.token_hex(), "description": secrets.token_hex(200_000)}
                answer = await http.post("/api/alert", json=body)
                if answer.status_code == 201:
                    acknowledged.append(answer.json()["id"])
                return answer

            await post()
            fill(disk / "filler")
            while (answer := await post()).status_code == 201:
                pass
            (part,) = [part for part in (await http.get("/health")).json()["parts"] if not part["ok"]]
            for message in (answer.json()["message"], part["message"]):
                assert re.fullmatch(
                    r"The store can't be written \(could not extend file \S+: No space left on device\);"
                    r" make room on its disk\.",
                    message,
                )
            (disk / "filler").unlink()
            assert (await post()).status_code == 201
            fill(disk / "filler")
            while not server.has_ended():
                with suppress(psycopg.Error):
                    server.rows("core", "SELECT pg_switch_wal()")
                answer = await post()
            assert answer.status_code == 503
            (disk / "filler").unlink()
            await server.start()
            await until(core, "ok")
            assert (await post()).status_code == 201
            await core.kill()
        async with core_process(setup) as again:
            for alert_id in acknowledged:
                assert (await again.client("lead").alert(alert_id)).id == alert_id
        await server.close()


def fill_with_files(folder: Path) -> None:
    folder.mkdir()
    for number in itertools.count():
        try:
            (folder / str(number)).touch()
        except OSError:
            return


@pytest.mark.root
@pytest.mark.parametrize("options", ["size=1m", "nr_inodes=60"])
async def test_health_is_degraded_while_runs_find_no_room(tmp_path: Path, options: str) -> None:
    with file_system(tmp_path / "jobs", options) as jobs:
        async with core_process(await setup_in(tmp_path)) as core:
            alert = await alert_in(core)
            before = await core.ended((await core.client().run(run_body(alert))).id)
            assert before.status == "Success"
            assert (await core.send("GET", "/health")).json()["status"] == "ok"
            filler = tmp_path / "jobs" / "filler"
            fill(filler) if "size" in options else fill_with_files(filler)
            ended = await core.ended((await core.client().run(run_body(alert))).id)
            assert ended.status == "Failure"
            assert json.loads(ended.report)["errorMessage"] == (
                "The run could not be prepared, since the disk of the job folders is full (No space left on device);"
                " free space or inodes on it, and run it again."
            )
            await until(core, "degraded")
            (part,) = [part for part in (await core.send("GET", "/health")).json()["parts"] if not part["ok"]]
            assert (part["name"], part["message"]) == (
                "job folders",
                f"No run can start, since {jobs} is full (No space left on device); free space or inodes on it.",
            )
            assert "responder_bot_jobs_writable 0.0\n" in (await core.send("GET", "/metrics")).text
            shutil.rmtree(filler) if filler.is_dir() else filler.unlink()
            await until(core, "ok")
            assert "responder_bot_jobs_writable 1.0\n" in (await core.send("GET", "/metrics")).text
            after = await core.ended((await core.client().run(run_body(alert))).id)
            assert after.status == "Success"


async def until(core: CoreProcess, status: str) -> None:
    """Return once health says so."""
    async with asyncio.timeout(60):
        while (await core.send("GET", "/health")).json()["status"] != status:  # noqa: ASYNC110 - as below
            await asyncio.sleep(0.05)


async def until_health(http: httpx.AsyncClient, status: int) -> None:
    """Health is checked once a second at most."""
    async with asyncio.timeout(60):
        while (await http.get("/health")).status_code != status:  # noqa: ASYNC110 - no event: another process looks
            await asyncio.sleep(0.05)
