"""Core's subcommands: `core`, `user`, `group`, `responders`, `hosts`, `drain`, `backup`, `restore`, `migrate-store`.

Nothing heavy is imported before a subcommand runs, so that `--help` answers at once.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

from core.common.errors import ResponderBotError

if TYPE_CHECKING:
    from core.access import Access
    from core.common.database import Transaction
    from core.common.database.copying import Copied, Store
    from core.common.database.location import Location
    from core.engines.base import Catalogue, Engine
    from core.engines.container.images import PullStatus
    from core.engines.environments import BuildStatus
    from core.people import People
    from core.settings import CoreSettings, EngineSection

PROFILES = ("analyst", "org-admin", "read-only", "service", "source")
CLEARANCES = {"clear": 0, "white": 0, "green": 1, "amber": 2, "red": 3}

COMMAND_LINE = "the command line"
"""In place of a login, for what is done with the database itself."""

T = TypeVar("T")
Run = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one sentence and exits with 2."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run core's subcommands only; the console script is `bot.cli`."""
    parser = Parser(prog="responder-bot", description="Run responders on security alerts.")
    register(parser.add_subparsers(metavar="COMMAND", required=True))
    return run(parser.parse_args(argv))


def run(args: argparse.Namespace) -> int:
    """Run the parsed subcommand and return its exit code; a ResponderBotError is one sentence and 2."""
    subcommand: Run = args.run
    try:
        return subcommand(args)
    except ResponderBotError as error:
        _say(error.message, sys.stderr)
        return 2
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        _say(
            "No thread can be started here; raise the limit on processes (`ulimit -u`, TasksMax), or run less.",
            sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130  # as in shells: 128 + SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader is gone, as after `| head`
        return 1


def announce(line: str) -> None:
    """Print a line on standard output; an error in doing so doesn't end the server."""
    _say(line, sys.stdout)


def _say(line: str, stream: TextIO) -> None:
    try:
        print(line, file=stream, flush=True)
    except OSError:  # the buffered rest would fail again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def add_config(parser: argparse.ArgumentParser, default: Any = None) -> None:
    """Add `--config`. A nested subcommand has SUPPRESS as default, to keep the value of the outer one."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        default=default,
        help="settings file (default: responder-bot.toml, if it exists)",
    )


def register(subparsers: "argparse._SubParsersAction[Any]") -> None:
    """Add core's subcommands; each sets `run`, which takes the parsed arguments and returns the exit code."""
    _add(subparsers, "core", _core, "serve core only")
    _register_user(subparsers)
    _register_group(subparsers)
    _register_responders(subparsers)
    _add(subparsers, "hosts", _hosts, "list the hosts on which cores run, with what each runs")
    text = "have the cores of a host take no more runs, and end once theirs have"
    drain = _add(subparsers, "drain", _drain, text)
    drain.add_argument("host", nargs="?", default="", metavar="HOST", help="as `hosts` shows it (default: this one)")
    drain.add_argument("--core", default="", metavar="ID", help="only this core of the host")
    drain.add_argument("--cancel", action="store_true", help="have them go on, unless they have ended")
    backup = _add(subparsers, "backup", _backup, "copy the databases while they are in use")
    backup.add_argument("file", type=Path, metavar="FILE", help="a new file; the bot's goes to FILE.slack")
    text = "replace the databases with a backup; actions open in it end as Failure and are not run"
    restore = _add(subparsers, "restore", _restore, text)
    restore.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="made by backup; FILE.slack beside it is the bot's; without FILE, mark what is on PostgreSQL as restored",
    )


def register_migrate_store(subparsers: "argparse._SubParsersAction[Any]", bots_store: "Callable[[], Store]") -> None:
    """Add `migrate-store`, which also copies the bot's database, of which core knows nothing."""
    text = "copy the databases from SQLite to PostgreSQL or back, while nothing runs on them"
    parser = _add(subparsers, "migrate-store", partial(_migrate_store, bots_store), text)
    place = "a SQLite file, or postgresql://..."
    parser.add_argument("source", metavar="FROM", help=f"core's database: {place}; it stays as it is")
    parser.add_argument("target", metavar="TO", help=f"where to copy it: {place}, with nothing in it yet")
    bots = (
        "the bot's database, and where to copy it (default: the same URL as core's, FILE.slack beside core's file, or"
        " [bot] database of the settings if core's is [core] database)"
    )
    parser.add_argument("--bot", nargs=2, metavar=("FROM", "TO"), help=bots)


