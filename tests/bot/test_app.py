"""The bot as a whole, over both transports."""

from pathlib import Path
from typing import Literal

import pytest

from tests.bot.running import ANNA, NINA, SOC, STRANGE, running_bot


@pytest.mark.parametrize("transport", ["socket", "http"])
async def test_a_new_alert_becomes_a_card_and_a_command_is_answered(
    tmp_path: Path, transport: Literal["socket", "http"]
) -> None:
    async with running_bot(tmp_path, transport=transport) as scene:
        anna = await scene.person(ANNA)
        alert_id = await scene.post_alert()
        card = await scene.card(anna, alert_id)
        assert "ET MALWARE beacon" in card["text"]
        await anna.command(SOC, f"/responder list {alert_id}")
        await anna.until(lambda sight: [m for m in sight.ephemerals(SOC) if "ResponderBot_" in str(m)])


async def test_somebody_who_is_not_linked_is_told(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as scene:
        nina = await scene.person(NINA)
        await nina.command(SOC, "/responder list ~1")
        await nina.until(lambda sight: [m for m in sight.ephemerals(SOC) if "user link" in m["text"]])


async def test_a_channel_that_is_not_in_the_settings_is_told_so(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as scene:
        anna = await scene.person(ANNA)
        await anna.command(STRANGE, "/responder list ~1")
        await anna.until(lambda sight: [m for m in sight.ephemerals(STRANGE) if "not set up" in m["text"]])
