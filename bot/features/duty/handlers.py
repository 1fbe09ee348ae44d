"""Pass on what one was asked to decide, or to work on."""

from bot.block_kit import ids, notices
from bot.features import responses
from bot.features.base import Ack, Context, Entry, Feature
from bot.features.duty import views


async def on_not_me_button(context: Context) -> None:
    """Have the next step of the duty come at once, and say so."""
    intent = await responses.clicked_intent(context)
    duty = await context.core.not_me(intent.object_id)
    await responses.respond(context, notices.notice(views.passed_on(duty, context.person.login)), "Not me")


FEATURE = Feature(actions={ids.NOT_ME: Entry(on_not_me_button, Ack.WRITE)})