def _register_user(subparsers: "argparse._SubParsersAction[Any]") -> None:
    verb = _group(subparsers, "user", "add, list, change, disable, enable and link users")
    add = verb("add", _user_add, "add a user; prints the API key, which can't be shown again")
    add.add_argument("login", metavar="LOGIN", help="without @, user_domain of the settings is added")
    profiles = (
        "analyst runs responders; org-admin also makes case templates; read-only looks; service acts for people;"
        " source only creates alerts"
    )
    add.add_argument("--profile", required=True, choices=PROFILES, help=profiles)
    slack_id = "U... (in their Slack profile: Copy member ID), or T...:U... with the team"
    add.add_argument("--slack-id", metavar="ID", help=f"the Slack person to link: {slack_id}")
    add.add_argument("--group", metavar="NAME", action="append", default=[], help="a group to put them into")
    seen = "the highest TLP that they may see and act on in Slack"
    add.add_argument("--clearance", choices=CLEARANCES, default="amber", help=f"{seen} (default: amber)")
    verb("list", _user_list, "list all users")
    for name, task, text in (
        ("disable", _user_disable, "revoke a user's access"),
        ("enable", _user_enable, "restore a disabled user's access"),
        ("key", _user_key, "print a new API key; the old one stops working"),
        ("unlink", _user_unlink, "remove the link to a Slack person"),
    ):
        verb(name, task, text).add_argument("login", metavar="LOGIN")
    profile = verb("profile", _user_profile, "change a user's profile")
    profile.add_argument("login", metavar="LOGIN")
    profile.add_argument("--profile", required=True, choices=PROFILES, help=profiles)
    clearance = verb("clearance", _user_clearance, "change what a user may see and act on in Slack")
    clearance.add_argument("login", metavar="LOGIN")
    clearance.add_argument("--clearance", required=True, choices=CLEARANCES, help=seen)
    link = verb("link", _user_link, "link a Slack person to a user")
    link.add_argument("login", metavar="LOGIN")
    link.add_argument("--slack-id", metavar="ID", required=True, help=slack_id)


def _register_group(subparsers: "argparse._SubParsersAction[Any]") -> None:
    verb = _group(subparsers, "group", "put people into groups")
    for name, task, text in (
        ("add", _group_add, "put a person into a group"),
        ("remove", _group_remove, "take a person out of a group"),
    ):
        parser = verb(name, task, text)
        parser.add_argument("group", metavar="GROUP", help="a word of small letters, such as containment")
        parser.add_argument("login", metavar="LOGIN")
    verb("list", _group_list, "list all groups with their members")


def _register_responders(subparsers: "argparse._SubParsersAction[Any]") -> None:
    verb = _group(subparsers, "responders", "list, install, check and resume responders")
    verb("list", _responders_list, "list available responders, and the others with the reason")
    install = verb("install", _responders_install, "build the environments and pull the images that responders need")
    install.add_argument(
        "folder", type=Path, nargs="?", metavar="DIR", help="a folder of responders (default: those of the settings)"
    )
    install.add_argument(
        "--upgrade", action="store_true", help="pull images again, and use what their tags point to now"
    )
    verb("check", _responders_check, "as list; also reads secrets, and exits with 1 if something wanted can't be used")
    resume = verb("resume", _responders_resume, "let a responder run again that is paused, since it failed too often")
    resume.add_argument("responder", metavar="NAME", help="with its version, such as Mailer_1_0")


def _add(
    subparsers: "argparse._SubParsersAction[Any]", name: str, task: Run, text: str, *, config: Any = None
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}."
    )
    add_config(parser, config)
    parser.set_defaults(run=task)
    return parser


