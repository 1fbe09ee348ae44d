"""Verify an export of the audit: `python verify.py FILE [--head HASH]` needs nothing but this file.

An export is JSON lines: an anchor, rows with their texts, and a head (core/docs/audit.md#export).
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NO_HASH = "0" * 64
"""What the first row names as the hash of the one before it."""
PRUNED, ERASED = "audit.pruned", "erased"
CLOCK_MS = 60_000  # clocks of hosts may differ by that much

_ROW = b'{"hash":"'
_REST = b'","row":'


class ForgedError(Exception):
    """An export that was changed, as a sentence."""


canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
"""JSON with sorted keys, without spaces, in ASCII."""


def digest(text: str) -> str:
    """The SHA-256 of a text, such as a row."""
    return hashlib.sha256(text.encode()).hexdigest()


def text_digest(salt: str, text: str) -> str:
    """What a row has of a text: no other salt and text give the same JSON."""
    return digest(canonical([salt, text]))


def row_line(hash_: str, row: str) -> str:
    """A row of the export; `row` is its canonical JSON."""
    return f'{{"hash":"{hash_}","row":{row}}}'


@dataclass
class Audit:
    """What an export says, as far as it was read."""

    first: int = 0
    number: int = 0
    """Of the last row."""
    hash: str = NO_HASH
    is_ended: bool = False
    """Whether the line with the head was read."""
    has_published: bool = False
    """Whether a row, or the anchor, has the hash that was given."""
    pruned_to: int = 0
    remarks: list[str] = field(default_factory=list)
    missing: dict[int, set[str]] = field(default_factory=dict)
    """Texts that rows name and the export hasn't."""
    _at: int = 0
    _texts: dict[str, str] = field(default_factory=dict)
    """Hashes of the texts of the last row that are still to come."""

    def begin(self, line: bytes, published: str) -> None:
        anchor = _read(line, "anchor")
        if anchor is None:
            raise ForgedError("Line 1 is no anchor: the beginning was removed or changed.")
        self.number, self.hash = anchor["number"], anchor["hash"]
        self.first = self.number + 1
        self.has_published = self.hash == published

    def add(self, line: bytes, place: int, published: str) -> None:
        """Check the next line. Raises ForgedError."""
        if self.is_ended:
            raise ForgedError(
                f"Line {place}, after row {self.number}, stands after the head: it was inserted or swapped."
            )
        if line.startswith(_ROW):
            self._add_row(line, place, published)
        elif (text := _read(line, "payload")) is not None:
            self._add_text(text, place)
        elif (head := _read(line, "head")) is not None:
            self._close_row()
            if (head["number"], head["hash"]) != (self.number, self.hash):
                number = head["number"]
                raise ForgedError(
                    f"The head is that of row {number}, and the last row here is {self.number}: rows after"
                    f" {self.number} are cut off or swapped, or the head was changed."
                )
            self.is_ended = True
        else:
            what = f"row {self.number + 1}" if not self._texts else f"a text of row {self.number}"
            raise ForgedError(
                f"Line {place}, after row {self.number}, is none of an export: {what} was changed, or it was inserted."
            )

    def _add_row(self, line: bytes, place: int, published: str) -> None:
        self._close_row()
        expected, start = self.number + 1, len(_ROW) + 64
        hash_, body = line[len(_ROW) : start], line[start + len(_REST) : -1]
        is_whole = line[start : start + len(_REST)] == _REST and line.endswith(b"}")
        if not is_whole or hashlib.sha256(body).hexdigest().encode() != hash_:
            raise ForgedError(f"Row {expected} (line {place}) was changed: its hash is not that of its content.")
        row = json.loads(body)
        number = row["number"]
        if number > expected:
            which = f"Row {expected} is" if number == expected + 1 else f"Rows {expected} to {number - 1} are"
            raise ForgedError(
                f"{which} missing after row {self.number}, before row {number} (line {place}): removed or swapped."
            )
        if number < expected:
            raise ForgedError(f"Row {number} (line {place}) stands after row {self.number}: inserted or swapped.")
        if row["previous"] != self.hash:
            raise ForgedError(
                f"Row {number} (line {place}) does not follow from row {number - 1}: one of them was replaced."
            )
        if row["at"] < self._at - CLOCK_MS:
            seconds = (self._at - row["at"]) // 1000
            self.remarks.append(f"Row {number} is dated {seconds} s before the one before it: a clock was set back.")
        self.number, self.hash, self._at = number, hash_.decode(), row["at"]
        self.has_published |= self.hash == published
        self._texts = dict(row.get("texts", {}))
        if row["what"] == PRUNED:
            self.pruned_to = max(self.pruned_to, row["until"])
        for erased in row.get("erased", ()) if row["what"] == ERASED else ():
            self.missing.pop(erased, None)

    def _add_text(self, text: dict[str, Any], place: int) -> None:
        name, number = text["name"], text["number"]
        if number != self.number or name not in self._texts:
            what = (
                f"Line {place}, after row {self.number}, has a text {name!r} of row {number} that doesn't belong there"
            )
            raise ForgedError(f"{what}: it was inserted, swapped or changed.")
        for earlier in [key for key in self._texts if key < name]:
            self._miss(earlier)
        if text_digest(text["salt"], text["text"]) != self._texts.pop(name):
            raise ForgedError(f"The text {name!r} of row {number} (line {place}) was changed.")

    def _close_row(self) -> None:
        for name in list(self._texts):
            self._miss(name)

    def _miss(self, name: str) -> None:
        self.missing.setdefault(self.number, set()).add(name)
        del self._texts[name]

    def finish(self, published: str, published_number: int | None) -> None:
        """Raises ForgedError for what shows only at the end."""
        if not self.is_ended:
            raise ForgedError(f"There is no head after row {self.number}: the tail is cut off; export it again.")
        if self.missing:
            number, names = min(self.missing.items())
            which = ", ".join(sorted(names))
            raise ForgedError(f"The text {which} of row {number} was removed, and no row says that it was erased.")
        if published and not self.has_published:
            if published_number is not None and published_number < self.first - 1:
                raise ForgedError(
                    f"The published head is of row {published_number}, and this export begins after row"
                    f" {self.first - 1}; give a later head, or an export that has that row."
                )
            which = "no row here" if published_number is None else f"not row {published_number} here"
            raise ForgedError(
                f"The published head is {which}: rows up to it were rewritten, or are not in this export."
            )


