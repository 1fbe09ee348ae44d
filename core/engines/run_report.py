"""The report of a run that has ended, made of the files that its program left in the job folder."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.common.decoding import decode_json
from core.engines import files
from core.engines.base import Report, describe_error, reported_success
from core.engines.job_folder import OUTPUT_LIMIT_BYTES, JobFolder, RunFacts
from core.engines.secret_redaction import Redactor, redact_keys, redact_urls

PRINTED_LIMIT_BYTES = 64 * 1024
"""How much is kept of what a program printed, half from the head and half from the tail."""

VANISHED = "The job folder of this run has vanished, and its result with it. Run the responder again if it is needed."

_LOOK = "look at the target before you run it again"
RESTARTED = f"the machine was restarted while it ran; {_LOOK}"
UNSEEN = f"it ended while no core followed it; {_LOOK}"
"""The exit description of a program that ended while no core ran."""

CONFINED = (
    "It ran confined; if it needs what it was refused, grant it with readable, writable or network in its settings."
)
"""Added to the report of a confined program that failed and mentions a refusal."""

IN_BWRAP = (
    "It ran under bwrap, where only what it is granted exists; if it needs more, grant it with readable, writable or "
    "network in its settings."
)
"""The same for one that ran under bwrap."""

_REFUSALS = ("Permission denied", "Operation not permitted", "PermissionError", "EACCES", "EPERM")
_MISSING = ("No such file or directory", "Read-only file system", "FileNotFoundError", "ENOENT", "EROFS")

LIMIT_MESSAGES = {
    "disk": "Ended, since it wrote more than disk_mib allows to its output and temporary folder. "
    "If it needs more, raise disk_mib in its settings.",
    "files": "Ended, since it made more than 20,000 files and folders, or folders that can't be counted; "
    "have it make fewer.",
    "processes": "Ended, since it had more processes than its setting processes allows. "
    "If it needs more, raise processes in its settings.",
}
"""By reason of the supervisor's, the message of a run that it has ended."""

_OUTPUT_KEYS = ("full", "summary", "artifacts", "operations", "errorMessage", "input")

_LAST_LINES = 10
_LAST_LINES_CHARACTERS = 2000


@dataclass(frozen=True)
class RunOutput:
    """The output of a program in its job folder, bounded but not yet redacted."""

    output: Any
    """The parsed `output.json`."""
    problem: str
    """Why there is no usable output, as the end of a sentence about the responder; `""` when there is."""
    printed: str


def read_output(folder: JobFolder) -> RunOutput:
    """Read the job folder of a program that has ended."""
    printed = read_printed(folder.printed)
    try:
        names = folder.run.relative_to(folder.path.parent).parts
        content = files.read_regular(
            folder.path.parent, *names, "output", "output.json", limit_bytes=OUTPUT_LIMIT_BYTES
        )
        return RunOutput(decode_json(content), "", printed)
    except FileNotFoundError:
        return RunOutput(None, "wrote no output/output.json", printed)
    except (OSError, UnicodeDecodeError) as error:
        return RunOutput(None, f"wrote an output/output.json that can't be read ({error})", printed)
    except ValueError as error:
        return RunOutput(None, f"wrote an output/output.json that is not usable JSON ({error})", printed)


def read_printed(path: Path) -> str:
    """Head and tail of what was printed, with a line between them that says how many bytes are left out."""
    try:
        descriptor = files.open_regular(path.parent.parent, path.parent.name, path.name)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size <= PRINTED_LIMIT_BYTES:
            return _decode_printed(file.read(PRINTED_LIMIT_BYTES))
        half = PRINTED_LIMIT_BYTES // 2
        head = file.read(half)
        file.seek(size - half)
        tail = file.read(half)
        return f"{_decode_printed(head)}\n... {size - 2 * half} bytes left out ...\n{_decode_printed(tail)}"


