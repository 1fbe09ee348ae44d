"""The console script `responder-bot`: try, serve, bot, doctor, and core's subcommands.

Heavy imports stand inside the subcommands, so that `--help` answers at once (`performance.md 1`).
"""

import argparse
import asyncio
import os
import re
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import cli as core_cli
from core.common.errors import ResponderBotError

if TYPE_CHECKING:
    from bot.settings import BotSettings
    from core.app import Core
    from core.common.settings_file import Sections
    from core.settings import CoreSettings

LAST_PORT = 65_534  # the one after it is core's
SERVICE_LOGIN = "responder-bot-serve"  # the user of the bot that runs in the same process as core


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand; gives the exit code."""
    parser = core_cli.Parser(
        prog="responder-bot", description="See a security alert in Slack, run a responder on it, watch it end."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _register_try(commands)
    _add(commands, "serve", _serve, "core and bot in one process (the usual installation)")
    _add(commands, "bot", _bot, "serve the bot alone")
    doctor = _add(commands, "doctor", _doctor, "look at each link in turn, and say what to do")
    doctor.add_argument("--manifest", metavar="URL", help="print manifest.yml for HTTP; URL is the bot's address")
    text = "leave the old messages in Slack as they are, where they tell of another core database; the bot may run"
    _add(commands, "forget-messages", _forget_messages, text)
    core_cli.register(commands)
    return core_cli.run(parser.parse_args(argv))


def _register_try(commands: "argparse._SubParsersAction[Any]") -> None:
    tried = _add(commands, "try", _try, "the whole thing on this machine, with no account anywhere; needs no settings")
    tried.add_argument("--once", action="store_true", help="do the main job once without a browser, and tell it")
    tried.add_argument("--json", action="store_true", help="with --once: a JSON line for each step")
    tried.add_argument("--port", type=_port, default=0, metavar="PORT", help="of the page; core takes the next one")
    tried.add_argument("--state", type=Path, metavar="DIR", help="where files are kept (default: a temporary folder)")
    tried.add_argument("--workspace-only", action="store_true", help="only the local workspace, for a bot of your own")


def _add(
    commands: "argparse._SubParsersAction[Any]", name: str, task: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    core_cli.add_config(parser)
    parser.set_defaults(run=task)
    return parser


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give a number from 1 to {LAST_PORT}")
    return int(text)


def _completed(work: Coroutine[Any, Any, int], *, when_stopped: int = 0) -> int:
    """Run to its end on core's kind of loop; gives what `work` gives, or `when_stopped` after Ctrl-C or SIGTERM.

    The signals are awaited from the start, so that none is lost while things come up.
    """
    codes: list[int] = []

    async def kept() -> None:
        codes.append(await _until_stopped(work, when_stopped))

    core_cli.run_loop(kept())
    return codes[0]


async def _until_stopped(work: Coroutine[Any, Any, int], when_stopped: int) -> int:
    from core.app import stop_signal

    working, stopping = asyncio.create_task(work), asyncio.create_task(stop_signal())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        return when_stopped
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


async def _for_ever() -> None:
    """Serve until this task is cancelled."""
    await asyncio.Event().wait()


def _tell(line: str) -> None:
    print(line, flush=True)


# --- settings -------------------------------------------------------------------------------------------------------


def _sections(args: argparse.Namespace) -> "Sections":
    from core.common.settings_file import read_sections

    return read_sections(args.config, os.environ)


def _bot_settings(args: argparse.Namespace) -> "BotSettings":
    """The bot's settings; without `[bot] core_url` core is where `[core]` of the same settings has it."""
    from bot.settings import bot_settings
    from core.settings import core_settings

    sections = _sections(args)
    settings = bot_settings(sections)
    if "core_url" in settings.bot.model_fields_set:
        return settings
    url = _url_of(core_settings(sections))
    return settings.model_copy(update={"bot": settings.bot.model_copy(update={"core_url": url})})


def _url_of(settings: "CoreSettings") -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.core.host, settings.core.host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.core.port}"


def _require_slack(settings: "BotSettings") -> None:
    slack = settings.slack
    if not slack.bot_token:
        raise ResponderBotError(
            "bad_request",
            "There is no Slack bot token: set [slack] bot_token (or SLACK_BOT_TOKEN). "
            "`responder-bot try` works without one.",
        )
    if not slack.app_token and not slack.signing_secret:
        raise ResponderBotError(
            "bad_request",
            "Set [slack] app_token (xapp-..., for Socket Mode), or signing_secret for requests over HTTP.",
        )


