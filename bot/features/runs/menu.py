"""The options of the searchable menu of responders, when it is opened and while somebody types."""

from collections.abc import Sequence

from bot.block_kit import ids, notices
from bot.block_kit.elements import message_option
from bot.clearance import RedactedView, Subject
from bot.features import subjects
from bot.features.authorization import own_clearance, who_else_may_see, why_not_run
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.responders.views import acting_through, responder_options
from bot.features.runs import choose
from bot.features.runs.targets import find_targets, undoing
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
    targets = choose.request_of(context).targets
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


FEATURE = Feature(
    options={
        ids.MENU: Entry(on_responder_options, Ack.RESPONSE),
        ids.START_RESPONDER: Entry(on_start_options, Ack.RESPONSE),
    }
)
