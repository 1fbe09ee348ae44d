"""A user of the page for tests and the demo, over the page's HTTP API and live WebSocket."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Self, TypeVar

import aiohttp

from bot.slack_emulator.state import Json, is_root

T = TypeVar("T")
CLOSE_TIMEOUT_S = 1.0  # how long to wait for the WebSocket's close frame


class Refused(Exception):
    """The emulator rejected a user's request, such as for a closed view; `error` is its error code."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(f"HTTP {status}: {body.get('error')}: {body.get('text', '')}")
        self.status = status
        self.error = str(body.get("error"))


class EmulatorView:
    """What a user currently sees, kept up to date by the live feed."""

    def __init__(self) -> None:
        self.channels: dict[str, Json] = {}
        self.notices: list[Json] = []
        self.notifications: list[Json] = []
        """What this person's phone showed, oldest first: `channel, ts, text`."""
        self.home: Json | None = None
        self.modals: list[Json] = []
        self.earlier_modals: list[Json] = []
        """Every state of every modal, oldest first."""
        self.errors: dict[str, str] = {}
        self._messages: dict[str, dict[str, Json]] = {}

    def messages(self, channel: str) -> list[Json]:
        """Messages of the channel with ephemeral ones, oldest first."""
        return [m for m in self._sorted(channel) if is_root(m)]

    def thread(self, channel: str, ts: str) -> list[Json]:
        """A message and its replies, oldest first."""
        return [m for m in self._sorted(channel) if ts in (m["ts"], m.get("thread_ts"))]

    def ephemerals(self, channel: str) -> list[Json]:
        """Ephemeral messages, including those in threads."""
        return [m for m in self._sorted(channel) if m.get("ephemeral")]

    def message(self, channel: str, ts: str) -> Json | None:
        """One message, if visible."""
        return self._messages.get(channel, {}).get(ts)

    @property
    def modal(self) -> Json | None:
        """The topmost modal, if any."""
        return self.modals[-1] if self.modals else None

    def apply(self, event: Json) -> None:
        """Apply an event of the live feed."""
        kind = event["type"]
        if kind in ("message", "message_changed", "ephemeral", "ephemeral_replaced"):
            self.put(event["channel"], event["message"])
        elif kind == "message_deleted":
            self._messages.get(event["channel"], {}).pop(event["ts"], None)
        elif kind == "channel":
            self.channels[event["channel"]["id"]] = event["channel"]
        elif kind == "unread":
            self.channels.setdefault(event["channel"], {"id": event["channel"]})["unread"] = event["unread"]
        elif kind == "notice":
            self.notices.append(event)
        elif kind == "notification":
            shown = {name: event[name] for name in ("channel", "ts", "text")}
            self.notifications += [shown] if shown not in self.notifications else []  # the loaded state may have it
        elif kind == "home":
            self.home = event["view"]
        elif kind.startswith("view_"):
            self._apply_view(kind, event["view"])

    def _apply_view(self, kind: str, view: Json) -> None:
        if kind == "view_closed":
            self.modals = [modal for modal in self.modals if modal["id"] != view["id"]]
        elif kind == "view_opened":
            self.modals = [*self.modals[: view["stack_depth"] - 1], view]
        else:
            self.modals = [view if modal["id"] == view["id"] else modal for modal in self.modals]
        if kind != "view_closed":
            self.earlier_modals.append(view)
        self.errors = view.get("errors", {})

    def put(self, channel: str, message: Json) -> None:
        """Add or replace a message."""
        self._messages.setdefault(channel, {})[message["ts"]] = message

    def summary(self) -> str:
        """A short description for error messages."""
        texts = [f"{c}: {m.get('text', '')[:200]!r}" for c in self._messages for m in self._sorted(c)[-5:]]
        views = [f"view {v['callback_id']!r}" for v in self.modals]
        return "; ".join([*texts, *views, *[f"notice {n['text']!r}" for n in self.notices]]) or "nothing"

    def _sorted(self, channel: str) -> list[Json]:
        return sorted(self._messages.get(channel, {}).values(), key=lambda m: str(m["ts"]))


