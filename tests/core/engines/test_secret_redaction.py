"""No configured secret is stored, however a program encodes it."""

import base64
import html
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.engines.job_folder import RunFacts
from core.engines.run_report import RunOutput, interpret
from core.engines.secret_redaction import REMOVED, Redactor, redact_urls, secrets_in, secrets_in_url
from core.reports import report as reports

ENCODERS: Mapping[str, Callable[[str], str]] = {
    "as it is": str,
    "percent": lambda text: quote(text, safe=""),
    "percent, paths": quote,
    "percent, small letters": lambda text: re.sub("%..", lambda found: found[0].lower(), quote(text, safe="")),
    "form": quote_plus,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for addresses": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "basic": lambda text: base64.b64encode(f"ann:{text}".encode()).decode(),
    "basic, another": lambda text: base64.b64encode(f"bo:{text}".encode()).decode(),
    "JSON": lambda text: json.dumps(text),
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "JSON, unescaped": lambda text: json.dumps(text, ensure_ascii=False),
    "HTML": html.escape,
    "HTML, quotes": lambda text: html.escape(text, quote=False),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    "printed": repr,
    "printed bytes": lambda text: repr(text.encode()),
}

SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=40)
FIELDS = ("full", "summary", "artifacts", "operations", "errorMessage", "input", "printed")


def texts_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in texts_in(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts_in(item)]
    return [value] if isinstance(value, str) else []


def stored(facts: RunFacts, output: dict[str, Any], printed: str) -> list[str]:
    """All texts in the stored action of such a run."""
    found = []
    for fault in ("", "wrote no output/output.json"):
        report = interpret(facts, RunOutput(output, fault, printed), "", "")
        written = reports.serialize(
            reports.prepare(report, {}, reports.ReportLimits()), [{}] * len(report.operations), reports.ReportLimits()
        )
        whole = json.loads(written.whole_report or written.report)
        found += texts_in([whole, json.loads(written.whole_operations or written.operations), report.printed])
    return found


FIXED = (
    " ".join(
        text
        for success in (True, False)
        for text in stored(RunFacts(1, frozenset(), (), {}), {"success": success, "full": {}, "input": {}}, "")
    )
    + " REMOVED message deep taxonomies type tag AddTagToAlert data asked"
)
"""The texts of every report, regardless of the program."""


def decoded_in(text: str) -> str:
    """Everything in a text that can be decoded as Base64, at each alignment."""
    found = ""
    for token in re.findall(r"[A-Za-z0-9+/_-]{8,}", text):
        plain = token.replace("-", "+").replace("_", "/")
        for start in range(4):
            part = plain[start : start + (len(plain) - start) // 4 * 4]
            found += base64.b64decode(part).decode("utf-8", "replace") + "\n"
    return found


@settings(max_examples=60, deadline=None)
@given(
    secrets=st.lists(SECRETS, min_size=1, max_size=4, unique=True),
    around=st.tuples(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.text("ab<&%\"'\\ +/=", max_size=9)
    ),
    encoders=st.lists(st.sampled_from(sorted(ENCODERS)), min_size=3, max_size=3),
    success=st.booleans(),
)
def test_no_encoding_of_a_secret_is_in_the_stored_action(
    secrets: list[str], around: tuple[str, str], encoders: list[str], success: bool
) -> None:
    fixed = FIXED.lower()
    forms = [encode(secret) for secret in secrets for encode in ENCODERS.values()]
    assume(not any(form.lower().strip("\"'") in fixed for form in forms))
    leaks = [around[0] + ENCODERS[name](secret) + around[1] for name in encoders for secret in secrets]
    echo = {"message": leaks[0], leaks[-1]: leaks, "deep": [{"a": {"b": leaks}}]}
    output = {
        "success": success, "full": echo, "summary": {"taxonomies": [echo]}, "artifacts": [echo],
        "operations": [{"type": "AddTagToAlert", "tag": leaks[0]}, echo], "errorMessage": echo if success else leaks[0],
        "input": {"data": echo},
    }  # fmt: skip
    found = stored(RunFacts(1, frozenset(), tuple(secrets), {}), output, "\n".join(leaks))
    for text in found:
        rest = text.replace(REMOVED, "\0")
        for secret in secrets:
            for name, encode in ENCODERS.items():
                assert encode(secret) not in rest, name
            if not set(secret) <= set(around[0] + around[1]):
                assert secret not in decoded_in(rest)


def test_hundreds_of_secrets_are_redacted_in_a_long_text() -> None:
    secrets = [f"secret-{number:05}" for number in range(300)]
    text = "nothing to see, secret- only, " * 20_000 + " ".join(secrets)
    assert Redactor(secrets).text(text) == "nothing to see, secret- only, " * 20_000 + " ".join([REMOVED] * 300)


@pytest.mark.parametrize("start", range(65_500, 65_560, 7))
def test_a_secret_is_redacted_at_any_position_in_a_long_text(start: int) -> None:
    text = "x" * start + "open sesame" + "y" * 70_000 + "open sesame"
    assert Redactor(["open sesame"]).text(text) == text.replace("open sesame", REMOVED)


def test_short_secrets_stay_and_numbers_are_redacted() -> None:
    assert Redactor(["abc", "123456"]).value(["abcdef", 123456, 1234567, True, "pin 123456"]) == [
        "abcdef",
        REMOVED,
        1234567,
        True,
        f"pin {REMOVED}",
    ]


@pytest.mark.parametrize(
    ("text", "shown", "secrets"),
    [
        ("http://ann:pw@proxy:3128/x", "http://REMOVED@proxy:3128/x", {"ann:pw", "pw"}),
        ("see https://a:b%40c@h, ok", "see https://REMOVED@h, ok", {"a:b%40c", "a:b@c", "b%40c", "b@c"}),
        ("https://x.example/?q=1&api_key=k-1&keyword=z", "https://x.example/?q=1&api_key=REMOVED&keyword=z", {"k-1"}),
        ("https://h/?accessToken=a%2Fb#top", "https://h/?accessToken=REMOVED#top", {"a%2Fb", "a/b"}),
        ("https://0123456789abcdef@git.example", "https://REMOVED@git.example", {"0123456789abcdef"}),
        ("https://deploy@git.example", "https://REMOVED@git.example", set()),
        ("mail ann@example.org, a token=5", "mail ann@example.org, a token=5", set()),
    ],
)
def test_logins_and_keys_in_urls_are_redacted(text: str, shown: str, secrets: set[str]) -> None:
    assert redact_urls({"url": [text]}) == {"url": [shown]}
    assert secrets_in_url(text) == secrets


def test_secrets_are_found_by_their_keys_at_any_depth() -> None:
    config = {"a": {"api_key": ["one", 7]}, "use_key": True, "url": "http://u:hidden@h", "odd": ["x"]}
    assert secrets_in(config, frozenset({"odd"})) == {"one", "7", "x"}
    assert secrets_in(config, urls=True) >= {"one", "hidden", "u:hidden"}