# --- serve, bot -----------------------------------------------------------------------------------------------------


def _serve(args: argparse.Namespace) -> int:
    from core.common import logs
    from core.settings import core_settings

    core = core_settings(_sections(args))
    bot = _bot_settings(args)
    _require_slack(bot)
    logs.configure(core.core.log_level)
    return _completed(_both(core, bot))


async def _both(core_settings: "CoreSettings", bot_settings: "BotSettings") -> int:
    from core.app import serving

    async with serving(core_settings) as (core, url), _own_key(core) as key:
        core_cli.announce(f"core: {url}")
        await _run_bot(bot_settings, url, bot_settings.bot.core_api_key or key)
    return 0


@asynccontextmanager
async def _own_key(core: "Core") -> AsyncIterator[str]:
    """A key for the bot in this process, kept in memory only; it ends with the process (`surface.md`)."""
    try:
        key = await core.access.add(SERVICE_LOGIN, "service")
    except ResponderBotError as error:
        if error.code != "exists":
            raise
        key = await core.access.new_key(SERVICE_LOGIN)
    try:
        yield key
    finally:
        with suppress(ResponderBotError):  # the store is gone, and the key with it
            await core.access.new_key(SERVICE_LOGIN)  # thrown away unseen


def _bot(args: argparse.Namespace) -> int:
    settings = _bot_settings(args)
    if not settings.bot.core_api_key:
        raise ResponderBotError(
            "bad_request",
            "The bot has no key of core: make one with `responder-bot user add bot --profile service` and set it "
            "as [bot] core_api_key.",
        )
    _require_slack(settings)
    from core.common import logs

    logs.configure("info")

    async def alone() -> int:
        await _refuse_wrong_key(settings)
        await _run_bot(settings, settings.bot.core_url, settings.bot.core_api_key)
        return 0

    return _completed(alone())


async def _refuse_wrong_key(settings: "BotSettings") -> None:
    """Raises ResponderBotError where core does not take the bot's key; a core that is silent may come up later."""
    from bot.doctor import key_check
    from core.client import CoreClient

    async with CoreClient(settings.bot.core_url, settings.bot.core_api_key, timeout_s=5) as core:
        check = await key_check(core)
    if not check.ok:
        raise ResponderBotError("bad_request", f"[bot] core_api_key: {check.message}.")


async def _run_bot(settings: "BotSettings", core_url: str, key: str) -> None:
    from bot.app import running
    from core.client import CoreClient
    from core.common.clock import now_ms

    async with CoreClient(core_url, key) as core, running(settings, core, clock_ms=now_ms) as bot:
        core_cli.announce(f"bot: {bot.transport.check().message}")
        await _for_ever()


def _forget_messages(args: argparse.Namespace) -> int:
    from bot.outbox import forget_messages

    path = _bot_settings(args).bot.database
    if not path.is_file():
        raise ResponderBotError("not_found", f"There is no database {path} of the bot; see --config.")
    count = asyncio.run(forget_messages(path))
    print(f"Forgot {count} messages; the bot shows what comes from now on.", file=sys.stderr)
    return 0


# --- doctor ---------------------------------------------------------------------------------------------------------


def _doctor(args: argparse.Namespace) -> int:
    from bot import doctor

    if args.manifest:
        _tell(doctor.http_manifest(_manifest_text(), args.manifest).rstrip("\n"))
        return 0
    from core.client import CoreClient
    from core.common import logs
    from core.common.clock import now_ms
    from core.settings import core_settings

    logs.silence()
    try:
        settings = _bot_settings(args)
        core_side = core_settings(_sections(args))
        first = _settings_lines(args, settings, core_side)
    except ResponderBotError as error:
        _tell(f"FAIL  settings: {error.message}")
        return 1

    async def look() -> int:
        async with CoreClient(settings.bot.core_url, settings.bot.core_api_key, timeout_s=5) as core:
            is_linked = _linked_here(core_side) if _is_here(settings, core_side) else None
            found = await doctor.checks(settings, core, _manifest(), now_ms, is_linked=is_linked)
        lines = [*first, *((check.ok, check.name, check.message) for check in found)]
        for is_well, name, message in lines:
            _tell(f"{'ok  ' if is_well else 'FAIL'}  {name}: {message}")
        return 0 if all(is_well for is_well, _, _ in lines) else 1

    return _completed(look())


def _is_here(settings: "BotSettings", core: "CoreSettings") -> bool:
    """Whether the bot's core is the one of the same settings, on this machine."""
    return settings.bot.core_url == _url_of(core)


