"""Who is asked to approve, by direct message and in the thread, and who is when they don't answer."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bot.block_kit import ids
from bot.outbox.models import is_person
from bot.slack_emulator import EmulatorView
from core.client import CoreClient
from core.common.database import Transaction
from core.models import Alert
from core.settings import DutySection
from tests.bot.features.approvals.test_decisions import button, direct
from tests.bot.features.environment import FeatureEnvironment, feature_environment, text_of, within_limits
from tests.bot.running import OPEN, SOC, approve

STEPS = (("0m", "@oncall"), ("10m", "@leads"), ("25m", "channel"))


@asynccontextmanager
async def on_duty(
    tmp_path: Path, steps: Sequence[tuple[str, str]] = STEPS, *, rules: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[FeatureEnvironment]:
    """Anna is on call, Ben and Lea are leads."""
    duty = DutySection.model_validate({"steps": [{"after": after, "ask": ask} for after, ask in steps]})
    named = {name: {"duty": "leads", **more} for name, more in (rules or {"Isolate": {}}).items()}
    async with feature_environment(tmp_path, named, duty={"leads": duty}, **options) as env:
        for group, names in (("oncall", ("anna",)), ("leads", ("ben", "lea"))):
            for name in names:
                await env.core.core.people.add_member(group, name)
        yield env


async def isolate(env: FeatureEnvironment, alert: Alert) -> str:
    """Have somebody ask to isolate it; returns the run's id."""
    body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id}
    return (await env.client.run(body)).id


@asynccontextmanager
async def acting_as(env: FeatureEnvironment, name: str) -> AsyncIterator[CoreClient]:
    """The bot's client, on behalf of somebody."""
    async with CoreClient(env.core.url, env.service_key) as bot:
        yield bot.as_user(name)


async def remind_now(env: FeatureEnvironment) -> None:
    """Have half of the time be over."""
    database = env.core.core.database
    await database.transaction(lambda tx: tx.run("UPDATE duty SET due_at = 0, wait = 0 WHERE step = -1"))


def asked_directly(words: str = "asks to run") -> Any:
    def look(view: EmulatorView) -> dict[str, Any] | None:
        return next((m for m in direct(view) if words in text_of(m)), None)

    return look


def lines(view: EmulatorView, card: Mapping[str, Any], channel: str = SOC) -> list[str]:
    """What the thread says of the steps."""
    return [str(m["text"]) for m in view.thread(channel, card["ts"])[1:] if m["text"].startswith("🔔")]


def has_lines(card: Mapping[str, Any], number: int, channel: str = SOC) -> Any:
    def look(view: EmulatorView) -> list[str] | None:
        found = lines(view, card, channel)
        return found if len(found) == number else None

    return look


def sent_to(env: FeatureEnvironment, conversation: str) -> int:
    posts = [body for _, what, body, _ in env.emulator.traffic if what == "chat.postMessage"]
    return len([body for body in posts if body["channel"] == conversation])


