"""How an answer reaches one person: by response_url, else as an ephemeral message, else as a direct message."""

from collections.abc import Mapping
from typing import Any

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.app.interactions import Interaction
from bot.cards import views
from bot.cards.message import Message

RESPONSES = 5  # uses of a response_url (slack.md 1)

log = structlog.get_logger("bot.app")


class Replies:
    """Answers to one arrival."""

    def __init__(self, arrival: Interaction, slack: AsyncWebClient, session: aiohttp.ClientSession) -> None:
        self._arrival = arrival
        self._slack = slack
        self._session = session
        self._view_id = ""
        self._left = RESPONSES if arrival.response_url else 0

    async def say(self, message: Message) -> None:
        """Only to this person."""
        place = {"response_type": "ephemeral", "replace_original": False, **self._thread()}
        if await self._respond({**place, **message.payload()}):
            return
        for attempt in (self._ephemeral, self._direct):
            if await attempt(message):
                return
        log.warning("answer_lost", channel=self._arrival.channel)

    async def replace(self, message: Message | None) -> None:
        """In place of the ephemeral that was clicked; None takes it away."""
        if message is None:
            await self._respond({"delete_original": True})
        elif not await self._respond({"replace_original": True, **self._thread(), **message.payload()}):
            await self.say(message)

    async def show(self, view: Mapping[str, Any]) -> None:
        """A modal: opened by the trigger, which lives 3 s and counts once; from then on the same one changes."""
        if self._view_id:
            await self._slack.views_update(view_id=self._view_id, view=dict(view))
            return
        opened = await self._slack.views_open(trigger_id=self._arrival.trigger_id, view=dict(view))
        self._view_id = str((opened.get("view") or {}).get("id") or "")

    async def refuse(self, message: Message) -> None:
        """Why nothing was done: in the modal if one is open, else only to this person."""
        if self._view_id:
            await self.show(views.message_view("Not done", message))
        else:
            await self.say(message)

    async def _respond(self, body: dict[str, Any]) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        try:
            async with self._session.post(self._arrival.response_url, json=body) as answer:
                if answer.status == 200:
                    return True
                log.info("response_url_refused", status=answer.status, reason=(await answer.text())[:200])
        except (aiohttp.ClientError, TimeoutError) as error:
            log.info("response_url_failed", reason=type(error).__name__)
        return False

    async def _ephemeral(self, message: Message) -> bool:
        if not self._arrival.channel:
            return False
        place = {"channel": self._arrival.channel, "user": self._arrival.user, **self._thread()}
        return await self._post("chat.postEphemeral", place, message)

    def _thread(self) -> dict[str, str]:
        """The thread that was clicked in: on a phone it covers the channel. A root's answers stay in the channel."""
        root = self._arrival.thread_ts
        return {"thread_ts": root} if root not in ("", self._arrival.message_ts) else {}

    async def _direct(self, message: Message) -> bool:
        if not self._arrival.user:
            return False
        return await self._post("chat.postMessage", {"channel": self._arrival.user}, message)

    async def _post(self, method: str, place: dict[str, str], message: Message) -> bool:
        """With its blocks, or as text alone when Slack refuses them."""
        for content in (message.payload(), {"text": message.text}):
            try:
                await self._slack.api_call(method, json={**place, **content})
                return True
            except SlackApiError as error:
                code = error.response.get("error") if isinstance(error.response.data, dict) else "?"
                log.info("answer_refused", method=method, code=code)
                if code not in ("invalid_blocks", "invalid_attachments", "msg_too_long", "msg_blocks_too_long"):
                    return False
            except (aiohttp.ClientError, TimeoutError) as error:
                log.info("answer_failed", method=method, reason=type(error).__name__)
                return False
        return False
