"""Questions before something runs: confirmation, and what to do if it already runs."""

from typing import Any

from bot.cards import ids, names, runs
from bot.cards.alert import headline
from bot.cards.message import Block, ButtonIds, Intent, Message
from bot.cards.names import NAME_LIMIT
from bot.cards.text import (
    DAY_AND_TIME,
    clip_middle,
    code,
    context,
    count,
    foreign,
    foreign_plain,
    person_name,
    plain,
    readable_name,
    section,
    slack_date,
)
from bot.redaction import RedactedView, Subject
from core.models import OBJECT_TYPES, Action, OfferedResponder, Policy

MAX_INPUTS = 20


def run_intent(what: str, subject: Subject, responder_id: str, *, again: str = "", running: str = "") -> Intent:
    """To `run`, or `run_anyway`, this responder on this object.

    `again` is the action whose inputs are repeated, `running` the one that was open when the person was asked. Inputs
    themselves are not stored in the bot.
    """
    which = f"{subject.kind}/{again}/{running}" if again or running else subject.kind
    return Intent(what, subject.id, f"{which} {responder_id}")


def asked_run(intent: Intent) -> tuple[str, str, str]:
    """Responder id, `again` and `running` of `run_intent`."""
    which, _, responder_id = intent.argument.partition(" ")
    _, again, running = [*which.split("/"), "", ""][:3]
    return responder_id, again, running


def confirm(
    responder: OfferedResponder,
    subject: Subject,
    *,
    clearance: int,
    button: ButtonIds,
    repeated: Action | None = None,
    ended: Action | None = None,
) -> Message:
    """Asks to confirm a run: the object, the inputs, and what the responder's policy says of the effect.

    `repeated` is the action whose inputs are used again; `ended` the one that ran when the person was asked before.
    """
    view = RedactedView(subject, clearance)
    blocks: list[Block] = []
    if ended is not None and ended.end_date is not None:
        at = slack_date(ended.end_date, DAY_AND_TIME)
        blocks.append(section(f"The run that you were asked about has ended ({at}). Nothing new was started."))
    blocks += confirmation(responder, view, repeated)
    again = repeated.id if repeated is not None else ""
    intent = run_intent("run", subject, responder.id, again=again)
    run = _button(
        f"Run on {foreign_plain(clip_middle(runs.target(view), 60), 60)}", ids.RUN, button(intent), style="danger"
    )
    blocks.append({"type": "actions", "elements": [run, _dismiss(subject, button)]})
    return Message(f"Run {names.shown(responder)} on {_target(view)}?", tuple(blocks))


def confirmation(responder: OfferedResponder, view: RedactedView, repeated: Action | None = None) -> list[Block]:
    """What somebody confirms: what runs on what with which inputs, the policy's words, and how it can be undone."""
    blocks = what_runs(responder, view)
    if repeated is not None and (lines := runs.input_lines(repeated, view, 300)[:MAX_INPUTS]):
        blocks.append(section("\n".join(["*Inputs*", *(f"• {line}" for line in lines)])))
    return [*blocks, *effect(responder)]


def what_runs(responder: OfferedResponder, view: RedactedView) -> list[Block]:
    """Which responder runs on what."""
    return [section(f"*{names.shown(responder)}* on"), target(view)]


def effect(responder: OfferedResponder) -> list[Block]:
    """The policy's words, and how a run can be undone."""
    policy = responder.policy or Policy()
    return [*policy_words(policy), context(_undo(policy))]


def policy_words(policy: Policy) -> list[Block]:
    """What the policy says of the effect, as a quotation."""
    words = foreign(policy.confirm, 1500, lines=True).replace("\n", "\n>")
    return [section(f">{words}")] if words else []


def target(view: RedactedView) -> Block:
    """What a run is for: severity, linked title, and id."""
    if view.subject.kind == "alert":
        return section(f"{headline(view)['text']['text']} · {view.subject.id}")
    if view.subject.kind == "case_artifact":
        return section(f"*{foreign(runs.target(view), 300)}*\nof {foreign(_parent(view), 300)}")
    return section(f"{OBJECT_TYPES[view.subject.kind]} {view.subject.id} · {foreign(view.title(), 300)}")


def _parent(view: RedactedView) -> str:
    return f"{view.parent_title()} · {view.subject.root_id}"


def _target(view: RedactedView) -> str:
    return foreign(clip_middle(runs.target(view), runs.TARGET_LIMIT), runs.TARGET_LIMIT)


