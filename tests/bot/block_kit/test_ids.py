"""Old cards live for ever, so every id of a release keeps its meaning."""

from bot.block_kit import ids
from bot.features.registry import ACTIONS, OPTIONS, SHORTCUTS, VIEWS

# Ids may be added here, and never be changed or removed.
BUTTONS = {
    "responder_run", "responder_run_anyway", "responder_run_again", "responder_dismiss", "responder_menu",
    "responder_more", "action_cancel", "action_approve", "action_deny", "card_refresh", "card_details", "card_link",
    "value",
}  # fmt: skip
MENUS = {"responder_menu", "start_responder"}
FORMS = {
    "approve",
    "deny",
    "start",
    "template",
}
SHORTS = {"run_responder", "run_responder_on_message"}


def test_every_id_of_a_release_is_still_handled() -> None:
    assert set(ACTIONS) >= BUTTONS
    assert set(OPTIONS) >= MENUS
    assert set(VIEWS) >= FORMS
    assert set(SHORTCUTS) >= SHORTS
    assert ids.MENU_BLOCK == "menu:"


def test_a_numbered_id_belongs_to_its_family() -> None:
    assert ids.family(ids.numbered(ids.CANCEL, "~40")) == ids.CANCEL
