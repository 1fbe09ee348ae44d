"""Responders that core has paused, since they failed too often."""

from collections.abc import Sequence

from bot.block_kit import ids
from bot.block_kit.elements import button_element, confirmation
from bot.block_kit.names import NAME_LIMIT
from bot.block_kit.text import DAY_AND_TIME, count, foreign, section, slack_date
from bot.clearance import RedactedView, Subject, withheld
from bot.features.runs.views import runs
from bot.message import Block, ButtonIds, Intent, Message
from core.models import Action, PausedResponder

MAX_SHOWN = 4  # in a Home, which has at most 100 blocks
MAX_LISTED = 40


def blocks(
    paused: Sequence[PausedResponder], button: ButtonIds, *, may_resume: bool, limit: int = MAX_SHOWN
) -> list[Block]:
    """A line for each, with Resume for an org-admin."""
    lines = [_line(responder, button, may_resume=may_resume) for responder in paused[:limit]]
    more = [section(f"and {len(paused) - limit} more")] if len(paused) > limit else []
    return [section(f"*Paused responders* ({len(paused)})"), *lines, *more] if paused else []


def paused_list(paused: Sequence[PausedResponder], button: ButtonIds, *, may_resume: bool, done: str = "") -> Message:
    """All of them; `done` is the name of one that was resumed just now."""
    shown = blocks(paused, button, may_resume=may_resume, limit=MAX_LISTED)
    ending = [] if may_resume or not paused else [section("Administrators can resume them, once the cause is fixed.")]
    head = [section(f"*{foreign(done, NAME_LIMIT)}* runs again.")] if done else []
    text = f"{count(len(paused), 'responder')} paused" if paused else "No responder is paused."
    return Message(text, (*head, *(shown or [section(text)]), *ending))


def _line(responder: PausedResponder, button: ButtonIds, *, may_resume: bool) -> Block:
    name = foreign(responder.title or responder.name, NAME_LIMIT)
    why = f"{count(responder.failures, 'run')} failed within {count(responder.within_minutes, 'minute')}"
    text = f"⏸️ *{name}* since {slack_date(responder.since, DAY_AND_TIME)}: {why}, the last one {responder.action_id}"
    if not may_resume:
        return section(text)
    what = "Resume it once the cause is fixed. The failure count starts again at zero."
    dialog = confirmation("Let it run again?", what, "Resume", "Leave it")
    resume = button_element(
        "Resume", ids.RESUME, button(Intent("resume", responder.id, responder.name)), of=responder.id, confirm=dialog
    )
    return section(text, accessory=resume)


def alarm(responder: PausedResponder, button: ButtonIds) -> Message:
    """The direct message to somebody who can resume it."""
    name, why = responder.title or responder.name, count(responder.failures, "run")
    text = f"{foreign(name, NAME_LIMIT)} was paused: {why} failed within {count(responder.within_minutes, 'minute')}."
    return Message(text, (_line(responder, button, may_resume=True),))


def pause_reply(action: Action, subject: Subject, *, clearance: int, command: str) -> Message:
    """The reply in the thread of the alert whose run was the failure too many."""
    view = RedactedView(subject, clearance)
    at = slack_date(action.end_date or action.start_date, DAY_AND_TIME)
    who = f"Until an administrator resumes it nobody can run it: `{command} paused`."
    if not view.is_open:
        text = f"⏸️ A responder was paused, {withheld(subject.tlp)}."
    else:
        text = f"⏸️ *{runs.name(action)}* was paused {at}, since it failed too often. {who}"
    return Message(text, (section(text),))
