"""A door before core that can be held shut: for what the bot does while core is slow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

DROPPED = ("host", "content-length", "transfer-encoding", "connection")


class Door:
    """Passes requests on to core; those whose method and path hold `shut` wait until it is opened."""

    def __init__(self) -> None:
        self._shut = ""
        self._after = False
        self._broken = ""
        self._open = asyncio.Event()
        self.came = asyncio.Event()
        """Somebody stands before the shut door."""

    def shut(self, part: str, *, after: bool = False) -> None:
        """From now on requests such as `POST /api/alert` wait; with `after` core gets them, and its answers wait."""
        self._shut, self._after = part, after
        self._open.clear()
        self.came.clear()

    def break_(self, part: str) -> None:
        """From now on such requests are answered as by a core with a fault."""
        self._broken = part

    def open(self) -> None:
        """All may pass."""
        self._shut = self._broken = ""
        self._open.set()

    async def _wait(self) -> None:
        self.came.set()
        await self._open.wait()

    @asynccontextmanager
    async def way(self, core_url: str) -> AsyncIterator[str]:
        """The address of the door, for as long as the block lasts."""
        async with aiohttp.ClientSession(auto_decompress=False) as session:

            async def pass_on(request: web.Request) -> web.Response:
                if self._broken and self._broken in f"{request.method} {request.path}":
                    return web.Response(status=500)
                is_shut, after = bool(self._shut) and self._shut in f"{request.method} {request.path}", self._after
                if is_shut and not after:
                    await self._wait()
                headers = {k: v for k, v in request.headers.items() if k.lower() not in DROPPED}
                url, body = core_url + request.raw_path, await request.read()
                async with session.request(request.method, url, headers=headers, data=body) as answer:
                    kept = {k: v for k, v in answer.headers.items() if k.lower() not in DROPPED}
                    content = await answer.read()
                if is_shut and after:
                    await self._wait()
                return web.Response(status=answer.status, headers=kept, body=content)

            app = web.Application()
            app.router.add_route("*", "/{path:.*}", pass_on)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            try:
                yield f"http://127.0.0.1:{runner.addresses[0][1]}"
            finally:
                self.open()
                await runner.cleanup()
