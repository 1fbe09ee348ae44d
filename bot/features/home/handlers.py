"""The App Home, published when it is opened and after what somebody does from it, and the lists over all alerts."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

from bot.block_kit import ids, modals, names, notices
from bot.block_kit.text import slack_date
from bot.clearance import SHARED, RedactedView, Subject, refanged
from bot.features import responses, subjects
from bot.features.alert_groups.views import storm_sentence
from bot.features.approvals import views as approvals
from bot.features.authorization import not_linked, own_clearance, why_not_run
from bot.features.base import Ack, Command, Context, Entry, Feature, Handler, Json
from bot.features.bulks.handlers import on_extend_all, on_undo_all
from bot.features.command_text import find_ids, normalize
from bot.features.home import views
from bot.features.home.views import Home, HomeAlert, HomeAlerts, HomeRun
from bot.features.payload import metadata_text, typed_reason
from bot.features.retries import answered
from bot.features.runs.views import runs, undo_state
from bot.features.runs.views.runs import heading
from core.client import ListedState
from core.common.clock import DAY_MS
from core.common.errors import ResponderBotError
from core.models import Action, BulkCounts, Measure, Person, SlackUsers

MANY = 500
LOOK_EVERY_S, FOLLOWED_S, SHARE = 3, 300, 20
PENDING, FAILED, MINE, OPEN = "Approvals", "Failed", "My runs", "Open alerts"  # the titles of modals
UNKNOWN = "The responder service stopped answering: see on the card whether it is marked before you mark it again."


async def on_home_opened(_context: Context) -> None:
    """The dispatcher has it published and followed, as after each act there."""


async def publish_and_follow(context: Context) -> None:
    """Publish this person's Home, and for FOLLOWED_S again whenever the bot has heard of something new from core.

    Takes at most one part in SHARE of the time, as there is much to read in a storm.
    """
    until = monotonic() + FOLLOWED_S
    while True:
        heard, at = await context.services.outbox.cursor(), monotonic()
        await context.services.slack.views_publish(user_id=context.user, view=await _view(context))
        if context.linked is None:
            return
        pause, now = max(LOOK_EVERY_S, SHARE * (monotonic() - at)), heard
        while now == heard:
            await asyncio.sleep(pause)
            if monotonic() > until:
                return
            now = await context.services.outbox.cursor()
        context = replace(context, linked=await context.core.current_user())


async def _view(context: Context) -> dict[str, Any]:
    person = context.linked
    if context.core_problem:
        return views.notice_home(f"{context.core_problem} {views.AGAIN}")
    if person is None:
        return views.notice_home(not_linked(context).text)
    try:
        shown = await _home(context, person)
        in_force = await context.core.measures()
        first = in_force[: views.MAX_IN_HOME]
        of_measures = await runs_of(context, first)
    except ResponderBotError as error:
        return views.notice_home(notices.error(f"{notices.sentence(error)} {views.AGAIN}").text)

    render = partial(views.home_view, shown, person, in_force=of_measures, total=len(in_force))
    return await responses.with_buttons(context, "home", render)


async def _home(context: Context, person: Person) -> Home:
    core, login = context.core, person.login
    waiting, opened, failed, ended, alerts, unassigned = await asyncio.gather(
        core.newest_actions("waiting", limit=MANY),
        core.newest_actions("open", by=login, limit=MANY),
        core.newest_actions("failed", by=login, since=context.services.clock_ms() - DAY_MS, limit=MANY),
        core.newest_actions("ended", by=login, limit=MANY),
        _own(context, login),
        _open_alerts(context, "", views.MAX_UNASSIGNED),
    )
    ended = [a for a in ended if runs.state_of(a) not in runs.WORTH_REPEATING and not undo_state.is_in_force(a)]
    lines = list(dict.fromkeys(action.bulk or action.id for action in ended))[: views.MAX_SHOWN]
    ended = [action for action in ended if (action.bulk or action.id) in lines]
    parts = (waiting if "manageAction" in person.permissions else [], opened, failed, ended)
    in_order = [runs.newest_first(part) for part in parts]
    runs_found = await FoundRuns.of(context, [a for part in in_order for a in part])
    to_approve = views.by_bulk(runs_found.to_decide(person, in_order[0]), is_by_request=True)
    shown = [views.by_bulk(sorted(map(runs_found.run, part), key=views.urgency)) for part in in_order[1:]]
    found = await context.services.outbox.storms()
    storms = [(storm.channel, storm_sentence(storm, slack_date(storm.since))) for storm in found]
    running, failed_runs, recent = shown
    refused = await why_not_run(context)
    at = context.services.clock_ms()
    return Home(to_approve, alerts, unassigned, running, failed_runs, recent, storms, refused, at)


async def _own(context: Context, login: str) -> HomeAlerts:
    """The open alerts and cases of this person, the most severe first."""
    alerts, cases = await asyncio.gather(_open_alerts(context, login, views.MAX_SHOWN), context.core.open_cases(login))
    links = await subjects.card_links(context, [case.id for case in cases])
    found = await subjects.documents(context.core, links)
    read = [(Subject.in_documents(found, case.id), case) for case in cases]
    of_cases = [HomeAlert(subject, case.created_at, links[case.id]) for subject, case in read if subject is not None]
    shown = sorted([*alerts.shown, *of_cases], key=lambda one: one.subject.severity, reverse=True)
    return HomeAlerts(shown[: views.MAX_SHOWN], alerts.counts + Counter(case.severity for case in cases))


async def _open_alerts(context: Context, assignee: str, most: int) -> HomeAlerts:
    """The first lines of the open alerts of somebody, or with "" of nobody, that this person may see.

    The most severe come first; those of a group share a line. Critical ones and groups get a few lines more.
    """
    alerts = await context.core.open_alerts(assignee)
    lines = await subjects.by_group(context, alerts)
    some = [key for n, (key, of) in enumerate(lines.items()) if n < most or len(of) > 1 or of[0].severity == 4]
    firsts = {lines[key][0].id: key for key in some[: 2 * most]}
    links, read = await subjects.card_links(context, list(firsts)), dict[str, HomeAlert]()
    of_one_title = await context.services.outbox.alert_groups.of_one_title(firsts.values(), context.person.clearance)
    for document in await subjects.documents(context.core, firsts):
        subject = Subject.in_document(document, document.id)
        if document.alert is not None and subject is not None:
            key = firsts[document.id]
            counts = Counter(alert.severity for alert in lines[key])
            at, link, same = document.alert.date, links[document.id], key in of_one_title
            read[document.id] = HomeAlert(subject, at, link, bool(assignee), key, counts, same)
    return HomeAlerts([read[one] for one in firsts if one in read], Counter(one.severity for one in alerts))


async def on_open_alerts_button(context: Context) -> None:
    """List the open alerts of nobody, the most severe first."""
    listed = partial(views.open_alerts, await _open_alerts(context, "", views.MAX_LINES), context.person)
    await responses.show_with_buttons(context, OPEN, "open", listed)


# --- `/responder failed`, `mine` and `pending` ----------------------------------------------------------------------


async def on_failed_command(context: Context) -> None:
    """List everybody's runs that failed in the last day, as far as this person may see what they ran on."""
    since = context.services.clock_ms() - DAY_MS
    failed = await context.core.newest_actions("failed", since=since, limit=MANY)
    await _show(context, "failed", FAILED, "Failed or expired in the last day", runs.newest_first(failed))


