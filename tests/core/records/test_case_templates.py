"""Case templates over HTTP."""

from typing import Any

import pytest

from core.common.errors import ResponderBotError
from core.records.cases import custom_fields
from tests.core.object_api import ObjectApi

FULL: dict[str, Any] = {
    "name": "MISP Event",
    "displayName": "MISP",
    "titlePrefix": "[MISP]  ",
    "description": "An event of MISP",
    "severity": 1,
    "tlp": 0,
    "pap": 3,
    "tags": ["b", "a", "b"],
    "tasks": [
        {"order": 1, "title": "Second", "group": "g", "description": "d"},
        {"order": 0, "title": "First"},
    ],
    "customFields": {"hits": {"integer": None, "order": 4}, "who": "me"},
}


async def test_a_template_comes_back_whole(api: ObjectApi) -> None:
    made = await api.post("/api/case/template", FULL)
    by = {"createdBy": "admin@soc.example", "createdAt": api.clock.now_ms}
    task = {**by, "_type": "case_task", "status": "Waiting", "flag": False}
    assert made == {
        **FULL,
        **by,
        "_id": "~1",
        "id": "~1",
        "_type": "caseTemplate",
        "tags": ["b", "a"],
        "tasks": [
            {**task, "_id": "~2", "id": "~2", "order": 1, "title": "Second", "group": "g", "description": "d"},
            {**task, "_id": "~3", "id": "~3", "order": 0, "title": "First", "group": "default", "description": ""},
        ],
        "customFields": {
            "hits": {"integer": None, "order": 4, "_id": "~4"},
            "who": {"string": "me", "order": 2, "_id": "~5"},
        },
        "metrics": {},
        "flag": False,
        "status": "Ok",
    }
    assert await api.get("/api/case/template/~1") == made
    assert await api.get("/api/case/template/MISP%20Event") == made
    assert await api.events() == [("case_template.created", "~1", "~1")]


async def test_only_the_name_is_required(api: ObjectApi) -> None:
    made = await api.post("/api/case/template", {"name": "x", "tasks": None, "severity": None, "tags": None})
    silent = {key: made[key] for key in ("displayName", "titlePrefix", "description", "severity", "tlp", "pap")}
    assert silent == {"displayName": "", "titlePrefix": "", "description": "", "severity": 2, "tlp": 2, "pap": 2}
    assert (made["tags"], made["tasks"], made["customFields"], made["metrics"]) == ([], [], {}, {})
    missing = await api.post("/api/case/template", {}, 400)
    missing.pop("requestId")
    assert missing == {
        "type": "AttributeCheckingError",
        "message": "[Attribute name is missing]",
        "errors": [{"name": "name", "type": "MissingAttributeError"}],
    }


async def test_a_name_is_unique_and_compared_exactly(api: ObjectApi) -> None:
    await api.post("/api/case/template", {"name": 'a "b"'})
    answer = await api.post("/api/case/template", {"name": 'a "b"'}, 400)
    assert (answer["type"], answer["message"]) == ("CreateError", 'The case template "a "b"" already exists')
    for name in ('A "b"', 'a "b" ', "Ex\u0061\u0301ct", "Ex\u00e1ct"):
        await api.post("/api/case/template", {"name": name})


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"string": "x"}, {"string": "x", "order": 1}),
        ({"string": None, "order": None}, {"string": None, "order": 1}),
        ({"integer": 0, "order": 0}, {"integer": 0, "order": 0}),
        ({"float": 1.5, "_id": "mine"}, {"float": 1.5, "order": 1}),
        ({"float": 2}, {"float": 2, "order": 1}),
        ({"boolean": False}, {"boolean": False, "order": 1}),
        ({"date": 1700000000000}, {"date": 1700000000000, "order": 1}),
        ({"number": 3}, {"number": 3, "order": 1}),
        ("x", {"string": "x", "order": 1}),
        (5, {"integer": 5, "order": 1}),
        (5.5, {"float": 5.5, "order": 1}),
        (True, {"boolean": True, "order": 1}),
        (None, {"string": None, "order": 1}),
    ],
)
async def test_custom_fields_are_accepted_in_every_form(api: ObjectApi, sent: Any, kept: Any) -> None:
    made = await api.post("/api/case/template", {"name": "x", "customFields": {"f": sent}})
    assert made["customFields"] == {"f": {**kept, "_id": "~2"}}
    assert (await api.get("/api/case/template/x"))["customFields"] == made["customFields"]


