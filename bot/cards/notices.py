"""Short answers that only one person sees: not linked, not set up, errors, confirmations."""

from typing import Any

from bot.cards.message import Message
from bot.cards.text import MESSAGE_TEXT, clip, escape, foreign, section
from core.common.errors import ResponderBotError


def notice(text: str) -> Message:
    """One or two sentences of ours as an answer; foreign parts of it are escaped already."""
    shown = clip(text, MESSAGE_TEXT)
    return Message(shown, tuple(section(part) for part in _parts(shown)))


def error(sentence: str) -> Message:
    """A sentence of an error, which may hold foreign text."""
    return notice(foreign(sentence, 2800, lines=True) or "That did not work.")


def for_error(problem: ResponderBotError) -> Message:
    """An error of core for the one who caused it: a missing right with who can give it."""
    if problem.code == "forbidden" and "permission" in problem.message and "org-admin" not in problem.message:
        return error(f"{problem.message.rstrip('.')}. An org-admin of responder-bot can give it.")
    return error(problem.message)


def acknowledgement(message: Message) -> dict[str, Any]:
    """The same as the acknowledgement of a command, which only the one who typed it sees."""
    return {"response_type": "ephemeral", **message.payload()}


def unlinked(slack_user: str, team: str = "") -> Message:
    """Somebody whom no user of core is linked to (`semantics.md 10`)."""
    slack_id = f"{team}:{slack_user}" if team else slack_user
    return notice(
        "I don't know you yet: your Slack account isn't linked to a user of responder-bot. "
        f"Ask an administrator to run `responder-bot user link YOUR-LOGIN --slack-id {escape(slack_id)}`, "
        "then try again."
    )


def not_set_up(channel: str) -> Message:
    """A channel that isn't in the settings (`slack.md 2`)."""
    return notice(
        f"This channel is not set up for responder-bot. An administrator can add a `[[channel]]` with "
        f'`id = "{escape(channel)}"` and a clearance to the settings. A direct message to me works now.'
    )


def internal(number: str) -> Message:
    """A bug of ours; the number is in the log."""
    return notice(f"Something went wrong on our side (number {escape(number)}); it is in the log. Please try again.")


def _parts(text: str) -> list[str]:
    """Pieces that fit a section, cut at line ends where there are some."""
    parts: list[str] = []
    while len(text) > 2900:
        cut = text.rfind("\n", 1, 2900)
        cut = cut if cut > 0 else 2900
        parts.append(text[:cut])
        text = text[cut:].lstrip("\n")
    return [*parts, text or " "]
