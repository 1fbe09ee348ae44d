"""`/responder stats`: how long people took in the last weeks."""

from bot.features import responses
from bot.features.base import Command, Context, Entry, Feature
from bot.features.home.views import stats
from core.common.clock import DAY_MS

DAYS = 28


async def on_stats_command(context: Context) -> None:
    """Show the figures, which name no alert."""
    since = context.services.clock_ms() - (DAYS - 1) * DAY_MS
    weeks = await context.core.stats(by="week", since=since)
    responders = await context.core.stats(by="responder", since=since)
    await responses.show(context, "Stats", stats.stats(weeks, responders, DAYS))


FEATURE = Feature(
    commands={
        "stats": Command(
            Entry(on_stats_command, modal_title="Stats"),
            "stats",
            "how long it took to assign alerts, to run something, to contain, and to approve",
        )
    }
)
