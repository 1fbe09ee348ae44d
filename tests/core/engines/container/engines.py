"""Podman, images made here, and engines on both. Without pytest, since a program that stands for a core uses it too."""

import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.engines.base import Job
from core.engines.container.engine import ContainerEngine
from core.engines.container.runtime import Runtime
from core.engines.job_folder_engine import EngineOptions
from core.settings import ResponderSection
from tests.core.scripted_engine import run_id_of

REPORT = """'{"success": true, "full": {"message": "%s"}}' > /job/output/output.json"""
"""The rest of a line of shell script that writes a report with this message."""


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

    def image(self, name: str, script: str) -> str:
        """Make an image whose program is a shell script; return its id."""
        start = "ENTRYPOINT " + json.dumps(["/bin/sh", "/program"])
        printed = self("import", "--change", start, "-", name, given=_root_folder(script))
        return "sha256:" + printed.splitlines()[-1].removeprefix("sha256:")

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


def _root_folder(script: str) -> bytes:
    """A tar file with busybox, whose shell has all other commands built in, and the script."""
    busybox = Path(next(path for path in ("/bin/busybox", "/usr/bin/busybox") if os.path.exists(path))).read_bytes()
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        folder = tarfile.TarInfo("bin")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
        for name, content in (("bin/sh", busybox), ("program", script.encode())):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def write_definition(place: Path, name: str, image: str, **more: Any) -> None:
    """Write the definition of a responder below the folder of responders `place`."""
    (place / name).mkdir(parents=True, exist_ok=True)
    (place / name / f"{name}.json").write_text(json.dumps(definition(name, image, **more)))


def definition(name: str, image: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "version": "1.0", "dataTypeList": ["thehive:alert"], "dockerImage": image, **more}


def engine_in(
    place: Path,
    podman: Podman | None,
    *,
    sections: Mapping[str, ResponderSection] | None = None,
    responders: tuple[Path, ...] | None = None,
    core_id: str = "one",
    program: Any = "podman",
    environ: Mapping[str, str] | None = None,
    **settings: Any,
) -> ContainerEngine:
    """An engine with its state below `place`, for the responders in `place/responders`.

    Without `podman` it uses the one that the environment names.
    """
    options = EngineOptions(
        "boxes",
        organisation="default",
        product="thehive",
        responders=_without_network(place, sections or {}),
        jobs=place / "jobs",
        environments=place / "environments",
        capacity=4,
        **{"keep_jobs": False, "grace_s": 1.0, **settings},
    )
    runtime = Runtime(program, environ or {**os.environ, **(podman.environment if podman else {})})
    return ContainerEngine(options, runtime=runtime, core_id=core_id, responders=responders or (place / "responders",))


def _without_network(place: Path, sections: Mapping[str, ResponderSection]) -> Mapping[str, ResponderSection]:
    """The sections, without a network for those that don't set one: it takes a while to set up."""
    found = {f"{path.name}_1_0": ResponderSection() for path in place.glob("responders/*")} | dict(sections)
    return {
        name: section if "network" in section.model_fields_set else section.model_copy(update={"network": "none"})
        for name, section in found.items()
    }


async def job_for(engine: ContainerEngine, name: str, *, action_id: str = "~8257", **more: Any) -> Job:
    """A job for the responder with the definition id `name`."""
    found = next(item for item in (await engine.catalogue()).responders if item.name == name)
    job = Job(
        action_id=action_id,
        run_id=run_id_of(action_id),
        responder_id=found.id,
        responder_name=found.name,
        data={"_id": "~12", "title": "Beacon to 198.51.100.7"},
        data_type="alert",
        tlp=2,
        pap=1,
    )
    return Job(**{**vars(job), **more})
