"""Core's subcommands, as programs of their own."""

import asyncio
import json
import os
import pwd
import resource
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest

from core.audit import trail
from core.cli import main
from tests import programs, stores
from tests.core.core_process import ROOT
from tests.core.running import running_core
from tests.core.test_disk_full import file_system
from tests.programs import PIPE, Program

COMMANDS = ["core", "init", "backup", "restore", "user", "responders"]
VERBS = [
    *(["user", verb] for verb in ("add", "list", "disable", "enable", "key", "profile", "clearance", "link", "unlink")),
    *(["group", verb] for verb in ("add", "remove", "list")),
    *(["responders", verb] for verb in ("list", "install", "check")),
]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


async def start(folder: Path, *args: str, **environ: str) -> Program:
    return await programs.start("core.cli", *args, cwd=folder, env={**os.environ, **environ}, stdout=PIPE, stderr=PIPE)


async def run(folder: Path, *args: str, **environ: str) -> Ended:
    process = await start(folder, *args, **environ)
    out, err = await process.communicate()
    return Ended(process.returncode or 0, out.decode(), err.decode())


def is_one_sentence(text: str) -> bool:
    return len(text.strip().splitlines()) == 1 and "Traceback" not in text


def test_help_answers_at_once_and_every_subcommand_takes_config(capsys: pytest.CaptureFixture[str]) -> None:
    times = []
    for args in ([], ["core"], ["user"]):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        command = [sys.executable, "-m", "core.cli", *args, "--help"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        times.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
        assert not args or "--config FILE" in done.stdout
    for args in (*([command] for command in COMMANDS), *VERBS):
        with pytest.raises(SystemExit, match=r"^0$"):
            main([*args, "--help"])
        assert "--config FILE" in capsys.readouterr().out
    assert sorted(times)[len(times) // 2] < 0.3, times  # of the processor: how busy it is otherwise is not ours


async def test_a_user_s_key_is_all_that_is_printed_and_it_works(tmp_path: Path) -> None:
    added = await run(tmp_path, "user", "add", "Alice", "--profile", "analyst", "--slack-id", "T1:U1")
    assert (added.code, added.err) == (0, f"Made the database {tmp_path}/responder-bot.db.\n")
    assert (await run(tmp_path, "user", "add", "bob", "--profile", "analyst")).err == ""
    key = added.out.rstrip("\n")
    assert len(key) == 43
    assert len(added.out.splitlines()) == 1
    renewed = (await run(tmp_path, "user", "key", "alice")).out.strip()
    listed = (await run(tmp_path, "user", "list")).out
    assert "alice@responder-bot.local  analyst  amber      T1:U1" in listed
    assert key not in listed

    process = await start(tmp_path, "core", RESPONDER_BOT_CORE_PORT="0")
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().removeprefix("core: ").strip()
    async with httpx.AsyncClient(base_url=url) as http:
        old = await http.get("/api/user/current", headers={"Authorization": f"Bearer {key}"})
        new = await http.get("/api/user/current", headers={"Authorization": f"Bearer {renewed}"})
        assert (old.status_code, new.status_code) == (401, 200)
        disabled = await run(tmp_path, "user", "disable", "alice")
        assert disabled.code == 0
        gone = await http.get("/api/user/current", headers={"Authorization": f"Bearer {renewed}"})
        assert gone.status_code == 401
        assert (await run(tmp_path, "user", "enable", "alice")).code == 0
        back = await http.get("/api/user/current", headers={"Authorization": f"Bearer {renewed}"})
        assert back.status_code == 200
    process.send_signal(signal.SIGTERM)
    _, err = await process.communicate()
    assert process.returncode == 0
    lines = [json.loads(line) for line in err.decode().splitlines()]
    assert [line["version"] for line in lines if line["event"] == "listening"] == [version("responder-bot")]
    assert key not in err.decode()
    assert renewed not in err.decode()


@pytest.mark.slow
async def test_a_second_link_is_refused_and_makes_no_user(tmp_path: Path) -> None:
    await run(tmp_path, "user", "add", "alice", "--profile", "analyst", "--slack-id", "U1")
    again = await run(tmp_path, "user", "link", "alice", "--slack-id", "U2")
    assert again.code == 2
    assert is_one_sentence(again.err)
    other = await run(tmp_path, "user", "add", "bob", "--profile", "analyst", "--slack-id", "U1")
    assert (other.code, other.out) == (2, "")
    assert "bob" not in (await run(tmp_path, "user", "list")).out
    assert "`responder-bot user unlink alice@responder-bot.local` first" in other.err
    assert (await run(tmp_path, "user", "unlink", "alice")).code == 0
    assert (await run(tmp_path, "user", "link", "alice", "--slack-id", "U2")).code == 0


@pytest.mark.slow
async def test_a_change_of_a_user_says_what_was_done_beside_the_standard_output(tmp_path: Path) -> None:
    await run(tmp_path, "user", "add", "alice", "--profile", "analyst")
    login = "alice@responder-bot.local"
    for args, words in (
        (["link", "alice", "--slack-id", "T1:U1"], f"{login} is linked to T1:U1."),
        (["unlink", "alice"], f"{login} is not linked to anybody in Slack any more."),
        (
            ["clearance", "alice", "--clearance", "red"],
            f"{login} may see and act on up to TLP:RED in Slack from now on.",
        ),
        (["disable", "alice"], f"{login} no longer has access; `responder-bot user enable {login}` gives it back."),
        (["enable", "alice"], f"{login} has access again, with the key of before;"),
    ):
        done = await run(tmp_path, "user", *args)
        assert (done.code, done.out) == (0, "")
        assert done.err.startswith(words)
        assert is_one_sentence(done.err)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["user", "add", "x", "--profile", "boss"], "invalid choice: 'boss'"),
        (["user", "add", "x", "--profile", "analyst", "--slack-id", "someone"], "is not a Slack id"),
        (["user"], "required: COMMAND"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["core", "--config", "none.toml"], "none.toml can't be read"),
        (["user", "--config", "none.toml", "list"], "none.toml can't be read"),
        (["responders", "install", "none"], "none is not a folder;"),
        (["backup", "copy.db"], "There is no database"),
    ],
)
async def test_what_a_user_gets_wrong_is_one_sentence_and_two(tmp_path: Path, args: list[str], words: str) -> None:
    ended = await run(tmp_path, *args)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert is_one_sentence(ended.err)


