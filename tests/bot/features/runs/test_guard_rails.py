"""Rules of the settings as people meet them in Slack: who, on what, how often, and what failed too often."""

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.block_kit import ids
from core.models import Alert
from tests import stores
from tests.bot.core_proxy import CoreProxy
from tests.bot.features.approvals.test_decisions import button, in_thread
from tests.bot.features.environment import (
    FeatureEnvironment,
    card_in,
    feature_environment,
    fine,
    text_of,
    topmost,
    within_limits,
)
from tests.bot.outbox.harness import until
from tests.bot.running import OPEN, SOC, approve, undo

RULES: Mapping[str, Mapping[str, Any]] = {
    "Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60},
    "Isolate": {"approve_by": ["lea"]},
    "Contain": {"undo": "Quarantine_1_0", "undo_after_minutes": 60},
    "Quarantine": {"run_by": ["lea"], "approval": 0},
    "Report": {"undo": "Fail_1_0", "rate": ["1/1h"]},
}


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[FeatureEnvironment]:
    async with feature_environment(tmp_path, RULES) as environment:
        yield environment


async def test_a_timed_run_is_given_its_time_extended_and_undone(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f"/responder run shun {alert.id}")
    form = fine(await env.until("anna", topmost(ids.START_VIEW, "How long")))
    assert "With a time, Tell ends it by itself; *Undo now* ends it earlier." in text_of(form)
    field = next(b for b in form["blocks"] if b.get("block_id", "").startswith("undo_after"))
    assert [o["value"] for o in field["element"]["options"]] == ["15", "30", "60"]
    assert field["element"]["initial_option"]["value"] == "60"
    await env["anna"].submit(form["id"], {field["block_id"]: {field["element"]["action_id"]: "15"}})
    shown = within_limits(await env.until("anna", lambda s: card_in(s, SOC, alert.id, "Undo now")))
    action = await env.ended_run(alert)
    assert action.undo is not None
    assert action.undo.after_minutes == 15
    assert action.undo.at is not None
    assert f" is in force until <!date^{action.undo.at // 1000}^" in text_of(shown)
    await env["anna"].click(SOC, shown["ts"], action_id=button(shown, ids.EXTEND))
    longer = fine(await env.until("anna", topmost(ids.EXTEND_VIEW)))
    field = next(b for b in longer["blocks"] if b.get("block_id") == "longer")
    assert [o["text"]["text"] for o in field["element"]["options"]] == ["+15 minutes", "+30 minutes", "+45 minutes"]
    await env["anna"].submit(longer["id"], {"longer": {field["element"]["action_id"]: "45"}})
    await env.until("anna", topmost(ids.NOTICE_VIEW, "It ends"))
    later = (await env.client.action(action.id)).undo
    assert later is not None
    assert later.at is not None
    assert later.at == action.undo.at + 45 * 60_000
    shown = await env.until("anna", lambda s: card_in(s, SOC, alert.id, f"<!date^{later.at // 1000}^"))  # type: ignore[operator]
    assert f", moved from <!date^{action.undo.at // 1000}^" in text_of(shown)
    await env["lea"].click(SOC, shown["ts"], action_id=button(shown, ids.UNDO))
    of_another = await env.until("lea", topmost(ids.UNDO_VIEW))
    question = text_of(fine(await undo(env["ben"], SOC, shown["ts"], action_id=button(shown, ids.UNDO))))
    assert f"By itself it would end <!date^{later.at // 1000}^{{date_short_pretty}} {{time}}|" in question
    assert ", 1 hour from now." in question
    assert "anna hears of it." in question
    await env.until("ben", in_thread(card["ts"], '"Undone"'))
    await env["lea"].submit(of_another["id"], {})
    await env.until("lea", topmost(ids.NOTICE_VIEW, " · undone."))
    undone = [a for a in await env.client.actions("alert", alert.id) if a.undoes == action.id]
    assert len(undone) == 1
    assert undone[0].created_by.startswith("ben")


