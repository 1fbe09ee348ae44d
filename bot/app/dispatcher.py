"""Takes what Slack delivers, acknowledges it by its class, and has the feature do its work."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError, SlackClientError

from bot.app.interactions import Interaction, InteractionType, entry_of, read
from bot.app.replies import Replies
from bot.app.workers import Workers, cancelled
from bot.cards import lists, notices, views
from bot.cards.message import Message
from bot.features.base import Ack, Context, Entry, Json, Services
from bot.features.gate import refusal
from bot.identity import Identity
from bot.outbox import MessageOutbox, PendingInteraction
from bot.outbox.errors import classify
from core.common.errors import ResponderBotError
from core.models import Person

QUEUE = 1_000  # reads that wait; more are refused, with a word
WORKERS = 16
SKELETON_S = 0.8  # when core takes longer to say who asks, the modal opens before it is known what it will show
ANSWER_S = 2.0  # core's time for an answer that is the acknowledgement (slack.md 2)
REPLAY_EVERY_S = 15.0
# Older clicks are not carried out after all: nobody expects a host to be cut off an hour after the click, and core
# forgets an Idempotency-Key after a day.
REPLAY_LIMIT_MS = 10 * 60_000
TOO_OLD = (
    "The bot was away when you asked for something a while ago, so it may not have been done; "
    "look at the card, and ask again if it is still needed."
)
CHANNEL_EVENTS = (  # after these, what a channel may show and whether it takes messages is looked at anew
    "member_joined_channel",  # the bot itself; who else comes and goes changes nothing
    "channel_archive",
    "channel_unarchive",
    "channel_shared",
    "channel_unshared",
)

log = structlog.get_logger("bot.app")

Acknowledge = Callable[..., Awaitable[Any]]
UNKNOWN = "This belongs to another release of responder-bot, nothing was done. `/responder help` shows what there is."
TOO_LATE = ("expired_trigger_id", "exchanged_trigger_id", "invalid_trigger_id", "trigger_expired", "trigger_exchanged")
TOO_LATE_WORDS = "The window could not be opened in the time that Slack gives for it; please try again."
OVERTAKEN = ("hash_conflict", "not_found", "view_not_found")  # a view that was changed again, or closed
BUSY = "Too much is going on right now; please try again in a moment."


@dataclass(frozen=True)
class TeamCheck:
    """Whose bot this is, as auth.test says."""

    team_id: str
    enterprise_id: str = ""
    bot_user_id: str = ""
    bot_id: str = ""

    def is_own(self, arrival: Interaction) -> bool:
        """Whether everybody named in it belongs to us; a Slack Connect guest doesn't (`semantics.md 10`)."""
        return bool(arrival.teams) and arrival.teams <= {self.team_id, self.enterprise_id}


@dataclass(frozen=True)
class _QueuedInteraction:
    entry: Entry
    arrival: Interaction
    text: str
    is_written: bool  # it stands in the inbox


