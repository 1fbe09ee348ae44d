"""The report of an ended action as the interface shows it (core/docs/semantics.md#shape-of-a-report)."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_core import from_json

from core.engines.base import Report, describe_error
from core.engines.secret_redaction import REMOVED, Redactor, cap_secrets, redact_keys, redact_urls, secrets_in
from core.models import OWN_PARAMETERS
from core.reports import operations
from core.reports.operations import OperationLimits, OperationOutcome

LISTED_PARAMETERS_BYTES = 16_384

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
_CUT_ORDER = ("artifacts", "operations", "input", "parameters", "summary", "config", "message", "errorMessage")
"""What listings leave out after `full`, in this order, until the rest is within the limit."""
_EMPTY: Mapping[str, str] = {"artifacts": "[]", "operations": "[]", "message": '""', "errorMessage": '""'}


@dataclass(frozen=True)
class ReportLimits:
    """How large reports and their operations may be."""

    listed_bytes: int = 1_048_576
    """Of the report and the operations together, in listings; the store keeps both whole."""
    operations: OperationLimits = field(default_factory=OperationLimits)


@dataclass(frozen=True)
class PreparedReport:
    """A report that is ready to be stored, but for the outcomes of its operations."""

    success: bool
    parts: Mapping[str, str]
    """The JSON of each key but `operations`."""
    operations: Sequence[Any]
    omitted_count: int
    """How many operations were over the limits."""
    sizes: Mapping[str, int]
    """Of the parts, in bytes; measured here, as the store's writer has no time for it."""
    is_known: bool = False
    """As of `Report`; not kept in its text, since only successes are."""

    @classmethod
    def of(
        cls, success: bool, parts: Mapping[str, str], operations: Sequence[Any], omitted_count: int
    ) -> "PreparedReport":
        sizes = {key: len(part.encode()) for key, part in parts.items()}
        return cls(success, parts, operations, omitted_count, sizes)

    @classmethod
    def from_text(cls, text: str) -> "PreparedReport":
        """The report that `to_text` made this text of."""
        return cls.of(*json.loads(text))

    def to_text(self) -> str:
        return _dump([self.success, self.parts, self.operations, self.omitted_count])


@dataclass(frozen=True)
class SerializedReport:
    """The JSON of a report and of its operations, for listings; `whole_...` only where that had to be cut."""

    report: str
    operations: str
    whole_report: str | None = None
    whole_operations: str | None = None


@dataclass(frozen=True)
class SerializedParameters:
    """The JSON of a run's parameters without secrets, for listings; `whole` only where that had to be cut."""

    text: str
    whole: str | None = None
    secret_names: frozenset[str] = frozenset()
    """Of those that are declared to hold a secret."""

    @classmethod
    def of(cls, parameters: Mapping[str, Any], secret_names: frozenset[str] = frozenset()) -> "SerializedParameters":
        """Those that the caller gave, without the ones that core sets itself."""
        text = _dump(without_secrets(parameters, secret_names))
        size = len(text.encode())
        if size <= LISTED_PARAMETERS_BYTES:
            return cls(text, None, secret_names)
        return cls(_dump({"truncated": True, "bytes": size}), text, secret_names)


def without_secrets(parameters: Mapping[str, Any], secret_names: frozenset[str]) -> dict[str, Any]:
    """What a caller gave a run, without the parameters that core sets itself, and REMOVED for each secret."""
    own = {name: value for name, value in parameters.items() if name not in OWN_PARAMETERS}
    shown: dict[str, Any] = _redact_in_text(own, secret_names)(redact_keys(own, secret_names))
    return shown


def why_without_secrets(text: str, parameters: Mapping[str, Any], secret_names: frozenset[str]) -> str:
    """Why somebody runs it, as they say, with REMOVED for each secret that they give it."""
    return str(_redact_in_text(parameters, secret_names)(text)) if text else ""


def has_lost_secret(parameters: Any) -> bool:
    """Whether a secret was removed from these parameters, so that they can't be used again."""
    return REMOVED in _dump(parameters)


def prepare(
    report: Report, parameters: Mapping[str, Any], limits: ReportLimits, secret_names: frozenset[str] = frozenset()
) -> PreparedReport:
    """Make a report ready to be stored; takes as long as it is large: call it in a thread, but for short ones."""
    redact = _redact_in_text(parameters, secret_names)
    report = _without_secrets(redact, report)
    requested = report.operations if report.success else ()
    kept = operations.within_limits(requested, limits.operations)
    parts = {key: _dump(value) for key, value in _parts(report, redact(redact_keys(parameters, secret_names))).items()}
    prepared = PreparedReport.of(report.success, parts, kept, len(requested) - len(kept))
    return replace(prepared, is_known=report.is_known)