@pytest.mark.parametrize("command", ["user list", "audit export", "hosts"])
async def test_a_command_in_the_wrong_folder_makes_no_database(tmp_path: Path, command: str) -> None:
    ended = await run(tmp_path, *command.split())
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"There is no database {tmp_path}/responder-bot.db; name the settings with --config.\n"
    assert list(tmp_path.iterdir()) == []


PLAIN = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
"""Takes from root what lets it into every folder."""
FOR_ANOTHER_ACCOUNT = ["user list", "check", "backup copy", "store export copy"]
RUN_EACH = """
import contextlib, io, json, sys
from bot.cli import main
answers = {}
for command in sys.argv[1:]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(command.split())
    answers[command] = code, said.getvalue()
print(json.dumps(answers))
"""


@pytest.mark.sqlite
@pytest.mark.skipif(bool(PLAIN) and shutil.which("setpriv") is None, reason="root gets in everywhere")
def test_a_database_of_another_account_is_one_sentence(tmp_path: Path) -> None:
    """As when an administrator runs a command as themselves."""
    (tmp_path / "state").mkdir(mode=0)
    name = pwd.getpwuid(os.getuid()).pw_name
    ended = subprocess.run(
        [*PLAIN, sys.executable, "-c", RUN_EACH, *FOR_ANOTHER_ACCOUNT],
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(ROOT),
            "RESPONDER_BOT_CORE_DATABASE": "state/core.db",
        },
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    answers = json.loads(ended.stdout)
    assert list(answers) == FOR_ANOTHER_ACCOUNT
    for command, (code, said) in answers.items():
        assert (code, is_one_sentence(said)) == (1 if command == "check" else 2, True), command
        assert said.startswith(f"{tmp_path}/state"), command
        why = f" and {name} can't read and write it; ", f" can't be used by {name} (Permission denied); "
        assert any(sentence in said for sentence in why), command


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["disable", "nobody"], "There is no user nobody@responder-bot.local"),
        (["clearance", "nobody", "--clearance", "red"], "There is no user nobody@responder-bot.local"),
        (["enable", "nobody"], "There is no user nobody@responder-bot.local"),
        (["unlink", "nobody"], "`responder-bot user list` shows who is"),
    ],
)
async def test_a_user_who_is_not_there_is_two(tmp_path: Path, args: list[str], words: str) -> None:
    await run(tmp_path, "init")
    ended = await run(tmp_path, "user", *args)
    assert (ended.code, ended.out, is_one_sentence(ended.err)) == (2, "", True)
    assert words in ended.err


