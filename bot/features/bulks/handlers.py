"""Runs on several objects after their start: what became of each, decide on all, run again what failed.

How far it is, the Notifier tells in one message in the channel, see `bot/docs/slack.md#several-objects`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bot.block_kit import ids, modals, names, notices
from bot.block_kit.elements import actions
from bot.block_kit.text import foreign, person_name, section
from bot.clearance import RedactedView, Subject, view_of_all
from bot.features import responses, subjects
from bot.features.approvals import handlers as decisions
from bot.features.approvals import views as approvals
from bot.features.authorization import own_clearance
from bot.features.base import Ack, Command, Context, Entry, Feature, Handler, Json
from bot.features.bulks.views import details, ending, review, states
from bot.features.bulks.views.details import ShownTarget
from bot.features.bulks.views.states import Listed, Run
from bot.features.payload import view_metadata, view_of
from bot.features.retries import answered, until_answered
from bot.features.runs import flow, parameters
from bot.features.runs.flow import UNKNOWN, masked
from bot.features.runs.targets import acted_on, run_target, undone_by_each, with_targets_again, within
from bot.features.runs.views import runs, undo_state
from bot.features.runs.views.request import RunRequest
from bot.features.undos.handlers import UNKNOWN_TIME
from bot.message import ButtonIds, Message
from bot.outbox.links import card_link
from bot.outbox.models import BULK, bulk_key, is_person
from core.common.clock import MINUTE_MS
from core.common.decoding import mapping
from core.common.errors import ResponderBotError
from core.common.words import count
from core.models import Action, Bulk, BulkAnswer, BulkTarget, RunTarget, parse_id

MOST_WAITING = 100  # among which a command looks for what is typed instead of an id
REVIEW_TITLE, EXTEND_TITLE, UNDO_TITLE, RETRY_TITLE = "Review", "Extend all", "Undo all", "Ask again"


async def on_retry(context: Context) -> None:
    """Ask again for what core would retry, in the form that asks for any runs on several objects."""
    bulk, _ = await _opened(context, RETRY_TITLE)
    _require_asker(context, bulk)
    shown = await _shown(context, bulk.targets)
    failed = [one for one in shown if one.target.has_failed]
    if not failed:
        raise ResponderBotError("not_found", "You may see none of its targets any more. Nothing was asked.")
    request = RunRequest(
        _run_targets(failed), bulk.responder_name, again=bulk.id, is_bulk=True, channel=context.channel
    )
    responder, found = await flow.offered(context, request)
    able = {one.view.subject.id for one in found if one.may_come_to_run(responder.id)}
    again = [one for one in failed if one.action is not None or one.view.subject.id in able] or failed
    request = replace(request, targets=_run_targets(again))
    view = view_of_all([one.view for one in again])
    request = flow.as_before(request, bulk, responder, view, bulk.undo_after_minutes)
    before = [(one.view.subject.id, acted_on(one.action) if one.action else one.target.target) for one in again]
    request = with_targets_again(request, found, before)
    hidden = sum(one.has_failed for one in bulk.targets) - len(failed)
    request = replace(request, without=f"Left out: {hidden} that you may not see." if hidden else "")
    form = await parameters.form_view(context, request, responder, found)
    asks, *rest = form["blocks"]
    form = {**form, "blocks": [asks, *details.ended_before(shown, again), *rest]}
    await responses.open_view(context, form, "Nothing was run; ask again.")


def _require_asker(context: Context, bulk: Bulk) -> None:
    if context.person.login != bulk.created_by and context.person.profile != "org-admin":
        asks = f"Only {person_name(bulk.created_by)} or an administrator may ask for it again. Nothing was asked."
        raise ResponderBotError("forbidden", asks)


def _run_targets(shown: Sequence[ShownTarget]) -> tuple[RunTarget, ...]:
    return tuple({one.view.subject.id: run_target(one.view.subject) for one in shown}.values())


async def on_details(context: Context) -> None:
    """Show what became of each object, as far as this person may see it."""
    intent = await responses.clicked_intent(context)
    bulk = await context.core.bulk(intent.object_id)
    shown, start = await _shown(context, bulk.own_targets), int(intent.argument or 0)
    if any(one.action is not None and one.action.outcome in states.NOT_RUN for one in shown):
        measures = await context.core.measures()
        shown = [replace(one, in_force=details.still_in_force(one.action, measures)) for one in shown]
    about, title = f"bulk:{bulk.id}:{start}", names.in_view(bulk.title, f" ({bulk.total})")
    render = partial(details.message, bulk, shown, start, context.person.login)
    await responses.show_with_buttons(context, title, about, render)


async def on_review(context: Context) -> None:
    """Show all that one decision is about, with what approves and denies it for who may see all of it.

    Always in a modal: a message takes less, and nobody is to approve what was left out of it.
    """
    bulk, request = await _opened(context, REVIEW_TITLE)
    listed = await _runs(context, bulk)
    await context.show_modal(await _review_view(context, bulk, listed, _request(context, listed, request)))


async def _runs(context: Context, bulk: Bulk) -> Listed:
    """Its runs that this person may see."""
    return [(one.action, one.view) for one in await _shown(context, bulk.own_targets) if one.action is not None]


def _request(context: Context, listed: Listed, request: str) -> str:
    """The request for more time that a button names, or that waits where a command finds nothing else; else ""."""
    if "command" not in context.payload or states.waiting(listed):
        return request
    return next((one for one in states.by_request(listed) if states.waiting(listed, one)), "")


async def _review_view(
    context: Context, bulk: Bulk, listed: Listed, request: str, submitted: modals.View | None = None
) -> dict[str, Any]:
    """What waits of it, or with a `request` the later ends that this asks for; what was `submitted` stays ticked."""
    waiting, login, responder = states.waiting(listed, request), context.person.login, None
    deed, _ = _deed(context, bulk, waiting)
    hidden = await _hidden(context, bulk, listed, request)
    why_not = _why_not(waiting, deed, login) if waiting else review.no_longer_waits(listed, request, hidden)
    if waiting:
        responder = await subjects.responder(context.core, waiting[0][1].subject, bulk.responder_name)
    readable = [one[:2] for one in states.visible(waiting)]
    undone = await undone_by_each(context, responder, [run for run, _ in readable])
    asked = (bulk, readable, hidden if waiting else "", why_not, responder, context.services.clock_ms())
    render = partial(review.review_view, *asked, undone, request=request, deed=deed, every=states.visible(listed))
    if submitted is not None:
        read = mapping(view_metadata(submitted).get("runs"))
        over = review.decided_since(listed, request, read) if waiting else ()
        render = partial(render, read=read.values(), ticked=_ticked(submitted), over=over)
    return await responses.with_buttons(context, f"bulk:{bulk.id}:review:{request}", render)


async def _hidden(context: Context, bulk: Bulk, listed: Listed, request: str = "") -> str:
    """`1 target waits that you may not see; ben or lea decides.`: what waits beside these runs, or ""; mrkdwn."""
    seen, waits = [run for run, _ in states.visible(listed)], undo_state.later_end if request else runs.awaits_approval
    number = (bulk.later_ends if request else bulk.awaiting) - sum(bool(waits(run)) for run in seen)
    if number <= 0:
        return ""
    known = {run.id for run in seen}
    others = [one.action_id for one in bulk.own_targets if one.action_id and one.action_id not in known]
    able, _ = await subjects.deciders(context.services.core, *others)  # which may read what this person may not
    who = notices.either(list(dict.fromkeys(login for logins in able.values() for login in logins)))
    wait = f"{count(number, 'target')} {'waits' if number == 1 else 'wait'} that you may not see"
    return f"{wait}; {foreign(who, names.NAME_LIMIT) or 'somebody else'} decides."


def _why_not(waiting: Sequence[states.Asked], deed: str, login: str) -> str:
    """Why `login` decides on none of what waits; "" if they may on some."""
    if deed == "Withdraw":
        return "You asked for it, so somebody else decides."
    if all(approvals.has_voted(run, login, end) for run, _, end in waiting):
        return "You have approved it; it needs somebody else's approval as well."
    return waiting[0][0].why_not_decide if all(run.why_not_decide for run, *_ in waiting) else ""


def _deed(context: Context, bulk: Bulk, waiting: Sequence[states.Asked]) -> tuple[str, str]:
    """What this person can do against what waits, which who asked for it withdraws; and who did."""
    asked_by = next((end.asked_by for *_, end in waiting if end is not None), bulk.created_by)
    return "Withdraw" if context.person.login == asked_by else "Deny", asked_by


async def on_approve_view(context: Context) -> Json:
    """Approve those of its runs that this person has read and ticked, if they still wait and are the same."""
    submitted = view_of(context)
    bulk = await context.core.bulk(str(view_metadata(submitted).get("id") or ""))
    listed, request = await _runs(context, bulk), str(view_metadata(submitted).get("request") or "")
    shown = await _review_view(context, bulk, listed, request, submitted)
    if shown["private_metadata"] != submitted.get("private_metadata"):
        return modals.update(shown)
    if not (ticked := _ticked(submitted)):
        return modals.errors(dict.fromkeys(modals.ticked(submitted, review.TICKED)[0], modals.TICK_ONE))
    approved = await masked(context, await answered(context.core.approve_bulk(bulk.id, ticked)), listed)
    context.refresh(bulk.id)
    done = review.decided(bulk, approved, "approved", listed, request, await _link(context, bulk.id))
    return modals.update(modals.message_view("Approved", done))


async def _link(context: Context, bulk_id: str) -> str:
    """The address of the bulk's message to this person, or else in a channel; "" without one."""
    posted = await context.services.outbox.messages_named(f"{BULK}:{bulk_id}:")
    own = [one for one in posted if one.key == bulk_key(bulk_id, f"{context.team}:{context.user}")]
    in_channels = [one for one in posted if not is_person(one.channel)]
    return card_link(own or in_channels, context.services.clearance, context.services.workspace_url())


