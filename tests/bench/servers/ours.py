"""Core as users run it, on a free port; its engine does nothing unless the settings ask for the real one."""

import asyncio
import json
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import uvloop

from core import engines
from core.app import Core, serving, stop_signal
from core.common import logs
from core.engines.base import Progress
from core.settings import CoreSection, CoreSettings, EngineSection
from tests.bench.programs import tell
from tests.bench.servers.idle import IdleEngine
from tests.bench.servers.stamping import StampingLoop

ASIDE_S = 0.005  # this answer keeps out of the way of the feed's, which goes out meanwhile


def settings_of(given: Mapping[str, Any]) -> CoreSettings:
    """All files below `folder`; `core` and `engine` are sections of the settings."""
    folder = Path(given["folder"])
    files = {"database": folder / "core.db", "jobs": folder / "jobs", "environments": folder / "environments"}
    engine = tuple(EngineSection(**section) for section in given.get("engines", ()))
    return CoreSettings(core=CoreSection(**{**files, "port": 0, **given.get("core", {})}), engine=engine)


async def main(given: Mapping[str, Any]) -> None:
    logs.configure("info")
    settings = settings_of(given)
    made: list[IdleEngine] = []
    if given.get("manner"):
        # A kind of engine is a line in this table; the product's type says that nobody changes it while it runs.
        cast(dict[str, engines.Factory], engines.ENGINES)["process"] = lambda section, settings: _kept(
            made, IdleEngine(given["manner"], settings.core.max_concurrent_actions)
        )
    async with serving(settings) as (core, url):
        tell({"url": url})
        answering = asyncio.create_task(_answer(core, made))
        await stop_signal()
        answering.cancel()


def _kept(made: list[IdleEngine], engine: IdleEngine) -> IdleEngine:
    made.append(engine)
    return engine


async def _answer(core: Core, made: list[IdleEngine]) -> None:
    """Questions by standard input, one at a time."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    told = None
    while line := await reader.readline():
        question = json.loads(line)
        if question["do"] == "status":
            if told is None:
                told = await made[0].taken.get()
            answered = await _new_status(core, told, question["number"])
        else:
            answered = _sent(question["host"], question["port"])
        tell(answered)


async def _new_status(core: Core, told: Any, number: int) -> dict[str, Any]:
    """Commit a change of an action; when that was done, and the number of its event."""
    await told(Progress(f"job-{number}", running=True))
    loop = asyncio.get_running_loop()
    at = loop.woken_at if isinstance(loop, StampingLoop) else 0.0
    await asyncio.sleep(ASIDE_S)
    return {"at": at, "seq": core.feed.last()}


_sockets: dict[int, socket.socket] = {}


def _sent(host: str, port: int) -> dict[str, Any]:
    """300 bytes, as long as an event, over a plain socket."""
    if port not in _sockets:
        _sockets[port] = socket.create_connection((host, port))
        _sockets[port].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    at = time.perf_counter()
    _sockets[port].sendall(b"x" * 300)
    return {"at": at}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    with asyncio.Runner(loop_factory=StampingLoop if given.get("stamps") else uvloop.new_event_loop) as runner:
        runner.run(main(given))
