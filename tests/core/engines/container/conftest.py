"""Fixtures of the container engine: podman with a store of its own, images made here, and engines on both."""

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.engines.base import Report
from core.engines.container.engine import ContainerEngine
from core.settings import ResponderSection
from tests.core.engines.container.engines import Podman, engine_in, job_for, write_definition
from tests.core.engines.process.conftest import NamedPipe, ProgressLog

MakeEngine = Callable[..., ContainerEngine]


@pytest.fixture(scope="session")
def podman_of_session() -> Iterator[Podman]:
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    if not any(os.path.exists(path) for path in ("/bin/busybox", "/usr/bin/busybox")):
        pytest.skip("busybox-static, which the images are made from, is not installed")
    if os.getuid():
        pytest.skip("podman's containers are tested as root only")
    podman = Podman()
    yield podman
    podman.close()


@pytest.fixture
def podman(podman_of_session: Podman) -> Iterator[Podman]:
    """podman without any container."""
    yield podman_of_session
    podman_of_session.remove_containers()


@pytest.fixture
async def make_engine(tmp_path: Path, podman: Podman) -> AsyncIterator[MakeEngine]:
    """Creates engines on the folder of this test. The second one stands for core after a restart."""
    made: list[ContainerEngine] = []

    def make(**settings: Any) -> ContainerEngine:
        made.append(engine_in(tmp_path, podman, **settings))
        return made[-1]

    yield make
    for engine in made:
        await engine.close()


Offer = Callable[[str, str], str]


@pytest.fixture
def offer(tmp_path: Path, podman: Podman) -> Offer:
    """Makes an image of a script, and the definition of a responder that is run from it; gives the image's id."""

    def make(name: str, script: str) -> str:
        image = f"localhost/{name.lower()}:1"
        write_definition(tmp_path / "responders", name, image)
        return podman.image(image, script)

    return make


RunScript = Callable[..., Any]


@pytest.fixture
def run_script(make_engine: MakeEngine, offer: Offer) -> RunScript:
    """Runs a script as a responder, in a container, from installation to the report."""

    async def run(script: str, *, section: ResponderSection | None = None, **settings: Any) -> Report:
        offer("Script", script)
        engine = make_engine(sections={"Script_1_0": section or ResponderSection()}, **settings)
        await engine.install(lambda news: None, upgrade=False)
        report = await engine.run(await job_for(engine, "Script_1_0"), ProgressLog())
        await engine.clean_up("8257-5e")
        return report

    return run


@pytest.fixture
async def shared(tmp_path: Path) -> Path:
    """A folder that tests and containers can both write to, if a responder's settings grant it."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture
async def ready(shared: Path) -> AsyncIterator[NamedPipe]:
    """A named pipe for a signal from a container."""
    ready = NamedPipe(shared / "ready")
    ready.path.chmod(0o666)
    yield ready
    ready.close()


@pytest.fixture
async def go(shared: Path) -> AsyncIterator[NamedPipe]:
    """A named pipe for a signal to a container."""
    go = NamedPipe(shared / "go")
    go.path.chmod(0o666)
    yield go
    go.close()
