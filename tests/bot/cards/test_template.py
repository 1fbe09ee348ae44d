"""The modal of a case template and its submission."""

from typing import Any

from bot.cards import template, views
from bot.cards.template import Draft
from bot.slack_emulator.limits import problems


def submitted(draft: Draft, typed: dict[str, str]) -> dict[str, Any]:
    """The view as Slack submits it."""
    view = template.template_view(draft)
    state = {
        block: {
            "value": {"type": "static_select", "selected_option": {"value": text}}
            if block.endswith(("severity", "tlp", "pap", ":kind"))
            else {"type": "plain_text_input", "value": text}
        }
        for block, text in typed.items()
    }
    return {**view, "id": "V1", "state": {"values": state}}


def test_every_field_is_read_from_a_submission() -> None:
    draft = Draft().with_task().with_field()
    filled = template.parse_submission(
        submitted(
            draft,
            {
                "name": " Phishing ",
                "displayName": "Phish",
                "titlePrefix": "[P] ",
                "description": "d",
                "severity": "3",
                "tlp": "1",
                "pap": "0",
                "tags": "mail, phish ,,",
                "task:0:title": "Look",
                "task:0:order": "5",
                "task:1:title": "Block",
                "task:1:group": "it",
                "task:1:description": "all",
                "field:2:name": "cost",
                "field:2:kind": "integer",
                "field:2:value": "42",
            },
        )
    )
    assert filled.errors == {}
    assert filled.body == {
        "name": "Phishing",
        "displayName": "Phish",
        "titlePrefix": "[P] ",
        "description": "d",
        "severity": 3,
        "tlp": 1,
        "pap": 0,
        "tags": ["mail", "phish"],
        "tasks": [
            {"order": 5, "title": "Look", "group": "default", "description": ""},
            {"order": 1, "title": "Block", "group": "it", "description": "all"},
        ],
        "customFields": {"cost": {"integer": 42, "order": 1}},
    }


def test_each_mistake_is_shown_at_its_field() -> None:
    draft = Draft((0, 1), (2, 3, 4), 5)
    filled = template.parse_submission(
        submitted(
            draft,
            {
                "name": "n",
                "task:0:title": "",
                "task:0:group": "g",
                "task:1:title": "t",
                "task:1:order": "first",
                "field:2:name": "cost",
                "field:2:kind": "integer",
                "field:2:value": "many",
                "field:3:name": "cost",
                "field:4:value": "x",
            },
        )
    )
    assert filled.errors == {
        "task:0:title": "A task needs a title; remove the task, or name it.",
        "task:1:order": "Enter a whole number, such as 1.",
        "field:2:value": "Enter a whole number, such as 42.",
        "field:3:name": "There is a custom field 'cost' already.",
        "field:4:name": "A custom field needs a name; remove the field, or name it.",
    }


def test_an_error_of_core_is_shown_at_its_field() -> None:
    filled = template.parse_submission(
        submitted(
            Draft((0, 7), (8,), 9),
            {
                "name": "n",
                "task:7:title": "t",
                "field:8:name": "c",
                "field:8:kind": "date",
                "field:8:value": "2025-12-31",
            },
        )
    )
    errors = [
        {"name": "tasks[0].title", "type": "TooLong", "message": "too long"},
        {"name": "customFields.c.date", "type": "InvalidFormat", "message": "no date"},
        {"name": "tags[2]", "type": "InvalidFormat", "message": "no text"},
        {"name": "name", "type": "MissingAttributeError"},
    ]
    assert template.place_errors(errors, filled.block_ids, ["name", "tags"]) == {
        "task:7:title": "too long",
        "field:8:value": "no date",
        "tags": "tags[2]: no text",
        "name": "This is needed.",
    }


def test_tasks_past_what_a_view_holds_are_typed_one_in_each_line() -> None:
    draft = Draft(tuple(range(template.MAX_TASKS)), (), 99)
    lines = "Look | it | 3 | all of it\n\nBlock\n| no title"
    filled = template.parse_submission(submitted(draft, {"name": "n", template.MORE_TASKS: lines}))
    assert filled.body["tasks"][:2] == [
        {"order": 3, "title": "Look", "group": "it", "description": "all of it"},
        {"order": 1, "title": "Block", "group": "default", "description": ""},
    ]
    assert filled.errors == {template.MORE_TASKS: "The line '| no title' has no title before the first |."}


def test_custom_fields_past_what_a_view_holds_are_typed_one_in_each_line() -> None:
    draft = Draft((), (1, 2, 3, 4, 5), 6)
    view = template.template_view(draft)
    assert any(block.get("block_id") == template.MORE_FIELDS for block in view["blocks"])
    assert problems("modal", template.template_view(Draft(tuple(range(12)), draft.fields, 20))) == []

    def more(text: str) -> template.Submission:
        return template.parse_submission(submitted(draft, {"name": "n", template.MORE_FIELDS: text}))

    filled = more("cost | integer | 42\n\nowner\nseen | Boolean | yes | 9")
    assert filled.errors == {}
    assert filled.body["customFields"] == {
        "cost": {"integer": 42, "order": 1},
        "owner": {"string": None, "order": 2},
        "seen": {"boolean": True, "order": 9},
    }
    for text, words in {
        "a | text | b": "the kind is one of",
        "| string": "no name",
        "a\na": "already",
        "a | integer | b": "Enter a whole number",
    }.items():
        assert words in more(text).errors[template.MORE_FIELDS]


def test_block_ids_stay_while_tasks_come_and_go() -> None:
    draft = Draft().with_task().with_task().without_task(1)
    assert draft.tasks == (0, 2)
    blocks = {b.get("block_id") for b in template.template_view(draft)["blocks"]}
    assert {"task:0:title", "task:2:title"} <= blocks
    assert Draft.from_text(draft.to_text()) == draft
    assert Draft.from_text("nonsense") == Draft()


def test_values_of_any_shape_are_read_without_a_crash() -> None:
    odd: list[Any] = [
        {},
        {"state": None},
        {"state": {"values": {"a": None, "b": {"c": None}, "d": {"e": {"value": 3}}}}},
    ]
    assert [views.values(view) for view in odd] == [{}, {}, {"d": ""}]
    assert views.files({"state": {"values": {"file": {"x": {"files": [1, {"id": "F1"}]}}}}}, "file") == [{"id": "F1"}]
