"""The modal that leads to a run: object, responder, inputs, confirmation."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bot.cards import ids, inputs, lists, notices, questions, undos, views
from bot.cards.alert import headline, responder_menu
from bot.cards.message import Block
from bot.cards.text import OPTION_LIMIT, escape, foreign, foreign_plain, plain, section
from bot.redaction import RedactedView, Subject, may_see
from core.common.decoding import mapping
from core.models import OBJECT_TYPES, SEVERITY_NAMES, Action, Kind, OfferedResponder

TITLE = "Run a responder"
METADATA_LIMIT = 3000  # characters, Slack's


@dataclass(frozen=True)
class WizardState:
    """What was chosen so far. It is kept in the modal's metadata, so it holds only ids.

    `responder` is the option value of the one whose inputs and policy the modal shows. `asked`: object and responder
    were given and can't be changed. `anyway`: run beside a run that is open. `again` is the run that is repeated.
    `targets` are several objects to run on, of which `id` is the first; until they are chosen, `id` is the alert or
    case whose observables they are.
    """

    id: str = ""
    kind: Kind = "alert"
    responder: str = ""
    asked: bool = False
    anyway: bool = False
    channel: str = ""
    again: str = ""
    glass: bool = False  # rules are overridden, with a reason
    kept: Mapping[str, str] = field(default_factory=dict)  # logins of people whom a field can't show, by input
    choices: tuple[str, ...] = ()  # ids that were found in a message, if there are several
    targets: tuple[str, ...] = ()

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    def keeping(self, logins: Mapping[str, str]) -> "WizardState":
        """The state with these logins, or with none if a modal's metadata has no room for them beside the rest."""
        found = replace(self, kept=logins)
        return found if len(found.to_text()) <= METADATA_LIMIT else replace(self, kept={})

    @staticmethod
    def from_text(text: str) -> "WizardState":
        """What `to_text` wrote; the initial state for any other text."""
        try:
            raw = json.loads(text)
            kind: Kind = raw["kind"] if raw["kind"] in OBJECT_TYPES else "alert"
            choices, targets = (tuple(map(str, raw.get(name) or ())) for name in ("choices", "targets"))
            object_id, responder, channel, again = (
                str(raw.get(name) or "") for name in ("id", "responder", "channel", "again")
            )
            asked, anyway, glass = (raw.get(name) is True for name in ("asked", "anyway", "glass"))
            kept = {str(name): str(login) for name, login in mapping(raw.get("kept")).items()}
            return WizardState(object_id, kind, responder, asked, anyway, channel, again, glass, kept, choices, targets)
        except (ValueError, TypeError, KeyError, AttributeError):
            return WizardState()


@dataclass(frozen=True)
class Given:
    """What somebody gives a run: values of declared inputs, or a text where a responder declares none."""

    form: inputs.Form | None = None
    text: str = ""


def start_view(
    state: WizardState,
    subject: Subject | None,
    *,
    clearance: int,
    choices: Sequence[Subject] = (),
    responder: OfferedResponder | None = None,
    given: Given | None = None,
    who: str = "",
) -> dict[str, Any]:
    """Asks for the object, once it is known for the responder, and once that is known for its inputs.

    `who` can open the object if this person can't.
    """
    chosen = object_option(subject, clearance) if subject is not None else None
    offered = [object_option(choice, clearance) for choice in choices]
    label = "Which one? The message names several." if choices else "Alert"
    blocks: list[Block] = [views.search_field("object", label, "Search, or type an id such as ~12", offered, chosen)]
    if subject is not None:
        view = RedactedView(subject, clearance)
        blocks += _about(view, responder, who)
        if view.is_open and responder is not None:
            blocks += [*fields(given or Given(), state.responder, responder), *questions.effect(responder)]
    elif not choices:
        several = {"type": "button", "action_id": ids.SEVERAL_ALERTS, "text": plain("Run on several alerts")}
        blocks.append({"type": "actions", "elements": [several]})
    return _modal(state, blocks, "Run" if subject and may_see(clearance, subject.tlp) else "Next")