async def on_mine_command(context: Context) -> None:
    """List what runs for this person, then what is in force, then the newest that have ended."""
    core, by = context.core, context.person.login
    states: Sequence[ListedState] = ("open", "active", "ended")
    found = await asyncio.gather(*(core.newest_actions(state, by=by, limit=MANY) for state in states))
    listed = {action.id: action for part in found for action in runs.newest_first(part)}
    await _show(context, "mine", MINE, "Your runs", list(listed.values()))


async def on_pending_command(context: Context) -> None:
    """List the requests for approval: those that this person decides, and others that they may see."""
    person = context.person
    waiting = runs.newest_first(await context.core.newest_actions("waiting", limit=MANY))
    listed = await FoundRuns.of(context, waiting)
    shown, hidden = _visible([listed.run(action) for action in waiting], person)
    to_decide = listed.to_decide(person, waiting)
    decided = {run.action.id for run in to_decide}
    others = views.by_bulk([run for run in shown if run.action.id not in decided], is_by_request=True)
    own = views.by_bulk(to_decide, is_by_request=True)
    pending = partial(views.pending, own, others, person, hidden=hidden)
    await responses.show_with_buttons(context, PENDING, "pending", pending)


async def _show(context: Context, verb: str, modal_title: str, title: str, actions: Sequence[Action]) -> None:
    person = context.person
    listed = await FoundRuns.of(context, actions)
    shown, hidden = _visible([listed.run(action) for action in actions], person)
    run_list = partial(views.run_list, title, views.by_bulk(shown), person, hidden=hidden, is_all=len(actions) < MANY)
    await responses.show_with_buttons(context, modal_title, verb, run_list)


