"""Modals, shortcuts and the App Home."""

from bot.block_kit import ids
from tests.bot.features.environment import FeatureEnvironment
from tests.bot.people import app_home, ephemeral, field_of, message_in, modal, reply_to, text_of
from tests.bot.running import SOC


async def test_template_modal_creates_a_template_and_shows_a_taken_name(env: FeatureEnvironment) -> None:
    lea = env["lea"]
    await lea.command(SOC, "/responder template")
    view = await env["lea"].sees(modal("New case template"))
    await lea.submits(
        view, name="Phishing", tags="mail", tasks="Look\nBlock | it", customFields="cost | integer\nowner"
    )
    await env["lea"].sees(modal("was created, with 2 tasks and 2 custom fields: cost (integer), owner (string)."))
    made = await env.client.case_template("Phishing")
    assert [t.title for t in made.tasks] == ["Look", "Block"]
    assert made.created_by == "lea@responder-bot.local"
    await lea.close((await lea.sees(modal()))["id"])
    await lea.command(SOC, "/responder template")
    again = await env["lea"].sees(modal("New case template"))
    answer = await lea.submits(again, name="Phishing")
    assert answer["errors"] == {"name": 'The case template "Phishing" already exists'}


async def test_missing_permission_for_templates_is_told_before_the_modal_opens(env: FeatureEnvironment) -> None:
    await env["anna"].command(SOC, "/responder template")
    await env["anna"].sees(ephemeral("You can't make case templates. Ask admin or lea."))


async def test_run_modal_leads_from_object_to_responder_to_run(env: FeatureEnvironment) -> None:
    alert, _ = await env.alert_and_card("anna")
    await env["anna"].command(SOC, "/responder")
    view = await env["anna"].sees(modal("What should run?"))
    (nothing,) = await env["anna"].searches(view, "~99999")
    assert [o["text"]["text"] for o in nothing["options"]] == ["No alert that you may see contains this."]
    (found,) = await env["anna"].searches(view, "beacon")
    (option,) = found["options"]
    assert option["value"] == alert.id
    await env["anna"].chooses(option["text"]["text"], view)
    view = await env["anna"].sees(modal("ET MALWARE"))
    (group, *_) = await env["anna"].searches(view, "Shun", beside="responder:")
    await env["anna"].submits(view, object=alert.id, responder=group["options"][0]["value"])
    asked = await env["anna"].sees(modal("Blocks the host at the firewall."))
    await env["anna"].submits(asked)
    await env["anna"].sees(modal("Started", "Started *Shun*", "|Its card> and thread tell how it goes."))
    assert (await env.ended_run(alert)).responder_name == "Shun_1_0"


async def test_message_shortcut_finds_the_alert_of_a_message(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].shortcut(ids.RUN_MESSAGE_SHORTCUT, channel=SOC, message_ts=card["ts"])
    view = await env["anna"].sees(modal("ET MALWARE"))
    await env["anna"].close(view["id"])
    await env["anna"].say(SOC, f"who looks at {alert.id}?", thread_ts=card["ts"])
    said_in_thread = await env["anna"].sees(reply_to(card, "who looks"))
    await env["anna"].shortcut(ids.RUN_MESSAGE_SHORTCUT, channel=SOC, message_ts=said_in_thread["ts"])
    await env["anna"].sees(modal("ET MALWARE"))


async def test_message_shortcut_asks_which_of_several_alerts_is_meant(env: FeatureEnvironment) -> None:
    first = await env.create_alert()
    second = await env.create_alert(sourceRef="2", title="Login from a new country")
    await env["anna"].say(SOC, f"{first.id} and {second.id} look alike, ~99999 doesn't")
    said = await env["anna"].sees(message_in(SOC, "look alike"))
    await env["anna"].shortcut(ids.RUN_MESSAGE_SHORTCUT, channel=SOC, message_ts=said["ts"])
    asked = await env["anna"].sees(modal("Which one?"))
    options = field_of(asked, "object")["element"]["options"]
    assert [option["value"] for option in options] == [first.id, second.id]
    await env["anna"].chooses(options[1]["text"]["text"], asked)
    shown = await env["anna"].sees(modal("Responder"))
    assert shown["blocks"][0]["element"]["initial_option"]["value"] == second.id
    assert "*Login from a new country*" in text_of(shown)


async def test_home_tells_unlinked_people_how_to_get_linked(env: FeatureEnvironment) -> None:
    await env["uma"].open_home()
    home = await env["uma"].sees(app_home())
    assert "You're not linked yet" in text_of(home)
