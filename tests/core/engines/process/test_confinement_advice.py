"""What `doctor` says of confinement on this machine, and what an administrator must allow."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from core.engines.confinement import Mode, advice, bwrap_cure, try_landlock, unavailable
from tests import programs
from tests.core.engines.process.test_old_kernel import WITHOUT_LANDLOCK
from tests.documents import ROOT

OLD, NONE = "This kernel has no Landlock", "There is no bwrap on this machine; install bubblewrap."
CURE = "install bubblewrap"


@pytest.mark.parametrize(
    ("mode", "landlock", "bwrap", "is_well", "words"),
    [
        ("landlock", "", "", True, "Landlock and bwrap work here, and [core] confinement is landlock"),
        ("landlock", "", NONE, True, "Landlock works here"),
        ("bwrap", "", NONE, False, 'install bubblewrap, or set [core] confinement = "landlock", which works'),
        ("landlock", OLD, "", False, 'bwrap does: set [core] confinement = "bwrap"'),
        ("bwrap", OLD, "", True, "bwrap works here, and [core] confinement is bwrap"),
        ("landlock", OLD, NONE, False, 'install bubblewrap and set [core] confinement = "bwrap", or run Linux 6.12'),
        ("bwrap", OLD, NONE, False, "nothing can confine responders here"),
        ("none", OLD, NONE, True, "nothing can confine responders here"),
    ],
)
def test_each_case_says_what_works_and_what_to_do(
    mode: Mode, landlock: str, bwrap: str, is_well: bool, words: str
) -> None:
    found, sentence = advice(mode, landlock, bwrap, CURE)
    assert found is is_well
    assert words in sentence


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor profile"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
        ("user/max_user_namespaces", "100", "allow this account user namespaces"),
    ],
)
def test_what_an_administrator_must_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: str, words: str
) -> None:
    (tmp_path / "bwrap").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / key).parent.mkdir()
    (tmp_path / key).write_text(f"{value}\n")
    assert words in bwrap_cure(tmp_path)
    (tmp_path / "bwrap").unlink()
    assert bwrap_cure(tmp_path) == "install bubblewrap"


def test_doctor_tries_both(tmp_path: Path) -> None:
    (tmp_path / "responder-bot.toml").write_text("[core]\nport = 9\n")
    ran = programs.run("bot.cli", "doctor", cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
    (line,) = [line for line in ran.stdout.splitlines() if "confinement here: " in line]
    works = [name for name, problem in (("Landlock", try_landlock()), ("bwrap", unavailable("bwrap"))) if not problem]
    assert line.startswith("ok  " if "Landlock" in works else "FAIL")
    assert all(name in line for name in works)


@pytest.mark.skipif(
    platform.machine() != "x86_64" or bool(unavailable()), reason="needs Landlock to take away, on x86_64"
)
def test_a_kernel_without_landlock_is_told(tmp_path: Path) -> None:
    names = "advice, bwrap_cure, try_landlock, unavailable"
    told = 'print(*advice("landlock", try_landlock(), unavailable("bwrap"), bwrap_cure()))'
    program = f"from core.engines.confinement import {names}\n{told}"
    command = [sys.executable, "-c", WITHOUT_LANDLOCK, sys.executable, "-c", program]
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("False nothing can confine responders here: This kernel has no Landlock")
    assert ran.stdout.endswith('install bubblewrap and set [core] confinement = "bwrap", or run Linux 6.12 or newer\n')
