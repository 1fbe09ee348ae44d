"""Runs on several objects after their start: what became of each, decide on all, run again what failed.

How far it is, the Notifier tells in one message in the channel, see `bot/docs/slack.md#several-objects`.
"""

from collections.abc import Awaitable, Sequence
from typing import Any

from bot.block_kit import ids, modals, notices
from bot.block_kit.text import count
from bot.clearance import RedactedView, Subject
from bot.features import responses
from bot.features.approvals import views as approvals
from bot.features.authorization import own_clearance
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.bulks import views
from bot.features.bulks.views import ShownTarget
from bot.features.payload import button_token, view_metadata, view_of
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
from core.models import BulkAnswer, BulkTarget, parse_id

REVIEW_TITLE = "Review"


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
    text = f"Runs again on {count(accepted, 'target')}; {len(response.actions) - accepted} refused ({response.id})."
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
    """Show all that one decision is about, with what approves and denies it for who may see all of it.

    Always in a modal: a message takes less, and nobody is to approve what was left out of it.
    """
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    responses.require_permission(context, "manageAction")
    if not await responses.show_view(context, modals.loading(REVIEW_TITLE)):
        raise ResponderBotError("unavailable", "Slack opened no window for it. Press *Review* again.")
    await context.show_modal(await _review_view(context, intent.object_id))


async def _review_view(context: Context, bulk_id: str, *, has_changed: bool = False) -> dict[str, Any]:
    bulk = await context.core.bulk(bulk_id)
    visible = await _shown(context, [target for target in bulk.targets if target.action_status == "Waiting"])
    waiting = [one for one in visible if one.action is not None and runs.awaits_approval(one.action)]
    person, why_not, responder = context.person, "", None
    if person is not None and person.login == bulk.created_by:
        why_not = "You asked for it, so somebody else decides."
    if waiting:
        subject = waiting[0].view.subject
        offered = await context.core.responders(subject.kind, subject.id, explain=True)
        responder = next((one for one in offered if one.name == bulk.responder_name), None)
        if all(approvals.has_voted(one.action, person.login if person else "") for one in waiting if one.action):
            why_not = why_not or "You have approved it; it needs somebody else's approval as well."
    readable = [one for one in waiting if approvals.sees_all(one.view.clearance, one.view.subject)]
    hidden = max(bulk.awaiting - len(readable), 0)

    def render(button: ButtonIds) -> dict[str, Any]:
        return views.review_view(bulk, readable, hidden, why_not, responder, button=button, has_changed=has_changed)

    return await responses.with_buttons(context, f"bulk:{bulk.id}:review", render)


async def on_approve_view(context: Context) -> Json:
    """Approve all of its runs that wait, if they are still what this person has read."""
    submitted = view_of(context)
    bulk_id = str(view_metadata(submitted).get("id") or "")
    shown = await _review_view(context, bulk_id, has_changed=True)
    if shown["private_metadata"] != submitted.get("private_metadata"):
        return modals.update(shown)
    outcome = await _decided(context, context.core.approve_bulk(bulk_id), "approved")
    return modals.update(modals.message_view("Done", outcome))


async def on_deny_button(context: Context) -> None:
    """Deny all of its runs that wait."""
    intent = await responses.clicked_intent(context)
    if intent is not None:
        outcome = await _decided(context, context.core.deny_bulk(intent.object_id), "denied")
        await responses.respond(context, outcome, "Done")


async def _decided(context: Context, decision: Awaitable[BulkAnswer], verb: str) -> Message:
    """What became of a decision. Core refuses what this person may not decide, and says why."""
    try:
        response = await decision
    except ResponderBotError as error:
        if UNANSWERED not in error.details:
            raise
        raise ResponderBotError("unavailable", UNKNOWN_DECISION) from error
    return views.decided(await masked(context, response), verb)


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
        ids.BULK_DENY: Entry(on_deny_button, Ack.WRITE),
    },
    views={ids.BULK_APPROVE_VIEW: Entry(on_approve_view, Ack.RESPONSE)},
)
