"""How a run can be undone: what its line says, Undo and Extend, and how long it is to last."""

import json
from collections.abc import Sequence
from typing import Any

from bot.block_kit import ids, modals, names, notices
from bot.block_kit.elements import actions, button_element
from bot.block_kit.names import NAME_LIMIT
from bot.block_kit.text import (
    MESSAGE_TEXT_LIMIT,
    OPTION_LIMIT,
    clip,
    context,
    first_of,
    foreign,
    mentions,
    person_name,
    section,
    sections,
    slack_date,
)
from bot.clearance import RedactedView, Subject, withheld
from bot.features.runs.views import questions, runs, undo_state
from bot.message import Block, ButtonIds, Intent, Message
from core.common.words import count
from core.models import CAN_UNDO, NOTE_LIMIT, Action, Extension, Measure, OfferedResponder, Policy, Undo

MOST_ENDED = 40  # runs on the same targets, which end together
PROBLEMS_SHOWN = 5  # of the targets of one run


# --- buttons --------------------------------------------------------------------------------------------------------


def buttons(action: Action, view: RedactedView, button: ButtonIds, *, part: str = "") -> list[dict[str, Any]]:
    """Undo now; also Extend, of what core is to undo while no later end waits for approval.

    `part` is the id of one of several targets, which are undone one by one.
    """
    if action.undo is None or not can_undo(action) or not view.is_open:
        return []
    kept, waiting = undo_state.kept_longer(action, view), undo_state.later_end(action)
    can_end = action.undo.at is not None and (kept is None or kept.until is not None)
    can_extend = can_end and (waiting is None or (part and part not in waiting.targets))
    extend = [("Extend", ids.EXTEND, "extend")] if can_extend else []
    about = f"{runs.title(action)} on {runs.target_in_plain(undo_state.still(action), view, OPTION_LIMIT)}"
    return [
        button_element(label, action_id, button(Intent(what, action.id, part)), of=f"{action.id}{part}", about=about)
        for label, action_id, what in [*extend, ("Undo now", ids.UNDO, "undo")]
    ]


def which_to_extend(action: Action, view: RedactedView, button: ButtonIds) -> Message:
    """Asks which of its targets shall end later, where these end at different times."""
    text = f"{runs.heading(undo_state.still(action), view)}, ends at different times. Extend each by itself:"
    return Message(text, (section(text), *each_target(action, view, button)))


def each_target(action: Action, view: RedactedView, button: ButtonIds) -> list[Block]:
    """What a run has in force, on each of several targets, with what can be done about that."""
    blocks = list[Block]()
    for part, id_ in undo_state.in_force_by_target(action):
        line, shown_buttons = runs.in_force_line(part, view), buttons(part, view, button, part=id_)
        extension = part.undo.extension if part.undo is not None else None
        if extension is not None and (not id_ or extension.targets[:1] == [id_]):
            line += runs.waiting_end(part, view)
            shown_buttons[:0] = [] if extension.outcome else runs.waiting_buttons(part, view, button, extension)
        accessory = shown_buttons[0] if len(shown_buttons) == 1 else None
        blocks.append(section(line, block_id=f"run:{part.id}{id_}", accessory=accessory))
        blocks += [actions(*shown_buttons)] if len(shown_buttons) > 1 else []
    return blocks


def can_undo(action: Action) -> bool:
    return action.undo is not None and action.undo.status in CAN_UNDO


# --- the question before it is undone -------------------------------------------------------------------------------


def undo_view(
    action: Action,
    view: RedactedView,
    responder: OfferedResponder | None,
    measures: Sequence[Measure],
    now_ms: int,
    login: str,
    *,
    part: str = "",
    stays: str = "",
) -> dict[str, Any]:
    """Asks `login` with all that ends with a run, or one of its targets: `measures` is what is in force on these.

    `responder` undoes it, None if it isn't there any more; `stays` says on which others it stays in force; mrkdwn.

    The metadata has a digest of the runs, so that nobody ends one that came since.
    """
    title = undo_state.title(action.undo) if action.undo is not None else ""
    policy = responder.policy if responder is not None else Policy()
    does = responder.description if responder is not None else ""
    ends = undo_state.all_ended(measures, view, login, action.id)
    if [(one.actions, one.state) for one in measures] == [([action.id], "in_force")]:
        ends = [undo_state.ended_alone(measures[0], action, login, now_ms)]
    on = runs.on_object(action, view, runs.on_what(view.subject, view))
    needs = f", after {count(policy.approval, 'approval')}" if policy.approval else ""
    deed = section(f"🔓 *{foreign(title, NAME_LIMIT)}*{on}{needs}")
    lines = [
        *first_of(ends or [f"It ends:\n{runs.in_force_line(action, view)}"], MOST_ENDED),
        undo_state.request_ends(action),
        stays,
    ]
    digest = notices.digest(sorted(n for one in measures for n in one.actions))
    return modals.modal(
        names.in_view(title, "?"),
        [deed, *questions.policy_words(policy, does), *sections(filter(None, lines))],
        callback_id=ids.UNDO_VIEW,
        submit=names.in_view(title),
        metadata=json.dumps({"id": action.id, "part": part, "ends": digest}),
        close="Leave it",
    )


