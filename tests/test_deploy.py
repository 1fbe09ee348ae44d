"""The unit for systemd, and the check of licences."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT

UNIT = ROOT / ".github" / "deploy" / "responder-bot.service"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/local/bin/responder-bot", "/bin/true"))  # which has to be there
    checked = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


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
