"""An action's report as cards show it: its sentence, labels, changes and text."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import structlog

from bot.block_kit.text import clip, defang_indicators
from core.common.decoding import mapping
from core.models import Action

UNREADABLE = "The report can't be shown here."

MAX_TEXT = 20_000  # characters of one value
MAX_DEPTH = 12  # of a report, below which it is shown as it is
MAX_ROWS, MAX_COLUMNS, MAX_WIDTH = 500, 8, 40  # of a table; the width is of a column, in characters

log = structlog.get_logger("bot.features")


@dataclass(frozen=True)
class ReportView:
    """The parts of a report that cards show; foreign text, not escaped."""

    message: str = ""
    labels: tuple[str, ...] = ()  # taxonomies, such as `3 indicators`
    changes: tuple[str, ...] = ()  # operations in words, with the outcome of each
    full: str = ""
    facts: tuple[tuple[str, str], ...] = ()  # `full` without its sentence and empty values, as names and values
    texts: tuple[str, ...] = ()  # tables and what else in it has several lines, defanged
    truncated: bool = False
    removed: bool = False  # by retention

    @property
    def shown(self) -> str:
        """All that is shown of `full`, to tell how long it is."""
        return "\n".join([*(f"{name}: {value}" for name, value in self.facts), *self.texts])


def read_report(action: Action) -> ReportView:
    """The report of an action. A malformed one raises nothing, so that a card always shows the end of a run."""
    try:
        return _read(action)
    except Exception:
        log.exception("report_unreadable", action_id=action.id)
        return ReportView(message=UNREADABLE)


def _read(action: Action) -> ReportView:
    report = mapping(_json(action.report))
    full = report.get("full")
    message = _text(report.get("message")) or _text(report.get("errorMessage")) or _inner_message(full)
    facts, texts = _shown(_without(full, message))
    return ReportView(
        message=message,
        labels=tuple(_label(t) for t in _list(mapping(report.get("summary")).get("taxonomies"))),
        changes=tuple(_change(o) for o in _list(_json(action.operations)) or _list(report.get("operations"))),
        full=_full(full),
        facts=facts,
        texts=texts,
        truncated=mapping(full).get("truncated") is True,
        removed=mapping(full) == {"removed": True},
    )


def applied_operations(action: Action) -> frozenset[str]:
    """The types of its operations that succeeded, such as `MarkAlertAsRead`."""
    operations = [mapping(o) for o in _list(_json(action.operations))]
    return frozenset(_text(o.get("type")) for o in operations if o.get("status") == "Success")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _inner_message(full: Any) -> str:
    """Most public responders put their sentence into `full.message`."""
    return _text(mapping(full).get("message"))


def _full(full: Any) -> str:
    """The report as text; "" if it holds only its sentence."""
    if full in (None, "", {}, []) or set(mapping(full)) == {"message"}:
        return ""
    return full if isinstance(full, str) else json.dumps(full, ensure_ascii=False, indent=2, default=str)


def _without(full: Any, message: str) -> Any:
    """A report without the sentence that is shown above it, and without empty values; JSON as text is decoded."""
    if not isinstance(full, dict):
        return _decoded(full)
    repeated = _inner_message(full) == message
    kept = {k: v for k, v in full.items() if v not in (None, "") and not (repeated and k == "message")}
    return {k: value for k, v in kept.items() if (value := _decoded(v)) not in ({}, [])}


def _decoded(value: Any) -> Any:
    """What JSON as text says, such as the answer of a server that a responder called; any other value as it is."""
    if not isinstance(value, str) or len(value) > MAX_TEXT or not value.lstrip().startswith(("{", "[")):
        return value
    decoded = _json(value)
    return decoded if isinstance(decoded, dict | list) else value


def _shown(report: Any) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Facts and blocks of text of a report; a list of records is a table, and JSON is nowhere but in the file."""
    if isinstance(report, str):
        text = report.strip()
        return (), (defang_indicators(text[:MAX_TEXT]),) if text else ()
    if not isinstance(report, dict):
        text = _table(report)
        return ((), (text,)) if text else (tuple(islice(_facts(report, "result"), MAX_ROWS)), ())
    inner = next(iter(report.values())) if len(report) == 1 else report
    if text := _block(inner):
        return (), (text,)
    parts = inner if isinstance(inner, dict) else report
    blocks = {name: text for name, value in parts.items() if (text := _block(value))}
    facts = (fact for name, value in parts.items() if name not in blocks for fact in _facts(value, name))
    return tuple(islice(facts, MAX_ROWS)), tuple(f"{name}\n{text}" for name, text in blocks.items())