def _visible(listed: Sequence[HomeRun], person: Person) -> tuple[list[HomeRun], int]:
    """Those whose object this person may see, the most urgent first, and how many others there are."""
    shown = [run for run in listed if RedactedView(run.subject, person.clearance).is_open]
    return sorted(shown, key=views.urgency), len(listed) - len(shown)


# --- `/responder active`: what is in force, with Undo, Extend and Mark as ended -------------------------------------


async def on_active_command(context: Context) -> None:
    """List what is in force, on a target or of an alert, a case, a run or a bulk if one is typed."""
    typed = normalize(context.text)
    ids_ = find_ids(typed)
    text, measures, ignored = await _in_force(context, typed, ids_)
    found = await runs_of(context, measures[: views.MAX_LISTED])
    if (ids_ or not text) and context.services.clearance(context.channel) != SHARED:  # of a target nobody hears more
        known = {run_id for one in measures for run_id in one.actions}
        above = [one for one in await context.services.core.measures(of=ids_) if known.isdisjoint(one.actions)]
        found += await runs_of(replace(context, core=context.services.core), above[: views.MAX_LISTED])
    named = await _named(context, ids_, measures)
    active = partial(views.in_force_list, found, context.person, text, total=len(measures))
    active = partial(active, ignored=" ".join(ignored), named=named)
    await responses.show_with_buttons(context, "In force", f"active:{text[: views.TEXT_LIMIT]}", active)


def _or_all_of(on_bulk: Handler) -> Handler:
    """What a command does that ends or extends: of a bulk in force what its button does, else list what is."""

    async def on_command(context: Context) -> None:
        ids_ = find_ids(normalize(context.text))
        bulks = (await context.core.documents(ids_)).bulks if len(ids_) == 1 else []
        is_bulk = any(bulk.id in ids_ and (bulk.timed or bulk.endless or bulk.not_released) for bulk in bulks)
        await (on_bulk if is_bulk else on_active_command)(context)

    return on_command


async def _in_force(context: Context, typed: str, ids: Sequence[str]) -> tuple[str, Sequence[Measure], Sequence[str]]:
    """What was looked for, what is in force of it, and the words that say nothing."""
    if ids:
        ignored = [word for word in typed.split() if not find_ids(word)]
        return " ".join(ids), await context.core.measures(target=",".join(ids)), ignored
    measures = await context.core.measures(target=typed)
    return (typed, measures, []) if measures or not typed else await _by_parts(context, typed)


