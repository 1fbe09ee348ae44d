"""Why an alert was closed."""

from pathlib import Path

from tests.core.running import running_core

ALERT = {"type": "siem", "source": "s", "sourceRef": "1", "title": "t", "description": "d"}


async def test_an_alert_says_why_it_was_closed_until_its_status_changes(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        alert = (await core.send("POST", "/api/alert", ALERT)).json()
        path = f"/api/alert/{alert['id']}"
        assert "summary" not in alert
        closing = {"status": "Ignored", "summary": "A scanner of ours."}

        for version in ("", "/v1"):
            changed = await core.send("PATCH", path.replace("/api", f"/api{version}"), closing)
            assert changed.status_code in (200, 204), changed.text
            assert (await core.send("GET", path)).json()["summary"] == "A scanner of ours."
            assert (await core.send("GET", path.replace("/api", "/api/v1"))).json()["summary"] == "A scanner of ours."
            again = (await core.send("POST", f"{path}/markAsUnread")).json()
            assert (again["status"], "summary" in again) == ("New", False)

        await core.send("PATCH", "/api/alert/_bulk", {"ids": [alert["id"]], **closing})
        found = await core.send("POST", "/api/alert/_search", {"query": {"summary": "A scanner of ours."}})
        assert [one["id"] for one in found.json()] == [alert["id"]]
        without = (await core.send("PATCH", path, {"status": "Ignored"})).json()
        assert (without["status"], "summary" in without) == ("Ignored", False)


async def test_a_closed_alert_says_who_closed_it_and_when_whoever_changes_it_later(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        path = f"/api/alert/{(await core.send('POST', '/api/alert', ALERT)).json()['id']}"
        closed = (await core.send("PATCH", path, {"status": "Ignored"}, profile="analyst")).json()
        assert (closed["closedBy"], closed["closedAt"]) == (closed["updatedBy"], closed["updatedAt"])
        later = (await core.send("PATCH", path, {"tags": ["late"]})).json()
        assert (later["closedBy"], later["closedAt"]) == (closed["closedBy"], closed["closedAt"])
        assert later["updatedBy"] != later["closedBy"]
        opened = (await core.send("POST", f"{path}/markAsUnread")).json()
        assert opened.keys().isdisjoint({"closedBy", "closedAt"})
