"""Short answers that only one person sees: not linked, channel not set up, errors, confirmations."""

from typing import Any

from bot.cards.message import Message
from bot.cards.text import MESSAGE_TEXT_LIMIT, clip, escape, foreign, section
from core.common.errors import ResponderBotError


def notice(text: str) -> Message:
    """One or two of our own sentences; foreign parts in them are escaped already."""
    text = clip(text, MESSAGE_TEXT_LIMIT)
    return Message(text, tuple(section(part) for part in _parts(text)))


def error(sentence: str) -> Message:
    """An error's sentence, which may hold foreign text."""
    return notice(foreign(sentence, 2800, lines=True) or "That did not work.")


def for_error(problem: ResponderBotError) -> Message:
    """An error of core; for a missing permission also who can give it."""
    if problem.code == "forbidden" and "permission" in problem.message and "org-admin" not in problem.message:
        return error(f"{problem.message.rstrip('.')}. An org-admin of responder-bot can give it.")
    return error(problem.message)


def acknowledgement(message: Message) -> dict[str, Any]:
    """A message as the acknowledgement of a command, which only the person who typed it sees."""
    return {"response_type": "ephemeral", **message.payload()}


def unlinked(slack_user: str, team: str = "") -> Message:
    """For somebody who isn't linked to a user of core."""
    slack_id = f"{team}:{slack_user}" if team else slack_user
    return notice(
        "I don't know you yet: your Slack account isn't linked to a user of responder-bot. "
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
