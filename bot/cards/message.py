"""What the bot wants to show in Slack: a message, and what its buttons mean."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Block = Mapping[str, Any]


@dataclass(frozen=True)
class Message:
    """A message: `text` is the push notification and always set; a colour makes a bar beside all but the first block.

    The first block stays outside of the bar, since Slack shows `text` itself above an attachment that has no block
    beside it, and the headline would stand there twice.
    """

    text: str
    blocks: tuple[Block, ...] = ()
    color: str = ""

    def payload(self) -> dict[str, Any]:
        """The fields of chat.postMessage and chat.update that make this message."""
        if not self.color or len(self.blocks) < 2:
            # An explicit empty list takes away what an earlier state had; chat.update would keep it otherwise.
            return {"text": self.text, "blocks": [dict(b) for b in self.blocks], "attachments": []}
        bar = {"color": self.color, "blocks": [dict(b) for b in self.blocks[1:]]}
        return {"text": self.text, "blocks": [dict(self.blocks[0])], "attachments": [bar]}


@dataclass(frozen=True)
class Intent:
    """What a button means; kept in the bot's database, never in the button (`slack.md 2`)."""

    what: str
    object_id: str
    argument: str = ""


ButtonIds = Callable[[Intent], str]
"""Gives the opaque id for what a button means."""


def intents_in(render: Callable[[ButtonIds], object]) -> tuple[Intent, ...]:
    """What the buttons of a card mean, each once, found by rendering it; their ids are made from these."""
    found: dict[Intent, None] = {}

    def note(intent: Intent) -> str:
        found[intent] = None
        return "-"

    render(note)
    return tuple(found)
