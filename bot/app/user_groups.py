"""Groups that are kept in step with Slack's user groups, see `bot/docs/slack.md#groups`."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import aiohttp
import structlog
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.block_kit.text import count
from bot.features.base import Check
from bot.identity import logins_by_slack_id
from bot.outbox.errors import classify
from bot.settings import GroupSection
from core.client import UNANSWERED
from core.common.errors import ResponderBotError
from core.models import UserEntry

if TYPE_CHECKING:
    from core.client import CoreClient

EVERY_S = 30.0
PAUSE_S = 4.0  # between two groups: Slack allows 20 calls a minute
UNKNOWN_GROUP = "no_such_subteam"

log = structlog.get_logger("bot.app")


@dataclass(frozen=True)
class GroupState:
    """What Slack said of a user group: the logins of its members, how many have none, and what is wrong."""

    members: Sequence[str] = ()
    unlinked: int = 0
    problem: str = ""
    is_certain: bool = True
    """Whether Slack has answered, so that the group may be changed."""


class GroupSync:
    """Sets the members of core's groups as Slack has them. Of several replicas only the leader runs it."""

    def __init__(
        self,
        groups: Mapping[str, GroupSection],
        core: "CoreClient",
        slack: AsyncWebClient,
        team: Callable[[], str],
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._groups = groups
        self._core = core
        self._slack = slack
        self._team = team
        self._pause_s = pause_s
        self._states: dict[str, GroupState] = {}
        self._problem = ""

    async def run(self) -> None:
        """Follow Slack until cancelled."""
        while self._groups:
            wait_s = await self.sync()
            await asyncio.sleep(wait_s)
        await asyncio.Event().wait()

    async def sync(self) -> float:
        """Look at each group once, and set those that differ. Returns how many seconds to wait before the next time."""
        wait_s = EVERY_S
        try:
            users, known = await self._core.users(), await self._core.groups()
            members = {group.name: sorted(group.members) for group in known}
            for number, (name, section) in enumerate(self._groups.items()):
                if number:
                    await asyncio.sleep(self._pause_s)
                    wait_s -= self._pause_s
                self._states[name], held_back_s = await self._look(name, section, users)
                if self._states[name].is_certain and list(self._states[name].members) != members.get(name, []):
                    self._states[name] = await self._set(name, self._states[name])
                if held_back_s:
                    return held_back_s
            self._problem = ""
        except ResponderBotError as error:  # core is away
            self._problem = error.message
            log.warning("groups_not_synchronized", code=error.code, reason=error.message)
        except Exception:
            self._problem = "an internal error, which the log describes"
            log.exception("groups_not_synchronized")
        return max(wait_s, PAUSE_S)

    async def _set(self, name: str, state: GroupState) -> GroupState:
        try:
            await self._core.set_group(name, state.members)
        except ResponderBotError as error:  # somebody was disabled meanwhile, or the group is too large; others go on
            if UNANSWERED in error.details:
                raise
            return replace(state, problem=f"Core refuses its members: {error.message} @{name} stays as it is.")
        log.info("group_changed", group=name, members=len(state.members))
        return state

    def problem_of(self, name: str) -> str:
        """Why a group may not have the members that it has in Slack; "" if it does, or isn't kept in step."""
        return self._states[name].problem if name in self._states else ""

    def checks(self) -> list[Check]:
        """One line for each group that this replica has looked at."""
        checks = [_check(name, self._groups[name], state) for name, state in self._states.items()]
        return [*checks, Check("groups", False, self._problem)] if self._problem else checks

    async def checks_now(self) -> list[Check]:
        """As `checks`; asks Slack where this replica hasn't. Without an answer of core it says nothing of links."""
        if self._states or not self._groups:
            return self.checks()
        users: Sequence[UserEntry] = ()
        with suppress(ResponderBotError):
            users = await self._core.users()
        looked_at = {name: (await self._look(name, section, users))[0] for name, section in self._groups.items()}
        return [_check(name, self._groups[name], state, knows_links=bool(users)) for name, state in looked_at.items()]

    async def _look(self, name: str, section: GroupSection, users: Sequence[UserEntry]) -> tuple[GroupState, float]:
        """What Slack says of the group, and how many seconds it holds us back."""
        try:
            response = await self._slack.usergroups_users_list(usergroup=section.slack_usergroup)
        except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError) as error:
            failure = classify(error, "")
            if failure.code == UNKNOWN_GROUP:
                sentence = (
                    f"Slack has no user group {section.slack_usergroup}, or it is disabled, so @{name} has no members;"
                    f' correct slack_usergroup of [group."{name}"].'
                )
                return GroupState(problem=sentence), 0.0
            what = failure.message
            if failure.code == "plan_upgrade_required":
                what = "This workspace's plan has no user groups."
            return GroupState(problem=f"{what} @{name} stays as it is.", is_certain=False), failure.wait_s
        by_slack_id = logins_by_slack_id(users, self._team())
        slack_users = list(dict.fromkeys(str(user) for user in response.get("users") or []))
        members = sorted({by_slack_id[user] for user in slack_users if user in by_slack_id})
        return GroupState(members, sum(user not in by_slack_id for user in slack_users)), 0.0


def _check(name: str, section: GroupSection, state: GroupState, *, knows_links: bool = True) -> Check:
    if state.problem:
        return Check(f"group @{name}", False, state.problem)
    total = len(state.members) + state.unlinked
    message = f"{len(state.members)} of the {total} members of {section.slack_usergroup} are linked"
    if not knows_links or not state.unlinked:
        message = f"user group {section.slack_usergroup}, {count(total, 'member')}"
    return Check(f"group @{name}", True, message)
