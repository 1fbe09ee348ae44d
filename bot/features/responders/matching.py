"""The responders that a typed name may mean."""

from collections.abc import Sequence

from bot.block_kit import names
from bot.features.command_text import closest_match, match_names
from core.models import OfferedResponder


def matching(typed: str, offered: Sequence[OfferedResponder]) -> list[OfferedResponder]:
    """The responders that a typed name or title may mean; those whose title or name is the same before others."""
    meant = set(match_names(typed, [known for r in offered for known in names.typed_names(r)]))
    return [r for r in offered if not meant.isdisjoint(names.typed_names(r))]


def closest(typed: str, offered: Sequence[OfferedResponder]) -> OfferedResponder | None:
    """The responder that was probably meant; None if none is called anything like it."""
    meant = closest_match(typed, [known for r in offered for known in names.typed_names(r)])
    return next((r for r in offered if meant in names.typed_names(r)), None)