def _ticked(view: modals.View) -> list[str]:
    """Those of the runs of a modal that are ticked there; all, if it has no ticks."""
    fields, ticked = modals.ticked(view, review.TICKED)
    return [run_id for run_id in view_metadata(view)["runs"] if run_id in ticked or not fields]


async def on_deny_button(context: Context) -> None:
    """Ask why those of its runs that this person has read and ticked are denied; who asked for them withdraws them."""
    intent, view = await responses.clicked_intent(context), view_of(context)
    responses.require_permission(context, "manageAction")
    read, bulk = _ticked(view) if view_metadata(view) else None, await context.core.bulk(intent.object_id)
    listed = await _runs(context, bulk)
    request = _request(context, listed, intent.argument)
    waiting = [one for one in states.waiting(listed, request) if read is None or (one[2] or one[0]).id in read]
    if read == []:
        shown = await _review_view(context, bulk, listed, request, view)
        if shown["private_metadata"] == view.get("private_metadata"):  # instead of what says that it has changed
            asks = section(f"⚠️ *{modals.TICK_ONE}* Nothing was denied.")
            shown |= {"title": view["title"], "blocks": [asks, *shown["blocks"][1:]]}
        await context.show_modal(shown)
        return
    if not waiting:
        why = review.no_longer_waits(listed, request, await _hidden(context, bulk, listed, request))
        await responses.respond(context, notices.notice(why), "Deny")
        return
    deed, asked_by = _deed(context, bulk, waiting)
    if intent.what in ("bulk_withdraw", "cancel") and deed != "Withdraw":
        deny = "*Deny more time*" if request else f"`{context.services.command} deny {bulk.id}`"
        only = f"Only {person_name(asked_by)}, who asked for it, may withdraw it; you can deny it: {deny}."
        raise ResponderBotError("forbidden", only)
    await context.show_modal(review.deny_view(bulk, [one[:2] for one in waiting], request, deed))


