"""While core is slow: Slack is answered in time all the same, and nothing is shown before it is true."""

from pathlib import Path
from typing import Any

from bot.cards import ids
from bot.slack_emulator import EmulatorView
from tests.bot.door import Door
from tests.bot.running import ANNA, LEA, NINA, SOC, find_card, running_bot

CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"


def view(words: str) -> Any:
    return lambda sight: sight.view if sight.view and words in str(sight.view) else None


async def test_a_modal_opens_as_a_skeleton_and_is_filled_when_core_answers(tmp_path: Path) -> None:
    door = Door()
    async with running_bot(tmp_path, way=door.way) as scene:
        anna, nina = await scene.person(ANNA), await scene.person(NINA)
        door.shut("/by-slack/")
        assert (await anna.command(SOC, "/responder"))["ok"]
        assert (await nina.command(SOC, "/responder"))["ok"]
        await anna.until(view("One moment"))
        await nina.until(view("One moment"))
        door.open()
        opened = await anna.until(view("'object'"))
        assert opened["callback_id"] == ids.START_VIEW
        await nina.until(view("user link"))


async def test_a_submission_that_core_is_late_for_says_so_and_tells_the_end_after(tmp_path: Path) -> None:
    door = Door()
    async with running_bot(tmp_path, way=door.way) as scene:
        lea = await scene.person(LEA)
        await lea.command(SOC, "/responder template")
        form = await lea.until(view("'name'"))
        door.shut("/api/case/template")
        assert (await lea.submit(form["id"], {"name": {"value:name": "Phishing"}}))["ok"]
        await lea.until(view("Still working"))
        door.open()
        await lea.until(view("was created"))
        assert (await scene.client.case_template("Phishing")).created_by == "lea@responder-bot.local"


async def test_a_menu_that_core_is_late_for_says_so(tmp_path: Path) -> None:
    door = Door()
    async with running_bot(tmp_path, way=door.way) as scene:
        anna = await scene.person(ANNA)
        card = await scene.card(anna, await scene.post_alert())
        door.shut("/responder/alert/")
        ((group),) = await anna.options(SOC, card["ts"], action_id=ids.MENU)
        assert group["options"][0]["text"]["text"].startswith("Too much is going on")


async def test_a_click_is_acknowledged_and_carried_out_once_core_answers(tmp_path: Path) -> None:
    door = Door()
    async with running_bot(tmp_path, way=door.way) as scene:
        anna = await scene.person(ANNA)
        alert_id = await scene.post_alert()
        await scene.card(anna, alert_id)
        door.shut("/by-slack/")
        assert (await anna.command(SOC, f"/responder run {CLOSE} {alert_id}"))["ok"]
        await door.came.wait()
        assert await scene.client.actions("alert", alert_id) == []
        door.open()
        await anna.until(lambda sight: "done in" in str(find_card(sight.messages(SOC), alert_id)))


async def test_the_card_shows_a_run_before_core_has_answered_who_started_it(tmp_path: Path) -> None:
    """Core waits a while for a remote engine (`slack.md 2`: the first repaint comes before the engine answers)."""
    door = Door()
    async with running_bot(tmp_path, way=door.way) as scene:
        anna = await scene.person(ANNA)
        alert_id = await scene.post_alert()
        await scene.card(anna, alert_id)
        door.shut("POST /api/connector/engine/action", after=True)
        await anna.command(SOC, f"/responder run {CLOSE} {alert_id}")
        await door.came.wait()

        def run_line(sight: EmulatorView) -> bool:
            return f"*{CLOSE}*" in str(find_card(sight.messages(SOC), alert_id))

        await anna.until(run_line)
        assert not await anna.ephemerals(SOC)
        door.open()
        await anna.until(lambda sight: sight.ephemerals(SOC))
