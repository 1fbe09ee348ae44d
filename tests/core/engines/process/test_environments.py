"""Environments of responders, built by the real uv from wheels of this test, without network."""

import importlib.util
import io
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from core.engines.environments import (
    BuildStatus,
    Environments,
    EnvironmentSpec,
    Unavailable,
    UnusableRequirementsError,
    last_message,
    read_requirements,
)
from core.engines.process.catalogue_loader import environment_specs
from core.settings import ResponderSection
from tests.core.engines.process.conftest import MakeEngine, ProgressLog, job_for
from tests.responder_folders import write_responder

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


BACKEND = """
import shutil
def build_wheel(directory, config_settings=None, metadata_directory=None):
    open({witness!r}, "w").close()
    return shutil.copy({wheel!r}, directory).rpartition("/")[2]
"""


def source(root: Path, witness: Path) -> None:
    """Write the source of `thing` 3.0, whose build leaves `witness` and gives a wheel that is kept elsewhere."""
    wheel(root / "elsewhere", "3.0")
    backend = BACKEND.format(witness=str(witness), wheel=str(root / "elsewhere" / "thing-3.0-py3-none-any.whl"))
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    project = '[project]\nname = "thing"\nversion = "3.0"\n'
    facts = "Metadata-Version: 2.2\nName: thing\nVersion: 3.0\n"
    with tarfile.open(root / "wheels" / "thing-3.0.tar.gz", "w:gz") as file:
        for name, text in (("backend.py", backend), ("pyproject.toml", build + project), ("PKG-INFO", facts)):
            entry = tarfile.TarInfo(f"thing-3.0/{name}")
            entry.size = len(text)
            file.addfile(entry, io.BytesIO(text.encode()))


def responder(root: Path, name: str, requirement: str) -> Path:
    """Write a responder that requires `requirement`."""
    folder = write_responder(root, name, PROGRAM)
    (folder / "requirements.txt").write_text(f"{requirement}\n")
    return folder


@pytest.fixture
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of this test alone, in place of the shared one."""
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two responders whose requirements contradict each other, and one whose requirement can't be met."""
    folder = tmp_path / "own"
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder / "wheels"))
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
    (built,) = await environments.install([EnvironmentSpec(root / "New")], lambda _: None)
    assert built.state == "built"
    (source,) = (tmp_path / "environments").resolve().rglob("thing.py")
    compiled = Path(importlib.util.cache_from_source(str(source)))
    assert os.path.join(*source.parts[-5:]).encode() in compiled.read_bytes()  # where tracebacks find it
    compiled.unlink()  # as in an environment of an earlier release
    (cached,) = await environments.install([EnvironmentSpec(root / "New")], lambda _: None)
    assert cached.state == "cached"
    assert compiled.exists()


async def test_a_package_that_replaces_the_standard_library_runs_nothing_at_its_installation(
    root: Path, tmp_path: Path
) -> None:
    """Outside the confinement of runs, as core's account."""
    library = f"evil/lib/python{sys.version_info.major}.{sys.version_info.minor}"
    with zipfile.ZipFile(root / "wheels" / "thing-2.0-py3-none-any.whl", "a") as file:
        for name, text in (
            ("pyvenv.cfg", "home = evil/bin\n"),
            (f"{library}/os.py", ""),
            (f"{library}/encodings/__init__.py", f"import posix\nposix.mkdir({str(tmp_path / 'ran')!r})\n"),
        ):
            file.writestr(f"thing-2.0.data/data/{name}", text)
    environments = Environments(tmp_path / "environments")
    for state in ("built", "cached"):
        (found,) = await environments.install([EnvironmentSpec(root / "New")], lambda _: None)
        assert found.state == state
    assert not (tmp_path / "ran").exists()


async def test_two_responders_that_contradict_each_other_both_run(
    make_engine: MakeEngine, root: Path, tmp_path: Path
) -> None:
    engine = make_engine(folders=(root,))
    before = {item.name: item.reason for item in (await engine.catalogue()).skipped}
    assert "its environment is not built; run `responder-bot responders install" in before["Old_1_0"]
    progress: list[BuildStatus] = []
    built = await Environments(tmp_path / "environments").install(environment_specs([root], {}), progress.append)
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
    await environments.install(environment_specs([root], {}), lambda _: None)
    (reason,) = [item.reason for item in (await engine.catalogue()).skipped if item.name == "Never_1_0"]
    assert "unavailable: " in reason
    assert "thing==3.0" in reason
    assert reason.endswith(f" Fix that and run `responder-bot responders install {root}/Never`.")
    wheel(root / "wheels", "3.0")
    again = await environments.install([EnvironmentSpec(root / "Never")], lambda _: None)
    assert [item.state for item in again] == ["built"]
    assert "Never_1_0" in [item.name for item in (await engine.catalogue()).responders]


