"""Both databases give the same answers to the same searches, and have the same tables."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.rows import dict_row

from core.common.database import Database, Transaction
from core.store import objects
from core.store.opening import open_database
from core.store.search import (
    All,
    Any_,
    Child,
    Compare,
    Condition,
    Everything,
    Has,
    JsonPath,
    Like,
    Not,
    OneOf,
    Operator,
    Parent,
    Sort,
    Window,
    custom_fields,
    page,
)
from tests import stores

# Few and similar values, so that searches find something: numbers as texts, case, code points beyond ASCII and the BMP.
WORDS = (
    "",
    "a",
    "A",
    "b",
    "ä",
    "Ä",
    "ß",
    "Z",
    "10",
    "9",
    "5.5",
    "%",
    "_",
    "\\",
    "a%b",
    "a_b",
    "\ue000",
    "😀",
    "true",
    "x\ny",
)
NUMBERS = (0, 1, -1, 5, 10, 2**53 + 1, -(2**63), 2**63 - 1, 5.5, 0.1, 0.30000000000000004, -2.25)
texts = st.sampled_from(WORDS)
numbers = st.sampled_from(NUMBERS)
values = st.one_of(texts, numbers, st.booleans())
PATHS = (
    *(JsonPath((f"$.{name}",)) for name in ("title", "severity", "flag", "assignee")),
    JsonPath(("$.tags",), many=True),
    JsonPath(("$.artifacts",), many=True, inner="$.data"),
    JsonPath(('$.customFields."a b".string', '$.customFields."a b".integer')),
)
paths = st.sampled_from(PATHS)
patterns = st.lists(st.one_of(texts, st.sampled_from(["%", "_", "\\%", "\\_", "\\\\", "\\"])), max_size=3).map("".join)


def conditions() -> st.SearchStrategy[Condition]:
    operators: st.SearchStrategy[Operator] = st.sampled_from(("=", ">", ">=", "<", "<="))
    leaves: st.SearchStrategy[Condition] = st.one_of(
        st.just(Everything()),
        st.builds(Compare, paths, operators, values),
        st.builds(Like, paths, patterns),
        st.builds(Like, st.just(JsonPath(("$",), is_anywhere=True)), patterns),
        st.builds(OneOf, paths, st.lists(st.one_of(texts, st.integers(-1, 10)), max_size=3).map(json.dumps)),
        st.builds(Has, paths),
        st.builds(Compare, st.just(JsonPath(("$.id",), column="id")), operators, st.integers(1, 12)),
        st.builds(OneOf, st.just(JsonPath(("$.id",), column="id")), st.just("[1, 3, 5]")),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(All, st.lists(inner, min_size=1, max_size=3)),
            st.builds(Any_, st.lists(inner, min_size=1, max_size=3)),
            st.builds(Not, inner),
            st.builds(Child, inner, st.just("case_task")),
            st.builds(Parent, inner, st.just("case")),
        ),
        max_leaves=4,
    )


documents = st.fixed_dictionaries(
    {"title": texts, "severity": st.one_of(numbers, st.none())},
    optional={
        "flag": st.booleans(),
        "assignee": st.one_of(st.none(), values),
        "_type": st.just("a"),
        "tags": st.lists(texts, max_size=3),
        "artifacts": st.lists(st.fixed_dictionaries({"data": values}), max_size=2),
        "customFields": st.fixed_dictionaries(
            {},
            optional={
                "a b": st.one_of(
                    st.builds(lambda v: {"string": v}, texts), st.builds(lambda v: {"integer": v}, numbers)
                )
            },
        ),
    },
)
sorts = st.lists(st.builds(Sort, st.sampled_from(PATHS[:4]), st.booleans()), max_size=2)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, list[Database]]]:
    path = tmp_path_factory.mktemp("both") / "core.db"
    with asyncio.Runner() as runner:
        found = []
        for dialect in stores.DIALECTS:
            with stores.using(dialect):
                found.append(open_database(stores.location(path)))
        yield runner, found
        for database in found:
            runner.run(database.close())


@given(
    docs=st.lists(documents, min_size=1, max_size=6),
    tasks=st.lists(st.tuples(st.integers(0, 5), documents), max_size=4),
    asked=st.lists(st.tuples(conditions(), sorts), min_size=1, max_size=6),
    kind=st.sampled_from(["case", "case_task"]),
)
def test_searches_find_the_same_in_the_same_order(
    both: tuple[asyncio.Runner, list[Database]],
    docs: Sequence[Mapping[str, Any]],
    tasks: Sequence[tuple[int, Mapping[str, Any]]],
    asked: Sequence[tuple[Condition, Sequence[Sort]]],
    kind: str,
) -> None:
    def fill(tx: Transaction) -> None:
        tx.run("DELETE FROM object")
        for number, doc in enumerate(docs, 1):
            objects.insert(tx, number, "case", json.dumps(doc, ensure_ascii=False))
        for number, (case, doc) in enumerate(tasks, 7):
            objects.insert(tx, number, "case_task", json.dumps(doc), parent_id=case % len(docs) + 1)

    async def answers(database: Database) -> list[tuple[list[str], int]]:
        await database.transaction(fill)
        return [await page(database, kind, *one, Window(0, None)) for one in asked]

    runner, databases = both
    of_sqlite, of_postgresql = (runner.run(answers(database)) for database in databases)
    assert of_postgresql == of_sqlite


def test_custom_fields_are_the_same(both: tuple[asyncio.Runner, list[Database]]) -> None:
    def fill(tx: Transaction) -> None:
        tx.run("DELETE FROM object")
        objects.insert(tx, 1, "alert", '{"customFields": {"a b": {"string": "x", "order": 1}, "n": {"integer": 1}}}')
        objects.insert(tx, 2, "case", '{"customFields": {"n": {"float": 1.5}, "empty": {}}}')
        objects.insert(tx, 3, "case", '{"customFields": {}}')
        objects.insert(tx, 4, "case", "{}")

    async def answers(database: Database) -> list[tuple[str, str]]:
        await database.transaction(fill)
        return sorted((await custom_fields(database, ["string", "integer"], 10)).items())

    runner, databases = both
    assert [runner.run(answers(database)) for database in databases] == [[("a b", "string"), ("n", "integer")]] * 2


# --- tables -----------------------------------------------------------------------------------------------------------

Tables = dict[str, tuple[set[tuple[str, str, bool]], set[tuple[tuple[str, ...], bool, bool]]]]
"""By table: its columns (name, type, whether null is refused), its indexes (columns, uniqueness, whether partial)."""


def tables_of_sqlite(path: Path) -> Tables:
    found: Tables = {}
    with closing(sqlite3.connect(path)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in names:
            info = connection.execute(f"PRAGMA table_info('{table}')").fetchall()
            columns = {(name, kind, bool(needed or key)) for _, name, kind, needed, _, key in info}
            indexes = {(tuple(row[1] for row in sorted(info, key=lambda row: row[5]) if row[5]), True, False)}
            for _, index, unique, _, partial in connection.execute(f"PRAGMA index_list('{table}')"):
                of_index = tuple(row[2] or "" for row in connection.execute(f"PRAGMA index_info('{index}')"))
                indexes.add((of_index, bool(unique), bool(partial)))
            found[table] = columns, indexes
    return {name: value for name, value in found.items() if "sqlite_" not in name}


def tables_of_postgresql(path: Path) -> Tables:
    found: Tables = {}
    with psycopg.connect(stores.on_postgresql(path).text, row_factory=dict_row) as connection:
        columns = connection.execute(
            "SELECT table_name, column_name, data_type, is_nullable, collation_name FROM information_schema.columns"
            " JOIN information_schema.tables USING (table_schema, table_name)"
            " WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"
        ).fetchall()
        assert {row["collation_name"] for row in columns if row["table_name"] not in ("migration", "place")} == {
            None,
            "C",
        }
        kinds = {"bigint": "INTEGER", "text": "TEXT"}
        for row in columns:
            kind = kinds.get(row["data_type"], "")
            column = (row["column_name"], kind, row["is_nullable"] == "NO")
            found.setdefault(row["table_name"], (set(), set()))[0].add(column)
        indexes = connection.execute(
            "SELECT relname, indisunique, indpred IS NOT NULL AS is_partial, ARRAY(SELECT coalesce(attname, '') FROM"
            " unnest(indkey) WITH ORDINALITY AS keys (number, place) LEFT JOIN pg_attribute ON attrelid = indrelid AND"
            " attnum = number AND number > 0 ORDER BY place) AS columns FROM pg_index JOIN pg_class ON oid = indrelid"
            " WHERE relnamespace = to_regnamespace(current_schema()) AND relkind = 'r'"
        ).fetchall()
        for row in indexes:
            found[row["relname"]][1].add((tuple(row["columns"]), row["indisunique"], row["is_partial"]))
    return {name: value for name, value in found.items() if name not in ("migration", "place")}


@pytest.mark.parametrize("whose", ["core", "bot"])
async def test_tables_columns_and_indexes_are_the_same(tmp_path: Path, whose: str) -> None:
    path = tmp_path / f"{whose}.db"
    for dialect in stores.DIALECTS:
        with stores.using(dialect):
            async with stores.opened(path) if whose == "core" else stores.opened_bots(path):
                pass
    of_sqlite, of_postgresql = tables_of_sqlite(path), tables_of_postgresql(path)
    assert of_postgresql.keys() == of_sqlite.keys()
    for name, (columns, indexes) in of_sqlite.items():
        of_rows = {("rowid", "INTEGER", True)} if name == "message" else set()  # SQLite's tables have it without a word
        assert of_postgresql[name][0] - of_rows == columns, name
        assert {index for index in of_postgresql[name][1] if index[0]} == {index for index in indexes if index[0]}, name
