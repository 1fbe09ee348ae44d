"""Nothing above the clearance is in any payload, wherever text leaves."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.clearance import MASK, SHARED, RedactedView, Subject, may_see, visible, withheld
from bot.features.alert_groups.views import closed_by_one
from bot.features.alerts.views import close, details, replies
from bot.features.alerts.views.card import alert_card
from bot.features.alerts.views.case_card import case_card
from bot.features.approvals import views as approvals
from bot.features.audit import audit
from bot.features.bulks.views import ending, states
from bot.features.cases import views as cases
from bot.features.home import views as home
from bot.features.responders import views as responders
from bot.features.runs.views import inputs, questions, run_form, runs
from bot.features.runs.views.reports import read_report
from bot.features.undos import views as undos
from bot.message import Message
from core.audit.reader import sentence
from core.models import (
    Action,
    Alert,
    Approval,
    Attachment,
    AuditRow,
    BulkTarget,
    Case,
    Document,
    Extension,
    InputTitle,
    OfferedResponder,
    Override,
    Parameter,
    Person,
    Refusal,
    Task,
    Undo,
)
from tests.bot import samples as make
from tests.bot.samples import NOW, button

MARKS: Mapping[int, str] = {0: "qCLEARq", 1: "qGREENq", 2: "qAMBERq", 3: "qREDq"}
REPORT = "qREPORTq"
INPUTS = "qINPUTSq"
NAME, PERSON = "qnameq", "qpersonq"


def dump(shown: Any) -> str:
    if isinstance(shown, Message):
        shown = shown.payload()
    return json.dumps(shown, ensure_ascii=False)


def said(action: Action) -> str:
    """What people and core say of a run, which may repeat an artifact."""
    return f"{INPUTS} {action.note or ''}"


def overriding(action: Action) -> Action:
    """The same, with rules overridden."""
    protected = Refusal(rule="protect", message=said(action), lift="ask")
    glass = Override(reason=said(action), overrides=[protected], approved_by=PERSON)
    return action.model_copy(update={"override": glass})


def undone(action: Action) -> Action:
    """The same, which core could not undo, and which somebody wants to extend."""
    approval = Approval(needed=2, approved_by=[PERSON], expires_at=NOW + 1)
    extension = Extension(id="~77", asked_by=PERSON, asked_at=NOW, approval=approval, note=said(action))
    undo = Undo(responder=NAME, title=NAME, status="waiting", at=NOW, message=said(action), extension=extension)
    return action.model_copy(update={"undo": undo})


def in_force(action: Action) -> Action:
    """The same, which is in force until somebody undoes it."""
    return action.model_copy(update={"undo": Undo(responder=NAME, title=NAME, status="available")})


def as_case(alert: Alert, actions: list[Action]) -> tuple[Case, Document, list[Task]]:
    """A case that says what the alert says, with a task that does so too."""
    case = make.case(title=alert.title, tags=alert.tags, tlp=alert.tlp, owner=PERSON)
    on_case = [a.model_copy(update={"object_id": case.id}) if a.object_id == alert.id else a for a in actions]
    document = Document(id=case.id, case=case, artifacts=alert.artifacts, actions=on_case)
    made = {"id_": "~31", "id": "~31", "created_by": PERSON, "created_at": NOW}
    return case, document, [Task(**made, title=alert.title, group="", description="", order=0, owner=PERSON)]


def refusing(alert: Alert) -> OfferedResponder:
    """A responder that can't run on the alert, since the settings protect each of its artifacts."""
    why = [f"the observable {artifact.id} is protected ({artifact.label})" for artifact in alert.artifacts]
    refusals = [Refusal(rule="protect", message=message, lift="ask") for message in why]
    return make.responder("Refused", verdict="cannot_run", reasons=[], refusals=refusals)


def audited(alert: Alert, runs: list[Action], views: Mapping[str, RedactedView]) -> list[AuditRow]:
    """What core audits of an alert and its runs, for who may see the alert; `views` by run."""
    why = [{"reason": f"{one.label} is protected"} for one in alert.artifacts]
    rows: list[dict[str, Any]] = [{"what": "request.refused", "object": alert.id, "texts": texts} for texts in why]
    for run in (run for run in runs if views[run.id].shows_inputs):
        of = {"object": run.id, "responder": run.responder_name, "on": run.object_id}
        message, note = read_report(run).message, run.note or "none"
        rows += [
            {**of, "what": "run.requested", "texts": {"note": note, "target": note}},
            {**of, "what": "run.denied", "texts": {"message": f"Denied by {run.created_by}: {message}"}},
            {**of, "what": "run.ended", "outcome": "succeeded", "texts": {"message": message}},
            {**of, "what": "measure.ended", "texts": {"reason": note}},
        ]
    return [
        AuditRow(number=number, hash="", at=NOW, row=row, texts=row["texts"], by=PERSON, what=row["what"],
                 object=row["object"], sentence=sentence({**row, "by": PERSON, "texts": {}}, row["texts"]))
        for number, row in enumerate(rows)
    ]  # fmt: skip


