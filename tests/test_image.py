"""The container image: built from the Containerfile on a base made of this machine's Python, and run by podman."""

import asyncio
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bot.slack_emulator import SlackEmulator
from core.client import CoreClient
from tests.bot.people import Person, card_of
from tests.bot.running import ALERT, ANNA, add_people_and_channels
from tests.core.core_process import stepwise, until, write_pipe
from tests.documents import ROOT
from tests.ports import free_port

pytestmark = [pytest.mark.image, pytest.mark.sqlite, pytest.mark.timeout(900)]
BUSYBOX = shutil.which("busybox")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
STATE = "/var/lib/responder-bot"
SETTINGS = """
[core]
port = {port}

[[engine]]
name = "local"
responders = ["/responders"]

[responder."Stepwise_1_0"]
confinement = "none" # it waits for a pipe outside its job folder

[slack]
api_url = "{api_url}"

[[channel]]
id = "C0SOC"
clearance = "amber"
alerts = {{}}
"""


class Podman:
    """podman with a store of its own, so that nothing of the machine's is touched."""

    def __init__(self) -> None:
        # A short path: podman refuses to keep its state below a long one.
        self.place = Path(tempfile.mkdtemp(prefix="rbp", dir="/tmp"))
        self.environment = {
            "CONTAINERS_CONF": str(self.place / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.place / "storage.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self.place / "registries.conf"),
        }
        runtime = 'runtime = "runc"\n' if shutil.which("runc") else ""
        limits = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'  # a sandbox may raise none
        (self.place / "containers.conf").write_text(f'{limits}[engine]\n{runtime}tmp_dir = "{self.place}/state"\n')
        (self.place / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{self.place}/store"\nrunroot = "{self.place}/run"\n'
        )
        (self.place / "registries.conf").write_text("")

    def __call__(self, *arguments: str, given: bytes | None = None) -> str:
        """Run a command of podman; what it printed."""
        done = self.run(*arguments, given=given)
        assert not done.returncode, done.stderr.decode()
        return done.stdout.decode().strip()

    def run(self, *arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run a command of podman, which may fail."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(["podman", *arguments], env=environment, input=given, capture_output=True)

    def containers(self) -> list[str]:
        """The names of all containers."""
        return self("ps", "--all", "--format", "{{.Names}}").split()

    def remove_containers(self) -> None:
        """Kill and remove all containers."""
        self("rm", "--all", "--force", "--time", "0")

    def close(self) -> None:
        """Remove the store."""
        with suppress(AssertionError):
            self.remove_containers()
        shutil.rmtree(self.place, ignore_errors=True)


def libraries_of(programs: list[Path]) -> set[str]:
    """The shared libraries that these programs load, and those that name resolution and wheels load later."""
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True).stdout
    loaded = set(re.findall(r"(/\S+\.so\S*) \(0x", listed))
    folder = Path(next(path for path in loaded if "/libc.so" in path)).parent
    later = ("gcc_s", "stdc++", "resolv", "nss_dns", "nss_files", "rt", "pthread", "dl")
    return loaded | {str(path) for name in later for path in folder.glob(f"lib{name}.so.*[0-9]")}


def base_image(podman: Podman) -> str:
    """Make an image with the Python that runs this, and busybox; return its name with its digest."""
    assert BUSYBOX is not None
    prefix, written = Path(sys.base_prefix), io.BytesIO()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = prefix / "lib" / version

    def chosen(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path("/", entry.name).relative_to(libraries).parts
        is_foreign = parts[:1] == ("site-packages",) and len(parts) > 1 and not parts[1].startswith("pip")
        is_left_out = is_foreign or parts[:1] == ("test",) or "__pycache__" in parts or entry.name.endswith(".a")
        return None if is_left_out else entry

    with tarfile.open(fileobj=written, mode="w") as tar:

        def add_folder(name: str, mode: int = 0o755) -> None:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            tar.addfile(folder)

        for parent in reversed((prefix / "bin").relative_to("/").parents):
            add_folder(str(parent))
        add_folder("tmp", 0o1777)
        tar.add(os.path.realpath(BUSYBOX), "bin/busybox")
        for applet in ("sh", "cat", "chown", "cp", "id", "mkdir", "sleep", "touch"):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        program = prefix / "bin" / version
        tar.add(program, str(program))
        link = tarfile.TarInfo(str(prefix / "bin" / "python3"))
        link.type, link.linkname = tarfile.SYMTYPE, version
        tar.addfile(link)
        tar.add(libraries, str(libraries), filter=chosen)
        for library in libraries_of([program, *libraries.glob("lib-dynload/*.so")]):
            tar.add(os.path.realpath(library), library)
        for name in (CERTIFICATES, "/etc/services", "/etc/protocols"):
            tar.add(os.path.realpath(name), name)
        for name, text in {"etc/passwd": "root:x:0:0::/:/bin/sh\n", "etc/group": "root:x:0:\n"}.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
    environment = (f"PATH={prefix}/bin:/bin", f"SSL_CERT_FILE={CERTIFICATES}", f"PIP_CERT={CERTIFICATES}")
    changes = [part for variable in environment for part in ("--change", f"ENV {variable}")]
    podman("import", *changes, "-", "localhost/base:1", given=written.getvalue())
    return "localhost/base@" + podman("image", "inspect", "--format", "{{.Digest}}", "localhost/base:1")


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    if not shutil.which("podman") or BUSYBOX is None or os.getuid():
        pytest.skip("this needs podman, busybox-static and root")
    podman = Podman()
    yield podman
    podman.close()


@pytest.fixture(scope="module")
def image(podman: Podman) -> str:
    file = ROOT / ".github" / "deploy" / "Containerfile"
    options = ("--format", "docker", "--layers=false", "--network", "host", "--file", str(file))
    podman("build", *options, "--build-arg", f"BASE={base_image(podman)}", "--tag", "responder-bot", str(ROOT))
    return "localhost/responder-bot"


async def test_it_needs_no_root_writes_to_its_volume_only_confines_responders_and_drains(
    tmp_path: Path, podman: Podman, image: str
) -> None:
    async def inside(*command: str) -> str:
        return await asyncio.to_thread(podman, "exec", "bot", *command)

    stepwise(tmp_path / "responders", "Stepwise")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    emulator = SlackEmulator(rates=False)
    add_people_and_channels(emulator)
    port = free_port()
    settings = tmp_path / "responder-bot.toml"
    async with emulator, Person(emulator.url, emulator.page_token, ANNA) as anna:
        settings.write_text(SETTINGS.format(port=port, api_url=emulator.api_url))
        settings.chmod(0o644)
        volumes = {
            "state": STATE,
            settings: f"{STATE}/responder-bot.toml:ro",
            shared: "/shared",
            tmp_path / "responders": "/responders:ro",
        }
        options = [f"--volume={place}:{target}" for place, target in volumes.items()]
        options += [f"--env=SLACK_BOT_TOKEN={emulator.bot_token}", f"--env=SLACK_APP_TOKEN={emulator.app_token}"]
        options += ["--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
        await asyncio.to_thread(podman, "run", "--detach", "--name", "bot", "--network", "host", *options, image)

        def is_healthy() -> bool:
            return not podman.run("healthcheck", "run", "bot").returncode

        await until(is_healthy, "health of the container")
        assert await inside("id", "-u") == "10001"
        assert podman.run("exec", "bot", "touch", "/opt/responder-bot/new").returncode == 1
        key = await inside("responder-bot", "user", "add", "anna", "--profile", "analyst", "--slack-id", ANNA)
        async with CoreClient(f"http://127.0.0.1:{port}", key) as core:
            parts = {part["name"]: part for part in (await core.health())["parts"]}
            assert parts["confinement"]["ok"], parts["confinement"]["message"]
            alert_id = (await core.create_alert(ALERT)).id
            await anna.sees(card_of(alert_id))
            body = {"responderId": "ResponderBot_ExtractIndicators_1_0", "objectType": "alert", "objectId": alert_id}
            run = await core.run(body)
            while run.end_date is None:
                run = await core.action(run.id, wait_s=20)
            assert run.status == "Success", run.report

            pipe = shared / "pipe"
            os.mkfifo(pipe)
            pipe.chmod(0o666)
            steps = ["wait /shared/pipe", "write"]
            waiting = await core.run({**body, "responderId": "Stepwise_1_0", "parameters": {"steps": steps}})
            await asyncio.to_thread(podman, "kill", "--signal", "TERM", "bot")  # `stop` lets nobody look
            await until(lambda: "draining" in podman("exec", "bot", "responder-bot", "hosts"), "draining")
            await write_pipe(pipe)
        assert await asyncio.to_thread(podman, "wait", "bot") == "0"
        await asyncio.to_thread(podman, "start", "bot")
        await until(is_healthy, "health of the container")
        async with CoreClient(f"http://127.0.0.1:{port}", key) as core:
            assert (await core.action(waiting.id)).status == "Success"
        await asyncio.to_thread(podman, "stop", "--time", "60", "bot")
        podman.remove_containers()


async def test_compose_starts_one_on_sqlite_that_drains(tmp_path: Path, podman: Podman, image: str) -> None:
    compose = shutil.which("podman-compose", path=str(Path(sys.executable).parent))
    if compose is None:
        pytest.skip("there is no podman-compose here; `uv run --group image` brings it")
    manifest = (ROOT / ".github" / "deploy" / "compose.yaml").read_text()
    (tmp_path / "compose.yaml").write_text(manifest.replace("127.0.0.1:9000:", "127.0.0.1::"))  # on any free port
    (tmp_path / "responder-bot.toml").touch(0o644)
    (tmp_path / ".env").write_text("SLACK_BOT_TOKEN=xoxb-1\nSLACK_APP_TOKEN=xapp-1\n")
    up = await asyncio.create_subprocess_exec(
        *(compose, "--profile", "sqlite", "up", "--detach"), cwd=tmp_path, env={**os.environ, **podman.environment}
    )
    assert await up.wait() == 0
    (name,) = podman.containers()
    await until(
        lambda: podman.run("exec", name, "responder-bot", "health").stdout == b"ok\n", "health of the container"
    )
    await asyncio.to_thread(podman, "stop", "--time", "60", name)
    assert podman("inspect", "--format", "{{.State.ExitCode}}", name) == "0"
