"""The bot while its PostgreSQL can't be reached, behind a relay that tests cut."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from psycopg import conninfo

from core.common.database.location import PostgresqlUrl
from tests import stores
from tests.bot.outbox.harness import all_sent, until
from tests.bot.running import ANNA, SOC, running_bot

CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"


class Relay:
    """Forwards connections to PostgreSQL. While it is cut, nothing comes through, and nobody is told so.

    It runs in a thread, since the bot opens its database on the event loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._whole = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[Any]] = set()

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._whole.clear)

    def mend(self) -> None:
        """Let new connections through; those of before have lost what was on its way."""
        self._loop.call_soon_threadsafe(self._mend)

    def _mend(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._whole.set()

    @contextmanager
    def serve(self, folder: Path, url: str) -> Iterator[str]:
        """The URL by which the same database is reached through the relay."""
        self._whole.set()
        is_open, is_over = threading.Event(), asyncio.Event()

        async def run() -> None:
            async with self._served(folder, url):
                is_open.set()
                await is_over.wait()

        thread = threading.Thread(target=self._loop.run_until_complete, args=[run()])
        thread.start()
        is_open.wait()
        try:
            yield conninfo.make_conninfo(url, host=str(folder), port=5432)
        finally:
            self.mend()
            self._loop.call_soon_threadsafe(is_over.set)
            thread.join()
            self._loop.close()

    @asynccontextmanager
    async def _served(self, folder: Path, url: str) -> AsyncIterator[None]:
        given = conninfo.conninfo_to_dict(url)
        host, port = str(given["host"]), int(given.get("port") or 5432)

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await reader.read(65_536):
                    await self._whole.wait()
                    writer.write(data)
            writer.close()

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            own = asyncio.current_task()
            assert own is not None
            self._relays.add(own)
            await self._whole.wait()
            if host.startswith("/"):
                from_server, to_server = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
            else:
                from_server, to_server = await asyncio.open_connection(host, port)
            self._writers |= {writer, to_server}
            await asyncio.gather(forward(reader, to_server), forward(from_server, writer))
            self._writers -= {writer, to_server}
            self._relays.discard(own)

        server = await asyncio.start_unix_server(relay, folder / ".s.PGSQL.5432")
        try:
            yield
        finally:
            server.close()
            await asyncio.gather(*self._relays, return_exceptions=True)


@pytest.mark.slow
async def test_clicks_are_answered_while_the_database_is_away_and_all_goes_on_once_it_is_back(tmp_path: Path) -> None:
    relay = Relay()
    with stores.using("postgresql"):
        url = stores.setting(tmp_path / "slack.db")
    with relay.serve(tmp_path, url) as relayed:
        await clicked_while_away(tmp_path, relay, relayed)


async def clicked_while_away(folder: Path, relay: Relay, url: str) -> None:
    async with (
        running_bot(folder, database=PostgresqlUrl(url)) as env,
        aiohttp.ClientSession() as session,
    ):
        anna = await env.person(ANNA)
        one = await env.post_alert()
        await env.card(anna, one)
        await all_sent(env.bot)
        relay.cut()
        await anna.command(SOC, f"/responder run {CLOSE} {one}")
        await anna.until(lambda view: "does not answer, so nothing was done" in str(view.ephemerals(SOC)))
        await anna.command(SOC, "/responder help")
        await anna.until(lambda view: "The store can't be reached" in str(view.ephemerals(SOC)))
        two = await env.post_alert(sourceRef="while the database is away")
        await until(lambda: not env.bot.leading.is_set())  # its lease is over
        assert env.bot.health_server is not None
        async with session.get(env.bot.health_server.url + "/health") as answer:
            assert answer.status == 503
            assert "look at PostgreSQL at postgresql://" in await answer.text()
        relay.mend()
        await env.card(anna, two)
        assert await env.client.actions("alert", one) == []
        await anna.command(SOC, f"/responder run {CLOSE} {one}")
        await anna.until(lambda view: "*closed*" in str(view.messages(SOC)))
        assert len(await env.client.actions("alert", one)) == 1
