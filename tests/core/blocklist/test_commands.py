"""`responder-bot blocklist`, which works while Slack doesn't."""

import asyncio
from pathlib import Path

import pytest

from core.cli import main
from core.common.clock import now_ms
from core.store.database import backup
from tests import stores
from tests.core.blocklist.harness import block, listed
from tests.core.running import running_core


async def commands(folder: Path, *args: str) -> int:
    (folder / "bot.toml").write_text(f'[core]\ndatabase = "{stores.setting(folder / "core.db")}"\nstate = "{folder}"\n')
    return await asyncio.to_thread(main, ["blocklist", args[0], "--config", str(folder / "bot.toml"), *args[1:]])


async def test_show_remove_and_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running_core(tmp_path) as core:
        first = await block(core, "198.51.100.0/24", "cidr")
        await block(core, "evil.example", "domain", undoAfterMinutes=0)
        shown = await commands(tmp_path, "show"), capsys.readouterr().out
        inside = await commands(tmp_path, "remove", "198.51.100.7"), capsys.readouterr().err
        unknown = await commands(tmp_path, "remove", "192.0.2.1"), capsys.readouterr().err
        removed = await commands(tmp_path, "remove", "evil[.]example"), capsys.readouterr().err
        assert (await listed(core), await listed(core, "domain")) == (["198.51.100.0/24"], [])
        nothing = await commands(tmp_path, "resume")
        key = await core.key("reader")
        await core.core.database.transaction(lambda tx: backup.mark(tx, now_ms()))
    async with running_core(tmp_path) as core:
        core.keys["reader"] = key
        before = await core.send("GET", "/api/blocklist/ip.txt", profile="reader")
        resumed = await commands(tmp_path, "resume")
        assert await listed(core) == ["198.51.100.0/24"]
    assert shown[0] == 0
    table = shown[1][shown[1].index("TARGET") :]  # core logs to the same place
    assert [line.split()[0] for line in table.splitlines()] == ["TARGET", "198.51.100.0/24", "evil.example"]
    assert (inside[0], f"is blocked as a part of 198.51.100.0/24, by {first['_id']}" in inside[1]) == (2, True)
    assert (unknown[0], "is on no block list" in unknown[1]) == (2, True)
    assert (removed[0], nothing, before.status_code, resumed) == (0, 2, 503, 0)
