"""The card of an alert."""

import json
from typing import Any

from bot.block_kit import ids
from bot.block_kit.subjects import safe_link
from bot.block_kit.text import person_name
from bot.clearance import SHARED
from bot.features.alerts.views.card import alert_card
from bot.message import Intent
from core.models import Action, Approval, MeasureOfRun, Reader, TargetArtifact, Undo
from tests.bot.samples import NOW, action, alert, artifact, awaiting, button, card, ended, intents_in, texts_of


def test_a_card_has_severity_title_facts_description_and_observables() -> None:
    observables = [artifact(1), artifact(2), artifact(3, ioc=True, message="destination"), artifact(4)]
    shown = texts_of(card(external_link="https://siem.example/?a=1&b=2", artifacts=observables, assignee="ben@x"))
    assert shown[0].splitlines() == [
        "🟠 *HIGH*  *<https://siem.example/?a=1&amp;b=2|ET MALWARE Beacon to known C2>*",
        "new · assigned to *ben* · suricata · <!date^1763690310^{date_short_pretty} {time}|2025-11-21 01:58 UTC> · ~12",
    ]
    assert shown[1].splitlines() == [
        "ip `203[.]0[.]113[.]3` · destination · *IOC* · +3\u00a0more",
        "Beacon every 60 s",
    ]


def test_the_host_is_first_and_a_second_observable_takes_the_place_of_a_long_description() -> None:
    host = artifact(2, data_type="hostname", data="LT-0198", message="Host inside")
    observables = [
        artifact(1),
        host,
        artifact(3, ioc=True),
        artifact(4, data_type="fqdn", data="evil.example", ioc=True),
    ]
    shown = alert_card(alert(artifacts=observables, description="x " * 40), [], clearance=2, button=repr)
    (menu,) = [block for block in shown.blocks if block.get("accessory")]
    assert menu["text"]["text"].splitlines() == [
        "hostname `LT-0198` · Host inside",
        "ip `203[.]0[.]113[.]3` · *IOC* · +2\u00a0more",
    ]
    assert menu["accessory"]["placeholder"]["text"] == "Act on hostname LT-0198"


def test_the_observable_on_a_card_has_a_menu_of_its_own() -> None:
    shown = alert_card(alert(artifacts=[artifact(1), artifact(2, ioc=True)]), [], clearance=2, button=repr)
    (menu,) = [block for block in shown.blocks if block.get("accessory")]
    assert menu["block_id"] == ids.MENU_BLOCK + repr(Intent("menu", "~902", "~12"))
    assert menu["accessory"]["placeholder"]["text"] == "Act on ip 203[.]0[.]113[.]2"
    assert menu["accessory"]["action_id"] == "responder_menu:~902"


def test_each_run_has_its_line_with_who_when_how_long_and_result() -> None:
    failed = ended("Failure", "Timed out after 1 minute.", 42, responder_name="Mail_1_0")
    lines = texts_of(card(ended(), action(41, status="InProgress", responder_name="Isolate_Host_1_0"), failed))
    at = "<!date^1763690370^{date_short_pretty} {time}|2025-11-21 01:59 UTC>"
    assert [line for line in lines[1:] if at in line] == [
        f"🔄 *Isolate Host* running · by anna, {at}",
        f"❌ *Mail* failed · by anna, {at} · Timed out after 1 minute.",
        f"✅ *Close False Positive* done · by anna, {at} · Marked as read.",
    ]


def test_runs_of_one_responder_that_ended_alike_share_a_line() -> None:
    several = [ended(number=40 + n) for n in range(4)] + [ended("Failure", "No route.", 50 + n) for n in range(2)]
    failed, succeeded = texts_of(card(*several))[2:]
    assert failed.startswith("❌ *Close False Positive*: 2 runs failed · the last by anna, ")
    assert failed.endswith(" · No route.")
    assert succeeded.startswith("✅ *Close False Positive*: 4 runs done · the last by anna, ")
    assert succeeded.endswith(" · Marked as read.")


