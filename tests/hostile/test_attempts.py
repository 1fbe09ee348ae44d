"""Each attempt of a hostile responder, in each mode of confinement, as root and as an ordinary user: it is refused,
core stays up, and the next run is clean.
"""

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from core.engines.confinement import unavailable
from tests.hostile.attacked import MODES, SLOW

pytestmark = pytest.mark.hostile

ROOT = Path(__file__).parents[2]
SYSTEM_PYTHON = Path("/usr/bin/python3")
NOBODY = 65534
ACCOUNTS = ("root", "nobody")

Outcomes = dict[str, str]


def quick_attempts() -> list[str]:
    """The names in QUICK of `attacker.py`, which can only be imported as a responder's program."""
    tree = ast.parse(Path(__file__).with_name("attacker.py").read_text())
    table = next(
        node.value for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and ast.unparse(node.targets[0]) == "QUICK"
    )  # fmt: skip
    return [ast.literal_eval(key) for key in table.keys if key is not None]


QUICK = quick_attempts()


@pytest.fixture(scope="module")
def attacked(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], Outcomes]]:
    """Makes all attempts in one mode at its first call, and prints the table of all modes at the end."""
    made: dict[tuple[str, str], Outcomes] = {}

    def outcomes(mode: str, account: str) -> Outcomes:
        if (mode, account) not in made:
            made[mode, account] = attack(mode, account)
        return made[mode, account]

    yield outcomes
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{table(made)}")  # noqa: T201 - for who reads the run's output


def attack(mode: str, account: str) -> Outcomes:
    site = next(part for part in sys.path if part.endswith("site-packages"))
    is_nobody = account == "nobody" and os.getuid() == 0
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "state").mkdir()
        for path in (folder, f"{folder}/state"):
            if is_nobody:
                os.chown(path, NOBODY, NOBODY)
        python = SYSTEM_PYTHON if is_nobody else Path(sys.executable)
        ran = subprocess.run(
            [python, "-m", "tests.hostile.attacked", folder, mode, str(python), json.dumps(QUICK)],
            cwd=ROOT,
            user=NOBODY if is_nobody else None,
            group=NOBODY if is_nobody else None,
            extra_groups=[] if is_nobody else None,
            capture_output=True,
            text=True,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{site}", "HOME": "/"},
        )
        assert ran.returncode == 0, ran.stderr
    found: Outcomes = json.loads(ran.stdout.splitlines()[-1])
    return found


@cache
def reason_to_skip(mode: str, account: str) -> str:
    """Why this machine can't show it; empty where it can."""
    if account == "root" and os.getuid() != 0:
        return "these tests don't run as root"
    is_nobody = account == "nobody" and os.getuid() == 0
    if is_nobody and not _can_be_nobody():
        return "an ordinary user can't import this project here"
    if mode == "bwrap":
        return _bwrap_of_nobody() if is_nobody else unavailable("bwrap")
    return unavailable()


def _can_be_nobody() -> bool:
    return _as_nobody("import tests.hostile.attacked").returncode == 0


def _bwrap_of_nobody() -> str:
    program = "from core.engines.confinement import unavailable; print(unavailable('bwrap'))"
    return _as_nobody(program).stdout.strip()


def _as_nobody(program: str) -> subprocess.CompletedProcess[str]:
    site = next(part for part in sys.path if part.endswith("site-packages"))
    return subprocess.run(
        [SYSTEM_PYTHON, "-c", program],
        cwd=ROOT, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True,
        env={"PATH": os.defpath, "PYTHONPATH": f"{ROOT}:{site}", "HOME": "/"},
    )  # fmt: skip


def table(made: dict[tuple[str, str], Outcomes]) -> str:
    heads = [f"{mode} as {account}" for mode, account in made]
    lines = [" | ".join(["attempt", *heads])]
    lines += [" | ".join([name, *(found.get(name, "-") for found in made.values())]) for name in (*QUICK, *SLOW)]
    return "\n".join(lines)


REFUSED = ("EACCES", "EPERM", "ENOENT", "EROFS", "EXDEV", "ESRCH", "EAGAIN", "EBADF", "ENODATA", "EINVAL")


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("attempt", [*QUICK, *SLOW])
def test_an_attempt_is_refused(attacked: Callable[[str, str], Outcomes], attempt: str, mode: str, account: str) -> None:
    if reason := reason_to_skip(mode, account):
        pytest.skip(reason)
    assert attacked(mode, account)[attempt] in (*REFUSED, "ended", "refused", "killed", "no effect")
