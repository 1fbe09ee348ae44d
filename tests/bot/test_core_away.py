"""What people see who ask the bot for something while core doesn't answer."""

from pathlib import Path

from aiohttp import web

from tests.bot.core_proxy import CoreProxy
from tests.bot.people import app_home, card_of, direct_messages, ephemeral, text_of
from tests.bot.running import SOC, running_bot

EXTRACT = "ResponderBot_ExtractIndicators_1_0"
WHERE = "The store can't be reached (Connection refused); look at PostgreSQL at postgresql://10.1.2.3/soc."


async def test_a_home_that_was_never_opened_says_that_core_is_away(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        await env.stop_core()
        anna = await env.person()
        await anna.open_home()
        home = text_of(await anna.sees(app_home()))
        assert "The responder service isn't answering." in home
        assert "Open this page again" in home
        assert env.settings.bot.core_url not in home
        assert direct_messages(anna.live_view) == []


async def test_doctor_says_nothing_but_that_core_is_away_to_whoever_it_cannot_identify(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        await env.stop_core()
        anna = await env.person()
        await anna.command(SOC, "/responder doctor")
        told = text_of(await anna.sees(ephemeral()))
        assert "The responder service isn't answering." in told
        assert "`responder-bot doctor` on its machine shows every check." in told
        assert [words for words in ("✓", "✗", "TLP", SOC, "token", env.settings.bot.core_url) if words in told] == []


async def test_a_run_that_core_has_no_database_for_is_asked_for_again_and_happens_once(tmp_path: Path) -> None:
    proxy, refused = CoreProxy(), list[str]()

    def without_database(request: web.Request) -> web.Response | None:
        if request.method != "POST" or not request.path.endswith("/action") or len(refused) == 2:
            return None
        refused.append(request.headers["Idempotency-Key"])
        return web.json_response({"type": "UnavailableError", "message": WHERE}, status=503)

    async with running_bot(tmp_path, core_proxy=proxy.serve) as env:
        anna, alert_id, _ = await env.first_card()
        proxy.replace(without_database)
        await anna.command(SOC, f"/responder run {EXTRACT} {alert_id}")
        await anna.sees(card_of(alert_id, "done"))
        assert len(refused) == 2
        assert len(set(refused)) == 1
        assert len(await env.client.actions("alert", alert_id)) == 1


async def test_nobody_in_slack_reads_where_the_database_is(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve) as env:
        anna, alert_id, _ = await env.first_card()
        answer = {"type": "UnavailableError", "message": WHERE}
        proxy.replace(lambda _: web.json_response(answer, status=503))
        await anna.command(SOC, f"/responder list {alert_id}")
        told = text_of(await anna.sees(ephemeral()))
        assert "The responder service isn't answering." in told
        assert "10.1.2.3" not in told
