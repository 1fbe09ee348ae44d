"""SQL for finding alerts by their words, within a clearance.

An alert has a row of words for its own TLP, and one for each higher TLP of its artifacts, with all words up to that
TLP.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from core.common.database import Dialect, Row, Search, Transaction
from core.common.errors import bad_request
from core.models import Alert, Artifact
from core.store.search import INDEXED_TAG_CHARS

MAX_WORDS = 10_000  # of an alert; PostgreSQL counts no positions beyond 16,383
MAX_BYTES = 900_000  # of them; PostgreSQL's index takes 1 MiB, and some bytes more for each word
MAX_WORD_CHARS = 200
READ_CHARS = 1_048_576  # of a text: a character may stand for 18 others
MAX_LEVEL = 3  # TLP:RED
_NO_LEVEL = 99
MAX_PHRASES, MAX_PARTS = 10, 100  # each may cost as much as a word that is in every alert
NEWEST = 1_000  # in which words are looked for without their index
_WORD = re.compile(r"[^\W_]+")
_DOT = re.compile(r"[\[({]\s*dot\s*[\])}]", re.IGNORECASE)
_DEFANGED = {"hxxp": "http", "hxxps": "https", "fxp": "ftp", "fxps": "ftps"}


class _Plain(dict[int, str]):
    """What `str.translate` makes of each character, filled as they are met: without case, width and accents.

    One by one, as Python takes the square of the time to normalize a text of many accents.
    """

    def __missing__(self, code: int) -> str:
        parts = unicodedata.normalize("NFKD", chr(code))
        return self.setdefault(code, "".join(part for part in parts if not unicodedata.combining(part)).casefold())


_PLAIN = _Plain()


def words_of(text: str) -> list[str]:
    """The words of a text, defanged or not: `hxxps://evil[.]example` has `https`, `evil` and `example`."""
    plain = _DOT.sub(".", text.translate(_PLAIN)[:READ_CHARS])
    return [_DEFANGED.get(word, word)[:MAX_WORD_CHARS] for word in _WORD.findall(plain)]


def insert(tx: Transaction, alert: Alert) -> None:
    """Store the words and tags by which searches find a new alert."""
    _insert_words(tx, alert.number, words_by_level(alert))
    _insert_tags(tx, alert.number, _indexed_tags(alert))


def save(tx: Transaction, alert: Alert) -> None:
    """Store the words and tags of an alert that had others, if they have changed."""
    number, words, tags = alert.number, words_by_level(alert), _indexed_tags(alert)
    before = tx.rows(
        'SELECT level, "until", words FROM object_text WHERE object_id = :id ORDER BY level', {"id": number}
    )
    if [(row["level"], row["until"], row["words"]) for row in before] != words:
        _forget_words(tx, number)
        _insert_words(tx, number, words)
    had = {row["tag"] for row in tx.rows("SELECT tag FROM alert_tag WHERE alert_id = :id", {"id": number})}
    gone = [{"tag": tag, "id": number} for tag in sorted(had - tags)]
    tx.run_all("DELETE FROM alert_tag WHERE tag = :tag AND alert_id = :id", gone)
    _insert_tags(tx, number, tags - had)


def _indexed_tags(alert: Alert) -> set[str]:
    return {tag[:INDEXED_TAG_CHARS] for tag in alert.tags}


def _insert_tags(tx: Transaction, number: int, tags: Iterable[str]) -> None:
    tx.insert("alert_tag", *({"tag": tag, "alert_id": number} for tag in sorted(tags)), otherwise="DO NOTHING")


def _insert_words(tx: Transaction, number: int, rows: Iterable[tuple[int, int, str]]) -> None:
    values = (
        {"id": number * 4 + level, "object_id": number, "level": level, "until": until, "words": words}
        for level, until, words in rows
    )
    tx.insert("object_text", *values)


def forget(tx: Transaction, alert_id: int) -> None:
    """Delete the words and tags by which searches find an alert."""
    _forget_words(tx, alert_id)
    tx.run("DELETE FROM alert_tag WHERE alert_id = :id", {"id": alert_id})


def _forget_words(tx: Transaction, alert_id: int) -> None:
    tx.run("DELETE FROM object_text WHERE object_id = :id", {"id": alert_id})


def find(search: Search, dialect: Dialect, text: str, clearance: int, limit: int) -> list[Row]:
    """The ids of the newest alerts (`id`) with all these words, each whole or its beginning; all without a text.

    Of a word of several parts, such as an address, the parts follow each other. Raises ResponderBotError("bad_request")
    for too many words.
    """
    phrases = [words_of(word) for word in dict.fromkeys(text.split())]
    if not all(phrases):
        return []  # such as for `@`, which is in no word
    if len(phrases) > MAX_PHRASES or sum(map(len, phrases)) > MAX_PARTS:
        raise bad_request(f"A search takes at most {MAX_PHRASES} words, with {MAX_PARTS} parts in all")
    visible = 'level <= :clearance AND "until" > :clearance'
    values: dict[str, Any] = {"clearance": clearance, "limit": limit, "newest": NEWEST}
    values |= {f"phrase{number}": f" {' '.join(parts)}" for number, parts in enumerate(phrases)}
    position = "instr" if dialect == "sqlite" else "strpos"
    has_words = " AND ".join(f"{position}(' ' || words, :phrase{number}) > 0" for number in range(len(phrases)))
    if dialect == "sqlite":
        source = (
            "object_text_fts CROSS JOIN object_text ON object_text.id = object_text_fts.rowid"
            f" WHERE object_text_fts MATCH :query AND {visible} ORDER BY object_text_fts.rowid DESC"
        )
        values["query"] = " AND ".join(f'"{" ".join(parts)}" *' for parts in phrases)
    else:  # whose index knows 256 places of a word at most, too few for a list of addresses
        source = f"object_text WHERE vector @@ CAST(:query AS tsquery) AND {has_words} AND {visible} ORDER BY id DESC"
        values["query"] = " & ".join("'" + "' & '".join(parts) + "':*" for parts in phrases)
    begin = "(SELECT id FROM object_text ORDER BY id DESC LIMIT 1 OFFSET :newest)" if phrases else "-1"
    # The newest alerts have enough hits for a frequent word, while the index would list all of them.
    found = list(
        search.rows(
            f"SELECT object_id AS id FROM object_text WHERE id > coalesce({begin}, -1) AND {visible}"
            f" AND {has_words if phrases else 'TRUE'} ORDER BY object_text.id DESC LIMIT :limit",
            values,
        )
    )
    if not phrases or len(found) == limit:
        return found
    return list(search.rows(f"SELECT object_id AS id FROM {source} LIMIT :limit", values))


def words_by_level(alert: Alert) -> list[tuple[int, int, str]]:
    """Level, the next level, and the words of each row."""
    texts = [alert.title, alert.description, alert.type, alert.source, alert.source_ref]
    own = list(islice(_words(texts), MAX_WORDS))
    others = [(alert.tag_levels.get(tag, alert.tlp), [tag]) for tag in alert.tags]
    others += ((alert.field_levels.get(of, alert.tlp), [of, str(value)]) for of, value in alert.custom_fields.items())
    others += ((artifact.tlp, [*_artifact_texts(artifact)]) for artifact in alert.artifacts)
    levels = sorted({alert.tlp, *(of for of, _ in others if of > alert.tlp)})
    rows = []
    for level, until in zip(levels, [*levels[1:], _NO_LEVEL], strict=True):
        visible = (text for of, texts in others if of <= level for text in texts)
        rows.append((level, until, _joined(chain(own, _words(visible)))))
    return rows


def _artifact_texts(artifact: Artifact) -> Iterable[str]:
    yield from (artifact.data or "", artifact.message or "", *artifact.tags)
    if artifact.attachment is not None:
        yield from (artifact.attachment.name, *artifact.attachment.hashes)


def _words(texts: Iterable[str]) -> Iterator[str]:
    return (word for text in texts for word in words_of(text))


def _joined(words: Iterator[str]) -> str:
    return " ".join(islice(words, MAX_WORDS)).encode()[:MAX_BYTES].decode(errors="ignore")
