"""The command line `responder-bot`: try, setup, serve, bot, check, health, doctor, and core's subcommands.

Large imports are inside the subcommands, so that `--help` is fast.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core import cli as core_cli
from core.common.errors import ResponderBotError
from core.common.tasks import cancel_and_wait
from core.common.words import SECRET_WORDS, count, some_of

if TYPE_CHECKING:
    from bot.app import Bot
    from bot.settings import BotSettings
    from core.app import Core
    from core.common.database import Database
    from core.common.database.location import Location
    from core.common.database.schema import Opening
    from core.common.database.transfer import Store
    from core.common.settings_file import Sections
    from core.models import Alert
    from core.settings import CoreSettings

MAX_PORT = 65_534  # core takes the next one
HEALTH_TIMEOUT_S = 5.0  # core tries its store for 2 s at most
SERVICE_LOGIN = "responder-bot-serve"  # the user of the bot that runs in the same process as core
SETUP_OPTIONS = {
    "bot-token": "xoxb-... (default: SLACK_BOT_TOKEN)",
    "app-token": "xapp-... (default: SLACK_APP_TOKEN)",
    "channel": "the channel for alerts: its name or id",
    "clearance": "the highest TLP that it may show (default: amber)",
    "severity": "alerts from which severity on (default: medium)",
    "person": "the first org-admin: their member ID in Slack",
    "code": "what the bot has sent them, to have it typed by nobody",
    "login": "their login in responder-bot (default: admin)",
}
"""Of setup, which asks for what isn't given."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand. Returns the exit code."""
    parser = core_cli.Parser(
        prog="responder-bot", description="See a security alert in Slack, run a responder on it, watch it end."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add = partial(core_cli.add_command, commands)
    _add_try_options(add("try", _try, "try everything on this machine, without a Slack account or settings"))
    setup = add("setup", _setup, "connect to Slack: ask, try it with an alert, write the settings")
    for name, text in SETUP_OPTIONS.items():
        setup.add_argument(f"--{name}", default="", metavar=name.rpartition("-")[2].upper(), help=text)
    add("serve", _serve, "core and bot in one process (the usual installation)")
    add("bot", _bot, "serve the bot alone")
    check = add("check", _check, "say what is wrong with settings, responders and files; start nothing")
    check.add_argument("--schema", action="store_true", help="print the JSON Schema of the settings, for editors")
    add("health", _health, "ask the core of these settings whether it is ready, or a bot that runs alone; for probes")
    doctor = add("doctor", _doctor, "check each link between Slack and a responder, and say what to do")
    doctor.add_argument("--manifest", metavar="URL", help="print manifest.yml for HTTP; URL is the bot's address")
    core_cli.register(commands, _open_both)
    core_cli.register_store(commands, _bots_stores)
    core_cli.register_prune(commands, _open_both)
    core_cli.register_erase(commands, _open_both)
    core_cli.register_source(commands, _card_lines)
    return core_cli.run(parser.parse_args(argv))


class _Version(argparse.Action):
    """Prints the version, which argparse's own action would have to know beforehand."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from core.common.process_identity import own_version

        core_cli.announce(f"responder-bot {own_version()}")
        parser.exit()


def _add_try_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--once", action="store_true", help="run one responder from start to end without a browser, and print each step"
    )
    parser.add_argument(
        "--port", type=_port, default=0, metavar="PORT", help="port of the page; core takes the next one"
    )
    parser.add_argument("--state", type=Path, metavar="DIR", help="folder for files (default: a temporary folder)")
    parser.add_argument(
        "--workspace-only", action="store_true", help="run only the emulator of Slack, for a bot of your own"
    )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give a number from 1 to {MAX_PORT}")
    return int(text)


def _run_until_stopped(work: Coroutine[Any, Any, int | None], *, when_stopped: int = 0) -> int | None:
    """Run on the same event loop as core. Returns the exit code of `work`, or `when_stopped` after Ctrl-C or SIGTERM.

    Signals are handled from the start, so that none is lost during startup.
    """
    from core.app import stop_signal

    codes: list[int | None] = []

    async def until_stopped() -> None:
        working, stopping = asyncio.create_task(work), asyncio.create_task(stop_signal())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            codes.append(working.result() if working.done() else when_stopped)
        finally:
            await cancel_and_wait(working, stopping)

    core_cli.run_loop(until_stopped())
    return codes[0]


def _print(line: str) -> None:
    print(line, flush=True)


# --- settings -------------------------------------------------------------------------------------------------------


def _sections(args: argparse.Namespace) -> "Sections":
    from core.common.settings_file import read_sections

    return read_sections(args.config, os.environ)


def _bot_settings(args: argparse.Namespace) -> "BotSettings":
    """The bot's settings. The default of `[bot] core_url` is the address in `[core]` of the same settings."""
    from bot.settings import bot_settings
    from core.settings import core_settings

    sections = _sections(args)
    settings = bot_settings(sections)
    if "core_url" in settings.bot.model_fields_set:
        return settings
    url = _core_url(core_settings(sections))
    return settings.model_copy(update={"bot": settings.bot.model_copy(update={"core_url": url})})


def _core_url(settings: "CoreSettings") -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.core.host, settings.core.host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.core.port}"


