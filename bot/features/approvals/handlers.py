"""Approve, deny, cancel and stop runs."""

from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Any

from bot.block_kit import ids, modals, names, notices
from bot.block_kit.text import person_name
from bot.clearance import RedactedView, Subject, may_see, refanged
from bot.features import responses, subjects
from bot.features.approvals import views
from bot.features.authorization import own_clearance
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.payload import is_home, view_metadata, view_of
from bot.features.retries import answered
from bot.features.runs.parameters import review
from bot.features.runs.targets import undone_by_each, used_by
from bot.features.runs.views import runs, undo_state
from bot.features.runs.views.reports import read_report
from bot.message import Block, Message
from core.common.errors import ResponderBotError
from core.models import Action, Document, Extension

NOT_WAITING = "No longer waits"  # the title of what somebody else decided, or nobody in time


async def on_cancel(context: Context) -> None:
    """Stop a run that runs, or ask whether to withdraw what waits; say what became of one that has ended."""
    action, subject = await _run(context, (await responses.clicked_intent(context)).object_id)
    if action.status == "Waiting" or undo_state.later_end(action) is not None:
        await on_deny(context)
        return
    _require_visible(context, subject)
    if not runs.is_open(action) and await _is_over(context, action, subject):
        return
    _require_asker(context, action)
    action, subject = await subjects.of_action(context.core, await answered(context.core.cancel(action.id)))
    await responses.refresh_cards(context, subject)
    if not is_home(context):
        text = _ended(views.run_on(action, RedactedView(subject, own_clearance(context))), action)
        await responses.respond(context, notices.notice(text), "Done")


def _require_asker(context: Context, action: Action, extension: Extension | None = None) -> None:
    """A channel's message is the same for all, so this says calmly who else may end it."""
    asked_by = action.created_by if extension is None else extension.asked_by
    if context.person.login != asked_by and context.person.profile != "org-admin":
        waits = runs.awaits_approval(action) or extension is not None
        instead = "; *Deny* decides against it" if waits else "; ask one of them"
        by = f"Only {person_name(asked_by)}, who asked for this, or an administrator"
        sentence = f"{by} can end it{instead}. Nothing changed."
        raise ResponderBotError("forbidden", sentence)


def _hears(context: Context, asked_by: str) -> str:
    """` anna is notified.`, who asked for what this person has decided on; mrkdwn."""
    return "" if asked_by == context.person.login else f" {undo_state.are([asked_by], 'notified')}."


def _ended(run: str, action: Action, extension_id: str = "") -> str:
    if extension_id:
        return f"You withdrew the request for more time for {run}."
    if runs.is_open(action):
        return f"{run} is being stopped."
    if runs.state_of(action) == "cancelled":
        return f"You withdrew {run}; it will not run."
    return f"{run} {runs.state(action)}."


async def on_approve(context: Context) -> None:
    """Ask once more, with all that is decided, also after the command: nobody approves what they haven't read.

    Those who may not decide on it read why.
    """
    intent = await responses.clicked_intent(context)
    action, subject = await _run(context, intent.object_id)
    view, extension = _require_visible(context, subject), _later_end(action, intent.argument)
    if extension is None and await _is_over(context, action, subject, intent.argument):
        return
    await _require_voter(context, action)
    subjects.require_vote(context, action, action.approval if extension is None else extension.approval)
    shown = await _approve_view(context, action, view, extension)
    await responses.open_view(context, shown, "Press *Approve* on its card.")


def waiting(
    context: Context, documents: Iterable[Document], typed: str, *, decides: bool
) -> list[tuple[Action, RedactedView]]:
    """The runs that wait and show what is typed in what they do, on what and for which alert.

    If somebody `decides` on it those on which this person does, or all others if there are none.
    """
    found, words = list[tuple[Action, RedactedView]](), refanged(typed).casefold().split()
    for document in documents:
        for action in filter(runs.awaits_decision, document.actions):
            view = RedactedView(Subject.of_action(action, document), own_clearance(context))
            text = f"{runs.title(action)} {runs.all_targets_in_plain(action, view)} {view.title()}"
            if view.is_open and all(word in refanged(text).casefold() for word in words):
                found.append((action, view))
    return [(run, view) for run, view in found if decides and _decides(context, run, view.subject)] or found


def _decides(context: Context, action: Action, subject: Subject) -> bool:
    extension = undo_state.later_end(action)
    return not action.why_not_decide and views.may_decide(action, context.person, subject, extension)


def _later_end(action: Action, extension_id: str) -> Extension | None:
    """The later end that waits, if it is that with this id; "" for any."""
    extension = undo_state.later_end(action)
    return extension if extension is not None and extension_id in ("", extension.id) else None


