"""What an earlier release has left is gone on with: runs end, buttons of old cards work, and blocks stay in force."""

from pathlib import Path

import httpx
import pytest

from core.client import CoreClient
from tests.bot import upgrade
from tests.bot.people import Person, card_of, find_card, labels_of
from tests.bot.running import ALERT, LEA, SOC
from tests.bot.serving import script, user_added
from tests.bot.upgrade import CLOSE, WAIT

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
        Person(emulator.url, emulator.page_token, LEA) as lea,
        httpx.AsyncClient(base_url=url, auth=("firewall", await user_added(folder, "firewall", "reader"))) as firewall,
    ):
        asked = await upgrade.waiting_message(lea)
        renewed = await script(folder, "user", "key", "lea")
        key = (await renewed.communicate())[0].decode().strip()
        async with CoreClient(url, key) as core:
            (alert,) = await core.find_alerts("beacon")
            card = find_card(messages, alert.id)
            assert card
            assert (await firewall.get("/api/blocklist/ip.txt")).text == "198.51.100.7\n"
            (undo,) = [label for label in labels_of(card) if label.startswith("Undo")]  # it was called so in 0.2.0
            await lea.confirms(undo, card)
            await lea.sees(card_of(alert, "undone by lea"))
            assert (await firewall.get("/api/blocklist/ip.txt")).text == ""
            await lea.confirms("Approve", asked)
            runs = {run.responder_name: run for run in await core.actions("alert", alert.id)}
            for name, run in runs.items():
                while run.end_date is None:
                    run = await core.action(run.id, wait_s=20)
                assert (name, run.status) == (name, "Failure" if name == WAIT else "Success")
            assert runs.keys() == {CLOSE, WAIT}
            later = (await core.create_alert({**ALERT, "sourceRef": "eve-2"})).id
            await lea.sees(card_of(later))
            # The card from before the upgrade is updated, not posted again.
            cards = [m for m in lea.live_view.messages(SOC) if alert.id in m["text"] and not m.get("ephemeral")]
            assert [m["ts"] for m in cards] == [card["ts"]]
