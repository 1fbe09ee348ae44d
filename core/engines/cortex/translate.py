"""What a Cortex server says, as words of this project. Pure; every shape of the foreign side is checked here."""

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
)
from core.engines.cortex.http import CortexAnswer, read_json
from core.engines.redaction import Redactor, cap_secrets, redact_keys, redact_urls, secrets_in

UNCHECKED = 3
"""The maximum where the engine gives none (`responder-process.md 4`)."""

ID_LIMIT = 256


@dataclass(frozen=True)
class JobUpdate:
    """What an answer about a job means."""

    kind: Literal["waiting", "running", "ended", "still", "busy", "missing", "rubbish"]
    """`still`: it says that it runs on, nothing more; `busy`: ask again later; `rubbish`: an answer of no use."""
    report: Report | None = None
    started: bool = False
    """True when the program has really run, also if it has ended since."""
    ran_s: float = 0
    """How long it has been running, by the engine's own clock."""
    retry_after_s: float | None = None
    why: str = ""


def catalogue_of(entries: list[Any]) -> Catalogue:
    read = [_responder_of(entry) for entry in entries]
    return Catalogue(
        tuple(entry for entry in read if isinstance(entry, Responder)),
        tuple(entry for entry in read if isinstance(entry, Skipped)),
    )


def _responder_of(entry: Any) -> Responder | Skipped:
    if not isinstance(entry, Mapping) or not is_text(entry.get("name")):
        return Skipped("?", "The engine lists a responder without a name.")
    name = entry["name"]
    kinds = entry.get("dataTypeList")
    if not usable_id(job_id := entry.get("id") or entry.get("_id")):
        return Skipped(name, f"The engine lists {name} without an id.")
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        return Skipped(name, f"The engine lists {name} without a readable dataTypeList.")
    max_tlp, max_pap = _maximum(entry.get("maxTlp")), _maximum(entry.get("maxPap"))
    if max_tlp is None or max_pap is None:
        return Skipped(name, f"The engine lists {name} with a maxTlp or maxPap that is no number from 0 to 3.")
    return Responder(
        id=str(job_id),
        name=name,
        version=_text(entry.get("version")),
        description=_text(entry.get("description")),
        data_types=tuple(kinds),
        max_tlp=max_tlp,
        max_pap=max_pap,
        definition=_text(entry.get("workerDefinitionId")) or name,
    )


def _maximum(value: Any) -> int | None:
    """None for what is no level: a bound that can't be read must not become "no bound"."""
    if value is None:
        return UNCHECKED
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 0:
        return None
    return min(int(value), UNCHECKED)


def run_body(job: Job) -> JsonObject:
    return {
        "label": job.action_id,
        "data": job.data,
        "dataType": job.data_type,
        "tlp": job.tlp,
        "pap": job.pap,
        "message": job.message,
        "parameters": job.parameters,
    }


def job_id_of(body: Any) -> str:
    """The id of a job as the engine answers it, `""` if there is none."""
    if not isinstance(body, Mapping):
        return ""
    job_id = body.get("id") or body.get("_id")
    return str(job_id) if usable_id(job_id) else ""


def find_ours(jobs: list[Any], job: Job) -> str:
    """The engine's id of our job among those found by its label, `""` if it is not there.

    Another core with the same key may have used the same label, so what else is known of the job must fit too.
    """
    for found in jobs:
        if isinstance(found, Mapping) and found.get("label") == job.action_id and _fits(found, job):
            return job_id_of(found)
    return ""


def _fits(found: JsonObject, job: Job) -> bool:
    if found.get("workerId", job.responder_id) != job.responder_id:
        return False
    data = found.get("data")
    if not isinstance(data, Mapping):
        return True
    return all(data.get(key) == job.data.get(key) for key in ("_id", "id", "createdAt") if key in data)


def news_of(answer: CortexAnswer) -> JobUpdate:
    """What the answer to a question about a job means. Refusals but 404 are not for here."""
    if answer.status == 429:
        return JobUpdate("busy", retry_after_s=answer.retry_after_s, why="it takes no more calls for now")
    if answer.status == 404:
        return JobUpdate("missing")
    if answer.status >= 500:
        if "AskTimeoutException" in answer.type:
            return JobUpdate("still")
        return JobUpdate("busy", retry_after_s=answer.retry_after_s, why=f"it answers {answer.status}")
    if not isinstance(answer.body, Mapping):
        return JobUpdate("rubbish", why=answer.flaw or "its answer is no job")
    return _news_of_job(answer.body, answer.at_ms)


