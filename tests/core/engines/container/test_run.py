"""A responder in a container: what it gets, how each way to end is reported, and that nothing of it stays."""

import asyncio
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from core.common.errors import ResponderBotError
from core.engines.run_report import LIMIT_MESSAGES
from core.settings import ResponderSection, SecretSource
from tests.core.engines.container.conftest import MakeEngine, Offer, RunScript
from tests.core.engines.container.engines import REPORT, Podman, definition, job_for
from tests.core.engines.process.conftest import NamedPipe, ProgressLog

pytestmark = pytest.mark.container

DONE = f"echo {REPORT % 'done'}\n"


async def test_a_container_runs_and_leaves_nothing(run_script: RunScript, podman: Podman, tmp_path: Path) -> None:
    report = await run_script(f"echo $1; {DONE}")
    assert (report.success, report.message, report.printed) == (True, "done", "/job\n")
    assert podman.containers() == []
    assert list((tmp_path / "jobs").iterdir()) == []


async def test_its_input_is_the_one_that_every_responder_gets(run_script: RunScript) -> None:
    section = ResponderSection(max_tlp=1, config={"proxy_http": "http://u:drowssap@proxy.example:1"})
    report = await run_script(f"cat /job/input/input.json; {DONE}", section=section)
    assert list(given := json.loads(report.printed)) == [
        *("data", "dataType", "tlp", "pap", "message", "parameters", "config")
    ]
    assert given["config"]["max_tlp"] == 1
    assert (given["dataType"], given["data"]["_id"]) == ("thehive:alert", "~12")
    assert "drowssap" not in report.printed


