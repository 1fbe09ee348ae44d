"""Core's subcommands, such as `core`, `user` and `backup`.

Nothing heavy is imported before a subcommand runs, so that `--help` answers at once.
"""

import argparse
import asyncio
import errno
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TextIO, TypeVar

from core.common.errors import ResponderBotError
from core.common.private_files import access_problem, name_of

if TYPE_CHECKING:
    from datetime import date

    from core.authorization import Caller
    from core.common.database import Database, Row, Transaction
    from core.common.database.location import Location
    from core.common.database.schema import Opening
    from core.common.database.transfer import Store, Sum, Table
    from core.engines.base import Catalogue
    from core.engines.environments import BuildStatus
    from core.models import Alert, ClosedObjects, UserEntry
    from core.people import People
    from core.retention.erasure import Eraser, Erasure, Matches
    from core.settings import CoreSettings
    from core.store.retention import Root

PROFILES = ("analyst", "org-admin", "read-only", "auditor", "service", "source", "reader")
CLEARANCES = {"clear": 0, "white": 0, "green": 1, "amber": 2, "red": 3}

CardLines = Callable[["Alert"], Sequence[str]]
"""The card of an alert as plain text."""

AskCore = Callable[[Collection[str]], "Awaitable[ClosedObjects]"]

T = TypeVar("T")
Run = Callable[[argparse.Namespace], int | None]
"""A subcommand; returns its exit code if that is another than 0."""
PeopleTask = Callable[["People", argparse.Namespace], "Coroutine[Any, Any, None]"]


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one sentence and exits with 2."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run core's subcommands only; the command is `bot.cli`."""
    parser = Parser(prog="responder-bot", description="Run responders on security alerts.")
    register(parser.add_subparsers(metavar="COMMAND", required=True))
    return run(parser.parse_args(argv))


def run(args: argparse.Namespace) -> int:
    """Run the parsed subcommand and return its exit code; a ResponderBotError is one sentence and 2."""
    subcommand: Run = args.run
    try:
        code = subcommand(args)
        sys.stdout.flush()
        return code or 0
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
    except PermissionError as error:
        sentence = (
            f"{error.filename} can't be used by {name_of(os.getuid())} ({error.strerror}); run this as core's account."
        )
        _say(sentence, sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EROFS):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sentence = "No space is left on the disk; make room, and repeat the command."
        if error.errno == errno.EROFS:
            sentence = f"{error.filename or 'A file'} is on a read-only file system; mount it writable."
        _say(sentence, sys.stderr)
        return 2


def announce(line: str) -> None:
    """Print a line on standard output; an error in doing so doesn't end the server."""
    _say(line, sys.stdout)


def _say(line: str, stream: TextIO) -> None:
    try:
        print(line, file=stream, flush=True)
    except OSError:  # the buffered rest would fail again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _add_config(parser: argparse.ArgumentParser, default: Any = None) -> None:
    """Add `--config`. A nested subcommand has SUPPRESS as default, to keep the value of the outer one."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        default=default,
        help="settings file (default: responder-bot.toml, if it exists)",
    )


class ErasureElsewhere(Protocol):
    """What the bot keeps of something that is to be erased."""

    counts: Counter[str]
    """How much of each kind was found."""

    async def find(self, matches: "Matches", numbers: Collection[int] = ()) -> Sequence[int]:
        """Look for what matches, and for messages with these numbers; returns the numbers of all messages."""

    async def delete(self) -> Sequence[str]:
        """Delete it, also in Slack; returns why some of it stays, in sentences."""

    def rows(self, matches: "Matches") -> "AsyncIterator[tuple[Table, Row]]":
        """Each row that has a text which matches."""


@dataclass(frozen=True)
class OpenDatabase:
    """The database while a command works on it; what is the bot's in it can be erased and pruned, too."""

    database: "Database"
    erasure: ErasureElsewhere
    prune: "Callable[[AskCore, bool], Awaitable[Mapping[str, int]]]"
    """Given what tells which objects are closed, and whether only to count."""


OpenBoth = Callable[[argparse.Namespace], AbstractAsyncContextManager[OpenDatabase]]


def register(subparsers: "argparse._SubParsersAction[Any]", open_both: OpenBoth | None = None) -> None:
    """Add core's subcommands; each sets `run`, a `Run`.

    Without `open_both` a restore erases nothing.
    """
    add_command(subparsers, "core", _core, "serve core only")
    add_command(subparsers, "init", _init, "make core's database, where one start or another would rather ask")
    _register_user(subparsers)
    _register_key(subparsers)
    _register_group(subparsers)
    _register_responders(subparsers)
    _register_audit(subparsers)
    verb = _group(subparsers, "blocklist", "show and change the lists that firewalls read, while Slack doesn't work")
    verb("show", _blocklist_show, "print what is blocked, until when, by which run, and who has read it")
    verb("resume", _blocklist_resume, "answer with the lists again, after a restore")
    remove = verb("remove", _blocklist_remove, "take a target off its list; its run is marked as ended")
    remove.add_argument("target", metavar="TARGET", help="an address, domain, URL or hash, as `show` prints it")
    add_command(subparsers, "hosts", _hosts, "list the hosts on which cores run, with what each runs")
    text = "have the cores of a host take no more runs, and end once theirs have"
    drain = add_command(subparsers, "drain", _drain, text)
    drain.add_argument("host", nargs="?", default="", metavar="HOST", help="as `hosts` shows it (default: this one)")
    drain.add_argument("--core", default="", metavar="ID", help="only this core of the host")
    drain.add_argument("--cancel", action="store_true", help="have them go on, unless they have ended")
    backup = add_command(subparsers, "backup", _backup, "copy the database while it is in use")
    backup.add_argument("file", type=Path, metavar="FILE", help="a new file")
    text = "replace the database with a backup; actions open in it end as Failure and are not run"
    restore = add_command(subparsers, "restore", partial(_restore, open_both), text)
    text = "made by backup; without FILE, mark what is on PostgreSQL as restored"
    restore.add_argument("file", type=Path, nargs="?", metavar="FILE", help=text)
    restore.set_defaults(erasures=None)
    if open_both is not None:
        text = "an export of the audit: what it says was erased since is erased again"
        restore.add_argument("--erasures", type=Path, metavar="LIST", help=text)


