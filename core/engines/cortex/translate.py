"""Translation between the JSON of a Cortex server and core's own types. Pure; all foreign data is checked here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from core.engines.base import (
    Catalogue,
    Job,
    JsonObject,
    Report,
    Responder,
    Skipped,
    describe_error,
    name_of,
    reported_success,
    title_of,
)
from core.engines.cortex.http import CortexAnswer, read_json
from core.engines.secret_redaction import Redactor, cap_secrets, redact_keys, redact_urls, secrets_in

_NO_MAXIMUM = 3
"""The maximum TLP or PAP of a responder for which the server names none."""

MAX_RESPONDERS = 1000
"""Of one server: each takes time whenever any catalogue changes."""

_ID_LIMIT_CHARACTERS = 256

_NAME = re.compile(r"[!-~][ -~]{0,199}")


@dataclass(frozen=True)
class JobUpdate:
    """The meaning of an answer about a job."""

    kind: Literal["waiting", "running", "ended", "not_ended", "busy", "missing", "unusable"]
    """`not_ended`: it waits or runs; `busy`: ask again later; `unusable`: not an answer about a job."""
    report: Report | None = None
    """Set if it has ended."""
    started: bool = False
    """True if its program has started, even if it has ended since."""
    retry_after_s: float | None = None
    problem: str = ""
    """Why it is busy or unusable, as part of a sentence."""


def parse_catalogue(entries: list[Any]) -> Catalogue:
    """The catalogue in a list of responders; entries that can't be used are skipped."""
    read = [_parse_responder(entry) for entry in entries[:MAX_RESPONDERS]]
    if len(entries) > MAX_RESPONDERS:
        read.append(
            Skipped("?", f"The engine lists {len(entries)} responders; only the first {MAX_RESPONDERS} are read.")
        )
    return Catalogue(
        tuple(entry for entry in read if isinstance(entry, Responder)),
        tuple(entry for entry in read if isinstance(entry, Skipped)),
    )


def _parse_responder(entry: Any) -> Responder | Skipped:
    if not isinstance(entry, Mapping) or not is_text(entry.get("name")):
        return Skipped("?", "The engine lists a responder without a name.")
    name = entry["name"]
    kinds = entry.get("dataTypeList")
    if not _NAME.fullmatch(name):
        return Skipped(
            " ".join(name.split())[:100],
            "The engine lists a responder whose name has other characters than those of ASCII, or too many, so that it"
            " might look like another; give it another name there.",
        )
    if not is_usable_id(responder_id := entry.get("id") or entry.get("_id")):
        return Skipped(name, f"The engine lists {name} without an id.")
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        return Skipped(name, f"The engine lists {name} without a readable dataTypeList.")
    max_tlp, max_pap = _parse_maximum(entry.get("maxTlp")), _parse_maximum(entry.get("maxPap"))
    if max_tlp is None or max_pap is None:
        return Skipped(name, f"The engine lists {name} with a maxTlp or maxPap that is not a number from 0 to 3.")
    return Responder(
        id=str(responder_id),
        name=name,
        version=_text(entry.get("version")),
        description=_text(entry.get("description")),
        data_types=tuple(kinds),
        max_tlp=max_tlp,
        max_pap=max_pap,
        title=title_of(name_of(name, _text(entry.get("version"))), _text(entry.get("baseConfig"))),
        definition=_text(entry.get("workerDefinitionId")) or name,
    )


def _parse_maximum(value: Any) -> int | None:
    """None for what is not a level: an invalid maximum must not mean that there is none."""
    if value is None:
        return _NO_MAXIMUM
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 0:
        return None
    return min(int(value), _NO_MAXIMUM)


def label_of(job: Job) -> str:
    """The label by which a job is found on the server, such as `~12-9f86d081884c7d65`."""
    return f"~{job.run_id}"


def parse_id(body: Any) -> str:
    """The id of a job or responder in an answer, `""` if there is none."""
    if not isinstance(body, Mapping):
        return ""
    job_id = body.get("id") or body.get("_id")
    return str(job_id) if is_usable_id(job_id) else ""


def find_job(jobs: list[Any], job: Job) -> str:
    """The server's id of a job among those with its label; `""` if it is not there.

    Another core with the same API key may use the same label, so responder and data must match too.
    """
    for candidate in jobs:
        if isinstance(candidate, Mapping) and candidate.get("label") == label_of(job) and _matches(candidate, job):
            return parse_id(candidate)
    return ""


