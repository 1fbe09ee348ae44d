"""An action's report as cards show it: its sentence, labels, changes and text."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from core.common.decoding import mapping
from core.models import Action

UNREADABLE = "The report can't be shown here; core keeps it."

log = structlog.get_logger("bot.cards")


@dataclass(frozen=True)
class ReportView:
    """The parts of a report that cards show; foreign text, not escaped."""

    message: str = ""
    labels: tuple[str, ...] = ()  # taxonomies: `namespace:predicate=value`
    changes: tuple[str, ...] = ()  # operations in words, with the outcome of each
    full: str = ""
    shown: str = ""  # `full` without its sentence and empty values
    truncated: bool = False


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
    return ReportView(
        message=message,
        labels=tuple(_label(t) for t in _list(mapping(report.get("summary")).get("taxonomies"))),
        changes=tuple(_change(o) for o in _list(_json(action.operations)) or _list(report.get("operations"))),
        full=_full(full),
        shown=_full(_without(full, message)),
        truncated=mapping(full).get("truncated") is True,
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
    """A report without the sentence that is shown above it, and without empty values."""
    if not isinstance(full, dict):
        return full
    repeated = _inner_message(full) == message
    return {k: v for k, v in full.items() if v not in (None, "", {}, []) and not (repeated and k == "message")}


def _label(taxonomy: Any) -> str:
    parts = mapping(taxonomy)
    name = ":".join(_text(parts[k]) for k in ("namespace", "predicate") if parts.get(k))
    value = _text(parts.get("value"))
    return f"{name}={value}" if name and value else name or value or _text(taxonomy)


OPERATION_PHRASES: Mapping[str, str] = {
    "AddTagToCase": "tagged the case {tag}",
    "AddTagToAlert": "tagged the alert {tag}",
    "AddTagToArtifact": "tagged the artifact {tag}",
    "MarkAlertAsRead": "marked the alert as read",
    "CreateTask": "made the task {title}",
    "AddCustomFields": "set {name} to {value}",
    "CloseTask": "closed the task",
    "AddLogToTask": "wrote into the task's log",
    "AddArtifactToCase": "added {dataType} {data} to the case",
    "AssignCase": "assigned the case to {owner}",
}
"""What each operation has done, with the names of its fields in braces."""


def _change(operation: Any) -> str:
    """An operation in words, with the reason if it failed."""
    parts = mapping(operation)
    kind = _text(parts.get("type")) or "unknown operation"
    if parts.get("status") == "Failure":
        return f"not done: {kind} ({_text(parts.get('message')) or 'no reason given'})"
    # Only our own texts are templates: a responder's could expand to gigabytes, or be malformed.
    return OPERATION_PHRASES[kind].format_map(_Values(parts)) if kind in OPERATION_PHRASES else kind


class _Values(dict[str, Any]):
    """The values of an operation by name; an ellipsis for a missing one."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        super().__init__({k: _text(v) for k, v in parts.items()})

    def __missing__(self, key: str) -> str:
        return "…"
