"""From the commit of a status to the reader of the feed, against a plain socket and against polling."""

import asyncio
import random
import socket
import time
from pathlib import Path
from statistics import mean, median

from core.client import CoreClient
from tests.bench import comparison
from tests.bench.comparison import Row, Sample, Scale
from tests.bench.dataset import KEY, fill
from tests.bench.processes import ServerProcess, serving

POLL_S = 0.25


async def measure(folder: Path, scale: Scale) -> list[Row]:
    await asyncio.to_thread(fill, folder / "core.db", 1, 0)
    rng = random.Random(1)  # noqa: S311 - when a status changes within a polling interval
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with serving("servers.core", folder, mode="never_ends", timestamps=True) as core, _client(core) as client:
            await client.run({"responderId": "r-idle", "objectType": "alert", "objectId": "~1"})
            plain = _PlainSocket(core, listener)
            await plain.open()
            reader = _FeedReader(core, client)
            found = await comparison.interleaved(
                {
                    "long polling": lambda: reader.long_polling(scale.events),
                    "socket": lambda: plain.one_way(scale.events),
                    "polling": lambda: reader.polling(max(3, scale.events // 4), rng),
                },
                scale.rounds,
            )
            plain.close()
    what = "commit of a status to the reader of the feed"
    return [
        comparison.row(
            what,
            found,
            "long polling",
            "socket",
            comparison.milliseconds,
            note="a plain socket one-way",
        ),
        comparison.row(
            what,
            found,
            "long polling",
            "polling",
            comparison.milliseconds,
            inverse=True,
            note="polling every 250 ms, mean",
        ),
    ]


def _client(core: ServerProcess) -> CoreClient:
    return CoreClient(core.url, KEY)


class _FeedReader:
    """Reads the feed as the bot does; each status that core commits has a new number."""

    def __init__(self, core: ServerProcess, client: CoreClient) -> None:
        self._core = core
        self._client = client
        self._number = 0

    async def long_polling(self, count: int) -> Sample:
        """Median latency with long polling, in seconds."""
        last = (await self._client.events(None, 0)).last
        times = []
        for _ in range(count):
            page = asyncio.create_task(self._next_page(last))
            await asyncio.sleep(0.01)  # until the request waits in core
            committed_at = await self._commit()
            last, received_at = await page
            times.append(received_at - committed_at)
        return median(times)

    async def polling(self, count: int, rng: random.Random) -> Sample:
        """Mean latency with polling, in seconds: statuses change at random times within the interval."""
        last = (await self._client.events(None, 0)).last
        times = []
        for _ in range(count):
            committed = asyncio.create_task(self._commit_after(rng.random() * POLL_S))
            while True:
                await asyncio.sleep(POLL_S)
                page = await self._client.events(last, 0)
                if page.events:
                    break
            at, last = time.perf_counter(), page.last
            times.append(at - await committed)
        return mean(times)

    async def _next_page(self, last: int) -> tuple[int, float]:
        page = await self._client.events(last, 30)
        return page.last, time.perf_counter()

    async def _commit_after(self, seconds: float) -> float:
        await asyncio.sleep(seconds)
        return await self._commit()

    async def _commit(self) -> float:
        self._number += 1
        return float((await self._core.ask(do="status", number=self._number))["at"])


class _PlainSocket:
    """A TCP connection from core's process to this one."""

    def __init__(self, core: ServerProcess, listener: socket.socket) -> None:
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

    async def one_way(self, count: int) -> Sample:
        assert self._socket is not None
        times = []
        for _ in range(count):
            arrival = asyncio.create_task(asyncio.to_thread(_received_at, self._socket))
            await asyncio.sleep(0.01)  # until it waits
            sent = await self._core.ask(**self._question)
            times.append(await arrival - float(sent["at"]))
        return median(times)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def _received_at(connection: socket.socket) -> float:
    connection.recv(300)
    return time.perf_counter()
