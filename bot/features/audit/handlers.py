"""`/responder audit ~id`: who decided what about an object."""

from bot.features import responses, subjects
from bot.features.audit.views import story
from bot.features.base import Command, Context, Entry, Feature

USAGE = "audit ~id"


async def on_audit_command(context: Context) -> None:
    """Show the story of an alert, a case or a run; core leaves out what this person may not see."""
    _, object_id = subjects.require_id(context, USAGE)
    rows = await context.core.audit(object_id)
    await subjects.documents(context.core, [object_id])  # which have what people call its responders
    await responses.show(context, "Audit", story(object_id, rows))


FEATURE = Feature(
    commands={
        "audit": Command(
            Entry(on_audit_command, modal_title="Audit"), USAGE, "who decided what about an alert, a case or a run"
        )
    }
)
