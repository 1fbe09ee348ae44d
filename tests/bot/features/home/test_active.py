"""What is in force, as a command and in the App Home, with Undo, Extend and Mark as ended."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.block_kit import ids
from bot.slack_emulator.person import EmulatorView
from tests.bot.features.approvals.test_decisions import button, in_thread
from tests.bot.features.environment import FeatureEnvironment, card_in, feature_environment, fine, text_of, topmost
from tests.bot.running import SOC, approve, undo

SHOWN = ids.NOTICE_VIEW


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[FeatureEnvironment]:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"}}
    async with feature_environment(tmp_path, rules) as environment:
        yield environment


async def block(env: FeatureEnvironment, alert_id: str) -> str:
    body = {"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert_id, "undoAfterMinutes": 15}
    return (await env.client.run(body)).id


async def test_what_is_in_force_is_listed_and_found_by_its_target(env: FeatureEnvironment) -> None:
    await env["anna"].command(SOC, "/responder active")
    await env.until("anna", topmost(SHOWN, "Nothing is in force, as far as you may see."))
    other = [{"dataType": "ip", "data": "198.51.100.9"}]
    alert, red = await env.create_alert(), await env.create_alert(sourceRef="red", tlp=3, artifacts=other)
    for one in (alert, red):
        await block(env, one.id)
        await env.ended_run(one)
    await env["anna"].command(SOC, "/responder active")
    shown = fine(await env.until("anna", topmost(SHOWN, "*In force: 1 measure*")))
    assert f"({alert.id})" in text_of(shown)
    assert "*Shun*" in text_of(shown)
    assert red.id not in text_of(shown)
    for action_id in (ids.UNDO, ids.EXTEND):
        assert button(shown, action_id)
    await env["anna"].command(SOC, "/responder active 203.0.113.99")
    await env.until("anna", topmost(SHOWN, "Nothing is in force on 203.0.113.99"))
    await env["anna"].command(SOC, "/responder active 203[.]0[.]113[.]7")
    await env.until("anna", topmost(SHOWN, "1 measure"))
    await env["eve"].command(SOC, "/responder active")
    assert ids.MARK_ENDED not in text_of(await env.until("eve", topmost(SHOWN, "*In force: ")))


async def test_the_home_shows_what_is_in_force_and_undo_ends_it(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env.card_of("anna", alert)
    await block(env, alert.id)
    await env.ended_run(alert)
    await env["anna"].open_home()
    home = fine(await env.until("anna", lambda s: s.home if "*In force* (1)" in text_of(s.home or {}) else None))
    await undo(env["anna"], None, view_id=home["id"], action_id=button(home, ids.UNDO))
    await env.until("anna", lambda s: s.home if ids.UNDO not in text_of(s.home or {}) else None)
    await env.until("anna", lambda s: card_in(s, SOC, alert.id, "*Tell* on ip 203[.]0[.]113[.]7 done"))
    assert await env.client.measures() == []
    await env["anna"].open_home()
    await env.until("anna", lambda s: s.home if "*In force*" not in text_of(s.home or {}) else None)


async def test_marking_as_ended_asks_for_a_reason_and_tells_the_thread_and_who_approved(tmp_path: Path) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip", "approval": 1}}
    async with feature_environment(tmp_path, rules) as env:
        alert = await env.create_alert()
        card = await env.card_of("anna", alert)
        await block(env, alert.id)
        request = await env.until("ben", in_thread(card["ts"], "asks · "))
        await approve(env["ben"], SOC, request["ts"], action_id=button(request, ids.APPROVE))
        await env.ended_run(alert)
        await env["anna"].command(SOC, "/responder active")
        assert ids.MARK_ENDED not in text_of(await env.until("anna", topmost(SHOWN, "1 measure")))
        await env["lea"].open_home()
        home = await env.until("lea", lambda s: s.home if "*In force* (1)" in text_of(s.home or {}) else None)
        assert ids.MARK_ENDED not in text_of(home)
        await env["lea"].command(SOC, "/responder active")
        shown = await env.until("lea", topmost(SHOWN, "1 measure"))
        await env["lea"].click(None, view_id=shown["id"], action_id=button(shown, ids.MARK_ENDED))
        form = fine(await env.until("lea", topmost(ids.MARK_ENDED_VIEW, "Nothing runs")))
        assert (await env["lea"].submit(form["id"], {"reason": {"value:reason": "  "}}))["errors"]
        await env["lea"].submit(form["id"], {"reason": {"value:reason": "The firewall was replaced"}})
        await env.until("lea", topmost(SHOWN, "is marked as ended"))
        assert await env.client.measures() == []
        assert len(await env.client.actions("alert", alert.id)) == 1
        told = text_of(await env.until("ben", in_thread(card["ts"], "was marked as ended by *lea*")))
        assert "nothing was run: The firewall was replaced <@U0BEN>" in told


async def test_of_two_targets_of_a_run_one_is_released_and_the_other_stays(
    env: FeatureEnvironment,
) -> None:
    both = [{"dataType": "ip", "data": f"203.0.113.{number}"} for number in (7, 8)]
    alert = await env.create_alert(artifacts=both)
    body = {"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert.id}
    action = await env.client.run({**body, "undoAfterMinutes": 15, "target": [one["data"] for one in both]})
    first, second = (f"ip 203[.]0[.]113[.]{number}" for number in (7, 8))
    card = await env.until("anna", lambda s: card_in(s, SOC, alert.id, f"on {second} is in force"))
    assert f"on {first} is in force" in text_of(card)
    await env["anna"].command(SOC, "/responder active")
    shown = fine(await env.until("anna", topmost(SHOWN, "*In force: 2 measures*")))
    assert (text_of(shown).count(f"on {first} is in force"), text_of(shown).count(f"on {second} is in force")) == (1, 1)
    await undo(env["anna"], SOC, card["ts"], action_id=button(card, ids.UNDO))

    def left(view: EmulatorView) -> dict[str, Any] | None:
        card = card_in(view, SOC, alert.id, f"on {second} is in force")
        return None if card is None or f"on {first} is in force" in text_of(card) else card

    released = await env.until("anna", left)
    (measure,) = await env.client.measures()
    assert (measure.actions, [one.data for one in measure.target or ()]) == ([action.id], ["203.0.113.8"])
    await env["anna"].click(SOC, released["ts"], action_id=button(released, ids.EXTEND))
    form = fine(await env.until("anna", topmost(ids.EXTEND_VIEW, second)))
    assert first not in text_of(form)
