"""Foreign text for Slack (escaped, clipped, defanged), and dates, names and numbers in words.

Foreign is all text that isn't ours: fields of objects, reports, what people type.
"""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from bot.clearance import defang, visible
from core.common.clock import HOUR_MS, time_text
from core.common.grouping import grouped
from core.common.words import spaced

# Slack's limits, in characters
SECTION_LIMIT = 3000
OPTION_LIMIT = 75
VIEW_TITLE_LIMIT = 24
MESSAGE_TEXT_LIMIT = 3900  # chat.update takes 4000, but counts differently than documented

DAY_AND_TIME = "{date_short_pretty} {time}"  # of `slack_date`: "today", "yesterday" or the day, and the time

_BLANKS = re.compile(r"\s+")
_MARKED = re.compile(r"(`|\*{1,2})(?=\S)([^`*\n]{1,200})(?<=\S)\1")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
_ISOLATE, _END = "\u2068", "\u2069"
_HALF_ENTITY = re.compile(r"&\w*$")
VERSION = re.compile(r"(?:_[0-9]{1,9}){1,4}$")


def clean(text: str, *, lines: bool = False) -> str:
    """The text without invisible and bidirectional characters; on one line unless `lines`."""
    kept = visible(text)
    return (kept.replace("\t", "    ") if lines else _BLANKS.sub(" ", kept)).strip()


def clip(text: str, limit: int) -> str:
    """At most `limit` characters, with an ellipsis if something was cut."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


_HOST = re.compile(r"(?:[\w-]{1,64} )?[\w+-]{1,20}(?:://|\[://\])[^/?#]*")  # its type may be in front


def clip_middle(text: str, limit: int) -> str:
    """As `clip`, but keeps both ends, by which people tell hashes apart, and the host of a URL, at least its end."""
    end = _end_of_host(text)
    start = max(limit - 1 - (limit - 1) // 3, end)
    if end >= limit - 2:  # the end of a host says whose it is, before all else
        start, text = limit // 3, clip(text, max(limit, end + 1))
    return text if len(text) <= limit else f"{text[:start]}…{text[start + 1 - limit :]}"


def _end_of_host(text: str) -> int:
    """How many characters a URL with its host takes; 0 for what is none."""
    host = _HOST.match(text)
    return host.end() if host else 0


def clip_apart(texts: Sequence[str], limit: int) -> list[str]:
    """Each as `clip_middle`; of long ones with the same beginning the part in which they differ."""
    shown = [clip_middle(text, limit) for text in texts]
    beginning = grouped((text[: limit // 2], n) for n, text in enumerate(texts) if shown[n] != text)
    for alike in beginning.values():
        at = _differ_at([texts[n] for n in alike]) - 3
        for n in alike:
            start = max(limit // 4, _end_of_host(texts[n]))
            if limit - start > 6 and at > start:  # else they get a number
                shown[n] = f"{texts[n][:start]}…{clip_middle(texts[n][at:], limit - start - 1)}"
    seen = dict[str, str]()
    for n, text in enumerate(texts):
        if seen.setdefault(shown[n], text) != text:
            number = f"{n + 1}: "
            shown[n] = f"{number}{clip_middle(text, limit - len(number))}"
    return shown


def _differ_at(texts: Sequence[str]) -> int:
    """The first place at which these have not all the same character; 0 if they differ nowhere, or in length alone."""
    first_and_last = zip(min(texts), max(texts), strict=False)  # in their order, so the others begin as these do
    return next((n for n, (one, other) in enumerate(first_and_last) if one != other), 0)


def escape(text: str) -> str:
    """Escape the three characters that Slack reads as markup, so that `<!channel>` pings nobody."""
    return _isolated(html.escape(text, quote=False))


def _isolated(text: str) -> str:
    """A text with Arabic or Hebrew letters in it, so that it turns nothing around it from right to left."""
    return f"{_ISOLATE}{text}{_END}" if _turns(text) and "\n" not in text else text


def _turns(text: str) -> bool:
    return not text.isascii() and _RIGHT_TO_LEFT.search(text) is not None


def foreign(text: str, limit: int, *, lines: bool = False) -> str:
    """Foreign text for a mrkdwn field: cleaned, escaped, and then at most `limit` characters."""
    room = limit - 2 if limit > 3 and _turns(text[: limit * 4]) else limit
    escaped = html.escape(clip(clean(text[: limit * 4], lines=lines), room), quote=False)
    cut = _HALF_ENTITY.sub("", escaped[: room - 1])
    shown = escaped if len(escaped) <= room else f"{cut}…"
    return _isolated(shown) if room < limit else shown


def foreign_plain(text: str, limit: int) -> str:
    """Foreign text for a plain_text field, never empty."""
    return clip(clean(text[: limit * 4]), limit) or "(no name)"


def strip_markup(text: str) -> str:
    """The text without backticks and asterisks around words, which a plain_text field would show."""
    return _MARKED.sub(r"\2", text)


def code(text: str, limit: int) -> str:
    """Foreign text as inline code; a backtick in it would end it."""
    shown = foreign(text.replace("`", "ˋ"), limit - 2).strip(f"{_ISOLATE}{_END}")  # which nobody is to copy
    return _isolated(f"`{shown or ' '}`")


def plain(text: str) -> dict[str, Any]:
    """A plain_text object of our own words."""
    return {"type": "plain_text", "text": text, "emoji": False}


def mrkdwn(text: str) -> dict[str, Any]:
    """A mrkdwn object; verbatim, so that Slack makes no links or mentions from foreign text."""
    return {"type": "mrkdwn", "text": clip(text, SECTION_LIMIT), "verbatim": True}


def section(text: str, **more: Any) -> dict[str, Any]:
    """A section; `more` of it may be None, such as a button that isn't there."""
    return {"type": "section", "text": mrkdwn(text), **{key: part for key, part in more.items() if part is not None}}


