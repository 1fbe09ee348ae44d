"""The buttons on the card of a group or a digest of alerts."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from bot.block_kit import ids, modals, notices
from bot.block_kit.text import person_name, plain, sections
from bot.clearance import CLEAR, RedactedView, Subject, may_see
from bot.features import responses, subjects
from bot.features.alert_groups import views
from bot.features.alert_groups.views import PAGE, ListedAlert
from bot.features.alerts.views import close as close_views
from bot.features.alerts.views.card import is_closed
from bot.features.authorization import own_clearance
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.cases import views as cases
from bot.features.payload import metadata_text, typed_reason, view_of
from bot.features.runs import form
from bot.features.runs.targets import MOST, find_targets
from bot.features.runs.views import runs
from bot.features.runs.views.request import RunRequest
from bot.message import Intent
from bot.outbox.alert_groups import AlertGroup
from bot.outbox.models import RefreshRequest, card_key
from core.common.clock import HOUR_MS
from core.common.errors import ResponderBotError
from core.common.grouping import grouped
from core.common.words import count
from core.models import Alert, Case, Document

READ_AT_ONCE = 200
CHANGED_AT_ONCE = 100
CASE_LIMIT = 1_000  # alerts in one case
NONE_VISIBLE = "You may see none of these alerts. Nothing was changed."
MORNING = 8  # o'clock, where the bot runs


async def on_group_button(context: Context) -> None:
    """Do what the clicked button or option means."""
    intent = await responses.clicked_intent(context)
    if intent.what == "group_card":
        context.refresh_requests.append(RefreshRequest(card_key(intent.object_id, intent.argument)))
        await responses.respond(context, notices.notice(f"{intent.object_id} gets a card of its own."), "Own card")
        return
    group, handler = await context.services.outbox.alert_groups.group(intent.object_id), _HANDLERS.get(intent.what)
    if group is None:
        await responses.respond(context, notices.notice(_too_old(context)), "Too old")
    elif handler is not None:
        await handler(context, group, intent)


def _too_old(context: Context) -> str:
    return f"These alerts are too old to be in a group; `{context.services.command} find` finds them."


async def _show_alerts(context: Context, group: AlertGroup, intent: Intent) -> None:
    """Show a page of the group's alerts, as far as this person may see them."""
    offset, outbox = int(intent.argument or 0), context.services.outbox
    members = await outbox.alert_groups.members(group.key, offset, PAGE)
    root_ids = [member.root_id for member in members]
    documents, links = await _documents(context, root_ids), await subjects.card_links(context, root_ids)
    alerts = [ListedAlert(one.root_id, documents.get(one.root_id), one.at, links[one.root_id]) for one in members]
    content = await outbox.alert_groups.content(group, CLEAR)
    await responses.show_with_buttons(
        context,
        "Alerts",
        f"{group.key}:{offset}",
        lambda button: views.alerts_page(content, alerts, offset, clearance=own_clearance(context), button=button),
    )


async def _choose_responder(context: Context, group: AlertGroup, _intent: Intent) -> None:
    """Ask what to run on the worst alerts of the group that this person may see."""
    responses.require_permission(context, "manageAction")
    groups = context.services.outbox.alert_groups
    worst, content = await groups.members(group.key, 0, MOST), await groups.content(group, CLEAR)
    targets = list((await find_targets(context, [member.root_id for member in worst])).values())
    if not targets:
        raise ResponderBotError("forbidden", NONE_VISIBLE)
    on = count(len(worst), "alert")
    if len(worst) < content.count:
        on = f"the worst {len(worst)} of {content.count:,} alerts"
    if len(targets) < len(worst):
        on = f"{len(targets)} of {on}, those that you may see"
    shown = form.responder_view(RunRequest(channel=group.channel), targets, on)
    shown["title"] = plain(f"Run on {count(len(targets), 'alert')}")  # nobody selected them
    await responses.open_view(context, shown, "Press *Run on all* again.")


async def _ask_to_close(context: Context, group: AlertGroup, _intent: Intent) -> None:
    """Say how many alerts of each severity are open, and what is still in force on them or waits for approval."""
    responses.require_permission(context, "manageAlert")
    await responses.open_view(context, modals.loading(close_views.ALL), "Press *Close all* again.")
    await _show_close(context, group.key)


async def _show_close(context: Context, key: str) -> None:
    to_close, documents, clearance, hidden = list[RedactedView](), list[Document](), own_clearance(context), 0
    async for alert, document in _all(context, key):
        if is_closed(alert):
            continue
        if may_see(clearance, alert.tlp):
            to_close.append(RedactedView(Subject.alert(alert), clearance))
            documents.append(document)
        else:
            hidden += 1
    lines = close_views.left_open(documents, clearance, context.person.login)
    none = modals.notice(close_views.ALL, "All that you may see of them are closed already.")
    await context.show_modal(close_views.close_all_view(key, to_close, lines, hidden) if to_close else none)


async def on_close_several_button(context: Context) -> None:
    """Likewise of the alerts that were chosen."""
    responses.require_permission(context, "manageAlert")
    await _show_close(context, _chosen(context))


