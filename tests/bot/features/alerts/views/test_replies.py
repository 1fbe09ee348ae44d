"""Replies at the end of a run, approval requests, and direct messages to whoever asked for it."""

import json
from typing import Any

from bot.block_kit import ids
from bot.block_kit.text import escape
from bot.clearance import Subject
from bot.features.alerts.views.card import alert_card
from bot.features.alerts.views.replies import end_reply, report_file, told
from bot.features.approvals.views import approval_request, whole_request
from bot.message import Intent
from core.models import Action, Approval, Artifact, MeasureOfRun, Undo
from tests.bot.samples import NOW, action, alert, artifact, awaiting, button, ended, intents_in, report, texts_of

SUBJECT = Subject.alert(alert())


def test_an_end_reply_has_result_labels_changes_and_first_lines() -> None:
    operations = [
        {"type": "AddTagToAlert", "tag": "false-positive", "status": "Success"},
        {"type": "CloseTask", "status": "Failure", "message": "there is no task"},
    ]
    taxonomy = {"namespace": "RB", "predicate": "closed", "value": "fp", "level": "info"}
    text = "\n".join(f"line {n}" for n in range(30))
    done = ended().model_copy(
        update={
            "operations": json.dumps(operations),
            "report": report(message="Closed.", full=text, summary={"taxonomies": [taxonomy]}),
        }
    )
    assert texts_of(end_reply(done, SUBJECT, clearance=2, button=button)) == [
        "✅ *Close False Positive* done on ~12, started by anna.",
        "Closed.",
        "`closed: fp`",
        "• tagged the alert false-positive\n• not done: CloseTask (there is no task)",
        "```\n" + "\n".join(f"line {n}" for n in range(8)) + "\n```",
        "These are its first lines.",
    ]
    assert report_file(done, SUBJECT, clearance=2) == ("Close_False_Positive_report_40.txt", text)
    assert report_file(done, SUBJECT, clearance=1) is None


def test_what_never_ran_was_not_started_by_anybody() -> None:
    for outcome, words in (
        ("denied", "denied by cleo"),
        ("expired", "not approved in time"),
        ("cancelled", "withdrawn"),
    ):
        approval = Approval(needed=1, approved_by=[], expires_at=NOW)
        never_ran = ended("Failure", "", approval=approval, outcome=outcome, ended_by="cleo@x").model_copy(
            update={"dispatched_at": None}
        )
        headline = texts_of(end_reply(never_ran, SUBJECT, clearance=2, button=button))[0]
        assert words in headline
        assert headline.endswith("asked by anna.")


def test_what_is_in_force_or_was_undone_does_not_look_just_done() -> None:
    undo = Undo(responder="Release_1_0", status="available", at=NOW)
    isolated, released = ended().model_copy(update={"undo": undo}), ended(outcome="succeeded", undoes="~39")
    signs = [
        texts_of(end_reply(one, SUBJECT, clearance=clearance, button=button))[0][0]
        for one in (isolated, released)
        for clearance in (2, 0)
    ]
    assert signs == ["🔒", "✅", "🔓", "✅"]  # nobody learns of it who may not see the alert
    undone = undo.model_copy(update={"status": "undone", "action_id": "~41", "at": None})
    measure = MeasureOfRun(state="ended", since=NOW, ended_at=NOW, ended_by="ben@x")
    over = ended().model_copy(update={"undo": undone, "measure": measure})
    assert texts_of(end_reply(over, SUBJECT, clearance=2, button=button))[0].startswith(
        "🔓 *Close False Positive* on ~12, started by anna: undone by ben, <!date^"
    )


def test_a_report_leaves_out_its_sentence_and_empty_values() -> None:
    def shown(**full: Any) -> list[str]:
        done = ended().model_copy(update={"report": report(message="Closed.", full={"message": "Closed.", **full})})
        return texts_of(end_reply(done, SUBJECT, clearance=2, button=button))[1:]

    assert shown(reason="", tag="fp", left=None, found=0) == ["Closed.", "• tag: fp\n• found: 0"]
    assert shown(reason="", rows=[]) == ["Closed."]
    assert shown(message="Another.", tag="fp")[1] == "• message: Another.\n• tag: fp"


