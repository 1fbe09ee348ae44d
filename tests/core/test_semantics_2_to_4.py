"""`semantics.md 2` to `4`, rule by rule, where no other test holds it: objects, templates, responders on offer."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from core.actions.catalog import applies
from core.engines.base import Responder
from core.settings import EngineSection
from tests.core.running import RunningCore, running_core

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENGINE = "/api/connector/engine"
ALERT = {"type": "siem", "source": "elastalert", "sourceRef": "0", "title": "t", "description": "d"}
KEYS = """
_id id createdBy updatedBy createdAt updatedAt _type type source sourceRef externalLink case title description severity
date tags tlp pap status follow customFields caseTemplate artifacts similarCases
"""


def definition(name: str, data_types: list[str], **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1.0",
        "author": "me",
        "license": "MIT",
        "url": "",
        "description": f"{name} of mine",
        "dataTypeList": data_types,
        "command": f"{name}/run.py",
        "baseConfig": name,
        "configurationItems": [],
        **more,
    }


def written(folder: Path, *definitions: dict[str, Any]) -> Path:
    """A folder of responders."""
    for one in definitions:
        home = folder / one["name"]
        home.mkdir(parents=True)
        (home / f"{one['name']}.json").write_text(json.dumps(one))
        (home / "run.py").write_text("")
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCore]:
    folder = tmp_path_factory.mktemp("core")
    every = ["thehive:case", "thehive:case_task", "thehive:case_task_log", "thehive:case_artifact"]
    first = written(
        folder / "first",
        definition("Everywhere", [*every, "thehive:alert"]),
        definition("Shouting", ["TheHive:ALERT", "elsewhere:Case"]),
        definition("Bare", ["alert"]),
        definition("Narrow", ["thehive:alert"], config={"check_tlp": True, "max_tlp": 1, "check_pap": True}),
        definition("Unbound", ["thehive:alert"], config={"check_tlp": False}),
        definition("Default", ["thehive:alert"], config={"check_tlp": True}),
    )
    second = written(folder / "second", definition("Everywhere", ["thehive:alert"], description="of the second"))
    engines = (EngineSection(name="one", responders=(first,)), EngineSection(name="two", responders=(second,)))
    async with running_core(folder, engine=engines, core={"organisation": "soc"}) as running:
        yield running


async def made(core: RunningCore, path: str, body: Any, status: int = 201) -> Any:
    answer = await core.send("POST", path, body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def offered(core: RunningCore, kind: str, object_id: str, query: str = "") -> list[dict[str, Any]]:
    """What is on offer of the responders of this module."""
    answer = await core.send("GET", f"{ENGINE}/responder/{kind}/{object_id}{query}", profile="read-only")
    assert answer.status_code == 200, answer.text
    return [one for one in answer.json() if not one["name"].startswith("ResponderBot_")]


# --- 2: objects -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/alert", ALERT),
        ("/api/case", {"title": "t", "description": "d"}),
        ("/api/case/template", {"name": "levels"}),
    ],
)
async def test_levels_are_bounded_and_two_by_default(core: RunningCore, path: str, body: dict[str, Any]) -> None:
    unique = {key: f"levels of {path}" for key in ("sourceRef", "name") if key in body}
    word = await made(core, path, {**body, **unique})
    assert (word["severity"], word["tlp"], word["pap"]) == (2, 2, 2)
    for name, wrong in (("severity", (0, 5, -1)), ("tlp", (-1, 4)), ("pap", (-1, 4))):
        for value in wrong:
            refused = await made(core, path, {**body, "name": "x", "sourceRef": "x", name: value}, 400)
            assert [error["name"] for error in refused["errors"]] == [name]
    for number, levels in enumerate(({"severity": 1, "tlp": 0, "pap": 0}, {"severity": 4, "tlp": 3, "pap": 3})):
        unique = {key: f"{number} of {path}" for key in ("sourceRef", "name") if key in body}
        word = await made(core, path, {**body, **unique, **levels})
        assert {name: word[name] for name in levels} == levels


async def test_an_alert_s_keys_keep_their_order_through_every_change(core: RunningCore) -> None:
    alert = await made(
        core, "/api/alert", {**ALERT, "sourceRef": "keys", "artifacts": [{"dataType": "ip", "data": "a"}]}
    )
    base = f"/api/alert/{alert['id']}"
    answers = [
        alert,
        (await core.send("GET", base)).json(),
        await made(core, f"{base}/markAsRead", None, 200),
        await made(core, f"{base}/markAsUnread", None, 200),
        (await made(core, "/api/alert/_search", {"query": {"sourceRef": "keys"}}, 200))[0],
    ]
    assert [list(answer) for answer in answers] == [KEYS.split()] * 5
    assert [answer["status"] for answer in answers] == ["New", "New", "Ignored", "New", "New"]


async def test_a_second_alert_is_told_in_the_words_of_the_interface(core: RunningCore) -> None:
    body = {**ALERT, "sourceRef": "8257b4"}
    await made(core, "/api/alert", body)
    refused = await made(core, "/api/alert", body, 400)
    assert (refused["type"], refused["message"]) == (
        "CreateError",
        "Alert siem:elastalert:8257b4 already exist in organisation soc",
    )


async def test_an_alert_is_found_by_its_reference_escaped_or_not(core: RunningCore) -> None:
    alert = await made(core, "/api/alert", {**ALERT, "source": "a/b", "sourceRef": "x y;z?"})
    for reference in ("siem;a%2Fb;x%20y;z%3F", "siem%3Ba%2Fb%3Bx%20y%3Bz%3F"):
        assert (await core.send("GET", f"/api/alert/{reference}")).json()["id"] == alert["id"]


async def test_every_search_has_a_range_a_sort_and_its_total(core: RunningCore) -> None:
    case = await made(core, "/api/case", {"title": "c", "description": "d"})
    task = await made(core, f"/api/case/{case['id']}/task", {"title": "first"})
    await made(core, f"/api/case/{case['id']}/task", {"title": "second"})
    for number in range(2):
        await made(core, f"/api/case/task/{task['id']}/log", {"message": f"m{number}"})
        await made(core, "/api/case/template", {"name": f"search {number}"})
        await made(core, "/api/alert", {**ALERT, "sourceRef": f"search {number}"})
    for path in ("alert", "case/template", "case/task", "case/task/log"):
        address = f"/api/{path}/_search?range=0-1&sort=-createdAt&sort=-id"
        answer = await core.send("POST", address, {"query": {"_gt": {"createdAt": 0}}}, profile="read-only")
        every = await core.send("POST", f"/api/{path}/_search?range=all&sort=-createdAt,-id", {})
        assert answer.json() == every.json()[:1], path
        assert int(answer.headers["x-total"]) == len(every.json()) >= 2


# --- 3: case templates ----------------------------------------------------------------------------------------------


async def test_a_template_of_every_kind_of_field_comes_back_as_it_was_sent(core: RunningCore) -> None:
    sent = {
        "s": {"string": "x", "order": 4},
        "n": {"string": None},
        "i": {"integer": None, "order": 1},
        "f": {"float": 1.5},
        "b": {"boolean": False},
        "d": {"date": 1_700_000_000_000, "order": None},
        "short": "text",
    }
    template = await made(core, "/api/case/template", {"name": "fields", "customFields": sent, "titlePrefix": " [F]  "})
    fields = template["customFields"]
    ids = [field.pop("_id") for field in fields.values()]
    assert len(set(ids)) == len(sent)
    assert fields == {
        "s": {"string": "x", "order": 4},
        "n": {"string": None, "order": 2},
        "i": {"integer": None, "order": 1},
        "f": {"float": 1.5, "order": 4},
        "b": {"boolean": False, "order": 5},
        "d": {"date": 1_700_000_000_000, "order": 6},
        "short": {"string": "text", "order": 7},
    }
    assert list(fields) == list(sent)
    case = await made(core, "/api/case", {"title": "t", "description": "d", "template": "fields"})
    assert (template["titlePrefix"], case["title"]) == (" [F]  ", " [F] t")


async def test_a_name_is_compared_exactly(core: RunningCore) -> None:
    for name in ("Exact", "exact", "Exact ", "Ex\u0061\u0301ct", "Ex\u00e1ct"):
        await made(core, "/api/case/template", {"name": name})
    refused = await made(core, "/api/case/template", {"name": "Exact", "severity": 3}, 400)
    assert (refused["type"], refused["message"]) == ("CreateError", 'The case template "Exact" already exists')
    quoted = await made(core, "/api/case/template", {"name": 'a "b"'})
    assert (await made(core, "/api/case/template", {"name": 'a "b"'}, 400))["message"] == (
        'The case template "a "b"" already exists'
    )
    assert (await core.send("GET", "/api/case/template/a%20%22b%22")).json()["id"] == quoted["id"]


# --- 4: responders on offer -----------------------------------------------------------------------------------------


async def test_what_is_offered_fits_the_kind_whatever_its_case_and_product(core: RunningCore) -> None:
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "offered", "tlp": 1, "pap": 2})
    case = await made(core, "/api/case", {"title": "t", "description": "d"})
    task = await made(core, f"/api/case/{case['id']}/task", {"title": "t"})
    log = await made(core, f"/api/case/task/{task['id']}/log", {"message": "m"})
    artifact = await made(core, f"/api/case/{case['id']}/artifact", {"dataType": "ip", "data": "a"})
    names = {
        kind: [one["name"] for one in await offered(core, kind, word["id"])]
        for kind, word in (
            ("alert", alert),
            ("case", case),
            ("case_task", task),
            ("case_task_log", log),
            ("case_artifact", artifact),
        )
    }
    assert names == {
        "alert": ["Bare_1_0", "Default_1_0", "Everywhere_1_0", "Narrow_1_0", "Shouting_1_0", "Unbound_1_0"],
        "case": ["Everywhere_1_0", "Shouting_1_0"],
        "case_task": ["Everywhere_1_0"],
        "case_task_log": ["Everywhere_1_0"],
        "case_artifact": ["Everywhere_1_0"],
    }
    shouting = next(one for one in await offered(core, "alert", alert["id"]) if one["name"] == "Shouting_1_0")
    assert shouting["dataTypeList"] == ["TheHive:ALERT", "elsewhere:Case"]


async def test_the_levels_hide_what_its_checks_forbid(core: RunningCore) -> None:
    hidden = {}
    for tlp, pap in ((2, 2), (3, 0), (0, 3), (3, 3)):
        alert = await made(core, "/api/alert", {**ALERT, "sourceRef": f"levels {tlp}{pap}", "tlp": tlp, "pap": pap})
        names = {one["name"] for one in await offered(core, "alert", alert["id"])}
        told = await offered(core, "alert", alert["id"], "?explain=true")
        assert names == {one["name"] for one in told if not any("PAP" in r or "TLP" in r for r in one["reasons"])}
        hidden[tlp, pap] = sorted({"Default_1_0", "Narrow_1_0", "Unbound_1_0"} - names)
    assert hidden == {
        (2, 2): ["Narrow_1_0"],
        (3, 0): ["Default_1_0", "Narrow_1_0"],
        (0, 3): ["Narrow_1_0"],
        (3, 3): ["Default_1_0", "Narrow_1_0"],
    }


async def test_what_two_engines_have_is_one_offer_under_the_first_one_s_id(core: RunningCore) -> None:
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "merged"})
    everywhere = next(one for one in await offered(core, "alert", alert["id"]) if one["name"] == "Everywhere_1_0")
    started = [
        await made(
            core,
            f"{ENGINE}/action",
            {"responderId": responder, "objectType": "alert", "objectId": alert["id"], **engine},
        )
        for responder in (everywhere["id"], "Everywhere_1_0")
        for engine in ({}, {"engineId": "two"})
    ]
    assert (everywhere["engineIds"], everywhere["description"]) == (["one", "two"], "Everywhere of mine")
    assert [action["engineId"] for action in started] == ["one", "two"] * 2
    assert {action["responderId"] for action in started} == {everywhere["id"]}
    only_first = {"responderId": "Bare_1_0", "objectType": "alert", "objectId": alert["id"], "engineId": "two"}
    refused = await made(core, f"{ENGINE}/action", only_first, 404)
    assert refused["message"] == "Responder Bare_1_0 not found"


async def test_one_without_its_configuration_says_so_where_it_could_be_wanted(core: RunningCore) -> None:
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "unconfigured"})
    explained = (await core.send("GET", f"{ENGINE}/responder/alert/{alert['id']}?explain=true")).json()
    lookup = next(one for one in explained if one["name"] == "ResponderBot_Lookup_1_0")
    assert lookup["verdict"] == "cannot_run"
    assert lookup["reasons"] == ["not configured: csv missing; an administrator can set it"]
    listed = (await core.send("GET", f"{ENGINE}/responder/alert/{alert['id']}")).json()
    assert "ResponderBot_Lookup_1_0" not in [one["name"] for one in listed]


async def test_a_missing_right_is_a_reason(core: RunningCore) -> None:
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "right", "tlp": 1})
    told = await offered(core, "alert", alert["id"], "?explain=true")
    assert {one["verdict"] for one in told} == {"cannot_run"}
    bare = next(one for one in told if one["name"] == "Bare_1_0")
    assert bare["reasons"] == ["you haven't the permission manageAction; an org-admin can give it"]
    assert bare["policy"] == {"confirm": "", "approval": 0}


async def test_what_is_hidden_is_refused_with_the_reason_before_anything_is_kept(core: RunningCore) -> None:
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "hidden"})
    run = {"responderId": "Narrow_1_0", "objectType": "alert", "objectId": alert["id"]}
    refused = await made(core, f"{ENGINE}/action", run, 400)
    assert (refused["type"], refused["message"]) == (
        "BadRequest",
        "Narrow_1_0 can't run on this object: TLP:AMBER is above the TLP:GREEN that it may see.",
    )
    case = await made(core, "/api/case", {"title": "t", "description": "d"})
    wrong_kind = await made(
        core, f"{ENGINE}/action", {**run, "responderId": "Bare_1_0", "objectType": "case", "objectId": case["id"]}, 400
    )
    assert wrong_kind["message"] == "Bare_1_0 can't run on this object: it is not for this kind of object (Case)."
    assert (await core.send("GET", f"{ENGINE}/action/responder/alert/{alert['id']}")).json() == []


async def test_a_kind_is_never_a_part_of_another() -> None:
    assert not applies(("thehive:case_task",), "case")
    assert not applies(("thehive:case",), "case_task")
    assert not applies((), "alert")
    assert Responder("", "", "", "", ()).max_tlp == 3