async def on_assign_several_button(context: Context) -> None:
    """Assign the alerts that were chosen to this person, but those that somebody else works on."""
    responses.require_permission(context, "manageAlert")
    login, alerts = context.person.login, await _alerts(context, _chosen(context))
    by = grouped((alert.assignee or "", alert.id) for alert in alerts)
    if free := by.pop("", []):
        await context.core.assign_alerts(free, login)
    for alert_id in free:
        context.refresh(alert_id)
    said = [f"You work on {count(len(free), 'alert')} now." if free else "Nothing was changed."]
    for one, ids_ in by.items():
        said.append(f"{'You work' if one == login else f'{person_name(one)} works'} on {', '.join(ids_)} already.")
    await context.show_modal(modals.notice("Assigned", " ".join(said)))


def _chosen(context: Context) -> str:
    """The ids of the alerts that the modal is about."""
    return " ".join(target.object_id for target in form.request_of(context).targets)


async def on_close_all_view(context: Context) -> Json:
    """Close the alerts that were chosen, or all of the group, as far as this person may see them."""
    responses.require_permission(context, "manageAlert")
    key = metadata_text(context)
    if not key.startswith("~") and await context.services.outbox.alert_groups.group(key) is None:
        raise ResponderBotError("not_found", _too_old(context))
    left = [alert.id for alert in await _alerts(context, key) if not is_closed(alert)]
    for some in _parts(left):
        await context.core.close_alerts(some, typed_reason(context))
    back = "" if key.startswith("~") else f" *{close_views.REOPEN}*, on the group's card, opens them again."
    return modals.update(modals.notice("Closed", f"{count(len(left), 'alert')} closed.{back}"))


async def _ask_to_reopen(context: Context, group: AlertGroup, _intent: Intent) -> None:
    """Say which alerts would be open again."""
    responses.require_permission(context, "manageAlert")
    await responses.open_view(context, modals.loading(close_views.REOPEN), "Choose *Reopen all* again.")
    views_ = [RedactedView(Subject.alert(alert), own_clearance(context)) for alert in await _closed(context, group.key)]
    none = modals.notice(close_views.REOPEN, "All that you may see of them are open or in a case.")
    await context.show_modal(close_views.reopen_all_view(group.key, views_) if views_ else none)


async def on_reopen_all_view(context: Context) -> Json:
    """Open all closed alerts of the group again, as far as this person may see them."""
    responses.require_permission(context, "manageAlert")
    closed = await _closed(context, metadata_text(context))
    for some in _parts([alert.id for alert in closed]):
        await context.core.reopen_alerts(some)
    return modals.update(modals.notice("Reopened", f"{count(len(closed), 'alert')} open again."))


async def _closed(context: Context, key: str) -> list[Alert]:
    """The alerts of a group that somebody has closed, worst first."""
    return [alert for alert in await _alerts(context, key) if alert.status == "Ignored"]


def _parts(alert_ids: Sequence[str]) -> list[Sequence[str]]:
    """As many at once as a request may change."""
    return [alert_ids[start : start + CHANGED_AT_ONCE] for start in range(0, len(alert_ids), CHANGED_AT_ONCE)]


async def _ask_to_make_case(context: Context, key: str) -> None:
    """Say which alerts would go into one case, and into which."""
    responses.require_permission(context, "manageCase")
    await responses.open_view(context, modals.loading(cases.ONE), f"Choose *{cases.ONE}* again.")
    case, alerts = await _for_case(context, key)
    to_merge = [RedactedView(Subject.alert(alert), own_clearance(context)) for alert in alerts]
    what = sections(views.become_case(key, to_merge, case)) if alerts else []
    none = modals.notice(cases.ONE, "All that you may see of them are in a case already.")
    await context.show_modal(modals.ask(cases.ONE, ids.GROUP_CASE_VIEW, key, what) if alerts else none)


async def on_case_several_button(context: Context) -> None:
    """Likewise of the alerts that were chosen."""
    await _ask_to_make_case(context, _chosen(context))


async def on_make_case_view(context: Context) -> Json:
    """Make a case of the worst alert unless there is one, and merge the others into it; all of a group, or one."""
    responses.require_permission(context, "manageCase")
    into, _, key = metadata_text(context).rpartition(">")
    case, alerts = await _for_case(context, key)
    case_id = into or (case.id if case else "")
    others = [alert.id for alert in alerts]
    if others and not case_id:
        case_id = (await context.core.create_case_from_alert(others.pop(0))).id
    for some in _parts(others):
        await context.core.merge_alerts(some, case_id)
    one = runs.named(RedactedView(Subject.alert(alerts[0]), own_clearance(context))) if len(alerts) == 1 else ""
    went = f"{one or count(len(alerts), 'alert')} went into case {case_id}."
    render = partial(cases.made, went, case_id)
    made = await responses.with_buttons(context, f"made:{case_id}", render)
    return modals.update(modals.message_view("Done", made))


