"""A reverse proxy before core that can hold or fail requests: for what the bot does while core is slow."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

DROPPED_HEADERS = ("host", "content-length", "transfer-encoding", "connection")


class CoreProxy:
    """Forwards requests to core. Those that `hold` or `fail` name, such as `POST /api/alert`, wait or get a 500."""

    def __init__(self) -> None:
        self._held = ""
        self._hold_response = False
        self._failed = ""
        self._replace: Callable[[web.Request], web.Response | None] = lambda _request: None
        self._dropped, self._drops = "", 0
        self._released = asyncio.Event()
        self.request_held = asyncio.Event()
        """Set once a request waits."""
        self.followed = ""
        """Number of the event after which the Notifier asks for more."""

    def hold(self, part: str, *, response: bool = False) -> None:
        """From now on requests whose method and path contain `part` wait; with `response` core's answers do."""
        self._held, self._hold_response = part, response
        self._released.clear()
        self.request_held.clear()

    def fail(self, part: str) -> None:
        """From now on such requests are answered with a 500."""
        self._failed = part

    def replace(self, answer: Callable[[web.Request], web.Response | None]) -> None:
        """From now on answer with what this returns, unless that is None."""
        self._replace = answer

    def drop_responses(self, part: str, times: int = 1) -> None:
        """Core gets the next such requests, and the connection ends where its answer should come."""
        self._dropped, self._drops = part, times

    def release(self) -> None:
        """Forward everything again, also what waits."""
        self._held = self._failed = ""
        self._replace = lambda _request: None
        self._released.set()

    async def _wait(self) -> None:
        self.request_held.set()
        await self._released.wait()

    @asynccontextmanager
    async def serve(self, core_url: str) -> AsyncIterator[str]:
        """The URL of the proxy, for as long as the block lasts."""
        async with aiohttp.ClientSession(auto_decompress=False) as session:

            async def forward(request: web.Request) -> web.Response:
                target, hold_response = f"{request.method} {request.path}", self._hold_response
                if self._failed and self._failed in target:
                    return web.Response(status=500)
                if (replaced := self._replace(request)) is not None:
                    return replaced
                if request.path == "/api/event" and "include" in request.query:
                    self.followed = request.query.get("after", "")
                is_held = bool(self._held) and self._held in target
                if is_held and not hold_response:
                    await self._wait()
                headers = {k: v for k, v in request.headers.items() if k.lower() not in DROPPED_HEADERS}
                url, body = core_url + request.raw_path, await request.read()
                async with session.request(request.method, url, headers=headers, data=body) as response:
                    kept = {k: v for k, v in response.headers.items() if k.lower() not in DROPPED_HEADERS}
                    content = await response.read()
                if is_held and hold_response:
                    await self._wait()
                if self._drops and self._dropped in target:
                    self._drops -= 1
                    if request.transport is not None:
                        request.transport.abort()
                return web.Response(status=response.status, headers=kept, body=content)

            app = web.Application()
            app.router.add_route("*", "/{path:.*}", forward)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            try:
                yield f"http://127.0.0.1:{runner.addresses[0][1]}"
            finally:
                self.release()
                await runner.cleanup()