async def test_one_is_asked_and_the_next_once_they_pass_it_on(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as env:
        alert = await env.create_alert()
        card = await env.card_of("ben", alert)
        await isolate(env, alert)
        request = within_limits(await env.until("anna", asked_directly()))
        assert "You were asked as `@oncall`, by the duty `leads`." in text_of(request)
        (first,) = await env.until("ben", has_lines(card, 1))
        assert first.startswith("🔔 Asked anna (`@oncall`) to decide. If nobody decides, next at <!date^")
        assert first.endswith(": `@leads`.")
        here = await env["anna"].dm(env.emulator.bot_user_id)
        await env["anna"].click(here, request["ts"], action_id=button(request, ids.NOT_ME))
        await env.told("anna", "Noted. Asked ben and lea (`@leads`) to decide.", here)
        told = [await env.until(name, asked_directly()) for name in ("ben", "lea")]
        assert "You were asked as `@leads`" in text_of(told[0])
        first, second = await env.until("ben", has_lines(card, 2))
        assert first == "🔔 Asked anna (`@oncall`) to decide. Not anna."
        assert second.startswith("🔔 Asked ben and lea (`@leads`) to decide. If nobody decides, next at <!date^")
        assert second.endswith(": this channel.")
        passed = await env.until("anna", asked_directly("You passed it on."))
        assert ids.NOT_ME not in text_of(passed)
        assert ids.APPROVE in text_of(passed)
        ben = await env["ben"].dm(env.emulator.bot_user_id)
        await approve(env["ben"], ben, told[0]["ts"], action_id=button(told[0], ids.APPROVE))
        assert (await env.ended_run(alert)).status == "Success"
        decided = await env.until("lea", asked_directly("Approved by ben."))
        assert ids.NOT_ME not in text_of(within_limits(decided))
        lea = await env["lea"].dm(env.emulator.bot_user_id)
        assert [sent_to(env, conversation) for conversation in (here, ben, lea)] == [1, 1, 1]


async def test_who_passes_it_on_to_the_channel_reads_where_the_others_are_asked(tmp_path: Path) -> None:
    async with on_duty(tmp_path, [("0m", "anna"), ("10m", "channel")]) as env:
        await isolate(env, await env.create_alert())
        request = await env.until("anna", asked_directly())
        here = await env["anna"].dm(env.emulator.bot_user_id)
        await env["anna"].click(here, request["ts"], action_id=button(request, ids.NOT_ME))
        await env.told("anna", "Noted. All others who could decide are asked in the thread.", here)


async def test_who_watches_approvals_as_well_gets_one_message(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as env:
        await env["anna"].command(SOC, "/responder watch approvals")
        await env.ephemeral("anna", "You watch approvals")
        alert = await env.create_alert()
        card = await env.card_of("ben", alert)
        await isolate(env, alert)
        await env.until("anna", asked_directly("You were asked as `@oncall`"))
        await env.until("ben", has_lines(card, 1))
        assert sent_to(env, await env["anna"].dm(env.emulator.bot_user_id)) == 1


async def test_the_channel_is_asked_by_who_may_approve_and_only_where_the_alert_is_shown(tmp_path: Path) -> None:
    async with on_duty(tmp_path, [("0m", "anna"), ("1s", "channel")]) as env:
        alert = await env.create_alert()
        card, elsewhere = await env.card_of("ben", alert), await env.card_of("ben", alert, OPEN)
        await isolate(env, alert)
        _, line = await env.until("ben", has_lines(card, 2))
        assert line == "🔔 <@U0BEN> <@U0LEA> Nobody has decided yet. Please do."
        for view in (env["ben"].live_view, env["lea"].live_view):
            assert [m for m in direct(view) if not m.get("ephemeral")] == []
        there = [m for m in env["ben"].live_view.thread(OPEN, elsewhere["ts"])[1:] if "U0" in text_of(m)]
        assert there == []


async def test_half_of_the_time_reminds_those_who_were_asked(tmp_path: Path) -> None:
    async with on_duty(tmp_path, [("0m", "@leads")]) as env:
        await env["anna"].command(SOC, "/responder watch approvals")
        await env.ephemeral("anna", "You watch approvals")
        alert = await env.create_alert()
        card = await env.card_of("ben", alert)
        run = await isolate(env, alert)
        request = await env.until("ben", asked_directly("You were asked as `@leads`"))
        here = await env["ben"].dm(env.emulator.bot_user_id)
        await env["ben"].click(here, request["ts"], action_id=button(request, ids.NOT_ME))
        await env.told("ben", "Noted. Nobody else will be asked, so tell somebody.", here)
        await remind_now(env)
        again = within_limits(await env.until("anna", asked_directly("Half of the time to decide is over.")))
        assert again["text"].startswith("⏰ Half of the time is over. Approve or deny: Isolate on HIGH")

        def reminded(view: EmulatorView) -> list[dict[str, Any]]:
            return [m for m in view.thread(SOC, card["ts"])[1:] if m["text"].startswith("⏰ Half of the time")]

        assert len(await env.until("ben", reminded)) == 1
        anna = await env["anna"].dm(env.emulator.bot_user_id)
        await approve(env["anna"], anna, again["ts"], action_id=button(again, ids.APPROVE))
        await env.ended_run(alert)
        await env.until("anna", asked_directly("Approved by anna."))
        lea = await env["lea"].dm(env.emulator.bot_user_id)
        # Ben has passed it on, and Lea was asked just before.
        assert [sent_to(env, conversation) for conversation in (anna, here, lea)] == [2, 1, 1]
        assert (await env.client.action(run)).outcome == "succeeded"


async def test_what_expired_was_not_denied_and_is_offered_again(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as env:
        alert = await env.create_alert()
        card = await env.card_of("anna", alert)
        await env["ben"].command(SOC, f"/responder run isolate {alert.id}")
        await env.until("anna", asked_directly("asks to run"))

        def expire(tx: Transaction) -> None:
            tx.run("UPDATE action SET approval_expires_at = 1")
            tx.run("DELETE FROM unaudited")  # nobody has decided this

        await env.core.core.database.transaction(expire)
        assert (await env.ended_run(alert)).outcome == "expired"
        asked = await env.until("anna", asked_directly("Not approved in time"))
        assert ids.APPROVE not in text_of(within_limits(asked))

        def ended(view: EmulatorView) -> dict[str, Any] | None:
            found = [m for m in view.thread(SOC, card["ts"])[1:] if ids.RUN_AGAIN in text_of(m)]
            return found[0] if found else None

        reply = text_of(within_limits(await env.until("ben", ended)))
        assert "⌛ *Isolate* not approved in time on" in reply
        assert "Ask again" in reply
        await env["ben"].open_home()
        home = text_of(await env.until("ben", lambda view: view.home))
        assert "*Failed or expired in the last day* (1)" in home
        assert "⌛ *Isolate* not approved in time" in home
        assert "Ask again" in home


async def test_a_bulk_asks_once_for_all(tmp_path: Path) -> None:
    async with on_duty(tmp_path, rules={"Isolate": {}}) as env:
        alerts = [await env.create_alert(sourceRef=str(n)) for n in range(3)]
        targets = [{"objectType": "alert", "objectId": alert.id} for alert in alerts]
        bulk = await env.client.run_bulk({"responderId": "Isolate_1_0", "targets": targets})
        request = within_limits(await env.until("anna", asked_directly("3 wait for approval")))
        assert request["text"] == "Approve or deny: Isolate on 3 targets, asked by admin"
        assert "You were asked as `@oncall`" in text_of(request)
        here = await env["anna"].dm(env.emulator.bot_user_id)
        await env["anna"].click(here, request["ts"], action_id=button(request, ids.NOT_ME))
        await env.told("anna", "Noted. Asked ben and lea (`@leads`) to decide.", here)
        await env.until("lea", asked_directly("3 wait for approval"))

        def thread(view: EmulatorView) -> list[str] | None:
            roots = [m for m in view.messages(SOC) if "3 wait for approval" in text_of(m)]
            found = lines(view, roots[0]) if roots else []
            return found if len(found) == 2 else None

        first, second = await env.until("ben", thread)
        assert first == "🔔 Asked anna (`@oncall`) to decide. Not anna."
        assert second.startswith("🔔 Asked ben and lea (`@leads`) to decide.")
        async with acting_as(env, "lea") as lea:
            await lea.deny_bulk(bulk.id)
        await env.until("anna", asked_directly("3 denied"))
        assert sent_to(env, here) == 1


async def test_a_bulk_reminds_as_well(tmp_path: Path) -> None:
    async with on_duty(tmp_path, rules={"Isolate": {"duty": ""}}) as env:
        await env["anna"].command(SOC, "/responder watch approvals")
        await env.ephemeral("anna", "You watch approvals")
        alerts = [await env.create_alert(sourceRef=str(n)) for n in range(2)]
        targets = [{"objectType": "alert", "objectId": alert.id} for alert in alerts]
        await env.client.run_bulk({"responderId": "Isolate_1_0", "targets": targets})
        await env.until("anna", asked_directly("2 wait for approval"))
        await remind_now(env)

        def twice(view: EmulatorView) -> list[dict[str, Any]] | None:
            found = [m for m in direct(view) if "2 wait for approval" in text_of(m)]
            return found if len(found) == 2 else None

        await env.until("anna", twice)

        def thread(view: EmulatorView) -> list[dict[str, Any]]:
            roots = [m for m in view.messages(SOC) if "2 wait for approval" in text_of(m)]
            return (
                [m for m in view.thread(SOC, roots[0]["ts"])[1:] if "Half of the time" in text_of(m)] if roots else []
            )

        assert len(await env.until("ben", thread)) == 1


async def test_an_extension_is_asked_for_in_direct_messages(tmp_path: Path) -> None:
    rules = {"Isolate": {"undo": "Tell_1_0", "undo_after_minutes": 30, "allow_permanent": True}}
    async with on_duty(tmp_path, rules=rules) as env:
        alert = await env.create_alert()
        card = await env.card_of("ben", alert)
        run = await isolate(env, alert)
        async with acting_as(env, "ben") as ben:
            await ben.approve(run)
        await env.ended_run(alert)
        await env.client.request("PATCH", f"/api/connector/engine/action/{run}/undo", {"undoAfterMinutes": 300})
        request = within_limits(await env.until("anna", asked_directly("asks for more time")))
        assert "You were asked as `@oncall`" in text_of(request)
        here = await env["anna"].dm(env.emulator.bot_user_id)
        await env["anna"].click(here, request["ts"], action_id=button(request, ids.NOT_ME))
        asked = await env.until("lea", asked_directly("asks for more time"))
        _, second = await env.until("ben", has_lines(card, 2))
        assert second.startswith("🔔 Asked ben and lea (`@leads`)")
        assert not any(is_person(one.channel) for one in await env.bot.outbox.cards(alert.id))  # a request is no card
        lea = await env["lea"].dm(env.emulator.bot_user_id)
        await env["lea"].click(lea, asked["ts"], action_id=button(asked, ids.EXTENSION_DENY))
        await env.until("lea", asked_directly("Denied by lea."))


async def test_a_group_that_slack_does_not_name_is_asked_as_it_was_last_known(tmp_path: Path) -> None:
    groups = {"oncall": ("S0ONCALL", ["U0ANNA"])}
    async with on_duty(tmp_path, groups=groups) as env:
        while not env.bot.groups.checks():
            await env.client.groups()  # each is a request, in which the bot goes on
        env.emulator.faults.ratelimit("usergroups.users.list", 17)
        await env.bot.groups.sync()
        alert = await env.create_alert()
        card = await env.card_of("ben", alert)
        await isolate(env, alert)
        await env.until("ben", has_lines(card, 1))
        (line,) = [m for m in env["ben"].live_view.thread(SOC, card["ts"])[1:] if m["text"].startswith("🔔 Asked anna")]
        assert "@oncall stays as it is." in text_of(within_limits(line))