def sections(lines: Iterable[str]) -> list[Mapping[str, Any]]:
    """Lines in as few sections as they fit into, so that none is cut off."""
    texts = list[str]()
    for line in lines:
        if texts and len(texts[-1]) + 1 + len(line) <= SECTION_LIMIT:
            texts[-1] += f"\n{line}"
        else:
            texts.append(line)
    return [section(text) for text in texts]


def first_of(lines: Sequence[str], most: int, total: int = 0) -> list[str]:
    """The first lines, and one that says how many more there are, or the only other; of `total` if that is more."""
    most += total <= len(lines) == most + 1
    left = max(total, len(lines)) - len(lines[:most])
    return [*lines[:most], *([f"and {left} more"] if left else [])]


def context(*texts: str) -> dict[str, Any]:
    return {"type": "context", "elements": [mrkdwn(text) for text in texts[:10]]}


# A URL, an e-mail address, a host name or an IPv4 address within other text. Each part is bounded, so that no text
# makes the search slow.
_INDICATOR = re.compile(
    r"(?i)\b[a-z][a-z0-9+]{1,9}://[^\s<>\"']{1,2000}"
    r"|[\w+%-]{1,64}(?:\.[\w+%-]{1,64}){0,8}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"
    r"|(?<![\w.-])(?:[\w-]{1,63}\.){1,8}[a-z]{2,24}(?![\w-]|\.\w)"
    r"|(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)"
)


def defang_indicators(text: str) -> str:
    """A sentence with its observables defanged; its own full stops stay."""
    return _INDICATOR.sub(_defanged, text) if "." in text or "://" in text else text


_FILE = re.compile(
    r"(?i)\.(?:7z|bat|bin|bmp|cfg|cmd|conf|csv|dat|db|dll|dmp|docm?|docx|elf|eml|exe|gif|gz|html?|img|ini|iso|jar|jpe?g|js"
    r"|json|key|lnk|log|msi|pcap|pdf|pem|png|pptx?|ps1|rar|rtf|sys|tar|tmp|toml|txt|vbs|wav|xlsm?|xlsx|xml|ya?ml)$"
)


def _defanged(match: re.Match[str]) -> str:
    indicator = match[0].rstrip(".,;:!?)")
    if _FILE.search(indicator) and "/" not in indicator and "@" not in indicator:
        return match[0]  # a name such as winword.exe, which no top-level domain ends
    return defang(indicator) + match[0][len(indicator) :]