def test_runs_on_several_targets_of_one_alert_that_ended_alike_name_each() -> None:
    hosts = [TargetArtifact(id=f"~{n}", data_type="hostname", data=f"CRIT-DC-{n}", tlp=2) for n in (1, 2)]
    denied = [
        action(40 + n, status="Failure", outcome="denied", ended_by="ben", target=[on]) for n, on in enumerate(hosts)
    ]
    (line,) = texts_of(card(*denied))[2:]
    on = "hostname CRIT-DC-1, CRIT-DC-2"
    assert line.startswith(f"🚫 *Close False Positive* on {on}: 2 runs denied by ben · the last asked by anna, ")


def test_a_later_run_hides_no_earlier_finding() -> None:
    found = ended(message="3 engines know it.", responder_name="Lookup_1_0")
    later = ended_as("stopped", ended_by="lea@x", responder_name="Lookup_1_0", number=60)
    closed: dict[str, Any] = {"status": "Ignored", "updated_at": NOW, "updated_by": "ben@x"}
    for more in ({}, closed):
        shown = texts_of(card(found, later, **more))
        assert [line for line in shown if line.startswith("✅ *Lookup* done")], shown
        assert [line for line in shown if line.startswith("🛑 *Lookup* stopped by lea")], shown


def test_what_ended_last_is_first_and_what_merely_succeeded_before_is_below() -> None:
    denied = ended_as("denied", ended_by="lea@x", number=50)
    failed = ended("Failure", "No route.", 51, responder_name="Mail_1_0")
    withdrawn = ended_as("cancelled", ended_by="anna@x", number=60, responder_name="Shun_1_0")
    often = [ended(number=70 + n, responder_name="Lookup_1_0") for n in range(2)]
    shown = texts_of(card(denied, failed, withdrawn, *often))[2:]
    assert [line[:1] for line in shown[:3]] == ["✅", "➖", "❌"]  # who started the last sees how it went
    assert shown[3].startswith("1 more run: ")


def test_what_was_undone_last_is_above_what_was_started_and_failed_in_between() -> None:
    failed = [ended("Failure", "No route.", 50 + n, responder_name=f"R{n}") for n in range(3)]
    undone = {"undo": Undo(responder="Release_1_0", status="undone", action_id="~99"), "undone_by": "lea@x"}
    undone["measure"] = MeasureOfRun(state="ended", since=NOW, ended_at=NOW + 60_000)
    isolated = [ended(number=40 + n, responder_name="Isolate_1_0").model_copy(update=undone) for n in range(2)]
    shown = texts_of(card(*isolated, *failed))[2:]
    assert shown[0].startswith("🔓 *Isolate*: 2 runs, both undone")
    assert shown[3].startswith("1 more run, failed: ")


def test_what_undid_a_run_has_no_line_beside_that_run() -> None:
    undo = Undo(responder="Release_1_0", status="undone", action_id="~61")
    isolated = ended(number=60, responder_name="Isolate_1_0").model_copy(update={"undo": undo, "undone_by": "lea@x"})
    release = ended(number=61, responder_name="Release_1_0").model_copy(update={"id": "~61", "undoes": isolated.id})
    shown = texts_of(card(release, isolated))[2:]
    assert len(shown) == 1
    assert shown[0].startswith("🔓 *Isolate* · by anna, ")
    assert "Release" not in str(shown)
    assert "🔓 *Release* done" in str(texts_of(card(release)))  # what it undid is of another alert


def test_a_note_is_said_behind_who_asked_and_a_block_says_who_read_it_instead_of_a_result() -> None:
    asked = awaiting(note="It beacons", parameters='{"minutes": 60}')
    line = texts_of(card(asked))[1]
    assert line.startswith("⏳ *Close False Positive* (minutes: 60) needs 1 approval, answer by ")
    assert '|2025-11-21 01:59 UTC>: "It beacons"' in line
    assert line.count("It beacons") == 1
    approval = Approval(needed=1, approved_by=["lea@x"], expires_at=NOW)
    undo = Undo(responder="Unblock_1_0", status="available", at=NOW + 3_600_000)
    block = ended(message="203.0.113.1 was put on the block list.", approval=approval)
    block = block.model_copy(update={"note": "It beacons", "undo": undo})
    read = [Reader(name="edge-fw", at=NOW)]
    plain, by = (str(texts_of(card(block.model_copy(update={"readers": one})))) for one in (None, read))
    assert ', asked for by anna: "It beacons" · approved by lea' in plain
    assert ("put on the block list" in plain, "put on the block list" in by) == (True, False)


