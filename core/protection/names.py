"""What a text names: addresses, networks, hosts, URLs (core/docs/guards.md#spellings).

A responder is foreign code, and nobody knows which spellings it understands. So each reading of a text is cut at every
character that can't be part of a name, and all pieces are names: `hxxp://0x0a.0.0[.]5:443/` names 10.0.0.5. Only path
and query of a URL name nothing.
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import idna

from core.protection.addresses import ANY, Network, embedded_in, networks_of
from core.protection.readings import ESCAPED, INVISIBLE, UnreadableError, readings

MAX_PATTERNS = 64  # of a text; each is compared with all entries
MAX_NAME_CHARS = 512
MAX_PATH_CHARS = 2_048

_CHUNK = re.compile(r"[^\s\"'`<>]+")
_WORD = re.compile(r"(?:&amp;|[^,;|])+")
_SLASHES = rf"[/\\{ESCAPED}]"
_BEGIN = re.compile(rf"([^/?#]*?)(?<![a-z0-9+.*_-])[a-z][a-z0-9+.*_-]{{1,30}}:{_SLASHES}+|{_SLASHES}{{2,}}", re.I)
"""Of a URL, up to its user or host; also one after another word, as in `url=http://dc01`."""
_PATH = re.compile("[/?#]")
_PATH_OR_BACKSLASH = re.compile(rf"[/?#\\{ESCAPED}]")
_LENGTH = re.compile(r"/[0-9.]{1,15}")
_DOTTED = re.compile(r"\w\.\w")
_NAME = re.compile(rf"[^\x00-\x20!-)+,/:-@\[-^`{{-\xa0{ESCAPED}]+")
_PATTERN = re.compile(rf"[^\x00-\x20!-)+,/:->@\[-^`{{-\xa0{ESCAPED}]+")
_CHOICE = re.compile(r"(?<=[\w\]}])(?:\[[\w:!^-]{1,64}\]|\{[\w.,-]{1,64}\})")
"""In a pattern, as in `dc0[1-3]` and `dc{01,02}`."""
_LOCAL_PART = re.compile(rf"[^\s@:/\\()\[\]=&?{ESCAPED}]+$")
_COLONS = re.compile(r"(?<![0-9a-f.:])[0-9a-f.]{0,40}(?::[0-9a-f.]{0,40}){2,10}", re.I)
_NUMBER = r"(?<![0-9a-fx.:])([0-9a-fx.:]+)"
_MASKED = re.compile(rf"{_NUMBER}(?:[/{ESCAPED}]| (?=255\.|0\.))(?=([0-9.]{{1,15}}))", re.I)
_RANGE = re.compile(rf"{_NUMBER}(?<!\.) ?(?:-+|\.{{2,}}|~|to|through|thru|until) ?(?=([0-9a-fx.:]{{1,64}}))", re.I)
_HOST_TYPES = frozenset({"ip", "domain", "fqdn", "hostname", "url"})
"""Of artifacts whose `user@host` is a host, and not a mail address."""
_NUMBERED = re.compile(rf"(?://|@|(?:https?|wss?|ftp):)(0x[0-9a-f]*|[0-9]+(?:\.0+)?)\.?(?![^:/?#\\{ESCAPED}])", re.I)
"""A host that is a number; a small one elsewhere is a count, a port, an id."""
_JOINTS = frozenset(f"@/\\{ESCAPED}")
_EDGES = "._-"


@dataclass
class Named:
    """What a text names."""

    networks: set[Network] = field(default_factory=set)
    """Addresses and networks, those in IPv6 as IPv4 too."""
    hosts: set[str] = field(default_factory=set)
    """What may be the name of a host, in ASCII and small letters."""
    domains: set[str] = field(default_factory=set)
    """Hosts that stand alone, so that all below them may be meant as well."""
    patterns: set[str] = field(default_factory=set)
    """Hosts with `*` or `?` in them."""
    urls: set[str] = field(default_factory=set)
    """As `host/path`, without scheme, user, port and query."""
    texts: set[str] = field(default_factory=set)
    """Words, mail addresses and the whole text in small letters."""
    chars_read: int = 0
    """In all readings."""


@lru_cache(maxsize=32_768)
def named_in(text: str) -> Named:
    """What a text names. Raises UnreadableError."""
    named = Named()
    seen: set[str] = set()
    seen_visible: set[str] = set()
    for reading in readings(text):
        named.chars_read += len(reading)
        named.texts.add(_as_text(reading))
        if "*" in reading and not reading.strip(" *."):
            named.networks |= ANY
        chunks = _CHUNK.findall(reading)
        words = [word for chunk in chunks for word in _WORD.findall(chunk)]
        for word in {*chunks, *words} - seen:
            seen.add(word)
            named.texts |= {_as_text(word)}
            named.urls |= set(_urls(word))
            for pattern in _patterns(word, is_whole=len(words) == 1):
                networks = networks_of(pattern)
                named.networks |= networks
                named.patterns |= set() if networks else pattern_forms(pattern)
        visible = " ".join(map(_without_path, words))
        if visible not in seen_visible:
            seen_visible.add(visible)
            _add_names(named, visible)
        if len(named.patterns) > MAX_PATTERNS:
            raise UnreadableError("it has too many patterns")
    named.texts -= {""}
    return named


def addresses_in(text: str) -> list[str]:
    """The address that a text spells, or two if programs read it differently; empty if it names more."""
    try:
        networks = named_in(text).networks
    except UnreadableError:
        return []
    is_one = len(networks) <= 2 and all(network.prefixlen == network.max_prefixlen for network in networks)
    return [str(network.network_address) for network in networks] if is_one else []


@lru_cache(maxsize=1_024)
def targets_in(text: str, data_type: str) -> frozenset[str]:
    """The canonical names of a target, equal for all its spellings.

    The addresses that a text names; without any, the hosts of its URLs, its mail addresses, its host, or all of it.
    """
    try:
        if networks := named_in(text).networks:
            # An IPv4 address is the same target in IPv6.
            return frozenset(str(one) for one in networks if networks.isdisjoint(embedded_in(one)))
        return frozenset().union(*(_targets(reading, data_type) for reading in readings(text)))
    except UnreadableError:
        return frozenset({text})


def _targets(reading: str, data_type: str) -> Iterable[str]:
    words = [word for chunk in _CHUNK.findall(reading) for word in _WORD.findall(chunk)]
    if hosts := {url.partition("/")[0] for word in words if _is_url(word) for url in _urls(word)}:
        return hosts
    visible = " ".join(map(_without_path, words))
    if data_type.lower() not in _HOST_TYPES:
        found = (mail for before, after in pairwise(visible.split("@")) for mail in _mails(before, after))
        if mails := {mail for mail in found if "." in mail.rpartition("@")[2]}:
            return mails
    is_dn = len(words) > 1 and all("=" in word for word in words)  # such as CN=DC01,OU=Servers
    names = [name for name in _NAME.findall(words[0] if is_dn else visible) if not name.isdecimal()]
    if 0 < len(names) < 3 and not re.search(r"\s", reading.strip()):  # such as CORP\dc01, host=dc01:443, HOST/dc01
        return host_forms(names[-1].strip(_EDGES))
    return [_as_text(reading)]


def _is_url(word: str) -> bool:
    host = _without_path(word)
    return _BEGIN.match(word) is not None or (host != word and "@" not in host)


def _without_path(word: str) -> str:
    """A word without the path and query of a URL, which no parser takes for its host, and without its scheme."""
    if (begin := _BEGIN.match(word)) is not None:
        is_scheme = re.search(f"{_SLASHES}{{2}}$", begin[0]) and not (begin[1] or "").endswith(":")
        before = begin[1] or "" if is_scheme else begin[0]  # dc01:/srv and http:dc01:/ name dc01
        return f"{before} //{_PATH.split(word[begin.end() :], maxsplit=1)[0]}/"
    path = _PATH.search(word)
    if path is None or not _DOTTED.search(word[: path.start()]) or _LENGTH.fullmatch(word[path.start() :]):
        return word
    return word[: path.end()]


def _add_names(named: Named, visible: str) -> None:
    names = {(match[0], _stands_alone(match)) for match in _NAME.finditer(visible)}
    is_whole = len(names) == 1
    for word, is_alone in names:
        for name in {form for piece in _pieces(word) for form in (piece, piece.strip(_EDGES))}:
            networks = networks_of(name)
            named.networks |= networks
            if not networks and len(name) <= MAX_NAME_CHARS:
                forms = host_forms(name)
                named.hosts |= forms
                named.networks |= {network for form in forms for network in networks_of(form)}
                if is_alone and (is_whole or "." in name):
                    named.domains |= forms
    for run in set(_COLONS.findall(visible)):
        named.networks |= _with_colons(run)
    for number in _NUMBERED.findall(visible):
        for spelled in (f"0.{number}", f"0.0.{number}", number.replace(".", ".0.")):
            named.networks |= networks_of(spelled)
    for first, last in set(_MASKED.findall(visible)):
        named.networks |= {network for start in _starts(first) for network in networks_of(f"{start}/{last}")}
    for first, last in set(_RANGE.findall(visible)):
        named.networks |= {network for start in _starts(first) for network in networks_of(f"{start}-{last}")}
    for before, after in pairwise(visible.split("@")):
        named.texts |= set(_mails(before, after))


def _stands_alone(name: re.Match[str]) -> bool:
    return not {name.string[name.start() - 1 : name.start()], name.string[name.end() : name.end() + 1]} & _JOINTS


def _pieces(name: str) -> set[str]:
    """A name, and its parts between what is neither a letter nor a digit and beyond ASCII, such as a bullet."""
    if name.isascii():
        return {name}
    return {name, *"".join(char if _is_part(char) else " " for char in name).split()}


def _is_part(char: str) -> bool:
    return char.isascii() or (unicodedata.category(char)[0] in "LMN" and not INVISIBLE.match(char))


def _with_colons(run: str) -> frozenset[Network]:
    """The addresses of `2001:db8::1`, of `ip:2001:db8::1`, and of `2001:db8::1:443`."""
    head, _, port = run.rpartition(":")
    before_port = networks_of(head) if port.isdecimal() else frozenset()
    return before_port | (networks_of(run) or frozenset().union(*map(networks_of, _starts(run))))


def _starts(run: str) -> Iterator[str]:
    yield run
    yield from (run[match.end() :] for match in re.finditer(":", run[:64]))


def _mails(before: str, after: str) -> Iterator[str]:
    local, host = _LOCAL_PART.search(before[-MAX_NAME_CHARS:]), _NAME.match(after)
    if local and host and len(host[0]) <= MAX_NAME_CHARS:
        for name in (local[0], local[0].partition("+")[0]):
            yield from (f"{_as_text(name)}@{form}" for form in host_forms(host[0].strip(_EDGES)))


def _patterns(word: str, *, is_whole: bool) -> Iterator[str]:
    if re.search(r"[*?\[{]", word) and not _BEGIN.match(word):
        word = _CHOICE.sub(lambda choice: "?" if choice[0][0] == "[" and ":" not in choice[0] else "*", word)
        for match in _PATTERN.findall(re.split("[/#]", word, maxsplit=1)[0]):
            name = match.strip(_EDGES)
            is_host = is_whole or "." in name.removeprefix("*.") or not name.startswith("*.")  # *.log are files
            if is_host and re.search(r"[*?]", name) and re.search(r"\w", name):
                yield name[:MAX_NAME_CHARS]


def _urls(word: str) -> Iterator[str]:
    begin = _BEGIN.match(word)
    rest = word[begin.end() :] if begin else word
    for end in (_PATH_OR_BACKSLASH,) if word.startswith("\\\\") else (_PATH, _PATH_OR_BACKSLASH):
        cut = end.search(rest)
        at = cut.start() if cut else len(rest)
        names = _NAME.findall(re.sub(r":[0-9]*$", "", rest[max(0, at - MAX_NAME_CHARS) : at]))
        if names and (begin or cut):
            paths = set(_paths(rest[at : at + MAX_PATH_CHARS]))
            yield from (f"{form}{path}" for form in host_forms(names[-1].strip(_EDGES)) for path in paths)


def _paths(path: str) -> Iterator[str]:
    """A path as servers may read it: with and without parameters, empty segments and `..`."""
    plain = re.split("[?#]", path.replace("\\", "/").replace(ESCAPED, "/"), maxsplit=1)[0].casefold()
    for text in (plain, re.sub(";[^/]*", "", plain)):
        kept: list[str] = []
        for segment in text.split("/")[1:]:
            if segment == "..":
                del kept[-1:]
            elif segment != ".":
                kept.append(segment)
        short = posixpath.normpath(re.sub("/+", "/", text)) if text else ""
        yield from (form.rstrip("/") for form in (text, short, "".join(f"/{segment}" for segment in kept)))


def _as_text(text: str) -> str:
    return " ".join(text.casefold().replace(ESCAPED, "/").split()).strip("./ ")


def host_forms(host: str) -> set[str]:
    """A name in ASCII, as IDNA 2008, IDNA 2003 and a plain reader write it."""
    host = host.strip(".").lower()
    if host.isascii() and "xn--" not in host:
        return {host}
    labels = [_decoded(label) for label in host.split(".")]
    forms = {host, ".".join(labels)}
    for encode in (_idna_2008, _idna_2003):
        forms.add(".".join(encode(label) for label in labels))
    return {form.strip(".").lower() for form in forms}


def pattern_forms(text: str) -> set[str]:
    """The forms of a host with `*` or `?` in it."""
    star, mark = "0star0", "0mark0"
    forms = host_forms(text.replace("*", star).replace("?", mark))
    return {form.replace(star, "*").replace(mark, "?") for form in forms}


def _decoded(label: str) -> str:
    """A label of Punycode as its characters, also where it was not allowed to be one."""
    if not label.startswith("xn--"):
        return label
    try:
        plain = label[4:].encode("ascii").decode("punycode")
    except ValueError:
        return label
    return unicodedata.normalize("NFKC", plain).lower().replace(".", "") or label


def _idna_2008(label: str) -> str:
    if label.isascii():
        return label
    try:
        return idna.encode(idna.uts46_remap(label, std3_rules=False)).decode()
    except (ValueError, IndexError):
        return label


def _idna_2003(label: str) -> str:
    try:
        return label.encode("idna").decode()
    except ValueError:
        return label
