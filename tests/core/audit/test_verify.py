"""An export proves itself: whatever is changed in it is named, with the row."""

import asyncio
import json
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from core.audit import trail, verify
from core.audit.reader import export
from core.audit.verify import ForgedError, canonical, digest, row_line
from core.common.clock import DAY_MS
from core.common.database import Database, Dialect, Transaction
from core.common.errors import ResponderBotError
from core.common.settings_file import RetentionSection
from core.retention.pruning import AT_ONCE, Retention
from core.store.retention import delete_texts
from tests import stores
from tests.clock import SetClock
from tests.stores import opened

ROWS = 40


async def written(database: Database, clock: SetClock, count: int = ROWS) -> None:
    for number in range(count):
        texts = {"reason": f"reason {number}", "note": "a b\0c ü \ud800 =1+1"} if number % 3 == 0 else {}
        clock.now_ms += 1_000

        def work(tx: object, number: int = number, texts: dict[str, str] = texts) -> int:
            return trail.record(tx, clock(), "user.enabled", by="lead@x", object=f"u{number}@x", texts=texts)  # type: ignore[arg-type]

        await database.transaction(work)


async def lines_of(
    database: Database, clock: SetClock, *, since: date | None = None, until: date | None = None
) -> list[bytes]:
    found = export(database, clock, "the command line", since=since, until=until, as_csv=False)
    return [line.encode() async for line in found]


def head_of(lines: Sequence[bytes]) -> str:
    head = json.loads(lines[-1])["head"]
    return f"{head['number']}:{head['hash']}"


async def test_a_true_export_is_verified_by_the_module_alone(database: Database, tmp_path: Path) -> None:
    clock = SetClock()
    await written(database, clock)
    lines = await lines_of(database, clock)
    file, module = tmp_path / "audit.jsonl", tmp_path / "alone.py"
    file.write_bytes(b"".join(lines))
    module.write_text(Path(verify.__file__).read_text())
    head = head_of(lines)
    for published in (head, head.partition(":")[2]):
        program = [sys.executable, "-I", "-S", str(module), str(file), "--head", published]
        answer = await asyncio.to_thread(subprocess.run, program, capture_output=True, text=True, check=True, cwd="/")
        assert f"{ROWS + 1} rows, 1 to {ROWS + 1}, follow from each other; the head is {head}" in answer.stdout
        assert "The published head is among them" in answer.stdout
    earlier = json.loads(lines[5])["hash"] if b'"hash"' in lines[5] else ""
    assert verify.verify(lines, earlier).number == ROWS + 1
    assert "Give --head" in "\n".join(verify.report(verify.verify(lines), ""))


class Change(NamedTuple):
    """A forged export, the rows that may be named, and what was done."""

    lines: list[bytes]
    rows: set[int]
    what: str


def changed(lines: Sequence[bytes], chance: random.Random) -> Change:
    """One random change: a byte, or a line that is removed, inserted, swapped, or the end that is cut."""
    rows = row_of_each(lines)
    place, what = chance.randrange(len(lines)), chance.choice(("edit", "delete", "insert", "swap", "cut"))
    forged = list(lines)
    near = {rows[place], rows[max(place - 1, 0)], rows[min(place + 1, len(lines) - 1)]}
    if what == "edit":
        at = chance.randrange(len(lines[place]))
        byte = bytes([chance.choice([one for one in range(256) if one != lines[place][at]])])
        forged[place : place + 1] = (lines[place][:at] + byte + lines[place][at + 1 :]).splitlines(keepends=True)
    elif what == "delete":
        del forged[place]
    elif what == "insert":
        forged.insert(place, chance.choice((chance.choice(lines), b"\n", b"{}\n")))
        near |= {rows[place] - 1}
    elif what == "swap":
        other = chance.choice([one for one in range(len(lines)) if one != place])
        forged[place], forged[other] = forged[other], forged[place]
        first = min(place, other)
        near = {rows[first], rows[max(first - 1, 0)], rows[first] + 1}
    else:
        whole = b"".join(lines)
        forged = whole[: chance.randrange(len(whole))].splitlines(keepends=True)
        last = len(forged) - 1
        near = {rows[max(last, 0)], rows[max(last - 1, 0)]}
    return Change(forged, near, what)


