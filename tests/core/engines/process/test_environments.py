"""Environments of responders, built by the real uv from wheels of this test, without network."""

import importlib.util
import json
import os
import zipfile
from pathlib import Path

import pytest

from core.engines.definitions import responder_folders
from core.engines.environments import BuildStatus, Environments, Unavailable, last_message
from tests.core.engines.process.conftest import MakeEngine, ProgressLog, job_for

PROGRAM = """
import json, sys, thing
from pathlib import Path
answer = {"success": True, "full": {"message": thing.VERSION}}
Path(sys.argv[1], "output", "output.json").write_text(json.dumps(answer))
"""


def wheel(folder: Path, version: str) -> None:
    """Write a wheel of the package `thing`, which returns its version."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = f"thing-{version}.dist-info"
    with zipfile.ZipFile(folder / f"thing-{version}-py3-none-any.whl", "w") as file:
        file.writestr("thing.py", f"VERSION = {version!r}\n")
        file.writestr(f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: thing\nVersion: {version}\n")
        file.writestr(
            f"{facts}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{facts}/RECORD", "")


def responder(root: Path, name: str, requirement: str) -> Path:
    """Write a responder that requires `requirement`, from the wheels of `root` only."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text(f"--no-index\n--find-links {root}/wheels\n{requirement}\n")
    (folder / "program.py").write_text(PROGRAM)
    keys = {"name": name, "version": "1.0", "dataTypeList": ["thehive:alert"], "command": f"{name}/program.py"}
    (folder / f"{name}.json").write_text(json.dumps(keys))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two responders whose requirements contradict each other, and one whose requirement can't be met."""
    folder = tmp_path / "own"
    for version in ("1.0", "2.0"):
        wheel(folder / "wheels", version)
    responder(folder, "Old", "thing==1.0")
    responder(folder, "New", "thing==2.0")
    responder(folder, "Never", "thing==3.0")
    return folder


async def test_packages_are_compiled_when_they_are_installed(
    make_engine: MakeEngine, root: Path, tmp_path: Path
) -> None:
    """A confined run can't write to its environment, so it would compile them again each time."""
    with zipfile.ZipFile(root / "wheels" / "thing-2.0-py3-none-any.whl", "a") as file:
        file.writestr("of_python_2.py", "print 'no longer'\n")
    environments = Environments(tmp_path / "environments")
    (built,) = await environments.install([root / "New"], lambda _: None)
    assert built.state == "built"
    (source,) = (tmp_path / "environments").resolve().rglob("thing.py")
    compiled = Path(importlib.util.cache_from_source(str(source)))
    assert os.path.join(*source.parts[-5:]).encode() in compiled.read_bytes()  # where tracebacks find it
    compiled.unlink()  # as in an environment of an earlier release
    (cached,) = await environments.install([root / "New"], lambda _: None)
    assert cached.state == "cached"
    assert compiled.exists()


async def test_two_responders_that_contradict_each_other_both_run(
    make_engine: MakeEngine, root: Path, tmp_path: Path
) -> None:
    engine = make_engine(folders=(root,))
    before = {item.name: item.reason for item in (await engine.catalogue()).skipped}
    assert "its environment is not built; run `responder-bot responders install" in before["Old_1_0"]
    progress: list[BuildStatus] = []
    built = await Environments(tmp_path / "environments").install(responder_folders([root]), progress.append)
    states = {item.folder.name: item.state for item in built}
    assert states == {"Never": "failed", "New": "built", "Old": "built"}
    assert {(item.folder.name, item.state) for item in progress} >= {("Old", "building"), ("Old", "built")}
    for action_id, name, version in (("~1", "Old_1_0", "1.0"), ("~2", "New_1_0", "2.0")):
        report = await engine.run(await job_for(engine, name, action_id=action_id), ProgressLog())
        assert report.message == version


async def test_an_unsatisfiable_requirement_is_unavailable_with_the_message_of_uv(
    make_engine: MakeEngine, root: Path, tmp_path: Path
) -> None:
    engine = make_engine(folders=(root,))
    environments = Environments(tmp_path / "environments")
    await environments.install(responder_folders([root]), lambda _: None)
    (reason,) = [item.reason for item in (await engine.catalogue()).skipped if item.name == "Never_1_0"]
    assert "unavailable: " in reason
    assert "thing==3.0" in reason
    assert reason.endswith(f" Fix that and run `responder-bot responders install {root}/Never`.")
    wheel(root / "wheels", "3.0")
    again = await environments.install([root / "Never"], lambda _: None)
    assert [item.state for item in again] == ["built"]
    assert "Never_1_0" in [item.name for item in (await engine.catalogue()).responders]


async def test_an_environment_is_built_once_for_the_same_requirements(root: Path, tmp_path: Path) -> None:
    environments = Environments(tmp_path / "environments")
    (root / "Never" / "requirements.txt").write_bytes((root / "Old" / "requirements.txt").read_bytes())
    both = await environments.install([root / "Old", root / "Never"], lambda _: None)
    assert sorted(item.state for item in both) == ["built", "cached"]
    assert [item.state for item in await environments.install([root / "Old"], lambda _: None)] == ["cached"]
    assert not list((tmp_path / "environments").glob(".*"))


async def test_a_missing_uv_is_reported(root: Path, tmp_path: Path) -> None:
    environments = Environments(tmp_path / "environments", uv=str(tmp_path / "gone"))
    (only,) = await environments.install([root / "Old"], lambda _: None)
    assert only == BuildStatus(root / "Old", "failed", f"{tmp_path}/gone: No such file or directory.")


def test_a_missing_interpreter_is_reported(tmp_path: Path) -> None:
    found = Environments(tmp_path, python=tmp_path / "gone").interpreter(tmp_path)
    assert found == Unavailable(f"{tmp_path}/gone is missing; correct [[engine]] python.")


def test_a_wrapped_message_is_joined() -> None:
    output = (
        "Using Python 3.11\n  × No solution found when resolving dependencies:\n  ╰─▶ Because a\n      needs b, no.\n"
    )
    assert last_message(output) == "Because a needs b, no."
