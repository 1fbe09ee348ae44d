"""The responders that a typed name may mean."""

from collections.abc import Iterable, Sequence

from bot.block_kit import names
from bot.features.command_text import closest_match, match_names
from core.common.errors import ResponderBotError
from core.models import OfferedResponder


def matching(typed: str, offered: Sequence[OfferedResponder]) -> list[OfferedResponder]:
    """The responders that a typed name or title may mean; those whose title or name is the same before others."""
    meant = set(match_names(typed, [known for r in offered for known in names.typed_names(r)]))
    return [r for r in offered if not meant.isdisjoint(names.typed_names(r))]


def closest(typed: str, offered: Sequence[OfferedResponder]) -> OfferedResponder | None:
    """The responder that was probably meant; None if none is called anything like it."""
    meant = closest_match(typed, [known for r in offered for known in names.typed_names(r)])
    return next((r for r in offered if meant in names.typed_names(r)), None)


def none_called(
    typed: str, offered: Sequence[OfferedResponder], object_id: str, command: str, verb: str, on: Iterable[str] = ()
) -> ResponderBotError:
    """Says that no responder is called so, and which was probably meant, `on` these targets if some were named."""
    meant, to = closest(typed, offered), " ".join([object_id, *on])
    hint = f"Did you mean `{command} {verb} {names.example(meant)} {to}`? " if meant is not None else ""
    sentence = f"There is no responder {typed[:100]!r} for {object_id}. {hint}`{command} list {object_id}` lists all."
    return ResponderBotError("not_found", sentence)