def _linked_here(core: "CoreSettings") -> Callable[[str, str], Coroutine[Any, Any, bool]]:
    read: list[frozenset[tuple[str, str]]] = []

    async def is_linked(team: str, user: str) -> bool:
        if not read:
            read.append(await core_cli.slack_links(core))
        return not {(team, user), ("", user)}.isdisjoint(read[0])

    return is_linked


def _settings_lines(
    args: argparse.Namespace, settings: "BotSettings", core: "CoreSettings"
) -> list[tuple[bool, str, str]]:
    """What the settings alone tell: whether each is well, its name, its words."""
    from core.settings import folder_troubles

    sections = _sections(args)
    file = sections.source if Path(sections.source).is_file() else f"no {sections.source} here (--config names another)"
    channels = len(settings.channel)
    exposed = _mode_trouble(Path(sections.source), sections.tables)
    lines = [(not exposed, "settings", exposed or f"{file}, {channels} channel{'' if channels == 1 else 's'}")]
    if _is_here(settings, core):
        lines += [(False, "folders", trouble) for trouble in folder_troubles(core)]
    return lines


def _mode_trouble(file: Path, tables: Mapping[str, Any]) -> str:
    """What is wrong with the mode of a settings file that holds secrets, or `""`; its group may read it."""
    if os.name != "posix" or not file.is_file() or not _holds_secrets(tables):
        return ""
    mode = stat.S_IMODE(file.stat().st_mode)
    if not mode & 0o027:
        return ""
    return f"{file} holds secrets, and others on this machine can get at it (mode {mode:04o}); `chmod 600 {file}`"


def _holds_secrets(value: Any, key: str = "") -> bool:
    if isinstance(value, Mapping):
        return any(_holds_secrets(item, str(name)) for name, item in value.items())
    if isinstance(value, list):
        return any(_holds_secrets(item, key) for item in value)
    is_secret = any(word in key.lower() for word in ("key", "password", "pwd", "secret", "token"))
    return isinstance(value, str) and bool(value) and (is_secret or re.search(r"://[^/\s]*@", value) is not None)


def _manifest_text() -> str:
    """The Slack app's manifest: beside the packages in a checkout, inside the package once installed."""
    here = Path(__file__).parent
    for file in (here / "manifest.yml", here.parent / "manifest.yml"):
        if file.is_file():
            return file.read_text("utf-8")
    raise ResponderBotError("not_found", "manifest.yml is missing from this installation; install it anew.")


def _manifest() -> Mapping[str, Any]:
    import yaml

    tree: Mapping[str, Any] = yaml.safe_load(_manifest_text())
    return tree


# --- try ------------------------------------------------------------------------------------------------------------


def _try(args: argparse.Namespace) -> int:
    if args.json and not args.once:
        raise ResponderBotError("bad_request", "--json tells the steps of --once; give both.")
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


def _try_in(args: argparse.Namespace, state: Path) -> int:
    from bot import demo as tryout
    from core.common import logs
    from core.common.clock import now_ms

    logs.configure("error")
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        sentence = f"The folder {state} can't be made ({error.strerror}); give another with --state."
        raise ResponderBotError("bad_request", sentence) from error
    manifest = _manifest()
    if args.workspace_only:
        return _completed(tryout.workspace_only(_tell, _for_ever, args.port))
    if args.once:
        return _completed(
            tryout.main_job(state, _open_core, manifest, now_ms, _tell, as_json=args.json), when_stopped=130
        )
    return _completed(tryout.serve(state, _open_core, manifest, now_ms, _tell, _for_ever, port=args.port))


class _CoreSide:
    """What `try` needs of a core that runs in this process."""

    def __init__(self, core: "Core", url: str) -> None:
        self._core = core
        self.url = url

    async def add_user(self, login: str, profile: Any, clearance: int, slack_id: str) -> str:
        try:
            return await self._core.access.add(login, profile, clearance=clearance, slack_id=slack_id)
        except ResponderBotError as error:
            if error.code != "exists":
                raise
            return await self._core.access.new_key(login)  # STATE was used before


@asynccontextmanager
async def _open_core(tables: Mapping[str, Any], folder: Path) -> AsyncIterator[_CoreSide]:
    """A core with these settings, its files below `folder`."""
    from core.app import serving
    from core.common.settings_file import Sections
    from core.settings import core_settings

    async with serving(core_settings(Sections(folder, "try", tables, {}))) as (core, url):
        yield _CoreSide(core, url)


if __name__ == "__main__":
    sys.exit(main())
