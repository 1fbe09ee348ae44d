"""The App Home, published when somebody opens it and after what they decide in it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from bot.cards import home, notices, runs
from bot.cards.home import Home, RunWithSubject
from bot.features import responses, subjects
from bot.features.base import Context, Entry, Feature
from bot.features.help import EXAMPLE_ID, help_lines
from bot.features.payload import view_of
from bot.redaction import Subject
from core.common.errors import ResponderBotError
from core.models import Action, Person

DAY_MS = 86_400_000
RANGE = "0-50"
AGAIN = "Open this page again to refresh it."
OPEN_ACTIONS: Mapping[str, Any] = {"_in": {"_field": "status", "_values": ["Waiting", "InProgress"]}}


async def on_home_opened(context: Context) -> None:
    """Publish the Home of the person who opened it."""
    if context.payload.get("tab", "home") == "home":
        await publish(context)


async def publish(context: Context) -> None:
    """Publish this person's Home."""
    await context.services.slack.views_publish(user_id=context.user, view=await _view(context))


def is_home(context: Context) -> bool:
    """Whether the click was in the Home."""
    return view_of(context).get("type") == "home"


async def _view(context: Context) -> dict[str, Any]:
    person, now = context.person, context.services.clock_ms()
    if context.core_problem:
        return home.notice_home(f"{context.core_problem} {AGAIN}")
    if person is None:
        return home.notice_home(notices.unlinked(context.user, context.team).text)
    try:
        found = await _home(context, person, now)
    except ResponderBotError as error:
        return home.notice_home(notices.error(f"{notices.sentence(error)} {AGAIN}").text)
    from bot.features import COMMANDS  # not at import, since the registry imports this module

    lines = help_lines(person, context.services.command, EXAMPLE_ID, COMMANDS)
    button = await responses.private_buttons(
        context, "home", lambda b: home.home_view(found, person, lines, button=b, now_ms=now)
    )
    return home.home_view(found, person, lines, button=button, now_ms=now)


async def _home(context: Context, person: Person, now_ms: int) -> Home:
    login = person.login
    recent_failures = {"_and": [{"status": "Failure"}, {"createdBy": login}, {"_gte": {"endDate": now_ms - DAY_MS}}]}
    opened, failed = await asyncio.gather(
        context.core.search_actions(OPEN_ACTIONS, RANGE), context.core.search_actions(recent_failures, RANGE)
    )
    may_approve = "manageAction" in person.permissions
    own = [a for a in opened if a.created_by == login]
    to_approve = [a for a in opened if a.created_by != login and may_approve and _awaits_approval_of(a, login)]
    return Home(*await asyncio.gather(*(_with_subjects(context, actions) for actions in (own, to_approve, failed))))


def _awaits_approval_of(action: Action, login: str) -> bool:
    approved_by = action.approval.approved_by if action.approval else []
    return runs.awaits_approval(action) and login not in approved_by


async def _with_subjects(context: Context, actions: Sequence[Action]) -> list[RunWithSubject]:
    """The actions, newest first; what they ran on is looked up for those that are shown."""
    newest = runs.newest_first(actions)
    shown, rest = newest[: home.MAX_RUNS], newest[home.MAX_RUNS :]
    found = await asyncio.gather(*(subjects.of_action(context.core, a) for a in shown))
    return [*zip(shown, found, strict=True), *((a, Subject.unknown(a)) for a in rest)]


FEATURE = Feature(events={"app_home_opened": Entry(on_home_opened, is_public=True, works_without_core=True)})
