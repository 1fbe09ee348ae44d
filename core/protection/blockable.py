"""What may be on the block lists, and what their forms say of it (core/docs/blocklist.md#limits-of-what-is-blocked)."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from core.protection.parsing import KINDS, Network, Parsed, network_in
from core.protection.protected import ProtectedList, ProtectedTargets, embedded_in, host_of

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

BLOCK, UNBLOCK = "ResponderBot_Block_1_0", "ResponderBot_Unblock_1_0"
ListName = Literal["ip", "domain", "url", "hash"]
LISTS: Sequence[ListName] = get_args(ListName)
LIST_OF: Mapping[str, ListName] = {"address": "ip", "host": "domain", "url": "url", "hash": "hash"}
"""By the kind of a target."""
DATA_TYPES = tuple(data_type for data_type, kind in KINDS.items() if kind in LIST_OF)
WIDEST = {4: 16, 6: 32}  # bits; what is wider is a mistake

_SHARED = Path(__file__).with_name("shared.toml")
_OWN = ("slack.com", "*.slack.com", "slack-edge.com", "*.slack-edge.com")  # what people block and unblock with
_SPECIAL: Mapping[str, Sequence[str]] = {
    "this network": ["0.0.0.0/8", "::/128"],
    "loopback": ["127.0.0.0/8", "::1/128"],
    "link-local": ["169.254.0.0/16", "fe80::/10"],
    "multicast": ["224.0.0.0/4", "ff00::/8"],
    "broadcast": ["255.255.255.255/32"],
}


class Blockable:
    """Which targets can be blocked, with those that `[blocklist] never` names."""

    def __init__(self, never: Sequence[str] = ()) -> None:
        self._never = ProtectedTargets(never)

    def why_not(self, target: Parsed) -> str:
        """Why a target can't be blocked, as a sentence without its full stop, or `""`."""
        if target.kind not in LIST_OF:
            return f"{target.value[:100]} is no address, domain, URL or hash, so no list can have it"
        if problem := _problem(target):
            return problem
        why = self._never.current().entry_for(target) if self._never else None
        return "" if why is None else f"{target.value} is {why} by [blocklist] never, which an administrator may change"


@lru_cache(maxsize=4_096)  # an alert may have hundreds of targets, and is looked at often
def _problem(target: Parsed) -> str:
    host = host_of(target.value) if target.kind == "url" else target.value
    network = _network(target.kind, host)
    if network is not None:
        for one in (network, *embedded_in(network)):
            if one.prefixlen < WIDEST[one.version]:
                return f"{target.value} is wider than /{WIDEST[one.version]}"
            for word, special in _special():
                if special.version == one.version and special.overlaps(one):
                    return f"{target.value} is of {word}, which is no host elsewhere"
    elif target.kind in ("host", "url"):
        if _is_suffix(host, only_icann=True):
            return f"{host} is a public suffix: nobody owns it, and blocking it would block all below it"
        if "." not in host:
            return f"{host} has no dot, so no list can have it"
        if _own().entry_for(target) is not None:
            return f"{target.value} is a part of Slack, through which blocks are ended"
    return ""


def hint(target: Parsed) -> str:
    """What somebody should know before they block it, as a sentence without its full stop, or `""`."""
    host = host_of(target.value) if target.kind == "url" else target.value
    network = _network(target.kind, host)
    if network is None:
        is_shared = target.kind in ("host", "url") and _is_suffix(host, only_icann=False)
        sentence = f"many register names below {host}; a firewall that blocks subdomains too blocks all of them"
        return sentence if is_shared else ""
    for kind, name, shared in _shared():
        if shared.version == network.version and shared.overlaps(network):
            if kind == "resolver":
                return f"{target.value} is a resolver of {name}, which much depends on"
            return f"{target.value} is in a network of {name}, which many sites share"
    return ""


def _network(kind: str, host: str) -> Network | None:
    """The network that an address, or the host of a URL, is."""
    return network_in(host) if kind in ("address", "url") else None


@cache
def _own() -> ProtectedList:
    return ProtectedList(_OWN)


@cache
def _special() -> Sequence[tuple[str, Network]]:
    return [(word, ip_network(text)) for word, texts in _SPECIAL.items() for text in texts]


@cache
def _shared() -> Sequence[tuple[str, str, Network]]:
    def read() -> Iterator[tuple[str, str, Network]]:
        for kind, by_name in tomllib.loads(_SHARED.read_text("utf-8")).items():
            for name, texts in by_name.items():
                for text in texts:
                    yield kind, name, ip_network(text)

    return list(read())


def _is_suffix(host: str, *, only_icann: bool) -> bool:
    return bool(_suffixes(only_icann).is_public(host))


@cache
def _suffixes(only_icann: bool) -> "PublicSuffixList":
    from publicsuffixlist import PublicSuffixList  # reading its list takes a tenth of a second

    return PublicSuffixList(accept_unknown=False, only_icann=only_icann)
