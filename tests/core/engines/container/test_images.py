"""Definitions and images: what is offered, how `install` pulls and pins, and that a run uses just what was pinned."""

import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from core.engines.container.engine import ContainerEngine
from core.engines.container.images import PullStatus, qualified
from core.settings import ResponderSection
from tests.core.engines.container.conftest import MakeEngine, Offer
from tests.core.engines.container.engines import REPORT, Podman, definition, job_for, write_definition
from tests.core.engines.process.conftest import ProgressLog
from tests.core.scripted_engine import run_id_of

pytestmark = pytest.mark.container


class Registry:
    """A registry of images over HTTP, which serves folders that podman wrote; it keeps what was asked for."""

    def __init__(self, podman: Podman, place: Path) -> None:
        self._podman, self._place = podman, place
        self.asked: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                found = registry.find(self.path)
                self.send_response(200 if found else 404)
                if found:
                    content = found.read_bytes()
                    kind = json.loads(content).get("mediaType", "") if found.name.startswith("manifest") else ""
                    self.send_header("Content-Type", kind or "application/octet-stream")
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if found:
                    self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        insecure = f'[[registry]]\nlocation = "{self.address}"\ninsecure = true\n'
        (podman.place / "registries.conf").write_text(insecure)
        Thread(target=self._server.serve_forever, daemon=True).start()

    def push(self, name: str, tag: str, script: str) -> str:
        """Serve an image that runs the script; return its name."""
        image = self._podman.image("localhost/built:1", script)
        folder = self._place / f"{name}-{image[7:19]}"
        self._podman("push", "--format", "v2s2", image, f"dir:{folder}")
        (folder / "manifest").write_bytes((folder / "manifest.json").read_bytes())
        (self._place / f"{name}-{tag}.tag").write_text(folder.name)
        self._podman("image", "rm", "--force", image)
        return f"{self.address}/{name}:{tag}"

    def find(self, path: str) -> Path | None:
        """The file that a request asks for, by tag or by digest."""
        if path == "/v2/":
            return self._empty()
        _, _, name, kind, wanted = path.split("/")
        tag = self._place / f"{name}-{wanted}.tag"
        if kind == "manifests" and tag.exists():
            return self._place / tag.read_text() / "manifest"
        for folder in self._place.glob(f"{name}-*/"):
            for file in folder.iterdir():
                if wanted == f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}" and file.name != "manifest.json":
                    return file
        return None

    def _empty(self) -> Path:
        (self._place / "empty").write_text("{}")
        return self._place / "empty"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        (self._podman.place / "registries.conf").write_text("")


@pytest.fixture
def registry(podman: Podman, tmp_path: Path) -> Iterator[Registry]:
    (tmp_path / "registry").mkdir()
    registry = Registry(podman, tmp_path / "registry")
    yield registry
    registry.close()


async def installed(engine: ContainerEngine, *, upgrade: bool = False) -> list[tuple[str, str]]:
    return [(news.image, news.state) for news in await engine.install(lambda news: None, upgrade=upgrade)]


async def result_of(engine: ContainerEngine, action_id: str) -> str:
    report = await engine.run(await job_for(engine, "Pulled_1_0", action_id=action_id), ProgressLog())
    await engine.clean_up(run_id_of(action_id))
    return report.message


