"""Who may use the bot: people who are linked, in channels that are in the settings."""

from bot.cards import notices
from bot.cards.message import Message
from bot.features.base import Context, Entry

DIRECT_MESSAGE = "D"  # first letter of the ids of direct messages


def refusal(entry: Entry, context: Context) -> Message | None:
    """Why this person can't do this here, as a response to them; None if they may go on.

    Permissions are not checked here but by core.
    """
    if entry.is_public:
        return None
    if context.person is None:
        return notices.unlinked(context.user, context.team)
    if context.channel and channel_clearance(context) is None:
        return notices.not_set_up(context.channel)
    return None


def channel_clearance(context: Context) -> int | None:
    """The highest TLP that the channel may show; a direct message has its person's. None: not in the settings."""
    if context.channel.startswith(DIRECT_MESSAGE):
        return context.person.clearance if context.person else None
    return context.services.clearance(context.channel)


def own_clearance(context: Context) -> int:
    """What this person may see where only they look: ephemeral message, modal, App Home, direct message."""
    return context.person.clearance if context.person else 0
