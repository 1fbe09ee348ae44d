"""Cores of several hosts as processes on one database: how they are listed, drained and lost."""

import asyncio
import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.core.core_process import (
    CoreSetup,
    alert_in,
    core_process,
    counting,
    held,
    hosts_in,
    run_body,
    setup_in,
    until,
    write_pipe,
)
from tests.core.test_cli import run as command


async def cli(setup: CoreSetup, *args: str) -> tuple[int, str]:
    ended = await command(setup.folder, *args, "--config", "settings.toml")
    return ended.code, ended.out + ended.err


@pytest.mark.slow
async def test_hosts_are_listed_and_one_is_drained_by_command_and_by_the_api(tmp_path: Path) -> None:
    one_setup, two_setup = await hosts_in(tmp_path, ["web1", "web2"], max_concurrent_actions=1)
    async with core_process(one_setup) as one, core_process(two_setup) as two:
        alert = await alert_in(one)
        action = await held(one, alert, tmp_path / "first.pipe")
        await one.running(action.id)
        (first, second) = await two.hosts()
        assert [(host["name"], host["state"]) for host in (first, second)] == [("web1", "running"), ("web2", "running")]
        (core,) = first["cores"]
        assert core["actions"] == [action.id]
        local = {"name": "local", "up": True, "running": 1, "slots": 1}
        assert core["engines"] == [{"name": "core", "up": True, "running": 0}, local]
        answer = await two.send("POST", "/api/host/web1/drain", {"core": core["id"]})
        assert [host["state"] for host in answer.json()] == ["draining"]
        assert [host["state"] for host in (await one.send("DELETE", "/api/host/web1/drain")).json()] == ["running"]
        code, said = await cli(two_setup, "drain", "web1")
        assert (code, said.splitlines()[-1]) == (
            0,
            "1 core on web1 takes no more runs. It ends once its runs have; `responder-bot hosts` shows what they are.",
        )
        code, said = await cli(one_setup, "hosts")
        assert code == 0
        row = re.compile(rf"web1 +draining +{core['id']} +\S+ .* UTC +core 0/-, local 1/1 +{action.id}")
        assert [bool(row.fullmatch(line)) for line in said.splitlines()[1:]] == [True, False]

        queued = await one.client().run(run_body(alert, **counting(one_setup, "queued")))  # it still answers
        assert (await two.ended(queued.id)).status == "Success"
        await write_pipe(tmp_path / "first.pipe")
        assert (await two.ended(action.id)).status == "Success"
        async with asyncio.timeout(60):
            assert await one.process.wait() == 0
        await two.lists_hosts(web2="running")  # it has left, and is not lost
        assert (await two.client("lead").health())["status"] == "ok"
        assert await cli(two_setup, "drain", "web1") == (
            2,
            "There is no host web1 with a core; `responder-bot hosts` lists them.\n",
        )
    assert [one_setup.counted(name) for name in ("first", "queued")] == [1, 1]


@pytest.mark.slow
async def test_process_1_of_a_container_ends_at_sigterm_once_its_runs_have(tmp_path: Path) -> None:
    as_process_1 = ("bwrap", "--unshare-pid", "--as-pid-1", "--dev-bind", "/", "/", "--proc", "/proc")
    if shutil.which("bwrap") is None or await (await asyncio.create_subprocess_exec(*as_process_1, "true")).wait():
        pytest.skip("bwrap can make no namespace of processes here")
    setup = await setup_in(tmp_path, host_name="box")
    async with core_process(setup, wrapper=as_process_1) as core:
        action = await held(core, await alert_in(core), tmp_path / "first.pipe")
        await core.running(action.id)
        (child,) = Path(f"/proc/{core.process.pid}/task/{core.process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGTERM)
        await core.lists_hosts(box="draining")
        await write_pipe(tmp_path / "first.pipe")
        async with asyncio.timeout(60):
            assert await core.process.wait() == 0
    async with core_process(setup) as again:
        assert (await again.ended(action.id)).status == "Success"
    assert setup.counted("first") == 1


@pytest.mark.slow
async def test_a_killed_and_a_frozen_host_lose_their_runs_and_one_that_comes_back_stops_them(tmp_path: Path) -> None:
    setups = await hosts_in(tmp_path, ["killed", "frozen", "stays"], max_concurrent_actions=1)
    async with core_process(setups[0]) as killed, core_process(setups[1]) as frozen, core_process(setups[2]) as stays:
        alert = await alert_in(stays)
        hosts = {"killed": killed, "frozen": frozen, "stays": stays}
        runs = {name: await held(core, alert, tmp_path / f"{name}.pipe") for name, core in hosts.items()}
        for name, core in hosts.items():
            await core.running(runs[name].id)
        asked = run_body(alert, **counting(setups[0], "queued"))
        waiting = [await core.client().run(asked) for core in (killed, frozen)]
        kept = [hosts[name].setup.job(runs[name]) for name in ("killed", "frozen")]
        assert all(folder.exists() for folder in kept)
        await killed.kill()
        frozen.pause()
        for name in ("killed", "frozen"):
            ended = await stays.ended(runs[name].id)
            sentence = f"Host {name} was lost while it ran. Look at the target before you run it again."
            assert (ended.status, json.loads(ended.report)["errorMessage"]) == ("Failure", sentence)
        await stays.lists_hosts(killed="lost", frozen="lost", stays="running")
        health = await stays.client("lead").health()
        told = next(part["message"] for part in health["parts"] if part["name"] == "hosts")
        assert re.fullmatch(r"(Host \w+ was lost at .* UTC, and 1 action ended with it\. .*\n?){2}", told)
        metrics = (await stays.send("GET", "/metrics")).text.splitlines()
        assert 'responder_bot_host_up{host="killed"} 0.0' in metrics
        assert 'responder_bot_host_up{host="stays"} 1.0' in metrics

        last = (await stays.client().events(None, 0)).last
        await write_pipe(tmp_path / "frozen.pipe")  # its program goes on, and ends
        frozen.resume()
        await stays.lists_hosts(killed="lost", frozen="running", stays="running")
        async with core_process(setups[0]) as again:
            await stays.lists_hosts(killed="running", frozen="running", stays="running")
            await until(lambda: not any(folder.exists() for folder in kept), "removing what was given up")
            for action in waiting:
                assert (await again.ended(action.id)).status == "Success"
            await write_pipe(tmp_path / "stays.pipe")
            assert (await again.ended(runs["stays"].id)).status == "Success"
        after = (await stays.client().events(last, 0)).events
        assert {event.object_id for event in after} & {runs["killed"].id, runs["frozen"].id} == set()
        assert setups[0].counted("queued") == 2
