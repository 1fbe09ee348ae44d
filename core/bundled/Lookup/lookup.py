"""Look up observables in a local list of known-good and known-bad indicators."""

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

VERDICTS = ("good", "bad")


class Unreadable(Exception):
    """The list can't be used, and why."""


def main(job: Path) -> None:
    asked = json.loads((job / "input" / "input.json").read_text(encoding="utf-8"))
    try:
        answer = report(asked, read_list(str((asked.get("config") or {}).get("csv") or "")))
    except Unreadable as error:
        answer = {"success": False, "errorMessage": str(error)}
    (job / "output").mkdir(exist_ok=True)
    (job / "output" / "output.json").write_text(json.dumps(answer, ensure_ascii=False), encoding="utf-8")
    print(answer.get("errorMessage") or answer["full"]["message"])


def read_list(path: str) -> dict[str, Any]:
    """All indicators of the file, normalised; of one that comes twice, `bad` wins."""
    if not Path(path).is_absolute():
        raise Unreadable(f"The configured csv {path!r} must be an absolute path.")
    known: dict[str, Any] = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if not {"indicator", "verdict"} <= set(rows.fieldnames or ()):
                raise Unreadable(f"{path} has no columns `indicator` and `verdict` in its first line.")
            for row in rows:
                add(known, row, f"{path}, line {rows.line_num}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Unreadable(f"{path} can't be read: {error}") from error
    return known


def add(known: dict[str, Any], row: dict[str, Any], place: str) -> None:
    indicator, verdict = normal(row.get("indicator")), str(row.get("verdict") or "").strip().lower()
    if not indicator:
        return
    if verdict not in VERDICTS:
        raise Unreadable(f"{place}: the verdict {verdict!r} is neither good nor bad.")
    if verdict == "bad" or indicator not in known:
        known[indicator] = {"verdict": verdict, "note": str(row.get("note") or "").strip()}


def normal(value: object) -> str:
    """One spelling for one indicator, defanged or not."""
    text = re.sub(r"\[\.\]|\(\.\)", ".", str(value or "").strip().lower())
    return re.sub(r"^hxxp", "http", text).rstrip("/")


def report(asked: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """The responder's report on the observables it was given."""
    is_alert = str(asked.get("dataType", "")).rpartition(":")[2].lower() == "alert"
    data = asked.get("data") or {}
    observables = data.get("artifacts") or [] if is_alert else [data]
    values = [str(item["data"]) for item in observables if isinstance(item, dict) and item.get("data")]
    matches = [{"data": value, **known[normal(value)]} for value in values if normal(value) in known]
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
    found = [{**entry, "level": "malicious", "value": f"{len(bad)} known bad"}] if bad else []
    found += [{**entry, "level": "safe", "value": f"{len(good)} known good"}] if good else []
    return found or [{**entry, "level": "info", "value": "unknown"}]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
