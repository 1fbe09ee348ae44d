"""What of a bulk is in force: the forms that undo or extend all of it, and what came of it."""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from bot.block_kit import ids, modals, names, notices
from bot.block_kit.text import context, foreign, person_name, section, sections
from bot.clearance import RedactedView
from bot.features.bulks.views import states
from bot.features.bulks.views.states import Listed, Run
from bot.features.runs.views import questions, runs, undo_state
from bot.features.undos import views as undos
from bot.message import Block, Message
from core.common.words import count
from core.models import Action, BulkCounts, Measure, MeasureRun, Policy


def undo_all_view(
    bulk: BulkCounts,
    in_force: Listed,
    measures: Sequence[Measure],
    policy: Policy,
    login: str,
    read: Container[str] | None = None,
    still: Sequence[str] = (),
) -> dict[str, Any]:
    """Asks `login` to undo these of its runs, with all that ends of these `measures`; `policy` is of what undoes them.

    `still` says what of it waits (mrkdwn). The metadata has the runs, each with a digest of what is shown of it.
    """
    undo, number, own = in_force[0][0].undo, len(in_force), [run.id for run, _ in in_force]
    rows, others = in_force_rows(in_force, measures, own), _also_ended(own, measures, own)
    title = undo_state.title(undo) if undo is not None else ""
    after = f", after {count(policy.approval, 'approval')}" if policy.approval else ""
    hidden = bulk.timed + bulk.endless + bulk.not_released - number
    stays = f"It stays on {count(hidden, 'more target')} that you may not see." if hidden > 0 else ""
    also = [run for _, run in others if run.state != "starting"]
    told = undo_state.hears(login, *(action for action, _ in in_force), *also)
    asked = [(action, view) for action, view in in_force if undo_state.later_end(action) is not None]
    ends_too = f"More time is asked for on {runs.distinct_targets(asked)}: that request ends too." if asked else ""
    more = filter(None, [stays, ends_too, told])
    ends = section(f"🔓 *{foreign(title, names.NAME_LIMIT)}* runs on each{after}, and ends it there.")
    asks = [*notices.changed(rows.values(), read), *sections(f"⚠️ {one}" for one in still)]
    asks += [*sections(_question_and_rows("Undo", bulk, in_force, rows.values())), ends]
    return modals.modal(
        notices.title(names.in_view(f"Undo {bulk.title}", f" ({number})?"), read),
        [*asks, *questions.policy_words(policy), *map(context, more)],
        callback_id=ids.UNDO_ALL_VIEW,
        submit=names.in_view(title, f" ({number})"),
        metadata=json.dumps({"id": bulk.id, "runs": states.digests(rows)}, separators=(",", ":")),
        close="Leave it",
    )


def may_start(bulk: BulkCounts, waiting: int, login: str, hidden: str) -> list[str]:
    """What of it may start after an undo, and how `login` prevents that: these `waiting`, and what is `hidden`."""
    how = f"*Withdraw{' all' if bulk.awaiting > 1 else ''}*" if login == bulk.created_by else "*Deny* in *Review*"
    later = f"On {count(waiting, 'target')} it still waits and may start after this: {how}, on its message."
    return [*([later] if waiting else []), *([f"{hidden} That may start after this."] if hidden else [])]


def in_force_rows(in_force: Listed, measures: Sequence[Measure] = (), own: Container[str] = ()) -> dict[str, str]:
    """By run its target, until when it is in force there, and what ends with it that is none of the bulk's `own`."""
    rows = dict[str, str]()
    for action, view in in_force:
        others = _also_ended([action.id], measures, own)
        ends = [undo_state.ended(run, undo_state.targets(one, view)) for one, run in others]
        now = _in_force(action, view, {"already": []} if others else {})
        line = f"{states.target_line(action, view)} · {now}"
        rows[action.id] = questions.with_said(line, *ends)
    return rows


def _in_force(action: Action, view: RedactedView, without: Mapping[str, Any]) -> str:
    """`in force until 14:30`, `without` other fields of the run; or until when another run keeps it longer; mrkdwn."""
    kept = undo_state.kept_longer(action, view)
    by_itself = undo_state.in_force(action.model_copy(update=without), view)
    return f"in force {undo_state.until_by(kept)}" if kept else by_itself


def _also_ended(
    ids_: Sequence[str], measures: Sequence[Measure], own: Container[str]
) -> list[tuple[Measure, MeasureRun]]:
    """What ends with these runs that is none of the `own`."""
    found = [one for one in measures if not {*ids_}.isdisjoint(one.actions)]
    each = [(one, *run) for one in found for run in zip(one.actions, [*one.others, one], strict=True)]
    return [(one, run) for one, run_id, run in each if run_id not in own]


def _question_and_rows(verb: str, bulk: BulkCounts, in_force: Listed, rows: Iterable[str]) -> list[str]:
    """The question, whose runs they are, and until when if all end alike; the row of each."""
    asks = f"*{verb} {states.name(bulk)} on {count(len(in_force), 'target')}?*"
    whose = f"*{person_name(bulk.created_by)}* asked for it{runs.approved_by(*(action for action, _ in in_force))}"
    ends = [_in_force(*one, {"already": [], "also_for": None}) for one in in_force]
    if len(ends) > 1 and (of_all := states.said_of_all(ends)):
        whose += f". Each is {of_all}."
        each = zip(rows, ends, strict=True)
        rows = [row.replace(f" · {end}, also", " · also").replace(f" · {end}", "") for row, end in each]
    return [f"{asks}\n{whose}", *rows]


def extend_all_view(
    bulk: BulkCounts, in_force: Listed, timed: Listed, policy: Policy, now_ms: int, able: Sequence[str] = ()
) -> dict[str, Any]:
    """Asks how much longer the `timed` are to last, which `able` may approve. The metadata has them."""
    said, endless = [runs.waiting_end(*one).strip() for one in timed], [one for one in in_force if one not in timed]
    of_all = states.said_of_all(said)
    left_out = f"Left out: {runs.distinct_targets(endless)}, which only *Undo now* ends." if endless else ""
    of_each = map(questions.with_said, in_force_rows(timed).values(), [""] * len(timed) if of_all else said)
    asks, *rows = _question_and_rows("Extend", bulk, timed, of_each)
    about = sections(filter(None, [asks, of_all, *rows, left_out]))
    shown = undos.longer_view("Extend all", about, [action for action, _ in timed], policy, now_ms, able)
    metadata = json.dumps({"id": bulk.id, "runs": [action.id for action, _ in timed]})
    return {**shown, "callback_id": ids.EXTEND_ALL_VIEW, "private_metadata": metadata}


def with_an_end(in_force: Listed, measures: Sequence[Measure] = ()) -> Listed:
    """Those that end by themselves; not one whose targets another run keeps with no end, by these measures."""
    end = {id_: one.until for one in sorted(measures, key=lambda one: one.until or 0) for id_ in one.actions}
    return [one for one in in_force if (undo := one[0].undo) and undo.at is not None and end.get(one[0].id, True)]


def changed_all(
    done: str,
    asks: str,
    changed: Listed,
    waiting: int,
    refused: Sequence[tuple[Run, str]],
    then: str = "",
    *more: Block,
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
    return questions.with_reasons(" ".join(filter(None, [told, asked, of_some])), "*Refused*", why_not, *more)
