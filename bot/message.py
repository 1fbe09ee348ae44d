"""A message to Slack, and what its buttons mean."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Block = Mapping[str, Any]

# Slack refuses more as msg_blocks_too_long, without documenting where; about 13,000 characters are too many.
BLOCKS_LIMIT = 12_500
LEFT_OUT: Block = {
    "type": "context",
    "elements": [{"type": "plain_text", "text": "The rest is left out: Slack takes no longer message."}],
}


@dataclass(frozen=True)
class Message:
    """A message. `text` is the push notification and always set.

    All blocks are at the top level: Slack folds attachments, and a decision must never be folded.
    """

    text: str
    blocks: tuple[Block, ...] = ()
    is_broadcast: bool = False
    """Whether a reply in a thread is also shown in the channel."""

    def payload(self) -> dict[str, Any]:
        """The fields of chat.postMessage and chat.update; the last lines are left out where Slack would refuse them."""
        more = {"reply_broadcast": True} if self.is_broadcast else {}
        return {"text": self.text, "blocks": [dict(block) for block in _fitting(self.blocks)], **more}


NOT_SHOWN = Message("Not shown in a shared channel.")


def _fitting(blocks: Sequence[Block]) -> Sequence[Block]:
    """The blocks, without the last texts if they are too long together; buttons and menus stay."""
    sizes = [len(json.dumps(block, ensure_ascii=False)) for block in blocks]
    excess = sum(sizes) - BLOCKS_LIMIT
    if excess <= 0:
        return blocks
    kept = list(blocks)
    for n in range(len(blocks) - 1, 0, -1):
        if excess > -len(json.dumps(LEFT_OUT)) and blocks[n]["type"] in ("section", "context"):
            del kept[n]
            excess -= sizes[n]
    return [*kept, LEFT_OUT]


@dataclass(frozen=True)
class Intent:
    """What a button means; stored in the bot's tables, never in the button."""

    what: str
    object_id: str
    argument: str = ""


ButtonIds = Callable[[Intent], str]
"""Gives the opaque id of a button by what it means."""
