"""How a response reaches one person: by response_url, else as an ephemeral message, else as a direct message."""

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import structlog
from slack_sdk.web.async_client import AsyncWebClient
from yarl import URL

from bot.app.interactions import Interaction
from bot.block_kit import ids, modals
from bot.message import Message
from bot.outbox.errors import SLACK_FAILURES, classify
from core.common.decoding import mapping

RESPONSE_URL_USES = 5  # as many as Slack accepts
RESPONSE_URL_S = 3.0
MAX_AT_ONCE = 8  # half of the dispatcher's workers
SLACK_HOSTS = (".slack.com", ".slack-gov.com")

log = structlog.get_logger("bot.app")


class ResponseUrls:
    """Posts to the response_urls of payloads, which are foreign until their host is Slack's or that of `api_url`.

    No redirect is followed, and no content is read. While MAX_AT_ONCE of them hang, others are not waited for.
    """

    def __init__(self, session: aiohttp.ClientSession, api_url: str) -> None:
        self._session = session
        self._api = URL(api_url)
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def post(self, response_url: str, body: Mapping[str, Any]) -> bool:
        """Whether Slack took it."""
        if not self._is_slacks(response_url):
            log.warning("response_url_foreign")
            return False
        if self._slots.locked():
            return False
        try:
            async with (
                self._slots,
                self._session.post(
                    URL(response_url),
                    json=body,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=RESPONSE_URL_S),
                ) as response,
            ):
                if response.status == 200:
                    return True
                log.info("response_url_refused", status=response.status)
        except (aiohttp.ClientError, TimeoutError) as error:
            log.info("response_url_failed", reason=type(error).__name__)
        return False

    def _is_slacks(self, response_url: str) -> bool:
        """Reads it by the parser of the client that posts there, since others may find another host in it."""
        try:
            url = URL(response_url)
            host, is_plain = url.host or "", url.user is None and url.password is None
            if host == self._api.host:
                return is_plain and url.scheme in ("https", self._api.scheme)
            return is_plain and (url.scheme, url.port) == ("https", 443) and host.endswith(SLACK_HOSTS)
        except (ValueError, TypeError):
            return False


class Replies:
    """Responds to one interaction."""

    def __init__(self, interaction: Interaction, slack: AsyncWebClient, response_urls: ResponseUrls) -> None:
        self._interaction = interaction
        self._slack = slack
        self._response_urls = response_urls
        view = mapping(interaction.body.get("view"))
        is_in_modal = interaction.type == "action" and view.get("type") == "modal"
        self._view_id = str(view.get("id") or "") if is_in_modal else ""
        self._uses_left = RESPONSE_URL_USES if interaction.response_url else 0

    async def respond(self, message: Message) -> None:
        """Show a message to this person only."""
        options = {"response_type": "ephemeral", "replace_original": False, **self._thread()}
        if await self._post_to_response_url({**options, **message.payload()}):
            return
        channel, user = self._interaction.channel, self._interaction.user
        in_channel = {"channel": channel, "user": user, **self._thread()}
        if channel and await self._post("chat.postEphemeral", in_channel, message):
            return
        if not user or not await self._post("chat.postMessage", {"channel": user}, message):
            log.warning("response_lost", channel=channel)

    async def show(self, title: str, message: Message) -> None:
        """Show a message in a modal, where people see it wherever they clicked; else as `respond` does.

        Slack gives no trigger, or none that still works, for what is replayed or took core long.
        """
        if self._view_id or self._interaction.trigger_id:
            try:
                await self.show_modal(modals.message_view(title, message))
                return
            except SLACK_FAILURES as error:
                log.info("modal_not_shown", code=classify(error).code)
        await self.respond(message)

    async def replace_original(self, message: Message | None) -> None:
        """Replace the ephemeral message that was clicked; None deletes it."""
        if message is None:
            await self._post_to_response_url({"delete_original": True})
            return
        options = {"replace_original": True, **self._thread()}
        if not await self._post_to_response_url({**options, **message.payload()}):
            await self.respond(message)

    async def show_modal(self, view: Mapping[str, Any]) -> None:
        """Open a modal with the trigger, which is valid once and for 3 s.

        Later calls update that modal, and a click in a modal updates the one that was clicked.
        """
        view = self.opened_here(view)
        if self._view_id:
            await self._slack.views_update(view_id=self._view_id, view=view)
            return
        opened = await self._slack.views_open(trigger_id=self._interaction.trigger_id, view=view)
        self._view_id = str((opened.get("view") or {}).get("id") or "")

    def opened_here(self, view: Mapping[str, Any]) -> dict[str, Any]:
        """The modal; from the App Home it says so, as Home is published again after what is decided there."""
        if not self._interaction.is_of_home:
            return dict(view)
        return {**view, "callback_id": ids.numbered(ids.family(view["callback_id"]), ids.HOME_VIEW)}

    async def refuse(self, message: Message) -> None:
        """Say why nothing was done: in a modal after a click, or if one is open; else to this person only."""
        if self._view_id or self._interaction.type in ("action", "shortcut"):
            await self.show("Not done", message)
        else:
            await self.respond(message)

    async def _post_to_response_url(self, body: dict[str, Any]) -> bool:
        if self._uses_left <= 0:
            return False
        self._uses_left -= 1
        return await self._response_urls.post(self._interaction.response_url, body)

    def _thread(self) -> dict[str, str]:
        """The thread that was clicked in, which covers the channel on a phone; none for the root of a thread."""
        thread_ts = self._interaction.thread_ts
        return {"thread_ts": thread_ts} if thread_ts not in ("", self._interaction.message_ts) else {}

    async def _post(self, method: str, options: dict[str, str], message: Message) -> bool:
        """Post the message with its blocks, or as text alone if Slack refuses them."""
        for content in (message.payload(), {"text": message.text}):
            try:
                await self._slack.api_call(method, json={**options, **content})
                return True
            except SLACK_FAILURES as error:
                failure = classify(error)
                log.info("response_refused", method=method, code=failure.code)
                if failure.kind != "content_refused":
                    return False
        return False
