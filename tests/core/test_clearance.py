"""Clearance over HTTP: nobody acts through the bot on what they may not see in Slack."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.audit import trail
from core.settings import ResponderSection
from tests.core.running import RunningCore, ended, running_core

ACTION = "/api/connector/engine/action"
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
BLOCK, RELEASE = "ResponderBot_Block_1_0", "ResponderBot_Unblock_1_0"
REFUSED = "it is TLP:RED and you may see up to TLP:AMBER; ask somebody who may see it"


@dataclass
class ClearedCore:
    """A core with `amber` and `red`, analysts with these clearances, and the org-admin `lead`, cleared for amber."""

    core: RunningCore

    async def act(self, login: str, method: str, path: str, body: Any = None) -> httpx.Response:
        """A request of the bot on behalf of a user."""
        return await self.core.send(method, path, body, profile="service", headers={"X-On-Behalf-Of": login})

    async def own(self, method: str, path: str, body: Any = None) -> Any:
        """A request of `amber` with their own key."""
        headers = {"Authorization": f"Bearer {self.core.keys['amber']}"}
        answer = await self.core.send(method, path, body, profile=None, headers=headers)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def alert(self, tlp: int = 3, reference: str = "1") -> str:
        body = {"type": "siem", "source": "s", "sourceRef": reference, "title": "t", "description": "d", "tlp": tlp}
        return str((await self.core.send("POST", "/api/alert", body)).json()["id"])

    async def run(self, login: str, object_id: str, kind: str = "alert", responder: str = CLOSE) -> httpx.Response:
        body = {"responderId": responder, "objectType": kind, "objectId": object_id}
        return await self.act(login, "POST", ACTION, body)

    async def ended(self, action_id: str) -> dict[str, Any]:
        return await ended(self.core, action_id)

    async def events(self) -> int:
        return int((await self.core.send("GET", "/api/event")).json()["last"])


@asynccontextmanager
async def cleared_core(folder: Path, responder: Any = None, **policy: Any) -> AsyncIterator[ClearedCore]:
    """`policy` is that of CLOSE; `responder` are all sections instead."""
    sections = responder or ({CLOSE: ResponderSection(**policy)} if policy else {})
    async with running_core(folder, responder=sections) as core:
        core.keys["amber"] = await core.core.people.add("amber", "analyst", clearance=2)
        core.keys["red"] = await core.core.people.add("red", "analyst", clearance=3)
        core.keys["lead"] = await core.core.people.add("lead", "org-admin", clearance=2)
        yield ClearedCore(core)


def is_refused(answer: httpx.Response) -> None:
    body = answer.json()
    assert (answer.status_code, body["type"]) == (403, "AuthorizationError"), answer.text
    assert body["message"].startswith("You are not authorized to ")
    assert body["message"].endswith(REFUSED)
    assert (body["tlp"], body["clearance"]) == (3, 2)


@pytest.mark.parametrize("login", ["amber", "lead"])
async def test_a_run_on_an_object_above_the_clearance_is_refused_through_the_bot_only(
    tmp_path: Path, login: str
) -> None:
    async with cleared_core(tmp_path) as cleared:
        alert = await cleared.alert()
        before = await cleared.events()
        is_refused(await cleared.run(login, alert))
        is_refused(await cleared.run(login, alert, responder="no such responder"))
        assert await cleared.events() == before
        explained = await cleared.act(login, "GET", f"/api/connector/engine/responder/alert/{alert}?explain=true")
        reasons = [entry["reasons"] for entry in explained.json() if entry["verdict"] == "can_run"]
        assert reasons == []
        assert "it is TLP:RED and you may see up to TLP:AMBER" in str(explained.json())
        assert (await cleared.run("red", alert)).status_code == 201
        assert (await cleared.act(login, "GET", "/api/audit/~999")).status_code == 404  # nothing ever had this id
        await cleared.core.core.database.transaction(
            lambda tx: trail.record(tx, 0, "request.refused", by="lea@x", object="~998", texts={})
        )
        is_refused(await cleared.act(login, "GET", "/api/audit/~998"))  # nobody knows what it was
        run = {"responderId": CLOSE, "objectType": "alert", "objectId": alert}
        assert (await cleared.own("POST", ACTION, run))["createdBy"] == "amber@responder-bot.local"


async def test_what_is_in_a_case_takes_the_clearance_of_the_case_and_an_artifact_also_its_own(tmp_path: Path) -> None:
    async with cleared_core(tmp_path) as cleared:
        send = cleared.core.send
        case = (await send("POST", "/api/case", {"title": "t", "description": "d", "tlp": 3})).json()["id"]
        task = (await send("POST", f"/api/case/{case}/task", {"title": "t"})).json()["id"]
        log = (await send("POST", f"/api/case/task/{task}/log", {"message": "m"})).json()["id"]
        fields = {"dataType": "ip", "data": "192.0.2.1", "tlp": 2}
        artifact = (await send("POST", f"/api/case/{case}/artifact", fields)).json()["id"]
        for kind, number in (("case", case), ("case_task", task), ("case_task_log", log), ("case_artifact", artifact)):
            is_refused(await cleared.run("amber", number, kind))
        for method, path, body in (
            ("PATCH", f"/api/case/{case}", {"title": "x"}),
            ("DELETE", f"/api/case/{case}", None),
            ("POST", f"/api/case/{case}/task", {"title": "x"}),
            ("POST", f"/api/case/{case}/artifact", {"dataType": "ip", "data": "192.0.2.2"}),
            ("POST", f"/api/case/{case}/comment", {"message": "x"}),
            ("PATCH", f"/api/case/task/{task}", {"title": "x"}),
            ("POST", f"/api/case/task/{task}/log", {"message": "x"}),
            ("PATCH", f"/api/case/task/log/{log}", {"message": "x"}),
            ("PATCH", f"/api/case/artifact/{artifact}", {"message": "x"}),
        ):
            is_refused(await cleared.act("amber", method, path, body))
        await send("PATCH", f"/api/case/{case}", {"tlp": 2})
        change = "PATCH", f"/api/case/artifact/{artifact}", {"message": "x"}
        assert (await cleared.act("amber", *change)).status_code == 200
        assert (await cleared.run("amber", artifact, "case_artifact")).status_code == 400  # not for this kind
        await send("PATCH", f"/api/case/artifact/{artifact}", {"tlp": 3})
        is_refused(await cleared.act("amber", *change))
        is_refused(await cleared.run("amber", artifact, "case_artifact"))


async def test_changes_of_an_alert_above_the_clearance_are_refused(tmp_path: Path) -> None:
    async with cleared_core(tmp_path) as cleared:
        red, amber = await cleared.alert(), await cleared.alert(2, "2")
        case = (await cleared.core.send("POST", "/api/case", {"title": "t", "description": "d", "tlp": 3})).json()["id"]
        comment = (await cleared.core.send("POST", f"/api/alert/{red}/comment", {"message": "m"})).json()["id"]
        before = await cleared.events()
        for method, path, body in (
            ("PATCH", f"/api/alert/{red}", {"status": "Ignored"}),
            ("PATCH", f"/api/alert/{red}", {"tlp": 2}),
            ("PATCH", "/api/alert/_bulk", {"ids": [amber, red], "addTags": ["x"]}),
            ("POST", f"/api/alert/{red}/markAsRead", None),
            ("POST", f"/api/alert/{red}/markAsUnread", None),
            ("POST", f"/api/alert/{red}/follow", None),
            ("POST", f"/api/alert/{red}/artifact", {"dataType": "ip", "data": "192.0.2.1"}),
            ("POST", f"/api/alert/{red}/comment", {"message": "x"}),
            ("DELETE", f"/api/comment/{comment}", None),
            ("POST", f"/api/alert/{red}/createCase", None),
            ("POST", f"/api/alert/{amber}/merge/{case}", None),
            ("POST", "/api/alert/merge/_bulk", {"caseId": case, "alertIds": [red]}),
            ("PATCH", f"/api/v1/alert/{red}", {"tlp": 2}),
        ):
            is_refused(await cleared.act("lead" if "comment" in path else "amber", method, path, body))
        assert await cleared.events() == before
        assert (await cleared.act("red", "POST", f"/api/alert/{red}/createCase")).status_code == 201
        await cleared.own("POST", f"/api/alert/{red}/markAsRead")


async def test_who_may_not_see_the_object_neither_approves_denies_nor_cancels(tmp_path: Path) -> None:
    async with cleared_core(tmp_path, approval=1) as cleared:
        alert = await cleared.alert()
        action = (await cleared.run("red", alert)).json()["id"]
        own = (await cleared.own("POST", ACTION, {"responderId": CLOSE, "objectType": "alert", "objectId": alert}))[
            "id"
        ]
        before = await cleared.events()
        is_refused(await cleared.act("amber", "POST", f"{ACTION}/{action}/approve"))
        is_refused(await cleared.act("amber", "POST", f"{ACTION}/{action}/deny"))
        is_refused(await cleared.act("lead", "DELETE", f"{ACTION}/{action}"))
        is_refused(await cleared.act("amber", "DELETE", f"{ACTION}/{own}"))
        assert await cleared.events() == before
        assert (await cleared.own("POST", f"{ACTION}/{action}/approve"))["status"] == "Waiting"
        assert (await cleared.ended(action))["status"] == "Success"
        assert (await cleared.own("DELETE", f"{ACTION}/{own}"))["status"] == "Deleted"


async def test_who_may_not_see_what_a_run_acts_on_does_not_approve_it(tmp_path: Path) -> None:
    async with cleared_core(tmp_path, approval=1, target=("ip",)) as cleared:
        body = {"type": "siem", "source": "s", "sourceRef": "1", "title": "t", "description": "d", "tlp": 2}
        alert = (await cleared.core.send("POST", "/api/alert", {**body, "artifacts": [HIDDEN]})).json()["id"]
        action = (await cleared.run("red", alert)).json()
        assert [artifact["tlp"] for artifact in action["target"]] == [3]
        is_refused(await cleared.act("amber", "POST", f"{ACTION}/{action['id']}/approve"))
        await cleared.core.core.people.set_clearance("lead", 3)
        assert (await cleared.act("lead", "POST", f"{ACTION}/{action['id']}/approve")).status_code == 200


async def amber_artifact(cleared: ClearedCore, root: str) -> tuple[str, str]:
    """The id of an amber artifact, and the path of its alert or case, which is amber too."""
    send, level = cleared.core.send, {"title": "t", "description": "d", "tlp": 2}
    fields = {"dataType": "ip", "data": "192.0.2.1", "tlp": 2}
    if root == "alert":
        body = {**level, "type": "siem", "source": "s", "sourceRef": "1", "artifacts": [fields]}
        alert = (await send("POST", "/api/alert", body)).json()
        return alert["artifacts"][0]["id"], f"/api/alert/{alert['id']}"
    case = (await send("POST", "/api/case", level)).json()["id"]
    return (await send("POST", f"/api/case/{case}/artifact", fields)).json()["id"], f"/api/case/{case}"


@pytest.mark.parametrize("root", ["alert", "case"])
async def test_acts_on_a_run_take_the_highest_level_of_its_object_and_root_and_say_nothing_else(
    tmp_path: Path, root: str
) -> None:
    sections = {
        BLOCK: ResponderSection(undo=RELEASE, undo_after_minutes=60),
        RELEASE: ResponderSection(approval=1, approve_by=("red", "lead")),
    }
    async with cleared_core(tmp_path, sections) as cleared:
        artifact, path = await amber_artifact(cleared, root)
        target = {"objectType": "case_artifact", "objectId": artifact}
        block = {"responderId": BLOCK, **target}
        ended = (await cleared.ended((await cleared.act("amber", "POST", ACTION, block)).json()["id"]))["id"]
        waits = (await cleared.run("red", artifact, "case_artifact", RELEASE)).json()["id"]
        own = (await cleared.run("amber", artifact, "case_artifact", RELEASE)).json()["id"]
        request = {"responderId": RELEASE, "targets": [target]}
        bulk = (await cleared.act("red", "POST", f"{ACTION}/_bulk", request)).json()["id"]
        await cleared.core.send("PATCH", path, {"tlp": 3})
        before = await cleared.events()
        for login in ("amber", "lead"):
            for action in (ended, waits, own):
                for method, end, body in (
                    ("POST", "/approve", None),
                    ("POST", "/deny", {"message": "no"}),
                    ("DELETE", "", None),
                    ("POST", "/undo", {}),
                    ("PATCH", "/undo", {"undoAfterMinutes": 5}),
                    ("POST", "/undo/~1/approve", None),
                    ("POST", "/undo/~1/deny", {"message": "no"}),
                ):
                    is_refused(await cleared.act(login, method, f"{ACTION}/{action}{end}", body))
            for end in ("approve", "deny", "retry"):
                is_refused(await cleared.act(login, "POST", f"{ACTION}/_bulk/{bulk}/{end}"))
            is_refused(await cleared.act(login, "POST", ACTION, block))
            is_refused(await cleared.act(login, "PATCH", f"/api/case/artifact/{artifact}", {"message": "x"}))
        assert await cleared.events() == before
        assert (await cleared.act("red", "POST", f"{ACTION}/{own}/approve")).status_code == 409
        message = json.loads((await cleared.ended(own))["report"])["message"]
        assert "was raised to RED since this was asked for" in message


async def test_a_run_on_an_artifact_that_is_gone_takes_the_clearance_that_it_took(tmp_path: Path) -> None:
    async with cleared_core(tmp_path, {BLOCK: ResponderSection(approval=1)}) as cleared:
        artifact, path = await amber_artifact(cleared, "alert")
        action = (await cleared.run("red", artifact, "case_artifact", BLOCK)).json()["id"]
        await cleared.core.send("PATCH", path, {"artifacts": []})
        await cleared.core.core.people.set_clearance("lead", 1)
        refused = await cleared.act("lead", "POST", f"{ACTION}/{action}/deny")
        assert (refused.status_code, "it is TLP:AMBER and you may see" in refused.text) == (403, True)
        await cleared.core.send("PATCH", path, {"tlp": 3})
        is_refused(await cleared.act("amber", "POST", f"{ACTION}/{action}/deny"))
        await cleared.core.send("PATCH", path, {"tlp": 2})
        assert (await cleared.act("amber", "POST", f"{ACTION}/{action}/deny")).json()["outcome"] == "denied"


HIDDEN = {"dataType": "ip", "data": "192.0.2.66", "tlp": 3, "tags": ["informant"], "message": "from an informant"}
LOWERED = {"dataType": "ip", "data": "192.0.2.66", "tlp": 0, "tags": ["x"], "message": "x", "ioc": True}
SEEN = {"dataType": "ip", "data": "192.0.2.1", "tlp": 2}


@pytest.mark.parametrize("is_in_case", [False, True])
async def test_a_change_of_an_alert_keeps_artifacts_above_the_clearance_as_they_are(
    tmp_path: Path, is_in_case: bool
) -> None:
    async with cleared_core(tmp_path) as cleared:
        body = {"type": "siem", "source": "s", "sourceRef": "1", "title": "t", "description": "d", "tlp": 2}
        alert = (await cleared.core.send("POST", "/api/alert", {**body, "artifacts": [HIDDEN, SEEN]})).json()
        path = f"/api/alert/{alert['id']}"
        if is_in_case:
            await cleared.core.send("POST", f"{path}/createCase")

        async def artifacts() -> list[dict[str, Any]]:
            return list((await cleared.core.send("GET", path)).json()["artifacts"])

        kept = (await artifacts())[0]
        new = {"dataType": "ip", "data": "192.0.2.2"}
        for method, end, change, data in (
            ("PATCH", "", {"artifacts": [LOWERED, {**SEEN, "tlp": 1}, new]}, ["192.0.2.1", "192.0.2.2"]),
            ("PATCH", "", {"artifacts": [LOWERED, new]}, ["192.0.2.2"]),
            ("POST", "/artifact", LOWERED, ["192.0.2.2"]),
            ("POST", "/artifact", {**LOWERED, "data": ["192.0.2.66", "192.0.2.3"]}, ["192.0.2.2", "192.0.2.3"]),
            ("PATCH", "", {"artifacts": []}, []),
        ):
            answer = await cleared.act("amber", method, f"{path}{end}", change)
            assert answer.status_code < 300, answer.text
            assert (await artifacts())[0] == kept
            assert [artifact["data"] for artifact in (await artifacts())[1:]] == data
            if method == "POST":
                assert "informant" not in answer.text
        bulk = {"ids": [alert["id"]], "artifacts": [LOWERED]}
        assert (await cleared.act("amber", "PATCH", "/api/alert/_bulk", bulk)).status_code == 200
        assert await artifacts() == [kept]
        own = (await cleared.core.send("GET", f"/api/case/artifact/{kept['id']}")).json()
        assert own == {name: value for name, value in kept.items() if value is not None}
        await cleared.act("red", "PATCH", path, {"artifacts": [LOWERED]})
        assert [artifact["tlp"] for artifact in await artifacts()] == [0]
        await cleared.core.send("PATCH", path, {"artifacts": []})
        assert await artifacts() == []


async def test_a_change_of_an_alert_keeps_artifacts_of_a_case_above_the_clearance(tmp_path: Path) -> None:
    """As for a change of the artifact itself, what is in a case takes the case's clearance."""
    async with cleared_core(tmp_path) as cleared:
        _, path = await amber_artifact(cleared, "alert")
        case = (await cleared.core.send("POST", f"{path}/createCase")).json()["id"]
        await cleared.core.send("PATCH", f"/api/case/{case}", {"tlp": 3})
        await cleared.act("amber", "PATCH", path, {"artifacts": [{**SEEN, "tlp": 0}, {**SEEN, "data": "192.0.2.2"}]})
        await cleared.act("amber", "PATCH", path, {"artifacts": [{**SEEN, "data": "192.0.2.3"}]})
        found = (await cleared.core.send("GET", path)).json()["artifacts"]
        assert [(artifact["data"], artifact["tlp"]) for artifact in found] == [("192.0.2.1", 2), ("192.0.2.3", 2)]


