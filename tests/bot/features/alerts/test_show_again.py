"""A card that the bot no longer keeps answers a click, and is shown again if core still has its alert."""

from collections import Counter
from pathlib import Path
from typing import Any

from core.common.clock import DAY_MS, now_ms
from core.common.settings_file import RetentionSection
from core.retention.pruning import Retention
from tests import stores
from tests.bot.outbox.harness import all_sent
from tests.bot.people import Person, card_of, modal
from tests.bot.running import ANNA, SOC, BotEnvironment, running_bot

LATER = 401 * DAY_MS


async def old_card(env: BotEnvironment, anna: Person, **alert: Any) -> tuple[str, dict[str, Any]]:
    """A closed alert and its card, as Slack shows it."""
    alert_id, _ = await env.new_card(anna, **alert)
    await env.client.close_alerts([alert_id])
    card = await anna.sees(card_of(alert_id, "*closed*"))
    await all_sent(env.bot)
    return alert_id, card


async def show_again(anna: Person, card: dict[str, Any]) -> None:
    await anna.chooses("Details", card)
    old = await anna.sees(modal("from long ago"))
    assert "Nothing was run" in str(old)
    assert "Show again" in str(old)
    await anna.presses("Show again", old)


def rows(env: BotEnvironment) -> int:
    return int(stores.rows(env.settings.core.database, "SELECT count(*) FROM message")[0][0])


async def test_an_old_card_is_shown_again(tmp_path: Path) -> None:
    ahead = 0
    async with running_bot(tmp_path, clock_ms=lambda: now_ms() + ahead) as env:
        anna = await env.person(ANNA)
        alert_id, card = await old_card(env, anna)
        assert rows(env) == 3  # one for each channel
        ahead = LATER
        await env.bot.retention.prune()
        assert rows(env) == 0
        assert (await anna.messages(SOC))[-1] == card
        await show_again(anna, card)
        again = await anna.until(lambda view: view.messages(SOC)[1:])
        await anna.sees(modal("gets a new card"))
        assert alert_id in again[0]["text"]
        assert (await anna.messages(SOC))[0] == card
        await anna.chooses("Details", again[0])  # its buttons work
        await anna.sees(modal("command and control"))


async def test_of_a_deleted_alert_it_says_so(tmp_path: Path) -> None:
    ahead = 0
    async with running_bot(tmp_path, clock_ms=lambda: now_ms() + ahead) as env:
        anna = await env.person(ANNA)
        alert_id, card = await old_card(env, anna)
        ahead = LATER
        core = Retention(env.core.core.database, lambda: now_ms() + ahead, RetentionSection(alert_days=90))
        assert (await core.prune())["alert"] == 1
        await env.bot.retention.prune()
        assert rows(env) == 0
        await show_again(anna, card)
        await anna.sees(modal(f"{alert_id} was deleted"))
        assert await anna.messages(SOC) == [card]


async def test_the_deletion_of_an_alert_changes_no_message(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        anna = await env.person(ANNA)
        _, card = await old_card(env, anna)
        core = Retention(env.core.core.database, lambda: now_ms() + LATER, RetentionSection(alert_days=90))
        assert await core.prune() == Counter(alert=1)
        await anna.sees(card_of(await env.post_alert(sourceRef="next", title="Next")))  # the feed was followed beyond
        await all_sent(env.bot)
        assert (await anna.messages(SOC))[0] == card
        await anna.chooses("Details", card)  # its buttons are known, but core no longer knows the alert
        await anna.sees(modal("Nothing has the id"))


async def test_who_may_not_see_the_alert_is_told_so(tmp_path: Path) -> None:
    ahead = 0
    async with running_bot(tmp_path, clock_ms=lambda: now_ms() + ahead) as env:
        anna = await env.person(ANNA)
        alert_id, card = await old_card(env, anna)
        ahead = LATER
        await env.bot.retention.prune()
        await env.core.send("PATCH", f"/api/alert/{alert_id}", {"tlp": 3})
        await show_again(anna, card)
        await anna.sees(modal("You may see up to"))
        assert rows(env) == 0
