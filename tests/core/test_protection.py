"""Protected targets are recognised in every spelling, and nothing else is taken for one."""

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import ResponderBotError
from core.protection import ProtectedTargets
from core.settings import load

NETWORK, HOST, BELOW = ipaddress.IPv4Network("10.20.0.0/16"), "dc01.corp.example", "*.bücher.example"
PROTECTED = ProtectedTargets([str(NETWORK), HOST, BELOW, "dc7", "2001:db8::/32", "ceo@vip.example"]).current()
INVISIBLE = (
    "\u200b",
    "\u200d",
    "\u00ad",
    "\u202e",
    "\u2066",
    "\ufeff",
    "\u180e",
    "\u034f",
    "\u3164",
    "\ufe0f",
    "\U000e0041",
)

addresses = st.integers(int(NETWORK.network_address), int(NETWORK.broadcast_address)).map(ipaddress.IPv4Address)
others = st.ip_addresses(v=4).filter(lambda address: address not in NETWORK and int(address) >> 24 not in (0, 10))


@st.composite
def parts_of(draw: st.DrawFn, address: ipaddress.IPv4Address) -> str:
    """An IPv4 address as C's inet_aton takes it: any base, and the last parts in one."""
    count = draw(st.integers(1, 4))
    octets = list(address.packed)
    numbers = [*octets[: count - 1], int.from_bytes(octets[count - 1 :], "big")]
    spell = st.sampled_from(["{}", "{:#x}", "0{:o}", "0X{:X}"])
    return ".".join(draw(spell).format(number) for number in numbers)


@st.composite
def in_ipv6(draw: st.DrawFn, address: ipaddress.IPv4Address) -> str:
    """An IPv6 address that carries an IPv4 one."""
    high, low = divmod(int(address), 2**16)
    form = draw(
        st.sampled_from(
            [
                "::ffff:{a}", "::{a}", "::ffff:0:{a}", "64:ff9b::{a}", "64:ff9b:1::{a}", "::ffff:{h:x}:{l:x}",
                "0:0:0:0:0:ffff:{h:04X}:{l:04X}", "2002:{h:x}:{l:x}::1", "2002:{h:04x}:{l:04x}:9:8:7:6:5",
                "2001:0:1:2:0:0:{nh:x}:{nl:x}", "fe80::5efe:{a}", "fe80::200:5efe:{h:x}:{l:x}",
            ]
        )
    )  # fmt: skip
    text = form.format(a=address, h=high, l=low, nh=high ^ 0xFFFF, nl=low ^ 0xFFFF)
    zone = draw(st.sampled_from(["", "%eth0", "%25eth0"]))
    return draw(
        st.sampled_from([f"{text}{zone}", f"[{text}]", f"[{text}]:443", f"https://[{text}]:8443/a", f"{text}/128"])
    )


@st.composite
def as_host(draw: st.DrawFn, host: str) -> str:
    """A host, or an IPv4 address with dots, as URLs, mails and people write it."""
    form = st.sampled_from(
        ["{h}", "{h}.", "{h}:8443", "http://{h}", "HXXPS://{h}/x?y#z", "hxxp[://]{h}", "//{h}/x", "ftp://u:p@{h}:21/f",
         "https://good.example@{h}/", "http://{h}\\@good.example/", "http://good.example\\@{h}/", "http:\\\\{h}\\x",
         "a@{h}", "Anna <a@{h}>", "mailto:a@{h}?subject=x", "\\\\{h}\\share", "{h}/path", "CORP\\{h}$", " {h}\n",
         "x.example, {h}; y.example", '"{h}"', "({h})", "<{h}>", "see {h}, please", "http:{h}"]
    )  # fmt: skip
    return draw(form).format(h=host)


@st.composite
def disguised(draw: st.DrawFn, text: str) -> str:
    """The same, as reports and attackers disguise it; of several steps any."""
    for step in draw(
        st.lists(st.sampled_from(["dots", "case", "invisible", "percent", "wide", "entities"]), max_size=3)
    ):
        if step == "dots":
            dot = draw(st.sampled_from(["[.]", "(.)", "[dot]", " dot ", "\\.", "。", "．", "｡", "[.", "{.}", "(DOT)"]))
            text = text.replace(".", dot)
        elif step == "case":
            text = text.upper() if draw(st.booleans()) else text.title()
        elif step == "invisible":
            at = draw(st.integers(0, len(text)))
            text = text[:at] + draw(st.sampled_from(INVISIBLE)) + text[at:]
        elif step == "percent":
            text = "".join(f"%{ord(char):02x}" if char.isalnum() and char.isascii() else char for char in text)
        elif step == "wide":
            text = "".join(chr(ord(char) + 0xFEE0) if char.isascii() and char.isalnum() else char for char in text)
        else:
            text = "".join(f"&#{ord(char)};" if char.isascii() and char.isdigit() else char for char in text)
    return text


