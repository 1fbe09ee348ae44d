"""What a text names, however it is spelled: addresses, networks, hosts (core/docs/guards.md#spellings).

A responder is foreign code, and nobody knows which spellings it understands. So a text names all that any usual program
would read in it: `hxxp://0x0a.0.0[.]5:443/` names 10.0.0.5. Where two readings differ, it names both.
"""

import html
import ipaddress
import re
import socket
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import pairwise
from typing import TypeAlias
from urllib.parse import unquote

import idna

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

MAX_CHARS = 16_384
"""Longer texts are not read: a hostile one would take seconds."""
MAX_ROUNDS = 8  # of decoding, each of which may bring out more
MAX_PORT = 65_535
MAX_TOKEN_CHARS = 2_048  # as long as a URL in use

# What is not shown, beside the category Cf: joiners, fillers, selectors of variants.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_DEFANGED = (
    (re.compile(r"[\[({<]\s*(?:\.|,|dot|d0t|punkt)\s*[\])}>]|(?<!\\)\\+[\[({<]?\.", re.I), "."),
    (re.compile(r"(?<=\w)[\\\[({<]*\s+(?:dot|d0t)\s+(?=\w)", re.I), "."),
    (re.compile(r"[\[({<]\s*(?:@|at)\s*[\])}>]", re.I), "@"),
    (re.compile(r"[\[({<]\s*(:(?://|\\\\)?)\s*[\])}>]"), r"\1"),
    (re.compile(r"[\[({<]\s*(/{1,2})\s*[\])}>]"), r"\1"),
)
_BRACKETS = re.compile(r"[\[\](){}<>\"'`]")
_SEPARATORS = re.compile(r"[\s,;|\"'`<>]+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.*_-]{0,30}:(?=[/\\])", re.I)
_OCTETS_WITH_STARS = re.compile(r"((?:[0-9]{1,3}\.){1,3})\*(?:\.\*){0,2}|\*(?:\.\*){3}")
_REVERSED_V4 = re.compile(r"((?:[0-9]{1,3}\.){1,4})in-addr\.arpa", re.I)
_REVERSED_V6 = re.compile(r"((?:[0-9a-f]\.){1,32})ip6\.arpa", re.I)
_EDGES = ".:/\\!?…)]} "

# Where IPv6 has IPv4 inside: the network, and how many bits of the address stand before it.
_EMBEDDINGS = tuple(
    IPv6Network(text)
    for text in ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/96", "2002::/16")
)
_ISATAP = (0x5EFE, 0x0200_5EFE)


class UnreadableError(ValueError):
    """A text can't be read within bounds; the message says why, as in `it is too long`."""


@dataclass(frozen=True)
class Named:
    """What a text names."""

    networks: frozenset[Network]
    """Addresses and networks, those in IPv6 as IPv4 too."""
    hosts: frozenset[str]
    """Names of hosts in ASCII and small letters, also those in URLs and mail addresses."""
    domains: frozenset[str]
    """Those that stand alone, so that all hosts below them may be meant as well."""
    patterns: frozenset[str]
    """Hosts with `*` in them."""
    urls: frozenset[str]
    """As `host/path`, without scheme, user, port and query."""
    texts: frozenset[str]
    """Words, mail addresses and the whole text in small letters, without invisible characters."""


@lru_cache(maxsize=32_768)
def named_in(text: str) -> Named:
    """What a text names. Raises UnreadableError."""
    if len(text) > MAX_CHARS:
        raise UnreadableError("it is too long")
    found = _Found()
    for variant in _variants(_cleaned(text)):
        found.texts.add(_as_text(variant))
        tokens = [token for token in _SEPARATORS.split(variant) if token]
        for token in tokens:
            if len(token) > MAX_TOKEN_CHARS:
                raise UnreadableError("one of its words is too long")
            found.add_token(token, is_whole=len(tokens) == 1)
        for first, second in pairwise(tokens):
            if second.startswith(("255.", "0.")):  # an address and its mask
                found.networks |= _networks(f"{first}/{second}")
        found.networks |= {item for part in re.findall(r"(?<!\S)\S+\s+-\s+\S+", variant) for item in _range(part)}
    networks = found.networks | {inner for network in found.networks for inner in _embedded(network)}
    return Named(
        frozenset(networks),
        frozenset(found.hosts),
        frozenset(found.domains),
        frozenset(found.patterns),
        frozenset(found.urls),
        frozenset(found.texts - {""}),
    )


