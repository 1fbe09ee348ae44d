"""A message to Slack, and what its buttons mean."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Block = Mapping[str, Any]


@dataclass(frozen=True)
class Message:
    """A message. `text` is the push notification and always set; a color makes a bar beside all but the first block.

    The first block stays outside of the bar, since above an attachment alone Slack shows `text`, which would repeat
    the headline.
    """

    text: str
    blocks: tuple[Block, ...] = ()
    color: str = ""

    def payload(self) -> dict[str, Any]:
        """The fields of chat.postMessage and chat.update."""
        if not self.color or len(self.blocks) < 2:
            # chat.update keeps what is left out, so empty lists are explicit.
            return {"text": self.text, "blocks": [dict(b) for b in self.blocks], "attachments": []}
        bar = {"color": self.color, "blocks": [dict(b) for b in self.blocks[1:]]}
        return {"text": self.text, "blocks": [dict(self.blocks[0])], "attachments": [bar]}


@dataclass(frozen=True)
class Intent:
    """What a button means; stored in the bot's database, never in the button."""

    what: str
    object_id: str
    argument: str = ""


ButtonIds = Callable[[Intent], str]
"""Gives the opaque id of a button by what it means."""


def intents_in(render: Callable[[ButtonIds], object]) -> tuple[Intent, ...]:
    """The intents of a card's buttons, each once, found by rendering it; ids are then issued for them."""
    found: dict[Intent, None] = {}

    def note(intent: Intent) -> str:
        found[intent] = None
        return "-"

    render(note)
    return tuple(found)
