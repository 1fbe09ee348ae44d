"""Renders messages again that show more, or less, than may be seen now: see bot/docs/clearance.md."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import structlog

from bot.clearance import RED, SHARED, RedactedView, Subject, withheld
from bot.features.runs.views import runs
from bot.message import NOT_SHOWN, Message
from bot.notifier.bulks import BulkMessages
from bot.notifier.group_cards import GroupCards, ReadDocuments
from bot.notifier.isolation import CORE_UNAVAILABLE, isolated
from bot.notifier.renderer import Renderer
from bot.notifier.timeline import ChannelAccess, Timeline, ids_in
from bot.outbox.models import DesiredMessage, MessageRecord, is_bulk, is_person
from bot.outbox.outbox import MessageOutbox
from core.common.errors import ResponderBotError
from core.models import Document

WITHHELD_FOR_NOW = -2  # the clearance of a message that couldn't be rendered; it is tried again
ROOTS_AT_ONCE = 20  # alerts and cases, before news gets its turn

log = structlog.get_logger("bot.notifier")


class ClearanceEnforcer:
    """Compares each message with the clearance of its channel or person, and with the TLP of its object."""

    def __init__(
        self,
        renderer: Renderer,
        outbox: MessageOutbox,
        access: ChannelAccess,
        read_documents: ReadDocuments,
        group_cards: GroupCards,
        bulks: BulkMessages,
    ) -> None:
        self._renderer = renderer
        self._outbox = outbox
        self._access = access
        self._read_documents = read_documents
        self._group_cards = group_cards
        self._bulks = bulks
        self._checked: set[tuple[str, str]] = set()  # channel and root, since `restart`

    def restart(self) -> None:
        """Check all messages again: a clearance may have changed."""
        self._checked.clear()

    async def enforce_some(self) -> bool:
        """Enforce the clearances of some alerts and cases; False once all were checked.

        What is interrupted is found again, since each message stores the clearance that it was rendered for.
        """
        for channel, key in (await self._outbox.channels()).items():
            clearance = await isolated(self._renderer.clearance(channel, key), channel, otherwise=None)
            if clearance is not None and await self._enforce_some_in(channel, clearance):
                return True
        return False

    async def _enforce_some_in(self, channel: str, clearance: int) -> bool:
        # While Slack can't be asked about a channel, what is posted there stays, and only unsent messages are checked.
        unsent_only = not self._access.is_known(channel)
        if not unsent_only:
            await self._group_cards.enforce(channel, clearance)
        root_ids = await self._outbox.stale_roots(channel, clearance, unsent_only=unsent_only)
        roots = list(islice((root for root in root_ids if (channel, root) not in self._checked), ROOTS_AT_ONCE))
        self._checked |= {(channel, root_id) for root_id in roots}
        stale = {one: await self._stale(one, channel, clearance, unsent_only=unsent_only) for one in roots}
        if not stale:
            return False
        documents = await self._read_documents(
            {root_id: set().union(*map(ids_in, messages)) for root_id, messages in stale.items()}
        )
        desired: list[DesiredMessage] = []
        kept: dict[str, int] = {}
        for root_id, messages in stale.items():
            timeline = await self._renderer.timeline(documents.get(root_id) or Document(id=root_id, deleted=True))
            rendered, right = await self.refresh(messages, timeline, clearance, only_masks=False)
            desired += [replace(message, in_bulk=True) for message in rendered]
            kept |= right
        await self._outbox.enforce_clearance(desired, kept)
        return True

    async def _stale(self, root_id: str, channel: str, clearance: int, *, unsent_only: bool) -> list[MessageRecord]:
        """The messages of an alert or a case in a channel that were rendered for another clearance."""
        here = [message for message in await self._outbox.messages_of(root_id) if message.channel == channel]
        stale = [message for message in here if message.clearance != clearance]
        return [message for message in stale if not (unsent_only and message.is_delivered)]

    async def refresh(
        self, messages: Sequence[MessageRecord], timeline: Timeline, clearance: int | None = None, *, only_masks: bool
    ) -> tuple[list[DesiredMessage], dict[str, int]]:
        """Those of these messages that must change, rendered again; and the keys of the others, with their clearance.

        Without `clearance` only TLP levels changed: each message keeps the clearance of its channel or person. With
        `only_masks` nothing else that they say did.
        """
        desired: list[DesiredMessage] = []
        kept: dict[str, int] = {}
        for message in messages:
            own = message.clearance if is_person(message.channel) else self._access.clearance_of(message.channel)
            now = own if clearance is None else clearance
            if _is_current(message, timeline, now, only_masks=only_masks):
                kept[message.key] = now
            else:
                desired += await self._render_or_withhold(message, timeline, now)
        return desired, kept

    async def _render_or_withhold(
        self, message: MessageRecord, timeline: Timeline, clearance: int
    ) -> list[DesiredMessage]:
        try:
            of_bulk = is_bulk(message.key)
            again = self._bulks.read([message.key]) if of_bulk else self._renderer.again(message, timeline)
            if rendered := await again:
                return rendered
            return [_withheld(message, clearance, is_for_now=bool(timeline.document.unreadable))]
        except ResponderBotError as error:
            if error.code in CORE_UNAVAILABLE:
                raise
            if error.code in ("not_found", "log_not_found"):
                return [_withheld(message, clearance)]
            log.warning("refresh_failed", key=message.key, code=error.code, reason=error.message)
        except Exception:
            log.exception("refresh_failed", key=message.key)
        return [_withheld(message, clearance, is_for_now=True)]


def _is_current(message: MessageRecord, timeline: Timeline, clearance: int, *, only_masks: bool) -> bool:
    """Whether the message withholds just what it must.

    What asks for a decision says too what became of its alert, and the card of a case what is in force on its alerts.
    """
    kind, action_id = message.key.split(":")[:2]
    action, about = timeline.action(action_id), message.about.partition(" ")[2]
    is_asked = action is not None and runs.awaits_decision(action)
    if not only_masks and (kind == "case" or (is_asked and kind in ("approval", "extension", "ask"))):
        return False
    subject = timeline.target(action) if action else Subject.in_document(timeline.document, about)
    return subject is not None and RedactedView(subject, clearance).fingerprint == message.fingerprint


def _withheld(message: MessageRecord, clearance: int, *, is_for_now: bool = False) -> DesiredMessage:
    """What replaces a message that can't be rendered."""
    why = "it could not be read just now" if is_for_now else "it was deleted"
    content = NOT_SHOWN if clearance == SHARED else Message(f"{message.root_id}: {withheld(RED)}, since {why}.")
    rendered_for = WITHHELD_FOR_NOW if is_for_now else clearance
    view = RedactedView(Subject("alert", message.root_id, "", RED, RED), rendered_for)
    desired = DesiredMessage(message.key, message.channel, content, message.thread_of, message.root_id, view=view)
    return replace(desired, counted=message.counted)