async def on_deny_view(context: Context) -> Json:
    """Deny or withdraw those of its runs that were shown. Core refuses what this person may not decide."""
    view = view_of(context)
    metadata, reason = view_metadata(view), modals.values(view).get("reason", "").strip()
    bulk = await context.core.bulk(str(metadata.get("id")))
    listed, request, read = await _runs(context, bulk), str(metadata.get("request") or ""), metadata.get("runs", [])
    all_waiting, number = states.waiting(listed, request), bulk.later_ends if request else bulk.awaiting
    waiting = [one for one in all_waiting if (one[2] or one[0]).id in read]
    if not waiting and len(all_waiting) == number:  # else core says why what they may not see is left
        return modals.update(modals.message_view("Not done", notices.notice(review.no_longer_waits(listed, request))))
    deed, over = str(metadata.get("deed")), review.decided_since(listed, request, read)
    if deed == "Withdraw":
        ends, cancel = {run.id: end.id if end else "" for run, _, end in waiting}, context.core.cancel
        own = [one[:2] for one in waiting]
        what = "Withdrawn: more time for" if request else "Withdrawn:"
        done = await _changed(context, bulk, what, own, lambda run: cancel(run.id, extension_id=ends[run.id]))
    else:
        denied = await masked(context, await answered(context.core.deny_bulk(bulk.id, read, reason)), listed)
        context.refresh(bulk.id)
        done = review.decided(bulk, denied, "denied", listed, request)
    done = replace(done, blocks=(*done.blocks, *review.not_decided(deed, over)))
    return modals.update(modals.message_view("Withdrawn" if deed == "Withdraw" else "Denied", done))