async def test_an_environment_is_built_once_for_the_same_requirements(root: Path, tmp_path: Path) -> None:
    environments = Environments(tmp_path / "environments")
    (root / "Never" / "requirements.txt").write_bytes((root / "Old" / "requirements.txt").read_bytes())
    both = await environments.install([EnvironmentSpec(root / "Old"), EnvironmentSpec(root / "Never")], lambda _: None)
    assert sorted(item.state for item in both) == ["built", "cached"]
    assert [item.state for item in await environments.install([EnvironmentSpec(root / "Old")], lambda _: None)] == [
        "cached"
    ]
    assert not list((tmp_path / "environments").glob(".*"))


async def test_a_missing_uv_is_reported(root: Path, tmp_path: Path) -> None:
    environments = Environments(tmp_path / "environments", uv=str(tmp_path / "gone"))
    (only,) = await environments.install([EnvironmentSpec(root / "Old")], lambda _: None)
    assert only == BuildStatus(root / "Old", "failed", f"{tmp_path}/gone: No such file or directory.")


def test_a_missing_interpreter_is_reported(tmp_path: Path) -> None:
    found = Environments(tmp_path, python=tmp_path / "gone").interpreter(EnvironmentSpec(tmp_path))
    assert found == Unavailable(f"{tmp_path}/gone is missing; correct [[engine]] python.")


def test_a_wrapped_message_is_joined() -> None:
    output = (
        "Using Python 3.11\n  × No solution found when resolving dependencies:\n  ╰─▶ Because a\n      needs b, no.\n"
    )
    assert last_message(output) == "Because a needs b, no."


PUBLIC = """
cortexutils
requests  # as most have
thehive4py~=1.8.1
cortexutils>=2.1.0; python_version >= "3.5"
future;python_version<='2.7'
google-auth-oauthlib ~= 0.4.2
# -e git+https://github.com/CheckPointSW/cp_mgmt_api_python_sdk#egg=cpapi cpapi
uvicorn[standard]==0.30.*
requests==2.31.0 \\
    --hash=sha256:58cd2187c01e70e6e26505bca751777aa9f2ee0b7f4300988b709f44e013003f \\
    --hash=sha256:942c5a758f98d790eaed1a29cb6eefc7ffb0d1cf7af05c3d2791656dbd6ad1e1
    # via -r requirements.in
"""


