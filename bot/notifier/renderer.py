"""Renders the messages of an alert or a case from what core says now."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bot.cards import replies
from bot.cards.alert import alert_card
from bot.cards.message import ButtonIds, Message, intents_in
from bot.notifier.isolation import isolated
from bot.notifier.timeline import ChannelAccess, Thread, Timeline
from bot.outbox import DesiredMessage, MessageOutbox, MessageRecord
from bot.outbox.models import is_person
from bot.redaction import RedactedView, Subject, kind_of
from core.common.errors import ResponderBotError
from core.models import OPEN_STATUSES, Action, Alert, Case

if TYPE_CHECKING:
    from core.client import CoreClient

RESPONDER = "responder:"  # before a responder's name among what is watched


class Renderer:
    """Reads core and renders; writes nothing but button ids."""

    def __init__(
        self, core: "CoreClient", outbox: MessageOutbox, channels: ChannelAccess, clock_ms: Callable[[], int]
    ) -> None:
        self._core = core
        self._outbox = outbox
        self._channels = channels
        self._clock = clock_ms

    # --- where to ---------------------------------------------------------------------------------------------------

    async def timeline(self, root_id: str, *, is_new: bool = False) -> Timeline:
        """The root with the threads of its cards, and for a new alert also of those that the settings ask for."""
        posted = self._threads(root_id)
        try:
            alert = await self._core.alert(root_id)
        except ResponderBotError as error:
            if error.code != "not_found":
                raise
            return Timeline(root_id, await self._threads_of_case(root_id) or posted)
        routed = self._routed(alert) if is_new else []
        return Timeline(root_id, list(dict.fromkeys([*posted, *routed])), alert)

    def _threads(self, root_id: str) -> list[Thread]:
        return [Thread(card.channel, card.key) for card in self._outbox.cards(root_id)]

    def _routed(self, alert: Alert) -> list[Thread]:
        return [
            Thread(channel, f"alert:{alert.id}:{channel}")
            for channel, route in self._channels.routes.items()
            if route.matches(severity=alert.severity, source=alert.source, type=alert.type, tags=alert.tags)
        ]

    async def _threads_of_case(self, case_id: str) -> list[Thread]:
        """The threads of the alerts that became this case."""
        alerts, _ = await self._core.search("/api/alert/_search", {"case": case_id}, range="0-20")
        return [thread for alert in alerts for thread in self._threads(str(alert["id"]))]

    def _case_channels(self, case: Case) -> list[str]:
        """Where a case without an alert goes. It has no source and type, so severity and tags decide."""
        return [
            channel
            for channel, route in self._channels.routes.items()
            if route.matches(severity=case.severity, source="", type="", tags=case.tags)
        ]

    async def clearance(self, channel: str, key: str) -> int:
        """The clearance of a channel, or of the person to whom the message with this key goes."""
        if not is_person(channel):
            return self._channels.clearance_of(channel)
        team = key.split(":")[2]  # watch:<action>:<team>:<user>
        person = await self._channels.person(team, channel)
        return person.clearance if person else 0

    # --- what they are about ----------------------------------------------------------------------------------------

    async def _subject(self, action: Action, timeline: Timeline) -> Subject:
        """What an action ran on."""
        if timeline.alert is not None:
            return Subject.alert(timeline.alert)
        kind = kind_of(action.object_type)
        case = await self._case(timeline)
        if kind == "case_task_log":
            return Subject.log(await self._core.log(action.object_id), case)
        if kind == "case_task":
            return Subject.task(await self._core.task(action.object_id), case)
        if kind == "case_artifact":
            return Subject.artifact(await self._core.artifact(action.object_id), case)
        return Subject.case(case)

    async def subject_of(self, message: MessageRecord, timeline: Timeline) -> Subject:
        """What a message is about, as far as its TLP goes: tasks and logs have that of their case."""
        if timeline.alert is not None:
            return Subject.alert(timeline.alert)
        kind, _, object_id = message.about.partition(" ")
        case = await self._case(timeline)
        if kind == "case_artifact":
            if object_id not in timeline.artifacts:
                timeline.artifacts[object_id] = await self._core.artifact(object_id)
            return Subject.artifact(timeline.artifacts[object_id], case)
        return Subject.case(case)

    async def _case(self, timeline: Timeline) -> Case:
        if timeline.case is None:
            timeline.case = await self._core.case(timeline.root_id)
        return timeline.case

    # --- messages ---------------------------------------------------------------------------------------------------

    async def alert_cards(
        self, timeline: Timeline, *, by_person: bool = False, is_progress: bool = False
    ) -> list[DesiredMessage]:
        """The card of an alert in each channel; none for a case."""
        alert, now = timeline.alert, self._clock()
        if alert is None or not timeline.threads:
            return []
        actions = await self._core.actions("alert", alert.id)

        def render(clearance: int, button: ButtonIds) -> Message:
            return alert_card(alert, actions, clearance=clearance, button=button, now_ms=now)

        cards = [
            await self._message(thread.key, self._view(Subject.alert(alert), thread.channel), thread.channel, render)
            for thread in timeline.threads
        ]
        return [replace(card, root_id=alert.id, by_person=by_person, is_progress=is_progress) for card in cards]

    async def log_cards(self, log_id: str, timeline: Timeline) -> list[DesiredMessage]:
        """The card of a task log in each thread; without any, in the channels of its case, whose threads they begin."""
        log, case = await asyncio.gather(self._core.log(log_id), self._core.case(timeline.root_id))
        actions = await self._core.actions("case_task_log", log.id)
        subject, now = Subject.log(log, case), self._clock()

        def render(clearance: int, button: ButtonIds) -> Message:
            return replies.task_log_card(log, actions, subject, clearance=clearance, button=button, now_ms=now)

        desired = []
        for thread in timeline.threads or [Thread(channel, "") for channel in self._case_channels(case)]:
            key = f"log:{log.id}:{thread.channel}"
            card = await self._message(key, self._view(subject, thread.channel), thread.channel, render)
            root = "" if thread.key == key else thread.key
            desired.append(replace(card, thread_of=root, root_id=case.id))
        if not timeline.threads:
            timeline.threads = [Thread(card.channel, card.key) for card in desired]
        return desired

    async def action_messages(self, action_id: str, timeline: Timeline, *, has_ended: bool) -> list[DesiredMessage]:
        """What an action's events change besides its alert's card: approval requests, end replies, direct messages."""
        action = await self._core.action(action_id)
        subject = await self._subject(action, timeline)
        desired: list[DesiredMessage] = []
        if action.object_type == "Log":
            on_log = await isolated(self.log_cards(action.object_id, timeline), timeline.root_id, otherwise=[])
            desired += [replace(card, is_progress=not has_ended) for card in on_log]
        if action.approval is not None:
            requests = await self._approval_requests(action, subject, timeline)
            desired += [replace(request, by_person=True) for request in requests]
        if has_ended and action.status not in OPEN_STATUSES:
            desired += await self._end_replies(action, subject, timeline.threads)
            desired += await self._watcher_messages(action, subject)
        return desired

    async def again(self, message: MessageRecord, timeline: Timeline) -> list[DesiredMessage]:
        """The same message from what core says now."""
        kind, object_id = message.key.split(":")[:2]
        here = timeline.in_thread_of(message)
        if kind == "alert":
            return await self.alert_cards(here)
        if kind == "log":
            return await self.log_cards(object_id, here)
        action = await self._core.action(object_id)
        subject = await self._subject(action, here)
        if kind == "watch":
            view = RedactedView(subject, await self.clearance(message.channel, message.key))
            return [_watcher_message(action, view, message.key)]
        if kind == "approval":
            return await self._approval_requests(action, subject, here)
        return await self._end_replies(action, subject, here.threads)

    async def _approval_requests(self, action: Action, subject: Subject, timeline: Timeline) -> list[DesiredMessage]:
        confirm, now = await self._confirm_text(action, subject), self._clock()

        def render(clearance: int, button: ButtonIds) -> Message:
            return replies.approval_request(
                action, subject, clearance=clearance, button=button, now_ms=now, confirm=confirm
            )

        desired = []
        for thread in timeline.threads:
            key = f"approval:{action.id}:{thread.channel}"
            request = await self._message(key, self._view(subject, thread.channel), thread.channel, render)
            desired.append(replace(request, thread_of=thread.key, root_id=timeline.root_id))
        return desired

    async def _end_replies(self, action: Action, subject: Subject, threads: Sequence[Thread]) -> list[DesiredMessage]:
        confirm = await self._confirm_text(action, subject) if action.status == "Failure" else ""

        def render(clearance: int, button: ButtonIds) -> Message:
            return replies.end_reply(action, subject, clearance=clearance, button=button, confirm=confirm)

        desired = []
        for thread in threads:
            view = self._view(subject, thread.channel)
            reply = await self._message(f"end:{action.id}:{thread.channel}", view, thread.channel, render)
            file = replies.report_file(action, subject, clearance=view.clearance)
            root_id = subject.root_id or subject.id
            desired.append(replace(reply, thread_of=thread.key, root_id=root_id, file=file))
        return desired

    async def _watcher_messages(self, action: Action, subject: Subject) -> list[DesiredMessage]:
        watched = [subject.id, subject.root_id, RESPONDER + action.responder_name]
        desired = []
        for team, user in self._outbox.watches.watchers(list(dict.fromkeys(watched))):
            person = await self._channels.person(team, user)
            if person is not None:  # nothing goes to somebody who is no longer linked
                view = RedactedView(subject, person.clearance)
                desired.append(_watcher_message(action, view, f"watch:{action.id}:{team}:{user}"))
        return desired

    async def _confirm_text(self, action: Action, subject: Subject) -> str:
        """The question of the responder's policy."""
        offered = await self._core.responders(subject.kind, subject.id, explain=True)
        found = next((r for r in offered if r.name == action.responder_name and r.policy), None)
        return found.policy.confirm if found and found.policy else ""

    def _view(self, subject: Subject, channel: str) -> RedactedView:
        return RedactedView(subject, self._channels.clearance_of(channel))

    async def _message(
        self, key: str, view: RedactedView, channel: str, render: Callable[[int, ButtonIds], Message]
    ) -> DesiredMessage:
        """A message rendered for the clearance of its view, with its buttons."""

        def with_buttons(button: ButtonIds) -> Message:
            return render(view.clearance, button)

        button = await self._outbox.buttons.issue(channel, key, intents_in(with_buttons))
        return DesiredMessage(key, channel, with_buttons(button), view=view)


def _watcher_message(action: Action, view: RedactedView, key: str) -> DesiredMessage:
    message = replies.watcher_message(action, view.subject, clearance=view.clearance)
    user = key.rpartition(":")[2]
    return DesiredMessage(key, user, message, root_id=view.subject.root_id or view.subject.id, view=view)
