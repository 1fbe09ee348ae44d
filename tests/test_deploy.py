"""What an operator deploys: the unit for systemd, Compose; and the check of licences."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from bot.settings import bot_settings
from core.common.settings_file import read_sections
from core.engines.configuration import DEFAULT_TIMEOUT_MINUTES
from core.settings import core_settings
from tests.documents import ROOT

DEPLOY = ROOT / ".github" / "deploy"
UNIT = DEPLOY / "responder-bot.service"
COMPOSE = DEPLOY / "compose.yaml"
OURS = ("responder-bot", "replica-1", "replica-2")


def environments() -> Iterator[Mapping[str, str]]:
    """The environment that Compose gives to each container, with values in place of secrets."""
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for name in OURS:
        yield {key: re.sub(r"\$\{\w+:-\}", "x", value) for key, value in services[name]["environment"].items()}


@pytest.mark.image
def test_the_manifest_fits_the_schema_of_compose() -> None:
    program = shutil.which("check-jsonschema", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("there is no check-jsonschema here; `uv run --group image` brings it")
    ran = subprocess.run([program, "--builtin-schema", "vendor.compose-spec", COMPOSE], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_manifest_sets_what_the_settings_know(tmp_path: Path) -> None:
    (tmp_path / "responder-bot.toml").touch()
    for environment in environments():
        sections = read_sections(tmp_path / "responder-bot.toml", environment)
        assert bot_settings(sections).slack.bot_token
        assert str(core_settings(sections).core.database)


def test_the_manifest_lets_the_longest_run_end() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for name in OURS:
        assert int(services[name]["stop_grace_period"].removesuffix("m")) > DEFAULT_TIMEOUT_MINUTES


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/local/bin/responder-bot", "/bin/true"))  # which has to be there
    checked = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_unit_s_settings_keep_all_that_core_writes_where_it_may(tmp_path: Path) -> None:
    unit = UNIT.read_text()
    settings = re.search(r"^#   \[core\]\n(#   .*\n)+", unit, re.M)
    assert settings is not None
    file = tmp_path / "responder-bot.toml"
    file.write_text(re.sub("^#   ", "", settings[0], flags=re.M))
    sections = read_sections(file, {})
    core = core_settings(sections).core
    (state,) = re.findall(r"^WorkingDirectory=(.+)$", unit, re.M)
    written = (core.database, core.jobs, core.environments, bot_settings(sections).core.database)
    assert [path for path in written if not isinstance(path, Path) or path.parent != Path(state)] == []


def test_a_licence_that_we_may_not_use_and_none_are_refused(tmp_path: Path) -> None:
    def check() -> tuple[int, list[str]]:
        command = [sys.executable, str(ROOT / ".ci" / "licences")]
        ran = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
        return ran.returncode, [line for line in ran.stdout.splitlines() if line.startswith("FAIL")]

    assert check() == (0, [])
    for name, line in {"shared": "License-Expression: AGPL-3.0-only\n", "unnamed": ""}.items():
        (tmp_path / f"{name}-1.dist-info").mkdir()
        (tmp_path / f"{name}-1.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 1\n{line}")
    assert check() == (1, ["FAIL  shared: AGPL-3.0-only", "FAIL  unnamed: it names no licence"])
