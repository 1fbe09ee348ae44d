"""Acknowledge each interaction by the class of its entry, and run the feature's handler."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import structlog
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.app.interactions import Interaction, InteractionType, entry_of, parse
from bot.app.replies import Replies, ResponseUrls
from bot.app.workers import Workers
from bot.block_kit import elements, modals, notices
from bot.block_kit.text import strip_markup
from bot.features.authorization import explained, refusal
from bot.features.base import Ack, Context, Entry, Json, Services
from bot.features.home import handlers as home
from bot.features.responses import OutOfDateError
from bot.identity import Identity
from bot.message import Message
from bot.outbox.errors import SLACK_FAILURES, classify
from bot.outbox.inbox import PendingInteraction
from bot.outbox.models import RefreshRequest
from bot.outbox.outbox import MessageOutbox
from core.client import UNANSWERED
from core.common import logs
from core.common.clock import Clock
from core.common.decoding import mapping
from core.common.errors import ResponderBotError
from core.common.tasks import cancel_and_wait, until_stored
from core.models import Person

QUEUE_SIZE = 1_000  # further READ interactions are refused
WORKERS = 16
SKELETON_S = 0.8  # a modal opens as a skeleton if core takes longer to say who asks
RESPONSE_S = 2.0  # core's time for a RESPONSE entry; Slack waits 3 s
ACCEPT_S = 2.0  # the database's time to store a click; Slack waits 3 s
LATE_ACCEPT_S = 0.7  # the same once RESPONSE_S is over
REPLAY_EVERY_S = 2.0
REQUEST_ID_CHARS = 16
# Older interactions are not replayed: nobody expects a host to be isolated an hour after the click, and core forgets an
# Idempotency-Key after a day.
REPLAY_LIMIT_MS = 10 * 60_000
LOOK_EVERY_S = 0.5
GAP_MS = 3_000  # Slack waits 3 s, then tells people that it failed
LATE_MS = 2_000  # after a gap, for what waited in the sockets
MAX_AGE_MS = 10_000  # over HTTP, by Slack's clock; more than GAP_MS, since clocks differ
CARRIED_OUT = ("command", "action", "view", "shortcut")
CHANNEL_EVENTS = (  # after these, Slack is asked again what the channels may show
    "member_joined_channel",  # of the bot itself; other members change nothing
    "channel_archive",
    "channel_unarchive",
    "group_archive",  # of a private channel
    "group_unarchive",
    "channel_shared",
    "channel_unshared",
)
TRIGGER_EXPIRED = (
    "expired_trigger_id", "exchanged_trigger_id", "invalid_trigger_id", "trigger_expired", "trigger_exchanged",
)  # fmt: skip
VIEW_OUTDATED = ("hash_conflict", "not_found", "view_not_found")  # it was updated meanwhile, or closed

TOO_OLD_TEXT = (
    "The bot was away when you asked for something a while ago, so it may not have been done; "
    "look at the card, and ask again if it is still needed."
)
UNKNOWN_TEXT = (
    "This belongs to another release of responder-bot, nothing was done. `/responder help` shows what there is."
)
TRIGGER_EXPIRED_TEXT = "The window could not be opened in the time that Slack gives for it; please try again."
STORE_TEXT = (
    "The database can't be used now, so nothing was done; try again in a moment, and tell an administrator if it"
    " stays so."
)
LATE_TEXT = (
    "The bot was halted when you asked for this, and Slack has told you that it failed; nothing was done, so ask again."
)
BUSY_TEXT = "Too much is going on right now; please try again in a moment."
FOREIGN_TEAM_TEXT = "Only members of this workspace can use responder-bot."

log = structlog.get_logger("bot.app")

Acknowledge = Callable[..., Awaitable[Any]]


@dataclass
class AppInstallation:
    """Where the app is installed and which user it is, from `auth.test`. Empty until Slack has answered it."""

    team_id: str = ""
    enterprise_id: str = ""
    bot_user_id: str = ""
    workspace_url: str = ""  # such as https://soc.slack.com/

    def owns(self, interaction: Interaction) -> bool:
        """Whether every team in the payload is the bot's own; with a Slack Connect guest one isn't."""
        return bool(interaction.teams) and interaction.teams <= {self.team_id, self.enterprise_id}

    def learn(self, response: AsyncSlackResponse) -> None:
        """Take over the answer of `auth.test`."""
        self.enterprise_id = str(response.get("enterprise_id") or "")
        self.bot_user_id = str(response["user_id"])
        self.workspace_url = str(response.get("url") or "")
        self.team_id = str(response["team_id"])


@dataclass(frozen=True)
class _QueuedInteraction:
    entry: Entry
    interaction: Interaction
    text: str
    inbox_key: str = ""  # "" where it isn't in the inbox

    def begin(self) -> None:
        """Log it, and have all that is done for it carry its id, here and in core."""
        interaction = self.interaction
        logs.set_request_id(interaction.idempotency_key[:REQUEST_ID_CHARS])
        write = log.debug if interaction.type == "options" else log.info  # those come with each letter that is typed
        feature = self.entry.handler.__module__.split(".")[2]  # bot.features.<feature>
        write("interaction", type=interaction.type, feature=feature, user=interaction.user, channel=interaction.channel)


class Dispatcher:
    """Receives the interactions of all types. READ ones wait in memory.

    WRITE ones are committed to the inbox first, and so are submissions that Slack hears of before they are done.
    """

    def __init__(
        self,
        services: Services,
        outbox: MessageOutbox,
        identity: Identity,
        installation: AppInstallation,
        response_urls: ResponseUrls,
        on_channel_changed: Callable[[str], Coroutine[Any, Any, None]],
        time_acknowledgement: Callable[[str], AbstractContextManager[None]],
        workers: Workers,
        boot_ms: Clock,
    ) -> None:
        self._services = services
        self._outbox = outbox
        self._identity = identity
        self._installation = installation
        self._response_urls = response_urls
        self._on_channel_changed = on_channel_changed
        self._time_acknowledgement = time_acknowledgement
        self._workers = workers
        self._boot_ms = boot_ms
        self._looked_ms = boot_ms()  # when this process last ran for certain
        self._late_until_ms = 0  # until then payloads arrive that have waited while it was frozen
        self._queue: asyncio.Queue[_QueuedInteraction] = asyncio.Queue(QUEUE_SIZE)
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._homes: dict[str, asyncio.Task[None]] = {}  # by person; what publishes it
        self._in_hand: set[str] = set()  # keys in the inbox of what is queued or carried out here
        self._unstored: set[str] = set()  # and of what is done, which the database doesn't know yet

    def start(self) -> None:
        """Start the workers and the replay of the inbox."""
        self._workers.start(self._work, count=WORKERS)
        self._workers.start(self._replay, every_s=REPLAY_EVERY_S)
        self._workers.start(self._look_for_gaps, every_s=LOOK_EVERY_S)

    async def close(self, grace_s: float) -> None:
        """Finish what is queued within `grace_s`; what is left in the inbox is replayed after the next start."""
        try:
            async with asyncio.timeout(grace_s):
                await self._queue.join()
                await asyncio.gather(*self._background_tasks, return_exceptions=True)
        except TimeoutError:
            log.warning("interactions_left_at_close", waiting=self._queue.qsize())
        await self._workers.close()
        await cancel_and_wait(*self._background_tasks, *self._homes.values())

    async def dispatch(
        self, interaction_type: InteractionType, body: Mapping[str, Any], ack: Acknowledge, *, age_ms: int = 0
    ) -> None:
        """Handle a payload that Slack sent so long ago, as far as that is known. Returns once it is acknowledged."""
        with self._time_acknowledgement(interaction_type):
            await self._dispatch(parse(interaction_type, body), ack, age_ms)

    async def _look_for_gaps(self) -> None:
        self._is_after_gap()

    def _is_after_gap(self) -> bool:
        """Whether this process was frozen a moment ago, as a paused VM is, so that what arrives has waited."""
        now = self._boot_ms()
        if now - self._looked_ms > GAP_MS:
            log.warning("frozen", seconds=(now - self._looked_ms) // 1000)
            self._late_until_ms = now + LATE_MS
        self._looked_ms = now
        return now < self._late_until_ms

    async def _dispatch(self, interaction: Interaction, ack: Acknowledge, age_ms: int) -> None:
        if not self._installation.owns(interaction):
            log.warning("foreign_team_refused", type=interaction.type)
            await self._refuse(interaction, FOREIGN_TEAM_TEXT, ack)
            return
        if interaction.type in CARRIED_OUT and (self._is_after_gap() or age_ms > MAX_AGE_MS):
            log.warning("late_interaction_dropped", type=interaction.type)
            await ack()
            self._run_in_background(self._replies(interaction).respond(notices.error(LATE_TEXT)))
            return
        entry, text = entry_of(interaction)
        if interaction.type == "event" and interaction.payload.get("type") in CHANNEL_EVENTS:
            await self._channel_event(interaction, ack)
        elif entry is None:
            await self._refuse(interaction, "" if interaction.type == "event" else UNKNOWN_TEXT, ack)
        elif entry.ack is Ack.RESPONSE:
            await self._answer(_QueuedInteraction(entry, interaction, text, interaction.idempotency_key), ack)
        elif entry.ack is Ack.WRITE:
            await self._accept(_QueuedInteraction(entry, interaction, text, interaction.idempotency_key), ack)
        elif self._enqueue(_QueuedInteraction(entry, interaction, text)):
            await ack()
        else:
            await self._refuse(interaction, BUSY_TEXT, ack)

    # acknowledging

    async def _channel_event(self, interaction: Interaction, ack: Acknowledge) -> None:
        await ack()
        is_join = interaction.payload["type"] == "member_joined_channel"
        if not is_join or interaction.user == self._installation.bot_user_id:
            self._run_in_background(self._on_channel_changed(interaction.channel))

    async def _refuse(self, interaction: Interaction, text: str, ack: Acknowledge) -> None:
        response = _as_acknowledgement(interaction, notices.error(text)) if text else None
        await (ack(dict(response)) if response else ack())
        if text and interaction.type in ("action", "shortcut"):
            replies, told = self._replies(interaction), notices.error(text)
            in_place = replies.respond(told) if interaction.response_url else replies.show("Not done", told)
            self._run_in_background(in_place)

    async def _accept(self, item: _QueuedInteraction, ack: Acknowledge) -> None:
        """Commit it to the inbox, acknowledge it, then queue it. A repeated delivery is only acknowledged."""
        interaction = item.interaction
        accepting = asyncio.create_task(self._outbox.inbox.accept(item.inbox_key, _pending(interaction)))
        try:
            async with asyncio.timeout(ACCEPT_S):
                is_new = await asyncio.shield(accepting)
        except (ResponderBotError, TimeoutError) as error:
            log.warning("interaction_not_stored", type=interaction.type, reason=str(error) or "no answer")
            self._run_in_background(self._withdraw(item.inbox_key, accepting))
            await self._refuse(interaction, STORE_TEXT, ack)
            return
        await ack()
        if is_new and not self._enqueue(item):
            log.warning("queue_full", type=interaction.type)  # it is replayed once its lease in the inbox expires

    async def _withdraw(self, key: str, accepting: "asyncio.Task[bool]") -> None:
        """The person has read that nothing is done, so it must not be carried out if it is stored late."""
        is_new = (await asyncio.gather(accepting, return_exceptions=True))[0]
        if is_new is not False:  # else it came before, and was accepted then
            self._unstored.add(key)
            await self._write_until_stored(key, lambda: self._outbox.inbox.complete(key))

    async def _write_until_stored(self, key: str, write: Callable[[], Awaitable[None]]) -> None:
        """Repeat a write while the database is away, so that what a person has read holds."""
        try:
            await until_stored(write)
        finally:
            self._unstored.discard(key)

    def _enqueue(self, item: _QueuedInteraction) -> bool:
        try:
            self._queue.put_nowait(item)
        except asyncio.QueueFull:
            return False
        self._in_hand.add(item.inbox_key)
        return True

    async def _answer(self, item: _QueuedInteraction, ack: Acknowledge) -> None:
        """Acknowledge with the handler's result. If it is late, say so; a view is updated with the result later.

        Such a submission is in the inbox until then: once it is acknowledged, a crash must not lose it.
        """
        task = asyncio.create_task(self._result(item))
        done, _ = await asyncio.wait({task}, timeout=RESPONSE_S)
        if done:
            result = task.result()
            await (ack(dict(result)) if result else ack())
        elif item.interaction.type == "view":
            self._in_hand.add(item.inbox_key)
            await self._store_late(item)
            await ack(modals.update(modals.working()))
            self._run_in_background(self._finish_late(item, task))
        else:
            task.cancel()
            await self._refuse(item.interaction, BUSY_TEXT, ack)

    async def _result(self, item: _QueuedInteraction) -> Json | None:
        """The result of a RESPONSE entry; errors become results too."""
        item.begin()
        result, refused = await self._run_handler(item, self._replies(item.interaction), [])
        return result if refused is None else _as_acknowledgement(item.interaction, refused)

    async def _store_late(self, item: _QueuedInteraction) -> None:
        """Store a submission that is being carried out, so that another bot does it if this one is killed."""
        try:
            async with asyncio.timeout(LATE_ACCEPT_S):
                await self._outbox.inbox.accept(item.inbox_key, _pending(item.interaction))
        except (ResponderBotError, TimeoutError) as error:  # it is done all the same, unless this bot is killed, too
            log.warning("interaction_not_stored", type=item.interaction.type, reason=str(error) or "no answer")

    async def _finish_late(self, item: _QueuedInteraction, task: "asyncio.Task[Json | None]") -> None:
        result = await task
        self._unstored.add(item.inbox_key)
        self._in_hand.discard(item.inbox_key)
        await self._write_until_stored(item.inbox_key, lambda: self._outbox.inbox.complete(item.inbox_key))
        await self._show_late_result(item.interaction, result)

    async def _show_late_result(self, interaction: Interaction, result: Json | None) -> None:
        submitted = mapping(interaction.body.get("view"))
        view = _late_view(result, submitted)
        view_id = str(submitted.get("id") or "")
        try:
            await self._services.slack.views_update(view_id=view_id, view=dict(view))
        except SLACK_FAILURES as error:
            log.info("view_not_updated", code=classify(error).code)  # most likely it was closed

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    # working

    async def _work(self) -> None:
        while True:
            item = await self._queue.get()
            try:
                await self._handle(item)
            except Exception:
                self._log_internal_error(item.interaction)
            finally:
                self._in_hand.discard(item.inbox_key)
                self._queue.task_done()

    async def _handle(self, item: _QueuedInteraction) -> None:
        item.begin()
        if item.inbox_key and await self._is_taken_over(item.inbox_key):
            return
        if item.entry.ack is Ack.RESPONSE:  # a submission that another bot had in hand when it was killed
            await self._finish_late(item, asyncio.create_task(self._result(item)))
            return
        replies = self._replies(item.interaction)
        requests: list[RefreshRequest] = []
        _, refused = await self._run_handler(item, replies, requests)
        if refused is not None:
            await replies.refuse(refused)
        try:
            await self._outbox.finish(requests, key=item.inbox_key)
        except ResponderBotError:
            self._unstored.add(item.inbox_key)
            work = self._write_until_stored(item.inbox_key, lambda: self._outbox.finish(requests, key=item.inbox_key))
            self._run_in_background(work)

    async def _is_taken_over(self, key: str) -> bool:
        """Whether another replica carries it out, since this one was frozen for a while."""
        try:
            return not await self._outbox.inbox.holds(key)
        except ResponderBotError:  # the response below says so
            return False

    async def _run_handler(
        self, item: _QueuedInteraction, replies: Replies, requests: list[RefreshRequest]
    ) -> tuple[Json | None, Message | None]:
        """Run the feature's handler, which adds to `requests`. Its result, and what to tell the person if it failed.

        What people wait to see is stored before a RESPONSE entry has its result, which may say that it is done.
        """
        result, refused, context, interaction = None, None, None, item.interaction
        try:
            context = await self._context(item, replies, requests)
            refused = refusal(item.entry, context)
            if refused is None:
                result = await item.entry.handler(context)
                if item.entry.ack is Ack.RESPONSE:
                    await self._outbox.finish(requests)
        except OutOfDateError:
            pass
        except ResponderBotError as error:
            log.info("interaction_refused", type=interaction.type, code=error.code)
            refused = await explained(self._services, error)
        except SlackApiError as error:
            refused = self._slack_error(interaction, error)
        except Exception:
            refused = notices.internal(self._log_internal_error(interaction))
        if context is not None and interaction.is_of_home and (requests or interaction.type in ("view", "event")):
            self._publish_in_background(context)
        if result and "view" in result:
            result = {**result, "view": replies.opened_here(result["view"])}
        return result, refused

    def _publish_in_background(self, context: Context) -> None:
        """Publish a person's Home and follow it, in place of what has done so until now."""
        if before := self._homes.get(context.user):
            before.cancel()
        self._homes[context.user] = asyncio.create_task(self._publish_home(context))

    async def _publish_home(self, context: Context) -> None:
        try:
            await home.publish_and_follow(context)
        except SLACK_FAILURES as error:
            log.info("home_not_published", code=classify(error).code)
        except ResponderBotError as error:
            log.info("home_not_published", code=error.code)

    def _slack_error(self, interaction: Interaction, error: SlackApiError) -> Message | None:
        """What to tell the person; None for a view that was closed or updated meanwhile, which is no fault."""
        code = classify(error).code
        if code in TRIGGER_EXPIRED or "trigger_id" in str(error):
            return notices.error(TRIGGER_EXPIRED_TEXT)
        if code in VIEW_OUTDATED or interaction.type == "event":  # nobody waits for a response to an event
            log.info("view_not_updated", code=code)
            return None
        return notices.internal(self._log_internal_error(interaction))

    async def _context(self, item: _QueuedInteraction, replies: Replies, requests: list[RefreshRequest]) -> Context:
        interaction, services = item.interaction, self._services
        person, ended, core_problem = None, "", ""
        try:
            person = await self._person(item, replies)
            ended = await self._identity.ended(interaction.team, interaction.user)
        except ResponderBotError as error:
            if not item.entry.works_without_core or UNANSWERED not in error.details:
                raise
            core_problem = notices.sentence(error)
        origin = f"{interaction.team}:{interaction.user}:{interaction.channel}"
        return Context(
            payload=interaction.payload,
            team=interaction.team,
            user=interaction.user,
            channel=interaction.channel,
            text=item.text,
            linked=person,
            ended=ended,
            core=services.core.as_user(person.login, origin) if person else services.core,
            services=services,
            idempotency_key=interaction.idempotency_key,
            respond=replies.respond,
            show=replies.show,
            replace_original=replies.replace_original,
            show_modal=replies.show_modal,
            opened_here=replies.opened_here,
            message_ts=interaction.message_ts,
            thread_ts=interaction.thread_ts,
            refresh_requests=requests,
            core_problem=core_problem,
        )

    async def _person(self, item: _QueuedInteraction, replies: Replies) -> Person | None:
        """Who asks. If that takes long, a modal opens as a skeleton meanwhile, since its trigger expires after 3 s."""
        lookup = asyncio.create_task(self._identity.person(item.interaction.team, item.interaction.user))
        try:
            if item.entry.modal_title and not (await asyncio.wait({lookup}, timeout=SKELETON_S))[0]:
                await replies.show_modal(modals.loading(item.entry.modal_title))
            try:
                return await lookup
            except SLACK_FAILURES as error:
                code = classify(error).code
                sentence = f"Slack doesn't say who you are now ({code}), so nothing was done; try again in a moment."
                raise ResponderBotError("unavailable", sentence) from error
        finally:
            lookup.cancel()

    def _replies(self, interaction: Interaction) -> Replies:
        return Replies(interaction, self._services.slack, self._response_urls)

    def _log_internal_error(self, interaction: Interaction) -> str:
        """Log the current exception. Returns the number that the log and the person get."""
        number = secrets.token_hex(4)
        log.exception("internal_error", number=number, type=interaction.type)
        return number

    # replaying what another process left in the inbox

    async def _replay(self) -> None:
        for pending in await self._outbox.inbox.take_over_abandoned():
            await self._replay_one(pending)

    async def _replay_one(self, pending: PendingInteraction) -> None:
        if pending.key in self._in_hand or pending.key in self._unstored:
            return
        interaction = parse(pending.payload["surface"], pending.payload["body"])
        entry, text = entry_of(interaction)
        if entry is None:  # an older release had it
            await self._outbox.inbox.complete(pending.key)
        elif self._services.clock_ms() - pending.at > REPLAY_LIMIT_MS:
            log.info("replay_expired", type=interaction.type)
            await self._outbox.inbox.complete(pending.key)
            await self._replies(interaction).respond(notices.error(TOO_OLD_TEXT))
        else:
            log.info("interaction_replayed", type=interaction.type)
            self._in_hand.add(pending.key)
            await self._queue.put(_QueuedInteraction(entry, interaction, text, pending.key))


def _pending(interaction: Interaction) -> dict[str, Any]:
    """The interaction as the inbox keeps it."""
    return {"surface": interaction.type, "body": {k: v for k, v in interaction.body.items() if k != "token"}}


def _as_acknowledgement(interaction: Interaction, message: Message) -> Json | None:
    """An error as an acknowledgement; None for clicks, shortcuts and events, whose acknowledgements say nothing."""
    if interaction.type == "options":
        return elements.message_option(strip_markup(message.text))
    if interaction.type == "command":
        return notices.acknowledgement(message)
    return modals.update(modals.message_view("Not done", message)) if interaction.type == "view" else None


def _late_view(result: Json | None, submitted: Mapping[str, Any]) -> Mapping[str, Any]:
    """The view that shows a submission's result once it is too late to acknowledge with it."""
    result = result or {}
    if result.get("response_action") == "errors":
        labels = modals.labels(submitted)
        problems = [f"{labels.get(block, '')}: {text}".removeprefix(": ") for block, text in result["errors"].items()]
        return modals.notice("Not done", *(notices.error(text).text for text in problems))
    return mapping(result.get("view")) or modals.notice("Done", "It is done.")