def _group(
    subparsers: "argparse._SubParsersAction[Any]", name: str, text: str
) -> Callable[..., argparse.ArgumentParser]:
    """Add a subcommand that has subcommands; returns a function that adds one."""
    group = subparsers.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    add_config(group)
    verbs = group.add_subparsers(metavar="COMMAND", required=True)
    return partial(_add, verbs, config=argparse.SUPPRESS)


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on uvloop if it is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:  # not on Windows
        asyncio.run(main)
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)


def _settings(args: argparse.Namespace) -> "CoreSettings":
    from core.settings import load

    return load(args.config, os.environ)


# --- core -----------------------------------------------------------------------------------------------------------


def _core(args: argparse.Namespace) -> int:
    settings = _settings(args)
    from core.app import serve
    from core.common import logs

    logs.configure(settings.core.log_level)
    run_loop(serve(settings, ready=lambda url: announce(f"core: {url}")))
    return 0


# --- users ----------------------------------------------------------------------------------------------------------


def _with_access(args: argparse.Namespace, work: "Callable[[Access], Coroutine[Any, Any, None]]") -> int:
    """Run `work` on the users in the database, whether core runs or not."""
    settings = _settings(args)
    from core.access import Access
    from core.common.clock import now_ms
    from core.store.opening import open_database

    async def with_database() -> None:
        database = open_database(settings.core.database)
        try:
            await work(Access(database, settings.core.user_domain, now_ms))
        finally:
            await database.close()

    asyncio.run(with_database())
    return 0


async def slack_links(settings: "CoreSettings") -> frozenset[tuple[str, str]]:
    """Team ("" if not known yet) and Slack id of all linked users, from the database itself.

    Empty if there is no database yet. Raises ResponderBotError if it can't be opened.
    """
    from core.common.database.location import files_of
    from core.store import users
    from core.store.opening import open_database

    if not all(file.is_file() for file in files_of(settings.core.database)):
        return frozenset()
    database = open_database(settings.core.database)
    try:
        rows = [row for row in await database.read(users.list_all) if not row["disabled"]]
    finally:
        await database.close()
    links = [link.partition(":") for row in rows for link in (row["slack_ids"] or "").split()]
    return frozenset((team, user) for team, _, user in links)


def _user_add(args: argparse.Namespace) -> int:
    async def work(access: "Access") -> None:
        clearance = CLEARANCES[args.clearance]
        print(await access.add(args.login, args.profile, clearance=clearance, slack_id=args.slack_id or ""))

    async def join(people: "People") -> None:
        for group in args.group:
            await people.add_member(group, args.login)

    return _with_access(args, work) or (_with_people(args, join) if args.group else 0)


def _user_list(args: argparse.Namespace) -> int:
    names = ("clear", "green", "amber", "red")

    async def work(access: "Access") -> None:
        rows = [("LOGIN", "PROFILE", "CLEARANCE", "SLACK", "")]
        for row in await access.list_users():
            slack = (row["slack_ids"] or "-").replace(" :", " ").removeprefix(":")
            rows.append(
                (row["login"], row["profile"], names[row["clearance"]], slack, "disabled" if row["disabled"] else "")
            )
        _print_table(rows)

    return _with_access(args, work)


def _reporting(
    work: "Callable[[Access], Coroutine[Any, Any, str]]", words: str
) -> "Callable[[Access], Coroutine[Any, Any, None]]":
    """Run `work`, then print `words` with its login for {} on standard error; standard output is for scripts."""

    async def both(access: "Access") -> None:
        print(words.replace("{}", await work(access)), file=sys.stderr)

    return both


def _user_disable(args: argparse.Namespace) -> int:
    words = "{} has no access any more; `responder-bot user enable {}` gives it back."
    return _with_access(args, _reporting(lambda access: access.disable(args.login), words))


def _user_enable(args: argparse.Namespace) -> int:
    words = "{} has access again, with the key of before; `responder-bot user key {}` makes a new one."
    return _with_access(args, _reporting(lambda access: access.enable(args.login), words))


def _user_profile(args: argparse.Namespace) -> int:
    words = f"{{}} has the profile {args.profile} from now on."
    return _with_access(args, _reporting(lambda access: access.set_profile(args.login, args.profile), words))


