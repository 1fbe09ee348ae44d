"""How often people are asked about what waits for approval, and when again (bot/docs/slack.md#asking-for-approval)."""

import json
import re
from typing import Any

from bot.outbox import MessageOutbox, MessageRecord
from core.common.clock import MINUTE_MS

AT_MOST = 10
"""How many requests one person, user group or channel is asked about within LATELY_MS; a bulk is one."""
MOST_NEW = 3
"""Of how many new alerts a channel's `mention` hears within it, and once of the others: senders set the severity."""
LATELY_MS = 10 * MINUTE_MS
About = tuple[int, str, str]
"""How severe a request is, its alert or case, and its run."""
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
        self._counted: dict[tuple[str, str], None] = {}

    async def may_ask(self, who: str, team: str = "", *, at_most: int = AT_MOST, about: About | None = None) -> bool:
        """Whether a person, user group or channel may be notified once more; else the request is counted for them.

        The worst of those that are counted is kept, where `about` says what it is.
        """
        if self._asked is None:
            stored = json.loads(await self._outbox.asked())
            self._asked = {one: found for one, found in stored.items() if any(map(self._is_lately, found["at"]))}
        found = self._asked.setdefault(who, {"at": [], "more": [0, 0]})
        found["at"] = [at for at in found["at"] if self._is_lately(at)]
        if len(found["at"]) < at_most:
            found["at"].append(self._now)
            return True
        since, number, *worst = found["more"] if self._is_lately(found["more"][0]) else (self._now, 0)
        worst = sorted([*worst, *([about] if about else [])], key=lambda one: -one[0])  # of equals the one that waits
        found["more"] = [since, number + 1, *worst[:1]]
        if team:
            self._counted[team, who] = None
        return False

    def remind(self, about: str, asked_at: int, expires_at: int) -> None:
        """Have the people who are asked now asked once more at half of the time."""
        self.reminders[about, (asked_at + expires_at) // 2] = None

    @property
    def state(self) -> str:
        """What the next one has to know; "" if nobody was asked."""
        return json.dumps(self._asked) if self._asked is not None else ""

    @property
    def counted(self) -> list[tuple[str, int, About | None]]:
        """For those who are not asked about each request: the key of the message that counts the others, and of what.

        That is how many there are, and the worst.
        """
        counted = []
        for team, user in self._counted:
            since, number, *worst = (self._asked or {})[user]["more"]
            counted.append((f"asks:{since}:{team}:{user}", number, worst[0] if worst else None))
        return counted

    def more(self, who: str) -> tuple[int, int, int]:
        """Since when (ms) of how many one was not notified, and how severe the worst is."""
        since, number, worst = (self._asked or {})[who]["more"]
        return since, number, worst[0]

    def _is_lately(self, at: int) -> bool:
        return 0 <= self._now - at < LATELY_MS  # also after the clock was set back


def asked_in(record: MessageRecord) -> list[str]:
    """The people and user groups that a stored request mentions."""
    blocks = record.content()["blocks"] if record.payload else []
    text = blocks[0].get("text", {}).get("text", "") if blocks else ""
    found = _MENTIONS.match(text)
    return _MENTION.findall(found[0]) if found else []
