"""Foreign text for Slack."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.block_kit.text import (
    clip,
    code,
    defang_indicators,
    duration,
    foreign,
    foreign_plain,
    person_name,
    slack_date,
    strip_markup,
    time_ahead,
    utc_time,
)
from bot.clearance import defang
from core.common.clock import HOUR_MS


@given(st.text(max_size=300), st.integers(1, 80))
def test_foreign_text_keeps_its_limit_and_holds_no_markup(text: str, limit: int) -> None:
    shown = foreign(text, limit)
    assert len(shown) <= limit
    assert "<" not in shown
    assert ">" not in shown
    for rest in shown.split("&")[1:]:
        assert rest.startswith(("amp;", "lt;", "gt;"))


def test_foreign_text_cannot_mention_anybody() -> None:
    assert foreign("<!channel> & <@U1>", 100) == "&lt;!channel&gt; &amp; &lt;@U1&gt;"


def test_an_entity_is_never_cut() -> None:
    assert foreign("a&b&c", 9) == "a&amp;b…"


def test_bidirectional_characters_are_left_out() -> None:
    assert foreign("invoice\u202egpj.exe\u200b", 100) == "invoicegpj.exe"
    assert foreign_plain("\u202e", 10) == "(no name)"


def test_text_on_one_line_has_no_line_breaks() -> None:
    assert foreign(" a\n\n b\t", 100) == "a b"
    assert foreign(" a\n b", 100, lines=True) == "a\n b"


def test_a_plain_text_field_shows_no_signs_of_markup() -> None:
    assert (
        strip_markup("Only in `try`, *really* or **so**; *.exe and 2 * 3")
        == "Only in try, really or so; *.exe and 2 * 3"
    )


def test_code_is_not_ended_by_a_backtick() -> None:
    assert code("a`b", 20) == "`aˋb`"


def test_clipped_text_ends_with_an_ellipsis() -> None:
    assert clip("abcdef", 4) == "abc…"


@pytest.mark.parametrize(
    ("data", "kind", "shown"),
    [
        ("https://evil.example/a.exe", "url", "hxxps[://]evil[.]example/a[.]exe"),
        ("hxxps://evil[.]example", "url", "hxxps[://]evil[.]example"),
        ("203.0.113.7", "ip", "203[.]0[.]113[.]7"),
        ("a@evil.example", "mail", "a[@]evil[.]example"),
        ("d41d8cd9.bin", "filename", "d41d8cd9.bin"),
    ],
)
def test_an_observable_can_not_be_clicked(data: str, kind: str, shown: str) -> None:
    assert defang(data, kind) == shown


@pytest.mark.parametrize(
    ("ms", "words"),
    [(420, "0.4 s"), (12_000, "12 s"), (185_000, "3 min 5 s"), (7_440_000, "2 h 4 min"), (262_800_000, "3 d 1 h")],
)
def test_a_duration_has_its_two_largest_units(ms: int, words: str) -> None:
    assert duration(ms) == words


def test_times_are_in_the_readers_time_zone_with_utc_as_a_fallback() -> None:
    assert slack_date(1_763_690_400_000, "{time}") == "<!date^1763690400^{time}|2025-11-21 02:00 UTC>"
    assert "^{time}|" in time_ahead(1_763_690_400_000, 1_763_690_400_000 - 12 * HOUR_MS)
    assert "^{date_short_pretty} {time}|" in time_ahead(1_763_690_400_000, 1_763_690_400_000 - 12 * HOUR_MS - 1)
    assert utc_time(2**53) == "an unknown time"


def test_a_person_is_named_and_never_mentioned() -> None:
    assert person_name("anna@soc.example") == "anna"
    assert person_name("<@U1>") == "&lt;"


def test_a_file_is_no_address_and_is_shown_as_it_is() -> None:
    text = "winword.exe started cmd.exe from Invoice_2291.docm, then evil.example/a.exe and a@b.example, host.zip"
    assert defang_indicators(text) == (
        "winword.exe started cmd.exe from Invoice_2291.docm, then evil[.]example/a.exe and a[@]b[.]example, host[.]zip"
    )