def _decode_printed(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def last_lines(printed: str) -> str:
    """The last lines of what was printed, short enough for a message."""
    lines = [line.rstrip() for line in printed.splitlines() if line.strip()]
    return "\n".join(lines[-_LAST_LINES:])[-_LAST_LINES_CHARACTERS:]


def make_report(folder: JobFolder, facts: RunFacts | None, stop_reason: str, exit_description: str) -> Report:
    """The report of a run that has ended.

    `stop_reason` is one of STOP_REASONS or `""`; `exit_description` is as `describe_exit` returns it, or why nobody
    knows, or `""`.
    """
    if facts is None:
        return Report(success=False, message=VANISHED)
    paths = {str(folder.path), os.path.realpath(folder.path)}
    names = dict.fromkeys(paths, folder.path.name)
    return interpret(facts, read_output(folder), stop_reason, exit_description, names)


def interpret(
    facts: RunFacts,
    run_output: RunOutput,
    stop_reason: str,
    exit_description: str,
    names: Mapping[str, str] | None = None,
) -> Report:
    """Decide how a run ended, and redact what it returned. `names` are replacements beside those of `facts`."""
    report = _report_from_output(facts, run_output, stop_reason, exit_description, names)
    in_bwrap = facts.confined == "bwrap"
    hints = (*_REFUSALS, *_MISSING) if in_bwrap else _REFUSALS
    was_refused = any(word in text for word in hints for text in (report.message, last_lines(report.printed)))
    if report.success or not facts.confined or not was_refused:
        return report
    message = f"{report.message.rstrip()}\n{IN_BWRAP if in_bwrap else CONFINED}"
    return replace(report, message=message, error_message=report.error_message and message)


def _report_from_output(
    facts: RunFacts,
    run_output: RunOutput,
    stop_reason: str,
    exit_description: str,
    names: Mapping[str, str] | None,
) -> Report:
    redactor = Redactor(facts.secrets, {**facts.names, **(names or {})})
    printed = redactor.text(run_output.printed)
    if stop_reason == "timeout":
        return _failure(facts, f"Timed out after {facts.timeout_minutes:g} minutes", printed)
    if stop_reason == "cancel":
        return _failure(facts, "Cancelled", printed)
    if stop_reason in LIMIT_MESSAGES:
        return _failure(facts, LIMIT_MESSAGES[stop_reason], printed)
    if run_output.problem:
        return _failure(facts, _no_output(redactor.text(run_output.problem), exit_description, printed), printed)
    raw = run_output.output
    if not isinstance(raw, dict) or not isinstance(raw.get("success"), bool):
        return _failure(
            facts, "The responder's output.json is not an object in which `success` is true or false.", printed
        )
    output = {key: redactor.value(raw.get(key)) for key in _OUTPUT_KEYS}  # the keys themselves are never secret
    if not raw["success"]:
        return _reported_failure(facts, output, printed)
    return replace(reported_success(output), config=facts.config, printed=printed)


def _no_output(problem: str, exit_description: str, printed: str) -> str:
    sentence = f"The responder {problem}"
    if exit_description:
        sentence += f" ({exit_description})"
    lines = last_lines(printed)
    return f"{sentence}. The last lines that it printed:\n{lines}" if lines else f"{sentence}, and printed nothing."


def _failure(facts: RunFacts, message: str, printed: str) -> Report:
    return Report(success=False, message=message, error_message=message, config=facts.config, printed=printed)


def _reported_failure(facts: RunFacts, output: dict[str, Any], printed: str) -> Report:
    error_message, returned = output["errorMessage"], output["input"]
    return Report(
        success=False,
        is_known=True,
        message=describe_error(error_message),
        error_message=error_message,
        input=_redact_input(returned, facts) if isinstance(returned, dict) else None,
        config=facts.config,
        printed=printed,
    )


def _redact_input(returned: dict[str, Any], facts: RunFacts) -> Mapping[str, Any]:
    redacted: dict[str, Any] = redact_keys(returned, facts.secret_names)
    return {**redacted, "config": redact_urls(redacted["config"])} if "config" in redacted else redacted
