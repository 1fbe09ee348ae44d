"""Inputs that responders declare: in definitions and settings, as offered, and checked in runs."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import example, given
from hypothesis import strategies as st

from core.common.errors import ResponderBotError
from core.engines.base import Responder
from core.engines.definitions import load
from core.models import MAX_PARAMETERS, MAX_REPEATS, Document, Parameter, parse_parameters
from core.responders.catalogues import distinct_titles
from core.settings import load as load_settings
from tests.core.actions.test_alert_artifacts import ENGINE, PROGRAM
from tests.core.running import RunningCore, ended, running_core, sent
from tests.responder_folders import write_responder

pytestmark = pytest.mark.asyncio(loop_scope="module")

DECLARED: Sequence[Mapping[str, Any]] = (
    {"name": "minutes", "type": "number", "default": 60, "minimum": 1, "maximum": 1440},
    {"name": "reason", "required": True, "maximum": 40, "description": "why"},
    {"name": "ticket", "pattern": "[A-Z]{2,5}-[0-9]+"},
    {"name": "notes", "title": "What to tell", "type": "text"},
    {"name": "force", "type": "boolean"},
    {"name": "where", "type": "choice", "options": ["edge", "inner"], "default": "edge"},
    {"name": "who", "type": "choices", "options": ["soc", "it", "legal"], "minimum": 1, "maximum": 2},
    {"name": "until", "type": "date"},
    {"name": "owner", "type": "user"},
    {"name": "api_token", "pattern": "[a-z]+"},
)
BARE, TYPED, SET = "Bare_1_0", "ResponderBot_TypedOne_1_0", "Set_1_0"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCore]:
    folder = tmp_path_factory.mktemp("core")
    write_responder(folder / "responders", "Bare", PROGRAM, title="Do nothing at all")
    write_responder(folder / "responders", "ResponderBot_TypedOne", PROGRAM, parameters=DECLARED)
    write_responder(folder / "responders", "Set", PROGRAM, parameters=[{"name": "other"}])
    engine = {"name": "local", "responders": (folder / "responders",)}
    settings = {SET: {"parameter": ({"name": "port", "type": "number", "required": True},)}}
    async with running_core(folder, engine=(engine,), responder=settings) as running:
        await running.key("analyst")
        await running.key("service")
        yield running


async def alert_in(core: RunningCore, ref: str) -> str:
    body = {"type": "t", "source": "s", "sourceRef": ref, "title": "t", "description": "d"}
    answer = await core.send("POST", "/api/alert", body)
    if answer.status_code == 201:
        return str(answer.json()["id"])
    return str((await sent(core, "GET", f"/api/alert/t;s;{ref}"))["id"])


async def start(core: RunningCore, name: str, parameters: Any, *, status: int = 201) -> dict[str, Any]:
    body = {"responderId": name, "objectType": "alert", "objectId": await alert_in(core, "1"), "parameters": parameters}
    found: dict[str, Any] = await sent(core, "POST", f"{ENGINE}/action", body, status=status)
    return found


async def seen(core: RunningCore, name: str, parameters: Any) -> dict[str, Any]:
    """The parameters that the program got."""
    action = await ended(core, (await start(core, name, parameters))["id"])
    found: dict[str, Any] = json.loads(action["report"])["full"]["seen"]["parameters"]
    assert (found.pop("user"), found.pop("organisation")) == ("org-admin@responder-bot.local", "default")
    return found


async def test_they_are_offered_with_titles(core: RunningCore) -> None:
    alert = await alert_in(core, "1")
    explained = await sent(core, "GET", f"{ENGINE}/responder/alert/{alert}?explain=true")
    offered = {item["name"]: item for item in explained}
    assert [offered[name]["title"] for name in (BARE, TYPED, SET)] == ["Do nothing at all", "Typed One", "Set"]
    assert offered["ResponderBot_CloseAsFalsePositive_1_0"]["title"] == "Close As False Positive"
    shown = {item["name"]: item for item in offered[TYPED]["parameters"]}
    assert list(shown) == [item["name"] for item in DECLARED]
    assert shown["minutes"] == {
        **{"name": "minutes", "title": "Minutes", "description": "", "type": "number", "required": False},
        **{"default": 60, "minimum": 1, "maximum": 1440},
    }
    assert shown["where"]["options"] == ["edge", "inner"]
    assert (shown["api_token"]["title"], shown["notes"]["title"]) == ("Api token", "What to tell")
    assert offered[BARE]["parameters"] == []
    assert [item["name"] for item in offered[SET]["parameters"]] == ["port"]
    plain = await sent(core, "GET", f"{ENGINE}/responder/alert/{alert}")
    assert not {"title", "parameters"} & set().union(*plain)


async def test_a_document_has_what_people_call_inputs_of_its_runs(core: RunningCore) -> None:
    for name, parameters in ((TYPED, {"reason": "x"}), (BARE, {"any": 1})):
        await start(core, name, parameters)
    (document,) = (await sent(core, "GET", f"/api/document?ids={await alert_in(core, '1')}"))["documents"]
    assert {"name": "notes", "title": "What to tell", "type": "text"} in document["inputs"][TYPED]
    assert (len(document["inputs"][TYPED]), list(document["inputs"])) == (len(DECLARED), [TYPED])
    found = Document.model_validate(document)
    assert [(a.responder_title, len(a.inputs)) for a in found.actions] == [
        ("Do nothing at all", 0), ("Typed One", len(DECLARED))]  # fmt: skip
    assert "responderTitle" not in found.actions[0].to_json()


async def test_the_program_gets_exactly_the_typed_values_with_defaults(core: RunningCore) -> None:
    assert await seen(core, TYPED, {"reason": "x"}) == {"minutes": 60, "reason": "x", "where": "edge"}
    everything = {
        "minutes": 1.5,
        "reason": "lateral movement",
        "ticket": "SOC-17",
        "notes": "a\nb",
        "force": False,
        "where": "inner",
        "who": ["it", "soc", "it"],
        "until": "2027-02-28",
        "owner": "Analyst@responder-bot.local",
        "api_token": "secret",
        "user": "somebody",
    }
    found = await seen(core, TYPED, everything)
    expected = {**everything, "who": ["it", "soc"], "owner": "analyst@responder-bot.local"}
    expected.pop("user")
    assert {**found, "api_token": ""} == {**expected, "api_token": ""}  # a secret in the report, too
    empty: dict[str, Any] = {"reason": "x", "ticket": "", "who": [], "notes": None, "minutes": None, "where": ""}
    assert await seen(core, TYPED, empty) == {"minutes": 60, "reason": "x", "where": "edge"}
    anything = {"a": {"b": [1, None]}, "c": ""}
    assert await seen(core, BARE, anything) == anything
    assert await seen(core, SET, {"port": 2.0}) == {"port": 2}


WRONG: Sequence[tuple[Any, str, str]] = (
    ({"minutes": "30"}, "minutes", "a number of at least 1 and at most 1440"),
    ({"minutes": 0}, "minutes", "a number of at least 1 and at most 1440"),
    ({"minutes": True}, "minutes", "a number of at least 1 and at most 1440"),
    ({"reason": "x" * 41}, "reason", "a text of at most 40 characters"),
    ({"reason": "a\nb"}, "reason", "a text of one line"),
    ({"reason": ["x"]}, "reason", "a text of at most 40 characters"),
    ({"ticket": "soc-17"}, "ticket", "a text that matches [A-Z]{2,5}-[0-9]+"),
    ({"ticket": "SOC-17\n"}, "ticket", "a text of one line"),
    ({"ticket": "A" * 1001}, "ticket", "a text of at most 1000 characters"),
    ({"force": "yes"}, "force", "true or false"),
    ({"force": 1}, "force", "true or false"),
    ({"where": "outer"}, "where", "one of edge, inner"),
    ({"where": ["edge"]}, "where", "one of edge, inner"),
    ({"who": "soc"}, "who", "a list of soc, it, legal"),
    ({"who": ["soc", {}]}, "who", "a list of soc, it, legal"),
    ({"who": ["soc", "it", "legal"]}, "who", "a list of 1 to 2 of soc, it, legal"),
    ({"until": "2027-02-29"}, "until", "a date such as 2026-01-31"),
    ({"until": "20270228"}, "until", "a date such as 2026-01-31"),
    ({"owner": "nobody@responder-bot.local"}, "owner", "the login of a person with access"),
    ({"owner": "service@responder-bot.local"}, "owner", "the login of a person with access"),
)


@pytest.mark.parametrize(("parameters", "name", "expected"), WRONG)
async def test_a_wrong_value_is_a_400_that_says_what_is_expected(
    core: RunningCore, parameters: dict[str, Any], name: str, expected: str
) -> None:
    refused = await start(core, TYPED, {"reason": "x", **parameters}, status=400)
    assert refused["type"] == "AttributeCheckingError"
    (error,) = refused["errors"]
    assert (error["name"], error["format"]) == (f"parameters.{name}", expected)
    assert refused["message"] == f"[Invalid format for parameters.{name}, expected {expected}]"


async def test_all_that_is_wrong_is_told_at_once_and_nothing_starts(core: RunningCore) -> None:
    alert = await alert_in(core, "1")
    before = await sent(core, "GET", f"{ENGINE}/action/alert/{alert}")
    refused = await start(core, TYPED, {"minutes": [], "force": 1, "Reason": "x", "x" * 200: 1}, status=400)
    known = ", ".join(item["name"] for item in DECLARED)
    assert [(error["name"], error["type"]) for error in refused["errors"]] == [
        ("parameters.Reason", "UnknownAttributeError"),
        (f"parameters.{'x' * 100}", "UnknownAttributeError"),
        ("parameters.reason", "MissingAttributeError"),
        ("parameters.force", "InvalidFormatAttributeError"),
    ]
    assert f"[Unknown attribute parameters.Reason, expected one of {known}]" in refused["message"]
    assert "[Attribute parameters.reason is missing]" in refused["message"]
    secret = await start(core, TYPED, {"reason": "x", "api_token": "HUNTER2222"}, status=400)
    assert "HUNTER2222" not in json.dumps(secret)
    many = await start(core, TYPED, {f"p{number}": 1 for number in range(5_000)}, status=400)
    assert len(many["errors"]) == 1_000
    assert await sent(core, "GET", f"{ENGINE}/action/alert/{alert}") == before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
NAMES = st.sampled_from([item["name"] for item in DECLARED]) | st.text(max_size=12)


@given(parameters=st.dictionaries(NAMES, JSON, max_size=6))
async def test_any_parameters_are_typed_values_or_a_400(core: RunningCore, parameters: dict[str, Any]) -> None:
    body = {
        "responderId": TYPED,
        "objectType": "alert",
        "objectId": await alert_in(core, "1"),
        "parameters": parameters,
    }
    answer = await core.send("POST", f"{ENGINE}/action", body)
    assert answer.status_code in (201, 400), answer.text
    if answer.status_code == 201:
        assert "reason" in json.loads(answer.json()["parameters"])
    else:
        assert answer.json()["type"] in ("AttributeCheckingError", "BadRequest")


@given(item=st.dictionaries(st.sampled_from(list(Parameter.model_fields)) | st.text(max_size=5), JSON), value=JSON)
async def test_any_declaration_is_usable_or_refused_with_a_sentence(item: dict[str, Any], value: Any) -> None:
    try:
        (parameter,) = parse_parameters([{"name": "a", **item}])
    except ValueError as error:
        assert str(error).endswith(".")
        return
    assert parse_parameters([json.loads(parameter.to_json())]) == (parameter,)
    try:
        read = parameter.read(value)
    except ValueError as error:
        assert str(error)
    else:
        assert parameter.read(read) == read


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ({"name": "x"}, "parameters must be a list of objects."),
        (["x"], "parameters must be a list of objects."),
        ([{"name": f"p{number}"} for number in range(MAX_PARAMETERS + 1)], "there are over 50 parameters."),
        ([{"name": "a"}, {"name": "a"}], "two parameters have the name 'a'."),
        ([{}], "the parameter number 1 can't be used: name: field required."),
        ([{"name": "a b"}], "the parameter 'a b' can't be used: name: string should match"),
        ([{"name": "user"}], "the parameter 'user' can't be used: core gives every responder this one itself."),
        ([{"name": "a", "type": "colour"}], "can't be used: type: input should be 'string', 'text'"),
        ([{"name": "a", "requierd": True}], "can't be used: requierd: extra inputs are not permitted."),
        ([{"name": "a", "type": "choice"}], "`choice` and `choices` need options, and only they have any."),
        ([{"name": "a", "options": ["x"]}], "`choice` and `choices` need options, and only they have any."),
        ([{"name": "a", "type": "choice", "options": ["x", "x"]}], "two of its options are the same."),
        ([{"name": "a", "type": "number", "pattern": "x"}], "only `string` and `text` have a pattern."),
        ([{"name": "a", "type": "date", "minimum": 1}], "`date` has no minimum and no maximum."),
        ([{"name": "a", "minimum": 2, "maximum": 1}], "its minimum is above its maximum."),
        ([{"name": "a", "type": "number", "default": "x"}], "its default should be a number."),
        ([{"name": "a", "type": "number", "default": 10**400}], "its default should be a number."),
        ([{"name": "a", "pattern": "("}], "its pattern is not a regular expression without look-around and back"),
        ([{"name": "a", "pattern": "a)|(b"}], "its pattern is not a regular expression without look-around and back"),
        ([{"name": "a", "pattern": r"(a)\1"}], "its pattern is not a regular expression without look-around and back"),
        ([{"name": "a", "pattern": "(a{50}){50}"}], f"all {{n}} multiplied may be {MAX_REPEATS}."),
    ],
)
async def test_a_declaration_that_cannot_be_used_is_refused_with_a_sentence(
    tmp_path: Path, declared: Any, sentence: str
) -> None:
    write_responder(tmp_path, "Wrong", PROGRAM, parameters=declared)
    (skipped,) = load([tmp_path]).skipped
    assert sentence in skipped.reason
    toml = f'[responder."Wrong_1_0"]\nparameter = {as_toml(declared)}\n'
    (tmp_path / "responder-bot.toml").write_text(toml)
    with pytest.raises(ResponderBotError) as refused:
        load_settings(tmp_path / "responder-bot.toml", {})
    assert '[[responder."Wrong_1_0".parameter]]: ' in refused.value.message
    assert sentence in refused.value.message


def as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return json.dumps(value)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.{1,40}){1,40}x", "((a?){40}){40}b", "(.*a){40}x"])
async def test_no_pattern_runs_for_ever(pattern: str) -> None:
    """Each would take a backtracking engine longer than the test may last."""
    (parameter,) = parse_parameters([{"name": "a", "pattern": pattern}])
    with pytest.raises(ValueError, match="a text that matches"):
        parameter.read("a" * 999 + "!")


def responder(name: str, version: str, title: str = "") -> Responder:
    return Responder(name, name, version, "", (), title=title)


async def test_titles_that_would_look_alike_get_the_version_or_the_whole_name() -> None:
    found = [
        responder("Mailer_1_0", "1.0"),
        responder("Mailer_2_1", "2.1"),
        responder("Lab_IsolateHost_1_0", "1.0", "Isolate Host"),
        responder("Other-IsolateHost_1_0", "1.0", "Isolate host"),
        responder("MSDefender_FullVirusscan_1_0", "1.0"),
        responder("x_y", "", "Isolate Host 1.0"),
    ]
    assert list(distinct_titles(found).values()) == [
        "Mailer 1.0",
        "Mailer 2.1",
        "Lab Isolate Host 1.0",
        "Other Isolate Host 1.0",
        "MS Defender Full Virusscan",
        "Isolate Host 1.0",
    ]


@given(
    st.lists(
        st.builds(responder, st.text(min_size=1), st.sampled_from(["", "1.0", "2"]), st.sampled_from(["", "A", "a"])),
        unique_by=lambda r: r.name,
    )
)
@example([responder("\r", "", "")])
async def test_titles_are_texts_for_any_names(responders: list[Responder]) -> None:
    titles = distinct_titles(responders)
    assert titles.keys() == {item.name for item in responders}
    assert all(titles.values())
