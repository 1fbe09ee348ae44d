"""From a body to alerts, by the map of its source (core/docs/sources.md#maps)."""

import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import urlsplit

from core.bundled.ExtractIndicators.extract_indicators import indicators
from core.field_types import MAX_ARTIFACTS
from core.models import SEVERITY_NAMES, TLP_NAMES, Alert, AlertInput, ArtifactsInput
from core.records.artifacts import artifact_of, expand_artifacts
from core.records.writes import made
from core.settings import MappingSection, ObservableSection
from core.sources.bodies import MAX_ALERTS, Reason, UnreadableError, decode_email, decode_lines
from core.sources.paths import LookedAtTooMuchError, Path, Reader, parse, values_at, words

SENTENCES = ("title", "description")
FIELDS = (*SENTENCES, "sourceRef", "severity", "tlp", "pap", "tags", "date", "link")
TITLE_LIMIT = 500  # characters
DESCRIPTION_LIMIT = 20_000
REFERENCE_LIMIT = 500
TAG_LIMIT = 200
MAX_TAGS = 100
LINK_LIMIT = 2_000
OBSERVABLE_LIMIT = 4_096
TEXT_LIMIT = 100_000
"""Characters of texts of one body in which indicators are looked for."""
MAX_OBSERVABLE_PATHS = 100

_NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,6})?"
_BAND = re.compile(rf"({_NUMBER})(-?)((?<=-){_NUMBER})?", re.ASCII)
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_HOSTS = ("domain", "fqdn", "hostname")
_NOTHING = ("", "-", "unknown")
"""What products write where they know no value."""
_PORT = re.compile(r"(?<=[^:]):[0-9]{1,5}$", re.ASCII)
_IN_BRACES = re.compile(r"\{([^{}]*?)(:words)?\}")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TLP_WORDS = {**{name: level for level, name in enumerate(TLP_NAMES)}, "white": 0, "amber+strict": 2}
_SEVERITY_WORDS = {
    **{name: level for level, name in enumerate(SEVERITY_NAMES) if name},
    **{"info": 1, "informational": 1, "moderate": 2, "warning": 2, "error": 3},
}
_TO_MS = ((10**11, 1000), (10**14, 1), (10**17, 1e-3))  # a number of seconds, ms, us since 1970 is below these


@dataclass(frozen=True)
class Incoming:
    """An alert of a body."""

    request: AlertInput
    is_resolved: bool = False
    ends_at: int | None = None
    """When it is over, in ms since 1970."""
    notes: tuple[str, ...] = ()
    """What was left out of it, in words."""

    def is_over(self, now: int) -> bool:
        """Whether its sender says that it is over."""
        return self.is_resolved or (self.ends_at is not None and self.ends_at <= now)


@dataclass(frozen=True)
class Unreadable:
    """A body, or a part of it, that is no alert."""

    reason: Reason
    sentence: str
    content: bytes


@dataclass
class Reading:
    """What a body holds."""

    incoming: list[Incoming] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    skipped: int = 0
    items: list[Any] = field(default_factory=list)
    """The alerts as they were sent."""


def preview(request: AlertInput, now: int) -> Alert:
    """The alert that a request becomes, without a number of its own."""
    items = expand_artifacts(request.artifacts)
    artifacts = [artifact_of(number, item, "", now) for number, item in enumerate(items, 1)]
    return Alert(**{**vars(request), **made(0, "", now), "date": request.date or now, "artifacts": artifacts})


def unused(item: Any, paths: Iterable[Path]) -> list[str]:
    """The names of an alert as it was sent that no path reads, such as `alert.rev`, sorted.

    Of alternatives only the first with a value is read.
    """
    leaves = list(_leaves(item, ""))
    filled = {name for name, value in leaves if value not in (None, "", False)}
    read = {next((one for one in path.alternatives if _any_in(one, filled)), "") for path in paths}
    return sorted({name for name, _ in leaves if not any(_any_in(one, (name,)) for one in read)})


def _any_in(path: str, names: Iterable[str]) -> bool:
    return any(f"{name}.".startswith(f"{path}.") for name in names)


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, name)
    else:
        yield name, value


@dataclass(frozen=True)
class _Observable:
    path: Path
    section: ObservableSection


