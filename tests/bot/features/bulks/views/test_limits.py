"""A run on a hundred objects with hostile texts fits in Slack, and its approver reads all of it."""

import json

from bot.block_kit import modals
from bot.block_kit.notices import CHANGED
from bot.clearance import RedactedView, Subject
from bot.features.approvals.views import decision_on_all
from bot.features.bulks.views import details, ending, messages, review
from bot.features.bulks.views.details import ShownTarget
from bot.features.runs.views import inputs, questions, run_form, runs
from bot.features.runs.views.questions import OnEach, Row
from bot.features.runs.views.request import RunRequest
from bot.features.runs.views.undo_state import Able
from bot.slack_emulator.limits import problems
from core.models import (
    Action,
    Approval,
    Bulk,
    BulkAnswer,
    BulkEntry,
    BulkTarget,
    Measure,
    MeasureOfRun,
    Policy,
    RunTarget,
    TargetArtifact,
    Undo,
)
from tests.bot import samples
from tests.bot.samples import HOSTILE, NOW, button, fine, fine_view

MANY = 100
IDS = [f"~{10**17 + n}" for n in range(MANY)]
VIEWS = [RedactedView(Subject.alert(samples.alert(id=one, title=HOSTILE[:500])), 2) for one in IDS]
WANTED = [RunTarget(object_type="alert", object_id=one) for one in IDS]
EACH = [Row(view, "", [], [], HOSTILE[:500], [HOSTILE], [one], []) for view, one in zip(VIEWS, WANTED, strict=True)]


def bulk(**more: object) -> Bulk:
    targets = [
        BulkTarget(object_type="alert", object_id=one, status=201, action_id=f"~{n}", action_status="Success")
        for n, one in enumerate(IDS)
    ]
    values = {
        "id": "~9",
        "created_by": "anna@soc.example",
        "created_at": NOW,
        "responder_name": HOSTILE,
        "title": HOSTILE,
        "total": MANY,
        "refused": 7,
        "counts": {"Waiting": 50, "Failure": 20},
        "outcomes": {"failed": 5, "denied": 5, "expired": 5, "stopped": 5, "cancelled": 5},
        "awaiting": 50,
        "expires_at": NOW,
        "timed": 3,
        "release_at": NOW,
        "not_released": 3,
        "free_at": NOW,
        "targets": targets,
    }
    return Bulk.model_validate({**values, **more})


def test_the_form_the_message_and_the_replies_fit() -> None:
    responder = samples.responder(title=HOSTILE, policy=Policy(confirm=HOSTILE, approval=2, rate=["5/1h"]))
    refused = [([row], f"{row.view.subject.id} {HOSTILE[:500]}") for row in EACH]
    for ready in (EACH, EACH[:1], []):
        request, form = samples.request(*IDS), inputs.Form((), text=HOSTILE)
        fine_view(run_form.form_of_several(request, responder, form, OnEach(ready, EACH[len(ready) :], refused)))
    fine(messages.progress(bulk(), button=button))
    fine(messages.progress(bulk(awaiting=0, counts={}, first_release_at=1), button=button))
    failed = [(samples.ended("Failure", f"{n} {HOSTILE}", n), view) for n, view in enumerate(VIEWS)]
    fine(messages.progress(bulk(awaiting=0, counts={}), failed, button=button))
    fine(messages.ended(bulk()))
    targets = [BulkTarget(object_type="alert", object_id=one, status=409, message=f"{one} {HOSTILE}") for one in IDS]
    not_run = [*zip(targets, VIEWS, strict=True)]
    fine(messages.progress(bulk(), failed, not_run, button=button))
    fine(messages.ended_for(bulk(), [(samples.ended(), view) for view in VIEWS], not_run, [], "anna", button))
    fine(messages.late(bulk()))
    entries = [BulkEntry(object_id=one, status=400, type="BadRequest", message=HOSTILE[:500] + one) for one in IDS]
    done = [(samples.awaiting().model_copy(update={"id": one}), view) for one, view in zip(IDS, VIEWS, strict=True)]
    able = Able([HOSTILE] * 9, are_asked=True, only=HOSTILE[:500])
    left_out = HOSTILE, [view for _, view in done]
    fine(questions.outcome(BulkAnswer(id="~9", actions=entries), done, able, "Home", *left_out, button))
    decided = [BulkEntry(object_id=one.object_id, status=200, action=one) for one, _ in done]
    fine(review.decided(bulk(), BulkAnswer(id="~9", actions=[*entries, *decided]), "approved", done, ""))


