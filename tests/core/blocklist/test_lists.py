"""Block and Unblock over HTTP, and the lists that they change (core/docs/blocklist.md)."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.settings import BlocklistSection, ProtectSection, ReaderSection, ResponderSection
from tests.core.blocklist.harness import BLOCK, LISTS, RUN, UNBLOCK, asked, block, ended, listed, observable, unblock
from tests.core.running import RunningCore, running_core


async def test_what_is_in_force_of_block_is_the_list(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        empty = [await listed(core, name) for name in LISTS]
        first = await block(core, "198[.]51[.]100[.]23")
        await block(core, "2001:db8:0:0::1")
        await block(core, "203.0.113.0/24", "cidr")
        for data, data_type in (
            ("Evil.Example.", "domain"),
            ("a.evil.example", "fqdn"),
            ("b.evil.example", "hostname"),
        ):
            await block(core, data, data_type)
        await block(core, "hxxps://Evil[.]example/a b?q=1#top", "url")
        await block(core, "D41D8CD98F00B204E9800998ECF8427E", "hash")
        assert await listed(core) == ["198.51.100.23", "2001:db8::1", "203.0.113.0/24"]
        assert await listed(core, "ip", "?family=4") == ["198.51.100.23", "203.0.113.0/24"]
        assert await listed(core, "ip", "?family=6") == ["2001:db8::1"]
        assert await listed(core, "domain") == ["a.evil.example", "b.evil.example", "evil.example"]
        hosts = await listed(core, "domain")
        assert await listed(core, "domain", "?subdomains=yes") == sorted([*hosts, *(f".{host}" for host in hosts)])
        assert await listed(core, "url") == ["https://evil.example/a%20b?q=1"]
        assert await listed(core, "url", "?scheme=no") == ["evil.example/a%20b?q=1"]
        assert await listed(core, "hash") == ["d41d8cd98f00b204e9800998ecf8427e"]
        released = await unblock(core, "198.51.100.23")
        assert await listed(core) == ["2001:db8::1", "203.0.113.0/24"]
        assert json.loads(released["report"])["message"] == "198.51.100.23 was taken off the block list."
        shown = (await core.send("GET", f"{RUN}/{first['_id']}")).json()
    assert empty == [[]] * 4
    assert (first["engineId"], first["undo"]["responder"]) == ("core", UNBLOCK)
    assert first["undo"]["at"] - first["endDate"] == 3_600_000
    assert (shown["undo"]["status"], shown["measure"]["state"]) == ("undone", "ended")


async def test_a_run_is_recorded_as_any_other(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        answer = await asked(core, BLOCK, await observable(core, "198.51.100.23"), undoAfterMinutes=30)
        action = await ended(core, answer)
    made = answer.json()
    assert (made["status"], made["engineId"], made["report"], made["operations"]) == ("Waiting", "core", "{}", "[]")
    assert made["engineJobId"]
    assert action["status"] == "Success"
    assert json.loads(action["report"])["message"] == "198.51.100.23 was put on the block list."


async def test_undo_ends_the_row_and_a_block_of_another_alert_goes_on(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        first, other = await block(core, "198.51.100.23"), await block(core, "198.51.100.24")
        answer = await core.send("POST", f"{RUN}/{first['_id']}/undo", {}, profile="analyst")
        await ended(core, answer)
        assert await listed(core) == ["198.51.100.24"]
        measures = (await core.send("GET", "/api/connector/engine/measure")).json()
    assert [other["_id"]] == [one["actions"][0] for one in measures]


async def test_of_several_that_one_run_blocked_each_is_unblocked_by_itself(tmp_path: Path) -> None:
    targets = [("ip", "198.51.100.23"), ("ip", "198.51.100.24"), ("domain", "evil.example")]
    async with running_core(tmp_path) as core:
        artifacts = [{"dataType": data_type, "data": data} for data_type, data in targets]
        alert = {"type": "ids", "source": "s", "sourceRef": "1", "title": "t", "description": "d"}
        made = (await core.send("POST", "/api/alert", {**alert, "artifacts": artifacts})).json()
        body = {"responderId": BLOCK, "objectType": "alert", "objectId": made["id"]}
        action = await ended(core, await core.send("POST", RUN, {**body, "target": [data for _, data in targets]}))
        assert (await listed(core), await listed(core, "domain")) == (
            ["198.51.100.23", "198.51.100.24"],
            ["evil.example"],
        )
        for number, left in ((0, (["198.51.100.24"], ["evil.example"])), (2, (["198.51.100.24"], []))):
            id_ = action["measure"]["targets"][number]["id"]
            (undo,) = (await core.send("POST", f"/api/connector/engine/measure/{id_}/undo", {})).json()
            while undo.get("endDate") is None:
                undo = (await core.send("GET", f"{RUN}/{undo['_id']}?wait=5")).json()
            assert (await listed(core), await listed(core, "domain")) == left
        shown = (await core.send("GET", f"{RUN}/{action['_id']}")).json()
    assert [one["state"] for one in shown["measure"]["targets"]] == ["ended", "in_force", "ended"]


async def test_a_target_of_an_alert_is_chosen_and_only_that_is_blocked(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        artifacts = [
            {"dataType": "ip", "data": "198.51.100.23"},
            {"dataType": "ip", "data": "127.0.0.1"},
            {"dataType": "domain", "data": "evil.example"},
            {"dataType": "username", "data": "anna"},
        ]
        alert = {"type": "ids", "source": "s", "sourceRef": "1", "title": "t", "description": "d"}
        made = (await core.send("POST", "/api/alert", {**alert, "artifacts": artifacts})).json()
        body = {"responderId": BLOCK, "objectType": "alert", "objectId": made["_id"]}
        several = await core.send("POST", RUN, body, profile="analyst")
        local = await core.send("POST", RUN, {**body, "target": made["artifacts"][1]["id"]}, profile="analyst")
        action = await ended(core, await core.send("POST", RUN, {**body, "target": "evil.example"}, profile="analyst"))
        assert (await listed(core), await listed(core, "domain")) == ([], ["evil.example"])
    assert (several.status_code, local.status_code) == (400, 400)
    assert [one["data"] for one in several.json()["targets"]] == ["198.51.100.23", "evil.example"]
    assert "127.0.0.1 is of loopback" in local.json()["message"]
    assert action["status"] == "Success"


CANT = {
    "127.0.0.1": "is of loopback",
    "::1": "is of loopback",
    "::ffff:127.0.0.1": "is of loopback",
    "64:ff9b::7f00:1": "is of loopback",
    "2002:7f00:1::1": "is of loopback",
    "169.254.169.254": "is of link-local",
    "fe80::1": "is of link-local",
    "224.0.0.251": "is of multicast",
    "ff02::1": "is of multicast",
    "0.0.0.0": "is of this network",  # noqa: S104 - nothing listens
    "::": "is of this network",
    "255.255.255.255": "is of broadcast",
    "0.0.0.0/0": "is wider than /16",
    "198.51.0.0/15": "no address or network",
    "198.50.0.0/15": "is wider than /16",
    "::/0": "is wider than /32",
    "2001:d00::/31": "is wider than /32",
    "64:ff9b::/96": "is wider than /16",
    "::ffff:0:0/96": "is wider than /16",
    "com": "com is a public suffix",
    "dc01": "dc01 has no dot, so no list can have it",
    "co.uk": "co.uk is a public suffix",
    "xn--p1ai": "xn--p1ai is a public suffix",
    "foo.ck": "foo.ck is a public suffix",
    "slack.com": "is a part of Slack",
    "wss-primary.slack.com": "is a part of Slack",
    "https://slack.com/api": "is a part of Slack",
    "https://127.0.0.1/x": "is of loopback",
    "https://[::1]/x": "is of loopback",
    "https://localhost/x": "localhost has no dot, so no list can have it",
    "https://co.uk/": "co.uk is a public suffix",
    "mine.example": "is protected (*.example) by [blocklist] never, which an administrator may change",
    "203.0.113.7": "is protected (203.0.113.0/24) by [blocklist] never, which an administrator may change",
    "203.0.0.0/16": "is protected (203.0.113.0/24) by [blocklist] never, which an administrator may change",
    "198.51.100.23\n198.51.100.24": "no address or network",
    "https://evil.test/\r\nhttps://good.test/": None,
}


async def document_of(core: RunningCore, object_id: str) -> Any:
    path = f"/api/document?ids={object_id}&include=responders"
    return (await core.send("GET", path, profile="analyst")).json()["documents"][0]


async def test_what_can_t_be_blocked_says_why_before_the_click_and_at_the_run(tmp_path: Path) -> None:
    never = BlocklistSection(never=("203.0.113.0/24", "*.example"))
    async with running_core(tmp_path, blocklist=never) as core:
        wrong = {}
        for data, reason in CANT.items():
            kind = "url" if "//" in data else "ip" if data[0].isdigit() or ":" in data else "domain"
            artifact = await observable(core, data, kind)
            path = f"/api/connector/engine/responder/case_artifact/{artifact}?explain=true"
            offered = {one["name"]: one for one in (await core.send("GET", path, profile="analyst")).json()}[BLOCK]
            document = await document_of(core, (await document_of(core, artifact))["id"])
            answer = await asked(core, BLOCK, artifact)
            if reason is None:
                await ended(core, answer)
            elif not (
                answer.status_code == 400
                and reason in answer.json()["message"]
                and offered["verdict"] == "cannot_run"
                and any(reason in refusal["message"] for refusal in offered["refusals"])
                and BLOCK not in document["artifactResponders"][artifact]
            ):
                wrong[data] = answer.text, offered
        duckdns = await block(core, "duckdns.org", "domain")
        assert wrong == {}
        assert [await listed(core, name) for name in LISTS] == [
            [], ["duckdns.org"], ["https://evil.test/https://good.test/"], []
        ]  # fmt: skip
    assert duckdns["status"] == "Success"


async def test_protect_red_and_a_full_list_stop_a_block(tmp_path: Path) -> None:
    protect, most = ProtectSection(artifacts=("198.51.100.0/28",)), BlocklistSection(max_entries=2)
    async with running_core(tmp_path, protect=protect, blocklist=most) as core:
        protected = await asked(core, BLOCK, await observable(core, "198.51.100.3"))
        around = await asked(core, BLOCK, await observable(core, "198.51.100.0/24", "cidr"))
        red = await asked(core, BLOCK, await observable(core, "198.51.100.99", tlp=3))
        await block(core, "198.51.100.101")
        await block(core, "198.51.100.102")
        full = await asked(core, BLOCK, await observable(core, "198.51.100.103"))
        await unblock(core, "198.51.100.101")
        await block(core, "198.51.100.103")
        assert await listed(core) == ["198.51.100.102", "198.51.100.103"]
    assert [(answer.status_code, answer.json().get("rule")) for answer in (protected, around, full)] == [
        (400, "protect"), (400, "protect"), (409, "blocklist")
    ]  # fmt: skip
    assert "TLP:RED is above the TLP:AMBER" in red.json()["message"]
    assert "the block list is full, with 2 entries" in full.json()["message"]


async def test_unblocking_inside_a_blocked_network_names_the_row_to_end(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        network = await block(core, "198.51.100.0/24", "cidr")
        single = await block(core, "198.51.100.7")
        inside = await unblock(core, "198.51.100.9")
        undone = await ended(core, await core.send("POST", f"{RUN}/{single['_id']}/undo", {}, profile="analyst"))
        assert await listed(core) == ["198.51.100.0/24"]
    sentence = f"is blocked as a part of 198.51.100.0/24, by {network['_id']}; unblock that."
    assert (inside["status"], json.loads(inside["report"])["message"]) == ("Failure", f"198.51.100.9 {sentence}")
    assert undone["status"] == "Success"


async def test_etag_and_304(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        await block(core, "198.51.100.23")
        first = await core.send("GET", "/api/blocklist/ip.txt", profile="reader")
        tag = first.headers["etag"]
        same = [
            await core.send("GET", "/api/blocklist/ip.txt", profile="reader", headers={"If-None-Match": sent})
            for sent in (tag, f"W/{tag}", f'"x", {tag}', "*")
        ]
        head = await core.send("HEAD", "/api/blocklist/ip.txt", profile="reader")
        await block(core, "198.51.100.24")
        changed = await core.send("GET", "/api/blocklist/ip.txt", profile="reader", headers={"If-None-Match": tag})
    assert [answer.status_code for answer in (first, *same, changed)] == [200, 304, 304, 304, 304, 200]
    assert {
        answer.headers.get_list("cache-control", split_commas=True) == ["private", "no-store"]
        for answer in (first, *same)
    } == {True}
    assert first.headers["content-type"].startswith("text/plain")
    assert (head.text, head.headers["etag"], same[0].text, same[0].headers["etag"]) == ("", tag, "", tag)
    assert changed.headers["etag"] != tag


async def test_a_reader_reads_its_lists_and_nothing_else(tmp_path: Path) -> None:
    readers = {"edge-fw": ReaderSection(lists=("ip",))}
    async with running_core(tmp_path, reader=readers) as core:
        edge = await core.key("reader", "edge-fw")
        bearer = {"Authorization": f"Bearer {edge}"}
        answers = [
            (await core.send("GET", f"/api/blocklist/{name}.txt", profile=None, headers=bearer)).status_code
            for name in LISTS
        ]
        basic = await core.http.get("/api/blocklist/ip.txt", auth=("edge-fw", edge))
        another = await core.http.get("/api/blocklist/ip.txt", auth=("dc-fw", edge))
        acting = await core.send(
            "GET", "/api/blocklist/ip.txt", profile=None, headers={**bearer, "X-On-Behalf-Of": "x"}
        )
        other = await core.send("GET", "/api/user/current", profile=None, headers=bearer)
        nobody = await core.send("GET", "/api/blocklist/ip.txt", profile=None)
        by_profile = {
            profile: (await core.send("GET", "/api/blocklist/ip.txt", profile=profile)).status_code
            for profile in ("analyst", "read-only", "source")
        }
        wrong = [
            (await core.send("GET", f"/api/blocklist/{path}", profile="reader")).status_code
            for path in ("ip.txt?family=5", "ip.txt?scheme=no", "url.txt?schema=no", "mail.txt", "ip")
        ]
    assert answers == [200, 403, 403, 403]
    assert [answer.status_code for answer in (basic, another, acting, other, nobody)] == [200, 401, 403, 403, 401]
    assert other.json()["message"].endswith("a key with the profile reader may only read the block lists")
    assert by_profile == {"analyst": 200, "read-only": 200, "source": 403}
    assert wrong == [400, 400, 400, 404, 404]


async def test_a_run_that_waits_for_approval_is_not_on_the_list(tmp_path: Path) -> None:
    sections = {BLOCK: ResponderSection(approval=1)}
    async with running_core(tmp_path, responder=sections) as core:
        await core.key("org-admin")
        answer = await asked(core, BLOCK, await observable(core, "198.51.100.23"))
        waiting = await listed(core)
        await core.send("POST", f"{RUN}/{answer.json()['_id']}/approve", {})
        await ended(core, answer)
        assert (waiting, await listed(core)) == ([], ["198.51.100.23"])


@pytest.mark.parametrize(("minutes", "status"), [(0, 201), (100_000, 201), (None, 201)])
async def test_one_duration_of_any_length_unless_the_settings_bound_it(
    tmp_path: Path, minutes: int | None, status: int
) -> None:
    more = {} if minutes is None else {"undoAfterMinutes": minutes}
    bound = {BLOCK: ResponderSection(undo=UNBLOCK, undo_after_minutes=240)}
    (tmp_path / "free").mkdir()
    (tmp_path / "bound").mkdir()
    async with running_core(tmp_path / "free") as core:
        free = await asked(core, BLOCK, await observable(core, "198.51.100.23"), **more)
    async with running_core(tmp_path / "bound", responder=bound) as core:
        bounded = await asked(core, BLOCK, await observable(core, "198.51.100.23"), **more)
    assert free.json()["undo"].get("afterMinutes") == (minutes or None if minutes is not None else 60)
    assert (free.status_code, bounded.status_code) == (status, 201 if minutes is None else 400)