def test_what_public_responders_require_is_taken(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes(b"\xef\xbb\xbf" + PUBLIC.replace("\n", "\r\n").encode())
    assert read_requirements(tmp_path, allow_builds=False) == (
        "cortexutils",
        "requests",
        "thehive4py~=1.8.1",
        'cortexutils>=2.1.0; python_version >= "3.5"',
        'future; python_version <= "2.7"',
        "google-auth-oauthlib~=0.4.2",
        "uvicorn[standard]==0.30.*",
        "requests==2.31.0"
        " --hash=sha256:58cd2187c01e70e6e26505bca751777aa9f2ee0b7f4300988b709f44e013003f"
        " --hash=sha256:942c5a758f98d790eaed1a29cb6eefc7ffb0d1cf7af05c3d2791656dbd6ad1e1",
    )


GIT = "git+https://github.com/yeti-platform/pyeti"

REFUSED: dict[str, str] = {
    "-r /etc/passwd": "the option -r is not allowed",
    "-r/etc/passwd": "the option -r is not allowed",
    "--requirement=more.txt": "the option --requirement is not allowed",
    "-c constraints.txt": "the option -c is not allowed",
    "-e .": "the option -e is not allowed",
    "--index-url https://ann:hunter2@index.example/": "the option --index-url is not allowed",
    "--extra-index-url=https://hunter2.example/": "the option --extra-index-url is not allowed",
    "--find-links ./lib": "the option --find-links is not allowed",
    "--no-binary :all:": "the option --no-binary is not allowed",
    "./lib": "it is not the name of a package",
    ".": "it is not the name of a package",
    "/opt/lib": "it is not the name of a package",
    "../Other": "it is not the name of a package",
    "lib/": "it is not the name of a package",
    "lib @ ./lib.whl": "it names where a package comes from",
    "requests --config-settings=a=b": "it is not the name of a package",
    "requests --hash=sha256:beef": "it is not the name of a package",
    "file:///opt/lib": "it is not the name of a package",
    "requests===${UV_INDEX_CORP_PASSWORD}": "it names a variable",
    "requ\\\nests --pre": "it is not the name of a package",
    GIT: "it names where a package comes from, which allow_builds in the settings would permit",
    f"pyeti @ {GIT}": "it names where a package comes from",
    "lib @ https://ann:hunter2@files.example/lib.whl": "it names where a package comes from",
    "lib @ file:///opt/lib": "it names where a package comes from",
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.items())
def test_anything_but_a_package_is_refused_with_file_and_line(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"requests\n\n{text}\n")
    with pytest.raises(UnusableRequirementsError) as refused:
        read_requirements(tmp_path, allow_builds=False)
    assert str(refused.value).startswith(f"{tmp_path}/requirements.txt, line 3: {reason}")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("text", [GIT, f"pyeti @ {GIT}@1a2b", "lib @ https://files.example/lib-1.0.tar.gz"])
def test_a_source_is_taken_where_builds_are_allowed(tmp_path: Path, text: str) -> None:
    (tmp_path / "requirements.txt").write_text(text)
    assert read_requirements(tmp_path, allow_builds=True) == (text,)


@pytest.mark.parametrize(
    "text", ["lib @ file:///opt/lib", "lib @ http://files.example/lib.whl", "-r more.txt", "./lib"]
)
def test_files_of_this_machine_are_refused_also_where_builds_are_allowed(tmp_path: Path, text: str) -> None:
    (tmp_path / "requirements.txt").write_text(text)
    with pytest.raises(UnusableRequirementsError):
        read_requirements(tmp_path, allow_builds=True)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes("requests".encode("utf-16"))
    with pytest.raises(UnusableRequirementsError, match=r"requirements\.txt is not UTF-8 text\.$"):
        read_requirements(tmp_path, allow_builds=False)


async def test_two_folders_that_name_their_own_code_never_share_an_environment(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    root = tmp_path / "own"
    for name in ("First", "Second"):
        source_folder = responder(root, name, "./lib") / "lib"
        source_folder.mkdir()
        (source_folder / "setup.py").write_text(f"open({str(tmp_path / name)!r}, 'w').close()")
    built = await Environments(tmp_path / "environments").install(environment_specs([root], {}), lambda _: None)
    assert [item.state for item in built] == ["failed"] * 2
    assert not (tmp_path / "First").exists()
    skipped = [item for item in (await make_engine(folders=(root,)).catalogue()).skipped if item.name == "Second_1_0"]
    assert [item.reason for item in skipped] == [
        f"{root}/Second/Second.json: unavailable: {root}/Second/requirements.txt, line 1: it is not the name of a"
        " package, such as requests>=2.31; write one. Fix that and run `responder-bot responders install"
        f" {root}/Second`."
    ]


async def test_nothing_in_a_folder_configures_its_build(root: Path, tmp_path: Path) -> None:
    (root / "New" / "uv.toml").write_text('constraint-dependencies = ["thing<2"]\n')
    (root / "New" / "pyproject.toml").write_text('[tool.uv]\nconstraint-dependencies = ["thing<2"]\n')
    (built,) = await Environments(tmp_path / "environments").install([EnvironmentSpec(root / "New")], lambda _: None)
    assert (built.state, built.message) == ("built", "")


async def test_code_of_a_package_runs_only_where_the_settings_allow_builds(
    make_engine: MakeEngine, root: Path, tmp_path: Path
) -> None:
    source(root, tmp_path / "was-built")
    environments = Environments(tmp_path / "environments")
    (refused,) = await environments.install([EnvironmentSpec(root / "Never")], lambda _: None)
    assert refused.state == "failed"
    assert refused.message.endswith(" If you trust its code, set allow_builds = true for this responder.")
    assert not (tmp_path / "was-built").exists()

    sections = {"Never_1_0": ResponderSection(allow_builds=True)}
    built = await environments.install(environment_specs([root / "Never"], sections), lambda _: None)
    assert [item.state for item in built] == ["built"]
    assert (tmp_path / "was-built").exists()
    engine = make_engine(folders=(root,), sections=sections)
    assert (await engine.run(await job_for(engine, "Never_1_0"), ProgressLog())).message == "3.0"
    responder(root, "Other", "thing==3.0")  # the same text, for which builds are not allowed
    names = [item.name for item in (await engine.catalogue()).responders]
    assert ("Never_1_0" in names, "Other_1_0" in names) == (True, False)
