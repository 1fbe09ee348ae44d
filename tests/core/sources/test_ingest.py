"""`POST /api/ingest/NAME`: what a source sends becomes alerts."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from core.common.errors import ResponderBotError
from core.settings import OnlyOnSection, ResponderSection, SourceSection
from core.sources.ingest import Source
from tests import stores
from tests.core.sources.running import EVENT, MINE, running_source


async def test_a_body_becomes_an_alert_by_the_map_of_its_source(tmp_path: Path) -> None:
    async with running_source(tmp_path) as source:
        answer = await source.send(EVENT)
        (alert,) = await source.alerts()
    assert (answer.status_code, answer.json()["created"]) == (201, 1)
    shown = ("type", "source", "sourceRef", "title", "description", "severity", "date", "tags", "tlp", "externalLink")
    assert [alert[name] for name in shown] == [
        *("alert", "mine", "1", "Beacon", EVENT["full_log"], 3, 1795418220000, ["c2", "web"], 2),
        "https://siem.example/1",
    ]
    assert [(item["dataType"], item["data"], item["message"]) for item in alert["artifacts"]] == [
        ("ip", "10.1.2.3", "source"),
        ("url", "https://evil.example/a", None),
    ]
    assert (alert["createdBy"], "count" in alert) == ("mine@responder-bot.local", False)


async def test_a_repeat_that_says_no_more_is_counted_and_changes_nothing_else(tmp_path: Path) -> None:
    async with running_source(tmp_path) as source:
        await source.send(EVENT)
        (first,) = await source.alerts()
        less = {**EVENT, "rule": {**EVENT["rule"], "level": 3, "groups": ["x"]}, "full_log": "10.1.2.3 from port 52418"}
        answers = [await source.counts(less) for _ in range(11)]
        (alert,) = await source.alerts()
    assert answers == [{"repeated": 1}] * 11
    assert (alert.pop("count"), alert.pop("lastDate") >= first["createdAt"]) == (12, True)
    assert alert == first


def grown(level: int = 15, **more: Any) -> dict[str, Any]:
    """The same alert, once its source knows more."""
    rule = {"name": "Beacon of a botnet", "level": level, "groups": ["c2"]}
    return {**EVENT, "rule": rule, "full_log": "10.1.2.3 asked for https://bad.example/b", **more}


async def test_a_repeat_that_says_more_raises_the_severity_and_adds_to_the_alert(tmp_path: Path) -> None:
    async with running_source(tmp_path) as source:
        await source.send({**EVENT, "rule": {**EVENT["rule"], "level": 3}})
        (first,) = await source.alerts()
        newest = (await source.core.send("GET", "/api/event?after=0&wait=0")).json()["last"]
        assert await source.counts(grown()) == {"repeated": 1}
        page = (await source.core.send("GET", f"/api/event?after={newest}&wait=0")).json()
        (alert,) = await source.alerts()
        for event in (grown(level=1), EVENT, grown(level=12)):
            await source.send(event)
        (later,) = await source.alerts()
        found = await source.core.send("POST", "/api/alert/_search", {"query": {"_string": "botnet"}})
    assert [event["type"] for event in page["events"]] == ["alert.raised"]
    assert [alert[name] for name in ("severity", "severityBefore", "title", "description")] == [
        *(4, 1, "Beacon of a botnet"),
        "10.1.2.3 asked for https://bad.example/b",
    ]
    assert alert["raisedAt"] >= first["createdAt"]
    assert [item["data"] for item in alert["artifacts"]] == [
        "10.1.2.3",
        "https://evil.example/a",
        "https://bad.example/b",
    ]
    assert alert["artifacts"][:2] == first["artifacts"]  # a run may be bound to them
    assert [later[name] for name in ("severity", "severityBefore", "raisedAt")] == [4, 1, alert["raisedAt"]]
    assert found.status_code == 200


async def test_what_people_decided_of_an_alert_stays(tmp_path: Path) -> None:
    async with running_source(tmp_path) as source:
        await source.send(EVENT)
        (first,) = await source.alerts()
        path = f"/api/alert/{first['id']}"
        await source.core.send("PATCH", path, {"severity": 1, "title": "A test of ours"})
        await source.send(EVENT)
        await source.send(EVENT | {"rule": {**EVENT["rule"], "name": "Beacon again"}})
        (lowered,) = await source.alerts()
        await source.core.send("PATCH", path, {"status": "Ignored"})
        await source.send(EVENT)
        (closed,) = await source.alerts()
        await source.send(grown())
        (raised,) = await source.alerts()
    assert [lowered[name] for name in ("severity", "title")] == [1, "A test of ours"]
    assert [closed[name] for name in ("severity", "status")] == [1, "Ignored"]
    assert [raised[name] for name in ("severity", "status", "title")] == [4, "New", "Beacon of a botnet"]


async def test_an_alert_that_a_person_closed_opens_again_once_it_is_more_severe(tmp_path: Path) -> None:
    async with running_source(tmp_path) as source:
        await source.send(EVENT)
        (alert,) = await source.alerts()
        await source.core.send("PATCH", f"/api/alert/{alert['id']}", {"status": "Ignored"})
        shown = []
        for event in (EVENT, grown(level=12), grown(level=15)):
            await source.send(event)
            (alert,) = await source.alerts()
            shown.append((alert["status"], alert["severity"]))
    assert shown == [("Ignored", 3), ("Ignored", 3), ("New", 4)]


async def test_a_repeat_above_the_level_of_its_alert_shows_no_text_there(tmp_path: Path) -> None:
    async with running_source(tmp_path) as source:
        await source.send(EVENT)
        await source.send(grown(tlp="red"))
        (alert,) = await source.alerts()
    assert [alert[name] for name in ("severity", "tlp", "title")] == [4, 2, "Beacon"]
    assert [(item["data"], item["tlp"]) for item in alert["artifacts"]][-1] == ("https://bad.example/b", 3)


async def test_repeats_add_as_many_observables_as_an_alert_may_have(tmp_path: Path) -> None:
    async with running_source(tmp_path, observables=[{"type": "ip", "path": "ips[]"}]) as source:
        ips = [f"10.{n // 250}.0.{n % 250 + 1}" for n in range(1_200)]
        for start in (0, 400, 800):
            assert await source.counts({**EVENT, "ips": ips[start : start + 400]}) != {}
        (alert,) = await source.alerts()
    assert [item["data"] for item in alert["artifacts"]] == ips[:1_000]


async def test_the_card_is_told_of_many_repeats_once(tmp_path: Path) -> None:
    async with running_source(tmp_path) as source:
        await source.send(EVENT)
        newest = (await source.core.send("GET", "/api/event?after=0&wait=0")).json()["last"]
        for _ in range(20):
            await source.send(EVENT)
        page = (await source.core.send("GET", f"/api/event?after={newest}&wait=20")).json()
    assert [event["type"] for event in page["events"]] == ["alert.updated"]


async def test_a_body_may_hold_a_list_lines_or_a_list_at_a_path(tmp_path: Path) -> None:
    events = [{**EVENT, "id": str(number)} for number in range(3)]
    lines = b"\n".join(json.dumps(event).encode() for event in events)
    async with running_source(
        tmp_path, others={"nested": {"each": "a.events", "map": {"title": "rule.name"}}}
    ) as source:
        assert await source.counts(events) == {"created": 3}
        assert await source.counts(lines) == {"repeated": 3}
        assert await source.counts({"a": {"events": events}}, to="nested") == {"created": 3}
        # Without a reference equal alerts are one.
        assert await source.counts({"a": {"events": events[:2]}}, to="nested") == {"repeated": 2}


async def test_what_no_map_can_read_is_an_alert_with_the_body_as_its_file(tmp_path: Path) -> None:
    async with running_source(tmp_path) as source:
        assert await source.counts(b"<xml/>") == {"unreadable": 1}
        (alert,) = await source.alerts()
        file_id = alert["artifacts"][0]["attachment"]["id"]
        stored = await source.core.send("GET", f"/api/datastore/{file_id}")
        # One card an hour for each reason; the rest of a body is stored.
        assert await source.counts(b"<html>") == {"unreadable": 1}
        mixed = [EVENT, {"rule": {}}, 7, {"rule": None}]
        assert await source.counts(mixed) == {"created": 1, "unreadable": 3}
        alerts = await source.alerts(type="unreadable")
    assert alert["title"] == "Unreadable message from mine"
    assert stored.content == b"<xml/>"
    assert [(alert["sourceRef"].split()[0], alert.get("count")) for alert in alerts] == [("format", 3), ("title", 2)]


async def test_a_source_sends_to_itself_only_and_reads_nothing(tmp_path: Path) -> None:
    async with running_source(tmp_path, others={"theirs": {"map": {"title": "t"}}}) as source:
        foreign = await source.send(EVENT, key=source.keys["theirs"])
        analyst = await source.send(EVENT, key=await source.core.key("analyst"))
        await source.core.core.people.add("nobody", "source")
        unknown = await source.core.key("source", "unknown")
        missing = await source.core.http.post("/api/ingest/unknown", headers={"Authorization": f"Bearer {unknown}"})
        none = await source.core.http.post("/api/ingest/mine", json=EVENT)
        basic = await source.core.http.post("/api/ingest/mine", json=EVENT, auth=("mine", source.keys["mine"]))
        reads = await source.core.http.get("/api/alert/~1", headers={"Authorization": f"Bearer {source.keys['mine']}"})
        public = await source.core.http.post(
            "/api/alert",
            json={"type": "alert", "source": "mine", "sourceRef": "1", "title": "t", "description": "d"},
            headers={"Authorization": f"Bearer {source.keys['theirs']}"},
        )
        again = await source.counts(EVENT)
    answers = (foreign, analyst, missing, none, basic, reads, public)
    assert [answer.status_code for answer in answers] == [403, 403, 404, 401, 201, 403, 201]
    assert again == {"repeated": 1}  # of its own alert, not of the one that somebody else made in its name


async def test_two_senders_with_one_reference_have_two_alerts(tmp_path: Path) -> None:
    body = {"id": "1", "rule": {"name": "n"}}
    async with running_source(
        tmp_path, others={"theirs": {"map": {"title": "rule.name", "sourceRef": "id"}}}
    ) as source:
        assert await source.counts(body) == {"created": 1}
        assert await source.counts(body, to="theirs") == {"created": 1}
        # The reference finds each of them, whatever way it came.
        found = await source.core.send("GET", "/api/alert/alert;theirs;1")
    assert found.json()["source"] == "theirs"


async def test_a_source_can_t_lower_its_tlp_nor_set_tags_that_rules_read(tmp_path: Path) -> None:
    rules = {"Block_1_0": ResponderSection(only_on=OnlyOnSection(tags=("Malicious", "c2")))}
    async with running_source(tmp_path, parts={"responder": rules}, trusted_tags=["C2"]) as source:
        for number, tlp in enumerate(("clear", "TLP:GREEN", 1, "amber", "RED", "???")):
            await source.send(
                {**EVENT, "id": str(number), "tlp": tlp, "rule": {"name": "n", "groups": ["malicious", "c2"]}}
            )
        alerts = await source.alerts()
    assert [alert["tlp"] for alert in alerts] == [2, 2, 2, 2, 3, 3]
    assert {item["tlp"] for item in alerts[-1]["artifacts"]} == {3}
    assert {tuple(alert["tags"]) for alert in alerts} == {("c2",)}


async def test_a_request_with_the_same_key_changes_nothing(tmp_path: Path) -> None:
    async with running_source(tmp_path) as source:
        key = {"Idempotency-Key": "a"}
        assert await source.counts(EVENT, **key) == {"created": 1}
        assert await source.counts(EVENT, **key) == {"isDuplicate": True}
        other = await source.send({**EVENT, "id": "2"}, **key)
        long = await source.send(EVENT, **{"Idempotency-Key": "a" * 300})
        (alert,) = await source.alerts()
    assert (other.status_code, long.status_code) == (422, 400)
    assert "count" not in alert


async def test_a_source_is_held_to_its_rate(tmp_path: Path) -> None:
    async with running_source(tmp_path, rate="3/1h") as source:
        answers = [await source.send(EVENT) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 429]
    assert 1 <= int(answers[3].headers["retry-after"]) <= 1201


async def test_equal_alerts_at_the_same_time_become_one(tmp_path: Path) -> None:
    async with running_source(tmp_path) as source:
        answers = await asyncio.gather(*(source.counts(EVENT) for _ in range(20)))
        (alert,) = await source.alerts()
    assert sorted(map(str, answers)) == ["{'created': 1}", *["{'repeated': 1}"] * 19]
    assert alert["count"] == 20


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"map": {}}, "needs the path of a title"),
        ({"map": {"title": "a", "titel": "b"}}, "no field titel"),
        ({"map": {"title": "length(a)"}}, "more than names"),
        ({"map": {"title": "a[?b]"}}, "more than names"),
        ({"map": {"title": "a[*].b"}}, "more than names"),
        ({"map": {"title": "a.*"}}, "more than names"),
        ({"map": {"title": "a | b"}}, "more than names"),
        ({"map": {"title": "a["}}, "no path"),
        ({"map": {"title": ""}}, "1 to 500"),
        ({"map": {"title": "||".join("a" * 300)}}, "1 to 500"),
        ({"each": "sort(@)"}, "more than names"),
        ({"observables": [{"type": "file", "path": "a"}]}, "file"),
        ({"preset": "suricatta"}, "no preset"),
        ({"severity": {"7–8.9": 3}}, "neither a band"),
        ({"severity": {">7": 3}}, "neither a band"),
        ({"severity": {"7-8,9": 3}}, "neither a band"),
        ({"severity": {"9-7": 3}}, "ends before it begins"),
        ({"severity": {"": 3}}, "neither a band"),
        ({"preset": "wazuh", "severity": {"urgent": 4}}, "wazuh doesn't say; it says numbers"),
        ({"preset": "crowdstrike", "severity": {"urgent": 4}}, "it says critical, high"),
        ({"hmac_keys": ["short"]}, "16 characters"),
    ],
)
def test_a_wrong_map_is_refused(changes: dict[str, Any], sentence: str) -> None:
    section = SourceSection.model_validate({**MINE, **changes})
    with pytest.raises(ResponderBotError, match=sentence):
        Source.of("mine", section, {})


async def test_a_core_with_a_wrong_map_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ResponderBotError, match="needs the path of a title"):
        async with running_source(tmp_path, map={}):
            pass
    assert stores.rows(tmp_path / "core.db", "SELECT count(*) FROM source") == [(0,)]


async def test_bands_may_be_decimal(tmp_path: Path) -> None:
    bands = {"0-3.9": 1, "4-6.9": 2, "7-8.9": 3, "9-": 4}
    said = [0.1, 3.9, "3.95", 4, 6.9, 7.0, "8.9", 8.99, 9, "9.0", 10.0]
    async with running_source(tmp_path, severity=bands) as source:
        await source.send([{"id": str(n), "rule": {"name": "n", "level": level}} for n, level in enumerate(said)])
        alerts = await source.alerts()
    assert [alert["severity"] for alert in alerts] == [1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4]


async def test_a_severity_that_is_no_number_is_medium(tmp_path: Path) -> None:
    words = ("NaN", "sNaN", "Infinity", "-1", "1e400", "1" * 5_000, "٧", "seven")
    async with running_source(tmp_path, severity={"0-3.9": 1, "4-": 4}) as source:
        await source.send([{"id": str(n), "rule": {"name": "n", "level": word}} for n, word in enumerate(words)])
        alerts = await source.alerts()
    assert [alert["severity"] for alert in alerts] == [2, 2, 2, 2, 4, 4, 4, 2]


async def test_a_label_may_name_a_severity_of_ones_own(tmp_path: Path) -> None:
    labelled = {"preset": "alertmanager", "severity": {"sev1": 4}}
    alert = {"status": "firing", "labels": {"alertname": "Disk", "severity": "sev1"}, "fingerprint": "1"}
    async with running_source(tmp_path, others={"am": labelled}) as source:
        assert await source.counts({"alerts": [alert]}, to="am") == {"created": 1}
        (made,) = await source.alerts()
    assert made["severity"] == 4
