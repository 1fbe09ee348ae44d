"""`responder-bot backup`."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests import programs
from tests.core.running import RunningCore, made, running_core, sent
from tests.core.test_cli import is_one_sentence, run

ALERT = {"type": "siem", "source": "s", "sourceRef": "0", "title": "t", "description": "d"}


async def alert(core: RunningCore, ref: str) -> str:
    return str((await made(core, "/api/alert", {**ALERT, "sourceRef": ref}))["id"])


@pytest.mark.parametrize("name", [".", "", "folder", "none/copy.db"])
async def test_a_backup_needs_the_path_of_a_new_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    await run(tmp_path, "init")
    ended = await run(tmp_path, "backup", name)
    assert ended.code == 2
    assert is_one_sentence(ended.err)


@pytest.mark.sqlite
async def test_a_backup_during_writes_is_consistent(tmp_path: Path) -> None:
    async with running_core(tmp_path) as here:
        await here.key("org-admin")
        writing = [asyncio.ensure_future(alert(here, str(number))) for number in range(60)]
        await writing[0]
        environment = {"PATH": "/usr/bin:/bin", "RESPONDER_BOT_CORE_DATABASE": "core.db"}
        process = await programs.start("core.cli", "backup", "copy.db", cwd=tmp_path, env=environment)
        code = await process.wait()
        await asyncio.gather(*writing)
    again = tmp_path / "again"
    again.mkdir()
    shutil.copy(tmp_path / "copy.db", again / "core.db")
    async with running_core(again) as restored:
        restored.keys.update(here.keys)
        total = int((await restored.send("POST", "/api/alert/_search", {})).headers["x-total"])
        last = (await sent(restored, "GET", "/api/event"))["last"]
        more = await alert(restored, "one more")
    assert code == 0
    assert total >= 1
    assert min(last, int(more[1:])) > 1000 * total  # a restored database gives no number of before
