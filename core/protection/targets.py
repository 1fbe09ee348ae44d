"""The list of protected targets, and whether a text names one of them, or a network or domain with one inside."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from core.protection.addresses import Network, addresses_of, network_of
from core.protection.names import Named, named_in, pattern_forms
from core.protection.readings import MAX_CHARS, UnreadableError

FILE = "file:"
MAX_FILE_BYTES = 2 * 1_048_576
MAX_ENTRIES = 10_000  # of a file; reading them takes a second at most
REMEMBERED = 65_536  # texts whose answer is kept until the list changes
MAX_SEGMENTS = 64
PATTERN_COST = 1_024  # as each is compared with all entries
_WILD = re.compile(r"[*?]|[^*?]+")
_Stamp = tuple[int, int, int, int]


def entry_problem(entry: str) -> str:
    """What is wrong with an entry, as a sentence without its full stop, or `""`."""
    text = entry.strip()
    if text.startswith(FILE):
        return (
            "" if text.removeprefix(FILE).strip() else f"{text!r} names no file; write it as in file:crown-jewels.txt"
        )
    try:
        named = named_in(text)
    except UnreadableError as error:
        return f"an entry can't be read: {error}"
    if not named.texts:
        return "an entry is empty; write an address, a host, a pattern or file:NAME"
    if re.search(r"[\s,;]", text):
        return f"{text[:100]!r} looks like several entries; write each on its own"
    address, _, length = text.partition("/")
    addresses = addresses_of(address.lower())
    if addresses and re.fullmatch(r"[0-9.]+", length):
        networks = [network for item in addresses if (network := network_of(item, length)) is not None]
        if not networks:
            return f"{text!r} is no network; its length must be a number from 0 to 32, or to 128 for IPv6"
        if not any(network.network_address in addresses for network in networks):
            return f"{text!r} has bits set beyond its length; write {networks[0]}, or the address alone"
    return ""


@dataclass(frozen=True)
class Unread:
    """A list that can't be read: until it can, everything is protected. The problem is a sentence."""

    problem: str

    def entry_for(self, _: str) -> str | None:
        """As `ProtectedList.entry_for`."""
        return self.problem


class ProtectedTargets:
    """The entries of the settings, and of the files that they name, which are read again when they change."""

    def __init__(self, entries: Sequence[str] = ()) -> None:
        self._own = [entry for entry in entries if not entry.startswith(FILE)]
        files = [entry.removeprefix(FILE).strip() for entry in entries if entry.startswith(FILE)]
        self._files = [Path(file) for file in files]
        self._known = self._read()

    def __bool__(self) -> bool:
        """Whether anything is protected."""
        return bool(self._own or self._files)

    def current(self) -> "ProtectedList | Unread":
        """The current list; files are read again if they have changed."""
        known = self._known
        if [_stamp(file) for file in self._files] != known.stamps:
            self._known = known = self._read()
        return known.targets

    def _read(self) -> "_Known":
        # As of before reading: a change meanwhile is seen the next time.
        return _Known([_stamp(file) for file in self._files], self._targets())

    def _targets(self) -> "ProtectedList | Unread":
        entries = [*self._own]
        for file in self._files:
            try:
                if file.stat().st_size > MAX_FILE_BYTES:
                    return _unread(file, f"is over {MAX_FILE_BYTES} bytes; nothing runs until it is shorter")
                lines = file.read_text(encoding="utf-8-sig").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                return _unread(file, f"can't be read ({why}); nothing runs until it can")
            found = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
            found = [(number, line) for number, line in found if line]
            if len(found) > MAX_ENTRIES:
                return _unread(file, f"has over {MAX_ENTRIES} entries; nothing runs until it is shorter")
            if not found:  # as while an editor writes it
                return _unread(file, "is empty; nothing runs until it names something")
            for number, line in found:
                problem = f"{line[:100]!r} names a file" if line.startswith(FILE) else entry_problem(line)
                if problem:
                    return _unread(file, f"has an error in line {number}: {problem}. Nothing runs until it is right")
            entries += [line for _, line in found]
        return ProtectedList(entries)


def _unread(file: Path, why: str) -> Unread:
    return Unread(f"The list {file.name} of [protect] {why}.")


def _stamp(file: Path) -> _Stamp | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns


@dataclass(frozen=True)
class _Known:
    """The list as it was read last, and the state of its files then."""

    stamps: Sequence[_Stamp | None]
    targets: "ProtectedList | Unread"


