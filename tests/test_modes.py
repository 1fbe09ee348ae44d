"""What responder-bot writes is private to its account, whatever the umask; what `cp` left is narrowed."""

import os
import sqlite3
import stat
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bot.outbox.store import Stores, open_stores
from core.common.database import Database
from core.store.database.opening import open_database
from tests import programs, templates
from tests.responder_folders import write_responder


def run(folder: Path, *args: str, umask: int, module: str = "bot.cli") -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "UV_OFFLINE": "1"}
    return programs.run(module, *args, cwd=folder, env=environment, umask=umask)


def wide(folder: Path) -> dict[str, str]:
    """The files and folders here that others can read or change, with their modes."""
    modes = {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in _found(folder)}
    return {name: f"{mode:04o}" for name, mode in modes.items() if mode & 0o077}


def _found(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if not path.is_symlink())


def test_commands_write_private_files_and_folders(tmp_path: Path) -> None:
    umask = 0
    (tmp_path / "responder-bot.toml").write_text(
        '[core]\ndatabase = "state/core/core.db"\nstate = "state"\n[[engine]]\nname = "local"\nresponders = ["own"]\n'
    )
    (tmp_path / "responder-bot.toml").chmod(0o600)
    assert run(tmp_path, "init", umask=umask).returncode == 0
    (write_responder(tmp_path / "own", "Broken", "") / "requirements.txt").write_text("nothing-of-this-name==1\n")
    assert run(tmp_path, "user", "add", "ann", "--profile", "analyst", umask=umask).returncode == 0
    assert run(tmp_path, "responders", "install", umask=umask).returncode == 1
    assert run(tmp_path, "backup", "copy.db", umask=umask).returncode == 0
    assert run(tmp_path, "restore", "copy.db", umask=umask).returncode == 0
    below = {str(path.relative_to(tmp_path)) for path in _found(tmp_path)}
    assert {"state/core/core.db", "copy.db", "state/core/core.db.before-restore-1"} <= below
    assert any(name.endswith(".failed.json") for name in below)
    ours = {name: mode for name, mode in wide(tmp_path).items() if not name.startswith(("own", ".cache"))}
    assert ours == {}


@pytest.mark.root
def test_a_database_that_root_makes_belongs_to_the_owner_of_its_folder(tmp_path: Path) -> None:
    """An administrator adds the first users, or restores onto a new machine, before the service starts."""
    for folder in ("state", "new"):
        (tmp_path / folder).mkdir()
        os.chown(tmp_path / folder, 65534, 65534)
    (tmp_path / "responder-bot.toml").write_text('[core]\ndatabase = "state/core.db"\n')
    assert run(tmp_path, "user", "add", "ann", "--profile", "analyst", umask=0o022).returncode == 0
    assert run(tmp_path, "backup", "copy.db", umask=0o022).returncode == 0
    (tmp_path / "responder-bot.toml").write_text('[core]\ndatabase = "new/core.db"\n')
    assert run(tmp_path, "restore", "copy.db", umask=0o022).returncode == 0
    assert {Path(tmp_path, name, "core.db").stat().st_uid for name in ("state", "new")} == {65534}


@pytest.mark.slow
def test_the_demo_writes_private_files_and_folders(tmp_path: Path) -> None:
    """It writes all that `serve` does: the database and its inbox, job folders and environments."""
    state = tmp_path / "below" / "state"
    ran = run(tmp_path, "try", "--once", "--state", str(state), umask=0)
    assert ran.returncode == 0, ran.stderr
    assert {path.name for path in state.rglob("*.db*")} >= {"responder-bot.db", "responder-bot.db-inbox"}
    # The files of a Python environment have the umask's mode, below a folder that is closed to others.
    assert {name: mode for name, mode in wide(tmp_path).items() if "/plain-" not in name} == {}


@pytest.fixture(params=[0o000, 0o022, 0o777], ids="{:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


async def core_s(path: Path) -> Database:
    return open_database(path)


async def bot_s(path: Path) -> Stores:
    return open_stores(templates.made(path))


@pytest.mark.parametrize("opened", [core_s, bot_s])
async def test_both_databases_are_private_while_they_are_open(
    tmp_path: Path, umask: int, opened: Callable[[Path], Awaitable[Database | Stores]]
) -> None:
    database = await opened(tmp_path / "of.db")
    try:
        names = {path.name for path in _found(tmp_path)}
        assert names >= {"of.db", "of.db-wal", "of.db-shm"}
        assert wide(tmp_path) == {}
    finally:
        await database.close()


@pytest.mark.parametrize("opened", [core_s, bot_s])
async def test_a_database_that_others_could_read_is_narrowed(
    tmp_path: Path, opened: Callable[[Path], Awaitable[Database | Stores]]
) -> None:
    path = tmp_path / "of.db"
    await (await opened(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1")  # makes the files beside it
        for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            file.chmod(0o666)
        database = await opened(path)
        try:
            assert wide(tmp_path) == {}
        finally:
            await database.close()


def test_doctor_tells_what_others_can_read_or_change(tmp_path: Path) -> None:
    state = tmp_path / "state"
    for folder, mode in ((state, 0o777), (state / "jobs", 0o755), (state / "environments", 0o770)):
        folder.mkdir()
        folder.chmod(mode)
    for file, mode in (("core.db", 0o644), ("core.db-wal", 0o600), ("core.db-inbox", 0o660)):
        (state / file).touch()
        (state / file).chmod(mode)
    (tmp_path / "responder-bot.toml").write_text('[core]\nport = 9\nstate = "state"\ndatabase = "state/core.db"\n')
    printed = run(tmp_path, "doctor", umask=0o022).stdout.splitlines()
    assert [line.removeprefix("FAIL  modes: others on this machine can ") for line in printed if "modes: " in line] == [
        f"read {state}/jobs (mode 0755); `chmod 700 {state}/jobs`",
        f"change {state}/environments (mode 0770); `chmod 750 {state}/environments`",
        f"read {state}/core.db (mode 0644); `chmod 600 {state}/core.db`",
        f"change {state}/core.db-inbox (mode 0660); `chmod 600 {state}/core.db-inbox`",
        f"change {state} (mode 0777); `chmod 775 {state}`",
    ]
