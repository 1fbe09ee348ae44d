"""Renders the messages of an alert or a case from a document of core's."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import structlog

from bot.block_kit import ids, notices
from bot.block_kit.elements import to_read
from bot.block_kit.names import titled_as
from bot.block_kit.text import mentions
from bot.clearance import SHARED, RedactedView, Subject
from bot.features.alerts.views import replies
from bot.features.alerts.views.card import alert_card
from bot.features.alerts.views.case_card import MOST_COUNTED, case_card
from bot.features.approvals import views as approvals
from bot.features.runs.views import runs, undo_state
from bot.features.undos import views as undos
from bot.message import Block, ButtonIds, Message
from bot.notifier.asking import LATELY_MS, Asking, asked_in, urgency_of
from bot.notifier.isolation import CORE_UNAVAILABLE
from bot.notifier.requests import Asked, Request
from bot.notifier.timeline import ChannelAccess, Thread, Timeline
from bot.outbox.errors import SLACK_FAILURES, classify
from bot.outbox.links import card_link
from bot.outbox.models import BULK_UNDONE, LOG, LOST, DesiredMessage, MessageRecord, card_key, case_key, is_person
from bot.outbox.outbox import MessageOutbox
from core.common.errors import ResponderBotError
from core.common.grouping import grouped
from core.models import (
    OBJECT_TYPES,
    OPEN_STATUSES,
    Action,
    Alert,
    Case,
    Document,
    Extension,
    Person,
    Policy,
)

if TYPE_CHECKING:
    from core.client import CoreClient


log = structlog.get_logger("bot.notifier")

AGAIN = ":again"  # ends the key of what asks somebody once more


class Render(Protocol):
    """The content of a message for one clearance."""

    def __call__(self, *, clearance: int, button: ButtonIds) -> Message: ...


class Renderer:
    """Renders, and writes nothing. Asks core only for reports that a document has shortened, and for people."""

    def __init__(
        self,
        core: "CoreClient",
        outbox: MessageOutbox,
        access: ChannelAccess,
        clock_ms: Callable[[], int],
    ) -> None:
        self._core = core
        self._outbox = outbox
        self._access = access
        self._clock = clock_ms

    # --- where to ---------------------------------------------------------------------------------------------------

    async def timeline(
        self, document: Document, unstored: Iterable[DesiredMessage] = (), *, is_new: bool = False
    ) -> Timeline:
        """The root with the threads of its cards, and for a new alert also of those that the settings ask for.

        `unstored` are messages that will be stored together with those of the timeline, cards among them.
        """
        new = [message for message in unstored if not message.thread_of and not is_person(message.channel)]
        if document.alert is not None:
            alert, threads = document.alert, await self._threads(document.id, new)
            channels = self._routed(alert, alert.source, alert.type) if is_new else []
            threads += [Thread(channel, card_key(alert.id, channel)) for channel in channels]
            return Timeline(document, list(dict.fromkeys(threads)))
        of_alerts = [thread for alert_id in document.alert_ids for thread in await self._threads(alert_id, new)]
        return Timeline(document, of_alerts or await self._threads(document.id, new))

    async def _threads(self, root_id: str, unstored: Iterable[DesiredMessage] = ()) -> list[Thread]:
        stored = [Thread(card.channel, card.key) for card in await self._outbox.cards(root_id)]
        new = [Thread(card.channel, card.key) for card in unstored if card.root_id == root_id]
        return list(dict.fromkeys([*stored, *new]))

    def _routed(self, root: Alert | Case, source: str = "", type: str = "") -> list[str]:
        """The channels for a new alert, or for a case without one, which has no source and type."""
        return [
            channel
            for channel, route in self._access.routes.items()
            if route.matches(severity=root.severity, source=source, type=type, tags=root.tags)
            and self._access.takes(channel, root.tlp)
        ]

    async def clearance(self, channel: str, key: str) -> int:
        """The clearance of a channel, or of the person that gets the message with this key."""
        if not is_person(channel):
            return self._access.clearance_of(channel)
        team = key.split(":")[2]  # ask:<action>:<team>:<user>:..., told:<action>:<team>:<user>
        person = await self._access.person(team, channel)
        return person.clearance if person else 0

    # --- messages ---------------------------------------------------------------------------------------------------

    async def alert_cards(self, timeline: Timeline, *, is_progress: bool = False) -> list[DesiredMessage]:
        """The card of an alert in each channel, with the runs on it and its artifacts; none for a case."""
        alert = timeline.alert
        if alert is None:
            return []
        document, actions = timeline.document, timeline.document.actions
        total = max(sum(document.action_counts.values()), len(actions))  # on it and its artifacts
        subject = Subject.in_document(document, alert.id) or Subject.alert(alert)
        held = document.already.get(alert.id, ())
        render = partial(alert_card, alert, actions, total=total, subject=subject, held=held)
        cards = [
            await self.message(thread.key, self._view(subject, thread.channel), thread.channel, render)
            for thread in timeline.threads
        ]
        return [replace(card, root_id=alert.id, is_progress=is_progress) for card in cards]

    async def case_cards(self, timeline: Timeline) -> list[DesiredMessage]:
        """The card of a case in one thread of each channel; without any, in its channels, where it begins the thread.

        None for an alert.
        """
        case, document = timeline.case, timeline.document
        if case is None:
            return []
        timeline.threads = timeline.threads or [Thread(c, case_key(case.id, c)) for c in self._routed(case)]
        if not timeline.threads:
            return []
        tasks, alerts = await self._core.tasks_of(case.id, MOST_COUNTED + 1), await self._core.alerts_of(document)
        subject = Subject.in_documents([document, *alerts], case.id) or Subject.case(case)
        render, desired = partial(case_card, case, document, tasks, alerts), list[DesiredMessage]()
        for thread in {thread.channel: thread for thread in reversed(timeline.threads)}.values():
            key = case_key(case.id, thread.channel)
            card = await self.message(key, self._view(subject, thread.channel), thread.channel, render)
            root = "" if thread.key == key else thread.key
            desired.append(replace(card, thread_of=root, root_id=case.id))
        return desired

    def mention(self, key: str, timeline: Timeline, counted: int) -> list[DesiredMessage]:
        """What tells in one thread whoever is to know of a new alert, or of so many, with it as the newest."""
        alert, (thread,) = timeline.alert, timeline.threads
        if alert is None:
            return []
        channel, view = thread.channel, self._view(Subject.alert(alert), thread.channel)
        severity = int(key.split(":")[2]) if counted else alert.severity
        who = mentions(filter(None, [self._access.mentions.get(channel, {}).get(severity)]))
        content = replace(replies.mention_reply(view, who, counted, severity), is_broadcast=counted > 0)
        told = DesiredMessage(key, channel, content, thread_of=thread.key, root_id=alert.id, view=view)
        return [replace(told, counted=counted)]

    async def lost(self, key: str, timeline: Timeline) -> list[DesiredMessage]:
        """What tells who worked on an alert that somebody else took it; the key ends with their login."""
        _, _, team, user, _, by = key.split(":", 5)
        person = await self.recipient(team, user)
        if person is None or timeline.alert is None:
            return []
        view = RedactedView(Subject.alert(timeline.alert), person.clearance)
        return [DesiredMessage(key, user, replies.lost(view, by), root_id=timeline.root_id, view=view)]

    async def log_cards(self, log_id: str, timeline: Timeline) -> list[DesiredMessage]:
        """The card of a task log in each thread."""
        log = next((log for log in timeline.document.logs if log.id == log_id), None)
        case = timeline.case
        if log is None or case is None:
            return []
        actions = [action for action in timeline.document.actions if action.object_id == log_id]
        subject = Subject.in_document(timeline.document, log_id) or Subject.log(log, case)
        render = partial(replies.task_log_card, log, actions, subject)
        return await self._in_threads(f"{LOG}:{log.id}", render, subject, timeline)

    async def action_messages(
        self, action: Action, timeline: Timeline, asking: Asking, *, has_ended: bool
    ) -> list[DesiredMessage]:
        """What an action's events change besides its alert's card: approval requests, end replies, direct messages."""
        subject = timeline.target(action)
        desired: list[DesiredMessage] = []
        if action.object_type == "Log":
            on_log = await self.log_cards(action.object_id, timeline)
            desired += [replace(card, is_progress=not has_ended) for card in on_log]
        desired += await self.requests(action, timeline, asking)
        if action.bulk:  # which has messages of its own
            pass
        elif has_ended and action.status not in OPEN_STATUSES:
            action = await self._whole(action, timeline)
            if not timeline.is_in_bulk(action):
                if not runs.was_decided_against(action):  # which its request in the thread says
                    desired += await self._end_replies(action, subject, timeline)
                desired += await self._told(action, subject, timeline)
        elif action.undo is not None and action.undo.status is not None:
            desired += await self._undo_changed(action, subject, timeline)
        is_news = undos.has_news(action, timeline.document.actions)
        if is_news or await self._outbox.messages_named(f"measure:{action.id}:"):
            news = await self._measure_news(action, subject, timeline, asking.told)
            desired += [replace(reply, by_person=True) for reply in news]
        return desired

    async def bulk_destinations(
        self, run: Action, document: Document, new: Iterable[DesiredMessage]
    ) -> dict[str, float]:
        """Where the message of a bulk goes because of one of its runs, and how urgent that is there.

        While it waits for approval: the channels that show its object, and those who are asked to decide, people as
        `team:user`, user groups by their id. Of several later ends, asked for at once, those who are asked, with the id
        of that request: `team:request:user`. `new` are messages that will be stored together, cards among them.
        """
        timeline, destinations = await self.timeline(document, new), list[str]()
        if runs.awaits_approval(run):
            destinations += await self._channels_that_show(run, timeline)
            destinations += await self._who_decides(run, timeline)
        later = undo_state.later_end(run)
        if later is not None and later.request:
            destinations += await self._who_decides(run, timeline, later)
        able = [one for one in destinations if is_person(one.rpartition(":")[2])]
        return {one: urgency_of(timeline.target(run).severity, able) for one in destinations}

    async def _channels_that_show(self, run: Action, timeline: Timeline) -> list[str]:
        """The channels with a card of the timeline's root, or of a group that it is in, that may show the run."""
        by_root = await self._outbox.alert_groups.channel_alerts([timeline.root_id])
        grouped = [entry.channel for entry in by_root.get(timeline.root_id, ())]
        channels = filter(self._access.is_set_up, [*(thread.channel for thread in timeline.threads), *grouped])
        subject = timeline.target(run)
        return [channel for channel in dict.fromkeys(channels) if self._view(subject, channel).is_open]

    async def _who_decides(self, run: Action, timeline: Timeline, later: Extension | None = None) -> list[str]:
        """Who is asked about a run of a bulk, or its `later` end, as destinations: user groups, then people."""
        asked, request = self._asked(run, timeline), "" if later is None else f"{later.request}:"
        able = await self._able(asked, run, timeline.target(run), later)
        groups = [f"{request}{who}" for who in asked if who.startswith("S")]
        return [*groups, *(f"{self._access.team()}:{request}{who}" for who in able)]

    async def _undo_changed(self, action: Action, subject: Subject, timeline: Timeline) -> list[DesiredMessage]:
        """What tells how a run that has ended was undone since, or why not: what told its end, and what went wrong."""
        posted = {message.key for message in await self._outbox.messages_of_run(action.id)}
        whole = await self._whole(action, timeline)
        of_end = [*await self._end_replies(whole, subject, timeline), *await self._told(whole, subject, timeline)]
        problems = await self._undo_problems(action, subject, timeline)
        has_problem = undos.has_problem(action)
        return [
            *(message for message in of_end if message.key in posted),
            *(reply for reply in problems if has_problem or reply.key in posted),
            *await self._undone(action, timeline),
            *await self._moved(action, timeline),
        ]

    async def _undone(self, action: Action, timeline: Timeline) -> list[DesiredMessage]:
        """The direct messages to whoever asked for or approved what somebody else has undone: one for all of that."""
        link, desired = await self._link(timeline.root_id), list[DesiredMessage]()
        for (by_id, login), together in undone_by_others(timeline.document).items():
            by = timeline.action(by_id)
            if by is not None and together[0].id == action.id:
                undone = [(one, timeline.target(timeline.action(one.id) or one)) for one in together]
                render = partial(replies.undone, undone, by.created_by, login, link=link)
                of_all = len(together[0].target or ()) == len(action.target or ())
                suffix = "" if of_all else f":{by_id}"
                desired += await self._to_requester(f"undone:{action.id}", login, suffix, render, timeline)
        return desired

    async def _moved(self, action: Action, timeline: Timeline, at: str = "") -> list[DesiredMessage]:
        """The direct messages to whoever asked for or approved a run whose end somebody else moved, last or `at` once.

        Who approved that end, or asked for it, knows.
        """
        part, _ = undo_state.moved_last(action)
        changed, desired = part.undo.changed if part.undo is not None else None, list[DesiredMessage]()
        if changed is None:
            return []
        render = partial(replies.moved, part, timeline.target(action), changed, link=await self._link(timeline.root_id))
        knows = () if at else part.more_time_by
        for login in undo_state.notified(None if at else changed.by, part, is_end=False):
            if login not in knows:
                suffix = f":{at or changed.at}"
                desired += await self._to_requester(f"moved:{action.id}", login, suffix, render, timeline)
        return desired

    async def _undo_problems(self, action: Action, subject: Subject, timeline: Timeline) -> list[DesiredMessage]:
        """What tells threads, and while core is refused who asked for the run or approved it, that it wasn't undone."""
        logins = dict.fromkeys([*action.approved_by, action.created_by]) if undos.is_refused(action) else ()
        render = partial(undos.problem_reply, action, subject, await self._slack_ids(logins))
        return await self._in_threads(f"undo:{action.id}", render, subject, timeline)

    async def _slack_ids(self, logins: Iterable[str]) -> list[str]:
        """The ids in this workspace of those of these people who are linked to it."""
        found = [await self._core.slack_users(login) for login in logins]
        return [one for user in found for one in user.in_team(self._access.team())]

    async def told_of_undos(self, documents: Iterable[Document]) -> set[tuple[str, str]]:
        """Who hears in a direct message what a run has undone, by that run; that of a bulk notifies them once."""
        told = set[tuple[str, str]]()
        for document in documents:
            for about, undone in undone_by_others(document).items():
                bulks = [await self._outbox.messages_named(f"{BULK_UNDONE}:{one.bulk}:") for one in undone if one.bulk]
                told |= set() if any(bulks) else {about}
        return told

    async def _measure_news(
        self, action: Action, subject: Subject, timeline: Timeline, heard: set[tuple[str, str]]
    ) -> list[DesiredMessage]:
        """What tells threads, and who approved or asked for a run, that what it left was ended or is unknown.

        It mentions nobody who has `heard` of it already, by the run that undid it. Where no thread may show it, they
        get direct messages.
        """
        by = action.measure.ended_by if action.measure is not None else None
        by_run = (action.undo and action.undo.action_id) or action.id
        has_reason = action.measure is not None and bool(action.measure.message)
        concerned = undo_state.notified(by, action, has_reason=has_reason)
        logins = [login for login in concerned if (by_run, login) not in heard]
        heard.update((by_run, login) for login in logins)
        render, key = partial(undos.measure_reply, action, subject), f"measure:{action.id}"
        desired = await self._in_threads(key, partial(render, await self._slack_ids(logins)), subject, timeline)
        if not any(self._view(subject, thread.channel).is_open for thread in timeline.threads):
            for login in logins:
                desired += await self._to_requester(key, login, "", partial(render, ()), timeline)
        return desired

    # --- requests for approval --------------------------------------------------------------------------------------

    async def requests(self, action: Action, timeline: Timeline, asking: Asking) -> list[DesiredMessage]:
        """What asks to approve a run, or that it lasts longer: in its threads, and in direct messages."""
        extension = action.undo.extension if action.undo is not None else None
        desired = list[DesiredMessage]()
        if action.approval is not None and not action.bulk:
            whole = await self._whole(action, timeline)
            desired += await self._request(Request(whole, None, action.approval, timeline), asking)
        if extension is not None and not (action.bulk and extension.request):
            desired += await self._request(Request(action, extension, extension.approval, timeline), asking)
        return [*desired, *await self.replaced(action, timeline)]

    async def replaced(self, action: Action, timeline: Timeline) -> list[DesiredMessage]:
        """What asked for more time until the newest request took its place, and who did unless they asked again."""
        extension, desired = action.undo.extension if action.undo is not None else None, list[DesiredMessage]()
        if extension is None:
            return []
        request = Request(action, extension, extension.approval, timeline)
        render = partial(self._request_render(request), is_replaced=True)
        for one in await self._outbox.messages_of_run(action.id):
            kind, *of = one.key.removesuffix(AGAIN).split(":")
            about = of[3] if kind == "ask" else of[1] if kind == "extension" else action.id
            is_live = about == extension.replaces or ids.APPROVE in one.payload
            if about not in (action.id, extension.id) and is_live:
                view = RedactedView(timeline.target(action), await self.clearance(one.channel, one.key))
                edited = await self.message(one.key, view, one.channel, render)
                desired.append(replace(edited, thread_of=one.thread_of, root_id=timeline.root_id))
        if (by := extension.asked_before) and by != extension.asked_by:
            desired += await self._to_requester(f"told:{action.id}", by, f":{extension.replaces}", render, timeline)
        return desired

    async def _request(self, request: Request, asking: Asking) -> list[DesiredMessage]:
        """One request. When it is new, it notifies those who are asked; at half of the time, those who were."""
        posted = {message.key: message for message in await self._outbox.messages_of_run(request.action.id)}
        direct = {key for key in posted if key.startswith("ask:") and key.split(":")[4] == request.id}
        is_new = not direct and posted.keys().isdisjoint(request.threads)
        asked, reminders = Asked(), list[DesiredMessage]()
        if request.waits and is_new:
            asked = await self._ask(request, asking)
        elif request.waits and asking.is_reminder and self._clock() >= request.is_half_over_at:
            asked = await self._ask_again(request, direct, asking)
            for key, thread in request.threads.items():
                reminders += await self._remind(request, thread, posted.get(key), asking)
        readers = {key: await self.recipient(*key.split(":")[2:4]) for key in sorted(direct | asked.direct)}
        return [
            *await self._requests_in_threads(request, posted, asked, readers, asking),
            *[await self._direct_request(request, key, reader) for key, reader in readers.items()],
            *await self._told_of_end(request),
            *reminders,
            *await self._counts_without(request),
        ]

    async def _ask(self, request: Request, asking: Asking) -> Asked:
        """Ask those who are to decide a new request: in direct messages whoever could, in threads the others."""
        named, team = self._asked(request.action, request.timeline), self._access.team()
        able = await self._able(named, request.action, request.subject, request.extension)
        may_ask = self._may_ask(request, able, asking)
        notified = [who for who in named if await may_ask(who, team if who in able else "")]
        asking.remind(request.timeline.root_id, request.asked_at, request.approval.expires_at)
        direct = {f"ask:{request.action.id}:{team}:{who}:{request.id}" for who in notified if who in able}
        return Asked(direct, [who for who in notified if who not in able], is_for_channels=not named)

    async def _ask_again(self, request: Request, direct: Iterable[str], asking: Asking) -> Asked:
        """Ask those who got these direct messages once more, if they could still decide."""
        users = {key.split(":")[3]: key for key in direct if not key.endswith(AGAIN)}
        able = await self._able(users, request.action, request.subject, request.extension)
        may_ask = self._may_ask(request, able, asking)
        return Asked({users[user] + AGAIN for user in able if await may_ask(user, self._access.team())})

    def _may_ask(self, request: Request, able: Sequence[str], asking: Asking) -> Callable[..., Awaitable[bool]]:
        # A message that counts requests can show a run, but not more time.
        run = (request.timeline.root_id, request.action.id) if request.extension is None else ("", "")
        return partial(asking.may_ask, urgency=urgency_of(request.subject.severity, able), run=run)

    async def _requests_in_threads(
        self,
        request: Request,
        posted: Mapping[str, MessageRecord],
        asked: Asked,
        readers: Mapping[str, Person | None],
        asking: Asking,
    ) -> list[DesiredMessage]:
        """The request in its threads, with who is mentioned there and the names of who has a direct message."""
        render = self._request_render(request)
        files = [partial(approvals.whole_request, request.action, request.subject)] if request.extension is None else []
        named = sorted({reader.login for reader in readers.values() if reader is not None})
        again = sorted({one.login for key, one in readers.items() if one is not None and key.endswith(AGAIN)})
        reminded = approvals.reminded(again, is_answered=bool(request.approval.approved_by))
        desired = list[DesiredMessage]()
        for key, thread in request.threads.items():
            record = posted.get(key)
            if record is None and request.extension is not None and not request.waits:
                continue
            mentioned, is_broadcast = await self._mentioned(request, thread.channel, record, asked, asking)
            who = f"{mentions(mentioned)} {reminded}" if reminded else mentions(mentioned, named)
            shown = partial(render, who=who if request.waits else "", is_broadcast=is_broadcast)
            here = replace(request.timeline, threads=[thread])
            desired += await self._in_threads(request.key, shown, request.subject, here, *files)
        return desired

    async def _mentioned(
        self, request: Request, channel: str, record: MessageRecord | None, asked: Asked, asking: Asking
    ) -> tuple[Sequence[str], bool]:
        """The Slack ids that a request mentions in a channel, and whether it is shown outside of its thread too."""
        if record is not None:
            return asked_in(record), _is_broadcast(record)
        if not asked.is_for_channels or not self._view(request.subject, channel).is_open:
            return asked.mentioned, False
        if not await asking.may_ask(channel, urgency=request.subject.severity):
            return [], False
        return self._access.mention(channel, request.subject.severity), True

    async def _told_of_end(self, request: Request) -> list[DesiredMessage]:
        """What tells who asked for more time how somebody else has answered."""
        extension = request.extension
        if extension is None or extension.outcome in (None, "lapsed") or extension.ended_by == extension.asked_by:
            return []
        render, prefix = self._request_render(request), f"told:{request.action.id}"
        return await self._to_requester(prefix, extension.asked_by, f":{extension.id}", render, request.timeline)

    async def _counts_without(self, request: Request) -> list[DesiredMessage]:
        """What counts requests for somebody and may show this one as the worst, once it waits no more."""
        timeline = request.timeline
        roots = () if request.waits else (timeline.root_id, *timeline.document.alert_ids)
        posted = [one for root in roots for one in await self._outbox.messages_of(root)]
        counting = [one for one in posted if one.key.startswith("asks:")]
        return [one for record in counting for one in await self.again(record, timeline)]

    async def counted(self, key: str, number: int, document: Document | None, run_id: str) -> DesiredMessage:
        """The message that counts requests for somebody, with the worst as far as they may see and decide it."""
        _, since, team, user = key.split(":")
        content = partial(notices.counted, number, int(since), int(since) + LATELY_MS, self._access.command)
        timeline = None if document is None else await self.timeline(document)
        action = None if timeline is None else timeline.action(run_id)
        person = await self.recipient(team, user)
        if timeline is None or action is None or person is None:
            return DesiredMessage(key, user, content(), counted=number)
        if not (runs.awaits_approval(action) and approvals.may_decide(action, person, timeline.target(action))):
            return DesiredMessage(key, user, content(), counted=number)
        view, link = RedactedView(timeline.target(action), person.clearance), await self._link(timeline.root_id)

        def render(*, clearance: int, button: ButtonIds) -> Message:
            shown = approvals.request_line(action, replace(view, clearance=clearance), button=button, link=link)
            return content(approvals.push_text(action, view), [shown])

        return replace(await self.message(key, view, user, render), root_id=timeline.root_id, counted=number)

    async def _asked_again(self, message: MessageRecord, action: Action, here: Timeline) -> list[DesiredMessage]:
        kind, *_, about = message.key.removesuffix(AGAIN).split(":")
        if kind == "remind":
            return await self._reminders(action, message.key.split(":")[2], asked_in(message), here)
        if kind == "told" and about == message.channel:
            return await self._told(action, here.target(action), here)
        if kind == "undone":
            return await self._undone(action, here)
        if kind == "moved":
            return await self._moved(action, here, about)
        if kind == "measure":
            return await self._measure_news(action, here.target(action), here, set())
        return await self.requests(action, here, Asking(self._outbox, self._clock()))

    def _asked(self, action: Action, timeline: Timeline) -> list[str]:
        """The Slack ids of those who are asked to decide: as the settings say, or else whoever may, as core says."""
        policy = timeline.document.policies.get(action.responder_name, Policy())
        if policy.ask:
            return list(dict.fromkeys(policy.ask))
        may_decide = timeline.document.may_decide.get(action.id, ())
        return list(dict.fromkeys(one for who in may_decide for one in who.in_team(self._access.team())))

    async def _able(
        self, asked: Iterable[str], action: Action, subject: Subject, extension: Extension | None = None
    ) -> list[str]:
        """The people among them who could decide, and so get a direct message."""
        able = list[str]()
        for user in filter(is_person, asked):
            person = await self.recipient(self._access.team(), user)
            if person is not None and approvals.may_decide(action, person, subject, extension):
                able.append(user)
        return able

    async def _remind(
        self, request: Request, thread: Thread, record: MessageRecord | None, asking: Asking
    ) -> list[DesiredMessage]:
        """What mentions once more in a thread those of the request there who get no direct message."""
        groups = [who for who in asked_in(record) if not is_person(who)] if record is not None else []
        if not groups and not _is_broadcast(record):
            return []
        severity = request.subject.severity
        if not all([await asking.may_ask(who, urgency=severity) for who in groups or [thread.channel]]):
            return []
        here = replace(request.timeline, threads=[thread])
        return await self._reminders(request.action, request.id, groups, here)

    async def _reminders(
        self, action: Action, about: str, who: Iterable[str], timeline: Timeline
    ) -> list[DesiredMessage]:
        subject = timeline.target(action)
        approval = next((one.approval for one in action.extensions if one.id == about), action.approval)
        at = approval.expires_at if approval is not None else 0

        def render(*, clearance: int, button: ButtonIds) -> Message:
            view = RedactedView(subject, clearance)
            asks = approvals.push_text(action, view) if view.is_open else ""
            return approvals.reminder(asks, at, self._clock(), who=mentions(who))

        return await self._in_threads(f"remind:{action.id}:{about}", render, subject, timeline)

    def _request_render(self, request: Request) -> Callable[..., Message]:
        action, subject = request.action, request.subject
        if request.extension is not None:
            return partial(approvals.later_end_request, action, subject)
        policy = request.timeline.document.policies.get(action.responder_name, Policy())
        return partial(approvals.approval_request, action, subject, now_ms=self._clock(), policy=policy)

    async def _direct_request(self, request: Request, key: str, person: Person | None) -> DesiredMessage:
        """The request in a direct message, to be answered before it expires; later, who decided it or can't."""
        action, timeline = request.action, request.timeline
        can_decide = person is not None and approvals.may_decide(action, person, request.subject, request.extension)
        render = partial(self._request_render(request), can_decide=can_decide)
        if request.extension is None:
            voter = person.login if person is not None and "manageAction" in person.permissions else ""
            render = partial(render, link=await self._link(timeline.root_id), voter=voter)
        view = RedactedView(request.subject, person.clearance if person else 0)
        direct = replace(await self.message(key, view, key.split(":")[3], render), root_id=timeline.root_id)
        if not key.endswith(AGAIN):
            return direct
        return await self.in_short(direct, key.removesuffix(AGAIN), request.approval.expires_at)

    async def in_short(
        self, again: DesiredMessage, first: str, at: int, said: tuple[Block, ...] = ()
    ) -> DesiredMessage:
        """A reminder to answer, `at` the latest then, the message with the key `first`; later, what was decided.

        That is `said` if there is more to say than on a phone.
        """
        posted, text = await self._outbox.message(first), again.message.text
        link = card_link([posted] if posted else [], self._access.clearance, self._access.workspace_url())
        asks = any(one in again.payload() for one in (ids.APPROVE, ids.BULK_REVIEW))
        decided = Message(text, said) if said else notices.notice(text)
        reminder = approvals.reminder(text, at, self._clock(), link)
        return replace(again, message=reminder if asks else decided, buttons=None)

    async def _told(self, action: Action, subject: Subject, timeline: Timeline) -> list[DesiredMessage]:
        """The direct message to whoever asked for a run: how it was decided, that it failed, or who ended it.

        That it failed also to who approved it last, or what it was to undo, and to who asked for that.
        """
        state, by_others = runs.state_of(action), action.ended_by not in (None, action.created_by)
        is_own = state in ("cancelled", "stopped") and not by_others
        if is_own or not (action.approval is not None or state == "failed" or by_others):
            return []
        link, undoes, key = (
            await self._link(timeline.root_id),
            timeline.action(action.undoes or ""),
            f"told:{action.id}",
        )
        render = partial(replies.told, action, subject, link=link, undoes=undoes)
        of = undoes or action
        logins = dict.fromkeys(
            [action.created_by, *([*of.approved_by[-1:], of.created_by] if state == "failed" else [])]
        )
        return [one for login in logins for one in await self._to_requester(key, login, "", render, timeline)]

    async def _to_requester(
        self, prefix: str, login: str, suffix: str, render: Render, timeline: Timeline
    ) -> list[DesiredMessage]:
        team = self._access.team()
        user, person = await self.recipient_of(login)
        action = timeline.action(prefix.split(":")[1])
        if person is None or action is None:
            return []
        view = RedactedView(timeline.target(action), person.clearance)
        direct = await self.message(f"{prefix}:{team}:{user}{suffix}", view, user, render)
        return [replace(direct, root_id=timeline.root_id)]

    async def slack_user(self, login: str) -> str:
        """The Slack user of a login; "" if nobody is linked, such as a program."""
        try:
            return await self._access.slack_user(self._access.team(), login)
        except ResponderBotError as error:
            if error.code in CORE_UNAVAILABLE and error.code != "forbidden":
                raise
            return ""

    async def _in_threads(
        self,
        key: str,
        render: Render,
        subject: Subject,
        timeline: Timeline,
        file: Callable[[int], tuple[str, str] | None] = lambda _: None,
    ) -> list[DesiredMessage]:
        """One message in each thread of the timeline, with the `file` for its clearance."""
        desired = []
        for thread in timeline.threads:
            view = self._view(subject, thread.channel)
            reply = await self.message(f"{key}:{thread.channel}", view, thread.channel, render)
            reply = replace(reply, thread_of=thread.key, root_id=timeline.root_id, file=file(view.clearance))
            desired.append(reply)
        return desired

    async def again(self, message: MessageRecord, timeline: Timeline) -> list[DesiredMessage]:
        """The same message from what the document says now; nothing if that no longer has what it is about."""
        kind, object_id = message.key.split(":")[:2]
        threads = [] if is_person(message.channel) else [Thread(message.channel, message.thread_of or message.key)]
        here = replace(timeline, threads=threads)
        if kind == "asks":  # no longer shows the worst, which was decided or is not to be seen
            return [await self.counted(message.key, message.counted, None, "")]
        if kind == "alert":
            return await self.alert_cards(here)
        if kind in ("mention", "new"):
            return self.mention(message.key, here, message.counted)
        if kind == "case":
            return await self.case_cards(here)
        if kind == "log":
            return await self.log_cards(object_id, here)
        if kind == LOST:
            return await self.lost(message.key, here)
        action = here.action(object_id)
        if action is None:
            return []
        subject = here.target(action)
        action = await self._whole(action, here)
        if kind in ("approval", "extension", "ask", "remind", "told", "undone", "moved", "measure"):
            return [one for one in await self._asked_again(message, action, here) if one.key == message.key]
        if kind == "undo":
            return await self._undo_problems(action, subject, here)
        return await self._end_replies(action, subject, here)

    async def _whole(self, action: Action, timeline: Timeline) -> Action:
        """The action with its whole report and parameters."""
        if action.id not in timeline.document.shortened:
            return action
        return titled_as(await self._core.action(action.id), action)

    async def recipient(self, team: str, user: str) -> Person | None:
        """Who gets news in a direct message; None if they are not linked, or if Slack refuses to say who they are.

        Raises ResponderBotError("unavailable") while Slack gives no answer, so that the news waits.
        """
        try:
            return await self._access.person(team, user)
        except SLACK_FAILURES as error:
            failure = classify(error, user)
            if failure.is_temporary:
                raise ResponderBotError("unavailable", failure.message) from error
            log.warning("recipient_unknown", user=user, code=failure.code)
            return None

    async def recipient_of(self, login: str) -> tuple[str, Person | None]:
        """The Slack user of a login, and who that is; "" and None if nobody is linked."""
        user = await self.slack_user(login)
        return user, await self.recipient(self._access.team(), user) if user else None

    async def _link(self, root_id: str) -> str:
        """The address of a card of the root; "" before one is posted."""
        return card_link(await self._outbox.cards(root_id), self._access.clearance, self._access.workspace_url())

    async def _end_replies(self, action: Action, subject: Subject, timeline: Timeline) -> list[DesiredMessage]:
        render = partial(replies.end_reply, action, subject)
        file = partial(replies.report_file, action, subject)
        return await self._in_threads(f"end:{action.id}", render, subject, timeline, file)

    def _view(self, subject: Subject, channel: str) -> RedactedView:
        return RedactedView(subject, self._access.clearance_of(channel))

    async def message(self, key: str, view: RedactedView, channel: str, render: Render) -> DesiredMessage:
        """A message rendered for the clearance of its view, with its buttons."""
        buttons = await self._outbox.buttons.prepare(channel, key)
        content = render(clearance=view.clearance, button=buttons)
        if view.clearance == SHARED:
            content = replace(content, blocks=to_read(content.blocks))
        return DesiredMessage(key, channel, content, view=view, buttons=buttons)