def serialize(prepared: PreparedReport, outcomes: Sequence[OperationOutcome], limits: ReportLimits) -> SerializedReport:
    """The JSON of a report and its operations, cut for listings if it is over the limit.

    `outcomes` has one entry for each operation.
    """
    entries = [
        _dump(entry)
        for entry in operations.with_outcomes(prepared.operations, outcomes, prepared.omitted_count, limits.operations)
    ]
    whole_operations = _array(entries)
    parts = {**prepared.parts, "operations": whole_operations}
    whole = _object(parts)
    sizes = {**prepared.sizes, "operations": len(whole_operations.encode())}
    size = sum(sizes.values()) + len(_object(dict.fromkeys(_KEYS, "")))
    if size + sizes["operations"] <= limits.listed_bytes:
        return SerializedReport(whole, whole_operations)
    listed_operations = _first_of(entries, limits.listed_bytes // 2)
    cut_operations = None if listed_operations == whole_operations else whole_operations
    size_left = limits.listed_bytes - len(listed_operations.encode())
    if size <= size_left:
        return SerializedReport(whole, listed_operations, None, cut_operations)
    return SerializedReport(_cut(parts, sizes, size, size_left), listed_operations, whole, cut_operations)


def _cut(parts: Mapping[str, str], sizes: Mapping[str, int], size: int, limit: int) -> str:
    """The JSON of a report of `size` bytes, cut to the limit."""
    cut = {"full": _dump({"truncated": True, "bytes": size})}
    size += len(cut["full"]) - sizes["full"]
    for key in _CUT_ORDER:
        if size <= limit:
            break
        cut[key] = _dump(_CONFIG_DEFAULTS) if key == "config" else _EMPTY.get(key, "{}")
        if parts[key] == "null":
            cut[key] = "null"
        size += len(cut[key]) - sizes[key]
    return _object({**parts, **cut})


_SHORTENED_CHARS = 2_048  # shorter texts are left: a placeholder would be as long


def shorten(doc: str) -> str:
    """An action's JSON without the bulk of its report, operations and parameters, for lists that are too long.

    Nothing is parsed: an unescaped quote can't be inside a text, so that `","report":"` is always a key. The
    placeholder for the report says where to find the whole.
    """
    head, operations_key, rest = doc.partition(',"operations":"')
    operations_text, report_key, rest = rest.partition('","report":"')
    operations_text, parameters_key, parameters_text = operations_text.partition('","parameters":"')
    report_text, created_key, tail = rest.rpartition('","createdBy":"')
    if not (operations_key and report_key and created_key):
        return doc
    if len(report_text) > _SHORTENED_CHARS:
        message = "The report is left out of this long list; the action itself shows it."
        said = {"success": '"status":"Success"' in head, "message": message}
        placeholder = _sentences(said, {"taxonomies": []}, {"truncated": True, "bytes": len(report_text)})
        report_text = _dump(_dump(placeholder))[1:-1]
    if len(operations_text) > _SHORTENED_CHARS:
        operations_text = "[]"
    if len(parameters_text) > _SHORTENED_CHARS:
        parameters_text = _dump(_dump({"truncated": True, "bytes": len(parameters_text)}))[1:-1]
    parameters = parameters_key + parameters_text
    return head + operations_key + operations_text + parameters + report_key + report_text + created_key + tail


_COMPACT_CHARS = 4_096


def compact(doc: str) -> str:
    """An action's JSON with the sentence, the labels and the first operations of its report, for what shows a line.

    Unlike `shorten` it parses the report, so it takes some milliseconds for each MiB: call it in a thread.
    """
    if len(doc) <= _COMPACT_CHARS:
        return doc
    action = from_json(doc)
    report_text = action["report"]
    report, applied = from_json(report_text), from_json(action["operations"])
    if not isinstance(report, dict):
        return doc
    summary = report.get("summary")
    if len(_dump(summary)) > _COMPACT_CHARS:
        summary = {"taxonomies": []}
    action["report"] = _dump(_sentences(report, summary, {"truncated": True, "bytes": len(report_text.encode())}))
    if (size := len(action.get("parameters") or "")) > _COMPACT_CHARS:
        action["parameters"] = _dump({"truncated": True, "bytes": size})
    if isinstance(applied, list):
        action["operations"] = _first_of([_dump(entry) for entry in applied], _COMPACT_CHARS)
    return _dump(action)


def without_report(doc: str) -> str:
    """An action's JSON with only the sentence of its report; one that is damaged stays as it is."""
    try:
        action = from_json(doc)
        report = from_json(action["report"])
        return _dump({**action, "report": _dump(_sentences(report, {"taxonomies": []}, {"removed": True}))})
    except (ValueError, TypeError, KeyError, AttributeError):
        return doc


def _sentences(report: Mapping[str, Any], summary: Any, full: Mapping[str, Any]) -> Mapping[str, Any]:
    """A report with its texts for people only; `full` says why."""
    said = {key: report.get(key) for key in ("message", "errorMessage")}
    texts = {key: text[:_COMPACT_CHARS] if isinstance(text, str) else text for key, text in said.items()}
    own = {"summary": summary, "full": full, "success": report.get("success"), "config": _CONFIG_DEFAULTS}
    parts: dict[str, Any] = {**own, **texts, "artifacts": [], "operations": [], "input": None, "parameters": {}}
    return {key: parts[key] for key in _KEYS}


def sentence(report: Report) -> str:
    """The sentence for people: the engine's own, otherwise the responder's `full.message`."""
    if report.message:
        return report.message
    if not report.success:
        return describe_error(report.error_message)
    message = report.full.get("message")
    return message if isinstance(message, str) else ""


def _redact_in_text(parameters: Mapping[str, Any], secret_names: frozenset[str]) -> Callable[[Any], Any]:
    """Removes the secrets among a caller's parameters from any JSON value."""
    return Redactor(cap_secrets(secrets_in(parameters, secret_names))).value


def _without_secrets(redact: Callable[[Any], Any], report: Report) -> Report:
    """The report without the caller's secret parameters; the engine has removed those of its configuration."""
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


def _parts(report: Report, parameters: Mapping[str, Any]) -> dict[str, Any]:
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
        "parameters": parameters,
        "config": {**_CONFIG_DEFAULTS, **redact_urls(redact_keys(report.config))},
    }


def _first_of(entries: Sequence[str], limit_bytes: int) -> str:
    """The first entries of a list; if some are left out, the last entry says how many."""
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


def _object(parts: Mapping[str, str]) -> str:
    return "{" + ",".join(f'"{key}":{parts[key]}' for key in _KEYS) + "}"


def _array(entries: Sequence[str]) -> str:
    return "[" + ",".join(entries) + "]"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