def ended_as(outcome: str, status: str = "Failure", **more: Any) -> Action:
    return ended(status, "Denied by lea@x: too risky", **{"outcome": outcome, "dispatched_at": None, **more})


def test_what_was_denied_cancelled_expired_or_stopped_did_not_fail() -> None:
    """Nor is any but one that expired offered again: somebody wanted it to end so."""
    told = {
        "denied": (ended_as("denied", ended_by="lea@x"), "🚫 *Close False Positive* denied by lea, <!date^"),
        "cancelled": (ended_as("cancelled", "Deleted", ended_by="anna@x"), "➖ *Close False Positive* withdrawn by"),
        "expired": (ended_as("expired"), "⌛ *Close False Positive* not approved in time · asked by anna"),
        "stopped": (
            ended_as("stopped", ended_by="lea@x", dispatched_at=NOW - 28_000),
            "🛑 *Close False Positive* stopped by lea, <!date^",
        ),
    }
    for outcome, (run, line) in told.items():
        shown = card(run)
        assert line in texts_of(shown)[2]
        assert ("too risky" in str(shown)) is (outcome in ("denied", "cancelled"))
        assert "failed" not in str(shown)
        assert (ids.RUN_AGAIN in str(shown)) is (outcome == "expired")
        twice = texts_of(card(run, run.model_copy(update={"id": "~60", "id_": "~60"})))[2]
        words = {"expired": "not approved in time", "cancelled": "withdrawn"}.get(outcome, outcome)
        by = f" by {person_name(run.ended_by)}" if run.ended_by else ""
        assert f"*Close False Positive*: 2 runs {words}{by} · the last " in twice


def test_a_line_says_who_approved() -> None:
    approval = Approval(needed=1, approved_by=["lea@x"], expires_at=NOW)
    waited = ended(approval=approval, outcome="succeeded", dispatched_at=NOW - 27_000)
    assert " · approved by lea · Marked as read." in texts_of(card(waited))[2]


def test_a_run_that_runs_can_be_stopped_after_a_question() -> None:
    url = TargetArtifact(id="~13", data_type="url", data="http://a.example/?b=1&c=2", tlp=1)
    run = action(41, status="InProgress", target=[url])
    (stop,) = [b["accessory"] for b in card(run, artifacts=[]).blocks if "accessory" in b]
    assert (stop["text"]["text"], stop["style"], stop["confirm"]["deny"]["text"]) == ("Stop", "danger", "Let it run")
    assert "On url hxxp[://]a[.]example/?b=1&c=2. What it has changed" in stop["confirm"]["text"]["text"]


def test_a_closed_alert_has_its_title_and_one_line_with_its_outcome() -> None:
    runs = [ended(number=40 + n, responder_name=f"R{n}") for n in range(6)]
    shown = card(*runs, status="Ignored", updated_at=NOW, updated_by="ben@soc.example", assignee="ben@x")
    texts = texts_of(shown)
    assert "Beacon every 60 s" not in str(texts)
    assert "\n*closed* by ben, <!date^" in texts[0]
    assert texts[1] == "suricata · ~12 · 6 runs"
    assert texts[2].startswith("✅ *R5* done ")
    assert len(shown.blocks) == 3
    assert shown.blocks[0]["accessory"]["type"] == "overflow"
    waits = card(*runs, awaiting(number=60), status="Ignored", updated_at=NOW, updated_by="ben@soc.example")
    assert [block["type"] for block in waits.blocks[1:]] == ["section", "actions", "context", "context"]


def test_a_closed_alert_says_why() -> None:
    closed: dict[str, Any] = {"status": "Ignored", "updated_at": NOW, "updated_by": "ben@x"}
    text = texts_of(card(**closed, summary="A <scanner> of ours, 203.0.113.9,\nsee wiki"))[0]
    assert "\n*closed* by ben, <!date^" in text
    assert text.endswith("UTC>: A &lt;scanner&gt; of ours, 203[.]0[.]113[.]9, see wiki")


