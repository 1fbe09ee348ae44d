"""What people and responders are called: read from what core responds, before anything that names them is rendered."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import aiohttp
from slack_sdk.errors import SlackClientError

from bot.block_kit.text import NAMES, TITLES, readable_name
from core.common.clock import HOUR_MS, MINUTE_MS
from core.common.errors import ResponderBotError

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

PATIENCE_S = 2.0  # for one name, without which the login is shown
MOST = 50  # looked up for one response
MOST_KEPT = 10_000
_PEOPLE = re.compile(r'"(?:createdBy|updatedBy|endedBy|askedBy|by|approvedBy|assignee|owner)":("[^"]*"|\[[^\]]*\])')
_LOGIN = re.compile(r'"([^"@\\]+@[^"\\]+)"')
_RESPONDER = re.compile(r'"responderName":"([^"\\]+)"')
_TITLES = re.compile(r'"titles":\{([^{}]*)\}')
_TITLE = re.compile(r'"([\w.-]+_\d+)":"([^"\\]+)"')  # by names of responders, which fields of alerts never are


class SlackNames:
    """Looks up the names of people; `slack_user` is the Slack user of a login, "" if nobody is linked to it."""

    def __init__(
        self, slack: "AsyncWebClient", slack_user: Callable[[str], Awaitable[str]], clock_ms: Callable[[], int]
    ) -> None:
        self._slack = slack
        self._slack_user = slack_user
        self._clock = clock_ms
        self._until: dict[str, int] = {}  # when (ms) each login is looked up again
        self._lock = asyncio.Lock()

    async def learn(self, response: str) -> None:
        """Look up the people that core names in a response, unless that was done within the hour."""
        for name in _RESPONDER.findall(response):
            TITLES.setdefault(name, readable_name(name))
        TITLES.update(title for titles in _TITLES.findall(response) for title in _TITLE.findall(titles))
        logins = {login for people in _PEOPLE.findall(response) for login in _LOGIN.findall(people)}
        if self._unknown(logins):
            async with self._lock:
                await asyncio.gather(*map(self._look_up, self._unknown(logins)[:MOST]))

    def _unknown(self, logins: set[str]) -> list[str]:
        now = self._clock()
        return [login for login in logins if self._until.get(login, 0) <= now]

    async def _look_up(self, login: str) -> None:
        if len(self._until) > MOST_KEPT:
            self._until.clear()
        self._until[login] = self._clock() + MINUTE_MS  # unless it succeeds
        try:
            async with asyncio.timeout(PATIENCE_S):
                user = await self._slack_user(login)
                profile = (await self._slack.users_info(user=user))["user"].get("profile") or {} if user else {}
        except (ResponderBotError, SlackClientError, aiohttp.ClientError, TimeoutError, OSError):
            return
        self._until[login] = self._clock() + HOUR_MS
        NAMES[login] = str(profile.get("display_name") or profile.get("real_name") or "")
