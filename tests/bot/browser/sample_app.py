"""A small Bolt app that sends and answers everything the page shows; it notes what it heard."""

import asyncio
import re
from typing import Any

from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack_emulator import Pointer, SlackEmulator
from tests.bot.browser import sample_blocks as blocks

Json = dict[str, Any]
MANIFEST: Json = {
    "display_information": {"name": "Responder"},
    "features": {
        "app_home": {"home_tab_enabled": True, "messages_tab_enabled": True},
        "bot_user": {"display_name": "responder"},
        "slash_commands": [
            {
                "command": "/responder",
                "description": "Alerts and responders",
                "usage_hint": "alert ~id | list ~id | help",
            },
            {"command": "/everything", "description": "Every block and element"},
            {"command": "/late", "description": "Answers too late"},
        ],
        "shortcuts": [
            {"name": "New case", "type": "global", "callback_id": "new_case", "description": "Opens the form"},
            {
                "name": "Make a case of this",
                "type": "message",
                "callback_id": "case_of",
                "description": "Opens the form",
            },
        ],
    },
    "oauth_config": {
        "scopes": {
            "bot": [
                "commands",
                "chat:write",
                "files:write",
                "channels:history",
                "groups:history",
                "im:history",
                "im:write",
                "channels:read",
                "users:read",
                "app_mentions:read",
            ]
        }
    },
    "settings": {
        "interactivity": {"is_enabled": True},
        "event_subscriptions": {"bot_events": ["app_home_opened", "message.channels", "message.im"]},
        "socket_mode_enabled": True,
    },
}
GROUPS = [
    ("Can run", [("Block sender", "block"), ("Reset password", "reset")]),
    ("Can't run", [("Isolate host", "isolate")]),
]


