"""The fields of declared inputs: Slack takes each form, and what it holds comes back as the same values."""

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bot.clearance import RedactedView, Subject
from bot.features.runs.views import inputs, run_form
from bot.slack_emulator.elements import state_of, with_ids
from bot.slack_emulator.limits import problems
from bot.slack_emulator.views import VIEW_BYTES
from core.models import Parameter
from tests.bot import samples

KEY = inputs.key_of(samples.responder())
PEOPLE = {"ben@soc.example": "U0BEN"}
words = st.one_of(samples.foreign_text, st.sampled_from(["</blocks>", "a" * 150, "😀" * 75, " "]))
lines = st.text(st.characters(blacklist_characters="\n", blacklist_categories=["Cs"]), min_size=1, max_size=80)
options = st.lists(lines.map(lambda text: text[:75]), min_size=1, max_size=12, unique=True)
numbers = st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def parameters(draw: st.DrawFn, number: int) -> tuple[Parameter, Any]:
    """An input of any type, and a value for it or None."""
    kind = draw(st.sampled_from(["string", "text", "number", "boolean", "choice", "choices", "date", "user"]))
    declared: dict[str, Any] = {
        "name": f"n{number}",
        "type": kind,
        "title": draw(words)[:150],
        "description": draw(words)[:2000],
        "required": draw(st.booleans()),
    }
    if kind in ("choice", "choices"):
        declared["options"] = draw(options)
    values: Mapping[str, st.SearchStrategy[Any]] = {
        "string": lines.filter(str.strip),
        "text": st.text(min_size=1, max_size=80).filter(str.strip) | st.just("y" * 4000),
        "number": numbers,
        "boolean": st.booleans(),
        "choice": st.sampled_from(declared.get("options", [""])),
        "choices": st.lists(st.sampled_from(declared.get("options", [""])), min_size=1, unique=True),
        "date": st.dates().map(str),
        "user": st.just("ben@soc.example"),
    }
    if draw(st.booleans()):
        declared["default"] = draw(values[kind])
    return Parameter.model_validate(declared), draw(values[kind] | st.none())


def view_of(form: inputs.Form) -> dict[str, Any]:
    """The modal with these fields, as the emulator opens it."""
    subject, responder = Subject.alert(samples.alert()), samples.responder(parameters=list(form.parameters))
    view = run_form.form_view(samples.request(), responder, RedactedView(subject, 3), form)
    assert problems("modal", view) == []
    assert len(json.dumps(view).encode()) < VIEW_BYTES
    view["blocks"] = with_ids(view["blocks"])
    return {**view, "state": {"values": state_of(view)}}


@given(st.integers(1, 6).flatmap(lambda count: st.tuples(*(parameters(n) for n in range(count)))))
def test_what_a_form_shows_comes_back_as_the_same_values(declared: tuple[tuple[Parameter, Any], ...]) -> None:
    known = [parameter for parameter, _ in declared]
    wanted = {one.name: value if value is not None else one.default for one, value in declared}
    form = inputs.form(known, {one.name: value for one, value in declared}, people=PEOPLE)
    found, wrong = inputs.submitted(view_of(form), known, KEY)
    assert wrong == {}
    expected = {one.name: one.read(wanted[one.name]) for one in known if wanted[one.name] is not None}
    people = {one.name for one in known if one.type == "user" and one.name in found}
    assert {name: PEOPLE.get(expected[name], "") for name in people} == {name: found[name] for name in people}
    given_values = {**form.kept, **{name: value for name, value in found.items() if name not in people}}
    unticked = {one.name for one in known if one.type == "boolean" and wanted[one.name] is None and not one.required}
    required = {one.name for one in known if one.type == "boolean" and one.default is None and one.required}
    for name in unticked - required:
        assert given_values.pop(name) is False
    assert given_values == {name: value for name, value in expected.items() if name not in people}


