"""Redaction of secrets in reports and logs: by the names of keys, and by values wherever they appear in text."""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from core.common.words import SECRET_WORDS

REMOVED = "REMOVED"
"""The text that replaces a secret."""

SHORTEST_SECRET = 6
"""Characters. Shorter values are not redacted in text, since they appear in ordinary words."""

_LOGIN = re.compile(r"(?<=://)[^/\s?#\"'<>]*@")
_QUERY_PARAMETER = re.compile(r"(?<=[?&;])([^=&;#\s\"'<>]*)=([^&;#\s\"'<>]+)")
_SECRET_PARAMETERS = (*SECRET_WORDS, "apikey", "passwd", "pass", "auth", "sig", "signature", "credential")
_PERCENT_SAFE = ("", "/", "-_.!~*'()", ";,/?:@&=+$-_.!~*'()#")
"""What the usual percent-encoders leave unchanged: two of Python and two of JavaScript."""

_TOKEN_CHARACTERS = 16
"""A login in a URL without a password counts as an access token from this length on."""

_MAX_FOREIGN_SECRETS = 50
_MAX_FOREIGN_CHARACTERS = 8 * 1024

_WINDOW = 64 * 1024
"""Characters that are searched at once: other threads can't run during a search."""


class Redactor:
    """Replaces secrets in text and in JSON values, in one pass regardless of their number.

    `secrets` shorter than SHORTEST_SECRET are ignored. `names` maps other text, such as a path, to its replacement.
    """

    def __init__(self, secrets: Iterable[str], names: Mapping[str, str] | None = None) -> None:
        known = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        self._names = {text: name for text, name in (names or {}).items() if len(text) >= SHORTEST_SECRET}
        self._numbers = {secret for secret in known if secret.replace(".", "", 1).lstrip("-").isdigit()}
        texts = {form for secret in known for form in encodings_of(secret)} | set(self._names)
        self._longest = max(map(len, texts), default=0)
        self._pattern = re.compile(_alternatives(sorted(texts))) if texts else None

    def text(self, text: str) -> str:
        if self._pattern is None:
            return text
        parts, end = [], 0
        for match in self._matches(self._pattern, text):
            parts += [text[end : match.start()], self._names.get(match[0], REMOVED)]
            end = match.end()
        return "".join([*parts, text[end:]]) if parts else text

    def value(self, value: Any) -> Any:
        """Redact a JSON value, its keys included."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        is_secret = self._numbers and isinstance(value, int | float) and str(value) in self._numbers
        return REMOVED if is_secret else value

    def _matches(self, pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
        start = 0
        while start < len(text):
            match = pattern.search(text, start, start + _WINDOW + self._longest)
            if match is None or match.start() >= start + _WINDOW:  # a later match may be cut off by the window's end
                start += _WINDOW
            else:
                yield match
                start = match.end()


def cap_secrets(secrets: Iterable[str]) -> list[str]:
    """The longest of secrets that came from a request or another server, few enough to search for quickly."""
    remaining = _MAX_FOREIGN_CHARACTERS
    kept: list[str] = []
    for secret in sorted(secrets, key=len, reverse=True):
        if SHORTEST_SECRET <= len(secret) <= remaining and len(kept) < _MAX_FOREIGN_SECRETS:
            kept.append(secret)
            remaining -= len(secret)
    return kept


def secrets_in(value: Any, secret_names: frozenset[str] = frozenset(), *, urls: bool = False) -> set[str]:
    """The strings and numbers under secret keys, numbers as text; with `urls` also the secrets in URLs."""
    if isinstance(value, Mapping):
        secrets: set[str] = set()
        for key, item in value.items():
            is_secret = _is_secret(key, item, secret_names)
            secrets |= set(_leaves(item)) if is_secret else secrets_in(item, secret_names, urls=urls)
        return secrets
    if isinstance(value, list | tuple):
        return {secret for item in value for secret in secrets_in(item, secret_names, urls=urls)}
    return secrets_in_url(value) if urls and isinstance(value, str) else set()


def secrets_in_url(text: str) -> set[str]:
    """Passwords, access tokens and secret query parameters in the URLs of a text, encoded and decoded."""
    secrets: set[str] = set()
    for match in _LOGIN.finditer(text):
        login = match[0][:-1]
        user, has_password, password = login.partition(":")
        if has_password:
            credentials = login if len(login) >= SHORTEST_SECRET else match[0]
            secrets |= {credentials, unquote(credentials), password, unquote(password)}
        elif len(user) >= _TOKEN_CHARACTERS:
            secrets |= {user, unquote(user)}
    for match in _QUERY_PARAMETER.finditer(text):
        if _is_secret_parameter(match[1]):
            secrets |= {match[2], unquote_plus(match[2])}
    return secrets


def redact_urls(value: Any) -> Any:
    """Redact logins and secret query parameters of the URLs in a JSON value."""
    if isinstance(value, str):
        return _QUERY_PARAMETER.sub(_redact_parameter, _LOGIN.sub(f"{REMOVED}@", value))
    if isinstance(value, Mapping):
        return {key: redact_urls(item) for key, item in value.items()}
    return [redact_urls(item) for item in value] if isinstance(value, list | tuple) else value


def _redact_parameter(match: re.Match[str]) -> str:
    return f"{match[1]}={REMOVED}" if _is_secret_parameter(match[1]) else match[0]


def redact_keys(value: Any, secret_names: frozenset[str] = frozenset()) -> Any:
    """Redact the values under secret keys: those in `secret_names`, and those that contain one of SECRET_WORDS."""
    if isinstance(value, Mapping):
        return {
            key: REMOVED if _is_secret(key, item, secret_names) else redact_keys(item, secret_names)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact_keys(item, secret_names) for item in value]
    return value


def encodings_of(secret: str) -> set[str]:
    """A secret in every encoding in which programs usually print it."""
    once = _escaped(secret)
    forms = {secret, *once, *(twice for form in once for twice in _escaped(form))}
    raw = secret.encode("utf-8", "replace")
    for safe in _PERCENT_SAFE:
        forms |= _both_cases(quote(raw, safe=safe)) | _both_cases(quote_plus(raw, safe=safe))
    forms |= {raw.hex(), raw.hex().upper(), *_base64(raw)}
    return {form for form in forms if len(form) >= SHORTEST_SECRET}


def _escaped(text: str) -> set[str]:
    """As written in JSON, in HTML, and in a Python literal."""
    in_json = {json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    in_json |= {form.replace("/", "\\/") for form in in_json}
    in_html = html.escape(text)
    return {
        *in_json,
        *(html.escape(text, quote=False), in_html, in_html.replace("&#x27;", "&#39;"), in_html.replace("&#x27;", "'")),
        *(in_html.replace("&#x27;", "&apos;"), in_html.replace("&quot;", "&#34;").replace("&#x27;", "&#39;")),
        *(repr(text)[1:-1], repr(text.encode("utf-8", "replace"))[2:-1], ascii(text)[1:-1]),
    }


def _both_cases(encoded: str) -> set[str]:
    """Percent-encoded text with capital and with small hexadecimal digits."""
    return {encoded, re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)}


def _base64(raw: bytes) -> set[str]:
    """The Base64 text of `raw` alone and inside longer data such as `user:raw`, at each of the three alignments."""
    encoded = {base64.b64encode(raw).decode(), base64.b64encode(raw).decode().rstrip("=")}
    for before in range(3):
        text = base64.b64encode(b"\0" * before + raw).decode()
        encoded.add(text[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6])
    return encoded | {text.replace("+", "-").replace("/", "_") for text in encoded}


def _alternatives(texts: list[str]) -> str:
    """A pattern that matches the longest of some sorted texts. As a trie, it tries one alternative per character."""
    alternatives: list[str] = []
    start = 0
    for end in range(1, len(texts) + 1):
        if end < len(texts) and texts[end][:1] == texts[start][:1]:
            continue
        group = texts[start:end]
        prefix = _common_prefix(group[0], group[-1])  # of sorted texts that is the prefix of all
        rest = [text[len(prefix) :] for text in group]
        pattern = re.escape(prefix)
        if len(rest) > 1:
            pattern += f"(?:{_alternatives([text for text in rest if text])})" + ("?" if "" in rest else "")
        alternatives.append(pattern)
        start = end
    return "|".join(alternatives)


def _common_prefix(text: str, other: str) -> str:
    length = next((n for n, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    return text[:length]


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str):
        yield value
        yield value.strip()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _is_secret(key: Any, item: Any, secret_names: frozenset[str]) -> bool:
    """Empty values are shown, and booleans unless named: `use_key: false` helps readers of a report."""
    if item is None or item == "":
        return False
    name = str(key).lower()
    return str(key) in secret_names or (not isinstance(item, bool) and any(word in name for word in SECRET_WORDS))


def _is_secret_parameter(name: str) -> bool:
    """Whether a query parameter holds a secret, by the end of its name: `api_key` does, `keyword` doesn't."""
    return unquote(name).lower().endswith(_SECRET_PARAMETERS)
