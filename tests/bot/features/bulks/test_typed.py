"""The commands that decide on a run take the id of a bulk too: they open what its buttons open."""

from pathlib import Path

from tests.bot.features.bulks.bulk import alerts, shown, start
from tests.bot.features.environment import feature_environment
from tests.bot.people import modal, text_of
from tests.bot.running import SOC


async def test_a_bulk_is_approved_denied_and_withdrawn_by_command_as_by_its_buttons(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 2)
        await start(env, "anna", "isolate", alert_ids)
        message = await shown(env, "2 wait for approval")
        bulk_id = (await env.client.actions("alert", alert_ids[0]))[0].bulk
        assert f" · {bulk_id}" in text_of(message)  # people read the id there
        await env["ben"].command(SOC, f"/responder cancel {bulk_id}")
        await env["ben"].reads("anna asked for it, and withdraws it. *Review* has *Deny*.")
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
