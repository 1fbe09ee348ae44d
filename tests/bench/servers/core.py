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
from core.settings import CoreSection, CoreSettings, EngineSection, SourceSection
from tests.bench.processes import send_line
from tests.bench.servers.idle_engine import IdleEngine
from tests.bench.servers.timestamps import WakeupTimestampLoop

ANSWER_DELAY_S = 0.005  # so that this answer doesn't delay that of the feed


def settings_of(given: Mapping[str, Any]) -> CoreSettings:
    """Settings with all files below `folder`, and the given `core`, `engines` and `source` sections."""
    folder = Path(given["folder"])
    files = {"database": folder / "core.db", "state": folder}
    engine = tuple(EngineSection(**section) for section in given.get("engines", ()))
    source = {name: SourceSection(**section) for name, section in given.get("source", {}).items()}
    return CoreSettings(core=CoreSection(**{**files, "port": 0, **given.get("core", {})}), engine=engine, source=source)


async def main(given: Mapping[str, Any]) -> None:
    logs.configure("info")
    settings = settings_of(given)
    idle: list[IdleEngine] = []
    if given.get("mode"):
        # The table of engine types, which the product never changes.
        cast(dict[str, engines.Factory], engines.ENGINES)["process"] = lambda section, settings: _recorded(
            idle, IdleEngine(given["mode"], settings.core.max_concurrent_actions)
        )
    async with serving(settings) as (core, url):
        send_line({"url": url})
        answering = asyncio.create_task(_answer(core, idle))
        await stop_signal()
        answering.cancel()


def _recorded(engines: list[IdleEngine], engine: IdleEngine) -> IdleEngine:
    engines.append(engine)
    return engine


async def _answer(core: Core, idle: list[IdleEngine]) -> None:
    """Answer questions from standard input, one at a time."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    on_progress = None
    while line := await reader.readline():
        question = json.loads(line)
        if question["do"] == "status":
            if on_progress is None:
                on_progress = await idle[0].started.get()
            answer = await _new_status(core, on_progress, question["number"])
        else:
            answer = _send(question["host"], question["port"])
        send_line(answer)


async def _new_status(core: Core, on_progress: Any, number: int) -> dict[str, Any]:
    """Commit a change of an action; return the time of the commit, and the sequence number of its event."""
    await on_progress(Progress(f"job-{number}", running=True))
    loop = asyncio.get_running_loop()
    at = loop.woken_at if isinstance(loop, WakeupTimestampLoop) else 0.0
    await asyncio.sleep(ANSWER_DELAY_S)
    return {"at": at, "seq": await core.feed.last()}


_sockets: dict[int, socket.socket] = {}


def _send(host: str, port: int) -> dict[str, Any]:
    """Send 300 bytes, the length of an event, over a plain socket."""
    if port not in _sockets:
        _sockets[port] = socket.create_connection((host, port))
        _sockets[port].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    at = time.perf_counter()
    _sockets[port].sendall(b"x" * 300)
    return {"at": at}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    with asyncio.Runner(
        loop_factory=WakeupTimestampLoop if given.get("timestamps") else uvloop.new_event_loop
    ) as runner:
        runner.run(main(given))