# --- how long -------------------------------------------------------------------------------------------------------


def extend_view(
    action: Action,
    view: RedactedView,
    policy: Policy,
    now_ms: int,
    login: str,
    *,
    able: Sequence[str] = (),
    part: str = "",
) -> dict[str, Any]:
    """Asks `login` how much later a run, or one of its targets, shall end than now, or from now on if that is past."""
    at = action.undo.at if action.undo is not None and action.undo.at is not None else now_ms
    who = f"*{person_name(action.created_by)}* asked for it{runs.override_text(action, view)}."
    who += f" It {undo_state.ends(action)}."
    about = section(f"{runs.heading(action, view)}. {who}{runs.waiting_end(action, view)}")
    hears = undo_state.hears(login, action, is_end=False)
    shown = longer_view("Extend", [about], [action], policy, now_ms, able, hears)
    metadata = json.dumps({"id": action.id, "part": part, "at": max(at, now_ms)})
    return {**shown, "callback_id": ids.EXTEND_VIEW, "private_metadata": metadata}


def longer_view(
    title: str,
    about: Sequence[Block],
    timed: Sequence[Action],
    policy: Policy,
    now_ms: int,
    able: Sequence[str],
    hears: str = "",
) -> dict[str, Any]:
    """Asks how much longer runs are to last, which `able` may approve, after what says which; its caller names it.

    `hears` says who is notified, where it needs no approval.
    """
    ends = [(undo.at or now_ms, undo.approved_until) for action in timed if (undo := action.undo) is not None]
    limits = [until for _, until in ends if until is not None]
    is_asked = bool(limits) and all(until is not None and at >= until for at, until in ends)
    needs = _needs(policy, able, limits, timed, is_asked=is_asked)
    field = undo_state.longer_field(policy, [at for at, _ in ends], now_ms)
    if not field:
        most = f"The settings allow no later end than {undo_state.minutes(policy.undo_after_minutes or 0)} from now."
        return modals.modal(title, [*about, section(most)], callback_id="", submit="")
    note = modals.text_field("note", "Note", hint="Everybody who sees the run reads this: no secrets.")
    note["element"]["max_length"] = NOTE_LIMIT
    asks = [context(f"{needs} {'' if limits else hears}".rstrip()), *field, note]
    submit = "Ask to extend" if is_asked else "Extend"
    submit += f" ({len(timed)})" if len(timed) > 1 else ""
    return modals.modal(title, [*about, *asks], callback_id="", submit=submit)


def _needs(
    policy: Policy, able: Sequence[str], limits: Sequence[int], timed: Sequence[Action], *, is_asked: bool
) -> str:
    """Who is asked for more time, always (`is_asked`) or beyond these limits (ms), or that nobody is; what it replaces.

    It needs as many approvals as the run.
    """
    replaces = " It takes the place of the request that waits." if any(map(undo_state.later_end, timed)) else ""
    if not limits:
        return f"At once, without approval.{replaces}"
    first, each, otherwise = timed[0], "", f"it {undo_state.ends(timed[0])}"
    if len(timed) > 1:
        each, otherwise = " each", "each ends as planned"
    number, is_override = first.approval.needed if first.approval is not None else 1, first.override is not None
    asks = questions.asks_for_approval("It needs", policy, number, undo_state.Able(able), each, is_override=is_override)
    beyond = "" if is_asked else f"Beyond {slack_date(min(limits))}: "
    return f"{beyond}{asks}. Otherwise {otherwise}.{replaces}"


def asked(
    action: Action, extension: Extension, view: RedactedView, able: undo_state.Able, button: ButtonIds
) -> Message:
    """Says that a later end waits, who may approve it, and until when; with Withdraw."""
    asks = f"{runs.later_end_line(action, extension, view)}\n{runs.denied_before(extension, view)}"
    text, withdraw = f"{asks}{undo_state.needed([extension], able)}", runs.end_button(action, view, button, extension)
    return Message(text, (section(f"{text}\n{questions.TOLD}"), actions(withdraw)))