def row_of_each(lines: Sequence[bytes]) -> list[int]:
    """The number of the row that each line is of, or that it comes after."""
    rows, number = [], 0
    for line in lines:
        found = json.loads(line)
        number = found["row"]["number"] if "row" in found else number
        rows.append(number)
    return rows


@pytest.mark.parametrize("seed", range(2))
async def test_each_random_change_is_named_with_its_row(database: Database, seed: int) -> None:
    clock, chance = SetClock(), random.Random(seed)  # noqa: S311 - the same changes each time
    await written(database, clock, 10)
    lines = await lines_of(database, clock)
    named = 0
    for _ in range(1_000):
        change = changed(lines, chance)
        if b"".join(change.lines) == b"".join(lines):
            continue  # such as a line that was swapped with its like
        with pytest.raises(ForgedError) as raised:
            verify.verify(change.lines)
        sentence = str(raised.value)
        numbers = {int(number) for number in re.findall(r"\d+", sentence)}
        whole = ("beginning", "empty", "Line 1 ", "line 1,")
        assert numbers & change.rows or any(word in sentence for word in whole), (change.what, sentence, change.rows)
        named += 1
    assert named > 950


async def test_who_rewrites_the_whole_chain_is_found_by_a_published_head(database: Database) -> None:
    clock = SetClock()
    await written(database, clock)
    lines = await lines_of(database, clock)
    forged, previous = [lines[0]], verify.NO_HASH
    for line in lines[1:]:
        found = json.loads(line)
        if "row" in found:
            found["row"]["previous"] = previous
            found["row"]["by"] = "somebody@x"
            row = canonical(found["row"])
            previous = digest(row)
            line = f"{row_line(previous, row)}\n".encode()
        elif "head" in found:
            line = f"{canonical({'head': {'number': found['head']['number'], 'hash': previous}})}\n".encode()
        forged.append(line)
    assert verify.verify(forged).number == ROWS + 1
    with pytest.raises(ForgedError, match="rows up to it were rewritten"):
        verify.verify(forged, head_of(lines))


async def test_each_bad_export_is_one_sentence(database: Database) -> None:
    clock = SetClock()
    await written(database, clock)
    lines = await lines_of(database, clock)
    for forged, published, sentence in (
        ([], "", "The export is empty."),
        (lines[:-1], "", "There is no head after row 41: the tail is cut off"),
        ([*lines[:4], lines[4][:30]], "", "The export is cut in the middle of line 5, after row"),
        (lines, "412", "A head is 64 digits"),
        (lines, f"7:{'0' * 63}1", "not row 7 here"),
        (
            [line for line in lines if not line.startswith(b'{"payload":{"name":"reason","number":4')],
            "",
            "of row 4 was",
        ),
        ([line.replace(b"\n", b"\r\n") for line in lines], "", "Line 1 "),
        ([*lines[:2], b'{"payload":' + b"[" * 100_000 + b"\n"], "", "Line 3 was changed or inserted"),
    ):
        with pytest.raises(ForgedError, match=re.escape(sentence)):
            verify.verify(forged, published)


QUOTED = 'the "host" of "anna" is "10.0.0.1", she said "\\"'


def cuts(salt: str, text: str) -> list[tuple[str, str]]:
    """Each salt with the beginning of a text's JSON, and the text that the rest is, as far as it is one."""
    whole, found = canonical(text), []
    for place in range(1, len(whole)):
        for end in ("", '"'):
            try:
                rest = json.loads(end + whole[place:])
            except ValueError:
                continue
            found += [(salt + whole[:place], rest), (salt[: len(salt) - place] + whole[:place], rest)]
    return found + [(salt[:place], text) for place in range(len(salt))] + [(salt[:-1] + "\n", text)]


