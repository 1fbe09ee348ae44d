"""`/responder list ~id`: what can run on an object, and why the rest can't."""

from functools import partial

from bot.clearance import RedactedView
from bot.features import command_text, responses, subjects
from bot.features.authorization import own_clearance, who_else_may_see, why_not_run
from bot.features.base import Command, Context, Entry, Feature
from bot.features.responders.matching import matching, none_called
from bot.features.responders.views import responder_list
from bot.features.runs.targets import ended_or_repeated, undoing
from bot.features.runs.views import undo_state


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


FEATURE = Feature(
    commands={"list": Command(Entry(on_list_command), "list ~id [NAME]", "what can run on it, and why the rest can't")}
)
