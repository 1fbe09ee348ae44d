"""Commands: finding alerts, making cases, deciding about runs, and taking alerts."""

from typing import Any

from bot.cards import ids
from tests.bot.features.environment import FeatureEnvironment, card_in, fine, text_of, topmost
from tests.bot.features.test_decisions import pick
from tests.bot.running import SOC

TEMPLATES: list[dict[str, Any]] = [
    {"name": "Malware", "tasks": [{"title": "Identify the host"}, {"title": "Contain it"}]},
    {"name": "Phishing", "tasks": [{"title": "Find the recipients"}]},
]


async def test_find_lists_alerts_by_title_tag_observable_and_id(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env.create_alert(sourceRef="2", title="Login from a new country", artifacts=[], tags=["vpn"], description="-")
    for text in ("beacon", "C2 malware", "203[.]0[.]113[.]7", alert.id):
        await env["anna"].command(SOC, f"/responder find {text}")
        found = text_of(fine(await env.told("anna", "newest first")))
        assert "*1 alert*" in found
        assert "ET MALWARE Beacon" in found
    shown = await env.until("anna", topmost(ids.NOTICE_VIEW, "newest first"))
    await env["anna"].click(None, view_id=shown["id"], action_id=ids.numbered(ids.DETAILS, alert.id))
    await env.until("anna", topmost(ids.NOTICE_VIEW, "host web-3 beacons"))
    await env["anna"].command(SOC, "/responder find nothing-like-this")
    await env.told("anna", "No alert that you may see has")
    await env["anna"].command(SOC, "/responder find")
    await env.told("anna", "Find what? Type `/responder find` and a text")


async def test_find_tells_nothing_of_what_is_withheld(env: FeatureEnvironment) -> None:
    await env.create_alert(tlp=3)
    hidden = [{"dataType": "domain", "data": "evil.example", "tlp": 3}]
    await env.create_alert(sourceRef="2", title="Query for evil.example by web-3", description="-", artifacts=hidden)
    for text in ("malware", "evil.example", "evil[.]example", "withheld"):
        await env["anna"].command(SOC, f"/responder find {text}")
        await env.told("anna", "No alert that you may see has")
    await env["ben"].command(SOC, "/responder find evil.example")
    await env.told("ben", "Query for evil")
    await env["anna"].command(SOC, "/responder find web-3")
    assert "evil" not in text_of(await env.told("anna", "*1 alert*"))


async def test_case_is_made_with_the_template_that_is_picked_on_the_card(env: FeatureEnvironment) -> None:
    for template in TEMPLATES:
        await env.client.create_case_template(template)
    alert = await env.create_alert()
    await pick(env, "anna", await env.card_of("anna", alert), "Make a case")
    asked = fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "*Malware*")))
    assert "ET MALWARE Beacon" in text_of(asked)
    assert "2 tasks: Identify the host, Contain it" in text_of(asked)
    await env["anna"].click(None, view_id=asked["id"], action_id=ids.numbered(ids.CASE_TEMPLATE, "0"))
    await env.until("anna", topmost(ids.NOTICE_VIEW, "was made from alert"))
    case = await env.client.case((await env.client.alert(alert.id)).case or "")
    assert (case.template, case.owner) == ("Malware", "anna@responder-bot.local")


async def test_case_command_takes_the_beginning_of_a_template_or_says_what_was_meant(env: FeatureEnvironment) -> None:
    for template in TEMPLATES:
        await env.client.create_case_template(template)
    alert = await env.create_alert()
    await env["anna"].command(SOC, f"/responder case {alert.id} Fishing")
    await env.told("anna", f"Did you mean `/responder case {alert.id} Phishing`?")
    await env["eve"].command(SOC, f"/responder case {alert.id}")
    await env.told("eve", "manageCase")
    await env["anna"].command(SOC, f"/responder case {alert.id} phish")
    await env.told("anna", "with the template `Phishing`")
    assert (await env.client.alert(alert.id)).status == "Imported"


async def test_case_without_any_template_is_made_at_once(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].command(SOC, f"/responder case {alert.id}")
    await env.told("anna", f"was made from alert {alert.id}")
    assert await env.until("anna", lambda s: card_in(s, SOC, alert.id, "ade into a case"))
