"""The clearance that it takes to act on what is stored, and the one check of it (core/docs/semantics.md#clearance).

Whatever changes an object, or decides on a run, asks `require` first, in the transaction that does so: any other
refusal would tell something of the object.
"""

import json
from contextlib import suppress

from core.authorization import Caller
from core.common.database import Reads, Row
from core.models import RED, parse_id
from core.records import artifacts
from core.store import actions, bulks, objects


def require(reads: Reads, caller: Caller, number: int, what: str) -> None:
    """Raises ResponderBotError("forbidden") for a caller who may not see what has this number."""
    if caller.sees_up_to < RED:  # the usual case with one's own key need not read anything
        caller.require_clearance(level_of(reads, number), what)


def sees(reads: Reads, caller: Caller, number: int) -> bool:
    """Whether `require` would raise nothing."""
    return caller.sees_up_to >= RED or not caller.why_not_cleared(level_of(reads, number))


def level_of(reads: Reads, number: int) -> int:
    """As `find_level`; red for what is gone."""
    level = find_level(reads, number)
    return RED if level is None else level


def find_level(reads: Reads, number: int) -> int | None:
    """The clearance that it takes to act on an object, a comment, a run or a bulk; None if nothing has this number.

    What is in an alert or a case takes the level of that, and an artifact also its own. A run takes that of its object
    and of all that it acts on, a bulk the lowest one of its objects.
    """
    level = _of_object(reads, number)
    if level is None and (row := actions.find(reads, number)) is not None:
        return _of_run(reads, row)
    if level is None and (row := bulks.find(reads, number)) is not None:
        named = [parse_id(target["objectId"]) or 0 for target in json.loads(row["targets"])]
        return min((of for one in named if (of := _of_object(reads, one)) is not None), default=RED)
    return level


def _of_object(reads: Reads, number: int) -> int | None:
    row = objects.find_any(reads, number)
    if row is None or row["kind"] == artifacts.KIND:
        stored = artifacts.find(reads, number)
        if stored is None:
            return None
        root = None if stored.case_id is None else objects.find_any(reads, stored.case_id)
        of_root = stored.alert.tlp if stored.alert else RED if root is None else int(objects.parsed(root["doc"])["tlp"])
        return max(stored.artifact.tlp, of_root)
    if row["parent_id"] is not None:
        return _of_object(reads, row["parent_id"])
    return int(objects.parsed(row["doc"]).get("tlp", 0))  # a template has none


def _of_run(reads: Reads, row: Row) -> int:
    acted_on = 0
    with suppress(KeyError, TypeError, ValueError):  # a damaged document decides nothing
        named = json.loads(row["doc"]).get("target") or ()
        acted_on = max((int(artifact["tlp"]) for artifact in named), default=0)
    level = _of_object(reads, row["object_id"])
    if level is None:  # removed from its alert
        root = None if row["root_id"] is None else objects.find_any(reads, row["root_id"])
        if row["target"] is None or root is None:
            return RED
        level = max(json.loads(row["target"])["tlp"], objects.parsed(root["doc"])["tlp"])
    return max(level, acted_on)