async def test_undo_is_requested_again_if_cores_answer_is_lost(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with feature_environment(tmp_path, {"Shun": {"undo": "Tell_1_0"}}, core_proxy=proxy.serve) as env:
        alert = await env.create_alert()
        await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert.id})
        card = await env.until("anna", lambda s: card_in(s, SOC, alert.id, '"Undo"'))
        action = await env.ended_run(alert)
        proxy.drop_responses(f"POST /api/connector/engine/action/{action.id}/undo")
        await undo(env["anna"], SOC, card["ts"], action_id=button(card, ids.UNDO))
        await env.until("anna", lambda s: card_in(s, SOC, alert.id, "*Tell* done"))
        await until(lambda: not stores.clicks(env.folder / "core.db", "SELECT 1 FROM inbox WHERE done_at = 0"))
        assert "Nothing was run" not in str([*env["anna"].live_view.modals, *env["anna"].live_view.ephemerals(SOC)])
        assert len([one for one in await env.client.actions("alert", alert.id) if one.undoes]) == 1


async def test_release_asks_what_is_meant_only_while_a_run_is_in_force(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert.id})
    await env.ended_run(alert)
    await env["anna"].command(SOC, f"/responder take {alert.id}")
    await env.told("anna", f"You work on {alert.id} now.")
    await env["anna"].command(SOC, f"/responder release {alert.id}")
    question = within_limits(await env.told("anna", f"Release what on {alert.id}? Nothing was changed."))
    assert (await env.client.alert(alert.id)).assignee == "anna@responder-bot.local"
    await env["ben"].command(SOC, f"/responder release {alert.id}")
    of_another = await env.told("ben", f"Release what on {alert.id}?")
    assert "Unassign" not in text_of(of_another)
    await undo(env["ben"], None, view_id=of_another["id"], action_id=button(of_another, ids.UNDO))
    await env.until("ben", lambda s: card_in(s, SOC, alert.id, "*Tell* done"))
    await env["anna"].click(None, view_id=question["id"], action_id=ids.UNASSIGN)
    await env.told("anna", f"Nobody works on {alert.id} now.")
    assert (await env.client.alert(alert.id)).assignee is None
    await env["anna"].command(SOC, f"/responder release {alert.id}")
    await env.told("anna", f"Nobody works on {alert.id}, so you can't unassign it.")


async def run_report(env: FeatureEnvironment, alert: Alert) -> None:
    """Run it after the question that comes before what stays in force."""
    await env["anna"].command(SOC, f"/responder run report {alert.id}")
    question = fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "It lasts until somebody undoes it, by Fail.")))
    (press,) = [e for b in question["blocks"] for e in b.get("elements", []) if e.get("action_id") == ids.RUN]
    assert (press["text"]["text"], press["style"]) == ("Report", "danger")
    await env["anna"].click(None, view_id=question["id"], action_id=ids.RUN)