async def _for_case(context: Context, key: str) -> tuple[Case | None, list[Alert]]:
    """The open case of the worst alert of the group that is in one, and those that are in none, worst first."""
    alerts = await _alerts(context, key)
    if len(alerts) > CASE_LIMIT:
        limit = f"One case takes at most {CASE_LIMIT:,} alerts here."
        raise ResponderBotError("bad_request", f"{limit} Nothing was changed; make a case of those that matter.")
    if not alerts:
        raise ResponderBotError("forbidden", NONE_VISIBLE)
    ids_ = list(dict.fromkeys(alert.case for alert in alerts if alert.case))
    query = {"_and": [{"_in": {"_field": "_id", "_values": ids_}}, {"status": "Open"}]}
    found = {case.id: case for case in await context.core.search(Case, "/api/case/_search", query)} if ids_ else {}
    return next(filter(None, map(found.get, ids_)), None), [alert for alert in alerts if not alert.case]


async def _ask_to_mute(context: Context, group: AlertGroup, _intent: Intent) -> None:
    """Say what muting does, within the clearance of the channel, and ask for how long."""
    clearance = context.services.clearance(group.channel) or CLEAR
    view = views.mute_view(await context.services.outbox.alert_groups.content(group, clearance))
    await responses.open_view(context, view, f"Choose *{views.MUTE} ...* again.")


async def on_mute_view(context: Context) -> Json | None:
    """Mute the group."""
    now, hours = context.services.clock_ms(), modals.values(view_of(context)).get("mute", "")
    until = now + int(hours) * HOUR_MS if hours in ("1", "8") else until_morning(now)
    await _mute(context, metadata_text(context), until)
    return None


async def _unmute(context: Context, group: AlertGroup, _intent: Intent) -> None:
    await _mute(context, group.key, 0)
    await responses.respond(context, notices.notice("Alerts like these are no longer muted."), "Unmuted")


async def _mute(context: Context, key: str, until: int) -> None:
    await context.services.outbox.alert_groups.mute(key, until, context.person.login)
    context.refresh_requests.append(RefreshRequest(key))


def until_morning(now_ms: int) -> int:
    """The next MORNING (ms), also if summer time begins or ends before."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().replace(tzinfo=None)  # else it keeps its offset
    morning = now.replace(hour=MORNING, minute=0, second=0, microsecond=0)
    return int((morning if morning > now else morning + timedelta(days=1)).timestamp() * 1000)


async def _alerts(context: Context, key: str) -> list[Alert]:
    """The alerts of a group (worst first), or with these ids, that this person may see."""
    clearance = own_clearance(context)
    return [alert async for alert, _ in _all(context, key) if may_see(clearance, alert.tlp)]


async def _all(context: Context, key: str) -> AsyncIterator[tuple[Alert, Document]]:
    """Likewise, also those that they may not see."""
    async for alert_ids in _pages(context, key):
        documents = await _documents(context, alert_ids)
        for document in filter(None, map(documents.get, alert_ids)):
            if document.alert is not None:
                yield document.alert, document


async def _pages(context: Context, key: str) -> AsyncIterator[Sequence[str]]:
    if key.startswith("~"):
        yield key.split()
        return
    groups, offset = context.services.outbox.alert_groups, 0
    while members := await groups.members(key, offset, READ_AT_ONCE):
        offset += len(members)
        yield [member.root_id for member in members]


async def _documents(context: Context, root_ids: Sequence[str]) -> Mapping[str, Document]:
    """The documents of these alerts by id, without those that core doesn't know any more."""
    return {document.id: document for document in await subjects.documents(context.core, root_ids)}


_HANDLERS: Mapping[str, Callable[[Context, AlertGroup, Intent], Awaitable[None]]] = {
    "group_alerts": _show_alerts,
    "group_run": _choose_responder,
    "group_read": _ask_to_close,
    "group_case": lambda context, group, _: _ask_to_make_case(context, group.key),
    "group_reopen": _ask_to_reopen,
    "group_mute": _ask_to_mute,
    "group_unmute": _unmute,
}

FEATURE = Feature(
    actions={
        ids.GROUP_ALERTS: Entry(on_group_button, modal_title="Alerts"),
        ids.GROUP_RUN: Entry(on_group_button, modal_title="Run on all"),
        ids.GROUP_READ: Entry(on_group_button, modal_title=close_views.ALL),
        ids.SEVERAL_ASSIGN: Entry(on_assign_several_button),
        ids.SEVERAL_CLOSE: Entry(on_close_several_button),
        ids.SEVERAL_CASE: Entry(on_case_several_button),
        ids.GROUP_MORE: Entry(on_group_button, Ack.WRITE),
        ids.GROUP_CARD: Entry(on_group_button, Ack.WRITE),
    },
    views={
        ids.CLOSE_ALL_VIEW: Entry(on_close_all_view, Ack.RESPONSE),
        ids.GROUP_CASE_VIEW: Entry(on_make_case_view, Ack.RESPONSE),
        ids.MUTE_VIEW: Entry(on_mute_view, Ack.RESPONSE),
        ids.REOPEN_VIEW: Entry(on_reopen_all_view, Ack.RESPONSE),
    },
)
