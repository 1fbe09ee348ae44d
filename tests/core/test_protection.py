"""What `[protect]` holds for: overlaps, names, paths; and what it lets through, as core/docs/guards.md says."""

import ipaddress
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.common.errors import ResponderBotError
from core.protection import ProtectedList, ProtectedTargets, parse
from core.settings import load
from tests.core.test_parsing import LIKE

NETWORK = ipaddress.IPv4Network("10.20.0.0/16")
PROTECTED = ProtectedTargets(
    [str(NETWORK), "dc01.corp.example", "*.bücher.example", "dc7", "2001:db8::/32", "ceo@vip.example", "srv-?",
     "krbtgt", "https://intranet.example/admin", "d41d8cd98f00b204e9800998ecf8427e", "mü*.example",
     "*@löwe.example"]
).current()  # fmt: skip
addresses = st.integers(int(NETWORK[0]), int(NETWORK[-1])).map(ipaddress.IPv4Address)
others = st.ip_addresses(v=4).filter(lambda address: address not in NETWORK)


def is_protected(data_type: str, text: str) -> bool:
    return PROTECTED.entry_for(parse(data_type, text)) is not None


@given(addresses, st.integers(0, 32))
def test_what_overlaps_a_protected_network_is_protected(address: ipaddress.IPv4Address, length: int) -> None:
    network = ipaddress.IPv4Network((int(address), length), strict=False)
    high, low = divmod(int(address), 2**16)
    for text in (
        str(network), f"::ffff:{address}", f"64:ff9b::{high:x}:{low:x}", f"2002:{high:x}:{low:x}::1", "::/0",
    ):  # fmt: skip
        assert is_protected("ip", text), text
        assert PROTECTED.entry_for(f"see {text}, please"), text
    for data_type, text in (
        ("hostname", str(address)),
        ("url", f"https://{address}:8443/x"),
        ("other", f"a@{address}"),
    ):
        assert is_protected(data_type, text), text


def test_a_network_whose_last_address_is_protected_is_protected() -> None:
    protected = ProtectedTargets(["198.51.100.255"]).current()
    assert protected.entry_for(parse("ip", "198.51.100.254/31"))
    assert not protected.entry_for(parse("ip", "198.51.100.252/31"))


@given(others)
def test_other_addresses_are_not(address: ipaddress.IPv4Address) -> None:
    for data_type, text in (("ip", str(address)), ("ip", f"::ffff:{address}"), ("url", f"http://{address}/10.20.0.1/")):
        assert not is_protected(data_type, text), text
    assert PROTECTED.entry_for(f"host={address}") is None


@given(st.text(max_size=300))
def test_any_text_can_be_compared(text: str) -> None:
    PROTECTED.entry_for(text)


@pytest.mark.parametrize(
    ("data_type", "text", "expected"),
    [
        ("fqdn", "DC01.corp.example.", True), ("hostname", "dc01", True), ("hostname", "dc01.lab.example", False),
        ("hostname", "dc7", True), ("fqdn", "dc7.corp.example", True), ("fqdn", "xdc7.corp.example", False),
        ("domain", "corp.example", True), ("domain", "example", True), ("domain", "other.example", False),
        ("fqdn", "dc01.corp.example.evil.test", False), ("hostname", "srv-1", True), ("hostname", "srv-10", False),
        ("fqdn", "srv-1.corp.example", True), ("domain", "www.bücher.example", True),
        ("domain", "bücher.example", True),
        ("domain", "www.xn--bcher-kva.example", True), ("domain", "www.bucher.example", False),
        ("domain", "münchen.example", True), ("url", "https://xn--mnchen-3ya.example/", True),
        ("mail", "ceo@löwe.example", True), ("other", "ceo@xn--lwe-sna.example", True),
        ("url", "https://dc7/x", True), ("url", "https://dc01.corp.example:8443/", True),
        ("url", "http://x.example/dc7", False),
        ("url", "http://evil.test/?u=a@dc7", False), ("url", "http://INTRANET.example:80/x/../Admin//y?z", True),
        ("url", "https://intranet.example/administrator", False), ("url", "https://intranet.example/", False),
        ("domain", "intranet.example", True), ("mail", "root@dc7", True), ("mail", "CEO@vip.example", True),
        ("mail", "ceo2@vip.example", False), ("domain", "vip.example", True), ("mail", "dc7@evil.test", False),
        ("md5", "D41D8CD98F00B204E9800998ECF8427E", True), ("username", "KRBTGT", True),
        ("username", "CORP\\krbtgt", True),
        ("hostname", "CORP\\dc7$", True), ("other", "S-1-5-21-10-20-0-1", False), ("other", "sensor:12345", False),
    ],
)  # fmt: skip
def test_targets_of_every_kind(data_type: str, text: str, expected: bool) -> None:
    assert is_protected(data_type, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "dc7", "see dc7, please", "host=dc7", "host=dc7:443", "CN=DC7,OU=Servers,DC=corp", "HOST/dc7",
        "MSSQLSvc/dc7:1433",
        "dc7$@CORP", '{"host":"dc7"}', "{'a': ['dc7']}", "[dc7](http://evil.test/)", "--host=dc7", "/s:dc7",
        "ssh root@dc7",
        "ping dc7; id", "$(dc7)", "“dc7”", "dc7|x", "a\ndc7", "C:\\share\\dc7\\x", "dc7:/srv", "http://dc7@evil.test/",
        "block 10.20.1.2.", "10.20.0.1:443", "[2001:db8::1]:443", "10.20.0.0/15", "11.0.0.0/8 10.0.0.0/7",
        "see hxxps[://]dc7[.]corp[.]example/x", "https://intranet.example/admin/x", "mail ceo@vip.example",
        "ＤＣ７", "www.bücher.example", "corp.example", "krbtgt", "http://ok.example/dc7", "x" * 16_385,
    ],
)  # fmt: skip
def test_free_text_that_names_a_protected_target(text: str) -> None:
    assert PROTECTED.entry_for(text) is not None


