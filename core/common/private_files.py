"""Files and folders that only this account can read, whatever the umask is, and those that it can't use."""

import contextlib
import os
import pwd
import secrets
import stat
from pathlib import Path

_SIDE_FILES = ("", "-wal", "-shm", "-journal")


def make_private(path: Path) -> None:
    """Create a directory and its missing parents, for their owner only. Raises OSError."""
    if path.is_dir():
        return
    make_private(path.parent)
    with contextlib.suppress(FileExistsError):  # created by someone else meanwhile
        path.mkdir(mode=0o700)
        path.chmod(0o700)  # regardless of the umask


def read_or_create(folder: Path, name: str) -> str:
    """The random text in a file, which is created with its folder if it is missing; all processes get the same.

    Raises OSError.
    """
    make_private(folder)
    file = folder / name
    if not file.exists():
        new = folder / f".{name}.{secrets.token_hex(8)}"
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as text:
                text.write(secrets.token_hex(16))
                text.flush()
                os.fsync(text.fileno())
            with contextlib.suppress(FileExistsError):  # created by another process meanwhile
                os.link(new, file)
        finally:
            new.unlink(missing_ok=True)
    return file.read_text()


def replace_text(path: Path, text: str) -> None:
    """Write a small file at once, so that a reader finds the old text or the new one. Raises OSError."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(text)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def create_database(path: Path) -> None:
    """Create an empty database file, for its owner only; narrow the mode of one that exists.

    SQLite gives the files beside it the same mode. Its folder must exist: a mistyped one would hide what is in the
    right one. Raises OSError.
    """
    if not path.exists():  # closing a descriptor of a database in use would drop the locks of this process
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(descriptor, 0o600)  # regardless of the umask
        finally:
            os.close(descriptor)
        give_to_owner_of_folder(path)
    narrow_database(path)


def give_to_owner_of_folder(path: Path) -> None:
    """Give a file that root has made to whoever owns its folder, as core runs under that account. Raises OSError."""
    if os.geteuid() == 0:
        folder = path.parent.stat()
        os.chown(path, folder.st_uid, folder.st_gid)


def narrow_database(path: Path) -> None:
    """Remove the rights of others on a database and the files beside it, such as after `cp`.

    Files of another owner stay as they are: `mode_problem` reports them.
    """
    for suffix in _SIDE_FILES:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            file = Path(f"{path}{suffix}")
            mode = stat.S_IMODE(file.stat().st_mode)
            if mode & 0o077 and file.is_file():
                file.chmod(mode & 0o700)


def mode_problem(path: Path, *, shared: int = 0) -> str:
    """What others can do with a file or folder that should be private, and what to do; "" if nothing.

    `shared` are the mode bits that they may have.
    """
    try:
        status = path.stat()
    except OSError:
        return ""
    mode = stat.S_IMODE(status.st_mode)
    if os.name != "posix" or not mode & 0o077 & ~shared or mode & stat.S_ISVTX:
        return ""
    narrowed = mode & (0o700 | shared)
    what = "change" if mode & 0o022 & ~shared else "read"
    return f"others on this machine can {what} {path} (mode {mode:04o}); `chmod {narrowed:o} {path}`"


def name_of(uid: int) -> str:
    """The account's name; its number if it has none, as in containers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def access_problem(file: Path) -> str:
    """Why this account can't use a database file, or make it in its folder, and what to do; "" if it can."""
    for path, needed in ((file, os.R_OK | os.W_OK), (file.parent, os.R_OK | os.W_OK | os.X_OK)):
        try:
            owner = path.stat().st_uid
        except OSError:  # it is missing, or its folder says why
            continue
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return f"{path} is on a read-only file system; mount it writable, or name another folder."
        if not os.access(path, needed):
            me, theirs = name_of(os.getuid()), name_of(owner)
            advice = (
                f"run this as {theirs}" if owner != os.getuid() else f"correct its mode, as with `chmod u+rwX {path}`"
            )
            return f"{path} belongs to {theirs}, and {me} can't read and write it; {advice}."
    return ""
