"""How a text can be read: as it stands, and after every step that a reader may take before looking for names in it.

Nobody knows which steps a responder takes, nor in which order: `http://a%2f@dc01/` is a path on `a` for one that
decodes it first, and the host `dc01` for one that doesn't.
"""

import base64
import html
import re
import unicodedata
from urllib.parse import unquote

MAX_CHARS = 16_384
"""Longer texts are not read: a hostile one would take seconds."""
MAX_STEPS = 12
MAX_READINGS = 192
MAX_CHARS_READ = 24 * MAX_CHARS  # in all readings of a text

ESCAPED = "\ue000"
"""Where an escaped separator was: it ends a name, but neither a host nor a URL, since not all readers decode it."""

# What is not shown, beside the category Cf: controls, joiners, fillers, selectors of variants.
INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
_WIDE = re.compile(r"[^\x00-\x7f]")
_QUOTES = re.compile(r"[\[\](){}<>\"'`^]")
_SEPARATOR = re.compile(r"[\s/?#,;|\"'`<>]")
_PERCENT = re.compile(r"(?:%[0-9a-f]{2})+", re.I)
_ENTITY = re.compile(rf"&(?:[#{ESCAPED}]x?[0-9a-f]+|[a-z0-9]{{1,32}})[;{ESCAPED}]?", re.I)
_QUOTED_PRINTABLE = re.compile(r"(?:=[0-9a-f]{2})+|=\r?\n", re.I)
_BASE64 = re.compile(r"(?<![\w+/=-])[\w+/-]{6,}={0,2}(?![\w+/=-])", re.A)
_DIGIT = re.compile(r"[^\W\D]")
_BACKSLASH = re.compile(
    r"(?:(?-i:\\U)[0-9a-f]{8}|[\\%]u[0-9a-f]{4}|\\x[0-9a-f]{2}|\\u\{[0-9a-f]{1,6}\}|\\[0-7]{1,3}|\\[abfnrtv\\])+", re.I
)
_CHARACTER = re.compile(
    r"[\\%](?:(?-i:U)([0-9a-f]{8})|u([0-9a-f]{4})|x([0-9a-f]{2})|u\{([0-9a-f]+)\}|([0-7]{1,3})|(.))", re.I
)
_DOTS, _DASHES = re.compile("[。｡．]"), re.compile("[\u2010-\u2015\u2212\u2e3a\u2e3b]")
_DEFANGED = (
    (re.compile(r"[\[({<]\s*(?:\.|,|dot|d0t|punkt)\s*[\])}>]", re.I), "."),
    (re.compile(r"[\[({<]\s*(?:@|at)\s*[\])}>]", re.I), "@"),
    (re.compile(r"[\[({<]\s*(:(?://|\\\\)?)\s*[\])}>]"), r"\1"),
    (re.compile(r"[\[({<]\s*(/{1,2})\s*[\])}>]"), r"\1"),
)
_SPELLED_DOT = re.compile(
    r"(?<=\w)[\\\[({<]*\s+(?:dot|d0t)\s+(?=\w)|(?<!\\)\\+[\[({<]?\.|(?<=\w)\s+\.\s*(?=\w)|(?<=[0-9])\.\s+(?=[0-9])",
    re.I,
)


class UnreadableError(ValueError):
    """A text can't be read within bounds; the message says why, as in `it is too long`."""


def readings(text: str) -> set[str]:
    """All readings of a text. Raises UnreadableError."""
    if len(text) > MAX_CHARS:
        raise UnreadableError("it is too long")
    known = {_plain(text)}
    latest = known
    for _ in range(MAX_STEPS):
        latest = {_plain(step(reading)) for reading in latest for step in _STEPS} - known
        if not latest:
            return known
        known |= latest
        if len(known) > MAX_READINGS or sum(map(len, known)) > MAX_CHARS_READ:
            break
    raise UnreadableError("it is escaped too often")


def _plain(text: str) -> str:
    """What every reader of names does, or may do without losing one: compatible characters, dots, defanging."""
    if not text.isascii():
        plain = unicodedata.normalize("NFKC", text)
        if any(plain.count(end) != text.count(end) for end in "/?#"):
            plain = unicodedata.normalize("NFKC", "".join(map(_compatible, text)))
        text = _DASHES.sub("-", _DOTS.sub(".", _DIGIT.sub(lambda digit: str(int(digit[0])), plain)))
    for pattern, sign in _DEFANGED:
        text = pattern.sub(sign, text)
    return text


def _compatible(char: str) -> str:
    """A character without compatibility forms; `/`, `?` and `#` among these are as if they had been escaped."""
    return char if char.isascii() else re.sub("[/?#]", ESCAPED, unicodedata.normalize("NFKC", char))


def _decoded(text: str) -> str:
    """Characters that stood escaped: separators among them may have been part of something else."""
    return _SEPARATOR.sub(lambda char: "\x01" if char[0] in "\t\n\r" else ESCAPED, text)


def _percent(text: str) -> str:
    return _PERCENT.sub(lambda found: _decoded(unquote(found[0], errors="ignore")), text)


def _entities(text: str) -> str:
    return _ENTITY.sub(lambda found: _entity(found[0]), text)


def _entity(text: str) -> str:
    """An entity, also one whose `#` and `;` were escaped themselves."""
    whole = f"&#{text[2:]}" if text[1] == ESCAPED else text
    plain = html.unescape(whole.replace(ESCAPED, ";"))
    return text if plain == whole.replace(ESCAPED, ";") else _decoded(plain)


def _backslashes(text: str) -> str:
    return _BACKSLASH.sub(lambda found: _decoded(_joined(_CHARACTER.sub(_character, found[0]))), text)


def _character(match: re.Match[str]) -> str:
    if match[6]:
        return "\\" if match[6] == "\\" else "\n"
    digits = next(group for group in match.groups() if group)
    number = int(digits, 8 if match[5] else 16)
    return chr(number) if number <= 0x10FFFF else ""


def _joined(text: str) -> str:
    """Pairs of surrogates as the characters that they are."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _quoted_printable(text: str) -> str:
    """As in mails, where `=64c01` is `dc01`; a `=` at the end of a line goes with that."""
    return _QUOTED_PRINTABLE.sub(
        lambda found: _decoded(unquote(found[0].replace("=", "%"), errors="ignore")) if found[0][1:].strip() else "",
        text,
    )


def _base64(text: str) -> str:
    return _BASE64.sub(lambda found: _text_in_base64(found[0]), text)


def _text_in_base64(word: str) -> str:
    """What a word in Base64 says, also in UTF-16, as PowerShell has it; the word itself if that is no text."""
    plain = word.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        raw = base64.b64decode(plain + "=" * (-len(plain) % 4))
        text = raw.decode("utf-16-le" if raw[1:2] == b"\0" else "utf-8").strip()
    except ValueError:
        return word
    return _decoded(text) if text.isprintable() else word


def _without_invisible(text: str) -> str:
    text = INVISIBLE.sub("", text)
    return _WIDE.sub(lambda char: "" if unicodedata.category(char[0]) == "Cf" else char[0], text)


def _without_quotes(text: str) -> str:
    return _QUOTES.sub("", text)


def _without_backslashes(text: str) -> str:
    return re.sub(r"\\(?=\w)", "", text)


def _with_dots(text: str) -> str:
    return _SPELLED_DOT.sub(".", text)


_STEPS = (
    _percent,
    _entities,
    _backslashes,
    _quoted_printable,
    _base64,
    _without_invisible,
    _without_quotes,
    _without_backslashes,
    _with_dots,
)
