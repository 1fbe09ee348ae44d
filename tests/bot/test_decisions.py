"""The assertion on each payload that decides on a run bites."""

import json
from typing import Any

import pytest

from bot.block_kit import ids
from bot.clearance import RedactedView, Subject
from bot.features.approvals.views import approve_view
from bot.features.runs.views import inputs, run_form
from bot.features.undos import views as undos
from core.models import Policy, TargetArtifact, Undo
from tests.bot.decisions import problems
from tests.bot.samples import NOW, action, alert, artifact, awaiting, button, request, responder

UNDO = Undo(responder="Release_1_0", title="Release Host", after_minutes=15)
TARGET = [TargetArtifact(id="~901", data_type="hostname", data="SRV-DC01", tlp=2)]
VIEW = RedactedView(Subject.alert(alert(artifacts=[artifact(data_type="hostname", data="SRV-DC01")])), 2)


def approval() -> dict[str, Any]:
    run = awaiting(responder_title="Isolate Host", target=TARGET, undo=UNDO)
    return {"view": approve_view(run, VIEW, button, responder=responder(), now_ms=NOW)}


def undo() -> dict[str, Any]:
    available = UNDO.model_copy(update={"status": "available", "at": NOW})
    run = action(status="Success", target=TARGET, undo=available)
    return {"view": undos.undo_view(run, VIEW, None, [], NOW, "ben")}


def question() -> dict[str, Any]:
    policy = Policy(undo="Release_1_0", contains=True)
    return {"view": run_form.form_view(request(), responder(policy=policy), VIEW, inputs.Form(()))}


def without(payload: dict[str, Any], words: str) -> dict[str, Any]:
    text = json.dumps(payload, ensure_ascii=False)
    assert words in text
    changed: dict[str, Any] = json.loads(text.replace(words, ""))
    return changed


def test_what_names_all_of_it_is_fine() -> None:
    for payload in (approval(), undo(), question()):
        assert problems("views.open", payload) == []
        assert problems("views.open", {"view": json.dumps(payload["view"])}) == []  # as a form encodes it


@pytest.mark.parametrize("words", ["*anna* asks", "Ends by itself (Release Host); *Undo now* ends it earlier"])
def test_an_approval_that_says_less_is_found(words: str) -> None:
    assert len(problems("views.open", without(approval(), words))) == 1


def test_an_undo_and_a_run_that_say_less_are_found() -> None:
    assert len(problems("views.open", without(undo(), "asked for by anna"))) == 1
    assert len(problems("views.open", without(question(), "it ends by itself"))) == 1


def test_an_approval_on_the_first_press_is_found() -> None:
    press = {"type": "button", "action_id": ids.RUN_AGAIN, "text": {"type": "plain_text", "text": "Approve"}}
    message = {"text": "x", "blocks": [{"type": "actions", "elements": [press]}]}
    assert problems("chat.postMessage", message) == ["chat.postMessage: Approve decides on the first press"]
    told = {"text": "x", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "You approved it."}}]}
    assert problems("chat.postEphemeral", told) == ["chat.postEphemeral: an approval that no modal was submitted for"]
    assert problems("view_submission (ack)", {"view": told}) == []
