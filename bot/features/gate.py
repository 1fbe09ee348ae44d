"""Who may come in: people who are linked, in channels that are set up."""

from bot.cards import notices
from bot.cards.message import Message
from bot.features.base import Context, Entry

DIRECT = "D"  # ids of direct messages begin with it


def refusal(entry: Entry, moment: Context) -> Message | None:
    """Why this person can't do this here, as an answer to them; None when they may go on.

    Rights are core's to check; this is about being known, and about the place (`slack.md 2`).
    """
    if entry.anyone:
        return None
    if moment.person is None:
        return notices.unlinked(moment.user, moment.team)
    if moment.channel and clearance_here(moment) is None:
        return notices.not_set_up(moment.channel)
    return None


def clearance_here(moment: Context) -> int | None:
    """What the channel may show; a direct message counts as its person's own. None: not set up."""
    if moment.channel.startswith(DIRECT):
        return moment.person.clearance if moment.person else None
    return moment.tools.clearance(moment.channel)


def own_clearance(moment: Context) -> int:
    """What this person may see where only they look: ephemeral, modal, Home, direct message."""
    return moment.person.clearance if moment.person else 0
