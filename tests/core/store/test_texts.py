"""Alerts are found by their words, on both databases alike, and by nothing that the reader may not see."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.database import Database, Transaction
from core.common.errors import ResponderBotError
from core.store import objects, texts
from core.store.database.opening import open_database
from tests import stores
from tests.bot import samples

PARTS = ("a", "ab", "Abc", "ß", "SS", "203", "0", "113", "7", "evil", "example", "hxxps", "1e5", "ä", "😀", "日本")
LINKS = (" ", ".", "[.]", "://", "@", "-", "_", "(dot)", "\n", "'", '"', "*", ":", "\0", "")
phrases = st.lists(st.one_of(st.sampled_from(PARTS), st.sampled_from(LINKS)), max_size=6).map("".join)
levels = st.integers(0, 3)
NOTHING: dict[str, Any] = {"description": "", "type": "", "source": "", "source_ref": "", "custom_fields": {}}
documents = st.fixed_dictionaries(
    {
        "title": phrases,
        "tags": st.lists(phrases, max_size=2),
        "tlp": levels,
        "artifacts": st.lists(st.fixed_dictionaries({"data": phrases, "tlp": levels}), max_size=3),
    }
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, list[Database]]]:
    path = tmp_path_factory.mktemp("both") / "core.db"
    with asyncio.Runner() as runner:
        databases = []
        for dialect in stores.DIALECTS:
            with stores.using(dialect):
                databases.append(open_database(stores.location(path)))
        yield runner, databases
        for database in databases:
            runner.run(database.close())


def save(tx: Transaction, number: int, doc: Mapping[str, Any]) -> None:
    artifacts = [samples.artifact(n, **artifact) for n, artifact in enumerate(doc["artifacts"])]
    if not objects.exists(tx, "alert", number):
        objects.insert(tx, number, "alert", "{}")
    texts.save(tx, samples.alert(**{**NOTHING, **doc, "id": f"~{number}", "artifacts": artifacts}))


def visible(doc: Mapping[str, Any], clearance: int) -> list[str]:
    """The words that this clearance may read, in order; none of an alert above it."""
    if doc["tlp"] > clearance:
        return []
    artifacts = [artifact["data"] for artifact in doc["artifacts"] if artifact["tlp"] <= clearance]
    return [word for text in (doc["title"], *doc["tags"], *artifacts) for word in texts.words_of(text)]


def has(words: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether the parts follow each other among the words, the last one as the beginning of one."""
    size = len(parts)
    return any(
        list(words[at : at + size - 1]) == parts[:-1] and words[at + size - 1].startswith(parts[-1])
        for at in range(len(words) - size + 1)
    )


@given(
    docs=st.lists(documents, min_size=1, max_size=6),
    changed=st.lists(st.tuples(st.integers(0, 5), documents), max_size=3),
    asked=st.lists(st.tuples(phrases, levels), min_size=1, max_size=5),
    limit=st.integers(1, 6),
)
def test_what_is_found_is_what_may_be_read(
    both: tuple[asyncio.Runner, list[Database]],
    docs: Sequence[Mapping[str, Any]],
    changed: Sequence[tuple[int, Mapping[str, Any]]],
    asked: Sequence[tuple[str, int]],
    limit: int,
) -> None:
    truth = dict(enumerate(docs, 1))
    changes = [(number % len(docs) + 1, doc) for number, doc in changed]

    def fill(tx: Transaction) -> None:
        tx.run("DELETE FROM object")
        tx.run("DELETE FROM object_text")
        for number, doc in [*truth.items(), *changes]:
            save(tx, number, doc)

    async def answers(database: Database) -> list[list[int]]:
        await database.transaction(fill)
        found = []
        for text, clearance in asked:
            rows = await database.search(
                lambda search, text=text, clearance=clearance: texts.find(  # type: ignore[misc]
                    search, database.dialect, text, clearance, limit
                )
            )
            found.append([row["id"] for row in rows])
        return found

    now = {**truth, **dict(changes)}
    expected = []
    for text, clearance in asked:
        wanted = [texts.words_of(word) for word in text.split()]
        numbers = [
            number
            for number in sorted(now, reverse=True)
            if now[number]["tlp"] <= clearance
            and all(parts and has(visible(now[number], clearance), parts) for parts in wanted)
        ]
        expected.append(numbers[:limit])
    runner, databases = both
    assert [runner.run(answers(database)) for database in databases] == [expected, expected]


def test_an_address_is_found_however_it_is_written() -> None:
    for text in ("hxxps[://]c2[.]evil[.]example/x", "https://C2.EVIL.example/x", "c2(dot)evil[dot]example"):
        assert [word for word in texts.words_of(text) if word not in ("https", "x")] == ["c2", "evil", "example"]
    assert texts.words_of("203[.]0.113.7") == ["203", "0", "113", "7"]


