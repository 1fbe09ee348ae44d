"""`/responder list ~id`: what can run on an object, and why the rest can't."""

from bot.features import responses, subjects
from bot.features.authorization import own_clearance, who_else_may_see, why_not_run
from bot.features.base import Command, Context, Entry, Feature
from bot.features.responders.matching import matching
from bot.features.responders.views import responder_list

USAGE = "list ~id"


async def on_list_command(context: Context) -> None:
    """List the responders; a name beside the id narrows the list."""
    name, object_id = subjects.require_id(context, USAGE)
    targets = await subjects.targets(context.core, object_id)
    subject, offered, by_artifact = targets.subject, targets.offered, targets.by_artifact
    if name:
        offered = matching(name, offered)
    clearance, command = own_clearance(context), context.services.command
    refused = await why_not_run(context)
    who = await who_else_may_see(context, subject.tlp)
    await responses.show_with_buttons(
        context,
        "What can run",
        f"list:{subject.id}",
        lambda button: responder_list(
            offered,
            by_artifact,
            subject,
            clearance=clearance,
            button=button,
            command=command,
            refused=refused,
            who=who,
            channel=context.channel,
        ),
    )


FEATURE = Feature(
    commands={"list": Command(Entry(on_list_command), USAGE, "what can run on it, and why the rest can't")}
)
