"""What cards say of an action's report."""

from bot.cards.reports import _DONE
from core.actions.operations import OPERATIONS


def test_every_operation_has_a_phrase() -> None:
    assert _DONE.keys() == OPERATIONS.keys()
