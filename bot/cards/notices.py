"""Short answers that only one person sees: not linked, channel not set up, errors, confirmations."""

from typing import Any

from bot.cards.message import Message
from bot.cards.text import MESSAGE_TEXT_LIMIT, clip, escape, foreign, section
from bot.redaction import RedactedView, tlp_name
from core.client import UNANSWERED
from core.common.errors import ResponderBotError

# Requests that may have run something although their answer was lost have sentences of their own.
NOT_ANSWERING = "The responder service isn't answering. Nothing was run. Try again in a minute."


def notice(text: str) -> Message:
    """One or two of our own sentences; foreign parts in them are escaped already."""
    text = clip(text, MESSAGE_TEXT_LIMIT)
    return Message(text, tuple(section(part) for part in _parts(text)))


def error(text: str) -> Message:
    """An error's sentence, which may hold foreign text."""
    return notice(foreign(text, 2800, lines=True) or "That did not work.")


def for_error(cause: ResponderBotError) -> Message:
    """An error of core, with `sentence`."""
    return error(sentence(cause))


def sentence(cause: ResponderBotError) -> str:
    """What people read of an error: not core's address, and for a missing permission also who can give it."""
    if UNANSWERED in cause.details:
        return NOT_ANSWERING
    if cause.code == "forbidden" and {"tlp", "clearance"} <= cause.details.keys():
        return _above("it", cause.details["tlp"], cause.details["clearance"])
    if cause.code == "forbidden" and "permission" in cause.message and "org-admin" not in cause.message:
        return f"{cause.message.rstrip('.')}. An org-admin of responder-bot can give it."
    return cause.message


def above_clearance(view: RedactedView) -> str:
    """Tells somebody that they may not act on what they may not see, and what to do."""
    return _above(view.subject.id, view.subject.tlp, view.clearance)


def _above(what: str, tlp: object, clearance: object) -> str:
    return f"{limits(what, tlp, clearance)}. Nothing was done. Ask somebody who may see it."


def limits(what: str, tlp: object, clearance: object) -> str:
    """Why somebody doesn't see something: their clearance and its TLP, in numbers that may come from elsewhere."""
    return f"You may see up to {tlp_name(clearance)}, and {what} is {tlp_name(tlp)}"


def acknowledgement(message: Message) -> dict[str, Any]:
    """A message as the acknowledgement of a command, which only the person who typed it sees."""
    return {"response_type": "ephemeral", **message.payload()}


def unlinked(slack_user: str, team: str = "") -> Message:
    """For somebody who isn't linked to a user of core."""
    slack_id = f"{team}:{slack_user}" if team else slack_user
    return notice(
        "Your Slack account isn't linked to a user of responder-bot yet. "
        f"Ask an administrator to run `responder-bot user link YOUR-LOGIN --slack-id {escape(slack_id)}`, "
        "then try again."
    )


def not_set_up(channel: str) -> Message:
    """For a channel that isn't in the settings."""
    return notice(
        f"This channel is not set up for responder-bot. An administrator can add a `[[channel]]` with "
        f'`id = "{escape(channel)}"` and a clearance to the settings. A direct message to me works now.'
    )


def internal(number: str) -> Message:
    """For an unexpected error, which the log has under this number."""
    return notice(f"Something went wrong on our side (number {escape(number)}); it is in the log. Please try again.")


def _parts(text: str) -> list[str]:
    """Pieces that fit a section each, cut at line ends if possible."""
    parts: list[str] = []
    while len(text) > 2900:
        cut = text.rfind("\n", 1, 2900)
        cut = cut if cut > 0 else 2900
        parts.append(text[:cut])
        text = text[cut:].lstrip("\n")
    return [*parts, text or " "]