class Dispatcher:
    """One door for all surfaces. Reads wait in memory; what changes something is written down first."""

    def __init__(
        self,
        tools: Services,
        outbox: MessageOutbox,
        identity: Identity,
        team: TeamCheck,
        session: aiohttp.ClientSession,
        channel_changed: Callable[[str], Coroutine[Any, Any, None]],
        acknowledging: Callable[[str], AbstractContextManager[None]],
        workers: Workers,
    ) -> None:
        self._tools = tools
        self._outbox = outbox
        self._identity = identity
        self._team = team
        self._session = session
        self._channel_changed = channel_changed
        self._acknowledging = acknowledging
        self._queue: asyncio.Queue[_QueuedInteraction] = asyncio.Queue(QUEUE)
        self._late: set[asyncio.Task[None]] = set()
        self._workers = workers

    def start(self) -> None:
        """Begin to work off what waits."""
        self._workers.start(self._work, count=WORKERS)
        self._workers.start(self._replay)

    async def close(self, grace_s: float) -> None:
        """Finish what was taken, as far as `grace_s` allows; what is in the inbox is done after the next start."""
        try:
            async with asyncio.timeout(grace_s):
                await self._queue.join()
                await asyncio.gather(*self._late, return_exceptions=True)
        except TimeoutError:
            log.warning("closed_with_work_left", waiting=self._queue.qsize())
        await self._workers.close()
        await cancelled(*self._late)

    async def take(self, surface: InteractionType, body: Mapping[str, Any], ack: Acknowledge) -> None:
        """Something arrived. Returns once it is acknowledged."""
        with self._acknowledging(surface):
            await self._take(surface, body, ack)

    async def _take(self, surface: InteractionType, body: Mapping[str, Any], ack: Acknowledge) -> None:
        arrival = read(surface, body)
        if not self._team.is_own(arrival):
            log.warning("foreign_team_refused", surface=surface)
            await self._refuse(arrival, "Only members of this workspace can use responder-bot.", ack)
            return
        entry, text = entry_of(arrival)
        if surface == "event" and arrival.payload.get("type") in CHANNEL_EVENTS:
            await ack()
            if arrival.payload["type"] != "member_joined_channel" or arrival.user == self._team.bot_user_id:
                self._keep(self._channel_changed(arrival.channel))
        elif entry is None:
            await self._refuse(arrival, "" if surface == "event" else UNKNOWN, ack)
        elif entry.ack is Ack.ANSWER:
            await self._answer(_QueuedInteraction(entry, arrival, text, False), ack)
        elif entry.ack is Ack.WRITE:
            await self._write(_QueuedInteraction(entry, arrival, text, True), ack)
        elif self._queued(_QueuedInteraction(entry, arrival, text, False)):
            await ack()
        else:
            await self._refuse(arrival, BUSY, ack)

    # acknowledging

    async def _refuse(self, arrival: Interaction, words: str, ack: Acknowledge) -> None:
        answer = _as_answer(arrival, notices.error(words)) if words else None
        await (ack(dict(answer)) if answer else ack())
        if words and arrival.surface in ("action", "shortcut"):
            self._keep(Replies(arrival, self._tools.slack, self._session).say(notices.error(words)))

    async def _write(self, job: _QueuedInteraction, ack: Acknowledge) -> None:
        """Written down, then acknowledged, then done; a repeated delivery is only acknowledged."""
        arrival = job.arrival
        kept = {"surface": arrival.surface, "body": {k: v for k, v in arrival.body.items() if k != "token"}}
        try:
            is_new = await self._outbox.inbox.accept(arrival.key, kept)
        except ResponderBotError as error:
            await self._refuse(arrival, error.message, ack)
            return
        await ack()
        if is_new and not self._queued(job):
            log.warning("queue_full_left_in_inbox")  # replayed once its time in the inbox is over

    def _queued(self, job: _QueuedInteraction) -> bool:
        try:
            self._queue.put_nowait(job)
        except asyncio.QueueFull:
            return False
        return True

    async def _answer(self, job: _QueuedInteraction, ack: Acknowledge) -> None:
        """The handler's answer is the acknowledgement; when it is late, a view says so and is changed after."""
        task = asyncio.create_task(self._result(job))
        done, _ = await asyncio.wait({task}, timeout=ANSWER_S)
        if done:
            result = task.result()
            await (ack(dict(result)) if result else ack())
        elif job.arrival.surface == "view":
            await ack(views.update(views.working()))
            self._keep(self._show_late(job.arrival, task))
        else:
            task.cancel()
            await self._refuse(job.arrival, BUSY, ack)

    async def _result(self, job: _QueuedInteraction) -> Json | None:
        """What an ANSWER entry answers; an error is an answer too."""
        try:
            moment = await self._moment(job)
            refused = refusal(job.entry, moment)
            if refused is None:
                return await job.entry.handler(moment)
        except ResponderBotError as error:
            refused = notices.for_error(error)
        except Exception:
            refused = notices.internal(self._number(job.arrival))
        return _as_answer(job.arrival, refused)

    async def _show_late(self, arrival: Interaction, task: "asyncio.Task[Json | None]") -> None:
        view = _late_view(await task)
        view_id = str((arrival.body.get("view") or {}).get("id") or "")
        try:
            await self._tools.slack.views_update(view_id=view_id, view=dict(view))
        except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError) as error:
            log.info("late_view_not_shown", code=classify(error, "").code)  # most likely it was closed

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Let it run beside; it is awaited at the end."""
        task = asyncio.create_task(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    # working

    async def _work(self) -> None:
        while True:
            job = await self._queue.get()
            try:
                await self._carry_out(job)
            except Exception:
                self._number(job.arrival)
            finally:
                self._queue.task_done()

    async def _carry_out(self, job: _QueuedInteraction) -> None:
        replies = Replies(job.arrival, self._tools.slack, self._session)
        message = await self._outcome(job, replies)
        if message is not None:
            await replies.refuse(message)
        if job.is_written:
            await self._outbox.inbox.complete(job.arrival.key)

    async def _outcome(self, job: _QueuedInteraction, replies: Replies) -> Message | None:
        """Have the feature do it; what to tell the person when it could not."""
        try:
            moment = await self._moment(job, replies)
            refused = refusal(job.entry, moment)
            if refused is None:
                await job.entry.handler(moment)
            return refused
        except ResponderBotError as error:
            log.info("refused", surface=job.arrival.surface, code=error.code)
            return notices.for_error(error)
        except SlackApiError as error:
            return self._of_slack(job.arrival, error)
        except Exception:
            return notices.internal(self._number(job.arrival))

    def _of_slack(self, arrival: Interaction, error: SlackApiError) -> Message | None:
        """A window that Slack does not open or change any more is nobody's fault."""
        code = classify(error, "").code
        if code in TOO_LATE or "trigger_id" in str(error):
            return notices.error(TOO_LATE_WORDS)
        if code in OVERTAKEN or arrival.surface == "event":  # an event has nobody who waits for an answer
            log.info("view_not_shown", code=code)
            return None
        return notices.internal(self._number(arrival))

    async def _person(self, job: _QueuedInteraction, replies: Replies) -> Person | None:
        """Who asks. A modal opens meanwhile where that takes long: its trigger lives 3 s (`slack.md 2`)."""
        looking = asyncio.create_task(self._identity.person(job.arrival.team, job.arrival.user))
        try:
            if job.entry.opens and not (await asyncio.wait({looking}, timeout=SKELETON_S))[0]:
                await replies.show(views.loading(job.entry.opens))
            return await looking
        finally:
            looking.cancel()

    async def _moment(self, job: _QueuedInteraction, replies: Replies | None = None) -> Context:
        arrival, tools = job.arrival, self._tools
        replies = replies or Replies(arrival, tools.slack, self._session)
        person = await self._person(job, replies)
        return Context(
            payload=arrival.payload,
            team=arrival.team,
            user=arrival.user,
            channel=arrival.channel,
            text=job.text,
            trigger_id=arrival.trigger_id,
            response_url=arrival.response_url,
            person=person,
            core=tools.core.as_user(person.login) if person else tools.core,
            tools=tools,
            key=arrival.key,
            say=replies.say,
            replace=replies.replace,
            show=replies.show,
            message_ts=arrival.message_ts,
            thread_ts=arrival.thread_ts,
        )

    def _number(self, arrival: Interaction) -> str:
        """Log a fault of ours under a number that the person is told."""
        number = secrets.token_hex(4)
        log.exception("fault", number=number, surface=arrival.surface)
        return number

    # what another process left

    async def _replay(self) -> None:
        while True:
            try:
                for left in await self._outbox.inbox.take_over_abandoned():
                    await self._again(left)
            except ResponderBotError as error:
                log.warning("replay_failed", reason=error.message)
            await asyncio.sleep(REPLAY_EVERY_S)

    async def _again(self, left: PendingInteraction) -> None:
        arrival = read(left.payload["surface"], left.payload["body"])
        entry, text = entry_of(arrival)
        if entry is None:  # an older release knew it
            await self._outbox.inbox.complete(left.key)
        elif self._tools.clock_ms() - left.at > REPLAY_LIMIT_MS:
            log.info("too_old_to_replay", surface=arrival.surface)
            await self._outbox.inbox.complete(left.key)
            await Replies(arrival, self._tools.slack, self._session).say(notices.error(TOO_OLD))
        else:
            log.info("replayed", surface=arrival.surface)
            await self._queue.put(_QueuedInteraction(entry, arrival, text, True))


def _as_answer(arrival: Interaction, message: Message) -> Json | None:
    """What went wrong, as an acknowledgement; those of clicks and events say nothing."""
    if arrival.surface == "options":
        return lists.message_option(message.text)
    if arrival.surface == "command":
        return notices.acknowledgement(message)
    return views.update(views.message_view("Not done", message)) if arrival.surface == "view" else None


def _late_view(result: Json | None) -> Mapping[str, Any]:
    """What a submission's answer looks like once its time is over: only a view can be shown."""
    if not result:
        return views.notice("Done", "It is done.")
    if result.get("response_action") == "errors":
        return views.notice("Not done", *(notices.error(text).text for text in result["errors"].values()))
    view: Mapping[str, Any] = result.get("view") or views.notice("Done", "It is done.")
    return view