LET_THROUGH = {
    "an escape or encoding, which nothing undoes": [
        "d%637",
        "&#100;c7",
        "\\u0064c7",
        "=64c7",
        "ZGM3",
        "aG9zdD1kYzc=",
        "d\u200bc7",
        "d^c7",
        "d''c7",
        "dc7!",
    ],
    "an address in another notation than in full": [
        "10.20",
        "0x0a140001",
        "169082881",
        "012.024.0.1",
        "10.20.*.*",
        "10.20.5.1-9",
        "9.0.0.0-11.0.0.0",
        "10/8",
        "10.0.0.0/255.0.0.0",
        "5.3.20.10.in-addr.arpa",
        "10-20-0-1.sslip.io",
        "ip-10-20-0-1.ec2.internal",
        "2001:0:1:2:0:0:f5eb:fffe",
        "10 . 20 . 0 . 1",
    ],
    "a pattern": ["dc?", "dc[1-9]", "dc{8,7}", "*.corp.example"],
    "another defanged notation": ["10 dot 20 dot 0 dot 1", "ceo at vip dot example"],
    "a word that a domain above an entry is": ["for example"],
}


@pytest.mark.parametrize(("why", "texts"), LET_THROUGH.items())
def test_what_is_let_through_and_why(why: str, texts: list[str]) -> None:
    assert {text for text in texts if PROTECTED.entry_for(text)} == set()
    guards = (Path(__file__).parents[2] / "core/docs/guards.md").read_text()
    assert f"- {why[0].upper()}{why[1:]}" in guards


def test_no_benign_indicator_is_protected_but_urls_without_scheme_that_name_a_target() -> None:
    protected = ProtectedTargets(
        [
            "10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/4",
            "198.51.100.0/28", "2001:db8:0:1::/64", "fc00::/7", "fe80::/10", "*.corp.example", "corp.example", "dc01",
            "dc02", "fs01", "hv-*", "backup", "sap", "vpn.example.org", "mail.example.org", "sso.example.org",
            "https://intranet.example.org/admin", "*@board.example.org", "ceo@example.org", "krbtgt", "svc-*",
            "CORP\\administrator", "lsass.exe", "d41d8cd98f00b204e9800998ecf8427e",
        ]
    ).current()  # fmt: skip
    found: dict[str, str] = {}
    for text in (Path(__file__).parent / "benign_indicators.txt").read_text().splitlines():
        data_type = next((data_type for data_type, like in LIKE if re.fullmatch(like, text)), "other")
        if (entry := protected.entry_for(parse(data_type, text))) is not None:
            found[text] = entry
    # A URL without its scheme is free text, whose path names things, too.
    assert {
        text for text in found if not re.fullmatch(r"[\w.\[\]-]+/(?:.*[/=])?[\w.]+\.(?:example|org)(?:/verify)?", text)
    } == set()
    assert len(found) == 8


