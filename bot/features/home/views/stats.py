"""How long people took, for a lead (core/docs/stats.md)."""

from collections.abc import Mapping, Sequence

from bot.block_kit.text import clip, context, count, duration, foreign, section
from bot.message import Block, Message
from core.models import Figure

LIMIT = 2900  # characters of a section
MAX_ABOUTS = 10
WORDS: Mapping[str, str] = {
    "assigned": "from an alert to who works on it",
    "first_run": "from an alert to the first run",
    "contained": "from an alert to the first run that contains",
    "approved": "until approved",
    "denied": "until denied",
    "expired": "never decided",
}


def stats(weeks: Sequence[Figure], responders: Sequence[Figure], days: int) -> Message:
    """The figures by week, the newest first, and those of each responder."""
    if not weeks:
        text = f"Nothing was counted in the last {days} days."
        return Message(text, (section(text),))
    blocks: list[Block] = []
    for week in sorted({figure.about for figure in weeks}, reverse=True):
        blocks.append(_part(f"*Week of {week}*", [figure for figure in weeks if figure.about == week]))
    abouts = sorted({figure.about for figure in responders if figure.about})
    for about in abouts[:MAX_ABOUTS]:
        blocks.append(_part(f"*{foreign(about, 100)}*", [figure for figure in responders if figure.about == about]))
    note = "Days are of UTC. `GET /api/stats` has all of it, also by source and as CSV."
    left = len(abouts) - MAX_ABOUTS
    return Message(
        f"How long people took in the last {days} days",
        (*blocks, context(*([f"{count(left, 'more responder')}."] if left > 0 else []), note)),
    )


def _part(head: str, figures: Sequence[Figure]) -> Block:
    return section(clip("\n".join([head, *map(_line, figures)]), LIMIT))


def _line(figure: Figure) -> str:
    within = figure.within
    name = next((name for name, number in within.items() if number * 2 >= figure.number), "")
    share = within.get(name, 0) * 100 // figure.number
    most = f", {share} % within {name}" if name else ""
    took = f"{duration(figure.mean_ms)} on average{most}, {duration(figure.max_ms)} at most"
    return f"• {WORDS.get(figure.figure, figure.figure)}: {count(figure.number, 'time')}, {took}"
