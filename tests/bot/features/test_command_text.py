"""How typed text is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.features.alerts.find import WITHOUT_ID
from bot.features.command_text import (
    closest_match,
    find_ids,
    match_names,
    normalize,
    parse_id,
    split_inputs,
    split_name_and_id,
    split_name_and_ids,
    split_words,
)
from bot.features.help import MISTYPED, UNKNOWN
from bot.features.registry import COMMANDS, command_for


@pytest.mark.parametrize(
    ("typed", "name", "found"),
    [
        ("CloseFalsePositive ~12", "CloseFalsePositive", "~12"),
        ("~12 CloseFalsePositive", "CloseFalsePositive", "~12"),
        ("Close False Positive 12", "Close False Positive", "~12"),
        ("“Close 2” ~12", "Close 2", "~12"),
        ("Close\u00a0it\u200b ～12", "Close it", "~12"),
        ("close <https://hive.example/alerts/~12/details|the alert>", "close", "~12"),
        ("close `~12`", "close", "~12"),
        ("close %7E12", "close", "~12"),
        ("close", "close", ""),
        ("", "", ""),
        ("2 ~12", "2", "~12"),
        ("~0012", "", "~12"),
    ],
)
def test_name_and_id_are_found_however_they_are_typed(typed: str, name: str, found: str) -> None:
    assert split_name_and_id(typed) == (name, found)


def test_smart_quotes_blanks_and_links_are_normalized() -> None:
    assert normalize("run\u00a0“A B”  &lt;x&gt; <http://a.example|a>") == 'run "A B" <x> http://a.example'
    assert split_words('run "A B" \'c d\' e"f') == ["run", "A B", "c d", 'e"f']


@pytest.mark.parametrize(
    ("typed", "rest", "given"),
    [
        ("Block ~12 minutes=30", "Block ~12", {"minutes": "30"}),
        ("Block reason=“lateral movement” ~12", "Block ~12", {"reason": "lateral movement"}),
        ("Block ~12 to='it, soc' n=", "Block ~12", {"to": "it, soc", "n": ""}),
        ('Block ~12 reason="see ~13" a-b=c=d', "Block ~12", {"reason": "see ~13", "a-b": "c=d"}),
        ("Block ~12 reason=don't stop=\"half", "Block ~12", {"reason": "don't", "stop": '"half'}),
        ("Block ~12 https://a.example/?q=1 =x 1=2", "Block ~12 https://a.example/?q=1 =x 1=2", {}),
        ('"Block it=now" ~12', '"Block it=now" ~12', {}),
        (
            "Block ~12 what=<movement> at=<https://a.example|a>",
            "Block ~12",
            {"what": "<movement>", "at": "https://a.example"},
        ),
        ("Block ~12 a=1 a=2", "Block ~12", {"a": "2"}),
        ("Block on LT-1 for 2h", "Block on LT-1", {"for": "2h"}),
        (
            'Block ~12 for 90 minutes note="out for 2 days"',
            "Block ~12",
            {"for": "90 minutes", "note": "out for 2 days"},
        ),
        ("Look for 12", "Look for 12", {}),
    ],
)
def test_inputs_are_taken_out_of_a_command(typed: str, rest: str, given: dict[str, str]) -> None:
    assert split_inputs(typed) == (rest, given)


@pytest.mark.parametrize(
    ("typed", "name", "found"),
    [
        ("Isolate Host 18 20", "Isolate Host", ["~18", "~20"]),
        ("Isolate Host ~18, 20", "Isolate Host", ["~18", "~20"]),
        ("~18 Close 2 ~20", "Close 2", ["~18", "~20"]),
        ("Close 2 ~18", "Close 2", ["~18"]),
        ("~18 Close 2", "Close 2", ["~18"]),
        ("~18,~20 Block 7 now", "Block 7 now", ["~18", "~20"]),
        ("isolate 18, 20 and 22", "isolate", ["~18", "~20", "~22"]),
        ("isolate on ~18, ~20 and ~22", "isolate on", ["~18", "~20", "~22"]),
        ("Search and Close 2 18,20 & 22", "Search and Close", ["~2", "~18", "~20", "~22"]),
        ("Search and Close 18", "Search and Close", ["~18"]),
        ("18 and ~20 Block 7", "18 and Block 7", ["~20"]),
    ],
)
def test_several_ids_are_found_with_and_without_a_tilde(typed: str, name: str, found: list[str]) -> None:
    assert split_name_and_ids(typed) == (name, found)


def test_ids_are_found_in_any_message() -> None:
    text = "see ~12, and https://h.example/alert/~13?x=1 or <https://h.example/cases/14|c>; ~12 again, not 99 or a~b"
    assert find_ids(text) == ["~12", "~13", "~14"]


def test_names_match_by_case_prefix_and_part() -> None:
    names = ["CloseFalsePositive", "Mailer", "mailer_2", "Close"]
    assert match_names("Close", names) == ["Close"]
    assert match_names("closef", names) == ["CloseFalsePositive"]
    assert match_names("MAIL", names) == ["Mailer", "mailer_2"]
    assert match_names("false positive", names) == ["CloseFalsePositive"]
    assert match_names("", names) == []


def test_closest_verb_is_found() -> None:
    assert closest_match("lsit", ["list", "run", "help"]) == "list"
    assert closest_match("rnu", ["list", "run", "help"]) == "run"
    assert closest_match("zzz", ["list"]) is None


def test_closest_responder_is_found_by_a_part_of_its_name() -> None:
    names = ["Demo_Detonate_1_0", "Demo_Isolate_Host_1_0", "ResponderBot_CloseAsFalsePositive_1_0"]
    assert closest_match("isloate", names) == "Demo_Isolate_Host_1_0"
    assert closest_match("isolat hots", names) == "Demo_Isolate_Host_1_0"
    assert closest_match("false postive", names) == "ResponderBot_CloseAsFalsePositive_1_0"
    assert closest_match("delete everything", names) is None


def test_verb_selects_the_entry() -> None:
    assert command_for("list ~12") == (COMMANDS["list"].entry, "~12")
    assert command_for("LIST\u00a0~12") == (COMMANDS["list"].entry, "~12")
    assert command_for("  ") == (COMMANDS["start"].entry, "")
    assert command_for("lsit ~12") == (UNKNOWN, "lsit ~12")
    assert command_for("list") == (MISTYPED, "list")
    assert command_for("list all") == (WITHOUT_ID, "list all")
    assert command_for("run ~12") == (MISTYPED, "run ~12")


@given(st.text(max_size=200))
def test_any_text_can_be_parsed(text: str) -> None:
    split_name_and_id(text)
    split_inputs(text)
    find_ids(text)
    command_for(text)
    found = parse_id(text)
    assert found is None or found[1:].isdigit()
