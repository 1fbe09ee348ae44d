"""Addresses and networks in every notation (core/docs/guards.md#spellings)."""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

ANY: frozenset[Network] = frozenset({IPv4Network("0.0.0.0/0"), IPv6Network("::/0")})
_MAX_CHARS = 128  # the length of a range of two of the longest addresses
_V4 = re.compile(r"[0-9][0-9a-fx.]{0,63}")
_OCTET = re.compile(r"([0-9*?]{1,3})(?:-([0-9]{1,3}))?")
_REVERSED_V4 = re.compile(r"((?:[0-9]{1,3}\.){1,4})in-addr\.arpa")
_IN_NAME_V4 = re.compile(
    r"(?<![0-9a-z])(?<![0-9][._-])([0-9]{1,3})([._-])([0-9]{1,3})\2([0-9]{1,3})\2([0-9]{1,3})(?![0-9a-z])"
)
_IN_NAME_V6 = re.compile(
    r"(?<![0-9a-z-])([0-9a-f-]*--[0-9a-f-]*|(?:[0-9a-f]{1,4}-){7}[0-9a-f]{1,4})(?:s[0-9a-z]*)?(?![0-9a-z-])"
)
_REVERSED_V6 = re.compile(r"((?:[0-9a-f]\.){1,32})ip6\.arpa")

# Where IPv6 has IPv4 inside: the network, and how many bits of the address stand before it.
_EMBEDDINGS = tuple(
    IPv6Network(text)
    for text in ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/96", "2002::/16")
)
_ISATAP = (0x5EFE, 0x0200_5EFE)


@lru_cache(maxsize=8_192)  # the readings of a text have the same words
def networks_of(text: str) -> frozenset[Network]:
    """The addresses or networks that a word spells; IPv4 inside IPv6 counts as both. Empty if it spells none.

    An address, a network with its length or mask, a range, octets with `*`, `?` or `-`, a reverse name.
    """
    if len(text) > _MAX_CHARS:
        return frozenset()
    text = text.lower()
    address, slash, length = text.partition("/")
    networks: set[Network] = {ipaddress.ip_network(item) for item in addresses_of(text)}
    if slash:
        networks |= {network for item in addresses_of(address) if (network := network_of(item, length)) is not None}
    else:
        networks |= {*_range(text), *_octets(text), *_reversed(text), *_in_name(text)}
    return frozenset(networks) | {inner for network in networks for inner in embedded_in(network)}


def addresses_of(text: str) -> set[Address]:
    """The addresses that a word is; two where programs read it differently."""
    if ":" in text:
        head, _, tail = text.rpartition(":")
        addresses: set[Address] = set()
        for spelled in (text, *(f"{head}:{item}" for item in _v4(tail) if "." in tail)):
            with suppress(ValueError):
                addresses.add(IPv6Address(spelled))
        return addresses
    addresses = {*_v4(text)}
    if re.fullmatch(r"[0-9]{10,39}|0x[0-9a-f]{9,32}", text):
        number = int(text, 16 if text.startswith("0x") else 10)
        if 2**32 <= number < 2**128:
            addresses.add(IPv6Address(number))
    return addresses


def _v4(text: str) -> set[IPv4Address]:
    """With octal or decimal parts where they begin with 0, with hexadecimal ones, and with fewer than four."""
    addresses: set[IPv4Address] = set()
    text = re.sub(r"^([0-9]{8,10})\.0*$", r"\1", text)  # a float
    if not _V4.fullmatch(text):
        return addresses
    parts = text.split(".")
    for base in (8, 10):
        with suppress(ValueError):
            *octets, last = [_number(part, base) for part in parts]
            if len(octets) < 4 and all(octet < 256 for octet in octets) and last < 256 ** (4 - len(octets)):
                number = last + sum(octet << (24 - 8 * at) for at, octet in enumerate(octets))
                # A smaller number alone is a count, a port or an id, and `10.0` a version.
                if (number >= 2**24 and not octets) or len(octets) > 1 or (octets and last):
                    addresses.add(IPv4Address(number))
    return addresses


def _number(text: str, base: int) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, base if text.startswith("0") else 10)


def network_of(address: Address, length: str) -> Network | None:
    """The network around an address, by a number of bits or a mask."""
    try:
        return ipaddress.ip_network(f"{address}/{length}", strict=False)
    except ValueError:
        return None


def _range(text: str) -> Iterator[Network]:
    """The networks of `10.0.0.1-10.0.0.9`, either end first."""
    first, _, last = text.replace("..", "-").partition("-")
    for low in addresses_of(first.strip()) if last else ():
        for high in addresses_of(last.strip()):
            if low.version == high.version:
                yield from ipaddress.summarize_address_range(*sorted((low, high)))


def _octets(text: str) -> Iterable[Network]:
    """The networks from the lowest to the highest of `10.0.*`, `10.0.0.1-9`, `1?.0.0.1`."""
    parts = [_OCTET.fullmatch(part) for part in text.split(".")]
    is_short = len(parts) < 4 and text[:1].isdigit() and text.endswith(".*")
    if not re.search(r"[*?-]", text) or not (is_short or len(parts) == 4):
        return ()
    low = high = 0
    for part in parts:
        if part is None:
            return ()
        first, last = part[1].replace("?", "0"), part[2] or part[1].replace("?", "9")
        ends = (0, 255) if "*" in first else (int(first), int(last))
        low, high = low << 8 | min(*ends, 255), high << 8 | min(max(ends), 255)
    unnamed = 8 * (4 - len(parts))
    return ipaddress.summarize_address_range(
        IPv4Address(low << unnamed), IPv4Address((high << unnamed) + 2**unnamed - 1)
    )


def _reversed(name: str) -> set[Network]:
    """The network that a name below `in-addr.arpa` or `ip6.arpa` stands for."""
    if (match := _REVERSED_V4.fullmatch(name)) is not None:
        octets = [int(octet) for octet in reversed(match[1].split(".")) if octet]
        if max(octets) < 256:
            return {IPv4Network((bytes(octets).ljust(4, b"\0"), 8 * len(octets)))}
    if (match := _REVERSED_V6.fullmatch(name)) is not None:
        digits = "".join(reversed(match[1].split(".")))
        return {IPv6Network((int(digits.ljust(32, "0"), 16), 4 * len(digits)))}
    return set()


def _in_name(name: str) -> Iterator[Network]:
    """The addresses in `ip-10-0-0-5.internal`, `10.0.0.5.nip.io`, `2001-db8--1.ipv6-literal.net`."""
    for match in _IN_NAME_V4.finditer(name):
        with suppress(ValueError):
            yield IPv4Network(".".join(str(int(match[part])) for part in (1, 3, 4, 5)))
    for match in _IN_NAME_V6.finditer(name):
        with suppress(ValueError):
            yield IPv6Network(match[1].replace("-", ":"))


def embedded_in(network: Network) -> Iterator[Network]:
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
