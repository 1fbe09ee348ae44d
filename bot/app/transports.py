"""How Slack's payloads arrive: over Socket Mode, or as signed HTTP requests."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.adapter.starlette.async_handler import to_async_bolt_request, to_starlette_response
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from bot.app.dispatcher import Acknowledge, AppInstallation, Dispatcher
from bot.app.interactions import INTERACTION_TYPES, InteractionType, is_well_formed
from bot.settings import SlackSection
from core.common.clock import now_ms
from core.common.errors import ResponderBotError
from core.common.listener import ClientDisconnected, bind, http_server, read_body
from core.models import Check

ANYTHING = re.compile(r".*", re.DOTALL)
BODY_LIMIT_BYTES = 1_048_576  # Slack's payloads are far smaller
EVENTS_PATH = "/slack/events"

CONNECT_TIMEOUT_S = 15.0
LOST_LOOKS = 2  # Slack renews each connection now and then, which takes less than a second
LOOK_EVERY_S = 1.0

# Bolt logs payloads at DEBUG and kinds of tokens at WARNING, and its client each attempt to connect with a traceback;
# bot.app logs what matters.
_bolt_log = logging.getLogger("bot.bolt")
_socket_log = logging.getLogger("bot.socket")


def web_client(token: str | None, section: SlackSection, session: Any = None) -> AsyncWebClient:
    """A client of Slack's Web API without the SDK's automatic retries, which would post twice."""
    client = AsyncWebClient(
        token=token, base_url=section.api_url, session=session, retry_handlers=[], timeout=15, logger=_bolt_log
    )
    if urlsplit(section.api_url).hostname in ("127.0.0.1", "localhost", "::1"):
        client.proxy = None  # the environment's proxy is for other machines
    return client


def bolt_app(section: SlackSection, dispatcher: Dispatcher, installation: AppInstallation) -> AsyncApp:
    """A Bolt app with one catch-all listener for each interaction type; Bolt tries listeners one by one."""
    _bolt_log.setLevel(logging.ERROR)
    _socket_log.setLevel(logging.CRITICAL)

    async def authorize(**_: Any) -> AuthorizeResult:
        return AuthorizeResult(
            enterprise_id=installation.enterprise_id or None,
            team_id=installation.team_id,
            bot_token=section.bot_token,
            bot_user_id=installation.bot_user_id,
        )

    app = _ValidatingApp(
        client=web_client(None, section),
        authorize=authorize,
        signing_secret=section.signing_secret,
        process_before_response=True,
        attaching_function_token_enabled=False,
        logger=_bolt_log,
        name="responder-bot",
    )
    app.view_closed(ANYTHING)(_acknowledge)  # no view asks for these
    for interaction_type in INTERACTION_TYPES:
        register = getattr(app, interaction_type)  # Bolt calls each as we do
        register(ANYTHING)(_listener(dispatcher, interaction_type))
    return app


async def _acknowledge(ack: Acknowledge) -> None:
    await ack()


class _ValidatingApp(AsyncApp):
    """Drops payloads that are not Slack's, on which Bolt raises errors."""

    async def async_dispatch(self, req: AsyncBoltRequest) -> BoltResponse:
        if is_well_formed(req.body):
            return await super().async_dispatch(req)
        # Over Socket Mode only 200 acknowledges; Slack would deliver the payload again.
        return BoltResponse(status=200 if req.mode == "socket_mode" else 400, body="")


def _listener(dispatcher: Dispatcher, interaction_type: InteractionType) -> Callable[..., Awaitable[None]]:
    async def on_interaction(body: dict[str, Any], ack: Acknowledge, req: AsyncBoltRequest) -> None:
        (sent_at,) = req.headers.get("x-slack-request-timestamp", ["0"])
        age_ms = now_ms() - int(sent_at) * 1000 if int(sent_at) else 0  # Socket Mode has no such header
        await dispatcher.dispatch(interaction_type, body, ack, age_ms=age_ms)

    return on_interaction


