"""The wheel works outside the source tree, and beside another distribution with a package `core`."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.documents import ROOT

pytestmark = pytest.mark.slow
TOP = "responder_bot/"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
OTHER = {
    "core/__init__.py": "MAKER = 'somebody else'\n",
    "bot.py": "MAKER = 'somebody else'\n",
    "other-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: other\nVersion: 1.0\n",
    "other-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "other-1.0.dist-info/RECORD": "",
}


def run(*command: str | Path, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    env = {**os.environ, "SSL_CERT_FILE": os.environ["SYSTEM_SSL_CERT_FILE"], "UV_PYTHON_DOWNLOADS": "never"}
    for name in (
        "VIRTUAL_ENV",
        "PYTHONPATH",
        "PYTHONSAFEPATH",
        *(["SSL_CERT_FILE"] if not env["SSL_CERT_FILE"] else []),
    ):
        env.pop(name, None)
    ended = subprocess.run(command, cwd=cwd, env={**env, **(environment or {})}, capture_output=True, text=True)
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from the sdist, as `uv build` does."""
    folder = tmp_path_factory.mktemp("dist")
    run("uv", "build", "--quiet", "--out-dir", folder)
    return next(folder.glob("*.whl"))


def zipped(file: Path, content: Mapping[str, str]) -> Path:
    with zipfile.ZipFile(file, "w") as wheel:
        for name, text in content.items():
            wheel.writestr(name, text)
    return file


def test_the_wheel_has_every_file_of_both_packages_below_a_folder_of_its_own(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    installed = {name for name in names if ".dist-info/" not in name and ".data/scripts/" not in name}
    tracked = run(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "bot", "core", "manifest.yml"
    ).split("\0")
    assert installed == {f"{TOP}{name}" for name in tracked if (ROOT / name).is_file()}


def interpreter(version: str) -> Path:
    """The Python of this version: beside the one that runs this, as pyenv keeps them, or on the path."""
    beside = Path(sys.base_prefix).parent.glob(f"{version}.*/bin")
    for folder in (Path(sys.base_prefix, "bin"), *beside, *map(Path, os.get_exec_path())):
        program = folder / f"python{version}"
        if program.is_file() and not subprocess.run([program, "--version"], capture_output=True).returncode:
            return program
    pytest.skip(f"there is no Python {version} here")


def tries_and_finds_its_files(command: Path, folder: Path) -> None:
    """The command does the main job once outside the tree, and has the files that its packages need."""
    steps = [json.loads(line) for line in run(command, "try", "--once", "--json", cwd=folder).splitlines()]
    assert steps[-1]["ok"]
    assert "display_information:" in run(command, "doctor", "--manifest", "https://bot.example", cwd=folder)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", VERSIONS)
def test_it_runs_beside_another_core(wheel: Path, tmp_path: Path, version: str) -> None:
    program = interpreter(version)
    other = zipped(tmp_path / "other-1.0-py3-none-any.whl", OTHER)
    places = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    run("uv", "tool", "install", "--quiet", "--python", program, "--with", other, wheel, environment=places)
    tries_and_finds_its_files(tmp_path / "bin" / "responder-bot", tmp_path)
    theirs = tmp_path / "tools" / "responder-bot" / "bin" / "python"
    makers = run(theirs, "-c", "import bot, core; print(bot.MAKER, core.MAKER)", cwd=tmp_path)
    assert makers == "somebody else somebody else\n"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", VERSIONS)
def test_pipx_installs_the_sdist(wheel: Path, tmp_path: Path, version: str) -> None:
    program = interpreter(version)
    (sdist,) = wheel.parent.glob("*.tar.gz")
    places = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    run("uvx", "pipx", "install", "--quiet", "--python", program, sdist, environment=places)
    tries_and_finds_its_files(tmp_path / "bin" / "responder-bot", tmp_path)