def everything(alert: Alert, actions: list[Action], clearance: int) -> list[str]:
    """Every payload about this alert for this clearance."""
    actions = [action.model_copy(update={"artifacts": alert.artifacts}) for action in actions]
    subject, view = Subject.alert(alert), RedactedView(Subject.alert(alert), clearance)
    targets = {action.id: subject.part(action.object_id) or Subject.of_action(action) for action in actions}
    by_artifact = {artifact.id: [make.responder().name] for artifact in alert.artifacts}
    person = Person(login="anna@x", profile="analyst", permissions=["manageAction"], clearance=clearance)
    views = {a.id: RedactedView(targets[a.id], clearance) for a in actions}
    told = [home.HomeRun(action, targets[action.id]) for action in actions]
    mine = home.HomeAlerts([home.HomeAlert(subject, NOW)], Counter([3]))
    offered = [make.responder(), refusing(alert)]
    request, choices = make.request(), run_form.object_options([subject], clearance)
    texts = [
        dump(alert_card(alert, actions, clearance=clearance, button=button)),
        dump(details.alert_in_full(alert, make.document(alert, *actions), clearance=clearance, button=button)),
        dump(runs.action_list(actions, subject.id, views, total=len(actions))),
        dump(
            responders.responder_list(
                offered, by_artifact, subject, clearance=clearance, button=button, command="/responder"
            )
        ),
        dump(details.found_alerts({alert.id: [alert]}, "x", "", (), more=True, clearance=clearance, button=button)),
        dump(cases.becomes_case(view)),
        dump(run_form.start_view(request, None, clearance=clearance, choices=choices)),
        dump(run_form.start_view(request, subject, clearance=clearance)),
        dump(run_form.start_view(request, subject, clearance=clearance, responder=offered[0])),
        dump(run_form.form_view(request, offered[0], view, inputs.Form(()))),
        dump(run_form.form_view(replace(request, override_reason=""), offered[1], view, inputs.Form(()))),
        dump(home.home_view(home.Home(told, mine, mine, told, told, told), person, button=button)),
    ]
    texts += [
        dump(close.close_view(Document(id=alert.id, alert=alert, actions=actions), view, "")) if view.is_open else "",
        *close.left_open([Document(id=alert.id, alert=alert, actions=[*map(in_force, actions)])], clearance, ""),
        dump(case_card(*as_case(alert, actions if view.shows_reports else []), [], clearance=clearance, button=button)),
    ]
    on = {"object_type": "alert", "object_id": alert.id, "target": [one.id for one in alert.artifacts]}
    refused = BulkTarget(**on, status=409, has_failed=True, message=" ".join(one.label for one in alert.artifacts))
    texts += states.by_state([], [(refused, view)])
    case, document, tasks = as_case(alert, [])
    raised = [one.model_copy(update={"tlp": max(one.tlp, alert.tlp)}) for one in alert.artifacts]
    bare = document.model_copy(update={"artifacts": [], "alert_artifacts": raised})
    of_alert = [make.document(alert, *actions)]
    texts.append(dump(case_card(case, bare, tasks, of_alert, clearance=clearance, button=button, is_posted=False)))
    texts += [
        dump(home.run_list("Failed", told, person, button=button)),
        dump(home.pending(told, told, person, button=button)),
    ]
    if view.is_open:
        rows = audited(alert, actions, views)
        texts += [dump(audit(one, rows, [make.document(alert, *actions)], clearance)) for one in (alert.id, "~40")]
        texts.append(dump(responders.responder_options(offered, by_artifact, view, "")))
    for target in filter(None, map(subject.part, by_artifact)):
        own = RedactedView(target, clearance)
        texts += [
            dump(
                responders.responder_list(offered, {}, target, clearance=clearance, button=button, command="/responder")
            ),
            dump(run_form.form_view(request, offered[0], own, inputs.Form(()))),
            dump(questions.cannot_run(request, offered[0], own, "why", button=button, may_make_case=True)),
            dump(questions.ambiguous_name("x", offered, target, "/responder")),
        ]
    for action in actions:
        subject = targets[action.id]
        own = RedactedView(subject, clearance)
        texts += [
            dump(questions.open_run(request, action, offered[0], own, ())) if own.is_open else "",
            dump(
                approvals.approval_request(
                    action, subject, clearance=clearance, button=button, now_ms=NOW, link="", voter=""
                )
            ),
            dump(approvals.later_end_request(undone(action), subject, clearance=clearance, button=button)),
            dump(approvals.not_approved(action, own, said(action), None, button)) if own.is_open else "",
            dump(ending.changed_all("Undone:", "undo", [], 0, [((action, own), said(action))])) if own.is_open else "",
            dump(undos.undo_view(undone(action), own, None, [], NOW, "ben")) if own.is_open else "",
            dump(undos.problem_reply(undone(action), subject, (), clearance=clearance, button=button)),
            dump(replies.end_reply(undone(action), subject, clearance=clearance, button=button)),
            dump(alert_card(alert, [undone(action)], clearance=clearance, button=button)),
            dump(replies.end_reply(overriding(action), subject, clearance=clearance, button=button)),
            dump(
                approvals.approval_request(overriding(action), subject, clearance=clearance, button=button, now_ms=NOW)
            ),
            dump(alert_card(alert, [overriding(action)], clearance=clearance, button=button)),
            dump(replies.end_reply(action, subject, clearance=clearance, button=button)),
            dump(replies.told(action, subject, clearance=clearance, button=button)),
            dump(approvals.approval_request(action, subject, clearance=clearance, button=button, now_ms=NOW)),
            str(replies.report_file(action, subject, clearance=clearance)),
            str(approvals.whole_request(action, subject, clearance=clearance)),
        ]
    return texts


