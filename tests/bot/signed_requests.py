"""A bot that Slack's signed requests reach, and a server for the answers at a response_url."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

from bot.app.transports import EVENTS_PATH, HttpTransport
from tests.bot.running import BotEnvironment, running_bot

Json = dict[str, Any]
TIMEOUT_S = 30.0


@dataclass
class ResponseUrlServer:
    """The server of `response_url`; keeps what the bot posts there."""

    url: str = ""
    received: list[Json] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def receive(self, request: web.Request) -> web.Response:
        async with self._changed:
            self.received.append(await request.json())
            self._changed.notify_all()
        return web.Response(text="ok")

    async def until(self, words: str) -> str:
        """What was posted, once it has these words."""
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: words in json.dumps(self.received))
        return json.dumps(self.received)

    async def until_count(self, number: int) -> None:
        """Wait until this many responses were posted."""
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: len(self.received) >= number)


@asynccontextmanager
async def response_url_server() -> AsyncIterator[ResponseUrlServer]:
    responses, app = ResponseUrlServer(), web.Application()
    app.router.add_post("/", responses.receive)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    responses.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        yield responses
    finally:
        await runner.cleanup()


class SignedRequests:
    """Sends payloads to the bot, signed as Slack signs them."""

    def __init__(self, env: BotEnvironment, session: aiohttp.ClientSession) -> None:
        assert isinstance(env.bot.transport, HttpTransport)
        self._url, self._session = env.bot.transport.url + EVENTS_PATH, session
        self._secret = env.emulator.signing_secret

    async def send(self, payload: Mapping[str, Any], *, age_s: int = 0) -> tuple[int, str]:
        """Send a payload, signed so long ago. Returns the status and text of the acknowledgement."""
        if payload.get("command"):
            return await self.post(
                urlencode({k: v for k, v in payload.items() if isinstance(v, str)}, errors="replace"), age_s=age_s
            )
        if "event" in payload:
            return await self.post(json.dumps(payload), "application/json")
        return await self.post(urlencode({"payload": json.dumps(payload)}))

    async def post(
        self, body: str, kind: str = "application/x-www-form-urlencoded", *, age_s: int = 0
    ) -> tuple[int, str]:
        now, raw = int(time.time()) - age_s, body.encode("utf-8", "replace")
        digest = hmac.new(self._secret.encode(), f"v0:{now}:".encode() + raw, hashlib.sha256).hexdigest()
        headers = {"X-Slack-Request-Timestamp": str(now), "X-Slack-Signature": f"v0={digest}", "Content-Type": kind}
        async with asyncio.timeout(TIMEOUT_S), self._session.post(self._url, data=raw, headers=headers) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def http_bot(
    folder: Path, **parts: Any
) -> AsyncIterator[tuple[BotEnvironment, SignedRequests, ResponseUrlServer]]:
    async with (
        running_bot(folder, transport="http", **parts) as env,
        aiohttp.ClientSession() as session,
        response_url_server() as responses,
    ):
        yield env, SignedRequests(env, session), responses
