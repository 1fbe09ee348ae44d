"""Alerts with one target are one target of a bulk for everybody: who asks, who decides and who undoes."""

from pathlib import Path
from typing import Any

from tests.bot.features.approvals.asking import ISOLATE, asking
from tests.bot.features.bulks.bulk import alerts, asked, reviewed, shown
from tests.bot.features.environment import feature_environment
from tests.bot.people import card_of, field_of, labels_of, modal, on_phone, text_of
from tests.bot.running import SOC

IP = "203.0.113.4"
HOSTS = ("WS-0101", "WS-0102")


def options_in(review: dict[str, Any]) -> list[dict[str, Any]]:
    """What Review has to tick."""
    return list(field_of(review, "decide")["element"]["options"])


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
        told = text_of(await env["anna"].reads("asked; 1 approval, answer by "))
        assert "*Isolate* on ip 203[.]0[.]113[.]4, 203[.]0[.]113[.]9 for 1 hour" in told
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


async def test_each_host_that_is_ticked_for_an_alert_is_a_target_for_who_asks_decides_and_undoes(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, {**ISOLATE, "target": "hostname"}) as env:
        roles = {"WS-0101": "Source", "WS-0102": "Reached", "WS-0103": "Other"}
        of_one = [{"dataType": "hostname", "data": host, "message": role} for host, role in roles.items()]
        several = await env.create_alert(sourceRef="several", title="Spread", artifacts=of_one)
        laptop = [{"dataType": "hostname", "data": "LT-0900"}]
        others = [(await alerts(env, 1, title=f"t{n}", artifacts=laptop))[0] for n in range(2)]
        form = await asked(env, "anna", "isolate", [*others, several.id])
        choose = f"those that you choose of {several.id}"
        assert f"*Isolate* on *1 target in 2 alerts, and {choose}*, after 1 approval" in text_of(form)
        assert (form["title"]["text"], form["submit"]["text"]) == ("Isolate", "Ask to isolate")
        await env["anna"].submits(form, target=[one.id for one in several.artifacts[:2]])
        told = text_of(await env["anna"].reads("asked; 1 approval, answer by "))
        assert "*Isolate* on hostname LT-0900, WS-0101, WS-0102 for 1 hour" in told

        await env["ben"].sees(on_phone("Isolate on 3 targets for 1 hour?"))
        message = await shown(env, "3 wait for approval")
        review = await reviewed(env, "ben", message, "Decide only on the ticked")
        said = [(one["text"]["text"], one["description"]["text"]) for one in options_in(review)]
        assert said[0] == ("hostname LT-0900", f"🟠 HIGH · t0 ({others[0]}, also for {others[1]})")
        of_each = [f"🟠 HIGH · {roles[host]} ({several.id})" for host in HOSTS]
        assert said[1:] == [(f"hostname {host} · Spread", role) for host, role in zip(HOSTS, of_each, strict=True)]
        assert "More about these targets" not in text_of(review)  # which the boxes say
        await env["ben"].submits(review, decide=[said[0][0], said[2][0]])
        await env["ben"].reads("You approved 2 runs: Isolate on 🟠 HIGH hostname LT-0900, WS-0102.")
        left = await shown(env, "1 waits for approval, 2 in force until")
        review = await reviewed(env, "ben", left, "*Isolate on 1 target for 1 hour?*")
        await env["ben"].confirms("Deny", review, reason="the source is mine")
        done = await shown(env, "1 denied, 2 in force until")
        await env["anna"].presses("Show each", done)
        each = await env["anna"].sees(modal("WS-0101", "WS-0102", "LT-0900", "the source is mine"))
        assert labels_of(each).count("Undo now") == 2
        undo = await env["anna"].confirms("Undo all", done)
        assert "on 2 targets?" in text_of(undo)
        await shown(env, "2 undone by anna, <!date^")


async def test_of_two_hosts_of_an_alert_that_core_refuses_each_is_named(tmp_path: Path) -> None:
    rules = {"Isolate": {**ISOLATE, "target": "hostname", "rate": ["1/1h"], "approval": 0}}
    async with feature_environment(tmp_path, rules) as env:
        hosts = [{"dataType": "hostname", "data": f"WS-010{n}"} for n in range(3)]
        alert = await env.create_alert(artifacts=hosts)
        await env["anna"].command(SOC, f"/responder run isolate {alert.id} WS-0100 WS-0101 WS-0102")
        form = await env["anna"].sees(
            modal("*Isolate* on *1 of 3 targets in 1 alert*; *2 will be refused*", "Runs on 1 target")
        )
        await env["anna"].submits(form)
        told = text_of(await env["anna"].reads("Started *Isolate* on hostname WS-0100 for 1 hour."))
        refused = [f"• 🟠 hostname {host}, for HIGH " for host in ("WS-0101", "WS-0102")]
        assert all(one in told.partition("*Refused on 2 targets*")[2] for one in refused)
        message = await shown(env, "1 in force until <!date^")
        assert "Refused: hostname WS-0101, hostname WS-0102" in text_of(message)
        await env["anna"].presses("Show each", message)
        each = text_of(await env["anna"].sees(modal("WS-0100")))
        assert all(f"• 🟠 hostname {host}, for HIGH " in each for host in ("WS-0101", "WS-0102"))


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
        listed = text_of(await env["anna"].sees(modal(f"*In force on {IP.replace('.', '[.]')}: 1 measure*")))
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