def _user_clearance(args: argparse.Namespace) -> int:
    words = f"{{}} may see and act on up to TLP:{args.clearance.upper()} in Slack from now on."
    clearance = CLEARANCES[args.clearance]
    return _with_access(args, _reporting(lambda access: access.set_clearance(args.login, clearance), words))


def _user_key(args: argparse.Namespace) -> int:
    async def work(access: "Access") -> None:
        print(await access.new_key(args.login))

    return _with_access(args, work)


def _user_link(args: argparse.Namespace) -> int:
    link = _reporting(lambda access: access.link(args.login, args.slack_id), "{} is linked to " + args.slack_id + ".")
    return _with_access(args, link)


def _user_unlink(args: argparse.Namespace) -> int:
    words = "{} is not linked to anybody in Slack any more."
    return _with_access(args, _reporting(lambda access: access.unlink(args.login), words))


def _with_people(args: argparse.Namespace, work: "Callable[[People], Coroutine[Any, Any, None]]") -> int:
    """Run `work` on the users and groups in the database, whether core runs or not."""
    settings = _settings(args)
    from core.access import Access
    from core.common.clock import now_ms
    from core.people import People
    from core.store.opening import open_database

    async def with_database() -> None:
        database = open_database(settings.core.database)
        try:
            await work(People(database, Access(database, settings.core.user_domain, now_ms), now_ms))
        finally:
            await database.close()

    asyncio.run(with_database())
    return 0


def _group_add(args: argparse.Namespace) -> int:
    async def work(people: "People") -> None:
        login = await people.add_member(args.group, args.login)
        print(f"{login} is in the group {args.group}.", file=sys.stderr)

    return _with_people(args, work)


def _group_remove(args: argparse.Namespace) -> int:
    async def work(people: "People") -> None:
        login = await people.remove_member(args.group, args.login)
        print(f"{login} is not in the group {args.group} any more.", file=sys.stderr)

    return _with_people(args, work)


def _group_list(args: argparse.Namespace) -> int:
    async def work(people: "People") -> None:
        groups = await people.groups()
        _print_table([("GROUP", "MEMBERS"), *((group.name, " ".join(group.members)) for group in groups)])

    return _with_people(args, work)


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


# --- responders -----------------------------------------------------------------------------------------------------


def _responders_list(args: argparse.Namespace) -> int:
    asyncio.run(_show_responders(_settings(args), read_secrets=False))
    return 0


def _responders_check(args: argparse.Namespace) -> int:
    return 0 if asyncio.run(_show_responders(_settings(args), read_secrets=True)) else 1


async def _show_responders(settings: "CoreSettings", *, read_secrets: bool) -> bool:
    """Print each engine's responders and those skipped; False if something configured can't be used.

    `read_secrets`: also read what commands and files give, and tell which can't be read.
    """
    from core import engines
    from core.actions.offers import settings_problems
    from core.common import logs
    from core.protection import ProtectedTargets

    logs.silence()  # what is skipped is printed here
    found = [await _show_engine(engine, read_secrets=read_secrets) for engine in engines.make(settings)]
    catalogues = [catalogue for catalogue, _ in found if catalogue is not None]
    problems = settings_problems(settings.responder, catalogues, is_complete=len(catalogues) == len(found))
    if unread := ProtectedTargets(settings.protect.artifacts).current().problem:
        problems.append(unread)
    for sentence in problems:
        print(sentence)
    return all(fine for _, fine in found) and not problems


async def _show_engine(engine: "Engine", *, read_secrets: bool) -> "tuple[Catalogue | None, bool]":
    """Print an engine's catalogue and return it (None if down), and whether all that is configured can be used."""
    from core.actions.offers import without_duplicates
    from core.engines.container.engine import ContainerEngine
    from core.engines.process.engine import ProcessEngine

    unreadable: list[str] = []
    try:
        catalogue = without_duplicates(await engine.catalogue())
        if read_secrets and isinstance(engine, ProcessEngine | ContainerEngine):
            unreadable = await engine.unreadable_secrets()
    except ResponderBotError as error:
        print(f"{engine.name}: down: {error.message}")
        return None, False
    finally:
        await engine.close()
    print(f"{engine.name}: {len(catalogue.responders)} on offer, {len(catalogue.skipped)} not")
    if catalogue.responders:
        rows = [
            ("  " + item.name, item.title, item.version, " ".join(item.data_types)) for item in catalogue.responders
        ]
        _print_table(rows)
    for warning in catalogue.warnings:
        print(f"  {warning}")
    for skipped in catalogue.skipped:
        print(f"  {skipped.name} can't be used: {skipped.reason}")
    for sentence in unreadable:
        print(f"  {sentence}")
    return catalogue, not (unreadable or any(skipped.is_wanted for skipped in catalogue.skipped))


