"""Find indicators in the text of an alert, a case or a task log, and add them to it as artifacts."""

import ipaddress
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

MAX_ADDED = 100
"""Artifacts that one run adds: a dump of a log with thousands of addresses is no list of indicators."""

NUMBER = r"(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
URL = re.compile(r"\b(?:https?|ftp)://[^\s<>\"'`|\\^{}]+", re.IGNORECASE)
IPV4 = re.compile(rf"(?<![\w.]){NUMBER}(?:\.{NUMBER}){{3}}(?![\w]|\.[0-9])")
IPV6 = re.compile(r"(?<![\w:.])[0-9a-f]{1,4}:[0-9a-f:]{2,34}(?![\w:]|\.\w)", re.IGNORECASE)
HASH = re.compile(r"\b(?:[0-9a-f]{128}|[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})\b", re.IGNORECASE)
DOMAIN = re.compile(
    # At the start of a word, after `//`, or after the `\\` of a share, which is `\\\\` in JSON; else `\` is a path's.
    r"(?:(?<![\w.@/\\-])|(?<=//)|(?<=[\s\"'=(]\\\\)|(?<=\\{4}))"
    r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+(?:[a-z]{2,24}|xn--[a-z0-9-]{2,59})(?![\w@-]|\.\w)",
    re.IGNORECASE,
)
DEFANGED_DOT = re.compile(r"\[\.\]|\(\.\)|\{\.\}|\[dot\]|\(dot\)", re.IGNORECASE)

NETWORKS_6 = tuple(map(ipaddress.IPv6Network, ("2000::/3", "fc00::/7")))
"""Networks of IPv6 in which an address can identify a host."""
VERSION_BEFORE = re.compile(r"version[\"'`*]*[\s:=|]*[\"'`]?$", re.IGNORECASE)
ID_BEFORE = re.compile(r"(?:id|guid)[\"'`*]*\s*[:=|]\s*[\"'`]?$", re.IGNORECASE)
HOST_BEFORE = re.compile(
    r"(?:host|hostname|domain|fqdn|query|rrname|rdata|sni|dns|site|(?:server|host|computer|dns|domain)_?name|\bcn)"
    r"[\"'`*]*\s*[:=|]\s*[\"'`]?$",
    re.IGNORECASE,
)
"""The name of a field whose value is a host."""
KEY_AFTER = re.compile(r"[\"'`*]*\s*(?:=|:(?![0-9/]))|[`*]+\s*\|")
"""What follows the name of a field: in JSON, `key=value`, `key: value`, or in a table with bold names."""
HOST_AFTER = re.compile(r":(?:80|443|8080|8443)\b|/")  # another number is the line of a file: `main.py:42`

HERE = Path(__file__).parent
TLDS = "tlds-alpha-by-domain.txt"
"""The top-level domains, as IANA publishes them at https://data.iana.org/TLD/tlds-alpha-by-domain.txt."""
FIELD_WORDS = "field-words.txt"
SPECIAL_TLDS = frozenset(["corp", "example", "internal", "intranet", "lan", "local", "onion"])
"""Not in the root zone of the Internet, and used nevertheless (RFC 2606, 6762, 7686, and common usage)."""
FILE_TLDS = frozenset(["cab", "data", "dot", "java", "md", "mov", "ps", "pub", "py", "sh", "so", "zip"])
"""Top-level domains that are far more often the endings of files."""
SECOND_LEVELS = frozenset(["ac", "co", "com", "edu", "gov", "mil", "net", "org"])
PRODUCTS = frozenset(("ado.net", "asp.net", "vb.net"))
PACKAGES = frozenset(["com", "edu", "java", "javax", "net", "org"])
"""How names of packages begin, such as `com.vendor.app`."""


def main(job: Path) -> None:
    job_input = json.loads((job / "input" / "input.json").read_text(encoding="utf-8"))
    output = report(job_input)
    (job / "output").mkdir(exist_ok=True)
    (job / "output" / "output.json").write_text(json.dumps(output, ensure_ascii=False), encoding="utf-8")
    print(output["full"]["message"])


def report(job_input: dict[str, Any]) -> dict[str, Any]:
    """The content of output.json."""
    kind = str(job_input.get("dataType", "")).rpartition(":")[2].lower()
    data = job_input.get("data") or {}
    is_log = kind == "case_task_log"
    text = str(data.get("message") or "") if is_log else f"{data.get('title') or ''}\n{data.get('description') or ''}"
    by_kind = indicators(text)
    count = sum(map(len, by_kind.values()))
    known = {(item.get("dataType"), str(item.get("data")).lower()) for item in data.get("artifacts") or ()}
    new = [(name, value) for name, values in by_kind.items() for value in values if (name, value.lower()) not in known]
    return {
        "success": True,
        "full": {"message": sentence(by_kind, len(new)), "indicators": by_kind},
        "summary": {
            "taxonomies": [
                {"level": "info", "namespace": "ResponderBot", "predicate": "indicators", "value": str(count)}
            ]
        },
        "artifacts": [
            {"dataType": name, "data": value, "message": "Found in the text by ResponderBot_ExtractIndicators"}
            for name, values in by_kind.items()
            for value in values
        ],
        "operations": operations(by_kind, new[:MAX_ADDED], kind),
    }