# --- in the thread --------------------------------------------------------------------------------------------------


def has_problem(action: Action) -> bool:
    """Whether the thread says that core could not carry out, or finish, what it was to undo."""
    return action.undo is not None and action.undo.status in ("waiting", "failed")


def is_refused(action: Action) -> bool:
    """Whether core keeps trying to undo it, or one of its targets, since it may not."""
    return any(part.undo and part.undo.status == "waiting" for part, _ in undo_state.in_force_by_target(action))


def problem_reply(
    action: Action, subject: Subject, told: Sequence[str], *, clearance: int, button: ButtonIds
) -> Message:
    """Says what of a run was to be undone and was not, why, and what to do; later, how that went.

    Also to those who are `told`, by their ids in Slack.
    """
    view = RedactedView(subject, clearance)
    if action.undo is None or not view.is_open:
        return notices.notice(f"⚠️ A run on {subject.id}: {withheld(subject.tlp)}")
    parts = [(part, id_) for part, id_ in undo_state.in_force_by_target(action) if has_problem(part)]
    first, blocks = parts[:PROBLEMS_SHOWN] or [(action, "")], list[Block]()
    for part, id_ in first:
        undo, shown = part.undo or action.undo, buttons(part, view, button, part=id_)
        ended = slack_date(undo.at or 0)
        said = f"{_problem(part, undo, view, ended)} {'' if blocks else mentions(told)}".rstrip()
        blocks += [section(said), *([actions(*shown)] if shown else [])]
    if left := len(parts[PROBLEMS_SHOWN:]):
        blocks.append(context(f"{count(left, 'target')} more; /responder active shows all."))
    return Message(_problem(first[0][0], first[0][0].undo or action.undo, view, "by now"), tuple(blocks))


def _problem(action: Action, undo: Undo, view: RedactedView, was_to_end: str) -> str:
    """What is wrong on one target, or what became of it; mrkdwn. `was_to_end` says when; a phone formats no time."""
    on = runs.heading(action, view)
    if undo.status == "waiting":
        still = f"⚠️ Still in force, was to end {was_to_end}: {on} · {undo_state.why(undo, view)}"
        return f"{still}. The bot keeps trying. *Undo now* does it in your name, *Extend* gives it more time."
    if undo.status == "failed":
        because = f"{undo.action_id} did not succeed; the thread has its reason"
        why = undo_state.why(undo, view) if undo.message else because
        return f"⚠️ Not undone: {on} · {why}. It may still be in force. Check the target, then press *Undo now*."
    return f"{on}: {undo_state.summary(action, view).removeprefix(' · ')}."


def has_news(action: Action, known: Sequence[Action]) -> bool:
    """Whether its thread would not read otherwise what became of it.

    It was marked as ended, nobody knows any more, or a run of another alert, which is not `known`, has undone it.
    """
    undo, by = action.undo, {one.id for one in known}
    is_elsewhere = undo is not None and undo.status == "undone" and undo.action_id not in by
    return is_elsewhere or (action.measure is not None and bool(action.measure.message))


def measure_reply(
    action: Action, subject: Subject, told: Sequence[str], *, clearance: int, button: ButtonIds
) -> Message:
    """Says who marked a run as ended or why nobody knows, also to those who are `told`, by their ids in Slack."""
    view, measure = RedactedView(subject, clearance), action.measure
    if measure is None or not view.is_open:
        return notices.notice(f"A run on {subject.id}: {withheld(subject.tlp)}")
    of = [part for part, _ in action.by_target() if part.measure and part.measure.state == measure.state]
    part, by = undo_state.together(action, of), person_name(measure.ended_by or "")
    why = foreign(view.inputs(measure.message or ""), undo_state.MESSAGE_LIMIT)
    how, then = "⚠️ Maybe no longer in force", f" · {why}"
    if measure.state == "ended":
        how, then = f"Marked as ended by *{by}*", f". Nothing was run: {why}"
        if not measure.message:
            how, then = f"Undone by *{by}*", f". It is no longer in force ({action.undo and action.undo.action_id})."
    text, shown = f"{how}: {runs.heading(part, view)}{then} {mentions(told)}".rstrip(), buttons(action, view, button)
    push = f"{how.replace('*', '')}: {runs.name(part)}{runs.on_target(part, view)}"
    push += f" · {runs.of_root(view.subject, view)}" + (f' · "{why}"' if why else "")
    return Message(clip(push, MESSAGE_TEXT_LIMIT), (section(text), *([actions(*shown)] if shown else [])))