def _responders_resume(args: argparse.Namespace) -> int:
    settings = _settings(args)
    from core.actions.guards import Guards
    from core.common.clock import now_ms
    from core.store.opening import open_database

    guards = Guards(settings.responder, now_ms)

    async def resume() -> None:
        database = open_database(settings.core.database)
        try:
            await database.transaction(lambda tx: guards.resume(tx, args.responder, COMMAND_LINE))
        finally:
            await database.close()

    asyncio.run(resume())
    print(f"{args.responder} runs again; its failures so far are forgotten.", file=sys.stderr)
    return 0


def _responders_install(args: argparse.Namespace) -> int:
    settings = _settings(args)
    from core.engines.definitions import BUNDLED, responder_folders
    from core.engines.environments import Environments

    process = [engine for engine in settings.engine if engine.type == "process"]
    if args.folder is not None and not args.folder.is_dir():
        sentence = f"{args.folder} is not a folder; name the one that contains the responders' folders."
        raise ResponderBotError("not_found", sentence)
    roots = [args.folder.absolute()] if args.folder else [*(f for e in process for f in e.responders), BUNDLED]
    environments = Environments(settings.core.environments, python=process[0].python if process else None)
    folders = responder_folders(roots)
    containers = [engine for engine in settings.engine if engine.type == "container"]
    if not folders and not containers:
        print(f"There is no responder in {args.folder}: no folder in it has a definition (*.json).", file=sys.stderr)
    built = asyncio.run(environments.install(folders, _show_building))
    failed = [status for status in built if status.state == "failed"]
    print(f"{len(built) - len(failed)} environments ready, {len(failed)} failed")
    if args.folder:
        containers = [engine.model_copy(update={"responders": (roots[0],)}) for engine in containers]
    pulled = asyncio.run(_install_images(containers, settings, args.upgrade)) if containers else ()
    if containers:
        print(f"{sum(status.state != 'failed' for status in pulled)} images ready,", end=" ")
        print(f"{sum(status.state == 'failed' for status in pulled)} failed")
    return 1 if failed or any(status.state == "failed" for status in pulled) else 0


async def _install_images(
    sections: "Sequence[EngineSection]", settings: "CoreSettings", upgrade: bool
) -> "list[PullStatus]":
    from core.engines import container_engine

    found: list[PullStatus] = []
    for section in sections:
        engine = container_engine(section, settings)
        try:
            found += await engine.install(_show_pulling, upgrade=upgrade)
        finally:
            await engine.close()
    return found


def _show_pulling(status: "PullStatus") -> None:
    print(f"{status.image}: {status.state}{': ' if status.message else ''}{status.message}", flush=True)


def _show_building(status: "BuildStatus") -> None:
    print(f"{status.folder.name}: {status.state}{': ' if status.message else ''}{status.message}", flush=True)


# --- hosts ----------------------------------------------------------------------------------------------------------


def _on_database(settings: "CoreSettings", work: "Callable[[Transaction], T]") -> "T":
    """The result of a transaction on core's database, whether core runs or not."""
    from core.store.opening import open_database

    async def with_database() -> "T":
        database = open_database(settings.core.database)
        try:
            return await database.transaction(work)
        finally:
            await database.close()

    return asyncio.run(with_database())


