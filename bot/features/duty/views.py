"""What a thread says of the steps of a duty, and how somebody who was asked passes it on."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bot.block_kit import ids
from bot.block_kit.elements import button_element
from bot.block_kit.text import DAY_AND_TIME, code, context, foreign, mentions, person_name, section, slack_date
from bot.message import ButtonIds, Intent, Message
from core.common.clock import MINUTE_MS
from core.models import ASK_CHANNEL, Duty

MENTIONED_AT_MOST = 50
NAMED_AT_MOST = 10


class Words(NamedTuple):
    """What somebody is asked."""

    to: str
    nobody: str
    """What hasn't happened if the next step comes."""
    please: str


DECIDE = Words("decide", "nobody decides", "Nobody has decided yet. Please do.")
WORK = Words("work on it", "nobody is assigned", "Nobody is assigned yet. Please assign it to yourself.")


def step_reply(
    duty: Duty, number: int, words: Words, *, is_open: bool, users: Mapping[str, str], problem: str = ""
) -> Message:
    """Who was asked by step `number` (from 1), who of them won't decide, and who is next.

    `users` are Slack's ids by login; `problem` says why a group may not have the members that it has in Slack.
    """
    step = duty.asked[number - 1]
    parts = [_asked(duty, number, words, is_open=is_open, users=users)]
    if passed := [person_name(login) for login in step.logins if login in duty.not_me]:
        parts.append(f"Not {_listed(passed)}.")
    if is_open and number == len(duty.asked) and duty.next_ask is not None:
        parts.append(f"If {words.nobody}, next at {slack_date(duty.next_at or 0)}: {_who(duty.next_ask)}.")
    text = f"🔔 {' '.join(parts)}"
    return Message(text, (section(text), *([context(foreign(problem, 500))] if problem else [])))


def _asked(duty: Duty, number: int, words: Words, *, is_open: bool, users: Mapping[str, str]) -> str:
    step = duty.asked[number - 1]
    if not step.logins:
        return f"Nobody else among {_who(step.ask)} could {words.to}."
    if step.ask != ASK_CHANNEL:
        of_group = f" ({_who(step.ask)})" if step.ask.startswith("@") else ""
        return f"Asked {_listed([person_name(login) for login in step.logins])}{of_group} to {words.to}."
    if not is_open:
        return f"Asked here who could {words.to}."
    named = [users[login] for login in step.logins if login in users]
    return f"{mentions(named[:MENTIONED_AT_MOST])} {words.please}"


def _who(ask: str) -> str:
    return "this channel" if ask == ASK_CHANNEL else code(ask, 100)


def _listed(names: list[str]) -> str:
    more = len(names) - NAMED_AT_MOST
    shown = [*names[:NAMED_AT_MOST], *([f"{more} more"] if more > 0 else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def reminder_reply(expires_at: int) -> Message:
    """Tells a thread that half of the time for a decision was over."""
    text = f"⏰ Half of the time to decide is over; it ends {slack_date(expires_at, DAY_AND_TIME)}."
    return Message(text, (section(text),))


def is_reminded(duty: Duty | None, login: str) -> bool:
    """Whether somebody who got a direct message is to get it again: not if it was the reminder's minute, nor if they
    have passed it on."""
    if duty is None or duty.reminded_at is None or login in duty.not_me:
        return False
    return all(duty.reminded_at - step.at >= MINUTE_MS for step in duty.asked if login in step.logins)


def why_asked(duty: Duty | None, login: str) -> str:
    """Tells somebody why they get a direct message; "" if no step asked them."""
    step = next((step for step in duty.asked if login in step.logins), None) if duty is not None else None
    if duty is None or step is None:
        return ""
    passed = " You passed it on." if login in duty.not_me else ""
    as_member = f" as {_who(step.ask)}" if step.ask.startswith("@") else ""
    return f"You were asked{as_member}, by the duty {code(duty.name, 100)}.{passed}"


def not_me_button(duty: Duty | None, login: str, asked_id: str, button: ButtonIds) -> list[dict[str, Any]]:
    """*Not me*, for somebody who was asked and hasn't passed it on."""
    if duty is None or login not in duty.logins or login in duty.not_me:
        return []
    return [button_element("Not me", ids.NOT_ME, button(Intent(ids.NOT_ME, asked_id)), of=asked_id)]


def passed_on(duty: Duty, login: str) -> str:
    """Tells somebody what became of their *Not me*."""
    step = duty.asked[-1]
    if login in step.logins:
        return "Noted. Nobody else will be asked, so tell somebody."
    words = WORK if duty.channel else DECIDE
    if step.ask == ASK_CHANNEL and step.logins:
        return f"Noted. All others who could {words.to} are asked in the thread."
    return f"Noted. {_asked(duty, len(duty.asked), words, is_open=False, users={})}"
