"""How payloads come in: Socket Mode, or signed HTTP requests."""

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from bot.app.arrivals import SURFACES, Surface, is_of_slack
from bot.app.front import Acknowledge, Front, Team
from bot.features.base import Check
from bot.settings import SlackSection
from core.errors import ResponderBotError

ANYTHING = re.compile(r".*", re.DOTALL)
BODY_LIMIT_BYTES = 1_048_576  # Slack's payloads are far smaller
EVENTS_PATH = "/slack/events"

# Bolt logs payloads at DEBUG and tokens' kinds at WARNING; what matters is logged by bot.app.
_bolt_log = logging.getLogger("bot.bolt")


class Transport(Protocol):
    """One way in."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def check(self) -> Check: ...


def web_client(token: str | None, section: SlackSection, session: Any = None) -> AsyncWebClient:
    """A client of Slack's Web API that never sends anything twice by itself (`slack.md 1`)."""
    client = AsyncWebClient(
        token=token, base_url=section.api_url, session=session, retry_handlers=[], timeout=15, logger=_bolt_log
    )
    if urlsplit(section.api_url).hostname in ("127.0.0.1", "localhost", "::1"):
        client.proxy = None  # a proxy of the environment is for the way out
    return client


def bolt(section: SlackSection, front: Front, team: Team) -> AsyncApp:
    """The Bolt app: one catch-all listener for each surface, a table behind it (`performance.md 1`)."""
    _bolt_log.setLevel(logging.ERROR)

    async def authorize(**_: Any) -> AuthorizeResult:
        return AuthorizeResult(
            enterprise_id=team.enterprise_id or None,
            team_id=team.team_id,
            bot_token=section.bot_token,
            bot_id=team.bot_id,
            bot_user_id=team.bot_user_id,
        )

    app = _App(
        client=web_client(None, section),
        authorize=authorize,
        signing_secret=section.signing_secret,
        process_before_response=True,
        attaching_function_token_enabled=False,
        logger=_bolt_log,
        name="responder-bot",
    )
    register = {
        "command": app.command(ANYTHING),
        "action": app.action(ANYTHING),
        "options": app.options(ANYTHING),
        "view": app.view(ANYTHING),
        "shortcut": app.shortcut(ANYTHING),
        "event": app.event(ANYTHING),
    }
    app.view_closed(ANYTHING)(_only_acknowledged)  # no view of ours asks to be told
    for surface in SURFACES:
        register[surface](_listener(front, surface))
    return app


async def _only_acknowledged(ack: Acknowledge) -> None:
    await ack()


class _App(AsyncApp):
    """Bolt, spared what it would break on: payloads that can't be Slack's."""

    async def async_dispatch(self, req: AsyncBoltRequest) -> BoltResponse:
        if is_of_slack(req.body):
            return await super().async_dispatch(req)
        # Over Socket Mode anything but 200 means no acknowledgement, and the same payload again.
        return BoltResponse(status=200 if req.mode == "socket_mode" else 400, body="")


def _listener(front: Front, surface: Surface) -> Callable[..., Awaitable[None]]:
    async def on_arrival(body: dict[str, Any], ack: Acknowledge) -> None:
        await front.take(surface, body, ack)

    return on_arrival


class Socket:
    """Socket Mode: outgoing connections, no address of our own."""

    def __init__(self, app: AsyncApp, section: SlackSection) -> None:
        self._app = app
        self._section = section
        self._handler: AsyncSocketModeHandler | None = None

    async def start(self) -> None:
        # Made here since it opens a session of the running loop.
        self._handler = AsyncSocketModeHandler(self._app, self._section.app_token, web_client=self._app.client)
        self._handler.client.proxy = self._app.client.proxy  # the same way as the Web API's
        self._handler.client.wss_uri = await self._handler.client.issue_new_wss_url()  # a wrong token is told at once
        await self._handler.client.connect()  # type: ignore[no-untyped-call]  # the SDK gives no types here

    async def close(self) -> None:
        if self._handler is not None:
            await self._handler.client.close()  # type: ignore[no-untyped-call]  # as above

    def check(self) -> Check:
        session = self._handler.client.current_session if self._handler else None
        if session is not None and not session.closed:
            return Check("socket", True, "connected")
        return Check("socket", False, "not connected to Slack; check app_token and the network, it is tried again")


class Listening:
    """An address of our own, with these routes. Raises ResponderBotError where it is taken."""

    def __init__(self, host: str, port: int, routes: Sequence[web.RouteDef], setting: str) -> None:
        self._host, self._port, self._setting = host, port, setting
        self._routes = routes
        self._runner: web.AppRunner | None = None
        self.url = ""

    @property
    def is_open(self) -> bool:
        return self._runner is not None

    async def start(self) -> None:
        served = web.Application(client_max_size=BODY_LIMIT_BYTES)
        served.add_routes(self._routes)
        runner = web.AppRunner(served, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except OSError as error:
            await runner.cleanup()
            raise ResponderBotError(
                "bad_request",
                f"The bot can't listen on {self._host}:{self._port} ({error.strerror}); set another {self._setting}.",
            ) from error
        self._runner = runner
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


class Http:
    """Signed requests: `POST /slack/events` on host and port, what else is to be seen of the bot beside it."""

    def __init__(self, app: AsyncApp, section: SlackSection, beside: Sequence[web.RouteDef]) -> None:
        self._app = app
        routes = [web.post(EVENTS_PATH, self._events), *beside]
        self._listening = Listening(section.host, section.port, routes, "[slack] port")

    @property
    def url(self) -> str:
        return self._listening.url

    async def start(self) -> None:
        await self._listening.start()

    async def close(self) -> None:
        await self._listening.close()

    def check(self) -> Check:
        return Check("requests", self._listening.is_open, f"listening for Slack at {self.url}{EVENTS_PATH}")

    async def _events(self, request: web.Request) -> web.Response:
        try:
            asked = await to_bolt_request(request)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):  # no payload of Slack's
            return web.Response(status=400, text="not a payload of Slack")
        return await to_aiohttp_response(await self._app.async_dispatch(asked))
