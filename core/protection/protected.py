"""The list of protected targets, and whether a target or a text names one (core/docs/guards.md#protected-targets)."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

import idna

from core.protection.parsing import MAX_CHARS, MalformedError, Network, Parsed, host_in, network_in, parse, refanged

FILE = "file:"
MAX_FILE_BYTES = 2 * 1_048_576
MAX_ENTRIES = 10_000  # of a file; reading them takes a second at most
REMEMBERED = 65_536  # texts whose answer is kept until the list changes
_BETWEEN_WORDS = re.compile(r"[\s\"'`“”‘’„«»()\[\]{}<>,;=|]+")
_BETWEEN_PARTS = re.compile(r"[/\\:@]+")
_LIKE_ADDRESS = re.compile(r"[0-9a-f]*[.:][0-9a-f.:]*(?:/[0-9]{1,3})?")
_WILD = re.compile(r"[*?]|[^*?]+")
_EMBEDDED = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"), IPv6Network("2002::/16"))
"""Where IPv6 has addresses of IPv4 inside: mapped, NAT64, 6to4."""
_Stamp = tuple[int, int, int, int]


def entry_problem(entry: str) -> str:
    """What is wrong with an entry, as a sentence without its full stop, or `""`."""
    text = entry.strip()
    if text.startswith(FILE):
        return (
            "" if text.removeprefix(FILE).strip() else f"{text!r} names no file; write it as in file:crown-jewels.txt"
        )
    if not text:
        return "an entry is empty; write an address, a host, a pattern or file:NAME"
    if re.search(r"[\s,;]", text):
        return f"{text[:100]!r} looks like several entries; write each on its own"
    if len(text) > MAX_CHARS:
        return f"an entry has over {MAX_CHARS} characters; write a shorter one"
    if "://" in text:
        if re.search(r"[*?]", text.removesuffix("/*")):
            return f"{text[:100]!r} is a URL with a pattern; write its beginning alone, which protects what is below"
        try:
            parse("url", text.removesuffix("*"))
        except MalformedError as error:
            return str(error)
    if re.fullmatch(r"[0-9.]+/.*|[0-9a-f.]*:[0-9a-f:.]*/.*", text, re.I) and network_in(text) is None:
        try:
            return (
                f"{text!r} has bits set beyond its length; write {ip_network(text, strict=False)}, or the address alone"
            )
        except ValueError:
            return f"{text!r} is no network; write it in full, such as 10.0.0.0/8 or 2001:db8::/32"
    if re.fullmatch(r"[0-9]+[0-9.]*[-*?][0-9.*?-]*|[0-9]+(?:\.[0-9]+){1,2}|0x[0-9a-f]+|[0-9]{8,10}", text, re.I):
        return f"{text!r} is no address in full; write a network, or each address on its own"
    return ""


@dataclass(frozen=True)
class Unread:
    """A list that can't be read: until it can, everything is protected. The problem is a sentence."""

    problem: str

    def entry_for(self, _: Parsed | str) -> str | None:
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
        stamps, targets = self._known
        if [_stamp(file) for file in self._files] != stamps:
            _, targets = self._known = self._read()
        return targets

    def _read(self) -> "tuple[Sequence[_Stamp | None], ProtectedList | Unread]":
        """The state of its files, and the list."""
        # As of before reading: a change while it is read is seen the next time.
        return [_stamp(file) for file in self._files], self._targets()

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


