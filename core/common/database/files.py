"""Whether the files that SQLite has open are still whole, and still those at their paths.

SQLite goes on writing to a file that was removed, replaced or cut, and what it then acknowledges is lost.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

_HEADER_PAGES = 28  # where the header of a database holds its number of pages
_WAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24


class _File:
    """A file, as it was when SQLite opened it."""

    def __init__(self, path: str) -> None:
        self.path = path
        found = self.found()
        self._identity = _identity(found)
        self.size = found.st_size if found else 0

    def found(self) -> os.stat_result | None:
        """What is at its path now."""
        with suppress(OSError):
            return os.stat(self.path)
        return None

    def is_other(self, found: os.stat_result | None) -> bool:
        """Whether that is another file or none. What was never there, such as the log on some systems, is not."""
        return self._identity is not None and _identity(found) != self._identity


class OpenFiles:
    """The database, its write-ahead log and its shared memory; made once SQLite has opened them."""

    def __init__(self, path: Path, page_bytes: int) -> None:
        real = os.path.realpath(path)  # SQLite puts the other two beside the file that a symbolic link leads to
        self._database, self._log, self._memory = _File(str(path)), _File(f"{real}-wal"), _File(f"{real}-shm")
        self._page_bytes = page_bytes
        self._hole_at: int | None = None  # where the log ended when it had become shorter
        self._descriptor: int | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """To be called after SQLite has closed the database: closing any descriptor of it ends all locks on it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def trouble(self) -> str:
        """What is wrong and what to do, or "". Takes some microseconds: it is asked around each commit."""
        with self._lock:
            database, log, memory = (file.found() for file in (self._database, self._log, self._memory))
            for file, found in ((self._database, database), (self._log, log), (self._memory, memory)):
                if file.is_other(found):
                    return _sentence(file, "was removed or replaced")
            if database is not None and self._is_cut(database.st_size):
                return _sentence(self._database, "was cut short")
            if log is not None and self._has_hole(log.st_size):
                return _sentence(self._log, "was cut short")
            return ""

    def may_checkpoint(self) -> bool:
        """Whether writing the log into the database rescues what is in it alone, or keeps it from a file put there.

        So when one of the two is gone or replaced, and nobody else can have begun a log of their own.
        """
        log, memory = self._log.found(), self._memory.found()
        if self._memory.is_other(memory) and memory is not None:
            return False
        if self._log.is_other(log):
            return log is None and not self._database.is_other(self._database.found())
        return self._database.is_other(self._database.found())

    def _is_cut(self, size: int) -> bool:
        """Whether the database has become shorter than it says that it is; a VACUUM of somebody's is fine."""
        if size < self._database.size and (not size or self._pages_in_header() * self._page_bytes > size):
            return True
        self._database.size = size
        return False

    def _pages_in_header(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._database.path, os.O_RDONLY | os.O_CLOEXEC)
        return int.from_bytes(os.pread(self._descriptor, 4, _HEADER_PAGES), "big")

    def _has_hole(self, size: int) -> bool:
        """Whether the log was cut and then written on behind the cut: nothing from there on would be found again.

        A log that SQLite itself has cut is written anew from its beginning.
        """
        if size < self._log.size:
            self._hole_at = size if self._hole_at is None else min(size, self._hole_at)
        elif self._hole_at is not None and size > self._hole_at:
            if self._is_zero(self._hole_at, size):
                return True
            self._hole_at = None
        self._log.size = size
        return False

    def _is_zero(self, cut_at: int, size: int) -> bool:
        frame_bytes = _FRAME_HEADER_BYTES + self._page_bytes
        frames = -((_WAL_HEADER_BYTES - cut_at) // frame_bytes)  # those that were left whole or in part
        at = _WAL_HEADER_BYTES + frames * frame_bytes if cut_at >= _WAL_HEADER_BYTES else 0
        if at >= size:
            return False
        with open(self._log.path, "rb") as log:  # SQLite holds no lock on this file
            return not any(os.pread(log.fileno(), 4, at))


def _identity(found: os.stat_result | None) -> tuple[int, int] | None:
    return (found.st_dev, found.st_ino) if found else None


def _sentence(file: _File, what: str) -> str:
    return (
        f"{Path(file.path).name} {what} while it was in use, so nothing is written to it any more;"
        " stop this process, put the file back or restore a backup, and start again."
    )
