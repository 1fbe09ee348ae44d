"""The report of an ended action, as the wire shows it."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.actions import operations
from core.actions.operations import Limits as OperationLimits
from core.engines.base import Report, describe_error
from core.engines.redaction import Redactor, cap_secrets, redact_keys, redact_urls, secrets_in

_CONFIG_DEFAULTS: Mapping[str, Any] = {
    "proxy": {"http": None, "https": None},
    "cacerts": None,
    "check_tlp": None,
    "max_tlp": None,
    "check_pap": None,
    "max_pap": None,
    "jobTimeout": None,
}

_KEYS = (
    *("summary", "full", "success", "artifacts", "operations", "errorMessage", "input", "message", "parameters"),
    "config",
)
_CUT = ("artifacts", "operations", "input", "parameters", "summary", "config", "message", "errorMessage")
"""In this order, as far as it takes, after `full`."""
_EMPTY: Mapping[str, str] = {"artifacts": "[]", "operations": "[]", "message": '""', "errorMessage": '""'}


@dataclass(frozen=True)
class Limits:
    """What is kept of a report."""

    listed_bytes: int = 1_048_576
    """Of the report and the operations together, in listings; the store keeps the whole."""
    operations: OperationLimits = field(default_factory=OperationLimits)


@dataclass(frozen=True)
class Ending:
    """A report that only lacks what becomes of its operations."""

    success: bool
    parts: Mapping[str, str]
    """The JSON of each key but `operations`."""
    operations: Sequence[Any]
    left_out: int
    """How many operations were over the limits."""
    sizes: Mapping[str, int]
    """Of the parts, in bytes; measured before the writer has to."""

    def dumped(self) -> str:
        """As text, for `loaded`."""
        return _dump([self.success, self.parts, self.operations, self.left_out])


def loaded(text: str) -> Ending:
    """What `Ending.dumped` gave."""
    return _measured(*json.loads(text))


@dataclass(frozen=True)
class SerializedReport:
    """A report and its operations as text: what listings show, and the whole where that had to be cut."""

    report: str
    operations: str
    whole_report: str | None = None
    whole_operations: str | None = None


def ending(report: Report, parameters: Mapping[str, Any], limits: Limits) -> Ending:
    """Make a report ready to be stored. May take as long as it is large: not for the loop or the writer."""
    report = _without(secrets_in(parameters), report)
    asked = report.operations if report.success else ()
    kept = operations.bounded(asked, limits.operations)
    words = _words(report, parameters)
    return _measured(report.success, {key: _dump(word) for key, word in words.items()}, kept, len(asked) - len(kept))


def _measured(success: bool, parts: Mapping[str, str], operations: Sequence[Any], left_out: int) -> Ending:
    return Ending(success, parts, operations, left_out, {key: len(part.encode()) for key, part in parts.items()})


def write(ended: Ending, outcomes: Sequence[str], limits: Limits) -> SerializedReport:
    """The JSON of report and operations; listings leave out the bulk of what is over the limit.

    `outcomes` says why each operation failed, `""` where it didn't.
    """
    entries = [
        _dump(entry) for entry in operations.recorded(ended.operations, outcomes, ended.left_out, limits.operations)
    ]
    whole_operations = _array(entries)
    parts = {**ended.parts, "operations": whole_operations}
    whole = _object(parts)
    sizes = {**ended.sizes, "operations": len(whole_operations.encode())}
    size = sum(sizes.values()) + len(_object(dict.fromkeys(_KEYS, "")))
    if size + sizes["operations"] <= limits.listed_bytes:
        return SerializedReport(whole, whole_operations)
    listed_operations = _first_of(entries, limits.listed_bytes // 2)
    left = limits.listed_bytes - len(listed_operations.encode())
    if size <= left:
        return SerializedReport(whole, listed_operations, None, _other(whole_operations, listed_operations))
    cut = {"full": _dump({"truncated": True, "bytes": size})}
    size += len(cut["full"]) - sizes["full"]
    for key in _CUT:
        if size <= left:
            break
        cut[key] = _dump(_CONFIG_DEFAULTS) if key == "config" else _EMPTY.get(key, "{}")
        if parts[key] == "null":
            cut[key] = "null"
        size += len(cut[key]) - sizes[key]
    return SerializedReport(
        _object({**parts, **cut}), listed_operations, whole, _other(whole_operations, listed_operations)
    )


_LEAST_CHARS = 2_048  # shorter texts stay: what would stand for them is as long


def shortened(doc: str) -> str:
    """An action's JSON without the bulk of its report and operations, for lists that get too long.

    Texts are told from keys by their quotes, of which those within a text have a backslash before them; so what is
    left out need not be parsed. What stands for the report says where the whole is.
    """
    head, operations, rest = doc.partition(',"operations":"')
    asked_for, report, tail = rest.partition('","report":"')
    whole, created, after = tail.rpartition('","createdBy":"')
    if not (operations and report and created):
        return doc
    if len(whole) > _LEAST_CHARS:
        least = {
            "summary": {"taxonomies": []},
            "full": {"truncated": True, "bytes": len(whole)},
            "success": '"status":"Success"' in head,
            "artifacts": [],
            "operations": [],
            "errorMessage": None,
            "input": None,
            "message": "The report is left out of this long list; the action itself shows it.",
            "parameters": {},
            "config": _CONFIG_DEFAULTS,
        }
        whole = _dump(_dump(least))[1:-1]
    if len(asked_for) > _LEAST_CHARS:
        asked_for = "[]"
    return head + operations + asked_for + report + whole + created + after


def sentence(report: Report) -> str:
    """What to tell people: the engine's own sentence, else what the responder says in `full.message`."""
    if report.message:
        return report.message
    if not report.success:
        return describe_error(report.error_message)
    said = report.full.get("message")
    return said if isinstance(said, str) else ""


