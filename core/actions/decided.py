"""What somebody denied or undid on a target, for who asks for the same once more and who decides on that.

As what is in force, it is known by the target, whatever alert or case it was for.
"""

from collections.abc import Set
from contextlib import suppress
from typing import NamedTuple

from core.actions import in_force
from core.common.clock import DAY_MS
from core.common.database import Reads
from core.models import RED, Action, EarlierDecision, last_decided, number_of, parse_id
from core.records import artifacts
from core.records.clearance import level_of
from core.store import actions as stored
from core.store import in_force as stored_in_force
from core.store import objects

RECENT_MS = 30 * DAY_MS  # of other alerts and cases nobody needs to know what is older
MOST_ALERTS = 20  # of a case that are read


class Deed(NamedTuple):
    """What somebody asks for."""

    responder_name: str
    undone_by: str
    """What undoes it."""
    object_id: int
    digests: Set[str]
    """What it acts on."""
    asked_at: int
    """In ms."""


def before(reads: Reads, deed: Deed, sees_up_to: int) -> list[Action]:
    """For each of its targets the last run that was decided against, on other objects only up to this level.

    None where the same was approved since. Once for each clearance that some of these runs take: who has less than
    another must not miss what they may see, or be told how many they may not. Each with the targets for which it is
    the last, and its `earlier`.
    """
    since = deed.asked_at - RECENT_MS
    rows = stored.decided_on(reads, deed.responder_name, deed.object_id, deed.digests, since)
    by_level = dict[int, list[tuple[Action, Set[str]]]]()
    decided = [(one, root) for run, root, _ in in_force.known(rows) for one in run.by_decision()]
    for run, root in decided:
        with suppress(ValueError):  # its alert is damaged
            level, digests = level_of(reads, run.number), in_force.digests_of(run.object_id, run.target or ())
            is_known = level <= sees_up_to or number_of(run.object_id) == deed.object_id
            if is_known and not digests.isdisjoint(deed.digests):
                about = run.model_copy(update={"earlier": EarlierDecision(root_id=f"~{root}")})
                by_level.setdefault(level, []).append((about, digests))
    approved = _approved(reads, deed, min(one.created_at for one, _ in decided)) if by_level else []
    held = {one["digest"] for one in stored_in_force.on(reads, deed.undone_by, deed.digests)} if by_level else set()
    found, seen = list[Action](), list[tuple[Action, Set[str]]]()
    for level in sorted(by_level):
        seen += by_level[level]
        newest = dict[str, Action]()
        for digest in sorted(deed.digests):
            same = (run for run, digests in seen if digest in digests)
            at = max((at for least, on, at in approved if least <= level and digest in on), default=0)
            if one := last_decided(same, is_in_force=digest in held, approved_at=at):
                newest[digest] = one
        for run in {(one.id, one.decided_against): one for one in newest.values()}.values():
            decision = (run.id, run.decided_against)
            on = {digest for digest, one in newest.items() if (one.id, one.decided_against) == decision}
            target = [one for one in run.target or () if in_force.digests_of("", [one]) <= on] or None
            earlier = run.earlier and _with_levels(reads, run.earlier, level)
            found.append(run.model_copy(update={"target": target, "earlier": earlier}))
    return found


def _approved(reads: Reads, deed: Deed, since: int) -> list[tuple[int, Set[str], int]]:
    """When the same was approved and started since then, behind the clearance that it takes and its targets; in ms."""
    found = list[tuple[int, Set[str], int]]()
    for run, _, digests in in_force.known(stored.dispatched_on(reads, deed.responder_name, deed.digests, since)):
        with suppress(ValueError):  # its alert is damaged
            if run.approval is not None:
                found.append((level_of(reads, run.number), digests, run.dispatched_at or 0))
    return found


def last(reads: Reads, deed: Deed, sees_up_to: int) -> list[Action]:
    """Likewise, but only as that clearance may know of them."""
    found = [one for one in before(reads, deed, sees_up_to) if _clearance(one) <= sees_up_to]
    return [one for one in found if _clearance(one) == _clearance(found[-1])]


def _clearance(run: Action) -> int:
    return RED if run.earlier is None else run.earlier.clearance


def _with_levels(reads: Reads, earlier: EarlierDecision, level: int) -> EarlierDecision:
    texts = RED
    with suppress(ValueError):  # what it may name is damaged
        texts = max(level, _level_of_texts(reads, number_of(earlier.root_id)))
    return earlier.model_copy(update={"clearance": level, "clearance_of_texts": texts})


def _level_of_texts(reads: Reads, root_id: int) -> int:
    """The highest level of an alert or a case and of all that texts about it may name; red if that is a lot."""
    row = objects.find_any(reads, root_id)
    if row is None:
        return RED
    docs, of_case = [objects.parsed(row["doc"])], list[int]()
    case_id = root_id if row["kind"] == "case" else parse_id(docs[0].get("case") or "")
    if case_id is not None:
        alerts = objects.alerts_in(reads, case_id, MOST_ALERTS + 1)
        rows = [*alerts, *objects.children(reads, artifacts.KIND, case_id)]
        docs += [objects.parsed(one["doc"]) for one in rows]
        of_case = [level_of(reads, case_id), *objects.levels_of_alerts(reads, case_id).values()]
        if len(alerts) > MOST_ALERTS:
            return RED
    named: list[int] = [one.get("tlp", RED) for doc in docs for one in (doc, *doc.get("artifacts", ()))]
    return max([*of_case, *named])
