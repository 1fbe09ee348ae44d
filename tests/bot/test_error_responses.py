"""Errors are shown to the person who can do something about them, where they look."""

import re
from pathlib import Path

import pytest
import structlog

from bot.features.retries import UNKNOWN_DECISION
from bot.settings import Route
from core.settings import ResponderSection
from tests.bot.core_proxy import CoreProxy
from tests.bot.people import ephemeral, modal, reply_to
from tests.bot.running import ANNA, BEN, NINA, SOC, UNCONFIGURED, running_bot
from tests.bot.signed_requests import http_bot

EXTRACT, TITLE = "ResponderBot_ExtractIndicators_1_0", "Extract Indicators"
RUN = "POST /api/connector/engine/action"
COMMAND = {"command": "/responder", "team_id": "T0LOCAL", "user_id": ANNA, "channel_id": SOC}


async def test_mistyped_command_is_answered_in_the_acknowledgement(tmp_path: Path) -> None:
    async with http_bot(tmp_path) as (_, slack, _):
        for number, (typed, words) in enumerate(
            (
                ("lsit ~1", "Unknown command. Did you mean `/responder list ~1`?"),
                ("list", "Which one? Type `/responder list ~id`; instead of the id, a host"),
                ("run Isolate <Host>", "Which one? Type `/responder run Isolate &lt;Host&gt; ~id`; "),
                ("run ~12", "Run what? `/responder list ~12` shows what can run on ~12."),
                ("“Alert”", "Unknown command"),
                (
                    "isolate LT-1",
                    "Unknown command `isolate`. To run a responder, type `/responder run isolate LT-1`."
                    ' `/responder help` lists all commands."',
                ),
                ("rnu Isolate Host ~30", 'Host ~30`? `/responder help` lists all commands.", "blocks"'),
                ("close ~26", "*Close* is in the \\u22ef menu of an alert's card; a case is closed where"),
                ("isolate ~12 LT-1", "type `/responder run isolate ~12 LT-1`. `/responder help` lists"),
            )
        ):
            status, text = await slack.send({**COMMAND, "text": typed, "trigger_id": f"{number}"})
            assert status == 200
            assert words in text
            assert '"response_type": "ephemeral"' in text
        _, text = await slack.send({**COMMAND, "text": "list", "user_id": NINA, "trigger_id": "unlinked"})
        assert "You're not linked yet" in text
        _, text = await slack.send({**COMMAND, "text": "list", "channel_id": UNCONFIGURED, "trigger_id": "elsewhere"})
        assert "not set up" in text


async def test_internal_error_is_reported_with_the_number_in_the_log(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        async with running_bot(tmp_path) as env:
            anna = await env.person(ANNA)
            env.emulator.faults.error("views.open", "fatal_error")
            await anna.command(SOC, "/responder")
            response = await anna.sees(ephemeral("on our side"))
    number = re.search(r"number ([0-9a-f]{8})", response["text"])
    assert number is not None
    assert number[1] in [entry.get("number") for entry in logs]


async def test_expired_trigger_is_not_an_internal_error(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        anna = await env.person(ANNA)
        env.emulator.faults.error("views.open", "expired_trigger_id")
        await anna.command(SOC, "/responder")
        await anna.sees(ephemeral("please try again"))


async def test_run_is_requested_again_if_cores_answer_is_lost(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve) as env:
        anna = await env.person(ANNA)
        alert_id = await env.post_alert()
        proxy.drop_responses(RUN, times=2)
        await anna.command(SOC, f"/responder run {EXTRACT} {alert_id}")
        response = await anna.sees(ephemeral())
        assert response["text"].startswith((f"*{TITLE}* on ", f"Started *{TITLE}*"))
        assert len(await env.client.actions("alert", alert_id)) == 1


@pytest.mark.slow
async def test_run_without_any_answer_is_reported_as_maybe_started(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve) as env:
        anna = await env.person(ANNA)
        alert_id = await env.post_alert()
        proxy.drop_responses(RUN, times=100)
        await anna.command(SOC, f"/responder run {EXTRACT} {alert_id}")
        response = await anna.sees(ephemeral())
        assert f"{TITLE} may have started on {alert_id}" in response["text"]
        assert f"/responder actions {alert_id}" in response["text"]
        assert len(await env.client.actions("alert", alert_id)) == 1


async def test_an_approval_without_an_answer_does_not_say_that_nothing_was_run(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve, responder={EXTRACT: ResponderSection(approval=1)}) as env:
        anna, ben = await env.person(ANNA), await env.person(BEN)
        alert_id, card = await env.new_card(anna)
        await anna.command(SOC, f"/responder run {EXTRACT} {alert_id}")
        approval = await ben.sees(reply_to(card, "Approve"))
        proxy.drop_responses("/approve", times=100)
        await ben.confirms("Approve", approval)
        await ben.sees(modal(UNKNOWN_DECISION))
        assert (await env.client.actions("alert", alert_id))[0].approval.approved_by == ["ben@responder-bot.local"]  # type: ignore[union-attr]  # it has one


@pytest.mark.parametrize("name", ["sources", "tags", "types"])
def test_empty_list_in_a_route_matches_nothing(name: str) -> None:
    alert = {"severity": 4, "source": "suricata", "type": "ids", "tags": ["c2"]}
    assert Route().matches(**alert)  # type: ignore[arg-type]  # one dictionary of mixed values
    assert not Route.model_validate({name: []}).matches(**alert)  # type: ignore[arg-type]  # as above