@given(st.data())
def test_an_address_in_any_notation(data: st.DataObject) -> None:
    address = data.draw(addresses)
    text = data.draw(st.one_of(parts_of(address), parts_of(address).flatmap(as_host), in_ipv6(address)))
    assert PROTECTED.entry_for(text) == f"protected ({NETWORK})", text


@given(st.data())
def test_an_address_in_disguise(data: st.DataObject) -> None:
    text = data.draw(disguised(data.draw(as_host(str(data.draw(addresses))))))
    assert PROTECTED.entry_for(text) == f"protected ({NETWORK})", text


@given(st.data())
def test_a_host_in_disguise(data: st.DataObject) -> None:
    text = data.draw(disguised(data.draw(as_host(HOST))))
    assert PROTECTED.entry_for(text) == f"protected ({HOST})", text


@given(st.data())
def test_a_network_around_or_in_a_protected_one(data: st.DataObject) -> None:
    address, length = data.draw(addresses), data.draw(st.integers(0, 32))
    network = ipaddress.IPv4Network(f"{address}/{length}", strict=False)
    v6 = ipaddress.IPv6Network(f"::ffff:{address}/{96 + length}", strict=False)
    embedded = ipaddress.IPv6Network(f"64:ff9b::{address}/{96 + length}", strict=False)
    forms = [
        str(network), f"{address}/{length}", f"{address}/{network.netmask}", f"{address} {network.netmask}", str(v6),
        f"{network[0]}-{network[-1]}", f"{network[0]} - {network[-1]}", str(embedded), f"x,{network};y",
    ]  # fmt: skip
    text = data.draw(st.sampled_from(forms))
    assert PROTECTED.entry_for(text) is not None, text


@given(others)
def test_other_addresses_are_not_protected(address: ipaddress.IPv4Address) -> None:
    for text in (str(address), f"http://{address}:80/10.20.0.1/", f"::ffff:{address}", f"a@{address}", f"{address}/32"):
        assert PROTECTED.entry_for(text) is None, text


@given(st.text(max_size=200))
def test_any_text_can_be_compared(text: str) -> None:
    PROTECTED.entry_for(text)


@pytest.mark.parametrize(
    "text",
    [
        "www.bücher.example", "www.BÜCHER.example", "www.xn--bcher-kva.example", "WWW.XN--BCHER-KVA.EXAMPLE.",
        "www.bu\u0308cher.example", "www。bücher。example", "bücher.example", "https://shop.b%C3%BCcher.example/x",
        "xn--dc01-.corp.example", "corp.example", "example", "*.corp.example", "dc*.corp.example", "*", "*.*",
        "10.20.*.*", "10.*", "10.20.5.*", "10.20.5.1-9", "::/0", "0.0.0.0/0", "::ffff:0:0/96", "2002::/16",
        "5.3.20.10.in-addr.arpa", "20.10.in-addr.arpa", "2001:DB8:0:0::1", "2001:db8::/16",
        "1.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", "DC7", "\\\\dc7\\c$", "ceo@VIP.example", "mailto:CEO@vip.example",
        "vip.example", "010.020.0.1", "012.024.0.1", "x" * 20_000, "%" + "25" * 20 + "41", "http://dc7", "dc7:443",
        "http:169082880", "http:01205000000", "http:000000000001205000000", "10.2&#4\u200b8;.0.1",
        "10\\ dot 20[ dot 0\\[.1", "10.20.0.1,", "2001:db8::1:443", "ip:2001:db8::1", "::/0-::ffff",
        "http://0x0a.0x14.0x.5/", "9.0.0.0-11.0.0.0", "9.0.0.0–11.0.0.0", "9.0.0.0 – 11.0.0.0", "9.0.0.0 to 11.0.0.0",
        "9-11.0.0.1", "1?.20.0.1", "9.0.0.0~11.0.0.0", "9.0.0.0 through 11.0.0.0", "dc[1-9]", "dc[01:99]", "dc{8,7}",
        "dc?", "d?7", "dc?.corp.example?", "dc*", "169082885.0", "dc7:/srv/share", "scp:dc7:/srv", "git@dc7:x",
        "10 . 20 . 0 . 1", "10. 20. 0. 1", "9.0.0.0...11.0.0.0", "9.0.0.0 … 11.0.0.0", "9.0.0.0 thru 11.0.0.0",
        "dc[67][.]corp.example", "dc[67]{,.corp.example}", "ip-10-20-0-1.ec2.internal",
        "10-20-0-1", "10_20_0_1", "app.10.20.0.1.nip.io", "10-20-0-1.sslip.io", "10.20.0.1.443",
        "\\\\2001-db8--1.ipv6-literal.net\\c$", "fe80--1s4.ipv6-literal.net 2001-db8--1s4", "١٠.٢٠.٠.١",
    ],
)  # fmt: skip
def test_spellings_that_are_protected(text: str) -> None:
    assert PROTECTED.entry_for(text) is not None