def _bot_problems(settings: "BotSettings", core: "CoreSettings | None" = None) -> list[str]:
    """Why a bot with these settings can't start, beside `core` in one process if that is given."""
    slack, problems = settings.slack, []
    if not slack.bot_token:
        problems.append(
            "There is no Slack bot token: set [slack] bot_token (or SLACK_BOT_TOKEN). `responder-bot try` works"
            " without one."
        )
    if not slack.app_token and not slack.signing_secret:
        problems.append("Set [slack] app_token (xapp-..., for Socket Mode), or signing_secret for requests over HTTP.")
    ports = {} if core is None else {"[core] port": core.core.port}
    ports |= {} if slack.app_token else {"[slack] port": slack.port}
    ports |= {} if settings.bot.health_port is None else {"[bot] health_port": settings.bot.health_port}
    for key, port in ports.items():
        if twice := [other for other, used in ports.items() if used == port and port and other > key]:
            problems.append(f"{key} and {twice[0]} are both {port}; give one of them another port.")
    return problems


def _require_bot_can_start(settings: "BotSettings", core: "CoreSettings | None" = None) -> None:
    for problem in _bot_problems(settings, core):
        raise ResponderBotError("bad_request", problem)


# --- serve, bot -----------------------------------------------------------------------------------------------------


def _serve(args: argparse.Namespace) -> int | None:
    from core.common import logs

    bot_settings = _bot_settings(args)
    core_settings = core_cli.settings_with_database(args, can_make=True)
    _require_bot_can_start(bot_settings, core_settings)
    logs.configure(core_settings.core.log_level)

    async def serve() -> None:
        both = core_and_bot(core_settings, bot_settings, lambda url: core_cli.announce(f"core: {url}"))
        async with both as (core, bot, _), _announcing(bot):
            await core.until_stopped()

    return _run_until_stopped(serve())


@asynccontextmanager
async def core_and_bot(
    core_settings: "CoreSettings", bot_settings: "BotSettings", ready: Callable[[str], None] = lambda _: None
) -> "AsyncIterator[tuple[Core, Bot, str]]":
    """Run both in this process; gives core's URL, too, and tells `ready` before the bot starts."""
    from core.app import serving

    async with serving(core_settings, open_=_open_database) as (core, url):
        ready(url)
        key = bot_settings.bot.core_api_key or await core.people.temporary_key(SERVICE_LOGIN, "service")
        async with _running_bot(bot_settings, url, key, core.database) as bot:
            core.show_health("bot", bot.problem)
            yield core, bot, url


def _bot(args: argparse.Namespace) -> int | None:
    settings = _bot_settings(args)
    if not settings.bot.core_api_key:
        raise ResponderBotError(
            "bad_request",
            "The bot has no key of core: make one with `responder-bot user add bot --profile service` and set it "
            "as [bot] core_api_key.",
        )
    _require_bot_can_start(settings)
    from core.common import logs, systemd

    logs.configure(settings.core.log_level)

    async def serve() -> None:
        await _check_key(settings)
        running = _running_bot(settings, settings.bot.core_url, settings.bot.core_api_key)
        async with running as bot, _announcing(bot), systemd.alive():
            await bot.until_ended()

    return _run_until_stopped(serve())


async def _check_key(settings: "BotSettings") -> None:
    """Raise ResponderBotError if core refuses the bot's key. A core that doesn't answer may be up later."""
    from bot.doctor import key_check
    from core.client import CoreClient

    async with CoreClient(settings.bot.core_url, settings.bot.core_api_key, timeout_s=5) as core:
        check = await key_check(core)
    if not check.ok:
        raise ResponderBotError("bad_request", f"[bot] core_api_key: {check.message}.")


