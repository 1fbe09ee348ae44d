"""Modals, shortcuts and the App Home."""

from typing import Any

from bot.block_kit import ids
from bot.slack_emulator import EmulatorView
from tests.bot.features.approvals.test_decisions import button
from tests.bot.features.environment import FeatureEnvironment, card_in, fine, text_of, topmost
from tests.bot.features.runs.test_runs import choose
from tests.bot.running import SOC, approve


def typed(**fields: str) -> dict[str, dict[str, str]]:
    return {block: {f"value:{block}": value} for block, value in fields.items()}


async def test_template_modal_creates_a_template_and_shows_a_taken_name(env: FeatureEnvironment) -> None:
    lea = env["lea"]
    await lea.command(SOC, "/responder template")
    view = fine(await env.until("lea", topmost(ids.TEMPLATE_VIEW)))
    await lea.submit(view["id"], typed(name="Phishing", tags="mail", tasks="Look\nBlock | it"))
    await env.until("lea", topmost(ids.NOTICE_VIEW, "was created, with 2 tasks"))
    made = await env.client.case_template("Phishing")
    assert [t.title for t in made.tasks] == ["Look", "Block"]
    assert made.created_by == "lea@responder-bot.local"
    await lea.close((await env.until("lea", lambda s: s.modal))["id"])
    await lea.command(SOC, "/responder template")
    again = await env.until("lea", topmost(ids.TEMPLATE_VIEW))
    answer = await lea.submit(again["id"], typed(name="Phishing"))
    assert answer["errors"] == {"name": 'The case template "Phishing" already exists'}


async def test_missing_permission_for_templates_is_told_before_the_modal_opens(env: FeatureEnvironment) -> None:
    await env["anna"].command(SOC, "/responder template")
    await env.ephemeral("anna", "You can't make case templates. Ask admin or lea.")


async def test_run_modal_leads_from_object_to_responder_to_run(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].command(SOC, "/responder")
    view = fine(await env.until("anna", topmost(ids.START_VIEW)))
    picker: dict[str, Any] = {"view_id": view["id"], "action_id": "value:object"}
    (nothing,) = await env["anna"].options(query="~99999", **picker)
    assert [o["text"]["text"] for o in nothing["options"]] == ["No alert that you may see contains this."]
    (found,) = await env["anna"].options(query="beacon", **picker)
    assert [o["value"] for o in found["options"]] == [alert.id]
    await env["anna"].click(None, value=alert.id, **picker)
    view = fine(await env.until("anna", topmost(ids.START_VIEW, "ET MALWARE")))
    place: dict[str, Any] = {"view_id": view["id"], "action_id": ids.START_RESPONDER}
    groups = await env["anna"].options(query="Shun", **place)
    value = groups[0]["options"][0]["value"]
    chosen = {f"responder:{alert.id}": {ids.START_RESPONDER: value}}
    await env["anna"].submit(view["id"], {**typed(object=alert.id), **chosen})
    asked = fine(await env.until("anna", topmost(ids.START_VIEW, "Blocks the host at the firewall.")))
    await env["anna"].submit(asked["id"], {})
    await env.closed("anna")
    assert (await env.ended_run(alert)).responder_name == "Shun_1_0"


async def test_message_shortcut_finds_the_alert_of_a_message(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].shortcut(ids.RUN_MESSAGE_SHORTCUT, channel=SOC, message_ts=card["ts"])
    view = fine(await env.until("anna", topmost(ids.START_VIEW, "ET MALWARE")))
    await env["anna"].close(view["id"])
    await env["anna"].say(SOC, f"who looks at {alert.id}?", thread_ts=card["ts"])

    def reply(view: EmulatorView) -> dict[str, Any] | None:
        return next((m for m in view.thread(SOC, card["ts"]) if "who looks" in m["text"]), None)

    said_in_thread = await env.until("anna", reply)
    await env["anna"].shortcut(ids.RUN_MESSAGE_SHORTCUT, channel=SOC, message_ts=said_in_thread["ts"])
    await env.until("anna", topmost(ids.START_VIEW, "ET MALWARE"))


async def test_message_shortcut_asks_which_of_several_alerts_is_meant(env: FeatureEnvironment) -> None:
    first = await env.create_alert()
    second = await env.create_alert(sourceRef="2", title="Login from a new country")
    await env["anna"].say(SOC, f"{first.id} and {second.id} look alike, ~99999 doesn't")
    said = await env.until("anna", lambda s: next((m for m in s.messages(SOC) if "look alike" in m["text"]), None))
    await env["anna"].shortcut(ids.RUN_MESSAGE_SHORTCUT, channel=SOC, message_ts=said["ts"])
    asked = fine(await env.until("anna", topmost(ids.START_VIEW, "Which one?")))
    assert [o["value"] for o in asked["blocks"][0]["element"]["options"]] == [first.id, second.id]
    await env["anna"].click(None, view_id=asked["id"], action_id="value:object", value=second.id)
    shown = fine(await env.until("anna", topmost(ids.START_VIEW, ids.START_RESPONDER)))
    assert shown["blocks"][0]["element"]["initial_option"]["value"] == second.id
    assert "*Login from a new country*" in text_of(shown)


async def test_home_shows_own_runs_approvals_and_failures(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await choose(env, "anna", card, "Isolate")
    await env.until("anna", lambda s: card_in(s, SOC, alert.id, "needs 1 approval"))
    await env["anna"].command(SOC, f"/responder run fail {alert.id}")
    await env.until("anna", lambda s: card_in(s, SOC, alert.id, "❌ *Fail* failed"))
    await env["ben"].open_home()
    home = fine(await env.until("ben", lambda s: s.home))
    assert "*Waiting for your approval* (1)" in text_of(home)
    assert f"|{alert.title}> ({alert.id})" in text_of(home)
    assert "You are ben, and see" in text_of(home)
    await env["anna"].open_home()
    mine = text_of(fine(await env.until("anna", lambda s: s.home)))
    assert "*Running for you* (1)" in mine
    assert "*Failed or expired in the last day* (1)" in mine
    await approve(env["ben"], None, view_id=home["id"], action_id=button(home, ids.APPROVE))
    await env.until("ben", lambda s: s.home if "*Waiting for your approval*" not in text_of(s.home or {}) else None)
    assert (await env.ended_run(alert)).status in ("Success", "Failure")


async def test_home_tells_unlinked_people_how_to_get_linked(env: FeatureEnvironment) -> None:
    await env["uma"].open_home()
    home = fine(await env.until("uma", lambda s: s.home))
    assert "You're not linked yet" in text_of(home)
