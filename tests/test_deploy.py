"""Files below `.github/deploy/` that no other test reads."""

import shutil
import subprocess
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