def _require_visible(context: Context, subject: Subject) -> RedactedView:
    """Refuse what this person may not see, first of all where they may decide on nothing. Raises ResponderBotError."""
    if not may_see(own_clearance(context), subject.clearance):
        responses.require_permission(context, "manageAction")
    return subjects.require_visible(context, subject)


async def _require_voter(context: Context, action: Action) -> None:
    """Refuse early, as core says, who may not decide on it, and name who may. Raises ResponderBotError("forbidden")."""
    may_decide = "manageAction" in context.person.permissions
    why_not = action.why_not_decide if may_decide else "You may not approve or deny runs."
    if why_not:
        is_other = action.override is not None and context.person.login != action.created_by
        names_them = is_other or not may_decide
        able = (await subjects.deciders(context.core, action.id))[0].get(action.id) if names_them else ()
        ask = f" Ask {notices.either(able)}." if able else ""
        raise ResponderBotError("forbidden", f"{why_not}{ask}")


async def _approve_view(
    context: Context,
    action: Action,
    view: RedactedView,
    extension: Extension | None,
    read: str | None = None,
) -> dict[str, Any]:
    responder = None if extension else await subjects.responder(context.core, view.subject, action.responder_name)
    used, undone = "", await undone_by_each(context, responder, [action])
    if responder is not None and action.override is not None:
        used = await used_by(context, responder.model_copy(update={"refusals": action.override.overrides}))
    asked = partial(views.approve_view, action, view, responder=responder, now_ms=context.services.clock_ms())
    render = partial(asked, extension=extension, read=read, used_by=used, ends=undone.get(action.id, ()))
    return await responses.with_buttons(context, f"approve:{(extension or action).id}", render)


async def on_approve_view(context: Context) -> Json:
    """Approve the run, or its later end, if it is still what this person has read."""
    submitted = view_of(context)
    metadata = view_metadata(submitted)
    extension_id = str(metadata.get("extension") or "")
    action, subject = await _run(context, str(metadata.get("id") or ""))
    extension = _later_end(action, extension_id) if extension_id else None
    view = subjects.require_visible(context, subject)
    shown = await _approve_view(context, action, view, extension, str(metadata.get("lines")))
    message = await _no_longer_open(context, action, subject, of=extension_id) if extension is None else None
    title = "Approved" if message is None else NOT_WAITING
    if message is None and shown["private_metadata"] != submitted.get("private_metadata"):
        return modals.update(shown)
    if extension is not None:
        message = await _approve_later_end(context, action, extension, view)
    elif message is None:
        title, message = await _approve(context, action, subject)
    await responses.refresh_cards(context, subject)
    return modals.update(modals.message_view(title, message))


async def _approve_later_end(context: Context, action: Action, extension: Extension, view: RedactedView) -> Message:
    """Approve the later end that was read, which its id names."""
    action = names.titled_as(await answered(context.core.approve(action.id, extension_id=extension.id)), action)
    waits = undo_state.later_end(action)
    then = f"It {undo_state.ends(action)}.{_hears(context, extension.asked_by)}"
    then = f"It needs {undo_state.needed([waits])}" if waits is not None else then
    return notices.notice(f"You approved more time for {runs.heading(action, view)}. {then}")


async def _approve(context: Context, action: Action, subject: Subject) -> tuple[str, Message]:
    """Have core store the vote; returns the title of what says so, and that. Core refuses who may not."""
    voted = await _decided(context, context.core.approve(action.id), action.id)
    if isinstance(voted, Message):
        return NOT_WAITING, voted
    links = await subjects.card_links(context, [subject.root_id])
    view, action = RedactedView(subject, own_clearance(context)), names.titled_as(voted, action)
    waits = list[tuple[str, Sequence[Block]]]()
    for one in undo_state.in_force_already(action, view):
        if one.state == "asked":
            run = await context.core.action(one.actions[-1])
            waits.append((undo_state.already(one, view), await review(context, run, view)))
    return "Approved", views.approved(action, view, links[subject.root_id], waits)


async def _decided(
    context: Context, decision: Awaitable[Action], action_id: str, extension_id: str = ""
) -> Action | Message:
    """What core answers to a decision, or what became of the run, or its later end, if that can't be decided on now."""
    try:
        return await answered(decision)
    except ResponderBotError as error:
        if error.code != "conflict":
            raise
        now, subject = await _run(context, action_id)
        subjects.require_visible(context, subject)
        if extension_id and _later_end(now, extension_id) is not None:
            raise
        message = await _no_longer_open(context, now, subject, error.message, extension_id)
        if message is None:
            raise
        return message