def verify(lines: Iterable[bytes], published: str = "") -> Audit:
    """Check the lines of an export, each with its line feed, against a published head: a hash, or `<number>:<hash>`.

    Raises ForgedError, which names the first row that was changed, removed, inserted or swapped.
    """
    number, _, hash_ = published.rpartition(":")
    if published and not (
        len(hash_) == 64 and set(hash_) <= set("0123456789abcdef") and (not number or number.isdigit())
    ):
        raise ForgedError("A head is 64 digits and letters a to f, or <number>:<hash>; copy it whole.")
    audit = Audit()
    place = 0
    for place, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            raise ForgedError(f"The export is cut in the middle of line {place}, after row {audit.number}.")
        try:
            if place == 1:
                audit.begin(line[:-1], hash_)
            else:
                audit.add(line[:-1], place, hash_)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            sentence = f"Line {place} was changed or inserted after row {audit.number}: it can't be read."
            raise ForgedError(sentence) from error
    if not place:
        raise ForgedError("The export is empty.")
    audit.finish(hash_, int(number) if number else None)
    return audit


def _read(line: bytes, kind: str) -> dict[str, Any] | None:
    """What a line of this kind holds; None for another one, or one that isn't canonical."""
    if not line.startswith(f'{{"{kind}":'.encode()):
        return None
    value = json.loads(line)
    if canonical(value).encode() != line or set(value) != {kind}:
        return None
    inner: dict[str, Any] = value[kind]
    return inner


def report(audit: Audit, published: str) -> Iterator[str]:
    """What an export that was not changed proves, in sentences."""
    count = audit.number - audit.first + 1
    rows = f"{count} rows, {audit.first} to {audit.number}," if count else "No rows"
    yield f"{rows} follow from each other; the head is {audit.number}:{audit.hash}."
    if audit.first > 1:
        before = f"Rows up to {audit.first - 1} are not in this export"
        yield f"{before}; row {audit.pruned_to} and those before it were pruned." if audit.pruned_to else f"{before}."
    yield from audit.remarks
    if published:
        yield "The published head is among them, so all rows up to it are as they were then."
    else:
        yield "Give --head with a head that was published: without one, nobody sees whether all of it was rewritten."


def run(file: Path, published: str) -> int:
    """Verify a file and print the result; returns the exit code."""
    try:
        with file.open("rb") as lines:
            audit = verify(lines, published)
    except ForgedError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{file} can't be read ({error.strerror}); name an export.", file=sys.stderr)
        return 2
    print("\n".join(report(audit, published)))
    return 0


def main() -> int:
    """Verify the file that the command line names."""
    parser = argparse.ArgumentParser(description="Verify an export of the audit.")
    parser.add_argument("file", type=Path, metavar="FILE", help="made by `responder-bot audit export`")
    parser.add_argument("--head", default="", metavar="HASH", help="a head that was published")
    args = parser.parse_args()
    return run(args.file, args.head)


if __name__ == "__main__":
    sys.exit(main())
