"""What somebody denied or undid on a target, for who asks for the same once more and who decides on that.

As what is in force, it is known by the target, whatever alert or case it was for.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from typing import NamedTuple

from core.actions import in_force
from core.common.clock import DAY_MS
from core.common.database import Reads
from core.common.grouping import grouped
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


class _Known(NamedTuple):
    """A run that was decided against, or approved."""

    run: Action
    level: int
    """The clearance that it takes."""
    digests: Set[str]
    """What it acts on."""


def before(reads: Reads, deed: Deed, sees_up_to: int) -> list[Action]:
    """For each of its targets the last runs that were decided against, on other objects only up to this level.

    None where the same was approved since. Once for each clearance that some of these runs take: who has less than
    another must not miss what they may see, or be told how many they may not. Each with the targets for which it is
    among the last, and its `earlier`.
    """
    decided = sorted(_decided(reads, deed, sees_up_to), key=lambda one: one.level)
    if not decided:
        return []
    approved = _approved(reads, deed, min(one.run.created_at for one in decided))
    held = {one["digest"] for one in stored_in_force.on(reads, deed.undone_by, deed.digests)}
    found = list[Action]()
    for level in dict.fromkeys(one.level for one in decided):
        visible, since = ([one for one in each if one.level <= level] for each in (decided, approved))
        found += _with_targets(reads, _last_on_each(deed, visible, since, held), level)
    return found


def _decided(reads: Reads, deed: Deed, sees_up_to: int) -> list[_Known]:
    """The runs that were decided against on its targets, newest first, each decision of a run apart."""
    found = list[_Known]()
    since = deed.asked_at - RECENT_MS
    rows = stored.decided_on(reads, deed.responder_name, deed.object_id, deed.digests, since)
    each = [(run, root) for whole, root, _ in in_force.known(rows) for run in whole.by_decision()]
    for run, root in each:
        with suppress(ValueError):  # its alert is damaged
            level, digests = level_of(reads, run.number), in_force.digests_of(run.object_id, run.target or ())
            is_known = level <= sees_up_to or number_of(run.object_id) == deed.object_id
            if is_known and not digests.isdisjoint(deed.digests):
                earlier = EarlierDecision(root_id=f"~{root}")
                found.append(_Known(run.model_copy(update={"earlier": earlier}), level, digests))
    return found


def _approved(reads: Reads, deed: Deed, since: int) -> list[_Known]:
    """The runs of the same that were approved and started since then (ms)."""
    found = list[_Known]()
    for run, _, digests in in_force.known(stored.dispatched_on(reads, deed.responder_name, deed.digests, since)):
        with suppress(ValueError):  # its alert is damaged
            if run.approval is not None:
                found.append(_Known(run, level_of(reads, run.number), digests))
    return found


def _last_on_each(
    deed: Deed, decided: Sequence[_Known], approved: Sequence[_Known], held: Set[str]
) -> dict[str, list[Action]]:
    """By target the last of these that were decided against, unless that is over; `held` are targets in force."""
    last_on = dict[str, list[Action]]()
    for digest in sorted(deed.digests):
        same = [one.run for one in decided if digest in one.digests]
        approved_at = max((one.run.dispatched_at or 0 for one in approved if digest in one.digests), default=0)
        last_on[digest] = last_decided(same, is_in_force=digest in held, approved_at=approved_at)
    return last_on


def _with_targets(reads: Reads, last_on: Mapping[str, Sequence[Action]], level: int) -> Iterator[Action]:
    """Each decision once, with those of its targets for which it is among the last."""
    each = ((digest, run) for digest, runs in last_on.items() for run in runs)
    by_decision = grouped(((run.id, run.decided_against), (digest, run)) for digest, run in each)
    for on in by_decision.values():
        digests, run = {digest for digest, _ in on}, on[-1][1]
        target = [one for one in run.target or () if in_force.digests_of("", [one]) <= digests] or None
        earlier = run.earlier and _with_levels(reads, run.earlier, level)
        yield run.model_copy(update={"target": target, "earlier": earlier})


def last(reads: Reads, deed: Deed, sees_up_to: int) -> list[Action]:
    """Likewise, but only as that clearance may know of them."""
    found = [one for one in before(reads, deed, sees_up_to) if _clearance(one) <= sees_up_to]
    return [one for one in found if _clearance(one) == _clearance(found[-1])]


def _clearance(run: Action) -> int:
    return RED if run.earlier is None else run.earlier.clearance


def _with_levels(reads: Reads, earlier: EarlierDecision, level: int) -> EarlierDecision:
    texts = max(level, level_of_texts(reads, number_of(earlier.root_id)))
    return earlier.model_copy(update={"clearance": level, "clearance_of_texts": texts})


def level_of_texts(reads: Reads, root_id: int) -> int:
    """The clearance to read what somebody wrote of a run for an alert or a case, whatever it names of that."""
    with suppress(ValueError):
        return _level_of_all(reads, root_id)
    return RED


def _level_of_all(reads: Reads, root_id: int) -> int:
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
        of_case = [
            level_of(reads, case_id),
            *(level for level, _ in objects.alerts_by_artifact(reads, case_id).values()),
        ]
        if len(alerts) > MOST_ALERTS:
            return RED
    named: list[int] = [one.get("tlp", RED) for doc in docs for one in (doc, *doc.get("artifacts", ()))]
    return max([*of_case, *named])
