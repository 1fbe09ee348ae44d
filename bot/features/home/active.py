"""`/responder active`: what is in force, with Undo, Extend and Mark as ended."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from bot.block_kit import ids, modals, notices
from bot.clearance import RedactedView
from bot.features import responses, subjects
from bot.features.authorization import own_clearance
from bot.features.base import Ack, Command, Context, Entry, Feature, Json
from bot.features.command_text import normalize
from bot.features.home.found_runs import FoundRuns
from bot.features.home.views import active as views
from bot.features.home.views.home import HomeRun
from bot.features.payload import view_of
from bot.features.retries import answered
from bot.features.runs.views import undo_state
from bot.features.runs.views.runs import heading
from core.models import Measure

UNKNOWN = "The responder service stopped answering: see on the card whether it is marked before you mark it again."


async def on_active_command(context: Context) -> None:
    """List what is in force, on a target if one is typed."""
    text, person = normalize(context.text), context.person
    measures = await context.core.measures(target=text)
    found = await runs_of(context, measures[: views.MAX_LISTED])
    await responses.show_with_buttons(
        context,
        "In force",
        f"active:{text[: views.TEXT_LIMIT]}",
        lambda button: views.listed(found, person, text, total=len(measures), button=button),
    )


async def runs_of(context: Context, measures: Sequence[Measure]) -> list[HomeRun]:
    """Of each measure the run that decides when it ends, as far as that is on its target."""
    decisive = await asyncio.gather(*(context.core.action(measure.actions[-1]) for measure in measures))
    found, shown = await FoundRuns.of(context, decisive), list[HomeRun]()
    for action, measure in zip(decisive, measures, strict=True):
        ids_, run = [one.id for one in measure.target or ()], found.run(action)
        parts = undo_state.in_force_by_target(run.action)
        own = [each for each in parts if [one.id for one in each[0].target or ()] == ids_]
        part, id_ = own[0] if own else (run.action, "")
        shown.append(replace(run, action=part, part=id_))
    return shown


async def on_mark_ended_button(context: Context) -> None:
    """Ask how somebody knows that it has ended."""
    intent = await responses.clicked_intent(context)
    action, view = await subjects.visible_run(context, intent.object_id)
    by_id = {id_: one for one, id_ in undo_state.in_force_by_target(action)}
    await context.show_modal(views.mark_ended_view(by_id.get(intent.argument, action), view, intent.argument))


async def on_mark_ended_view(context: Context) -> Json:
    """Mark it as ended. Core refuses whoever may not, and what is only starting or being undone."""
    view = view_of(context)
    action_id, _, part = str(view.get("private_metadata") or "").partition(" ")
    reason = modals.values(view).get("reason", "").strip()
    if not reason:
        return modals.errors({"reason": "Say how you know, for whoever reads it later."})
    await answered(context.core.end_measure(part or action_id, reason), UNKNOWN)
    action, subject = await subjects.of_action(context.core, await context.core.action(action_id))
    await responses.refresh_cards(context, subject)
    shown = RedactedView(subject, own_clearance(context))
    return modals.update(modals.message_view("Done", notices.notice(f"{heading(action, shown)} is marked as ended.")))


FEATURE = Feature(
    commands={
        "active": Command(
            Entry(on_active_command, modal_title="In force"),
            "active [target]",
            "what is in force, on a host or address if you name one, with Undo and Extend",
        )
    },
    actions={ids.MARK_ENDED: Entry(on_mark_ended_button, modal_title="Mark as ended")},
    views={ids.MARK_ENDED_VIEW: Entry(on_mark_ended_view, Ack.RESPONSE)},
)
