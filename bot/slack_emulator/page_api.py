"""HTTP API of the page: static files, state, user actions and the live event feed."""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from aiohttp import WSMsgType, web
from yarl import URL

from bot.slack_emulator.errors import PageError, SlackError
from bot.slack_emulator.files import Files
from bot.slack_emulator.interactions import InteractionOrigin
from bot.slack_emulator.manifest import Manifest
from bot.slack_emulator.pointers import Pointer
from bot.slack_emulator.state import Channel, Json, Team, User
from bot.slack_emulator.user_actions import UserActions
from bot.slack_emulator.views import Views

PAGE_FOLDER = Path(__file__).parent / "page"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
PICTURES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
}
HEARTBEAT_S = 20.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageApi:
    """Endpoints for the page in a browser and for `EmulatedUser`. Each call needs the page token."""

    def __init__(
        self,
        token: str,
        team: Team,
        manifest: Manifest,
        user_actions: UserActions,
        views: Views,
        files: Files,
        pointers: Sequence[Pointer],
    ) -> None:
        self._token = token
        self._team = team
        self._manifest = manifest
        self._user_actions = user_actions
        self._views = views
        self._files = files
        self._pointers = pointers
        self._live: set[web.WebSocketResponse] = set()

    def routes(self) -> list[web.RouteDef]:
        """Routes of the page."""
        posts: dict[str, Callable[[Json], Awaitable[Json]]] = {
            "command": self._command,
            "say": self._say,
            "dm": self._dm,
            "action": self._action,
            "options": self._options,
            "view/submit": self._submit,
            "view/close": self._close,
            "shortcut": self._shortcut,
            "home": self._home,
            "read": self._read,
            "pointer": self._pointer,
        }
        return [
            web.get("/", self.index),
            web.get("/static/{path:.+}", self.static),
            web.get("/archives/{channel}/p{ts}", self.permalink),
            web.get("/page/state", self._guarded(self.state)),
            web.get("/page/messages", self._guarded(self.messages)),
            web.get("/page/thread", self._guarded(self.thread)),
            web.get("/page/history", self._guarded(self.history)),
            web.get("/page/live", self._guarded(self.live)),
            web.get("/page/file/{id}", self._guarded(self.file)),
            web.post("/page/upload", self._guarded(self.upload)),
            *[web.post(f"/page/{name}", self._guarded(_json_handler(action))) for name, action in posts.items()],
        ]

    # authentication

    def _cookie_name(self, request: web.Request) -> str:
        return "workspace_page_" + request.host.rpartition(":")[2]  # cookies ignore the port

    def _allowed(self, request: web.Request) -> bool:
        token = request.headers.get("X-Page-Token") or request.cookies.get(self._cookie_name(request), "")
        return hmac.compare_digest(token.encode(), self._token.encode())

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            if not self._allowed(request):
                text = "Open the page at the address that the emulator printed when it started: it contains the token."
                return web.json_response({"ok": False, "error": "no_token", "text": text}, status=403)
            try:
                return await handler(request)
            except PageError as wrong:
                return _refused(wrong)
            except SlackError as wrong:
                return _refused(PageError(wrong.code, wrong.code))

        return guarded

    async def index(self, request: web.Request) -> web.StreamResponse:
        """Serve the page. `?token=` sets the cookie, then redirects to the address without the token."""
        token = request.query.get("token")
        if token is not None and hmac.compare_digest(token.encode(), self._token.encode()):
            rest = request.rel_url.without_query_params("token")
            response: web.StreamResponse = web.Response(status=303, headers={"Location": str(rest), **PAGE_HEADERS})
            response.set_cookie(self._cookie_name(request), self._token, httponly=True, samesite="Strict", path="/")
            return response
        if not self._allowed(request):
            text = "Open the page at the address that the emulator printed when it started: it contains the token.\n"
            return web.Response(status=403, text=text, headers=PAGE_HEADERS)
        page = PAGE_FOLDER / "index.html"
        if not page.is_file():
            return web.Response(text="The emulator is running, but its page isn't installed.\n", headers=PAGE_HEADERS)
        return web.FileResponse(page, headers=PAGE_HEADERS)

    async def permalink(self, request: web.Request) -> web.StreamResponse:
        """Redirect a permalink to the page, at that message."""
        digits = request.match_info["ts"]
        where = {"channel": request.match_info["channel"], "ts": f"{digits[:-6]}.{digits[-6:]}"}
        return web.Response(status=303, headers={"Location": str(URL("/").with_query(where)), **PAGE_HEADERS})

    async def static(self, request: web.Request) -> web.StreamResponse:
        """Serve a static file of the page."""
        path = (PAGE_FOLDER / request.match_info["path"]).resolve()
        if not path.is_relative_to(PAGE_FOLDER.resolve()) or not path.is_file():
            return web.Response(status=404, text="No such file.\n", headers=PAGE_HEADERS)
        return web.FileResponse(path, headers=PAGE_HEADERS)

    # reading

    def _me(self, request: web.Request) -> User:
        user = self._team.users.get(request.query.get("user", ""))
        if user is None:
            raise PageError("user_not_found", "Name a user: ?user=U...", status=404)
        return user

    def _default_user(self) -> User:
        """The first person, for a page that has not chosen a user yet."""
        chosen = next((user for user in self._team.users.values() if not user.is_bot), None)
        if chosen is None:
            raise PageError("no_users", "This workspace has no users yet.", status=404)
        return chosen

    def _channel(self, request: web.Request, user: User) -> Channel:
        channel = self._team.channels.get(request.query.get("channel", ""))
        if channel is None or not channel.is_visible_to(user.id):
            raise PageError("channel_not_found", "This user can't see such a channel.", status=404)
        return channel

    async def state(self, request: web.Request) -> web.StreamResponse:
        """The initial state of the page."""
        me = self._me(request) if "user" in request.query else self._default_user()
        home = self._views.home(me.id)
        return web.json_response(
            {
                "ok": True,
                "team": {"id": self._team.id, "name": self._team.name},
                "me": me.id,
                "bot": self._team.bot_user_id,
                "users": [user.for_page() for user in self._team.users.values()],
                "channels": [self._team.channel_for_page(c, me.id) for c in self._team.visible_channels(me.id)],
                "commands": self._manifest.commands,
                "shortcuts": self._manifest.shortcuts,
                "pointers": [pointer.for_page() for pointer in self._pointers],
                "views": [self._view(me.id, view) for view in self._views.stack(me.id)],
                "home": None if home is None else self._view(me.id, home),
                "has_home": self._manifest.has_home,
                "notifications": self._team.notifications.get(me.id, []),
            }
        )

    def _view(self, user_id: str, view: Json) -> Json:
        return self._views.for_page(user_id, view, busy=self._user_actions.is_busy(view["id"]))

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """Messages of a channel, with this user's ephemeral ones."""
        me = self._me(request)
        channel = self._channel(request, me)
        ephemerals = [m for m in channel.ephemerals_for(me.id) if not m.get("thread_ts")]
        return web.json_response({"ok": True, "messages": _by_time([*channel.roots(), *ephemerals])})

    async def thread(self, request: web.Request) -> web.StreamResponse:
        """A thread, parent message first."""
        me = self._me(request)
        channel = self._channel(request, me)
        ts = request.query.get("ts", "")
        ephemerals = [m for m in channel.ephemerals_for(me.id) if m.get("thread_ts") == ts]
        return web.json_response({"ok": True, "messages": _by_time([*channel.thread(ts), *ephemerals])})

    async def history(self, request: web.Request) -> web.StreamResponse:
        """All messages that this user sees, replies and ephemeral ones too, by channel."""
        me = self._me(request)
        channels = self._team.visible_channels(me.id)
        messages = {channel.id: [*channel.messages.values(), *channel.ephemerals_for(me.id)] for channel in channels}
        return web.json_response({"ok": True, "messages": messages})

    async def file(self, request: web.Request) -> web.StreamResponse:
        """Download a file; images are shown inline."""
        stored = self._files.get(request.match_info["id"])
        if stored is None:
            raise PageError("file_not_found", "This file isn't there any more.", status=404)
        kind = PICTURES.get(stored.name.rpartition(".")[2].lower(), "application/octet-stream")
        response = web.Response(body=stored.content, content_type=kind, headers=PAGE_HEADERS)
        if kind == "application/octet-stream":
            quoted = "".join(c if c.isalnum() or c in "._-" else "_" for c in stored.name)
            response.headers["Content-Disposition"] = f'attachment; filename="{quoted}"'
        return response

    async def live(self, request: web.Request) -> web.StreamResponse:
        """The live feed of one open page; `?panel=no` without the payloads."""
        me = self._me(request)
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S)
        with self._team.feed.page(me.id, panel=request.query.get("panel") != "no") as events:
            await socket.prepare(request)
            self._live.add(socket)
            sender = asyncio.create_task(_send(socket, events))
            try:
                async for message in socket:
                    if message.type is WSMsgType.ERROR:
                        break
            finally:
                self._live.discard(socket)
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)
        return socket

    async def close(self) -> None:
        """Close the WebSockets of the open pages."""
        for socket in list(self._live):
            await socket.close(code=1001)

    # user actions

    async def _command(self, body: Json) -> Json:
        text = _text(body, "text")
        if not text.startswith("/"):
            raise PageError("not_a_command", 'A command starts with "/".')
        return await self._user_actions.command(_text(body, "user"), _text(body, "channel"), text)

    async def _say(self, body: Json) -> Json:
        who, where = _text(body, "user"), _text(body, "channel")
        message = self._user_actions.say(who, where, _text(body, "text"), body.get("thread_ts"))
        return {"ok": True, "message": message}

    async def _dm(self, body: Json) -> Json:
        return {"ok": True, "channel": self._user_actions.direct(_text(body, "user"), _text(body, "with"))}

    def _origin(self, body: Json) -> InteractionOrigin:
        channel_id, ts, view_id = body.get("channel"), body.get("ts"), body.get("view_id")
        return self._user_actions.origin(_text(body, "user"), channel_id, ts, view_id)

    async def _action(self, body: Json) -> Json:
        origin = self._origin(body)
        block_id, action_id = body.get("block_id"), _text(body, "action_id")
        return await self._user_actions.act(_text(body, "user"), origin, block_id, action_id, body.get("value"))

    async def _options(self, body: Json) -> Json:
        origin = self._origin(body)
        block_id, action_id = body.get("block_id"), _text(body, "action_id")
        query = str(body.get("query") or "")
        return await self._user_actions.options(_text(body, "user"), origin, block_id, action_id, query)

    async def _submit(self, body: Json) -> Json:
        values = body.get("values") or {}
        if not isinstance(values, dict) or not all(isinstance(fields, dict) for fields in values.values()):
            raise PageError("bad_values", "Values are {block_id: {action_id: value}}.")
        return await self._user_actions.submit(_text(body, "user"), _text(body, "view_id"), values)

    async def _close(self, body: Json) -> Json:
        return await self._user_actions.close(_text(body, "user"), _text(body, "view_id"))

    async def _shortcut(self, body: Json) -> Json:
        who, which = _text(body, "user"), _text(body, "callback_id")
        return await self._user_actions.shortcut(who, which, body.get("channel"), body.get("ts"))

    async def _home(self, body: Json) -> Json:
        return self._user_actions.open_home(_text(body, "user"))

    async def _read(self, body: Json) -> Json:
        self._user_actions.read(_text(body, "user"), _text(body, "channel"))
        return {"ok": True}

    async def _pointer(self, body: Json) -> Json:
        title = _text(body, "title")
        for pointer in self._pointers:
            if pointer.title == title and pointer.start:
                await pointer.start()
        return {"ok": True}

    async def upload(self, request: web.Request) -> web.StreamResponse:
        """Upload a user's file to a channel, or, without a channel, for a `file_input` element."""
        form = await request.post()
        field = next((value for value in form.values() if isinstance(value, web.FileField)), None)
        if field is None:
            raise PageError("no_file", "Choose a file first.")
        who = str(form.get("user") or request.query.get("user") or "")
        self._user_actions.person(who)
        where = str(form.get("channel") or request.query.get("channel") or "")
        content = field.file.read()
        stored = self._files.request_upload(field.filename, len(content), who)
        self._files.store_content(stored.key, content)
        shown = self._files.to_json(stored.id)
        if not where:
            return web.json_response({"ok": True, "file": shown})
        message = self._user_actions.say(who, where, str(form.get("text") or ""), None, files=[shown], upload=True)
        return web.json_response({"ok": True, "message": message, "file": shown})


async def _send(socket: web.WebSocketResponse, events: "asyncio.Queue[str]") -> None:
    while True:
        await socket.send_str(await events.get())


def _json_handler(action: Callable[[Json], Awaitable[Json]]) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            body = json.loads(await request.text())
        except ValueError:
            raise PageError("invalid_json", "The body is not valid JSON.") from None
        if not isinstance(body, dict) or request.content_type != "application/json":
            raise PageError("invalid_json", "The body must be a JSON object.")
        return web.json_response(await action(body))

    return handle


def _text(body: Json, name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise PageError("missing", f"{name!r} is missing.")
    return value


def _by_time(messages: list[Json]) -> list[Json]:
    return sorted(messages, key=lambda message: str(message["ts"]))


def _refused(wrong: PageError) -> web.Response:
    return web.json_response({"ok": False, "error": wrong.code, "text": wrong.text}, status=wrong.status)
