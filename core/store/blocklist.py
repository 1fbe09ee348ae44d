"""SQL for the block lists: what is in force of Block, and who has read it (core/docs/blocklist.md)."""

import json
from collections.abc import Iterable, Sequence

from core.common.database import Reads, Row, Transaction
from core.protection import BLOCK, Parsed
from core.store.database import sequences


def blocked(reads: Reads) -> list[tuple[Parsed, int]]:
    """Each target that is in force of Block, with the number of the action that blocks it."""
    rows = reads.rows(
        "SELECT target_kind, target, action_id FROM in_force WHERE responder = :block"
        " AND state <> 'ended' AND state <> 'starting'",
        {"block": BLOCK},
    )
    return [(Parsed(row["target_kind"], row["target"]), row["action_id"]) for row in rows]


def count(reads: Reads, but: int) -> int:
    """How many targets are, or are about to be, in force of Block, without those of one action."""
    return reads.number(
        "SELECT count(*) AS count FROM in_force WHERE responder = :block AND state <> 'ended' AND action_id <> :but",
        {"block": BLOCK, "but": but},
    )


def version(reads: Reads) -> int:
    """The number of the last change of a list."""
    return sequences.last(reads, "blocklist")


def changed(tx: Transaction, now: int) -> int:
    """Number a change of a list by its time, so that no number comes again where the database lost the last ones."""
    number = max(version(tx) + 1, now)
    sequences.skip_to(tx, "blocklist", number)
    return number


# --- after a restore --------------------------------------------------------------------------------------------------


def hold(tx: Transaction, made_at: int) -> None:
    """Have the lists wait until somebody has looked at them; `made_at` is the time of the backup (ms)."""
    tx.run("DELETE FROM blocklist_hold")
    tx.insert("blocklist_hold", {"made_at": made_at})


def held_since(reads: Reads) -> int | None:
    """The time of the backup (ms) for which the lists wait."""
    return reads.value("SELECT made_at FROM blocklist_hold")


def resume(tx: Transaction) -> int:
    return tx.run("DELETE FROM blocklist_hold")


# --- readers ----------------------------------------------------------------------------------------------------------


def readers(reads: Reads, name: str = "") -> list[Row]:
    """`login, list, version, at` of all with access, or of those that have read a list."""
    return reads.rows(
        'SELECT blocklist_reader.login, list, version, at FROM blocklist_reader JOIN "user"'
        ' ON "user".login = blocklist_reader.login'
        " WHERE profile = 'reader' AND coalesce(disabled, 0) = 0 AND :name IN ('', list)"
        " ORDER BY blocklist_reader.login",
        {"name": name},
    )


def has_read(tx: Transaction, login: str, name: str, version: int, at: int) -> int:
    """Note that a reader has a version of a list; returns the version that it had, 0 for none."""
    key = {"login": login, "list": name}
    row = tx.row("SELECT version FROM blocklist_reader WHERE login = :login AND list = :list", key)
    tx.put("blocklist_reader", key.keys(), {**key, "version": version, "at": at})
    return 0 if row is None else int(row["version"])


def add_entries(tx: Transaction, action_id: int, names: Iterable[str], now: int) -> None:
    """Note that an action is on these lists."""
    for name in sorted(names):
        tx.insert("blocklist_entry", {"action_id": action_id, "list": name, "version": changed(tx, now)})


def end_entries(tx: Transaction, action_id: int, left: Iterable[str], now: int) -> None:
    """Note that some of what an action had put on lists has gone: it is still on the lists that are `left`."""
    tx.run(
        "UPDATE blocklist_entry SET ended = :version WHERE action_id = :id AND ended IS NULL"
        " AND list NOT IN (SELECT value FROM json_each(:left))",
        {"id": action_id, "version": changed(tx, now), "left": json.dumps(list(left))},
    )


def entries_of(reads: Reads, action_id: int) -> list[Row]:
    """`list, version, ended` of each list on which an action is, or was and some reader has it."""
    sql = "SELECT list, version, ended FROM blocklist_entry WHERE action_id = :id ORDER BY list"
    return reads.rows(sql, {"id": action_id})


def between(reads: Reads, name: str, after: int, to: int, limit: int) -> Sequence[int]:
    """The newest actions that came on a list, or went, by these versions."""
    return reads.column(
        "SELECT action_id FROM blocklist_entry WHERE list = :list AND ((version > :after AND version <= :to)"
        " OR (ended > :after AND ended <= :to)) ORDER BY action_id DESC LIMIT :limit",
        {"list": name, "after": after, "to": to, "limit": limit},
    )


def forget_ended(tx: Transaction, name: str) -> None:
    """Forget what has gone from a list, and no reader has any more."""
    tx.run(
        "DELETE FROM blocklist_entry WHERE list = :list AND ended IS NOT NULL AND NOT EXISTS"
        ' (SELECT 1 FROM blocklist_reader JOIN "user" ON "user".login = blocklist_reader.login'
        " WHERE list = :list AND coalesce(disabled, 0) = 0 AND blocklist_reader.version < ended)",
        {"list": name},
    )
