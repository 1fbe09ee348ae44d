"""Takes secrets out of what is stored: by the names of their keys, and by their values wherever these come back."""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

REMOVED = "REMOVED"
"""What stands in a report where a secret was."""

SECRET_WORDS = ("key", "password", "pwd", "secret", "token")

SHORTEST_SECRET = 6
"""A value shorter than this is not taken out of texts: it would take out half of every word."""

_LOGIN = re.compile(r"(?<=://)[^/\s?#\"'<>]*@")
_QUERY_ITEM = re.compile(r"(?<=[?&;])([^=&;#\s\"'<>]*)=([^&;#\s\"'<>]+)")
_SECRET_ITEMS = (*SECRET_WORDS, "apikey", "passwd", "pass", "auth", "sig", "signature", "credential")
_PERCENT_SAFE = ("", "/", "-_.!~*'()", ";,/?:@&=+$-_.!~*'()#")
"""What the usual encoders leave as it is: Python's two, and JavaScript's two."""

_TOKEN_CHARACTERS = 16
"""A login without a password that is as long as this is a key, and no name."""

_NAMED_SECRETS = 50
_NAMED_CHARACTERS = 8 * 1024

_WINDOW = 64 * 1024
"""Characters that are searched at once: a regular expression lets nothing else run meanwhile."""


class Redactor:
    """Replaces secrets in texts and in values, in one pass however many there are.

    `secrets` shorter than SHORTEST_SECRET are ignored. `names` are other texts with what stands in their place, such
    as a path and the name of its folder.
    """

    def __init__(self, secrets: Iterable[str], names: Mapping[str, str] | None = None) -> None:
        known = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        self._instead = {text: name for text, name in (names or {}).items() if len(text) >= SHORTEST_SECRET}
        self._numbers = {secret for secret in known if secret.replace(".", "", 1).lstrip("-").isdigit()}
        texts = {form for secret in known for form in encodings_of(secret)} | set(self._instead)
        self._longest = max(map(len, texts), default=0)
        self._pattern = re.compile(_any_of(sorted(texts))) if texts else None

    def text(self, text: str) -> str:
        """The text without secrets."""
        if self._pattern is None:
            return text
        parts, done = [], 0
        for match in self._found(text):
            parts += [text[done : match.start()], self._instead.get(match[0], REMOVED)]
            done = match.end()
        return "".join([*parts, text[done:]]) if parts else text

    def value(self, value: Any) -> Any:
        """A JSON value without secrets, in its keys as well."""
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

    def _found(self, text: str) -> Iterator[re.Match[str]]:
        assert self._pattern is not None  # noqa: S101 - looked at by `text`
        at = 0
        while at < len(text):
            match = self._pattern.search(text, at, at + _WINDOW + self._longest)
            if match is None or match.start() >= at + _WINDOW:  # one that begins later may be cut off here
                at += _WINDOW
            else:
                yield match
                at = match.end()


def cap_secrets(secrets: Iterable[str]) -> list[str]:
    """As many of secrets that a request or another server named as can be looked for in little time, longest first."""
    left = _NAMED_CHARACTERS
    kept: list[str] = []
    for secret in sorted(secrets, key=len, reverse=True):
        if SHORTEST_SECRET <= len(secret) <= left and len(kept) < _NAMED_SECRETS:
            kept.append(secret)
            left -= len(secret)
    return kept


def secrets_in(value: Any, secret_names: frozenset[str] = frozenset(), *, urls: bool = False) -> set[str]:
    """The texts and numbers under keys that name a secret; with `urls` also logins and keys inside of addresses."""
    if isinstance(value, Mapping):
        found: set[str] = set()
        for key, item in value.items():
            is_named = _is_secret(key, item, secret_names)
            found |= set(_leaves(item)) if is_named else secrets_in(item, secret_names, urls=urls)
        return found
    if isinstance(value, list | tuple):
        return {secret for item in value for secret in secrets_in(item, secret_names, urls=urls)}
    return secrets_in_url(value) if urls and isinstance(value, str) else set()