async def on_undo_all(context: Context) -> None:
    """Ask, with all that ends."""
    bulk, _ = await _opened(context, UNDO_TITLE)
    await context.show_modal(await _undo_view(context, bulk, await _runs(context, bulk)))


async def _undo_view(context: Context, bulk: Bulk, listed: Listed, read: Mapping[str, Any] | None = None) -> Json:
    in_force = _in_force(listed)
    if not in_force or in_force[0][0].undo is None:
        return modals.notice(UNDO_TITLE, "Nothing of it that you may see can be undone.")
    login, undone_by = context.person.login, in_force[0][0].undo.responder
    policy, _ = await subjects.policy_and_able(context.core, in_force[0][1].subject, undone_by)
    measures = await context.core.measures()
    waiting, hidden = len(states.visible(states.waiting(listed))), await _hidden(context, bulk, listed)
    still = ending.may_start(bulk, waiting, login, hidden)
    return ending.undo_all_view(bulk, in_force, measures, policy, login, read and read.values(), still)


async def on_undo_all_view(context: Context) -> Json:
    """Undo those of its runs that this person has read, if they are the same; not what has ended since."""
    metadata = view_metadata(view_of(context))
    bulk, read = await context.core.bulk(str(metadata.get("id"))), mapping(metadata.get("runs"))
    listed = await _runs(context, bulk)
    left = [(run, view) for run, view in _in_force(listed) if run.id in read]
    rows = ending.in_force_rows(left, await context.core.measures(), read)
    if not left or not states.digests(rows).items() <= read.items():
        return modals.update(await _undo_view(context, bulk, listed, read))

    async def undo(action: Action) -> Action:
        key = f"{context.idempotency_key}-{action.id}"
        return await until_answered(lambda: context.core.undo(action.id, idempotency_key=key), UNKNOWN)

    return modals.update(modals.message_view(UNDO_TITLE, await _changed(context, bulk, "Undo started:", left, undo)))


async def on_extend_all(context: Context) -> None:
    """Ask how much longer all of its runs are to last."""
    bulk, _ = await _opened(context, EXTEND_TITLE)
    in_force = _in_force(await _runs(context, bulk))
    timed = ending.with_an_end(in_force, await context.core.measures())
    if not timed:
        await context.show_modal(modals.notice(EXTEND_TITLE, "Nothing of it that you may see ends by itself."))
        return
    policy, able = await subjects.policy_and_able(context.core, in_force[0][1].subject, bulk.responder_name)
    await context.show_modal(ending.extend_all_view(bulk, in_force, timed, policy, context.services.clock_ms(), able))