ON: Mapping[int, str] = {0: "qonCLEARq", 1: "qonGREENq", 2: "qonAMBERq", 3: "qonREDq"}


@st.composite
def alerts_with_runs(draw: st.DrawFn) -> tuple[Alert, list[Action]]:
    """An alert, and runs on it, its artifacts and what nobody knows: inputs, names and people carry `ON` of the level
    that counts.
    """
    alert = draw(make.alerts(MARKS, PERSON))
    of_artifacts = [(a.id, "Observable", max(a.tlp, alert.tlp)) for a in alert.artifacts]
    targets = [(alert.id, "Alert", alert.tlp), *of_artifacts, ("~999", "Observable", 3)]
    runs = []
    for number, (object_id, kind, tlp) in enumerate(draw(st.lists(st.sampled_from(targets), max_size=5))):
        run = draw(make.actions(REPORT, ON[tlp], ON[tlp], ON[tlp]))
        ids = {"id_": f"~{40 + number}", "id": f"~{40 + number}"}
        repeated = draw(st.sampled_from([one.label for one in alert.artifacts] or [""]))  # people speak of the others
        note = {} if run.note is None else {"note": f"{repeated} {run.note}"}
        runs.append(run.model_copy(update={**ids, **note, "object_id": object_id, "object_type": kind}))
    return alert, runs


@given(alerts_with_runs(), make.levels)
def test_nothing_above_the_clearance_is_in_any_payload(
    alert_with_runs: tuple[Alert, list[Action]], clearance: int
) -> None:
    """No alert, no artifact, no run on one, and no report while anything is hidden that it may name."""
    alert, runs = alert_with_runs
    forbidden = [mark for marks in (MARKS, ON) for tlp, mark in marks.items() if not may_see(clearance, tlp)]
    if not may_see(clearance, max(alert.tlp, *(a.tlp for a in alert.artifacts), 0)):
        forbidden.append(REPORT)
    if not may_see(clearance, alert.tlp):
        forbidden += [*MARKS.values(), *ON.values(), INPUTS, NAME, PERSON]
    for text in everything(alert, runs, clearance):
        assert [mark for mark in forbidden if mark.lower() in text.lower()] == []


@given(make.alerts(MARKS), make.levels)
def test_nothing_is_found_by_what_is_withheld(alert: Alert, clearance: int) -> None:
    view = RedactedView(Subject.alert(alert), clearance)
    by_artifact = {artifact.id: [make.responder().name] for artifact in alert.artifacts}
    for tlp, mark in MARKS.items():
        if not may_see(clearance, tlp):
            assert responders.responder_options([make.responder()], by_artifact, view, mark) == {"options": []}


