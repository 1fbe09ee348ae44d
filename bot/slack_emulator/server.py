"""The composition root: one loopback server that is Slack to the app and a web page to people."""

import asyncio
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from bot.slack_emulator.delivery import AppDelivery, Traffic
from bot.slack_emulator.faults import Faults
from bot.slack_emulator.feed import PageFeed
from bot.slack_emulator.files import SIZE_LIMIT, Files
from bot.slack_emulator.http_delivery import HttpDelivery
from bot.slack_emulator.manifest import Manifest
from bot.slack_emulator.page_api import PageApi
from bot.slack_emulator.pointers import Pointer
from bot.slack_emulator.rates import RateLimits
from bot.slack_emulator.response_urls import ResponseUrls
from bot.slack_emulator.socket_mode import SocketMode
from bot.slack_emulator.state import Channel, Json, Team, User
from bot.slack_emulator.user_actions import UserActions
from bot.slack_emulator.views import TRIGGER_LIFE_S, Views
from bot.slack_emulator.web_api import Tokens, WebApi
from bot.slack_emulator.wire import AppEndpoints

LOOPBACK = ("127.0.0.1", "localhost")
EVENT_RETRIES_S = (0.0, 60.0, 300.0)  # Slack retries an event at once, after 1 minute and after 5 minutes
ACK_LIMIT_S = 3.0  # Slack's deadline for an acknowledgement
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SlackEmulator:
    """A local Slack workspace, held in memory and served on the loopback interface only.

    `rates=False` disables rate limits. `ack_limit_s` and `event_retries_s` default to Slack's values.
    Raises ValueError for a manifest whose events or commands lack their scopes.
    """

    def __init__(
        self,
        manifest: Mapping[str, object] | None = None,
        *,
        team_id: str = "T0LOCAL",
        clock: Callable[[], float] = time.time,
        faults: Faults | None = None,
        rates: bool = True,
        ack_limit_s: float = ACK_LIMIT_S,
        trigger_life_s: float = TRIGGER_LIFE_S,
        event_retries_s: Sequence[float] = EVENT_RETRIES_S,
    ) -> None:
        self.bot_token = f"xoxb-local-{secrets.token_hex(16)}"
        self.signing_secret = secrets.token_hex(16)
        self.page_token = secrets.token_urlsafe(24)
        self.pointers: list[Pointer] = []
        self.faults = faults or Faults()
        self.url = ""
        self._manifest = Manifest(manifest)
        if self._manifest.problems():
            raise ValueError("Slack would reject this manifest. " + " ".join(self._manifest.problems()))
        self._team = Team(team_id, clock, PageFeed(), self._manifest.app_name)
        self.app_token = f"xapp-1-{self._team.app_id}-{secrets.token_hex(16)}"
        self._socket = SocketMode(self._team.app_id)
        self._http = HttpDelivery(self.signing_secret, clock)
        self._delivery = AppDelivery(
            self._team,
            self._manifest,
            self.faults,
            self._socket,
            self._http,
            ack_limit_s=ack_limit_s,
            retry_delays_s=event_retries_s,
        )
        self._views = Views(self._team, trigger_life_s)
        self._response_urls = ResponseUrls(self._team, self._delivery)
        self._files = Files(self._team)
        self._rates = RateLimits(clock, on=rates)
        self._user_actions = UserActions(
            self._team, self._manifest, self._delivery, self._views, self._response_urls, self._files
        )
        self._page = PageApi(
            self.page_token, self._team, self._manifest, self._user_actions, self._views, self._files, self.pointers
        )
        self._tokens = Tokens()
        self._runner: web.AppRunner | None = None

    # addresses

    @property
    def api_url(self) -> str:
        """Base URL of the Web API, for `AsyncWebClient(base_url=...)`."""
        return f"{self.url}/api/"

    @property
    def page_url(self) -> str:
        """Address to open in a browser; it contains the page token."""
        return f"{self.url}/?token={self.page_token}"

    @property
    def requests_url(self) -> str | None:
        """The app's request URL for signed HTTP payloads; None means Socket Mode."""
        return self._delivery.requests_url

    @requests_url.setter
    def requests_url(self, url: str | None) -> None:
        self._delivery.requests_url = url

    @property
    def ack_limit_s(self) -> float:
        """Deadline for an acknowledgement, in seconds."""
        return self._delivery.ack_limit_s

    @ack_limit_s.setter
    def ack_limit_s(self, seconds: float) -> None:
        self._delivery.ack_limit_s = seconds

    @property
    def bot_user_id(self) -> str:
        """User id of the app's bot."""
        return self._team.bot_user_id

    @property
    def team_id(self) -> str:
        """Id of the workspace."""
        return self._team.id

    # lifecycle

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serve on the loopback interface; port 0 picks a free port. Raises ValueError for any other host."""
        if host not in LOOPBACK:
            raise ValueError(f"The emulator serves the loopback interface only, not {host!r}. Use 127.0.0.1.")
        listener = socket.create_server((host, port))  # bound first: the routes need the port
        self.url = f"http://{host}:{listener.getsockname()[1]}"
        self._response_urls.base_url = self._files.base_url = self.url
        app = web.Application(middlewares=[_own_addresses_only(self.url)], client_max_size=SIZE_LIMIT)
        app.add_routes(
            [*AppEndpoints(self._web_api(), self._response_urls, self.faults).routes(), *self._page.routes()]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()

    async def stop(self) -> None:
        """Close all connections and stop serving."""
        await self._delivery.close()
        await self._socket.close()
        await self._page.close()
        await self._http.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> "SlackEmulator":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _web_api(self) -> WebApi:
        return WebApi(
            url=self.url,
            team=self._team,
            manifest=self._manifest,
            delivery=self._delivery,
            views=self._views,
            files=self._files,
            rates=self._rates,
            socket=self._socket,
            bot_token=self.bot_token,
            app_token=self.app_token,
            tokens=self._tokens,
        )

    # workspace contents

    def add_user(
        self, user_id: str, *, name: str, real_name: str = "", email: str = "", is_bot: bool = False, **more: Any
    ) -> User:
        """Add a member, a guest, or a Slack Connect user; `more` are further fields of `User`."""
        return self._team.add_user(User(user_id, name, real_name or name, email, is_bot, **more))

    def add_channel(
        self,
        channel_id: str,
        *,
        name: str,
        members: Iterable[str] | None = None,
        is_private: bool = False,
        is_shared: bool = False,
        is_archived: bool = False,
        bot: bool = True,
    ) -> Channel:
        """Add a channel. `members=None` adds all current users; `bot=False` leaves the bot out."""
        joined = {user for user in self._team.users if user != self.bot_user_id} if members is None else set(members)
        joined |= {self.bot_user_id} if bot else set()
        channel = Channel(channel_id, name, joined, is_private, is_shared, is_archived=is_archived)
        return self._team.add_channel(channel)

    def set_usergroup(self, usergroup_id: str, users: Sequence[str]) -> None:
        """Add a user group or set its members."""
        self._team.usergroups[usergroup_id] = tuple(users)

    def archive(self, channel_id: str, is_archived: bool = True) -> None:
        """Archive a channel, or no longer, and send the app the event."""
        channel = self._team.channel(channel_id)
        channel.is_archived = is_archived
        event = "archive" if is_archived else "unarchive"
        self._announce_channel(channel, {"type": f"{_kind(channel)}_{event}", "channel": channel.id})

    def share(self, channel_id: str, is_shared: bool = True) -> None:
        """Connect a channel to another organization, or disconnect it, and send the app the event."""
        channel = self._team.channel(channel_id)
        channel.is_shared = is_shared
        event = "channel_shared" if is_shared else "channel_unshared"
        self._announce_channel(channel, {"type": event, "channel": channel.id, "connected_team_id": "T0PARTNER"})

    def rename(self, channel_id: str, name: str) -> None:
        """Rename a channel and send the app the event."""
        channel = self._team.channel(channel_id)
        channel.name = name
        shown = {"id": channel.id, "name": name, "created": channel.created}
        self._announce_channel(channel, {"type": f"{_kind(channel)}_rename", "channel": shown})

    def _announce_channel(self, channel: Channel, event: Json) -> None:
        self._team.publish_channel(channel)
        if self.bot_user_id in channel.members:
            self._delivery.send_event(event["type"], {**event, "event_ts": self._team.next_ts()}, channel)

    def uninstall(self) -> None:
        """Uninstall the app: revoke its tokens and send it the events."""
        self._tokens.revoked = True
        revoked = {"oauth": [], "bot": [self.bot_user_id]}
        self._delivery.send_event("tokens_revoked", {"type": "tokens_revoked", "tokens": revoked})
        self._delivery.send_event("app_uninstalled", {"type": "app_uninstalled"})

    def add_message(self, channel_id: str, user_id: str, text: str, *, thread_ts: str | None = None) -> str:
        """Add a message without sending the app an event. Returns its ts."""
        message = {"type": "message", "user": user_id, "text": text, "team": self.team_id}
        if thread_ts is not None:
            message["thread_ts"] = thread_ts
        return str(self._team.post(self._team.channel(channel_id), message)["ts"])

    def messages(self, channel_id: str) -> list[Json]:
        """All messages of a channel with their threads, as JSON, for another workspace that goes on with them."""
        return list(self._team.channel(channel_id).messages.values())

    def restore(self, channel_id: str, messages: Sequence[Json]) -> None:
        """Put messages of an earlier workspace into a channel, without an event."""
        self._team.channel(channel_id).messages.update({message["ts"]: dict(message) for message in messages})

    @property
    def traffic(self) -> list[Traffic]:
        """The last 5000 payloads to and from the app: (direction, name, body, status)."""
        return list(self._delivery.traffic)

    async def verify_requests_url(self) -> bool:
        """Send Slack's `url_verification` challenge; whether the app returned it."""
        challenge = secrets.token_urlsafe(30)
        payload = {"token": self._delivery.verification_token, "challenge": challenge, "type": "url_verification"}
        response = await self._delivery.request("events_api", "url_verification", payload)
        return challenge in (response.body.get("challenge"), response.body.get("text"))

    # Socket Mode connections

    @property
    def connections(self) -> int:
        """Number of the app's open Socket Mode connections."""
        return self._socket.count

    async def wait_connected(self, count: int = 1, timeout_s: float = 10.0) -> None:
        """Wait until the app has this many connections. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._socket.wait_for(count)

    async def refresh_connections(self) -> None:
        """Send `refresh_requested` to each connection, as Slack does regularly."""
        await self._socket.disconnect_all("refresh_requested")

    def drop_connections(self) -> None:
        """Abort each connection without a `disconnect` message."""
        self._socket.drop()


def _own_addresses_only(url: str) -> Middleware:
    """Reject foreign Host and Origin headers: web pages of other sites can reach the loopback interface too."""
    port = url.rpartition(":")[2]
    hosts = {f"{name}:{port}" for name in LOOPBACK}
    origins = {f"http://{host}" for host in hosts}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if request.host not in hosts or (origin is not None and origin not in origins):
            return web.Response(status=403, text="This server only answers at its own address.\n")
        return await handler(request)

    return check


def _kind(channel: Channel) -> str:
    """How the events of a channel begin; those of a private one have names of their own."""
    return "group" if channel.is_private else "channel"