@asynccontextmanager
async def _running_bot(
    settings: "BotSettings", core_url: str, key: str, database: "Database | None" = None
) -> "AsyncIterator[Bot]":
    """Run the bot. `database`: core's, if it is in this process."""
    from bot.app import running
    from core.client import CoreClient
    from core.common.clock import now_ms

    async with CoreClient(core_url, key) as core, running(settings, core, clock_ms=now_ms, database=database) as bot:
        yield bot


@asynccontextmanager
async def _announcing(bot: "Bot") -> AsyncIterator[None]:
    """Say once that the bot is connected to Slack."""

    async def announce() -> None:
        await bot.connected.wait()
        core_cli.announce(f"bot: {bot.transport.check().message}")

    announcing = asyncio.create_task(announce())
    try:
        yield
    finally:
        await cancel_and_wait(announcing)


def _open_database(location: "Location", opening: "Opening | None" = None) -> "Database":
    """Core's database, on SQLite with the bot's tables, for a process that is both. Raises ResponderBotError."""
    from bot.outbox.store import migrate
    from core.store.database.opening import open_database

    return open_database(location, opening, beside=migrate)


def _bots_stores() -> "Sequence[Store]":
    from bot.outbox.store import STORES

    return STORES


@asynccontextmanager
async def _open_both(args: argparse.Namespace) -> AsyncIterator[core_cli.OpenDatabase]:
    import aiohttp

    from bot.app.transports import web_client
    from bot.outbox.retention import Retention
    from bot.outbox.sending.erasure import Erasure
    from bot.outbox.store import open_stores
    from core.common.clock import now_ms

    location, settings = core_cli.settings_with_database(args).core.database, _bot_settings(args)
    async with AsyncExitStack() as stack:
        database = _open_database(location, core_cli.opening())
        stack.push_async_callback(database.close)
        stores = open_stores(location, core_cli.opening(), shared=database)
        stack.push_async_callback(stores.close)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        token = settings.slack.bot_token
        slack = web_client(token, settings.slack, session) if token else None

        async def prune(ask_core: core_cli.AskCore, is_dry_run: bool) -> Mapping[str, int]:
            retention = Retention(stores, now_ms, settings.retention.message_days, ask_core)
            return await (retention.preview() if is_dry_run else retention.prune())

        yield core_cli.OpenDatabase(database, Erasure(stores, slack), prune)


# --- setup ----------------------------------------------------------------------------------------------------------


def _setup(args: argparse.Namespace) -> None:
    from bot import setup
    from core.common import logs
    from core.common.settings_file import DEFAULT_FILE
    from core.engines.confinement import advice, bwrap_cure, try_landlock, unavailable

    logs.silence()
    options = {name: text for name in SETUP_OPTIONS if (text := getattr(args, name.replace("-", "_")))}
    landlock, bwrap = try_landlock(), unavailable("bwrap")
    mode: Literal["landlock", "bwrap"] = "bwrap" if landlock and not bwrap else "landlock"
    ask, file = _typed if sys.stdin.isatty() else None, args.config or DEFAULT_FILE
    asked = setup.Setup(options, os.environ, file, ask, lambda text: _print(_wrapped(text)), core_and_bot, _manifest())
    try:
        asked.run(mode, advice(mode, landlock, bwrap, bwrap_cure())[1])
    except KeyboardInterrupt:
        _print("\nStopped before settings were written; run setup again.")
        raise


def _wrapped(text: str) -> str:
    """`text` at the width of the terminal, with no word cut."""
    if not sys.stdout.isatty():
        return text
    width, indent = shutil.get_terminal_size().columns, " " * 3
    lines = text.split("\n")
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        for line in lines
    )


def _typed(prompt: str, is_secret: bool) -> str:
    from getpass import getpass

    try:
        return getpass(prompt) if is_secret else input(prompt)
    except EOFError:
        raise KeyboardInterrupt from None


# --- check ----------------------------------------------------------------------------------------------------------


