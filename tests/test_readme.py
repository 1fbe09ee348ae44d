"""The README says what is there."""

import asyncio
import json
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from bot.settings import BotSection, ChannelSection, Route, SlackSection
from bot.settings import load as load_bot
from core.settings import CoreSection, EngineSection, ResponderSection
from core.settings import load as load_core
from tests.core.api.test_interface import alert, ended, run
from tests.core.running import running_core
from tests.readme_map import ROOT, with_map

README = (ROOT / "README.md").read_text()


def toml_blocks() -> list[str]:
    return [re.sub(r"^ {3}", "", block, flags=re.M) for block in re.findall(r"```toml\n(.*?)```", README, re.S)]


def keys(model: type[BaseModel]) -> set[str]:
    return set(model.model_fields)


def test_the_map_is_made_from_the_modules() -> None:
    assert with_map(README) == README, "run `uv run python -m tests.readme_map`"


def test_each_example_of_settings_is_accepted(tmp_path: Path) -> None:
    assert len(toml_blocks()) == 3
    for number, block in enumerate(toml_blocks()):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        load_core(file, {})
        load_bot(file, {})


def test_the_settings_name_every_key_and_the_true_default() -> None:
    tables: dict[str, Any] = tomllib.loads(toml_blocks()[-1])
    assert set(tables["core"]) == keys(CoreSection)
    assert set().union(*tables["engine"]) == keys(EngineSection)
    assert set(tables["responder"]["Mailer_1_0"]) == keys(ResponderSection)
    assert set(tables["bot"]) == keys(BotSection)
    assert set(tables["slack"]) == keys(SlackSection)
    assert set(tables["channel"][0]) == keys(ChannelSection)
    assert set(tables["channel"][0]["alerts"]) == keys(Route)
    for name, value in tables["core"].items():
        default = CoreSection.model_fields[name].default
        assert value == (str(default) if isinstance(default, Path) else default), name


def test_the_two_commands_are_there_and_the_second_is_what_ci_runs() -> None:
    assert "pip install uv && uv run responder-bot try" in README
    assert "pip install uv && uv run pytest" in README
    assert "uv run pytest\n" in (ROOT / ".ci" / "run").read_text()


def test_the_pictures_are_there_and_small() -> None:
    pictures = re.findall(r'src(?:set)?="([^"]+\.png)"', README)
    assert pictures
    for name in pictures:
        assert (ROOT / name).stat().st_size < 300_000


async def test_the_examples_with_curl_say_what_they_should(tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl here")
    blocks = [block for block in re.findall(r"```sh\n(.*?)```", README, re.S) if "curl" in block]
    uv = 'uv() { shift 2; "$PYTHON" -m bot.cli "$@"; }\ncurl() { command curl -sS --fail-with-body -w "\\n" "$@"; }\n'
    async with running_core(tmp_path) as core:
        script = uv + "".join(blocks).replace("http://127.0.0.1:9000", core.url)
        environment = {"PYTHON": sys.executable, "RESPONDER_BOT_CORE_DATABASE": str(tmp_path / "core.db")}
        process = await asyncio.create_subprocess_exec(
            *("bash", "-eu", "-c", script),
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


async def test_the_responder_of_the_example_runs(tmp_path: Path) -> None:
    folder = tmp_path / "responders" / "Hello"
    folder.mkdir(parents=True)
    (definition,) = re.findall(r"```json\n(.*?)```", README, re.S)
    (program,) = re.findall(r"```python\n(.*?)```", README, re.S)
    (folder / "Hello.json").write_text(definition)
    (folder / "hello.py").write_text(program)
    engine = EngineSection(name="local", responders=(folder.parent,))
    async with running_core(tmp_path, engine=(engine,)) as core:
        alert_id = await alert(core)
        action = await ended(core, (await run(core, "Hello_1_0", "alert", alert_id))["id"])
        assert action["status"] == "Success"
        assert (await core.send("GET", f"/api/alert/{alert_id}")).json()["tags"] == ["greeted"]