async def _run(context: Context, action_id: str) -> tuple[Action, Subject]:
    """The run with all that somebody decides on, and what it is on. Raises ResponderBotError("not_found")."""
    try:
        action = await context.core.action(action_id)
    except ResponderBotError as error:
        if error.code != "not_found":
            raise
        hint = f"If it is an alert, `{context.services.command} actions {action_id}` lists its runs with their ids."
        raise ResponderBotError("not_found", f"There is no run {action_id}. {hint}") from error
    return await subjects.of_action(context.core, action)


async def _is_over(context: Context, action: Action, subject: Subject, extension_id: str = "") -> bool:
    """Whether nobody can decide on the run, or this later end, any more; says so then, and has its card updated."""
    message = await _no_longer_open(context, action, subject, of=extension_id)
    if message is not None:
        await responses.refresh_cards(context, subject)
        await context.show(NOT_WAITING, message)
    return message is not None


async def _no_longer_open(
    context: Context, action: Action, subject: Subject, reason: str = "", of: str = ""
) -> Message | None:
    """What became of a run that nobody can approve any more, with Ask again if it never ran; None if somebody can.

    Or of the later end with the id `of`, which no longer waits.
    """
    view = RedactedView(subject, own_clearance(context))
    if of:
        context.refresh(subject.root_id or subject.id, action.id)  # which takes away the buttons
        return notices.notice(views.later_end_no_longer_waits(action, of, view))
    if runs.awaits_approval(action):
        return None
    if not runs.was_not_started(action):
        return notices.notice(views.no_longer_waits(action, view))
    responder = await subjects.responder(context.core, subject, action.responder_name)
    render = partial(views.not_approved, action, view, reason or read_report(action).message, responder)
    return await responses.with_buttons(context, f"again:{action.id}", render)


async def on_deny(context: Context) -> None:
    """Ask why what waits is denied or, as the button says, withdrawn; who asked for it only confirms that."""
    intent = await responses.clicked_intent(context)
    deed = "Deny" if intent.what == "deny" else "Withdraw"
    action, subject = await _run(context, intent.object_id)
    view, extension = _require_visible(context, subject), _later_end(action, intent.argument)
    is_queued = deed == "Withdraw" and action.status == "Waiting"
    if extension is None and not is_queued and await _is_over(context, action, subject, intent.argument):
        return
    if deed == "Deny":
        await _require_voter(context, action)
    else:
        _require_asker(context, action, extension)
    now, login = context.services.clock_ms(), context.person.login
    await context.show_modal(views.deny_view(action, view, deed, login, now))


async def on_deny_view(context: Context) -> Json:
    """Deny or withdraw the run, which ends it, or its later end. Core refuses who may not, and what doesn't wait."""
    view = view_of(context)
    metadata = view_metadata(view)
    reason, extension_id = modals.values(view).get("reason", "").strip(), str(metadata.get("extension") or "")
    is_denied = metadata.get("deed") != "Withdraw"
    decide = context.core.deny if is_denied else context.core.cancel
    action_id = str(metadata.get("id"))
    decided = await _decided(context, decide(action_id, reason, extension_id=extension_id), action_id, extension_id)
    if isinstance(decided, Message):
        return modals.update(modals.message_view(NOT_WAITING, decided))
    action, subject = await subjects.of_action(context.core, decided)
    await responses.refresh_cards(context, subject)
    run, asked_by = views.run_on(action, RedactedView(subject, own_clearance(context))), action.created_by
    denied = f"You denied {run}{undo_state.for_how_long(action)}; it will not run."
    if extension_id and action.undo is not None and action.undo.extension is not None:
        asked_by = action.undo.extension.asked_by
        denied = f"You denied more time for {run}. It {undo_state.ends(action)}."
    said = f"{denied if is_denied else _ended(run, action, extension_id)}{_hears(context, asked_by)}"
    return modals.update(modals.message_view("Denied" if is_denied else "Done", notices.notice(said)))


FEATURE = Feature(
    actions={
        ids.CANCEL: Entry(on_cancel, Ack.WRITE),
        ids.APPROVE: Entry(on_approve, modal_title="Approve"),
        ids.DENY: Entry(on_deny, modal_title="Deny"),
        ids.WITHDRAW: Entry(on_deny, modal_title="Withdraw"),
    },
    views={
        ids.APPROVE_VIEW: Entry(on_approve_view, Ack.RESPONSE),
        ids.DENY_VIEW: Entry(on_deny_view, Ack.RESPONSE),
    },
)