class ProtectedList:
    """Entries by what they are, so that a target is compared with all at once."""

    problem = ""

    def __init__(self, entries: Iterable[str]) -> None:
        self._texts: dict[str, str] = {}
        self._hosts: dict[str, str] = {}
        self._labels: dict[str, str] = {}  # entries of one label
        self._first_labels: dict[str, str] = {}  # of entries that are full names
        self._above: dict[str, str] = {}  # domains with a protected host in them
        self._urls: dict[str, str] = {}  # as `host/path`
        self._patterns: dict[str, str] = {}
        self._networks: dict[tuple[int, int], dict[int, str]] = {}  # by version and length, by prefix
        self._starts: dict[int, list[tuple[int, str]]] = {4: [], 6: []}
        for entry in entries:
            self._add(entry.strip(), entry)
        for starts in self._starts.values():
            starts.sort()
        self._matcher = re.compile("|".join(f"({_WILD.sub(_as_regex, text)})" for text in self._patterns), re.S)
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._in_text)

    def entry_for(self, target: Parsed | str) -> str | None:
        """The entry that protects a target, or anything that a text names, as `protected (10.0.0.0/8)`; None if none.

        A text that is too long to be compared counts as protected.
        """
        if not isinstance(target, Parsed) or target.kind == "text":
            return self._remembered(target if isinstance(target, str) else target.value)
        entry = self._texts.get(target.value.casefold())
        if entry is None and target.kind == "address":
            entry = self._of_network(ip_network(target.value))
        elif entry is None and target.kind == "host":
            entry = self._of_host(target.value, is_alone=True)
        elif entry is None and target.kind == "mail":
            entry = self._of_pattern(target.value.casefold()) or self._of_name(target.value.rpartition("@")[2])
        elif entry is None and target.kind == "url":
            entry = self._of_url(target.value)
        return None if entry is None else f"protected ({entry})"

    def entry_between(self, first: Parsed, last: Parsed) -> str | None:
        """The entry that protects an address of those between two, in either order."""
        ends = [ip_network(one.value) for one in (first, last)]
        if ends[0].version != ends[1].version or any(end.prefixlen != end.max_prefixlen for end in ends):
            return None
        low, high = sorted(ends, key=lambda end: int(end.network_address))
        starts = self._starts[low.version]
        at = bisect_left(starts, (int(low.network_address), ""))
        is_inside = at < len(starts) and starts[at][0] <= int(high.network_address)
        entry = starts[at][1] if is_inside else self._of_network(low)
        return None if entry is None else f"protected ({entry})"

    # --- entries ------------------------------------------------------------------------------------------------------

    def _add(self, text: str, entry: str) -> None:
        self._texts[text.casefold()] = entry
        if (network := network_in(text)) is not None:
            self._networks.setdefault((network.version, network.prefixlen), {})[_prefix(network)] = entry
            self._starts[network.version].append((int(network.network_address), entry))
        elif "://" in text:
            url = parse("url", text.removesuffix("*"))
            self._texts[url.value.casefold()] = entry
            self._urls[_path_of(url.value).rstrip("/")] = entry
            self._add_above(host_of(url.value), entry, with_itself=True)
        elif "*" in text or "?" in text:
            self._patterns[text.casefold()] = entry
            fixed = re.split(r"[*?]", text)[-1]
            if fixed.startswith(".") and (host := host_in(fixed[1:])):
                self._add_above(host, entry, with_itself=True)
        elif "@" in text:
            local, _, domain = text.rpartition("@")
            self._texts[f"{local}@{host_in(domain) or domain}".casefold()] = entry
            self._add_above(host_in(domain) or domain, entry, with_itself=True)
        elif (host := host_in(text)) is not None:
            for form in _forms(host):
                label, dot, _ = form.partition(".")
                self._hosts[form] = entry
                (self._first_labels if dot else self._labels)[label] = entry
            self._add_above(host, entry, with_itself=False)

    def _add_above(self, host: str, entry: str, *, with_itself: bool) -> None:
        for form in _forms(host):
            labels = form.split(".")
            for number in range(0 if with_itself else 1, len(labels)):
                self._above.setdefault(".".join(labels[number:]), entry)

    # --- what is compared ---------------------------------------------------------------------------------------------

    def _in_text(self, text: str) -> str | None:
        if len(text) > MAX_CHARS:
            return "not known to be unprotected: it is too long"
        plain = unicodedata.normalize("NFKC", refanged(text)).strip()
        if len(plain) > MAX_CHARS:  # a character may become 18
            return "not known to be unprotected: it is too long"
        words = {plain, *_BETWEEN_WORDS.split(plain)}
        folded = {word.casefold().removesuffix("$"): word for word in words}
        parts = {part.removesuffix("$") for word in folded for part in _BETWEEN_PARTS.split(word)}
        for word, written in folded.items():
            is_alone = "." in word or written == plain
            entry = self._of_word(word, is_alone=is_alone) or self._of_url(written)
            if entry is not None:
                return f"protected ({entry})"
        found = (self._of_word(part, is_alone=False) for part in parts - folded.keys())
        entry = next((entry for entry in found if entry is not None), None)
        return None if entry is None else f"protected ({entry})"

    def _of_word(self, word: str, *, is_alone: bool) -> str | None:
        if word in self._texts:
            return self._texts[word]
        word = word.removesuffix(".")
        if _LIKE_ADDRESS.fullmatch(word) and (network := network_in(word)) is not None:
            return self._of_network(network)
        return self._of_host(word, is_alone=is_alone)

    def _of_host(self, host: str, *, is_alone: bool) -> str | None:
        """`is_alone`: whether all hosts below it are meant as well."""
        return self._of_name(host) or (self._above.get(host) if is_alone else None)

    def _of_name(self, host: str) -> str | None:
        label, dot, _ = host.partition(".")
        entry = self._hosts.get(host) or self._labels.get(label)
        if entry is None and not dot:
            entry = self._first_labels.get(label)
        return entry or self._of_pattern(host) or (self._of_pattern(label) if dot else None)

    def _of_pattern(self, name: str) -> str | None:
        for form in _forms(name) if self._patterns else ():
            match = self._matcher.fullmatch(form)
            if match is not None and match.lastindex is not None:
                return list(self._patterns.values())[match.lastindex - 1]
        return None

    def _of_url(self, text: str) -> str | None:
        if "://" not in text:
            return None
        try:
            url = parse("url", text)
        except MalformedError:
            return None  # its parts are compared
        host = host_of(url.value)
        network = network_in(host)
        entry = self._of_name(host.removesuffix(".")) if network is None else self._of_network(network)
        if entry is None and self._urls:
            entry = next((self._urls[part] for part in _beginnings(_path_of(url.value)) if part in self._urls), None)
        return entry

    def _of_network(self, network: Network) -> str | None:
        return next((entry for one in (network, *embedded_in(network)) if (entry := self._overlapping(one))), None)

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
        is_inside = at < len(starts) and starts[at][0] <= int(network.broadcast_address)
        return starts[at][1] if is_inside else None


