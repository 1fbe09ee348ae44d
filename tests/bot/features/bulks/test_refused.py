"""What core refused of several runs has a name, like all else that became of them."""

from pathlib import Path

from core.client import CoreClient
from core.settings import ProtectSection
from tests.bot.features.bulks.bulk import alerts, shown, start
from tests.bot.features.bulks.test_ask_again import HOSTS, ask, hosts, on_first
from tests.bot.features.environment import feature_environment
from tests.bot.outbox.harness import all_sent
from tests.bot.people import direct_message, message_in, modal, on_phone, text_of, updated
from tests.bot.running import SOC


async def test_channel_phone_and_lists_name_what_was_refused_and_why_as_long_as_it_may_be_seen(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, HOSTS) as env, CoreClient(env.core.url, env.service_key) as bot:
        for person in env.people.values():
            await person.connect()
        waits, asked_for = await hosts(env, "WS-1"), [await hosts(env, name) for name in ("WS-2", "WS-3")]
        other = await bot.as_user("ben").run({"responderId": "Isolate_1_0", **on_first(waits)})
        named = [{key: one for key, one in on_first(alert).items() if key != "target"} for alert in (waits, *asked_for)]
        asked = await ask(env, "anna", [], targets=named)
        refused, why = "🚫 Refused: hostname WS-1.", f"it was asked for already, by ben ({other.id})"
        message = await env["anna"].sees(message_in(SOC, "2 wait for approval, 1 refused", refused, why))
        await env["lea"].sees(direct_message("2 wait for approval, 1 refused", refused, why))
        await env["anna"].command(SOC, "/responder mine")
        listed = text_of(await env["anna"].sees(modal("2 wait for approval, 1 refused")))
        assert "hostname WS-2, WS-3\\n" in listed  # not "and 1 more"
        await bot.as_user("lea").deny_bulk(asked.id, message="known tool")
        told = await env["anna"].sees(direct_message("nothing was run, 2 denied, 1 refused", refused, why))
        push = await env["anna"].sees(on_phone("2 denied, 1 refused"))
        assert push.startswith('Denied by lea, not run: Isolate on hostname WS-2, WS-3 · "known tool". In all')
        assert f"Refused: hostname WS-1 · {why}." in push
        await env["anna"].sees(updated(message, "2 denied, 1 refused", refused))

        await env.client.request("PATCH", f"/api/alert/{waits.id}", {"tlp": 3})  # nobody may read it any more
        for shown in (message, told):
            hidden = text_of(await env["anna"].sees(updated(shown, "2 denied, 1 refused", without="WS-1")))
            assert "Refused: " not in hidden
        await env.client.request("PATCH", f"/api/alert/{waits.id}", {"tlp": 2})
        await env["anna"].sees(updated(message, refused))
        await all_sent(env.bot)


async def test_what_is_in_force_and_withheld_is_counted_below_what_is_named(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, HOSTS) as env:
        asked = await ask(env, "lea", [await hosts(env, "WS-1"), await hosts(env, "WS-2", tlp=3)])
        await env["lea"].sees(message_in(SOC, "2 wait for approval", without="withheld"))
        await env.client.approve_bulk(asked.id)
        named = "🔒 In force until <!date^"
        await env["anna"].sees(message_in(SOC, named, ": hostname WS-1.\\n🔒 1 in force: details withheld."))


async def test_what_is_protected_is_refused_once_by_its_name_for_all_that_have_it(tmp_path: Path) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "target": "ip"}}
    async with feature_environment(tmp_path, rules, protect=ProtectSection(artifacts=["203.0.113.9"])) as env:
        ids = await alerts(env, 2, artifacts=[{"dataType": "ip", "data": "203.0.113.9"}]) + await alerts(env, 1)
        await start(env, "anna", "shun", ids)
        why = "203[.]0[.]113[.]9 is protected; an administrator may override it, with a reason and another"
        message = await shown(env, "2 refused, 1 in force with no end")
        assert f"🚫 Refused: ip 203[.]0[.]113[.]9.\\n>Shun can't run: {why}" in text_of(message)
        await env["anna"].presses("Show each", message)
        each = text_of(await env["anna"].sees(modal("refused <!date^")))
        assert each.count(f"Shun can't run: {why} administrator's approval.") == 2


async def test_of_two_refused_targets_that_are_cut_to_the_same_text_each_is_listed(tmp_path: Path) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "target": "url"}}
    async with feature_environment(tmp_path, rules, protect=ProtectSection(artifacts=["evil.example"])) as env:
        start_of = f"http://evil.example/{'a' * 600}"
        urls = [f"{start_of}b", f"{start_of}c", "http://example.org/a"]
        of_each = [(url[-8:], [{"dataType": "url", "data": url}]) for url in urls]
        asked = [(await env.create_alert(sourceRef=name, artifacts=artifacts)).id for name, artifacts in of_each]
        await start(env, "anna", "shun", asked)
        refused = text_of(await shown(env, "2 refused, 1 in force with no end")).partition("Refused: ")[2]
        assert refused.count("url hxxp[://]evil[.]example/aaa") == 2


async def test_show_each_says_of_what_was_withdrawn_that_another_run_still_contains_it(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, HOSTS) as env, CoreClient(env.core.url, env.service_key) as bot:
        first, second = await hosts(env, "WS-1"), await hosts(env, "WS-2")
        other = await bot.as_user("ben").run({"responderId": "Isolate_1_0", **on_first(first)})
        await bot.as_user("lea").approve(other.id)
        while (other := await bot.action(other.id, wait_s=10)).end_date is None:
            pass
        asked = await ask(env, "anna", [first, second])
        message = await env["anna"].sees(message_in(SOC, "2 wait for approval"))
        for entry in asked.actions:
            await bot.as_user("anna").cancel(entry.action.id if entry.action else "")
        await env["anna"].sees(updated(message, "nothing was run, 2 withdrawn"))
        await env["anna"].presses("Show each", message)
        each = text_of(await env["anna"].sees(modal("withdrawn")))
        contained = "; still contained until <!date^"
        assert contained in each.partition("`WS-1`")[2].partition("•")[0]
        assert (each.count("still contained"), f" by ben, for {first.id}" in each) == (1, True)
