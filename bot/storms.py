"""The policy of storms: when alerts share a card, and what such a card says. Pure; see bot/docs/storms.md."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bot.clearance import refanged
from bot.settings import Grouping
from core.models import Alert

STORM_MS = 600_000  # a storm is over when no alert has come into its digest for so long
MIN_STORM = 60  # alerts in the groups of a channel are a storm, as is a digest
MOST_WAITING = 50  # new alerts of a channel, most of what Slack takes in a minute; the rest goes into the digest
CRITICAL_ALIKE = 10  # so many critical alerts that say the same have cards of their own
CLOSE_S = 0.15  # new alerts that come closer together than this are gathered:
GATHER_S = 0.05  # core holds back those that come alone for so long, so that they are rendered together

_VARIABLE = re.compile(
    r"[a-z][a-z0-9+]{1,9}://\S+"
    r"|[\w.+%-]{1,64}@[\w.-]{1,255}"
    r"|(?<![\w.-])(?:[\w-]{1,63}\.){1,8}[a-z]{2,24}(?![\w-])"
    r"|(?<![\w:])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])"
    r"|(?<!\w)(?=[a-f]*\d)[0-9a-f][0-9a-f-]{6,127}(?!\w)"
    r"|\d+(?:[.,:/-]\d+)*",
    re.I,
)


def masked(title: str) -> str:
    """A title without what differs between alerts that say the same: digits, addresses, hashes."""
    return " ".join(_VARIABLE.sub("#", refanged(title[:2_000]).casefold()).split())


def common(title: str) -> str:
    """A title with `…` in place of what differs between alerts that say the same; its words as they are."""
    return " ".join(_VARIABLE.sub("…", title[:2_000]).split())


def alike(alert: Alert, grouping: Grouping) -> str:
    """A digest of what alerts that say the same have in common."""
    fields = {"source": alert.source, "type": alert.type, "title": masked(alert.title), "severity": alert.severity}
    return hashlib.sha256(json.dumps([fields[name] for name in grouping.by]).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class GroupContent:
    """What the card of a group or a digest says, within a clearance. Times are in ms."""

    key: str
    is_digest: bool
    count: int
    cards: int  # of these, those with a card of their own
    closed: int  # or in a case
    first_at: int
    last_at: int
    muted_until: int
    severities: Counter[int]  # how many alerts there are of each
    worst: Sequence[tuple[int, str, str]]  # severity, title and id of the first that are open
    sampled: int  # how many of the newest alerts the following is about; each with the most frequent first
    titles: Sequence[tuple[str, int]]
    sources: Sequence[tuple[str, int]]
    facts: Sequence[tuple[str, int]]
    muted_by: str = ""  # a login
    closed_by: str = ""  # that one person closed all for one reason, or that all are in one case; mrkdwn
    case: str = ""  # the id of that
    left_open: Sequence[str] = ()  # what is in force on its alerts, and what waits; mrkdwn

    @property
    def is_closed(self) -> bool:
        return self.closed == self.count > 0

    @property
    def severity(self) -> int:
        return max((n for n, number in self.severities.items() if number), default=1)


@dataclass(frozen=True)
class Storm:
    """More new alerts in a channel than Slack takes one by one; since when, in ms."""

    channel: str
    groups: int
    alerts: int
    open: int
    since: int
