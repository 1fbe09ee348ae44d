"""The menus and buttons that lead to a run, on cards and in questions: what they list, and what a choice does."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from bot.block_kit import ids, notices
from bot.block_kit.elements import NOTHING, message_option
from bot.clearance import RedactedView, Subject
from bot.features import responses, subjects
from bot.features.authorization import own_clearance, who_else_may_see, why_not_run
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.payload import button_token, is_ephemeral, selected_value
from bot.features.responders.views import acting_through, responder_of_option, responder_options, target_of_option
from bot.features.runs import flow, form
from bot.features.runs.targets import Target, acted_on, find_targets, run_target, undoing, with_targets_again
from bot.features.runs.views import run_form
from bot.features.runs.views.request import RunRequest
from core.common.errors import ResponderBotError
from core.models import OfferedResponder


async def on_responder_options(context: Context) -> Json:
    """Options for a menu on a message; the id of its block says which object it is for."""
    token = str(context.payload.get("block_id") or "").removeprefix(ids.MENU_BLOCK)
    try:
        intent = await context.services.outbox.buttons.resolve(
            token, channel=context.channel, message_ts=context.message_ts, user=context.user
        )
    except ResponderBotError:
        return message_option("This menu is too old: type /responder list and the id")
    return await _options(context, intent.object_id, intent.argument)


async def on_start_options(context: Context) -> Json:
    """Options for the menu in the run modal; the metadata of the view says which object it is for."""
    targets = form.request_of(context).targets
    if not targets:
        return message_option("Choose an alert first.")
    return await _options(context, targets[0].object_id)


async def _options(context: Context, object_id: str, card_id: str = "") -> Json:
    """`card_id` is the alert or case on whose card the menu is."""
    targets = await subjects.targets(context.core, object_id)
    view = RedactedView(targets.subject, own_clearance(context))
    if not view.is_open:
        who = await who_else_may_see(context, view.subject.tlp)
        return message_option(notices.withheld_from(view.clearance, who))
    if why_not := await why_not_run(context):
        return message_option(why_not)
    alert_id, through = await _through_alert(context, view.subject, card_id)
    typed = str(context.payload.get("value") or "")
    in_force = [] if typed else await context.core.measures(target=view.subject.root_id)
    ends = undoing(view, targets.offered, in_force)
    return responder_options(targets.offered, targets.by_artifact, view, typed, alert_id, through, ends)


async def _through_alert(context: Context, subject: Subject, card_id: str) -> tuple[str, Sequence[OfferedResponder]]:
    """An alert that has this observable, that of the card if it has it, and what acts on the observable through it."""
    alerts = (subject.alert_ids or (subject.root_id,)) if subject.kind == "case_artifact" else ()
    found = await find_targets(context, [card_id] if card_id in alerts else alerts) if alerts else {}
    for alert_id, target in found.items():
        if through := acting_through(target.offered, subject.id):
            return alert_id, through
    return "", ()


async def on_responder_menu(context: Context) -> None:
    """Run the responder that was chosen on a card, show its form, or say why it can't run."""
    intent = await responses.clicked_intent(context)
    rotated = asyncio.create_task(context.services.outbox.buttons.rotate(button_token(context)))
    try:
        target_id, artifact_id = target_of_option(selected_value(context))
        subject, offered = await subjects.offered(context.core, target_id or intent.object_id)
    finally:
        await rotated
    started = False
    try:
        started = await _start_selected(context, subject, offered, artifact_id)
    finally:
        if not started and not is_ephemeral(context):
            await responses.refresh_cards(context, subject)  # else the menu keeps showing the selected option


async def _start_selected(
    context: Context, subject: Subject, offered: Sequence[OfferedResponder], artifact_id: str
) -> bool:
    view = subjects.require_visible(context, subject)
    responses.require_permission(context, "manageAction")
    if selected_value(context) == NOTHING:
        return False
    responder = responder_of_option(offered, selected_value(context))
    if responder is None:
        raise ResponderBotError("not_found", "That responder is no longer available; open the menu again.")
    target = run_target(subject).model_copy(update={"target": [artifact_id] if artifact_id else []})
    request = RunRequest((target,), responder.id, channel=context.channel)
    return await flow.proceed(context, request, responder, [Target(view, offered)])


async def on_run_button(context: Context) -> None:
    """Show the form that asks why rules are overridden, or for a button of 0.2.0, which asked to confirm, the run's."""
    intent = await responses.clicked_intent(context)
    request = replace(RunRequest.from_text(intent.argument), anyway="")
    responder, targets = await flow.offered(context, request)
    if responder.can_run and request.override_reason is not None:
        raise ResponderBotError("conflict", "No rule blocks it any more; run it as usual.")
    await flow.show_form(context, request, responder, targets)


async def on_run_again_button(context: Context) -> None:
    """Run the same responder on the same object again, after its form."""
    intent = await responses.clicked_intent(context)
    previous = await context.core.action(intent.object_id)
    request = replace(RunRequest.again_of(previous), channel=context.channel)
    responder, targets = await flow.offered(context, request)
    view = targets[0].view
    minutes = previous.undo.after_minutes or 0 if previous.undo is not None else None
    request = replace(request, targets=(run_target(view.subject),))  # one that was merged has another id by now
    request = flow.as_before(request, previous, responder, view, minutes)
    request = with_targets_again(request, targets, [(view.subject.id, acted_on(previous))])
    await flow.proceed(context, request, responder, targets)


async def on_dismiss_button(context: Context) -> None:
    """Delete the question of 0.2.0 and run nothing."""
    await context.replace_original(None)


FEATURE = Feature(
    actions={
        ids.MENU: Entry(on_responder_menu, Ack.WRITE),
        **dict.fromkeys((ids.RUN, ids.RUN_ANYWAY, ids.BREAK_GLASS), Entry(on_run_button, modal_title=run_form.TITLE)),
        ids.RUN_AGAIN: Entry(on_run_again_button, Ack.WRITE),
        ids.DISMISS: Entry(on_dismiss_button),
    },
    options={
        ids.MENU: Entry(on_responder_options, Ack.RESPONSE),
        ids.START_RESPONDER: Entry(on_start_options, Ack.RESPONSE),
    },
)
