"""Undo runs: Undo at once, Extend to another time."""

from functools import partial
from typing import Any

from bot.block_kit import ids, modals, notices
from bot.clearance import RedactedView
from bot.features import responses, subjects
from bot.features.authorization import other_admins
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.payload import view_metadata, view_of
from bot.features.retries import answered, until_answered
from bot.features.runs.flow import able_to_decide, started_message, started_title
from bot.features.runs.targets import in_force_on
from bot.features.runs.views import runs, undo_state
from bot.features.undos import views
from core.common.clock import MINUTE_MS
from core.models import Action

UNKNOWN = "It may be on its way: the responder service stopped answering. Press it again; nothing is undone twice."
UNKNOWN_TIME = (
    "The responder service stopped answering, so the time may not have been set. See the run's line on its card before"
    " you set it again."
)


async def on_undo_button(context: Context) -> None:
    """Ask once more, with all that ends."""
    intent = await responses.clicked_intent(context)
    responses.require_permission(context, "manageAction")
    shown = await _question(context, intent.object_id, intent.argument)
    await responses.open_view(context, shown, "Press *Undo now* again.")


async def _question(context: Context, action_id: str, part: str) -> dict[str, Any]:
    """Asks with what is in force now; if nothing of it can be undone any more, it says so."""
    action, view = await subjects.visible_run(context, action_id)
    shown = _part(action, part)
    if shown.undo is None or not views.can_undo(shown):
        return await _over(context, "Undo", shown, view)
    undone_by, on = shown.undo.responder, {action.object_id: shown.target or ()}
    responder = await subjects.responder(context.core, view.subject, undone_by)
    ends = [one for one in await in_force_on(context, on, undone_by) if action.id in one.actions]
    now, login = context.services.clock_ms(), context.person.login
    others = [one for one, id_ in undo_state.in_force_by_target(action) if part and id_ != part]
    stays = f"🔒 It stays in force on {runs.targets(undo_state.together(action, others), view)}." if others else ""
    return views.undo_view(shown, view, responder, ends, now, login, part=part, stays=stays)


async def _over(context: Context, title: str, shown: Action, view: RedactedView) -> dict[str, Any]:
    """Says what became of what can't be undone any more, and has its cards updated, which offered it."""
    await responses.refresh_cards(context, view.subject)
    return modals.notice(title, f"{runs.heading(shown, view)}{runs.left(shown, view)}.")


def _part(action: Action, part: str) -> Action:
    """What the run has in force on one of its targets (`part`), or all of that."""
    return {id_: one for one, id_ in action.by_target()}.get(part) or undo_state.still(action)


async def on_undo_view(context: Context) -> Json:
    """Run what undoes it, in this person's name; core refuses whoever may not, and what is undone already."""
    submitted = view_of(context)
    metadata = view_metadata(submitted)
    action_id, part = str(metadata.get("id")), str(metadata.get("part"))
    shown = await _question(context, action_id, part)
    if shown["private_metadata"] != submitted.get("private_metadata"):
        return modals.update({**shown, "blocks": [*notices.changed(), *shown["blocks"]]})
    core, key = context.core, context.idempotency_key
    if part:
        (undoing,) = await until_answered(lambda: core.undo_measure(part, idempotency_key=key), UNKNOWN)
    else:
        undoing = await until_answered(lambda: core.undo(action_id, idempotency_key=key), UNKNOWN)
    undoing, subject = await subjects.of_action(core, undoing)
    await responses.refresh_cards(context, subject)
    message = await started_message(context, undoing, RedactedView(subject, context.person.clearance))
    return modals.update(modals.message_view(started_title(undoing), message))


async def on_extend_button(context: Context) -> None:
    """Ask how much later a run shall end."""
    intent = await responses.clicked_intent(context)
    responses.require_permission(context, "manageAction")
    action, view = await subjects.visible_run(context, intent.object_id)
    policy, able = await subjects.policy_and_able(context.core, view.subject, action.responder_name)
    if action.override is not None and not policy.approval:
        able = await other_admins(context, view.subject.clearance)
    if not intent.argument and undo_state.has_own_ends(action):
        which = partial(views.which_to_extend, action, view)
        await responses.show_with_buttons(context, "Extend", f"ends:{action.id}", which)
        return
    shown, now = _part(action, intent.argument), context.services.clock_ms()
    form = views.extend_view(shown, view, policy, now, context.person.login, able=able, part=intent.argument)
    await context.show_modal(form if views.can_undo(shown) else await _over(context, "Extend", shown, view))


async def on_extend_view(context: Context) -> Json:
    """Set the later end. Core refuses what the settings don't allow or is no later, and whoever may not."""
    submitted = view_of(context)
    metadata, values = view_metadata(submitted), modals.values(submitted)
    minutes = undo_state.minutes_of(values.get("longer", ""))
    if minutes is None:
        return modals.errors({"longer": "Choose how much longer."})
    until, part = int(metadata["at"]) + minutes * MINUTE_MS if minutes else None, str(metadata.get("part", ""))
    action, view = await subjects.visible_run(context, str(metadata["id"]))
    if not views.can_undo(_part(action, part)):
        return modals.update(await _over(context, "Extend", _part(action, part), view))
    extended = context.core.extend_measure(part or action.id, until, values.get("note", ""))
    action, subject = await subjects.of_action(context.core, await answered(extended, UNKNOWN_TIME))
    await responses.refresh_cards(context, subject)
    extension = undo_state.later_end(action)
    shown = RedactedView(subject, context.person.clearance)
    if extension is None:
        moved, others = undo_state.moved_last(action)
        now = f"{runs.heading(moved, shown)} now {undo_state.ends(moved)}."
        said = "\n".join([now, *runs.target_states(others, shown)])
        return modals.update(modals.message_view("Done", notices.notice(said)))
    asked = partial(views.asked, action, extension, shown, await able_to_decide(context, (action, shown)))
    message = await responses.with_buttons(context, f"asked:{extension.id}", asked)
    return modals.update(modals.message_view("Asked", message))


FEATURE = Feature(
    actions={
        ids.UNDO: Entry(on_undo_button, modal_title="Undo"),
        ids.EXTEND: Entry(on_extend_button, modal_title="Extend"),
    },
    views={
        ids.UNDO_VIEW: Entry(on_undo_view, Ack.RESPONSE),
        ids.EXTEND_VIEW: Entry(on_extend_view, Ack.RESPONSE),
    },
)
