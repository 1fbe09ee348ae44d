"""The lists that firewalls read: what is in force of Block, and nothing else (core/docs/blocklist.md)."""

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_network

from core.actions import in_force
from core.authorization import COMMAND_LINE, Caller, full_login
from core.common.clock import HOUR_MS, Clock, as_time, duration_ms
from core.common.database import Database, Reads, Transaction
from core.common.errors import ResponderBotError, bad_request
from core.common.words import some_of
from core.models import TargetArtifact
from core.protection import ListName, MalformedError, Parsed, parse
from core.protection.blockable import DATA_TYPES, LIST_OF, hint
from core.records import block_readers
from core.settings import CoreSettings, ReaderSection
from core.store import blocklist as stored
from core.store import in_force as stored_in_force

AMBER = 2  # what is above it is never blocked
UNREAD_MS = 24 * HOUR_MS  # a list that nobody has read for as long is read by nobody
STORE_EVERY_S = 1.0
SHOWN_HINTS = 5
HELD = (
    "The block lists wait since core was restored from a backup of {}; see what they will say with `responder-bot"
    " blocklist show`, then run `responder-bot blocklist resume`."
)
_OPTIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "ip": {"family": ("4", "6")},
    "domain": {"subdomains": ("yes", "no")},
    "url": {"scheme": ("yes", "no")},
    "hash": {},
}
"""Of each list the parameters of its address, with their values."""
_LINE = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Body:
    """A list as it is sent."""

    version: int
    content: bytes
    etag: str

    @staticmethod
    def of(version: int, lines: Sequence[str]) -> "Body":
        content = "".join(f"{line}\n" for line in lines).encode("ascii")
        return Body(version, content, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


class BlockLists:
    """Renders the lists, and keeps who has read them."""

    def __init__(self, settings: CoreSettings, database: Database, clock: Clock) -> None:
        self._readers = settings.reader
        self._domain = settings.core.user_domain
        self._database = database
        self._clock = clock
        self._opened_at = clock()
        self._rendering = asyncio.Lock()
        self._targets: Sequence[Parsed] = ()
        self._version = -1
        self._bodies: dict[str, Body] = {}
        """By list, comment and query, of that version."""
        self._read: dict[tuple[str, ListName], tuple[int, int]] = {}
        """By reader and list the version that it read last, and when (ms), until that is stored."""

    async def read(self, caller: Caller, name: ListName, query: Mapping[str, str]) -> Body:
        """A list as it is now. Raises ResponderBotError: forbidden, bad_request, unavailable."""
        self._require(caller, name)
        for key, value in query.items():
            if value not in _OPTIONS[name].get(key, ()):
                known = " or ".join(f"{key}={value}" for key, values in _OPTIONS[name].items() for value in values)
                raise bad_request(f"{name}.txt takes {known or 'no parameters'}, and not {key[:50]}={value[:50]}")
        version, held_since = await self._database.read(lambda reads: (stored.version(reads), stored.held_since(reads)))
        if held_since is not None:
            raise ResponderBotError("unavailable", HELD.format(as_time(held_since)))
        if version < self._version:
            sentence = "The database lacks the last changes of the lists; see core/docs/storage.md, or restart core."
            raise ResponderBotError("unavailable", sentence)
        comment = caller.profile == "reader" and self.section(caller.login).comment
        key = f"{name} {comment} {sorted(query.items())}"
        async with self._rendering:
            if version > self._version:
                self._version, self._targets = await self._database.snapshot(
                    lambda reads: (stored.version(reads), [target for target, _ in stored.blocked(reads)])
                )
                self._bodies = {}
            if key not in self._bodies:
                body = await asyncio.to_thread(_rendered, self._version, self._targets, name, query, comment)
                self._bodies[key] = body
            return self._bodies[key]

    def was_read(self, caller: Caller, name: ListName, body: Body) -> None:
        """Note that a reader has read a list as a whole, or that it has not changed."""
        if caller.profile == "reader":
            before, _ = self._read.get((caller.login, name), (0, 0))
            self._read[caller.login, name] = max(before, body.version), self._clock()

    async def store_reads(self) -> None:
        """Store who has read what since. Raises ResponderBotError("unavailable")."""
        read = dict(self._read)
        if not read:
            return

        def work(tx: Transaction) -> None:
            for (login, name), (version, at) in read.items():
                block_readers.have_read(tx, login, name, version, at)

        await self._database.transaction(work)
        for key, value in read.items():
            if self._read.get(key) == value:
                del self._read[key]

    async def problems(self) -> list[str]:
        """A sentence for each reader that reads nothing any more, and one if the lists wait after a restore."""
        rows, held_since = await self._database.read(lambda reads: (stored.readers(reads), stored.held_since(reads)))
        problems = [] if held_since is None else [HELD.format(as_time(held_since))]
        for name, section in self._readers.items():
            if section.expect_every is None:
                continue
            login = full_login(name, self._domain)
            times = [row["at"] for row in rows if row["login"] == login and row["list"] in section.lists]
            times += [at for (reader, _), (_, at) in self._read.items() if reader == login]
            last = max(times, default=None)
            if self._clock() - max(last or 0, self._opened_at) > duration_ms(section.expect_every):
                since = f"since {as_time(last)}" if last else "ever"
                problems.append(f"{name} has read no block list {since}; see that it runs and has its key.")
        return problems

    def section(self, login: str) -> ReaderSection:
        """The settings of a reader; the defaults without any."""
        found = (section for name, section in self._readers.items() if full_login(name, self._domain) == login)
        return next(found, ReaderSection())

    def _require(self, caller: Caller, name: ListName) -> None:
        if caller.profile != "reader":
            caller.require_clearance(AMBER, "read the block lists")
        elif name not in (lists := self.section(caller.login).lists):
            sentence = f"You are not authorized to read {name}.txt; [reader] lists of {caller.login} has"
            raise ResponderBotError("forbidden", f"{sentence} {', '.join(lists) or 'none'}.")

    async def around(self, targets: Sequence[Parsed]) -> Mapping[Parsed, str]:
        """Of targets that nothing blocks by themselves but a network around them: a sentence that names it."""
        known = await self._database.snapshot(stored.blocked)
        return {target: sentence for target in targets if (sentence := _around(target, known))}


def remove(tx: Transaction, text: str, now: int) -> list[str]:
    """Mark what blocks a target as ended; returns the ids of its runs. Raises ResponderBotError("not_found")."""
    named = set[Parsed]()
    for data_type in DATA_TYPES:
        with suppress(MalformedError):
            named.add(parse(data_type, text))
    known = stored.blocked(tx)
    numbers = sorted({number for target, number in known if target in named})
    if not numbers:
        around = next(filter(None, (_around(target, known) for target in named)), "")
        sentence = f"{text} is on no block list; `responder-bot blocklist show` prints them."
        raise ResponderBotError("not_found", around or sentence)
    digests = {target.digest for target in named}
    rows = [one for number in numbers for one in stored_in_force.of_action(tx, number) if one["digest"] in digests]
    active = [one for one in rows if one["state"] != "ended"]
    in_force.end(tx, active, COMMAND_LINE.login, now, reason="Taken off the block list on the command line.")
    return [f"~{number}" for number in numbers]


def notes(reads: Reads, artifacts: Sequence[TargetArtifact], now: int) -> list[str]:
    """What somebody should know before they block one of these: what it also hits, and who reads the list."""
    hints = (hint(Parsed(artifact.kind, artifact.data)) for artifact in artifacts)
    lists = block_readers.lists_of(artifacts)
    found = [row for row in stored.readers(reads) if row["list"] in lists and now - row["at"] < UNREAD_MS]
    by = dict.fromkeys(row["login"].partition("@")[0] for row in found)
    read = [f"the block list is read by {some_of([*by], SHOWN_HINTS)}"] if by else []
    unread = [f"{name}.txt" for name in lists if name not in {row["list"] for row in found}]
    cure = "`responder-bot user add NAME --profile reader` makes a firewall's key"
    if unread:
        read.append(f"⚠ nothing reads the block list{'s' * (len(unread) > 1)} {', '.join(unread)}: {cure}")
    return [*[*filter(None, hints)][:SHOWN_HINTS], *read]


def _around(target: Parsed, known: Sequence[tuple[Parsed, int]]) -> str:
    if target.kind != "address" or any(other == target for other, _ in known):
        return ""
    own = ip_network(target.value)
    for other, number in known:
        if other.kind == "address" and "/" in other.value:
            network = ip_network(other.value)
            if network.version == own.version and network.supernet_of(own):  # type: ignore[arg-type]
                return f"{target.value} is blocked as a part of {other.value}, by ~{number}; unblock that."
    return ""


def _rendered(version: int, targets: Sequence[Parsed], name: ListName, query: Mapping[str, str], comment: bool) -> Body:
    """Raises ResponderBotError("unavailable") for what can't be a line: no list is better than a wrong one."""
    lines = {target.value for target in targets if LIST_OF.get(target.kind) == name}
    for line in lines:
        if not _LINE.fullmatch(line):
            sentence = f"{line[:100]!r} is in force of Block and can't be a line of {name}.txt; mark it as ended."
            raise ResponderBotError("unavailable", sentence)
    if family := query.get("family"):
        lines = {line for line in lines if (":" in line) == (family == "6")}
    if query.get("scheme") == "no":
        lines = {line.partition("://")[2] for line in lines}
    if query.get("subdomains") == "yes":
        lines |= {f".{line}" for line in lines}
    return Body.of(version, sorted(lines) or ["# empty"] * comment)
