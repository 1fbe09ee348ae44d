"""Short texts: not linked, channel not set up, errors, confirmations, reminders."""

import hashlib
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from bot.block_kit import ids
from bot.block_kit.elements import actions, button_element
from bot.block_kit.text import (
    MESSAGE_TEXT_LIMIT,
    clip,
    core_says,
    escape,
    first_of,
    foreign,
    plain_name,
    said,
    section,
    sections,
    slack_date,
)
from bot.clearance import tlp_name
from bot.message import Block, ButtonIds, Intent, Message
from core.client import UNANSWERED
from core.common.errors import ResponderBotError, StoreUnavailableError
from core.common.words import count
from core.models import Permission

MAX_PEOPLE = 3  # that are named
CHANGED = "This has changed since you opened it, so nothing was done. Read it again."
INPUT = "parameters."  # in front of an input's name, where core says what is wrong with it

# Requests that may have run something although their response was lost have sentences of their own.
STORE_AWAY = (
    "The database can't be used now; look at the card before you ask again, since what you asked for may be done."
)
NOT_ANSWERING = "The responder service isn't answering. Nothing was run. Try again in a minute."
TASKS: Mapping[Permission, str] = {
    "manageAction": "run responders or decide on runs",
    "manageAlert": "change alerts",
    "manageCase": "make cases",
    "manageCaseTemplate": "make case templates",
    "manageTask": "work on tasks",
    "manageUser": "manage people",
    "readAudit": "read the audit",
}


def notice(text: str) -> Message:
    """One or two of our own sentences; foreign parts in them are escaped already."""
    text = clip(text, MESSAGE_TEXT_LIMIT)
    return Message(text, tuple(section(part) for part in parts(text)))


def error(text: str) -> Message:
    """An error's sentence, which may hold foreign text."""
    return notice(core_says(text, 2800, lines=True) or "That did not work.")


def sentence(cause: ResponderBotError, who: str = "") -> str:
    """What people read of an error: no address of core or its database, and `who` can do or give what they may not."""
    if isinstance(cause, StoreUnavailableError):
        return STORE_AWAY
    if UNANSWERED in cause.details:
        return NOT_ANSWERING
    if cause.code == "forbidden" and {"tlp", "clearance"} <= cause.details.keys():
        return f"{withheld_from(cause.details['clearance'], who)} Nothing was done."
    if cause.code == "forbidden" and "permission" in cause.details:
        task = TASKS.get(cause.details["permission"], "do this")
        return f"You can't {task}. Ask {who or 'an administrator of responder-bot'}."
    if cause.code == "invalid_fields" and all(str(entry.get("name")).startswith(INPUT) for entry in cause.fields):
        return f"{' '.join(map(_wrong_input, cause.fields))} Nothing was run." if cause.fields else cause.message
    return said(cause.message)


def _wrong_input(entry: Mapping[str, Any]) -> str:
    name, expected = str(entry["name"]).removeprefix(INPUT), entry.get("format")
    if entry.get("type") == "UnknownAttributeError":
        return f"There is no input {name}, only {str(expected).removeprefix('one of ')}."
    return f"{name} should be {expected}." if expected else f"{name} is needed."


def withheld_from(clearance: object, who: str = "") -> str:
    """Why somebody with this clearance doesn't see an object, and `who` does; foreign text, not escaped."""
    ask = f"{who[:1].upper()}{who[1:]} can open this." if who else "Ask somebody who may see more."
    return f"You may see up to {tlp_name(clearance)}. {ask}"


def either(logins: Sequence[str], word: str = "or") -> str:
    """`ann`, `ann or ben`, `ann, ben, cleo or others`: people to ask, by name; foreign text, not escaped."""
    names = sorted(map(plain_name, logins[:MAX_PEOPLE]), key=str.casefold)
    names += ["others"] if len(logins) > MAX_PEOPLE else []
    return f" {word} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def all_of(logins: Sequence[str]) -> str:
    """`ann, ben, cleo and others`: likewise; mrkdwn."""
    return foreign(either(logins, "and"), 200)


def acknowledgement(message: Message) -> dict[str, Any]:
    """A message as the acknowledgement of a command, which only the person who typed it sees."""
    return {"response_type": "ephemeral", **message.payload()}


def unlinked(slack_user: str, team: str, ended: str) -> Message:
    """For somebody who isn't linked to a user of core: what an administrator types; or that their access was ended."""
    if ended:
        return error(ended)
    slack_id = escape(f"{team}:{slack_user}" if team else slack_user)
    return notice(
        "*You're not linked yet:* ask an administrator to type "
        f"`responder-bot user add YOUR-LOGIN --slack-id {slack_id}`, or `user link` with the same if you have a login."
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


def parts(text: str) -> list[str]:
    """Pieces that fit a section each, cut at line ends or blanks if possible."""
    found: list[str] = []
    while len(text) > 2900:
        cuts = [text.rfind("\n", 1, 2900), text.rfind(" ", 1450, 2900), 2900]
        cut = next(cut for cut in cuts if cut > 0)
        found.append(text[:cut])
        text = text[cut:].lstrip()
    return [*found, text or " "]


def expired_button(object_id: str) -> Message:
    """For a button that is expired, forwarded or forged; the cards of its object are updated."""
    then = f" The card of {object_id} has new ones now." if object_id.startswith("~") else ""
    return notice(f"This button is too old, or its message was passed on. Nothing was run.{then}")


def forgotten_card(object_id: str, channel: str, button: ButtonIds) -> Message:
    """For a button of a message that the bot no longer keeps, which is about this object."""
    text = f"This message is from long ago, so its buttons no longer work. Nothing was run on {object_id}."
    again = button_element("Show again", ids.SHOW_AGAIN, button(Intent("show_again", object_id, channel)))
    return Message(text, (section(text), actions(again)))


def lost_card(restored_at: int) -> Message:
    """For a button of a message that was posted after the backup from which the database was restored."""
    return notice(
        f"This message is from before a restore of {slack_date(restored_at)}, and the backup doesn't have"
        " it. Nothing was run."
    )


def changed(lines: Iterable[str] = (), read: Container[str] | None = (), over: Sequence[str] = ()) -> list[Block]:
    """Says that this has changed since it was `read`, if it was: what is `over`, and which lines (mrkdwn) are new."""
    new = "\n".join(first_of([*over, *(line for line in lines if mark_of(line) not in (read or ()))], 10))
    return sections([f"⚠️ *{CHANGED}*", *(f">{line}" for line in new.splitlines())]) if read is not None else []


def title(asked: str, read: Container[str] | None) -> str:
    """The title of a form that asks this; likewise once it has changed, where one sees it however far one scrolled."""
    return asked if read is None else "Changed: read again"


def digest(shown: Sequence[Any]) -> str:
    """Tells whether the same was read: blocks, lines or ids."""
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:32]


def mark_of(line: str) -> str:
    """Likewise of a line, in the little room of a modal's metadata."""
    return digest([line])[:4]


def counted(number: int, since: int, until: int, command: str, worst: str = "", shown: Sequence[Block] = ()) -> Message:
    """Tells somebody who was asked often how many more came, the `worst`, and `until` when others may not ring."""
    text = f"{count(number, 'more request')} for approval"
    lists = f"`{command} pending` lists all that wait, and your Home the worst."
    said = clip(f"{text}{f', the worst {worst}' if worst else '.'}", MESSAGE_TEXT_LIMIT)
    silent = f"Until {slack_date(until, '{time}')} those that are no more urgent may not ring."
    return Message(said, (section(f"*{text}* since {slack_date(since)}. {silent} {lists}"), *shown))