def _without(secrets: Collection[str], report: Report) -> Report:
    """The report without what the caller gave as secret parameters; the engine has taken out what it knows."""
    redact = Redactor(cap_secrets(secrets)).value
    return replace(
        report,
        message=redact(report.message),
        full=redact(report.full),
        summary=redact(report.summary),
        artifacts=tuple(redact(report.artifacts)),
        operations=tuple(redact(report.operations)),
        error_message=redact(report.error_message),
        input=redact(report.input),
        config=redact(report.config),
    )


def _words(report: Report, parameters: Mapping[str, Any]) -> dict[str, Any]:
    taxonomies = report.summary.get("taxonomies")
    message = sentence(report)
    return {
        "summary": {**report.summary, "taxonomies": taxonomies if isinstance(taxonomies, list) else []},
        "full": report.full,
        "success": report.success,
        "artifacts": list(report.artifacts),
        "errorMessage": None if report.success else message,
        "input": redact_keys(report.input) if report.input is not None else None,
        "message": message,
        "parameters": redact_keys(parameters),
        "config": {**_CONFIG_DEFAULTS, **redact_urls(redact_keys(report.config))},
    }


def _first_of(entries: Sequence[str], limit_bytes: int) -> str:
    """The first entries of a list, and one at its end that says how many are left out, if any are."""
    if len(whole := _array(entries).encode()) <= limit_bytes:
        return whole.decode()
    kept: list[str] = []
    left = limit_bytes - len(_more(len(entries)).encode()) - len("[]")
    for entry in entries:
        left -= len(entry.encode()) + 1
        if left < 0:
            break
        kept.append(entry)
    return _array([*kept, _more(len(entries) - len(kept))])


def _more(count: int) -> str:
    message = f"{count} more are left out of this list; the action itself shows them."
    return _dump({"type": "", "truncated": True, "message": message})


def _other(whole: str, listed: str) -> str | None:
    return None if whole == listed else whole


def _object(parts: Mapping[str, str]) -> str:
    return "{" + ",".join(f'"{key}":{parts[key]}' for key in _KEYS) + "}"


def _array(entries: Sequence[str]) -> str:
    return "[" + ",".join(entries) + "]"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