async def test_what_could_not_be_undone_is_told_in_the_thread_and_on_the_card(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await run_report(env, alert)
    shown = within_limits(await env.until("anna", lambda s: card_in(s, SOC, alert.id, '"Undo"')))
    await undo(env["anna"], SOC, shown["ts"], action_id=button(shown, ids.UNDO))
    told = within_limits(await env.until("anna", in_thread(card["ts"], "was not undone")))
    assert "press *Undo now*" in text_of(told)
    assert button(told, ids.UNDO)
    await env.until("anna", lambda s: card_in(s, SOC, alert.id, "still in force"))
    elsewhere = await env.card_of("anna", alert, OPEN)
    assert "in force" not in text_of(elsewhere)


@pytest.mark.slow  # core looks for what is due every few seconds
async def test_an_undo_that_core_is_refused_is_told_once_and_done_by_who_may(
    env: FeatureEnvironment,
) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f"/responder run contain {alert.id}")
    form = await env.until("anna", topmost(ids.START_VIEW, "How long"))
    await env["anna"].submit(form["id"], {})
    waiting = (await env.client.actions("alert", alert.id))[0]
    await env.client.approve(waiting.id)
    action = await env.ended_run(alert)
    assert action.undo is not None
    assert action.undo.at is not None
    # As if its time had come: core reads the row again, as the newest.
    stores.rows(env.folder / "core.db", "UPDATE sequence SET last = last + 1 WHERE name = 'due'")
    newest = "(SELECT last FROM sequence WHERE name = 'due')"
    stores.rows(env.folder / "core.db", f"UPDATE due SET number = {newest}, wait = 0 WHERE kind = 'undo'")  # noqa: S608
    stores.rows(env.folder / "core.db", "UPDATE in_force SET ends_at = 1 WHERE ends_at > 1")
    told = within_limits(await env.until("anna", in_thread(card["ts"], "was to end")))
    assert "only lea may run it" in text_of(told)
    await env.until("anna", lambda s: card_in(s, SOC, alert.id, "still in force"))
    await undo(env["anna"], SOC, told["ts"], action_id=button(told, ids.UNDO))
    await env.told("anna", "only lea may run it")
    await undo(env["lea"], SOC, told["ts"], action_id=button(told, ids.UNDO))
    await env.until("anna", in_thread(card["ts"], ": undone."))
    assert len([m for m in env["anna"].live_view.thread(SOC, card["ts"]) if ": undone." in text_of(m)]) == 1
    undone = [one for one in await env.client.actions("alert", alert.id) if one.undoes]
    assert [one.created_by.partition("@")[0] for one in undone] == ["lea"]


async def test_a_used_up_rate_is_told_and_overridden_by_two_org_admins(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await run_report(env, alert)
    await env.told("anna", "Started Report")
    ran = await env.ended_run(alert)
    for name in ("anna", "lea"):
        await env[name].command(SOC, f"/responder run report {alert.id}")
        refused = fine(await env.until(name, topmost(ids.NOTICE_VIEW, "can't run")))
        assert "an administrator may override it, with a reason and another administrator's approval" in text_of(
            refused
        )
        assert "the limit of 1 run in 1 hour is reached; an administrator" in text_of(refused)
        assert "; free again <!date^" in text_of(refused)  # in each reader's time
        assert "free again at" not in text_of(refused)
        assert f"Nothing was run.\\n🔒 {alert.id} is contained already with no end by anna ({ran.id})." in text_of(
            refused
        )
        assert (ids.BREAK_GLASS in text_of(refused)) == (name == "lea")
    await env["lea"].click(None, view_id=refused["id"], action_id=ids.BREAK_GLASS)
    form = fine(await env.until("lea", topmost(ids.START_VIEW, "🔴 *This overrides:*")))
    assert "Starts after 1 approval" in text_of(form)  # the one that an override needs
    assert form["submit"]["text"] == "Ask to report"
    for why in ("", "It spreads. " * 100):
        assert (await env["lea"].submit(form["id"], {"override": {"value:override": why}}))["errors"]
    await env["lea"].submit(form["id"], {"override": {"value:override": "The beacon <!channel> spreads"}})
    asked = within_limits(await env.until("ben", in_thread(card["ts"], "🔴 *Override*: *lea* asks to run it although")))
    assert "The beacon &lt;!channel&gt; spreads" in text_of(asked)
    assert "Approve or deny OVERRIDE: Report with no end on HIGH" in asked["text"]
    assert f"🔴 *Override*: *Report on {alert.id}" in asked["blocks"][0]["text"]["text"]
    await approve(env["ben"], SOC, asked["ts"], action_id=button(asked, ids.APPROVE))
    await env.told("ben", "administrator")
    newest = (await env.client.actions("alert", alert.id))[0]
    await env.client.approve(newest.id)
    await env.until("anna", in_thread(card["ts"], "*admin* let *lea* run it although"))
    await env.until("anna", lambda s: card_in(s, SOC, alert.id, "🔴 *Override*, approved by admin: The beacon"))


async def test_a_form_that_somebody_else_was_faster_than_says_what_is_in_force(tmp_path: Path) -> None:
    rules = {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip", "rate_per_target": ["1/1h"]}
    async with feature_environment(tmp_path, {"Shun": rules}) as env:
        alert, _ = await env.alert_and_card("lea")
        await env["lea"].command(SOC, f"/responder run shun {alert.id}")
        form = fine(await env.until("lea", topmost(ids.START_VIEW, "How long")))
        await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert.id})
        ran = await env.ended_run(alert)
        await env["lea"].submit(form["id"], {})
        refused = text_of(fine(await env.until("lea", topmost(ids.NOTICE_VIEW, "is reached on this target"))))
        assert "🔒 `203[.]0[.]113[.]7` is contained already until <!date^" in refused
        assert f" by admin ({ran.id})." in refused
        assert ids.BREAK_GLASS in refused
        assert len(await env.client.actions("alert", alert.id)) == 1


