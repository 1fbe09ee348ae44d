"""Questions about who works on an alert."""

from bot.block_kit import ids
from bot.block_kit.elements import actions, button_element
from bot.block_kit.text import person_name, section
from bot.message import ButtonIds, Intent, Message


def take_over(alert_id: str, assignee: str, button: ButtonIds) -> Message:
    """Says who works on an alert, with a button that assigns it to the one who is asked."""
    text = f"{person_name(assignee)} works on {alert_id}. Nothing was changed."
    take = button_element("Take it over", ids.TAKE, button(Intent("take", alert_id, assignee)))
    return Message(text, (section(text), actions(take)))
