"""`/responder audit ~id`: who decided what about an object."""

from bot.features import responses, subjects
from bot.features.audit.views import story
from bot.features.base import Command, Context, Entry, Feature
from bot.features.command_text import parse_id, split_words
from core.common.errors import ResponderBotError

USAGE = "audit ~id"


async def on_audit_command(context: Context) -> None:
    """Show the story of an alert, a case or a run; core leaves out what this person may not see."""
    object_id = parse_id(split_words(context.text)[0])
    if object_id is None:
        raise ResponderBotError("bad_request", "That is no id; type one such as ~12.")
    await responses.show(context, "Audit", story(object_id, await context.core.audit(object_id)))


FEATURE = Feature(
    commands={
        "audit": Command(
            Entry(on_audit_command, modal_title="Audit"),
            USAGE,
            "who decided what about an alert, a case or a run",
            usage_error=subjects.missing_id(USAGE),
        )
    }
)
