"""Lists of runs over all alerts: what failed, what somebody asked for, what waits for approval."""

from collections.abc import Sequence

from bot.block_kit.text import context, section
from bot.features.home.views import home
from bot.features.home.views.home import HomeRun
from bot.message import Block, ButtonIds, Message
from core.common.words import count
from core.models import Person

MAX_LINES = 20  # each with a button
MAX_OTHERS = 5  # so that a message has at most 50 blocks


def run_list(
    title: str, shown: Sequence[HomeRun], person: Person, *, button: ButtonIds, hidden: int = 0, is_all: bool = True
) -> Message:
    """Runs, the newest first, with what can be done about them; `hidden` more are above this person's clearance."""
    head = f"*{title}* ({len(shown)})" if shown else f"*{title}*: nothing"
    blocks: list[Block] = [section(head)]
    blocks += [home.run_block(run, person, button, has_undo=True) for run in shown[:MAX_LINES]]
    return Message(f"{title}: {len(shown)}", (*blocks, *_rest(len(shown) - MAX_LINES, hidden, is_all=is_all)))


def pending(
    to_decide: Sequence[HomeRun],
    others: Sequence[HomeRun],
    person: Person,
    *,
    button: ButtonIds,
    hidden: int = 0,
) -> Message:
    """What waits for this person's approval, then what waits for somebody else's."""
    blocks: list[Block] = [*home.head("Waiting for your approval", len(to_decide))]
    blocks += [home.request(run, person, button) for run in to_decide[:MAX_LINES]]
    blocks += _rest(len(to_decide) - MAX_LINES, 0)
    blocks += home.head("Waiting for others", len(others)) if others else []
    blocks += [home.run_block(run, person, button) for run in others[:MAX_OTHERS]]
    text = f"{count(len(to_decide), 'run')} for you to approve, {len(others)} for others"
    return Message(text, (*blocks, *_rest(len(others) - MAX_OTHERS, hidden)))


def _rest(left_out: int, hidden: int, *, is_all: bool = True) -> list[Block]:
    parts = [f"and {left_out} more"] if left_out > 0 else []
    parts += [f"{count(hidden, 'run')} above your clearance"] if hidden else []
    parts += [] if is_all else ["there are older ones, which aren't listed"]
    return [context(" · ".join(parts))] if parts else []