class SocketTransport:
    """Socket Mode: the bot connects to Slack, and needs no public address."""

    def __init__(self, app: AsyncApp, section: SlackSection) -> None:
        self._app = app
        self._section = section
        self._handler: AsyncSocketModeHandler | None = None

    async def start(self) -> None:
        """Nothing: there is no address of its own."""

    async def connect(self) -> None:
        """Connect to Slack. Raises an error of Slack, such as for a refused app token, or of the network."""
        await self.close()
        response = await self._app.client.apps_connections_open(app_token=self._section.app_token)
        handler = AsyncSocketModeHandler(self._app, self._section.app_token, logger=_socket_log)
        handler.client.proxy = self._app.client.proxy  # as for the Web API
        handler.client.wss_uri = response["url"]
        # It would try again with an address that Slack takes only once; `until_lost` has us ask for another one.
        handler.client.default_auto_reconnect_enabled = False
        self._handler = handler
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await handler.client.connect()  # type: ignore[no-untyped-call]  # the SDK gives no types here

    async def until_lost(self) -> None:
        """Return when no payload can arrive any more."""
        missed = 0
        while missed < LOST_LOOKS:
            await asyncio.sleep(LOOK_EVERY_S)
            is_connected = self._handler is not None and await self._handler.client.is_connected()
            missed = 0 if is_connected else missed + 1

    async def close(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            await handler.client.close()  # type: ignore[no-untyped-call]  # as above

    def check(self) -> Check:
        session = self._handler.client.current_session if self._handler else None
        if session is not None and not session.closed:
            return Check("socket", True, "connected")
        return Check("socket", False, "not connected to Slack; it is tried again")


class HttpServer:
    """Serves these routes. `setting` names the port in the ResponderBotError that `start` raises if it is taken."""

    def __init__(self, host: str, port: int, routes: Sequence[Route], setting: str) -> None:
        self._host, self._port, self._setting = host, port, setting
        self._routes = routes
        self._stack = AsyncExitStack()
        self.is_open = False
        self.url = ""

    async def start(self) -> None:
        """Listen and serve. Raises ResponderBotError("unavailable") if the port is taken."""
        sock = bind(self._host, self._port, self._setting)
        router = Router(self._routes, redirect_slashes=False)
        self.url = await self._stack.enter_async_context(http_server(router, sock))
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False
        await self._stack.aclose()


class HttpTransport(HttpServer):
    """Signed requests to `POST /slack/events`, on an address that also serves `more_routes`."""

    def __init__(self, app: AsyncApp, section: SlackSection, more_routes: Sequence[Route]) -> None:
        self._app = app
        self._is_connected = False
        routes = [Route(EVENTS_PATH, self._events, methods=["POST"]), *more_routes]
        super().__init__(section.host, section.port, routes, "[slack] port")

    async def connect(self) -> None:
        """Take requests from now on."""
        self._is_connected = True

    async def until_lost(self) -> None:
        """Never return: each request is a connection of its own."""
        await asyncio.Event().wait()

    def check(self) -> Check:
        if self.is_open and not self._is_connected:
            return Check("requests", False, "waiting until Slack says where the app is installed; it is tried again")
        return Check("requests", self.is_open, f"listening for Slack at {self.url}{EVENTS_PATH}")

    async def _events(self, request: Request) -> Response:
        if not self._is_connected:
            return Response("the bot is starting", 503, {"Connection": "close"})
        try:
            body = await read_body(request.receive, BODY_LIMIT_BYTES)
        except (ResponderBotError, TimeoutError, ClientDisconnected) as error:
            status = 413 if isinstance(error, ResponderBotError) else 400
            return Response("not a payload of Slack", status, {"Connection": "close"})
        if not _has_signature(request.headers):
            return Response("not signed by Slack", 401)
        try:
            bolt_request = to_async_bolt_request(request, body)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            return Response("not a payload of Slack", 400)
        return to_starlette_response(await self._app.async_dispatch(bolt_request))


def _has_signature(headers: Mapping[str, str]) -> bool:
    """Whether the headers have the form of Slack's; Bolt's check of the signature raises errors for others."""
    timestamp, signature = headers.get("x-slack-request-timestamp", "0"), headers.get("x-slack-signature", "")
    return re.fullmatch(r"[0-9]{1,12}", timestamp) is not None and signature.isascii()
