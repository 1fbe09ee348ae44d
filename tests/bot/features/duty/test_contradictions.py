"""Who is on duty reads that a check contradicts what a run has left in force."""

import json
from pathlib import Path
from typing import Any

import pytest

from bot.block_kit import ids
from bot.outbox.models import is_person
from core.common.settings_file import ChannelAlerts, Route
from tests.bot.features.approvals.test_decisions import direct
from tests.bot.features.duty.test_duty import asked_directly, has_lines, on_duty, sent_to
from tests.bot.features.environment import card_in, text_of, within_limits
from tests.bot.running import SOC

ANSWER = {"success": True, "full": {"answer": "contradicted", "message": "the host is online"}}
RULES: dict[str, dict[str, Any]] = {
    "Block": {"undo": "Tell_1_0", "target": "ip", "verify": "Report_1_0", "duty": ""},
    "Report": {"config": {"answer": json.dumps(ANSWER)}, "duty": ""},
}


@pytest.mark.parametrize(
    ("ask", "line"),
    [
        ("@oncall", "🔔 Asked anna (`@oncall`) to look into that."),
        ("channel", "🔔 <@U0ANNA> <@U0BEN> <@U0LEA> Please look into that."),
        ("eve", "🔔 Nobody else among `eve` could look into that."),
    ],
)
async def test_who_is_on_duty_gets_one_message_and_the_thread_says_so(tmp_path: Path, ask: str, line: str) -> None:
    channels = (ChannelAlerts(id=SOC, alerts=Route(), unassigned="leads", unassigned_severity_at_least=4),)
    async with on_duty(tmp_path, [("0m", ask)], rules=RULES, channel=channels) as env:
        alert = await env.create_alert()
        card = await env.card_of("ben", alert)
        await env.client.run({"responderId": "Block_1_0", "objectType": "alert", "objectId": alert.id})
        assert await env.until("ben", has_lines(card, 1)) == [line]
        if ask == "@oncall":
            message = text_of(within_limits(await env.until("anna", asked_directly("the host is online"))))
            assert "You were asked as `@oncall`, by the duty `leads`." in message
            assert ids.UNDO in message
            on = "on ip 203[.]0[.]113[.]7, for HIGH ET MALWARE Beacon to known C2"
            assert f"⚠️ *Block* {on} (~1) is *not* in force" in json.loads(message)[0]  # also on a locked phone
            assert '"accessibility_label": "Undo: Block on ip 203[.]0[.]113[.]7, of ~1' in message
            assert ids.NOT_ME not in message
            assert SOC in {card.channel for card in await env.bot.outbox.cards(alert.id)}
            assert not any(is_person(card.channel) for card in await env.bot.outbox.cards(alert.id))  # it is no card
        sent = [sent_to(env, await env[name].dm(env.emulator.bot_user_id)) for name in ("anna", "ben", "lea", "eve")]
        assert sent == [int(ask == "@oncall"), 0, 0, 0]


async def test_without_a_duty_of_the_channel_there_is_no_direct_message(tmp_path: Path) -> None:
    async with on_duty(tmp_path, rules=RULES) as env:
        alert = await env.create_alert()
        card = await env.card_of("ben", alert)
        await env.client.run({"responderId": "Block_1_0", "objectType": "alert", "objectId": alert.id})
        found = "the host is online"
        await env.until("ben", lambda view: [m for m in view.thread(SOC, card["ts"])[1:] if found in text_of(m)])
        await env.client.close_alerts([alert.id])
        await env.until("ben", lambda view: card_in(view, SOC, alert.id, "*closed*"))
        assert has_lines(card, 0)(env["ben"].live_view) == []
        assert [direct(env[name].live_view) for name in ("anna", "ben", "lea")] == [[], [], []]
