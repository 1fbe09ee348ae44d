"""An action's report read for people: its sentence, its labels, what it changed, its text."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from core.models import Action

UNREADABLE = "The report can't be shown here; core keeps it."

log = structlog.get_logger("bot.cards")


@dataclass(frozen=True)
class ReportView:
    """The parts of `interface.md 2.1`'s report that cards show; foreign text, not escaped."""

    message: str = ""
    labels: tuple[str, ...] = ()  # taxonomies: `namespace:predicate=value`
    changes: tuple[str, ...] = ()  # operations, each with how it went
    full: str = ""
    shown: str = ""  # the same without its own sentence and without what is empty
    truncated: bool = False


def read(action: Action) -> ReportView:
    """The report of an action; what can't be read is left out, so that a card always tells the end."""
    try:
        return _read(action)
    except Exception:
        log.exception("report_unreadable", action_id=action.id)
        return ReportView(message=UNREADABLE)


def _read(action: Action) -> ReportView:
    report = _mapping(_json(action.report))
    full = report.get("full")
    message = _text(report.get("message")) or _text(report.get("errorMessage")) or _inner_message(full)
    return ReportView(
        message=message,
        labels=tuple(_label(t) for t in _list(_mapping(report.get("summary")).get("taxonomies"))),
        changes=tuple(_change(o) for o in _list(_json(action.operations)) or _list(report.get("operations"))),
        full=_full(full),
        shown=_full(_without(full, message)),
        truncated=_mapping(full).get("truncated") is True,
    )


def applied(action: Action) -> frozenset[str]:
    """The kinds of what it changed, as core names them."""
    done = [_mapping(o) for o in _list(_json(action.operations))]
    return frozenset(_text(o.get("type")) for o in done if o.get("status") == "Success")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _inner_message(full: Any) -> str:
    """Most public responders put their sentence at `full.message`."""
    return _text(_mapping(full).get("message"))


def _full(full: Any) -> str:
    """The report as text; nothing when it says no more than its own sentence."""
    if full in (None, "", {}, []) or set(_mapping(full)) == {"message"}:
        return ""
    return full if isinstance(full, str) else json.dumps(full, ensure_ascii=False, indent=2, default=str)


def _without(full: Any, message: str) -> Any:
    """A report without the sentence that stands above it anyway, and without empty values."""
    if not isinstance(full, dict):
        return full
    repeated = _inner_message(full) == message
    return {k: v for k, v in full.items() if v not in (None, "", {}, []) and not (repeated and k == "message")}


def _label(taxonomy: Any) -> str:
    parts = _mapping(taxonomy)
    name = ":".join(_text(parts[k]) for k in ("namespace", "predicate") if parts.get(k))
    value = _text(parts.get("value"))
    return f"{name}={value}" if name and value else name or value or _text(taxonomy)


_DONE: Mapping[str, str] = {
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


def _change(operation: Any) -> str:
    """One operation in words; one that failed says why."""
    parts = _mapping(operation)
    kind = _text(parts.get("type")) or "unknown operation"
    if parts.get("status") == "Failure":
        return f"not done: {kind} ({_text(parts.get('message')) or 'no reason given'})"
    # Only our own words are a template: one of the responder's could ask for a text of gigabytes, or be no template.
    return _DONE[kind].format_map(_Values(parts)) if kind in _DONE else kind


class _Values(dict[str, Any]):
    """The values of an operation by name; a missing one is an ellipsis."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        super().__init__({k: _text(v) for k, v in parts.items()})

    def __missing__(self, key: str) -> str:
        return "…"