class SampleApp:
    """The app, connected by Socket Mode; `heard` holds (kind, detail) of everything that reached it."""

    def __init__(self, emulator: SlackEmulator) -> None:
        self.heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.client = AsyncWebClient(token=emulator.bot_token, base_url=emulator.api_url)
        self.app = AsyncApp(client=self.client)
        self.released = asyncio.Event()
        self._visits = 0
        self._handler = AsyncSocketModeHandler(self.app, emulator.app_token)
        self._listen()

    async def start(self) -> None:
        await self._handler.connect_async()  # type: ignore[no-untyped-call]  # the SDK has no types here

    async def stop(self) -> None:
        self.released.set()
        await self._handler.close_async()  # type: ignore[no-untyped-call]  # as above

    async def hear(self, kind: str) -> Any:
        """The next thing of this kind; what comes before it is passed over."""
        while True:
            found, detail = await self.heard.get()
            if found == kind:
                return detail

    def _listen(self) -> None:
        app = self.app
        app.command("/responder")(self._on_responder)
        app.command("/everything")(self._on_everything)
        app.command("/late")(self._on_late)
        app.action("push")(self._on_push)
        app.action(re.compile(".*"))(self._on_action)
        app.options("external_select")(self._on_options)
        app.options("multi_external_select")(self._on_options)
        app.view("everything")(self._on_form)
        app.view("details")(self._on_details)
        app.shortcut("new_case")(self._on_shortcut)
        app.shortcut("case_of")(self._on_shortcut)
        app.event("app_home_opened")(self._on_home)
        app.event("message")(self._on_message)

    async def _on_responder(self, ack: Any, body: Json, respond: Any) -> None:
        await ack()
        self.heard.put_nowait(("command", body["text"]))
        if body["text"].startswith("alert"):
            await self.client.chat_postMessage(channel=body["channel_id"], **blocks.card())
            return
        await respond(text=f"Only you see this: *{body['text'] or 'help'}*", response_type="ephemeral")

    async def _on_everything(self, ack: Any, body: Json) -> None:
        await ack()
        self.heard.put_nowait(("command", body["text"]))
        channel = body["channel_id"]
        await self.client.chat_postMessage(channel=channel, text="Every text", blocks=blocks.texts())
        await self.client.chat_postMessage(channel=channel, text="Every element", blocks=blocks.pickers())

    async def _on_late(self, ack: Any) -> None:
        await self.released.wait()
        await ack()

    async def _on_action(self, ack: Any, body: Json) -> None:
        await ack()
        action = body["actions"][0]
        self.heard.put_nowait(("action", action))
        if action["action_id"] == "refill":
            await self._refill(body["view"])
        if action["action_id"] == "run":
            await self._repaint(body)
        if action["action_id"] == "home_refresh":
            await self._publish(body["user"]["id"])

    async def _refill(self, view: Json) -> None:
        first, *rest = blocks.form()["blocks"]
        changed = {
            **blocks.form(),
            "blocks": [{"type": "context", "block_id": "note", "elements": [blocks.mrkdwn("Refilled")]}, first, *rest],
        }
        await self.client.views_update(view_id=view["id"], hash=view["hash"], view=changed)

    async def _repaint(self, body: Json) -> None:
        card = blocks.card()
        line = {
            "type": "context",
            "block_id": "new-run",
            "elements": [blocks.mrkdwn(":hourglass_flowing_sand: *Reset password* runs")],
        }
        card["attachments"][0]["blocks"].append(line)
        channel, ts = body["channel"]["id"], body["message"]["ts"]
        await self.client.chat_update(channel=channel, ts=ts, **card)
        await self.client.chat_postMessage(
            channel=channel, thread_ts=ts, text="*Reset password* started by Anna Analyst."
        )
        report = "\n".join(f"line {number}: <b>checked</b>" for number in range(40))
        await self.client.files_upload_v2(
            channel=channel, thread_ts=ts, content=report, filename="report.txt", title="Report"
        )

    async def _on_push(self, ack: Any, body: Json) -> None:
        await ack()
        inner = [blocks.field("note", "Note", blocks.element("plain_text_input"))]
        view = blocks.modal("Details", inner, submit=blocks.plain("Keep"), callback_id="details", notify_on_close=True)
        await self.client.views_push(trigger_id=body["trigger_id"], view=view)

    async def _on_options(self, ack: Any, payload: Json) -> None:
        wanted = payload["value"].lower()
        groups = [
            {"label": blocks.plain(label), "options": found}
            for label, rows in GROUPS
            if (found := [blocks.option(text, value) for text, value in rows if wanted in text.lower()])
        ]
        self.heard.put_nowait(("options", payload["value"]))
        await ack(option_groups=groups) if groups else await ack(options=[])

    async def _on_form(self, ack: Any, view: Json) -> None:
        values = view["state"]["values"]
        if values["title"]["plain_text_input"]["value"] == "taken":
            await ack(response_action="errors", errors={"title": "That title is taken."})
            return
        await ack()
        self.heard.put_nowait(("form", values))

    async def _on_details(self, ack: Any, view: Json) -> None:
        await ack()
        self.heard.put_nowait(("details", view["state"]["values"]["note"]["plain_text_input"]["value"]))

    async def _on_shortcut(self, ack: Any, body: Json) -> None:
        await ack()
        self.heard.put_nowait(("shortcut", (body["type"], body["callback_id"])))
        await self.client.views_open(trigger_id=body["trigger_id"], view=blocks.form())

    async def _on_home(self, event: Json) -> None:
        await self._publish(event["user"])

    async def _publish(self, user: str) -> None:
        self._visits += 1
        await self.client.views_publish(user_id=user, view=blocks.home(self._visits))

    async def _on_message(self, event: Json) -> None:
        self.heard.put_nowait(("message", event.get("text", "")))


def people(emulator: SlackEmulator) -> None:
    """The people and channels of these tests."""
    emulator.add_user("U0ANNA", name="anna", real_name="Anna Analyst")
    emulator.add_user("U0BEN", name="ben", real_name="Ben Second")
    emulator.add_user("U0NORA", name="nora", real_name="Nora Newcomer")
    emulator.add_channel("C0SOC", name="soc-alerts")
    emulator.add_channel("C0TALK", name="general")
    emulator.add_channel("C0RED", name="incident-red", members=["U0ANNA", "U0BEN"], is_private=True)
    emulator.pointers.extend(
        [
            Pointer(
                "Look at an alert",
                "A card with its fields and buttons.",
                channel="C0SOC",
                insert="/responder alert ~12",
                done="Ransomware",
            ),
            Pointer("See everything", "Each block and element once.", channel="C0SOC", insert="/everything"),
            Pointer("Ask for help", "Only you see the answer.", channel="C0SOC", insert="/responder help"),
        ]
    )
