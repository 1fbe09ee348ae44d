"""The bot as users run it, on the database of its core, over signed HTTP requests, on a free port."""

import json
import sys
from pathlib import Path
from typing import Any

import uvloop

from bot.app import running
from bot.app.transports import EVENTS_PATH, HttpTransport
from bot.settings import parse
from core.app import stop_signal
from core.client import CoreClient
from core.common import logs
from core.common.clock import now_ms
from tests.bench.processes import send_line


async def main(given: dict[str, Any]) -> None:
    logs.configure("info")
    tree = {
        "core": {"database": given["database"]},
        "bot": {"core_url": given["core_url"], "core_api_key": given["core_key"]},
        "slack": {**given["slack"], "port": 0},
        "channel": given.get("channels", []),
    }
    settings = parse(tree, Path(given["folder"]))
    async with (
        CoreClient(given["core_url"], given["core_key"]) as core,
        running(settings, core, clock_ms=now_ms) as bot,
    ):
        assert isinstance(bot.transport, HttpTransport)
        send_line({"url": bot.transport.url, "path": EVENTS_PATH})
        await stop_signal()


if __name__ == "__main__":
    uvloop.run(main(json.loads(sys.argv[1])))
