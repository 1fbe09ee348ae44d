"""The rules of responders in the settings: what they may be, and one sentence for what they may not."""

from pathlib import Path

import pytest

from core.common.errors import ResponderBotError
from core.settings import OnlyOnSection, Rate, load

HEADER = '[responder."A_1_0"]\n'


def loaded(folder: Path, text: str, environ: dict[str, str] | None = None) -> object:
    file = folder / "r.toml"
    file.write_text(text)
    return load(file, environ or {})


def test_all_rules_are_read(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text(
        f'{HEADER}run_by = ["@containment", "anna", "ben@example.org"]\napprove_by = ["@leads"]\n'
        'only_on = { data_types = ["ip"], tags = ["prod"], severity_at_least = 2 }\n'
        'rate = ["5/1h", "20/1d"]\nrate_per_target = "1/24h"\n'
        '[protect]\nartifacts = ["10.0.0.0/8", "file:jewels.txt", "file:/etc/jewels"]\n'
    )
    settings = load(file, {})
    section = settings.responder["A_1_0"]
    assert section.run_by == ("@containment", "anna", "ben@example.org")
    assert (section.approve_by, section.approval) == (("@leads",), 1)
    assert section.only_on == OnlyOnSection(data_types=("ip",), tags=("prod",), severity_at_least=2)
    assert (section.rate, section.rate_per_target) == (("5/1h", "20/1d"), ("1/24h",))
    assert settings.protect.artifacts == ("10.0.0.0/8", f"file:{tmp_path}/jewels.txt", "file:/etc/jewels")
    assert Rate.parse("5/90m") == Rate(5, 5_400_000, "5/90m")
    by_variable = load(None, {"RESPONDER_BOT_PROTECT_ARTIFACTS": "2001:db8::/32, dc01"})
    assert by_variable.protect.artifacts == ("2001:db8::/32", "dc01")


NAMES = 'must be a list of logins and groups, such as ["anna", "@containment"].'
RATES = 'must be a list of rates, such as ["5/1h", "20/1d"]; the units are s, m, h and d.'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'{HEADER}run_by = "anna"', f'[responder."A_1_0"] run_by {NAMES}'),
        (f'{HEADER}run_by = ["@Containment"]', f"run_by {NAMES}"),
        (f'{HEADER}run_by = ["an na"]', f"run_by {NAMES}"),
        (f'{HEADER}approve_by = [""]', f"approve_by {NAMES}"),
        (f"{HEADER}approve_by = []", "approve_by is empty, so no run could ever start; name somebody."),
        *((f'{HEADER}rate = ["{rate}"]', f"rate {RATES}") for rate in ("5", "0/1h", "5/h", "5/1w", "-1/1h", "1/0h")),
        (f"{HEADER}rate_per_target = 5", f"rate_per_target {RATES}"),
        (
            f"{HEADER}only_on = {{ severity_at_least = 5 }}",
            "only_on.severity_at_least must be a whole number from 1 to",
        ),
        (f"{HEADER}only_on = {{ tag = ['x'] }}", 'only_on has no key "tag"; did you mean "tags"?'),
        (f"{HEADER}protect = 'yes?'", "protect must be true or false."),
        (
            f'{HEADER}[responder."a_1_0"]',
            'and [responder."a_1_0"], which mean the same responder;',
        ),
        ("[protect]\nartifact = []", '[protect] has no key "artifact"; did you mean "artifacts"?'),
        ("[protect]\nartifacts = 5", "[protect] artifacts must be a list of strings, such as"),
        ('[protect]\nartifacts = ["10.0.0.0/33"]', "[protect] artifacts: '10.0.0.0/33' is no network;"),
    ],
)
def test_a_wrong_rule_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ResponderBotError) as error:
        loaded(tmp_path, text)
    assert error.value.code == "bad_request"
    assert words in error.value.message
    assert "\n" not in error.value.message


def test_no_two_sources_have_the_same_secret(tmp_path: Path) -> None:
    """Else what is signed for one could be sent to the other."""
    one, other = "the secret of the first", "the secret of the second"
    same = f'[source.a]\nhmac_keys = ["{one}", "{other}"]\n[source.b]\nhmac_keys = ["{other}"]\n'
    with pytest.raises(ResponderBotError, match=r"have the same secret in hmac_keys"):
        loaded(tmp_path, same)
    loaded(tmp_path, f'[source.a]\nhmac_keys = ["{one}"]\n[source.b]\nhmac_keys = ["{other}"]\n')