def _hosts(args: argparse.Namespace) -> int:
    settings = _settings(args)
    from core.actions.host_list import list_hosts
    from core.actions.hosts import is_long_silent
    from core.common.clock import now_ms
    from core.store.backup import as_time

    found = _on_database(settings, lambda tx: list_hosts(tx, lambda row: is_long_silent(row, now_ms())))
    rows = [("HOST", "STATE", "CORE", "VERSION", "STARTED", "LEASE UNTIL", "ENGINES", "RUNS")]
    for host in found:
        if host.lost_at is not None:
            lost = f"lost at {as_time(host.lost_at)}, with {host.actions_ended} runs"
            rows.append((host.name, lost, *("",) * 6))
        for core in host.cores:
            loads = [f"{one.name} {one.running}/{'-' if one.slots is None else one.slots}" for one in core.engines]
            rows.append(
                (
                    *(host.name or "-", core.state, core.id, core.version or "-"),
                    *("-" if core.started_at is None else as_time(core.started_at), as_time(core.lease_until)),
                    *(", ".join(loads) or "-", " ".join(core.actions) or "-"),
                )
            )
    _print_table(rows)
    return 0


def _drain(args: argparse.Namespace) -> int:
    settings = _settings(args)
    from core.actions.host_list import drain
    from core.settings import host_name

    host = args.host or host_name(settings)
    count = _on_database(settings, lambda tx: drain(tx, host, args.core, cancel=args.cancel))
    cores, they = ("1 core", "It") if count == 1 else (f"{count} cores", "They")
    what = "goes on" if count == 1 else "go on"
    ends = "ends once its runs have" if count == 1 else "end once their runs have"
    sentence = f"{what} taking runs" if args.cancel else f"{'takes' if count == 1 else 'take'} no more runs"
    rest = "" if args.cancel else f" {they} {ends}; `responder-bot hosts` shows what they are."
    print(f"{cores} on {host} {sentence}.{rest}", file=sys.stderr)
    return 0


# --- backup, restore --------------------------------------------------------------------------------------------------


def _databases(args: argparse.Namespace) -> "tuple[Location, Location]":
    """Where core's database and the bot's are."""
    from core.common.settings_file import read_sections
    from core.settings import bot_database, core_settings

    sections = read_sections(args.config, os.environ)
    return core_settings(sections).core.database, bot_database(sections)


def _database_files(args: argparse.Namespace, instead: str) -> tuple[Path, Path]:
    """The files of both databases. Raises ResponderBotError("bad_request") if one is on PostgreSQL."""
    core_database, bot_database = _databases(args)
    if not isinstance(core_database, Path) or not isinstance(bot_database, Path):
        raise ResponderBotError("bad_request", instead)
    return core_database, bot_database


def _backup(args: argparse.Namespace) -> int:
    from core.common.clock import now_ms
    from core.store.backup import copy

    core_database, bot_database = _database_files(
        args,
        "This copies SQLite files, and the settings name a PostgreSQL: back it up with `pg_dump`, the bot's schema"
        " before core's (core/docs/storage.md#backups).",
    )
    beside = Path(f"{args.file}.slack")
    for target in (args.file, beside):
        if target.exists():
            raise ResponderBotError("exists", f"{target} exists already; name another file.")
    has_bot = bot_database.is_file()
    if has_bot:  # first, so that it never knows more than core's
        copy(bot_database, beside, now_ms())
    try:
        copy(core_database, args.file, now_ms())
    except ResponderBotError:
        if has_bot:
            beside.unlink()
        raise
    copied = [args.file, beside] if has_bot else [args.file]
    print(f"Copied to {' and '.join(map(str, copied))}; `responder-bot restore` restores it.", file=sys.stderr)
    return 0


def _restore(args: argparse.Namespace) -> int:
    from core.store.backup import as_time, restore_backup

    if args.file is None:
        return _mark_restored(args)
    core_database, bot_database = _database_files(
        args,
        "This restores SQLite files, and the settings name a PostgreSQL: stop every responder-bot, restore with"
        " `pg_restore`, and start again; the next start notices it (core/docs/storage.md#restoring).",
    )
    beside = Path(f"{args.file}.slack")
    has_bot = beside.is_file()
    made_at, kept = restore_backup(args.file, core_database, "sequence")
    before = [kept]
    if has_bot:
        _, bots = restore_backup(beside, bot_database, "message")
        before.append(bots)
    sentences = [
        f"Restored {core_database}{f' and {bot_database}' if has_bot else ''} from a backup of {as_time(made_at)}."
    ]
    if any(before):
        sentences.append(f"What was there is kept as {' and '.join(str(file) for file in before if file)}.")
    if not has_bot and bot_database.is_file():
        sentences.append(
            f"There is no {beside}: a bot that has seen more than this backup knows will say so and wait for"
            " `responder-bot forget-messages`."
        )
    print(*sentences, file=sys.stderr)
    return 0


