"""The handover at the end of a shift: what is in force, what waits, what failed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bot.block_kit.text import DAY_AND_TIME, clip, count, section, slack_date
from bot.clearance import RedactedView, Subject
from bot.features.runs.views import runs
from bot.message import Block, Message
from core.models import Action, Measure

MAX_LINES = 10  # of each part
PART_LIMIT = 2_900  # characters; Slack takes 3,000
LINE_LIMIT = 280
WITHHELD = Message("A handover: withheld, since this channel may see less by now.")


@dataclass(frozen=True)
class Item:
    """A run, or an open alert without one, with what it is on and the address of its card."""

    subject: Subject
    action: Action | None = None
    measure: Measure | None = None
    """What the run has left in force."""
    link: str = ""


@dataclass(frozen=True)
class Shift:
    """What those who come need to know, as far as they may see it. `is_cut`: more alerts may be unassigned."""

    began_at: int
    """When the shift began that is over (ms)."""
    ends_at: int
    """When the next one ends (ms)."""
    in_force: Sequence[Item] = field(default=())
    waiting: Sequence[Item] = ()
    unassigned: Sequence[Item] = ()
    failed: Sequence[Item] = ()
    is_cut: bool = False


Line = Callable[[Item], str]


def for_channel(shift: Shift) -> Message:
    """The handover of a channel: numbers, times and links, which name nothing that somebody might withhold later."""
    return _message(shift, lambda item: f"<{item.link}|{_root(item)}>" if item.link else _root(item))


def for_person(shift: Shift, clearance: int) -> Message:
    """The same for somebody who asks, with names and targets."""
    return _message(shift, lambda item: _in_words(item, clearance))


def _message(shift: Shift, line: Line) -> Message:
    contradicted = [item for item in shift.in_force if _is_contradicted(item)]
    stands = [item for item in shift.in_force if not _is_contradicted(item)]
    ending = [item for item in stands if _ends(item) is not None and (_ends(item) or 0) <= shift.ends_at]
    others = [item for item in stands if item not in ending]
    until, since = slack_date(shift.ends_at, DAY_AND_TIME), slack_date(shift.began_at, DAY_AND_TIME)
    more = "+" if shift.is_cut else ""
    parts = [
        ("⚠️ *Not in force, says a check*", contradicted, ""),
        (f"🔒 *In force, ends before {until}*", ending, ""),
        ("🔒 *In force beyond that*", others, ""),
        ("⏳ *Waits for approval*", shift.waiting, ""),
        ("📥 *Open and unassigned*", shift.unassigned, more),
        (f"❌ *Failed or expired since {since}*", shift.failed, ""),
    ]
    blocks: list[Block] = [
        section(f"{title} ({len(items)}{plus})\n{_lines(items, line)}") for title, items, plus in parts if items
    ]
    numbers = [
        f"{count(len(shift.in_force), 'measure')} in force",
        *([f"{len(contradicted)} contradicted"] if contradicted else []),
        f"{len(shift.waiting)} waiting for approval",
        f"{len(shift.unassigned)}{more} unassigned",
        f"{len(shift.failed)} failed",
    ]
    text = f"Handover: {', '.join(numbers)}"
    nothing = [] if blocks else [section("Nothing is in force, waits, is unassigned or has failed.")]
    return Message(text, (section(f"*Handover* · the next shift ends {until}"), *blocks, *nothing))


def _lines(items: Sequence[Item], line: Line) -> str:
    shown = [f"• {clip(line(item), LINE_LIMIT)}{_end(item)}" for item in items[:MAX_LINES]]
    left = len(items) - len(shown)
    return clip("\n".join([*shown, *([f"and {left} more"] if left > 0 else [])]), PART_LIMIT)


def _end(item: Item) -> str:
    at = _ends(item)
    return f" until {slack_date(at, DAY_AND_TIME)}" if at is not None else ""


def _ends(item: Item) -> int | None:
    return item.measure.until if item.measure is not None else None


def _is_contradicted(item: Item) -> bool:
    verified = item.measure.verified if item.measure is not None else None
    return verified is not None and verified.answer == "contradicted"


def _root(item: Item) -> str:
    return item.subject.root_id or item.subject.id


def _in_words(item: Item, clearance: int) -> str:
    view = RedactedView(item.subject, clearance)
    if item.action is None:
        return f"{runs.sign(view)}{runs.on_what(item.subject, view, item.link)}"
    what = f"*{runs.name(item.action)}*{runs.on_target(item.action, view)}"
    return f"{what} · {runs.of_root(item.subject, view, item.link)}"