def test_who_changes_a_closed_alert_has_not_closed_it() -> None:
    changed: dict[str, Any] = {"status": "Ignored", "updated_at": NOW, "updated_by": "anna@x"}
    text = texts_of(card(**changed, closed_at=NOW - 60_000, closed_by="ben@x"))[0]
    assert f"\n*closed* by ben, <!date^{NOW // 1000 - 60}^" in text


def test_a_card_says_how_often_its_source_has_sent_it_and_that_it_is_over() -> None:
    again: dict[str, Any] = {"count": 12, "last_date": NOW}
    texts = texts_of(card(**again))
    assert f" · 12 x, last <!date^{NOW // 1000}^" in texts[0]
    assigned = texts_of(card(**again, assignee="ben@x", resolved_by="suricata"))
    assert "\nnew · assigned to *ben* · suricata says it is over · suricata · " in assigned[0]
    by_source: dict[str, Any] = {"resolved_by": "suricata", "status": "Ignored", "updated_at": NOW}
    closed = texts_of(card(**by_source, updated_by="suricata@soc.example"))
    assert "\n*closed*, suricata says it is over, <!date^" in closed[0]
    by_ben = texts_of(card(**by_source, updated_by="ben@soc.example"))
    assert "\n*closed* by ben, <!date^" in by_ben[0]
    assert by_ben[0].endswith(" · suricata says it is over")


def test_a_card_says_what_an_alert_was_before_its_source_raised_it() -> None:
    raised: dict[str, Any] = {"severity": 3, "severity_before": 1, "raised_at": NOW}
    assert f" · was Low until <!date^{NOW // 1000}^" in texts_of(card(**raised))[0]
    assert "was Low" not in str(card(**{**raised, "severity": 1}))  # a person has lowered it since


def test_a_card_shows_the_sentence_of_a_description_and_not_the_fields_below() -> None:
    described = card(description="sshd: invalid user admin\n\nagent name: web-01\nrule id: 5715")
    (line,) = [text for text in texts_of(described) if "invalid user" in text]
    assert line.endswith("sshd: invalid user admin")


def test_the_card_of_an_alert_in_a_case_keeps_its_tools_and_runs() -> None:
    runs = [ended(number=40 + n, responder_name=f"R{n}") for n in range(6)] + [ended("Failure", number=60)]
    shown = card(*runs, status="Imported", case="~30", updated_at=NOW, updated_by="ben@soc.example")
    texts = texts_of(shown)
    assert "\n*in case ~30* · suricata" in texts[0]
    assert len([line for line in texts if line.startswith("✅ *R")]) == 2
    assert texts[-1] == "4 more runs: `/responder actions ~12` shows all."
    (menu,) = [block for block in shown.blocks if block["type"] == "actions"]
    assert [element["action_id"] for element in menu["elements"]] == [
        ids.MENU,
        ids.DETAILS,
        f"{ids.DETAILS}:~30",
        ids.MORE,
    ]
    assert ids.RUN_AGAIN in str(shown.blocks)


def test_the_line_of_a_closed_alert_names_the_run_that_closed_it() -> None:
    def told(*operations: dict[str, str], by: str = "anna@soc.example") -> str:
        run = ended().model_copy(update={"operations": json.dumps(operations)})
        return texts_of(card(run, status="Ignored", updated_at=run.end_date, updated_by=by))[0].splitlines()[1]

    read = {"type": "MarkAlertAsRead", "status": "Success"}
    assert told(read).startswith("*closed* by anna (Close False Positive), ")
    assert "*closed* by ben, " in told(read, by="ben@soc.example")
    assert "*closed* by anna, " in told({**read, "status": "Failure"})


def test_a_withheld_card_says_where_to_find_details_and_names_nobody() -> None:
    runs = [awaiting(number=41, parameters='{"a": "secret"}'), action(42, status="InProgress"), ended()]
    shown = card(*runs, tlp=3, assignee="ben@x", updated_by="cleo@x", updated_at=NOW)
    assert texts_of(shown) == [
        "🟠 *HIGH*  ~12 · details withheld (TLP:RED): whoever may see them presses Details",
        "3 runs, 1 waiting for approval, 1 running",
    ]
    for word in ("anna", "ben", "cleo", "siem", "Positive", "secret"):
        assert word not in str(shown)
    undo = Undo(responder="Release_1_0", status="available", at=NOW)
    held = [ended(number=number).model_copy(update={"undo": undo}) for number in (40, 41)]  # on the same
    assert texts_of(card(*held, tlp=3))[1] == "🔒 1 measure in force, 2 runs"
    assert "in force" not in str(alert_card(alert(tlp=3), held, clearance=SHARED, button=button))