def _mark_restored(args: argparse.Namespace) -> int:
    from core.store.opening import mark_restored

    marked = mark_restored(*_databases(args))
    if not marked:
        raise ResponderBotError("bad_request", "Name the FILE to restore; it was made by `responder-bot backup`.")
    print(f"Marked {' and '.join(marked)} as restored; the next start makes it live.", file=sys.stderr)
    return 0


# --- migrate-store ----------------------------------------------------------------------------------------------------


def _migrate_store(bots_store: "Callable[[], Store]", args: argparse.Namespace) -> int:
    from core.common.database import copying
    from core.store.opening import STORE

    source, target = _location(args.source, "FROM"), _location(args.target, "TO")
    if _is_same(source, target):
        raise ResponderBotError("bad_request", "FROM and TO are the same database; name two.")
    settings = {"[core] database": target}
    if bots := _bots_locations(args, source, target, bots_store()):  # before core's, which a core would go on with
        _show_copied("the bot's database", copying.copy(bots_store(), *bots))
        settings["[bot] database"] = bots[1]
    _show_copied("core's database", copying.copy(STORE, source, target))
    changes = [f"{key} to {place if isinstance(place, Path) else 'that URL'}" for key, place in settings.items()]
    sentences = [
        f"Set {' and '.join(changes)}, and start nothing on FROM any more: it stays as it is, with all that is open in"
        " it."
    ]
    if not bots:
        sentences.append("No database of the bot was found beside FROM; if it has one, run this again with --bot.")
    print(*sentences, file=sys.stderr)
    return 0


def _bots_locations(
    args: argparse.Namespace, source: "Location", target: "Location", store: "Store"
) -> "tuple[Location, Location] | None":
    """The bot's database, and where to copy it; None if there is none."""
    from core.common.database.copying import exists

    if args.bot:
        one, other = _location(args.bot[0], "--bot FROM"), _location(args.bot[1], "--bot TO")
    else:
        found, place = _bots_location(args, source), _bots_location(args, target)
        if found is None or place is None or not exists(found, store, "FROM"):
            return None
        one, other = found, place
    if _is_same(one, other):
        raise ResponderBotError("bad_request", "The bot's database is the same in FROM and TO; name two with --bot.")
    return one, other


def _location(text: str, name: str) -> "Location":
    from core.common.database.location import parse_location

    try:
        return parse_location(text)
    except ValueError as error:
        sentence = f"{name} is neither a file nor the URL of a PostgreSQL (postgresql://...); write one of them."
        raise ResponderBotError("bad_request", sentence) from error


def _bots_location(args: argparse.Namespace, cores: "Location") -> "Location | None":
    """Where the bot's database is that belongs to this one of core's; None if nobody can tell."""
    core_database, bot_database = _databases(args)
    if _is_same(cores, core_database):
        return bot_database
    if isinstance(cores, Path):
        return Path(f"{cores}.slack")
    return None if "search_path" in cores.text else cores  # that names core's schema


def _is_same(one: "Location", other: "Location") -> bool:
    if isinstance(one, Path) and isinstance(other, Path):
        return one.absolute().resolve() == other.absolute().resolve()
    return one == other


def _show_copied(what: str, copied: "Copied") -> None:
    print(f"{what}: {'was there already' if copied.was_there else 'copied'}")
    _print_table([("TABLE", "ROWS", "CHECKSUM"), *((one.name, str(one.rows), one.digest) for one in copied.tables)])
    if copied.changed:
        names = ", ".join(copied.changed)
        print(f"PostgreSQL stores no NUL: it is U+FFFD in the copy of {names}.", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
