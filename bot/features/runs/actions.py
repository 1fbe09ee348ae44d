"""`/responder actions ~id`: what ran on an object."""

from collections import ChainMap

from bot.clearance import RedactedView, Subject
from bot.features import command_text, responses, subjects
from bot.features.authorization import own_clearance
from bot.features.base import Command, Context, Entry, Feature
from bot.features.runs.views.runs import action_list

USAGE = "actions ~id"


async def on_actions_command(context: Context) -> None:
    """List the runs, newest first."""
    _, object_id = command_text.split_name_and_id(context.text)
    await show(context, object_id)


async def show(context: Context, object_id: str) -> None:
    """Show the runs on an object to the person; of an alert or a case also those on what belongs to it."""
    subject, document = await subjects.with_document(context.core, object_id)
    subjects.require_visible(context, subject)
    is_root = subject.id == document.id
    documents = [document, *(await context.core.alerts_of(document, document.alert_ids) if is_root else ())]
    found = {action.id: action for one in documents for action in one.actions}
    actions = [a for a in found.values() if is_root or subject.id in (a.object_id, *(on.id for on in a.target or ()))]
    counts = ChainMap(*(one.action_counts for one in documents))
    total = sum(counts.values()) if is_root else counts.get(subject.id, 0)
    clearance = own_clearance(context)
    views = {action.id: RedactedView(Subject.of_action(action, *documents), clearance) for action in actions}
    shown = action_list(actions, subject.id, views, total=max(total, len(actions)))
    await responses.show(context, f"What ran on {subject.id}", shown)


FEATURE = Feature(commands={"actions": Command(Entry(on_actions_command), USAGE, "what ran on it, with the ids")})
