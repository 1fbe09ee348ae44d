"""Whatever host a parser reads in a URL is found by the protection, whatever the responder did to the URL before."""

import html
import importlib
import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

import httpx
import pytest
import yarl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.protection import ProtectedTargets, entry_problem

ada_url = importlib.import_module("ada_url")  # the types are checked where it isn't installed, too
PARSERS: Mapping[str, Callable[[str], str | None]] = {
    "urllib": lambda text: urlsplit(text).hostname,
    "httpx": lambda text: httpx.URL(text).host,
    "yarl": lambda text: yarl.URL(text).host,
    "WHATWG": lambda text: str(ada_url.URL(text).hostname),
}
READERS: Mapping[str, Callable[[str], str]] = {
    "as it stands": lambda text: text,
    "percent": unquote,
    "percent twice": lambda text: unquote(unquote(text)),
    "HTML": html.unescape,
    "HTML, percent": lambda text: unquote(html.unescape(text)),
    "percent, HTML": lambda text: html.unescape(unquote(text)),
    "JSON": lambda text: str(json.loads(f'"{text}"')),
    "compatible": lambda text: unicodedata.normalize("NFKC", text),
    "without controls": lambda text: re.sub(r"[\x00-\x1f\x7f\u200b\u00ad]", "", text),
    "defanged": lambda text: text.replace("hxxp", "http").replace("[.]", ".").replace("[:]", ":"),
    "stripped": lambda text: text.strip("<>\"'() \t"),
}
HOST = re.compile(r"[\w.:-]{1,200}")

hosts = st.sampled_from(
    [
        "dc01", "DC01.corp.example", "10.0.0.5", "0x0a000005", "012.0.0.5", "10.5", "167772165", "[2001:db8::5]",
        "[::ffff:a00:5]", "dc01.", "bücher.example", "xn--bcher-kva.example", "DC\u00ad01", "d%63%3001", "ｄｃ01",
        "dc&#48;1", "\\u0064c01", "0",
    ]
)  # fmt: skip
noise = st.sampled_from(
    [
        "/", "?", "#", "@", ":", "\\", ";", ",", "&", "=", ".", "-", "_", "*", "%", "|", "[", "]", "{", "}", "(", ")",
        "<", ">", "'", '"', "`", "^", "~", "!", "$", "+", " ", "\t", "\n", "\r", "\x00", "\x0b", "\x1f", "\u200b",
        "\u00a0", "\u3000", "／", "？", "＃", "＠", "。", "℀", "%2f", "%3f", "%23", "%40", "%5c", "%3a", "%252f", "%00",
        "%20", "%0a", "%09", "&sol;", "&#x2f;", "&num;", "&quest;", "&commat;", "&amp;", "&#64;", "\\u002f",
        "\\u0040", "\\/", "\\t", "\\\\", "[.]", "a", "1", "ok.example", "//", "\\\\", "..",
    ]
)  # fmt: skip
schemes = st.sampled_from(
    [
        "http://", "HTTPS://", "ftp://", "http:", "http:/", "http:\\\\", "http:///", "//", "ht\ntp://", "http[:]//",
        "hxxp://", "http%3a//", "http&colon;//", " http://", "url=http://", "file://", "ws:/\\", "foo://",
        "\x01http://", "<http://", "http:/\t/", "x:",
    ]
)  # fmt: skip
mess = st.lists(st.one_of(noise, hosts), max_size=5).map("".join)
urls = st.builds(lambda *parts: "".join(parts), schemes, mess, hosts, mess, st.sampled_from(["", "/", "/x", ":80/"]))


@pytest.mark.slow
@settings(max_examples=1_500)
@given(urls)
@example("http://ok.example%2f@dc01/")
@example("http://ok.example&sol;@dc01/")
@example("http://ok.example／@dc01/")
@example("http://dc\t01/")
@example("http://&#100;%6301\\x41/")
def test_every_host_that_a_parser_reads_is_found(url: str) -> None:
    for reader, read in READERS.items():
        for parser, parse in PARSERS.items():
            try:
                host = (parse(read(url)) or "").strip("[]")
            except (ValueError, IndexError, httpx.InvalidURL):  # it reads no host
                continue
            if HOST.fullmatch(host) and re.search(r"\w", host) and not entry_problem(host):
                found = ProtectedTargets([host]).current().entry_for(url)
                assert found, f"{parser} reads {host!r} in {url!r} ({reader})"
