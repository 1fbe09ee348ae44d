"""`/responder audit ~id`: who decided what about an object."""

from bot.clearance import RedactedView, Subject
from bot.features import responses, subjects
from bot.features.audit.views import story
from bot.features.authorization import own_clearance
from bot.features.base import Command, Context, Entry, Feature
from bot.features.runs.views import runs

USAGE = "audit ~id"
ON_LIMIT = 200  # characters of what a run was on


async def on_audit_command(context: Context) -> None:
    """Show the story of an alert, a case or a run; core leaves out what this person may not see."""
    _, object_id = subjects.require_id(context, USAGE)
    rows = await context.core.audit(object_id)
    about, clearance, ran = object_id, own_clearance(context), dict[str, str]()
    for document in await subjects.documents(context.core, [object_id]):  # also for what people call its responders
        if (subject := Subject.in_document(document, document.id)) is not None:
            about = f"{object_id}: {runs.of_root(subject, RedactedView(subject, clearance))}"
        for action in document.actions:
            view = RedactedView(Subject.in_document(document, action.object_id) or Subject.unknown(action), clearance)
            on = runs.targets_in_plain(action, view, ON_LIMIT) or runs.target(view)
            ran[action.id] = f"{runs.title(action)} on {on}"
    await responses.show(context, "Audit", story(about, rows, ran))


FEATURE = Feature(
    commands={
        "audit": Command(
            Entry(on_audit_command, modal_title="Audit"), USAGE, "who decided what about an alert, a case or a run"
        )
    }
)
