"""Bodies and maps that attack core: each ends soon, is answered, and changes nothing that it may not."""

import collections
import json
from pathlib import Path
from typing import Any

import pytest

from core.settings import SourceSection
from core.sources import paths, preset
from core.sources.mapping import BodyMap, Reading
from core.sources.paths import LookedAtTooMuchError, Reader, parse
from tests.core.sources.running import EVENT, MINE, running_source

MIB = 1_048_576


def read(body: bytes, **section: Any) -> Reading:
    merged = {**MINE, **section}
    return BodyMap(SourceSection.model_validate(merged), type="t", source="s", tlp=2, withheld_tags=()).read(body)


def reasons(reading: Reading) -> list[str]:
    return [part.reason for part in reading.unreadable]


@pytest.mark.parametrize("sign", [b"[", b"{", b'{"a":', b"[[],", b"[{},"])
@pytest.mark.filterwarnings("ignore:Sending a large body")  # aiohttp's advice for more than 1 MiB
async def test_a_body_of_one_mib_of_brackets_is_unreadable(tmp_path: Path, sign: bytes) -> None:
    body = (sign * MIB)[: MIB - 1]
    async with running_source(tmp_path) as source:
        assert await source.counts(body) == {"unreadable": 1}
        assert (await source.send(body + b"  ")).status_code == 413
        assert await source.counts(EVENT) == {"created": 1}
        unreadable = (await source.alerts(type="unreadable"))[0]
    assert unreadable["artifacts"][0]["attachment"]["size"] == len(body)
    assert "values" in unreadable["description"]


def test_a_deep_body_within_the_number_of_values_is_unreadable() -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    assert reasons(read(deep)) == ["format"]
    assert reasons(read(b'{"a":' * 5_000 + b"1" + b"}" * 5_000)) == ["format"]


@pytest.mark.parametrize("path", ["__class__", "id.__class__.__mro__", "rule.__init__.__globals__", "keys", "id[0]"])
def test_a_path_reaches_nothing_but_what_was_sent(path: str) -> None:
    body = json.dumps({**EVENT, "rule": {"name": "n"}}).encode()
    (incoming,) = read(body, map={"title": "rule.name", "tags": path}).incoming
    assert incoming.request.tags == []
    own = json.dumps({"rule": {"name": "n"}, "__class__": "mine"}).encode()
    (incoming,) = read(own, map={"title": "rule.name", "tags": "__class__"}).incoming
    assert incoming.request.tags == ["mine"]


@pytest.mark.parametrize(
    ("host", "kind", "data"),
    [
        ("[203.0.113.7]", "ip", "203.0.113.7"),
        ("203.0.113.7:8080", "ip", "203.0.113.7"),
        ("203.0.113.7%eth0", "ip", "203.0.113.7"),
        ("[2001:db8::1]:443", "ip", "2001:db8::1"),
        ("web-3:443", "hostname", "web-3"),
        ("web-3", "hostname", "web-3"),
    ],
)
def test_a_host_that_is_an_address_becomes_one(host: str, kind: str, data: str) -> None:
    body = json.dumps({**EVENT, "host": host}).encode()
    (incoming,) = read(body, observables=[{"type": "hostname", "path": "host"}]).incoming
    assert [(one.data_type, one.data) for one in incoming.request.artifacts] == [(kind, [data])]


def test_a_map_that_looks_at_everything_again_and_again_ends() -> None:
    nested: Any = ["x"] * 20
    for _ in range(3):
        nested = [nested] * 10
    events = [{"rule": {"name": "n"}, "a": nested}]
    observables = [{"path": "a" + "[]" * 20} for _ in range(100)]
    reading = read(json.dumps(events).encode(), observables=observables)
    assert reasons(reading) == ["values"]
    assert reading.incoming == []


