"""The App Home, painted when somebody opens it and after what they decide in it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from bot.cards import home, notices, runs
from bot.cards.home import Home, RunWithSubject
from bot.features import answers, subjects
from bot.features.base import Context, Entry, Feature
from bot.features.help import help_lines
from bot.redaction import Subject
from core.common.errors import ResponderBotError
from core.models import Action

DAY_MS = 86_400_000
RANGE = "0-50"
OPEN: Mapping[str, Any] = {"_in": {"_field": "status", "_values": ["Waiting", "InProgress"]}}


async def on_home_opened(moment: Context) -> None:
    """Paints the Home of the one who opened it."""
    if moment.payload.get("tab", "home") != "home":
        return
    await publish(moment)


async def publish(moment: Context) -> None:
    """Paints this person's Home."""
    await moment.tools.slack.views_publish(user_id=moment.user, view=await _view(moment))


def is_home(moment: Context) -> bool:
    """Whether the click was in the Home."""
    view = moment.payload.get("view")
    return isinstance(view, Mapping) and view.get("type") == "home"


async def _view(moment: Context) -> dict[str, Any]:
    if moment.person is None:
        return home.message_home(notices.unlinked(moment.user, moment.team).text)
    try:
        found = await _home(moment, moment.person.login)
    except ResponderBotError as error:
        return home.message_home(notices.error(f"{error.message} Open this page again to try anew.").text)
    from bot.features import COMMANDS  # the registry holds this feature, so not at import

    lines, person, now = help_lines(moment.person, moment.tools.command, "~12", COMMANDS), moment.person, _now(moment)
    button = await answers.buttons(moment, "home", lambda b: home.home_view(found, person, lines, button=b, now_ms=now))
    return home.home_view(found, person, lines, button=button, now_ms=now)


async def _home(moment: Context, login: str) -> Home:
    recent = {"_and": [{"status": "Failure"}, {"createdBy": login}, {"_gte": {"endDate": _now(moment) - DAY_MS}}]}
    opened, failed = await asyncio.gather(
        moment.core.search_actions(OPEN, RANGE), moment.core.search_actions(recent, RANGE)
    )
    may_approve = moment.person is not None and "manageAction" in moment.person.permissions
    mine = [a for a in opened if a.created_by == login]
    waiting = [a for a in opened if a.created_by != login and may_approve and _awaits(a, login)]
    told = await asyncio.gather(*(_told(moment, actions) for actions in (mine, waiting, failed)))
    return Home(*told)


def _awaits(action: Action, login: str) -> bool:
    agreed = action.approval.approved_by if action.approval else []
    return runs.awaits_approval(action) and login not in agreed


async def _told(moment: Context, actions: Sequence[Action]) -> list[RunWithSubject]:
    newest = runs.newest_first(actions)
    shown = newest[: home.SHOWN]
    found = await asyncio.gather(*(subjects.of_action(moment.core, a) for a in shown))
    rest = [(a, Subject.unknown(a)) for a in newest[home.SHOWN :]]
    return [*zip(shown, found, strict=True), *rest]


def _now(moment: Context) -> int:
    return moment.tools.clock_ms()


FEATURE = Feature(events={"app_home_opened": Entry(on_home_opened, anyone=True)})
