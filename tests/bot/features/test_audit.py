"""Who decided what, in Slack: changes of rights are told at once, and anybody reads the story of what they may see."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from bot.features.audit.views import story
from core.models import AuditRow
from tests.bot.features.environment import MANIFEST, message_with, modal_with, seen, text_of
from tests.bot.outbox.harness import until_read
from tests.bot.running import ANNA, LEA, SOC, BotEnvironment, running_bot

ADMINS = "C0ADMINS"


@pytest_asyncio.fixture
async def env(tmp_path: Path) -> AsyncIterator[BotEnvironment]:
    async with running_bot(tmp_path, manifest=MANIFEST, access_channel=ADMINS) as running:
        await until_read(running.bot.outbox.head, lambda head: head is not None)
        yield running


async def test_nobody_is_promoted_in_silence(env: BotEnvironment) -> None:
    people = env.core.core.people
    await people.set_profile("anna", "org-admin")
    told = text_of(await seen(env, LEA, message_with(ADMINS, "changed the profile of anna from analyst to org-admin")))
    assert "The command line (through " in told
    assert "Head of the audit" in told
    await env.core.send("PUT", "/api/group/containment", {"members": ["anna"]})
    await seen(env, LEA, message_with(ADMINS, "changed the group @containment"))
    lea = await env.person(LEA)
    heads = [message for message in lea.live_view.messages(ADMINS) if "Head of the audit" in text_of(message)]
    assert len({text_of(message) for message in heads}) == len(heads)


async def test_anybody_reads_who_decided_what_about_what_they_may_see(env: BotEnvironment) -> None:
    alert, hidden = await env.post_alert(), await env.post_alert(sourceRef="2", tlp=3)
    for id_ in (alert, hidden):
        await env.core.send("POST", f"/api/alert/{id_}/hold", {"reason": "evidence of 203.0.113.7"})
    anna = await env.person(ANNA)
    await anna.command(SOC, f"/responder audit alert {alert}")
    shown = text_of(await seen(env, ANNA, modal_with(f"Audit of {alert}")))
    assert f"put {alert} on hold; reason: evidence of 203[.]0[.]113[.]7" in shown
    await anna.command(SOC, f"/responder audit {hidden}")
    refused = text_of(await seen(env, ANNA, message_with(SOC, "TLP:RED")))
    assert "evidence" not in refused
    await anna.command(SOC, "/responder audit")
    await seen(env, ANNA, message_with(SOC, "Type `/responder audit` and the id"))


def test_people_are_no_indicators() -> None:
    asked = ["ben@example.org", "lea@example.org"]
    sentence = f"Core asked {' and '.join(asked)} to approve ~3; note: it wrote to ben@example.org.evil.example"
    doc = {"by": "core", "object": "~3", "to": asked}
    row = AuditRow(
        number=1, hash="", at=0, what="approval.asked", by="core", object="~3", sentence=sentence, is_right=False,
        row=doc, texts={},
    )  # fmt: skip
    shown = text_of(story("~3", [row]).payload())
    assert "asked ben and lea to approve ~3; note: it wrote to ben[@]example[.]org[.]evil[.]example" in shown