async def test_a_case_does_not_tell_that_it_has_an_artifact_above_the_clearance(tmp_path: Path) -> None:
    async with cleared_core(tmp_path) as cleared:
        case = (await cleared.core.send("POST", "/api/case", {"title": "t", "description": "d"})).json()["id"]
        path = f"/api/case/{case}/artifact"
        hidden = (await cleared.core.send("POST", path, HIDDEN)).json()
        await cleared.core.send("POST", path, SEEN)
        before = await cleared.events()
        answer = await cleared.act("amber", "POST", path, LOWERED)
        assert answer.status_code == 201, answer.text
        shown = answer.json()
        assert {**shown, **LOWERED} == shown
        assert "informant" not in answer.text
        assert await cleared.events() == before
        both = {**LOWERED, "data": ["192.0.2.66", "192.0.2.2"]}
        assert len((await cleared.act("amber", "POST", path, both)).json()) == 2
        assert await cleared.events() == before + 1
        assert (await cleared.core.send("GET", f"/api/case/artifact/{hidden['id']}")).json() == hidden
        assert (await cleared.act("amber", "POST", path, SEEN)).json()["type"] == "CreateError"
        assert (await cleared.act("red", "POST", path, LOWERED)).json()["type"] == "CreateError"


@pytest.mark.parametrize("route", ["one", "_bulk"])
async def test_a_merge_keeps_an_artifact_of_the_case_above_the_clearance_as_it_is(tmp_path: Path, route: str) -> None:
    async with cleared_core(tmp_path) as cleared:
        send = cleared.core.send
        case = (await send("POST", "/api/case", {"title": "t", "description": "d"})).json()["id"]
        hidden = (await send("POST", f"/api/case/{case}/artifact", HIDDEN)).json()
        alert = await cleared.alert(2)
        await cleared.act("amber", "PATCH", f"/api/alert/{alert}", {"artifacts": [LOWERED, SEEN]})
        if route == "one":
            answer = await cleared.act("amber", "POST", f"/api/alert/{alert}/merge/{case}")
        else:
            answer = await cleared.act("amber", "POST", "/api/alert/merge/_bulk", {"alertIds": [alert], "caseId": case})
        assert answer.status_code == 200, answer.text
        assert (await send("GET", f"/api/case/artifact/{hidden['id']}")).json() == hidden
        shown = (await send("GET", f"/api/alert/{alert}")).json()["artifacts"]
        assert [(item["data"], item["tlp"]) for item in shown] == [("192.0.2.66", 3), ("192.0.2.1", 2)]


