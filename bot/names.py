"""What people and responders are called, looked up before anything that names them is rendered."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from disarm import skeleton_key

from bot.block_kit.text import VERSION, clean, clip, clip_middle, readable_name
from bot.outbox.errors import SLACK_FAILURES
from core.common.clock import HOUR_MS, MINUTE_MS
from core.common.errors import ResponderBotError

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

PATIENCE_S = 2.0  # for one name, without which the login is shown
MOST = 50  # looked up for one response
MOST_KEPT = 2_000
NAME_CHARS = 60


class SlackNames:
    """Looks up the names of people; `slack_user` is the Slack user of a login, "" if nobody is linked to it."""

    def __init__(
        self, slack: "AsyncWebClient", slack_user: Callable[[str], Awaitable[str]], clock_ms: Callable[[], int]
    ) -> None:
        self._slack = slack
        self._slack_user = slack_user
        self._clock = clock_ms
        self._until: dict[str, int] = {}  # when (ms) each login is looked up again
        self._names: dict[str, str] = {}  # of each login what Slack calls them, or else the part before the `@`
        self.called: dict[str, str] = {}
        """By login and by name of a responder. A login is behind the name if that looks like another's or has an `@`,
        since people choose their names in Slack."""
        self._lock = asyncio.Lock()

    async def learn(self, named: Mapping[str, str]) -> None:
        """Look up the people in a response, unless that was done within the hour; see `CoreClient.on_named`."""
        if len(self.called) > MOST_KEPT:
            for kept in (self.called, self._names, self._until):
                kept.clear()
        for name, title in named.items():
            if title or VERSION.search(name):  # as each responder's ends, and no login
                self.called[name] = title or self.called.get(name) or readable_name(name)
        if self._unknown(named):
            async with self._lock:
                await asyncio.gather(*map(self._look_up, self._unknown(named)[:MOST]))
                self._tell_apart()

    def _unknown(self, named: Mapping[str, str]) -> list[str]:
        now = self._clock()
        return [login for login in named if "@" in login[1:] and self._until.get(login, 0) <= now]

    async def _look_up(self, login: str) -> None:
        self._until[login] = self._clock() + MINUTE_MS  # unless it succeeds
        self._names.setdefault(login, login.partition("@")[0])
        try:
            async with asyncio.timeout(PATIENCE_S):
                user = await self._slack_user(login)
                profile = (await self._slack.users_info(user=user))["user"].get("profile") or {} if user else {}
        except (ResponderBotError, *SLACK_FAILURES):
            return
        self._until[login] = self._clock() + HOUR_MS
        if name := clean(str(profile.get("display_name") or profile.get("real_name") or "")):
            self._names[login] = clip(name, NAME_CHARS)

    def _tell_apart(self) -> None:
        looks = {login: skeleton_key(name.casefold(), digit_policy="tr39") for login, name in self._names.items()}
        alike = Counter(looks.values())
        for login, name in self._names.items():
            is_clear = alike[looks[login]] == 1 and "@" not in name
            self.called[login] = name if is_clear else f"{name} ({clip_middle(login, NAME_CHARS)})"
