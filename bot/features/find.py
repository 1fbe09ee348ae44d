"""`/responder find TEXT`: the alerts that have a text in what this person may see of them."""

from collections.abc import Sequence

from bot.cards.lists import found_alerts
from bot.features import responses
from bot.features.access import own_clearance
from bot.features.base import Command, Context, Entry, Feature
from bot.features.command_text import find_ids, split_words
from bot.redaction import RedactedView, Subject, refanged
from core.client import CoreClient
from core.models import Alert

USAGE = "find TEXT"
SHOWN = 15
MAX_WORDS = 10


async def on_find_command(context: Context) -> None:
    """List the newest alerts with all of these words."""
    clearance = own_clearance(context)
    alerts = await search(context.core, context.text, clearance)
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


async def search(core: CoreClient, text: str, clearance: int) -> Sequence[Alert]:
    """The newest alerts that show all words of a text, or an id, to this clearance; all of them without a text.

    What is withheld is not searched: that something was found would tell of it.
    """
    words = [refanged(word).casefold() for word in split_words(text)][:MAX_WORDS]
    ids = find_ids(text) or [f"~{word}" for word in words if word.isdigit()]
    by_id = await core.search("/api/alert/_search", {"_in": {"_field": "_id", "_values": ids}}) if ids else []
    alerts = [*map(Alert.model_validate, by_id), *await core.find_alerts(" ".join(words))]
    shown: dict[str, Alert] = {}
    for alert in alerts:
        view = RedactedView(Subject.alert(alert), clearance)
        if view.is_open and (alert.id in ids or all(word in _texts(alert, view) for word in words)):
            shown[alert.id] = alert
    return list(shown.values())


def _texts(alert: Alert, view: RedactedView) -> str:
    own = [alert.title, alert.description, alert.type, alert.source, alert.source_ref, *alert.tags]
    return view.searchable([*own, *(text for field in alert.custom_fields.items() for text in map(str, field))])


def _usage_error(rest: str, command: str) -> str:
    return "" if rest.strip() else f"Find what? Type `{command} find` and a text, such as {command} find 203.0.113.7."


FEATURE = Feature(
    commands={
        "find": Command(
            Entry(on_find_command), USAGE, "alerts with a text, an address or a tag", usage_error=_usage_error
        )
    }
)