def undone_by_others(document: Document) -> dict[tuple[str, str], list[Action]]:
    """What somebody else's run has undone: by that run, and by who hears of it in a direct message.

    The first tells it of all: one of a bulk, on whatever alert the run is that undid it, in the message of that bulk.
    """
    known, found = {one.id for one in document.actions}, dict[tuple[str, str], list[Action]]()
    is_in_case = document.alert is not None and document.alert.case is not None
    # The case tells of what ran on an artifact that it shares.
    own = [one for one in document.actions if not (is_in_case and one.object_type == OBJECT_TYPES["case_artifact"])]
    for action in sorted(own, key=lambda one: (not one.bulk, one.number)):
        undone = grouped(one for part, _ in action.by_target() for one in _who_hears(part))
        for (by_id, login), parts in undone.items():
            if action.bulk or by_id in known:
                found.setdefault((by_id, login), []).append(undo_state.together(action, parts))
    return found


def _who_hears(part: Action) -> list[tuple[tuple[str, str], Action]]:
    """What has undone a run and who is notified of that, each with the run; nothing of what no run has undone."""
    by_id, ended = part.undo and part.undo.action_id, part.measure
    if not by_id or ended is None or not undo_state.is_undone(part):
        return []
    return [((by_id, login), part) for login in undo_state.notified(ended.ended_by, part)]


def undone_with_others(document: Document, bulk_id: str) -> set[tuple[str, str]]:
    """The runs of a bulk that ended as somebody undid one of another bulk, and who hears of them in its message."""
    known, found = {one.id: one for one in document.actions}, set[tuple[str, str]]()
    for action in document.actions:
        undo = known.get((action.undo and action.undo.action_id) or "")
        undone = known.get((undo and undo.undoes) or "")
        if action.bulk == bulk_id and undone is not None and undone.bulk not in (None, bulk_id):
            found |= {(action.id, login) for login in undo_state.notified(action.undone_by, undone)}
    return found


def _is_broadcast(record: MessageRecord | None) -> bool:
    return record is not None and bool(record.payload) and bool(record.content().get("reply_broadcast"))