def test_a_word_is_found_with_or_without_accents_and_width() -> None:
    for text in ("Zürich", "Zu\u0308rich", "ZURICH", "\uff3a\uff35\uff32\uff29\uff23\uff28"):
        assert texts.words_of(text) == ["zurich"]
    assert texts.words_of("\uac01") == texts.words_of("\u1100\u1161\u11a8")


def test_a_text_of_many_accents_is_read_in_no_time() -> None:
    """To bring them into order, as normalizing does, would take the writer minutes."""
    assert texts.words_of("a" + "\u0315\u0301" * 250_000 + "b") == ["ab"]


def test_a_long_alert_is_found_by_its_first_words(both: tuple[asyncio.Runner, list[Database]]) -> None:
    doc = {"title": "first", "tags": ["word " * 500_000 + "last"], "tlp": 2, "artifacts": []}
    runner, databases = both

    async def found(database: Database, text: str) -> int:
        return len(await database.search(lambda search: texts.find(search, database.dialect, text, 2, 10)))

    async def check(database: Database) -> None:
        def fill(tx: Transaction) -> None:
            tx.run("DELETE FROM object")
            tx.run("DELETE FROM object_text")
            save(tx, 1, doc)

        await database.transaction(fill)
        assert [await found(database, text) for text in ("first", "word word", "last", "")] == [1, 1, 0, 1]

    for database in databases:
        runner.run(check(database))


def test_words_of_old_alerts_are_found_beyond_the_newest(both: tuple[asyncio.Runner, list[Database]]) -> None:
    count = texts.NEWEST + 50
    runner, databases = both

    def fill(tx: Transaction) -> None:
        tx.run("DELETE FROM object")
        tx.run("DELETE FROM object_text")
        for n in range(1, count + 1):
            title = f"common {'old' if n <= 20 else 'new'} x{n}"
            save(tx, n, {"title": title, "tags": [], "tlp": n % 2 * 3, "artifacts": []})

    async def check(database: Database) -> None:
        await database.transaction(fill)

        async def found(text: str, clearance: int = 3, limit: int = 200) -> list[int]:
            rows = await database.search(lambda search: texts.find(search, database.dialect, text, clearance, limit))
            return [row["id"] for row in rows]

        assert await found("common") == list(range(count, count - 200, -1))
        assert await found("common comm", limit=count) == list(range(count, 0, -1))
        assert await found("old") == list(range(20, 0, -1))
        assert await found("old common", clearance=2) == list(range(20, 0, -2))
        assert await found("x7 new", limit=3) == [799, 798, 797]
        assert (await found("x7", limit=300))[-1] == 7

    for database in databases:
        runner.run(check(database))


def test_each_of_many_addresses_is_found(both: tuple[asyncio.Runner, list[Database]]) -> None:
    """Though they have most of their parts in common."""
    artifacts = [{"data": f"10.0.{number % 7}.{number}", "tlp": 2} for number in range(300)]
    doc = {"title": "", "tags": [], "tlp": 2, "artifacts": artifacts}
    runner, databases = both

    async def check(database: Database) -> None:
        def fill(tx: Transaction) -> None:
            tx.run("DELETE FROM object_text")
            for number in range(1, texts.NEWEST + 3):
                save(tx, number, {**doc, "artifacts": artifacts if number in (1, texts.NEWEST + 2) else []})

        await database.transaction(fill)
        for text, found in (("10.0.5.299", [texts.NEWEST + 2, 1]), ("10.0.4.299", [])):
            rows = await database.search(lambda search: texts.find(search, database.dialect, text, 2, 10))  # noqa: B023
            assert [row["id"] for row in rows] == found

    for database in databases:
        runner.run(check(database))


@pytest.mark.parametrize("letter", ["x", "\u65e5", "\ufdfa"])
def test_an_alert_of_long_words_is_saved(both: tuple[asyncio.Runner, list[Database]], letter: str) -> None:
    """PostgreSQL takes an index of 1 MiB for a row."""
    words = " ".join(f"{number}{letter * (1_000_000 // len(letter.encode()) // 9_000)}" for number in range(9_000))
    doc = {"title": f"first {words}", "tags": [], "tlp": 2, "artifacts": []}
    runner, databases = both

    async def check(database: Database) -> None:
        await database.transaction(lambda tx: save(tx, 1, doc))
        for text in ("first", f"1{letter}"):
            rows = await database.search(lambda search: texts.find(search, database.dialect, text, 2, 10))  # noqa: B023
            assert [row["id"] for row in rows] == [1]

    for database in databases:
        runner.run(check(database))


@pytest.mark.parametrize("text", ["w " * 11, ".".join("a" * 101)])
def test_too_many_words_are_refused(both: tuple[asyncio.Runner, list[Database]], text: str) -> None:
    text = " ".join(f"{word}{number}" for number, word in enumerate(text.split()))
    runner, databases = both
    for database in databases:
        with pytest.raises(ResponderBotError, match="at most 10 words, with 100 parts"):
            runner.run(
                database.search(lambda search, database=database: texts.find(search, database.dialect, text, 3, 10))  # type: ignore[misc]
            )
