"""A command names a host where it wants an id: the alert that has it is offered, or those among which to choose."""

import re
from pathlib import Path
from typing import Any

from core.models import Alert
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.people import modal, text_of
from tests.bot.running import SOC

HOST = {"dataType": "hostname", "data": "SRV-07"}
RULES = {"Isolate": {"target": "hostname"}, "Fail": {"target": "hostname"}}


async def with_host(env: FeatureEnvironment, host: str, ref: str, **more: Any) -> Alert:
    artifacts = [{"dataType": "hostname", "data": host}, {"dataType": "hostname", "data": "SRV-07"}]
    return await env.create_alert(**{"sourceRef": ref, "artifacts": artifacts, "description": "-", **more})


async def reads(env: FeatureEnvironment, typed: str, words: str, who: str = "anna") -> str:
    await env[who].command(SOC, f"/responder {typed}")
    return text_of(await env[who].reads(words))


async def test_the_only_open_alert_with_a_host_is_offered_and_nothing_runs_unasked(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert = await with_host(env, "LT-0900", "one")
        await env.client.close_alerts([(await with_host(env, "LT-0900", "closed")).id], "Over")
        await env["anna"].command(SOC, "/responder run isolat LT-0900")
        form = await env["anna"].sees(modal("*Isolate on "))
        assert f"· {alert.id}" in text_of(form)
        assert "hostname `LT-0900`" in text_of(form)
        assert "SRV-07" not in text_of(form)
        await env["anna"].command(SOC, "/responder run Fail LT-0900")  # typed with the id, it runs at once
        question = await env["anna"].sees(modal("Fail", f"{alert.id}", without="Isolate"))
        assert await env.client.actions("alert", alert.id) == []
        await env["anna"].presses("Fail", question)
        assert (await env.ended_run(alert)).responder_name == "Fail_1_0"
        await env["anna"].command(SOC, "/responder run isolate on LT-0900")
        await env["anna"].close((await env["anna"].sees(modal("*Isolate on hostname `LT-0900`")))["id"])
        told = await reads(env, "run isolate LT-0900 LT-7", "Nothing was run: `LT-0900` is in")
        assert f"in {alert.id}; no open alert that you may see contains `LT-7`. Type `/responder run iso" in told
        for both in ("LT-0900, SRV-07", "lt-0900,srv-07", "LT-0900 and SRV-07"):
            await env["anna"].command(SOC, f"/responder run isolate {both}")
            shown = modal("*Isolate* on *2 targets in 1 alert*", "hostname `LT-0900`", "hostname `SRV-07`")
            form = await env["anna"].sees(shown)
            await env["anna"].close(form["id"])
        await reads(env, "alert LT-0900", f"Alert {alert.id}")
        await reads(env, "list LT-0900 isloate", f"Did you mean `/responder list Isolate {alert.id}`?")
        await reads(env, "run LT-0900", "Type `/responder run NAME ")
        assert alert.id in await reads(env, "run Tell LT-0900", "Starts at once, without approval")
        await reads(env, "actions lt-0900", f"What ran on {alert.id}")
        await reads(env, "audit LT-0900", f"*Audit of {alert.id}")
        told = await reads(env, "assign LT-0900", "Nothing was changed: press the button above.")
        assert "🟠 *HIGH*" in told
        assert (await env.client.alert(alert.id)).assignee is None


async def test_several_alerts_are_named_and_the_command_is_spelt_right(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alerts = [await with_host(env, "LT-0900", str(n), title=f"Beacon {n} <!here>") for n in range(7)]
        told = await reads(env, "run isloate LT-0900", "Type `/responder run Isolate ~id`.")
        assert "*7 alerts* with `LT-0900`" in told
        assert all(f"{alert.id} · " in told for alert in alerts)
        assert "&lt;!here&gt;" in told
        await reads(env, "case LT-0900 Malware", "Type `/responder case Malware ~id`.")
        listed = await env["anna"].sees(modal("Type `/responder case Malware ~id`."))
        await env["anna"].presses("Details", listed, beside=alerts[6].id)
        await env["anna"].sees(modal(f"Alert {alerts[6].id}"))


async def test_hosts_of_one_open_alert_each_are_asked_about_together(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        first, second = await with_host(env, "LT-0303", "one"), await with_host(env, "WS-0404", "two")
        for typed in ("LT-0303 WS-0404", "on lt-0303, WS-0404 note=both", "LT-0303 and WS-0404"):
            await env["anna"].command(SOC, f"/responder run isolate {typed}")
            form = await env["anna"].sees(modal("*Isolate* on *2 targets*", "`LT-0303`", "`WS-0404`", without="SRV-07"))
            assert {first.id, second.id} <= {*re.findall("~[0-9]+", text_of(form))}
            await env["anna"].close(form["id"])
        await env["anna"].command(SOC, "/responder run Tell LT-0303 WS-0404")
        await env["anna"].sees(modal("*Tell* on *2 targets*"))
        named = await env.create_alert(sourceRef="named", title="LT-0505 left", artifacts=[HOST], description="-")
        await reads(
            env,
            "run Isolate LT-0303 LT-0505",
            f"On {first.id}, {named.id} Isolate can act on hostname `LT-0303`, ",
        )
        for typed in ("LT-0303 WS-0404", "LT-0303 and WS-0404"):
            told = await reads(env, f"run Isolate {first.id} {typed}", "WS-0404'. Nothing was run.")
            works = f"/responder run Isolate {first.id} {typed} {second.id}"
            assert f"{second.id} has it: type `{works}`." in told
            await env["anna"].command(SOC, works)
            form = await env["anna"].sees(modal("*Isolate* on *2 targets*", "`LT-0303`", "`WS-0404`", without="SRV-07"))
            await env["anna"].close(form["id"])
        host = {"dataType": "hostname", "data": "LT-0606"}
        other = await env.create_alert(sourceRef="other", description="-", artifacts=[host])
        told = await reads(env, f"run Isolate {other.id} WS-0404", "WS-0404'. Nothing was run.")
        assert f"{second.id} has it: type `/responder run Isolate WS-0404 {second.id}`." in told
        third = await with_host(env, "LT-0303", "three")
        told = await reads(env, "run Isolate LT-0303 WS-0404", "Nothing was run: `LT-0303` is in ")
        works = f"/responder run Isolate {third.id} {second.id} LT-0303 WS-0404"
        assert f"is in {third.id}, {first.id}; `WS-0404` is in {second.id}. Type `{works}`." in told
        await env["anna"].command(SOC, works)
        form = await env["anna"].sees(modal("*Isolate* on *2 targets*", "`LT-0303`", "`WS-0404`", without="SRV-07"))
        await env["anna"].close(form["id"])
        for alert in (first, second, third, named):
            assert await env.client.actions("alert", alert.id) == []


async def test_what_a_refusal_advises_to_type_is_not_refused_again(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        address = {"dataType": "ip", "data": "192.0.2.45"}
        first = await env.create_alert(artifacts=[{"dataType": "hostname", "data": "LT-0198"}, address])
        await env.create_alert(sourceRef="elsewhere", artifacts=[{**address, "data": "192.0.2.46"}])
        second = await with_host(env, "WS-0404", "two")
        for typed, has_advice in (
            (f"{first.id} LT-0198 192.0.2.45", False),
            (f"LT-0198 192.0.2.45 {first.id}", False),
            (f"{first.id} {second.id} LT-0198, 192.0.2.45", False),
            (f"{first.id} LT-0198 192.0.2.46", False),
            (f"{first.id} 192.0.2.46", False),
            (f"{first.id} target=192.0.2.46", False),
            (f"{first.id} LT-0198 WS-0404", True),
        ):
            told = await reads(env, f"run Isolate {typed}", "Nothing was run.")
            advised = re.findall("type `(/responder run [^`]*)`", told)
            assert bool(advised) is has_advice, typed
            for command in advised:
                await env["anna"].command(SOC, command)
                await env["anna"].close((await env["anna"].sees(modal("*Isolate* on *2 targets*")))["id"])


async def test_what_one_may_not_see_or_is_closed_is_not_offered(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        await with_host(env, "LT-0412", "red", tlp=3)
        secret = [{"dataType": "hostname", "data": "LT-0412", "tlp": 3}]
        await env.create_alert(sourceRef="part", title="LT-0412 beacons", description="-", artifacts=secret)
        for verb in ("run Isolate", "list", "audit", "alert", "actions", "assign"):
            none = "Nothing was run: no open alert" if verb.startswith("run") else "No alert"
            told = await reads(env, f"{verb} LT-0412", f"{none} that you may see contains `LT-0412`.")
            assert "Try a part of it with `/responder find`." in told
            assert "~" not in told
        other = await with_host(env, "LT-0499", "other")
        for word in ("LT-0412", "beacons"):  # which only the title of another says
            told = await reads(env, f"run Isolate {other.id} LT-0499 {word}", f"but not on '{word}'. Nothing was run.")
            assert "has it" not in told
        for typed in ("<!here>@", "https://evil.example/*x*", "a@" + "x" * 3000, "`_@_`"):
            told = await reads(
                env, f"run Isolate {typed}", "Nothing was run: no open alert that you may see contains `"
            )
            assert "<!here>" not in told
        closed = await with_host(env, "LT-0500", "closed")
        await env.client.close_alerts([closed.id], "Over")
        told = await reads(env, "run Isolate LT-0500", "Type `/responder run Isolate ~id`.")
        assert f"{closed.id} · suricata · closed" in told
        assert await env.client.actions("alert", closed.id) == []
