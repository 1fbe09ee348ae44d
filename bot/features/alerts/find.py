"""`/responder find TEXT`: the alerts that have a text in what this person may see of them."""

from bot.features import responses, subjects
from bot.features.alerts.views.details import found_alerts
from bot.features.authorization import own_clearance
from bot.features.base import Command, Context, Entry, Feature

USAGE = "find TEXT"
SHOWN = 15


async def on_find_command(context: Context) -> None:
    """List the newest alerts with all of these words."""
    clearance = own_clearance(context)
    alerts = await subjects.search(context.core, context.text, clearance, SHOWN + 1)
    await responses.show_with_buttons(
        context,
        "Alerts found",
        f"find:{context.text[:200]}",
        lambda button: found_alerts(
            alerts[:SHOWN],
            context.text,
            more=len(alerts) > SHOWN,
            clearance=clearance,
            button=button,
            channel=context.channel,
        ),
    )


def _usage_error(_usage: str, rest: str, command: str) -> str:
    return "" if rest.strip() else f"Find what? Type `{command} find` and a text, such as {command} find 203.0.113.7."


FEATURE = Feature(
    commands={
        "find": Command(
            Entry(on_find_command), USAGE, "alerts with a text, an address or a tag", usage_error=_usage_error
        )
    }
)
