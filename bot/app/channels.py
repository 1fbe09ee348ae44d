"""The channels of the settings: what each may show, and whether the bot can post there."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.clearance import CLEAR, SHARED, tlp_name
from bot.outbox.errors import SENTENCES, SLACK_FAILURES, classify
from bot.settings import ChannelSection, Grouping, Route
from core.common.errors import ResponderBotError
from core.models import SEVERITY_NAMES, Check

REFRESH_EVERY_S = 300.0  # how soon the bot notices that a channel was shared with another company
RETRY_EVERY_S = 10.0
LOOK_EVERY_S = 2.0
SHARED_FLAGS = ("is_shared", "is_ext_shared", "is_org_shared", "is_pending_ext_shared")

log = structlog.get_logger("bot.app")


@dataclass(frozen=True)
class _ChannelState:
    """What Slack says about a channel. `problem` is "" if the bot can post; `is_known` is False without an answer."""

    is_internal: bool
    problem: str = ""
    is_known: bool = True


SET_MENTION = "set mention = { critical = \"ID\" } of the [[channel]], with a user group's or a person's id of Slack"


class Channels:
    """The clearance of each channel. One that is shared, or that Slack tells nothing of, shows only TLP:CLEAR."""

    def __init__(self, sections: Sequence[ChannelSection], slack: AsyncWebClient) -> None:
        self.sections = {section.id: section for section in sections}
        self._slack = slack
        self._states: dict[str, _ChannelState] = {}
        self.names = {section.id: section.id for section in sections}
        """By id: `#soc-alerts`, once Slack has told it."""
        self._request: str | None = None  # the last one to refresh that was seen
        self._refreshed_at = 0.0  # on the monotonic clock
        self._refreshing = asyncio.Lock()
        self.refreshed = asyncio.Event()
        """Set after each refresh: clearances may have changed."""

    @property
    def routes(self) -> Mapping[str, Route]:
        """The routes of the channels into which alerts are posted."""
        return {section.id: section.alerts for section in self.sections.values() if section.alerts is not None}

    @property
    def groupings(self) -> Mapping[str, Grouping]:
        """By channel: which alerts share a card there."""
        return {section.id: section.group for section in self.sections.values() if section.group is not None}

    @property
    def mentions(self) -> Mapping[str, Mapping[int, str]]:
        """By channel and severity: the user group or the person that is mentioned about a new alert."""
        return {
            section.id: {SEVERITY_NAMES.index(name): who for name, who in section.mention.items()}
            for section in self.sections.values()
            if section.mention
        }

    def clearance(self, channel: str) -> int | None:
        """The highest TLP that the channel may show now, or SHARED; None if it isn't in the settings."""
        section = self.sections.get(channel)
        if section is None:
            return None
        state = self._states.get(channel)
        if state is None or not state.is_known:
            return CLEAR
        return section.clearance if state.is_internal else SHARED

    def is_known(self, channel: str) -> bool:
        """Whether the clearance is certain, so that messages in the channel can be rendered again for it."""
        state = self._states.get(channel)
        return channel not in self.sections or (state is not None and state.is_known)

    async def refresh(self) -> None:
        """Ask Slack about each channel of the settings."""
        async with self._refreshing:  # so that an older answer can't replace a newer one
            for channel in self.sections:
                self._states[channel] = await self._ask_slack(channel)
        self.refreshed.set()

    async def begin(self, requested: Callable[[], Awaitable[str]]) -> None:
        """Refresh for the first time. `requested` as for `refresh_if_due`, which misses no later request."""
        with suppress(ResponderBotError):  # the store is away
            self._request = await requested()
        self._refreshed_at = time.monotonic()
        await self.refresh()

    async def refresh_if_due(self, requested: Callable[[], Awaitable[str]]) -> None:
        """Refresh every 5 minutes, since a channel can become shared at any time; every 10 s while one is unknown.

        Refresh at once when `requested` returns another text than before: Slack sends each event to one replica only.
        """
        request, now = await requested(), time.monotonic()
        has_unknown = any(not state.is_internal and state.problem for state in self._states.values())
        is_asked, self._request = request != self._request, request
        if is_asked or now - self._refreshed_at >= (RETRY_EVERY_S if has_unknown else REFRESH_EVERY_S):
            self._refreshed_at = now
            await self.refresh()

    async def _ask_slack(self, channel: str) -> _ChannelState:
        try:
            response = await self._slack.conversations_info(channel=channel)
        except SLACK_FAILURES as error:
            failure = classify(error, channel)
            log.warning("channel_lookup_failed", channel=channel, code=failure.code)
            previous = self._states.get(channel)
            # A short outage of Slack must not hide what was shown before.
            is_outage = failure.kind in ("unknown", "not_sent", "rate_limited")
            is_internal = previous is not None and previous.is_internal and is_outage
            return _ChannelState(is_internal, failure.message, is_known=is_internal)
        info = response["channel"]
        self.names[channel] = f"#{info['name']}"
        is_shared = any(info.get(flag) for flag in SHARED_FLAGS)
        return _ChannelState(not is_shared, _membership_problem(channel, info))

    async def checks(self) -> list[Check]:
        """One line for each channel, refreshed now."""
        await self.refresh()
        if not self.sections:
            return [Check("channels", False, "none in the settings: add a [[channel]] with its id and a clearance")]
        ring = {section.mention.get("critical", "") for section in self.sections.values()}
        for who in (one for one in ring if one.startswith(("U", "W"))):
            with suppress(*SLACK_FAILURES):  # without users:read the id has to do
                profile = (await self._slack.users_info(user=who))["user"].get("profile") or {}
                self.names[who] = str(profile.get("display_name") or profile.get("real_name") or who)
        return [self._check(channel) for channel in self.sections]

    def _check(self, channel: str) -> Check:
        state, section, name = self._states[channel], self.sections[channel], f"channel {self.names[channel]}"
        if state.problem:
            return Check(name, False, state.problem)
        message = f"shows up to {tlp_name(self.clearance(channel))}"
        message = message if state.is_internal else f"{message}, since it is shared"
        mentioned = section.mention.get("critical", "")
        if section.alerts is not None:
            who = self.names.get(mentioned, mentioned)
            rings = f"{who}, if its equal did not in the last ten minutes; after ten, one message counts the others"
            message += f". A new CRITICAL alert rings {rings if who else f'nobody there: {SET_MENTION}'}"
        return Check(name, True, message, is_warning=section.alerts is not None and not mentioned)


def _membership_problem(channel: str, info: Mapping[str, object]) -> str:
    if info.get("is_archived"):
        return SENTENCES["is_archived"].format(channel=channel)
    if info.get("is_member") is False:
        return SENTENCES["not_in_channel"].format(channel=channel)
    return ""