class _Sentence:
    """A path, or a text with paths in braces such as `{user.name} at {host.name}: {risk.kind:words}`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_path = "{" not in text
        in_braces = [(text, "")] if self.is_path else _IN_BRACES.findall(text)
        self.paths = [parse(path) for path, _ in in_braces]
        self._says = [words if spec else str for _, spec in in_braces]

    def of(self, item: Any, reader: Reader) -> str:
        """The text with what is at its paths; `""` if one of them has nothing."""
        found = [", ".join(map(_text, values_at(reader, (path,), item))).strip() for path in self.paths]
        if any(text.casefold() in _NOTHING for text in found):
            return ""
        shown = (say(text) for say, text in zip(self._says, found, strict=True))
        return next(shown) if self.is_path else _IN_BRACES.sub(lambda _: next(shown), self.text)


class BodyMap:
    """The map of a source, its paths parsed."""

    def __init__(
        self, section: MappingSection, *, type: str, source: str, tlp: int, withheld_tags: Iterable[str]
    ) -> None:
        """Alerts have this type and source, and at least this TLP; `withheld_tags` are never set.

        Raises ValueError that says what is wrong with the map.
        """
        _require_usable(section)
        self._format = section.format
        self._each = tuple(map(parse, section.each))
        self._when = _conditions(section.when)
        self._resolved = _conditions(section.resolved)
        self._ends = (parse(section.ends),) if section.ends else ()
        self._fields = {name: tuple(map(parse, section.map.get(name, ()))) for name in FIELDS[len(SENTENCES) :]}
        self._title, self._description = ([_Sentence(text) for text in section.map.get(name, ())] for name in SENTENCES)
        self._custom = {name: tuple(map(parse, paths)) for name, paths in section.custom_fields.items()}
        self._severity = _Table(section.severity)
        self._observables = [_Observable(parse(item.path), item) for item in section.observables]
        self._type, self._source, self._tlp = type, source, tlp
        self._withheld = {tag.casefold() for tag in withheld_tags}

    @property
    def paths(self) -> Iterator[Path]:
        """All paths that are read in each alert."""
        yield from (path for fields in (self._fields, self._custom) for paths in fields.values() for path in paths)
        yield from (path for conditions in (self._when, self._resolved) for path, _ in conditions)
        yield from self._ends
        yield from (path for one in (*self._title, *self._description) for path in one.paths)
        yield from (observable.path for observable in self._observables)

    def read(self, content: bytes) -> Reading:
        """What a body holds. What can't be read is a part of it, and never an error."""
        reading, reader = Reading(), Reader()
        try:
            items = self._items(content, reader)
        except UnreadableError as error:
            return Reading(unreadable=[Unreadable(error.reason, error.sentence, content)])
        except LookedAtTooMuchError:
            return Reading(unreadable=[_looked_at_too_much(content)])
        if len(items) > MAX_ALERTS:
            sentence = (
                f"It holds over {MAX_ALERTS} alerts, and only the first {MAX_ALERTS} were read; send fewer at once."
            )
            reading.unreadable.append(Unreadable("alerts", sentence, content))
        budget = _Budget()
        for item in items[:MAX_ALERTS]:
            reading.items.append(item)
            try:
                if isinstance(item, dict) and not all(_holds(reader, item, one) for one in self._when):
                    reading.skipped += 1
                    continue
                reading.incoming.append(self._alert(item, reader, budget))
            except UnreadableError as error:
                text = json.dumps(item, ensure_ascii=False, indent=1)
                whole = content if self._format == "email" else text.encode("utf-8", "replace")
                reading.unreadable.append(Unreadable(error.reason, error.sentence, whole))
            except LookedAtTooMuchError:
                reading.unreadable.append(_looked_at_too_much(content))
                break
        return reading

    def _items(self, content: bytes, reader: Reader) -> list[Any]:
        if self._format == "email":
            return [decode_email(content)]
        bodies = decode_lines(content)
        if not self._each:
            return bodies
        found: list[Any] = []
        for body in bodies:
            at = next((value for path in self._each if (value := reader.get(path, body)) is not None), None)
            if at is None:
                paths = " or ".join(path.text for path in self._each)
                raise UnreadableError("each", f"It has no list of alerts at {paths}; correct each in the settings.")
            found += at if isinstance(at, list) else [at]
        return found

    def _alert(self, item: Any, reader: Reader, budget: "_Budget") -> Incoming:
        if not isinstance(item, dict):
            raise UnreadableError("format", "It is no JSON object, so it has no fields.")

        def texts(name: str) -> list[str]:
            return [_text(value) for value in values_at(reader, self._fields[name], item)]

        sentences = (one.of(item, reader) for one in self._title if not one.is_path)
        paths = tuple(one.paths[0] for one in self._title if one.is_path)
        title = next(filter(None, sentences), "") or " ".join(map(_text, values_at(reader, paths, item)))
        title = _line(title, TITLE_LIMIT)
        if not title:
            places = " or ".join(one.text for one in self._title)
            raise UnreadableError("title", f"It has no title at {places}; correct the map in the settings.")
        notes: list[str] = []
        tlp = max(self._tlp, _tlp_of(values_at(reader, self._fields["tlp"], item)))
        artifacts = self._artifacts(item, reader, budget, tlp, notes)
        description = self._text(item, reader)
        if budget.left_out:
            description += f"\n\n{budget.left_out} observables were left out: a body may have {MAX_ARTIFACTS}."
            budget.left_out = 0
        request = AlertInput(
            type=self._type,
            source=self._source,
            source_ref=_reference([reader.get(path, item) for path in self._fields["sourceRef"]], item),
            title=title,
            description=description,
            severity=self._severity.of(values_at(reader, self._fields["severity"], item)),
            date=_date(values_at(reader, self._fields["date"], item), notes),
            tags=self._tags(texts("tags"), notes),
            tlp=tlp,
            pap=max(2, _tlp_of(values_at(reader, self._fields["pap"], item))),
            external_link=_link(texts("link"), notes),
            artifacts=artifacts,
            custom_fields={
                name: {"string": _line(_text(found[0]), TITLE_LIMIT)}
                for name, paths in self._custom.items()
                if (found := values_at(reader, paths, item))
            },
        )
        is_resolved = any(_holds(reader, item, one) for one in self._resolved)
        ends_at = _date(values_at(reader, self._ends, item), notes)
        return Incoming(request, is_resolved, ends_at, tuple(notes))

    def _text(self, item: Mapping[str, Any], reader: Reader) -> str:
        """A sentence, or what the first path has, then what the others have; without any, the alert as it was sent."""
        fields = [one for one in self._description if one.is_path]
        first, text = self._first_text(item, reader)
        paths = (one.paths[0] for one in fields if one is not first)
        named = [pair for path in paths for pair in _named(path, reader.get(path, item))]
        if text and named:
            text += "\n\n" + "\n".join(f"{label}: {value}" for label, value in named)
        text = text or ", ".join(f"{label} {value}" for label, value in named)
        return clean(text or json.dumps(item, ensure_ascii=False, indent=1))[:DESCRIPTION_LIMIT]

    def _first_text(self, item: Mapping[str, Any], reader: Reader) -> tuple["_Sentence | None", str]:
        """The first sentence that has all that it names, or the first path if it has something, with its text."""
        first_path = next((one for one in self._description if one.is_path), None)
        for one in self._description:
            if (not one.is_path or one is first_path) and (text := one.of(item, reader)):
                return one, text
        return None, ""

    def _tags(self, texts: Iterable[str], notes: list[str]) -> list[str]:
        tags = list(dict.fromkeys(line for text in texts if (line := _line(text, TAG_LIMIT))))
        withheld = [tag for tag in tags if tag.casefold() in self._withheld]
        notes += [f"The tag {tag}, which rules of responders read; trusted_tags can allow it." for tag in withheld]
        return [tag for tag in tags if tag not in withheld][:MAX_TAGS]

    def _artifacts(
        self, item: Mapping[str, Any], reader: Reader, budget: "_Budget", tlp: int, notes: list[str]
    ) -> list[ArtifactsInput]:
        found: dict[tuple[str, str], str] = {}
        for observable in self._observables:
            values = map(_text, values_at(reader, (observable.path,), item))
            for kind, value in self._observed(observable.section, values, budget, notes):
                if len(value) > OBSERVABLE_LIMIT:
                    notes.append(f"The {kind} at {observable.path.text}, which has over {OBSERVABLE_LIMIT} characters.")
                elif (kind, value) in found or budget.take():
                    found[kind, value] = observable.section.message or found.get((kind, value), "")
        return [
            ArtifactsInput(data_type=kind, data=[value], message=message or None, tlp=tlp)
            for (kind, value), message in found.items()
        ]

    def _observed(
        self, section: ObservableSection, values: Iterable[str], budget: "_Budget", notes: list[str]
    ) -> Iterator[tuple[str, str]]:
        for value in values:
            if not section.type:
                for kind, texts in indicators(budget.text(value)).items():
                    yield from ((kind, text) for text in texts)
            elif value.strip().casefold() in _NOTHING or (section.type == "url" and value.startswith("/")):
                continue  # nothing, or a path without its host
            elif section.type == "hash" and "=" in value:
                yield from (("hash", text) for text in _hashes(value))
            elif found := _observable(section.type, value):
                yield found
            else:
                notes.append(f"What is at {section.path}, which is no {section.type}: {value[:60]!r}.")


