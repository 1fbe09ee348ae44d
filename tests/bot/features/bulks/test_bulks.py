"""A responder on several targets: one question, one message that tells how far it is, and what failed again."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.app import running
from bot.block_kit import ids
from bot.block_kit.notices import CHANGED
from bot.block_kit.text import DAY_AND_TIME, slack_date
from bot.features.bulks.views import messages
from bot.features.runs.views import questions
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.slack_emulator import EmulatorView
from core.client import CoreClient
from core.common.clock import now_ms
from core.models import BulkCounts, BulkInput, RunTarget
from tests import stores
from tests.bot.features.approvals.asking import end_by_itself
from tests.bot.features.bulks.bulk import alerts, asked, bulk_messages, posted_to, reviewed, shown, start
from tests.bot.features.environment import feature_environment
from tests.bot.outbox.harness import all_sent
from tests.bot.people import (
    app_home,
    card_of,
    direct_message,
    field_of,
    filled_in,
    labels_of,
    message_in,
    modal,
    on_phone,
    reply_to,
    text_of,
    updated,
    within_limits,
)
from tests.bot.running import SOC, UNLIMITED

RULES: Mapping[str, Mapping[str, Any]] = {"Tell": {"only_on": {"tags": ["c2"]}}}


async def test_a_run_on_ten_alerts_posts_one_message_that_is_true_in_the_end(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert_ids = await alerts(env, 8)
        (untagged,) = await alerts(env, 1, tags=["other"])
        (secret,) = await alerts(env, 1, tlp=3, title="Nobody here reads this")
        everything = [*alert_ids, untagged, secret]
        question = await asked(env, "anna", "tell", [*everything, "~999999"])
        text = text_of(question)
        on = f"*Tell* on *8 targets*; *1 will be refused*\\nLeft out: {secret}, ~999999, where you see nothing."
        assert text.count(secret) == text.count(on) == 1
        assert "*Runs on 8 targets*" in text
        assert f"*Will be refused on 1 target*\\n• 🟠 HIGH ET MALWARE Beacon to known C2 ({untagged}): " in text
        assert all(one in text for one in alert_ids)
        assert "Nobody here" not in text
        for _ in range(2):  # a double click
            await env["anna"].presses("Tell (8)", question)
        told = text_of(await env["anna"].sees(modal("Started *Tell* on ", "*Refused on 1 target*", without=" more")))
        assert f"• 🟠 HIGH ET MALWARE Beacon to known C2 ({untagged}): " in told
        assert f"Left out: {secret}, ~999999, where you see nothing." in told
        message = await shown(env, "8 of 9 succeeded, 1 refused")
        assert secret not in text_of(message)
        for alert_id in alert_ids:
            (action,) = await env.client.actions("alert", alert_id)
            assert action.status == "Success"
        for alert_id in (untagged, secret):
            assert await env.client.actions("alert", alert_id) == []
        for alert_id in alert_ids:  # each card tells of its run
            await env["anna"].sees(card_of(alert_id, "*Tell* done"))
        await env["anna"].sees(reply_to(message))
        posts = posted_to(env, SOC)
        (end,) = [body for body in posts if body.get("thread_ts")]
        assert end["thread_ts"] == message["ts"]
        assert end["text"] == "*Tell* on 9 targets: 8 of 9 succeeded, 1 refused · asked by anna."
        assert len(posts) == 10 + 2
        await env["anna"].presses("Show each", message)
        each = text_of(await env["anna"].sees(modal("succeeded")))
        assert f"• 🟠 HIGH ET MALWARE Beacon to known C2 ({untagged}) · refused <!date^" in each
        assert each.index(f"({untagged}) ") < each.index(f"({alert_ids[0]}) ")
        assert secret not in each


async def test_what_failed_runs_again_once_as_a_bulk_of_its_own(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert_ids = await alerts(env, 3)
        await start(env, "anna", "fail", alert_ids)
        message = await shown(env, "0 of 3 succeeded, 3 failed")
        await env["ben"].presses("Run again", message)
        await env["ben"].reads("Only anna or an administrator may ask for it again. Nothing was asked.")
        await env["eve"].presses("Run again", message)
        await env["eve"].reads("You can't run responders or decide on runs")
        form = await env["anna"].confirms("Run again", message)
        assert (form["title"]["text"], form["submit"]["text"]) == ("Fail (3)", "Fail (3)")
        assert all(f" ({one})" in text_of(form) for one in alert_ids)
        assert "Each is checked by itself. Starts at once, without approval; *Stop*" in text_of(form)
        await env["anna"].reads("Started *Fail* on ")
        await env["anna"].sees(lambda view: len(bulk_messages(view, "0 of 3 succeeded, 3 failed")) == 2)
        earlier = await shown(env, "Asked for again as ~")
        assert earlier["ts"] == message["ts"]
        assert ids.BULK_RETRY not in text_of(earlier)
        for alert_id in alert_ids:
            assert len(await env.client.actions("alert", alert_id)) == 2
        assert len(bulk_messages(env["anna"].live_view)) == 2
        # Each bulk has one line wherever runs are listed.
        await env["anna"].command(SOC, "/responder failed")
        listed = await env["anna"].sees(modal("*Failed or expired in the last day* (2)"))
        assert text_of(listed).count("❌ *Fail* on 3 targets: 0 of 3 succeeded, 3 failed\\n🟠 HIGH ") == 2
        assert text_of(listed).count("\\n>") == 2  # why
        assert labels_of(listed).count("Run again") == 1  # of what was not asked for again
        await env["anna"].open_home()
        home = await env["anna"].sees(app_home())
        assert "*Failed or expired in the last day* (2)" in text_of(home)
        await env["anna"].presses("Show each", home, beside="*Fail* on 3 targets")
        each = await env["anna"].sees(modal("Fail (3)"))
        assert all(one in text_of(each) for one in alert_ids)
        await env["anna"].presses("Run again", each)
        await env["anna"].sees(modal("*Fail* on *3 targets*", "Each is checked"))


async def test_what_a_rate_refused_is_retried_once_it_is_free_and_not_before(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Report": {"rate": ["2/1h"]}}) as env:
        alert_ids = await alerts(env, 3)
        question = await asked(env, "anna", "report", alert_ids)
        assert "*Report* on *2 of 3 targets*; *1 will be refused*" in text_of(question)
        assert "*Runs on 2 targets*" in text_of(question)
        runs_on, _, beyond = text_of(question).partition("*More than its limit of 2 runs in 1 hour: refused on*")
        assert [one for one in alert_ids if f"({one})" in beyond] == alert_ids[2:]
        assert all(f"({one})" in runs_on for one in alert_ids[:2])
        await env["anna"].presses("Report (2)", question)
        told = text_of(await env["anna"].sees(modal("Started *Report* on ", "*Refused on 1 target*")))
        assert f"({alert_ids[2]})" in told.partition("*Refused on 1 target*")[2]
        message = await shown(env, "2 of 3 succeeded, 1 refused")
        assert "*Run again* works from <!date^" in text_of(message)
        await env["anna"].presses("Show each", message)
        each = text_of(await env["anna"].sees(modal("refused <!date^")))
        for text in (told, each):
            assert "Report can't run: " in text
        once = questions.reason_shown("It can't run; free again at 2026-11-28 15:31 UTC; ask again then.")
        assert once == f"It can't run; free again at {slack_date(1795879860000, DAY_AND_TIME)}; ask again then."
        assert " for what a limit refused." in text_of(message)
        await env["anna"].presses("Run again", message)
        refused = await env["anna"].sees(modal("*Report* on *1 target*", "the limit of 2 runs in 1 hour is reached"))
        assert refused.get("submit") is None
        await env["anna"].close(refused["id"])
        # As if an hour had passed.
        stores.rows(env.folder / "core.db", "UPDATE action SET dispatched_at = dispatched_at - 3600000")
        await env["anna"].confirms("Run again", message)
        await env["anna"].reads("Started *Report* on ")
        await shown(env, "1 of 1 succeeded")
        assert [len(await env.client.actions("alert", one)) for one in alert_ids] == [1, 1, 1]


async def test_after_a_week_a_message_of_a_bulk_gets_new_buttons_once_one_is_pressed(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        await start(env, "anna", "fail", await alerts(env, 2))
        told = await env["anna"].sees(direct_message("Failed: Fail on ~"))
        assert told["text"].count(" (ET MALWARE Beacon to known C2)") == 2
        assert told["text"].endswith(" · up to HIGH · The firewall said no.")
        for message in (await shown(env, "0 of 2 succeeded, 2 failed"), told):
            stores.rows(env.folder / "core.db", "UPDATE button_set SET expires_at = 1 WHERE channel <> ''")
            await env["anna"].presses("Show each", message)
            await env["anna"].reads("This button is too old")
            old = message["blocks"][-1]["elements"][-1]["value"]
            await env["anna"].sees(updated(message, without=old))
            await env["anna"].presses("Show each", message)
            each = await env["anna"].sees(modal("The firewall said no."))
            await env["anna"].close(each["id"])


async def test_the_message_goes_on_after_the_bot_was_down_in_the_middle(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert_ids = await alerts(env, 3)
        await start(env, "anna", "isolate", alert_ids)
        message = await shown(env, "3 wait for approval")
        assert ids.BULK_RETRY not in text_of(message)
        await env.bot.close()
        for alert_id in alert_ids:
            (action,) = await env.client.actions("alert", alert_id)
            await env.client.approve(action.id)
            while action.end_date is None:
                action = await env.client.action(action.id, wait_s=10)
        async with (
            CoreClient(env.core.url, env.service_key) as core,
            running(env.settings, core, clock_ms=now_ms, rate_limiter=RateLimiter(**UNLIMITED)),
        ):
            ended = await shown(env, "3 of 3 succeeded")
        assert ended["ts"] == message["ts"]
        assert len(bulk_messages(env["anna"].live_view)) == 1


async def test_a_bulk_that_the_bot_learns_of_with_its_alerts_is_asked_in_their_channel(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        await env.bot.close()
        targets = [RunTarget(object_type="alert", object_id=one) for one in await alerts(env, 2)]
        await env.client.run_bulk(BulkInput(responder_id="Isolate_1_0", targets=targets))
        async with (
            CoreClient(env.core.url, env.service_key) as core,
            running(env.settings, core, clock_ms=now_ms, rate_limiter=RateLimiter(**UNLIMITED)),
        ):
            await shown(env, "2 wait for approval")


async def test_what_cannot_run_on_several_says_why(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert_ids = await alerts(env, 2)
        given = " ".join(alert_ids)
        for name, command, answer in (
            ("eve", f"tell {given}", "You can't run responders or decide on runs"),
            ("anna", f"nosuch {given}", "There is no responder"),
            ("anna", f"vendor ban {given}", "Which list"),
            ("anna", "tell ~777771 ~777772", "You may see none of these 2 targets"),
            ("anna", "tell " + " ".join(f"~{n}" for n in range(1, 102)), "At most 100 targets at once, not 101"),
        ):
            await env[name].command(SOC, f"/responder run {command}")
            await env[name].reads(answer)
            assert [await env.client.actions("alert", one) for one in alert_ids] == [[], []]
            assert bulk_messages(env[name].live_view) == []


async def test_one_decision_approves_all_that_the_approver_has_read(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert_ids = await alerts(env, 12)
        cards = [await env["anna"].sees(card_of(one)) for one in alert_ids]
        await start(env, "anna", 'vendor ban reason="C2 <seen>" list=inbound', alert_ids)
        message = await shown(env, "12 wait for approval")
        assert "12 wait for approval" in text_of(message)
        assert "Nobody reaches it" not in text_of(message)  # inputs and policy are for those who may see all of it
        own = await reviewed(env, "anna", message, "You asked for it, so somebody else decides.")
        assert own["submit"] is None
        await env["eve"].presses("Review", message)
        reading = await env["eve"].reads("You have no right to decide on runs; an administrator can give it.")
        assert all(f" ({one})" in text_of(reading) for one in alert_ids)
        assert (reading["submit"], ids.BULK_DENY in text_of(reading)) == (None, False)

        # Everybody who decides is told once: in the channel, in one direct message, and with one entry in Home.
        direct = await env["lea"].dm(env.emulator.bot_user_id)
        await env["lea"].sees(message_in(direct, "12 wait for approval"))
        assert len(posted_to(env, direct)) == 1
        await env["ben"].open_home()
        home = await env["ben"].sees(app_home("on 12 targets"))
        assert text_of(home).count("*Ban an address on 12 targets?* · anna") == 1
        await env["ben"].command(SOC, "/responder pending")
        await env["ben"].reads("*Ban an address on 12 targets?* · anna")
        await env["anna"].command(SOC, "/responder pending")
        pending = await env["anna"].sees(modal("*Waiting for others* (1)"))
        assert "Show each" not in text_of(pending)
        await env["anna"].presses("Withdraw all", pending)
        await env["anna"].sees(modal("If you withdraw it, it will not run"))

        view = await reviewed(
            env, "ben", home, "*Ban an address on 12 targets?* 12 ticked for you\\n*anna* asks for it\\n1 approval"
        )
        assert (view["title"]["text"], view["submit"]["text"]) == ("Ban an address?", "Ban an address (ticked)")
        text = text_of(view)
        for words in (
            "Reason: C2 &lt;seen&gt;",
            "Which list: inbound",
            "Nobody reaches it any more.",
            "1 approval, answer by",
        ):
            assert words in text
        assert all(f" ({one})" in text for one in alert_ids)
        assert text.count("• 🟠 ") == len(alert_ids)
        await env["ben"].submits(view)
        await env["ben"].sees(modal("You approved 12 runs: Ban an address on "))
        await env["ben"].sees(app_home(without="on 12 targets?"))
        ended = await shown(env, "12 of 12 succeeded")
        assert ended["ts"] == message["ts"]
        assert ids.BULK_REVIEW not in text_of(ended)
        for alert_id, card in zip(alert_ids, cards, strict=True):
            (action,) = await env.client.actions("alert", alert_id)
            assert action.approval is not None
            assert [one.partition("@")[0] for one in action.approval.approved_by] == ["ben"]
            assert '"reason":"C2 <seen>"' in (action.parameters or "").replace(" ", "").replace("C2<", "C2 <")
            assert not env["anna"].live_view.thread(SOC, card["ts"])[1:]
        await env["anna"].sees(reply_to(ended, number=2))
        assert len(posted_to(env, SOC)) == 12 + 3  # the cards, the bulk, and in its thread the question and the end
        assert len(posted_to(env, direct)) == 1


async def test_who_asked_for_a_bulk_withdraws_all_that_waits_of_it_while_somebody_reads_it(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert_ids = await alerts(env, 3)
        await start(env, "anna", "contain", alert_ids)
        message = await shown(env, "3 wait for approval")
        read = await reviewed(env, "ben", message, " on 3 targets")
        own = await reviewed(env, "anna", message, "Withdraw all 3")
        form = await env["anna"].confirms("Withdraw all 3", own)
        assert form["title"]["text"] == "Withdraw Contain?"
        assert all(f" ({one})" in text_of(form) for one in alert_ids)
        await env["anna"].reads(f"Withdrawn: *Contain* on {alert_ids[0]} (")
        await shown(env, "nothing was run, 3 withdrawn")
        await env["ben"].submits(read)
        await env["ben"].reads(f"Withdrawn by anna: {alert_ids[0]} (")
        assert [(await env.client.actions("alert", one))[0].outcome for one in alert_ids] == ["cancelled"] * 3


async def test_what_has_changed_of_a_bulk_since_it_was_read_is_named_first(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"target": "ip"}}) as env:
        ips = [[{"dataType": "ip", "data": f"203.0.113.{n}"}] for n in range(4)]
        gone, closed, *_ = alert_ids = [(await alerts(env, 1, artifacts=ip))[0] for ip in ips]
        await start(env, "anna", "isolate", alert_ids)
        message = await shown(env, "4 wait for approval")
        read = await reviewed(env, "ben", message, " on 4 targets")
        *_, last = filled_in(read)["decide"]
        await env["ben"].fills_in(read, decide=[one for one in filled_in(read)["decide"] if one != last])
        (run,) = await env.client.actions("alert", gone)
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("lea").deny(run.id, "on a call")
            await bot.as_user("lea").request("PATCH", f"/api/alert/{closed}", {"status": "Ignored"})
        await shown(env, "3 wait for approval, 1 denied")
        await env["ben"].submits(read)
        again = await env["ben"].sees(modal(CHANGED))
        said = again["blocks"][0]["text"]["text"].splitlines()
        assert said[:3] == [
            f"⚠️ *{CHANGED}*",
            '>🚫 Denied by lea: ip 203[.]0[.]113[.]0 · "on a call"',
            f">• 🟠 ip `203[.]0[.]113[.]1`, for HIGH ET MALWARE Beacon to known C2 ({closed})",
        ]
        assert (len(said), said[3].partition(" closed by lea, ")[0]) == (4, ">    ↳ ⚠️ *Alert")
        assert "*Isolate on 3 targets?* 1 still ticked" in text_of(again)
        assert text_of(again).count(CHANGED) == 1
        ticked = [one.partition(" ·")[0] for one in filled_in(again)["decide"]]
        assert ticked == ["ip 203[.]0[.]113[.]2"]  # without what was denied, closed or unticked
        # A client may keep the ticks of the form before only for a field of the same id.
        assert field_of(again, "decide")["block_id"] != field_of(read, "decide")["block_id"]
        await env["ben"].submits(again, decide=filled_in(again)["decide"])
        await env["ben"].reads("You approved 1 run: Isolate on")
        for waits in (closed, alert_ids[3]):
            assert (await env.client.actions("alert", waits))[0].status == "Waiting"


async def test_what_was_denied_is_told_and_what_one_may_not_see_is_not_decided(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 3)
        await start(env, "anna", "contain", alert_ids)
        message = await shown(env, "3 wait for approval")
        late = await reviewed(env, "lea", message, " on 3 targets")
        view = await reviewed(env, "ben", message, " on 3 targets")
        assert view["title"]["text"] == "Contain?"
        assert "Decide only on the ticked; the rest goes on waiting" in text_of(view)
        form = await env["ben"].confirms("Deny the ticked", view, reason="Wrong <hosts>")
        assert all(f" ({one})" in text_of(form) for one in alert_ids)
        assert (form["title"]["text"], form["submit"]["text"]) == ("Deny Contain?", "Deny 3 runs")
        question = '"*Contain on 3 targets*\\n*anna* asks for it\\nIf you deny it, it will not run: nothing changes'
        assert question in text_of(form)
        await env["ben"].reads("You denied 3 runs: Contain on ")
        for alert_id in alert_ids:
            assert "Wrong <hosts>" in ((await env.client.actions("alert", alert_id))[0].report or "")
        told = await env["anna"].sees(on_phone("Denied by ben, not run: Contain on "))
        assert told.endswith(' · up to HIGH · "Wrong &lt;hosts&gt;".')
        dm = await env["anna"].dm(env.emulator.bot_user_id)
        (end,) = [m for m in await env["anna"].messages(dm) if "Denied by ben, not run: " in text_of(m)]
        assert told.replace('"', '\\"') in text_of(within_limits(end))
        denied = await shown(env, "nothing was run, 3 denied")
        assert "🚫 Denied by ben: " in text_of(denied)
        await env["anna"].presses("Show each", denied)
        each = await env["anna"].sees(modal("· denied by ben: Wrong &lt;hosts&gt;"))
        for asks in (each, denied, end):
            await env["anna"].presses("Ask again", asks)
            form = await env["anna"].sees(modal("*Contain* on *3 targets*", "🚫 *Denied before by ben, <!date^"))
            assert text_of(form).count("Wrong &lt;hosts&gt;") == 3  # below each
            await env["anna"].close(form["id"])
        await env["ben"].presses("Ask again", denied)
        await env["ben"].reads("Only anna or an administrator may ask for it again. Nothing was asked.")
        await env["lea"].submits(late)
        over = text_of(await env["lea"].reads("Nothing of it waits any more."))
        assert CHANGED in over
        assert '"Changed: read again"' in over  # where they see it, however far they have scrolled
        assert f"Denied by ben: {alert_ids[0]} (" in over
        assert " on 0 targets" not in over
        await env["lea"].presses("Ask again", denied)
        await env["lea"].sees(modal("*Contain* on *3 targets*"))  # an administrator

        (red,) = await alerts(env, 1, tlp=3, title="For few eyes", severity=4)
        form = await asked(env, "ben", "contain", [alert_ids[0], red])
        only = f"anna and lea, on {red} (For few eyes) only lea"
        assert f"Asks {only}; one of them approves each." in text_of(form)
        await env["ben"].submits(form)
        await env["ben"].reads(f"{only.replace(',', ' are asked,')}; 1 approval, answer by")
        message = await shown(env, "2 wait for approval")
        push = await env["anna"].sees(on_phone("HIGH: Contain on 1 target (1 more that you may not see, CRITICAL)?"))
        assert red not in push
        await env["anna"].sees(direct_message("⏳ *1 target (1 more that you may not see, CRITICAL) · "))
        view = await reviewed(env, "anna", message, "1 target waits that you may not see; lea decides.")
        assert red not in text_of(view)
        assert "For few eyes" not in text_of(view)
        view = await reviewed(env, "lea", message, " on 2 targets")
        assert "For few eyes" in text_of(view)
        await env.core.core.people.set_clearance("eve", 1)
        nothing = await reviewed(env, "eve", message, "2 targets wait that you may not see; anna or lea decides.")
        assert "*Contain on 2 targets*\\n*ben* asks for it\\n2 targets wait" in text_of(nothing)
        await env["eve"].presses("Show each", message)
        each = await env["eve"].sees(modal("Contain (2)", "You may see none of its targets."))
        assert "that are gone" not in text_of(each)
        # Its level may rise after it was read: then core leaves it.
        await env.client.request("PATCH", f"/api/alert/{alert_ids[0]}", {"tlp": 3})
        await env.core.core.people.set_clearance("lea", 2)
        await env["lea"].submits(view)
        await env["lea"].reads("You may see up to TLP:AMBER. Ben can open this. Nothing was done.")
        for alert_id in (alert_ids[0], red):
            assert (await env.client.actions("alert", alert_id))[0].status == "Waiting"


@pytest.mark.parametrize("left", ["🚫 1 denied", "➖ 1 withdrawn"])
async def test_one_press_decides_on_what_was_shown_and_the_rest_goes_on_waiting(tmp_path: Path, left: str) -> None:
    async with feature_environment(tmp_path) as env:
        (seen,), (red,) = await alerts(env, 1), await alerts(env, 1, tlp=3, title="For few eyes")
        await start(env, "ben", "contain", [seen, red])
        message = await shown(env, "2 wait for approval")
        view = await reviewed(env, "anna", message, " on 1 target")
        assert view["title"]["text"] == "Contain?"
        await env["anna"].submits(view)
        done = text_of(await env["anna"].reads("You approved 1 run: Contain on "))
        assert "It starts now." in done
        assert ": Still waiting." in done
        assert "For few eyes" not in done
        assert "⏳ *1 target · HIGH*. *Review* names it to whoever may see it." in text_of(
            await shown(env, "1 waits for approval, 1 of 2 succeeded")
        )
        assert (await env.client.actions("alert", red))[0].status == "Waiting"
        bulk_id = (await env.client.actions("alert", red))[0].bulk
        await env["anna"].command(SOC, f"/responder status {bulk_id}")
        status = await env["anna"].sees(modal("*Contain* on 2 targets: 1 waits for approval, 1 of 2 succeeded"))
        assert labels_of(status) == ["Review", "Show each"]
        own = await reviewed(env, "anna", message, "1 target waits that you may not see; lea decides.")
        assert "decides.\\n✅ Approved by anna" in text_of(own)
        await env["anna"].close(own["id"])
        await env["anna"].presses("Withdraw all", message)
        await env["anna"].reads("1 target waits that you may not see; lea decides.")
        if "denied" in left:
            view = await reviewed(env, "lea", message, " on 1 target")
            await env["lea"].confirms("Deny", view)
            await env["lea"].reads("You denied 1 run: Contain on ")
        else:
            await env["ben"].confirms("Withdraw all", message)
        await env["ben"].sees(message_in(SOC, f"1 of 2 succeeded, {left[2:]}", f"{left}: details withheld."))


async def test_one_of_a_bulk_is_denied_and_the_others_approved_in_review(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"target": "ip"}}) as env:
        ips = [{"dataType": "ip", "data": f"203.0.113.{n}"} for n in range(12)]
        ips[11]["message"] = "The healthy <backup> of everything that anybody has, which nobody may touch"
        said = "The healthy &lt;backup&gt; of everything that anybody has, which nobody may touch"
        *others, backup = [(await alerts(env, 1, artifacts=[ip]))[0] for ip in ips]
        question = await asked(env, "anna", "isolate", [*others, backup])
        in_form = (
            "*Isolate* on *12 targets*",
            "Each is checked by itself.",
            "*Runs on 12 targets*",
            f"({backup})",
            '"Note"',
        )  # nobody asks without having seen each
        where = [text_of(question).index(words) for words in in_form]
        assert where == sorted(where)
        await env["anna"].submits(question)
        message = await shown(env, "12 wait for approval")
        review = await reviewed(env, "ben", message, " on 12 targets")
        fields = filled_in(review)
        assert [*map(len, fields.values())] == [10, 2]  # all are ticked
        healthy = "ip 203[.]0[.]113[.]11 · ET MALWARE Beacon to known C2"
        boxes = [one for block in review["blocks"] if block["type"] == "input" for one in block["element"]["options"]]
        ticks = {one["text"]["text"]: one["description"]["text"] for one in boxes}
        assert ticks[healthy].startswith("🟠 HIGH · The healthy &lt;backup&gt; of everything")
        title = "ET MALWARE Beacon to known C2"
        assert {*ticks.values()} == {ticks[healthy], *(f"🟠 HIGH · {title} ({one})" for one in others)}
        # All targets come first, each once, with what decides: what an option has no room for is in a row.
        order = (
            "*Isolate on 12 targets?* 12 ticked for you\\n*anna* asks for it\\n1 approval, answer by ",
            "Each starts as soon as you approve it. No button ends it earlier.",
            "*Decide only on the ticked",
            '"1 to 10 of 12"',
            '"ip 203[.]0[.]113[.]0"',
            '"Deny the ticked"',
            f"*More about these targets*\\n• 🟠 ip `203[.]0[.]113[.]11` · {said}",
        )
        where = [text_of(review).index(words) for words in order]
        assert where == sorted(where)
        assert text_of(review).count("• ") == 1
        assert (text_of(review).count("Decide only"), '"11 to 12 of 12"' in text_of(review)) == (1, True)
        assert (review["title"]["text"], review["submit"]["text"]) == ("Isolate?", "Isolate (ticked)")
        nothing = await env["ben"].submits(review, decide=[], decide10=[])
        # In sight, wherever somebody has scrolled to.
        both = [field_of(review, name)["block_id"] for name in ("decide", "decide10")]
        assert nothing["errors"] == dict.fromkeys(both, "Tick at least one.")
        await env["ben"].presses("Deny the ticked", review)
        review = await env["ben"].sees(
            modal("Isolate?", "⚠️ *Tick at least one.* Nothing was denied.", " on 12 targets")
        )
        assert CHANGED not in text_of(review)
        await env["ben"].fills_in(review, decide=[], decide10=[healthy])
        form = await env["ben"].confirms("Deny the ticked", review, reason="Healthy backup")
        assert "*Isolate on 1 target*\\n*anna* asks for it\\n" in text_of(form)
        assert "If you deny it, it will not run: nothing changes there. 11 other targets go on waiting." in text_of(
            form
        )
        assert others[0] not in text_of(form)
        message = await shown(env, "11 wait for approval, 1 denied")

        review = await reviewed(env, "ben", message, " on 11 targets")
        assert filled_in(review)["decide10"] == ["ip 203[.]0[.]113[.]10"]
        await env["ben"].submits(review, decide10=[])
        done = text_of(await env["ben"].reads("You approved 10 runs: Isolate on "))
        assert all(f" 203[.]0[.]113[.]{n}" in done for n in range(10))
        left = "ip 203[.]0[.]113[.]10, for HIGH ET MALWARE Beacon to known C2"
        assert f"• 🟠 {left} ({others[10]}): Still waiting." in done
        await shown(env, "1 waits for approval, 10 of 12 succeeded, 1 denied")


async def test_the_form_counts_what_a_limit_that_is_used_in_part_leaves(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Shun": {"target": "ip", "rate": ["2/1h"]}}) as env:
        used, *others = await alerts(env, 3)
        await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": used})
        question = await asked(env, "anna", "shun", others)
        assert "*Runs on 1 target*" in text_of(question)
        await env["anna"].presses("Shun (1)", question)
        await env["anna"].sees(modal("Started *Shun* on ip ", "*Refused on 1 target*"))


@pytest.mark.parametrize(
    ("most", "limited", "ran"),
    [
        (1, "*More than its limit of 1 run in 1 hour: refused on what you choose below of*\\n• 🟠 HIGH ", []),
        (2, "More than its limit of 2 runs in 1 hour: of what you choose at most 1 can run.", ["203.0.113.20"]),
    ],
)
async def test_a_limit_refuses_first_what_is_chosen_of_an_alert_as_the_form_says(
    tmp_path: Path, most: int, limited: str, ran: list[str]
) -> None:
    async with feature_environment(tmp_path, {"Shun": {"target": "ip", "rate": [f"{most}/1h"]}}) as env:
        two = [{"dataType": "ip", "data": f"203.0.113.2{n}"} for n in range(2)]
        first = await env.create_alert(sourceRef="first", artifacts=two)
        (fixed,) = await alerts(env, 1)
        form = await asked(env, "anna", "shun", [first.id, fixed])
        assert "*Runs on 1 target*" in text_of(form)
        assert limited in text_of(form)
        await env["anna"].submits(form, target=[one.id for one in first.artifacts])
        on = f"ip {', '.join(ip.replace('.', '[.]') for ip in ('203.0.113.7', *ran))}"
        await env["anna"].sees(modal(f"Started *Shun* on {on}.", f"*Refused on {3 - most} target"))


async def test_asked_in_a_direct_message_it_is_told_there(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert_ids = await alerts(env, 2)
        conversation = await env["anna"].dm(env.emulator.bot_user_id)
        await env["anna"].command(conversation, f"/responder run fail {' '.join(alert_ids)}")
        question = await env["anna"].sees(modal("Each is checked"))
        await env["anna"].presses("Fail (2)", question)

        def told(view: EmulatorView) -> list[dict[str, Any]] | None:
            return [m for m in view.messages(conversation) if "0 of 2 succeeded, 2 failed" in text_of(m)] or None

        (message,) = await env["anna"].sees(told)
        await env["anna"].confirms("Run again", message)
        await env["anna"].sees(lambda view: len(told(view) or ()) == 2)
        assert bulk_messages(env["anna"].live_view) == []


async def test_a_bulk_tells_what_somebody_undid_from_what_ended_on_time(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60}}) as env:
        alert_ids = await alerts(env, 2)
        question = await asked(env, "anna", "shun", alert_ids)
        await env["anna"].presses("Shun (2)", question)
        message = await shown(env, "2 in force until")
        await env["anna"].command(SOC, "/responder mine")
        await env["anna"].reads("*Shun* on 2 targets: 2 in force until <!date^")
        await env["ben"].presses("Show each", message)
        each = await env["ben"].sees(modal("Undo now"))
        await env["ben"].confirms("Undo now", each, beside=alert_ids[1])
        await shown(env, "1 undone by ben, <!date^")
        end_by_itself(env)
        await shown(env, "1 ended on time")
        await env["anna"].command(SOC, "/responder mine")
        await env["anna"].reads("*Shun* on 2 targets: 1 undone by ben, <!date^")


async def test_a_timed_bulk_says_until_when_it_is_in_force_and_each_can_be_undone_before(tmp_path: Path) -> None:
    rules: dict[str, dict[str, Any]] = {
        "Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "allow_permanent": True},
        "Report": {"undo": "Fail_1_0"},
    }
    async with feature_environment(tmp_path, rules) as env:
        alert_ids = await alerts(env, 3)
        cards = [await env["anna"].sees(card_of(one)) for one in alert_ids]
        question = await asked(env, "anna", "shun", alert_ids)
        assert "With a time each ends by itself (Tell); *Undo all* ends it at any moment." in text_of(question)
        await env["anna"].presses("Shun (3)", question)
        message = await shown(env, "3 in force until")
        ran = [run for one in alert_ids for run in await env.client.actions("alert", one)]
        action, ends = ran[-1], sorted(run.undo.at or 0 for run in ran if run.undo)
        until = f"🔒 *Shun* on 3 targets: 3 in force until <!date^{ends[0] // 1000}^"
        assert until in text_of(message)
        last = ends[-1] // 60_000 * 60 + 60  # the next minute, at most a minute later
        await env.client.extend_measure(ran[0].id, last * 1000)
        await env["anna"].command(SOC, "/responder mine")
        left = [run.undo.at or 0 for run in ran[1:] if run.undo]
        await env["anna"].sees(modal(f"3 in force until <!date^{min(left) // 1000}^", "> or later"))
        await shown(env, f"🔒 In force until <!date^{last}^")  # a line of its own
        await env["anna"].command(SOC, f"/responder active {action.bulk}")
        await env["anna"].sees(modal(f"*In force on {action.bulk}: 3 measures*"))
        await env["anna"].presses("Show each", message)
        each = await env["anna"].sees(modal("Undo now", without="In force on"))
        assert text_of(each).count('"Undo now"') == 3
        await env["anna"].confirms("Undo now", each, beside=alert_ids[2])
        await shown(env, "2 in force until")
        undoing = [one for one in await env.client.actions("alert", alert_ids[2]) if one.undoes]
        assert [one.undoes for one in undoing] == [action.id]
        assert [env["anna"].live_view.thread(SOC, card["ts"])[1:] for card in cards] == [[], [], []]

        message = await shown(env, "2 in force until")
        await env["anna"].presses("Extend all", message)
        form = await env["anna"].sees(modal("on 2 targets"))
        assert "The settings allow" not in text_of(form)
        where = [text_of(form).index(words) for words in (f" ({alert_ids[0]}) · in", "How much longer", '"Note"')]
        assert where == sorted(where)
        assert f'"until <!date^{left[0] // 1000 + 15 * 60}^' in text_of(form)
        await env["anna"].submits(form, longer="15")
        refused = await env["anna"].sees(modal(f"Kept 15 minutes longer: *Shun* on {alert_ids[0]} ("))
        assert "Refused" not in text_of(refused)
        timed = [run.undo for one in alert_ids[:2] for run in await env.client.actions("alert", one) if run.undo]
        assert all(undo.changed and undo.at and undo.at > ends[-1] + 60_000 for undo in timed)
        message = await shown(env, "2 in force until")
        view = await env["ben"].confirms("Undo all", message)
        assert (view["title"]["text"], view["submit"]["text"]) == ("Undo Shun (2)?", "Tell (2)")
        assert "*Undo Shun on 2 targets?*\\n*anna* asked for it" in text_of(view)
        assert all(f" ({one}) · in force until <!date^" in text_of(view) for one in alert_ids[:2])
        assert "🔓 *Tell* runs on each, and ends it there." in text_of(view)
        assert "anna is notified." in text_of(view)
        await env["ben"].reads(f"Undo started: *Shun* on {alert_ids[0]} (")
        await shown(env, "3 undone by ")
        assert await env.client.measures() == []

        # What could not be undone is told once, below the bulk's message.
        await start(env, "anna", "report", alert_ids)
        message = await shown(env, "*Report* on 3 targets: 3 in force with no end")
        await env["anna"].presses("Show each", message)
        each = await env["anna"].sees(modal('"Undo now"'))
        await env["anna"].confirms("Undo now", each, beside=alert_ids[0])
        await shown(env, "⚠️ *1 not undone*")
        told = "1 of 3 were to be undone and were not"
        await env["anna"].sees(reply_to(message, told))
        assert [env["anna"].live_view.thread(SOC, card["ts"])[1:] for card in cards] == [[], [], []]


async def test_who_asked_withdraws_all_on_the_message_and_nobody_else(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"undo": "Tell_1_0", "undo_after_minutes": 60}}) as env:
        alert_ids = await alerts(env, 2)
        await start(env, "anna", "isolate", alert_ids)
        message = await shown(env, "2 wait for approval")
        await env["ben"].presses("Withdraw all", message)
        await env["ben"].reads("Only anna, who asked for it, may withdraw it; you can deny it: `/responder deny ~")
        await env["ben"].presses("Show each", message)
        await env["ben"].sees(modal("needs 1 approval · for 1 hour", without="Withdraw all"))
        await env["anna"].presses("Show each", message)  # as from the App Home, where a bulk has no message
        form = await env["anna"].confirms("Withdraw all", await env["anna"].sees(modal("Isolate (2)", "Withdraw all")))
        assert all(one in text_of(form) for one in alert_ids)
        assert "Withdraw all" not in text_of(await shown(env, "nothing was run, 2 withdrawn"))


async def test_what_lasts_with_no_end_is_asked_for_and_told_so_and_can_be_undone(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"undo": "Tell_1_0"}}) as env:
        await env["anna"].connect()
        await env["ben"].connect()
        await start(env, "anna", "isolate", await alerts(env, 2))
        message = await shown(env, "2 wait for approval")
        assert "⏳ *2 targets with no end · up to HIGH*" in text_of(message)
        await env["ben"].sees(on_phone("HIGH: Isolate on 2 targets with no end? "))
        view = await reviewed(env, "ben", message, "*Isolate on 2 targets with no end?* 2 ticked for you")
        await env["ben"].submits(view)
        receipt = await env["ben"].sees(modal("Approved", "They start now. *Undo all* will be on <"))
        own = await env["ben"].sees(direct_message("*Isolate* on 2 targets: "))
        here = await env["ben"].dm(env.emulator.bot_user_id)
        assert f"/archives/{here}/p{own['ts'].replace('.', '')}|its message>." in text_of(receipt)
        told = await env["anna"].sees(on_phone("Approved by ben, in force: Isolate on "))
        assert told.endswith(" with no end · up to HIGH.")
        message = await shown(env, "🔒 *Isolate* on 2 targets: 2 in force with no end")
        assert "asked by anna, approved by ben · ~" in text_of(message)
        assert ids.BULK_EXTEND not in text_of(message)
        view = await env["ben"].confirms("Undo all", message)
        assert "Each is in force until somebody undoes it." in text_of(view)
        assert "in force" not in text_of(await shown(env, "🔓 *Isolate* on 2 targets: 2 undone by ben, <!date^"))
        dm = await env["anna"].dm(env.emulator.bot_user_id)
        await env["anna"].sees(message_in(dm, ".\\n🔓 Approved by ben, undone by ben: "))


async def test_who_asked_reads_which_one_was_denied_why_and_what_is_in_force(tmp_path: Path) -> None:
    rules = {"Isolate": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"}}
    async with feature_environment(tmp_path, rules) as env:
        await env["anna"].connect()
        alert_ids = [
            (await alerts(env, 1, artifacts=[{"dataType": "ip", "data": f"203.0.113.{n}"}]))[0] for n in range(3)
        ]
        await start(env, "anna", 'isolate note="It <beacons>"', alert_ids)
        message = await shown(env, "3 wait for approval")
        direct = await env["ben"].dm(env.emulator.bot_user_id)
        request = text_of(await env["ben"].sees(message_in(direct, "3 wait for approval")))
        assert "beacons" in request
        assert "*Review* names" not in request  # as this does itself
        assert "⏳ *3 targets for 1 hour · up to HIGH*: " in text_of(message)
        assert text_of(message).count("It &lt;beacons&gt;") == 1
        on = "ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1, 203[.]0[.]113[.]2"
        assert f"⏳ *3 targets for 1 hour · up to HIGH*: {on}. Answer" in text_of(message)
        assert '.\\n\\"It &lt;beacons&gt;' in text_of(message)
        (backup,) = await env.client.actions("alert", alert_ids[1])
        await env["ben"].command(SOC, f"/responder deny {backup.id}")
        await env["ben"].submits(await env["ben"].sees(modal("will not run")), reason="Healthy backup")
        review = await reviewed(env, "ben", message, " on 2 targets")
        asks = (
            '*Isolate on 2 targets for 1 hour?* 2 ticked for you\\n*anna* asks for it: \\"It &lt;beacons&gt;\\"\\n1 app'
        )
        assert asks in text_of(review)
        assert text_of(review).count("beacons") == 1
        assert "Ends by itself (Tell); *Undo all* ends it earlier." in text_of(review)
        await env["ben"].submits(review)
        message = await shown(env, "*Isolate* on 3 targets: 1 denied, 2 in force until")
        told = await env["anna"].sees(on_phone("1 denied, 2 in force"))
        denied, approved = "ip 203[.]0[.]113[.]1", "ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]2"
        assert told == (
            f"Approved by ben, in force: Isolate on {approved.replace(', ip ', ', ')}. "
            "In all, 3 targets for 1 hour · up to HIGH: 1 denied, 2 in force. "
            f'Denied by ben, not run: {denied} · "Healthy backup".'
        )
        direct = await env["anna"].dm(env.emulator.bot_user_id)
        each = f">: {approved}.\\n🚫 Denied by ben: {denied}.\\n>Healthy backup"
        for channel, now in ((direct, "🔒 Approved by ben, in force until <!"), (SOC, "🔒 In force until <!")):
            told = text_of(await env["anna"].sees(message_in(channel, now, each)))
            assert "🔒 *Isolate*" not in told  # one is not in force
        # Whoever considers to undo it reads why it was asked for.
        assert 'asked by anna, approved by ben · \\"It &lt;beacons&gt;\\" · ~' in told
        await env["anna"].presses("Show each", await shown(env, "1 denied, 2 in force until"))
        of_each = await env["anna"].sees(modal('1 denied, 2 in force · \\"It &lt;beacons&gt;\\"'))
        await env["anna"].close(of_each["id"])
        of_two = (("approve", alert_ids[0]), ("deny", alert_ids[2]), ("cancel", alert_ids[0]))
        for verb, on in of_two:  # what became of it, before who may decide
            (run,) = await env.client.actions("alert", on)
            await env["anna"].command(SOC, f"/responder {verb} {run.id}")
            now = text_of(await env["anna"].reads(" is in force until <!date^"))
            assert "; *Undo now* on its card ends it. Approved by ben." in now


async def test_who_asked_reads_on_a_phone_who_approved_what_failed_on_which_targets_and_why(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Fail": {"approval": 1, "target": "ip"}}) as env:
        await env["anna"].connect()
        ips = [[{"dataType": "ip", "data": f"203.0.113.{n}"}] for n in range(2)]
        alert_ids = [(await alerts(env, 1, artifacts=ip))[0] for ip in ips]
        await start(env, "anna", "fail", alert_ids)
        review = await reviewed(env, "ben", await shown(env, "2 wait for approval"), " on 2 targets")
        await env["ben"].submits(review)
        failed = await env["anna"].sees(on_phone("failed: "))
        on = "ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1"
        in_channel = f"❌ Failed: {on}.\\n>The firewall said no."
        assert in_channel in text_of(await shown(env, "0 of 2 succeeded, 2 failed"))
        await env.client.request("PATCH", f"/api/alert/{alert_ids[1]}", {"tlp": 3})
        hidden = "❌ Failed: ip 203[.]0[.]113[.]0.\\n>The firewall said no."
        await env["anna"].sees(message_in(SOC, "2 failed", hidden, without="113[.]1"))
        await env.client.request("PATCH", f"/api/alert/{alert_ids[1]}", {"tlp": 2})
        assert failed == f"Approved by ben, failed: Fail on {on} · up to HIGH · The firewall said no."
        await env["anna"].sees(direct_message(failed))


async def test_who_asked_and_who_approved_hear_once_that_somebody_else_has_undone_all(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"undo": "Tell_1_0", "target": "ip"}}) as env:
        for person in env.people.values():
            await person.connect()
        alert_ids = [
            (await alerts(env, 1, artifacts=[{"dataType": "ip", "data": f"203.0.113.{n}"}]))[0] for n in range(5)
        ]
        again = (await alerts(env, 1, title="again", artifacts=[{"dataType": "ip", "data": "203.0.113.1"}]))[0]
        async with CoreClient(env.core.url, env.service_key) as bot:
            for alert_id in (alert_ids[0], again):  # what the same undo ends
                body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert_id}
                alone = await bot.as_user("anna").run(body)
                await bot.as_user("lea").approve(alone.id)
                while (await bot.action(alone.id, wait_s=10)).end_date is None:
                    pass
        await env.client.mark_alert_unread(alert_ids[0])  # which its run has closed
        await start(env, "anna", "isolate", alert_ids)
        message = await shown(env, "5 wait for approval")
        view = await reviewed(env, "lea", message, " on 5 targets")
        await env["lea"].submits(view)
        message = await shown(env, "5 in force with no end")
        await env["anna"].presses("Undo all", message)
        await env["anna"].sees(modal("lea isn't notified: the message that asked for approval shows it."))
        form = await env["ben"].confirms("Undo all", message)
        assert text_of(form).count("anna and lea are notified.") == text_of(form).count("notified") == 1
        assert ", also " not in text_of(form)  # what else ends has a line of its own
        for name in ("anna", "lea"):
            told = await env[name].sees(on_phone("Undone by"))
            on = "ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1, 203[.]0[.]113[.]2 and 2 more"
            assert told == f"Undone by ben: Isolate on {on} · up to HIGH."
        message = await shown(env, "🔓 *Isolate* on 5 targets: 5 undone by ben, <!date^")
        assert "asked by anna, approved by lea · ~" in text_of(message)
        await env["anna"].command(SOC, "/responder mine")
        mine = text_of(await env["anna"].sees(modal("🔓 *Isolate* on 5 targets: 5 undone by ben, <!date^")))
        assert " · approved by lea · ~" in mine
        elsewhere = await env["lea"].sees(reply_to(await env["lea"].sees(card_of(again)), "Undone by *ben*: "))
        assert "<@" not in text_of(elsewhere)
        await all_sent(env.bot)
        for name, rings in (("anna", [told]), ("lea", [told]), ("ben", [])):
            assert [text for text in env[name].phone if "Undone by" in text] == rings
        await env.client.request("PATCH", f"/api/alert/{alert_ids[0]}", {"tlp": 3})
        await env["anna"].sees(direct_message("Undone by ben: Isolate on ip 203[.]0[.]113[.]1, ", without="113[.]0"))


async def test_who_was_told_of_an_undo_is_notified_of_another_run_that_a_later_one_ends(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Shun": {"undo": "Tell_1_0", "target": "ip"}}) as env:
        await env["anna"].connect()
        ips = [[{"dataType": "ip", "data": f"203.0.113.{n}"}] for n in range(2)]
        first, second = [(await alerts(env, 1, artifacts=ip))[0] for ip in ips]
        other = await env.create_alert(sourceRef="other", artifacts=ips[1])
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("anna").run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": other.id})
            await env.ended_run(other)
            await start(env, "anna", "shun", [first, second])
            await shown(env, "2 in force with no end")
            for alert_id, told in (
                (first, "Undone by ben: Shun on ip"),
                (second, "Undone by ben: Shun on ip 203[.]0[.]113[.]1 · HIGH ET"),
            ):
                await bot.as_user("ben").undo((await env.client.actions("alert", alert_id))[0].id)
                await env["anna"].sees(on_phone(told))


async def test_undo_all_ends_what_was_read_and_leaves_what_was_not(tmp_path: Path) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "allow_permanent": True, "target": "ip"}}
    async with feature_environment(tmp_path, rules) as env:
        first, second, red = [
            (await alerts(env, 1, artifacts=[{"dataType": "ip", "data": f"203.0.113.{n}"}], severity=n, tlp=tlp))[0]
            for n, tlp in ((2, 2), (4, 2), (3, 3))
        ]
        await start(env, "ben", "shun", [first, second, red])
        message = await shown(env, "3 in force until")
        await env["anna"].presses("Undo all", message)
        view = await env["anna"].sees(modal("Undo Shun (2)?"))
        text = text_of(view)
        assert text.index("🔴 ip `203[.]0[.]113[.]4`, for CRITICAL") < text.index(
            "🟡 ip `203[.]0[.]113[.]2`, for MEDIUM"
        )
        assert red not in text
        assert "It stays on 1 more target that you may not see." in text

        # What ends later than was read is read again; what ended meanwhile doesn't matter.
        (run,) = await env.client.actions("alert", second)
        later = (run.undo.at or 0) + 900_000 if run.undo else 0
        await env.client.extend_measure(run.id, later)
        await env["anna"].submits(view)
        again = await env["anna"].sees(modal(CHANGED))
        assert f"in force until <!date^{later // 1000}^" in text_of(again)
        await env.client.undo((await env.client.actions("alert", first))[0].id)
        in_force = text_of(await shown(env, "🔓 Undone by admin: ip 203[.]0[.]113[.]2."))
        assert re.search("2 in force until <!date[^>]*> or later", in_force)
        assert f"🔒 In force until <!date^{later // 1000}^" in in_force
        assert "203[.]0[.]113[.]3" not in in_force
        await env["anna"].submits(again)
        await env["anna"].reads("Undo started: *Shun* on ip 203[.]0[.]113[.]4.")
        await shown(env, "2 undone by admin and anna, <!date^")
        (left,) = await env.client.measures()
        assert left.root_id == red


async def test_undo_all_says_once_by_whom_the_end_of_all_was_moved(tmp_path: Path) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "allow_permanent": True, "target": "ip"}}
    async with feature_environment(tmp_path, rules) as env:
        ips = [[{"dataType": "ip", "data": f"203.0.113.{n}"}] for n in range(2)]
        first, second = [(await alerts(env, 1, artifacts=ip))[0] for ip in ips]
        await start(env, "anna", "shun", [first, second])
        message = await shown(env, "2 in force until")
        await env["anna"].confirms("Extend all", message, longer="+15 minutes")
        await env["anna"].reads("Kept 15 minutes longer: *Shun* on ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1.")
        await env["anna"].presses("Undo all", message)
        text = text_of(await env["anna"].sees(modal("Undo Shun (2)?")))
        assert text.count("moved from <!date^") == text.count("in force until") == 1
        assert "*anna* asked for it. Each is in force until <!date^" in text
        # What another run keeps longer ends when that does.
        other = (await env.create_alert(sourceRef="other", artifacts=ips[0])).id
        body = {"responderId": "Shun_1_0", "objectType": "alert", "objectId": other, "undoAfterMinutes": 0}
        await env.client.run(body)
        kept = f"In force, kept with no end by admin, for {other}: ip 203[.]0[.]113[.]0."
        message = await env["anna"].sees(lambda view: next(iter(bulk_messages(view, kept)), None))
        assert " (1 kept longer)" in text_of(message)
        assert re.search(r"🔒 In force until <!date[^>]*>: ip 203\[.]0\[.]113\[.]1\.", text_of(message))
        form = text_of(await env["anna"].confirms("Undo all", message))
        assert "Each is in force" not in form
        assert f"({first}) · in force with no end by admin, for {other}\\n    ↳ ⚠️ It also ends *Shun* on " in form


async def test_undo_all_says_what_else_it_ends(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Shun": {"undo": "Tell_1_0", "target": "ip"}}) as env:
        ips = [[{"dataType": "ip", "data": f"203.0.113.{n}"}] for n in (4, 5)]
        alert_ids = [(await alerts(env, 1, artifacts=ip))[0] for ip in ips]
        alert = await env.create_alert(sourceRef="other", artifacts=[{"dataType": "ip", "data": "203.0.113.4"}])
        other = alert.id
        await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": other})
        await env.ended_run(alert)
        await start(env, "anna", "shun", alert_ids)
        message = await shown(env, "2 in force with no end")
        await env["anna"].presses("Undo all", message)
        view = await env["anna"].sees(modal("Undo Shun (2)?"))
        also = f"⚠️ It also ends *Shun* on `203[.]0[.]113[.]4` with no end by admin, for {other}."
        assert also in text_of(view)
        # What came since is read first.
        again = await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": other})
        while again.end_date is None:
            again = await env.client.action(again.id, wait_s=10)
        await env["anna"].submits(view)
        shown_again = await env["anna"].sees(modal(CHANGED))
        assert text_of(shown_again).count(also) == 2 * 2 * text_of(view).count(also)  # each is named as new
        await env["anna"].submits(shown_again)
        await shown(env, "2 undone by")
        assert await env.client.measures() == []


async def test_undo_all_says_what_waits_for_approval(tmp_path: Path) -> None:
    rules: dict[str, dict[str, Any]] = {"Shun": {"undo": "Tell_1_0"}, "Tell": {"approval": 1}}
    async with feature_environment(tmp_path, rules) as env:
        await start(env, "anna", "shun", await alerts(env, 2))
        message = await shown(env, "2 in force with no end")
        form = await env["anna"].confirms("Undo all", message)
        assert "🔓 *Tell* runs on each, after 1 approval, and ends it there." in text_of(form)
        told = await env["anna"].reads("(ET MALWARE Beacon to known C2). It waits for approval.")
        assert "Asked: undo *Shun* on " in text_of(told)
        assert "started" not in text_of(told)
        assert len(await env.client.measures()) == 2


async def test_undo_all_says_what_of_it_may_start_later(tmp_path: Path) -> None:
    rules = {"Isolate": {"undo": "Tell_1_0"}}
    async with feature_environment(tmp_path, rules) as env, CoreClient(env.core.url, env.service_key) as bot:
        first, second = await alerts(env, 2)
        await start(env, "anna", "isolate", [first, second])
        await shown(env, "2 wait for approval")
        (run,) = await env.client.actions("alert", first)
        await bot.as_user("ben").approve(run.id)
        message = await shown(env, "1 waits for approval, 1 in force with no end")
        assert text_of(message).index("⏳ *1 target") < text_of(message).index("🔒 In force")
        await env["anna"].presses("Show each", message)
        each = await env["anna"].sees(
            modal("(~1) · approved by ben · in force until somebody undoes it", without="done · ")
        )
        order = [text_of(each).index(words) for words in ("needs 1 approval", '"Withdraw"', "in force until", '"Undo')]
        assert order == sorted(order)
        await env["anna"].close(each["id"])
        review = await reviewed(env, "anna", message, "You asked for it, so somebody else decides.")
        assert '"Withdraw"' in text_of(review)  # not "Withdraw all 1"
        await env["anna"].close(review["id"])
        for name, how in (("ben", "*Deny* in *Review*"), ("anna", "*Withdraw*")):
            later = f"On 1 target it still waits and may start after this: {how}, on its message."
            await env[name].presses("Undo all", message)
            form = await env[name].sees(modal("Undo Isolate (1)?", later))
            assert later in str(form["blocks"][0])
            await env[name].close(form["id"])
        await env.client.request("PATCH", f"/api/alert/{second}", {"tlp": 3})
        await env["anna"].presses("Undo all", message)
        hidden = "⚠️ 1 target waits that you may not see; ben or lea decides. That may start after this."
        form = await env["anna"].sees(modal("Undo Isolate (1)?", hidden, without=", on its message"))
        await env["anna"].close(form["id"])
        await bot.as_user("ben").deny((await env.client.actions("alert", second))[0].id)
        await env["anna"].presses("Undo all", await shown(env, "1 denied, 1 in force with no end"))
        await env["anna"].sees(modal("Undo Isolate (1)?", without="still waits"))


async def test_each_of_several_is_refused_for_its_own_reason(tmp_path: Path) -> None:
    """An alert without an address is not said to have the open run of the one before it."""
    async with feature_environment(tmp_path, {"Isolate": {"target": "ip"}}) as env:
        (waiting, other), (bare, empty) = await alerts(env, 2), await alerts(env, 2, artifacts=[])
        run = await env.client.run({"responderId": "Isolate_1_0", "objectType": "alert", "objectId": waiting})
        question = await asked(env, "anna", "isolate", [waiting, bare, other, empty])
        text = text_of(question)
        assert "*Runs on 1 target*" in text
        assert "*Isolate* on *1 target*, after 1 approval; *3 will be refused*" in text
        assert (question["title"]["text"], question["submit"]["text"]) == ("Isolate (1)", "Ask to isolate (1)")
        assert "*Will be refused on 3 targets*\\n" in text
        on = "• 🟠 ip `203[.]0[.]113[.]7`, for HIGH ET MALWARE Beacon to known C2"
        assert f"{on} ({waiting}): already waiting for approval since <!date^" in text
        assert f", asked by admin; wait for the decision on {run.id}" in text
        assert f":\\n• 🟠 HIGH ET MALWARE Beacon to known C2 ({bare})\\n• 🟠 HIGH ET" in text
        assert f" ({empty})\\n    ↳ already" not in text


async def test_the_worst_is_read_first_with_the_target_of_each_alert(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"target": "ip"}}) as env:
        (high,), (critical,) = await alerts(env, 1), await alerts(env, 1, severity=4)
        title = "ET MALWARE Beacon to known C2"
        lines = [
            f"• 🔴 ip `203[.]0[.]113[.]7`, for CRITICAL {title} ({critical})",
            f"• 🟠 ip `203[.]0[.]113[.]7`, for HIGH {title} ({high})",
        ]
        question = await asked(env, "anna", "isolate", [high, critical])
        assert "*Runs on 2 targets*\\n" + "\\n".join(lines) in text_of(question)
        assert "; one of them approves each. You can withdraw each until then." in text_of(question)
        await env["anna"].presses("Ask to isolate (2)", question)
        message = await shown(env, "2 wait for approval")
        view = await reviewed(env, "ben", message, " on 2 targets")
        assert [*filled_in(view)["decide"]] == ["ip 203[.]0[.]113[.]7"] * 2
        first, last = f'"🔴 CRITICAL · {title} ({critical})"', f'"🟠 HIGH · {title} ({high})"'
        assert text_of(view).index(first) < text_of(view).index(last)
        form = await env["ben"].confirms("Deny the ticked", view)
        assert "\\n".join(lines) in text_of(form)


async def test_a_title_that_an_option_cuts_is_whole_below_once_for_all_that_have_it(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"target": "ip"}}) as env:
        title = "ET MALWARE Cobalt Strike Beacon Activity (GET) from a host of the finance department"
        said = [{"dataType": "ip", "data": f"203.0.113.{n}", "message": "Seat of the CFO"} for n in range(2)]
        ids = [(await alerts(env, 1, title=title, artifacts=[one]))[0] for one in said]
        await start(env, "anna", "isolate", ids)
        view = await reviewed(env, "ben", await shown(env, "2 wait for approval"), " on 2 targets")
        assert '"ip 203[.]0[.]113[.]0 · ET MALWARE Cobalt Strike' in text_of(view)
        each = ", ".join(f"ip 203[.]0[.]113[.]{n} ({id_})" for n, id_ in enumerate(ids))
        assert f'*More about these targets*\\n• {each}: {title}"' in text_of(view)


def test_the_message_says_what_expired_and_when_a_rate_is_free_again() -> None:
    counts = BulkCounts(
        id="~9",
        created_by="anna@responder-bot.local",
        created_at=1,
        responder_name="Isolate_1_0",
        title="Isolate",
        total=12,
        objects=12,
        refused=4,
        counts={"Success": 3, "Failure": 4, "Deleted": 1},
        outcomes={"failed": 1, "expired": 2, "denied": 1, "cancelled": 1},
        free_at=1_800_000_000_000,
    )
    text = text_of(messages.progress(counts, button=lambda intent: "-").payload())
    assert "*Isolate* on 12 targets: 3 of 12 succeeded, 1 failed, 2 not approved in time, 1 denied, 1 withdrawn" in text
    assert "*Ask again* works from <!date^1800000000^" in text
    ended = "3 of 12 succeeded, 1 failed, 2 not approved in time, 1 denied, 1 withdrawn, 4 refused"
    assert messages.ended(counts).text == f"*Isolate* on 12 targets: {ended} · asked by anna."


async def test_the_receipt_names_the_target_that_goes_on_waiting(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"target": "ip"}}) as env:
        ips = ["203.0.113.1", "203.0.113.2"]
        (alert,) = await alerts(env, 1, artifacts=[{"dataType": "ip", "data": ip} for ip in ips])
        await env["ben"].sees(card_of(alert))  # the bulk's message goes where the cards are
        targets = [{"objectType": "alert", "objectId": alert, "target": ip} for ip in ips]
        body = {"responderId": "Isolate_1_0", "targets": targets}
        await env.client.request("POST", "/api/connector/engine/action/_bulk", body)
        review = await reviewed(env, "ben", await shown(env, "2 wait for approval"), " on 2 targets")
        _, second = filled_in(review)["decide"]
        await env["ben"].submits(review, decide=[second])
        _, left = text_of(await env["ben"].reads("You approved 1 run")).split("*The rest*")
        assert ("203[.]0[.]113[.]1" in left, "203[.]0[.]113[.]2" in left) == (True, False)


async def test_the_receipt_names_the_most_severe_first_among_what_goes_on_waiting(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"target": "ip"}}) as env:
        on = {level: [{"dataType": "ip", "data": f"203.0.113.{level}"}] for level in (2, 3, 4)}
        ids_ = [one for level in on for one in await alerts(env, 1, severity=level, artifacts=on[level])]
        await start(env, "anna", "isolate", ids_)
        review = await reviewed(env, "ben", await shown(env, "3 wait for approval"), " on 3 targets")
        await env["ben"].submits(review, decide=["ip 203[.]0[.]113[.]4"])
        _, left = text_of(await env["ben"].reads("You approved 1 run")).split("*The rest*")
        assert 0 < left.index("Still waiting:\\n• ") < left.index(f"({ids_[1]})") < left.index(f"({ids_[0]})")
