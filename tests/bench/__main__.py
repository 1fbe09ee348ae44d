"""Run the measurements and print their table."""

import argparse
import asyncio
import importlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import uvloop

from tests.bench import table
from tests.bench.comparison import SMALL, Row, Scale
from tests.bench.processes import CLIENT_CPUS

Measure = Callable[[Path, Scale], Awaitable[list[Row]]]

MEASUREMENTS: Mapping[str, str] = {
    "list": "list_actions",
    "run": "accept_runs",
    "ingest": "ingest",
    "write": "durable_writes",
    "client": "client_calls",
    "feed": "feed_latency",
    "large": "large_store",
    "large-postgresql": "large_on_postgresql",
    "size": "size",
    "start": "startup",
    "responder": "responder_runs",
    "acknowledge": "acknowledge",
    "click": "click",
    "postgresql": "postgresql",
    "hosts": "several_hosts",
    "failover": "failover",
}
"""Name on the command line, and the module, which has `measure(folder, scale)`."""


def measurement(name: str) -> Measure:
    measure: Measure = importlib.import_module(f"tests.bench.{MEASUREMENTS[name]}").measure
    return measure


async def run(names: Sequence[str], scale: Scale, base: Path | None) -> tuple[list[Row], list[str]]:
    """The rows of these measurements, and the names of those that failed; the others go on."""
    os.sched_setaffinity(0, CLIENT_CPUS)
    rows: list[Row] = []
    failed: list[str] = []
    for name in names:
        folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=base))
        started = time.monotonic()
        try:
            rows += await measurement(name)(folder, scale)
            sys.stderr.write(f"{name}: {time.monotonic() - started:.0f} s\n")
        except Exception as error:
            failed.append(name)
            sys.stderr.write(f"{name} failed: {type(error).__name__}: {error}\n")
            if len(names) == 1:
                raise
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    return rows, failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MEASUREMENTS)}; all if none is given")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rounds after the warm-up (default: {Scale.rounds})")
    parser.add_argument("--small", action="store_true", help="only check that they run; the figures mean nothing")
    parser.add_argument("--folder", type=Path, help="where the stores are made (7 GB for `large`)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as Markdown")
    args = parser.parse_args()
    unknown = set(args.names) - set(MEASUREMENTS)
    if unknown:
        parser.error(f"no measurement {', '.join(sorted(unknown))}; there are {', '.join(MEASUREMENTS)}")
    scale = SMALL if args.small else Scale()
    if args.rounds is not None:
        scale = replace(scale, rounds=args.rounds)
    rows, failed = uvloop.run(run(args.names or list(MEASUREMENTS), scale, args.folder))
    sys.stdout.write(f"{table.text(rows)}\n\n{table.conditions()}\n")
    if args.markdown:
        args.markdown.write_text(table.markdown(rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