async def test_the_environment_holds_nothing_of_cores(run_script: RunScript, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:password@proxy.example:3128")
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
    report = await run_script(f"env; {DONE}", section=ResponderSection(config={"cacerts": "-----BEGIN X"}))
    names = {line.partition("=")[0] for line in report.printed.splitlines()}
    assert names == {"HOME", "HOSTNAME", "PATH", "PWD", "REQUESTS_CA_BUNDLE", "SHLVL", "TERM", "TMPDIR", "container"}


async def test_a_secret_is_in_no_argument_and_in_no_report(
    make_engine: MakeEngine, podman: Podman, tmp_path: Path, ready: NamedPipe, go: NamedPipe, shared: Path
) -> None:
    (tmp_path / "secret").write_text("the-password")
    script = f"cat /job/input/input.json; echo started > {ready.path}; read line < {go.path}; {DONE}"
    podman.image("localhost/secretive:1", script)
    entry = definition("Secretive", "localhost/secretive:1")
    entry["configurationItems"] = [{"name": "password", "type": "string", "multi": False, "required": True}]
    (tmp_path / "responders.json").write_text(json.dumps([entry]))
    section = ResponderSection(config={"password": SecretSource(file=tmp_path / "secret")}, writable=(shared,))
    engine = make_engine(sections={"Secretive_1_0": section}, responders=(tmp_path / "responders.json",))
    await engine.install(lambda news: None, upgrade=False)
    running = asyncio.create_task(engine.run(await job_for(engine, "Secretive_1_0"), ProgressLog()))
    await ready.received()
    assert "the-password" not in podman("inspect", *podman.containers())
    go.send()
    report = await running
    assert report.success
    assert '"password": "the-password"' not in report.printed
    assert '"password": "REMOVED"' in report.printed
    await engine.clean_up("8257-5e")


@pytest.mark.parametrize(("network", "interfaces"), [("none", ["lo"]), ("all", ["eth0", "lo"])])
async def test_it_has_the_network_that_its_settings_say(
    network: str, interfaces: list[str], run_script: RunScript
) -> None:
    section = ResponderSection.model_validate({"network": network})
    report = await run_script(f"ls /sys/class/net; {DONE}", section=section)
    assert report.printed.split() == interfaces


async def test_a_failure_that_it_reports_is_its_own(run_script: RunScript) -> None:
    answer = json.dumps({"success": False, "errorMessage": "the mailbox is full"})
    report = await run_script(f"echo '{answer}' > /job/output/output.json")
    assert (report.success, report.message) == (False, "the mailbox is full")


async def test_without_output_the_report_has_exit_code_and_last_lines(run_script: RunScript) -> None:
    report = await run_script("echo one; echo two >&2; exit 3")
    assert report.message == (
        "The responder wrote no output/output.json (exit code 3). The last lines that it printed:\none\ntwo"
    )


async def test_of_much_that_it_prints_a_part_is_kept(run_script: RunScript) -> None:
    report = await run_script(f"yes 0123456789012345678901234567890123456789 | head -c 3000000; {DONE}")
    assert report.success
    assert 0 < len(report.printed) < 70_000


async def test_out_of_memory_says_what_to_raise(run_script: RunScript) -> None:
    report = await run_script("exec tail /dev/zero", section=ResponderSection(memory_mib=32))
    assert not report.success
    assert "all of its 32 MiB of memory" in report.message
    assert 'raise memory_mib in [responder."Script_1_0"]' in report.message
    assert not Path("oom").exists(), "podman's conmon left a file where core was started"


async def test_a_container_is_stopped_at_its_time_limit(run_script: RunScript, podman: Podman) -> None:
    report = await run_script("trap '' TERM; sleep 600", section=ResponderSection(config={"jobTimeout": 0.01}))
    assert report.message == "Timed out after 0.01 minutes"
    assert podman.containers() == []


async def test_a_cancelled_run_ends_at_once(
    make_engine: MakeEngine, offer: Offer, podman: Podman, ready: NamedPipe, shared: Path
) -> None:
    offer("Long", f"trap 'exit 0' TERM; echo started > {ready.path}; while true; do sleep 1; done")
    engine = make_engine(sections={"Long_1_0": ResponderSection(writable=(shared,))})
    await engine.install(lambda news: None, upgrade=False)
    job = await job_for(engine, "Long_1_0")
    running = asyncio.create_task(engine.run(job, ProgressLog()))
    await ready.received()
    await engine.cancel(job)
    assert (await running).message == "Cancelled"
    with pytest.raises(ResponderBotError, match="already ended"):
        await engine.cancel(job)
    await engine.clean_up(job.run_id)
    assert podman.containers() == []


async def test_a_run_that_is_cancelled_while_it_starts_ends(make_engine: MakeEngine, offer: Offer) -> None:
    offer("Long", "trap 'exit 0' TERM; while true; do sleep 1; done")
    engine = make_engine()
    await engine.install(lambda news: None, upgrade=False)
    job = await job_for(engine, "Long_1_0")
    running = asyncio.create_task(engine.run(job, ProgressLog()))
    await asyncio.sleep(0)  # it has begun
    await engine.cancel(job)
    assert (await running).message == "Cancelled"
    await engine.clean_up(job.run_id)


async def test_what_never_ran_here_cant_be_cancelled(make_engine: MakeEngine, offer: Offer) -> None:
    offer("Long", "true")
    engine = make_engine()
    await engine.install(lambda news: None, upgrade=False)
    with pytest.raises(ResponderBotError, match="didn't start this run"):
        await engine.cancel(await job_for(engine, "Long_1_0"))


async def test_a_program_that_the_image_lacks_is_a_failure_that_says_so(
    make_engine: MakeEngine, podman: Podman, tmp_path: Path, offer: Offer
) -> None:
    offer("Broken", "true")
    podman("import", "--change", 'ENTRYPOINT ["/missing"]', "-", "localhost/broken:1", given=b"\0" * 10240)
    engine = make_engine()
    await engine.install(lambda news: None, upgrade=False)
    report = await engine.run(await job_for(engine, "Broken_1_0"), ProgressLog())
    assert report.message.startswith("The container could not be started: ")
    assert "/missing" in report.message
    assert podman.containers() == []


# --- images and runtime that are missing ------------------------------------------------------------------------------


async def test_an_image_that_was_removed_meanwhile_is_a_failure_that_says_so(
    make_engine: MakeEngine, offer: Offer, podman: Podman
) -> None:
    image = offer("Gone", DONE)
    engine = make_engine()
    await engine.install(lambda news: None, upgrade=False)
    job = await job_for(engine, "Gone_1_0")
    podman("image", "rm", "--force", image)
    report = await engine.run(job, ProgressLog())
    assert report.message == (
        "Gone_1_0 did not run: its image localhost/gone:1 is no longer on this machine;"
        " run `responder-bot responders install`."
    )
    (skipped,) = (await engine.catalogue()).skipped
    assert "is no longer on this machine" in skipped.reason
    assert podman.containers() == []


async def test_without_podman_there_is_no_catalogue_and_a_run_says_why(
    make_engine: MakeEngine, offer: Offer, tmp_path: Path
) -> None:
    offer("Any", DONE)
    engine = make_engine()
    await engine.install(lambda news: None, upgrade=False)
    job = await job_for(engine, "Any_1_0")
    (tmp_path / "empty").mkdir()
    without = make_engine(environ={"PATH": str(tmp_path / "empty")})
    with pytest.raises(ResponderBotError, match=r"podman can't be started.*install it") as raised:
        await without.catalogue()
    assert (await without.run(job, ProgressLog())).message == raised.value.message


async def test_a_podman_that_does_not_work_says_why(make_engine: MakeEngine, offer: Offer, podman: Podman) -> None:
    offer("Any", DONE)
    engine = make_engine()
    await engine.install(lambda news: None, upgrade=False)
    job = await job_for(engine, "Any_1_0")
    (podman.place / "damaged.conf").write_text("[storage]\ndriver = 7\n")
    broken = make_engine(
        environ={"PATH": "/usr/bin:/bin", "CONTAINERS_STORAGE_CONF": str(podman.place / "damaged.conf")}
    )
    with pytest.raises(ResponderBotError, match="podman does not work"):
        await broken.catalogue()
    report = await broken.run(job, ProgressLog())
    assert "podman does not work" in report.message
    report = await broken.run(replace(job, resumed=True), ProgressLog())
    assert "podman does not work" in report.message


async def test_a_podman_that_cant_run_containers_is_noticed_before_a_run(
    make_engine: MakeEngine, offer: Offer, podman: Podman
) -> None:
    offer("Any", DONE)
    await make_engine().install(lambda news: None, upgrade=False)
    settings = f'[engine]\nruntime = "/bin/false"\ntmp_dir = "{podman.place}/state"\n'
    (podman.place / "broken.conf").write_text(settings)
    broken = make_engine(
        environ={"PATH": "/usr/bin:/bin", **podman.environment, "CONTAINERS_CONF": str(podman.place / "broken.conf")}
    )
    with pytest.raises(ResponderBotError, match="podman can't run containers on this machine"):
        await broken.catalogue()


async def test_limits_that_the_machine_lacks_are_told_and_left_out(
    make_engine: MakeEngine, offer: Offer, podman: Podman, tmp_path: Path
) -> None:
    offer("Any", f"cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; {DONE}")
    (tmp_path / "bin").mkdir()
    wrapper = '#!/bin/sh\n[ "$1" = info ] && { /usr/bin/podman "$@" | sed s/memory/other/; exit; }\n'
    (tmp_path / "bin" / "podman").write_text(wrapper + 'exec /usr/bin/podman "$@"\n')
    (tmp_path / "bin" / "podman").chmod(0o755)
    engine = make_engine(environ={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", **podman.environment})
    await engine.install(lambda news: None, upgrade=False)
    (warning,) = (await engine.catalogue()).warnings
    assert warning.startswith("podman can't limit memory of containers here")
    report = await engine.run(await job_for(engine, "Any_1_0"), ProgressLog())
    assert report.success
    assert report.printed.strip() == "max" or int(report.printed) > 2**40
    await engine.clean_up("8257-5e")


# --- hostile containers -----------------------------------------------------------------------------------------------


async def test_it_can_write_to_its_output_and_its_temporary_folder_only(run_script: RunScript) -> None:
    places = "/x /bin/x /etc/x /job/x /job/input/x /job/input/input.json /dev/x /run/x /var/x /sys/x /proc/x"
    report = await run_script(
        f"for place in {places}; do (echo x >> $place) 2>/dev/null && echo wrote $place; done\n"
        f"echo x > /tmp/x && echo x > /job/output/x && echo both; {DONE}"
    )
    assert report.printed == "both\n"


async def test_it_has_no_account_no_rights_and_no_way_to_more(run_script: RunScript) -> None:
    report = await run_script(
        f"id -u; grep -E 'Cap(Eff|Prm|Bnd)|NoNewPrivs|Seccomp:' /proc/self/status\n"
        "mount -t tmpfs none /tmp 2>/dev/null && echo mounted\n"
        "mknod /job/output/disk b 8 0 2>/dev/null && echo device\n"
        f"chown 0 /job/output 2>/dev/null && echo chown\nls /proc | grep -cE '^[0-9]+$'; {DONE}"
    )
    lines = report.printed.split("\n")
    assert lines[0] == "65534"
    assert [line.split()[1].strip("0") for line in lines[1:4]] == ["", "", ""]
    assert lines[4].split() == ["NoNewPrivs:", "1"]
    assert lines[5].split() == ["Seccomp:", "2"]
    assert int(lines[6]) < 10  # it sees its own processes only
    assert len(lines) == 8


async def test_a_fork_bomb_is_held_to_its_processes(run_script: RunScript, podman: Podman) -> None:
    section = ResponderSection(processes=20, config={"jobTimeout": 0.05})
    # The shell that waits forks once, before there is anything to take its turn.
    report = await run_script("bomb() { bomb | bomb & }; bomb & while :; do :; done", section=section)
    assert report.message == "Timed out after 0.05 minutes"
    assert podman.containers() == []


async def test_what_fills_the_disk_is_stopped(run_script: RunScript, tmp_path: Path) -> None:
    filler = "n=0; while true; do n=$((n+1)); head -c 500000 /dev/zero > /job/output/$n; sleep 0.01; done"
    report = await run_script(filler, section=ResponderSection(disk_mib=8))
    assert not report.success
    assert report.message == LIMIT_MESSAGES["disk"]
    assert list((tmp_path / "jobs").iterdir()) == []


async def test_what_makes_too_many_files_is_stopped(run_script: RunScript, tmp_path: Path) -> None:
    filler = "n=0; while true; do n=$((n+1)); mkdir /job/output/$n; echo > /job/output/$n/$n; done"
    report = await run_script(filler, section=ResponderSection(files=100))
    assert report.message == LIMIT_MESSAGES["files"]
    assert list((tmp_path / "jobs").iterdir()) == []


async def test_no_file_and_no_temporary_folder_grows_beyond_its_limit(run_script: RunScript) -> None:
    report = await run_script(
        f"(head -c 5000000 /dev/zero > /job/output/big); (head -c 5000000 /dev/zero > /tmp/a)\n"
        "for name in b c; do (head -c 1000000 /dev/zero > /tmp/$name) 2>/dev/null; done\n"
        f"ls -s -k /tmp | head -1; rm /job/output/big; {DONE}",
        section=ResponderSection(file_mib=1, disk_mib=2),
    )
    assert report.success
    assert int(report.printed.split()[-1]) <= 2048


async def test_processes_that_it_leaves_behind_end_with_it(
    run_script: RunScript, shared: Path, ready: NamedPipe
) -> None:
    script = f"(trap '' HUP TERM; sleep 54321; echo late > {shared}/late) & echo $! > {ready.path}; {DONE}"
    report = await run_script(script, section=ResponderSection(writable=(shared,)))
    assert report.success
    await ready.received()
    assert not any("sleep\x0054321" in text for text in _commands())
    assert not (shared / "late").exists()


def _commands() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text())
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    "trick",
    [
        "ln -s /etc/passwd /job/output/output.json",
        "mkfifo /job/output/output.json",
        "mkdir -p /job/output/output.json/deep/deeper",
        "ln -s /proc/self/mem /job/output/output.json",
        "echo '{' > /job/output/output.json",
        f"echo {REPORT % 'hidden'}; chmod 000 /job/output",
    ],
)
async def test_a_trick_with_its_output_fails_that_run_only(
    trick: str, run_script: RunScript, tmp_path: Path, podman: Podman
) -> None:
    report = await run_script(trick)
    assert "root:" not in report.message + report.printed
    assert report.success == ("hidden" in trick)  # core reads what root may read
    assert podman.containers() == []
    assert list((tmp_path / "jobs").iterdir()) == []


# --- docker -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("docker"), reason="docker is not installed")
async def test_without_its_daemon_docker_is_told_as_not_working(make_engine: MakeEngine, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "DOCKER_HOST": f"unix://{tmp_path}/nobody"}
    with pytest.raises(ResponderBotError, match=r"docker does not work \(.*daemon") as raised:
        await make_engine(program="docker", environ=environ).catalogue()
    assert "--help" not in raised.value.message
