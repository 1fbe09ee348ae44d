"""Who has read what Block has put on the lists (core/docs/blocklist.md#who-has-read-it).

A change of a list has a number, its version; a reader has what came by the version that it read last. What an
action says of its readers is written with what changes it: its end, its undo, and a reader's first read since.
"""

from collections.abc import Iterable, Iterator

from core.common.database import Reads, Row, Transaction
from core.common.grouping import grouped
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
    entries = stored.entries_of(reads, action.number)
    in_force = [entry for entry in entries if entry["ended"] is None]
    has_all = all if in_force else any  # of what has ended, a reader may still have a part
    found = list[Reader]()
    for name, each in grouped(_on_each(reads, in_force or entries)).items():
        at = known.get(name) or max(at for _, at in each)
        found.append(Reader(name=name, at=at if has_all(has for has, _ in each) else None))
    return [reader for reader in found if reader.at is not None or in_force][:SHOWN_READERS]


def _on_each(reads: Reads, entries: Iterable[Row]) -> Iterator[tuple[str, tuple[bool, int]]]:
    """For each entry and each reader of its list: the reader's name, whether it has it, and when it read last (ms)."""
    for entry in entries:
        for reader in stored.readers(reads, entry["list"]):
            version, ended = reader["version"], entry["ended"]
            has = entry["version"] <= version and (ended is None or version < ended)
            yield reader["login"].partition("@")[0], (has, reader["at"])
