"""From a Slack user to a user of core, see `bot/docs/slack.md#identity-of-slack-users`."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from slack_sdk.errors import SlackApiError

from core.common.errors import Code, ResponderBotError
from core.models import Person

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

    from core.client import CoreClient

CACHE_MS = 10_000  # how long an unlinked or blocked person can go on
UNKNOWN_CACHE_MS = 1_000  # how long somebody is still refused who has just got access
CACHE_SIZE = 1_000
_NOT_FULL_MEMBER = ("deleted", "is_bot", "is_restricted", "is_ultra_restricted")


class Identity:
    """Looks up and caches users of core. They are found by their link; by e-mail only if the settings allow it."""

    def __init__(
        self, core: "CoreClient", slack: "AsyncWebClient", clock_ms: Callable[[], int], *, link_by_email: bool
    ) -> None:
        self._core = core
        self._slack = slack
        self._clock = clock_ms
        self._link_by_email = link_by_email
        self._cache: dict[tuple[str, str], tuple[int, Person | str]] = {}
        """A person, or what core says of somebody without access; "" if it doesn't know them."""

    async def person(self, team: str, user: str) -> Person | None:
        """The user of core that a Slack user is linked to; None if there is none.

        Raises ResponderBotError("unavailable") if core doesn't answer.
        """
        found = await self._found(team, user)
        return None if isinstance(found, str) else found

    async def ended(self, team: str, user: str) -> str:
        """What core says of a Slack user whose access was ended; "" of any other."""
        found = await self._found(team, user)
        return found if isinstance(found, str) else ""

    async def _found(self, team: str, user: str) -> Person | str:
        now = self._clock()
        cached_at, found = self._cache.get((team, user), (0, ""))
        if cached_at and now - cached_at < (UNKNOWN_CACHE_MS if isinstance(found, str) else CACHE_MS):
            return found
        found = await self._look_up(team, user)
        if len(self._cache) >= CACHE_SIZE:
            self._cache.clear()
        self._cache[team, user] = (now, found)
        return found

    async def clearance(self, team: str, user: str) -> int | None:
        """What a Slack user may see; None if they aren't linked."""
        person = await self.person(team, user)
        return person.clearance if person else None

    async def login(self, team: str, user: str) -> str:
        """The login of a Slack user; "" if there is none."""
        person = await self.person(team, user)
        return person.login if person else ""

    async def slack_user(self, team: str, login: str) -> str:
        """The Slack user in this team who is linked to a login; "" if none is."""
        now = self._clock()
        for (in_team, user), (cached_at, found) in self._cache.items():
            if in_team == team and isinstance(found, Person) and found.login == login and now - cached_at < CACHE_MS:
                return user
        return next(iter((await self._core.slack_users(login)).in_team(team)), "")

    async def _look_up(self, team: str, user: str) -> Person | str:
        found = await self._found_or_ended(self._core.person_by_slack(team, user), "not_found")
        return found or (await self._by_email(team, user) if self._link_by_email else "")

    async def _by_email(self, team: str, user: str) -> Person | str:
        email = await confirmed_email(self._slack, team, user)
        if not email:
            return ""
        own = self._core.as_user(email).current_user()  # on their own behalf
        return await self._found_or_ended(own, "not_found", "forbidden")  # core may refuse them

    async def _found_or_ended(self, asked: Awaitable[Person], *unknown: Code) -> Person | str:
        try:
            return await asked
        except ResponderBotError as error:
            if error.code not in unknown:
                raise
            if "ended" in error.details and self._core.on_named is not None:
                await self._core.on_named({error.details["ended"]: ""})  # who ended it, by whose name it is said
            return error.message if "ended" in error.details else ""


async def confirmed_email(slack: "AsyncWebClient", team: str, user: str) -> str:
    """The address that is a Slack user's login where the settings link people by e-mail; "" if they have none."""
    try:
        response = await slack.users_info(user=user)
    except SlackApiError as error:
        if error.response.get("error") in ("user_not_found", "user_not_visible", "missing_scope"):
            return ""
        raise
    return _trusted_email(response["user"], team)


def _trusted_email(user: Mapping[str, Any], team: str) -> str:
    """The confirmed e-mail address of a full member of the team, in lower case; "" for anybody else.

    Slack omits most of these fields for deactivated users, and `is_stranger` for members. A field that is missing
    never lets somebody in. Nor does an enterprise (`E...`) as team, since a guest is one of a workspace, nor an address
    beyond ASCII: lower case makes other letters plain ones.
    """
    is_full_member = all(user.get(field) is False for field in _NOT_FULL_MEMBER)
    if not is_full_member or user.get("is_stranger") or user.get("is_email_confirmed") is not True:
        return ""
    if not team.startswith("T") or user.get("team_id") != team:
        return ""
    email = str((user.get("profile") or {}).get("email") or "")
    return email.lower() if re.fullmatch(r"[!-?A-~]+@[!-?A-~]+", email) else ""