@pytest.mark.parametrize(
    "sign",
    [
        "/", "%2f", "%23", "%3f", "%252f", "%25252f", "&sol;", "&#47;", "&#x2f;", "&num;", "&quest;", "&amp;sol;",
        "\\u002f", "\\x2f", "／", "＃", "？", "%2f&commat;", "%ef%bc%8f", "%26sol;", "℀", "%20", "%0a", "%00", ";", ",",
        "|", "'", '"', "<", "\\", " ", "\u3000", "\u00a0",
    ],
)  # fmt: skip
def test_what_looks_like_the_end_of_a_host_before_its_user(sign: str) -> None:
    for url in (f"http://ok.example{sign}@dc7", f"http:\\\\ok.example{sign}x@dc7:80/", f"//a{sign}:b@dc7?q"):
        found = PROTECTED.entry_for(url)
        assert (found is None) == (sign == "/"), url  # after a plain slash all read a path


@pytest.mark.parametrize("char", ["\t", "\n", "\r", "\r\n", "\x00", "\x0b", "\x1b", "\x7f", "\u2028", *INVISIBLE])
def test_characters_that_some_readers_drop_and_others_end_a_name_at(char: str) -> None:
    for text in (
        f"d{char}c7",
        f"http://dc{char}7/",
        f"ht{char}tp:/{char}/dc7",
        f"10.2{char}0.0.1",
        f"dc7{char}.evil.test",
    ):
        if char != "\u2028" or "dc7" in text:
            assert PROTECTED.entry_for(text) is not None, text


@pytest.mark.parametrize(
    "text",
    [
        "host=dc7", "CN=DC7,OU=Domain Controllers,DC=corp,DC=example", "HOST/dc7", "MSSQLSvc/dc7:1433", "dc7$@CORP",
        '{"host":"dc7"}', '{"host":"\\u0064c7"}', '{"host":"\\ndc7"}', "{'a': ['dc7']}", "[dc7](http://evil.test/)",
        "-h dc7", "--host=dc7", "/s:dc7", "ssh root@dc7", "ping dc7; id", "$(dc7)", "d''c7", "d^c7", "dc7!", "~dc7",
        "#dc7", "%dc7%", "root+dc7@evil.test", "http://dc7@evil.test/", "C:\\share\\dc7\\x", "“dc7”", "dc7…", "•dc7",
        "dc7。", "d\\u{63}7", "𝐝𝐜𝟕", "\\ud835\\udc1dc7", "http://&#100;%637\\x41/", "%64c7%2541", "http:dc7:/x",
        "%26%23100%3Bc7", "\\u0026\\u0023100;c7", "%26%23x64%3bc7", "\\144\\143\\67", "d\\c7", "dc\\7", "=64c7",
        "http://=64=63=37/", "d=\nc7", "=?utf-8?q?=64c7?=", "ZGM3Cg==", "base64:IGRjNyA", "=?utf-8?B?aG9zdD1kYzc=?=",
        "powershell -enc cABpAG4AZwAgAGQAYwA3AA==", "YUhSMGNEb3ZMMlJqTnk4PQ==", "aHR0cDovL2RjNy8%3d",
    ],
)  # fmt: skip
def test_a_name_inside_anything_but_the_path_of_a_url(text: str) -> None:
    assert PROTECTED.entry_for(text) == "protected (dc7)"