async def test_an_image_is_pulled_once_pinned_by_digest_and_upgraded_on_demand(
    make_engine: MakeEngine, registry: Registry, podman: Podman, tmp_path: Path
) -> None:
    name = registry.push("responder", "1.0", f"echo {REPORT % 'first'}")
    write_definition(tmp_path / "responders", "Pulled", name)
    engine = make_engine()
    (skipped,) = (await engine.catalogue()).skipped
    assert f"its image {name} is not installed; run `responder-bot responders install`." in skipped.reason
    assert skipped.public_reason == (
        "its image is not installed; an administrator can run `responder-bot responders install`"
    )
    seen: list[PullStatus] = []
    await engine.install(seen.append, upgrade=False)
    assert [news.state for news in seen] == ["pulling", "installed"]
    assert seen[-1].message.startswith(f"{registry.address}/responder@sha256:")
    assert await result_of(engine, "~1") == "first"

    registry.push("responder", "1.0", f"echo {REPORT % 'second'}")
    registry.asked.clear()
    assert await installed(engine) == [(name, "cached")]
    assert await result_of(engine, "~2") == "first"
    assert registry.asked == []  # neither install nor a run asked

    podman("image", "rm", "--force", "--all")
    assert await installed(engine) == [(name, "installed")]
    assert await result_of(engine, "~3") == "first"

    assert await installed(engine, upgrade=True) == [(name, "installed")]
    assert await result_of(engine, "~4") == "second"


async def test_an_image_that_cant_be_pulled_has_its_reason(
    make_engine: MakeEngine, registry: Registry, tmp_path: Path
) -> None:
    name = f"{registry.address}/missing:1.0"
    write_definition(tmp_path / "responders", "Pulled", name)
    engine = make_engine()
    assert await installed(engine) == [(name, "failed")]
    (skipped,) = (await engine.catalogue()).skipped
    assert f"its image {name} could not be installed: " in skipped.reason
    assert skipped.reason.endswith("correct that and run `responder-bot responders install`.")


async def test_a_tag_that_moves_on_this_machine_does_not_change_what_runs(
    make_engine: MakeEngine, offer: Offer, podman: Podman
) -> None:
    offer("Pulled", f"echo {REPORT % 'first'}")
    engine = make_engine()
    assert await installed(engine) == [("localhost/pulled:1", "installed")]
    podman.image("localhost/pulled:1", f"echo {REPORT % 'second'}")
    assert await installed(engine) == [("localhost/pulled:1", "cached")]
    assert await result_of(engine, "~1") == "first"


async def test_of_a_list_only_what_the_settings_name_is_installed_and_missed(
    make_engine: MakeEngine, podman: Podman, tmp_path: Path
) -> None:
    podman.image("localhost/listed:1", f"echo {REPORT % 'listed'}")
    entries: list[Any] = [
        definition("Pulled", "localhost/listed:1", author="somebody", command="Pulled/pulled.py", baseConfig="Pulled"),
        definition("Other", "localhost/nowhere:1"),
        definition("Odd", "--privileged"),
        {"name": "Program", "version": "1.0", "dataTypeList": ["thehive:case"], "command": "Program/program.py"},
        "nonsense",
    ]
    (tmp_path / "responders.json").write_text(json.dumps(entries))
    engine = make_engine(sections={"Pulled_1_0": ResponderSection()}, responders=(tmp_path / "responders.json",))
    assert await installed(engine) == [("localhost/listed:1", "installed")]
    catalogue = await engine.catalogue()
    assert [responder.name for responder in catalogue.responders] == ["Pulled_1_0"]
    reasons = {item.name: item.reason.partition("responders.json: ")[2] for item in catalogue.skipped}
    assert reasons == {
        "Odd": "entry 3: its dockerImage is not the name of an image, such as cortexneurons/mailer:1.0.",
        "Other_1_0": 'its image localhost/nowhere:1 is not installed; add [responder."Other_1_0"] to the settings and'
        " run `responder-bot responders install`.",
        "Program": "entry 4: it has a command and no dockerImage; an engine of type process can run it.",
        "responders": "entry 5: it is not a JSON object.",
    }
    assert [item.name for item in catalogue.skipped if not item.is_wanted] == ["Other_1_0"]
    assert await result_of(engine, "~1") == "listed"


def test_names_without_a_registry_are_of_docker_hub() -> None:
    assert qualified("cortexneurons/mailer:1.0") == "docker.io/cortexneurons/mailer:1.0"
    assert qualified("mailer") == "docker.io/library/mailer"
    for name in ("localhost/a:1", "127.0.0.1:5000/a:1", "quay.io/a/b@sha256:0"):
        assert qualified(name) == name