@pytest.mark.parametrize(
    ("entry", "text", "expected"),
    [
        ("https://wiki.example/*", "https://wiki.example/a/b", True),
        ("https://intranet.example/app", "http://intranet.example:8080/app/login?next=x", True),
        ("https://intranet.example/app", "https://intranet.example/application", False),
        ("*@vip.example", "Any.One@vip.example", True),
        ("svc-*", "CORP\\svc-backup", True),
        ("D41D8CD98F00B204E9800998ECF8427E", "d41d8cd98f00b204e9800998ecf8427e", True),
        ("::ffff:10.0.0.0/104", "10.9.9.9", True),
        ("0.0.0.0/0", "198.51.100.1", True),
        ("64:ff9b::/96", "198.51.100.1", False),
        ("*", "anything", True),
        ("xn--bcher-kva.example", "Bücher.example", True),
        ("*.xn--bcher-kva.example", "www.bücher.example", True),
        ("CORP\\administrator", "corp\\Administrator", True),
    ],
)
def test_entries_of_every_kind(entry: str, text: str, expected: bool) -> None:
    assert (ProtectedTargets([entry]).current().entry_for(text) is not None) is expected


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("10.0.0.0/99", "'10.0.0.0/99' is no network; write it in full, such as 10.0.0.0/8 or 2001:db8::/32"),
        ("10/8", "'10/8' is no network; write it in full, such as 10.0.0.0/8 or 2001:db8::/32"),
        ("10.0.0.5/8", "'10.0.0.5/8' has bits set beyond its length; write 10.0.0.0/8, or the address alone"),
        ("10.0.0.1-9", "'10.0.0.1-9' is no address in full; write a network, or each address on its own"),
        ("10.0.*.*", "'10.0.*.*' is no address in full; write a network, or each address on its own"),
        ("https://x.example/*/y", "'https://x.example/*/y' is a URL with a pattern; write its beginning alone, which"
         " protects what is below"),
        ("", "an entry is empty; write an address, a host, a pattern or file:NAME"),
        ("dc01, dc02", "'dc01, dc02' looks like several entries; write each on its own"),
        ("file:", "'file:' names no file; write it as in file:crown-jewels.txt"),
    ],
)  # fmt: skip
def test_a_wrong_entry_is_told_at_start(tmp_path: Path, entry: str, reason: str) -> None:
    file = tmp_path / "r.toml"
    file.write_text(f"[protect]\nartifacts = [{entry!r}]\n")
    with pytest.raises(ResponderBotError) as error:
        load(file, {})
    assert error.value.message == f"{file}: [protect] artifacts: {reason}."


def test_a_list_in_a_file_is_read_again_and_protects_everything_while_it_cannot_be(tmp_path: Path) -> None:
    settings, file = tmp_path / "r.toml", tmp_path / "jewels.txt"
    settings.write_text('[protect]\nartifacts = ["file:jewels.txt"]\n')
    targets = ProtectedTargets(load(settings, {}).protect.artifacts)
    missing = "The list jewels.txt of [protect] can't be read (No such file or directory); nothing runs until it can."
    assert (targets.current().problem, targets.current().entry_for("anything")) == (missing, missing)
    file.write_text("# crown jewels\ndc01  # the oldest\n\n10.0.0.0/8\n")
    assert (targets.current().problem, *map(targets.current().entry_for, ("x", "DC01"))) == (
        "",
        None,
        "protected (dc01)",
    )
    other = tmp_path / "new"
    other.write_text("dc02\n")
    other.rename(file)
    assert tuple(map(targets.current().entry_for, ("dc01", "dc02"))) == (None, "protected (dc02)")
    for content, reason in (
        (b"", "is empty; nothing runs until it names something."),
        (b"dc01\n10.0.0.0/64\n", "has an error in line 2: '10.0.0.0/64' is no network;"),
        (b"file:other.txt\n", "has an error in line 1: 'file:other.txt' names a file."),
        (b"x\n" * 10_001, "has over 10000 entries; nothing runs until it is shorter."),
        (b"\xff\xfe\n", "can't be read (it is not UTF-8 text); nothing runs until it can."),
    ):
        file.write_bytes(content)
        assert reason in targets.current().problem
        assert targets.current().entry_for("anything") is not None
    file.unlink()
    file.mkdir()
    assert "can't be read (Is a directory)" in targets.current().problem


ANY = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)


@given(ANY, ANY)
@example(ipaddress.IPv4Address("200.0.0.0"), ipaddress.IPv4Address("70.0.0.0"))
@example(ipaddress.IPv4Address("63.255.255.0"), ipaddress.IPv4Address("64.0.0.0"))  # which begins at the last one
def test_a_range_is_protected_if_it_has_a_protected_address(
    first: ipaddress.IPv4Address, last: ipaddress.IPv4Address
) -> None:
    protected = ProtectedTargets(["64.0.0.0/3", "10.20.0.0/16"]).current()
    low, high = sorted((first, last))
    networks = map(ipaddress.IPv4Network, ("64.0.0.0/3", "10.20.0.0/16"))
    expected = any(low <= network[-1] and network[0] <= high for network in networks)
    assert isinstance(protected, ProtectedList)
    assert (protected.entry_between(parse("ip", str(first)), parse("ip", str(last))) is not None) == expected
