"""The table: for a terminal, and as Markdown for `tests/bench/README.md`."""

import os
import platform
import sqlite3
import sys
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from tests.bench.comparison import Row, Spread
from tests.bench.processes import CLIENT_CPUS, SERVER_CPUS

_LIBRARIES = (
    "uvicorn",
    "starlette",
    "fastapi",
    "sqlalchemy",
    "aiosqlite",
    "asyncpg",
    "psycopg",
    "httpx",
    "aiohttp",
    "slack-bolt",
)
HEAD = ("measurement", "responder-bot", "peer", "ratio (min to max)", "goal", "met", "noise of ratio")


def cells(row: Row) -> tuple[str, ...]:
    goal, met = ("", "") if row.goal is None else (str(row.goal), "yes" if row.goal.met(row.ratio.median) else "no")
    name = f"{row.name}; {row.note}" if row.note else row.name
    return (name, row.ours, f"{row.peer_name}: {row.peer}", spread_text(row.ratio), goal, met, noise_text(row.noise))


def spread_text(ratio: Spread) -> str:
    return f"{ratio.median:.3g} ({ratio.minimum:.3g} to {ratio.maximum:.3g})"


def noise_text(noise: Spread | None) -> str:
    return "" if noise is None else f"{noise.minimum:.2f} to {noise.maximum:.2f}"


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
    return f"{table}\n\n{conditions()}\n"


def conditions() -> str:
    """Where and with what it was measured."""
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    cpus = "one CPU for both" if SERVER_CPUS == CLIENT_CPUS else "server and client each on a CPU of its own"
    where = f"{_processor()}, {cpus}, load {os.getloadavg()[0]:.1f}"
    return (
        f"Measured on {datetime.now().astimezone():%Y-%m-%d}, {where}; CPython {platform.python_version()} on"
        f" {sys.platform}, SQLite {sqlite3.sqlite_version}, {libraries}. Medians of interleaved rounds; times are of"
        " this machine, ratios carry over."
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
