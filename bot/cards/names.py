"""What people call responders. Requests to core take names only (core/docs/semantics.md#titles)."""

import re

from bot.cards.text import foreign, readable_name
from core.models import OfferedResponder

NAME_LIMIT = 120  # characters
_TYPEABLE = re.compile(r"[^\W\d_][\w.-]*(?: [\w.-]+)*")


def title(responder: OfferedResponder) -> str:
    """Its title; foreign text, not escaped."""
    return responder.title or readable_name(responder.name)


def shown(responder: OfferedResponder) -> str:
    """Its title; mrkdwn."""
    return foreign(title(responder), NAME_LIMIT)


def typed_names(responder: OfferedResponder) -> tuple[str, str]:
    """What somebody may type for it."""
    return title(responder), responder.name


def example(responder: OfferedResponder) -> str:
    """What to type for it in a command: its title, or its name if the title could be read as something else."""
    words = title(responder)
    if _TYPEABLE.fullmatch(words):
        return words
    return f'"{responder.name}"' if " " in responder.name else responder.name
