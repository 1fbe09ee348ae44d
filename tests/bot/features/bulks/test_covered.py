"""Alerts with one target are one target of a bulk for everybody: who asks, who decides and who undoes."""

from pathlib import Path
from typing import Any

from tests.bot.features.approvals.asking import ISOLATE, asking
from tests.bot.features.bulks.bulk import alerts, asked, reviewed, shown
from tests.bot.features.environment import feature_environment
from tests.bot.people import card_of, modal, on_phone, text_of
from tests.bot.running import SOC

IP = "203.0.113.4"


async def test_one_host_of_three_alerts_is_one_target_for_who_asks_decides_and_undoes(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "undo": "Tell_1_0", "target": "ip"}) as env:
        named = [("203.0.113.4", 2), ("203.0.113.4", 4), ("203.0.113.4", 2), ("203.0.113.9", 3)]
        ids = [
            (await alerts(env, 1, title=f"t{n}", severity=severity, artifacts=[{"dataType": "ip", "data": ip}]))[0]
            for n, (ip, severity) in enumerate(named)
        ]
        medium, critical, third, _ = ids
        form = await asked(env, "anna", "isolate", ids)
        text = text_of(form)
        assert "*Isolate* on *2 targets in 4 alerts*" in text
        assert "*Runs on 2 targets*" in text
        row = f"🔴 ip `203[.]0[.]113[.]4`, for CRITICAL t1 ({critical})\\n    ↳ also for {medium}, {third}"
        assert row in text
        assert text.count("203[.]0[.]113[.]4`") == 1
        assert form["submit"]["text"].endswith("(2)")
        await env["anna"].submits(form)
        told = text_of(await env["anna"].reads("notified; 1 approval, answer by "))
        assert "*Isolate* on ip 203[.]0[.]113[.]4, ip 203[.]0[.]113[.]9 for 1 hour" in told
        assert "also for" not in told  # a list of one of them
        assert "Refused" not in told

        push = await env["ben"].sees(on_phone("Isolate on 2 targets in 4 alerts"))
        assert "runs)" not in push
        message = await shown(env, "2 wait for approval")
        review = await reviewed(env, "ben", message, "also for")
        assert "different" not in text_of(review)
        assert f"also for {medium}, {third}" in text_of(review)
        await env["ben"].submits(review)
        done = await shown(env, "on 2 targets in 4 alerts: 2 in force")
        await env["anna"].presses("Show each", done)
        each = text_of(await env["anna"].sees(modal("in force until", f"also for {medium}, {third}")))
        assert "more that you may not see" not in each
        await env["anna"].sees(card_of(critical, f"also for {medium}, {third}"))
        await env["anna"].command(SOC, f"/responder active {medium}")
        await env["anna"].sees(modal(f"*In force on {medium}: 1 measure*", f"also for {medium}, {third}"))
        undo = await env["anna"].confirms("Undo all", done)
        assert "on 2 targets?" in text_of(undo)
        await shown(env, "2 undone by anna, <!date^")
        assert await env.client.measures() == []
        await env["anna"].command(SOC, f"/responder audit {medium}")
        story = text_of(await env["anna"].sees(modal(f"asked to run Isolate on {medium} too")))
        assert f"The run on {critical} (" in story


async def test_one_address_of_three_alerts_that_is_refused_is_one_target_with_why_and_until_when(
    tmp_path: Path,
) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip", "rate": ["1/1h"]}}
    async with feature_environment(tmp_path, rules) as env:
        ids = [(await alerts(env, 1, title=f"t{n}", artifacts=[{"dataType": "ip", "data": IP}]))[0] for n in range(3)]
        ran = await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": ids[0]})
        while ran.end_date is None:
            ran = await env.client.action(ran.id, wait_s=10)
        await env["anna"].command(SOC, f"/responder run shun {' '.join(ids)}")
        form = text_of(await env["anna"].sees(modal("*Will be refused on 1 target*", "*1 target in 3 alerts*")))
        assert (
            f"({ids[0]}), also for {ids[1]}, {ids[2]}\\n    ↳ 🔒 `203[.]0[.]113[.]4` is contained already until" in form
        )
        assert f" by admin, for {ids[0]}.\\n    ↳ the limit of 1 run in 1 hour is reached; free again <!date^" in form


async def test_what_is_in_force_names_each_other_alert_for_which_it_ran_alone(tmp_path: Path) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"}}
    async with feature_environment(tmp_path, rules) as env:
        ids = [(await alerts(env, 1, title=f"t{n}", artifacts=[{"dataType": "ip", "data": IP}]))[0] for n in range(3)]
        for id_ in ids:
            action = await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": id_})
            while action.end_date is None:
                action = await env.client.action(action.id, wait_s=10)
        await env["anna"].command(SOC, f"/responder active {IP}")
        listed = text_of(await env["anna"].sees(modal(f"*In force on {IP}: 1 measure*")))
        assert f"({ids[2]}) · also for {ids[0]}, {ids[1]}" in listed
        also = [f", also for {one} until <!date^" for one in ids[:2]]
        await env["anna"].sees(card_of(ids[2], *also))
        await env["anna"].confirms("Undo now", await env["anna"].sees(card_of(ids[0], "in force until")))
        await env["anna"].sees(card_of(ids[2], "undone by anna, <!date^"))
        form = text_of(await asked(env, "anna", "shun", ids))
        assert form.count("🔓 *Undone before by anna, <!date^") == form.count("🔓 *Undone ") == 1
        assert "🔓 *1 undone before*" in form


async def test_a_limit_of_one_run_is_enough_for_one_address_of_five_alerts(tmp_path: Path) -> None:
    shun = {"undo": "Tell_1_0", "target": "ip", "rate": ["1/1h"]}
    rules: dict[str, dict[str, Any]] = {"Shun": shun, "Tell": {"target": "ip"}}
    async with feature_environment(tmp_path, rules) as env:
        ids = await alerts(env, 5, artifacts=[{"dataType": "ip", "data": IP}])
        for name, ends in (
            ("shun", "🔒 *Shun* on 1 target in 5 alerts: 1 in force"),
            ("tell", "5 alerts: 1 of 1 succeeded"),
        ):
            form = await asked(env, "anna", name, ids)
            assert form["submit"]["text"].endswith("(1)")
            assert "refused" not in text_of(form)
            await env["anna"].submits(form)
            await env["anna"].reads("Started *")
            assert "Run again" not in text_of(await shown(env, ends))
        assert await env.client.measures() == []