def _news_of_job(body: JsonObject, at_ms: int | None) -> JobUpdate:
    status = body.get("status")
    if status == "Waiting":
        return JobUpdate("waiting")
    if status == "InProgress":
        return JobUpdate("running", started=True, ran_s=_ran_s(body, at_ms))
    if status == "Deleted":
        return JobUpdate("ended", Report(False, "The job was deleted on the engine, so it is not known how it ended."))
    if status not in ("Success", "Failure"):
        return JobUpdate("rubbish", why="its answer is no job")
    report = _success(body) if status == "Success" else _failure(body)
    if report is None:
        return JobUpdate("rubbish", why=f"it says {status} and gives no report")
    return JobUpdate("ended", report, started=status == "Success" or _is_number(body.get("startDate")))


def _ran_s(body: JsonObject, at_ms: int | None) -> float:
    """Both times are the engine's, so a wrong clock there does no harm."""
    started_ms = body.get("startDate")
    if at_ms is None or not _is_number(started_ms):
        return 0
    return max(0.0, (at_ms - float(started_ms)) / 1000)


def _is_number(value: Any) -> TypeGuard[float]:
    """A time in milliseconds; the bound keeps arithmetic on it harmless."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15


def _success(body: JsonObject) -> Report | None:
    report = body.get("report")
    if not isinstance(report, Mapping):
        return None
    if report.get("success") is False:
        return _failed(report)
    full, summary = report.get("full"), report.get("summary")
    artifacts, operations = _items(report.get("artifacts")), _items(report.get("operations"))
    if not isinstance(full, Mapping):
        return Report(False, "The responder ended, but its report can't be used: `full` is no object.")
    if artifacts is None or operations is None:
        which = "artifacts" if artifacts is None else "operations"
        return Report(False, f"The responder ended, but its report can't be used: `{which}` is no list.")
    return Report(
        True,
        message=_text(full.get("message")),
        full=full,
        # Decoration only: a run that had its effect is not called a failure for it.
        summary=summary if isinstance(summary, Mapping) else {},
        artifacts=artifacts,
        operations=operations,
    )


def _failure(body: JsonObject) -> Report | None:
    report = body.get("report")
    if isinstance(report, Mapping):
        return _failed(report)
    if report in ("Waiting", "Running"):
        return None
    # Old versions give the error's text in place of a report.
    return _failed({"errorMessage": report if isinstance(report, str) else body.get("errorMessage")})


def _failed(report: JsonObject) -> Report:
    given = _object(report.get("input"))
    # The engine's own configuration comes back only here, and what is secret in it may stand in the rest as well.
    redact = Redactor(() if given is None else cap_secrets(secrets_in(given.get("config"), urls=True)))
    error_message = redact_keys(redact.value(report.get("errorMessage")))
    cleaned = None if given is None else redact_keys(redact.value(given))
    config = None if cleaned is None else redact_urls(cleaned.get("config"))
    return Report(
        False,
        message=describe_error(error_message),
        error_message=error_message,
        input=cleaned if config is None else {**(cleaned or {}), "config": config},
        config=config if isinstance(config, Mapping) else {},
    )


def _object(value: Any) -> JsonObject | None:
    """The engine keeps `input` as the text of what the responder gave back."""
    if isinstance(value, str):
        try:
            value = read_json(value)
        except ValueError:
            return None
    return value if isinstance(value, Mapping) else None


def _items(value: Any) -> tuple[Any, ...] | None:
    """None for what is no list; an absent list is an empty one (`operations: null` was seen)."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else None


def is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def usable_id(value: Any) -> bool:
    """An id goes into an address, so it is bounded, and no path of dots."""
    return isinstance(value, str) and 0 < len(value) <= ID_LIMIT and bool(value.strip(". "))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def refusal(name: str, answer: CortexAnswer, what: str) -> str:
    """The sentence for an answer that asking again would not change."""
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
