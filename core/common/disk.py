"""How long the disk lasts at the rate of the last week."""

import os
import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from core.common.clock import DAY_MS, Clock

WEEK_MS = 7 * DAY_MS
WARN_DAYS = 30
YEAR_DAYS = 365
MOST_YEARS = 100


class Share(NamedTuple):
    """How many of the rows that a database grows with were stored in the last 7 days, and how many there are."""

    new: int
    all: int


@dataclass(frozen=True)
class Stored:
    """What takes room on a disk, in bytes."""

    name: str
    size: int
    new: int
    """What was stored in the last 7 days."""
    folder: Path | None
    """Where it is; None on another machine."""
    days: int = 0
    """After so many days it is deleted; 0: never."""

    @property
    def growth(self) -> float:
        """Bytes a day; 0 once a day's deletion makes room for a day's news."""
        return 0 if self.days and self.size * 7 >= self.new * self.days else self.new / 7


def stored_in(name: str, folder: Path, clock: Clock, days: int) -> Stored:
    """The files below a folder; those that can't be read are left out. Blocks."""
    size = new = 0
    since_s = (clock() - WEEK_MS) / 1000
    for path, _, files in os.walk(folder):
        for file in files:
            try:
                found = os.lstat(os.path.join(path, file))
            except OSError:  # such as one that was just removed
                continue
            size += found.st_size
            new += found.st_size if found.st_mtime >= since_s else 0
    return Stored(name, size, new, folder, days)


def forecast(stored: Sequence[Stored]) -> list[tuple[bool, str]]:
    """For each disk whether it lasts WARN_DAYS, and a sentence. Blocks."""
    by_disk: dict[int | None, list[Stored]] = defaultdict(list)
    for one in stored:
        by_disk[None if one.folder is None else one.folder.stat().st_dev].append(one)
    return [_forecast(on_disk) for on_disk in by_disk.values()]


def _forecast(stored: Sequence[Stored]) -> tuple[bool, str]:
    names = " and ".join(filter(None, (", ".join(one.name for one in stored[:-1]), stored[-1].name)))
    size, new = sum(one.size for one in stored), sum(one.new for one in stored)
    take = "takes" if len(stored) == 1 else "take"
    use = f"{names} {take} {bytes_text(size)}, {bytes_text(new)} of it from the last 7 days"
    folder = stored[0].folder
    if folder is None:
        return True, f"{use}; PostgreSQL's disk isn't seen from here"
    free, growth = shutil.disk_usage(folder).free, sum(one.growth for one in stored)
    if not growth:
        why = "and as much is deleted as comes" if new else "and nothing comes"
        return True, f"{use}; {bytes_text(free)} are free, {why}"
    days = free / growth
    lasts = f"{use}; at that rate the {bytes_text(free)} that are free last {_days(days)}"
    return days >= WARN_DAYS, lasts + ("" if days >= WARN_DAYS else "; make room, or let [retention] delete more")


def _days(days: float) -> str:
    if days < 2 * YEAR_DAYS:
        return f"{days:.0f} days"
    return f"{days / YEAR_DAYS:.0f} years" if days < MOST_YEARS * YEAR_DAYS else f"over {MOST_YEARS} years"


def bytes_text(count: float) -> str:
    """A size, as people read it."""
    for unit in ("kB", "MB"):
        count /= 1_000
        if count < 999.5:
            return f"{count:.0f} {unit}" if count >= 9.95 else f"{count:.1f} {unit}"
    return f"{count / 1_000:,.1f} GB"
