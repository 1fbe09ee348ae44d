"""Both databases give the same answers to the same searches."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.database import Database, Transaction
from core.common.errors import ResponderBotError
from core.models import SearchInput
from core.records.search import search
from core.store import objects
from core.store.database.opening import open_database
from core.store.search import custom_fields
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
FIELDS = ("title", "severity", "follow", "assignee", "tags", "artifacts.data", "customFields.a b", "keyword", "id")
fields = st.sampled_from(FIELDS)
patterns = st.lists(st.one_of(texts, st.sampled_from(["*", "%", "_", "\\"])), max_size=3).map("".join)


def queries() -> st.SearchStrategy[dict[str, Any]]:
    of_field = st.one_of(values, st.none(), st.sampled_from(["~1", "~7"]))
    leaves = st.one_of(
        st.just({}),
        st.builds(lambda name, value: {name: value}, fields, of_field),
        st.builds(
            lambda operator, name, value: {operator: {name: value}},
            st.sampled_from(["_gt", "_gte", "_lt", "_lte", "_ne", "_match"]),
            fields,
            of_field,
        ),
        st.builds(
            lambda operator, name, value: {operator: {name: value}},
            st.sampled_from(["_like", "_startsWith", "_endsWith"]),
            fields,
            patterns,
        ),
        st.builds(
            lambda name, listed: {"_in": {"_field": name, "_values": listed}}, fields, st.lists(of_field, max_size=3)
        ),
        st.builds(lambda name: {"_contains": name}, fields),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda parts: {"_and": parts}, st.lists(inner, max_size=3)),
            st.builds(lambda parts: {"_or": parts}, st.lists(inner, max_size=3)),
            st.builds(lambda part: {"_not": part}, inner),
        ),
        max_leaves=4,
    )


documents = st.fixed_dictionaries(
    {"title": texts, "severity": st.integers(1, 4)},
    optional={
        "follow": st.booleans(),
        "assignee": st.one_of(st.none(), texts),
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
sorts = st.lists(
    st.builds(lambda sign, name: sign + name, st.sampled_from(["+", "-"]), st.sampled_from(FIELDS[:4])), max_size=2
)


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
    comments=st.lists(st.tuples(st.integers(0, 5), texts), max_size=4),
    asked=st.lists(st.tuples(queries(), sorts), min_size=1, max_size=6),
    related=st.sampled_from(["", "_child", "_parent"]),
)
def test_searches_find_the_same_in_the_same_order(
    both: tuple[asyncio.Runner, list[Database]],
    docs: Sequence[Mapping[str, Any]],
    comments: Sequence[tuple[int, str]],
    asked: Sequence[tuple[dict[str, Any], list[str]]],
    related: str,
) -> None:
    """Or are refused for the same reason."""

    def fill(tx: Transaction) -> None:
        tx.run("DELETE FROM object")
        for number, doc in enumerate(docs, 1):
            objects.insert(tx, number, "alert", json.dumps(doc, ensure_ascii=False))
        for number, (alert, message) in enumerate(comments, 7):
            objects.insert(tx, number, "comment", json.dumps({"message": message}), parent_id=alert % len(docs) + 1)

    async def answer(database: Database, query: dict[str, Any], sort: list[str]) -> object:
        kind = "alert"
        if related == "_child":
            query = {"_and": [query, {"_child": {"_type": "comment", "_query": {"_match": {"message": "a"}}}}]}
        elif related == "_parent":
            kind, query, sort = "comment", {"_parent": {"_type": "alert", "_query": query}}, ["message"]
        try:
            return await search(database, kind, SearchInput(query=query, sort=sort, range="all"))
        except ResponderBotError as error:
            return error.message

    async def answers(database: Database) -> list[object]:
        await database.transaction(fill)
        return [await answer(database, *each) for each in asked]

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
