"""Targets: what a text names, as a kind and one canonical form (core/docs/guards.md#notations)."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Literal, NamedTuple, TypeAlias

import ada_url
import idna

TargetKind = Literal["address", "host", "url", "mail", "hash", "file", "text"]
Network: TypeAlias = IPv4Network | IPv6Network

MAX_CHARS = 16_384
MAX_NAME_CHARS = 253
MAX_NETWORK_CHARS = 64
MAX_LOOK_CHARS = 512  # nobody compares longer ones by eye
_SHOWN_CHARS = 100
_HASH_CHARS = {"md5": 32, "sha1": 40, "sha224": 56, "sha256": 64, "sha384": 96, "sha512": 128}
_MAILS = ("mail", "mail-address", "mail_address", "email", "email-address", "email_address")
_MAIL_ROLES = ("mail_sender", "mail-sender", "mail_recipient", "mail-recipient", "mail_from", "mail_to")
KINDS: Mapping[str, TargetKind] = {
    **dict.fromkeys(("ip", "cidr"), "address"),
    **dict.fromkeys(("domain", "fqdn", "hostname"), "host"),
    **dict.fromkeys(("url", "uri"), "url"),
    **dict.fromkeys((*_MAILS, *_MAIL_ROLES), "mail"),
    **dict.fromkeys(("hash", *_HASH_CHARS), "hash"),
}
"""By data type; all others are `text`."""
_DEFANGED = {"[.]": ".", "(.)": ".", "[:]": ":", "[@]": "@", "[://]": "://"}
_DEFANGED_SIGN = re.compile("|".join(map(re.escape, _DEFANGED)))
_HXXP = re.compile(r"hxxp(?=s?:)", re.I)
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LENGTH = re.compile(r"/(?:0|[1-9][0-9]{0,2})")
_HEX = re.compile(r"[0-9a-f]+")
_LOCAL_PART = re.compile(r"[^\s\x00-\x20\x7f@<>()\[\],;:\\\"]{1,64}")
_AUTHORITY = re.compile(r"[a-z][a-z0-9+.-]*:[/\\]*([^/?#\\]*)", re.I)
_DROPPED = re.compile(r"[\t\r\n]")  # as browsers do


class MalformedError(ValueError):
    """A text is no target of its data type; the message is a sentence without its full stop."""


@dataclass(frozen=True)
class Parsed:
    """A target. Two are the same only if they are equal."""

    kind: TargetKind
    value: str
    """The canonical form."""

    @property
    def digest(self) -> str:
        """What databases compare, since a value may be long."""
        return _digest(f"{self.kind}\0{self.value}")


def parse(data_type: str, text: str) -> Parsed:
    """The target that a text of this data type names. Raises MalformedError."""
    kind = KINDS.get(data_type.lower(), "text")
    if len(text) > MAX_CHARS:
        raise MalformedError(f"a text of {len(text)} characters is too long")
    text = text.strip()
    if not text:
        raise MalformedError("it is blank")
    if kind == "text":
        return Parsed("text", text)
    plain = refanged(text)
    parsed = _hash(data_type.lower(), plain) if kind == "hash" else _PARSERS[kind](plain)
    if parsed is None and data_type.lower() == "hostname" and re.search(r"\w", text) and not _ends_in_number(plain):
        return Parsed("text", text)
    if parsed is None or len(parsed.value) > MAX_CHARS:
        # Whole or not at all, so that the bot finds it where somebody may not see it.
        shown = f"`{text}`" if len(text) <= _SHOWN_CHARS else f"a text of {len(text)} characters"
        raise MalformedError(f"{shown} is no {_EXPECTED[kind]}")
    return parsed


_EXPECTED: Mapping[TargetKind, str] = {
    "address": "address or network in full, such as 10.0.0.0/8",
    "host": "name of a host or domain, such as srv1.example",
    "url": "URL in full with a plain host, such as https://srv1.example/path",
    "mail": "mail address alone, such as anna@corp.example",
    "hash": "hash in hexadecimal of a known length",
}


def refanged(text: str) -> str:
    """A text without the notations with which people defang it on purpose."""
    return _HXXP.sub("http", _DEFANGED_SIGN.sub(lambda found: _DEFANGED[found[0]], text))


def network_in(text: str) -> Network | None:
    """The address or network that a text is in full; an IPv4 address in IPv6 (`::ffff:`) is that of IPv4."""
    if len(text) > MAX_NETWORK_CHARS or "%" in text:
        return None
    address, slash, _ = text.partition("/")
    if slash and not _LENGTH.fullmatch(text[len(address) :]):
        return None
    try:
        network = ip_network(text)
    except ValueError:
        return None
    if isinstance(network, IPv6Network) and network.prefixlen >= 96 and network.network_address.ipv4_mapped:
        return IPv4Network((int(network.network_address.ipv4_mapped), network.prefixlen - 96))
    return network


def _address(text: str) -> Parsed | None:
    network = network_in(text)
    if network is None:
        return None
    is_one = network.prefixlen == network.max_prefixlen
    return Parsed("address", str(network.network_address if is_one else network))


def host_in(text: str) -> str | None:
    """The name of a host or domain in ASCII and small letters, without its final dot; None if it is none."""
    name = text.lower().removesuffix(".")
    if not name.isascii():
        with suppress(idna.IDNAError, UnicodeError):
            if len(name) <= MAX_NAME_CHARS:
                name = idna.uts46_remap(name, std3_rules=False).removesuffix(".")
    labels = name.split(".") if len(name) <= MAX_NAME_CHARS else []
    encoded: list[str] = []
    for label in labels:
        if _LABEL.fullmatch(label):
            encoded.append(label)
            continue
        try:
            encoded.append(idna.encode(label).decode())
        except (idna.IDNAError, UnicodeError):
            return None
    host = ".".join(encoded)
    is_host = encoded and len(host) <= MAX_NAME_CHARS and re.search("[a-z0-9]", host) and not _ends_in_number(host)
    return host if is_host else None


def _ends_in_number(text: str) -> bool:
    return _NUMBER.fullmatch(text.lower().removesuffix(".").rpartition(".")[2]) is not None


def _host(text: str) -> Parsed | None:
    with suppress(ValueError):
        if "%" not in text:
            return _address(str(ip_address(text.removesuffix("."))))
    host = host_in(text)
    return None if host is None else Parsed("host", host)


def _url(text: str) -> Parsed | None:
    authority = _AUTHORITY.match(_DROPPED.sub("", text))
    if authority is None:
        return None
    try:
        url = ada_url.URL(text)
    except ValueError:
        return None
    written = re.sub(r":[0-9]*$", "", authority[1].rpartition("@")[2])
    name, host = url.hostname.strip("[]"), _host(url.hostname.strip("[]"))
    if not name or host is None or "%" in written:
        return None
    if url.host_type == ada_url.HostType.IPV4 and written.removesuffix(".") != name:
        return None
    if url.username or url.password:
        url.username, url.password = "", ""
    url.hash = ""
    return Parsed("url", url.href)


def _mail(text: str) -> Parsed | None:
    local, _, domain = text.rpartition("@")
    host = host_in(domain)
    return Parsed("mail", f"{local}@{host}") if host and _LOCAL_PART.fullmatch(local) else None


def _hash(data_type: str, text: str) -> Parsed | None:
    lengths = [_HASH_CHARS[data_type]] if data_type in _HASH_CHARS else [*_HASH_CHARS.values()]
    text = text.lower()
    return Parsed("hash", text) if len(text) in lengths and _HEX.fullmatch(text) else None


_PARSERS: Mapping[TargetKind, Callable[[str], Parsed | None]] = {
    "address": _address,
    "host": _host,
    "url": _url,
    "mail": _mail,
}


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# --- what may be the same ---------------------------------------------------------------------------------------------


class Look(NamedTuple):
    """How a target looks to people, whatever its kind, as hashes: what may be the same as another has one in common.

    Two full names aren't compared by their first labels.
    """

    whole: frozenset[str]
    """Those of the whole, as it is and without regard to letter case."""
    label: frozenset[str]
    """That of the first label of a full name; empty for all others."""


@lru_cache(maxsize=4_096)
def look_of(target: Parsed) -> Look:
    """How a target looks."""
    label, dot, _ = target.value.partition(".")
    is_full = bool(dot) and target.kind == "host"
    whole = {_skeleton(target.value), _skeleton(target.value.casefold())}
    return Look(frozenset(whole), frozenset({_skeleton(label)} if is_full else ()))


def _skeleton(text: str) -> str:
    from disarm import skeleton_key  # it takes a fifth of a second, and most commands compare nothing

    return _digest(skeleton_key(text, digit_policy="tr39") if len(text) <= MAX_LOOK_CHARS else text)
