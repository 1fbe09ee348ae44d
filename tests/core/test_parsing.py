"""Targets are parsed: equal canonical forms are one target for parsers of others, too, and guesses are refused."""

import ipaddress
import re
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yarl
from hypothesis import given
from hypothesis import strategies as st

from core.protection import MalformedError, Parsed, look_of, parse

LABELS = st.from_regex(r"[a-zA-Z0-9_-]{0,20}[a-zA-Z][a-zA-Z0-9]{0,5}", fullmatch=True)
HOSTS = st.lists(LABELS, min_size=1, max_size=4).map(".".join)
NETWORKS = st.one_of(
    st.builds(
        lambda ip, bits: ipaddress.ip_network((int(ip), bits), strict=False), st.ip_addresses(v=4), st.integers(0, 32)
    ),
    st.builds(
        lambda ip, bits: ipaddress.ip_network((ip.packed, bits), strict=False),
        st.ip_addresses(v=6),
        st.integers(0, 128),
    ),
)
URLS = st.builds(
    "{}://{}{}{}".format,
    st.sampled_from(["http", "HTTPS", "hxxp", "hxxps", "ftp", "ldap"]),
    HOSTS,
    st.sampled_from(["", ":80", ":8443"]),
    st.from_regex(r"(/[a-zA-Z0-9._~%;=@-]{0,12}){0,4}(\?[a-z=&]{0,9})?(#[a-z]{0,5})?", fullmatch=True).filter(
        lambda path: not re.search("%(?![0-9a-fA-F]{2})", path)
    ),
)
MAILS = st.builds("{}@{}".format, st.from_regex(r"[A-Za-z0-9.+_-]{1,20}", fullmatch=True), HOSTS)


def reparsed(data_type: str, text: str) -> Parsed:
    """A target, which its canonical form names as well."""
    parsed = parse(data_type, text)
    assert parse("hostname" if parsed.kind == "host" else data_type, parsed.value) == parsed
    return parsed