def _prefix(network: Network) -> int:
    length = network.prefixlen
    return int(network.network_address) >> (network.max_prefixlen - length) if length else 0


def embedded_in(network: Network) -> Iterator[IPv4Network]:
    """The IPv4 networks that an IPv6 network has inside."""
    if isinstance(network, IPv4Network):
        return
    for around in _EMBEDDED:
        if around.subnet_of(network):
            yield IPv4Network("0.0.0.0/0")
        elif network.subnet_of(around):
            shift = 128 - around.prefixlen - 32
            bits = min(network.prefixlen - around.prefixlen, 32)
            yield IPv4Network(((int(network.network_address) >> shift) & 0xFFFF_FFFF, bits), strict=False)


def _forms(name: str) -> set[str]:
    """A host, or a mail address, in ASCII and as people write it."""
    local, at, host = name.rpartition("@")
    other = host
    if not host.isascii():
        other = host_in(host) or host
    elif "xn--" in host:
        with suppress(idna.IDNAError, UnicodeError):
            other = unicodedata.normalize("NFKC", idna.decode(host)).casefold()
    return {name, f"{local}{at}{other}"}


def host_of(url: str) -> str:
    """The host of a canonical URL, without brackets."""
    authority = re.split("[/?]", url.partition("://")[2], maxsplit=1)[0]
    return re.sub(":[0-9]*$", "", authority).strip("[]").casefold()


def _path_of(url: str) -> str:
    """A canonical URL as `host/path`, as servers may read it: without empty segments and in small letters."""
    path = url.partition("://")[2].partition("?")[0].partition("/")[2].casefold()
    return "/".join([host_of(url), *filter(None, path.split("/"))])


def _beginnings(path: str) -> Iterable[str]:
    """A path, and those above it."""
    parts = path.split("/")
    return ("/".join(parts[:number]) for number in range(1, len(parts) + 1))


def _as_regex(part: re.Match[str]) -> str:
    return {"*": ".*", "?": "."}.get(part[0]) or re.escape(part[0])
