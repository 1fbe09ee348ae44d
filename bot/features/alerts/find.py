"""`/responder find TEXT`: the alerts that have a text in what this person may see of them."""

from functools import partial

from bot.features import responses, subjects
from bot.features.alerts.views.details import found_alerts
from bot.features.authorization import own_clearance
from bot.features.base import Command, Context, Entry, Feature

USAGE = "find TEXT"
MOST = 200


async def on_find_command(context: Context) -> None:
    """List the newest alerts with all of these words; those of a group share a line."""
    clearance = own_clearance(context)
    alerts = await subjects.search(context.core, context.text, clearance, MOST + 1)
    lines = await subjects.by_group(context, alerts[:MOST])
    found = partial(found_alerts, lines, context.text, clearance=clearance, channel=context.channel)
    about, more = f"find:{context.text[:200]}", len(alerts) > MOST
    await responses.show_with_buttons(context, "Alerts found", about, lambda button: found(button=button, more=more))


def _usage_error(_usage: str, rest: str, command: str) -> str:
    return "" if rest.strip() else f"Find what? Type `{command} find` and a text, such as {command} find 203.0.113.7."


FEATURE = Feature(
    commands={
        "find": Command(
            Entry(on_find_command), USAGE, "alerts with a text, an address or a tag", usage_error=_usage_error
        )
    }
)