def test_the_largest_form_fits() -> None:
    texts = [Parameter(name=f"t{n}", title="題" * 150, description="説" * 2000, type="text") for n in range(30)]
    menus = [
        Parameter(name=f"m{n}", title="題" * 150, description="説" * 2000, type="choices",
                  options=[f"{n} {m} {'選' * 60}" for m in range(100)])
        for n in range(20)
    ]  # fmt: skip
    values = {**{one.name: "字" * 3000 for one in texts}, **{one.name: one.options for one in menus}}
    form = inputs.form([*texts, *menus], values)
    view = view_of(form)
    assert 2 < len(form.values) < 10
    assert {b["element"]["type"] for b in view["blocks"] if "m" in b["block_id"][38:]} == {"multi_external_select"}
    found, wrong = inputs.submitted(view, form.parameters, KEY)
    assert (wrong, {**form.kept, **found}) == ({}, values)
    assert len(inputs.options_of(menus[3], "3 7")) == 11


def test_numbers_are_written_as_slack_takes_them() -> None:
    declared = Parameter(name="n", type="number", minimum=1e-07, maximum=1e300, default=0.1)
    (block,) = inputs.fields(inputs.form([declared], {}), KEY)
    element = block["element"]
    assert (element["min_value"], element["initial_value"], "max_value" in element) == ("0.0000001", "0.1", False)


def test_a_hint_is_the_description_and_then_a_sentence_on_the_default() -> None:
    def hints(**more: Any) -> list[str]:
        form = inputs.form([Parameter(name="minutes", type="number", **more)], {})
        return [block["hint"]["text"] for block in inputs.fields(form, KEY) if "hint" in block]

    assert hints(description="How long", default=60) == ["How long. If empty: 60."]
    assert hints(description="How long?", default=60) == ["How long? If empty: 60."]
    assert (hints(description="How long"), hints(default=60), hints()) == (["How long"], ["If empty: 60."], [])


def test_what_is_required_is_asked_and_a_box_may_stay_empty() -> None:
    ticked = Parameter(name="a", type="boolean", required=True, default=True)
    decided = Parameter(name="b", type="boolean", required=True)
    first, second = inputs.fields(inputs.form([ticked, decided], {}), KEY)
    assert (first["element"]["type"], first["optional"]) == ("checkboxes", True)
    assert (second["element"]["type"], second["optional"], "initial_option" in second["element"]) == (
        "radio_buttons", False, False)  # fmt: skip


def test_a_value_that_is_no_longer_an_option_is_asked_anew() -> None:
    declared = Parameter(name="list", type="choice", options=["one", "two"])
    assert inputs.form([declared], {"list": "three"}).values == {}
    element = {"type": "static_select", "selected_option": {"value": "of-another-release"}}
    view = {"state": {"values": {inputs.block_id(KEY, "list"): {"x": element}}}}
    problem = {inputs.block_id(KEY, "list"): "This should be one of the options that there are now; choose again."}
    assert inputs.submitted(view, [declared], KEY) == ({}, problem)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["1e999", "yes", "2026-13-01", "-"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["value", "type"]), inner, max_size=2),
    max_leaves=4,
)
STATES = st.dictionaries(
    st.sampled_from(["type", "value", "selected_option", "selected_options", "selected_date", "selected_user"]),
    ANYTHING | st.sampled_from(["checkboxes", "radio_buttons"]),
)


@given(parameters(0), STATES, st.text(max_size=20) | st.sampled_from(["9" * 400, "1e999", "yes", "a,b"]))
def test_whatever_is_submitted_or_typed_is_a_value_or_an_error(
    declared: tuple[Parameter, Any], element: dict[str, Any], typed: str
) -> None:
    known = [declared[0]]
    view = {"state": {"values": {inputs.block_id(KEY, "n0"): {"x": element}}}, "blocks": element.get("value")}
    values, wrong = inputs.submitted(view, known, KEY)
    assert not (values and wrong)
    json.dumps(values, allow_nan=False)
    values, problems_of_text = inputs.take_typed(known, {"n0": typed, "N-0": typed, "other": typed})
    json.dumps(values, allow_nan=False)
    assert problems_of_text[-1] == "It has no input other; it takes n0."
