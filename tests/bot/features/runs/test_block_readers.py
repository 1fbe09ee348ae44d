"""Who reads the block list, as the form and the card of an alert say it (core/docs/blocklist.md#who-has-read-it)."""

import asyncio
from pathlib import Path

import httpx

from core.protection import BLOCK
from core.settings import ProtectSection
from core.store import blocklist as stored
from tests.bot.features.environment import feature_environment
from tests.bot.people import card_of, field_of, modal, reply_to, text_of
from tests.bot.running import SOC

UNREAD = "nothing reads the block list ip.txt: `responder-bot user add NAME --profile reader` makes a firewall's key"


async def test_the_form_and_the_card_say_who_reads_what_is_blocked_and_who_still_has_it(tmp_path: Path) -> None:
    protect = ProtectSection(artifacts=["10.20.0.0/16"])
    async with feature_environment(tmp_path, protect=protect) as env:
        people = env.core.core.people
        keys = {name: await people.add(name, "reader") for name in ("edge-fw", "dc-fw")}

        async def read(name: str, kind: str = "ip") -> None:
            async with httpx.AsyncClient(base_url=env.core.url, auth=(name, keys[name])) as http:
                assert (await http.get(f"/api/blocklist/{kind}.txt")).status_code == 200

        alert, card = await env.alert_and_card("anna")
        await env["anna"].command(SOC, f"/responder run {BLOCK} {alert.id} 203.0.113.7")
        form = await env["anna"].sees(modal(UNREAD))
        for name in keys:
            await read(name)
        while len(await env.core.core.database.read(stored.readers)) < len(keys):  # noqa: ASYNC110 - its own pace
            await asyncio.sleep(0.05)
        await env["anna"].command(SOC, f"/responder run {BLOCK} {alert.id} 203.0.113.7")
        form = await env["anna"].sees(modal("The block list is read by dc-fw, edge-fw", without="nothing reads"))
        await env["anna"].submits(form)
        await env["anna"].sees(card_of(alert, "in force until", "not read yet by dc-fw, edge-fw"))
        inside = [{"dataType": "ip", "data": data} for data in ("10.20.1.50", "1.1.1.1")]
        against = await env.create_alert(sourceRef="3", artifacts=inside)
        await env["lea"].command(SOC, f"/responder run {BLOCK} {against.id} 10.20.1.50")
        await env["lea"].presses("Override ...", await env["lea"].sees(modal("is protected")))
        form = await env["lea"].sees(modal("Against the rules", "The block list is read by dc-fw, edge-fw."))
        await env["lea"].submits(form, override="It spreads")
        await people.set_profile("ben", "org-admin")
        await env["ben"].presses("Approve", await env["ben"].sees(card_of(against, "*Block*")))
        review = await env["ben"].sees(modal("Against the rules", "The block list is read by dc-fw, edge-fw."))
        assert "Cloudflare" not in text_of(review)  # which is of 1.1.1.1
        await env["ben"].close(review["id"])
        await read("edge-fw")
        await env["anna"].sees(card_of(alert, "read by edge-fw", "not read yet by dc-fw"))
        await read("dc-fw")
        listed = "203[.]0[.]113[.]7 was put on the block list"
        shown = await env["anna"].sees(card_of(alert, listed, "read by dc-fw", "edge-fw", without="not read yet"))
        await env["anna"].confirms("Undo now", shown)
        await env["anna"].sees(card_of(alert, "undone by anna, ", " · dc-fw, edge-fw still have it"))
        await read("dc-fw")
        await env["anna"].sees(card_of(alert, " · edge-fw still has it"))
        await read("edge-fw")
        await env["anna"].sees(card_of(alert, "undone by anna, ", " · no reader has it any more"))
        undone = await env["anna"].sees(reply_to(card, "🔓 *Block*", "undone by anna"))
        assert "block list: " not in text_of(undone)  # which said blocked
        both = [{"dataType": "ip", "data": "198.51.100.8"}, {"dataType": "domain", "data": "c2.example"}]
        never = {"dataType": "hostname", "data": "lt-0198"}
        other = await env.create_alert(sourceRef="2", artifacts=[*both, never])
        await env["anna"].command(SOC, f"/responder run Unblock {other.id}")
        form = await env["anna"].sees(modal("What should it act on?", "nothing that this would end"))
        offered = [one["text"]["text"] for one in field_of(form, "target")["element"]["options"]]
        assert offered == ["`198[.]51[.]100[.]8`", "`c2[.]example`"]
        await env["anna"].close(form["id"])
        on = {"objectType": "alert", "objectId": other.id, "target": [one["data"] for one in both]}
        await env.client.run({"responderId": BLOCK, **on, "undoAfterMinutes": 60})
        await env["anna"].sees(card_of(other, "not read yet by dc-fw, edge-fw"))
        for name in keys:
            await read(name)
            await read(name, "domain")
        shown = await env["anna"].sees(card_of(other, "read by dc-fw", "edge-fw", without="not read yet"))
        await env["anna"].confirms("Undo now", shown, beside="c2[.]example is in force")
        await env["anna"].sees(card_of(other, "*Unblock*", "[.]8 is in force"))
        for name in keys:  # which then have what is in force, and no more
            await read(name, "domain")
        await env["anna"].command(SOC, f"/responder actions {other.id}")
        listed = text_of(await env["anna"].sees(modal("c2[.]example: undone by anna")))
        assert "still ha" not in listed
        assert "read by dc-fw" in listed
        assert "not read yet" not in listed
