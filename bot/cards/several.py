"""The modal in which somebody chooses several objects, what to run on them, and its inputs."""

from collections.abc import Sequence
from typing import Any

from bot.cards import ids, inputs, names, questions, views
from bot.cards.lists import MAX_OPTIONS, option_value
from bot.cards.message import Block
from bot.cards.start import Given, WizardState, fields
from bot.cards.text import OPTION_LIMIT, context, count, foreign_plain, plain, section
from core.models import OfferedResponder

TITLE = "Run on several"


def targets_view(state: WizardState, chosen: Sequence[Block], most: int) -> dict[str, Any]:
    """Asks for the objects: observables of the alert or case with the state's id, or alerts; starts with `chosen`."""
    of = f"Observables of {state.id}" if state.id else "Alerts"
    element: dict[str, Any] = {
        "type": "multi_external_select",
        "action_id": ids.SEVERAL_TARGETS,
        "placeholder": plain("Choose, or type to search"),
        "min_query_length": 0,
        "max_selected_items": most,
    }
    if chosen:
        element["initial_options"] = list(chosen)
    menu = {"type": "input", "block_id": "targets", "label": plain(of), "element": element, "optional": False}
    return _modal(state, [menu, context(f"At most {most}. It asks before it runs.")], "Next")


def responder_view(state: WizardState, offered: Sequence[tuple[OfferedResponder, int]]) -> dict[str, Any]:
    """Asks for one of these responders, each with the number of the objects that it can run on."""
    total = len(state.targets)
    options = [
        {
            "text": plain(foreign_plain(names.title(one), OPTION_LIMIT)),
            "value": option_value(one),
            "description": plain(f"on {number} of {total}" if number < total else "on each"),
        }
        for one, number in offered[:MAX_OPTIONS]
    ]
    element = {"type": "static_select", "action_id": ids.numbered(ids.VALUE, "responder"), "options": options}
    menu = {"type": "input", "block_id": "responder", "label": plain("Responder"), "element": element}
    return _modal(state, [section(f"*{count(total, 'object')}*"), menu], "Next")


def inputs_view(state: WizardState, responder: OfferedResponder, given: Given) -> dict[str, Any]:
    """Asks for the inputs, which all the runs get."""
    about = section(f"*{names.shown(responder)}* on *{count(len(state.targets), 'object')}*")
    return _modal(state, [about, *fields(given, state.responder, responder), *questions.effect(responder)], "Next")


def _modal(state: WizardState, blocks: Sequence[Block], submit: str) -> dict[str, Any]:
    return views.modal(
        TITLE, blocks, callback_id=ids.SEVERAL_VIEW, submit=submit, metadata=state.to_text(), close="Cancel"
    )


def is_asked(view: views.View, state: WizardState, responder: OfferedResponder) -> bool:
    """Whether the modal has fields for the inputs that the responder has now."""
    blocks = views.labels(view)
    return state.asked and all(
        inputs.block_id(state.responder, one.name) in blocks for one in responder.parameters or ()
    )
