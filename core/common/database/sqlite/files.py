"""Detect that a file that SQLite has open was removed or replaced, or the database truncated.

SQLite goes on writing to such a file, and whatever it then commits is lost.
"""

import errno
import os
import tempfile
from pathlib import Path

_HEADER_PAGES = 28  # where the header of a database holds its number of pages
FREE_BYTES = 2 * 1_048_576  # room for the largest request, since the probe's own write is small


class OpenFiles:
    """The database, its write-ahead log and its shared memory. Create it after SQLite has opened them."""

    def __init__(self, path: Path, page_bytes: int) -> None:
        self._path = str(path)
        real = os.path.realpath(path)  # SQLite resolves symbolic links before it names the other two
        self._identities = {name: _identity(name) for name in (self._path, f"{real}-wal", f"{real}-shm")}
        self._page_bytes = page_bytes
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Call after SQLite has closed the database: closing any descriptor of a file drops the process's locks."""
        os.close(self._descriptor)

    def problem(self) -> str:
        """What is wrong and what to do, or "". Takes some microseconds: it is called after each commit."""
        for path, identity in self._identities.items():
            if _identity(path) != identity:
                return _sentence(path, "was removed or replaced")
        return _sentence(self._path, "was cut short") if self._is_cut() else ""

    def _is_cut(self) -> bool:
        """Whether the database is shorter than its header says. A VACUUM by another process is fine."""
        size = os.fstat(self._descriptor).st_size
        if size < self._size and (not size or self._pages_in_header() * self._page_bytes > size):
            return True
        self._size = size
        return False

    def _pages_in_header(self) -> int:
        return int.from_bytes(os.pread(self._descriptor, 4, _HEADER_PAGES), "big")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sentence(path: str, what: str) -> str:
    return (
        f"{Path(path).name} {what} while it was in use, so nothing is written to it any more;"
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
