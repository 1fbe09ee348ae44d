"""People are called what Slack calls them, also those who never met this bot; who isn't in Slack, by their login."""

from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.names import SlackNames
from core.client import CoreClient
from core.common.errors import ResponderBotError
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.people import card_of, modal, reply_to, text_of
from tests.bot.running import SOC

KAI = "Kai (night shift)"


async def test_who_asked_and_who_works_on_an_alert_are_called_what_slack_calls_them(env: FeatureEnvironment) -> None:
    env.emulator.add_user("U0KAI", name=KAI, real_name="Kai Winter")
    async with CoreClient(env.core.url, await env.core.key("analyst", "kai")) as kai:
        await env.core.core.people.link("kai", "T0LOCAL:U0KAI")
        alert, card = await env.alert_and_card("ben")
        await env.client.request("PATCH", f"/api/alert/{alert.id}", {"assignee": "kai@responder-bot.local"})
        await env["ben"].sees(card_of(alert, f"assigned to *{KAI}*"))
        run = await kai.run({"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id})
        request = await env["ben"].sees(reply_to(card, f"*{KAI}* asks · "))
        assert f"asked by {KAI}" in request["text"]
        await env["ben"].command(SOC, f"/responder list {alert.id}")
        listed = text_of(await env["ben"].sees(modal("already waiting for approval since <!date^")))
        other = await env.create_alert(sourceRef="other")
        await env["ben"].command(SOC, f"/responder run isolate {alert.id} {other.id}")
        form = await env["ben"].sees(modal("*Will be refused on 1 target*"))
        await env["ben"].submits(form)
        await env["ben"].reads("*Refused on 1 target*")
        (asked,) = await env.client.actions("alert", other.id)
        await env["ben"].command(SOC, f"/responder audit {asked.bulk}")
        audit = text_of(await env["ben"].reads("Audit of"))
        told = (listed, text_of(form), audit)
        assert all(f", asked by {KAI}; wait for the decision on {run.id}" in text for text in told)
        async with CoreClient(env.core.url, env.service_key) as bot:
            with pytest.raises(ResponderBotError, match="or an administrator may cancel this"):
                await bot.as_user("ben").cancel(run.id)
        await env["ben"].command(SOC, f"/responder audit {alert.id}")
        story = text_of(await env["ben"].reads("Audit of"))
        assert f"Only {KAI} or an administrator may cancel this." in story
        assert f"*{KAI}* asked to run Isolate on {alert.id}" in story
        assert f"*Audit of {alert.id}: HIGH {alert.title} ({alert.id})*" in story
        assert "_1_0" not in story
        assert "kai" not in text_of(request).replace(KAI, "")


async def test_whom_the_settings_name_is_called_what_slack_calls_them_also_in_a_refusal(tmp_path: Path) -> None:
    rules: dict[str, dict[str, object]] = {"Isolate": {"approve_by": ["kai", "@leads"]}, "Tell": {"run_by": ["kai"]}}
    rules["Fail"] = {"approval": 2, "approve_by": ["kai", "anna"]}
    async with feature_environment(tmp_path, rules) as env:
        env.emulator.add_user("U0KAI", name=KAI, real_name="Kai Winter")
        await env.core.key("analyst", "kai")
        await env.core.core.people.link("kai", "T0LOCAL:U0KAI")
        alert, card = await env.alert_and_card("anna")
        await env["anna"].command(SOC, f"/responder run tell {alert.id}")
        assert f"only {KAI} may run it" in text_of(await env["anna"].reads("may run it"))
        await env["anna"].command(SOC, f"/responder run fail {alert.id}")
        assert f", or let others than {KAI} and anna approve it." in text_of(await env["anna"].reads("let others"))
        await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
        await env["ben"].sees(reply_to(card, f"Can be approved by: {KAI}, @leads."))


async def test_two_people_whose_names_look_alike_are_told_apart_where_somebody_decides(env: FeatureEnvironment) -> None:
    """Anybody may call themselves what they like in Slack, so a name alone says nothing about who asks."""
    env.emulator.add_user("U0KAI", name=KAI, real_name="Kai Winter")
    env.emulator.add_user("U0KIM", name=KAI.replace("K", "\N{CYRILLIC CAPITAL LETTER KA}"), real_name="Kim Sommer")
    async with CoreClient(env.core.url, await env.core.key("analyst", "kim")) as kim:
        await env.core.key("analyst", "kai")
        await env.core.core.people.link("kai", "T0LOCAL:U0KAI")
        await env.core.core.people.link("kim", "T0LOCAL:U0KIM")
        alert, card = await env.alert_and_card("ben")
        await env.client.request("PATCH", f"/api/alert/{alert.id}", {"assignee": "kai@responder-bot.local"})
        await env["ben"].sees(card_of(alert, f"assigned to *{KAI}*"))
        await kim.run({"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id})
        request = await env["ben"].sees(reply_to(card, "asks · "))
        assert "(kim@responder-bot.local)* asks · " in text_of(request)


async def test_no_field_of_an_alert_renames_a_word_in_a_sentence_of_core(env: FeatureEnvironment) -> None:
    """Such as one of an alert that few may see, in a sentence that all read."""
    await env.alert_and_card("anna", customFields={"titles": {"string": "the secret project"}})
    assert "string" not in env.bot.names.called


async def test_a_group_of_the_settings_keeps_its_name_in_sentences() -> None:
    """It is no login, although it has an `@`."""

    async def nobody(_: str) -> str:
        return ""

    names = SlackNames(AsyncWebClient(), nobody, lambda: 0)
    await names.learn({"@leads": "", "@containment": "", "ann@corp.example": ""})
    assert names.called == {"ann@corp.example": "ann"}