def test_a_run_that_needs_no_approval_or_has_it_is_about_to_start() -> None:
    assert [text for text in texts_of(card(action(43))) if "about to start · " in text]


def test_a_run_can_be_ended_only_while_it_is_open() -> None:
    def ends(*actions: Any) -> list[Intent]:
        made = intents_in(lambda b: alert_card(alert(), actions, clearance=2, button=b))
        return [intent for intent in made if intent.what in ("cancel", "withdraw")]

    assert ends(action(40), action(41, status="InProgress"), ended(number=42)) == [
        Intent("cancel", "~41"),
        Intent("withdraw", "~40"),
    ]


def test_what_no_longer_applies_is_not_on_the_card() -> None:
    def offered(**more: Any) -> list[str]:
        made = intents_in(lambda b: alert_card(alert(**more), [], clearance=2, button=b))
        return [intent.what for intent in made if intent.what not in ("menu", "details", "actions")]

    assert offered(status="Imported", case="~30") == []
    assert offered(status="New") == ["assign", "read", "case"]
    assert offered(assignee="ben@x") == ["unassign", "read", "case"]
    assert offered(status="Ignored") == ["unread", "case"]
    assert offered(status="Updated", case="~30") == ["assign", "read"]


def test_a_run_that_waits_for_approval_says_how_many_it_needs_and_when_it_expires() -> None:
    line = texts_of(card(awaiting(("cleo@x",), needed=2)))[1]
    until = "<!date^1763694000^{time}|2025-11-21 03:00 UTC>"
    assert line.startswith(f"⏳ *Close False Positive* needs 1 approval, answer by {until} · asked by anna, ")
    assert line.endswith(" · approved by cleo")
    hour = Undo(responder="Release_1_0", after_minutes=60)
    timed = texts_of(card(awaiting(needed=2).model_copy(update={"undo": hour})))[1]
    assert timed.startswith("⏳ *Close False Positive* for 1 hour needs 2 approvals, answer by")


def test_a_run_that_waits_for_approval_shows_inputs_with_approve_and_deny() -> None:
    asked = awaiting(parameters='{"minutes": 60, "reason": "lateral movement"}')
    shown = alert_card(alert(), [asked], clearance=2, button=button)
    line = texts_of(shown)[1]
    assert line.startswith("⏳ *Close False Positive* (minutes: 60, reason: lateral movement) needs 1 approval")
    offered = [e["text"]["text"] for e in shown.blocks[2]["elements"]]
    assert offered == ["Approve", "Deny", "Withdraw"]


def test_why_a_run_never_began_names_what_it_was_to_act_on() -> None:
    why = "the observable ~901 is protected (10.0.0.0/8), so it did not run"
    runs = ended("Failure", why, dispatched_at=None), ended("Failure", why)
    lines = ["\n".join(texts_of(card(run))) for run in runs]
    assert "203[.]0[.]113[.]1 is protected (10.0.0.0/8), so it did not run" in lines[0]
    assert "the observable ~901" in lines[1]  # a program's own words


def test_the_push_notification_has_the_last_run_without_markup() -> None:
    assert card(ended()).text == (
        "High alert ~12: Close False Positive done: Marked as read. · ET MALWARE Beacon to known C2"
    )


def test_only_a_plain_web_address_becomes_a_link() -> None:
    assert safe_link("https://siem.example/1") == "https://siem.example/1"
    for bad in ("javascript:alert(1)", "https://a|<!channel>", "https://a b", "http://[", "//x", "https:///x"):
        assert safe_link(bad) == ""


def test_what_never_ran_has_no_end_ahead() -> None:
    undo = Undo(responder="Release_1_0", title="Release", after_minutes=60)
    for outcome, status in (("denied", "Failure"), ("expired", "Failure"), ("cancelled", "Deleted")):
        assert "ends 1 hour" not in str(card(ended_as(outcome, status, undo=undo)))
    assert " · for 1 hour" in str(card(action(40, status="InProgress", undo=undo)))
