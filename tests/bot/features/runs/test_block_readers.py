"""Who reads the block list, as the form and the card of an alert say it (core/docs/blocklist.md#who-has-read-it)."""

import asyncio
from pathlib import Path
from typing import Any

import httpx

from bot.block_kit import ids
from core.protection import BLOCK
from core.store import blocklist as stored
from tests.bot.features.environment import card_in, feature_environment, text_of
from tests.bot.running import SOC, undo

UNREAD = "nothing reads the block list ip.txt: `responder-bot user add NAME --profile reader` makes a firewall's key"


async def test_the_form_and_the_card_say_who_reads_what_is_blocked_and_who_still_has_it(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        people = env.core.core.people
        keys = {name: await people.add(name, "reader") for name in ("edge-fw", "dc-fw")}

        async def read(name: str) -> None:
            async with httpx.AsyncClient(base_url=env.core.url, auth=(name, keys[name])) as http:
                assert (await http.get("/api/blocklist/ip.txt")).status_code == 200

        async def card(*words: str, but: str = "\0") -> dict[str, Any]:
            def seen(view: Any) -> dict[str, Any] | None:
                found = card_in(view, SOC, alert.id)
                text = text_of(found) if found else ""
                return found if found and all(word in text for word in words) and but not in text else None

            return await env.until("anna", seen)

        alert, _ = await env.alert_and_card("anna")
        await env["anna"].command(SOC, f"/responder run {BLOCK} {alert.id} 203.0.113.7")
        form = await env.until("anna", lambda view: view.modal if UNREAD in text_of(view.modal or {}) else None)
        for name in keys:
            await read(name)
        while len(await env.core.core.database.read(stored.readers)) < len(keys):  # noqa: ASYNC110 - its own pace
            await asyncio.sleep(0.05)
        await env["anna"].submit(form["id"], {})
        await card("in force until", "not read yet by dc-fw, edge-fw")
        await read("edge-fw")
        shown = await card("read by edge-fw", "not read yet by dc-fw")
        await read("dc-fw")
        shown = await card(
            "203[.]0[.]113[.]7 was put on the block list", "read by dc-fw", "edge-fw", but="not read yet"
        )
        (press,) = {
            element["action_id"]
            for block in shown["blocks"]
            for element in [*(block.get("elements") or []), block.get("accessory") or {}]
            if str(element.get("action_id")).startswith(ids.UNDO)
        }
        await undo(env["anna"], SOC, shown["ts"], action_id=press)
        await card("released · dc-fw, edge-fw still have it")
        await read("dc-fw")
        await card("released · edge-fw still has it")
        await read("edge-fw")
        await card("undone", but="still has it")
