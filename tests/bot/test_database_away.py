"""The bot while its PostgreSQL can't be reached, behind a relay that tests cut."""

from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from core.common.database.location import PostgresqlUrl
from core.settings import ResponderSection
from tests import stores
from tests.bot.outbox.harness import all_sent, until
from tests.bot.people import card_of, message_in
from tests.bot.running import SOC, running_bot
from tests.postgresql_relay import relay

CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"


@pytest.mark.slow
async def test_clicks_are_answered_while_the_database_is_away_and_all_goes_on_once_it_is_back(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        direct = stores.on_postgresql(tmp_path / "core.db").text
        network = stack.enter_context(relay(direct))
        rules = {CLOSE: ResponderSection(confirm="")}
        core = {"database": PostgresqlUrl(direct)}
        bot = running_bot(tmp_path, core=core, database=PostgresqlUrl(network.url), responder=rules)
        env = await stack.enter_async_context(bot)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        stack.callback(network.release)  # so that the bot can end
        anna, one, _ = await env.first_card()
        await all_sent(env.bot)
        network.hold()
        await anna.command(SOC, f"/responder run {CLOSE} {one}")
        await anna.reads("database can't be used now, so nothing was done")
        await anna.command(SOC, "/responder help")
        await anna.reads("What you can do with")
        assert "postgresql://" not in str(anna.live_view.ephemerals(SOC))
        two = await env.post_alert(sourceRef="while the database is away")
        await until(lambda: not env.bot.leading.is_set())  # its lease is over
        assert env.bot.health_server is not None
        async with session.get(env.bot.health_server.url + "/health") as answer:
            assert answer.status == 503
            assert "look at PostgreSQL at postgresql://" in await answer.text()
        network.end_connections()  # they have lost what was on its way
        network.release()
        await anna.sees(card_of(two))
        assert await env.client.actions("alert", one) == []
        await anna.command(SOC, f"/responder run {CLOSE} {one}")
        await anna.sees(message_in(SOC, "*closed*"))
        assert len(await env.client.actions("alert", one)) == 1
