"""What of a bulk is in force: the forms that undo or extend all of it, and what came of it."""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from bot.block_kit import ids, modals, names, notices
from bot.block_kit.text import context, foreign, person_name, section, sections
from bot.features.bulks.views import states
from bot.features.bulks.views.states import Listed, Run
from bot.features.runs.views import questions, runs, undo_state
from bot.features.undos import views as undos
from bot.message import Block, Message
from core.common.words import count
from core.models import BulkCounts, Measure, Policy


def undo_all_view(
    bulk: BulkCounts,
    in_force: Listed,
    rows: Mapping[str, str],
    policy: Policy,
    login: str,
    read: Container[str] | None = None,
) -> dict[str, Any]:
    """Asks `login` to undo these of its runs, with all that ends: the `rows` of each; `policy` is of what undoes them.

    The metadata has the runs, each with a digest of what is shown of it.
    """
    undo, number = in_force[0][0].undo, len(in_force)
    title = undo_state.title(undo) if undo is not None else ""
    after = f", after {count(policy.approval, 'approval')}" if policy.approval else ""
    hidden = bulk.timed + bulk.endless + bulk.not_released - number
    stays = f"It stays on {count(hidden, 'more target')} that you may not see." if hidden > 0 else ""
    approved_by = [one for action, _ in in_force if action.approval is not None for one in action.approval.approved_by]
    told = undo_state.hears(bulk.created_by, approved_by, login)
    is_asked = any(undo_state.later_end(action) is not None for action, _ in in_force)
    how = "*Withdraw all*" if login == bulk.created_by else "*Deny* in *Review*"
    later = f"On {count(bulk.awaiting, 'target')} it still waits and may start after this: {how}, on its message."
    ends_too = "More time is asked for: that request ends too." if is_asked else ""
    more = filter(None, [stays, ends_too, told])
    ends = section(f"🔓 *{foreign(title, names.NAME_LIMIT)}* runs on each{after}, and ends it there.")
    asks = [*notices.changed(rows.values(), read), *([section(f"⚠️ {later}")] if bulk.awaiting else ())]
    asks += [*_in_force_lines("Undo", bulk, in_force, rows.values()), ends]
    return modals.modal(
        names.in_view(f"Undo {bulk.title}", f" ({number})?"),
        [*asks, *questions.policy_words(policy), *map(context, more)],
        callback_id=ids.UNDO_ALL_VIEW,
        submit=names.in_view(title, f" ({number})"),
        metadata=json.dumps({"id": bulk.id, "runs": states.digests(rows)}, separators=(",", ":")),
        close="Leave it",
    )


def in_force_rows(in_force: Listed, measures: Sequence[Measure], own: Container[str], login: str) -> dict[str, str]:
    """By run its target, until when it is in force there, and what ends with it that is none of the bulk's `own`."""
    rows = dict[str, str]()
    for action, view in in_force:
        ends = list[str]()
        for one in measures:
            others = zip(one.actions, [*one.others, one], strict=True) if action.id in one.actions else ()
            on = undo_state.targets(one, view)
            ends += [undo_state.ended(run, on, login) for run_id, run in others if run_id not in own]
        line = f"{states.target_line(action, view, states.REVIEW_TARGETS)} · {undo_state.in_force(action, view)}"
        rows[action.id] = questions.with_said(line, *ends)
    return rows


def _in_force_lines(verb: str, bulk: BulkCounts, in_force: Listed, rows: Iterable[str]) -> list[Block]:
    """The question, whose runs they are, and the row of each."""
    asks = f"*{verb} {states.name(bulk)} on {count(len(in_force), 'target')}?*"
    whose = f"*{person_name(bulk.created_by)}* asked for it{runs.approved_by(*(action for action, _ in in_force))}"
    moved = states.said_of_all([undo_state.moved(action) for action, _ in in_force]) if len(in_force) > 1 else ""
    of_all = f". Each was{moved.removeprefix(',')}." if moved else ""
    return sections([f"{asks}\n{whose}{of_all}", *(row.replace(moved, "") for row in rows)])


def extend_all_view(
    bulk: BulkCounts, in_force: Listed, timed: Listed, policy: Policy, now_ms: int, able: Sequence[str] = ()
) -> dict[str, Any]:
    """Asks how much longer the `timed` are to last, which `able` may approve. The metadata has them."""
    said, endless = [runs.waiting_end(*one).strip() for one in timed], [one for one in in_force if one not in timed]
    of_all, rows = states.said_of_all(said), in_force_rows(timed, (), (), "").values()
    left_out = f"Left out: {runs.distinct_targets(endless)}, which only *Undo* ends." if endless else ""
    below = [""] * len(timed) if of_all else said
    lines = [*map(questions.with_said, rows, below), of_all, left_out]
    about = _in_force_lines("Extend", bulk, timed, filter(None, lines))
    shown = undos.longer_view("Extend all", about, [action for action, _ in timed], policy, now_ms, able)
    metadata = json.dumps({"id": bulk.id, "runs": [action.id for action, _ in timed]})
    return {**shown, "callback_id": ids.EXTEND_ALL_VIEW, "private_metadata": metadata}


def with_an_end(in_force: Listed, measures: Sequence[Measure] = ()) -> Listed:
    """Those that end by themselves; not one whose targets another run keeps with no end, by these measures."""
    end = {id_: one.until for one in sorted(measures, key=lambda one: one.until or 0) for id_ in one.actions}
    return [one for one in in_force if (undo := one[0].undo) and undo.at is not None and end.get(one[0].id, True)]


def changed_all(
    done: str, asks: str, changed: Listed, waiting: int, refused: Sequence[tuple[Run, str]], then: str = ""
) -> Message:
    """On which targets runs of a bulk were `changed`, how many of these wait and for what, and why others were not.

    `done` and `asks` say what that is: `Undo started: *Isolate*` and `undo *Isolate*`.
    """
    number, named = len(changed) - waiting, runs.distinct_targets(changed)
    of_some = f"On {named}." if number and waiting else ""
    on, on_waiting = [named if named and not of_some else count(one, "target") for one in (number, waiting)]
    asked = f"Asked: {asks} on {on_waiting}{then or '. It waits for approval.'}" if waiting else ""
    told = f"{done} on {on}." if number or not waiting else ""
    why_not = [(questions.named(view, runs.targets(run, view)), view.inputs(why)) for (run, view), why in refused]
    return questions.with_reasons(" ".join(filter(None, [told, asked, of_some])), "*Refused*", why_not)