def _check(args: argparse.Namespace) -> int:
    from bot.settings import READERS, BotSettings
    from core import check
    from core.common.settings_file import problems_of, with_line
    from core.settings import READERS as CORES
    from core.settings import core_settings

    if args.schema:
        of_core, of_bot = check.schema(), BotSettings.model_json_schema()
        merged = {key: {**of_core[key], **of_bot[key]} for key in ("$defs", "properties")}
        merged["properties"]["core"] = of_core["properties"]["core"]
        _print(json.dumps({**of_core, **merged, "title": "responder-bot.toml", "description": ""}, indent=2))
        return 0
    try:
        sections = _sections(args)
        problems = [*problems_of(READERS, sections), *asyncio.run(check.problems(sections))]
        if not problems_of({**READERS, **CORES}, sections):
            bot, core = _bot_settings(args), core_settings(sections)
            if bot.channel or "slack" in sections.tables:  # else a core alone
                found = _bot_problems(bot, core if _is_local_core(bot, core) else None)
                problems += [with_line(problem, sections) for problem in found]
    except ResponderBotError as error:
        problems = [error.message]
    else:
        problems.append(_file_mode_problem(sections))
    problems = [problem for problem in dict.fromkeys(problems) if problem]
    for problem in problems:
        _print(problem)
    return 1 if problems else 0


# --- health ---------------------------------------------------------------------------------------------------------