def test_the_file_of_a_long_report_stays_whole() -> None:
    full = {"message": "Closed.", "reason": "", "rows": [[n] for n in range(40)]}
    done = ended().model_copy(update={"report": report(message="Closed.", full=full)})
    name, text = report_file(done, SUBJECT, clearance=2) or ("", "{}")
    assert (name, json.loads(text)) == ("Close_False_Positive_report_40.txt", full)
    assert texts_of(end_reply(done, SUBJECT, clearance=2, button=button))[-1] == ("These are its first lines.")


def test_an_empty_result_posts_no_file_and_less_than_a_screen_none_either() -> None:
    nothing: list[Any] = [None, "", {}, []]
    empty = {f"field{n}": nothing[n % 4] for n in range(40)}
    done = ended().model_copy(update={"report": report(message="Closed.", full={"message": "Closed.", **empty})})
    assert report_file(done, SUBJECT, clearance=2) is None
    assert texts_of(end_reply(done, SUBJECT, clearance=2, button=button))[1:] == ["Closed."]
    short = "\n".join(f"line {n}" for n in range(20))
    done = ended().model_copy(update={"report": report(message="Closed.", full=short)})
    assert report_file(done, SUBJECT, clearance=2) is None
    assert texts_of(end_reply(done, SUBJECT, clearance=2, button=button))[2] == f"```\n{short}\n```"


def test_a_list_of_records_is_a_table() -> None:
    rows = [{"ip": "192.0.2.1", "hits": 3}, {"ip": "192.0.2.117", "seen": "today"}]
    done = ended().model_copy(update={"report": report(message="Found.", full={"message": "Found.", "rows": rows})})
    assert texts_of(end_reply(done, SUBJECT, clearance=2, button=button))[2].splitlines() == [
        "```",
        "ip                 hits  seen",
        "192[.]0[.]2[.]1    3",
        "192[.]0[.]2[.]117        today",
        "```",
    ]


def test_a_nested_report_is_names_and_values_defanged_and_never_json() -> None:
    def shown(full: Any) -> list[str]:
        done = ended().model_copy(update={"report": report(message="Found.", full=full)})
        assert report_file(done, SUBJECT, clearance=2) is None
        return texts_of(end_reply(done, SUBJECT, clearance=2, button=button))[2:]

    found = {"ip": ["192.0.2.1", "192.0.2.2"], "domain": [], "url": ["http://evil.example/a"]}
    assert shown({"message": "Found.", "indicators": found}) == [
        "• ip: 192[.]0[.]2[.]1, 192[.]0[.]2[.]2\n• url: hxxp[://]evil[.]example/a"
    ]
    host = {"name": "web-3", "open": [{"port": 22, "by": {"pid": 7}}, {"port": 443}]}
    assert shown({"host": host, "verdict": "bad"}) == [
        "• host.name: web-3\n• host.open[1].port: 22\n• host.open[1].by.pid: 7\n• host.open[2].port: 443\n"
        "• verdict: bad"
    ]
    assert shown({"verdict": "bad", "hits": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}]}) == [
        "• verdict: bad",
        "```\nhits\nip\n192[.]0[.]2[.]1\n192[.]0[.]2[.]2\n```",
    ]
    assert shown(["a", "b"]) == ["• result: a, b"]
    assert shown({"status": 201, "answer": '{"ticket": "INC-7", "left": []}', "rest": "[]", "log": "[1] sent"}) == [
        "• status: 201\n• answer.ticket: INC-7\n• log: [1] sent"
    ]
    assert shown("see 192.0.2.1") == ["```\nsee 192[.]0[.]2[.]1\n```"]


