"""What failed, expired or was refused of several runs is asked for again, in the form that asks for any."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from bot.block_kit import ids
from core.client import CoreClient
from core.models import Alert, BulkAnswer
from tests.bot.features.bulks.bulk import alerts, reviewed, shown, start
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.outbox.harness import all_sent
from tests.bot.people import (
    card_of,
    direct_message,
    filled_in,
    modal,
    on_phone,
    options_of,
    text_of,
    updated,
    within_limits,
)
from tests.bot.running import OPEN

HOSTS = {"Isolate": {"target": "hostname", "undo": "Tell_1_0", "undo_after_minutes": 60}}


async def hosts(env: FeatureEnvironment, *names: str, **more: Any) -> Alert:
    """An alert with these hosts."""
    artifacts = [{"dataType": "hostname", "data": name, "message": f"Seat of {name.lower()}"} for name in names]
    return await env.create_alert(sourceRef=names[0], title="Odd tool", artifacts=artifacts, **more)


def on_first(alert: Alert) -> dict[str, Any]:
    return {"objectType": "alert", "objectId": alert.id, "target": [alert.artifacts[0].id]}


async def ask(env: FeatureEnvironment, name: str, alerts: list[Alert], **more: Any) -> BulkAnswer:
    """For the first host of each."""
    body = {"responderId": "Isolate_1_0", "targets": [*map(on_first, alerts)], "onlyIfIdle": True, **more}
    async with CoreClient(env.core.url, env.service_key) as bot:
        return await bot.as_user(name).run_bulk(body)


async def test_what_another_request_refused_is_asked_for_again_as_things_are_now(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, HOSTS) as env, CoreClient(env.core.url, env.service_key) as bot:
        first, second = await hosts(env, "WS-1", "WS-9"), await hosts(env, "WS-2")
        alone = {"responderId": "Isolate_1_0", **on_first(first)}
        await bot.as_user("lea").deny((await bot.as_user("ben").run(alone)).id, "not a threat")
        other = await bot.as_user("ben").run(alone)
        asked = await ask(env, "anna", [first, second], note="beacons", undoAfterMinutes=15)
        await bot.as_user("lea").deny_bulk(asked.id, message="known tool")
        message = await env["anna"].sees(direct_message("nothing was run, 1 denied, 1 refused"))

        await env["anna"].presses("Ask again", message)
        refused = await env["anna"].sees(modal("*Isolate* on *1 target*, after 1 approval; *1 will be refused*"))
        row = text_of(refused).partition("Will be refused on 1 target")[2]
        assert "hostname `WS-1` · Seat of ws-1, for HIGH Odd tool (" in row
        assert "already waiting for approval since" in row
        await env["anna"].close(refused["id"])

        await bot.as_user("lea").approve(other.id)
        await env["anna"].presses("Show each", message)
        each = text_of(await env["anna"].sees(modal("Isolate (2)", "denied by lea: known tool")))
        was = rf" \({first.id}\) · refused <!date\^[^>]*>: it was asked for already, by ben \({other.id}\)"
        assert re.search(was, each)
        assert not [advice for advice in ("already waiting", "wait for", "cancel") if advice in each]  # which is over
        while (other := await bot.action(other.id, wait_s=10)).end_date is None:
            pass
        await env["anna"].presses("Ask again", message)
        form = await env["anna"].sees(modal("*Isolate* on *2 targets*", "hostname `WS-1` · Seat of ws-1"))
        before = [
            rf'🚫 Refused: hostname WS-1 · "it was asked for already, by ben \({other.id}\)"',
        ]
        assert re.fullmatch("\n".join(before), form["blocks"][1]["elements"][0]["text"])
        assert "🚫 *Denied before by lea, <!date^" in text_of(form)
        assert "not a threat" not in text_of(form)  # she approved the same since
        assert "contained already until <!date^" in text_of(form)
        assert not [word for word in ("already waiting", "refused", "WS-9") if word in text_of(form)]
        assert (form["title"]["text"], form["submit"]["text"]) == ("Isolate", "Ask for the ticked")
        ticks = options_of(form, "ask_again")
        assert filled_in(form) == {"ask_again": [], "undo_after": "15 minutes", "note": "beacons"}
        await env["anna"].submits(form, ask_again=ticks)
        await env["anna"].sees(modal("Asked", "*Isolate* on hostname WS-1, WS-2 for 15 minutes waits for approval"))
        again = (await bot.bulk(asked.id)).retried_by
        assert again is not None
        await env["anna"].sees(updated(message, without=ids.BULK_RETRY))
        (run,) = [one for one in await env.client.actions("alert", first.id) if one.status == "Waiting"]
        assert run.undo is not None
        assert ([one.data for one in run.target or ()], run.undo.after_minutes, run.note) == (["ws-1"], 15, "beacons")
        assert len(await env.client.actions("alert", second.id)) == 2

        for of in (asked.id, again):
            await env["anna"].command(OPEN, f"/responder audit {of}")
            audit = text_of(await env["anna"].sees(modal(f"*Audit of {of}: Isolate on ")))
            what = rf"\*anna\* asked again for what {asked.id} had not done: Isolate on WS-[12], WS-[12] \({again}\)"
            assert re.search(what, audit)


async def test_what_was_undone_denied_or_withdrawn_is_asked_for_again_and_not_what_is_in_force(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, HOSTS) as env, CoreClient(env.core.url, env.service_key) as bot:
        alerts = [await hosts(env, f"WS-{number}") for number in range(4)]
        bare = await env.create_alert(sourceRef="bare", title="No host")
        targets = [*map(on_first, alerts), {"objectType": "alert", "objectId": bare.id}]
        asked = await ask(env, "anna", [], targets=targets, note="beacons", undoAfterMinutes=15)
        runs = [entry.action.id for entry in asked.actions if entry.action]
        await bot.as_user("ben").approve_bulk(asked.id, runs[:2])
        await bot.as_user("lea").deny(runs[2], "wrong <host>")
        await bot.as_user("anna").cancel(runs[3])
        told = await env["anna"].sees(direct_message("1 withdrawn, 1 denied, 1 refused, 2 in force", ids.BULK_RETRY))
        await bot.as_user("lea").undo(runs[1])
        await env.client.close_alerts([alerts[2].id])
        undone = "Undone by lea: Isolate on hostname WS-1 · HIGH."
        await env["anna"].sees(updated(told, "1 undone by lea, see below.", without=ids.BULK_RETRY))
        told = await env["anna"].sees(direct_message(undone, ids.BULK_RETRY))
        assert ids.BULK_RETRY not in text_of(await env["ben"].sees(direct_message(undone)))

        await env["anna"].presses("Show each", told)
        await env["anna"].presses("Ask again", await env["anna"].sees(modal("Isolate (5)", "undone by lea")))
        form = await env["anna"].sees(modal("*Isolate* on *3 targets*", without="ill be refused"))
        before = [
            r"➖ Withdrawn by anna, <!date\^[^>]*>: hostname WS-3",
            r"🔒 Approved by ben, in force until <!date\^[^>]*>, not asked again: hostname WS-0",
            rf'🚫 Refused, not asked again: .* \({bare.id}\) · ".*names no host.*"',
        ]
        lines = form["blocks"][1]["elements"][0]["text"].splitlines()
        assert len(lines) == len(before)
        assert all(any(re.fullmatch(one, line) for line in lines) for one in before), lines
        assert "hostname `WS-0`" not in text_of(form)
        assert text_of(form).count("wrong &lt;host&gt;") == 1  # in its row
        ticks = options_of(form, "ask_again")
        assert [one.split(" · ")[0] for one in ticks] == ["hostname WS-1", "hostname WS-2", "hostname WS-3"]
        of_none = (
            " · none of 3 ticked for you\\n⚠️ *2 of 3 are closed by now*: left for you to tick\\n🚫 *1 denied before*"
        )
        assert f"{of_none} · 🔓 *1 undone before* · ➖ *1 withdrawn before*: left for you to tick" in text_of(form)
        assert (text_of(form).count("➖ withdrawn before"), form["title"]["text"]) == (1, "Isolate")
        assert filled_in(form) == {"ask_again": [], "undo_after": "15 minutes", "note": "beacons"}
        assert "errors" in await env["anna"].submits(form, ask_again=[])
        other = await bot.as_user("ben").run({"responderId": "Isolate_1_0", **on_first(alerts[2])})
        await env["anna"].submits(form, ask_again=[ticks[0], ticks[2]])
        left_out = f"\\nLeft out, as not chosen: HIGH Odd tool ({alerts[2].id})."
        await env["anna"].sees(
            modal("Asked", "*Isolate* on hostname WS-1, WS-3 for 15 minutes waits", left_out, without="efused")
        )
        await env["anna"].sees(updated(told, without=ids.BULK_RETRY))
        await env["anna"].sees(direct_message(undone, without=ids.BULK_RETRY))
        waiting = [
            [run for run in await env.client.actions("alert", one.id) if run.status == "Waiting"] for one in alerts
        ]
        assert [[run.created_by for run in runs] for runs in waiting] == [
            [],
            ["anna@responder-bot.local"],
            ["ben@responder-bot.local"],
            ["anna@responder-bot.local"],
        ]
        assert waiting[2][0].id == other.id
        again = (await bot.bulk(asked.id)).retried_by
        assert again is not None
        await env["ben"].sees(on_phone(" 1 undone before"))


async def test_a_denied_host_of_several_alerts_is_asked_for_again_for_all_of_them(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, HOSTS) as env, CoreClient(env.core.url, env.service_key) as bot:
        alerts = [await hosts(env, name, source=source) for name in ("WS-1", "WS-2") for source in ("edr", "siem")]
        asked = await ask(env, "anna", alerts)
        denied, _, other, _ = [entry.action for entry in asked.actions]
        assert denied is not None
        assert other is not None
        await bot.as_user("ben").approve_bulk(asked.id, [other.id])
        await bot.as_user("lea").deny(denied.id, "known tool")
        message = await env["anna"].sees(direct_message("1 denied, 1 in force", ids.BULK_RETRY))
        assert "Refused" not in text_of(message)
        await env["anna"].presses("Ask again", message)
        form = await env["anna"].sees(modal("*Isolate* on *1 target in 2 alerts*", f"also for {alerts[1].id}"))
        assert "Refused" not in text_of(form)
        await env["anna"].submits(form)
        await env["anna"].sees(modal("Asked", "*Isolate* on hostname WS-1 for 1 hour waits for approval"))
        (again,) = [run for run in await env.client.actions("alert", alerts[0].id) if run.status == "Waiting"]
        assert again.also_for == [alerts[1].id]


async def test_the_card_of_an_alert_says_what_a_run_on_another_has_in_force_for_it(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, HOSTS) as env, CoreClient(env.core.url, env.service_key) as bot:

        async def alert(tlp: int, name: str, tlp_of_host: int = 0) -> Alert:
            host = {"dataType": "hostname", "data": name, "tlp": tlp_of_host}
            return await env.create_alert(sourceRef=f"{tlp} {name} {tlp_of_host}", tlp=tlp, artifacts=[host])

        first, covered = await alert(2, "WS-1"), await alert(0, "WS-1")
        shared, hides_host = await alert(0, "WS-2"), await alert(0, "WS-2", 2)
        asked = await ask(env, "anna", [first, covered, shared, hides_host])
        await env["anna"].sees(card_of(hides_host, channel=OPEN))
        await bot.as_user("ben").approve_bulk(asked.id)
        held = re.compile(rf"🔒 `WS-1` is contained already until <!date[^>]*> by anna, for {first.id}\.")
        of_first, of_shared = [f"by anna, for {one.id}." for one in (first, shared)]
        card = await env["anna"].sees(card_of(covered, of_first))
        assert held.search(text_of(card))
        await env["anna"].sees(card_of(hides_host, of_shared))
        await env.client.request("PATCH", f"/api/alert/{first.id}", {"tlp": 3})
        await env["anna"].sees(updated(card, without=of_first))
        await env.client.request("PATCH", f"/api/alert/{first.id}", {"tlp": 2})
        await env["anna"].sees(updated(card, of_first))
        await bot.as_user("lea").undo(next(one.action.id for one in asked.actions if one.action))
        await env["anna"].sees(updated(card, without=of_first))
        await all_sent(env.bot)
        in_open = [str(body) for *_, body, _ in env.emulator.traffic if body.get("channel") == OPEN]
        assert not [body for body in in_open if of_first in body or of_shared in body]


async def test_what_is_being_undone_is_counted_so_and_not_asked_for_again(tmp_path: Path) -> None:
    rules: dict[str, dict[str, Any]] = {**HOSTS, "Tell": {"approval": 1}}
    async with feature_environment(tmp_path, rules) as env, CoreClient(env.core.url, env.service_key) as bot:
        alerts = [await hosts(env, f"WS-{number}") for number in range(2)]
        asked = await ask(env, "anna", alerts)
        message = await shown(env, "2 wait for approval")
        await bot.as_user("ben").approve_bulk(asked.id)
        await env["anna"].sees(updated(message, "*Isolate* on 2 targets: 2 in force until"))
        undo = await bot.as_user("lea").undo(next(one.action.id for one in asked.actions if one.action))
        assert undo.status == "Waiting"
        waits = await env["anna"].sees(updated(message, "on 2 targets: 1 in force until ", ", 1 being undone"))
        assert ids.BULK_RETRY not in text_of(waits)


async def test_of_two_people_who_ask_again_at_once_one_does(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 3)
        await start(env, "anna", "fail", alert_ids)
        message = await shown(env, "0 of 3 succeeded, 3 failed")
        forms = dict[str, dict[str, Any]]()
        for name in ("anna", "lea"):
            await env[name].presses("Run again", message)
            forms[name] = await env[name].sees(modal("*Fail* on *3 targets*", "Each is checked"))
        await asyncio.gather(*(env[name].submits(form) for name, form in forms.items()))
        words = "Started *Fail* on ", "This was asked for again already, as ~"
        told = [await env[name].sees(lambda view: modal(words[0])(view) or modal(words[1])(view)) for name in forms]
        assert sorted(word in text_of(view) for view in told for word in words) == [False, False, True, True]
        assert [len(await env.client.actions("alert", one)) for one in alert_ids] == [2, 2, 2]
        await env["lea"].sees(updated(message, "Asked for again as ~", without=ids.BULK_RETRY))


async def test_what_one_may_not_see_any_more_is_left_out_and_the_rest_gets_the_inputs_that_are_shown(
    tmp_path: Path,
) -> None:
    async with feature_environment(tmp_path) as env, CoreClient(env.core.url, env.service_key) as bot:
        alert_ids = await alerts(env, 4)
        given = {"reason": "beacons", "list": "outbound", "minutes": 15, "tell": ["owner"]}
        body = {"responderId": "Vendor_Drop_1_0", "parameters": given, "note": "as in ~1", "onlyIfIdle": True}
        targets = [{"objectType": "alert", "objectId": one} for one in (*alert_ids, "~998")]
        await bot.as_user("anna").run_bulk({**body, "targets": targets})
        message = await env["anna"].sees(direct_message("4 failed, 1 refused"))
        await env.client.request("PATCH", f"/api/alert/{alert_ids[0]}", {"tlp": 3, "title": "Raised to red"})
        await env.client.request("POST", f"/api/alert/{alert_ids[1]}/markAsRead")
        await env["anna"].presses("Run again", message)
        form = await env["anna"].sees(modal("*Drop traffic* on *3 targets*", "\\nLeft out: 2 that you may not see."))
        assert not [word for word in ("Raised to red", f"({alert_ids[0]})") if word in text_of(form)]
        assert all(f" ({one})" in text_of(form) for one in alert_ids[1:])
        held = filled_in(form)
        assert (held["reason"], held["minutes"], held["list"], held["tell"]) == ("beacons", "15", "outbound", ["owner"])
        assert held["note"] == "as in ~1"
        await env["anna"].submits(form, reason="still beacons")
        await env["anna"].sees(modal("Started *Drop traffic* on "))
        assert [len(await env.client.actions("alert", one)) for one in alert_ids] == [
            1,
            1,
            2,
            2,
        ]  # the second is closed
        newest = (await env.client.actions("alert", alert_ids[3]))[0]
        assert json.loads(newest.parameters or "") == {**given, "reason": "still beacons", "everywhere": True}


async def test_of_fifty_each_is_named_and_acted_on_as_before(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Fail": {"target": "hostname"}}) as env:
        found = [await hosts(env, f"WS-{number}", f"other-{number}") for number in range(50)]
        await ask(env, "anna", found, responderId="Fail_1_0")
        message = await env["anna"].sees(direct_message("and 47 more"))
        await env["anna"].presses("Run again", message)
        form = within_limits(await env["anna"].sees(modal("*Fail* on *50 targets*")))
        assert all(f"hostname `{one.artifacts[0].data}` · " in text_of(form) for one in found)
        assert "other-" not in text_of(form)
        await env["anna"].submits(form)
        await env["anna"].sees(modal("Started *Fail* on hostname WS-0, ", ", WS-9 and 40 more."))
        for alert in found:
            on = [[one.data for one in run.target or ()] for run in await env.client.actions("alert", alert.id)]
            assert on == [[(alert.artifacts[0].data or "").lower()]] * 2


async def test_of_several_hosts_those_that_failed_are_asked_for_and_where_none_was_named_one_chooses(
    tmp_path: Path,
) -> None:
    async with feature_environment(tmp_path, {"Fail": {"target": "hostname"}}) as env:
        twice, unnamed = await hosts(env, "WS-1", "WS-2", "WS-3"), await hosts(env, "WS-4", "WS-5")
        first = {"objectType": "alert", "objectId": twice.id}
        targets = [{**first, "target": [host.id]} for host in twice.artifacts[:2]]
        targets.append({"objectType": "alert", "objectId": unnamed.id})
        await ask(env, "anna", [], targets=targets, responderId="Fail_1_0", onlyIfIdle=False)
        message = await env["anna"].sees(direct_message("2 failed, 1 refused"))
        await env["anna"].presses("Run again", message)
        on = f"*Fail* on *2 targets in 1 alert, and those that you choose of {unnamed.id}*"
        form = await env["anna"].sees(modal(on, "What should it act on?"))
        rows = [f"• 🟠 hostname `WS-{n}` · Seat of ws-{n}, for HIGH Odd tool ({twice.id})" for n in (1, 2)]
        assert "\\n".join(["*Runs on 2 targets*", *rows]) in text_of(form)
        assert f"*And on what you choose below of*\\n• 🟠 HIGH Odd tool ({unnamed.id})" in text_of(form)
        assert "WS-3" not in text_of(form)
        await env["anna"].submits(form, target=[unnamed.artifacts[1].id])
        await env["anna"].sees(modal("Started *Fail* on "))
        runs = [run for one in (twice, unnamed) for run in await env.client.actions("alert", one.id)]
        assert [[one.data for one in run.target or ()] for run in runs] == [[f"ws-{n}"] for n in (2, 1, 2, 1, 5)]


async def test_inputs_that_nobody_declared_are_asked_for_again_but_not_without_their_secret(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        for given, words in (({"ticket": "T-1"}, '{\\"ticket'), ({"password": "x"}, "its inputs had a secret")):
            targets = [{"objectType": "alert", "objectId": one} for one in await alerts(env, 2, source=words[-6:])]
            await ask(env, "anna", [], targets=targets, responderId="Fail_1_0", parameters=given)
            message = await env["anna"].sees(direct_message("Failed: Fail on", f"{targets[1]['objectId']} ("))
            await env["anna"].presses("Run again", message)
            form = await env["anna"].sees(modal("Fail", words))
            await env["anna"].close(form["id"])


async def test_a_run_on_several_hosts_of_a_bulk_is_named_whole_and_asked_for_again_on_each(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, HOSTS) as env, CoreClient(env.core.url, env.service_key) as bot:
        two, one = await hosts(env, "WS-1", "WS-2"), await hosts(env, "WS-3")
        both = {**on_first(two), "target": [host.id for host in two.artifacts]}  # as the form asked before
        asked = await ask(env, "anna", [], targets=[both, on_first(one)])
        review = await reviewed(env, "lea", await shown(env, "2 wait for approval"), "Decide only on the ticked")
        assert filled_in(review)["decide"] == ["hostname WS-1, hostname WS-2", "hostname WS-3 · Odd tool"]
        assert f'"🟠 HIGH · Odd tool ({two.id})"' in text_of(review)  # not what the alert says of one of them
        assert "hostname `WS-1` · Seat of ws-1, hostname `WS-2` · Seat of ws-2, for HIGH Odd tool" in text_of(review)
        await env["lea"].close(review["id"])
        await bot.as_user("lea").deny_bulk(asked.id)
        message = await env["anna"].sees(
            direct_message("Denied by lea, not run: Isolate on hostname WS-1, hostname WS-2, hostname WS-3")
        )
        await env["anna"].presses("Ask again", message)
        form = await env["anna"].sees(modal("*Isolate* on *3 targets in 2 alerts*"))
        assert all(f"• 🟠 hostname `WS-{n}` · Seat of ws-{n}, for HIGH" in text_of(form) for n in (1, 2, 3))
        await env["anna"].submits(form, ask_again=options_of(form, "ask_again"))
        await shown(env, "3 wait for approval")
