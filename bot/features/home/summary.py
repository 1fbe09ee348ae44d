"""`/responder summary`: the handover of the shift that is on, for who asks."""

from collections.abc import Collection, Mapping
from functools import partial

from bot.features import responses, subjects
from bot.features.authorization import own_clearance
from bot.features.base import Command, Context, Entry, Feature
from bot.features.home.views import summary
from bot.notifier.summaries import read_shift


async def on_summary_command(context: Context) -> None:
    """Show what is in force, what waits, what nobody works on and what failed, as far as this person may see it."""
    began_at, ends_at = context.services.shift()
    clearance = own_clearance(context)
    shift = await read_shift(context.core, began_at, ends_at, clearance, partial(_links, context))
    await responses.show(context, "Handover", summary.for_person(shift, clearance))


async def _links(context: Context, roots: Collection[str]) -> Mapping[str, str]:
    return await subjects.card_links(context, list(roots))


FEATURE = Feature(
    commands={
        "summary": Command(
            Entry(on_summary_command, modal_title="Handover"),
            "summary",
            "for a handover: what is in force, what waits, what nobody works on, what failed",
        )
    }
)