def test_a_card_above_the_clearance_shows_id_severity_and_that_details_are_withheld() -> None:
    card = alert_card(make.alert(tlp=3), [make.ended()], clearance=2, button=button)
    assert (
        card.blocks[0]["text"]["text"]
        == "🟠 *HIGH*  ~12 · details withheld (TLP:RED): whoever may see them presses Details"
    )
    assert card.text == ("High alert ~12: A run done. · details withheld (TLP:RED)")
    assert "responder_menu" in dump(card)


def test_an_alert_above_the_clearance_shows_no_artifact_though_its_own_level_is_lower() -> None:
    alert = make.alert(tlp=3, artifacts=[make.artifact(data="198.51.100.9", tlp=0)])
    view = RedactedView(Subject.alert(alert), 2)
    assert (view.artifacts(), view.hidden_count(), "198.51.100.9" in view.searchable([])) == ([], 1, False)


def test_in_a_shared_channel_nothing_says_that_something_is_withheld() -> None:
    hidden = make.artifact(data="evil.example", tlp=2)
    on_hidden = make.ended(number=41, object_id=hidden.id, object_type="Artifact")
    alert, runs = make.alert(tlp=0, pap=0, artifacts=[hidden]), [make.ended(), on_hidden]
    card = dump(alert_card(alert, runs, total=2, clearance=SHARED, button=button))
    reply = dump(replies.end_reply(runs[0], Subject.alert(alert), clearance=SHARED, button=button))
    for shown in (card, reply):
        assert "withheld" not in shown
        assert "AMBER" not in shown
    clear = alert.model_copy(update={"artifacts": []})
    same = [dump(alert_card(*of, clearance=SHARED, button=button)) for of in ((alert, [on_hidden]), (clear, []))]
    assert same[0] == same[1]  # and neither reads as if it were all
    assert "~12 · only what is TLP:CLEAR is shown here" in same[0]
    assert RedactedView(Subject.alert(make.alert(tlp=1)), SHARED).is_secret
    assert not RedactedView(Subject.alert(alert), SHARED).is_secret
    assert RedactedView(Subject.alert(alert), SHARED).fingerprint != RedactedView(Subject.alert(alert), 0).fingerprint


def test_a_hidden_artifact_is_masked_where_the_title_repeats_it() -> None:
    alert = make.alert(title="Beacon to EVIL.example", artifacts=[make.artifact(data="evil.example", tlp=3)])
    assert RedactedView(Subject.alert(alert), 2).title() == "Beacon to [withheld]"
    assert RedactedView(Subject.alert(alert), 2).text("evil[.]example") == "[withheld]"
    assert RedactedView(Subject.alert(alert), 3).title() == "Beacon to EVIL.example"


def test_a_file_is_shown_by_its_name_and_masked_by_name_and_hashes() -> None:
    file = Attachment(name="payroll.xlsx", hashes=["ab" * 32, "cd" * 20], size=3, content_type="x/y", id="ab" * 32)
    artifact = make.artifact(tlp=3).model_copy(update={"data": None, "attachment": file})
    alert = make.alert(title=f"Opened payroll.xlsx ({'cd' * 20})", artifacts=[artifact])
    assert RedactedView(Subject.alert(alert), 2).title() == "Opened [withheld] ([withheld])"
    assert "payroll" not in dump(alert_card(alert, [], clearance=2, button=button))
    assert "payroll[.]xlsx" in dump(alert_card(alert, [], clearance=3, button=button))


@pytest.mark.parametrize(
    ("hidden", "words"),
    [
        ("evil.example", "Beacon to evil\u200b.exa\u00admple seen"),
        ("ev\u200bil.example", "Beacon to evil.example seen"),
        ("evil.example", "Beacon to EVIL(.)example seen"),
        ("evil[.]example", "Beacon to evil.example seen"),
        ("http://evil.example/a.php", "Beacon to hxxp[://]evil[.]example/a[.]php seen"),
        ("hxxps://evil.example/a.php", "Beacon to https%3A%2F%2Fevil%2Eexample%2Fa.php seen"),
        ("http://evil.example/a.php", "Beacon to evil.example seen"),
        ("boss@evil.example", "Beacon to boss[at]evil[.]example seen"),
        ("very  secret\nname", "Beacon to very secret name seen"),
        ("C:\\Temp\\(1)*.exe", "Beacon to c:\\temp\\(1)*.EXE seen"),
    ],
)
def test_a_hidden_artifact_is_masked_in_every_spelling(hidden: str, words: str) -> None:
    alert = make.alert(title=words, artifacts=[make.artifact(data=hidden, tlp=3)])
    assert RedactedView(Subject.alert(alert), 2).title() == "Beacon to [withheld] seen"