def test_an_undo_by_somebody_else_is_told_once_none_is_on_its_way() -> None:
    ended = MeasureOfRun(state="ended", since=NOW, ended_at=NOW, ended_by="ben@soc.example")
    undo = Undo(responder="Release_1_0", status="undone", action_id="~50")
    undone = samples.ended(undo=undo).model_copy(update={"measure": ended})
    running = samples.ended(undo=undo.model_copy(update={"status": "running"}))
    both = [(undone, VIEWS[0]), (undone, VIEWS[1])]
    assert messages.undone(bulk(undone=2), both, "anna@soc.example") == both
    assert messages.undone(bulk(undone=2), both, "ben@soc.example") == []
    assert messages.undone(bulk(undone=1), both, "anna@soc.example") == []  # counted before the second
    assert messages.undone(bulk(undone=1), [both[0], (running, VIEWS[1])], "anna@soc.example") == []
    own = undone.model_copy(update={"created_by": "ben@soc.example"})
    assert messages.undone(bulk(undone=1), [(own, VIEWS[0])], "anna@soc.example") == []


def test_each_of_a_hundred_with_its_undo_fits_in_pages() -> None:
    undo = Undo(responder=HOSTILE, status="available", at=NOW, after_minutes=60)
    found, url = bulk(), {"kind": "url", "data_type": "url", "tlp": 0, "message": HOSTILE}
    long = [TargetArtifact(id=f"~{n}", data=f"https://{n}.example/" + "&" * 5000, **url) for n in range(4)]
    ended = samples.ended(undo=undo).model_copy(update={"target": long})
    shown = [
        ShownTarget(target, view, ended.model_copy(update={"id": f"~{n + 100}"}))
        for n, (target, view) in enumerate(zip(found.targets, VIEWS, strict=True))
    ]
    pages = [details.message(found, shown, start_at, "anna", button=button) for start_at in (0, 40, 80)]
    for page in pages:
        fine_view(modals.message_view("Run on several", page))
    assert all(sum(one in json.dumps(page.blocks) for page in pages) == 1 for one in IDS)
    differ = [(ended.model_copy(update={"undo": undo.model_copy(update={"at": NOW * n})}), VIEWS[n]) for n in (1, 2, 3)]
    told = messages.progress(bulk(release_at=NOW * 3, first_release_at=NOW), differ, button=button)
    fine(told)
    assert "> or later" in json.dumps(told.blocks)


def test_who_approves_a_hundred_reads_each_of_them_and_the_whole_inputs() -> None:
    given = {f"input {n}": f"{n} " + HOSTILE for n in range(4)}
    hosts = [TargetArtifact(id=f"~{n}", data_type="hostname", data=f"{'h' * 60}-{n}", tlp=0) for n in range(9)]
    action = samples.awaiting(parameters=json.dumps({**given, "last": "x" * 7000 + " the end"}), target=hosts)
    shown = [(action.model_copy(update={"id": one}), view) for one, view in zip(IDS, VIEWS, strict=True)]
    offered = samples.responder(policy=Policy(confirm=HOSTILE, approve_by=[HOSTILE]))
    by = {"created_by": HOSTILE[:100], "approved_by": [HOSTILE[:100]]}
    held = Measure(
        id="~7",
        actions=["~7"],
        title=HOSTILE[:100],
        root_id="~1",
        state="in_force",
        since=NOW,
        until=NOW,
        responder_name="Isolate_1_0",
        object_type="alert",
        object_id="~1",
        target=hosts[:1],
        **by,
    )
    undone = {one: [held] for one in IDS}
    view = review.review_view(bulk(), shown, "", "", offered, NOW, undone, button=button, read={})
    fine_view(view)
    text = json.dumps(view)
    assert all(one in text for one in IDS)
    assert text.count("-8`") == MANY + 10  # which are named as new
    assert "the end" in text
    assert "bulk_deny" in text
    assert "submit" in view
    fine(messages.progress(bulk(), shown, button=button))


def test_who_undoes_or_extends_a_hundred_reads_each_of_them() -> None:
    undo = Undo(responder=HOSTILE, status="available", at=NOW, after_minutes=60)
    hosts = [TargetArtifact(id=f"~{n}", data_type="hostname", data=f"{'h' * 60}-{n}", tlp=0) for n in range(9)]
    ended = samples.ended(undo=undo).model_copy(update={"target": hosts})
    in_force = [(ended.model_copy(update={"id": one}), view) for one, view in zip(IDS, VIEWS, strict=True)]
    policy = Policy(confirm=HOSTILE, approval=1, allow_permanent=True)
    for view in (
        ending.undo_all_view(bulk(), in_force, (), policy, "", {}),
        ending.extend_all_view(bulk(), in_force, in_force, policy, NOW),
    ):
        fine_view(view)
        new = 10 if CHANGED in json.dumps(view) else 0
        assert json.dumps(view).count("-8`") == MANY + new