@pytest.mark.parametrize("where", ["export", "database"])
async def test_no_text_loses_its_beginning_to_its_salt(database: Database, where: str) -> None:
    clock = SetClock()
    await database.transaction(
        lambda tx: trail.record(tx, clock(), "user.enabled", by="lead@x", object="anna@x", texts={"reason": QUOTED})
    )
    lines = await lines_of(database, clock)
    head, at = head_of(lines), 2
    payload = json.loads(lines[at])["payload"]
    forged = cuts(payload["salt"], payload["text"])
    assert len(forged) > 2 * len(QUOTED)
    for salt, text in forged:
        if where == "export":
            changed = [*lines[:at], canonical({"payload": {**payload, "salt": salt, "text": text}}).encode() + b"\n"]
            changed += lines[at + 1 :]
        else:
            values = {"salt": salt, "text": canonical(text)}
            await database.transaction(
                lambda tx, values=values: tx.run("UPDATE audit_text SET salt = :salt, text = :text", values)  # type: ignore[misc]
            )
            changed = await lines_of(database, clock)
        with pytest.raises(ForgedError, match=r"The text 'reason' of row 1 \(line 3\) was changed"):
            verify.verify(changed, head)


async def test_the_rows_of_several_processes_are_one_chain(database: Database, tmp_path: Path) -> None:
    clocks = SetClock(), SetClock()
    async with opened(tmp_path / "core.db") as other:
        hosts = [(store, clock) for store, clock in zip((database, other), clocks, strict=True) for _ in range(10)]
        await asyncio.gather(*(written(store, clock, 20) for store, clock in hosts))
    lines = await lines_of(database, clocks[0])
    assert verify.verify(lines, head_of(lines)).number == 401


async def test_a_part_is_verified_and_a_head_before_it_is_explained(database: Database) -> None:
    clock = SetClock()
    await written(database, clock, 5)
    head = head_of(await lines_of(database, clock))
    clock.now_ms += 3 * DAY_MS
    await written(database, clock, 5)
    today = datetime.fromtimestamp(clock.now_ms / 1000, UTC).date()
    part = await lines_of(database, clock, since=today - timedelta(days=1))
    assert verify.verify(part).first == 7
    assert verify.verify(part, head).has_published  # it is that of the row before the first one
    await written(database, clock, 1)
    clock.now_ms += 3 * DAY_MS
    later = await lines_of(database, clock, since=today + timedelta(days=2))
    with pytest.raises(ForgedError, match=r"The published head is of row 6, and this export begins after row 13"):
        verify.verify(later, head)
    ended = await lines_of(database, clock, until=today - timedelta(days=2))
    assert verify.verify(ended).number == 6


async def test_a_part_goes_on_to_the_row_that_erased_a_text_of_it_later(database: Database) -> None:
    clock = SetClock()
    await written(database, clock, 5)
    first_day = datetime.fromtimestamp(clock.now_ms / 1000, UTC).date()
    clock.now_ms += 3 * DAY_MS
    await written(database, clock, 2)

    def erase(tx: Transaction, numbers: list[int]) -> int:
        delete_texts(tx, numbers)
        return trail.record(tx, clock(), "erased", by="the command line", object="value", erased=numbers)

    erased = await database.transaction(lambda tx: erase(tx, [1, 6]))
    of_the_day = await database.transaction(lambda tx: erase(tx, [erased]))  # of what is only in the part by then
    await database.transaction(lambda tx: erase(tx, [of_the_day + 9]))
    part = await lines_of(database, clock, until=first_day)
    assert verify.verify(part).number == of_the_day
    assert not any(b"reason 0" in line for line in part)


def retention_of(database: Database, clock: SetClock) -> Retention:
    return Retention(database, clock, RetentionSection(audit_days=5), pause_s=0)


def rows_in(lines: Sequence[bytes]) -> list[Any]:
    return [json.loads(line) for line in lines if line.startswith(b'{"hash":')]


