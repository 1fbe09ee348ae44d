"""What a measurement says: ratios of rounds, against a goal."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

Figure = float
"""Seconds, or a count in a second; a ratio doesn't care."""

Turn = Callable[[], Awaitable[Figure]]


@dataclass(frozen=True)
class Goal:
    """What a ratio is to be at least, or at most."""

    bound: Literal["at least", "at most"]
    value: float

    def met(self, ratio: float) -> bool:
        return ratio >= self.value if self.bound == "at least" else ratio <= self.value

    def __str__(self) -> str:
        return f"{self.bound} {self.value:g}"


@dataclass(frozen=True)
class Spread:
    """The median of some figures, with the least and the most."""

    middle: float
    least: float
    most: float

    @classmethod
    def of(cls, figures: Sequence[Figure]) -> "Spread":
        return cls(median(figures), min(figures), max(figures))


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    ours: str
    peer_name: str
    peer: str
    ratio: Spread
    noise: Spread | None
    """Ours against ours, a round later: what a ratio of this run can differ by without a reason. None: one round."""
    goal: Goal | None = None
    note: str = ""


@dataclass(frozen=True)
class Scale:
    """How long a measurement takes, and how much it sets up."""

    rounds: int = 5
    seconds: float = 1.5
    """One turn of a load."""
    calls: int = 300
    """One turn of calls, one after the other."""
    alerts: int = 100_000
    actions: int = 1_000_000
    starts: int = 1
    """Starts of a program in one turn."""
    runs: int = 30
    """Responders run in one turn."""
    events: int = 40
    clicks: int = 4
    """Clicks in one turn."""
    apart_s: float = 4.0
    """Between clicks on the bot: closer together it would keep to Slack's limits, as it should."""


SMALL = Scale(rounds=2, seconds=0.1, calls=10, alerts=50, actions=500, runs=3, events=3, clicks=1, apart_s=0)
"""Enough to see that a measurement runs."""


async def in_turns(turns: Mapping[str, Turn], rounds: int) -> dict[str, list[Figure]]:
    """A, B, A, B ...: so that what the machine does meanwhile hits all of them. The first round is not counted."""
    figures: dict[str, list[Figure]] = {name: [] for name in turns}
    for number in range(rounds + 1):
        for name, turn in turns.items():
            figure = await turn()
            if number:
                figures[name].append(figure)
    return figures


def ratio(ours: Sequence[Figure], peer: Sequence[Figure]) -> Spread:
    """Ours over the peer's, round by round."""
    return Spread.of([a / b for a, b in zip(ours, peer, strict=True)])


def noise(ours: Sequence[Figure]) -> Spread | None:
    """Each round over the one before; None if there was only one."""
    return Spread.of([b / a for a, b in pairwise(ours)]) if len(ours) > 1 else None


def per_second(figures: Sequence[Figure]) -> str:
    return f"{median(figures):,.0f}/s"


def milliseconds(figures: Sequence[Figure]) -> str:
    """Seconds, shown in milliseconds with three digits that mean something."""
    return f"{median(figures) * 1000:.3g} ms"


def microseconds(figures: Sequence[Figure]) -> str:
    """Seconds, shown in microseconds."""
    return f"{median(figures) * 1e6:,.0f} us"


def row(
    what: str,
    figures: Mapping[str, Sequence[Figure]],
    ours: str,
    peer: str,
    show: Callable[[Sequence[Figure]], str],
    goal: Goal | None = None,
    *,
    turned: bool = False,
    note: str = "",
) -> Row:
    """A row of two of the figures; `turned` makes the ratio the peer's over ours (how many times quicker)."""
    found = ratio(figures[peer], figures[ours]) if turned else ratio(figures[ours], figures[peer])
    return Row(what, show(figures[ours]), peer, show(figures[peer]), found, noise(figures[ours]), goal, note)