def test_who_approves_runs_that_need_different_numbers_reads_the_range_and_the_first_end() -> None:
    later = Approval(needed=2, approved_by=["lea"], expires_at=samples.NOW + 7_200_000)
    runs = [
        samples.awaiting(needed=3),
        samples.awaiting().model_copy(update={"approval": later}),
        samples.awaiting(needed=2),
    ]
    assert decision_on_all(runs[:1]).startswith("3 approvals, answer by ")
    assert decision_on_all(runs).startswith(
        f"1 to 3 approvals, answer the first by <!date^{samples.NOW // 1000 + 3600}^"
    )
    assert decision_on_all(runs).endswith(" · approved by lea")


def test_the_longest_input_and_both_ends_of_a_long_object_are_read_by_who_approves() -> None:
    # JSON of as many bytes as core takes for several objects; each character of it is longer in Slack's markup.
    action = samples.awaiting(parameters=json.dumps({"text": "& 1.1.1.1 " * 1630 + "the end"}))
    long = "https://portal.example/" + "a" * 300 + ".the-end"
    url = samples.alert(id="~1", artifacts=[samples.artifact(data_type="url", data=long, tlp=0)])
    on_url = samples.action(object_id=url.artifacts[0].id, object_type="Artifact")
    view = RedactedView(Subject.alert(url), 2).of(on_url)
    shown = review.review_view(bulk(), [(action, view)], "", "", None, NOW, {}, button=button)
    fine_view(shown)
    assert "the end" in json.dumps(shown)
    assert json.dumps(shown).count("1[.]1[.]1[.]1") == 1630
    assert "portal" in json.dumps(shown)
    assert "the-end" in json.dumps(shown)


def test_the_form_for_a_hundred_objects_fits() -> None:
    chosen = run_form.object_options([view.subject for view in VIEWS], 2)
    request = samples.request(*IDS, channel="C0123456789")
    assert len(request.to_text()) <= 3000
    fine_view(run_form.targets_view(RunRequest(channel="C0123456789"), "Alerts found", chosen, MANY))
    offered = [(samples.responder(f"R{n}", title=HOSTILE), n) for n in range(1, 157)]
    chosen_one = run_form.responder_view(request, offered, f"the worst {MANY} of 9,999 alerts", VIEWS)
    fine_view(chosen_one)
    (menu,) = [block["accessory"]["options"] for block in chosen_one["blocks"] if block.get("block_id") == "responder"]
    each = OnEach(EACH, [], [([row], HOSTILE) for row in EACH])
    fine_view(run_form.form_of_several(request, offered[0][0], inputs.Form((), text=HOSTILE), each, menu=menu))
    logins = {"owner": "o" * 100}, {"owner": "o" * 1500}  # a run on one object has room for both
    assert [request.keeping(kept).parameters for kept in logins] == [logins[0], {}]
    assert all(len(request.keeping(kept).metadata()) <= 3000 for kept in logins)
    assert problems("options", {"options": chosen}) == []


def test_targets_that_are_cut_alike_are_not_counted_as_one() -> None:
    def on(path: str) -> tuple[Action, RedactedView]:
        url = f"https://files.example/{'a' * 700}{path}{'z' * 700}"
        target = TargetArtifact(id="~7", data_type="url", data=url, kind="url", tlp=0)
        return samples.awaiting().model_copy(update={"target": [target]}), VIEWS[0]

    first, second = on("1"), on("2")
    assert runs.on_target(*first) == runs.on_target(*second)
    assert "runs)" not in runs.distinct_targets([first, second])
    assert "(2 runs)" in runs.distinct_targets([first, first])


def test_many_reasons_of_denials_leave_room_for_what_was_not_undone() -> None:
    def denied(number: int, one: str) -> Action:
        report = samples.report(success=False, message=f"Denied by ben: {number % 14} " + "because of it " * 70)
        more = {"id": one, "status": "Failure", "outcome": "denied", "ended_by": "ben@soc.example", "end_date": NOW}
        return samples.awaiting().model_copy(update={**more, "report": report})

    found = [(denied(number, one), view) for number, (one, view) in enumerate(zip(IDS, VIEWS, strict=True))]
    ended = bulk(outcomes={"denied": 100}, awaiting=0, counts={"Failure": 100})
    shown = json.dumps(messages.progress(ended, found, button=button).payload())
    assert "because of it" in shown
    assert "bulk_details" in shown
    assert "not undone" in shown


def test_an_alert_to_select_names_its_hosts_before_an_indicator() -> None:
    data = [("ip", "203.0.113.7"), ("hostname", "FS-02"), ("hostname", "FS-02-BACKUP")]
    found = [samples.artifact(n, data_type=kind, data=one, ioc=kind == "ip") for n, (kind, one) in enumerate(data)]
    (option,) = run_form.object_options([Subject.alert(samples.alert(artifacts=found))], 2)
    assert option["description"]["text"] == "🟠 HIGH · hostname FS-02, hostname FS-02-BACKUP, ip 203[.]0[.]113[.]7"
