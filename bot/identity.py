"""Slack person -> user of core (`semantics.md 10`)."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from slack_sdk.errors import SlackApiError

from core.common.errors import ResponderBotError
from core.models import Person

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

    from core.client import CoreClient

KEPT_MS = 10_000  # semantics.md 10: cached at most 10 s
KEPT_PEOPLE = 1_000
_NOT_OF_MEMBERS = ("deleted", "is_bot", "is_restricted", "is_ultra_restricted")


class Identity:
    """Who is who. Nobody is somebody by default; by e-mail only when the settings say so."""

    def __init__(
        self, core: "CoreClient", slack: "AsyncWebClient", clock_ms: Callable[[], int], *, link_by_email: bool
    ) -> None:
        self._core = core
        self._slack = slack
        self._clock = clock_ms
        self._link_by_email = link_by_email
        self._known: dict[tuple[str, str], tuple[int, Person | None]] = {}

    async def person(self, team: str, user: str) -> Person | None:
        """The user of core behind a Slack person; None for somebody who is not linked.

        Raises ResponderBotError("unavailable") when core can't be asked.
        """
        now = self._clock()
        kept_at, person = self._known.get((team, user), (0, None))
        if kept_at and now - kept_at < KEPT_MS:
            return person
        person = await self._look_up(team, user)
        if len(self._known) >= KEPT_PEOPLE:
            self._known.clear()
        self._known[team, user] = (now, person)
        return person

    async def _look_up(self, team: str, user: str) -> Person | None:
        try:
            return await self._core.person_by_slack(team, user)
        except ResponderBotError as error:
            if error.code != "not_found":
                raise
        return await self._by_email(team, user) if self._link_by_email else None

    async def _by_email(self, team: str, user: str) -> Person | None:
        try:
            answer = await self._slack.users_info(user=user)
        except SlackApiError as error:
            if error.response.get("error") in ("user_not_found", "user_not_visible"):
                return None
            raise
        email = _own_email(answer["user"], team)
        return await self._as_login(email) if email else None

    async def _as_login(self, login: str) -> Person | None:
        """Who core says this login is, asked as that login itself."""
        try:
            return await self._core.as_user(login).current_user()
        except ResponderBotError as error:
            if error.code in ("not_found", "forbidden"):
                return None
            raise


def _own_email(user: Mapping[str, Any], team: str) -> str:
    """The address that Slack vouches for, or `""`: only of a full member of the team who has confirmed it.

    Slack leaves out most of these fields for deactivated people, and `is_stranger` for members; what it does not say
    is no reason to let somebody in.
    """
    is_full_member = all(user.get(field) is False for field in _NOT_OF_MEMBERS)
    if not is_full_member or user.get("is_stranger") or user.get("is_email_confirmed") is not True:
        return ""
    if not team or user.get("team_id") != team:
        return ""
    return str((user.get("profile") or {}).get("email") or "").lower()