def test_only_observables_are_defanged_in_changes() -> None:
    operations = [
        {"type": "AddTagToAlert", "tag": "v1.2", "status": "Success"},
        {"type": "CloseTask", "status": "Failure", "message": "There is no task. Ask Anna."},
        {"type": "AddTagToCase", "tag": "c2:evil.example", "status": "Success"},
        {"type": "AddArtifactToCase", "dataType": "ip", "data": "203.0.113.7", "status": "Success"},
        {"type": "AddArtifactToAlert", "dataType": "domain", "data": "evil.example", "status": "Success"},
        {
            "type": "AddArtifactToAlert",
            "dataType": "ip",
            "data": "203.0.113.8",
            "status": "Success",
            "message": "The alert has this ip already.",
        },
        {"type": "CreateTask", "title": "Block https://evil.example/a.php?b=1.", "status": "Success"},
        {"type": "AssignCase", "owner": "boss@evil.example", "status": "Success"},
    ]
    done = ended().model_copy(update={"operations": json.dumps(operations)})
    assert texts_of(end_reply(done, SUBJECT, clearance=2, button=button))[-1].splitlines() == [
        "• tagged the alert v1.2",
        "• not done: CloseTask (There is no task. Ask Anna.)",
        "• tagged the case c2:evil[.]example",
        "• added ip 203[.]0[.]113[.]7 to the case",
        "• added domain evil[.]example to the alert",
        "• nothing to do for 203[.]0[.]113[.]8: The alert has this ip already.",
        "• made the task Block hxxps[://]evil[.]example/a[.]php?b=1.",
        "• assigned the case to boss[@]evil[.]example",
    ]


def test_only_a_failed_run_offers_to_run_again() -> None:
    def meant(status: str) -> tuple[Intent, ...]:
        return intents_in(lambda b: end_reply(ended(status), SUBJECT, clearance=2, button=b))

    assert meant("Failure") == (Intent("run_again", "~40"),)
    assert meant("Success") == ()


def test_an_end_reply_above_the_clearance_says_only_how_the_run_ended() -> None:
    done = ended(message="Blocked 203.0.113.1", approval=Approval(needed=1, approved_by=["ben@x"], expires_at=NOW))
    assert texts_of(end_reply(done, SUBJECT, clearance=1, button=button)) == [
        "✅ A run on ~12: done, details withheld (TLP:AMBER)",
    ]
    assert texts_of(approval_request(done, SUBJECT, clearance=1, button=button, now_ms=NOW)) == [
        "✅ A run on ~12 was approved, details withheld (TLP:AMBER)",
    ]
    hidden = Subject.alert(alert(tlp=1, artifacts=[artifact(tlp=2)]))
    assert texts_of(end_reply(ended(message="Blocked 203.0.113.1"), hidden, clearance=1, button=button)) == [
        "✅ *Close False Positive* done on ~12, started by anna.",
        "Result: details withheld (TLP:AMBER); `/responder actions ~12` shows it to those who may see it.",
    ]


def request(request_action: Any) -> Any:
    return approval_request(request_action, SUBJECT, clearance=2, button=button, now_ms=NOW)


def test_an_approval_request_says_who_asks_for_what_until_when() -> None:
    assert texts_of(request(awaiting()))[:2] == [
        "*Close False Positive on ~12?*\n*anna* asks · 🟠 HIGH ET MALWARE Beacon to known C2 (~12)\n"
        "No button ends it earlier.",
        "1 approval, answer by <!date^1763694000^{time}|2025-11-21 03:00 UTC>",
    ]


def test_an_approval_request_shows_all_inputs_and_those_too_long_for_a_message_in_a_file() -> None:
    def lines(asked: Action) -> str:
        return texts_of(request(asked))[0].split("\n", 2)[2].removesuffix("\nNo button ends it earlier.")

    def shown(**given: Any) -> tuple[str, tuple[str, str] | None]:
        asked = awaiting(parameters=json.dumps(given))
        return lines(asked), whole_request(asked, SUBJECT, clearance=2)

    assert shown(minutes=60, reason="lateral movement", hosts=["web-3", "192.0.2.1"]) == (
        '• minutes: 60\n• reason: lateral movement\n• hosts: ["web-3", "192[.]0[.]2[.]1"]',
        None,
    )
    first, file = shown(reason="a" * 5000, target="the boss")
    assert first.startswith("• reason: aaa")
    assert file == ("request-40.txt", f"reason:\n{'a' * 5000}\n\ntarget:\nthe boss")
    assert "*Not all inputs fit here*" in str(request(awaiting(parameters=json.dumps({"a": "&" * 900}))).blocks)
    assert whole_request(awaiting(parameters=json.dumps({"a": "b" * 5000})), SUBJECT, clearance=1) is None


