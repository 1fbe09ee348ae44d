"""Whoever decides reads below the question that the alert was closed, also in what was shown before it was."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bot.block_kit.notices import CHANGED
from bot.slack_emulator import EmulatorView
from core.client import CoreClient
from core.common.clock import MINUTE_MS
from tests.bot.features.approvals.asking import asking, isolate
from tests.bot.features.bulks.bulk import alerts, reviewed, shown, start
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.outbox.harness import ManualClock
from tests.bot.people import (
    app_home,
    card_of,
    direct_message,
    direct_messages,
    filled_in,
    modal,
    on_phone,
    reply_to,
    text_of,
)
from tests.bot.running import OPEN, SOC

CLOSED = "⚠️ *Alert closed by anna, <!date^"
WHY = 'since this was asked*: \\"A scanner at 203[.]0[.]113[.]9\\"\\n'


def first_lines(shown_: Mapping[str, Any]) -> list[str]:
    return str(shown_["blocks"][0]["text"]["text"]).splitlines()[:2]


async def close(env: FeatureEnvironment, *alert_ids: str, why: str = "A scanner at 203.0.113.9") -> None:
    """Anna closes them."""
    async with CoreClient(env.core.url, env.service_key) as bot:
        await bot.as_user("anna").close_alerts(alert_ids, why)


async def test_who_decides_reads_below_the_question_that_the_alert_was_closed_since(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asking(tmp_path, clock_ms=clock) as env:
        alert = await env.create_alert(tlp=2)
        card, elsewhere = await env["ben"].sees(card_of(alert)), await env["ben"].sees(card_of(alert, channel=OPEN))
        await isolate(env, alert)
        told = await env["ben"].sees(direct_message("asks · "))
        request = await env["ben"].sees(reply_to(card, "asks · "))
        await env["ben"].presses("Approve", told)
        form = await env["ben"].sees(modal("Isolate?"))
        await close(env, alert.id)

        now = await env["ben"].sees(direct_message(CLOSED))
        in_channel = await env["ben"].sees(reply_to(card, CLOSED))
        assert (now["ts"], in_channel["ts"]) == (told["ts"], request["ts"])
        asks, closed = first_lines(now)
        assert (asks, closed.startswith(CLOSED)) == ("*Isolate on ip `203[.]0[.]113[.]7` for 1 hour?*", True)
        assert first_lines(in_channel) == [f"ben, lea: {asks}", closed]
        assert all(WHY in text_of(one) for one in (now, in_channel))
        assert "anna" not in str(env["ben"].live_view.thread(OPEN, elsewhere["ts"]))
        await env["ben"].submits(form)
        again = await env["ben"].sees(modal(CHANGED))
        assert f"{CLOSED}" in str(again["blocks"][1])
        assert WHY in text_of(again)
        (action,) = await env.client.actions("alert", alert.id)
        assert action.approval is not None
        assert action.approval.approved_by == []
        await env["ben"].close(again["id"])

        await env["ben"].command(SOC, "/responder pending")
        listed = await env["ben"].reads(CLOSED)
        assert first_lines({"blocks": listed["blocks"][1:]}) == [f"🟠 {asks.replace('`', '')} · anna", closed]
        await env["ben"].open_home()
        await env["ben"].sees(app_home(CLOSED))
        clock.ahead_ms = 31 * MINUTE_MS
        text = await env["ben"].sees(on_phone("? 29 minutes left."))
        assert text.startswith("HIGH: Isolate on ip 203")
        assert text.partition(" left. ")[2].startswith("Alert closed by anna. ET MALWARE Beacon to known C2 (")

        await env.client.mark_alert_unread(alert.id)

        def is_open_again(view: EmulatorView) -> bool:
            shown = [*direct_messages(view), *view.thread(SOC, card["ts"])]
            return not any("closed by" in text_of(one) for one in shown)

        await env["ben"].sees(is_open_again)
        await env["ben"].confirms("Approve", request)
        await env["ben"].sees(modal("it starts now"))
        await close(env, alert.id)
        await env["ben"].sees(card_of(alert, "*closed* by anna"))
        decided = await env["ben"].sees(direct_message("Approved by ben."))
        assert "closed by" not in text_of(decided)  # that was afterwards


async def test_a_later_end_is_shown_again_to_who_decides_once_its_alert_is_reopened(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        alert, card = await env.alert_and_card("anna")
        action = await isolate(env, alert, minutes=15)
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve(action.id)
            at = (await env.ended_run(alert)).undo.at or 0  # type: ignore[union-attr]  # it can be undone
            await close(env, alert.id, why="")
            await bot.as_user("anna").extend_measure(action.id, at + 45 * MINUTE_MS)
        wanted = await env["ben"].sees(reply_to(card, "*Keep until <!date"))
        assert first_lines(wanted)[0].endswith(", before this was asked*")
        assert CLOSED in first_lines(wanted)[0]
        await env["lea"].sees(on_phone("for 45 minutes longer? Alert closed"))
        await env["ben"].presses("Approve", wanted)
        form = await env["ben"].sees(modal(CLOSED))
        await env.client.mark_alert_unread(alert.id)
        await env["ben"].submits(form)
        again = await env["ben"].sees(modal(CHANGED))
        assert "closed by" not in text_of(again)
        await env["ben"].submits(again)
        await env["ben"].sees(modal("You approved more time for *Isolate*"))


async def test_a_review_says_which_of_several_are_closed(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 3)
        await start(env, "anna", "contain", alert_ids)
        message = await shown(env, "3 wait for approval")
        view = await reviewed(env, "ben", message, " on 3 targets")
        assert "closed" not in text_of(view)
        told = await env["ben"].sees(direct_message("3 wait for approval"))
        await close(env, alert_ids[1])
        now = await env["ben"].sees(direct_message('\\n⚠️ *1 of 3 is closed by now*"'))
        assert (now["ts"], "? 1 closed by now. Asked by anna: " in now["text"]) == (told["ts"], True)
        await shown(env, f"\\n⚠️ *1 of 3 is closed by now* ({alert_ids[1]} (ET MALWARE ")
        line = f"• 🟠 ip 203[.]0[.]113[.]7, for HIGH ET MALWARE Beacon to known C2 ({alert_ids[1]})"
        row = text_of(now).partition(line)[2].partition("\\n•")[0]
        assert row.startswith("\\n    ↳ ⚠️ *Alert closed by ")
        assert WHY.removesuffix("\\n") in row
        await env["ben"].submits(view)
        again = await env["ben"].sees(modal(CHANGED))
        asks = "*Contain on 3 targets?* 2 still ticked\\n*anna* asks for it\\n1 approval, answer by "
        assert asks in text_of(again).partition('\\n⚠️ *1 of 3 is closed by now*: left for you to tick"')[0]
        assert f"{line}{row}\\n•" in text_of(again)
        assert text_of(again).count(f'"🟠 HIGH ({alert_ids[1]}) · ⚠️ alert closed"') == 1  # ticked no longer
        first = await reviewed(env, "lea", message, "⚠️ *1 of 3 is closed by now*: left for you to tick")
        assert len(filled_in(first)["decide"]) == 2
        await env["ben"].open_home()
        await env["ben"].sees(app_home("1 approval, answer by ", '\\n⚠️ *1 of 3 is closed by now*"'))
        await env["lea"].confirms("Deny the ticked", first, reason="open")
        left = await shown(env, "1 waits for approval, 2 denied")
        assert ("\\n⚠️ *Alert closed by now*" in text_of(left), "1 of 1" in text_of(left)) == (True, False)
        review = text_of(await reviewed(env, "ben", left, " on 1 target"))
        assert (review.count("⚠️ *Alert closed by "), review.count("⚠️")) == (1, 1)


async def test_a_case_that_was_closed_says_so_too(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        case = await env.client.create_case({"title": "Beacons", "description": "", "tlp": 2})
        await env.client.run({"responderId": "Quarantine_1_0", "objectType": "case", "objectId": case.id})
        told = await env["ben"].sees(direct_message("asks · "))
        assert "closed" not in text_of(told)
        closed = {"status": "Resolved", "summary": "A drill"}
        await env.client.request("PATCH", f"/api/case/{case.id}", closed)
        now = await env["ben"].sees(direct_message('since this was asked*: \\"A drill\\"\\n'))
        assert (now["ts"], first_lines(now)[1].startswith("⚠️ *Case closed, <!date^")) == (told["ts"], True)
        await env.client.request("PATCH", f"/api/case/{case.id}", {"status": "Open"})
        await env["ben"].sees(lambda view: not direct_message("Case closed")(view))


async def test_who_asks_for_a_run_reads_before_that_the_alert_is_closed(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        ips = [[{"dataType": "ip", "data": f"203.0.113.{n}"}] for n in range(2)]
        (closed,), (still_open,) = [await alerts(env, 1, artifacts=ip) for ip in ips]
        who = "⚠️ Alert closed by anna, <!date^"
        await close(env, closed, why="")
        await env["ben"].command(SOC, f"/responder run isolate {closed}")
        form = await env["ben"].sees(modal("How long"))
        asks, closed_by = first_lines(form)
        assert (asks, closed_by.startswith(who)) == ("*Isolate on ip `203[.]0[.]113[.]0`?*", True)
        await env["ben"].close(form["id"])

        await env["ben"].command(SOC, f"/responder run isolate {still_open} {closed}")
        several = await env["ben"].sees(modal("*Runs on 2 targets*"))
        assert f" ({closed})\\n    ↳ {who}" in text_of(several)
        assert f" ({still_open})\\n    ↳" not in text_of(several)
        await env["ben"].close(several["id"])

        await env["ben"].command(SOC, "/responder")
        await env["ben"].submits(await env["ben"].sees(modal("What should run?")), object=closed)
        assert who in str((await env["ben"].sees(modal("Responder", who)))["blocks"][2])
