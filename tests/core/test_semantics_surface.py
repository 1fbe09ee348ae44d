"""`surface.md`, core's part, where no other test holds it: what people type, and what they get."""

from pathlib import Path

import httpx
import pytest

from core.access import Access
from core.common.clock import now_ms
from core.common.errors import ResponderBotError
from tests.core.running import running_core
from tests.core.store.test_database import opened
from tests.core.test_cli import Ended, is_one_sentence, run, start


async def test_a_login_that_no_header_could_carry_is_refused(tmp_path: Path) -> None:
    ended = await run(tmp_path, "user", "add", "a b", "--profile", "analyst")
    assert (ended.code, ended.out) == (2, "")
    assert is_one_sentence(ended.err)
    assert "'a b' can't be a login" in ended.err
    async with opened(tmp_path / "core.db") as database:
        access = Access(database, "example.org", now_ms)
        for login in ("", "a@b@c", "@example.org", "a:b", "a\nb", "änna", "x" * 300, "a@"):
            with pytest.raises(ResponderBotError, match="can't be a login"):
                await access.add(login, "analyst")
        await access.add(" Anna.Lead+soc ", "analyst")
        assert [row["login"] for row in access.list_users()] == ["anna.lead+soc@example.org"]


@pytest.mark.parametrize("name", [".", "", "folder", "none/copy.db"])
async def test_a_backup_to_what_is_no_new_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    await run(tmp_path, "user", "list")
    ended = await run(tmp_path, "backup", name)
    assert ended.code == 2
    assert is_one_sentence(ended.err)


async def test_a_backup_is_all_or_nothing_where_the_bot_s_place_is_taken(tmp_path: Path) -> None:
    await run(tmp_path, "user", "list")
    (tmp_path / "copy.db.slack").write_text("mine")
    ended = await run(tmp_path, "backup", "copy.db")
    assert (ended.code, ended.err) == (2, "copy.db.slack exists already; name another file.\n")
    assert not (tmp_path / "copy.db").exists()


async def test_every_subcommand_reads_the_file_it_is_told_and_paths_start_there(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    settings = tmp_path / "there" / "other.toml"
    settings.write_text('[core]\ndatabase = "data/core.db"\nuser_domain = "example.org"\n')
    config = ("--config", str(settings))
    added = await run(tmp_path, "user", "add", "Anna", "--profile", "read-only", *config)
    listed = await run(tmp_path, "user", *config, "list")
    copied = await run(tmp_path, "backup", *config, "copy.db")
    checked = await run(tmp_path, "responders", "check", *config)
    assert [ended.code for ended in (added, listed, copied, checked)] == [0] * 4
    assert "anna@example.org" in listed.out
    assert (tmp_path / "there" / "data" / "core.db").is_file()
    assert (tmp_path / "copy.db").is_file()
    assert not (tmp_path / "responder-bot.db").exists()


async def test_a_variable_wins_over_the_file_and_may_name_a_file(tmp_path: Path) -> None:
    (tmp_path / "responder-bot.toml").write_text('[core]\nuser_domain = "file.example"\n')
    (tmp_path / "domain").write_text("whispered.example\n")

    async def added(login: str, **environ: str) -> Ended:
        return await run(tmp_path, "user", "add", login, "--profile", "read-only", **environ)

    await added("one")
    await added("two", RESPONDER_BOT_CORE_USER_DOMAIN="env.example")
    await added("three", RESPONDER_BOT_CORE_USER_DOMAIN_FILE="domain")
    both = await added("four", RESPONDER_BOT_CORE_USER_DOMAIN="a", RESPONDER_BOT_CORE_USER_DOMAIN_FILE="domain")
    listed = (await run(tmp_path, "user", "list")).out
    assert (both.code, is_one_sentence(both.err)) == (2, True)
    assert [line.split()[0] for line in listed.splitlines()[1:]] == [
        "one@file.example",
        "three@whispered.example",
        "two@env.example",
    ]


async def test_a_second_process_disables_while_the_first_answers(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        key = {"Authorization": f"Bearer {await core.key('analyst')}"}
        database = {"RESPONDER_BOT_CORE_DATABASE": "core.db"}
        before = await core.http.get("/api/user/current", headers=key)
        ended = await run(tmp_path, "user", "disable", "analyst", **database)
        after = await core.http.get("/api/user/current", headers=key)
    assert (before.status_code, ended.code, after.status_code) == (200, 0, 401)


async def test_core_says_where_it_is_and_ends_when_asked(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("[core]\nport = 0\n")
    process = await start(tmp_path, "core", "--config", "my.toml")
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    async with httpx.AsyncClient(base_url=line.removeprefix("core: ").strip()) as http:
        answers = [
            (await http.get(path)).status_code for path in ("/health", "/metrics", "/api/docs", "/api/openapi.json")
        ]
    process.terminate()
    await process.communicate()
    assert line.startswith("core: http://127.0.0.1:")
    assert (answers, process.returncode) == ([200] * 4, 0)