async def test_a_typing_error_in_the_settings_is_two(tmp_path: Path) -> None:
    (tmp_path / "responder-bot.toml").write_text("[core]\nprot = 1\n")
    ended = await run(tmp_path, "core")
    assert (ended.code, ended.err) == (2, 'responder-bot.toml: [core] has no key "prot"; did you mean "port"?\n')
    ended = await run(tmp_path, "core", RESPONDER_BOT_CORE_HOST="x", RESPONDER_BOT_CORE_HOST_FILE="y")
    assert ended.code == 2


async def test_a_database_that_is_none_and_a_port_that_is_taken_are_two(tmp_path: Path) -> None:
    (tmp_path / "responder-bot.db").write_text("this is a diary, not a database\n" * 100)
    ended = await run(tmp_path, "user", "list")
    assert (ended.code, is_one_sentence(ended.err)) == (2, True)
    assert "can't be opened" in ended.err
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        ended = await run(tmp_path, "core", RESPONDER_BOT_CORE_PORT=str(port))
    assert ended.code == 2
    assert f"Can't listen on 127.0.0.1:{port}" in ended.err


@pytest.mark.parametrize("name", ["jobs", "environments"])
async def test_a_folder_that_can_not_be_made_is_told_at_the_start(tmp_path: Path, name: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / name).write_text("")
    (tmp_path / "responder-bot.toml").write_text('[core]\nport = 0\nstate = "state"\ndatabase = "core.db"\n')
    ended = await run(tmp_path, "core")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        f"{tmp_path}/state/{name} is not a folder; correct that, or set [core] state to another folder.\n"
    )


@pytest.mark.slow
async def test_responders_are_listed_with_the_reason_where_they_cannot_run(tmp_path: Path) -> None:
    broken = tmp_path / "mine" / "Broken"
    broken.mkdir(parents=True)
    (broken / "Broken.json").write_text("{")
    (tmp_path / "responder-bot.toml").write_text('[[engine]]\nname = "local"\nresponders = ["mine"]\n')
    listed = await run(tmp_path, "responders", "list")
    assert listed.code == 0
    assert "ResponderBot_CloseAsFalsePositive_1_0" in listed.out
    assert "Broken can't be used: " in listed.out
    checked = await run(tmp_path, "responders", "check")
    assert (checked.code, checked.out) == (1, listed.out)
    (broken / "Broken.json").unlink()
    assert (await run(tmp_path, "responders", "check")).code == 0
    with (tmp_path / "responder-bot.toml").open("a") as settings:
        settings.write('[responder."ResponderBot_Webhook_1_0"]\nconfig = { url = "http://127.0.0.1:9", ulr = "x" }\n')
    checked = await run(tmp_path, "responders", "check")
    assert (checked.code, checked.out.splitlines()[-1]) == (
        1,
        'The settings\' [responder."ResponderBot_Webhook_1_0"] config names an item "ulr" that the responder does not'
        ' have; did you mean "url"?',
    )
    installed = await run(tmp_path, "responders", "install", "mine")
    assert (installed.code, installed.out) == (2, "")
    assert installed.err == "There is no responder in mine: no folder in it has a usable definition (*.json).\n"


@pytest.mark.slow
async def test_check_tells_which_secrets_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "address").write_text("https://hooks.example.org/t0ken\n")
    settings = tmp_path / "responder-bot.toml"
    source = '[responder."ResponderBot_Webhook_1_0".config]\nurl = {}\n'
    for given, reason in (
        ('{ file = "address" }', None),
        ('{ command = ["cat", "address"] }', None),
        ('{ file = "missing" }', "its file can't be opened (No such file or directory)"),
        ('{ command = ["sh", "-c", "echo t0ken; exit 3"] }', "its command exited with 3"),
        ('{ command = ["true"] }', "its command gives nothing"),
    ):
        settings.write_text(source.format(given))
        listed, checked = await run(tmp_path, "responders", "list"), await run(tmp_path, "responders", "check")
        problems = checked.out.removeprefix(listed.out)
        assert (listed.code, checked.code, checked.err) == (0, int(reason is not None), "")
        assert "t0ken" not in problems
        if reason is None:
            assert problems == ""
        else:
            assert problems.startswith(
                "  ResponderBot_Webhook_1_0 can't run: its configuration item 'url' can't be read, since"
            )
            assert reason in problems


async def test_a_backup_is_private_whole_and_never_over_another_file(tmp_path: Path) -> None:
    await run(tmp_path, "user", "add", "alice", "--profile", "analyst")
    made = await run(tmp_path, "backup", "copy.db")
    assert (made.code, made.out, made.err.splitlines()[0]) == (
        0,
        "",
        "Copied to copy.db; `responder-bot restore` restores it.",
    )
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("SELECT login FROM user").fetchall() == [("alice@responder-bot.local",)]
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    again = await run(tmp_path, "backup", "copy.db")
    assert (again.code, again.err) == (2, "copy.db exists already; name another file.\n")


