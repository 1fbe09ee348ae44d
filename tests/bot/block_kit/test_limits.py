"""Slack takes every payload, whatever the input: each passes the emulator's checks."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.block_kit import modals, notices
from bot.clearance import RedactedView, Subject
from bot.features import templates
from bot.features.alerts.views import details, replies
from bot.features.alerts.views.card import alert_card
from bot.features.approvals import views as approvals
from bot.features.home import views as home
from bot.features.responders import views as responders
from bot.features.runs.views import inputs, questions, run_form, runs
from bot.features.runs.views.request import RunRequest
from bot.features.undos import views as undos
from bot.message import Message
from bot.slack_emulator.limits import problems
from core.models import (
    Action,
    Alert,
    Artifact,
    CaseTemplate,
    Log,
    Measure,
    OfferedResponder,
    OfferedTarget,
    Override,
    Person,
    Policy,
    Refusal,
    TargetArtifact,
    Undo,
)
from tests.bot import samples
from tests.bot.payloads import payloads
from tests.bot.samples import NOW, button, fine, fine_view

NO_MARKS: Mapping[int, str] = dict.fromkeys(range(4), "")
SENT = payloads(NOW)
ANNA = Person(login="anna@soc.example", profile="analyst", permissions=["manageAction"], clearance=2)


@pytest.mark.parametrize("name", SENT)
def test_every_kind_is_within_slacks_limits(name: str) -> None:
    kind, payload = SENT[name]
    surface: Any = "message" if kind == "message" else payload["type"]
    assert problems(surface, payload) == []


@given(samples.alerts(NO_MARKS), st.lists(samples.actions(), max_size=10), samples.levels)
def test_a_card_of_any_alert_fits(alert: Alert, actions: list[Action], clearance: int) -> None:
    by_id = {a.id: a for a in actions}
    fine(alert_card(alert, [*by_id.values()], clearance=clearance, button=button))
    document = samples.document(alert, *by_id.values())
    fine(details.alert_in_full(alert, document, clearance=clearance, button=button))


def test_a_card_with_many_runs_that_wait_for_approval_stays_far_below_12000_characters() -> None:
    """Above that Slack refuses a message with `msg_blocks_too_long`, which it documents nowhere."""
    inputs = json.dumps({f"{n}{samples.HOSTILE}": samples.HOSTILE for n in range(20)})
    alert = samples.alert(
        title=samples.HOSTILE,
        description=samples.HOSTILE,
        artifacts=[samples.artifact(n, data=samples.HOSTILE) for n in range(40)],
        tags=[samples.HOSTILE] * 100,
        external_link="https://siem.example/" + "a" * 900,
    )
    actions = [samples.awaiting(number=40 + n, parameters=inputs) for n in range(20)]
    actions += [samples.ended(number=80 + n, message=samples.HOSTILE, parameters=inputs) for n in range(20)]
    card = alert_card(alert, actions, clearance=3, button=button)
    fine(card)
    payload = card.payload()
    blocks = payload["blocks"]
    assert len(json.dumps(blocks, ensure_ascii=False)) < 11_000
    subject = Subject.alert(alert)
    for action in (actions[0], actions[-1]):
        shown = approvals.approval_request(action, subject, clearance=3, button=button, now_ms=NOW)
        fine(shown)
        assert len(json.dumps(shown.blocks, ensure_ascii=False)) < 11_000


def test_a_card_with_40_artifacts_200_actions_and_a_title_of_10000_characters_fits() -> None:
    alert = samples.alert(
        title="<!channel>" * 1000,
        artifacts=[samples.artifact(n, data=samples.HOSTILE) for n in range(40)],
        tags=[samples.HOSTILE] * 100,
    )
    actions = [samples.ended(number=40 + n, message=samples.HOSTILE, responder_name=f"R{n}") for n in range(200)]
    card = alert_card(alert, actions, clearance=3, button=button)
    fine(card)
    fine(
        runs.action_list(
            actions, alert.id, {a.id: RedactedView(Subject.alert(alert), 3) for a in actions}, total=len(actions)
        )
    )
    fine(details.alert_in_full(alert, samples.document(alert, *actions), clearance=3, button=button))
    assert "more runs" in str(card.blocks)


@given(samples.actions(), samples.alerts(NO_MARKS), samples.levels)
def test_replies_of_any_action_fit(action: Action, alert: Alert, clearance: int) -> None:
    subject = Subject.alert(alert)
    fine(replies.end_reply(action, subject, clearance=clearance, button=button))
    fine(replies.told(action, subject, clearance=clearance, button=button))
    fine(replies.undone([(action, subject)] * 2, samples.HOSTILE, "anna", clearance=clearance, button=button))
    fine(approvals.approval_request(action, subject, clearance=clearance, button=button, now_ms=NOW))


@given(
    samples.foreign_text.filter(bool),
    st.lists(samples.actions(), max_size=8, unique_by=lambda a: a.id),
    samples.levels,
)
def test_a_card_of_any_log_fits(message: str, actions: list[Action], clearance: int) -> None:
    log = Log(id_="~14", id="~14", created_by="anna@x", created_at=NOW, message=message, start_date=NOW, owner="anna@x")
    subject = Subject.log(log, samples.case(tlp=3, pap=3))
    fine(replies.task_log_card(log, actions, subject, clearance=clearance, button=button))


@given(st.lists(samples.responders(), max_size=12), samples.alerts(NO_MARKS), samples.levels, st.text(max_size=3))
def test_a_list_and_a_menu_of_any_responders_fit(
    offered: list[OfferedResponder], alert: Alert, clearance: int, typed: str
) -> None:
    subject = Subject.alert(alert)
    by_artifact = {artifact.id: [r.name for r in offered[:6]] for artifact in alert.artifacts}
    listed = responders.responder_list(
        offered, by_artifact, subject, clearance=clearance, button=button, command="/responder"
    )
    fine(listed)
    menu = responders.responder_options(offered, by_artifact, RedactedView(subject, clearance), typed)
    assert problems("options", menu) == []
    for responder in offered[:2]:
        view = RedactedView(subject, clearance)
        fine_view(run_form.form_view(samples.request(), responder, view, inputs.Form(())))
        fine(Message("-", tuple(questions.open_run(samples.request(), samples.action(), responder, view, ()))))
        why = responders.shown_reasons(responder, view, 1500)
        refused = questions.cannot_run(
            samples.request(), responder, view, why, button, may_override=True, may_make_case=True
        )
        fine(refused)
    if offered:
        fine(questions.ambiguous_name(typed, offered, subject, "/responder"))


def test_300_responders_fit_a_list_and_the_menu_shows_100_with_those_that_can_run_first() -> None:
    offered = [samples.responder(f"R{n:03}", verdict="cannot_run" if n % 2 else "can_run") for n in range(300)]
    subject = Subject.alert(samples.alert())
    fine(responders.responder_list(offered, {}, subject, clearance=2, button=button, command="/responder"))
    menu = responders.responder_options(offered, {}, RedactedView(subject, 2), "")
    assert problems("options", menu) == []
    assert [(g["label"]["text"], len(g["options"])) for g in menu["option_groups"]] == [
        ("Alert ~12", 99),
        ("201 more", 1),
    ]


def test_what_runs_most_stands_first_in_its_group_of_a_menu() -> None:
    counts = {"Contain": 0, "Isolate": 7, "Look": None, "Mail": 2, "Note": 9}
    policies = {name: Policy(undo="Release_1_0") for name in ("Contain", "Isolate")}
    offered = [
        samples.responder(name, recent_runs=runs, policy=policies.get(name, Policy())) for name, runs in counts.items()
    ]
    view = RedactedView(Subject.alert(samples.alert()), 2)
    groups = responders.responder_options(offered, {}, view, "")["option_groups"]
    assert [[option["text"]["text"] for option in group["options"]] for group in groups] == [
        ["Isolate", "Contain"],
        ["Note", "Mail", "Look"],
    ]


def test_a_menu_says_at_its_end_why_others_cannot_run() -> None:
    view = RedactedView(Subject.alert(samples.alert()), 2)
    offered = [samples.responder("Mailer", verdict="cannot_run", reasons=["TLP:RED is too high"]), samples.responder()]
    groups = responders.responder_options(offered, {}, view, "")["option_groups"]
    assert [(g["label"]["text"], g["options"][0]["text"]["text"]) for g in groups] == [
        ("Alert ~12", "Close False Positive"),
        (responders.CANNOT, "Mailer"),
    ]
    assert groups[1]["options"][0]["description"]["text"] == "TLP:RED is too high"
    marked = responders.responder_options([samples.responder(description="Waits (in `try` *only*)")], {}, view, "")
    assert marked["option_groups"][0]["options"][0]["description"]["text"] == "Waits (in try only)"
    assert responders.responder_of_option(offered, groups[0]["options"][0]["value"]) == offered[1]


def test_a_menu_has_what_contains_first_and_says_what_needs_approval() -> None:
    view = RedactedView(Subject.alert(samples.alert()), 2)
    isolate = samples.responder("Isolate_1_0", policy=Policy(approval=1, undo="Release_1_0"))
    release = samples.responder("Release_1_0", policy=Policy(is_undo=True))
    offered = [samples.responder("Lookup_1_0"), release, isolate]
    of_nothing = responders.responder_options(offered, {}, view, "")["option_groups"]
    assert [group["label"]["text"] for group in of_nothing] == ["Contain · Alert ~12", "Alert ~12"]
    groups = responders.responder_options(offered, {}, view, "", ends={"~12": ["Release_1_0"]})["option_groups"]
    assert [(g["label"]["text"], g["options"][0]["text"]["text"]) for g in groups] == [
        ("Contain · Alert ~12", "Isolate"),
        ("Alert ~12", "Lookup"),
        ("Undo · Alert ~12", "Release"),
    ]
    about = groups[0]["options"][0]["description"]["text"]
    assert about == "needs 1 approval · What Isolate_1_0 does"


def test_a_menu_says_what_a_responder_acts_on_and_names_it_once_for_an_alert() -> None:
    host = samples.artifact(1, data_type="hostname", data="LT-0198")
    address, other = samples.artifact(2), samples.artifact(3)
    view = RedactedView(Subject.alert(samples.alert(artifacts=[host, address, other])), 2)

    def acting(name: str, *on: Artifact, **more: Any) -> OfferedResponder:
        artifacts = [
            TargetArtifact(
                id=one.id,
                data_type=one.data_type,
                data=one.label.lower(),
                tlp=one.tlp,
                kind="host" if one is host else "text",
            )
            for one in on
        ]
        target = OfferedTarget(data_types=[], artifacts=artifacts, total=len(on), required=len(on) > 1)
        return samples.responder(name, target=target, policy=Policy(undo="Release", **more))

    isolate = acting("Isolate", host, approval=1)
    isolate = isolate.model_copy(update={"reasons": ["~18 has it in force on lt-0198 already; the later end counts"]})
    offered = [isolate, acting("Block", address, other), samples.responder("Lookup")]
    by_artifact = {address.id: ["Block", "Lookup"], other.id: ["Block", "Isolate"]}
    groups = responders.responder_options(offered, by_artifact, view, "")["option_groups"]
    assert {
        group["label"]["text"]: [(o["text"]["text"], o["description"]["text"]) for o in group["options"]]
        for group in groups
    } == {
        "Contain · Alert ~12": [
            ("Block", "choose which · What Block does"),
            ("Isolate", "LT-0198 · 🔒 contained already · needs 1 approval · What Isolate does"),
        ],
        "Contain · ip 203[.]0[.]113[.]3": [("Isolate", "needs 1 approval · What Isolate does")],
        "Alert ~12": [("Lookup", "What Lookup does")],
        "ip 203[.]0[.]113[.]2": [("Lookup", "What Lookup does")],
    }
    found = responders.responder_options(offered, by_artifact, view, "block 203.0.113.3")["option_groups"]
    assert [group["label"]["text"] for group in found] == ["Contain · ip 203[.]0[.]113[.]3"]


def menu_of(typed: str, *, clearance: int = 2) -> dict[str, list[str]]:
    """Titles by the heading of their group, in the menu of an alert with an address, a domain and a hidden hash."""
    artifacts = [
        samples.artifact(1, data_type="domain", data="evil.example"),
        samples.artifact(2, data="198.51.100.7", ioc=True),
        samples.artifact(3, data_type="hash", data="9f86d081", tlp=3),
    ]
    offered = [
        samples.responder("Close_1_0"),
        samples.responder("Block_Address_1_0", verdict="cannot_run", reasons=["takes ip"]),
        samples.responder("Lookup_1_0", verdict="cannot_run", reasons=["takes domain, ip"]),
        samples.responder("Mailer_1_0", verdict="cannot_run", reasons=["not configured"]),
    ]
    by_artifact = {"~901": ["Lookup_1_0"], "~902": ["Block_Address_1_0", "Lookup_1_0"], "~903": ["Lookup_1_0"]}
    view = RedactedView(Subject.alert(samples.alert(artifacts=artifacts)), clearance)
    groups = responders.responder_options(offered, by_artifact, view, typed).get("option_groups", [])
    return {g["label"]["text"]: [option["text"]["text"] for option in g["options"]] for g in groups}


def test_a_menu_groups_its_entries_by_target_with_indicators_of_compromise_first() -> None:
    assert menu_of("") == {
        "Alert ~12": ["Close"],
        "ip 198[.]51[.]100[.]7": ["Block Address", "Lookup"],
        "domain evil[.]example": ["Lookup"],
        responders.CANNOT: ["Mailer"],
    }
    assert list(menu_of("", clearance=3)) == [*list(menu_of(""))[:3], "hash 9f86d081", responders.CANNOT]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("198.51.100.7", {"ip 198[.]51[.]100[.]7": ["Block Address", "Lookup"]}),
        ("198[.]51[.]100", {"ip 198[.]51[.]100[.]7": ["Block Address", "Lookup"]}),
        ("block address", {"ip 198[.]51[.]100[.]7": ["Block Address"]}),
        ("Block_Address_1_0", {"ip 198[.]51[.]100[.]7": ["Block Address"]}),
        ("lookup EVIL", {"domain evil[.]example": ["Lookup"]}),
        ("domain", {"domain evil[.]example": ["Lookup"]}),
        ("9f86", {}),
        ("hash", {}),
    ],
)
def test_typing_filters_by_responder_data_and_type(typed: str, found: dict[str, list[str]]) -> None:
    assert menu_of(typed) == found


@given(samples.foreign_text)
def test_an_error_with_any_text_fits(text: str) -> None:
    fine(notices.error(text))
    fine_view(modals.problem(text)["view"])


def test_the_template_modal_fits() -> None:
    fine_view(templates.template_view())


def test_the_view_of_a_created_template_fits() -> None:
    made = CaseTemplate(
        id_="~5",
        id="~5",
        created_by="o@x",
        created_at=NOW,
        name=samples.HOSTILE,
        display_name="",
        title_prefix="",
        description="",
        severity=2,
        tlp=2,
        pap=2,
        tags=[],
        tasks=[],
        custom_fields={},
    )
    shown = templates.created_view(made)
    fine_view(shown)
    assert (
        shown["blocks"][1]["elements"][0]["text"]
        == "Use it: Make a case on a card, or `/responder case` and the id of an alert."
    )


@given(samples.alerts(NO_MARKS), samples.responders(), samples.levels, samples.foreign_text)
def test_the_run_modal_fits(alert: Alert, responder: OfferedResponder, clearance: int, typed: str) -> None:
    kept = {f"owner{n}": "somebody@soc.example" for n in range(40)}
    subject, request = Subject.alert(alert), replace(samples.request(), channel="C0SOC", parameters=kept)
    fine_view(run_form.start_view(request, None, clearance=clearance))
    fine_view(run_form.start_view(request, subject, clearance=clearance))
    choices = run_form.object_options([subject], clearance)
    fine_view(run_form.start_view(request, subject, clearance=clearance, choices=choices))
    found = details.found_alerts({alert.id: [alert]}, typed, "", (), more=True, clearance=clearance, button=button)
    fine_view(modals.message_view("Alerts found", found))
    listed = responders.responder_list(
        [responder], {}, subject, clearance=clearance, button=button, command="/responder"
    )
    fine_view(modals.message_view("What can run", listed))
    form, view = inputs.Form((), text=typed), RedactedView(subject, clearance)
    fine_view(run_form.start_view(request, subject, clearance=clearance, responder=responder, form=form))
    fine_view(run_form.form_view(request, responder, view, form))
    fine_view(run_form.form_view(request, responder, view, form, samples.action()))
    assert RunRequest.from_text(request.to_text()) == request


def test_the_fullest_home_fits() -> None:
    subject = Subject.alert(samples.alert(title=samples.HOSTILE))
    link = "https://soc.slack.com/archives/C0123456789/p1763690400000000"

    def part(start: int, **more: Any) -> list[home.HomeRun]:
        actions = [samples.action(start + n, parameters=samples.FULL, **more) for n in range(60)]
        return [home.HomeRun(action, subject, link) for action in actions]

    asked = [home.HomeRun(samples.awaiting(number=n, parameters=samples.FULL, created_by="ben@x"), subject, link)
             for n in range(300, 360)]  # fmt: skip
    ended = {"end_date": NOW, "report": samples.report(message=samples.HOSTILE)}
    shown = home.Home(
        asked,
        home.HomeAlerts([home.HomeAlert(subject, NOW, link)] * home.MAX_SHOWN, Counter({3: 60})),
        home.HomeAlerts([home.HomeAlert(subject, NOW, link)] * home.MAX_SHOWN, Counter({3: 50})),
        part(400),
        part(500, status="Failure", **ended),
        part(600, status="Success", **ended),
        [("C0SOC", "x" * 100)] * 9,
    )
    view = home.home_view(shown, ANNA, button=button)
    assert problems("home", view) == []
    assert 60 <= len(view["blocks"]) <= 100
    assert len(json.dumps(view)) < 250_000
    fine(home.run_list("Failed", shown.failed, ANNA, button=button, hidden=3))
    fine(home.pending(shown.waiting, shown.running, ANNA, button=button, hidden=3))


@given(st.lists(samples.actions(), max_size=14, unique_by=lambda a: a.id), samples.alerts(NO_MARKS))
def test_any_home_fits(actions: list[Action], alert: Alert) -> None:
    subject = Subject.alert(alert)
    told = [home.HomeRun(action, subject, "https://soc.slack.com/x") for action in actions]
    mine = home.HomeAlerts([home.HomeAlert(subject, NOW, "https://soc.slack.com/x")] * home.MAX_SHOWN, Counter({3: 12}))
    part = len(told) // 3
    ended = [run for run in told[:part] if run.action.end_date]
    shown = home.Home(told[:part], mine, mine, told[part : 2 * part], told[2 * part :], ended)
    assert problems("home", home.home_view(shown, ANNA, button=button)) == []
    fine(home.run_list("Failed", told, ANNA, button=button, hidden=part))
    fine(home.pending(told, told, ANNA, button=button, hidden=part))


def test_100_artifacts_with_156_responders_fit_card_menu_list_and_details() -> None:
    found = [samples.artifact(n, id_=f"~{1000 + n}", id=f"~{1000 + n}", data=f"198.51.100.{n}") for n in range(100)]
    alert = samples.alert(artifacts=found)
    view, many = RedactedView(Subject.alert(alert), 2), {"verdict": "cannot_run", "reasons": ["it takes ip"]}
    offered = [samples.responder(f"R{n:03}_1_0", **({} if n < 29 else many)) for n in range(156)]
    by_artifact = {artifact.id: [r.name for r in offered[38:]] for artifact in found}
    for typed, options in (("", 100), ("R150", 100), ("198.51.100.77", 100), ("R150 198[.]51[.]100[.]77", 1)):
        menu = responders.responder_options(offered, by_artifact, view, typed)
        assert problems("options", menu) == []
        assert sum(len(group["options"]) for group in menu["option_groups"]) == options
        assert len(json.dumps(menu)) < 60_000
    assert (
        responders.responder_options(offered, by_artifact, view, "")["option_groups"][-1]["label"]["text"]
        == "11739 more"
    )
    runs = [samples.ended(number=40 + n, object_id=a.id, object_type="Observable") for n, a in enumerate(found)]
    card = alert_card(alert, runs, clearance=2, button=button)
    fine(card)
    assert len(card.blocks) <= 50
    fine(
        responders.responder_list(offered, by_artifact, view.subject, clearance=2, button=button, command="/responder")
    )
    for start_at, menus in ((0, 25), (25, 25), (75, 25)):
        shown = details.alert_in_full(alert, samples.document(alert, *runs), clearance=2, button=button, start=start_at)
        fine_view(modals.message_view("Details", shown))
        fine(shown)
        assert len([block for block in shown.blocks if "Act on ip" in str(block)]) == menus


def _measure(hostile: str) -> Measure:
    """Of thirty runs."""
    run: dict[str, Any] = {
        **{"title": hostile, "rootId": "~12", "state": "in_force", "since": NOW, "until": NOW + 3_600_000},
        **{"createdBy": hostile, "approvedBy": [hostile] * 25},
    }
    numbers = [f"~{10**17 + n}" for n in range(30)]
    own = {"id": "~1", "responderName": "Isolate_1_0", "objectType": "Alert", "objectId": "~12"}
    return Measure.model_validate({**run, **own, "actions": numbers, "others": [run] * 29})


def test_runs_that_can_be_undone_and_broken_glass_fit() -> None:
    hostile = samples.HOSTILE * 3
    glass = Override(reason=hostile, overrides=[Refusal(rule="protect", message=hostile, lift=hostile)] * 5)
    alert = samples.alert(title=hostile)
    subject = Subject.alert(alert)
    actions = []
    for n, status in enumerate(("available", "waiting", "running", "undone", "failed", "replaced") * 5):
        approval = {"needed": 30, "approvedBy": [hostile] * 25, "expiresAt": NOW + 1}
        extension = {"id": "~9", "askedBy": hostile, "askedAt": NOW, "approval": approval}
        undo = Undo.model_validate(
            {
                **{"responder": hostile, "status": status, "at": NOW, "message": hostile, "actionId": "~9"},
                "extension": extension if n % 2 else {**extension, "outcome": "denied", "endedBy": hostile},
            }
        )
        ended = samples.ended(number=40 + n, message=hostile, responder_name=f"R{n}")
        actions.append(ended.model_copy(update={"undo": undo, "override": glass}))
    fine(alert_card(alert, actions, clearance=3, button=button))
    policy = Policy(undo=hostile, undo_after_minutes=61, allow_permanent=True, confirm=hostile, approval=2)
    undoes = samples.responder(policy=policy)
    for action in actions[:6]:
        fine(undos.problem_reply(action, subject, (), clearance=3, button=button))
        fine(approvals.later_end_request(action, subject, clearance=3, button=button))
        fine(replies.end_reply(action, subject, clearance=3, button=button))
        fine_view(undos.extend_view(action, RedactedView(subject, 3), policy, NOW, "lea@x"))
        fine_view(undos.undo_view(action, RedactedView(subject, 3), undoes, [_measure(hostile)] * 30, NOW, "ben"))
    waiting = samples.awaiting(number=90, parameters=samples.FULL).model_copy(update={"override": glass})
    fine(approvals.approval_request(waiting, subject, clearance=3, button=button, now_ms=NOW))