async def test_a_tag_of_runs_is_found_by_who_may_see_one_of_them_and_goes_into_a_case_likewise(tmp_path: Path) -> None:
    async with cleared_core(tmp_path, target=("ip",)) as cleared:

        async def tagged(reference: str, *acted_on: str, **more: Any) -> str:
            """An alert whose runs, on one artifact each, have tagged it."""
            body = {"type": "siem", "source": "s", "sourceRef": reference, "title": "t", "description": "d", "tlp": 0}
            alert = (
                await cleared.core.send("POST", "/api/alert", {**body, "artifacts": [HIDDEN, SEEN], **more})
            ).json()
            for target in acted_on:
                run = {"responderId": CLOSE, "objectType": "alert", "objectId": alert["id"], "target": [target]}
                await cleared.ended((await cleared.act("red", "POST", ACTION, run)).json()["id"])
            return str(alert["id"])

        async def found(login: str) -> set[str]:
            answer = await cleared.act(login, "GET", "/api/alert/_find?text=false-positive")
            return {alert["sourceRef"] for alert in answer.json()}

        hidden = await tagged("hidden", "192.0.2.66")
        await tagged("was there before", "192.0.2.66", tags=["false-positive"])
        both = await tagged("both", "192.0.2.66", "192.0.2.1")
        again = await tagged("again", "192.0.2.66")
        for change in ("removeTags", "addTags"):
            await cleared.act("amber", "PATCH", f"/api/alert/{again}", {change: ["false-positive"]})
        assert await found("red") == {"hidden", "was there before", "both", "again"}
        assert await found("amber") == {"was there before", "both", "again"}
        assert (await cleared.own("GET", f"/api/alert/{both}"))["tagLevels"] == {"false-positive": 2}
        case = await cleared.own("POST", f"/api/alert/{hidden}/createCase", {})
        assert (case["tags"], case["tagLevels"]) == (["false-positive"], {"false-positive": 3})
        assert "tagLevels" not in await cleared.own("POST", f"/api/alert/{again}/merge/{case['id']}", {})
        await cleared.own("PATCH", f"/api/alert/{hidden}", {"tags": ["other"]})
        assert "tagLevels" not in await cleared.own("GET", f"/api/alert/{hidden}")


