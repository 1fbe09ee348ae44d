"""What people type, mended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.features import COMMANDS, command_for
from bot.features.help import MISTYPED, UNKNOWN
from bot.features.typed import by_name, ids_in, mended, nearest, object_id, split_name_and_id, words


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
        ("close", "close", None),
        ("", "", None),
        ("2 ~12", "2", "~12"),
        ("~0012", "", "~12"),
    ],
)
def test_a_name_and_an_id_are_found_however_they_are_typed(typed: str, name: str, found: str | None) -> None:
    assert split_name_and_id(typed) == (name, found)


def test_smart_quotes_blanks_and_links_are_mended() -> None:
    assert mended("run\u00a0“A B”  &lt;x&gt; <http://a.example|a>") == 'run "A B" <x> http://a.example'
    assert words('run "A B" \'c d\' e"f') == ["run", "A B", "c d", 'e"f']


def test_ids_are_found_in_any_message() -> None:
    text = "see ~12, and https://h.example/alert/~13?x=1 or <https://h.example/cases/14|c>; ~12 again, not 99 or a~b"
    assert ids_in(text) == ["~12", "~13", "~14"]


def test_a_name_may_be_cut_short_when_only_one_begins_so() -> None:
    names = ["CloseFalsePositive", "Mailer", "mailer_2", "Close"]
    assert by_name("Close", names) == ["Close"]
    assert by_name("closef", names) == ["CloseFalsePositive"]
    assert by_name("MAIL", names) == ["Mailer", "mailer_2"]
    assert by_name("false positive", names) == ["CloseFalsePositive"]
    assert by_name("", names) == []


def test_a_verb_that_nearly_is_one_is_guessed() -> None:
    assert nearest("lsit", ["list", "run", "help"]) == "list"
    assert nearest("zzz", ["list"]) is None


def test_the_verb_decides_and_nothing_typed_leads_through_a_modal() -> None:
    assert command_for("list ~12") == (COMMANDS["list"].entry, "~12")
    assert command_for("LIST\u00a0~12") == (COMMANDS["list"].entry, "~12")
    assert command_for("  ") == (COMMANDS["start"].entry, "")
    assert command_for("lsit ~12") == (UNKNOWN, "lsit ~12")
    assert command_for("list all") == (MISTYPED, "list all")
    assert command_for("run ~12") == (MISTYPED, "run ~12")


@given(st.text(max_size=200))
def test_no_text_breaks_the_reading(text: str) -> None:
    split_name_and_id(text)
    ids_in(text)
    command_for(text)
    found = object_id(text)
    assert found is None or found[1:].isdigit()
