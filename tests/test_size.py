"""`.ci/size` counts lines of code, and fails beyond its bounds."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT

MODULE = '''"""A module
on two lines."""

import a  # why
from b import (
    c,
)

# a comment
X = 1
"""What X is."""


def f() -> str:
    """What it gives."""
    return """a
b"""
'''


@pytest.mark.parametrize(("bot", "code"), [(8, 0), (7, 1)])
def test_code_is_counted_without_blanks_comments_and_docstrings(tmp_path: Path, bot: int, code: int) -> None:
    for name in ("bot/a.py", "bot/slack_emulator/b.py", "core/c.py", "tests/test_a.py", "README.md", ".ci/size.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(MODULE if name.endswith(".py") else "two words\n")
    (tmp_path / ".ci/size.toml").write_text(f"bot = {bot}\ncore = 8\n")
    done = subprocess.run([sys.executable, ROOT / ".ci/size", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[:3] == [
        f"bot: 8 lines of code; at most {bot}",
        "core: 8 lines of code; at most 8",
        "2 files, 8 lines of imports, 17 lines of tests, 2 words of documents",
    ]
    assert ("bot has more code" in done.stdout) == bool(code)
