"""The report of an ended action, as the wire shows it (`semantics.md 5`)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.engines.base import Report, as_sentence, without_secrets

_CONFIG_DEFAULTS: Mapping[str, Any] = {
    "proxy": {"http": None, "https": None},
    "cacerts": None,
    "check_tlp": None,
    "max_tlp": None,
    "check_pap": None,
    "max_pap": None,
    "jobTimeout": None,
}


@dataclass(frozen=True)
class Written:
    """A report as text: what listings show, and the whole where that had to be cut."""

    listed: str
    whole: str | None


def write(report: Report, parameters: Mapping[str, Any], operations: Sequence[Any], limit_bytes: int) -> Written:
    """The report's JSON with every key of `interface.md 2.1`; over the limit the listed form leaves out the bulk."""
    words = _words(report, parameters, operations)
    whole = _dump(words)
    size = len(whole.encode())
    if size <= limit_bytes:
        return Written(whole, None)
    cut = {**words, "full": {"truncated": True, "bytes": size}}
    for bulky in ("artifacts", "operations", "input", "parameters", "summary", "message", "errorMessage"):
        if len(_dump(cut).encode()) <= limit_bytes:
            break
        cut[bulky] = type(words[bulky])() if words[bulky] is not None else None
    return Written(_dump(cut), whole)


def sentence(report: Report) -> str:
    """What to tell people: the engine's own sentence, else what the responder says in `full.message`."""
    if report.message:
        return report.message
    if not report.success:
        return as_sentence(report.error_message)
    said = report.full.get("message")
    return said if isinstance(said, str) else ""


def _words(report: Report, parameters: Mapping[str, Any], operations: Sequence[Any]) -> dict[str, Any]:
    taxonomies = report.summary.get("taxonomies")
    message = sentence(report)
    return {
        "summary": {**report.summary, "taxonomies": taxonomies if isinstance(taxonomies, list) else []},
        "full": report.full,
        "success": report.success,
        "artifacts": list(report.artifacts),
        "operations": list(operations),
        "errorMessage": None if report.success else message,
        "input": without_secrets(report.input) if report.input is not None else None,
        "message": message,
        "parameters": without_secrets(parameters),
        "config": {**_CONFIG_DEFAULTS, **without_secrets(report.config)},
    }


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
