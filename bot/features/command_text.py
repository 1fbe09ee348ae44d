"""Read what people type: smart quotes, odd blanks, pasted links, ids with or without `~`, abbreviated names."""

import difflib
import html
import re
from collections.abc import Iterable, Sequence
from itertools import combinations, takewhile

_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‘": "'", "’": "'", "‚": "'"})
_TILDES = str.maketrans({"˜": "~", "∼": "~", "～": "~", "〜": "~"})
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\u00ad]")
_LINK = re.compile(r"<((?:[A-Za-z][\w+.-]*:|[@#!])[^<>|\s]+)(?:\|([^<>]*))?>")
_WORD = re.compile(r'"([^"]*)"|\'([^\']*)\'|(\S+)')
_FOR = r"for \d+ ?(?:m|min|h|d|(?:minute|hour|day)s?)(?=\s|$)"  # such as `for 2h`
_TOKEN = re.compile(rf"[\w-]+=(?:\"(?:\\\"|[^\"])*\"|'[^']*')(?=\s|$)|{_FOR}|\"[^\"]*\"|\S+")
_INPUT_NAME = re.compile(r"[A-Za-z][\w-]{0,63}")
_ID = re.compile(r"~?(\d{1,18})")
_ID_IN_TEXT = re.compile(r"(?:~|%7[Ee])(\d{1,18})(?!\d)")
_LIKE_TARGET = re.compile(r"(?<!\S)(?!\S+_\d+_\d+(?!\S))\S*[\d.:@]\S*")  # names no responder, such as LT-0412
_ID_IN_LINK = re.compile(r"/(?:alert|case|log|task)s?/~?(\d{1,18})(?=[/?#;,.)]|$)")

_AND = ("and", "&")
NOT_TAKEN = "Nothing was done"  # begins the sentence about what a verb doesn't take
WHICH = "Which one?"  # begins that about what it lacks, the id of an alert or a run
MAX_PARTS = 12  # of a name: words and numbers
MAX_TYPED = 3  # of these parts, next to each other, that somebody types instead of the name


def normalize(text: str) -> str:
    """The text with plain quotes, blanks and tildes, and with the URLs of Slack's links."""
    text = html.unescape(_LINK.sub(lambda m: m.group(1), text))
    text = _INVISIBLE.sub("", text.translate(_QUOTES).translate(_TILDES))
    return " ".join(text.replace("`", " ").split())


def split_words(text: str) -> list[str]:
    """The words of a text; quotes group several into one. A quote without its pair is part of its word."""
    matches = _WORD.finditer(normalize(text))
    return [next(part for part in match.groups() if part is not None) for match in matches]


def parse_id(word: str) -> str | None:
    """The id `~12` in `~12`, `12`, `%7E12`, or a link to an object; None if there is none."""
    word = word.strip().strip(".,;:()[]")
    if match := _ID.fullmatch(word):
        return f"~{int(match.group(1))}"
    ids = find_ids(word)
    return ids[0] if ids and ("/" in word or word.startswith(("~", "%"))) else None


def find_ids(text: str) -> list[str]:
    """All ids in a text, written with `~` or as part of a link; each once, in their order."""
    text = normalize(text)
    matches = [*_ID_IN_TEXT.finditer(text), *(m for word in text.split() for m in _ID_IN_LINK.finditer(word))]
    return list(dict.fromkeys(f"~{int(m.group(1))}" for m in matches))


def split_name_and_id(text: str) -> tuple[str, str]:
    """The name and the id, or "", in a text such as `Close False Positive ~12`; the id may be anywhere.

    One that stands for itself counts before one in a link, which may be data of an alert.
    """
    words = split_words(text)
    marked = [word for word in words if parse_id(word) and not word.isdigit()]
    own = [word for word in marked if "/" not in word]
    bare = [word for word in reversed(words) if word.isdigit()]
    id_word = next(iter([*own, *marked, *bare]), None)
    if id_word is None:
        return " ".join(words), ""
    words.remove(id_word)
    return " ".join(words), parse_id(id_word) or ""


