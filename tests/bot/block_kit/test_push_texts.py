"""What a locked phone shows of each kind of message: severity, subject, and what is asked of the reader."""

from typing import Any

import pytest

from bot.clearance import Subject
from bot.features.alerts.views import replies
from bot.features.alerts.views.card import alert_card
from bot.features.approvals import views as approvals
from bot.features.undos import views as undos
from bot.message import Message
from core.models import MeasureOfRun, Undo
from tests.bot import samples
from tests.bot.samples import NOW, button

TITLE = "ET MALWARE Beacon to known C2"
ASKED = samples.awaiting(created_by="anna@soc.example")
DONE = samples.ended(outcome="succeeded")
FAILED = samples.ended("Failure", "The firewall said no.", outcome="failed")
WAITING = Undo(responder="Release_1_0", status="waiting", at=NOW, message="Release can't run: it is not configured.")
NOT_UNDONE = Undo(responder="Release_1_0", status="failed", at=NOW, message="Release failed.")
UNKNOWN = MeasureOfRun(state="unknown", since=NOW, message="Release ran on ~9.")
LEFT = MeasureOfRun(state="ended", since=NOW, ended_at=NOW, ended_by="lea@soc.example", message="Reimaged.")
DENIED = samples.ended("Failure", "Denied.", outcome="denied", ended_by="lea@soc.example")


def text_of(kind: str, clearance: int) -> str:
    subject = Subject.alert(samples.alert())
    seen: dict[str, Any] = {"clearance": clearance, "button": button}
    asked: dict[str, Any] = {**seen, "now_ms": NOW}
    messages: dict[str, Message] = {
        "card": alert_card(samples.alert(), [], **seen),
        "card with a request": alert_card(samples.alert(), [DONE, ASKED], **seen),
        "approval": approvals.approval_request(ASKED, subject, **asked),
        "direct approval": approvals.approval_request(ASKED, subject, link="", voter="ben", **asked),
        "end": replies.end_reply(DONE, subject, **seen),
        "failure": replies.end_reply(FAILED, subject, **seen),
        "denial": replies.end_reply(DENIED, subject, **seen),
        "told": replies.told(FAILED, subject, **seen),
        "late": undos.problem_reply(DONE.model_copy(update={"undo": WAITING}), subject, (), **seen),
        "not undone": undos.problem_reply(DONE.model_copy(update={"undo": NOT_UNDONE}), subject, (), **seen),
        "maybe ended": undos.measure_reply(DONE.model_copy(update={"measure": UNKNOWN}), subject, [], **seen),
        "marked as ended": undos.measure_reply(DONE.model_copy(update={"measure": LEFT}), subject, [], **seen),
        "undone": replies.undone([(DONE, subject)], "lea@soc.example", "anna@soc.example", **seen),
    }
    return messages[kind].text


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("card", ""),
        ("card with a request", "needs 1"),
        ("approval", f"HIGH: Close False Positive? {TITLE} (~12), asked by anna"),
        ("direct approval", "HIGH: "),
        ("end", "done"),
        ("failure", "anna can run it again."),
        ("denial", "denied"),
        ("told", "Failed: "),
        ("undone", "Undone by lea"),
        ("late", "⚠️ Still in force, was to end by now: *Close False Positive* on "),
        ("not undone", "⚠️ Not undone: *Close False Positive* on "),
        ("maybe ended", "⚠️ Maybe no longer in force: Close False Positive"),
        ("marked as ended", "Marked as ended by lea: Close False Positive"),
    ],
)
def test_a_locked_phone_shows_how_severe_what_and_what_is_wanted(kind: str, wanted: str) -> None:
    shown = text_of(kind, 2)
    assert "high" in shown.lower()
    assert TITLE in shown
    assert "~12" in shown
    assert wanted.lower() in shown.lower()
    assert "<!date" not in shown  # a phone may not format it
    withheld = text_of(kind, 0)
    assert "withheld" in withheld
    for part in (TITLE, "anna", "lea", "CloseFalsePositive", "firewall"):
        assert part not in withheld