def indicators(text: str) -> dict[str, list[str]]:
    """The indicators by kind, without duplicates, in the order of the text."""
    words = text.split() if DEFANGED_DOT.search(text) else ()
    defanged = frozenset(
        name.lower() for word in words if DEFANGED_DOT.search(word) for name in DOMAIN.findall(refang(word))
    )
    rest = refang(text)
    urls = unique(url.rstrip(".,;:!?)]'\"") for url in URL.findall(rest))
    rest = URL.sub(" ", rest)
    addresses = [match[0] for match in IPV4.finditer(rest) if not VERSION_BEFORE.search(before(match))]
    addresses += [host for url in urls if IPV4.fullmatch(host := host_of(url))]
    addresses += [match[0].lower() for match in IPV6.finditer(rest)]
    domains = unique(match[0].lower() for match in DOMAIN.finditer(rest) if is_domain(match, defanged))
    hashes = unique(match[0].lower() for match in HASH.finditer(rest) if not ID_BEFORE.search(before(match)))
    return {"ip": unique(filter(is_host, addresses)), "domain": domains, "url": urls, "hash": hashes}


def refang(text: str) -> str:
    """Undo the usual ways of defanging, and JSON's way to write a slash."""
    text = DEFANGED_DOT.sub(".", text).replace("[:]", ":").replace("[://]", "://").replace("\\/", "/")
    return re.sub(r"\bh(?:xx|\*\*)p(s?)\b", r"http\1", text.replace("[@]", "@"), flags=re.IGNORECASE)


def defang(kind: str, value: str) -> str:
    """The value as text that is not clickable."""
    if kind == "hash":
        return value
    return re.sub(r"^(h)tt(ps?)", r"\1xx\2", value, flags=re.IGNORECASE).replace(".", "[.]")


def unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


@cache
def words_of(file: str) -> frozenset[str]:
    """The words of a file beside this one, without its comments."""
    lines = (HERE / file).read_text(encoding="ascii").splitlines()
    return frozenset(word.lower() for line in lines if not line.startswith("#") for word in line.split())


def before(match: re.Match[str]) -> str:
    return match.string[max(0, match.start() - 40) : match.start()]


def host_of(url: str) -> str:
    return re.split(r"[/?#]", url, maxsplit=3)[2].rpartition("@")[2].partition(":")[0]


def is_host(value: str) -> bool:
    """Whether this is an address that can identify a host: not a network, its end, or a browser's `120.0.0.0`."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        return any(address in network for network in NETWORKS_6)
    return not (address.is_loopback or address.is_multicast or value.endswith((".0.0", ".255.255")))


def is_domain(match: re.Match[str], defanged: frozenset[str]) -> bool:
    """Whether a dotted name is a domain, and not the name of a field, a file, a package or a class."""
    name, after = match[0], match.string[match.end() : match.end() + 8]
    labels = name.lower().split(".")
    tld = labels[-1]
    if (
        not (tld in SPECIAL_TLDS or tld in words_of(TLDS))
        or len(name) > 253
        or labels[0] in PACKAGES
        or name.lower() in PRODUCTS
    ):
        return False
    if name.lower() in defanged or labels[0] == "www":
        return True
    if not (name.endswith(tld) or name.isupper()):  # `Microsoft.Storage`, `System.IO`
        return False
    if is_field(name.split("."), words_of(FIELD_WORDS), is_key=KEY_AFTER.match(after) is not None):
        return False
    if tld in FILE_TLDS and not (len(labels) > 2 and labels[-2] in SECOND_LEVELS):
        return HOST_AFTER.match(after) is not None or HOST_BEFORE.search(before(match)) is not None
    return True


def is_field(labels: Sequence[str], field_words: frozenset[str], *, is_key: bool) -> bool:
    """Whether this names a field: `host.name` anywhere, and where a name of a field stands whatever ends like one."""
    tld = labels[-1].lower()
    if is_key and (tld in field_words or len(tld) > 4):  # top-level domains of over four letters are words
        return True
    return all(label.lower() in field_words or re.match(r"[a-z]+[A-Z]", label) for label in labels)


def sentence(by_kind: Mapping[str, Sequence[str]], new: int) -> str:
    nouns = {"ip": "address", "domain": "domain", "url": "URL", "hash": "hash"}
    parts = [f"{len(values)} {plural(nouns[kind], len(values))}" for kind, values in by_kind.items() if values]
    if not parts:
        return "Found no addresses, domains, URLs or hashes in the text."
    text = f"Found {', '.join(parts)}."
    if new > MAX_ADDED:
        return f"{text} Only the first {MAX_ADDED} of {new} new ones are added as observables."
    return text if new else f"{text} All of them are observables already."


def plural(word: str, count: int) -> str:
    ending = "es" if word.endswith(("s", "sh")) else "s"
    return word if count == 1 else f"{word}{ending}"


def listing(by_kind: Mapping[str, Sequence[str]]) -> str:
    """The indicators as Markdown, defanged."""
    blocks = []
    for kind, values in by_kind.items():
        if values:
            blocks.append("\n".join([f"**{kind}**", *(f"- `{defang(kind, value)}`" for value in values)]))
    return "\n\n".join(blocks)


def operations(by_kind: Mapping[str, Sequence[str]], new: Sequence[tuple[str, str]], kind: str) -> list[dict[str, Any]]:
    """What core is to change: the new indicators become artifacts, tags or a log say what was found."""
    where = "Alert" if kind == "alert" else "Case"
    origin = {"type": f"AddArtifactTo{where}", "message": "Added by Extract Indicators"}
    added = [{**origin, "dataType": name, "data": value} for name, value in new]
    if kind == "case_task_log":
        logs = [{"type": "AddLogToTask", "content": f"Indicators found (defanged)\n\n{listing(by_kind)}"}]
        return [*added, *logs] if any(by_kind.values()) else []
    return [*added, *({"type": f"AddTagTo{where}", "tag": f"has-{name}"} for name, values in by_kind.items() if values)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
