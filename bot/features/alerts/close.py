"""Close an alert: a modal asks for the reason, and says what is still in force or waits for approval."""

from bot.block_kit import ids
from bot.features import responses, subjects
from bot.features.alerts.views import close as views
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.payload import metadata_text, typed_reason
from bot.message import Intent


async def ask(context: Context, intent: Intent) -> None:
    """Open the modal."""
    responses.require_permission(context, "manageAlert")
    subject, document = await subjects.with_document(context.core, intent.object_id)
    view = subjects.require_visible(context, subject)
    await context.show_modal(views.close_view(document, view, context.person.login))


async def on_close_view(context: Context) -> Json | None:
    """Close it. Core refuses whoever may not see it."""
    alert_id = metadata_text(context)
    await context.core.close_alerts([alert_id], typed_reason(context))
    context.refresh(alert_id)
    return None


FEATURE = Feature(views={ids.CLOSE_VIEW: Entry(on_close_view, Ack.RESPONSE)})