def test_why_several_were_closed_masks_what_is_hidden_of_any_of_them() -> None:
    hidden = make.artifact(data="SECRET-SRV9", tlp=2)
    why = {"status": "Ignored", "summary": "Only SECRET-SRV9"}
    closed = [make.alert(tlp=0, artifacts=[hidden][:number], **why) for number in (0, 1)]
    for alerts in (closed, closed[::-1]):
        shown = closed_by_one([RedactedView(Subject.alert(alert), 0) for alert in alerts])
        assert shown.endswith(': "Only [withheld]"')


def test_a_link_with_a_hidden_artifact_is_left_out() -> None:
    hidden = [make.artifact(data="boss@evil.example", tlp=3)]
    alert = make.alert(external_link="https://siem.example/?q=boss%40evil.example", artifacts=hidden)
    assert "siem.example" not in dump(alert_card(alert, [], clearance=2, button=button))
    assert "siem.example" in dump(alert_card(alert, [], clearance=3, button=button))


def test_the_tlp_of_a_case_counts_for_reports_on_its_artifacts() -> None:
    """Its responder gets the case too."""
    artifact, case = make.artifact(tlp=0), make.case(tlp=3)
    assert RedactedView(Subject.artifact(artifact, case), 2).report("words") == "details withheld (TLP:RED)"
    assert RedactedView(Subject.artifact(artifact, make.case(tlp=2)), 2).report("words") == "words"


def test_a_hidden_artifact_of_a_case_is_masked_in_all_that_is_in_it() -> None:
    case = make.case(title="Lemur calls evil.example", tlp=2)
    amber, red = make.artifact(1, tlp=2), make.artifact(2, data="evil.example", tlp=3)
    document = Document(id=case.id, case=case, artifacts=[amber], other_artifacts=[red])
    found = [Subject.in_document(document, object_id) for object_id in (case.id, amber.id)]
    for view in (RedactedView(subject, 2) for subject in found if subject is not None):
        assert view.text("it calls EVIL[.]example") == "it calls [withheld]"
        assert view.inputs("evil.example again") == "[withheld] again"
        assert view.fingerprint != RedactedView(replace(view.subject, others=()), 2).fingerprint
    reports = [RedactedView(subject, 2).shows_reports for subject in found if subject is not None]
    assert reports == [True, False]


