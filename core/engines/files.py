"""Safe access to files that others may have put there or replaced: no read blocks or is unbounded.

A program runs under core's account, so it may put a symlink, a named pipe or a directory where core expects one of its
own files, or replace a whole folder. Most functions take a trusted directory and the names that lead from it to the
file, and follow no symlink. All of them may wait for a disk: don't call them on the event loop.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from itertools import islice
from pathlib import Path

_BATCH = 1000
"""Directory entries held in memory while a directory is removed."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR, errno.EIO, errno.ESTALE)


def raise_if_exhausted(error: OSError) -> None:
    """Raise `error` again if it is about the machine (no descriptor or memory left, an I/O error), not about the file.

    Call it wherever an OSError would be taken to mean that a file is missing or unusable.
    """
    if error.errno in _EXHAUSTED:
        raise error


def open_directory(trusted: Path, *names: str) -> int:
    """Open the directory that `names` lead to. Raises OSError, also if one of them is a symlink."""
    descriptor = os.open(trusted, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in names:
        parent = descriptor
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        finally:
            os.close(parent)
    return descriptor


def open_regular(trusted: Path, *names: str) -> int:
    """Open the regular file that `names` lead to for reading. Raises OSError, also for anything else there."""
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
    """Read the regular file that `names` lead to. Raises OSError, also if it is longer than `limit_bytes`."""
    with os.fdopen(open_regular(trusted, *names), "rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise OSError(f"{names[-1]} is longer than {limit_bytes} bytes")
    return content


def read_in_folder(folder: Path, name: str, *, limit_bytes: int) -> bytes:
    """Read a regular file of a responder's folder; a symlink may lead to another file of the folder, not out of it.

    Raises OSError, also if it is longer than `limit_bytes`.
    """
    try:
        return read_regular(folder, name, limit_bytes=limit_bytes)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    trusted = os.path.realpath(folder)
    path = Path(os.path.realpath(os.path.join(trusted, name)))
    if not path.is_relative_to(trusted):
        raise OSError(f"{name} is a link that leads out of its folder")
    return read_regular(Path(trusted), *path.relative_to(trusted).parts, limit_bytes=limit_bytes)


def digest_of(folder: Path) -> str:
    """The SHA-256 of the names and contents of all regular files below a folder; hidden and compiled ones don't count.

    Raises OSError when the machine is out of descriptors or memory.
    """
    digest = hashlib.sha256()
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(name for name in names if not name.startswith(".")):
            relative = os.path.relpath(os.path.join(parent, name), folder)
            try:
                with os.fdopen(open_regular(folder, *relative.split(os.sep)), "rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:  # a link or a pipe
                raise_if_exhausted(error)
                continue
            digest.update(f"{relative}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def replace(trusted: Path, *names: str, content: bytes) -> None:
    """Write a file atomically; whatever has its name is removed, and not followed. Raises OSError."""
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
    """Create a file that only its owner can read. Raises OSError, also if it exists."""
    _write_new(str(path), content, None)


def _write_new(name: str, content: bytes, directory: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=directory), "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # regardless of the umask
        file.write(content)


def remove_tree(path: Path) -> None:
    """Remove a file, or a directory with its content, without following symlinks. What can't be removed stays.

    Works at any depth: subdirectories are moved up before they are emptied, so neither the stack nor the number of
    open descriptors grows.
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
    top = _open_with_rights(name, parent)
    try:
        while sum(_remove_or_shrink(entry, top) for entry in _next_entries(top)):
            pass
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _next_entries(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, _BATCH)]


def _remove_or_shrink(name: str, top: int) -> bool:
    """Remove an entry of `top`, or some of its content; False if nothing could be removed."""
    try:
        if not _is_directory(name, top):
            os.unlink(name, dir_fd=top)
            return True
        directory = _open_with_rights(name, top)
    except OSError:
        return False
    try:
        progress = sum(_remove_or_move_up(entry, directory, top) for entry in _next_entries(directory)) > 0
    finally:
        os.close(directory)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=top)
        progress = True
    return progress


def _remove_or_move_up(name: str, directory: int, top: int) -> bool:
    try:
        if _is_directory(name, directory):
            os.close(_open_with_rights(name, directory))  # moving a directory takes write permission in it
            os.rename(name, f".{secrets.token_hex(16)}", src_dir_fd=directory, dst_dir_fd=top)
        else:
            os.unlink(name, dir_fd=directory)
    except OSError:
        return False
    return True


def _is_directory(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _open_with_rights(name: str, parent: int) -> int:
    """Open a directory after granting its owner all rights, which a program may have removed; never a symlink."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        if os.fstat(descriptor).st_mode & 0o700 == 0o700:
            return descriptor
        os.close(descriptor)
    found = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{found}", 0o700)  # through the descriptor: the name may be replaced meanwhile
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=found)
    finally:
        os.close(found)