def wrong_usage(usage: str, rest: str, command: str) -> str:
    """What is missing behind a verb with this usage, or what else it doesn't take, in a sentence; "" if neither."""
    verb, _, takes = usage.partition(" ")
    name, object_id = split_name_and_id(split_inputs(rest)[0] if verb == "run" else rest)
    if takes == "TEXT" and not rest.strip():
        return f"Find what? Type `{command} find` and a text, such as {command} find 203.0.113.7."
    if "~" not in usage or object_id:
        if takes == "NAME ~id" and not name:
            return f"Run what? `{command} list {object_id}` shows what can run on {object_id}."
        extra = {"": rest, "~id": name, "~run": name}.get(takes, "")
        right = f"{command} {verb} {takes and object_id}".strip()
        then = "; its form asks why" if verb == "deny" else ""
        return extra and f"{NOT_TAKEN}: `{verb}` doesn't take {extra[:100]!r}. Type `{right}` alone{then}."
    if verb in ("approve", "deny"):  # which find it, or ask
        return ""
    how = "instead of the id, a host, an address or words of an alert will do"
    if "~run" in usage:
        how = f"`{command} mine` lists your runs"
    right = usage.partition(" [")[0].replace("NAME", name[:60] or "NAME")
    return f"{WHICH} Type `{command} {right}`; {how}."


def instead_of_id(usage: str, rest: str) -> tuple[str, str]:
    """What is typed where a verb with this usage wants the id of an alert, such as a host, and its other words."""
    name, object_id = split_name_and_id(split_inputs(rest)[0].replace(",", " "))
    if "~id" not in usage or object_id:
        return "", name
    found = _LIKE_TARGET.findall(name) or ([] if "NAME ~id" in usage else [name])
    return " ".join(found), " ".join(word for word in name.split() if word not in found)


def split_name_and_ids(text: str) -> tuple[str, list[str]]:
    """The name and each id in a text such as `Block ~12, 13 and 14`.

    Without `~` only those behind the first that has it, or at the end.
    """
    words = split_words(text)
    marked = [n for n, word in enumerate(words) if word.startswith(("~", "%"))]
    end = len(words) - len(list(takewhile(lambda word: word in _AND or _ids(word), reversed(words))))
    end = next((n for n in marked if n >= end), len(words) if marked else end)
    name = [word for n, word in enumerate(words) if n < end and not (n in marked and _ids(word))]
    own = [one for n, word in enumerate(words) if n >= end or n in marked for one in _ids(word)]
    return " ".join(name), [*dict.fromkeys(own)]


def _ids(word: str) -> list[str]:
    """Those in `~12` or `12,13`; none if the word has anything else, such as a link."""
    ids = [parse_id(one) or "" for one in word.split(",") if one]
    return ids if "/" not in word and all(ids) else []


def split_inputs(text: str) -> tuple[str, dict[str, str]]:
    """The text without each `name=value`, `name="several words"` and `for 2h`, and these by name, the last of each.

    A quote in a quoted value is written `\\"`.
    """
    values: dict[str, str] = {}
    rest: list[str] = []
    for match in _TOKEN.finditer(normalize(text)):
        token = re.sub("^for ", "for=", match[0])
        name, equals, value = token.partition("=")
        if equals and _INPUT_NAME.fullmatch(name):
            quote = value[0] if len(value) > 1 and value[0] in ("'", '"') and value[-1] == value[0] else ""
            value = value[1:-1] if quote else value
            values[name] = value.replace('\\"', '"') if quote == '"' else value
        else:
            rest.append(token)
    return " ".join(rest), values


def same_name(typed: str, name: str) -> bool:
    """Whether a typed name is this one, but for case and punctuation."""
    return bool(_fold(typed)) and _fold(typed) == _fold(name)


def match_names(typed: str, names: Sequence[str]) -> list[str]:
    """The names that a typed one may mean: the same, else the same but for case and punctuation, else those that
    begin with it, else those that contain it."""
    key = _fold(typed)
    for matches in (
        lambda name: name == typed,
        lambda name: _fold(name) == key,
        lambda name: _fold(name).startswith(key),
        lambda name: key in _fold(name),
    ):
        matching = [name for name in names if key and matches(name)]
        if matching:
            return matching
    return []


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, also if only a part of it was typed; None if none is similar."""
    table: dict[str, str] = {}
    for name in known:
        parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)
        for start, end in combinations(range(min(len(parts), MAX_PARTS) + 1), 2):
            if end - start <= MAX_TYPED:
                table.setdefault(_fold("".join(parts[start:end])), name)
        table[_fold(name)] = name
    folded = _fold(word)
    swapped = [key for key in table if sorted(key) == sorted(folded)]  # such as rnu, too short for difflib
    close = swapped or difflib.get_close_matches(folded, list(table), n=1, cutoff=0.7)
    return table[close[0]] if close else None


def _fold(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())