@pytest.mark.parametrize("dialect", stores.DIALECTS)
async def test_after_retention_an_export_is_verified_from_its_anchor(tmp_path: Path, dialect: Dialect) -> None:
    clock, path, old = SetClock(), tmp_path / "core.db", AT_ONCE + 20
    with stores.using(dialect):
        async with opened(path) as database:
            await written(database, clock, old - 1)
            before = await lines_of(database, clock)
            clock.now_ms += 6 * DAY_MS
            await written(database, clock, 3)
            retention = retention_of(database, clock)
            assert await retention.preview() == await retention.prune() == {"audit": old}
            assert not await retention.prune()
            after = await lines_of(database, clock)
            clock.now_ms += 6 * DAY_MS
            assert (await retention.prune())["audit"] == len(rows_in(after))
            at_last = await lines_of(database, clock)
        for table in ("audit", "audit_text"):
            assert stores.rows(path, f"SELECT count(*) FROM {table} WHERE number <= {old + 3}") == [(0,)]  # noqa: S608
    known = {row["row"]["number"]: row["hash"] for row in rows_in(before)}
    head = head_of(before)
    assert json.loads(after[0])["anchor"] == {"number": old, "hash": known[old]}
    pruned = [row["row"] for row in rows_in(after) if row["row"]["what"] == "audit.pruned"]
    assert [(row["until"], row["hash"]) for row in pruned] == [(until, known[until]) for until in (AT_ONCE, old)]
    audit = verify.verify(after, head)  # the published head is that of the anchor
    said = f"Rows up to {old} are not in this export; row {old} and those before it were pruned."
    assert said in verify.report(audit, head)
    later = f"{old + 2}:{rows_in(after)[1]['hash']}"
    assert verify.verify(after, later).has_published
    with pytest.raises(
        ForgedError, match=rf"The published head is of row 7, and this export begins after row {old}; give a later head"
    ):
        verify.verify(after, f"7:{known[7]}")
    with pytest.raises(ForgedError, match="The published head is no row here"):
        verify.verify(after, known[7])
    forged = canonical({"anchor": {"number": old, "hash": known[7]}}).encode() + b"\n"
    with pytest.raises(ForgedError, match=f"Row {old + 1} .* does not follow from row {old}"):
        verify.verify([forged, *after[1:]])
    assert verify.verify(at_last, head_of(after)).has_published
    assert [row["row"]["what"] for row in rows_in(at_last)] == ["audit.pruned", "pruned", "audit.exported"]


@pytest.mark.parametrize("dialect", stores.DIALECTS)
async def test_an_export_whose_rows_go_meanwhile_ends_with_a_sentence(tmp_path: Path, dialect: Dialect) -> None:
    clock = SetClock()
    with stores.using(dialect):
        async with opened(tmp_path / "core.db") as database:
            await written(database, clock)
            clock.now_ms += 6 * DAY_MS
            lines = export(database, clock, "the command line", since=None, until=None, as_csv=False)
            assert json.loads(await anext(lines)) == {"anchor": {"number": 0, "hash": verify.NO_HASH}}
            await retention_of(database, clock).prune()
            with pytest.raises(ResponderBotError, match="The rows after 0 were pruned meanwhile"):
                await anext(lines)


async def test_a_clock_that_was_set_back_is_a_remark(database: Database) -> None:
    clock = SetClock()
    await written(database, clock, 3)
    clock.now_ms -= DAY_MS
    await written(database, clock, 3)
    remarks = verify.verify(await lines_of(database, clock)).remarks
    assert remarks == ["Row 4 is dated 86399 s before the one before it: a clock was set back."]


async def test_csv_is_for_spreadsheets_that_calculate_nothing(database: Database) -> None:
    clock = SetClock()

    def work(tx: object) -> int:
        return trail.record(tx, clock(), "user.enabled", by="=cmd()", object="~1", texts={"reason": "x"})  # type: ignore[arg-type]

    await database.transaction(work)
    found = export(database, clock, "the command line", since=None, until=None, as_csv=True)
    lines = [line async for line in found]
    assert lines[0].startswith("number,time,what,by")
    assert ",'=cmd()," in lines[1]
    assert 'enabled the user ~1: ""x""' in lines[1]