def _health(args: argparse.Namespace) -> int:
    from http.client import HTTPConnection, HTTPException
    from urllib.parse import urlsplit

    from core.settings import core_settings

    settings = _bot_settings(args)
    if _is_local_core(settings, core_settings(_sections(args))):
        address, path = urlsplit(settings.bot.core_url).netloc, "/readyz"
    else:
        address, path = settings.health_address, "/health"
    if not address:
        raise ResponderBotError("bad_request", "There is nothing to ask: set [bot] health_port for a bot without core.")
    connection = HTTPConnection(address, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", path)
        with connection.getresponse() as response:
            answer = json.load(response)
        problems = [f"{part['name']}: {part['message']}" for part in answer.get("parts", ()) if not part["ok"]]
        _print("\n".join(problems) or answer.get("message") or answer["status"])
    except (OSError, HTTPException, ValueError, LookupError, TypeError, AttributeError) as error:
        _print(f"{address}{path} gives no answer ({error}); see whether responder-bot runs here.")
        return 1
    finally:
        connection.close()
    return 0 if response.status == 200 else 1


# --- doctor ---------------------------------------------------------------------------------------------------------


def _doctor(args: argparse.Namespace) -> int | None:
    from bot import doctor

    if args.manifest:
        _print(doctor.http_manifest(_manifest_text(), args.manifest).rstrip("\n"))
        return 0
    from core.client import CoreClient
    from core.common import logs
    from core.common.clock import now_ms
    from core.settings import core_settings

    logs.silence()
    try:
        settings = _bot_settings(args)
        local_core = core_settings(_sections(args))
        first = _settings_checks(args, settings, local_core)
    except ResponderBotError as error:
        _print(f"FAIL  settings: {error.message}")
        return 1

    async def check() -> int:
        async with CoreClient(settings.bot.core_url, settings.bot.core_api_key, timeout_s=5) as core:
            read = partial(core_cli.slack_links, local_core) if _is_local_core(settings, local_core) else None
            checks = await doctor.checks(settings, core, _manifest(), now_ms, read_links=read)
        if _is_local_core(settings, local_core):
            first.extend(await _database_checks(local_core))
        lines = [*first, *((check.ok, check.name, check.message) for check in checks)]
        warnings = {check.name for check in checks if check.is_warning}
        for is_well, name, message in lines:
            mark = "FAIL" if not is_well else "WARN" if name in warnings else "ok  "
            _print(f"{mark}  {name}: {message}")
        return 0 if all(is_well for is_well, _, _ in lines) else 1

    return _run_until_stopped(check())


def _is_local_core(settings: "BotSettings", core: "CoreSettings") -> bool:
    """Whether the bot's core is the one that `[core]` of the same settings describes."""
    return settings.bot.core_url == _core_url(core)


async def _database_checks(core: "CoreSettings") -> list[tuple[bool, str, str]]:
    """Which keys nobody uses, and the head of the audit, for whoever copies it away."""
    try:
        unused, head = await core_cli.keys_and_head(core)
    except ResponderBotError as error:
        return [(False, "database", error.message)]
    keys = "each was used in the last 90 days, or is new"
    if unused:
        names = some_of([f"{name} of {login}" for login, name in unused], 5)
        keys = f"nobody has used {names} for 90 days; `responder-bot key revoke LOGIN NAME`"
    audit = f"its head is {head}; copy it away once a week" if head else "it has no rows yet"
    return [(not unused, "keys", keys), (True, "audit", audit)]


def _settings_checks(
    args: argparse.Namespace, settings: "BotSettings", core: "CoreSettings"
) -> list[tuple[bool, str, str]]:
    """Checks of the settings alone: whether each passes, its name, its message."""
    from core.settings import database_problem, folder_problems, mode_problems, secret_problems

    sections = _sections(args)
    file = sections.source if Path(sections.source).is_file() else f"no {sections.source} here (--config names another)"
    mode_problem = _file_mode_problem(sections)
    lines = [(not mode_problem, "settings", mode_problem or f"{file}, {count(len(settings.channel), 'channel')}")]
    if _is_local_core(settings, core):
        if problem := database_problem(core):
            lines.append((False, "database", problem))
        finders = {"folders": folder_problems, "modes": mode_problems, "secrets": secret_problems}
        lines += [(False, name, problem) for name, find in finders.items() for problem in find(core)]
        if not core.engine or any(not engine.is_remote for engine in core.engine):
            lines.append(_confinement_check(core))
    return lines


def _confinement_check(core: "CoreSettings") -> tuple[bool, str, str]:
    """Whether programs of responders can be confined on this machine; both ways are tried."""
    from core.engines.confinement import advice, bwrap_cure, try_landlock, unavailable

    is_well, message = advice(core.core.confinement, try_landlock(), unavailable("bwrap"), bwrap_cure())
    return is_well, "confinement here", message


def _file_mode_problem(sections: "Sections") -> str:
    """What is wrong with the mode of a settings file that contains secrets, or "". Its group may read it."""
    from core.common.private_files import mode_problem

    file = Path(sections.source)
    problem = mode_problem(file, shared=0o050) if file.is_file() and _has_secrets(sections.tables) else ""
    return f"the settings hold secrets, and {problem}" if problem else ""


def _has_secrets(value: Any, key: str = "") -> bool:
    if isinstance(value, Mapping):
        return any(_has_secrets(item, str(name)) for name, item in value.items())
    if isinstance(value, list):
        return any(_has_secrets(item, key) for item in value)
    is_secret = any(word in key.lower() for word in SECRET_WORDS)
    return isinstance(value, str) and bool(value) and (is_secret or re.search(r"://[^/\s]*@", value) is not None)


def _manifest_text() -> str:
    """The Slack app's manifest, which stands beside the packages."""
    return (Path(__file__).parents[1] / "manifest.yml").read_text("utf-8")


def _manifest() -> Mapping[str, Any]:
    import yaml

    tree: Mapping[str, Any] = yaml.safe_load(_manifest_text())
    return tree


# --- try ------------------------------------------------------------------------------------------------------------


def _try(args: argparse.Namespace) -> int | None:
    if args.config is not None:
        raise ResponderBotError("bad_request", "try has settings of its own, so leave out --config.")
    if args.workspace_only and args.once:
        raise ResponderBotError("bad_request", "--workspace-only runs nothing, so leave out --once or it.")
    if args.state is not None:
        return _try_in(args, args.state.absolute())
    try:
        folder = tempfile.TemporaryDirectory(prefix="responder-bot-")
    except OSError as error:
        sentence = f"There is no room for a temporary folder ({error.strerror}); name a folder with --state."
        raise ResponderBotError("bad_request", sentence) from error
    with folder as name:
        return _try_in(args, Path(name))


def _card_lines(alert: "Alert") -> list[str]:
    """The card of an alert as plain text, for somebody who may see it."""
    from bot.demo.transcript import lines_of
    from bot.features.alerts.views.card import alert_card

    card = alert_card(alert, [], clearance=alert.tlp, button=lambda _: "")
    return lines_of({"blocks": card.blocks})


def _try_in(args: argparse.Namespace, state: Path) -> int | None:
    from bot import demo
    from core.common import logs
    from core.common.private_files import make_private

    logs.configure("error")
    try:
        make_private(state)
    except OSError as error:
        sentence = f"The folder {state} can't be made ({error.strerror}); give another with --state."
        raise ResponderBotError("bad_request", sentence) from error
    manifest = _manifest()
    if args.workspace_only:
        return _run_until_stopped(demo.emulator_only(_print, args.port))
    if args.once:
        return _run_until_stopped(demo.main_job(state, core_and_bot, manifest, _print), when_stopped=130)
    return _run_until_stopped(demo.serve(state, core_and_bot, manifest, _print, port=args.port))


if __name__ == "__main__":
    sys.exit(main())
