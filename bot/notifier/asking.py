"""How often people are asked about what waits for approval, and when again (bot/docs/slack.md#asking-for-approval)."""

import json
import re
from collections.abc import Sequence
from typing import Any

from bot.outbox.models import MessageRecord, is_person
from bot.outbox.outbox import MessageOutbox
from core.common.clock import MINUTE_MS

AT_MOST = 10
"""Of how many requests a person, user group or channel hears within LATELY_MS, those that are less urgent than the
next one not counted; or a channel's `mention` of new alerts of one severity, which senders set; a bulk is one."""
LATELY_MS = 10 * MINUTE_MS
Counted = tuple[float, str, str]
"""How urgent a request is, and, if the message that counts it can show it, its alert or case and its run."""
NOTHING: Counted = (0, "", "")
_MENTIONS = re.compile(r"(?:<(?:@|!subteam\^)\w+> )*")
_MENTION = re.compile(r"<(?:@|!subteam\^)(\w+)> ")


class Asking:
    """Who is asked by the messages of one commit; `state`, `reminders` and `counts` are written with them."""

    def __init__(self, outbox: MessageOutbox, now_ms: int, *, is_reminder: bool = False) -> None:
        """`is_reminder`: half of the time to decide is over, so that those who were asked are asked once more."""
        self._outbox = outbox
        self._now = now_ms
        self.is_reminder = is_reminder
        self.reminders: dict[tuple[str, int], None] = {}
        """The alert, case or bulk that is to be looked at again, and when (ms)."""
        self.told: set[tuple[str, str]] = set()
        """Who hears already that a run has undone something: the run, and the login."""
        self._asked: dict[str, dict[str, Any]] | None = None
        self.counted: dict[str, tuple[int, Counted]] = {}
        """By the key of the message that counts the requests one is not asked about: how many, and the worst."""

    async def may_ask(
        self, who: str, team: str = "", *, urgency: float = 0, run: tuple[str, str] = ("", ""), same: str = ""
    ) -> bool:
        """Whether a person, user group or channel may be notified once more; else the request is counted for them.

        However many requests there are, a more urgent one is heard. Nothing is counted for a person without their
        `team`. The worst of what is counted is kept, where `run` says what it is. Of all with an equal `same` they are
        notified once.
        """
        if self._asked is None:
            stored = json.loads(await self._outbox.asked())
            self._asked = {one: found for one, found in stored.items() if self._rang_lately(found)}
        found = self._asked.setdefault(who, {"more": [0, 0]})
        found["rang"] = rang = self._rang_lately(found)
        if sum(other >= urgency for _, other in rang) < AT_MOST and same not in self._asked:
            rang.append((self._now, urgency))
            if same:
                self._asked[same] = {"rang": [(self._now, 0)], "more": [0, 0]}
            return True
        since, number, *worst = found["more"] if self._is_lately(found["more"][0]) else (self._now, 0)
        this = (urgency, *run) if any(run) else NOTHING
        worst = max(*worst, this, NOTHING, key=lambda one: one[0])  # of equals the one that waits
        found["more"] = [since, number + 1, worst] if team or same else found["more"]
        if team and is_person(who):
            self.counted[f"asks:{since}:{team}:{who}"] = number + 1, worst
        return False

    def remind(self, about: str, asked_at: int, expires_at: int) -> None:
        """Have the people who are asked now asked once more at half of the time."""
        self.reminders[about, (asked_at + expires_at) // 2] = None

    @property
    def state(self) -> str:
        """What the next one has to know; "" if nobody was asked."""
        return json.dumps(self._asked) if self._asked is not None else ""

    def more(self, who: str) -> tuple[int, int]:
        """Since when (ms) of how many one was not notified."""
        since, number, *_ = (self._asked or {})[who]["more"]
        return since, number

    def _rang_lately(self, found: dict[str, Any]) -> list[tuple[int, float]]:
        """When (ms) one was notified, and how urgent that was."""
        return [(at, urgency) for at, urgency in found.get("rang", ()) if self._is_lately(at)]

    def _is_lately(self, at: int) -> bool:
        return 0 <= self._now - at < LATELY_MS  # also after the clock was set back


def urgency_of(severity: int, able: Sequence[str]) -> float:
    """By severity; of equals what only one person can decide is more urgent."""
    return severity + (len(able) == 1) / 2


def asked_in(record: MessageRecord) -> list[str]:
    """The people and user groups that a stored request mentions."""
    blocks = record.content()["blocks"] if record.payload else []
    text = blocks[0].get("text", {}).get("text", "") if blocks else ""
    found = _MENTIONS.match(text)
    return _MENTION.findall(found[0]) if found else []
