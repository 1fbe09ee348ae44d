"""What the README and the page on engines show works as shown."""

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from core.settings import EngineSection
from core.settings import load as load_core
from tests import stores
from tests.bot.samples import load as load_bot
from tests.core.api.test_four_operations import alert, run
from tests.core.running import ended, running_core
from tests.documents import ROOT, blocks

README = ROOT / "README.md"
ENGINES = ROOT / "core" / "engines" / "README.md"
RESPONDERS = ROOT / "core/docs/responders.md"


def test_each_example_of_settings_loads(tmp_path: Path) -> None:
    examples = [*blocks(README, "toml"), *blocks(RESPONDERS, "toml")]
    assert examples
    for number, example in enumerate(examples):
        file = tmp_path / f"{number}.toml"
        file.write_text(example)
        load_core(file, {})
        load_bot(file, {})


def test_every_bundled_responder_is_listed() -> None:
    definitions = (json.loads(file.read_text()) for file in (ROOT / "core" / "bundled").glob("*/*.json"))
    bundled = {f"{item['name']}_{item['version'].replace('.', '_')}" for item in definitions}
    assert set(re.findall(r"^\| `(\w+)` \| ", RESPONDERS.read_text(), re.M)) >= bundled


def test_the_pictures_are_small() -> None:
    pictures = re.findall(r'src(?:set)?="([^"]+\.png)"', README.read_text())
    assert pictures
    assert all((ROOT / picture).stat().st_size < 300_000 for picture in pictures)


async def test_the_examples_with_curl_create_an_alert_and_run_a_responder_on_it(tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl here")
    examples = "".join(block for page in (README, RESPONDERS) for block in blocks(page, "sh") if "curl" in block)
    uv = 'uv() { shift 2; "$PYTHON" -m bot.cli "$@"; }\ncurl() { command curl -sS --fail-with-body -w "\\n" "$@"; }\n'
    async with running_core(tmp_path) as core:
        environment = {"PYTHON": sys.executable, "RESPONDER_BOT_CORE_DATABASE": stores.setting(tmp_path / "core.db")}
        process = await asyncio.create_subprocess_exec(
            *("bash", "-eu", "-c", uv + examples.replace("http://127.0.0.1:9000", core.url)),
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    alert_made, explained, run_started, listed = (json.loads(line) for line in out.decode().splitlines())
    assert alert_made["id"] == "~1"
    assert {one["verdict"] for one in explained} == {"can_run", "cannot_run"}
    assert [action["id"] for action in listed] == [run_started["id"]]


async def test_the_example_of_a_responder_runs(tmp_path: Path) -> None:
    folder = tmp_path / "responders" / "Hello"
    folder.mkdir(parents=True)
    (definition,) = blocks(ENGINES, "json")
    (program,) = blocks(ENGINES, "python")
    (folder / "Hello.json").write_text(definition)
    (folder / "hello.py").write_text(program)
    engine = EngineSection(name="local", responders=(folder.parent,))
    async with running_core(tmp_path, engine=(engine,)) as core:
        alert_id = await alert(core)
        action = await ended(core, (await run(core, "Hello_1_0", "alert", alert_id))["id"])
        assert action["status"] == "Success"
        assert (await core.send("GET", f"/api/alert/{alert_id}")).json()["tags"] == ["greeted"]
