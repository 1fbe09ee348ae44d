"""Block an address in a list that a firewall or a proxy reads, or release it.

Each line is an address or a network and, after `#`, its end, who asked for it, and why:
`198.51.100.7 # until 2027-01-31T09:30:00Z by ann@example.org: scans us`. Lines without an end stay.
"""

import fcntl
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

Network = IPv4Network | IPv6Network
WIDEST = {4: 16, 6: 32}  # bits; what is wider is a mistake
END = re.compile(r"# until (\S+)")
TIME = "%Y-%m-%dT%H:%M:%SZ"


class RefusedError(Exception):
    """Why nothing was changed, as a sentence for people."""


def main(job: Path) -> None:
    job_input = json.loads((job / "input" / "input.json").read_text(encoding="utf-8"))
    try:
        output = run(job_input, datetime.now(UTC))
    except RefusedError as reason:
        output = {"success": False, "errorMessage": str(reason)}
    (job / "output").mkdir(exist_ok=True)
    (job / "output" / "output.json").write_text(json.dumps(output, ensure_ascii=False), encoding="utf-8")
    print(output.get("errorMessage") or output["full"]["message"])


def run(job_input: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The content of output.json."""
    config, parameters = job_input.get("config") or {}, job_input.get("parameters") or {}
    network = network_of((job_input.get("data") or {}).get("data"))
    path = Path(str(config.get("file") or ""))
    if not path.is_absolute():
        raise RefusedError(f"The configured file {str(path)!r} must be an absolute path.")
    is_release = config.get("service") == "release"
    if not is_release:
        refuse_protected(network, config.get("never") or [])
    try:
        with locked(path):
            lines = unexpired(path.read_text(encoding="utf-8").splitlines() if path.exists() else [], now)
            kept = [line for line in lines if entry_of(line) != network]
            if is_release:
                message = released(network, lines, kept)
            else:
                line, message = blocked(network, parameters, now)
                kept.append(line)
            replace(path, kept)
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(
            f"{path} can't be changed ({error}); name its folder in `writable` of this responder's settings."
        ) from error
    word = "released" if is_release else "blocked"
    taxonomy = {"level": "info", "namespace": "ResponderBot", "predicate": "block list", "value": word}
    return {
        "success": True,
        "full": {
            "message": message,
            "address": shown(network),
            "entries": sum(entry_of(line) is not None for line in kept),
        },
        "summary": {"taxonomies": [taxonomy]},
        "artifacts": [],
        "operations": [],
    }


def network_of(data: object) -> Network:
    """The address or network in an artifact, defanged or not."""
    text = re.sub(r"\[\.\]|\(\.\)", ".", str(data or "").strip()).replace("[:]", ":")
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise RefusedError(f"{text[:100]!r} is not an address or a network, so nothing was changed.") from None
    if network.prefixlen < WIDEST[network.version]:
        raise RefusedError(f"{network} is wider than /{WIDEST[network.version]}, so nothing was changed.")
    return network


def refuse_protected(network: Network, never: list[object]) -> None:
    special = network.is_loopback or network.is_unspecified or network.is_multicast or network.is_link_local
    if special:
        raise RefusedError(f"{shown(network)} is not an address of a host elsewhere, so it was not blocked.")
    for text in never:
        try:
            protected = ip_network(str(text).strip(), strict=False)
        except ValueError:
            raise RefusedError(
                f"The configured `never` has {str(text)!r}, which is not a network; correct it."
            ) from None
        if protected.version == network.version and protected.overlaps(network):
            raise RefusedError(f"{shown(network)} is in {protected}, which is never to be blocked.")


def blocked(network: Network, parameters: dict[str, Any], now: datetime) -> tuple[str, str]:
    """The line of an entry, and the sentence for people."""
    minutes = parameters.get("minutes", 60)
    try:
        until = (now + timedelta(minutes=float(minutes))).strftime(TIME) if float(minutes) else ""
    except (TypeError, ValueError, OverflowError):
        raise RefusedError(f"minutes must be a number, not {str(minutes)[:50]!r}; nothing was blocked.") from None
    reason = " ".join(str(parameters.get("reason") or "").split())[:200]
    by = " ".join(str(parameters.get("user") or "somebody").split())[:254]
    line = f"{shown(network)} #{f' until {until}' if until else ''} by {by}{f': {reason}' if reason else ''}"
    return line, f"{shown(network)} is blocked until {until or 'it is released'}."


def released(network: Network, lines: list[str], kept: list[str]) -> str:
    if len(kept) < len(lines):
        return f"{shown(network)} is not blocked any more."
    for entry in map(entry_of, lines):
        if entry is not None and entry.version == network.version and entry.overlaps(network):
            raise RefusedError(f"{shown(network)} is blocked as part of {shown(entry)}; release that.")
    return f"{shown(network)} was not blocked."


def entry_of(line: str) -> Network | None:
    """The address or network of a line; None for a comment or rubbish, which stays."""
    with suppress(ValueError, IndexError):
        return ip_network(line.split("#")[0].split()[0], strict=False)
    return None


def unexpired(lines: list[str], now: datetime) -> list[str]:
    return [line for line in lines if not has_ended(line, now)]


def has_ended(line: str, now: datetime) -> bool:
    end = END.search(line) if entry_of(line) is not None else None
    with suppress(ValueError):
        return end is not None and datetime.strptime(end[1], TIME).replace(tzinfo=UTC) <= now
    return False


def shown(network: Network) -> str:
    return str(network.network_address) if network.num_addresses == 1 else str(network)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other runs from changing the list meanwhile."""
    with open(path.with_name(f".{path.name}.lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def replace(path: Path, lines: list[str]) -> None:
    """Write the list so that readers see the old one or the new one, with the permissions that it has."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    os.umask(0)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