@lru_cache(maxsize=8_192)
def canonical(text: str) -> str:
    """One spelling for all texts that are the same: of one address or host this, else the text in small letters."""
    try:
        cleaned = _cleaned(text[:MAX_CHARS])
    except UnreadableError:
        return text
    whole = cleaned.strip() if not _SEPARATORS.search(cleaned.strip()) else ""
    addresses = _networks(whole) or _networks(whole.strip(_EDGES))
    whole = whole.strip(_EDGES)
    v4 = sorted(str(inner) for network in addresses for inner in (network, *_embedded(network)) if inner.version == 4)
    if addresses:
        return (v4 or sorted(map(str, addresses)))[0]
    return min(_host_forms(whole), key=_ascii_first) if whole and _is_host(whole) else _as_text(cleaned)


def _ascii_first(form: str) -> tuple[bool, str]:
    return not form.isascii(), form


class _Found:
    """What has been found so far."""

    def __init__(self) -> None:
        self.networks: set[Network] = set()
        self.hosts: set[str] = set()
        self.domains: set[str] = set()
        self.patterns: set[str] = set()
        self.urls: set[str] = set()
        self.texts: set[str] = set()

    def add_token(self, token: str, *, is_whole: bool) -> None:
        self.texts.add(_as_text(token))
        self.texts.add(_as_text(token.strip(_EDGES)))
        self.networks |= _networks(token) | _networks(token.strip(_EDGES)) | set(_range(token))
        if is_whole and not token.strip("*."):  # a pattern for anything
            self.networks |= {IPv4Network("0.0.0.0/0"), IPv6Network("::/0")}
        scheme = _SCHEME.match(token)
        is_url = scheme is not None or token.startswith(("//", "\\\\"))
        rest = (token[scheme.end() :] if scheme else token).lstrip("/\\")
        authorities = {re.split(r"[/?#]", rest, maxsplit=1)[0], re.split(r"[/\\?#]", rest, maxsplit=1)[0]}
        if not is_url and rest.count("\\") == 1:  # DOMAIN\user
            authorities.add(rest.partition("\\")[2])
        for authority in authorities:
            users, _, _ = authority.rpartition("@")
            parts = authority.split("@")
            # A word such as `local` in a sentence is no domain.
            is_alone = not is_url and not users and rest == authority and (is_whole or "." in authority)
            for part in parts[1:] or parts:
                for host in _without_port(part):
                    self._add_host(host, rest[len(authority) :], users if not is_url else "", is_alone=is_alone)

    def _add_host(self, host: str, path: str, users: str, *, is_alone: bool) -> None:
        host = host.strip(".$ ")
        networks = _networks(host)
        self.networks |= networks
        if "*" in host and (is_alone or "." in host) and _is_host(host.replace("*", "x")):
            self.patterns |= pattern_forms(host)
        if networks or not _is_host(host):
            return
        forms = _host_forms(host)
        self.hosts |= forms
        for form in forms:
            self.networks |= _networks(form) | _reversed(form)
        if is_alone:
            self.domains |= forms
        if users:
            self.texts |= {f"{_as_text(users.rpartition(':')[2])}@{form}" for form in forms}
        path = re.split(r"[?#]", path.replace("\\", "/"), maxsplit=1)[0].rstrip("/")
        self.urls |= {f"{form}{path}" for form in forms} if path else set()


def _cleaned(text: str) -> str:
    """The text as a reader would see it: escapes decoded, defanging undone, invisible characters gone."""
    for _ in range(MAX_ROUNDS):
        before = text
        if not text.isascii():  # first, as they may stand inside an escape
            text = _INVISIBLE.sub("", "".join(char for char in text if unicodedata.category(char) != "Cf"))
        text = unquote(html.unescape(text), errors="ignore")
        text = unicodedata.normalize("NFKC", text).replace("。", ".")
        for pattern, plain in _DEFANGED:
            text = pattern.sub(plain, text)
        if text == before:
            return text
        if len(text) > 4 * MAX_CHARS:
            break
    raise UnreadableError("it is escaped too often")


def _variants(text: str) -> Iterable[str]:
    """The readings of control characters and brackets: as separators, or as nothing."""
    return {_CONTROLS.sub(" ", text), _BRACKETS.sub("", _CONTROLS.sub("", text)), _BRACKETS.sub(" ", text)}


def _as_text(text: str) -> str:
    return " ".join(text.casefold().split()).strip("./ ")


def _without_port(part: str) -> Iterator[str]:
    if part.startswith("["):
        yield part[1:].partition("]")[0]
    elif _networks(part):
        yield part
    elif part.count(":") != 1:
        yield part
        if part.count(":") < 4:
            yield from part.split(":")
    else:
        first, _, second = part.partition(":")
        yield first
        if not second.isdecimal() or len(second) > 5 or int(second) > MAX_PORT:  # such as mailto:dc01, http:01200000005
            yield second


def _is_host(text: str) -> bool:
    return bool(text) and len(text) <= 512 and not re.search(r"[\s/\\?#@:%*\[\]]", text)


def _host_forms(host: str) -> set[str]:
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
    """The forms of a host with `*` in it."""
    star = "0star0"
    return {form.replace(star, "*") for form in _host_forms(text.replace("*", star))}


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


