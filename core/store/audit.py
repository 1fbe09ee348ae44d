"""SQL for the audit: rows in a chain, and the texts beside them that can be erased (core/docs/audit.md)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from core.common.database import Reads, Row, Transaction
from core.models import parse_id
from core.store import bulks


def insert(tx: Transaction, values: Mapping[str, Any]) -> None:
    """Add a row: `number, at, what, object, root, hash, doc`."""
    tx.insert("audit", values)


def insert_texts(tx: Transaction, number: int, texts: Mapping[str, tuple[str, str]]) -> None:
    """Add the texts of a row: salt and text by name."""
    rows = (
        {"number": number, "name": name, "salt": salt, "text": json.dumps(text)} for name, (salt, text) in texts.items()
    )
    tx.insert("audit_text", *rows)


def last(reads: Reads) -> Row | None:
    """`number, hash` of the last row."""
    return reads.row("SELECT number, hash FROM audit WHERE number = (SELECT max(number) FROM audit)")


def settings(reads: Reads, host: str) -> dict[str, str]:
    """The digests of the settings with which a host started last, by key."""
    rows = reads.rows("SELECT name, digest FROM setting WHERE host = :host", {"host": host})
    return {row["name"]: row["digest"] for row in rows}


def set_settings(tx: Transaction, host: str, digests: Mapping[str, str]) -> None:
    tx.run("DELETE FROM setting WHERE host = :host", {"host": host})
    tx.insert("setting", *({"host": host, "name": name, "digest": digest} for name, digest in digests.items()))


_ROW = "number, at, hash, doc"


def page(reads: Reads, after: int, last: int | None, limit: int) -> list[Row]:
    """The next rows (`number, at, hash, doc`) after a number, up to the number `last`."""
    return reads.rows(
        f"SELECT {_ROW} FROM audit WHERE number > :after AND number <= :last ORDER BY number LIMIT :limit",
        {"after": after, "last": 2**62 if last is None else last, "limit": limit},
    )


def of_object(reads: Reads, object: str, after: int, limit: int) -> list[Row]:
    """As `page`, those about an object and what belongs to it: alerts of a case, runs of a bulk or on an observable.

    Of a bulk also the targets that it was refused.
    """
    alerts = "IN (SELECT '~' || id FROM object WHERE case_id = :object)"
    in_ = (
        "SELECT alert_id FROM alert_artifact WHERE artifact_id = :id UNION SELECT parent_id FROM object WHERE id = :id"
    )
    runs = ("bulk_id = :id", "object_id = :id", f"root_id IN ({in_}) AND doc LIKE :target")
    about = ["object = :object", "root = :object", f"object {alerts}", f"root {alerts}"]
    about += [f"object IN (SELECT '~' || id FROM action WHERE {of})" for of in runs]
    values = {"object": object, "id": parse_id(object) or 0, "after": after, "limit": limit}
    if (bulk := bulks.find(reads, parse_id(object) or 0)) is not None:
        about.append("object IN (SELECT value FROM json_each(:targets)) AND doc LIKE :refused")
        values["targets"] = json.dumps([target["objectId"] for target in json.loads(bulk["targets"])])
        values["refused"] = f'%"bulk":"{object}"%'
    part = "SELECT number FROM (SELECT number FROM audit WHERE {} AND number > :after ORDER BY 1 LIMIT :limit) AS part"
    return reads.rows(
        f"SELECT {_ROW} FROM audit WHERE number IN ({' UNION '.join(map(part.format, about))})"
        " ORDER BY number LIMIT :limit",
        {**values, "target": f'%{{"id":"{object}"%'},
    )


def last_of(reads: Reads, object: str, what: str) -> Row | None:
    """The newest row (`number, at, hash, doc`) of this kind about an object."""
    where = f"SELECT {_ROW} FROM audit WHERE object = :object AND what = :what ORDER BY number DESC LIMIT 1"
    return reads.row(where, {"object": object, "what": what})


class Text(NamedTuple):
    """A text beside a row."""

    name: str
    salt: str
    text: str


def texts(reads: Reads, numbers: Sequence[int]) -> dict[int, list[Text]]:
    """The texts of these rows, by the number of the row and then by name."""
    rows = reads.rows(
        "SELECT number, name, salt, text FROM audit_text"
        " WHERE number IN (SELECT CAST(value AS BIGINT) FROM json_each(:numbers)) ORDER BY number, name",
        {"numbers": json.dumps(numbers)},
    )
    found: dict[int, list[Text]] = {number: [] for number in numbers}
    for row in rows:
        found[row["number"]].append(Text(row["name"], row["salt"], json.loads(row["text"])))
    return found


def texts_after(reads: Reads, number: int) -> list[Row]:
    """The texts of the rows after this number (`number, name, text`)."""
    return reads.rows("SELECT number, name, text FROM audit_text WHERE number > :number", {"number": number})


def delete_text(tx: Transaction, names: Iterable[tuple[int, str]]) -> None:
    """Delete texts by the number of their row and their name, with their salts."""
    tx.run_all(
        "DELETE FROM audit_text WHERE number = :number AND name = :name",
        [{"number": number, "name": name} for number, name in names],
    )


def oldest(reads: Reads, limit: int) -> list[Row]:
    """The first rows: `number, at, hash`."""
    return reads.rows(
        "SELECT number, at, hash FROM audit WHERE number > 0 ORDER BY number LIMIT :limit", {"limit": limit}
    )


def count_older(reads: Reads, before: int) -> int:
    """How many rows stand before the first one from that time (ms) on."""
    return reads.number(
        "SELECT count(*) AS total FROM audit"
        " WHERE number < coalesce((SELECT min(number) FROM audit WHERE at >= :before), 9223372036854775807)",
        {"before": before},
    )


def delete_until(tx: Transaction, last: int) -> int:
    """Delete all rows up to number `last` with their texts; returns how many rows."""
    values = {"last": last}
    tx.run("DELETE FROM audit_text WHERE number <= :last", values)
    return tx.run("DELETE FROM audit WHERE number <= :last", values)


def first(reads: Reads) -> int:
    """The number of the first row that is kept."""
    return reads.number("SELECT min(number) AS number FROM audit") or 1


def first_since(reads: Reads, at: int) -> int:
    """The number of the first row from that time (ms) on, or of the next one."""
    return reads.number(
        "SELECT coalesce(min(number), (SELECT max(number) + 1 FROM audit), 1) AS number FROM audit WHERE at >= :at",
        {"at": at},
    )


def last_before(reads: Reads, at: int | None) -> int:
    """The number of the last row before that time (ms), or of all."""
    return reads.number(
        "SELECT coalesce(max(number), 0) AS number FROM audit WHERE at < :at", {"at": 2**62 if at is None else at}
    )


def erasures_after(reads: Reads, number: int) -> list[Row]:
    """The rows after this one (`number, doc`) that say what was erased, oldest first."""
    sql = "SELECT number, doc FROM audit WHERE number > :number AND what = 'erased' ORDER BY number"
    return reads.rows(sql, {"number": number})


def hash_before(reads: Reads, number: int) -> str:
    """The hash that the row with this number names as that of the one before."""
    row = reads.row("SELECT doc FROM audit WHERE number = :number", {"number": number})
    if row is None:
        row = last(reads)
        return "" if row is None else str(row["hash"])
    return str(json.loads(row["doc"])["previous"])
