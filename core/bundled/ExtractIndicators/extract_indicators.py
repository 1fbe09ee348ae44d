"""Find indicators in the text of an alert or of a task log, and list them defanged."""

import ipaddress
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

URL = re.compile(r"\b(?:https?|ftp)://[^\s<>\"'`|\\^{}]+", re.IGNORECASE)
NUMBER = r"(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
IP = re.compile(rf"(?<![\w.]){NUMBER}(?:\.{NUMBER}){{3}}(?![\w]|\.[0-9])")
HASH = re.compile(r"\b(?:[0-9a-f]{128}|[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})\b", re.IGNORECASE)
DOMAIN = re.compile(r"(?<![\w.@/-])(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,24}(?![\w-])", re.IGNORECASE)

FILE_ENDING = re.compile(
    "bat|bin|cfg|conf|csv|db|dll|docx?|exe|gif|gz|html?|ini|jar|jpe?g|js|json|lnk|log|md|msi|pdf|php|png|pptx?|ps1|py"
    "|rar|rtf|scr|sh|sys|tar|tmp|txt|vbs|xlsx?|xml|ya?ml|zip"
)
"""Extensions of file names, which are rarely top-level domains."""


def main(job: Path) -> None:
    job_input = json.loads((job / "input" / "input.json").read_text(encoding="utf-8"))
    output = report(job_input)
    (job / "output").mkdir(exist_ok=True)
    (job / "output" / "output.json").write_text(json.dumps(output, ensure_ascii=False), encoding="utf-8")
    print(output["full"]["message"])


def report(job_input: dict[str, Any]) -> dict[str, Any]:
    """The content of output.json."""
    is_log = str(job_input.get("dataType", "")).rpartition(":")[2].lower() == "case_task_log"
    data = job_input.get("data") or {}
    text = str(data.get("message") or "") if is_log else f"{data.get('title') or ''}\n{data.get('description') or ''}"
    found = indicators(text)
    count = sum(len(values) for values in found.values())
    return {
        "success": True,
        "full": {"message": sentence(found), "indicators": found},
        "summary": {
            "taxonomies": [
                {"level": "info", "namespace": "ResponderBot", "predicate": "indicators", "value": str(count)}
            ]
        },
        "artifacts": [
            {"dataType": kind, "data": value, "message": "Found in the text by ResponderBot_ExtractIndicators"}
            for kind, values in found.items()
            for value in values
        ],
        "operations": operations(found, is_log) if count else [],
    }


def indicators(text: str) -> dict[str, Any]:
    """The indicators by kind, without duplicates, in the order of the text."""
    rest = refang(text)
    urls = unique(url.rstrip(".,;:!?)]'\"") for url in URL.findall(rest))
    rest = URL.sub(" ", rest)
    addresses = unique(value for value in IP.findall(rest) if is_relevant(value))
    domains = unique(name.lower() for name in DOMAIN.findall(rest) if is_domain(name))
    hashes = unique(value.lower() for value in HASH.findall(rest))
    return {"ip": addresses, "domain": domains, "url": urls, "hash": hashes}


def refang(text: str) -> str:
    """Undo the usual ways of defanging."""
    text = re.sub(r"\[\.\]|\(\.\)|\{\.\}|\[dot\]|\(dot\)", ".", text, flags=re.IGNORECASE)
    text = re.sub(r"\[:\]", ":", text)
    text = re.sub(r"\[://\]", "://", text)
    return re.sub(r"\bh(?:xx|\*\*)p(s?)\b", r"http\1", text, flags=re.IGNORECASE)


def defang(kind: str, value: str) -> str:
    """The value as text that is not clickable."""
    if kind == "hash":
        return value
    return re.sub(r"^(h)tt(ps?)", r"\1xx\2", value, flags=re.IGNORECASE).replace(".", "[.]")


def unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def is_relevant(value: str) -> bool:
    """Whether an address can identify a host."""
    address = ipaddress.ip_address(value)
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or value == "255.255.255.255")


def is_domain(name: str) -> bool:
    return not FILE_ENDING.fullmatch(name.rpartition(".")[2].lower())


def sentence(found: dict[str, Any]) -> str:
    words = {"ip": "address", "domain": "domain", "url": "URL", "hash": "hash"}
    parts = [f"{len(values)} {plural(words[kind], len(values))}" for kind, values in found.items() if values]
    return f"Found {', '.join(parts)}." if parts else "Found no addresses, domains, URLs or hashes in the text."


def plural(word: str, count: int) -> str:
    if count == 1:
        return word
    return f"{word}es" if word.endswith(("s", "sh")) else f"{word}s"


def listing(found: dict[str, Any]) -> str:
    """The indicators as Markdown, defanged."""
    blocks = []
    for kind, values in found.items():
        if values:
            blocks.append("\n".join([f"**{kind}**", *(f"- `{defang(kind, value)}`" for value in values)]))
    return "\n\n".join(blocks)


def operations(found: dict[str, Any], is_log: bool) -> list[Any]:
    if is_log:
        return [{"type": "AddLogToTask", "content": f"Indicators found (defanged)\n\n{listing(found)}"}]
    return [{"type": "AddTagToAlert", "tag": f"has-{kind}"} for kind, values in found.items() if values]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
