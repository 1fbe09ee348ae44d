"""Records the statements of core and bot, and explains them.

With `TEST_STATEMENTS=FOLDER` a run of pytest leaves its statements there: on SQLite those of its processes and of the
programs that `programs.py` forks, on PostgreSQL those of everybody, from the log of the server of `postgresql.py`.
"""

import csv
import hashlib
import os
import re
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

FOLDER = Path(os.environ["TEST_STATEMENTS"]) if "TEST_STATEMENTS" in os.environ else None

_PRODUCT = tuple(str(Path(__file__).parents[1] / name) + os.sep for name in ("bot", "core"))
_LITERAL = re.compile(r"'[^']*'(?:'[^']*')*|\$\d+|(?<![\w.])-?\d+(?:\.\d+)?")
_LIST = re.compile(r"\?(?:, \?)+")
_VERB = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH)\b")
_recordings: list[Callable[[str, str], object]] = []
_is_hooked = False


class _Opened(threading.local):
    """The connections that a thread has opened and that aren't traced yet.

    Another thread must not do it: it would wait for a statement that runs there, and hold the interpreter meanwhile.
    """

    def __init__(self) -> None:
        self.connections: list[sqlite3.Connection] = []


_opened = _Opened()


@contextmanager
def recorded() -> Iterator[dict[str, str]]:
    """The statements that SQLite runs on connections opened within, each once; the values show the literals of one."""
    statements: dict[str, str] = {}
    _hook(statements.setdefault)
    try:
        yield statements
    finally:
        _recordings.remove(statements.setdefault)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """How often SQLite runs each statement, by its key, on connections opened within."""
    counts = Counter[str]()

    def count(key: str, _sql: str) -> None:
        counts[key] += 1

    _hook(count)
    try:
        yield counts
    finally:
        _recordings.remove(count)


def record_in_folder() -> None:
    """Leave each statement in FOLDER from now on, if there is one: at once, since processes are killed."""
    if FOLDER is None:
        return
    folder, seen = FOLDER, set[str]()

    def leave(key: str, sql: str) -> None:
        if key not in seen:
            path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.sql"
            if not path.exists():
                path.write_text(sql)
            seen.add(key)

    _hook(leave)


def _hook(record: Callable[[str, str], object]) -> None:
    global _is_hooked
    if not _is_hooked:
        sys.addaudithook(_on_event)
        _is_hooked = True
    _recordings.append(record)


def _on_event(event: str, arguments: Any) -> None:
    """A connection is not ready when its event comes, so it is traced from the next event on."""
    if not _recordings:
        return
    while _opened.connections:
        with suppress(sqlite3.Error):  # it is closed already
            _opened.connections.pop().set_trace_callback(_record)
    if event == "sqlite3.connect/handle" and sys._getframe(1).f_code.co_filename.startswith(_PRODUCT):
        _opened.connections.append(arguments[0])


def _record(sql: str) -> None:
    if _VERB.match(sql) and "_fts_" not in sql:  # FTS5's own
        key = key_of(sql)
        for record in _recordings:
            record(key, sql)


def key_of(sql: str) -> str:
    """The statement without its values, which other statements share that differ by them alone."""
    return _LIST.sub("?", _LITERAL.sub("?", sql))


def logged_as(run: str) -> dict[str, str]:
    """Settings with which a PostgreSQL leaves all statements in FOLDER, if there is one."""
    if FOLDER is None:
        return {}
    return {
        "logging_collector": "on",
        "log_destination": "csvlog",
        "log_directory": str(FOLDER.absolute()),
        "log_filename": f"postgresql-{run}.log",
        "log_file_mode": "0644",
        "log_rotation_size": "0",
        "log_rotation_age": "0",
        "log_statement": "all",
    }


def left_on_sqlite(folder: Path) -> dict[str, str]:
    """What runs on SQLite left, by their keys."""
    left = (path.read_text() for path in folder.glob("*.sql"))
    return {key_of(sql): sql for sql in left if sql}


def left_on_postgresql(folder: Path) -> dict[str, str]:
    """What runs on PostgreSQL left, by their keys."""
    csv.field_size_limit(2**30)
    found, seen = dict[str, str](), set[str]()
    for path in folder.glob("postgresql-*.csv"):
        with path.open(newline="", errors="replace") as file:
            for row in csv.reader(file):
                if len(row) > _APPLICATION and row[_APPLICATION].startswith("responder-bot "):  # not of a test itself
                    text = _LOGGED.sub("", row[_MESSAGE], 1)
                    if text not in seen and _VERB.match(text):
                        sql = _with_values(text, row[_DETAIL])
                        found.setdefault(key_of(sql), sql)
                    seen.add(text)
    return found


_MESSAGE, _DETAIL, _APPLICATION = 13, 14, 22
"""Columns of PostgreSQL's csvlog."""
_LOGGED = re.compile(r"^(?:statement|execute [^:]*): ")
_VALUE = re.compile(r"\$(\d+) = (NULL|'(?:[^']|'')*')")


def _with_values(sql: str, detail: str) -> str:
    values: Mapping[str, str] = dict(_VALUE.findall(detail))
    return re.sub(r"\$(\d+)", lambda number: values.get(number[1], "NULL"), sql)


def plan_on_sqlite(databases: Iterable[sqlite3.Connection], sql: str) -> list[str]:
    """The lines of SQLite's plan, from the first of these databases that has the tables; none of a table of tests."""
    for database in databases:
        with suppress(sqlite3.OperationalError):
            return [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}")]
    return []


def plan_on_postgresql(databases: Iterable[psycopg.Connection[Any]], sql: str) -> list[str]:
    """PostgreSQL's plan in SQLite's words, likewise."""
    for database in databases:
        with suppress(psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
            ((plan,),) = database.execute(f"EXPLAIN (FORMAT JSON) {sql}".encode()).fetchall()
            return [*_lines(plan[0]["Plan"])]
    return []


def _lines(plan: dict[str, Any]) -> Iterator[str]:
    kind, table, index = plan["Node Type"], plan.get("Relation Name"), plan.get("Index Name")
    if kind == "Seq Scan" or (kind in ("Index Scan", "Index Only Scan") and "Index Cond" not in plan):
        yield f"SCAN {table}" + (f" USING INDEX {index}" if index else "")
    elif "Index" in kind:
        yield f"SEARCH {table} USING INDEX {index}"
    elif "Sort" in kind:
        yield "USE TEMP B-TREE"
    for child in plan.get("Plans", ()):
        yield from _lines(child)
