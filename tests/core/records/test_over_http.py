"""Alerts, cases, case templates and searches of a running core, over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.core.running import RunningCore, made, running_core

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALERT = {"type": "siem", "source": "elastalert", "sourceRef": "0", "title": "t", "description": "d"}
KEYS = """
_id id createdBy updatedBy createdAt updatedAt _type type source sourceRef externalLink case title description severity
date tags tlp pap status assignee follow customFields caseTemplate artifacts similarCases
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path_factory.mktemp("core"), core={"organisation": "soc"}) as running:
        yield running


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
    keys = KEYS.split()
    assert [list(answer) for answer in answers] == [keys, keys, [*keys, "closedBy", "closedAt"], keys, keys]
    assert [answer["status"] for answer in answers] == ["New", "New", "Ignored", "New", "New"]


async def test_every_search_takes_a_range_and_a_sort_and_answers_its_total(core: RunningCore) -> None:
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


async def test_custom_fields_of_every_kind_come_back_as_they_were_sent(core: RunningCore) -> None:
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
