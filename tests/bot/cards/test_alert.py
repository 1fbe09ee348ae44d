"""The card of an alert."""

import json
from typing import Any

from bot.cards import ids
from bot.cards.alert import GREY, alert_card, safe_link
from bot.cards.message import Intent, Message, intents_in
from core.models import Policy
from tests.bot.cards.samples import NOW, action, alert, awaiting, button, ended


def card(*actions: Any, clearance: int = 2, **more: Any) -> Message:
    return alert_card(alert(**more), actions, clearance=clearance, button=button, now_ms=NOW)


def texts_of(message: Message) -> list[str]:
    """The texts of a message's blocks."""
    found: list[str] = []
    for block in message.blocks:
        parts = [block.get("text"), *block.get("fields", []), *block.get("elements", [])]
        found += [p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str)]
    return found


def test_a_card_has_the_linked_title_with_the_severity_word_and_six_short_fields() -> None:
    shown = texts_of(card(external_link="https://siem.example/?a=1&b=2"))
    assert shown[0] == "*HIGH* · *<https://siem.example/?a=1&amp;b=2|ET MALWARE Beacon to known C2>*"
    assert shown[1:7] == [
        "*Source*\nsuricata · 8257b4",
        "*TLP / PAP*\namber / amber",
        "*Status*\nnew",
        "*Raised*\n<!date^1763690310^{ago}|2025-11-21 01:58 UTC>",
        "*Tags*\n`c2` `host:web-3`",
        "*Artifacts*\nip `203[.]0[.]113[.]1`",
    ]
    assert shown[7].startswith("~12 · Raised by siem · ")


def test_each_run_has_its_line_with_who_when_how_long_and_result() -> None:
    lines = texts_of(card(ended(), action(41, status="InProgress"), ended("Failure", "Timed out after 1 minute.", 42)))
    assert lines[8:] == [
        "◐ *CloseFalsePositive* running · anna, <!date^1763690370^{time}|2025-11-21 01:59 UTC>",
        "✗ *CloseFalsePositive* failed after 3.2 s · anna, <!date^1763690370^{time}|2025-11-21 01:59 UTC>"
        " · Timed out after 1 minute.",
        "✓ *CloseFalsePositive* done in 3.2 s · anna, <!date^1763690370^{time}|2025-11-21 01:59 UTC> · Marked as read.",
    ]


def test_the_last_change_names_who_made_it() -> None:
    shown = texts_of(card(status="Ignored", updated_at=NOW, updated_by="ben@soc.example"))
    assert any(line.startswith("~12 · Marked as read by ben · ") for line in shown)
    assert any(line.startswith("~12 · anna started CloseFalsePositive · ") for line in texts_of(card(action())))


def test_a_change_that_a_run_made_names_the_run_and_what_it_did() -> None:
    def grey(*operations: dict[str, str], by: str = "anna@soc.example", **more: Any) -> str:
        run = ended().model_copy(update={"operations": json.dumps(operations)})
        return texts_of(card(run, updated_at=run.end_date, updated_by=by, **more))[7]

    tagged = {"type": "AddTagToAlert", "tag": "has-ip", "status": "Success"}
    read = {"type": "MarkAlertAsRead", "status": "Success"}
    assert grey(tagged).startswith("~12 · Tagged by CloseFalsePositive (anna) · ")
    assert grey(tagged, read, status="Ignored").startswith("~12 · Marked as read by CloseFalsePositive (anna) · ")
    assert grey(tagged, by="ben@soc.example").startswith("~12 · Changed by ben · ")
    assert grey({**tagged, "status": "Failure"}).startswith("~12 · Changed by anna · ")


def test_a_withheld_card_says_where_to_find_details() -> None:
    assert texts_of(card(tlp=3))[0] == "*HIGH* · ~12 · details withheld (TLP:RED): press Details"


def test_a_run_can_be_cancelled_only_while_it_waits() -> None:
    def cancels(*actions: Any) -> list[Intent]:
        made = intents_in(lambda b: alert_card(alert(), actions, clearance=2, button=b, now_ms=NOW))
        return [intent for intent in made if intent.what == "cancel"]

    assert cancels(action(40), action(41, status="InProgress"), ended(number=42)) == [Intent("cancel", "~40")]


def test_what_no_longer_applies_is_not_on_the_card() -> None:
    def offered(**more: Any) -> list[str]:
        made = intents_in(lambda b: alert_card(alert(**more), [], clearance=2, button=b, now_ms=NOW))
        return [intent.what for intent in made if intent.what not in ("menu", "details", "actions", "watch")]

    assert offered(status="Imported", case="~30") == ["refresh"]
    assert offered(status="New") == ["read", "case", "refresh"]
    assert offered(status="Ignored") == ["unread", "case", "refresh"]
    assert offered(status="Updated", case="~30") == ["read", "refresh"]


def test_a_run_that_waits_for_approval_says_how_many_agreed_and_when_it_expires() -> None:
    line = texts_of(card(awaiting(("cleo@x",), needed=2)))[8]
    assert line.startswith("○ *CloseFalsePositive* waiting for approval (1 of 2) · anna, ")
    assert line.endswith(" · expires <!date^1763694000^{time}|2025-11-21 03:00 UTC>")


def test_a_run_that_waits_for_approval_shows_inputs_and_policy_with_approve_and_deny() -> None:
    asked = awaiting(parameters='{"minutes": 60, "reason": "lateral movement"}')
    shown = alert_card(
        alert(),
        [asked],
        clearance=2,
        button=button,
        now_ms=NOW,
        policies={"CloseFalsePositive": Policy(confirm="Cuts the host off.", approval=1)},
    )
    line = texts_of(shown)[8]
    assert line.startswith("○ *CloseFalsePositive* (minutes: 60, reason: lateral movement) waiting for approval")
    assert line.endswith("\nCuts the host off.")
    offered = [e["text"]["text"] for e in shown.blocks[-1]["elements"]]
    assert offered == ["Approve", "Deny", "Cancel"]
    expired = alert_card(alert(), [asked], clearance=2, button=button, now_ms=NOW + 4_000_000)
    assert ids.APPROVE not in str(expired.blocks)


def test_a_closed_alert_has_a_grey_bar() -> None:
    assert card(status="Ignored").color == GREY
    assert card().color != GREY


def test_the_push_notification_has_the_last_run_without_markup() -> None:
    assert card(ended()).text == (
        "High alert ~12: ET MALWARE Beacon to known C2 · CloseFalsePositive done in 3.2 s: Marked as read."
    )


def test_only_a_plain_web_address_becomes_a_link() -> None:
    assert safe_link("https://siem.example/1") == "https://siem.example/1"
    for bad in ("javascript:alert(1)", "https://a|<!channel>", "https://a b", "http://[", "//x", "https:///x"):
        assert safe_link(bad) == ""


def test_the_headline_is_outside_the_bar_so_that_slack_does_not_repeat_it() -> None:
    payload = card().payload()
    assert len(payload["blocks"]) == 1
    assert payload["attachments"][0]["color"] == card().color
