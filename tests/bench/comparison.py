"""Compare samples of responder-bot with those of a peer: ratios by round, against a goal."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

Sample = float
"""Seconds, a count per second, or megabytes, according to the measurement."""

Trial = Callable[[], Awaitable[Sample]]


@dataclass(frozen=True)
class Goal:
    """A bound for a ratio."""

    bound: Literal["at least", "at most"]
    value: float

    def met(self, ratio: float) -> bool:
        return ratio >= self.value if self.bound == "at least" else ratio <= self.value

    def __str__(self) -> str:
        return f"{self.bound} {self.value:g}"


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum of samples."""

    median: float
    minimum: float
    maximum: float

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Spread":
        return cls(median(samples), min(samples), max(samples))


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    ours: str
    peer_name: str
    peer: str
    ratio: Spread
    noise: Spread | None
    """Each of our samples over the one before: what a ratio of this run differs by anyway. None after one round."""
    goal: Goal | None = None
    note: str = ""


@dataclass(frozen=True)
class Scale:
    """Durations, repetitions and sizes of data."""

    rounds: int = 5
    seconds: float = 1.5
    """Length of a load."""
    calls: int = 300
    """Sequential calls of a sample."""
    alerts: int = 1_000_000
    """In the largest store."""
    starts: int = 1
    """Starts of a program for a sample."""
    runs: int = 30
    """Runs of a responder for a sample."""
    events: int = 40
    clicks: int = 4
    """Clicks for a sample."""
    click_interval_s: float = 4.0
    """Between clicks on the bot, so that it never waits for Slack's rate limits."""


SMALL = Scale(rounds=2, seconds=0.1, calls=10, alerts=5_000, runs=3, events=3, clicks=1, click_interval_s=0)
"""Enough to see that a measurement runs."""


async def interleaved(trials: Mapping[str, Trial], rounds: int) -> dict[str, list[Sample]]:
    """Run the trials A, B, A, B ..., so that what else the machine does affects all; the first round is a warm-up."""
    samples: dict[str, list[Sample]] = {name: [] for name in trials}
    for number in range(rounds + 1):
        for name, trial in trials.items():
            sample = await trial()
            if number:
                samples[name].append(sample)
    return samples


def ratio(ours: Sequence[Sample], peer: Sequence[Sample]) -> Spread:
    """Our sample over the peer's, by round."""
    return Spread.of([a / b for a, b in zip(ours, peer, strict=True)])


def noise(ours: Sequence[Sample]) -> Spread | None:
    """Each sample over the one before; None if there is only one."""
    return Spread.of([b / a for a, b in pairwise(ours)]) if len(ours) > 1 else None


def per_second(samples: Sequence[Sample]) -> str:
    return f"{median(samples):,.0f}/s"


def milliseconds(samples: Sequence[Sample]) -> str:
    """The median of seconds, in milliseconds with three significant digits."""
    return f"{median(samples) * 1000:.3g} ms"


def microseconds(samples: Sequence[Sample]) -> str:
    """The median of seconds, in microseconds."""
    return f"{median(samples) * 1e6:,.0f} us"


def row(
    name: str,
    samples: Mapping[str, Sequence[Sample]],
    ours: str,
    peer: str,
    show: Callable[[Sequence[Sample]], str],
    goal: Goal | None = None,
    *,
    inverse: bool = False,
    note: str = "",
) -> Row:
    """Compare two of the measured programs; `inverse` makes the ratio the peer's over ours (how many times quicker)."""
    ratios = ratio(samples[peer], samples[ours]) if inverse else ratio(samples[ours], samples[peer])
    return Row(name, show(samples[ours]), peer, show(samples[peer]), ratios, noise(samples[ours]), goal, note)