# --- addresses and networks -------------------------------------------------------------------------------------------


def _networks(text: str) -> set[Network]:
    """The addresses or networks that a word is, in any notation; nothing if it is none."""
    text = text.strip("[]").lower()
    if not text or len(text) > 128 or text[0] not in "0123456789abcdef:*":
        return set()
    return set(_networks_of(text))


@lru_cache(maxsize=8_192)  # parts of one word are often the same
def _networks_of(text: str) -> frozenset[Network]:
    address, slash, length = text.partition("/")
    address = address.partition("%")[0]
    if slash and length:
        found = (_network(item, length) for item in _addresses(address))
        return frozenset(network for network in found if network is not None)
    if (match := _OCTETS_WITH_STARS.fullmatch(address)) is not None:
        return frozenset(_prefix_of([*filter(None, (match[1] or "").split("."))], 8))
    return frozenset(ipaddress.ip_network(item) for item in _addresses(address))


def _network(address: Address, length: str) -> Network | None:
    try:
        return ipaddress.ip_network(f"{address}/{length}", strict=False)
    except ValueError:
        return ipaddress.ip_network(address) if not re.fullmatch(r"[0-9.]+", length) else None


def _addresses(text: str) -> set[Address]:
    found: set[Address] = set()
    if ":" in text:
        head, _, tail = text.rpartition(":")
        for spelled in [text, *(f"{head}:{item}" for item in (_v4(tail) if "." in tail else ()))]:
            try:
                found.add(IPv6Address(spelled))
            except ValueError:
                continue
        return found
    found |= _v4(text)
    if re.fullmatch(r"[0-9]{10,39}|0x[0-9a-f]{9,32}", text):
        number = int(text, 16 if text.startswith("0x") else 10)
        if 2**32 <= number < 2**128:
            found.add(IPv6Address(number))
    return found


def _v4(text: str) -> set[IPv4Address]:
    """As C reads it (octal, hexadecimal, fewer parts), and with decimal parts whatever their zeros."""
    found: set[IPv4Address] = set()
    if not re.fullmatch(r"[0-9a-fx.]{1,64}", text) or not text[0].isdigit():
        return found
    with suppress(OSError):
        found.add(IPv4Address(socket.inet_aton(text)))
    parts = text.split(".")
    if len(parts) == 4 and all(part.isdigit() and len(part) < 16 and int(part) < 256 for part in parts):
        found.add(IPv4Address(".".join(str(int(part)) for part in parts)))
    elif len(parts) == 1 and text.isdigit() and int(text) < 2**32:
        found.add(IPv4Address(int(text)))
    return found


def _range(text: str) -> Iterator[Network]:
    """The networks of a range such as `10.0.0.1-10.0.0.9` or `10.0.0.1-9`."""
    first, dash, last = (part.strip() for part in text.partition("-"))
    if not dash or not first or not last or not first[0].isalnum():
        return
    if last.isdigit() and len(last) <= 3 and first.count(".") == 3:
        last = f"{first.rpartition('.')[0]}.{last}"
    for low in _addresses(first):
        for high in _addresses(last):
            if low.version == high.version:
                yield from ipaddress.summarize_address_range(*sorted((low, high)))


def _prefix_of(octets: list[str], bits: int) -> set[Network]:
    if any(int(octet) > 255 for octet in octets):
        return set()
    return {IPv4Network(f"{'.'.join([*octets, *['0'] * (4 - len(octets))])}/{len(octets) * bits}")}


def _reversed(name: str) -> set[Network]:
    """The network that a name below `in-addr.arpa` or `ip6.arpa` stands for."""
    if (match := _REVERSED_V4.fullmatch(name)) is not None:
        return _prefix_of([part for part in reversed(match[1].split(".")) if part], 8)
    if (match := _REVERSED_V6.fullmatch(name)) is not None:
        digits = "".join(reversed(match[1].split(".")))
        return {IPv6Network((int(digits.ljust(32, "0"), 16), 4 * len(digits)))}
    return set()


def _embedded(network: Network) -> Iterator[Network]:
    """The IPv4 networks that an IPv6 network has inside."""
    if network.version == 4:
        return
    for around in _EMBEDDINGS:
        if around.subnet_of(network):
            yield IPv4Network("0.0.0.0/0")
        elif network.subnet_of(around):
            shift = 128 - around.prefixlen - 32
            bits = min(network.prefixlen - around.prefixlen, 32)
            yield IPv4Network(((int(network.network_address) >> shift) & 0xFFFF_FFFF, bits), strict=False)
    if network.prefixlen == 128:
        address = network.network_address
        if address.teredo is not None:
            yield from (IPv4Network(item) for item in address.teredo)
        if (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
            yield IPv4Network(int(address) & 0xFFFF_FFFF)
