"""Alerts that share a card: when they do, and what such a card says. Pure; see bot/docs/storms.md."""

from collections.abc import Sequence
from dataclasses import dataclass

BUCKETS = 12  # of the bar, 5 minutes each
STORM_MS = 600_000  # a storm is over when no alert has come into its digest for so long


@dataclass(frozen=True)
class GroupContent:
    """What the card of a group or a digest says, within a clearance. Times are in ms."""

    key: str
    is_digest: bool
    count: int
    cards: int  # of these, those with a card of their own
    first_at: int
    last_at: int
    muted_until: int
    is_ungrouped: bool
    severities: tuple[int, int, int, int]  # counts from low to critical
    buckets: Sequence[int]  # counts of the hour before the newest alert, oldest first
    sampled: int  # how many of the newest alerts the following is about; each with the most frequent first
    titles: Sequence[tuple[str, int]]
    sources: Sequence[tuple[str, int]]
    facts: Sequence[tuple[str, int]]

    @property
    def severity(self) -> int:
        """The highest."""
        return max((n + 1 for n in range(4) if self.severities[n]), default=1)


@dataclass(frozen=True)
class Storm:
    """More new alerts in a channel than Slack takes one by one; since when, in ms."""

    channel: str
    groups: int
    alerts: int
    since: int
