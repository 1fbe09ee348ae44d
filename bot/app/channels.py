"""The channels of the settings: what each may show, and whether the bot can post there."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import aiohttp
import structlog
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.features.base import Check
from bot.outbox.errors import classify
from bot.settings import ChannelSection, Route
from core.models import TLP_NAMES

CLEAR = 0
LOOK_EVERY_S = 300.0  # how soon it is seen that a channel was shared with another company
RETRY_S = 10.0
ASKED_EVERY_S = 2.0
SHARED_MARKS = ("is_shared", "is_ext_shared", "is_org_shared", "is_pending_ext_shared")

log = structlog.get_logger("bot.app")


@dataclass(frozen=True)
class _Seen:
    """What Slack says of a channel; `problem` is empty when all is well."""

    is_own: bool
    problem: str = ""
    answered: bool = True


class Channels:
    """A channel that is shared, or that Slack tells nothing about, shows only what is clear (`slack.md 2`)."""

    def __init__(self, sections: Sequence[ChannelSection], slack: AsyncWebClient) -> None:
        self._sections = {section.id: section for section in sections}
        self._slack = slack
        self._seen: dict[str, _Seen] = {}
        self._looking = asyncio.Lock()
        self.looked = asyncio.Event()
        """Set after each look: what a channel may show may have changed."""

    @property
    def routes(self) -> Mapping[str, Route]:
        return {section.id: section.alerts for section in self._sections.values() if section.alerts is not None}

    def clearance(self, channel: str) -> int | None:
        """The highest TLP that may be shown there; None: not in the settings."""
        section = self._sections.get(channel)
        if section is None:
            return None
        seen = self._seen.get(channel)
        return section.clearance if seen and seen.is_own else CLEAR

    def is_sure(self, channel: str) -> bool:
        """Whether that is known for certain, so that what stands there already can be made anew for it."""
        seen = self._seen.get(channel)
        return channel not in self._sections or (seen is not None and seen.answered)

    async def look(self) -> None:
        """Ask Slack about each channel of the settings."""
        async with self._looking:  # an older answer must not come after a newer one
            for channel in self._sections:
                self._seen[channel] = await self._look_at(channel)
        self.looked.set()

    async def keep_looking(self, asked: Callable[[], str]) -> None:
        """The same again and again: a channel can become shared at any time.

        `asked` changes when a replica of us wants all to look: Slack tells each of them only some things.
        """
        before, waited_s = asked(), 0.0
        while True:
            await asyncio.sleep(ASKED_EVERY_S)
            waited_s += ASKED_EVERY_S
            unknown = any(not seen.is_own and seen.problem for seen in self._seen.values())
            try:
                now = asked()
                if now != before or waited_s >= (RETRY_S if unknown else LOOK_EVERY_S):
                    before, waited_s = now, 0.0
                    await self.look()
            except Exception:
                log.exception("channels_not_looked_at")

    async def _look_at(self, channel: str) -> _Seen:
        try:
            answer = await self._slack.conversations_info(channel=channel)
        except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError) as error:
            met = classify(error, channel)
            log.warning("channel_unknown", channel=channel, code=met.code)
            before = self._seen.get(channel)
            # A moment without Slack must not hide what was shown all along.
            is_own = before is not None and before.is_own and met.kind in ("unknown", "not_sent", "rate_limited")
            return _Seen(is_own, met.message, answered=is_own)
        shown = answer["channel"]
        shared = any(shown.get(name) for name in SHARED_MARKS)
        return _Seen(not shared, _membership(channel, shown))

    async def checks(self) -> list[Check]:
        """One line for each channel, looked at now."""
        if not self._sections:
            return [Check("channels", False, "none in the settings: add a [[channel]] with its id and a clearance")]
        await self.look()
        return [self._check(channel) for channel in self._sections]

    def _check(self, channel: str) -> Check:
        seen, clearance = self._seen[channel], self.clearance(channel) or CLEAR
        if seen.problem:
            return Check(f"channel {channel}", False, seen.problem)
        words = f"shows up to TLP:{TLP_NAMES[clearance].upper()}"
        return Check(f"channel {channel}", True, words if seen.is_own else f"{words}, since it is shared")


def _membership(channel: str, shown: Mapping[str, object]) -> str:
    if shown.get("is_archived"):
        return f"Channel {channel} is archived; unarchive it or take it out of the settings."
    if shown.get("is_member") is False:
        return f"The bot is not in channel {channel}; invite it there with /invite."
    return ""
