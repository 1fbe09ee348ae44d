"""Renders messages again that show more, or less, than may be seen now: see bot/docs/redaction.md."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import structlog

from bot.cards.message import Message
from bot.notifier.isolation import CORE_UNAVAILABLE, isolated
from bot.notifier.renderer import Renderer
from bot.notifier.timeline import ChannelAccess, Timeline
from bot.outbox import DesiredMessage, MessageOutbox, MessageRecord
from bot.outbox.models import is_person
from bot.redaction import RED, RedactedView, Subject, withheld
from core.common.errors import ResponderBotError

BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
WITHHELD_FOR_NOW = -2  # the clearance of a message that couldn't be rendered; it is tried again

log = structlog.get_logger("bot.notifier")


class ClearanceEnforcer:
    """Compares each message with the clearance of its channel or person, and with the TLP of its object."""

    def __init__(self, renderer: Renderer, outbox: MessageOutbox, channels: ChannelAccess) -> None:
        self._renderer = renderer
        self._outbox = outbox
        self._channels = channels

    async def run(self, is_ready: asyncio.Event) -> None:
        """Enforce the clearances after each change, while `is_ready` is set; runs until cancelled.

        What is interrupted is found again, since each message stores the clearance that it was rendered for.
        """
        failures = 0
        while True:
            await is_ready.wait()
            self._channels.changed.clear()
            try:
                await self._enforce_everywhere()
            except ResponderBotError as error:
                log.warning("clearance_check_failed", code=error.code, reason=error.message)
                await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
                failures += 1
            else:
                failures = 0
                await self._channels.changed.wait()

    async def _enforce_everywhere(self) -> None:
        for channel, key in self._outbox.channels().items():
            try:
                await self._enforce(channel, await self._renderer.clearance(channel, key))
            except ResponderBotError:
                raise
            except Exception:
                log.exception("clearance_check_failed", channel=channel)

    async def _enforce(self, channel: str, clearance: int) -> None:
        # While Slack can't be asked about a channel, what is posted there stays, and only unsent messages are checked.
        unsent_only = not self._channels.is_known(channel)
        for root_id in self._outbox.stale_roots(channel, clearance, unsent_only=unsent_only):
            since = self._outbox.last_write()
            here = [message for message in self._outbox.messages_of(root_id) if message.channel == channel]
            stale = [m for m in here if m.clearance != clearance and not (unsent_only and m.is_delivered)]
            desired, kept = await self.refresh(stale, await self._renderer.timeline(root_id), clearance)
            desired = [replace(message, in_bulk=True) for message in desired]
            if not await self._outbox.enforce_clearance(desired, kept, since=since):
                self._channels.changed.set()  # somebody else wrote meanwhile: check again

    async def refresh(
        self, messages: Sequence[MessageRecord], timeline: Timeline, clearance: int | None = None
    ) -> tuple[list[DesiredMessage], dict[str, int]]:
        """Those of these messages that must change, rendered again; and the keys of the others, with their clearance.

        Without `clearance` only TLP levels changed: each message keeps the clearance of its channel or person.
        """
        desired: list[DesiredMessage] = []
        kept: dict[str, int] = {}
        for message in messages:
            own = message.clearance if is_person(message.channel) else self._channels.clearance_of(message.channel)
            now = own if clearance is None else clearance
            if await isolated(self._is_current(message, timeline, now), timeline.root_id, otherwise=False):
                kept[message.key] = now
            else:
                desired += await self._render_or_withhold(message, timeline, now)
        return desired, kept

    async def _is_current(self, message: MessageRecord, timeline: Timeline, clearance: int) -> bool:
        """Whether the message withholds just what it must."""
        view = RedactedView(await self._renderer.subject_of(message, timeline), clearance)
        return view.fingerprint == message.fingerprint

    async def _render_or_withhold(
        self, message: MessageRecord, timeline: Timeline, clearance: int
    ) -> list[DesiredMessage]:
        try:
            return await self._renderer.again(message, timeline) or [_withheld(message, clearance)]
        except ResponderBotError as error:
            if error.code in CORE_UNAVAILABLE:
                raise
            if error.code in ("not_found", "log_not_found"):
                return [_withheld(message, clearance)]
            log.warning("refresh_failed", key=message.key, code=error.code, reason=error.message)
        except Exception:
            log.exception("refresh_failed", key=message.key)
        return [_withheld(message, WITHHELD_FOR_NOW)]


def _withheld(message: MessageRecord, clearance: int) -> DesiredMessage:
    """What replaces a message that can't be rendered."""
    why = "it could not be read just now" if clearance == WITHHELD_FOR_NOW else "core no longer knows it"
    content = Message(f"{message.root_id}: {withheld(RED)}, since {why}.")
    view = RedactedView(Subject("alert", message.root_id, "", RED, RED), clearance)
    return DesiredMessage(
        message.key, message.channel, content, thread_of=message.thread_of, root_id=message.root_id, view=view
    )