def secrets_in_url(text: str) -> set[str]:
    """Logins and keys inside of the addresses of a text."""
    found: set[str] = set()
    for match in _LOGIN.finditer(text):
        login = match[0][:-1]
        user, has_password, password = login.partition(":")
        if has_password:
            whole = login if len(login) >= SHORTEST_SECRET else match[0]
            found |= {whole, unquote(whole), password, unquote(password)}
        elif len(user) >= _TOKEN_CHARACTERS:
            found |= {user, unquote(user)}
    for match in _QUERY_ITEM.finditer(text):
        if _is_secret_item(match[1]):
            found |= {match[2], unquote_plus(match[2])}
    return found


def redact_urls(value: Any) -> Any:
    """A value whose addresses show neither login nor key."""
    if isinstance(value, str):
        text = _LOGIN.sub(f"{REMOVED}@", value)
        return _QUERY_ITEM.sub(lambda item: f"{item[1]}={REMOVED}" if _is_secret_item(item[1]) else item[0], text)
    if isinstance(value, Mapping):
        return {key: redact_urls(item) for key, item in value.items()}
    return [redact_urls(item) for item in value] if isinstance(value, list | tuple) else value


def redact_keys(value: Any, secret_names: frozenset[str] = frozenset()) -> Any:
    """`value` with every secret replaced by REMOVED: by the names given, and by words in a key."""
    if isinstance(value, Mapping):
        return {
            key: REMOVED if _is_secret(key, item, secret_names) else redact_keys(item, secret_names)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact_keys(item, secret_names) for item in value]
    return value


def encodings_of(secret: str) -> set[str]:
    """A text in all the forms in which programs usually give it back."""
    once = _escaped(secret)
    forms = {secret, *once, *(twice for form in once for twice in _escaped(form))}
    raw = secret.encode("utf-8", "replace")
    for safe in _PERCENT_SAFE:
        forms |= {encoded for text in (quote(raw, safe=safe), quote_plus(raw, safe=safe)) for encoded in _cases(text)}
    forms |= {raw.hex(), raw.hex().upper(), *_base64(raw)}
    return {form for form in forms if len(form) >= SHORTEST_SECRET}


def _escaped(text: str) -> set[str]:
    """As it stands in JSON, HTML, and in what Python prints of values."""
    in_json = {json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    in_json |= {form.replace("/", "\\/") for form in in_json}
    in_html = html.escape(text)
    return {
        *in_json,
        *(html.escape(text, quote=False), in_html, in_html.replace("&#x27;", "&#39;"), in_html.replace("&#x27;", "'")),
        *(in_html.replace("&#x27;", "&apos;"), in_html.replace("&quot;", "&#34;").replace("&#x27;", "&#39;")),
        *(repr(text)[1:-1], repr(text.encode("utf-8", "replace"))[2:-1], ascii(text)[1:-1]),
    }


def _cases(encoded: str) -> set[str]:
    return {encoded, re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)}


def _base64(raw: bytes) -> set[str]:
    """The characters that `raw` alone decides, wherever it begins within three bytes: also as `user:raw`."""
    found = {base64.b64encode(raw).decode(), base64.b64encode(raw).decode().rstrip("=")}
    for before in range(3):
        text = base64.b64encode(b"\0" * before + raw).decode()
        found.add(text[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6])
    return found | {text.replace("+", "-").replace("/", "_") for text in found}


def _any_of(texts: list[str]) -> str:
    """An expression for the longest of some sorted texts, in which no two ways begin with the same character."""
    ways: list[str] = []
    start = 0
    for end in range(1, len(texts) + 1):
        if end < len(texts) and texts[end][:1] == texts[start][:1]:
            continue
        group = texts[start:end]
        common = _common(group[0], group[-1])
        rest = [text[len(common) :] for text in group]
        way = re.escape(common)
        if len(rest) > 1:
            way += f"(?:{_any_of([text for text in rest if text])})" + ("?" if "" in rest else "")
        ways.append(way)
        start = end
    return "|".join(ways)


def _common(one: str, other: str) -> str:
    """What two texts begin with; of sorted texts the first and the last tell it of all."""
    length = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


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
    """Booleans and empty values are shown: they hide nothing, and `use_key: false` helps who reads the report."""
    if isinstance(item, bool | None) or item == "":
        return False
    name = str(key).lower()
    return str(key) in secret_names or any(word in name for word in SECRET_WORDS)


def _is_secret_item(name: str) -> bool:
    """Whether an item of a query is a secret: `api_key` is, `keyword` is not."""
    return unquote(name).lower().endswith(_SECRET_ITEMS)