def _matches(candidate: JsonObject, job: Job) -> bool:
    if candidate.get("workerId", job.responder_id) != job.responder_id:
        return False
    data = candidate.get("data")
    if not isinstance(data, Mapping):
        return True
    return all(data.get(key) == job.data.get(key) for key in ("_id", "id", "createdAt") if key in data)


def parse_update(answer: CortexAnswer) -> JobUpdate:
    """The meaning of an answer about a job. Refusals other than 404 must be handled before."""
    if answer.status == 429:
        return JobUpdate("busy", retry_after_s=answer.retry_after_s, problem="it limits the rate of calls")
    if answer.status == 404:
        return JobUpdate("missing")
    if answer.status >= 500:
        if "AskTimeoutException" in answer.type:
            return JobUpdate("not_ended")
        return JobUpdate("busy", retry_after_s=answer.retry_after_s, problem=f"it answered {answer.status}")
    if not isinstance(answer.body, Mapping):
        return JobUpdate("unusable", problem=answer.problem or "its answer is not a job")
    return _parse_job(answer.body)


def _parse_job(body: JsonObject) -> JobUpdate:
    status = body.get("status")
    if status == "Waiting":
        return JobUpdate("waiting")
    if status == "InProgress":
        return JobUpdate("running", started=True)
    if status == "Deleted":
        return JobUpdate("ended", Report(False, "The job was deleted on the engine, so it is not known how it ended."))
    if status not in ("Success", "Failure"):
        return JobUpdate("unusable", problem="its answer is not a job")
    report = _success(body) if status == "Success" else _failure(body)
    if report is None:
        return JobUpdate("unusable", problem=f"the job has status {status} but no report")
    return JobUpdate("ended", report, started=status == "Success" or _is_time(body.get("startDate")))


def _is_time(value: Any) -> TypeGuard[float]:
    """Whether a value can be a time in milliseconds; arithmetic on larger numbers could fail."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15


def _success(body: JsonObject) -> Report | None:
    report = body.get("report")
    if not isinstance(report, Mapping):
        return None
    if report.get("success") is False:
        return _failed(report)
    return reported_success(report)


def _failure(body: JsonObject) -> Report | None:
    report = body.get("report")
    if isinstance(report, Mapping):
        return _failed(report)
    if report in ("Waiting", "Running"):
        return None
    # Old versions return the text of the error in place of a report.
    return _failed({"errorMessage": report if isinstance(report, str) else body.get("errorMessage")})


def _failed(report: JsonObject) -> Report:
    returned = _parse_object(report.get("input"))
    # Only here the server returns its configuration; secrets in it may appear in the rest of the report as well.
    redactor = Redactor(() if returned is None else cap_secrets(secrets_in(returned.get("config"), urls=True)))
    error_message = redact_keys(redactor.value(report.get("errorMessage")))
    redacted = None if returned is None else redact_keys(redactor.value(returned))
    config = None if redacted is None else redact_urls(redacted.get("config"))
    return Report(
        False,
        is_known=returned is not None,  # which only the responder itself writes
        message=describe_error(error_message),
        error_message=error_message,
        input=redacted if config is None else {**(redacted or {}), "config": config},
        config=config if isinstance(config, Mapping) else {},
    )


def _parse_object(value: Any) -> JsonObject | None:
    """An object, or the JSON text of one, as which the server stores `input`; else None."""
    if isinstance(value, str):
        try:
            value = read_json(value)
        except ValueError:
            return None
    return value if isinstance(value, Mapping) else None


def is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def is_usable_id(value: Any) -> bool:
    """Whether a value can be an id in a URL: bounded, and not `.` or `..`."""
    return isinstance(value, str) and 0 < len(value) <= _ID_LIMIT_CHARACTERS and bool(value.strip(". "))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def describe_refusal(name: str, answer: CortexAnswer, what: str) -> str:
    """A sentence about an answer that a retry would not change. `what` completes "does not allow to"."""
    if answer.status == 401:
        return f"Engine {name!r} refused the API key. Put a valid one into api_key of this engine in the settings."
    if answer.status == 403:
        return (
            f"Engine {name!r} does not allow this API key to {what}. Give its user the roles read and analyze there, "
            "or put another one into api_key of this engine in the settings."
        )
    if 300 <= answer.status < 400:
        return f"Engine {name!r} redirects elsewhere ({answer.status}). Put its real address into url in the settings."
    return f"Engine {name!r} refused to {what} ({answer.status}). {answer.message}".strip()
