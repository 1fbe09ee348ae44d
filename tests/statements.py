"""Records the statements that run on SQLite in this process, and says which of them read a table as a whole."""

import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from core.common.database.sqlite import connection

_LITERAL = re.compile(r"'(?:[^']|'')*'|(?<![\w.])-?\d+(?:\.\d+)?")
_VERB = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH)\b")
_recordings: list[dict[str, str]] = []
_opened: list[sqlite3.Connection] = []
_is_hooked = False


@contextmanager
def recorded() -> Iterator[dict[str, str]]:
    """The statements that connections run which are opened within, each once; the values show the literals of one."""
    global _is_hooked
    if not _is_hooked:
        sys.addaudithook(_on_event)
        _is_hooked = True
    statements: dict[str, str] = {}
    _recordings.append(statements)
    try:
        yield statements
    finally:
        _recordings.remove(statements)


def _on_event(event: str, arguments: Any) -> None:
    """A connection is not ready when its event comes, so it is traced from the next event on."""
    if not _recordings:
        return
    while _opened:
        with suppress(sqlite3.Error):  # it is closed already
            _opened.pop().set_trace_callback(_record)
    if event == "sqlite3.connect/handle" and sys._getframe(1).f_code.co_filename == connection.__file__:
        _opened.append(arguments[0])


def _record(sql: str) -> None:
    if _VERB.match(sql) and "_fts_" not in sql:  # FTS5's own
        for statements in _recordings:
            statements.setdefault(_LITERAL.sub("?", sql), sql)


def plan_on_sqlite(database: sqlite3.Connection, sql: str) -> list[str]:
    """The lines of SQLite's plan."""
    return [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}")]


ONLY_SQLITE = ("json_extract", "json_tree", "MATCH", "instr(", "pragma_", "sqlite_", "randomblob")
"""Words of statements that PostgreSQL has in another form."""


def plan_on_postgresql(databases: Iterable[psycopg.Connection[Any]], sql: str) -> list[str]:
    """PostgreSQL's plan in SQLite's words, from the first of these databases that has the tables."""
    text = re.sub(r"\sINDEXED BY \w+", "", sql)
    for database in databases:
        with suppress(psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
            ((plan,),) = database.execute(f"EXPLAIN (FORMAT JSON) {text}".encode()).fetchall()
            return [*_lines(plan[0]["Plan"])]
    raise AssertionError(f"no table for {sql}")


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