class _Budget:
    """What one body may still add."""

    def __init__(self) -> None:
        self._artifacts, self._chars = MAX_ARTIFACTS, TEXT_LIMIT
        self.left_out = 0

    def take(self) -> bool:
        self._artifacts -= 1
        self.left_out += self._artifacts < 0
        return self._artifacts >= 0

    def text(self, text: str) -> str:
        """As much of a text as may still be looked at."""
        text = text[: self._chars]
        self._chars -= len(text)
        return text


class _Table:
    """The table of severities: words, numbers, and bands of numbers such as `7-8.9` and `15-`."""

    def __init__(self, table: Mapping[str, int]) -> None:
        """Raises ValueError for what is neither a band nor a word."""
        self.words = dict[str, int]()
        self._bands = list[tuple[Decimal, Decimal, int]]()
        for key, level in table.items():
            text = key.strip()
            if match := _BAND.fullmatch(text):
                self._bands.append((*_band(*match.groups()), level))
            elif text[:1].isalpha():
                self.words[text.casefold()] = level
            else:
                raise ValueError(f'severity has {key!r}, which is neither a band such as "7-8.9" or "15-" nor a word')

    def of(self, values: Iterable[Any]) -> int:
        """The severity of the first value that has one; medium without any."""
        return next((level for value in values if (level := self._of(value))), 2)

    def _of(self, value: Any) -> int:
        word = _text(value).strip().casefold()
        try:
            number = Decimal(word)
        except InvalidOperation:
            number = Decimal("NaN")
        is_given = bool(self.words or self._bands)
        if not number.is_finite():
            return (self.words if is_given else _SEVERITY_WORDS).get(word, 0)
        if not is_given:
            return int(number) if number in (1, 2, 3, 4) else 0
        return next((level for low, end, level in self._bands if low <= number < end), 0)