WRONG: tuple[tuple[Any, str], ...] = (
    ({"f": {"string": 5}}, "customFields.f.string"),
    ({"f": {"": "x", "string": "y"}}, "customFields.f.string"),
    ({"f": {"": "x", "string": None}}, "customFields.f.string"),
    ({"f": {"": "x", "integer": 3}}, "customFields.f.integer"),
    ({"f": {"": {"string": "x", "order": 1}, "order": 2}}, "customFields.f.order"),
    ({"f": {"": {"": "x"}}}, "customFields.f."),
    ({"f": {"": ["x"], "order": 2}}, "customFields.f.string"),
    ({"f": {"integer": "5"}}, "customFields.f.integer"),
    ({"f": {"integer": True}}, "customFields.f.integer"),
    ({"f": {"integer": 1.5}}, "customFields.f.integer"),
    ({"f": {"float": "x"}}, "customFields.f.float"),
    ({"f": {"boolean": 1}}, "customFields.f.boolean"),
    ({"f": {"date": "2024-01-01"}}, "customFields.f.date"),
    ({"f": {"integer": 1, "order": "a"}}, "customFields.f.order"),
    ({"f": {"colour": "red"}}, "customFields.f.colour"),
    ({"f": {}}, "customFields.f"),
    ({"f": {"integer": 1, "string": None}}, "customFields.f.integer"),
    ({"f": [1]}, "customFields.f.string"),
    ("f", "customFields"),
    ([{"name": "f"}], "customFields"),
)


async def test_a_custom_field_of_the_wrong_kind_is_named(api: ObjectApi) -> None:
    for sent, name in WRONG:
        answer = await api.post("/api/case/template", {"name": "x", "customFields": sent}, 400)
        assert (answer["type"], [error["name"] for error in answer["errors"]]) == ("AttributeCheckingError", [name])


async def test_all_wrong_fields_of_a_template_are_named_at_once(api: ObjectApi) -> None:
    wrong = {
        "name": "",
        "severity": 0,
        "tasks": [{"title": "ok"}, {"order": "x"}],
        "customFields": {"a": {"integer": "x"}, "b": {"float": 1}, "c": {"date": "x"}},
    }
    answer = await api.post("/api/case/template", wrong, 400)
    assert [error["name"] for error in answer["errors"]] == [
        "name",
        "severity",
        "tasks[1].title",
        "tasks[1].order",
        "customFields.a.integer",
        "customFields.c.date",
    ]


async def test_creating_templates_needs_the_permission(api: ObjectApi) -> None:
    answer = await api.post("/api/case/template", FULL, 403, key=await api.user("analyst"))
    words = "You are not authorized to create case template, you haven't the permission manageCaseTemplate"
    assert (answer["type"], answer["message"]) == ("AuthorizationError", words)


async def test_an_unknown_template_is_not_found(api: ObjectApi) -> None:
    for path in ("~1", "nothing", "~"):
        assert (await api.get(f"/api/case/template/{path}", 404))["message"] == "CaseTemplate not found"


async def test_a_name_that_looks_like_an_id_is_found(api: ObjectApi) -> None:
    made = await api.post("/api/case/template", {"name": "~77"})
    assert await api.get("/api/case/template/~77") == made


def test_a_wrong_custom_field_raises_with_its_path() -> None:
    with pytest.raises(ResponderBotError) as raised:
        custom_fields({"a": {"integer": "x"}}, "customFields")
    assert (raised.value.code, raised.value.fields[0]["name"]) == ("invalid_fields", "customFields.a.integer")
