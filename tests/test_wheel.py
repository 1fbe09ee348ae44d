"""The wheel works outside the source tree, and beside another distribution with a package `core`."""

import ensurepip
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.documents import ROOT, files

TOP = "responder_bot/"
SCRIPT = "bot/script/responder_bot.py"  # which is the package itself in the wheel
OTHER = {
    "core/__init__.py": "MAKER = 'somebody else'\n",
    "bot.py": "MAKER = 'somebody else'\n",
    "other-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: other\nVersion: 1.0\n",
    "other-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "other-1.0.dist-info/RECORD": "",
}


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """The standard output of a command, which must end with 0. It can ask no index."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "VIRTUAL_ENV"))}
    env = {**kept, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "UV_OFFLINE": "1"}
    ended = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("hatchling") is None:
        pytest.skip("there is no hatchling here; `uv sync` brings it")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    return next(folder.glob("*.whl"))


def test_the_wheel_has_every_file_of_both_packages_below_a_folder_of_its_own(wheel: Path) -> None:
    installed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = {str(path.relative_to(ROOT)) for path in files("")}
    shipped = {name for name in tracked if name.startswith(("bot/", "core/")) or name == "manifest.yml"}
    assert installed == {f"{TOP}{name}" for name in (*shipped - {SCRIPT}, "__init__.py")}


def zipped(file: Path, content: Mapping[str, str]) -> Path:
    with zipfile.ZipFile(file, "w") as wheel:
        for name, text in content.items():
            wheel.writestr(name, text)
    return file


def test_pip_installs_a_command_that_works_beside_another_core(wheel: Path, tmp_path: Path) -> None:
    """The plain pip of a plain environment, which takes the dependencies from that of the tests."""
    made = tmp_path / "environment"
    venv.create(made)
    brought = (
        sysconfig.get_config_var("WHEEL_PKG_DIR") or Path(ensurepip.__file__).parent / "_bundled"
    )  # Debian's first
    pip = next(Path(brought).glob("pip-*.whl")) / "pip"  # as it is, to save its installation
    packages = sysconfig.get_path("purelib", "venv", {"base": str(made), "platbase": str(made)})
    Path(packages, "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    other = zipped(tmp_path / "other-1.0-py3-none-any.whl", OTHER)
    run(made / "bin" / "python", pip, "install", "--quiet", "--no-compile", "--no-deps", wheel, other, cwd=tmp_path)
    command = made / "bin" / "responder-bot"
    assert run(command, "try", "--once", cwd=tmp_path).endswith("\nAll steps succeeded.\n")
    assert "display_information:" in run(command, "doctor", "--manifest", "https://bot.example", cwd=tmp_path)
    theirs = run(made / "bin" / "python", "-c", "import bot, core; print(bot.MAKER, core.MAKER)", cwd=tmp_path)
    assert theirs == "somebody else somebody else\n"
