"""Who has read what Block has put on the lists (core/docs/blocklist.md#who-has-read-it).

A change of a list has a number, its version; a reader has what came by the version that it read last. What an
action says of its readers is written with what changes it: its end, its undo, and a reader's first read since.
"""

from collections.abc import Iterable

from core.common.database import Reads, Row, Transaction
from core.models import Action, Reader, TargetArtifact
from core.protection.blockable import LIST_OF
from core.store import actions as stored_actions
from core.store import blocklist as stored
from core.store import events

SHOWN_READERS = 10
AT_ONCE = 200  # actions that a reader's read changes; those before them are changed when anything else does


def lists_of(target: Iterable[TargetArtifact]) -> list[str]:
    return sorted({LIST_OF[artifact.kind] for artifact in target if artifact.kind in LIST_OF})


def begun(tx: Transaction, action: Action, now: int) -> Action:
    """Note that an action of Block has succeeded; returns it with who is still to read it."""
    stored.add_entries(tx, action.number, lists_of(action.target or ()), now)
    return action.model_copy(update={"readers": _readers(tx, action)})


def ended(tx: Transaction, number: int, left: Iterable[str], now: int) -> None:
    """Note that what an action of Block had put on the lists has gone, but for targets of the kinds that are `left`."""
    stored.end_entries(tx, number, {LIST_OF[kind] for kind in left if kind in LIST_OF}, now)
    _rewrite(tx, number)


def have_read(tx: Transaction, login: str, name: str, version: int, at: int) -> None:
    """Note that a reader has read a version of a list, with an event for each action that changes by it."""
    before = stored.has_read(tx, login, name, version, at)
    for number in stored.between(tx, name, before, version, AT_ONCE) if version > before else ():
        if row := _rewrite(tx, number):
            root_id, user = row["root_id"], row["created_by"]
            events.record(tx, number, at=at, type="action.updated", object_type="Action", root_id=root_id, user=user)
    stored.forget_ended(tx, name)


def _rewrite(tx: Transaction, number: int) -> Row | None:
    """The row of an action, if who has read it has changed."""
    row = stored_actions.find(tx, number)
    if row is None:
        return None
    action = Action.model_validate_json(row["doc"])
    readers = _readers(tx, action)
    if readers == (action.readers or []):
        return None
    stored_actions.change(tx, number, doc=action.model_copy(update={"readers": readers}).to_json())
    return row


def _readers(reads: Reads, action: Action) -> list[Reader]:
    """Who has read an action, or is to, on the lists on which it is; once it is on none, who still has it."""
    known = {reader.name: reader.at for reader in action.readers or ()}
    has: dict[str, bool] = {}
    when: dict[str, int] = {}
    entries = stored.entries_of(reads, action.number)
    in_force = [entry for entry in entries if entry["ended"] is None]
    has_ended = not in_force
    for entry in in_force or entries:
        for reader in stored.readers(reads, entry["list"]):
            login, version = reader["login"], reader["version"]
            name = login.partition("@")[0]
            is_in = entry["version"] <= version and (entry["ended"] is None or version < entry["ended"])
            has[name] = (has.get(name, False) or is_in) if has_ended else (has.get(name, True) and is_in)
            when[name] = max(when.get(name, 0), reader["at"])
    found = [Reader(name=name, at=known.get(name) or when[name] if is_in else None) for name, is_in in has.items()]
    return [reader for reader in found if reader.at is not None or not has_ended][:SHOWN_READERS]