def needs_inputs(
    responder: OfferedResponder, view: RedactedView, *, button: ButtonIds, again: str = "", is_typed: bool = False
) -> Message:
    """Leads to the inputs where no modal could be opened; `again` as in `run_intent`."""
    text = f"{names.shown(responder)} on {_target(view)} needs inputs. Nothing was run."
    if is_typed:
        text += " What you typed is not kept."
    fill = _button("Give the inputs", ids.RUN, button(run_intent("run", view.subject, responder.id, again=again)))
    return Message(text, (section(text), {"type": "actions", "elements": [fill, _dismiss(view.subject, button)]}))


def _undo(policy: Policy) -> str:
    by = f" by {foreign(', '.join(policy.approve_by), 200)}" if policy.approve_by else ""
    begins = f"Starts after {count(policy.approval, 'approval')}{by}" if policy.approval else "Starts at once"
    cancel = f"{begins}. Until it ends you can cancel it on the card"
    if not policy.undo:
        return f"{cancel}; what it has done by then stays."
    return f"{cancel}. After that it can be undone there, by {foreign(readable_name(policy.undo), NAME_LIMIT)}."


def collision(
    running: Action, responder: OfferedResponder, view: RedactedView, *, button: ButtonIds, again: str = ""
) -> Message:
    """Says who started the same run before and when, with "Run anyway"; `again` as in `run_intent`."""
    intent = run_intent("run_anyway", view.subject, responder.id, again=again, running=running.id)
    anyway = _button("Run anyway", ids.RUN_ANYWAY, button(intent), style="danger")
    buttons = {"type": "actions", "elements": [anyway, _dismiss(view.subject, button, "Leave it")]}
    name = names.shown(responder)
    text = section(open_run(running, responder, view))
    return Message(f"{name} already {_open_word(running)} on {_target(view)}.", (text, buttons))


def open_run(running: Action, responder: OfferedResponder, view: RedactedView) -> str:
    """Who started the same run before, when, and that nothing new was started."""
    name, at = names.shown(responder), slack_date(running.start_date, DAY_AND_TIME)
    return (
        f"*{name}* already {_open_word(running)} on {_target(view)}. {person_name(running.created_by)} started it "
        f"{at} ({runs.state(running)}). Nothing new was started."
    )


def _open_word(running: Action) -> str:
    return "waits" if running.status == "Waiting" else "runs"


def cannot_run(
    responder: OfferedResponder, view: RedactedView, reason: str, *, button: ButtonIds | None = None
) -> Message:
    """Why a responder was not run (`reason`, mrkdwn); with `button` an org-admin may override that."""
    name = names.shown(responder)
    text = f"*{name}* can't run on {_target(view)}: {reason}. Nothing was run."
    blocks: list[Block] = [section(text)]
    if button is not None:
        value = button(Intent("break_glass", view.subject.id, responder.id))
        elements = [_button("Break glass ...", ids.BREAK_GLASS, value, style="danger")]
        blocks.append({"type": "actions", "elements": elements})
    return Message(f"{name} can't run on {_target(view)}.", tuple(blocks))


def ambiguous_name(typed: str, found: list[OfferedResponder], subject: Subject, command: str) -> Message:
    """Asks which of several responders with such a name is meant."""
    lines = [f"• {code(f'{command} run {names.example(r)} {subject.id}', 250)}" for r in found[:10]]
    more = f"\nand {len(found) - 10} more" if len(found) > 10 else ""
    text = f"{foreign(typed, 100)} could be {count(len(found), 'responder')}; which one?\n" + "\n".join(lines) + more
    return Message(f"{foreign(typed, 100)} could be {len(found)} responders.", (section(text),))


def take_over(alert_id: str, assignee: str, button: ButtonIds) -> Message:
    """Says who works on an alert, with a button that assigns it to the one who is asked."""
    text = f"{person_name(assignee)} works on {alert_id}. Nothing was changed."
    take = _button("Take it over", ids.TAKE, button(Intent("take", alert_id, assignee)))
    return Message(text, (section(text), {"type": "actions", "elements": [take]}))


def expired_button(subject_id: str, button: ButtonIds) -> Message:
    """For a button that is expired, forwarded or forged. With no subject Refresh renders the channel's cards."""
    text = "This button is no longer good (too old, or the message was passed on). Nothing was run."
    refresh = _button("Refresh", ids.REFRESH, button(Intent("refresh", subject_id)))
    return Message(text, (section(text), {"type": "actions", "elements": [refresh]}))


def _dismiss(subject: Subject, button: ButtonIds, words: str = "Cancel") -> dict[str, Any]:
    return _button(words, ids.DISMISS, button(Intent("dismiss", subject.id)))


def _button(words: str, action_id: str, value: str, **more: Any) -> dict[str, Any]:
    return {"type": "button", "action_id": action_id, "text": plain(words), "value": value, **more}