async def on_extend_all_view(context: Context) -> Json:
    """Give those of its runs that were shown so much more time. Core refuses what the settings don't allow."""
    view = view_of(context)
    metadata, minutes = view_metadata(view), undo_state.minutes_of(modals.values(view).get("longer", ""))
    if minutes is None:
        return modals.errors({"longer": "Choose how much longer."})

    bulk = await context.core.bulk(str(metadata.get("id")))
    timed = {run.id: (run, view) for run, view in ending.with_an_end(_in_force(await _runs(context, bulk)))}
    now = context.services.clock_ms()
    ends = {id_: _later(timed[id_][0], minutes, now) for id_ in timed if id_ in metadata.get("runs", ())}
    if not ends:
        return modals.update(modals.notice(EXTEND_TITLE, "Nothing of it that you may see ends by itself."))
    answer = await answered(context.core.extend_measures(ends, modals.values(view).get("note", "")), UNKNOWN_TIME)
    context.refresh(bulk.id)
    _, able = await subjects.policy_and_able(context.core, timed[next(iter(ends))][1].subject, bulk.responder_name)
    return modals.update(await _extended(context, bulk, timed, answer, minutes, able))


async def _extended(
    context: Context, bulk: Bulk, timed: Mapping[str, Run], answer: BulkAnswer, minutes: int, able: Sequence[str]
) -> dict[str, Any]:
    """On which of these more time was asked for, and why not on others; with Withdraw where it waits for approval."""
    changed = [entry.action for entry in answer.actions if entry.action is not None]
    refused = [(timed[one.object_id], one.message or "") for one in answer.actions if one.action is None]
    waiting = [end for end in map(undo_state.later_end, changed) if end is not None]
    longer, what = f"{undo_state.minutes(minutes)} longer" if minutes else "with no end", f"*{states.name(bulk)}*"
    told = f"Kept {longer}: {what}", f"keep {what}", [timed[one.id] for one in changed], len(waiting), refused
    if not waiting:
        return modals.message_view("Done", ending.changed_all(*told))
    then = f" {longer}. It needs {undo_state.needed(waiting, undo_state.Able(able))}"

    def render(button: ButtonIds) -> Message:
        withdraw = runs.bulk_buttons(bulk.id, waiting[0], button, "Withdraw")[1:]
        return ending.changed_all(*told, then, actions(*withdraw))

    shown = await responses.with_buttons(context, f"extended:{bulk.id}", render)
    return modals.message_view("Asked", shown)


def _later(run: Action, minutes: int, now_ms: int) -> int | None:
    """The end (ms) of what is in force so many minutes later than planned; None (0 minutes) for no end."""
    at = run.undo.at if run.undo is not None else None
    return max(at, now_ms) + minutes * MINUTE_MS if minutes and at else None


async def _opened(context: Context, title: str) -> tuple[Bulk, str]:
    """The bulk of the clicked button, and the request that it names; its modal is open, as this takes a while."""
    intent = await responses.clicked_intent(context)
    if title != REVIEW_TITLE:  # which anybody may read
        responses.require_permission(context, "manageAction")
    await responses.open_view(context, modals.loading(title), f"Press *{title}* again.")
    return await context.core.bulk(intent.object_id), intent.argument


def _in_force(listed: Listed) -> Listed:
    """Those of these runs that are in force and can be undone."""
    return [
        (action, view)
        for action, view in listed
        if action.undo is not None and undo_state.is_in_force(action) and action.undo.status != "running"
    ]


async def _changed(
    context: Context, bulk: Bulk, verb: str, in_force: Listed, change: Callable[[Action], Awaitable[Action]]
) -> Message:
    """Change each of these runs, and say what became of it."""
    refused, done = list[tuple[Run, str]](), list[tuple[Action, Run]]()

    async def of(action: Action, view: RedactedView) -> None:
        try:
            done.append((await change(action), (action, view)))
        except ResponderBotError as error:
            refused.append(((action, view), notices.sentence(error)))

    await asyncio.gather(*(of(*one) for one in in_force))  # so that none has ended before all have begun
    context.refresh(bulk.id)
    waiting = sum(runs.awaits_approval(changed) for changed, _ in done)
    what = f"*{states.name(bulk)}*"
    return ending.changed_all(f"{verb} {what}", f"undo {what}", [one for _, one in done], waiting, refused)


