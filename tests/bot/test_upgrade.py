"""What an earlier release has left is gone on with: its runs end, its cards' buttons work, and new alerts come in."""

from pathlib import Path

import pytest

from bot.block_kit import ids
from bot.slack_emulator import EmulatedUser
from core.client import CoreClient
from tests.bot import upgrade
from tests.bot.running import ALERT, LEA, SOC, approve, find_card
from tests.bot.test_serve import script
from tests.bot.upgrade import CLOSE, FIND

RELEASES = sorted((Path(__file__).parent / "releases").glob("v*"))


@pytest.mark.slow
@pytest.mark.sqlite
@pytest.mark.parametrize("release", [None, *RELEASES], ids=lambda path: path.name if path else "this")
async def test_what_a_release_has_left_goes_on(tmp_path: Path, release: Path | None) -> None:
    if release is None:
        release = tmp_path / "release"
        release.mkdir()
        await upgrade.keep(release)
    folder = tmp_path / "host"
    folder.mkdir()
    messages = upgrade.unpack(release, folder)
    async with (
        upgrade.serving(folder, messages) as (emulator, url),
        EmulatedUser(emulator.url, emulator.page_token, LEA) as lea,
    ):
        asked = await upgrade.waiting_message(lea)
        renewed = await script(folder, "user", "key", "lea")
        key = (await renewed.communicate())[0].decode().strip()
        async with CoreClient(url, key) as core:
            (alert,) = await core.find_alerts("beacon")
            assert (card := find_card(messages, alert.id))
            buttons = [e["action_id"] for b in asked["blocks"] for e in b.get("elements", []) if "action_id" in e]
            await approve(lea, SOC, asked["ts"], action_id=next(b for b in buttons if b.startswith(ids.APPROVE)))
            runs = {run.responder_name: run for run in await core.actions("alert", alert.id)}
            for name, run in runs.items():
                while run.end_date is None:
                    run = await core.action(run.id, wait_s=20)
                assert (name, run.status) == (name, "Success" if name in (CLOSE, FIND) else "Failure")
            assert len(runs) == 3
            later = (await core.create_alert({**ALERT, "sourceRef": "eve-2"})).id
            await lea.until(lambda view: find_card(view.messages(SOC), later) or {})
            # The card from before the upgrade is updated, not posted again.
            cards = [m for m in lea.live_view.messages(SOC) if alert.id in m["text"] and not m.get("ephemeral")]
            assert [m["ts"] for m in cards] == [card["ts"]]