NAMES: ContextVar[Mapping[str, str]] = ContextVar("names", default=MappingProxyType({}))
"""What logins and names of responders are called; set by the app for the tasks that render something."""
COMMAND: ContextVar[str] = ContextVar("command", default="/responder")
"""The slash command of the settings; likewise."""
_TO_TYPE = re.compile(r"(?:(?<=to withdraw it: )|(?<=to withdraw all: ))cancel ~\d+")
_WORD = re.compile(r"(?<![^\s,;:)\"'`])[^\s,;:()\"'`]+")  # no login behind a name, in parentheses
_UTC = re.compile(r"\b(\d{4}-\d\d-\d\d \d\d:\d\d)(?::\d\d)? UTC\b")


def plain_name(login: str) -> str:
    """What Slack calls somebody, or else the part of the login before the `@`; foreign text, not escaped.

    A group, such as `@leads`, is called that.
    """
    return NAMES.get().get(login) or login.partition("@")[0] or login


def person_name(login: str) -> str:
    """Likewise, for mrkdwn; no mention, so that nobody is notified."""
    return foreign(plain_name(login), 200) or "somebody"  # with the login behind it, if others are called the same


def people(logins: Iterable[str]) -> str:
    """`ben, lea`: the names of the first 20, each once; mrkdwn."""
    return ", ".join(map(person_name, list(dict.fromkeys(logins))[:20]))


def mentions(slack_ids: Iterable[str], logins: Iterable[str] = ()) -> str:
    """Mentions of user groups (`S...`) and people, which notify them; then the names of who hears of it otherwise."""
    notified = [f"<!subteam^{one}>" if one.startswith("S") else f"<@{one}>" for one in slack_ids]
    return " ".join([*notified, *([f"{named}:"] if (named := people(logins)) else [])])


def readable_name(responder: str) -> str:
    """What people call a responder; of one without a title `Mailer` for `Mailer_1_0`."""
    return NAMES.get().get(responder) or spaced(VERSION.sub("", responder.removeprefix("ResponderBot_"))) or responder


def slack_date(at_ms: int, style: str = DAY_AND_TIME) -> str:
    """A time in each reader's own time zone; `style` is Slack's (`{time}`)."""
    return f"<!date^{at_ms // 1000}^{style}|{utc_time(at_ms)}>"


def time_ahead(at_ms: int, since_ms: int) -> str:
    """A time that is still to come, said at `since_ms` or later: with its day only if it is half a day after that."""
    return slack_date(at_ms, "{time}" if at_ms - since_ms <= 12 * HOUR_MS else DAY_AND_TIME)


def said(sentence: str) -> str:
    """A sentence of core's with people, responders and commands as they are called here; foreign text, not escaped."""
    return _TO_TYPE.sub(lambda found: f"`{COMMAND.get()} {found[0]}`", _WORD.sub(_called, sentence))


def _called(match: re.Match[str]) -> str:
    word = match[0].rstrip(".")
    return NAMES.get().get(word, word) + match[0][len(word) :]


def core_says(sentence: str, limit: int, *, lines: bool = False) -> str:
    """Likewise, for mrkdwn, with times in each reader's own time zone."""
    return in_own_time(foreign(said(sentence), limit, lines=lines))


def in_own_time(mrkdwn: str) -> str:
    """A text with its times in each reader's own time zone."""
    return _UTC.sub(_dated, mrkdwn)


def _dated(match: re.Match[str]) -> str:
    at = datetime.strptime(match[1], "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    return slack_date(int(at.timestamp()) * 1000)


def utc_time(at_ms: int) -> str:
    """A time for where Slack's dates don't work: push notifications, files, plain text."""
    try:
        return time_text(at_ms)
    except (OverflowError, ValueError, OSError):  # beyond the year 9999
        return "an unknown time"


def duration(duration_ms: int) -> str:
    """A duration in its two largest units: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 4 min`, `3 d 1 h`."""
    seconds = max(0, duration_ms) / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, unit, smaller, rest in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {rest}"
    return f"{whole} s"