async def test_only_those_whom_the_settings_name_approve_and_others_read_who_may(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
    asked = within_limits(await env.until("ben", in_thread(card["ts"], "Can be approved by: lea.")))
    await approve(env["ben"], SOC, asked["ts"], action_id=button(asked, ids.APPROVE))
    await env.told("ben", "lea")
    assert (await env.client.actions("alert", alert.id))[0].status == "Waiting"
    await env["lea"].open_home()
    home = await env.until("lea", lambda s: s.home if "🟠 *Isolate on " in text_of(s.home or {}) else None)
    form = await approve(env["lea"], None, view_id=home["id"], action_id=button(home, ids.APPROVE))
    assert "Can be approved by: lea." in text_of(form)
    assert (await env.ended_run(alert)).status == "Success"


async def extend(env: FeatureEnvironment, name: str, card: Any, minutes: str) -> None:
    await env[name].click(SOC, card["ts"], action_id=button(card, ids.EXTEND))
    form = fine(await env.until(name, topmost(ids.EXTEND_VIEW)))
    assert form["submit"]["text"] == "Ask to extend"  # all of it is more than was approved
    assert re.search(r"It needs \d approvals? by .+; until then it ends <!date", text_of(form))
    field = next(b for b in form["blocks"] if b.get("block_id") == "longer")
    note = {"value:note": "It <beacons> still."}
    await env[name].submit(form["id"], {"longer": {field["element"]["action_id"]: minutes}, "note": note})


async def test_who_has_approved_more_time_is_refused_before_the_modal(tmp_path: Path) -> None:
    rules = {"Contain": {"undo": "Tell_1_0", "undo_after_minutes": 60, "approval": 2}}
    async with feature_environment(tmp_path, rules) as env:
        alert, card = await env.alert_and_card("anna")
        body = {"responderId": "Contain_1_0", "objectType": "alert", "objectId": alert.id, "undoAfterMinutes": 15}
        action = await env.client.run(body)
        request = await env.until("ben", in_thread(card["ts"], "asks · "))
        for name in ("ben", "lea"):
            await approve(env[name], SOC, request["ts"], action_id=button(request, ids.APPROVE))
        await env.ended_run(alert)
        shown = await env.until("anna", lambda s: card_in(s, SOC, alert.id, '"Extend"'))
        await extend(env, "anna", shown, "45")
        asked = await env.until("ben", in_thread(card["ts"], "2 approvals, answer by"))
        await env["ben"].click(SOC, asked["ts"], action_id=button(asked, ids.APPROVE))
        form = await env.until("ben", topmost(ids.APPROVE_VIEW))
        await env["ben"].submit(form["id"], {})
        await env.told("ben", "It needs 1 approval, answer by")
        await env["ben"].click(SOC, asked["ts"], action_id=button(asked, ids.APPROVE))
        await env.told("ben", "You have approved it; it needs somebody else's approval as well.")
        assert (await env.client.action(action.id)).undo.extension.outcome is None  # type: ignore[union-attr]


async def test_more_time_than_was_approved_is_approved_in_the_thread(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    body = {"responderId": "Contain_1_0", "objectType": "alert", "objectId": alert.id, "undoAfterMinutes": 15}
    action = await env.client.run(body)
    request = await env.until("ben", in_thread(card["ts"], "asks · "))
    await approve(env["ben"], SOC, request["ts"], action_id=button(request, ids.APPROVE))
    await env.ended_run(alert)
    shown = await env.until("anna", lambda s: card_in(s, SOC, alert.id, '"Extend"'))
    await extend(env, "anna", shown, "45")
    asked = fine(await env.until("anna", topmost(ids.NOTICE_VIEW, ": More time than was approved, until <!date^")))
    assert ". It needs 1 approval, answer by" in text_of(asked)
    assert asked["title"]["text"] == "Asked"
    await env["anna"].close(asked["id"])
    before = (await env.client.action(action.id)).undo
    assert before is not None
    assert before.at == before.approved_until
    wanted = within_limits(await env.until("ben", in_thread(card["ts"], "asks to keep")))
    waits = await env.until("lea", lambda s: card_in(s, SOC, alert.id, "asks to keep"))
    assert "\\n1 approval, answer by <!date^" in text_of(waits)
    # What decides is where Extend was, Undo now where it is always.
    labels = [e["text"]["text"] for e in buttons_in(waits) if not e["action_id"].startswith((ids.ASSIGN, ids.DETAILS))]
    assert labels == ["Approve", "Deny", "Undo now"]
    await env["lea"].click(SOC, waits["ts"], action_id=button(waits, ids.UNDO))
    ends = fine(await env.until("lea", topmost(ids.UNDO_VIEW, "approved by ben")))
    assert "⏳ *anna* asks to keep *Contain* *until <!date^" in text_of(ends)
    assert "or its end stays as it is. That request ends too." in text_of(ends)
    await env["lea"].close(ends["id"])
    to_ben = await env["ben"].dm(env.emulator.bot_user_id)
    first, _ = await env.until("ben", lambda s: m if len(m := s.messages(to_ben)) == 2 else None)
    assert "Contain for 15 minutes" in text_of(first)  # what he approved, whatever is asked for later
    assert "Approved by ben." in text_of(first)
    assert "asks to keep" not in text_of(first)
    await env["anna"].click(SOC, wanted["ts"], action_id=button(wanted, ids.APPROVE))
    await env.told("anna", "You asked for this extension; somebody else must approve or deny it.")
    await env["ben"].click(SOC, wanted["ts"], action_id=button(wanted, ids.DENY))
    form = fine(await env.until("ben", topmost(ids.DENY_VIEW, "asks to keep *Contain*")))
    assert f"If you deny it, it ends <!date^{before.at // 1000}^" in text_of(form)  # type: ignore[operator]
    await env["ben"].submit(form["id"], {})
    await env.told("ben", f"You denied more time for Contain on {alert.id}.")
    denied = within_limits(await env.until("lea", in_thread(card["ts"], "Denied by ben.")))
    assert f"{ids.APPROVE}:" not in text_of(denied)
    await extend(env, "anna", shown, "45")
    again = await env.until("lea", in_thread(card["ts"], "1 approval, answer by"))
    assert again["ts"] != wanted["ts"]
    await env["lea"].click(SOC, again["ts"], action_id=button(again, ids.APPROVE))
    form = fine(await env.until("lea", topmost(ids.APPROVE_VIEW, "*anna* asks to keep *Contain*")))
    assert "It &lt;beacons&gt; still." in text_of(form)
    assert "*admin* asked for it · approved by ben. If you deny more time, it ends <!date^" in text_of(form)
    assert text_of(form).count("<!date^") == 5  # both ends, that of a denial, by when to answer, when it was closed
    extension = (await env.client.action(action.id)).undo.extension  # type: ignore[union-attr]  # it can be undone
    assert extension is not None
    assert extension.approval.approved_by == []
    await env["lea"].submit(form["id"], {})
    await env.told("lea", "You approved more time for *Contain*")
    await env.until("anna", in_thread(card["ts"], "Approved by lea."))
    after = (await env.client.action(action.id)).undo
    assert after is not None
    assert after.extension is not None
    assert after.at == after.approved_until == after.extension.at


async def test_what_is_to_last_with_no_end_says_so_wherever_somebody_decides(tmp_path: Path) -> None:
    rules = {"Contain": {"undo": "Tell_1_0", "undo_after_minutes": 60, "approval": 1, "allow_permanent": True}}
    async with feature_environment(tmp_path, rules) as env:
        alert, card = await env.alert_and_card("anna")
        body = {"responderId": "Contain_1_0", "objectType": "alert", "objectId": alert.id, "undoAfterMinutes": 15}
        action = await env.client.run(body)
        request = await env.until("ben", in_thread(card["ts"], "asks · "))
        await approve(env["ben"], SOC, request["ts"], action_id=button(request, ids.APPROVE))
        await env.ended_run(alert)
        shown = await env.until("anna", lambda s: card_in(s, SOC, alert.id, '"Extend"'))
        await extend(env, "anna", shown, "0")
        asks = "⏳ *anna* asks to keep *Contain*"
        asked = within_limits(await env.until("ben", in_thread(card["ts"], asks)))
        on_card = within_limits(await env.until("ben", lambda s: card_in(s, SOC, alert.id, asks)))
        await env["ben"].open_home()
        home = await env.until("ben", lambda s: s.home if asks in text_of(s.home or {}) else None)
        await env["ben"].command(SOC, "/responder pending")
        listed = await env.told("ben", "asks to keep")
        for place in (home, listed):
            assert "🟠 ⏳ *anna* asks to keep *Contain*" in text_of(place)
            assert "1 approval, answer by <!date" in text_of(place)
        await env["anna"].command(SOC, "/responder active")
        assert "*with no end* (now <!date" in text_of(await env.told("anna", asks))
        assert f"{asks} *with no end* (now <!date" in text_of(on_card)
        for place in (asked, on_card, home, listed):
            assert "*with no end* (now <!date" in text_of(place)
            assert "It &lt;beacons&gt; still." in text_of(place)
            keep = next(e for e in buttons_in(place) if e["action_id"].startswith(f"{ids.APPROVE}:"))
            assert (keep["text"]["text"], keep["style"]) == ("Keep with no end", "danger")
            assert place is not asked or any(e["action_id"].startswith(f"{ids.DENY}:") for e in buttons_in(place))
            assert f'"{ids.EXTEND}:' not in text_of(place)  # nobody asks for more while more is asked for
        await env["ben"].command(SOC, f"/responder approve {action.id}")
        form = fine(await env.until("ben", topmost(ids.APPROVE_VIEW, "asks to keep")))
        assert (form["title"]["text"], form["submit"]["text"]) == ("Keep with no end?", "Keep with no end")
        assert any(e["action_id"].startswith(f"{ids.DENY}:") for e in buttons_in(form))
        await env["ben"].submit(form["id"], {})
        await env.told("ben", "It lasts until somebody undoes it.")


def buttons_in(payload: Any) -> list[Any]:
    """The buttons of a message or a view."""
    blocks = payload["blocks"]
    found = [element for block in blocks for element in block.get("elements", ()) if element.get("type") == "button"]
    return found + [b["accessory"] for b in blocks if b.get("accessory", {}).get("type") == "button"]