def register_store(subparsers: "argparse._SubParsersAction[Any]", bots_stores: "Callable[[], Sequence[Store]]") -> None:
    """Add `store`, which also moves the bot's rows, which core doesn't know."""
    verb = _group(subparsers, "store", "move the database of the settings from SQLite to PostgreSQL or back")
    text = "write all rows to FILE, as JSON lines; stop every responder-bot first"
    export = verb("export", partial(_store_export, bots_stores), text)
    export.add_argument("file", type=Path, metavar="FILE", help="a new file")
    text = "fill the empty database of the settings with what export wrote"
    verb("import", partial(_store_import, bots_stores), text).add_argument("file", type=Path, metavar="FILE")


def register_prune(subparsers: "argparse._SubParsersAction[Any]", open_both: OpenBoth) -> None:
    """Add `prune`, which also deletes what the bot keeps, which core doesn't know."""
    text = "delete now what [retention] lets go, and print how much"
    prune = add_command(subparsers, "prune", partial(_prune, open_both), text)
    prune.add_argument("--dry-run", action="store_true", help="only print how much it would delete")


def register_erase(subparsers: "argparse._SubParsersAction[Any]", open_both: OpenBoth) -> None:
    """Add `erase` and `export`, which also need what the bot keeps."""
    verb = _group(subparsers, "erase", "delete for ever, here and in Slack")
    alert = verb("alert", partial(_erase_roots, open_both, "alert"), "alerts that are in no case")
    case = verb("case", partial(_erase_roots, open_both, "case"), "cases with their alerts")
    for parser in (alert, case):
        parser.add_argument("ids", metavar="ID", nargs="+", help="such as ~12")
    text = "a user; what they decided stays under their login"
    person = verb("person", partial(_erase_person, open_both), text, "login")
    text = "who undoes from now on what their runs have left in force"
    person.add_argument("--undo-for", metavar="LOGIN", default="", help=text)
    for parser in (alert, case, person):
        parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the audit")
        parser.add_argument("--dry-run", action="store_true", help="only print what it would delete")
        parser.add_argument("--yes", action="store_true", help="don't ask")
    verb = _group(subparsers, "export", "print what is held")
    verb("person", partial(_export_person, open_both), "all rows that name somebody, as JSON lines", "login")


def _register_user(subparsers: "argparse._SubParsersAction[Any]") -> None:
    verb = _group(subparsers, "user", "add, list, change, disable, enable and link users")
    text = "add a user; prints the API key, which can't be shown again"
    add = verb("add", _with_people(_user_add, can_make=True), text)
    add.add_argument("login", metavar="LOGIN", help="without @, user_domain of the settings is added")
    profiles = (
        "analyst runs responders; org-admin also makes case templates; read-only looks; auditor also reads the"
        " audit; service acts for people; source only creates alerts; reader only reads the block lists"
    )
    add.add_argument("--profile", required=True, choices=PROFILES, help=profiles)
    slack_id = "U... (in their Slack profile: Copy member ID), or T...:U... with the team"
    add.add_argument("--slack-id", metavar="ID", help=f"the Slack person to link: {slack_id}")
    add.add_argument("--group", metavar="NAME", action="append", default=[], help="a group to put them into")
    seen = "the highest TLP that they may see and act on in Slack"
    add.add_argument("--clearance", choices=CLEARANCES, default="amber", help=f"{seen} (default: amber)")
    verb("list", _with_people(_user_list), "list all users")
    ended = "{login} no longer has access; `responder-bot user enable {login}` gives it back."
    back = "{login} has access again, with the key of before; `responder-bot user key {login}` makes a new one."
    alone = "{login} is not linked to anybody in Slack any more."
    disable = _reporting(lambda people, args: people.disable(_command_line(), args.login), ended)
    enable = _reporting(lambda people, args: people.enable(_command_line(), args.login), back)
    unlink = _reporting(lambda people, args: people.unlink(args.login), alone)
    for name, task, text in (
        ("disable", disable, "revoke a user's access"),
        ("enable", enable, "restore a disabled user's access"),
        ("unlink", unlink, "remove the link to a Slack person"),
    ):
        verb(name, task, text, "login")
    key = verb("key", _with_people(_user_key), "print a new API key; the old one stops working", "login")
    key.add_argument("--keep-old", action="store_true", help="let the old one work for seven days more")
    text = "{login} has the profile {profile} from now on."
    task = _reporting(lambda people, args: people.set_profile(args.login, args.profile), text)
    profile = verb("profile", task, "change a user's profile", "login")
    profile.add_argument("--profile", required=True, choices=PROFILES, help=profiles)
    text = "change what a user may see and act on in Slack"
    clearance = verb("clearance", _with_people(_user_clearance), text, "login")
    clearance.add_argument("--clearance", required=True, choices=CLEARANCES, help=seen)
    task = _reporting(lambda people, args: people.link(args.login, args.slack_id), "{login} is linked to {slack_id}.")
    link = verb("link", task, "link a Slack person to a user", "login")
    link.add_argument("--slack-id", metavar="ID", required=True, help=slack_id)


