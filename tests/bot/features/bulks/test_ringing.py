"""What phones and channels show of a bulk from the question to its end."""

from pathlib import Path

from core.client import CoreClient
from core.models import BulkInput, RunTarget
from tests.bot.features.approvals.asking import asking, isolate
from tests.bot.people import direct_message, on_phone, text_of


async def test_a_push_says_who_contains_a_target_already_and_why_it_is_asked_for(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        first, second, other = [
            await env.create_alert(sourceRef=str(n), artifacts=[{"dataType": "ip", "data": f"203.0.113.{data}"}])
            for n, data in enumerate((1, 2, 2))
        ]
        held = await isolate(env, other)
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve(held.id)
            await env["anna"].sees(on_phone("ben approved"))
            one = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": second.id, "note": "It <beacons>."}
            single = await bot.as_user("lea").run(one)
            push = await env["ben"].sees(on_phone("lea"))
            of = f'ET MALWARE Beacon to known C2 ({second.id}), asked by lea · "It &lt;beacons&gt;."'
            asks = "HIGH: Isolate on ip 203[.]0[.]113[.]2 for 1 hour?"
            assert push == f"{asks} Contained already by anna. {of}"
            await bot.as_user("ben").deny(single.id, "It prints.")
            targets = [RunTarget(object_type="alert", object_id=one.id) for one in (first, second)]
            await bot.as_user("anna").run_bulk(
                BulkInput(responder_id="Isolate_1_0", targets=targets, note="Ransomware spreads")
            )
        on = "ip 203[.]0[.]113[.]1, ip 203[.]0[.]113[.]2"
        before = "Denied before by ben (ip 203[.]0[.]113[.]2). Contained already by anna (ip 203[.]0[.]113[.]2)."
        push = await env["lea"].sees(on_phone("Isolate on 2 targets"))
        assert push == f'HIGH: Isolate on 2 targets for 1 hour: {on}? {before} Asked by anna · "Ransomware spreads"'
        asked = await env["lea"].sees(direct_message("2 wait for approval"))
        assert text_of(asked).count("Ransomware spreads") == 2  # on the phone, and in the message
