"""The inputs that a responder declares, as fields of a modal and as typed text."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from bot.block_kit import ids, modals
from bot.block_kit.text import OPTION_LIMIT, clip, foreign_plain, plain
from bot.clearance import RedactedView
from bot.features.command_text import same_name
from bot.features.responders.views import option_value
from bot.features.runs.views import runs
from bot.message import Block
from core.models import Action, Bulk, OfferedResponder, Parameter

PREFIX = "input:"  # of the block ids of fields
LABEL_LIMIT, HINT_LIMIT = 150, 300  # characters
# With these a modal of 50 inputs stays below the 250 kB that Slack takes.
HINTS_LIMIT = 6_000  # characters of all hints together
PREFILLED_LIMIT = 10_000  # characters of all fields together
MENU_LIMIT = 100  # options of all menus together; above, menus ask for theirs when they are opened
OPTION_OVERHEAD = 100  # characters of an option's JSON beside its text
NUMBER_LIMIT = 30  # characters
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_TRUE, _FALSE = ("yes", "true", "on", "1"), ("no", "false", "off", "0")


@dataclass(frozen=True)
class Form:
    """What the fields of a responder's inputs hold when they are shown.

    `values` are shown; `kept` counts if a field stays empty, since Slack or the modal has no room for it; `people` are
    the Slack users of logins. `text` stands for all of them where the responder declares none.
    """

    parameters: Sequence[Parameter]
    values: Mapping[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    people: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


def form(
    parameters: Sequence[Parameter],
    initial: Mapping[str, Any],
    *,
    withheld: frozenset[str] = frozenset(),
    people: Mapping[str, str] | None = None,
) -> Form:
    """The fields with these values, or defaults. Values that no longer fit what is declared are left out."""
    people = people or {}
    values: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    room = PREFILLED_LIMIT
    for parameter in parameters:
        value = _fitting(parameter, initial.get(parameter.name))
        value = parameter.default if value is None and parameter.name not in withheld else value
        if value is None:
            continue
        size = _size(value)
        if size > min(modals.INPUT_LIMIT, room) or not _has_field(parameter, value, people):
            kept[parameter.name] = value
        else:
            values[parameter.name] = value
            room -= size
    return Form(parameters, values, kept, withheld, people)


def form_again(
    declared: Sequence[Parameter], previous: Action | Bulk, view: RedactedView, people: Mapping[str, str] | None = None
) -> Form:
    """The fields with the values of an earlier run, as far as they may be shown."""
    withheld = runs.withheld_inputs(previous, view)
    initial = {name: value for name, value in runs.given_inputs(previous).items() if name not in withheld}
    return form(declared, initial, withheld=withheld, people=people)


def _has_field(parameter: Parameter, value: Any, people: Mapping[str, str]) -> bool:
    """Whether Slack's field can start with this value."""
    if parameter.type == "user":
        return value in people
    return parameter.type != "number" or len(_plain_number(value)) <= NUMBER_LIMIT


def _size(value: Any) -> int:
    """How many characters a value takes in a modal, where each chosen option is an object."""
    if isinstance(value, list):
        return sum(OPTION_OVERHEAD + len(item) for item in value)
    return len(value) if isinstance(value, str) else 0


def _fitting(parameter: Parameter, value: Any) -> Any:
    if value is None or value in ("", []):
        return None
    try:
        return parameter.read(value)
    except ValueError:
        return None


# --- fields ---------------------------------------------------------------------------------------------------------


def key_of(responder: OfferedResponder) -> str:
    """What tells the fields of a responder from another's, so that Slack drops what those hold."""
    return option_value(responder)


def fields(shown: Form, key: str) -> list[Block]:
    """A field for each input; if none is declared, one for the text that was typed in a command, if there was one."""
    if not shown.parameters:
        label = "Inputs (it declares none, and may ignore these)"
        return [modals.text_field("parameters", label, multiline=True, initial=shown.text)] if shown.text else []
    in_menus = sum(len(parameter.options or ()) for parameter in shown.parameters)
    return [_field(parameter, shown, key, loads=in_menus > MENU_LIMIT) for parameter in shown.parameters]


def block_id(key: str, name: str) -> str:
    return f"{PREFIX}{key}:{name}"


def _field(parameter: Parameter, shown: Form, key: str, *, loads: bool) -> Block:
    value = shown.values.get(parameter.name)
    block = block_id(key, parameter.name)
    element = {"action_id": ids.numbered(ids.VALUE, block), **_ELEMENTS[parameter.type](parameter, value)}
    if parameter.type == "user" and value is not None:
        element["initial_user"] = shown.people[value]
    if loads and "select" in element["type"] and parameter.options is not None:
        del element["options"]
        element |= {"type": element["type"].replace("static", "external"), "min_query_length": 0}
    # A box that isn't ticked is an answer; Slack would insist on a tick.
    is_optional = not parameter.required or parameter.name in shown.kept or element["type"] == "checkboxes"
    label = foreign_plain(parameter.title, LABEL_LIMIT)
    return modals.input_block(block, label, element, hint=_hint(parameter, shown), optional=is_optional)


