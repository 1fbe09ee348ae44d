"""What people type, mended: smart quotes, odd blanks, pasted links, ids with or without `~`."""

import difflib
import html
import re
from collections.abc import Iterable, Sequence

_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‘": "'", "’": "'", "‚": "'"})
_TILDES = str.maketrans({"˜": "~", "∼": "~", "～": "~", "〜": "~"})
_HIDDEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\u00ad]")
_LINK = re.compile(r"<([^<>|\s]+)(?:\|([^<>]*))?>")
_WORD = re.compile(r'"([^"]*)"|\'([^\']*)\'|(\S+)')
_ID = re.compile(r"~?(\d{1,18})")
_ID_IN_TEXT = re.compile(r"(?:~|%7[Ee])(\d{1,18})(?!\d)")
_ID_IN_LINK = re.compile(r"/(?:alert|case|log|task)s?/~?(\d{1,18})(?=[/?#;,.)]|$)")


def mended(text: str) -> str:
    """Typed text with plain quotes, blanks and tildes; a pasted link becomes its address."""
    text = html.unescape(_LINK.sub(lambda m: m.group(1), text))
    text = _HIDDEN.sub("", text.translate(_QUOTES).translate(_TILDES))
    return " ".join(text.replace("`", " ").split())


def words(text: str) -> list[str]:
    """The words of a mended text; quotes keep several together. An odd quote is part of its word."""
    return [next(part for part in match if part is not None) for match in _matches(text)]


def _matches(text: str) -> list[tuple[str | None, ...]]:
    return [match.groups() for match in _WORD.finditer(mended(text))]


def object_id(word: str) -> str | None:
    """`~12` for `~12`, `12`, `%7E12`, or a link that holds the id; None when there is none."""
    word = word.strip().strip(".,;:()[]")
    if match := _ID.fullmatch(word):
        return f"~{int(match.group(1))}"
    found = ids_in(word)
    return found[0] if (found and "/" in word) or (word.startswith(("~", "%")) and found) else None


def ids_in(text: str) -> list[str]:
    """All ids in any text, `~` before them or inside a link, each once, in their order."""
    mend = mended(text)
    hits = [*_ID_IN_TEXT.finditer(mend), *(m for w in mend.split() for m in _ID_IN_LINK.finditer(w))]
    return list(dict.fromkeys(f"~{int(m.group(1))}" for m in hits))


def split_name_and_id(text: str) -> tuple[str, str | None]:
    """`Close False Positive ~12` is a name of several words and an id; the id may stand anywhere."""
    parts = words(text)
    marked = [w for w in parts if object_id(w) and not w.isdigit()]
    bare = [w for w in reversed(parts) if w.isdigit()]
    chosen = next(iter([*marked, *bare]), None)
    if chosen is None:
        return " ".join(parts), None
    rest = list(parts)
    rest.remove(chosen)
    return " ".join(rest), object_id(chosen)


def by_name(name: str, names: Sequence[str]) -> list[str]:
    """What a typed name may stand for: itself, else regardless of case, else each that it begins, else holds."""
    loose = _loose(name)
    for rule in (
        lambda n: n == name,
        lambda n: _loose(n) == loose,
        lambda n: _loose(n).startswith(loose),
        lambda n: loose in _loose(n),
    ):
        found = [n for n in names if loose and rule(n)]
        if found:
            return found
    return []


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant; None when none is near."""
    table = {_loose(k): k for k in known}
    close = difflib.get_close_matches(_loose(word), list(table), n=1, cutoff=0.6)
    return table[close[0]] if close else None


def _loose(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())