def _require_usable(section: MappingSection) -> None:
    """Raises ValueError for a map without a title, or with what is no field or observable."""
    for name in section.map:
        if name not in FIELDS:
            raise ValueError(f"map has no field {name}; there are {', '.join(FIELDS)}")
    if "title" not in section.map:
        raise ValueError('map needs the path of a title, such as map = { title = "rule.name" }')
    if len(section.observables) > MAX_OBSERVABLE_PATHS:
        raise ValueError(f"there are over {MAX_OBSERVABLE_PATHS} observables")
    for type_ in (observable.type for observable in section.observables):
        if type_ and (type_ == "file" or not _TYPE.fullmatch(type_)):
            raise ValueError(f"an observable can't be of the type {type_!r}; take one such as ip or domain")


def words_of(table: Mapping[str, int]) -> set[str]:
    """The words of a table of severities; of an empty one, those that everybody knows."""
    return set(_SEVERITY_WORDS) if not table else set(_Table(table).words)


def _band(low: str, dash: str, high: str | None) -> tuple[Decimal, Decimal]:
    """Where a band begins, and the first number after it: `7-8.9` ends before 9, as `7-8` does."""
    first = Decimal(low)
    if dash and high is None:
        return first, Decimal("Infinity")
    last = Decimal(high or low)
    if last < first:
        raise ValueError(f"severity has the band {low}-{high}, which ends before it begins")
    return first, last + Decimal(1).scaleb(int(last.as_tuple().exponent))