def test_an_approval_request_shows_the_observables_that_the_run_gets_and_many_in_a_file() -> None:
    def asked(*artifacts: Artifact) -> Action:
        return awaiting().model_copy(update={"artifacts": list(artifacts)})

    few = asked(artifact(), artifact(tlp=3))
    assert (
        "\nIt may act on any of 2 observables:\n• ip 203[.]0[.]113[.]1\nand 1 withheld (TLP:RED)\n"
        in (texts_of(request(few))[0])
    )
    assert whole_request(few, SUBJECT, clearance=2) is None
    many = asked(*(artifact().model_copy(update={"data": f"192.0.2.{number}"}) for number in range(12)))
    shown = texts_of(request(many))[0]
    assert "• ip 192[.]0[.]2[.]9\n*and 2 more*: request-40.txt in the thread of the card has them." in shown
    file = whole_request(many, SUBJECT, clearance=2)
    assert file is not None
    assert file[1].startswith("Observables:\nip 192[.]0[.]2[.]0\n")
    assert file[1].endswith("ip 192[.]0[.]2[.]11")


def test_nobody_approves_where_the_inputs_are_withheld() -> None:
    asked = awaiting(parameters='{"reason": "lateral movement"}')
    told = approval_request(asked, SUBJECT, clearance=1, button=button, now_ms=NOW)
    assert "lateral" not in str(told.blocks)
    assert ids.APPROVE not in str(told.blocks)
    on_card = alert_card(alert(), [asked], clearance=1, button=button)
    assert ids.APPROVE not in str(on_card.blocks)


def test_a_decided_or_expired_request_has_no_buttons() -> None:
    def offers(request_action: Any) -> bool:
        return ids.APPROVE in str(request(request_action).blocks)

    approved = Approval(needed=1, approved_by=["cleo@x"], expires_at=NOW + 1)
    assert offers(awaiting())
    assert not offers(ended("Failure", outcome="expired", approval=approved.model_copy(update={"approved_by": []})))
    assert not offers(awaiting(("cleo@x",)))
    assert not offers(ended(approval=approved))
    assert "Approved by cleo." in texts_of(request(ended(approval=approved)))
    denied = Approval(needed=1, approved_by=[], expires_at=NOW + 1)
    assert "Denied by cleo." in texts_of(
        request(ended("Failure", "Denied by cleo.", approval=denied, outcome="denied", ended_by="cleo@x"))
    )


def test_a_report_that_is_not_json_raises_nothing() -> None:
    for text in ("", "nonsense", "[]", "null", '{"summary": 3, "full": [1], "operations": {}}', "[" * 100_000):
        broken = action(status="Success", end_date=NOW, report=text, operations=text)
        assert "Close False Positive done" in end_reply(broken, SUBJECT, clearance=2, button=button).text


def test_the_type_of_an_operation_is_never_a_template() -> None:
    names = ["{", "{type:>20000000}", "{0}", "{type.__class__}", "%s %(type)s", "{tag!r}"]
    operations = [{"type": name, "tag": "{type}", "status": "Success"} for name in [*names, "AddTagToAlert"]]
    done = ended().model_copy(update={"operations": json.dumps(operations), "report": report(message="Closed.")})
    changes = "\n".join([*(f"• {escape(name)}" for name in names), "• tagged the alert {type}"])
    assert texts_of(end_reply(done, SUBJECT, clearance=2, button=button))[2] == changes


def test_an_unreadable_report_still_shows_the_end() -> None:
    for words in (
        {"report": 5},
        {"report": report(message="Closed."), "operations": 5},
    ):  # of types that core never sends
        done = ended().model_copy(update=words)
        assert texts_of(end_reply(done, SUBJECT, clearance=2, button=button))[0].startswith(
            "✅ *Close False Positive* done"
        )
        assert report_file(done, SUBJECT, clearance=2) is None
        assert "Close False Positive" in told(done, SUBJECT, clearance=2, button=button).text
        card = alert_card(alert(), [done], clearance=2, button=button)
        assert "✅ *Close False Positive* done" in str(card)
        assert "can't be shown here" in str(card)


def test_a_report_that_retention_has_deleted_is_not_promised() -> None:
    done = ended().model_copy(update={"report": report(message="Closed.", full={"removed": True})})
    texts = texts_of(end_reply(done, SUBJECT, clearance=2, button=button))
    assert texts[1:] == ["Closed.", "The report was deleted, since it is old."]
    assert report_file(done, SUBJECT, clearance=2) is None
