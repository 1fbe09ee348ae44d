"""The modal of a case template and its submission."""

from typing import Any

from bot.block_kit import modals
from bot.features import templates


def submitted(typed: dict[str, str]) -> dict[str, Any]:
    """The view as Slack submits it."""
    state = {
        block: {
            "value": {"type": "static_select", "selected_option": {"value": text}}
            if block in ("severity", "tlp", "pap")
            else {"type": "plain_text_input", "value": text}
        }
        for block, text in typed.items()
    }
    return {**templates.template_view(), "id": "V1", "state": {"values": state}}


def test_every_field_is_read_from_a_submission() -> None:
    filled = templates.parse_submission(
        submitted(
            {
                "name": " Phishing ",
                "displayName": "Phish",
                "titlePrefix": "[P] ",
                "description": "d",
                "severity": "3",
                "tlp": "1",
                "pap": "0",
                "tags": "mail, phish ,,",
                "tasks": "Look\n\nBlock | it | all | of it",
                "customFields": "cost | integer | 42\n\nowner\nseen | Boolean | yes\ndue|date|2025-12-31",
            }
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
            {"order": 0, "title": "Look", "group": "default", "description": ""},
            {"order": 1, "title": "Block", "group": "it", "description": "all | of it"},
        ],
        "customFields": {
            "cost": {"integer": 42, "order": 1},
            "owner": {"string": None, "order": 2},
            "seen": {"boolean": True, "order": 3},
            "due": {"date": 1767139200000, "order": 4},
        },
    }


def test_each_mistake_is_shown_at_its_field() -> None:
    def error(block_id: str, text: str) -> str:
        return templates.parse_submission(submitted({"name": "n", block_id: text})).errors[block_id]

    assert error("tasks", "Look\n| no title") == "The line '| no title' has no title before the first |."
    for text, words in {
        "a | text | b": "the kind is one of string, integer, float, boolean, date.",
        "| string": "it has no name before the first |.",
        "a\na": "there is a custom field 'a' already.",
        "a | integer | b": "write a whole number, such as 42.",
        "a | float | nan": "write a number, such as 0.5.",
        "a | boolean | 2": "write true or false.",
        "a | date | 9" * 400: "write a date, such as 2025-12-31.",
    }.items():
        assert error("customFields", text).endswith(f": {words}")


def test_an_error_of_core_is_shown_at_its_field() -> None:
    errors = [
        {"name": "tasks[0].title", "type": "TooLong", "message": "too long"},
        {"name": "customFields.c.date", "type": "InvalidFormat", "message": "no date"},
        {"name": "tags[2]", "type": "InvalidFormat", "message": "no text"},
        {"name": "name", "type": "MissingAttributeError"},
        {"name": "unknown", "type": "InvalidFormat", "message": "odd"},
    ]
    assert templates.errors_by_block(errors, ["name", "tags", "tasks", "customFields"]) == {
        "tasks": "tasks[0].title: too long",
        "customFields": "customFields.c.date: no date",
        "tags": "tags[2]: no text",
        "name": "This is needed. unknown: odd",
    }


def test_values_of_any_shape_are_read_without_a_crash() -> None:
    odd: list[Any] = [
        {},
        {"state": None},
        {"state": {"values": {"a": None, "b": {"c": None}, "d": {"e": {"value": 3}}}}},
    ]
    assert [modals.values(view) for view in odd] == [{}, {}, {"d": ""}]