def _named(path: Path, value: Any) -> Iterator[tuple[str, str]]:
    """What a line says of the value at a path; of an object, such as labels, a line for each of its scalars."""
    if isinstance(value, dict):
        yield from ((str(key), _text(item)) for key, item in value.items() if isinstance(item, str | int | float))
        return
    scalars = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str | int | float)]
    if text := ", ".join(_text(item) for item in scalars if item != ""):
        yield path.label, text


def _conditions(section: Mapping[str, Sequence[str]]) -> list[tuple[Path, frozenset[str]]]:
    return [(parse(path), frozenset(value.casefold() for value in values)) for path, values in section.items()]


def _holds(reader: Reader, item: Any, condition: tuple[Path, frozenset[str]]) -> bool:
    path, wanted = condition
    return any(_text(value).casefold() in wanted for value in values_at(reader, (path,), item))


def _looked_at_too_much(content: bytes) -> Unreadable:
    return Unreadable("values", "The map looks at too many values of it; simplify its paths.", content)


def clean(text: str) -> str:
    """The text without control characters, which some databases and screens don't take."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def _line(text: str, limit: int) -> str:
    return " ".join(clean(text).split())[:limit]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _reference(parts: Sequence[Any], item: Mapping[str, Any]) -> str:
    """What tells this alert from others: what is at its paths, or a digest of that; without any, of all of it."""
    texts = ["" if part is None else _text(part) for part in parts if not isinstance(part, dict | list)]
    escaped = (text.replace("\\", "\\\\").replace("|", "\\|") for text in texts)
    line = "|".join(escaped) if len(parts) > 1 else "".join(texts)
    if len(texts) == len(parts) and 0 < len(line) <= REFERENCE_LIMIT and any(texts) and line == clean(line):
        return line
    whole = item if all(part in (None, "") for part in parts) else parts
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _tlp_of(values: Sequence[Any]) -> int:
    """The level of the first value; red for one that nobody can read, and clear, which is below any floor, for none."""
    if not values:
        return 0
    word = _text(values[0]).strip().casefold().removeprefix("tlp:").removeprefix("pap:")
    if word in ("0", "1", "2", "3"):
        return int(word)
    return _TLP_WORDS.get(word, 3)


def _date(values: Sequence[Any], notes: list[str]) -> int | None:
    """ISO 8601, or seconds, ms, us or ns since 1970, as ms."""
    if not values:
        return None
    text = _text(values[0]).strip()
    try:
        number = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
            number = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            notes.append(f"The date {text[:60]!r}, which is neither ISO 8601 nor a number; it is when it arrived.")
            return None
    if not 0 <= number < 10**20:
        notes.append(f"The date {text[:60]!r}, which is none of our time; it is when it arrived.")
        return None
    return int(number * next((factor for below, factor in _TO_MS if number < below), 1e-6))


def _link(texts: Sequence[str], notes: list[str]) -> str | None:
    if not texts:
        return None
    link = texts[0].strip()
    try:
        parts = urlsplit(link)
        if (
            parts.scheme in ("http", "https")
            and parts.netloc
            and len(link) <= LINK_LIMIT
            and link == _line(link, LINK_LIMIT)
        ):
            return link
    except ValueError:
        pass
    notes.append(f"The link {link[:60]!r}, which is no address of http or https.")
    return None


def _hashes(value: str) -> Iterator[str]:
    """The hashes of a file as Sysmon names them, `MD5=...,SHA256=...`, without the IMPHASH, which other files share."""
    for name, _, found in (part.partition("=") for part in value.split(",")):
        if name.strip().upper() != "IMPHASH" and found.strip():
            yield found.strip()


def _observable(kind: str, value: str) -> tuple[str, str] | None:
    """The value with its type: a host without its port, or as the address that it is; None for no address."""
    line = _line(value, OBSERVABLE_LIMIT + 1)
    if kind in _HOSTS:
        line = _PORT.sub("", line)
    address = line.strip("[]").partition("%")[0]
    if kind == "ip" or (kind in _HOSTS and (":" in address or address[-1:].isdigit())):
        try:
            return "ip", str(ipaddress.ip_address(address))
        except ValueError:
            pass
    return (kind, line) if line and kind != "ip" else None