@pytest.mark.parametrize("command", [["user", "list"], ["core"], ["backup", "copy.db"], ["restore", "copy.db"]])
async def test_the_address_of_a_database_server_makes_no_file(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "responder-bot.toml").write_text('[core]\ndatabase = "mysql://core:secret@db/core"\n')
    refused = await run(tmp_path, *command)
    variable = {"RESPONDER_BOT_CORE_DATABASE": "mysql://core:secret@db/core"}
    (tmp_path / "responder-bot.toml").unlink()
    again = await run(tmp_path, *command, **variable)
    for ended in (refused, again):
        assert (ended.code, ended.out) == (2, "")
        assert is_one_sentence(ended.err)
        assert "database must be the path of a SQLite file" in ended.err.replace("_DATABASE must", " database must")
        assert "secret" not in ended.err
    assert list(tmp_path.iterdir()) == []


async def test_the_database_is_private(tmp_path: Path) -> None:
    await run(tmp_path, "init")
    assert stat.S_IMODE((tmp_path / "responder-bot.db").stat().st_mode) == 0o600
    bots = "SELECT name FROM sqlite_master WHERE name IN ('message', 'inbox', 'replica')"
    assert stores.rows(tmp_path / "responder-bot.db", bots) == []  # which only a bot makes


async def test_every_subcommand_reads_config_and_resolves_paths_from_it(tmp_path: Path) -> None:
    (tmp_path / "there" / "data").mkdir(parents=True)
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


async def test_environment_variables_override_the_settings_file(tmp_path: Path) -> None:
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