def test_only_hidden_data_that_may_be_in_a_text_is_searched_for_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert may hide a thousand artifacts, and has many texts: a pattern for each would take a second."""
    hidden = [make.artifact(number, data=f"host-{number}.evil{number}.example", tlp=3) for number in range(1000)]
    view = RedactedView(Subject.alert(make.alert(title="Host-7[.]evil7[.]example calls", artifacts=hidden)), 2)
    compiled, compile_pattern = list[str](), re.compile

    def counted(pattern: str, flags: int = 0) -> re.Pattern[str]:
        compiled.append(pattern)
        return compile_pattern(pattern, flags)

    monkeypatch.setattr(re, "compile", counted)
    assert view.title() == "[withheld] calls"
    assert len(compiled) == 1


@pytest.mark.parametrize("hidden", ["KISS", "kiss.kin", "İKS", "\u212aı\u017f", "straße.example", "ΣΟΣ.example", "Ǆ1Ǆ"])
@pytest.mark.parametrize("spelled", [str, str.upper, str.lower, str.title, str.swapcase])
def test_hidden_data_is_masked_in_each_case_that_a_pattern_would_find(
    hidden: str, spelled: Callable[[str], str]
) -> None:
    alert = make.alert(title=f"a {spelled(hidden)} b", artifacts=[make.artifact(data=hidden, tlp=3)])
    expected = re.sub(re.escape(hidden), MASK, alert.title, flags=re.IGNORECASE)
    assert RedactedView(Subject.alert(alert), 2).title() == expected


@given(st.text(max_size=30), st.text(max_size=60))
def test_no_hidden_data_breaks_the_masking(hidden: str, words: str) -> None:
    alert = make.alert(title=f"{words}{hidden}{words}", artifacts=[make.artifact(data=hidden, tlp=3)])
    shown = RedactedView(Subject.alert(alert), 2).title()
    data = visible(hidden).strip()
    if len(data) >= 3 and data.isascii() and data.lower() not in MASK:
        assert data.lower() not in shown.lower()


@pytest.mark.parametrize("hidden", ["evil.example", 'C:\\Temp\\"a".exe', "12345"])
def test_a_hidden_artifact_is_masked_in_the_inputs_of_a_run(hidden: str) -> None:
    alert = make.alert(artifacts=[make.artifact(data=hidden, tlp=3)])
    given = {"to": hidden, hidden: 1, "rows": [{"at": hidden.upper()}], "long": "x" * 3000}
    number = {"number": int(hidden)} if hidden.isdigit() else {}
    asked = make.awaiting(parameters=json.dumps({**given, **number}))
    quoted = json.dumps(hidden)[1:-1]
    shown = everything(alert, [asked], 2)
    assert not [text for text in shown if hidden in text or quoted in text or json.dumps(quoted)[1:-1] in text]
    assert MASK in shown[0]
    assert [text for text in shown if "request-40.txt" in text]


@given(make.alerts(MARKS), st.data(), make.levels)
def test_no_input_above_the_clearance_is_filled_in_again(alert: Alert, data: st.DataObject, clearance: int) -> None:
    subject, hidden = Subject.alert(alert), [a.label for a in alert.artifacts if not may_see(clearance, a.tlp)]
    texts = data.draw(st.lists(st.sampled_from([INPUTS, *hidden]), min_size=1, max_size=6))
    # An option is at most 75 characters long.
    values = [[text, [text]] if len(text) <= 75 else [text] for text in texts]
    given = {f"n{n}": data.draw(st.sampled_from(either)) for n, either in enumerate(values)}
    kinds: list[Mapping[str, Any]] = [
        {"type": "choices", "options": value} if isinstance(value, list) else {"type": "text"}
        for value in given.values()
    ]
    declared = [Parameter(name=name, **kind) for name, kind in zip(given, kinds, strict=True)]
    view = RedactedView(subject, clearance)
    form = inputs.form_again(declared, make.ended(parameters=json.dumps(given)), view)
    # The options are the responder's own.
    fields = [{**block, "element": {**block["element"], "options": []}} for block in inputs.fields(form, "r")]
    forbidden = [mark for tlp, mark in MARKS.items() if not may_see(clearance, tlp)]
    if not view.is_open:
        forbidden += [*MARKS.values(), INPUTS]
    assert [mark for mark in forbidden if mark.lower() in dump(fields).lower()] == []
    assert not form.kept.keys() & form.withheld


def test_titles_are_escaped_wherever_they_are_shown() -> None:
    run = make.awaiting(parameters='{"n": "x"}', responder_title=make.HOSTILE,
                        inputs=[InputTitle(name="n", title=make.HOSTILE[:150], type="string")])  # fmt: skip
    offered = [make.responder(title=make.HOSTILE, parameters=[Parameter(name="n", title="<!here> <@U0BOSS>")])]
    request, view = make.request(), RedactedView(Subject.alert(make.alert()), 3)
    form = inputs.form(offered[0].parameters or (), {})
    shown = [
        *everything(make.alert(), [run], 3),
        dump(responders.responder_list(offered, {}, view.subject, clearance=3, button=button, command="/responder")),
        dump(run_form.form_view(request, offered[0], view, inputs.Form(()))),
    ]
    no_markup = r'(?:"type": "plain_text", "text"|"accessibility_label"): "(?:[^"\\\\]|\\\\.)*"'
    in_markup = [re.sub(no_markup, "", text) for text in shown]
    assert not [text for text in in_markup if "<!channel" in text or "<@U0BOSS" in text]
    modal = run_form.form_view(request, offered[0], view, form)
    fields = [block for block in modal["blocks"] if block["type"] == "input"]
    assert "<!here" not in dump([block for block in modal["blocks"] if block["type"] != "input"])
    assert {block["label"]["type"] for block in fields} == {"plain_text"}  # which is no markup


def test_an_object_that_cannot_be_read_counts_as_red() -> None:
    assert Subject.of_action(make.action(object_type="Log")).tlp == 3
    assert withheld(3) == "details withheld (TLP:RED)"


def test_a_case_goes_by_its_number_while_what_its_title_may_repeat_cannot_be_read() -> None:
    case = make.case(title="Beacon to evil.example")
    document = Document(id=case.id, case=case)  # of a core that doesn't say whether all was read
    for read, title in (
        (document.model_copy(update={"is_complete": True}), case.title),
        (document, f"case {case.case_id}"),
    ):
        subject = Subject.in_document(read, case.id)
        assert subject is not None
        assert subject.title == title