def _block(value: Any) -> str:
    """A table, or a text with several lines, defanged; "" for anything else."""
    if not isinstance(value, str):
        return _table(value)
    text = value.strip()
    return defang_indicators(text[:MAX_TEXT]) if "\n" in text else ""


def _facts(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Names and values of what is nested, such as `hosts[2].ip`, without empty ones; a list of plain values is one."""
    if depth < MAX_DEPTH and isinstance(value, dict):
        for key, item in value.items():
            yield from _facts(item, f"{name}.{key}" if name else key, depth + 1)
    elif depth < MAX_DEPTH and isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for number, item in enumerate(value, 1):
            yield from _facts(item, f"{name}[{number}]", depth + 1)
    elif value not in (None, "", [], {}):
        yield name, ", ".join(map(_text, value)) if isinstance(value, list) else _text(value)


def _table(records: Any) -> str:
    """A list of flat objects with some names in common as columns of text; "" for anything else."""
    rows = [mapping(record) for record in _list(records)]
    is_flat = all(rows) and not any(isinstance(v, dict | list) for row in rows for v in row.values())
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names or not is_flat or len(names) > MAX_COLUMNS or len(rows) > MAX_ROWS:
        return ""
    cells = [[" ".join(defang_indicators(_text(row.get(name))).split()) for name in names] for row in rows]
    return _columns([names, *cells])


def _columns(lines: Sequence[Sequence[str]]) -> str:
    """The cells of these lines below each other, cut where a column would be too wide."""
    widths = [min(max(map(len, column)), MAX_WIDTH) for column in zip(*lines, strict=True)]
    padded = ([clip(text, width).ljust(width) for text, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def _label(taxonomy: Any) -> str:
    """`3 indicators`, or `verdict: malicious`."""
    parts = mapping(taxonomy)
    predicate, value = _text(parts.get("predicate")), _text(parts.get("value"))
    if not predicate or not value:
        return predicate or value or _text(parts.get("namespace")) or _text(taxonomy)
    return f"{value} {predicate}" if value.isdecimal() else f"{predicate}: {value}"


OPERATION_PHRASES: Mapping[str, str] = {
    "AddTagToCase": "tagged the case {tag}",
    "AddTagToAlert": "tagged the alert {tag}",
    "AddTagToArtifact": "tagged the observable {tag}",
    "MarkAlertAsRead": "closed the alert",
    "CreateTask": "made the task {title}",
    "AddCustomFields": "set {name} to {value}",
    "CloseTask": "closed the task",
    "AddLogToTask": "wrote into the task's log",
    "AddArtifactToAlert": "added {dataType} {data} to the alert",
    "AddArtifactToCase": "added {dataType} {data} to the case",
    "AssignCase": "assigned the case to {owner}",
}
"""What each operation has done, with the names of its fields in braces."""


def _change(operation: Any) -> str:
    """An operation in words, with the reason if it failed or had nothing to do."""
    parts = mapping(operation)
    kind = _text(parts.get("type")) or "unknown operation"
    if parts.get("status") == "Failure":
        return f"not done: {kind} ({_text(parts.get('message')) or 'no reason given'})"
    if note := _text(parts.get("message")):
        return f"nothing to do for {_text(parts.get('data')) or kind}: {note}"
    # Only our own texts are templates: a responder's could expand to gigabytes, or be malformed.
    return OPERATION_PHRASES[kind].format_map(_Values(parts)) if kind in OPERATION_PHRASES else kind


class _Values(dict[str, Any]):
    """The values of an operation by name; an ellipsis for a missing one."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        super().__init__({k: _text(v) for k, v in parts.items()})

    def __missing__(self, key: str) -> str:
        return "…"