@pytest.mark.parametrize(
    "text",
    [
        "/./admin", "/x/../admin", "//admin", "///admin/", "/admin/x", "/admin;v=1", "/x/..;/admin", "/%2e/admin",
        "/x/%2e%2e/admin", "/x%2f..%2fadmin", "/ADMIN", "\\admin", "/x\\..\\admin", "/x/y/../../admin?z#w",
        ":8443/admin", "/x//../../admin", "/.",
    ],
)  # fmt: skip
def test_paths_that_a_server_reads_as_the_protected_one(text: str) -> None:
    protected = ProtectedTargets(["https://intranet.example/admin"]).current()
    assert (protected.entry_for(f"https://intranet.example{text}") is None) == (text == "/.")


def test_the_entry_of_a_site_protects_all_of_it() -> None:
    protected = ProtectedTargets(["https://intranet.example/", "srv-?"]).current()
    found = map(
        protected.entry_for, ("http://intranet.example:8080/x", "http://x.intranet.example/", "srv-1", "srv-10")
    )
    assert [item is not None for item in found] == [True, False, True, False]


def test_no_benign_indicator_is_refused() -> None:
    protected = ProtectedTargets(
        [
            "10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/4",
            "198.51.100.0/28", "2001:db8:0:1::/64", "fc00::/7", "fe80::/10", "*.corp.example", "corp.example", "dc01",
            "dc02", "fs01", "hv-*", "mail", "backup", "sap", "vpn.example.org", "mail.example.org", "sso.example.org",
            "https://intranet.example.org/admin", "*@board.example.org", "ceo@example.org", "krbtgt", "svc-*",
            "CORP\\administrator", "lsass.exe", "d41d8cd98f00b204e9800998ecf8427e",
        ]
    ).current()  # fmt: skip
    indicators = (Path(__file__).parent / "benign_indicators.txt").read_text().splitlines()
    assert len(indicators) == 504
    assert {text: entry for text in indicators if (entry := protected.entry_for(text))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "dc01.corp.example.evil.test", "xdc01.corp.example", "bücher.example.evil.test", "www.bucher.example",
        "http://evil.test/?u=a@dc01.corp.example", "http://evil.test/dc7/10.20.0.1", "ceo2@vip.example",
        "a@vip.example",
        "http://corp.example/", "for example this local host", "dc70", "d" * 64, "10.21.0.1", "10.2.0.1", "2001:db9::1",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "60", "", "11.0.0.0/8",
        "http://evil.test/ZGM3Cg==", "host 10-21-0-1.nip.io", "2023-10-20-10-20", "1.2.10.20.0.1", "10-20-0-1x",
    ],
)  # fmt: skip
def test_spellings_that_are_not(text: str) -> None:
    assert PROTECTED.entry_for(text) is None


@pytest.mark.parametrize(
    ("entry", "text", "expected"),
    [
        ("https://intranet.example/app", "http://intranet.example:8080/app/login?next=x", True),
        ("https://intranet.example/app", "intranet.example", True),
        ("https://intranet.example/app", "https://intranet.example/other", False),
        ("https://intranet.example/app", "https://intranet.example/application", False),
        ("*@vip.example", "Any.One@vip.example", True),
        ("*@vip.example", "http://evil.test/?u=a@vip.example", False),
        ("svc-*", "CORP\\svc-backup", True),
        ("https://wiki.example/*", "https://wiki.example/a/b", True),
        ("d41d8cd98f00b204e9800998ecf8427e", "D41D8CD98F00B204E9800998ECF8427E", True),
        ("::ffff:10.0.0.0/104", "10.9.9.9", True),
        ("64:ff9b::/96", "198.51.100.1", False),
        ("10.0.0.1-10.0.0.9", "10.0.0.5", True),
    ],
)
def test_entries_of_every_kind(entry: str, text: str, expected: bool) -> None:
    assert (ProtectedTargets([entry]).current().entry_for(text) is not None) is expected


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("10.0.0.0/99", "'10.0.0.0/99' is no network; its length must be a number from 0 to 32, or to 128 for IPv6"),
        ("10.0.0.5/8", "'10.0.0.5/8' has bits set beyond its length; write 10.0.0.0/8, or the address alone"),
        ("", "an entry is empty; write an address, a host, a pattern or file:NAME"),
        ("dc01, dc02", "'dc01, dc02' looks like several entries; write each on its own"),
        ("file:", "'file:' names no file; write it as in file:crown-jewels.txt"),
    ],
)
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