def test_what_paths_look_at_is_counted_over_all_of_them() -> None:
    reader, path, body = Reader(), parse("a[].b || c"), {"a": [{"b": None}] * 1_000}
    for _ in range(100):
        reader.get(path, body)
    with pytest.raises(LookedAtTooMuchError):
        collections.deque((reader.get(path, body) for _ in range(paths.LOOKED_AT_LIMIT // 1_000)), maxlen=0)


def test_ten_thousand_different_keys_are_no_alerts_and_no_tags() -> None:
    keys = {f"key {number}": number for number in range(10_000)}
    (incoming,) = read(json.dumps({**EVENT, **keys}).encode(), map={"title": "rule.name"}).incoming
    assert len(incoming.request.description) == 20_000
    assert incoming.request.tags == []


@pytest.mark.slow
async def test_ten_thousand_different_references_are_held_to_the_rate(tmp_path: Path) -> None:
    async with running_source(tmp_path, rate="50/1h") as source:
        sent = [await source.send([{**EVENT, "id": f"{body} {number}"} for number in range(200)]) for body in range(51)]
        metrics = (await source.core.http.get("/metrics")).text
    assert [answer.json().get("created") for answer in sent[:50]] == [200] * 50
    assert sent[50].status_code == 429
    lines = [line for line in metrics.splitlines() if "source" in line and not line.startswith("#")]
    assert 'responder_bot_source_alerts{outcome="created",source="mine"} 10000.0' in lines
    assert len(lines) == 6


def test_a_body_is_held_to_its_alerts_and_observables() -> None:
    events = [{**EVENT, "id": str(number), "ips": [f"10.{number}.{n}.1" for n in range(10)]} for number in range(250)]
    reading = read(json.dumps(events).encode(), observables=[{"type": "ip", "path": "ips"}])
    assert (len(reading.incoming), reasons(reading)) == (200, ["alerts"])
    assert sum(len(incoming.request.artifacts) for incoming in reading.incoming) == 1_000
    assert "10 observables were left out" in reading.incoming[100].request.description


def test_lines_are_held_to_the_same() -> None:
    assert reasons(read(b"1\n" * 500_000))[:1] == ["alerts"]
    assert len(read(b"{}\n" * 14_000).unreadable) == 201


ODD: tuple[Any, ...] = (
    *("\x00", "\ud800", "a" * 100_000, "‮", "2026-99-99", "javascript:x"),
    *(10**30, -1, 1e308, True, [], {}, [[["x"]]]),
)


async def test_odd_values_never_fail(tmp_path: Path) -> None:
    names = ("id", "full_log", "timestamp", "url", "srcip", "tlp", "state")
    bodies = [b'{"id": NaN}', b"", b"\xff\xfe"]
    for value in ODD:
        odd = [{**EVENT, name: value} for name in names]
        rules = [{**EVENT, "id": "r", "rule": {"name": value, "level": value, "groups": [value]}}]
        bodies += [json.dumps(odd).encode(), json.dumps(rules).encode()]
    async with running_source(tmp_path) as source:
        answers = [await source.send(content) for content in bodies]
        alerts = await source.alerts()
    assert {answer.status_code for answer in answers} <= {200, 201}
    assert all(alert["tlp"] >= 2 for alert in alerts)


NESTED = b"--b\nContent-Type: multipart/mixed; boundary=b\n\n"
MIXED = b"Subject: a\nContent-Type: multipart/mixed; boundary=b\n\n"
HTML = b"Subject: a\nContent-Type: text/html\n\n"
PARAMETERS = b"--b\nContent-Type: text/plain; " + b'a*1*="b;"; ' * 40 + b"\n\nx\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff" * 1_000,
        b"Subject: =?utf-8?b?\xff?=\nFrom: <<>>\nDate: never\n\nx",
        b"Subject: a\nContent-Type: text/plain; charset=zip\n\nx",
        MIXED + NESTED * 10_000,
        MIXED + b"--b\n\nx\n" * 100_000,
        MIXED + b"--b\n" + b"a: b\n" * 100_000,
        MIXED + b"--b\nContent-Type: text/plain; " + b'a*1*="b;"; ' * 50_000,
        MIXED + PARAMETERS * 99,
        HTML + b"<a href=" * 50_000,
        HTML + b"<style" * 50_000,
        HTML + b"<" * 500_000,
        b"Subject: " + b"a" * 500_000 + b"\n\nx",
        b"Subject: " + b"=?utf-8?q?" * 50_000 + b"\n\nx",
        b"Subject: a\nFrom: " + b'<("' * 100_000 + b"\n\nx",
    ],
)
def test_an_e_mail_never_fails_and_takes_no_minutes(content: bytes) -> None:
    section = preset.merged(SourceSection(preset="email"))
    reading = BodyMap(section, type="t", source="s", tlp=2, withheld_tags=()).read(content)
    assert len(reading.incoming) + len(reading.unreadable) == 1


@pytest.mark.parametrize(
    "text", ["a.", "1.1.1.", "a:", "http://", "a-", "[.]", "1", "@a.com ", "host=", "\\\\", "hxxp:\\/\\/", "version "]
)
def test_a_text_of_many_parts_of_indicators_takes_no_minutes(text: str) -> None:
    assert len(read(json.dumps({**EVENT, "full_log": text * 50_000}).encode()).incoming) == 1
