"""Writes the audit as JSON lines, which `verify` checks, or as CSV for people (core/docs/audit.md#export)."""

import csv
import io
import json
from collections.abc import AsyncIterator, Iterable
from datetime import date, timedelta
from typing import Any

from core.audit import trail
from core.audit.sentences import sentence
from core.audit.verify import canonical, row_line
from core.common.clock import Clock, as_time, day_ms
from core.common.database import Database, Reads, Row
from core.common.errors import ResponderBotError
from core.store import audit as stored
from core.store.audit import Text

PAGE = 1_000
_COLUMNS = ("number", "time", "what", "by", "through", "object", "root", "sentence", "hash")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would calculate


async def export(
    database: Database, clock: Clock, by: str, *, since: date | None, until: date | None, as_csv: bool
) -> AsyncIterator[str]:
    """The lines of an export, after a row that says who made it: of these days (UTC, both included), or of all.

    It goes on to the row by which a text of these days was erased later, without which the text seems to be removed.
    Raises ResponderBotError("conflict") if rows are pruned meanwhile.
    """
    first = await database.read(
        lambda reads: stored.first_since(reads, day_ms(since)) if since else stored.first(reads)
    )
    now = clock()
    await database.transaction(lambda tx: trail.record(tx, now, "audit.exported", by=by, object="audit", first=first))
    end = day_ms(until + timedelta(days=1)) if until else None
    last = await database.read(lambda reads: _last(reads, first, stored.last_before(reads, end)))
    before = await database.read(lambda reads: stored.hash_before(reads, first))
    yield _csv(_COLUMNS) if as_csv else canonical({"anchor": {"number": first - 1, "hash": before}}) + "\n"
    number, hash_ = first - 1, before
    while number < last:
        rows, texts = await database.snapshot(lambda reads, after=number: _page(reads, after, last))  # type: ignore[misc]
        if not rows or rows[0]["number"] != number + 1:
            message = f"The rows after {number} were pruned meanwhile, so this export is of no use; export again."
            raise ResponderBotError("conflict", message)
        for row in rows:
            number, hash_ = row["number"], row["hash"]
            for line in (_csv_lines if as_csv else _json_lines)(row, texts[number]):
                yield line
    if not as_csv:
        yield canonical({"head": {"number": number, "hash": hash_}}) + "\n"


def _last(reads: Reads, first: int, last: int) -> int:
    """The last row of an export that is to end with row `last`."""
    for row in stored.erasures_after(reads, last):
        if any(first <= number <= last for number in json.loads(row["doc"]).get("erased", ())):
            last = row["number"]
    return last


def _page(reads: Reads, after: int, last: int) -> tuple[list[Row], dict[int, list[Text]]]:
    rows = stored.page(reads, after, last, PAGE)
    return rows, stored.texts(reads, [row["number"] for row in rows])


def _json_lines(row: Row, texts: Iterable[Text]) -> list[str]:
    payloads = ({"number": row["number"], **text._asdict()} for text in texts)
    lines = [row_line(row["hash"], row["doc"]), *(canonical({"payload": payload}) for payload in payloads)]
    return [f"{line}\n" for line in lines]


def _csv_lines(row: Row, texts: Iterable[Text]) -> list[str]:
    doc = json.loads(row["doc"])
    said = {text.name: text.text for text in texts}
    known = {**doc, "time": as_time(doc["at"]), "sentence": sentence(doc, said), "hash": row["hash"]}
    return [_csv([known.get(name, "") for name in _COLUMNS])]


def _csv(values: Any) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(f"'{value}" if str(value).startswith(_FORMULA) else value for value in values)
    return line.getvalue().encode(errors="backslashreplace").decode()  # a text may have half a surrogate pair
