"""Questions before something runs: confirmation, and what to do if it already runs."""

from typing import Any

from bot.cards import ids, runs
from bot.cards.message import ButtonIds, Intent, Message
from bot.cards.text import (
    DAY_AND_TIME,
    code,
    count,
    foreign,
    foreign_plain,
    person_name,
    plain,
    section,
    slack_date,
    strip_markup,
)
from bot.redaction import RedactedView, Subject
from core.models import Action, OfferedResponder


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
    name = foreign(responder.name, runs.NAME_LIMIT)
    view = RedactedView(subject, clearance)
    title = foreign(view.title(), 200)
    lines = [f"Run *{name}* on {subject.id} ({title})?"]
    if ended is not None and ended.end_date is not None:
        at = slack_date(ended.end_date, DAY_AND_TIME)
        lines.insert(0, f"The run that you were asked about has ended ({at}). Nothing new was started.")
    if repeated is not None:
        lines += [f"• {line}" for line in runs.input_lines(repeated, view, 300)[:8]]
    policy = responder.policy
    if policy and policy.confirm:
        lines.append(foreign(policy.confirm, 1500, lines=True))
    if policy and policy.approval:
        lines.append(f"Starts after {count(policy.approval, 'approval')}.")
    again = repeated.id if repeated is not None else ""
    run = _button("Run", ids.RUN, button(run_intent("run", subject, responder.id, again=again)), style="primary")
    buttons = {"type": "actions", "elements": [run, _dismiss(subject, button)]}
    return Message(f"Run {name} on {subject.id}?", (section("\n".join(lines)), buttons))


def collision(
    running: Action, responder: OfferedResponder, subject: Subject, *, button: ButtonIds, again: str = ""
) -> Message:
    """Says who started the same run before and when, with "Run anyway"; `again` as in `run_intent`."""
    name = foreign(responder.name, runs.NAME_LIMIT)
    what = "waits" if running.status == "Waiting" else "runs"
    text = (
        f"*{name}* already {what} on {subject.id}: {person_name(running.created_by)} started it at "
        f"{slack_date(running.start_date)} ({runs.state(running)}). Nothing new was started."
    )
    intent = run_intent("run_anyway", subject, responder.id, again=again, running=running.id)
    anyway = _button("Run anyway", ids.RUN_ANYWAY, button(intent))
    buttons = {"type": "actions", "elements": [anyway, _dismiss(subject, button, "Leave it")]}
    return Message(f"{name} already {what} on {subject.id}.", (section(text), buttons))


def cannot_run(responder: OfferedResponder, subject: Subject, reason: str) -> Message:
    """Why a responder was not run."""
    name = foreign(responder.name, runs.NAME_LIMIT)
    text = f"*{name}* can't run on {subject.id}: {foreign(reason, 1500)}. Nothing was run."
    return Message(f"{name} can't run on {subject.id}.", (section(text),))


def ambiguous_name(typed: str, found: list[OfferedResponder], subject: Subject, command: str) -> Message:
    """Asks which of several responders with such a name is meant."""
    lines = [f"• {code(f'{command} run {r.name} {subject.id}', 250)}" for r in found[:10]]
    more = f"\nand {len(found) - 10} more" if len(found) > 10 else ""
    text = f"{foreign(typed, 100)} could be {count(len(found), 'responder')}; which one?\n" + "\n".join(lines) + more
    return Message(f"{foreign(typed, 100)} could be {len(found)} responders.", (section(text),))


def expired_button(subject_id: str, button: ButtonIds) -> Message:
    """For a button that is expired, forwarded or forged. With no subject Refresh renders the channel's cards."""
    text = "This button is no longer good (too old, or the message was passed on). Nothing was run."
    refresh = _button("Refresh", ids.REFRESH, button(Intent("refresh", subject_id)))
    return Message(text, (section(text), {"type": "actions", "elements": [refresh]}))


def confirm_dialog(repeated: Action, view: RedactedView, words: str) -> dict[str, Any]:
    """Slack's confirmation dialog for a button that repeats a run: the object, the inputs, and the policy's text."""
    on = f"On {view.subject.id} ({foreign_plain(view.title(), 60)}). "
    given = ", ".join(f"{name}: {text[:60]}" for name, text in runs.inputs(repeated, view))
    given = f"Inputs: {foreign_plain(given, 110)}. " if given else ""
    return {
        "title": plain(foreign_plain(f"Run {repeated.responder_name}?", 100)),
        "text": plain(foreign_plain(on + given + strip_markup(words), 300)),
        "confirm": plain("Run"),
        "deny": plain("Cancel"),
    }


def _dismiss(subject: Subject, button: ButtonIds, words: str = "Cancel") -> dict[str, Any]:
    return _button(words, ids.DISMISS, button(Intent("dismiss", subject.id)))


def _button(words: str, action_id: str, value: str, **more: Any) -> dict[str, Any]:
    return {"type": "button", "action_id": action_id, "text": plain(words), "value": value, **more}
