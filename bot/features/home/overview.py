"""`/responder failed`, `mine` and `pending`: what matters over all alerts."""

import asyncio
from collections.abc import Sequence

from bot.clearance import RedactedView
from bot.features import responses
from bot.features.base import Command, Context, Entry, Feature
from bot.features.home.found_runs import MANY, FoundRuns
from bot.features.home.views import overview
from bot.features.home.views.home import HomeRun, by_bulk
from bot.features.runs.views import runs
from core.client import ListedState
from core.common.clock import DAY_MS
from core.models import Action, Person

PENDING, FAILED, MINE = "Approvals", "Failed", "My runs"  # the titles of modals


async def on_failed_command(context: Context) -> None:
    """List everybody's runs that failed in the last day, as far as this person may see what they ran on."""
    since = context.services.clock_ms() - DAY_MS
    failed = await context.core.newest_actions("failed", since=since, limit=MANY)
    await _show(context, "failed", FAILED, "Failed or expired in the last day", runs.newest_first(failed))


async def on_mine_command(context: Context) -> None:
    """List what runs for this person, then what is in force, then the newest that have ended."""
    core, by = context.core, context.person.login
    states: Sequence[ListedState] = ("open", "active", "ended")
    found = await asyncio.gather(*(core.newest_actions(state, by=by, limit=MANY) for state in states))
    listed = {action.id: action for part in found for action in runs.newest_first(part)}
    await _show(context, "mine", MINE, "Your runs", list(listed.values()))


async def on_pending_command(context: Context) -> None:
    """List the requests for approval: those that this person decides, and others that they may see."""
    person = context.person
    waiting = runs.newest_first(await context.core.newest_actions("waiting", limit=MANY))
    listed = await FoundRuns.of(context, waiting)
    shown, hidden = _visible([listed.run(action) for action in waiting], person)
    to_decide = listed.to_decide(person, waiting)
    decided = {run.action.id for run in to_decide}
    others = by_bulk([run for run in shown if run.action.id not in decided])
    to_decide = by_bulk(to_decide)
    await responses.show_with_buttons(
        context,
        PENDING,
        "pending",
        lambda button: overview.pending(to_decide, others, person, button=button, hidden=hidden),
    )


async def _show(context: Context, verb: str, modal_title: str, title: str, actions: Sequence[Action]) -> None:
    person = context.person
    listed = await FoundRuns.of(context, actions)
    shown, hidden = _visible([listed.run(action) for action in actions], person)
    await responses.show_with_buttons(
        context,
        modal_title,
        verb,
        lambda button: overview.run_list(
            title, by_bulk(shown), person, button=button, hidden=hidden, is_all=len(actions) < MANY
        ),
    )


def _visible(listed: Sequence[HomeRun], person: Person) -> tuple[list[HomeRun], int]:
    """Those whose object this person may see, and how many others there are."""
    shown = [run for run in listed if RedactedView(run.subject, person.clearance).is_open]
    return shown, len(listed) - len(shown)


FEATURE = Feature(
    commands={
        verb: Command(Entry(handler, modal_title=title), verb, summary)
        for verb, handler, title, summary in (
            ("pending", on_pending_command, PENDING, "what waits for approval, with Review"),
            ("failed", on_failed_command, FAILED, "what failed in the last day, with Run again"),
            ("mine", on_mine_command, MINE, "what you started, and how it went"),
        )
    },
)
