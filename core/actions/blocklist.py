"""The lists that firewalls read: what is in force of Block, and nothing else (core/docs/blocklist.md)."""

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from core.authorization import Caller, full_login
from core.common.database import Database
from core.common.errors import ResponderBotError, bad_request
from core.protection import ListName, Parsed
from core.protection.blockable import LIST_OF
from core.settings import CoreSettings, ReaderSection
from core.store import blocklist as stored

AMBER = 2  # what is above it is never blocked
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

    content: bytes
    etag: str

    @staticmethod
    def of(lines: Sequence[str]) -> "Body":
        content = "".join(f"{line}\n" for line in lines).encode("ascii")
        return Body(content, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


class BlockLists:
    """Renders the lists."""

    def __init__(self, settings: CoreSettings, database: Database) -> None:
        self._readers = settings.reader
        self._domain = settings.core.user_domain
        self._database = database

    async def read(self, caller: Caller, name: ListName, query: Mapping[str, str]) -> Body:
        """A list as it is now. Raises ResponderBotError: forbidden, bad_request, unavailable."""
        self._require(caller, name)
        for key, value in query.items():
            if value not in _OPTIONS[name].get(key, ()):
                known = " or ".join(f"{key}={value}" for key, values in _OPTIONS[name].items() for value in values)
                raise bad_request(f"{name}.txt takes {known or 'no parameters'}, and not {key[:50]}={value[:50]}")
        targets = [target for target, _ in await self._database.snapshot(stored.blocked)]
        return await asyncio.to_thread(_rendered, targets, name, query)

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


def _rendered(targets: Sequence[Parsed], name: ListName, query: Mapping[str, str]) -> Body:
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
    return Body.of(sorted(lines))
