"""While core is slow, Slack is answered in time, and nothing is shown before it is true."""

from pathlib import Path

from bot.block_kit import ids
from bot.block_kit.text import readable_name
from bot.slack_emulator.views import TRIGGER_LIFE_S
from tests.bot.core_proxy import CoreProxy
from tests.bot.people import card_of, ephemeral, modal
from tests.bot.running import ANNA, LEA, NINA, SOC, running_bot

EXTRACT = "ResponderBot_ExtractIndicators_1_0"


async def test_modal_opens_as_a_skeleton_and_is_filled_when_core_answers(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve, trigger_life_s=TRIGGER_LIFE_S) as env:
        anna, nina = await env.person(ANNA), await env.person(NINA)
        proxy.hold("/by-slack/")
        assert (await anna.command(SOC, "/responder"))["ok"]
        assert (await nina.command(SOC, "/responder"))["ok"]
        await anna.sees(modal("One moment"))
        await nina.sees(modal("One moment"))
        proxy.release()
        opened = await anna.sees(modal('"object"'))
        assert opened["callback_id"] == ids.START_VIEW
        await nina.sees(modal("user link"))


async def test_late_submission_says_still_working_and_shows_the_result_later(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve, trigger_life_s=TRIGGER_LIFE_S) as env:
        lea = await env.person(LEA)
        await lea.command(SOC, "/responder template")
        form = await lea.sees(modal('"name"'))
        proxy.hold("/api/case/template")
        assert (await lea.submits(form, name="Phishing"))["ok"]
        await lea.sees(modal("Still working"))
        proxy.release()
        await lea.sees(modal("was created"))
        assert (await env.client.case_template("Phishing")).created_by == "lea@responder-bot.local"


async def test_late_menu_options_say_so(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve, trigger_life_s=TRIGGER_LIFE_S) as env:
        anna = await env.person(ANNA)
        card = await anna.sees(card_of(await env.post_alert()))
        proxy.hold("/api/document")
        ((group),) = await anna.options(SOC, card["ts"], action_id=ids.MENU)
        assert group["options"][0]["text"]["text"].startswith("Too much is going on")


async def test_command_is_acknowledged_at_once_and_runs_when_core_answers(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve, trigger_life_s=TRIGGER_LIFE_S) as env:
        anna, alert_id, _ = await env.first_card()
        proxy.hold("/by-slack/")
        assert (await anna.command(SOC, f"/responder run {EXTRACT} {alert_id}"))["ok"]
        await proxy.request_held.wait()
        assert await env.client.actions("alert", alert_id) == []
        proxy.release()
        await anna.sees(card_of(alert_id, "done"))


async def test_card_shows_a_run_before_core_has_answered_the_request(tmp_path: Path) -> None:
    """The event feed updates the card, while core still waits for a remote engine to accept the run."""
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve, trigger_life_s=TRIGGER_LIFE_S) as env:
        anna, alert_id, _ = await env.first_card()
        proxy.hold("POST /api/connector/engine/action", response=True)
        await anna.command(SOC, f"/responder run {EXTRACT} {alert_id}")
        await proxy.request_held.wait()
        await anna.sees(card_of(alert_id, f"*{readable_name(EXTRACT)}*"))
        assert not await anna.ephemerals(SOC)
        proxy.release()
        await anna.sees(ephemeral())