def _register_key(subparsers: "argparse._SubParsersAction[Any]") -> None:
    verb = _group(subparsers, "key", "add, list and revoke further API keys of users")
    text = "print a further API key of a user; those that there are go on working"
    add = verb("add", _with_people(_key_add), text, "login")
    add.add_argument("name", metavar="NAME", help="a word of small letters, such as nightly")
    add.add_argument("--expires", type=_day, metavar="DAY", help="the first day on which it no longer works (UTC)")
    text = "the highest TLP that it may act on (default: the user's in Slack, any with the user's own key)"
    add.add_argument("--clearance", choices=CLEARANCES, help=text)
    text = "an address or network that it may come from, such as 192.0.2.0/24; may be given more than once"
    add.add_argument("--address", metavar="NETWORK", action="append", default=[], help=text)
    verb("list", _with_people(_key_list), "list a user's keys", "login")
    revoke = verb("revoke", _with_people(_key_revoke), "end a key at once", "login")
    revoke.add_argument("name", metavar="NAME", help="as `key list` shows it")


def _register_group(subparsers: "argparse._SubParsersAction[Any]") -> None:
    verb = _group(subparsers, "group", "put people into groups")
    added, removed = "{login} is in the group {group}.", "{login} is not in the group {group} any more."
    add = _reporting(lambda people, args: people.add_member(args.group, args.login), added)
    remove = _reporting(lambda people, args: people.remove_member(args.group, args.login), removed)
    for name, task, text in (
        ("add", add, "put a person into a group"),
        ("remove", remove, "take a person out of a group"),
    ):
        parser = verb(name, task, text)
        parser.add_argument("group", metavar="GROUP", help="a word of small letters, such as containment")
        parser.add_argument("login", metavar="LOGIN")
    verb("list", _with_people(_group_list), "list all groups with their members")


def register_source(subparsers: "argparse._SubParsersAction[Any]", card_lines: "CardLines") -> None:
    """Add `source`, which also shows the card of an alert, which core doesn't know."""
    verb = _group(subparsers, "source", "add, list and test what sends alerts in a shape of its own")
    text = "add the user of a source; prints the section of the settings, the key and the lines for the product"
    add = verb("add", _source_add, text)
    add.add_argument("name", metavar="NAME", help="small letters, digits, dots, _ and -, such as edge")
    add.add_argument("--preset", required=True, metavar="PRESET", help="a product, such as suricata")
    test = verb(
        "test",
        partial(_source_test, card_lines),
        "print what a message becomes, and what of it is not used; stores nothing",
    )
    test.add_argument("name", metavar="NAME", help="a source of the settings, or a preset")
    test.add_argument("file", type=Path, metavar="FILE", help="the message, such as one that could not be read")
    verb("list", _source_list, "list all sources of the settings, what came from them, and when")


def _register_responders(subparsers: "argparse._SubParsersAction[Any]") -> None:
    verb = _group(subparsers, "responders", "list, install, configure and check responders")
    show = partial(_responders, read_secrets=False)
    verb("list", show, "list available responders, and the others with the reason")
    install = verb("install", _responders_install, "build the environments that responders need")
    install.add_argument(
        "folder", type=Path, nargs="?", metavar="DIR", help="a folder of responders (default: those of the settings)"
    )
    settings = verb("settings", _responders_settings, "print the section of the settings for a responder, to paste")
    settings.add_argument("responder", metavar="NAME", help="with its version, such as Mailer_1_0")
    text = "as list; also reads secrets, and exits with 1 if something wanted can't be used"
    verb("check", partial(_responders, read_secrets=True), text)


def _register_audit(subparsers: "argparse._SubParsersAction[Any]") -> None:
    verb = _group(subparsers, "audit", "export and verify the record of who decided what")
    export = verb("export", _audit_export, "print the record, and add to it that somebody did")
    for name, text in (("from", "the first day, such as 2026-01-31 (UTC)"), ("to", "the last day")):
        export.add_argument(f"--{name}", dest=name, type=_day, metavar="DAY", help=text)
    text = "jsonl, which verify reads, or csv for spreadsheets (default: jsonl)"
    export.add_argument("--format", choices=("jsonl", "csv"), default="jsonl", help=text)
    check = verb("verify", _audit_verify, "check that nobody has changed an export; needs no database")
    check.add_argument("file", type=Path, metavar="FILE", help="made by export")
    check.add_argument("--head", default="", metavar="HASH", help="a head that was published, such as 412:9f86d0...")


def _day(text: str) -> "date":
    from datetime import date

    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day; give one such as 2026-01-31") from None


