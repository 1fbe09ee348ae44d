"""The modal that leads to a run: object, responder, parameters, confirmation."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bot.cards import ids, notices, questions, views
from bot.cards.alert import headline, responder_menu
from bot.cards.message import Block
from bot.cards.text import OPTION_LIMIT, escape, foreign, foreign_plain, plain, section
from bot.redaction import RedactedView, Subject, may_see
from core.models import OBJECT_TYPES, SEVERITY_NAMES, Action, Kind, OfferedResponder

TITLE = "Run a responder"


@dataclass(frozen=True)
class WizardState:
    """What was chosen so far. It is kept in the modal's metadata, so it holds only ids."""

    id: str = ""
    kind: Kind = "alert"
    responder: str = ""  # its option value, once its confirmation is shown
    confirmed: bool = False
    anyway: bool = False
    channel: str = ""
    choices: tuple[str, ...] = ()  # ids that were found in a message, if there are several

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> "WizardState":
        """What `to_text` wrote; the initial state for any other text."""
        try:
            raw = json.loads(text)
            kind: Kind = raw["kind"] if raw["kind"] in OBJECT_TYPES else "alert"
            names = (str(raw["id"]), kind, str(raw["responder"]))
            choices = tuple(map(str, raw.get("choices") or ()))
            return WizardState(*names, raw["confirmed"] is True, raw["anyway"] is True, str(raw["channel"]), choices)
        except (ValueError, TypeError, KeyError):
            return WizardState()


def start_view(
    state: WizardState, subject: Subject | None, *, clearance: int, choices: Sequence[Subject] = (), who: str = ""
) -> dict[str, Any]:
    """Asks for the object, and once it is known also for the responder and its parameters.

    `who` can open the object if this person can't.
    """
    chosen = object_option(subject, clearance) if subject is not None else None
    offered = [object_option(choice, clearance) for choice in choices]
    label = "Which one? The message names several." if choices else "Alert"
    blocks: list[Block] = [views.search_field("object", label, "Search, or type an id such as ~12", offered, chosen)]
    if subject is not None:
        blocks += _about(RedactedView(subject, clearance), who)
    return views.modal(
        TITLE,
        blocks,
        callback_id=ids.START_VIEW,
        submit="Run" if subject and may_see(clearance, subject.tlp) else "Next",
        metadata=state.to_text(),
        close="Cancel",
    )


def object_option(subject: Subject, clearance: int) -> dict[str, Any]:
    """An entry of the menu of alerts: id and title, and its severity or kind."""
    view = RedactedView(subject, clearance)
    name = foreign_plain(f"{subject.id} · {view.title()}", OPTION_LIMIT)
    kind = SEVERITY_NAMES[subject.severity].capitalize() if subject.kind == "alert" else OBJECT_TYPES[subject.kind]
    return {"text": plain(name), "value": subject.id, "description": plain(kind)}


def _about(view: RedactedView, who: str) -> list[Block]:
    subject = view.subject
    if not view.is_open:
        return [section(escape(notices.withheld_from(view.clearance, who)))]
    named = f"{OBJECT_TYPES[subject.kind]} {subject.id} · {foreign(view.title(), 300)}"
    menu = {
        "type": "input",
        # Another object gives another block id, with which Slack drops the old choice.
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
    state: WizardState, responder: OfferedResponder, subject: Subject, *, clearance: int, parameters: str
) -> dict[str, Any]:
    """Asks to confirm with the policy's text."""
    shown = questions.confirmation(responder, RedactedView(subject, clearance))
    return _question_view(state, shown, parameters, "Run")


def collision_view(
    state: WizardState, running: Action, responder: OfferedResponder, subject: Subject, *, parameters: str
) -> dict[str, Any]:
    """Asks whether to run again beside a run that is open."""
    return _question_view(state, [section(questions.open_run(running, responder, subject))], parameters, "Run anyway")


def _question_view(state: WizardState, blocks: list[Block], parameters: str, submit: str) -> dict[str, Any]:
    if parameters:
        blocks.append(views.text_field("parameters", "Parameters", multiline=True, initial=parameters))
    return views.modal(
        TITLE, blocks, callback_id=ids.START_VIEW, submit=submit, metadata=state.to_text(), close="Cancel"
    )


def parse_parameters(text: str) -> Mapping[str, Any]:
    """Parameters from `name = value` lines or a JSON object. Raises ValueError with what is wrong."""
    text = text.strip()
    if not text:
        return {}
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError("This is not a JSON object.") from error
        return dict(found)
    parameters: dict[str, Any] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{line[:60]!r} is not name = value.")
        parameters[name.strip()] = value.strip()
    return parameters
