"""`/responder template`: create a case template in a modal."""

from bot.block_kit import ids, modals, notices
from bot.features.base import Ack, Command, Context, Entry, Feature, Json
from bot.features.payload import view_of
from bot.features.responses import require_permission
from bot.features.templates import views
from core.common.errors import ResponderBotError

USAGE = "template"


async def on_template_command(context: Context) -> None:
    """Open the modal."""
    require_permission(context, "manageCaseTemplate")
    await context.show_modal(views.template_view())


async def on_template_view(context: Context) -> Json:
    """Create the template, or show each error at its field."""
    view = view_of(context)
    filled = views.parse_submission(view)
    if filled.errors:
        return modals.errors(filled.errors)
    try:
        created = await context.core.create_case_template(filled.body)
    except ResponderBotError as error:
        return _core_error(error, view)
    return modals.update(views.created_view(created))


def _core_error(error: ResponderBotError, view: modals.View) -> Json:
    """Core's error at the field that it is about; a name that is taken at the name."""
    if error.code not in ("exists", "invalid_fields"):
        return modals.problem(notices.sentence(error))
    if error.code == "exists" or not error.fields:
        return modals.errors({"name": error.message})
    return modals.errors(views.errors_by_block(error.fields, modals.labels(view)))


FEATURE = Feature(
    commands={
        "template": Command(
            Entry(on_template_command, modal_title=views.TITLE), USAGE, "make a case template", "manageCaseTemplate"
        )
    },
    views={
        ids.TEMPLATE_VIEW: Entry(on_template_view, Ack.RESPONSE),
    },
)