async def _by_parts(context: Context, typed: str) -> tuple[str, Sequence[Measure], Sequence[str]]:
    """Likewise where each word may be a part of a target's name."""
    every = await context.core.measures()
    having = {word: _with_part(word, every) for word in typed.split()}
    parts = [word for word, of in having.items() if of]
    if not parts:
        return typed, [], []
    found = [one for one in every if any(one.id in of for of in having.values())]
    return f"names that have {' or '.join(parts)}", found, [word for word in having if word not in parts]


async def _named(context: Context, ids: Sequence[str], measures: Sequence[Measure]) -> list[HomeRun]:
    """The bulks with these ids, and those runs that are in none of these measures."""
    counts = (await context.core.documents(ids)).bulks if ids else []
    bulks = await asyncio.gather(*(context.core.bulk(bulk.id) for bulk in counts if bulk.id in ids))
    wanted = {*ids, *(one.action_id for bulk in bulks for one in bulk.own_targets)}
    documents = await subjects.documents(context.core, filter(None, wanted))
    actions = [action for one in documents for action in one.actions if action.id in wanted]
    listed = await FoundRuns.of(context, actions)
    told = {run_id for one in measures for run_id in one.actions}
    visible, _ = _visible([listed.run(action) for action in actions], context.person)
    found = [replace(run, is_typed=run.action.bulk in ids) for run in views.by_bulk(visible)]
    return [run for run in found if run.in_place or run.action.id not in told]


def _with_part(part: str, measures: Sequence[Measure]) -> set[str]:
    """The ids of those that are on something with this in its name."""
    plain = refanged(part).casefold()
    return {one.id for one in measures if any(plain in on.data.casefold() for on in one.target or ())}


async def runs_of(context: Context, measures: Sequence[Measure]) -> list[HomeRun]:
    """Of each measure the run that decides when it ends, as far as that is on its target."""
    decisive = await asyncio.gather(*(context.core.action(measure.actions[-1]) for measure in measures))
    found, shown = await FoundRuns.of(context, decisive), list[HomeRun]()
    for action, measure in zip(decisive, measures, strict=True):
        ids_, run = [one.id for one in measure.target or ()], found.run(action)
        parts = undo_state.in_force_by_target(run.action)
        part, id_ = next((one for one in parts if [on.id for on in one[0].target or ()] == ids_), (run.action, ""))
        titles = " and ".join(dict.fromkeys(one.title for one in (measure, *measure.others)))
        roots = list(dict.fromkeys(one.root_id for one in measure.others if one.root_id != measure.root_id))
        again = [undo_state.also(one, run.subject) for one in measure.others[::-1] if one.root_id == measure.root_id]
        also = f"{undo_state.also_for(roots)}{''.join(f', {one}' for one in again)}".replace(", ", " · ", 1)
        of_all = part.model_copy(update={"responder_title": titles, "already": []})  # which names one of the others
        shown.append(replace(run, action=of_all, part=id_, also=also))
    return shown


async def on_mark_ended_button(context: Context) -> None:
    """Ask how somebody knows that it has ended."""
    intent = await responses.clicked_intent(context)
    action, view = await subjects.visible_run(context, intent.object_id)
    by_id = {id_: one for one, id_ in undo_state.in_force_by_target(action)}
    await context.show_modal(views.mark_ended_view(by_id.get(intent.argument, action), view, intent.argument))


async def on_mark_ended_view(context: Context) -> Json:
    """Mark it as ended. Core refuses whoever may not, and what is only starting or being undone."""
    action_id, _, part = metadata_text(context).partition(" ")
    if not (reason := typed_reason(context)):
        return modals.errors({"reason": "Say how you know, for whoever reads it later."})
    await answered(context.core.end_measure(part or action_id, reason), UNKNOWN)
    action, subject = await subjects.of_action(context.core, await context.core.action(action_id))
    await responses.refresh_cards(context, subject)
    shown = RedactedView(subject, own_clearance(context))
    return modals.update(modals.message_view("Done", notices.notice(f"{heading(action, shown)} is marked as ended.")))