def add_command(
    subparsers: "argparse._SubParsersAction[Any]", name: str, task: Run, text: str, *arguments: str, config: Any = None
) -> argparse.ArgumentParser:
    """Add a subcommand with `--config` and these arguments, which need no help."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}."
    )
    _add_config(parser, config)
    for argument in arguments:
        parser.add_argument(argument, metavar=argument.upper())
    parser.set_defaults(run=task)
    return parser


def _group(
    subparsers: "argparse._SubParsersAction[Any]", name: str, text: str
) -> Callable[..., argparse.ArgumentParser]:
    """Add a subcommand that has subcommands; returns a function that adds one."""
    group = subparsers.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    _add_config(group)
    verbs = group.add_subparsers(metavar="COMMAND", required=True)
    return partial(add_command, verbs, config=argparse.SUPPRESS)


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


def settings_with_database(args: argparse.Namespace, *, can_make: bool = False) -> "CoreSettings":
    """The settings. Raises ResponderBotError("not_found") if their database is missing.

    With `can_make` only if this is no first start, which makes it.
    """
    from core.settings import database_problem

    settings = _settings(args)
    if problem := database_problem(settings):
        raise ResponderBotError("not_found", problem)
    if not can_make and (file := _missing_file(settings.core.database)):
        raise ResponderBotError("not_found", f"There is no database {file}; name the settings with --config.")
    return settings


def _missing_file(location: "Location") -> Path | None:
    """The file, if it is missing. Raises ResponderBotError("unavailable") if it is for another account."""
    from core.common.database.location import files_of

    for file in files_of(location):
        if problem := access_problem(file):
            raise ResponderBotError("unavailable", problem)
        if not file.is_file():
            return file
    return None


def opening() -> "Opening":
    """For a command, whose standard output is for what it prints."""
    from core.common.database.schema import Opening

    return Opening(lambda sentence: _say(sentence, sys.stderr))


@asynccontextmanager
async def _opened(location: "Location", store: "Store | None" = None) -> "AsyncIterator[Database]":
    """A store (default: core's), whether core runs or not."""
    from core.store.database.opening import STORE

    database = (store or STORE).open(location, opening())
    try:
        yield database
    finally:
        await database.close()


def _on_database(
    location: "Location", work: "Callable[[Database], Coroutine[Any, Any, T]]", store: "Store | None" = None
) -> T:
    async def run_on_it() -> T:
        async with _opened(location, store) as database:
            return await work(database)

    return asyncio.run(run_on_it())


def _on_transaction(settings: "CoreSettings", work: "Callable[[Transaction], T]") -> T:
    return _on_database(settings.core.database, lambda database: database.transaction(work))


# --- core -----------------------------------------------------------------------------------------------------------


def _core(args: argparse.Namespace) -> None:
    settings = settings_with_database(args, can_make=True)
    from core.app import serve
    from core.common import logs

    logs.configure(settings.core.log_level)
    run_loop(serve(settings, ready=lambda url: announce(f"core: {url}")))


def _init(args: argparse.Namespace) -> None:
    settings = _settings(args)
    from core.common.private_files import make_private
    from core.store.database.opening import open_database

    location = settings.core.database
    if isinstance(location, Path):
        if os.path.lexists(location):
            raise ResponderBotError("exists", f"{location} is there already; start core with it.")
        try:
            make_private(location.parent)
        except OSError as error:
            sentence = f"The folder {location.parent} can't be made ({error.strerror}); correct [core] database."
            raise ResponderBotError("unavailable", sentence) from error
    asyncio.run(open_database(location).close())
    print(f"Made the database {location}.", file=sys.stderr)


# --- audit ----------------------------------------------------------------------------------------------------------


def _audit_export(args: argparse.Namespace) -> None:
    settings = settings_with_database(args)
    from core.audit.reader import export
    from core.authorization import COMMAND_LINE
    from core.common.clock import now_ms

    since, until = getattr(args, "from"), args.to
    if since is not None and until is not None and since > until:
        raise ResponderBotError("bad_request", f"{since} is after {until}; give the earlier day with --from.")

    async def work(database: "Database") -> None:
        lines = export(database, now_ms, COMMAND_LINE.login, since=since, until=until, as_csv=args.format == "csv")
        async for line in lines:
            sys.stdout.write(line)

    _on_database(settings.core.database, work)


def _audit_verify(args: argparse.Namespace) -> int:
    from core.audit.verify import run

    return run(args.file, args.head)


# --- users ----------------------------------------------------------------------------------------------------------


def _with_people(work: PeopleTask, *, can_make: bool = False) -> Run:
    """A subcommand that works on the people in the database, whether core runs or not."""

    def run(args: argparse.Namespace) -> None:
        settings = settings_with_database(args, can_make=can_make)
        from core.common.clock import now_ms
        from core.people import People

        domain, missing = settings.core.user_domain, _missing_file(settings.core.database)
        _on_database(settings.core.database, lambda database: work(People(database, domain, now_ms), args))
        if missing:
            print(f"Made the database {missing}.", file=sys.stderr)

    return run


async def slack_links(settings: "CoreSettings") -> Mapping[tuple[str, str], int]:
    """By team ("" if not known yet) and Slack id, and by "" and login, everybody's clearance, from the database itself.

    Empty if there is no database yet. Raises ResponderBotError if it can't be opened.
    """
    from core.common.clock import now_ms
    from core.people import People

    if _missing_file(settings.core.database):
        return {}
    async with _opened(settings.core.database) as database:
        users = [user for user in await People(database, "", now_ms).all() if not user.disabled]
    return {name.rpartition(":")[::2]: user.clearance for user in users for name in (user.login, *user.slack_ids)}


async def keys_and_head(settings: "CoreSettings") -> tuple[Sequence[tuple[str, str]], str]:
    """Login and name of each key that nobody has used for long, and the head of the audit.

    Both are empty if there is no database yet. Raises ResponderBotError if it can't be opened.
    """
    from core.audit.reader import head
    from core.common.clock import now_ms
    from core.people import People

    if _missing_file(settings.core.database):
        return [], ""
    async with _opened(settings.core.database) as database:
        unused = await People(database, settings.core.user_domain, now_ms).unused_keys()
        return unused, await database.read(head)


async def _user_add(people: "People", args: argparse.Namespace) -> None:
    clearance = CLEARANCES[args.clearance]
    _print_key(
        args.login, await people.add(args.login, args.profile, clearance=clearance, slack_id=args.slack_id or "")
    )
    for group in args.group:
        await people.add_member(group, args.login)


def _print_key(login: str, key: str) -> None:
    """Print an API key, for people with what it is."""
    print(f"The API key of {login}; it is not shown again:\n{key}" if sys.stdout.isatty() else key)


async def _user_list(people: "People", _: argparse.Namespace) -> None:
    from core.models import TLP_NAMES

    rows = [("LOGIN", "PROFILE", "CLEARANCE", "SLACK", "")]
    for user in await people.all():
        slack, state = " ".join(user.slack_ids) or "-", "disabled" if user.disabled else ""
        rows.append((user.login, user.profile, TLP_NAMES[user.clearance], slack, state))
    _print_table(rows)


def _reporting(work: "Callable[[People, argparse.Namespace], Coroutine[Any, Any, UserEntry | str]]", text: str) -> Run:
    """A task that prints `text` with the login and its arguments on standard error; standard output is for scripts."""

    async def both(people: "People", args: argparse.Namespace) -> None:
        found = await work(people, args)
        login = found if isinstance(found, str) else found.login
        print(text.format_map({**vars(args), "login": login}), file=sys.stderr)

    return _with_people(both)


async def _user_clearance(people: "People", args: argparse.Namespace) -> None:
    login = await people.set_clearance(args.login, CLEARANCES[args.clearance])
    print(f"{login} may see and act on up to TLP:{args.clearance.upper()} in Slack from now on.", file=sys.stderr)


async def _key_add(people: "People", args: argparse.Namespace) -> None:
    from core.common.clock import day_ms

    clearance = None if args.clearance is None else CLEARANCES[args.clearance]
    expires_at = None if args.expires is None else day_ms(args.expires)
    bounds = {"expires_at": expires_at, "clearance": clearance, "addresses": args.address}
    _print_key(args.login, await people.add_key(args.login, args.name, **bounds))


async def _key_list(people: "People", args: argparse.Namespace) -> None:
    from core.common.clock import as_time
    from core.models import TLP_NAMES

    def day(ms: int | None, otherwise: str) -> str:
        return otherwise if ms is None else as_time(ms)[:10]

    rows = [("NAME", "BEGINS", "MADE", "USED", "EXPIRES", "CLEARANCE", "FROM")]
    for key in await people.keys(args.login):
        clearance = "-" if key["clearance"] is None else TLP_NAMES[key["clearance"]]
        days = day(key["created_at"], "-"), day(key["last_used_day"], "never"), day(key["expires_at"], "never")
        rows.append((key["name"], key["prefix"], *days, clearance, " ".join(json.loads(key["addresses"])) or "any"))
    _print_table(rows)
    print("A use is noted within a minute.", file=sys.stderr)


async def _key_revoke(people: "People", args: argparse.Namespace) -> None:
    login = await people.revoke_key(args.login, args.name)
    print(f"The key {args.name} of {login} no longer works.", file=sys.stderr)
    if not await people.keys(login):
        print(f"{login} has no key any more; `responder-bot user key {login}` makes one.", file=sys.stderr)


def _source_add(args: argparse.Namespace) -> int | None:
    from core.settings import login_problem
    from core.sources import preset

    if problem := login_problem(args.name, "source"):
        raise ResponderBotError("bad_request", f"{problem}.")
    found, settings = preset.load(args.preset), _settings(args)
    is_any = settings.core.host in ("0.0.0.0", "::")  # noqa: S104 - read here, not bound
    host = socket.gethostname() if is_any else settings.core.host

    async def work(people: "People", _: argparse.Namespace) -> None:
        key = await people.add(args.name, "source")
        print(f'# For the settings; then start core again.\n[source."{args.name}"]\npreset = "{args.preset}"\n')
        print(f"# {found.product}: {' '.join(found.documentation)}")
        print(found.lines(f"http://{host}:{settings.core.port}", args.name, key))

    return _with_people(work, can_make=True)(args)


def _source_test(card_lines: CardLines, args: argparse.Namespace) -> int:
    settings = _settings(args)
    from core.common.clock import now_ms
    from core.settings import SourceSection
    from core.sources import preset
    from core.sources.ingest import Source
    from core.sources.mapping import preview, unused

    now = now_ms()
    if args.name not in (*settings.source, *preset.names()):
        sentence = (
            f'There is neither a [source."{args.name}"] in the settings nor a preset {args.name}: paste what'
            f" `source add` printed, or name one of {', '.join(preset.names())}."
        )
        raise ResponderBotError("not_found", sentence)
    section = settings.source.get(args.name) or SourceSection(preset=args.name)
    source = Source.of(args.name, section, settings.responder)
    try:
        reading = source.map.read(args.file.read_bytes())
    except OSError as error:
        raise ResponderBotError("bad_request", f"{args.file} can't be read ({error.strerror}).") from error
    for incoming in reading.incoming:
        print(incoming.request.model_dump_json(by_alias=True, exclude_unset=True, exclude_none=True, indent=1))
        print("\n".join(["Its card:", *(f"  {line}" for line in card_lines(preview(incoming.request, now)))]))
        if incoming.is_over(now):
            print("It is over: it closes the alert with this sourceRef, if nobody is assigned to it.")
        for note in incoming.notes:
            print(f"Left out: {note}")
    for part in reading.unreadable:
        print(f"Unreadable: {part.sentence}")
    if reading.skipped:
        print(f"Skipped: {reading.skipped}, which `when` doesn't name.")
    names = {name for item in reading.items for name in unused(item, source.map.paths)}
    if names:
        print(f"Not used: {', '.join(sorted(names))}")
    return 1 if reading.unreadable else 0


def _source_list(args: argparse.Namespace) -> None:
    settings = settings_with_database(args)
    from core.common.clock import as_time, now_ms
    from core.sources.ingest import Sources
    from core.store import sources as stored

    async def work(database: "Database") -> None:
        core = settings.core
        sources = Sources(settings.source, settings.responder, database, now_ms, core.user_domain)
        counted = {row["name"]: row for row in await database.read(stored.list_all)}
        rows = [("SOURCE", "PRESET", "LAST", *(column.upper() for column in stored.COUNTS))]
        for name, section in settings.source.items():
            row = counted.get(name)
            last = as_time(row["last_at"]) if row is not None and row["last_at"] else "never"
            counts = [str(row[column]) if row is not None else "0" for column in stored.COUNTS]
            rows.append((name, section.preset or "-", last, *counts))
        _print_table(rows)
        if not settings.source:
            print("The settings have no [source] yet; paste what `responder-bot source add` prints.", file=sys.stderr)
        for problem in await sources.problems():
            print(problem, file=sys.stderr)

    _on_database(settings.core.database, work)


async def _user_key(people: "People", args: argparse.Namespace) -> None:
    _print_key(args.login, (await people.new_key(_command_line(), args.login, keep_old=args.keep_old)).key)


def _command_line() -> "Caller":
    from core.authorization import COMMAND_LINE

    return COMMAND_LINE


async def _group_list(people: "People", _: argparse.Namespace) -> None:
    groups = await people.groups()
    _print_table([("GROUP", "MEMBERS"), *((group.name, " ".join(group.members)) for group in groups)])


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


# --- block lists ------------------------------------------------------------------------------------------------------


def _blocklist_show(args: argparse.Namespace) -> None:
    from core.common.clock import as_time
    from core.models import Action
    from core.store import actions, blocklist

    def read(tx: "Transaction") -> list[tuple[str, str, str, str]]:
        rows = []
        for target, number in blocklist.blocked(tx):
            row = actions.find(tx, number)
            action = None if row is None else Action.model_validate_json(row["doc"])
            undo, readers = (action.undo, action.readers or []) if action else (None, [])
            until = as_time(undo.at) if undo and undo.at else "no end"
            read_by = " ".join(reader.name for reader in readers if reader.at) or "nobody"
            rows.append((target.value, until, f"~{number}", read_by))
        return sorted(rows)

    found = _on_transaction(settings_with_database(args), read)
    _print_table([("TARGET", "UNTIL", "RUN", "READ BY"), *found])


def _blocklist_resume(args: argparse.Namespace) -> None:
    from core.store import blocklist

    if not _on_transaction(settings_with_database(args), blocklist.resume):
        raise ResponderBotError("conflict", "The block lists don't wait; there is nothing to resume.")
    print("The block lists are answered again.", file=sys.stderr)


def _blocklist_remove(args: argparse.Namespace) -> None:
    from core.actions.blocklist import remove
    from core.common.clock import now_ms

    ended = _on_transaction(settings_with_database(args), lambda tx: remove(tx, args.target, now_ms()))
    print(f"{args.target} is off the block list; {', '.join(ended)} ended.", file=sys.stderr)


# --- responders -----------------------------------------------------------------------------------------------------


def _responders(args: argparse.Namespace, *, read_secrets: bool) -> int:
    is_usable = asyncio.run(_show_responders(_settings(args), read_secrets=read_secrets))
    return int(read_secrets and not is_usable)


async def _show_responders(settings: "CoreSettings", *, read_secrets: bool) -> bool:
    """Print each engine's responders and those skipped; False if something configured can't be used.

    `read_secrets`: also read what commands and files give, and tell which can't be read.
    """
    from core import engines
    from core.common import logs
    from core.protection import ProtectedTargets
    from core.responders.catalogues import ListedCatalogue, without_duplicates, without_lookalikes
    from core.responders.settings_section import settings_problems

    logs.silence()  # what is skipped is printed here
    made = engines.make(settings)
    listed: list[ListedCatalogue] = []
    unreadable: list[list[str]] = []
    for engine in made:
        try:
            catalogue = without_duplicates(await engine.catalogue())
            unreadable.append(await engine.unreadable_secrets() if read_secrets else [])
            listed.append(ListedCatalogue.of(engine, catalogue))
        except ResponderBotError as error:
            print(f"{engine.name}: down: {error.message}")
        finally:
            await engine.close()
    catalogues = without_lookalikes(listed, settings.responder)
    for item, catalogue, sentences in zip(listed, catalogues, unreadable, strict=True):
        _print_catalogue(item.engine_name, catalogue, sentences)
    problems = settings_problems(settings.responder, catalogues, is_complete=len(listed) == len(made))
    if unread := ProtectedTargets(settings.protect.artifacts).current().problem:
        problems.append(unread)
    for sentence in problems:
        print(sentence)
    is_usable = not any(skipped.is_wanted for catalogue in catalogues for skipped in catalogue.skipped)
    return is_usable and not any(unreadable) and not problems and len(listed) == len(made)


def _print_catalogue(engine_name: str, catalogue: "Catalogue", unreadable: Sequence[str]) -> None:
    print(f"{engine_name}: {len(catalogue.responders)} available, {len(catalogue.skipped)} not")
    if catalogue.responders:
        rows = [
            ("  " + item.name, item.title, item.version, " ".join(item.data_types)) for item in catalogue.responders
        ]
        _print_table(rows)
    for skipped in catalogue.skipped:
        print(f"  {skipped.name} can't be used: {skipped.reason}")
    for sentence in unreadable:
        print(f"  {sentence}")


def _responders_settings(args: argparse.Namespace) -> None:
    settings = _settings(args)
    from difflib import get_close_matches

    from core.engines.definitions import BUNDLED, load
    from core.responders.settings_section import settings_section

    folders = [folder for engine in settings.engine if engine.type == "process" for folder in engine.responders]
    found = {definition.name: definition for definition in reversed(load([*folders, BUNDLED]).definitions)}
    if args.responder not in found:
        near = get_close_matches(args.responder, found, 1)
        hint = f"did you mean {near[0]}?" if near else "`responder-bot responders list` shows their names."
        sentence = f"No folder of [[engine]] responders has a responder {args.responder}; {hint}"
        raise ResponderBotError("not_found", sentence)
    print(settings_section(found[args.responder]), end="")


def _responders_install(args: argparse.Namespace) -> int:
    settings = _settings(args)
    from core.common.words import count
    from core.engines.definitions import BUNDLED
    from core.engines.environments import Environments
    from core.engines.process.catalogue_loader import environment_specs

    process = [engine for engine in settings.engine if engine.type == "process"]
    roots = [args.folder] if args.folder else [folder for engine in process for folder in engine.responders]
    place = "" if args.folder else " in [[engine]] responders"
    for root in roots:
        if not root.is_dir():
            sentence = f"{root} is not a folder; name the one that contains the responders' folders{place}."
            raise ResponderBotError("not_found", sentence)
        if not environment_specs([root], settings.responder):
            sentence = f"There is no responder in {root}: no folder in it has a usable definition (*.json)."
            raise ResponderBotError("not_found", sentence)
    roots = [args.folder.absolute()] if args.folder else [*roots, BUNDLED]
    environments = Environments(settings.core.environments, python=process[0].python if process else None)
    built = asyncio.run(environments.install(environment_specs(roots, settings.responder), _show_building))
    failed = [status for status in built if status.state == "failed"]
    print(f"{count(len(built) - len(failed), 'environment')} ready, {len(failed)} failed")
    return 1 if failed else 0


def _show_building(status: "BuildStatus") -> None:
    print(f"{status.folder.name}: {status.state}{': ' if status.message else ''}{status.message}", flush=True)


# --- hosts ----------------------------------------------------------------------------------------------------------


def _hosts(args: argparse.Namespace) -> None:
    settings = settings_with_database(args)
    from core.common.clock import as_time, now_ms
    from core.hosts import is_long_silent, list_hosts

    hosts = _on_transaction(settings, lambda tx: list_hosts(tx, lambda row: is_long_silent(row, now_ms())))
    rows = [("HOST", "STATE", "CORE", "VERSION", "STARTED", "LEASE UNTIL", "ENGINES", "RUNS")]
    for host in hosts:
        if host.lost_at is not None:
            lost = f"lost at {as_time(host.lost_at)}, with {host.actions_ended} runs"
            rows.append((host.name, lost, *("",) * 6))
        for core in host.cores:
            loads = [
                f"{engine.name} {engine.running}/{'-' if engine.slots is None else engine.slots}"
                for engine in core.engines
            ]
            rows.append(
                (
                    *(host.name or "-", core.state, core.id, core.version or "-"),
                    *("-" if core.started_at is None else as_time(core.started_at), as_time(core.lease_until)),
                    *(", ".join(loads) or "-", " ".join(core.actions) or "-"),
                )
            )
    _print_table(rows)


def _drain(args: argparse.Namespace) -> None:
    settings = settings_with_database(args)
    from core.common.clock import now_ms
    from core.hosts import drain
    from core.settings import host_name

    host = args.host or host_name(settings)
    by = _command_line().login
    count = _on_transaction(settings, lambda tx: drain(tx, now_ms(), by, host, args.core, cancel=args.cancel))
    cores, they = ("1 core", "It") if count == 1 else (f"{count} cores", "They")
    what = "goes on" if count == 1 else "go on"
    ends = "ends once its runs have" if count == 1 else "end once their runs have"
    sentence = f"{what} taking runs" if args.cancel else f"{'takes' if count == 1 else 'take'} no more runs"
    rest = "" if args.cancel else f" {they} {ends}; `responder-bot hosts` shows what they are."
    print(f"{cores} on {host} {sentence}.{rest}", file=sys.stderr)


# --- backup, restore --------------------------------------------------------------------------------------------------


def _database_file(args: argparse.Namespace, instead: str) -> Path:
    """The file of the database. Raises ResponderBotError("bad_request") if it is on PostgreSQL."""
    database = _settings(args).core.database
    if not isinstance(database, Path):
        raise ResponderBotError("bad_request", instead)
    return database


def _prune(open_both: OpenBoth, args: argparse.Namespace) -> None:
    settings = settings_with_database(args)
    from core.common.clock import now_ms
    from core.retention.pruning import Retention
    from core.store.database import backup

    async def work() -> None:
        async with open_both(args) as opened:
            await opened.database.read(backup.require_live)
            retention = Retention.of(settings, opened.database, now_ms)
            of_core = await (retention.preview() if args.dry_run else retention.prune())
            _print_table(_counted(of_core, await opened.prune(retention.closed, args.dry_run)))

    asyncio.run(work())


def _counted(core: Mapping[str, int], bot: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """A table of how much of each kind goes."""
    rows = [(name, *item) for name, counts in (("core", core), ("bot", bot)) for item in sorted(counts.items())]
    return [("IN", "KIND", "COUNT"), *((name, kind, str(count)) for name, kind, count in rows)]


def _backup(args: argparse.Namespace) -> None:
    from core.common.clock import now_ms
    from core.store.database.backup import audit_head, copy

    instead = (
        "This copies a SQLite file, and the settings name a PostgreSQL: back it up with `pg_dump`"
        " (core/docs/storage.md#backups)."
    )
    copy(_database_file(args, instead), args.file, now_ms())
    print(f"Copied to {args.file}; `responder-bot restore` restores it.", file=sys.stderr)
    if head := audit_head(args.file):
        print(f"The head of the audit in it is {head}.", file=sys.stderr)


def _restore(open_both: OpenBoth | None, args: argparse.Namespace) -> None:
    from core.retention.erasure import erasures_in

    rows = [] if args.erasures is None else erasures_in(args.erasures)
    if args.file is None:
        _mark_restored(args)
    else:
        _restore_file(args)
    if rows and open_both is not None:
        _erase_again(open_both, args, rows)


def _restore_file(args: argparse.Namespace) -> None:
    from core.common.clock import as_time
    from core.store.database.backup import restore_backup

    instead = (
        "This restores a SQLite file, and the settings name a PostgreSQL: stop every responder-bot, restore with"
        " `pg_restore`, and start again; the next start notices it (core/docs/storage.md#restoring)."
    )
    database = _database_file(args, instead)
    made_at, kept = restore_backup(args.file, database)
    sentences = [f"Restored {database} from a backup of {as_time(made_at)}."]
    if kept:
        sentences.append(f"What was there is kept as {kept}.")
    print(*sentences, file=sys.stderr)


def _mark_restored(args: argparse.Namespace) -> None:
    from core.store.database.opening import mark_restored

    location = _settings(args).core.database
    if isinstance(location, Path):
        raise ResponderBotError("bad_request", "Name the FILE to restore; it was made by `responder-bot backup`.")
    mark_restored(location)
    print("Marked the database as restored; the next start makes it live.", file=sys.stderr)


# --- erase, export ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _eraser(open_both: OpenBoth, args: argparse.Namespace) -> "AsyncIterator[tuple[Eraser, ErasureElsewhere]]":
    settings = settings_with_database(args)
    from core.common import logs
    from core.common.clock import now_ms
    from core.retention.erasure import Eraser
    from core.retention.pruning import Retention

    logs.silence()
    async with open_both(args) as opened:
        retention = Retention.of(settings, opened.database, now_ms)
        yield Eraser(opened.database, now_ms, retention, settings.core.user_domain), opened.erasure


def _erase_roots(open_both: OpenBoth, kind: "Root", args: argparse.Namespace) -> int:
    return asyncio.run(_erase(open_both, args, lambda eraser: eraser.of_roots(kind, args.ids)))


def _erase_person(open_both: OpenBoth, args: argparse.Namespace) -> int:
    return asyncio.run(_erase(open_both, args, lambda eraser: eraser.of_person(args.login, args.undo_for)))


async def _erase(
    open_both: OpenBoth,
    args: argparse.Namespace,
    find: "Callable[[Eraser], Coroutine[Any, Any, Erasure]]",
) -> int:
    from core.store.database import backup

    async with _eraser(open_both, args) as (eraser, bot):
        await eraser.database.read(backup.require_live)
        erasure = await find(eraser)
        messages = await bot.find(erasure.names, erasure.messages)
        rows = _counted(+erasure.counts, +bot.counts)
        rows += [("core", "text of the audit", str(len(erasure.rows)))] if erasure.rows else []
        if len(rows) == 1:
            print("Nothing has it.", file=sys.stderr)
            if not args.dry_run:  # an erasure that was interrupted may have left it in the files
                await eraser.overwrite_deleted()
                await bot.delete()
                await eraser.end(erasure.object)
            return 0
        _print_table(rows)
        if erasure.roots:
            print("Alerts and cases:", *(f"~{number}" for _, number in erasure.roots))
        if args.dry_run:
            return 0
        if not args.yes and not _is_confirmed():
            print("Nothing was erased.", file=sys.stderr)
            return 1
        erasure.counts.update({f"{kind} of the bot": count for kind, count in bot.counts.items()})
        await eraser.carry_out(erasure, why=args.reason, messages=messages)
        await bot.find(erasure.names)  # what came since then
        problems = await bot.delete()
        if not problems:
            await eraser.end(erasure.object)
        for problem in problems or ["Erased."]:
            print(problem, file=sys.stderr)
        return 1 if problems else 0


def _is_confirmed() -> bool:
    """Whether somebody types yes. Raises ResponderBotError("bad_request") if nobody can."""
    if not sys.stdin.isatty():
        raise ResponderBotError("bad_request", "Nothing was erased; look at what is listed, and repeat it with --yes.")
    return input("This can't be undone. Type yes to erase it: ").strip() == "yes"


def _erase_again(open_both: OpenBoth, args: argparse.Namespace, rows: "list[dict[str, Any]]") -> None:
    async def work() -> None:
        async with _eraser(open_both, args) as (eraser, bot):
            erasure = await eraser.again(rows)
            await bot.find(erasure.names, [number for row in rows for number in row.get("messages", ())])
            await bot.delete()

    asyncio.run(work())
    print(f"Erased again what {len(rows)} rows of {args.erasures} say.", file=sys.stderr)


def _export_person(open_both: OpenBoth, args: argparse.Namespace) -> None:
    async def work() -> None:
        async with _eraser(open_both, args) as (eraser, bot):
            async for line in eraser.held_about(args.login, bot.rows):
                print(line)

    asyncio.run(work())


# --- store ------------------------------------------------------------------------------------------------------------


def _store_export(bots_stores: "Callable[[], Sequence[Store]]", args: argparse.Namespace) -> None:
    from core.common.clock import now_ms
    from core.common.database.transfer import export
    from core.store.database.opening import STORE

    location = settings_with_database(args).core.database
    try:
        descriptor = os.open(args.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise _not_usable(args.file, error) from error
    try:
        with os.fdopen(descriptor, "w") as file:
            for store in (*bots_stores(), STORE):
                _show_sums(store, _on_database(location, partial(export, store, file=file, now=now_ms()), store))
    except BaseException:
        args.file.unlink()
        raise
    print("Name the new database in the settings, and run `responder-bot store import`.", file=sys.stderr)


def _store_import(bots_stores: "Callable[[], Sequence[Store]]", args: argparse.Namespace) -> None:
    from core.common.database.transfer import load
    from core.store.database.opening import STORE

    location = _settings(args).core.database
    try:
        with args.file.open() as file:
            asyncio.run(STORE.open(location, opening()).close())  # the bot's tables are beside core's
            for store in (*bots_stores(), STORE):  # core's last: a core without rows is another one to the bot
                _show_sums(store, _on_database(location, partial(load, store, file=file), store))
    except OSError as error:
        raise _not_usable(args.file, error) from error
    print("Start responder-bot on the new database, and nothing on the old one any more.", file=sys.stderr)


def _not_usable(path: Path, error: OSError) -> ResponderBotError:
    return ResponderBotError("bad_request", f"{path} can't be used ({error.strerror}); name another file.")


def _show_sums(store: "Store", sums: "Mapping[str, Sum]") -> None:
    rows = [(name, str(table.rows), table.sha256) for name, table in sums.items()]
    _print_table([(store.name.upper(), "ROWS", "SHA-256"), *rows])


if __name__ == "__main__":
    sys.exit(main())
