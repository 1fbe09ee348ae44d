"""The commands that decide on a run take the id of a bulk too: they open what its buttons open."""

from pathlib import Path

from tests.bot.features.approvals.asking import ISOLATE, isolate
from tests.bot.features.bulks.bulk import alerts, shown, start
from tests.bot.features.environment import feature_environment
from tests.bot.people import labels_of, modal, text_of
from tests.bot.running import SOC


async def test_a_bulk_is_approved_denied_and_withdrawn_by_command_as_by_its_buttons(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 2)
        await start(env, "anna", "isolate", alert_ids)
        message = await shown(env, "2 wait for approval")
        bulk_id = (await env.client.actions("alert", alert_ids[0]))[0].bulk
        assert f" · {bulk_id}" in text_of(message)  # people read the id there
        await env["ben"].command(SOC, f"/responder cancel {bulk_id}")
        only = "Only anna, who asked for it, may withdraw it; you can deny it: "
        await env["ben"].reads(f"{only}`/responder deny {bulk_id}`.")
        await env["ben"].command(SOC, f"/responder status {bulk_id}")
        waits = await env["ben"].sees(modal(f"Nothing is in force on {bulk_id}", "2 wait for approval"))
        assert labels_of(waits) == ["Review", "Show each"]
        await env.client.close_alerts(alert_ids[:1])
        await env["ben"].command(SOC, f"/responder status {bulk_id}")
        await env["ben"].sees(modal("⚠️ Alert closed by now: "))
        await env["anna"].command(SOC, "/responder mine")
        assert labels_of(await env["anna"].sees(modal("2 wait for approval"))) == ["Withdraw all", "Show each"]
        await env["ben"].command(SOC, f"/responder deny {bulk_id}")
        form = await env["ben"].sees(modal("Deny Isolate?", "and everybody who sees the request."))
        assert all(one in text_of(form) for one in alert_ids)
        await env["ben"].close(form["id"])
        await env["ben"].command(SOC, f"/responder approve {bulk_id}")
        review = await env["ben"].sees(modal("Deny the ticked"))
        assert all(one in text_of(review) for one in alert_ids)
        await env["ben"].close(review["id"])
        await env["anna"].command(SOC, f"/responder cancel {bulk_id}")
        await env["anna"].submits(await env["anna"].sees(modal("Withdraw Isolate?")))
        await shown(env, "nothing was run, 2 withdrawn")
        await env["ben"].command(SOC, f"/responder approve {bulk_id}")
        await env["ben"].reads("Nothing of it waits any more.")


async def test_undo_and_extend_of_a_bulk_ask_as_its_buttons_do_which_active_and_mine_have(tmp_path: Path) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"}}
    async with feature_environment(tmp_path, rules) as env:
        ips = [[{"dataType": "ip", "data": f"203.0.113.{n}"}] for n in range(2)]
        alert_ids = [(await alerts(env, 1, artifacts=ip))[0] for ip in ips]
        await start(env, "anna", "shun", alert_ids)
        await shown(env, "2 in force until")
        bulk_id = (await env.client.actions("alert", alert_ids[0]))[0].bulk
        for verb, asks in (("undo", "Undo Shun (2)?"), ("extend", "*Extend Shun on 2 targets?*")):
            await env["ben"].command(SOC, f"/responder {verb} {bulk_id}")
            await env["ben"].close((await env["ben"].sees(modal(asks)))["id"])
        await env["ben"].command(SOC, f"/responder active {bulk_id}")
        in_force = await env["ben"].sees(modal(f"*In force on {bulk_id}: 2 measures*", "2 in force until"))
        assert labels_of(in_force)[:2] == ["Extend all", "Undo all"]
        await env["anna"].command(SOC, "/responder mine")
        mine = await env["anna"].sees(modal("2 in force until"))
        assert labels_of(mine) == ["Extend all", "Undo all", "Show each"]


async def test_approve_and_deny_find_what_waits_on_a_host_or_ask_which_with_what_to_type(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": ISOLATE}) as env:
        hosts = [
            await env.create_alert(sourceRef=str(n), artifacts=[{"dataType": "ip", "data": f"203.0.113.{n}"}])
            for n in (1, 2)
        ]
        first, second = [await isolate(env, alert) for alert in hosts]
        lea, ben = env["lea"], env["ben"]
        for typed in ("203.0.113.2", "isolate 203[.]0[.]113[.]2"):
            await ben.command(SOC, f"/responder approve {typed}")
            await ben.close((await ben.sees(modal("*Isolate on ip `203[.]0[.]113[.]2` for 1 hour?*")))["id"])
        await ben.command(SOC, "/responder deny")
        which = await ben.reads("Which one?")
        for run, alert, number in ((first, hosts[0], 1), (second, hosts[1], 2)):
            deed = f"Isolate on ip 203[.]0[.]113[.]{number} for 1 hour, asked by anna, for HIGH {alert.title}"
            assert f"• `/responder deny {run.id}` {deed} ({alert.id})" in text_of(which)
        await ben.command(SOC, "/responder approve 203.0.113.9")
        await ben.reads("Nothing that you may see waits for approval on 203[.]0[.]113[.]9.")
        again = await isolate(env, hosts[0], by="lea")
        await lea.command(SOC, f"/responder deny {hosts[0].id}")  # her own she withdraws
        await lea.close((await lea.sees(modal("Deny Isolate?", "*anna* asks")))["id"])
        await ben.command(SOC, f"/responder deny {hosts[0].id}")
        assert again.id in text_of(await ben.reads("Which one?"))
        await env.client.cancel(again.id)
        await env.client.cancel(second.id)
        await ben.command(SOC, "/responder deny")
        await ben.sees(modal("Deny Isolate?", "203[.]0[.]113[.]1"))
