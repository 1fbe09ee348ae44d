"""From the commit of a status to the hands of who reads the feed."""

import asyncio
import random
import socket
import time
from pathlib import Path
from statistics import mean, median

from core.client import CoreClient
from tests.bench import figures
from tests.bench.figures import Figure, Goal, Row, Scale
from tests.bench.filling import KEY, fill
from tests.bench.programs import Child, serving

POLL_S = 0.25


async def measure(folder: Path, scale: Scale) -> list[Row]:
    await asyncio.to_thread(fill, folder / "core.db", 1, 0)
    chance = random.Random(1)  # noqa: S311 - when a status changes within a polling interval
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with serving("servers.ours", folder, manner="holds", stamps=True) as core, _client(core) as client:
            await client.run({"responderId": "r-idle", "objectType": "alert", "objectId": "~1"})
            line = _Line(core, listener)
            await line.open()
            reader = _Reader(core, client)
            found = await figures.in_turns(
                {
                    "feed": lambda: reader.waiting(scale.events),
                    "socket": lambda: line.one_way(scale.events),
                    "polling": lambda: reader.polling(max(3, scale.events // 4), chance),
                },
                scale.rounds,
            )
            line.close()
    what = "commit of a status to the reader of the feed"
    return [
        figures.row(
            what, found, "feed", "socket", figures.milliseconds, Goal("at most", 6), note="a plain socket one-way"
        ),
        figures.row(
            what,
            found,
            "feed",
            "polling",
            figures.milliseconds,
            Goal("at least", 500),
            turned=True,
            note="polling every 250 ms, mean",
        ),
    ]


def _client(core: Child) -> CoreClient:
    return CoreClient(core.url, KEY)


class _Reader:
    """Follows the feed as the bot does; each status that core is asked to commit has a new number."""

    def __init__(self, core: Child, client: CoreClient) -> None:
        self._core = core
        self._client = client
        self._number = 0

    async def waiting(self, count: int) -> Figure:
        """The median over some statuses, with a long poll that waits already."""
        last = (await self._client.events(None, 0)).last
        times = []
        for _ in range(count):
            page = asyncio.create_task(self._arrival(last))
            await asyncio.sleep(0.01)  # until it waits in core
            said = await self._commit()
            last, at = await page
            times.append(at - said)
        return median(times)

    async def polling(self, count: int, chance: random.Random) -> Figure:
        """The mean: statuses come at any moment of the interval."""
        last = (await self._client.events(None, 0)).last
        times = []
        for _ in range(count):
            asked = asyncio.create_task(self._commit_after(chance.random() * POLL_S))
            while True:
                await asyncio.sleep(POLL_S)
                page = await self._client.events(last, 0)
                if page.events:
                    break
            at, last = time.perf_counter(), page.last
            times.append(at - await asked)
        return mean(times)

    async def _arrival(self, last: int) -> tuple[int, float]:
        page = await self._client.events(last, 30)
        return page.last, time.perf_counter()

    async def _commit_after(self, seconds: float) -> float:
        await asyncio.sleep(seconds)
        return await self._commit()

    async def _commit(self) -> float:
        self._number += 1
        return float((await self._core.ask(do="status", number=self._number))["at"])


class _Line:
    """A plain socket from the server's process to ours."""

    def __init__(self, core: Child, listener: socket.socket) -> None:
        self._core = core
        self._listener = listener
        self._socket: socket.socket | None = None

    async def open(self) -> None:
        host, port = self._listener.getsockname()
        self._question = {"do": "send", "host": host, "port": port}
        accepted = asyncio.create_task(asyncio.to_thread(self._listener.accept))
        await self._core.ask(**self._question)
        self._socket = (await accepted)[0]
        self._socket.recv(300)

    async def one_way(self, count: int) -> Figure:
        assert self._socket is not None
        times = []
        for _ in range(count):
            arrival = asyncio.create_task(asyncio.to_thread(_arrived, self._socket))
            await asyncio.sleep(0.01)  # until it waits
            said = await self._core.ask(**self._question)
            times.append(await arrival - float(said["at"]))
        return median(times)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def _arrived(line: socket.socket) -> float:
    line.recv(300)
    return time.perf_counter()
