"""The accounts of this machine."""

import os
import pwd
from pathlib import Path


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