async def test_a_requester_who_may_not_see_the_object_any_more_starts_nothing(tmp_path: Path) -> None:
    async with cleared_core(tmp_path, approval=1) as cleared:
        raised, lowered, own = [await cleared.alert(2, str(number)) for number in range(3)]
        one = (await cleared.run("amber", raised)).json()["id"]
        other = (await cleared.run("amber", lowered)).json()["id"]
        body = {"responderId": CLOSE, "objectType": "alert", "objectId": own}
        third = (await cleared.own("POST", ACTION, body))["id"]
        await cleared.core.send("PATCH", f"/api/alert/{raised}", {"tlp": 3})
        await cleared.act("red", "POST", f"{ACTION}/{one}/approve")
        first = await cleared.ended(one)
        await cleared.core.core.people.set_clearance("amber", 1)
        for number in (other, third):
            await cleared.act("red", "POST", f"{ACTION}/{number}/approve")
        second, with_own_key = await cleared.ended(other), await cleared.ended(third)
    messages = [json.loads(action["report"])["message"] for action in (first, second)]
    assert [first["status"], second["status"], with_own_key["status"]] == ["Failure", "Failure", "Success"]
    assert messages == [
        f"The TLP of {raised} was raised to RED since this was asked for, so it did not run; ask again if it is still"
        " needed.",
        "amber@responder-bot.local asked for this, but it is TLP:AMBER and they may see up to TLP:GREEN, so it did not"
        " run; ask somebody who may see it.",
    ]
