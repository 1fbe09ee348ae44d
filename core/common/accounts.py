"""The accounts of this machine: core's, and those that responders run as (`core/docs/responder-process.md#account`)."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.common.private_files import make_private


@dataclass(frozen=True)
class Account:
    """An account, with its own group and all others that it is in."""

    uid: int
    gid: int
    groups: tuple[int, ...]


def account_named(name: str) -> Account:
    """The account of that name. Raises LookupError with a sentence if there is none."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise LookupError(f"this machine has no account {name}, which run_as names.") from None
    return Account(entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(name, entry.pw_gid)))


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
        if not os.access(path, needed):
            me, theirs = name_of(os.getuid()), name_of(owner)
            advice = (
                f"run this as {theirs}" if owner != os.getuid() else f"correct its mode, as with `chmod u+rwX {path}`"
            )
            return f"{path} belongs to {theirs}, and {me} can't read and write it; {advice}."
    return ""


def account_problems(run_as: Mapping[str, str], jobs: Path) -> list[str]:
    """A sentence for each account that can't work: core isn't root, there is none, or a folder is closed to it.

    `run_as` is by responder, and "" where there is none.
    """
    problems = []
    for name, account_name in run_as.items():
        if not account_name:
            continue
        key = f'[responder."{name}"] run_as'
        try:
            account = account_named(account_name)
        except LookupError:
            problems.append(f"{key}: this machine has no account {account_name}; create it, or name another.")
            continue
        if os.getuid() != 0:
            problems.append(f"{key}: only root can run a program as another account; start core as root, or remove it.")
        elif account.uid == 0:
            problems.append(f"{key} is root; name an account that owns nothing, or remove it.")
        elif closed := _closed_to(account, jobs):
            problems.append(
                f"{key}: {account_name} can't reach the job folders through {closed}; `chmod o+x {closed}`, "
                "or move [core] jobs."
            )
    return problems


def open_job_folders(jobs: Path) -> None:
    """Let other accounts traverse `jobs`, but not list it. Raises OSError."""
    make_private(jobs)
    jobs.chmod(0o711)


def _closed_to(account: Account, jobs: Path) -> Path | None:
    """The first folder above `jobs` that the account can't traverse. Core opens `jobs` itself."""
    for folder in reversed(Path(os.path.realpath(jobs)).parents):
        try:
            status = folder.stat()
        except OSError:
            return None  # core creates it
        passes = 0o100 if status.st_uid == account.uid else 0o010 if status.st_gid in account.groups else 0o001
        if not status.st_mode & passes:
            return folder
    return None
