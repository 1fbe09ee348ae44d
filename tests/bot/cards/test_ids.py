"""Old cards live for ever: what stands in them keeps its meaning from release to release (`slack.md 2`)."""

from bot.cards import ids
from bot.features import ACTIONS, OPTIONS, SHORTCUTS, VIEWS

# Add to these freely; what stands here is never changed or taken away.
BUTTONS = {
    "responder_run", "responder_run_anyway", "responder_run_again", "responder_dismiss", "responder_menu",
    "responder_more", "action_cancel", "action_approve", "action_deny", "card_refresh", "card_details", "card_link",
    "template_add_task", "template_remove_task", "template_add_field", "template_remove_field", "template_from_json",
    "value",
}  # fmt: skip
MENUS = {"responder_menu", "start_responder"}
FORMS = {"start", "template", "template_json", "template_check"}
SHORTS = {"run_responder", "run_responder_on_message"}


def test_every_id_that_a_release_had_is_still_answered() -> None:
    assert set(ACTIONS) >= BUTTONS
    assert set(OPTIONS) >= MENUS
    assert set(VIEWS) >= FORMS
    assert set(SHORTCUTS) >= SHORTS
    assert ids.MENU_BLOCK == "menu:"


def test_one_of_several_is_still_of_its_family() -> None:
    assert ids.family(ids.numbered(ids.CANCEL, "~40")) == ids.CANCEL
