"""The container engine as administrators and analysts meet it: commands, health, and why a responder isn't on offer."""

import asyncio
import json
import os
import sys
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from core.settings import EngineSection, ResponderSection
from tests.core.engines.container.engines import REPORT, Podman, definition
from tests.core.running import RunningCore, running_core

pytestmark = pytest.mark.container

ENGINE = "/api/connector/engine"
ALERT = {"type": "siem", "source": "elastalert", "sourceRef": "0", "title": "t", "description": "d"}

SETTINGS = """
[core]
database = "{place}/core.db"
jobs = "{place}/jobs"
environments = "{place}/environments"

[[engine]]
name = "boxes"
type = "container"
responders = ["{place}/responders.json"]

[responder."Boxed_1_0"]
network = "none"
{more}
"""


class Commands:
    """`responder-bot responders ...` with settings of this test."""

    def __init__(self, place: Path, podman: Podman) -> None:
        self._place, self._podman = place, podman

    def __call__(self, *arguments: str, more: str = "") -> tuple[int, str]:
        """Exit code and all output."""
        file = self._place / "responder-bot.toml"
        file.write_text(SETTINGS.format(place=self._place, more=more))
        done = run(
            [sys.executable, "-m", "core.cli", "responders", *arguments, "--config", str(file)],
            env={**os.environ, **self._podman.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def commands(tmp_path: Path, podman: Podman) -> Commands:
    entry = definition("Boxed", "localhost/boxed:1")
    entry["configurationItems"] = [{"name": "password", "type": "string", "multi": False, "required": False}]
    (tmp_path / "responders.json").write_text(json.dumps([entry]))
    return Commands(tmp_path, podman)


def test_install_and_check_tell_of_images(commands: Commands, podman: Podman) -> None:
    code, said = commands("check")
    assert code == 1
    assert "its image localhost/boxed:1 is not installed; run `responder-bot responders install`" in said
    code, said = commands("install")
    assert (code, said.splitlines()[-1]) == (1, "0 images ready, 1 failed")
    podman.image("localhost/boxed:1", f"echo {REPORT % 'boxed'}")
    code, said = commands("install")
    assert (code, said.splitlines()[-1]) == (0, "1 images ready, 0 failed")
    assert "localhost/boxed:1: installed: " in said
    code, said = commands("check")
    assert code == 0, said
    assert "boxes: 1 available, 0 not" in said
    code, said = commands("check", more='config = { password = { file = "missing" } }')
    assert code == 1
    assert "configuration item 'password' can't be read" in said


@pytest.fixture
def environment_of(monkeypatch: pytest.MonkeyPatch, podman: Podman) -> pytest.MonkeyPatch:
    """The environment of this process, with the podman of these tests."""
    for name, value in podman.environment.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


async def health_of(core: RunningCore, part: str) -> dict[str, Any]:
    """One part of what `/health` tells."""
    parts: list[dict[str, Any]] = (await core.send("GET", "/health")).json()["parts"]
    return next(one for one in parts if one["name"] == part)


async def test_from_an_image_that_is_missing_to_a_run_over_http(
    commands: Commands, podman: Podman, tmp_path: Path, environment_of: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {
        "engine": (EngineSection(name="boxes", type="container", responders=(tmp_path / "responders.json",)),),
        "responder": {"Boxed_1_0": ResponderSection(network="none")},
    }
    async with running_core(tmp_path, **settings) as core:
        alert = (await core.send("POST", "/api/alert", ALERT)).json()
        (told,) = (await core.send("GET", f"{ENGINE}/responder/alert/{alert['id']}?explain=true")).json()
        assert (told["verdict"], told["reasons"]) == (
            "cannot_run",
            ["its image is not installed; an administrator can run `responder-bot responders install`"],
        )
        assert "its image localhost/boxed:1 is not installed" in (await health_of(core, "engine boxes"))["message"]
        podman.image("localhost/boxed:1", f"echo {REPORT % 'boxed'}")
        assert commands("install")[0] == 0
        await core.core.registry.refresh()
        (told,) = (await core.send("GET", f"{ENGINE}/responder/alert/{alert['id']}?explain=true")).json()
        run = {"responderId": told["id"], "objectType": "alert", "objectId": alert["id"]}
        action = (await core.send("POST", f"{ENGINE}/action", run, profile="analyst")).json()
        while action["status"] in ("Waiting", "InProgress"):
            action = (await core.send("GET", f"{ENGINE}/action/{action['id']}?wait=20000")).json()
        assert action["status"] == "Success"
        assert json.loads(action["report"])["full"] == {"message": "boxed"}
        for _ in range(300):
            if not podman.containers():
                break
            await asyncio.sleep(0.1)  # podman tells nobody
        assert podman.containers() == []  # removed after the end was stored
        assert (await health_of(core, "engine boxes"))["ok"]


async def test_health_tells_of_a_runtime_that_does_not_work(
    commands: Commands, tmp_path: Path, environment_of: pytest.MonkeyPatch
) -> None:
    (tmp_path / "damaged.conf").write_text("[storage]\ndriver = 7\n")
    environment_of.setenv("CONTAINERS_STORAGE_CONF", str(tmp_path / "damaged.conf"))
    settings = {"engine": (EngineSection(name="boxes", type="container", responders=(tmp_path / "responders.json",)),)}
    async with running_core(tmp_path, **settings) as core:
        part = await health_of(core, "engine boxes")
    assert not part["ok"]
    assert part["message"].startswith("podman does not work (")
