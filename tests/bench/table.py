"""The table: for a terminal, and as Markdown for `tests/bench/README.md`."""

import platform
import sqlite3
import sys
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from tests.bench.figures import Row, Spread
from tests.bench.programs import CLIENT_CORES, SERVER_CORES

_SHOWN = ("uvicorn", "starlette", "fastapi", "sqlalchemy", "aiosqlite", "httpx", "aiohttp", "slack-bolt")
HEAD = ("what", "ours", "peer", "ratio (least to most)", "goal", "met", "ours against ours")


def cells(row: Row) -> tuple[str, ...]:
    goal, met = ("", "") if row.goal is None else (str(row.goal), "yes" if row.goal.met(row.ratio.middle) else "no")
    what = f"{row.what}; {row.note}" if row.note else row.what
    return (what, row.ours, f"{row.peer_name}: {row.peer}", shown(row.ratio), goal, met, between(row.noise))


def shown(ratio: Spread) -> str:
    return f"{ratio.middle:.3g} ({ratio.least:.3g} to {ratio.most:.3g})"


def between(noise: Spread | None) -> str:
    return "" if noise is None else f"{noise.least:.2f} to {noise.most:.2f}"


def text(rows: Sequence[Row]) -> str:
    """Aligned columns."""
    lines = [HEAD, *(cells(row) for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def markdown(rows: Sequence[Row]) -> str:
    lines = [HEAD, tuple("---" for _ in HEAD), *(cells(row) for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n{setting()}\n"


def setting() -> str:
    """Where and with what it was measured."""
    libraries = ", ".join(f"{name} {version(name)}" for name in _SHOWN)
    cores = "one core for both" if SERVER_CORES == CLIENT_CORES else "server and client each on a core of its own"
    return (
        f"Measured on {datetime.now().astimezone():%Y-%m-%d}, {_processor()}, {cores}; CPython"
        f" {platform.python_version()} on {sys.platform}, SQLite {sqlite3.sqlite_version}, {libraries}. Medians of"
        " rounds that take turns; times are of this machine, ratios carry over."
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