async def _shown(context: Context, targets: Sequence[BulkTarget]) -> list[ShownTarget]:
    """Those of these that the person may see, each with its action, the most severe first."""
    clearance, shown = own_clearance(context), dict[int, ShownTarget]()
    keys = [target.action_id or target.object_id for target in targets]
    for document in await subjects.documents(context.core, [*filter(parse_id, dict.fromkeys(keys))]):
        actions = {action.id: action for action in document.actions}
        known = {*actions, *within(document, [target.object_id for target in targets])}
        for n in [n for n, key in enumerate(keys) if key in known]:
            target, action = targets[n], actions.get(keys[n])
            subject = Subject.in_document(document, action.object_id if action else target.object_id)
            view = RedactedView(subject.acted_on(action) if action else subject, clearance) if subject else None
            if view is not None and view.is_open:
                shown[n] = ShownTarget(target, view, action)
    return sorted([shown[n] for n in sorted(shown)], key=lambda one: -one.view.subject.severity)


def _typed(on_run: Handler, on_bulk: Handler) -> Handler:
    """What a command does with an id: what the button of that run does, of that bulk, or of all that waits on that.

    Without an id, with all that waits and has what is typed instead.
    """

    async def on_command(context: Context) -> None:
        intent = await responses.clicked_intent(context)
        named, typed = intent.object_id, ""
        if named:
            found = await context.core.documents([named])
            if named in [bulk.id for bulk in found.bulks]:  # a run of a bulk has that with it
                await on_bulk(context)
                return
            documents = [one for one in found.documents if one.id == named]
        else:
            responses.require_permission(context, "manageAction")
            newest = await context.core.newest_actions("waiting", limit=MOST_WAITING)
            documents, typed = await subjects.documents(context.core, [run.id for run in newest]), context.text
        waiting = decisions.waiting(context, documents, typed, decides=intent.what != "cancel")
        bulk = waiting[0][0].bulk if len({run.bulk for run, _ in waiting}) == 1 else None
        if len(waiting) == 1 or (named and not waiting):
            await on_run(replace(context, text=waiting[0][0].id if waiting else named))
        elif bulk is not None:
            await on_bulk(replace(context, text=bulk))
        else:
            which = approvals.which(waiting, typed, f"{context.services.command} {intent.what}")
            await responses.show(context, "Which one?" if waiting else "Nothing waits", which)

    return on_command


_APPROVE = Entry(_typed(decisions.on_approve, on_review), modal_title="Approve")
_DENY = Entry(_typed(decisions.on_deny, on_deny_button), modal_title="Deny")
_CANCEL = Entry(_typed(decisions.on_cancel, on_deny_button), Ack.WRITE)

FEATURE = Feature(
    commands={
        "approve": Command(_APPROVE, "approve ~run", "read what would run, then approve it", "manageAction"),
        "deny": Command(_DENY, "deny ~run", "say no, and why", "manageAction"),
        "cancel": Command(_CANCEL, "cancel ~run", "withdraw what you asked for, or stop it", "manageAction"),
    },
    actions={
        ids.BULK_RETRY: Entry(on_retry, modal_title=RETRY_TITLE),
        ids.BULK_DETAILS: Entry(on_details, modal_title="Show each"),
        ids.BULK_REVIEW: Entry(on_review, modal_title=REVIEW_TITLE),
        ids.BULK_DENY: Entry(on_deny_button, modal_title="Deny"),
        ids.BULK_UNDO: Entry(on_undo_all, modal_title=UNDO_TITLE),
        ids.BULK_EXTEND: Entry(on_extend_all, modal_title=EXTEND_TITLE),
    },
    views={
        ids.BULK_APPROVE_VIEW: Entry(on_approve_view, Ack.RESPONSE),
        ids.BULK_DENY_VIEW: Entry(on_deny_view, Ack.RESPONSE),
        ids.EXTEND_ALL_VIEW: Entry(on_extend_all_view, Ack.RESPONSE),
        ids.UNDO_ALL_VIEW: Entry(on_undo_all_view, Ack.RESPONSE),
    },
)
