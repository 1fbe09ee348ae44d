"""`/responder list ~id`: what can run on an object, and why the rest can't; `actions ~id`: what ran on it."""

from collections import ChainMap
from functools import partial

from bot.clearance import RedactedView, Subject
from bot.features import command_text, responses, subjects
from bot.features.authorization import own_clearance, who_else_may_see, why_not_run
from bot.features.base import Command, Context, Entry, Feature
from bot.features.responders.matching import matching, none_called
from bot.features.responders.views import responder_list
from bot.features.runs.targets import ended_or_repeated, undoing
from bot.features.runs.views import undo_state
from bot.features.runs.views.runs import action_list


async def on_list_command(context: Context) -> None:
    """List the responders; a name beside the id narrows the list."""
    name, object_id = command_text.split_name_and_id(context.text)
    targets = await subjects.targets(context.core, object_id)
    subject, offered, clearance = targets.subject, targets.offered, own_clearance(context)
    view = RedactedView(subject, clearance)
    if name and view.is_open:
        offered = matching(name, offered)
        if not offered:
            raise none_called(name, targets.offered, subject.id, context.services.command, "list")
    measures = await context.core.measures(target=subject.root_id)
    in_force = {
        one.name: [undo_state.already(found, view, "").rstrip() for found in ended_or_repeated(one, subject, measures)]
        for one in offered
    }
    ends = undoing(view, offered, measures)
    refused = await why_not_run(context)
    who = await who_else_may_see(context, subject.tlp)
    shown = partial(responder_list, offered, targets.by_artifact, subject, in_force, ends, clearance=clearance)
    shown = partial(shown, command=context.services.command, refused=refused, who=who, channel=context.channel)
    await responses.show_with_buttons(
        context, "What can run", f"list:{subject.id}", lambda button: shown(button=button)
    )


async def on_actions_command(context: Context) -> None:
    """List the runs, newest first."""
    _, object_id = command_text.split_name_and_id(context.text)
    await show_actions(context, object_id)


async def show_actions(context: Context, object_id: str) -> None:
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


FEATURE = Feature(
    commands={
        "list": Command(Entry(on_list_command), "list ~id [NAME]", "what can run on it, and why the rest can't"),
        "actions": Command(Entry(on_actions_command), "actions ~id", "what ran on it, with the ids"),
    }
)