class EmulatedUser:
    """A user of the emulator. Use as `async with`, or call `disconnect()` at the end.

    Methods return the emulator's response; `ok` is False if the app didn't acknowledge. They raise Refused if the
    emulator rejects the request.
    """

    def __init__(self, url: str, token: str, user_id: str) -> None:
        self.url = url.rstrip("/").partition("/?")[0]
        self.user_id = user_id
        self._token = token
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._listener: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._connecting = asyncio.Lock()
        self._live_view: EmulatorView | None = None
        self._ended = False

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    async def connect(self) -> None:
        """Open the live feed and load the current state, unless that is done; what needs them calls it."""
        async with self._connecting:
            if self._listener is not None:
                return
            self._session = aiohttp.ClientSession(headers={"X-Page-Token": self._token})
            try:
                self._socket = await self._open_live(self._session)
                view = await self._load_state()  # events that happen meanwhile are buffered by the socket
                self._listener = asyncio.create_task(self._listen(self._socket, view))
            except BaseException:
                await self.disconnect()
                raise

    async def _open_live(self, session: aiohttp.ClientSession) -> aiohttp.ClientWebSocketResponse:
        close_timeout = aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT_S)
        who = {"user": self.user_id, "panel": "no"}
        try:
            return await session.ws_connect(f"{self.url}/page/live", params=who, max_msg_size=0, timeout=close_timeout)
        except aiohttp.WSServerHandshakeError as refused:
            raise Refused(refused.status, {"error": "no_live_feed", "text": "Wrong token or user."}) from refused

    async def disconnect(self) -> None:
        """Close the live feed and the HTTP session."""
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        if self._socket is not None:
            await self._socket.close()
        if self._session is not None:
            await self._session.close()
        self._listener, self._socket, self._session = None, None, None

    # actions

    async def command(self, channel: str, text: str) -> Json:
        """Send a slash command."""
        return await self._post("command", channel=channel, text=text)

    async def say(self, channel: str, text: str, thread_ts: str | None = None) -> Json:
        """Post a message and return it."""
        response = await self._post("say", channel=channel, text=text, thread_ts=thread_ts)
        return dict(response["message"])

    async def dm(self, user_id: str) -> str:
        """Open the direct messages with a user; return the channel id."""
        return str((await self._post("dm", **{"with": user_id}))["channel"]["id"])

    async def click(
        self,
        channel: str | None,
        message_ts: str | None = None,
        *,
        action_id: str,
        block_id: str | None = None,
        value: Any = None,
        view_id: str | None = None,
    ) -> Json:
        """Click a button or select `value`, in a message or in the view `view_id`."""
        where = {"channel": channel, "ts": message_ts, "view_id": view_id}
        return await self._post("action", **where, block_id=block_id, action_id=action_id, value=value)

    async def options(
        self,
        channel: str | None = None,
        message_ts: str | None = None,
        *,
        action_id: str,
        query: str = "",
        block_id: str | None = None,
        view_id: str | None = None,
    ) -> list[Json]:
        """Query a select menu; return option groups `{"label", "options"}` (ungrouped options: label None)."""
        where = {"channel": channel, "ts": message_ts, "view_id": view_id}
        response = await self._post("options", **where, block_id=block_id, action_id=action_id, query=query)
        if "error" in response:
            raise Refused(200, response)
        if "option_groups" in response:
            return list(response["option_groups"])
        return [{"label": None, "options": response["options"]}]

    async def submit(self, view_id: str, values: Json) -> Json:
        """Submit a modal with `{block_id: {action_id: value}}`; the response has `errors` by block_id, if any."""
        return await self._post("view/submit", view_id=view_id, values=values)

    async def close(self, view_id: str) -> Json:
        """Close a modal."""
        return await self._post("view/close", view_id=view_id)

    async def shortcut(self, callback_id: str, channel: str | None = None, message_ts: str | None = None) -> Json:
        """Run a global shortcut, or a message shortcut."""
        return await self._post("shortcut", callback_id=callback_id, channel=channel, ts=message_ts)

    async def open_home(self) -> Json:
        """Open the app's Home tab."""
        return await self._post("home")

    async def read(self, channel: str) -> Json:
        """Mark a channel as read."""
        return await self._post("read", channel=channel)

    async def upload(self, name: str, content: bytes, channel: str | None = None) -> Json:
        """Upload a file to a channel, or for a `file_input` element (whose value is a list of file ids)."""
        await self.connect()
        assert self._session is not None  # noqa: S101  # connect opened it
        form = aiohttp.FormData({"user": self.user_id, **({"channel": channel} if channel else {})})
        form.add_field("file", content, filename=name)
        async with self._session.post(f"{self.url}/page/upload", data=form) as response:
            return dict((await _json_body(response))["file"])

    # queries

    async def messages(self, channel: str) -> list[Json]:
        """Fetch the channel's messages with ephemeral ones, oldest first."""
        return list((await self._get("messages", channel=channel))["messages"])

    async def thread(self, channel: str, ts: str) -> list[Json]:
        """Fetch a thread, parent message first."""
        return list((await self._get("thread", channel=channel, ts=ts))["messages"])

    async def ephemerals(self, channel: str) -> list[Json]:
        """Fetch the ephemeral messages of the channel."""
        return [message for message in await self.messages(channel) if message.get("ephemeral")]

    async def modal(self) -> Json | None:
        """Fetch the topmost modal."""
        views = (await self.state())["views"]
        return dict(views[-1]) if views else None

    async def home(self) -> Json | None:
        """Fetch the App Home."""
        home = (await self.state())["home"]
        return None if home is None else dict(home)

    async def state(self) -> Json:
        """Fetch the page's initial state."""
        return await self._get("state")

    async def file(self, file_id: str) -> bytes:
        """Download a file."""
        await self.connect()
        assert self._session is not None  # noqa: S101  # connect opened it
        async with self._session.get(f"{self.url}/page/file/{file_id}") as response:
            response.raise_for_status()
            return await response.read()

    @property
    def live_view(self) -> EmulatorView:
        """The view kept up to date by the live feed. Raises RuntimeError before `connect`, when nothing is in it."""
        if self._live_view is None:
            raise RuntimeError(f"{self.user_id} is not connected yet.")
        return self._live_view

    async def until(self, condition: Callable[[EmulatorView], T], timeout_s: float = 30.0) -> T:
        """Wait until `condition(view)` is truthy and return its result. Raises TimeoutError or ConnectionError."""
        await self.connect()
        results: list[T] = []

        def look() -> bool:
            results[:] = [condition(self.live_view)]
            return bool(results[0]) or self._ended

        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(look)
        except TimeoutError:
            raise TimeoutError(f"Not seen within {timeout_s:g} s. In view: {self.live_view.summary()}") from None
        if not results[0]:
            raise ConnectionError("The emulator stopped during the wait.")
        return results[0]

    # helpers

    async def _load_state(self) -> EmulatorView:
        state = await self.state()
        view = self._live_view = self._live_view or EmulatorView()
        view.home, view.modals, view.notifications = state["home"], state["views"], state["notifications"]
        for channel in state["channels"]:
            view.channels[channel["id"]] = channel
        for where, messages in (await self._get("history"))["messages"].items():
            for message in messages:
                view.put(where, message)
        return view

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse, view: EmulatorView) -> None:
        async for message in socket:
            event = json.loads(message.data)
            async with self._changed:
                view.apply(event)
                self._changed.notify_all()
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def _post(self, what: str, **body: Any) -> Json:
        await self.connect()
        assert self._session is not None  # noqa: S101  # connect opened it
        payload = {"user": self.user_id, **body}
        async with self._session.post(f"{self.url}/page/{what}", json=payload) as response:
            return await _json_body(response)

    async def _get(self, what: str, **query: str) -> Json:
        if self._session is None:
            await self.connect()
        assert self._session is not None  # noqa: S101  # connect opened it
        params = {"user": self.user_id, **query}
        async with self._session.get(f"{self.url}/page/{what}", params=params) as response:
            return await _json_body(response)


async def _json_body(response: aiohttp.ClientResponse) -> Json:
    body: Json = await response.json()
    if response.status != 200:
        raise Refused(response.status, body)
    return body
