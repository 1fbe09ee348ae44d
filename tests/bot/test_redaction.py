"""Nothing above the clearance is in any payload, wherever text leaves."""

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.cards import asking, ended, home, lists, start
from bot.cards.alert import alert_card, plain_card
from bot.cards.message import Message
from bot.redaction import Screen, Subject, sees, withheld
from core.models import Action, Alert, Person
from tests.bot.cards import words
from tests.bot.cards.words import NOW, button

MARKS: Mapping[int, str] = {0: "qCLEARq", 1: "qGREENq", 2: "qAMBERq", 3: "qREDq"}
REPORT = "qREPORTq"


def dump(shown: Any) -> str:
    if isinstance(shown, Message):
        shown = shown.payload()
    return json.dumps(shown, ensure_ascii=False)


def everything(alert: Alert, actions: list[Action], clearance: int) -> list[str]:
    """Every payload that tells of this alert to somebody, or a channel, of this clearance."""
    subject = Subject.alert(alert)
    person = Person(login="anna@x", profile="analyst", permissions=["manageAction"], clearance=clearance)
    told = [(action, subject) for action in actions]
    offered = [words.responder()]
    place = start.Place("~12")
    texts = [
        dump(alert_card(alert, actions, clearance=clearance, button=button, now_ms=NOW)),
        dump(plain_card(alert, clearance)),
        dump(lists.alert_in_full(alert, clearance=clearance)),
        dump(lists.action_list(actions, subject, clearance=clearance, now_ms=NOW)),
        dump(lists.responder_list(offered, subject, clearance=clearance, button=button, command="/responder")),
        dump(asking.confirm(offered[0], subject, clearance=clearance, button=button)),
        dump(start.start_view(place, subject, clearance=clearance)),
        dump(start.confirm_view(place, offered[0], subject, clearance=clearance, parameters="")),
        dump(home.home_view(home.Home(told, told, told), person, [], button=button, now_ms=NOW)),
    ]
    for action in actions:
        texts += [
            dump(ended.end_reply(action, subject, clearance=clearance, button=button)),
            dump(ended.watch_ended(action, subject, clearance=clearance)),
            dump(ended.approval_request(action, subject, clearance=clearance, button=button, now_ms=NOW)),
            ended.as_text(action, subject, clearance=clearance),
            str(ended.report_file(action, subject, clearance=clearance)),
        ]
    return texts


@given(words.alerts(MARKS), st.lists(words.actions(REPORT), max_size=4, unique_by=lambda a: a.id), words.levels)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_above_the_clearance_is_in_any_payload(alert: Alert, actions: list[Action], clearance: int) -> None:
    forbidden = [mark for tlp, mark in MARKS.items() if not sees(clearance, tlp)]
    highest = max(alert.tlp, *(a.tlp for a in alert.artifacts), 0)
    if not sees(clearance, highest):
        forbidden.append(REPORT)
    if not sees(clearance, alert.tlp):
        forbidden += MARKS.values()
    for text in everything(alert, actions, clearance):
        assert [mark for mark in forbidden if mark.lower() in text.lower()] == []


def test_a_card_above_the_clearance_shows_id_severity_and_that_details_are_withheld() -> None:
    card = alert_card(words.alert(tlp=3), [words.ended()], clearance=2, button=button, now_ms=NOW)
    assert card.blocks[0]["text"]["text"] == "*HIGH* · ~12 · details withheld (TLP:RED)"
    assert card.text == (
        "High alert ~12: details withheld (TLP:RED) · CloseFalsePositive done in 3.2 s: details withheld (TLP:RED)"
    )
    assert "responder_menu" in dump(card)


def test_a_hidden_artifact_is_masked_where_the_title_repeats_it() -> None:
    alert = words.alert(title="Beacon to EVIL.example", artifacts=[words.artifact(data="evil.example", tlp=3)])
    assert Screen(Subject.alert(alert), 2).title() == "Beacon to [withheld]"
    assert Screen(Subject.alert(alert), 2).text("evil[.]example") == "[withheld]"
    assert Screen(Subject.alert(alert), 3).title() == "Beacon to EVIL.example"


def test_a_task_whose_case_is_not_known_counts_as_red() -> None:
    assert Subject.unknown(words.action(object_type="Log")).tlp == 3
    assert withheld(3) == "details withheld (TLP:RED)"
