"""Detect that files which SQLite has open were removed, replaced or truncated.

SQLite goes on writing to such a file, and whatever it then commits is lost.
"""

import errno
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

_HEADER_PAGES = 28  # where the header of a database holds its number of pages
FREE_BYTES = 2 * 1_048_576  # for the largest request: the probe's own small write may still fit where that doesn't
_WAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24


class _File:
    """A file as it was when SQLite opened it."""

    def __init__(self, path: str) -> None:
        self.path = path
        found = self.stat()
        self._identity = _identity(found)
        self.size = found.st_size if found else 0

    def stat(self) -> os.stat_result | None:
        """What is at the path now; None if nothing."""
        with suppress(OSError):
            return os.stat(self.path)
        return None

    def was_replaced(self, found: os.stat_result | None) -> bool:
        """Whether `found` is another file or none. False for a file that didn't exist at the start."""
        return self._identity is not None and _identity(found) != self._identity


class OpenFiles:
    """The database, its write-ahead log and its shared memory. Create it after SQLite has opened them."""

    def __init__(self, path: Path, page_bytes: int) -> None:
        real = os.path.realpath(path)  # SQLite resolves symbolic links before it names the other two
        self._database, self._log, self._memory = _File(str(path)), _File(f"{real}-wal"), _File(f"{real}-shm")
        self._page_bytes = page_bytes
        self._hole_at: int | None = None  # where the log ended after it had become shorter
        self._descriptor: int | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Call after SQLite has closed the database: closing any descriptor of a file drops the process's locks."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def problem(self) -> str:
        """What is wrong and what to do, or "". Takes some microseconds: it is called around each commit."""
        with self._lock:
            database, log, memory = (file.stat() for file in (self._database, self._log, self._memory))
            for file, found in ((self._database, database), (self._log, log), (self._memory, memory)):
                if file.was_replaced(found):
                    return _sentence(file, "was removed or replaced")
            if database is not None and self._is_cut(database.st_size):
                return _sentence(self._database, "was cut short")
            if log is not None and self._has_hole(log.st_size):
                return _sentence(self._log, "was cut short")
            return ""

    def may_checkpoint(self) -> bool:
        """Whether a checkpoint saves commits that are in the log only, or keeps them out of a file put in its place.

        True when the database or the log is gone or replaced, and no other process can have started a log of its own.
        """
        log, memory = self._log.stat(), self._memory.stat()
        if self._memory.was_replaced(memory) and memory is not None:
            return False
        if self._log.was_replaced(log):
            return log is None and not self._database.was_replaced(self._database.stat())
        return self._database.was_replaced(self._database.stat())

    def _is_cut(self, size: int) -> bool:
        """Whether the database is shorter than its header says. A VACUUM by another process is fine."""
        if size < self._database.size and (not size or self._pages_in_header() * self._page_bytes > size):
            return True
        self._database.size = size
        return False

    def _pages_in_header(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._database.path, os.O_RDONLY | os.O_CLOEXEC)
        return int.from_bytes(os.pread(self._descriptor, 4, _HEADER_PAGES), "big")

    def _has_hole(self, size: int) -> bool:
        """Whether the log was truncated and then written beyond that point: SQLite would not recover those frames.

        After SQLite itself truncates the log it starts again at the beginning.
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
        frames = -((_WAL_HEADER_BYTES - cut_at) // frame_bytes)  # whole or in part
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


def out_of_space(path: Path) -> str:
    """Why FREE_BYTES can't be allocated beside this file, or "". Uses an unnamed file."""
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            os.posix_fallocate(file.fileno(), 0, FREE_BYTES)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return str(error.strerror)
    return ""  # other errors: the file system can't allocate in advance
