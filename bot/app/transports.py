"""How payloads come in: Socket Mode, or signed HTTP requests."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol
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

from bot.app.dispatcher import Acknowledge, Dispatcher, TeamCheck
from bot.app.interactions import INTERACTION_TYPES, InteractionType, is_of_slack
from bot.features.base import Check
from bot.settings import SlackSection
from core.common.errors import ResponderBotError
from core.common.listener import ClientDisconnected, bind, http_server, read_body

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


def bolt(section: SlackSection, front: Dispatcher, team: TeamCheck) -> AsyncApp:
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
    for surface in INTERACTION_TYPES:
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


def _listener(front: Dispatcher, surface: InteractionType) -> Callable[..., Awaitable[None]]:
    async def on_arrival(body: dict[str, Any], ack: Acknowledge) -> None:
        await front.take(surface, body, ack)

    return on_arrival


class SocketTransport:
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

    def __init__(self, host: str, port: int, routes: Sequence[Route], setting: str) -> None:
        self._host, self._port, self._setting = host, port, setting
        self._routes = routes
        self._open = AsyncExitStack()
        self.is_open = False
        self.url = ""

    async def start(self) -> None:
        sock = bind(self._host, self._port, self._setting)
        router = Router(self._routes, redirect_slashes=False)
        self.url = await self._open.enter_async_context(http_server(router, sock))
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False
        await self._open.aclose()


class HttpTransport:
    """Signed requests: `POST /slack/events` on host and port, what else is to be seen of the bot beside it."""

    def __init__(self, app: AsyncApp, section: SlackSection, beside: Sequence[Route]) -> None:
        self._app = app
        routes = [Route(EVENTS_PATH, self._events, methods=["POST"]), *beside]
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

    async def _events(self, request: Request) -> Response:
        try:
            body = await read_body(request.receive, BODY_LIMIT_BYTES)
        except (ResponderBotError, TimeoutError, ClientDisconnected) as error:
            status = 413 if isinstance(error, ResponderBotError) else 400
            return Response("not a payload of Slack", status, {"Connection": "close"})
        if not _may_be_signed(request.headers):
            return Response("not signed by Slack", 401)
        try:
            asked = to_async_bolt_request(request, body)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):  # no payload of Slack's
            return Response("not a payload of Slack", 400)
        return to_starlette_response(await self._app.async_dispatch(asked))


def _may_be_signed(headers: Mapping[str, str]) -> bool:
    """Whether these are of the form that Slack's have; checking the signature of others would raise an error."""
    time, signature = headers.get("x-slack-request-timestamp", "0"), headers.get("x-slack-signature", "")
    return re.fullmatch(r"[0-9]{1,12}", time) is not None and signature.isascii()
