"""Who is asked by a duty, and what the threads say of that (core/docs/duty.md)."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bot.features.duty import views
from bot.identity import logins_by_slack_id
from bot.message import Message
from bot.notifier.timeline import ChannelAccess
from core.models import ASK_CHANNEL, Duty

if TYPE_CHECKING:
    from core.client import CoreClient


class Line(NamedTuple):
    """What a thread says of one step."""

    name: str
    """Tells it from the others, in the key of its message."""
    message: Message
    is_news: bool
    """Whether it is posted; else what was posted stays current, and what wasn't is of no use any more."""


class Duties:
    """Reads from core who is who in Slack."""

    def __init__(self, core: "CoreClient", access: ChannelAccess) -> None:
        self._core = core
        self._access = access

    async def lines(
        self, duty: Duty | None, expires_at: int, words: views.Words = views.DECIDE, *, is_open: bool
    ) -> Sequence[Line]:
        """A line for each step that has come, and one for the reminder; `is_open` while it waits for somebody."""
        if duty is None:
            return []
        users = await self._users(duty.logins)
        lines = []
        for number, step in enumerate(duty.asked, 1):
            problem = self._access.group_problem(step.ask.removeprefix("@"))
            reply = views.step_reply(duty, number, words, is_open=is_open, users=users, problem=problem)
            lines.append(Line(str(number), reply, is_open and number == len(duty.asked)))
        if duty.reminded_at is not None:
            lines.append(Line("reminder", views.reminder_reply(expires_at), is_open))
        return lines

    async def asked(self, duty: Duty | None) -> list[tuple[str, str]]:
        """Team and user of those who are asked by the newest step in direct messages."""
        if duty is None or not duty.asked or duty.asked[-1].ask == ASK_CHANNEL:
            return []
        return [(self._access.team(), user) for user in (await self._users(duty.asked[-1].logins)).values()]

    async def _users(self, logins: Collection[str]) -> Mapping[str, str]:
        """The Slack users of these logins."""
        if not logins:
            return {}
        by_user = logins_by_slack_id(await self._core.users(), self._access.team())
        return {login: user for user, login in by_user.items() if login in logins}