def _hint(parameter: Parameter, shown: Form) -> str:
    name, about, note = parameter.name, "", ""
    if parameter.description.strip():
        about = foreign_plain(parameter.description, min(HINT_LIMIT, HINTS_LIMIT // len(shown.parameters)))
    if name in shown.withheld:
        note = "What the last run had is withheld from you."
    elif name in shown.kept:
        note = f"If empty: {_kept(parameter, shown.kept[name])} already."
    elif parameter.default is not None and not parameter.required and parameter.type in ("string", "text", "number"):
        note = f"If empty: {foreign_plain(_plain_number(parameter.default), 60)}."
    if about and note and about[-1] not in ".!?…":
        about += "."
    return f"{about} {note}".strip()


def _kept(parameter: Parameter, value: Any) -> str:
    if isinstance(value, list):
        return f"the {len(value)} options it has"
    if parameter.type in ("user", "number"):
        return foreign_plain(str(value), 60)
    return f"the {len(value)} characters it has"


def _text_element(parameter: Parameter, value: Any) -> dict[str, Any]:
    longest = modals.INPUT_LIMIT if parameter.maximum is None else min(modals.INPUT_LIMIT, int(parameter.maximum))
    element: dict[str, Any] = {"type": "plain_text_input", "max_length": max(longest, 1)}
    if parameter.type == "text":
        element["multiline"] = True
    return element if value is None else {**element, "initial_value": value}


def _number_element(parameter: Parameter, value: Any) -> dict[str, Any]:
    element: dict[str, Any] = {"type": "number_input", "is_decimal_allowed": True}
    for key, number in (("min_value", parameter.minimum), ("max_value", parameter.maximum), ("initial_value", value)):
        text = "" if number is None else _plain_number(number)
        if 0 < len(text) <= NUMBER_LIMIT:
            element[key] = text
    return element


def _plain_number(number: Any) -> str:
    """`0.0000001` for 1e-07, as Slack takes no exponents."""
    return format(Decimal(repr(number)), "f") if isinstance(number, float) else str(number)


def _boolean_element(parameter: Parameter, value: Any) -> dict[str, Any]:
    """A box to tick; where somebody has to decide, and nothing is the default, Yes and No."""
    if parameter.required and parameter.default is None:
        options = [{"text": plain("Yes"), "value": "yes"}, {"text": plain("No"), "value": "no"}]
        initial = {} if value is None else {"initial_option": options[0 if value else 1]}
        return {"type": "radio_buttons", "options": options, **initial}
    options = [{"text": plain("Yes"), "value": "yes"}]
    return {"type": "checkboxes", "options": options, **({"initial_options": options} if value else {})}


def _choice_element(parameter: Parameter, value: Any) -> dict[str, Any]:
    initial = {} if value is None else {"initial_option": _option(value)}
    return {"type": "static_select", "placeholder": plain("Choose"), "options": options_of(parameter, ""), **initial}


def _choices_element(parameter: Parameter, value: Any) -> dict[str, Any]:
    options = options_of(parameter, "")
    element: dict[str, Any] = {"type": "multi_static_select", "placeholder": plain("Choose"), "options": options}
    if parameter.maximum is not None and parameter.maximum >= 1:
        element["max_selected_items"] = int(parameter.maximum)
    return element if not value else {**element, "initial_options": [_option(option) for option in value]}


_ELEMENTS: Mapping[str, Callable[[Parameter, Any], dict[str, Any]]] = {
    "string": _text_element,
    "text": _text_element,
    "number": _number_element,
    "boolean": _boolean_element,
    "choice": _choice_element,
    "choices": _choices_element,
    "date": lambda _, value: {"type": "datepicker", **({} if value is None else {"initial_date": value})},
    "user": lambda *_: {"type": "users_select", "placeholder": plain("Choose somebody")},
    **dict.fromkeys(("ip", "hostname", "url", "mail", "hash"), _text_element),
}


def options_of(parameter: Parameter, typed: str) -> list[dict[str, Any]]:
    """The options of a menu with this text."""
    query = typed.casefold().strip()
    return [_option(option) for option in parameter.options or () if query in option.casefold()]


def _option(option: str) -> dict[str, Any]:
    # A digest, since Slack's values are not exact texts, and options may be.
    value = hashlib.sha256(option.encode("utf-8", "replace")).hexdigest()[:32]
    return {"text": plain(foreign_plain(option, OPTION_LIMIT)), "value": value}


# --- what was submitted ---------------------------------------------------------------------------------------------


def submitted(view: modals.View, parameters: Sequence[Parameter], key: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The values by input, and what is wrong by block id. A `user` is a Slack user here; core wants a login."""
    elements = modals.elements(view)
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    if not parameters:
        try:
            values = dict(parse_parameters(modals.values(view).get("parameters", "")))
        except ValueError as error:
            problems["parameters"] = str(error)
    for parameter in parameters:
        block = block_id(key, parameter.name)
        if block not in elements:
            continue
        try:
            value = _submitted(parameter, elements[block])
            if value is not None and value not in ("", []):
                values[parameter.name] = parameter.read(value)
        except ValueError as error:
            problems[block] = f"This should be {error}."
    return values, problems


def _submitted(parameter: Parameter, element: Mapping[str, Any]) -> Any:
    if element.get("type") == "checkboxes":
        return bool(element.get("selected_options"))
    if element.get("type") == "radio_buttons":
        chosen = modals.option_value(element.get("selected_option"))
        return {"yes": True, "no": False}.get(chosen)
    if parameter.type == "choice":
        return _chosen(parameter, element.get("selected_option"))
    if parameter.type == "choices":
        options = element.get("selected_options")
        return [_chosen(parameter, option) for option in options if option] if isinstance(options, list) else None
    value = {"date": element.get("selected_date"), "user": element.get("selected_user")}.get(
        parameter.type, element.get("value")
    )
    if not isinstance(value, str) or not value.strip():
        return None
    return _number(value) if parameter.type == "number" else value


def _chosen(parameter: Parameter, option: Any) -> str | None:
    if option is None:
        return None
    by_value = {_option(candidate)["value"]: candidate for candidate in parameter.options or ()}
    chosen = by_value.get(modals.option_value(option))
    if chosen is None:
        raise ValueError("one of the options that there are now; choose again")
    return chosen


def _number(text: str) -> int | float:
    text = text.strip()
    if not _NUMBER.fullmatch(text) or len(text) > modals.INPUT_LIMIT:
        raise ValueError("a number")
    return int(text) if text.lstrip("+-").isdecimal() else float(text)


def parse_parameters(text: str) -> Mapping[str, Any]:
    """Parameters from `name = value` lines or a JSON object. Raises ValueError with what is wrong."""
    text = text.strip()
    if not text:
        return {}
    if text.startswith("{"):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError("This is not a JSON object.") from error
        return dict(values)
    parameters: dict[str, Any] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{line[:60]!r} is not name = value.")
        parameters[name.strip()] = value.strip()
    return parameters


# --- what was typed -------------------------------------------------------------------------------------------------


def from_text(parameter: Parameter, text: str) -> Any:
    """The value that somebody typed in a command. Raises ValueError with what is expected, such as `a number`."""
    typed = _TYPED.get(parameter.type)
    return parameter.read(typed(parameter, text) if typed else text)


def _typed_boolean(_: Parameter, text: str) -> bool:
    word = text.strip().casefold()
    if word not in (*_TRUE, *_FALSE):
        raise ValueError("yes or no")
    return word in _TRUE


def _typed_choice(parameter: Parameter, text: str) -> str:
    """The option that was typed, in any case; as it is if there is none, which core's rules then tell."""
    same = [option for option in parameter.options or () if option.casefold() == text.strip().casefold()]
    return text if text in same or not same else same[0]


def _typed_choices(parameter: Parameter, text: str) -> list[str]:
    if (whole := _typed_choice(parameter, text)) in (parameter.options or ()):
        return [whole]
    return [_typed_choice(parameter, part.strip()) for part in text.split(",") if part.strip()]


_TYPED: Mapping[str, Callable[[Parameter, str], Any]] = {
    "number": lambda _, text: _number(text),
    "boolean": _typed_boolean,
    "choice": _typed_choice,
    "choices": _typed_choices,
    "user": lambda _, text: text.strip().removeprefix("@").casefold(),
}


def take_typed(parameters: Sequence[Parameter], typed: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The values of a command's `name=value`, by input; and a sentence for each that is unknown or wrong."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, text in typed.items():
        parameter = called(parameters, name)
        if parameter is None:
            known = ", ".join(known_parameter.name for known_parameter in parameters)
            problems.append(f"It has no input {clip(name, 64)}; it takes {known}.")
            continue
        try:
            values[parameter.name] = from_text(parameter, text)
        except ValueError as error:
            problems.append(f"{parameter.name} should be {error}.")
    return values, problems


def called(parameters: Sequence[Parameter], name: str) -> Parameter | None:
    """The input with this name, or with this name or title but for case and punctuation if there is only one."""
    matching = [parameter for parameter in parameters if parameter.name == name]
    matching = matching or [
        parameter for parameter in parameters if same_name(name, parameter.name) or same_name(name, parameter.title)
    ]
    return matching[0] if len(matching) == 1 else None


def missing(parameters: Sequence[Parameter], values: Mapping[str, Any]) -> list[Parameter]:
    """The inputs that a run still needs."""
    return [
        parameter
        for parameter in parameters
        if parameter.required and parameter.default is None and parameter.name not in values
    ]
