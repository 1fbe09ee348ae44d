"""The modal that leads through a run: object, responder, parameters, run."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bot.cards import ids, questions, views
from bot.cards.alert import headline, responder_menu
from bot.cards.message import Block
from bot.cards.text import foreign, section
from bot.redaction import RedactedView, Subject
from core.models import OBJECT_TYPES, Action, Kind, OfferedResponder

TITLE = "Run a responder"


@dataclass(frozen=True)
class WizardState:
    """How far the modal has come; kept in its metadata, so ids only."""

    id: str = ""
    kind: Kind = "alert"
    responder: str = ""  # the menu's value for it, once it was asked about
    confirmed: bool = False
    anyway: bool = False
    channel: str = ""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> "WizardState":
        try:
            raw = json.loads(text)
            kind: Kind = raw["kind"] if raw["kind"] in OBJECT_TYPES else "alert"
            names = (str(raw["id"]), kind, str(raw["responder"]))
            return WizardState(*names, raw["confirmed"] is True, raw["anyway"] is True, str(raw["channel"]))
        except (ValueError, TypeError, KeyError):
            return WizardState()


def start_view(
    place: WizardState, subject: Subject | None, *, clearance: int, typed: str = "", also: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The first step asks for the object; once that is known the responder and parameters come with it."""
    hint = "An id such as ~12, then Enter." if not also else f"Also found: {', '.join(also[:8])}"
    blocks: list[Block] = [
        views.text_field("object", "Object", initial=typed or place.id, hint=hint, optional=False, dispatch=True)
    ]
    if subject is not None:
        blocks += _about(subject, clearance)
    return views.modal(
        TITLE,
        blocks,
        callback_id=ids.START_VIEW,
        submit="Run" if subject else "Next",
        metadata=place.to_text(),
        close="Cancel",
    )


def _about(subject: Subject, clearance: int) -> list[Block]:
    view = RedactedView(subject, clearance)
    named = f"{OBJECT_TYPES[subject.kind]} {subject.id} · {foreign(view.title(), 300)}"
    menu = {
        "type": "input",
        # The subject's id in the block's id empties the choice when another object is given.
        "block_id": f"responder:{subject.id}",
        "label": {"type": "plain_text", "text": "Responder"},
        "element": responder_menu("Choose, or type to search", ids.START_RESPONDER),
        "optional": False,
    }
    parameters = views.text_field(
        "parameters", "Parameters", multiline=True, hint="Only where the responder wants some: name = value, or JSON."
    )
    return [headline(view) if subject.kind == "alert" else section(named), menu, parameters]


def confirm_view(
    place: WizardState, responder: OfferedResponder, subject: Subject, *, clearance: int, parameters: str
) -> dict[str, Any]:
    """Asks with the policy's words before it runs."""
    question = questions.confirm(responder, subject, clearance=clearance, button=lambda _: "-")
    return _asking_view(place, [question.blocks[0]], parameters, "Run")


def collision_view(
    place: WizardState, running: Action, responder: OfferedResponder, subject: Subject, *, parameters: str
) -> dict[str, Any]:
    """Tells of the run that is open already."""
    told = questions.collision(running, responder, subject, button=lambda _: "-")
    return _asking_view(place, [told.blocks[0]], parameters, "Run anyway")


def _asking_view(place: WizardState, blocks: list[Block], parameters: str, submit: str) -> dict[str, Any]:
    if parameters:
        blocks.append(views.text_field("parameters", "Parameters", multiline=True, initial=parameters))
    return views.modal(
        TITLE, blocks, callback_id=ids.START_VIEW, submit=submit, metadata=place.to_text(), close="Cancel"
    )


def parse_parameters(text: str) -> Mapping[str, Any]:
    """`name = value` lines, or a JSON object. Raises ValueError saying what is wrong."""
    text = text.strip()
    if not text:
        return {}
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError("This is no JSON object.") from error
        return dict(found)
    parameters: dict[str, Any] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{line[:60]!r} is not name = value.")
        parameters[name.strip()] = value.strip()
    return parameters