class ProtectedList:
    """Entries by what they name, so that a text is compared with all at once."""

    problem = ""

    def __init__(self, entries: Iterable[str]) -> None:
        self._hosts: dict[str, str] = {}
        self._urls: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._inside: dict[str, str] = {}  # a domain with a protected host in it
        self._host_patterns: dict[str, str] = {}
        self._mail_patterns: dict[str, str] = {}
        self._url_patterns: dict[str, str] = {}
        self._networks: dict[tuple[int, int], dict[int, str]] = {}  # by version and length, by prefix
        self._starts: dict[int, list[tuple[int, str]]] = {4: [], 6: []}
        for entry in entries:
            self._add(entry, named_in(entry))
        for starts in self._starts.values():
            starts.sort()
        self._matchers = [
            (_matcher(self._host_patterns), self._host_patterns),
            (_matcher(self._mail_patterns), self._mail_patterns),
            (_matcher(self._url_patterns), self._url_patterns),
        ]
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._entry_for)

    def entry_for(self, text: str) -> str | None:
        """The entry that protects what a text names, as a phrase such as `protected (10.0.0.0/8)`; None if none does.

        What can't be compared counts as protected.
        """
        return self._remembered(text)

    def cost_of(self, text: str) -> int:
        """What it costs to compare a text: its characters, more if it has patterns or can be read in many ways."""
        try:
            named = named_in(text)
        except UnreadableError:
            return 4 * MAX_CHARS
        return 16 + max(len(text), named.chars_read // 4) + PATTERN_COST * len(named.patterns)

    def _add(self, entry: str, named: Named) -> None:
        networks = _own_networks(named.networks)
        for network in networks:
            self._networks.setdefault((network.version, network.prefixlen), {})[_prefix(network)] = entry
            self._starts[network.version].append((int(network.network_address), entry))
        if networks and "://" not in entry and "@" not in entry:
            return
        is_pattern = "*" in entry or ("?" in entry and "/" not in entry)
        if is_pattern and "/" not in entry and "@" not in entry:
            for form in pattern_forms(entry.strip()):
                self._host_patterns[form] = entry
                fixed = re.split(r"[*?]", form)[-1]
                if fixed.startswith("."):
                    self._add_inside(fixed[1:], entry, with_itself=True)
        elif is_pattern and "/" not in entry:
            self._mail_patterns[entry.strip().casefold()] = entry
        elif is_pattern:
            self._url_patterns[entry.strip().casefold().rpartition("//")[2]] = entry
        else:
            self._hosts |= dict.fromkeys(named.domains, entry)
            self._urls |= dict.fromkeys(named.urls, entry)
            self._texts |= dict.fromkeys(named.texts, entry)
            for host in named.hosts:
                self._add_inside(host, entry, with_itself=not named.domains)

    def _add_inside(self, host: str, entry: str, *, with_itself: bool) -> None:
        labels = host.split(".")
        for number in range(0 if with_itself else 1, len(labels)):
            self._inside.setdefault(".".join(labels[number:]), entry)

    def _entry_for(self, text: str) -> str | None:
        try:
            named = named_in(text)
        except UnreadableError as error:
            return f"not known to be unprotected: {error}"
        entry = self._of_networks(named) or self._of_names(named) or self._of_patterns(named)
        return None if entry is None else f"protected ({entry})"

    def _of_networks(self, named: Named) -> str | None:
        return next((entry for network in named.networks if (entry := self._overlapping(network)) is not None), None)

    def _of_names(self, named: Named) -> str | None:
        for names, known in (
            (named.hosts, self._hosts),
            (named.domains, self._inside),
            (named.texts, self._texts),
            ({part for url in named.urls for part in _beginnings(url)} if self._urls else (), self._urls),
        ):
            for name in names:
                if name in known:
                    return known[name]
        return None

    def _of_patterns(self, named: Named) -> str | None:
        mails = frozenset(text for text in named.texts if "@" in text and "/" not in text)
        for (matcher, known), names in zip(self._matchers, (named.hosts, mails, named.urls), strict=True):
            for name in names if known else ():
                if (match := matcher.fullmatch(name)) is not None:
                    return list(known.values())[(match.lastindex or 1) - 1]
        for name in named.patterns:
            for known in (self._host_patterns, self._hosts):
                for other, entry in known.items():
                    if _overlap(name, other):
                        return entry
        return None

    def _overlapping(self, network: Network) -> str | None:
        """The entry of a network that contains this one, or that is in it."""
        bits, first = network.max_prefixlen, int(network.network_address)
        for (version, length), known in self._networks.items():
            if version == network.version and length <= network.prefixlen:
                entry = known.get(first >> (bits - length) if length else 0)
                if entry is not None:
                    return entry
        starts = self._starts[network.version]
        at = bisect_left(starts, (first, ""))
        if at < len(starts) and starts[at][0] <= int(network.broadcast_address):
            return starts[at][1]
        return None


def _own_networks(networks: Iterable[Network]) -> set[Network]:
    """Leave out all of IPv4, which lies inside wide networks of IPv6: protecting those must not protect all of it."""
    own = set(networks)
    wide = any(network.version == 6 for network in own)
    return {network for network in own if network.prefixlen or (network.version == 4 and not wide) or len(own) == 1}


def _prefix(network: Network) -> int:
    length = network.prefixlen
    return int(network.network_address) >> (network.max_prefixlen - length) if length else 0


def _matcher(patterns: Iterable[str]) -> re.Pattern[str]:
    """Matches what any of these patterns does, with a group for each."""
    return re.compile("|".join(f"({_WILD.sub(_as_regex, text)})" for text in patterns), re.S)


def _as_regex(part: re.Match[str]) -> str:
    return {"*": ".*", "?": "."}.get(part[0]) or re.escape(part[0])


def _beginnings(url: str) -> Iterable[str]:
    """A URL as `host/path`, and those above it."""
    parts = url.split("/")[:MAX_SEGMENTS]
    return ("/".join(parts[:number]) for number in range(1, len(parts) + 1))


def _overlap(first: str, second: str) -> bool:
    """Whether two patterns, in which `*` is any text and `?` any character, can mean the same."""
    for ours, other in zip(first, second, strict=False):  # as most differ early
        if "*" in (ours, other):
            break
        if ours != other and "?" not in (ours, other):
            return False
    states = {(0, 0)}
    seen = set(states)
    while states:
        i, j = states.pop()
        if i == len(first) and j == len(second):
            return True
        steps = []
        if i < len(first) and first[i] == "*":
            steps += [(i + 1, j), *([(i, j + 1)] if j < len(second) else [])]
        if j < len(second) and second[j] == "*":
            steps += [(i, j + 1), *([(i + 1, j)] if i < len(first) else [])]
        if i < len(first) and j < len(second) and (first[i] == second[j] or "?" in (first[i], second[j])):
            steps.append((i + 1, j + 1))
        for step in steps:
            if step not in seen:
                seen.add(step)
                states.add(step)
    return False
