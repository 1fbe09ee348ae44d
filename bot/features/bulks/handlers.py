"""Runs on several objects after their start: what became of each, decide on all, run again what failed.

How far it is, the Notifier tells in one message in the channel, see `bot/docs/slack.md#several-objects`.
"""

from collections.abc import Sequence

from bot.block_kit import ids, modals, notices
from bot.block_kit.text import count
from bot.clearance import RedactedView, Subject
from bot.features import responses
from bot.features.approvals import views as approvals
from bot.features.authorization import own_clearance
from bot.features.base import Ack, Context, Entry, Feature
from bot.features.bulks import views
from bot.features.bulks.views import ShownTarget
from bot.features.payload import button_token
from bot.features.retries import UNKNOWN_DECISION, until_answered
from bot.features.runs.flow import UNKNOWN, masked
from bot.features.runs.targets import within
from bot.features.runs.views import runs
from bot.features.runs.views.run_form import SEVERAL_TITLE as TITLE
from bot.message import ButtonIds, Message
from bot.outbox import RefreshRequest
from bot.outbox.models import bulk_key
from core.client import UNANSWERED
from core.common.errors import ResponderBotError
from core.models import BulkTarget, parse_id

REVIEW_TITLE = "Approve all?"


async def on_retry(context: Context) -> None:
    """Run again, as a new bulk, what failed or was refused; a message of its own tells how it goes."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    responses.require_permission(context, "manageAction")
    posted = await context.services.outbox.message_at(context.channel, context.message_ts)
    place = posted.key.split(":", 2)[2] if posted is not None else context.channel
    key = f"retry-{button_token(context)}"
    response = await until_answered(lambda: context.core.retry_bulk(intent.object_id, key))
    if response is None:
        raise ResponderBotError("unavailable", UNKNOWN)
    context.refresh_requests.extend(
        RefreshRequest(bulk_key(bulk_id, place)) for bulk_id in (response.id, intent.object_id)
    )
    accepted = sum(entry.action is not None for entry in response.actions)
    text = f"Runs again on {count(accepted, 'object')}; {len(response.actions) - accepted} refused ({response.id})."
    await responses.respond(context, notices.notice(text))


async def on_details(context: Context) -> None:
    """Show what became of each object, as far as this person may see it."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    bulk = await context.core.bulk(intent.object_id)
    shown, start = await _shown(context, bulk.targets), int(intent.argument or 0)
    about = f"bulk:{bulk.id}:{start}"
    await responses.show_with_buttons(
        context, TITLE, about, lambda button: views.details(bulk, shown, start, button=button)
    )


async def on_review(context: Context) -> None:
    """Show all that one decision is about, with Approve and Deny for who may see all of it.

    Always in a modal: a message takes less, and nobody is to approve what was left out of it.
    """
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    responses.require_permission(context, "manageAction")
    if not await responses.show_view(context, modals.loading(REVIEW_TITLE)):
        raise ResponderBotError("unavailable", "Slack opened no window for it. Press *Review* again.")
    bulk = await context.core.bulk(intent.object_id)
    visible = await _shown(context, [target for target in bulk.targets if target.action_status == "Waiting"])
    waiting = [one for one in visible if one.action is not None and runs.awaits_approval(one.action)]
    person, why_not, confirm = context.person, "", ""
    if person is not None and person.login == bulk.created_by:
        why_not = "You asked for it, so somebody else decides."
    if waiting:
        subject = waiting[0].view.subject
        offered = await context.core.responders(subject.kind, subject.id, explain=True)
        policy = next((one.policy for one in offered if one.name == bulk.responder_name), None)
        confirm = approvals.policy_text(policy)
        if all(approvals.has_voted(one.action, person.login if person else "") for one in waiting if one.action):
            why_not = why_not or "You have approved it; it needs somebody else's approval as well."
    readable = [one for one in waiting if approvals.sees_all(one.view.clearance, one.view.subject)]
    hidden = bulk.awaiting - len(readable)

    def shown(button: ButtonIds) -> Message:
        return views.review(bulk, readable, max(hidden, 0), why_not, confirm, button=button)

    message = await responses.with_buttons(context, f"bulk:{bulk.id}:review", shown)
    await context.show_modal(modals.message_view(REVIEW_TITLE, message))


async def on_decision(context: Context) -> None:
    """Approve or deny all of its runs that wait. Core refuses what this person may not decide, and says why."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    approves = intent.what == "bulk_approve"
    decide = context.core.approve_bulk if approves else context.core.deny_bulk
    try:
        response = await decide(intent.object_id)
    except ResponderBotError as error:
        if UNANSWERED not in error.details:
            raise
        raise ResponderBotError("unavailable", UNKNOWN_DECISION) from error
    outcome = views.decided(await masked(context, response), "approved" if approves else "denied")
    await responses.respond(context, outcome, "Done")


async def _shown(context: Context, targets: Sequence[BulkTarget]) -> list[ShownTarget]:
    """Those of these that the person may see, each with its action."""
    clearance, shown = own_clearance(context), dict[str, ShownTarget]()
    by_id = {target.action_id or target.object_id: target for target in targets}
    valid_ids = [key for key in by_id if parse_id(key) is not None]
    async for response in context.core.documents_in_pages(valid_ids):
        for document in response.documents:
            actions = {action.id: action for action in document.actions}
            known = {*actions, *within(document, [target.object_id for target in targets])}
            for key in [key for key in by_id if key in known]:
                target, action = by_id[key], actions.get(key)
                subject = Subject.in_document(document, action.object_id if action else target.object_id)
                view = RedactedView(subject, clearance) if subject is not None else None
                if view is not None and view.is_open:
                    undo = action.undo if action is not None else None
                    policy = document.policies.get(undo.responder) if undo is not None else None
                    shown[key] = ShownTarget(target, view, action, policy)
    return [shown[key] for key in by_id if key in shown]


FEATURE = Feature(
    actions={
        ids.BULK_RETRY: Entry(on_retry, Ack.WRITE),
        ids.BULK_DETAILS: Entry(on_details, modal_title=TITLE),
        ids.BULK_REVIEW: Entry(on_review, modal_title=REVIEW_TITLE),
        ids.BULK_APPROVE: Entry(on_decision, Ack.WRITE),
        ids.BULK_DENY: Entry(on_decision, Ack.WRITE),
    }
)
