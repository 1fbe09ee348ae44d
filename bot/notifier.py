"""Follows core's feed and decides which messages must change."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn, TypeVar

import structlog

from bot.cards import replies
from bot.cards.alert import alert_card
from bot.cards.message import ButtonIds, Message, intents_in
from bot.outbox import OVERWRITE, REFRESH_MS, DesiredMessage, FeedCheckpoint, MessageOutbox, MessageRecord
from bot.outbox.models import is_person
from bot.redaction import RED, RedactedView, Subject, kind_of, withheld
from bot.settings import Route
from core.common.errors import ResponderBotError
from core.models import OPEN_STATUSES, Action, Alert, Artifact, Case, Event, Kind, Log, Person

if TYPE_CHECKING:
    from core.client import CoreClient

WAIT_S = 30
BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
CORE_IS_DOWN = ("unavailable", "authentication", "forbidden")  # for us: all must wait
FOR_NOW = -2  # the clearance of what was withheld since it could not be made; it is looked at again
TRIES = 5  # to write what was read while others write too
RESPONDER = "responder:"  # before a responder's name among what is watched

log = structlog.get_logger("bot.notifier")

T = TypeVar("T")
Render = Callable[[ButtonIds], Message]


@dataclass(frozen=True)
class Thread:
    """Where a story is told: the message that begins it, and its channel."""

    channel: str
    key: str


@dataclass(frozen=True)
class FeedChanges:
    """What a page of the feed says, each thing once, in the order of the feed. Pure."""

    created_alerts: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    actions: tuple[tuple[str, str], ...] = ()  # action, root
    ended: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()  # roots of what changed itself, and not only its runs
    logs: tuple[tuple[str, str], ...] = ()  # log, case

    @staticmethod
    def of(events: Sequence[Event]) -> "FeedChanges":
        return FeedChanges(
            created_alerts=_once(e.object_id for e in events if e.type == "alert.created"),
            roots=_once(e.root_id for e in events if e.type != "case_template.created"),
            actions=tuple(dict.fromkeys((e.object_id, e.root_id) for e in events if e.object_type == "Action")),
            ended=frozenset(e.object_id for e in events if e.type == "action.ended"),
            changed=frozenset(e.root_id for e in events if e.object_type != "Action"),
            logs=tuple(dict.fromkeys((e.object_id, e.root_id) for e in events if e.type == "case_task_log.created")),
        )


@dataclass(frozen=True)
class ChannelPolicy:
    """Where messages go, and who sees what there; made by bot.app."""

    routes: Mapping[str, Route]  # by channel: which alerts are posted there
    clearance: Callable[[str], int | None]  # of a channel; None: not set up
    is_sure: Callable[[str], bool]  # whether Slack has said so of the channel, or it is not set up
    looked: asyncio.Event  # what channels may show was looked at anew, or something was held because of it
    person: Callable[[str, str], Awaitable[Person | None]]  # by team and Slack user


@dataclass
class Timeline:
    """One root (an alert or a case) while its messages are made."""

    root_id: str
    threads: list[Thread] = field(default_factory=list)
    alert: Alert | None = None
    case: Case | None = None
    artifacts: dict[str, Artifact] = field(default_factory=dict)  # those that were read, by id

    def in_thread(self, shown: MessageRecord) -> "Timeline":
        """The same, told only in the thread where this message stands."""
        return replace(self, threads=[Thread(shown.channel, shown.thread_of or shown.key)])


class Notifier:
    """Turns events into desired messages. Of several replicas only the one with the lease runs it."""

    def __init__(
        self, core: "CoreClient", outbox: MessageOutbox, places: ChannelPolicy, clock_ms: Callable[[], int]
    ) -> None:
        self._core = core
        self._outbox = outbox
        self._places = places
        self._clock = clock_ms
        self.trouble = ""
        self._recognized = asyncio.Event()
        """Core's database is known to be the one that the messages tell of; not after core was silent."""

    async def begin(self) -> None:
        """Look whether core's database is the one that the messages tell of.

        The very first time remember where its feed stands, so that what comes from now on is shown. Raises
        ResponderBotError("conflict") with what to do where it is another one.
        """
        seen = self._outbox.checkpoint()
        if seen is None:
            page = await self._core.events(None, wait_s=0)
            await self._outbox.commit_page([], page.last)
            await self._outbox.accept_database(page.database)
        elif not self._recognized.is_set():
            await self._recognize(seen)
        self._recognized.set()

    async def _recognize(self, seen: FeedCheckpoint) -> None:
        try:
            page = await self._core.events(seen.cursor, wait_s=0)
        except ResponderBotError as error:
            if error.code != "gone":
                raise
            if "restored" in error.details:
                await self._refuse("it was restored from a backup, and this bot knows of what came after that")
            page = await self._core.events(None, wait_s=0)
        if seen.database and page.database != seen.database:
            await self._refuse("it is another one")
        if page.last < seen.cursor:
            await self._refuse(f"it ends at event {page.last}, and this bot has seen event {seen.cursor}")
        if seen.event and await self._event(seen.cursor) not in ("", seen.event):
            await self._refuse(f"event {seen.cursor} was another one")
        await self._outbox.accept_database(page.database)

    async def _event(self, number: int) -> str:
        """What core has under this number; "" where it keeps it no more."""
        try:
            page = await self._core.events(number - 1, wait_s=0)
        except ResponderBotError as error:
            if error.code != "gone":
                raise
            return ""
        return _identified(page.events[0]) if page.events else ""

    async def _refuse(self, why: str) -> NoReturn:
        sentence = (
            f"Core's database is not the one that this bot's messages tell of ({why}): put the right one back, or the"
            " bot's of the same backup (`responder-bot restore FILE` does both), or run"
            " `responder-bot forget-messages`, which leaves the old messages in Slack as they are."
        )
        await self._outbox.reject_database(sentence)
        raise ResponderBotError("conflict", sentence)

    async def run(self) -> None:
        """Follow the feed for ever; ends by cancellation. A core that is down is asked again, without a limit."""
        failures = 0
        self._recognized.clear()
        while True:
            try:
                await self._follow_once()
                failures, self.trouble = 0, ""
            except ResponderBotError as error:
                self._recognized.clear()
                self.trouble = error.message
                log.warning("feed_trouble", code=error.code, reason=error.message)
                await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
                failures += 1

    async def _follow_once(self) -> None:
        await self.begin()
        cursor = self._outbox.cursor()
        try:
            page = await self._core.events(cursor, wait_s=WAIT_S)
        except ResponderBotError as error:
            if error.code != "gone":
                raise
            self._recognized.clear()
            await self.begin()
            await self._catch_up()
            return
        if cursor is not None and page.last < cursor:
            self._recognized.clear()
            return
        self.trouble = ""
        if page.events:
            await self._tell(FeedChanges.of(page.events), page.last, _identified(page.events[-1]))

    async def _tell(self, news: FeedChanges, last: int, last_event: str) -> None:
        """All of it durably; what somebody else wrote meanwhile is made once more, since either may be the older."""
        for attempt in range(TRIES):
            since = self._outbox.last_write() if attempt < TRIES - 1 else OVERWRITE
            overtaken = await self._outbox.commit_page(
                await self._desired(news), last, since=since, last_event=last_event
            )
            if not overtaken:
                return
            news = replace(news, roots=tuple(root for root in news.roots if root in overtaken) or news.roots)

    async def _catch_up(self) -> None:
        """We were away longer than core keeps events: paint every card of late anew, then go on from now."""
        last = (await self._core.events(None, wait_s=0)).last
        await self._outbox.invalidate_clearances()
        for subject in self._outbox.recent_subjects(self._clock() - REFRESH_MS):
            await self._guarded(self._paint(subject, by_person=False))
        await self._outbox.commit_page([], last)
        self._places.looked.set()

    async def repaint(self, root_id: str, log_id: str = "") -> None:
        """Paint the cards of this alert or case, and of a log, now, before machine news: a person did something."""
        await self._paint(root_id, log_id, by_person=True)

    async def _paint(self, root_id: str, log_id: str = "", *, by_person: bool) -> list[DesiredMessage]:
        desired: list[DesiredMessage] = []
        for _ in range(TRIES):
            since = self._outbox.last_write()
            story = await self._story(root_id, created=False)
            desired = await self._cards(story, by_person=by_person)
            if log_id:
                desired += [replace(one, by_person=by_person) for one in await self._of_log(log_id, story)]
            if not await self._outbox.upsert(*desired, since=since):
                break
        return desired

    # what follows from news

    async def _desired(self, news: FeedChanges) -> list[DesiredMessage]:
        desired: list[DesiredMessage] = []
        for root_id in news.roots:
            desired += await self._guarded(self._of_root(root_id, news))
        return desired

    async def _guarded(self, work: Awaitable[list[T]]) -> list[T]:
        """One object that can't be shown must not stop the others; a core that is down stops all, to try again."""
        try:
            return await work
        except ResponderBotError as error:
            if error.code in CORE_IS_DOWN:
                raise
            log.warning("event_skipped", code=error.code, reason=error.message)
        except Exception:
            log.exception("event_failed")
        return []

    async def _of_root(self, root_id: str, news: FeedChanges) -> list[DesiredMessage]:
        story = await self._story(root_id, created=root_id in news.created_alerts)
        has_ended = any(action_id in news.ended for action_id, of_root in news.actions if of_root == root_id)
        desired = await self._guarded(self._cards(story, is_progress=not has_ended))  # its thread tells the end anyway
        for log_id, case_id in news.logs:
            if case_id == root_id:
                desired += await self._of_log(log_id, story)
        for action_id, of_root in news.actions:
            if of_root == root_id:
                desired += await self._guarded(self._of_action(action_id, story, action_id in news.ended))
        if root_id not in news.changed:
            return desired
        made = {one.key for one in desired}
        told = [one for one in self._outbox.messages_of(root_id) if one.key not in made]
        return desired + (await self._made_anew(told, story))[0]

    async def _story(self, root_id: str, *, created: bool) -> Timeline:
        """The root with its threads: those that stand, and for a new alert those that the settings ask for."""
        standing = self._threads(root_id)
        try:
            alert = await self._core.alert(root_id)
        except ResponderBotError as error:
            if error.code != "not_found":
                raise
            return Timeline(root_id, await self._threads_of_case(root_id, standing))
        routed = self._routed(alert) if created else []
        return Timeline(root_id, list(dict.fromkeys([*standing, *routed])), alert)

    def _threads(self, root_id: str) -> list[Thread]:
        return [Thread(shown.channel, shown.key) for shown in self._outbox.cards(root_id)]

    def _routed(self, alert: Alert) -> list[Thread]:
        return [
            Thread(channel, f"alert:{alert.id}:{channel}")
            for channel, route in self._places.routes.items()
            if route.matches(severity=alert.severity, source=alert.source, type=alert.type, tags=alert.tags)
        ]

    async def _threads_of_case(self, case_id: str, standing: list[Thread]) -> list[Thread]:
        """A case is told in the threads of the alerts that became it; one without, in messages of its own."""
        found, _ = await self._core.search("/api/alert/_search", {"case": case_id}, range="0-20")
        threads = [thread for one in found for thread in self._threads(str(one["id"]))]
        return threads or standing

    # cards

    async def _cards(
        self, story: Timeline, *, by_person: bool = False, is_progress: bool = False
    ) -> list[DesiredMessage]:
        alert = story.alert
        if alert is None or not story.threads:
            return []
        actions = await self._core.actions("alert", alert.id)
        messages = [await self._card(alert, actions, thread) for thread in story.threads]
        return [
            DesiredMessage(
                thread.key,
                thread.channel,
                message,
                subject=alert.id,
                by_person=by_person,
                is_progress=is_progress,
                view=view,
            )
            for thread, (message, view) in zip(story.threads, messages, strict=True)
        ]

    async def _card(self, alert: Alert, actions: Sequence[Action], thread: Thread) -> tuple[Message, RedactedView]:
        view, now = self._screen(Subject.alert(alert), thread.channel), self._clock()

        def render(button: ButtonIds) -> Message:
            return alert_card(alert, actions, clearance=view.clearance, button=button, now_ms=now)

        return await self._rendered(thread.channel, thread.key, render), view

    async def _rendered(self, channel: str, key: str, render: Render) -> Message:
        return render(await self._outbox.buttons.issue(channel, key, intents_in(render)))

    def _screen(self, subject: Subject, channel: str) -> RedactedView:
        """A channel that was taken out of the settings shows nothing any more."""
        return RedactedView(subject, self._places.clearance(channel) or 0)

    # logs

    async def _of_log(self, log_id: str, story: Timeline) -> list[DesiredMessage]:
        entry, case = await asyncio.gather(self._core.log(log_id), self._core.case(story.root_id))
        return await self._log_cards(entry, case, story)

    async def _log_cards(self, entry: Log, case: Case, story: Timeline) -> list[DesiredMessage]:
        actions = await self._core.actions("case_task_log", entry.id)
        subject, now = Subject.log(entry, case), self._clock()
        threads = story.threads or [Thread(channel, "") for channel in self._case_channels(case)]
        desired = []
        for thread in threads:
            key, view = f"log:{entry.id}:{thread.channel}", self._screen(subject, thread.channel)

            def render(button: ButtonIds, clearance: int = view.clearance) -> Message:
                return replies.task_log_card(entry, actions, subject, clearance=clearance, button=button, now_ms=now)

            message = await self._rendered(thread.channel, key, render)
            root = "" if thread.key == key else thread.key
            desired.append(DesiredMessage(key, thread.channel, message, thread_of=root, subject=case.id, view=view))
        if not story.threads:
            story.threads = [Thread(one.channel, one.key) for one in desired]
        return desired

    def _case_channels(self, case: Case) -> list[str]:
        """Where a case that came from no alert is told: its severity and tags decide, it has no source."""
        routes = self._places.routes.items()
        return [
            channel
            for channel, route in routes
            if route.matches(severity=case.severity, source="", type="", tags=case.tags)
        ]

    # actions

    async def _of_action(self, action_id: str, story: Timeline, has_ended: bool) -> list[DesiredMessage]:
        action = await self._core.action(action_id)
        subject = await self._subject(action, story)
        desired: list[DesiredMessage] = []
        if action.object_type == "Log":
            on_log = await self._guarded(self._of_log(action.object_id, story))
            desired += [replace(one, is_progress=not has_ended) for one in on_log]
        if action.approval is not None:
            desired += await self._approvals(action, subject, story)
        if has_ended and action.status not in OPEN_STATUSES:
            confirm = await self._confirm_text(action, subject) if action.status == "Failure" else ""
            desired += [await self._end(action, subject, thread, confirm) for thread in story.threads]
            desired += await self._watchers(action, subject)
        return desired

    async def _subject(self, action: Action, story: Timeline) -> Subject:
        """What it ran on, with the case above it."""
        if story.alert is not None:
            return Subject.alert(story.alert)
        kind: Kind = kind_of(action.object_type)
        case = await self._case(story)
        if kind == "case_task_log":
            return Subject.log(await self._core.log(action.object_id), case)
        if kind == "case_task":
            return Subject.task(await self._core.task(action.object_id), case)
        if kind == "case_artifact":
            return Subject.artifact(await self._core.artifact(action.object_id), case)
        return Subject.case(case)

    async def _approvals(self, action: Action, subject: Subject, story: Timeline) -> list[DesiredMessage]:
        confirm, now = await self._confirm_text(action, subject), self._clock()
        desired = []
        for thread in story.threads:
            key, view = f"approval:{action.id}:{thread.channel}", self._screen(subject, thread.channel)

            def render(button: ButtonIds, clearance: int = view.clearance) -> Message:
                return replies.approval_request(
                    action, subject, clearance=clearance, button=button, now_ms=now, confirm=confirm
                )

            message = await self._rendered(thread.channel, key, render)
            asked = DesiredMessage(key, thread.channel, message, thread_of=thread.key, subject=story.root_id, view=view)
            desired.append(replace(asked, by_person=True))
        return desired

    async def _confirm_text(self, action: Action, subject: Subject) -> str:
        offered = await self._core.responders(subject.kind, subject.id, explain=True)
        found = next((r for r in offered if r.name == action.responder_name and r.policy), None)
        return found.policy.confirm if found and found.policy else ""

    async def _end(self, action: Action, subject: Subject, thread: Thread, confirm: str) -> DesiredMessage:
        view, key = self._screen(subject, thread.channel), f"end:{action.id}:{thread.channel}"

        def render(button: ButtonIds) -> Message:
            return replies.end_reply(action, subject, clearance=view.clearance, button=button, confirm=confirm)

        return DesiredMessage(
            key,
            thread.channel,
            await self._rendered(thread.channel, key, render),
            thread_of=thread.key,
            subject=subject.root_id or subject.id,
            file=replies.report_file(action, subject, clearance=view.clearance),
            view=view,
        )

    async def _watchers(self, action: Action, subject: Subject) -> list[DesiredMessage]:
        watched = [subject.id, subject.root_id, RESPONDER + action.responder_name]
        desired = []
        for team, user in self._outbox.watches.watchers(list(dict.fromkeys(watched))):
            person = await self._places.person(team, user)
            if person is not None:  # no longer linked: nothing leaves
                desired.append(
                    _told(action, RedactedView(subject, person.clearance), f"watch:{action.id}:{team}:{user}")
                )
        return desired

    # what was made for other levels than there are now

    async def obey(self) -> None:
        """For ever: where a channel or a person may see more or less than when a message there was made, make it anew.

        Ends by cancellation; what it didn't come to is found again, since each message knows what it was made for.
        """
        failures = 0
        while True:
            await self._recognized.wait()
            self._places.looked.clear()
            try:
                for channel, key in self._outbox.channels().items():
                    try:
                        await self._obey_in(channel, key)
                    except ResponderBotError:
                        raise
                    except Exception:
                        log.exception("obey_failed", channel=channel)
            except ResponderBotError as error:
                log.warning("clearance_trouble", code=error.code, reason=error.message)
                await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
                failures += 1
            else:
                failures = 0
                await self._places.looked.wait()

    async def _obey_in(self, channel: str, one_key: str) -> None:
        clearance = await self._clearance(channel, one_key)
        # A moment without Slack must not repaint all that stands: then only what still waits is made anew.
        unsent_only = not self._places.is_sure(channel)
        for root_id in self._outbox.stale_subjects(channel, clearance, unsent_only=unsent_only):
            since = self._outbox.last_write()
            here = [one for one in self._outbox.messages_of(root_id) if one.channel == channel]
            told = [one for one in here if one.clearance != clearance and not (unsent_only and one.is_delivered)]
            story = await self._story(root_id, created=False)
            desired, kept = await self._made_anew(told, story, clearance)
            if not await self._outbox.enforce_clearance(
                [replace(one, in_bulk=True) for one in desired], kept, since=since
            ):
                self._places.looked.set()  # once more

    async def _clearance(self, channel: str, key: str) -> int:
        """Of a channel, or of the person whom the message with this key tells."""
        if not is_person(channel):
            return self._places.clearance(channel) or 0
        person = await self._places.person(_team_of(key), channel)
        return person.clearance if person else 0

    async def _made_anew(
        self, told: Sequence[MessageRecord], story: Timeline, clearance: int | None = None
    ) -> tuple[list[DesiredMessage], dict[str, int]]:
        """Of these messages of a story those that must change, as they shall be; and which needn't, for what clearance.

        Without `clearance` it is that of each one's channel now, and for a person that of then: only levels changed.
        """
        desired: list[DesiredMessage] = []
        kept: dict[str, int] = {}
        for one in told:
            then = one.clearance if is_person(one.channel) else self._places.clearance(one.channel) or 0
            now = then if clearance is None else clearance
            if await self._guarded(self._is_true(one, story, now)):
                kept[one.key] = now
            else:
                desired += await self._remade(one, story, now)
        return desired, kept

    async def _remade(self, one: MessageRecord, story: Timeline, clearance: int) -> list[DesiredMessage]:
        """A message as it shall be now; where that can't be told it is withheld, for good or for now."""
        try:
            return await self._again(one, story) or [_withheld(one, clearance)]
        except ResponderBotError as error:
            if error.code in CORE_IS_DOWN:
                raise
            if error.code in ("not_found", "log_not_found"):
                return [_withheld(one, clearance)]
            log.warning("not_made_anew", key=one.key, code=error.code, reason=error.message)
        except Exception:
            log.exception("not_made_anew", key=one.key)
        return [_withheld(one, FOR_NOW)]

    async def _is_true(self, one: MessageRecord, story: Timeline, clearance: int) -> list[str]:
        """Its key, if as much is withheld in it as must be."""
        return (
            [one.key] if RedactedView(await self._levels(one, story), clearance).fingerprint == one.fingerprint else []
        )

    async def _levels(self, one: MessageRecord, story: Timeline) -> Subject:
        """What a message tells of, as far as its levels go: tasks and logs have those of their case."""
        if story.alert is not None:
            return Subject.alert(story.alert)
        kind, _, object_id = one.about.partition(" ")
        case = await self._case(story)
        if kind == "case_artifact":
            if object_id not in story.artifacts:
                story.artifacts[object_id] = await self._core.artifact(object_id)
            return Subject.artifact(story.artifacts[object_id], case)
        return Subject.case(case)

    async def _case(self, story: Timeline) -> Case:
        if story.case is None:
            story.case = await self._core.case(story.root_id)
        return story.case

    async def _again(self, one: MessageRecord, story: Timeline) -> list[DesiredMessage]:
        """A message as it shall be now."""
        kind, object_id = one.key.split(":")[:2]
        here = story.in_thread(one)
        if kind == "alert":
            return await self._cards(here)
        if kind == "log":
            return await self._of_log(object_id, here)
        action = await self._core.action(object_id)
        subject = await self._subject(action, here)
        if kind == "watch":
            return [_told(action, RedactedView(subject, await self._clearance(one.channel, one.key)), one.key)]
        if kind == "approval":
            return [replace(asked, by_person=False) for asked in await self._approvals(action, subject, here)]
        confirm = await self._confirm_text(action, subject) if action.status == "Failure" else ""
        return [await self._end(action, subject, thread, confirm) for thread in here.threads]


def _identified(event: Event) -> str:
    """What tells an event from the one of another database that has the same number."""
    return f"{event.seq} {event.at} {event.type} {event.object_id}"


def _told(action: Action, view: RedactedView, key: str) -> DesiredMessage:
    """The direct message to somebody who watches."""
    message = replies.watcher_message(action, view.subject, clearance=view.clearance)
    root_id = view.subject.root_id or view.subject.id
    return DesiredMessage(key, key.rpartition(":")[2], message, subject=root_id, view=view)


def _team_of(key: str) -> str:
    """The team in `watch:~5:T0LOCAL:U0BEN`."""
    return key.split(":")[2]


def _withheld(one: MessageRecord, clearance: int) -> DesiredMessage:
    """In place of what can't be made anew, since core doesn't know it any more or can't tell."""
    why = "it could not be read just now" if clearance == FOR_NOW else "core no longer knows it"
    message = Message(f"{one.subject}: {withheld(RED)}, since {why}.")
    view = RedactedView(Subject("alert", one.subject, "", RED, RED), clearance)
    return DesiredMessage(one.key, one.channel, message, thread_of=one.thread_of, subject=one.subject, view=view)


def _once(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))
