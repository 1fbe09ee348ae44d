"""Look up observables in a local list of known-good and known-bad indicators."""

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

VERDICTS = ("good", "bad")


class UnreadableListError(Exception):
    """Why the list can't be used."""


def main(job: Path) -> None:
    job_input = json.loads((job / "input" / "input.json").read_text(encoding="utf-8"))
    try:
        output = report(job_input, read_list(str((job_input.get("config") or {}).get("csv") or "")))
    except UnreadableListError as error:
        output = {"success": False, "errorMessage": str(error)}
    (job / "output").mkdir(exist_ok=True)
    (job / "output" / "output.json").write_text(json.dumps(output, ensure_ascii=False), encoding="utf-8")
    print(output.get("errorMessage") or output["full"]["message"])


def read_list(path: str) -> dict[str, Any]:
    """The entries by normalised indicator; where they contradict each other, `bad` wins."""
    if not Path(path).is_absolute():
        raise UnreadableListError(f"The configured csv {path!r} must be an absolute path.")
    known: dict[str, Any] = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if not {"indicator", "verdict"} <= set(rows.fieldnames or ()):
                raise UnreadableListError(f"{path} has no columns `indicator` and `verdict` in its first line.")
            for row in rows:
                add(known, row, f"{path}, line {rows.line_num}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UnreadableListError(f"{path} can't be read: {error}") from error
    return known


def add(known: dict[str, Any], row: dict[str, Any], location: str) -> None:
    indicator, verdict = normalise(row.get("indicator")), str(row.get("verdict") or "").strip().lower()
    if not indicator:
        return
    if verdict not in VERDICTS:
        raise UnreadableListError(f"{location}: the verdict {verdict!r} is neither good nor bad.")
    if verdict == "bad" or indicator not in known:
        known[indicator] = {"verdict": verdict, "note": str(row.get("note") or "").strip()}


def normalise(value: object) -> str:
    """The same spelling for an indicator, defanged or not."""
    text = re.sub(r"\[\.\]|\(\.\)", ".", str(value or "").strip().lower())
    return re.sub(r"^hxxp", "http", text).rstrip("/")


def report(job_input: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """The content of output.json."""
    is_alert = str(job_input.get("dataType", "")).rpartition(":")[2].lower() == "alert"
    data = job_input.get("data") or {}
    observables = data.get("artifacts") or [] if is_alert else [data]
    values = [str(item["data"]) for item in observables if isinstance(item, dict) and item.get("data")]
    matches = [{"data": value, **known[normalise(value)]} for value in values if normalise(value) in known]
    bad = [match for match in matches if match["verdict"] == "bad"]
    good = [match for match in matches if match["verdict"] == "good"]
    tag = "AddTagToAlert" if is_alert else "AddTagToArtifact"
    return {
        "success": True,
        "full": {"message": sentence(len(values), bad, good), "matches": matches, "looked_up": values},
        "summary": {"taxonomies": taxonomies(bad, good)},
        "artifacts": [],
        "operations": [{"type": tag, "tag": "known-bad"}] if bad else [],
    }


def sentence(count: int, bad: list[Any], good: list[Any]) -> str:
    if not count:
        return "There is no observable to look up."
    text = f"Looked up {count} observable{'s' if count > 1 else ''}: {len(bad)} known bad, {len(good)} known good."
    return text + "".join(f" Bad: {match['data']}{note(match)}." for match in bad[:5])


def note(match: dict[str, Any]) -> str:
    return f" ({match['note']})" if match["note"] else ""


def taxonomies(bad: list[Any], good: list[Any]) -> list[Any]:
    entry = {"namespace": "ResponderBot", "predicate": "lookup"}
    entries = [{**entry, "level": "malicious", "value": f"{len(bad)} known bad"}] if bad else []
    entries += [{**entry, "level": "safe", "value": f"{len(good)} known good"}] if good else []
    return entries or [{**entry, "level": "info", "value": "unknown"}]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