def run_view(
    state: WizardState, subject: Subject, responder: OfferedResponder, *, clearance: int, given: Given
) -> dict[str, Any]:
    """Asks for the inputs of a responder on an object; to run it confirms what the modal shows."""
    view = RedactedView(subject, clearance)
    blocks = [*questions.what_runs(responder, view), *_glass(state, responder, view)]
    return _modal(state, [*blocks, *fields(given, state.responder, responder), *questions.effect(responder)], "Run")


def collision_view(
    state: WizardState, running: Action, responder: OfferedResponder, view: RedactedView, *, given: Given
) -> dict[str, Any]:
    """Asks whether to run again beside a run that is open."""
    blocks: list[Block] = [section(questions.open_run(running, responder, view)), *_glass(state, responder, view)]
    return _modal(state, [*blocks, *fields(given, state.responder, responder)], "Run anyway")


def _glass(state: WizardState, responder: OfferedResponder, view: RedactedView) -> list[Block]:
    """What is overridden, and the field for the reason."""
    if not state.glass:
        return []
    overridden = view.text("; ".join(refusal.message for refusal in responder.refusals or ()))
    said = "The reason stays with the run, and another org-admin has to approve it"
    return [
        section(f"🔴 *This overrides:* {foreign(overridden, 1500)}. {said}."),
        views.text_field("glass", "Why", multiline=True, optional=False, hint="Whoever looks at it later reads this."),
    ]


def _modal(state: WizardState, blocks: Sequence[Block], submit: str) -> dict[str, Any]:
    return views.modal(
        TITLE, blocks, callback_id=ids.START_VIEW, submit=submit, metadata=state.to_text(), close="Cancel"
    )


def object_option(subject: Subject, clearance: int) -> dict[str, Any]:
    """An entry of the menu of alerts: id and title, and its severity or kind."""
    view = RedactedView(subject, clearance)
    name = foreign_plain(f"{subject.id} · {view.title()}", OPTION_LIMIT)
    kind = SEVERITY_NAMES[subject.severity].capitalize() if subject.kind == "alert" else OBJECT_TYPES[subject.kind]
    return {"text": plain(name), "value": subject.id, "description": plain(kind)}


def _about(view: RedactedView, responder: OfferedResponder | None, who: str) -> list[Block]:
    """The object, and the menu of its responders."""
    subject = view.subject
    if not view.is_open:
        return [section(escape(notices.withheld_from(view.clearance, who)))]
    named = f"{OBJECT_TYPES[subject.kind]} {subject.id} · {foreign(view.title(), 300)}"
    element = responder_menu("Choose, or type to search", ids.START_RESPONDER)
    if responder is not None:
        element["initial_option"] = lists.responder_option(responder)
    menu = {
        "type": "input",
        # Another object gives another block id, with which Slack drops the old choice.
        "block_id": f"responder:{subject.id}",
        "label": {"type": "plain_text", "text": "Responder"},
        "element": element,
        "optional": False,
        "dispatch_action": True,
    }
    return [headline(view) if subject.kind == "alert" else section(named), menu]


def undo_block(key: str) -> str:
    """The block id of the field that says how long a run lasts; `key` as in `inputs.fields`."""
    return f"undo_after:{key}"


def fields(given: Given, key: str, responder: OfferedResponder) -> list[Block]:
    """The fields of declared inputs, or one for a text, and how long the run lasts."""
    lasts = undos.time_field(undo_block(key), responder.policy) if responder.policy is not None else []
    if given.form is not None:
        return [*inputs.fields(given.form, key), *lasts]
    hint = "Only where the responder wants some: name = value, or a JSON object."
    return [views.text_field("parameters", "Inputs", multiline=True, initial=given.text, hint=hint), *lasts]


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