# --- runs that a search found, with what is shown beside them: what they ran on, the titles, the card ----


@dataclass(frozen=True)
class FoundRuns:
    """What actions ran on, as core shows it in one answer, or in a few where that is much."""

    links: Mapping[str, str]  # by root, to its card
    subjects: Mapping[str, Subject]  # by action
    titled: Mapping[str, Action]  # by id: the same with the titles of responder and inputs
    deciders: Mapping[str, Sequence[SlackUsers]]  # by action that waits: who may decide, at most ten
    bulks: Mapping[str, BulkCounts]

    @staticmethod
    async def of(context: Context, actions: Sequence[Action]) -> "FoundRuns":
        """Read the documents of these actions."""
        ids = {one: None for action in actions for one in (action.id, action.bulk) if one}
        pages = [page async for page in context.core.documents_in_pages(ids)]
        documents = [document for page in pages for document in page.documents]
        bulks = {bulk.id: bulk for page in pages for bulk in page.bulks}
        by_action = {action.id: [document] for document in documents for action in document.actions}
        subjects_by_action = {one.id: Subject.of_action(one, *by_action.get(one.id, ())) for one in actions}
        titled = {action.id: action for document in documents for action in document.actions}
        deciders = {id_: may_decide for document in documents for id_, may_decide in document.may_decide.items()}
        links = await subjects.card_links(context, list({one.root_id for one in subjects_by_action.values()}))
        return FoundRuns(links, subjects_by_action, titled, deciders, bulks)

    def run(self, action: Action) -> HomeRun:
        """The action with what is shown beside it."""
        subject = self.subjects[action.id]
        titled = names.titled_as(action, self.titled.get(action.id))
        return HomeRun(titled, subject, self.links[subject.root_id], self.bulks.get(action.bulk or ""))

    def to_decide(self, person: Person, actions: Sequence[Action]) -> list[HomeRun]:
        """Those of these that this person may approve or deny, or whose later end.

        The most severe come first, and of these what has to be answered first.
        """
        able = list[HomeRun]()
        for run, later in ((self.run(action), undo_state.later_end(action)) for action in actions):
            approval, deciders = (later or run.action).approval, self.deciders.get(run.action.id, ())
            is_named = len(deciders) >= undo_state.MOST_DECIDERS or person.login in {one.login for one in deciders}
            if approval is not None and is_named and approvals.may_decide(run.action, person, run.subject, later):
                able.append(run)
        return sorted(able, key=views.urgency)


_ACTIVE = Entry(on_active_command, modal_title="In force")
_UNDO, _EXTEND = (Entry(_or_all_of(one), modal_title="In force") for one in (on_undo_all, on_extend_all))
_PENDING = Entry(on_pending_command, modal_title=PENDING)

FEATURE = Feature(
    commands={
        "pending": Command(_PENDING, "pending", "what waits, with *Review*"),
        "failed": Command(Entry(on_failed_command, modal_title=FAILED), "failed", "what failed in the last day"),
        "mine": Command(Entry(on_mine_command, modal_title=MINE), "mine", "what you started, and how it went"),
        "active": Command(_ACTIVE, "active [host]", "what is in force now, and until when; so does `status`"),
        "undo": Command(_UNDO, "undo [host]", "end what is in force, after you confirm it", "manageAction"),
        "extend": Command(_EXTEND, "extend [host]", "give what is in force more time", "manageAction"),
    },
    actions={
        ids.MARK_ENDED: Entry(on_mark_ended_button, modal_title="Mark as ended"),
        ids.PENDING: _PENDING,
        ids.OPEN_ALERTS: Entry(on_open_alerts_button, modal_title=OPEN),
    },
    views={ids.MARK_ENDED_VIEW: Entry(on_mark_ended_view, Ack.RESPONSE)},
    events={"app_home_opened": Entry(on_home_opened, is_public=True, works_without_core=True)},
)