@given(NETWORKS)
def test_an_address_is_what_ipaddress_says(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> None:
    mapped = network.network_address.ipv4_mapped if network.version == 6 and network.prefixlen >= 96 else None
    expected = network if mapped is None else ipaddress.ip_network((int(mapped), network.prefixlen - 96))
    for text in (
        str(network),
        str(network).upper(),
        f" {network}\n",
        str(network).replace(".", "[.]").replace(":", "[:]"),
    ):
        assert ipaddress.ip_network(reparsed("ip", text).value) == expected


@given(HOSTS, HOSTS)
def test_hosts_are_one_if_their_names_differ_in_case_alone(first: str, second: str) -> None:
    one, other = (reparsed("fqdn", name) for name in (first, second))
    assert one.value == first.lower()
    assert (one == other) == (first.lower() == second.lower())
    assert reparsed("domain", f"{first.upper()}.".replace(".", "[.]")) == one


@given(URLS)
def test_a_url_has_the_host_and_path_that_other_parsers_read(text: str) -> None:
    parsed = reparsed("url", text)
    plain = re.sub("^hxxp", "http", text, flags=re.I)
    for host in (urlsplit(plain).hostname, yarl.URL(plain).raw_host):
        assert (urlsplit(parsed.value).hostname, urlsplit(parsed.value).fragment) == (str(host).lower(), "")
    assert urlsplit(parsed.value).query == urlsplit(plain).query
    assert urlsplit(parsed.value).port in (urlsplit(plain).port, None)


@given(MAILS)
def test_a_mail_address_keeps_its_local_part(text: str) -> None:
    local, _, domain = text.rpartition("@")
    assert reparsed("mail", text).value == f"{local}@{domain.lower()}"


@given(st.text(max_size=200), st.sampled_from(["ip", "domain", "hostname", "url", "mail", "hash", "other"]))
def test_any_text_is_parsed_or_refused_with_a_sentence(text: str, data_type: str) -> None:
    try:
        reparsed(data_type, text)
    except MalformedError as error:
        assert str(error)
        assert not str(error).endswith(".")


@pytest.mark.parametrize(
    ("data_type", "text", "kind", "value"),
    [
        ("ip", "10[.]0[.]0[.]5", "address", "10.0.0.5"),
        ("ip", "10.0.0.5/32", "address", "10.0.0.5"),
        ("ip", "::ffff:10.0.0.5", "address", "10.0.0.5"),
        ("cidr", "::ffff:10.0.0.0/104", "address", "10.0.0.0/8"),
        ("ip", "2001[:]DB8[:][:]1", "address", "2001:db8::1"),
        ("domain", "Bücher.example.", "host", "xn--bcher-kva.example"),
        ("domain", "www.xn--bcher-kva.example", "host", "www.xn--bcher-kva.example"),
        ("domain", "_dmarc.faß.example", "host", "_dmarc.xn--fa-hia.example"),
        ("fqdn", "10.0.0.5", "address", "10.0.0.5"),
        ("hostname", "2001:DB8::1", "address", "2001:db8::1"),
        ("hostname", "ＤＣ０１", "host", "dc01"),
        ("hostname", "ANNA'S-PC", "text", "ANNA'S-PC"),
        ("Hostname", " CORP\\dc01 ", "text", "CORP\\dc01"),
        ("url", "hxxps[://]u:p@Ex[.]example:443/a/../b?x=1#f", "url", "https://ex.example/b?x=1"),
        ("url", "http://[2001:db8::1]:8080/", "url", "http://[2001:db8::1]:8080/"),
        ("url", "http://10.0.0.5/x", "url", "http://10.0.0.5/x"),
        ("uri", "http:\\\\dc01\\x", "url", "http://dc01/x"),
        ("url", "ldap://dc01/x", "url", "ldap://dc01/x"),
        ("mail", "Anna.B[@]Corp[.]Example", "mail", "Anna.B@corp.example"),
        ("mail_sender", "a@bücher.example", "mail", "a@xn--bcher-kva.example"),
        ("md5", "D41D8CD98F00B204E9800998ECF8427E", "hash", "d41d8cd98f00b204e9800998ecf8427e"),
        ("other", " S-1-5-21-1 ", "text", "S-1-5-21-1"),
        ("never-heard-of", "10[.]0.0.5", "text", "10[.]0.0.5"),
    ],
)  # fmt: skip
def test_notations_that_are_accepted(data_type: str, text: str, kind: str, value: str) -> None:
    assert reparsed(data_type, text) == Parsed(kind, value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data_type", "text"),
    [
        *(("ip", text) for text in (
            "10/8", "10.0.0.5/8", "10.0.0.0/255.0.0.0", "10.0.0.0/08", "10.0.0.5:443", "fe80::1%eth0", "010.0.0.5",
            "0x0a000005", "167772165", "10.5", "10.0.0.1-10.0.0.9", "-", "unknown", "10.0.*.*", "１0.0.0.5",
        )),
        *(("domain", text) for text in (
            "1.2.3", "10.0.0.5.6", "a..b", "*.corp.example", "a b", "x" * 64, f"{'a.' * 130}b", "☃.example", "-",
            "dc01:443", "http://dc01/", "0x7f.1",
        )),
        *(("hostname", text) for text in ("1.2.3", "12345", "-", "...")),
        *(("url", text) for text in (
            "dc01/x", "//dc01/x", "mailto:a@b.example", "file:///etc/passwd", "http://", "http://a%2eb/", "http://d%63/",
            "http://0x0a.0.0.5/", "http://10.5/", "http://167772165/", "http://ok.example%2f@dc01%2f/", "http://１0.0.0.5/",
            "http://[fe80::1%25eth0]/", "http://1.2.3/", "http://a b/", "-",
        )),
        *(("mail", text) for text in (
            "Anna <anna@corp.example>", "mailto:anna@corp.example", "anna", "a@b@c", "a@10.0.0.5", "@corp.example",
            "anna@", "a b@corp.example",
        )),
        *(("hash", text) for text in ("abc", "g" * 32, "0" * 33)),
        ("sha256", "d41d8cd98f00b204e9800998ecf8427e"),
        *((kind, text) for kind in ("other", "ip") for text in (" ", "x" * 16_385)),
    ],
)  # fmt: skip
def test_what_is_malformed_is_refused(data_type: str, text: str) -> None:
    with pytest.raises(MalformedError):
        parse(data_type, text)


def test_the_reason_names_the_text_and_what_is_expected() -> None:
    with pytest.raises(MalformedError) as error:
        parse("ip", "10/8")
    assert str(error.value) == "`10/8` is no address or network in full, such as 10.0.0.0/8"


LIKE = (
    ("url", r"(?:hxxp|http|ftp)s?(?:://|\[:\]//|\[://\]).+"),
    ("mail", r"[^\s@<>\"/\\:]+(?:@|\[@\])[^\s@/:]+"),
    ("hash", r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{40}|[0-9A-Fa-f]{64}"),
    ("ip", r"[0-9]+(?:(?:\.|\[\.\])[0-9]+){3}(?:/[0-9]+)?|[0-9a-fA-F:]*::[0-9a-fA-F:]*(?:/[0-9]+)?"),
    ("domain", r"(?:[\w-]+(?:\.|\[\.\]))+[^\W\d_]{2,}"),
)
"""What a text looks like to a sender."""


def test_every_benign_indicator_is_parsed() -> None:
    indicators = (Path(__file__).parent / "benign_indicators.txt").read_text().splitlines()
    kinds = Counter(
        parse(next((data_type for data_type, like in LIKE if re.fullmatch(like, text)), "other"), text).kind
        for text in indicators
    )
    assert kinds == {"text": 195, "url": 117, "hash": 95, "address": 34, "mail": 32, "host": 31}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("hostname", "lt-0198"), ("fqdn", "LT-0198.corp.example"), True),
        (("fqdn", "lt-0198.corp.example"), ("fqdn", "lt-0198.lab.example"), False),
        (("other", "LT-0198"), ("hostname", "lt-0198"), True),
        (("other", "alice"), ("other", "ALICE"), True),
        (("other", "BIock"), ("other", "Block"), True),
        (("hostname", "lt-o198"), ("hostname", "lt-0198"), True),
        (("other", "раypal"), ("other", "paypal"), True),
        (("hostname", "lt-0198"), ("hostname", "lt-0199"), False),
        (("url", "https://files.example/a"), ("url", "https://files.example/A"), True),
        (("url", "https://files.example/a"), ("url", "https://files.example/b"), False),
    ],
)  # fmt: skip
def test_what_may_be_the_same(first: tuple[str, str], second: tuple[str, str], expected: bool) -> None:
    one, other = (look_of(parse(*named)) for named in (first, second))
    shared = one.whole & other.whole or one.whole & other.label or one.label & other.whole
    assert (bool(shared), parse(*first) == parse(*second)) == (expected, False)
