"""SQL for the block lists: what is in force of Block (core/docs/blocklist.md)."""

import json

from core.common.database import Reads
from core.protection import BLOCK, Parsed


def blocked(reads: Reads) -> list[tuple[Parsed, int]]:
    """Each target that is in force of Block, with the number of the action that blocks it."""
    rows = reads.rows(
        "SELECT action.id, action.doc FROM measure JOIN action ON action.id = measure.action_id"
        " WHERE responder_name = :block AND state <> 'starting'",
        {"block": BLOCK},
    )
    return [
        (Parsed(artifact["kind"], artifact["data"]), row["id"])
        for row in rows
        for artifact in json.loads(row["doc"])["target"]
    ]


def count(reads: Reads, but: int) -> int:
    """How many targets are, or are about to be, in force of Block, without those of one action."""
    row = reads.row(
        "SELECT count(*) AS count FROM measure JOIN action ON action.id = measure.action_id"
        " WHERE responder_name = :block AND action.id <> :but",
        {"block": BLOCK, "but": but},
    )
    return int(row["count"]) if row else 0