@pytest.mark.sqlite
async def test_user_disable_takes_effect_in_a_running_core(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        key = {"Authorization": f"Bearer {await core.key('analyst')}"}
        database = {"RESPONDER_BOT_CORE_DATABASE": "core.db"}
        before = await core.http.get("/api/user/current", headers=key)
        ended = await run(tmp_path, "user", "disable", "analyst", **database)
        after = await core.http.get("/api/user/current", headers=key)
    assert (before.status_code, ended.code, after.status_code) == (200, 0, 401)


async def test_core_prints_its_url_and_stops_on_sigterm(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("[core]\nport = 0\n")
    process = await start(tmp_path, "core", "--config", "my.toml")
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    async with httpx.AsyncClient(base_url=line.removeprefix("core: ").strip(), timeout=60) as http:
        answers = [
            (await http.get(path)).status_code for path in ("/health", "/metrics", "/api/docs", "/api/openapi.json")
        ]
    process.terminate()
    await process.communicate()
    assert line.startswith("core: http://127.0.0.1:")
    assert (answers, process.returncode) == ([200] * 4, 0)


async def test_systemd_learns_that_core_is_ready_alive_and_stopping(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("[core]\nport = 0\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        notify = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "100000"}
        process = await start(tmp_path, "core", "--config", "my.toml", **notify)
        assert process.stdout is not None
        await process.stdout.readline()
        said = [manager.recv(100) for _ in range(3)]
        process.terminate()
        await process.communicate()
        assert said == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        while (last := manager.recv(100)) == b"WATCHDOG=1":
            pass
        assert (last, process.returncode) == (b"STOPPING=1", 0)


@pytest.mark.slow
async def test_people_are_put_into_groups(tmp_path: Path) -> None:
    await run(tmp_path, "user", "add", "ann", "--profile", "analyst", "--group", "containment", "--group", "night")
    await run(tmp_path, "user", "add", "hook", "--profile", "source")
    assert (await run(tmp_path, "group", "list")).out.split() == [
        *("GROUP", "MEMBERS", "containment", "ann@responder-bot.local", "night", "ann@responder-bot.local")
    ]
    assert "is not in the group night any more" in (await run(tmp_path, "group", "remove", "night", "ann")).err
    for args in (
        ("add", "night", "hook"),
        ("add", "Night", "ann"),
        ("add", "night", "nobody"),
        ("remove", "night", "ann"),
    ):
        ended = await run(tmp_path, "group", *args)
        assert ended.code
        assert is_one_sentence(ended.err)
    assert "night" not in (await run(tmp_path, "group", "list")).out


async def test_a_mistyped_database_is_not_made(tmp_path: Path) -> None:
    """A first start makes one; later a missing one is refused, until `init` makes it."""
    user = ("user", "add", "anna", "--profile", "analyst")
    assert (await run(tmp_path, *user)).code == 0
    for name, words in (
        ("core.db", f"There is no database {tmp_path}/core.db, but there is {tmp_path}/responder-bot.db; correct"),
        ("gone/core.db", f"There is no folder {tmp_path}/gone for core's database; correct [core] database, or run"),
    ):
        mistyped = {"RESPONDER_BOT_CORE_DATABASE": name}
        for command in (user, ("core",), ("hosts",), ("drain",)):
            refused = await run(tmp_path, *command, **mistyped)
            assert (refused.code, refused.out, refused.err.startswith(words)) == (2, "", True)
            assert is_one_sentence(refused.err)
            assert not (tmp_path / name).exists()
        made = await run(tmp_path, "init", **mistyped)
        assert (made.code, made.err) == (0, f"Made the database {tmp_path / name}.\n")
        assert (await run(tmp_path, *user, **mistyped)).code == 0
        again = await run(tmp_path, "init", **mistyped)
        assert (again.code, again.err) == (2, f"{tmp_path / name} is there already; start core with it.\n")


async def test_a_database_is_not_made_beside_what_an_earlier_core_left(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "jobs" / "~1").mkdir(parents=True)
    refused = await run(tmp_path, "core", RESPONDER_BOT_CORE_DATABASE="elsewhere/core.db")
    assert (refused.code, "but there is " in refused.err) == (2, True)
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_the_version_is_printed(tmp_path: Path) -> None:
    ended = await (await programs.start("bot.cli", "--version", cwd=tmp_path, stdout=PIPE, stderr=PIPE)).communicate()
    assert ended == (f"responder-bot {version('responder-bot')}\n".encode(), b"")


@pytest.mark.sqlite
async def test_what_is_printed_may_be_on_a_full_disk_or_have_half_a_surrogate_pair(tmp_path: Path) -> None:
    async with stores.opened(tmp_path / "responder-bot.db") as database:
        texts = {"reason": "half \ud800 of anna@responder-bot.local"}
        await database.transaction(lambda tx: trail.record(tx, 0, "user.enabled", by="a@x", object="~1", texts=texts))
    with Path("/dev/full").open("w") as full:  # noqa: ASYNC230 - it is no file
        command = [sys.executable, "-m", "core.cli", "audit", "export"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=tmp_path, env=environment, stdout=full, stderr=PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (2, "No space is left on the disk; make room, and repeat the command.\n")
    table = await run(tmp_path, "audit", "export", "--format", "csv")
    assert (table.code, table.err) == (0, "")
    assert "half \\ud800 of" in table.out


@pytest.mark.sqlite
async def test_an_export_of_days_in_the_wrong_order_is_refused(tmp_path: Path) -> None:
    async with stores.opened(tmp_path / "responder-bot.db"):
        pass
    ended = await run(tmp_path, "audit", "export", "--from", "2026-02-01", "--to", "2026-01-01")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "2026-02-01 is after 2026-01-01; give the earlier day with --from.\n"


async def test_whose_last_key_is_revoked_is_told(tmp_path: Path) -> None:
    await run(tmp_path, "user", "add", "anna", "--profile", "analyst")
    await run(tmp_path, "key", "add", "anna", "nightly")
    listed = await run(tmp_path, "key", "list", "anna")
    assert listed.err == "A use is noted within a minute.\n"
    names = [line.split()[0] for line in listed.out.splitlines()[1:]]
    assert len(names) == 2
    ends = (
        "anna@responder-bot.local has no key any more; `responder-bot user key anna@responder-bot.local` makes one.\n"
    )
    first, last = [(await run(tmp_path, "key", "revoke", "anna", name)).err for name in names]
    assert [said.endswith(ends) for said in (first, last)] == [False, True]


@pytest.mark.root
@pytest.mark.sqlite
async def test_a_read_only_file_system_is_told_as_such(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with file_system(state, "size=20m"):
        (tmp_path / "responder-bot.toml").write_text('[core]\nstate = "state"\n')
        user = ("user", "add", "anna", "--profile", "analyst")
        assert (await run(tmp_path, *user)).code == 0
        await (await asyncio.create_subprocess_exec("mount", "-o", "remount,ro", state)).wait()
        for command in (user, ("core",), ("hosts",)):
            refused = await run(tmp_path, *command)
            assert (refused.code, is_one_sentence(refused.err)) == (2, True)
            assert "is on a read-only file system; mount it writable" in refused.err
