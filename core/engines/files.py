"""Files that a responder may have tampered with: never follow a link, never block, never read without a bound.

A program runs under the account of core, so it may put a link, a named pipe or a directory where core expects a file
of its own, or in place of a whole folder. Each function takes a directory that is trusted and a way down from there.
Nothing here is for the event loop: these calls may wait for a disk.
"""

import contextlib
import os
import secrets
import stat
from itertools import islice
from pathlib import Path

_BATCH = 1000
"""How many entries of a directory are held in memory while it is removed."""


def open_directory(trusted: Path, *names: str) -> int:
    """A descriptor of the directory that `names` lead to. Raises OSError, also where one of them is a link."""
    descriptor = os.open(trusted, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in names:
        parent = descriptor
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        finally:
            os.close(parent)
    return descriptor


def open_regular(trusted: Path, *names: str) -> int:
    """A descriptor to read the regular file that `names` lead to. Raises OSError for anything else."""
    directory = open_directory(trusted, *names[:-1])
    try:
        descriptor = os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{names[-1]} is not a regular file")
    return descriptor


def read_regular(trusted: Path, *names: str, limit_bytes: int) -> bytes:
    """The content of the regular file that `names` lead to. Raises OSError, also when it has more than the limit."""
    with os.fdopen(open_regular(trusted, *names), "rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise OSError(f"{names[-1]} is longer than {limit_bytes} bytes")
    return content


def replace(trusted: Path, *names: str, content: bytes) -> None:
    """Put a file in place, whole or not at all; what was there is removed, and not followed. Raises OSError."""
    directory = open_directory(trusted, *names[:-1])
    new = f".{names[-1]}.{secrets.token_hex(8)}"
    try:
        _write_new(new, content, directory)
        try:
            os.rename(new, names[-1], src_dir_fd=directory, dst_dir_fd=directory)
        except IsADirectoryError:
            _remove_below(directory, names[-1])
            os.rename(new, names[-1], src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=directory)
        raise
    finally:
        os.close(directory)


def write_new(path: Path, content: bytes) -> None:
    """Write a file that isn't there yet, readable for its owner only. Raises OSError."""
    _write_new(str(path), content, None)


def _write_new(name: str, content: bytes, directory: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=directory), "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # whatever the umask says
        file.write(content)


def make_private(path: Path) -> None:
    """Make a directory, and those above it that are missing, for their owner only. Raises OSError."""
    if path.is_dir():
        return
    make_private(path.parent)
    with contextlib.suppress(FileExistsError):  # somebody was quicker
        path.mkdir(mode=0o700)
        path.chmod(0o700)  # whatever the umask says


def remove_tree(path: Path) -> None:
    """Remove what has this name, a directory with all that is in it; links are removed, and not followed.

    What can't be removed stays. Works at any depth: directories are moved up before they are emptied, so neither
    stack nor descriptors grow.
    """
    with contextlib.suppress(OSError):
        directory = open_directory(path.parent)
        try:
            _remove_below(directory, path.name)
        finally:
            os.close(directory)


def _remove_below(parent: int, name: str) -> None:
    if not _is_directory(name, parent):
        os.unlink(name, dir_fd=parent)
        return
    top = _open_anyhow(name, parent)
    try:
        while sum(_cleared(entry, top) for entry in _some_of(top)):
            pass
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _some_of(directory: int) -> list[str]:
    """The first entries; one that was removed makes room for the next round."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, _BATCH)]


def _cleared(name: str, top: int) -> bool:
    """Remove an entry of `top`, or bring that some way on. False: nothing could be done."""
    try:
        if not _is_directory(name, top):
            os.unlink(name, dir_fd=top)
            return True
        directory = _open_anyhow(name, top)
    except OSError:
        return False
    try:
        progress = sum(_removed_or_moved(entry, directory, top) for entry in _some_of(directory)) > 0
    finally:
        os.close(directory)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=top)
        progress = True
    return progress


def _removed_or_moved(name: str, directory: int, top: int) -> bool:
    try:
        if _is_directory(name, directory):
            os.close(_open_anyhow(name, directory))  # moving a directory takes the right to write in it
            os.rename(name, f".{secrets.token_hex(16)}", src_dir_fd=directory, dst_dir_fd=top)
        else:
            os.unlink(name, dir_fd=directory)
    except OSError:
        return False
    return True


def _is_directory(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _open_anyhow(name: str, parent: int) -> int:
    """Open a directory, also one whose program has taken its own rights away; the very one, never a link's target."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        if os.fstat(descriptor).st_mode & 0o700 == 0o700:
            return descriptor
        os.close(descriptor)
    found = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{found}", 0o700)  # by way of the descriptor, so what it names can't change under us
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=found)
    finally:
        os.close(found)
