"""Makes Slack show what is desired: rate limited, what people wait for first, nothing twice."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.clearance import RED
from bot.outbox import messages
from bot.outbox.errors import DeliveryError, classify, classify_upload
from bot.outbox.models import IN_BULK, WITHHOLDING, MessageRecord, is_person, record_of
from bot.outbox.replicas import Replicas
from bot.outbox.sending import files, lookup, order
from bot.outbox.sending.files import DELETE_FILE, UPLOAD_FILE, Uploads
from bot.outbox.sending.order import POST, UPDATE, Call
from bot.outbox.sending.rate_limiter import RateLimiter
from core.common.database import Database, Reads, Transaction
from core.common.errors import ResponderBotError
from core.common.tasks import Backoff

MAX_CALLS = 8  # under way at a time, each to another channel
POLL_MS = 200  # how soon a write of another replica is seen
ANSWER_MS = 2_000  # a post without an answer may still arrive for this long before it is looked for
ADMIN_RETRY_MS = 60_000  # how often a call is repeated that an administrator must make possible
AFTER_FAILURE = Backoff(0.5, 60.0)
STORE_RETRY_MS = 1_000
LATE_MS = 15_000  # a card that Slack's limits kept back for longer says so
DUPLICATE_CHECK_MS = 60_000  # after a post was repeated: by then the first one has arrived, or never will
SET_BACK_MS = 1_000  # a clock that shows so much less than before was set back

TOGETHER_MS = 100  # how long the outcome of a call waits for those of others, to share their commit

Outcome = Callable[[Transaction], object]
"""Records what a call did."""
RECORDED: Outcome = lambda _tx: None  # noqa: E731  # it is recorded already

log = structlog.get_logger("bot.outbox")


@dataclass(frozen=True)
class ClearanceGuard:
    """The last check before something is sent, since what a channel may show can change after it was rendered.

    `clearance_of` gives the highest clearance of a channel or user now; `on_blocked` is called when a message may not
    be sent.
    """

    clearance_of: Callable[[str], int] = lambda _channel: RED
    on_blocked: Callable[[], None] = lambda: None


class _LeaseOverError(Exception):
    """This replica's lease is over."""


class Sender:
    """Sends what is due. Of several replicas only the leader runs it.

    One that was frozen, or cut off from the database, calls Slack no more once its lease is over.

    Calls that end together are recorded in one commit, and so are posts that begin together.
    """

    def __init__(
        self,
        store: Database,
        slack: AsyncWebClient,
        clock_ms: Callable[[], int],
        rate_limiter: RateLimiter,
        guard: ClearanceGuard,
        replicas: Replicas,
    ) -> None:
        self._store = store
        self._slack = slack
        self._clock = clock_ms
        self._rate_limiter = rate_limiter
        self._guard = guard
        self._replicas = replicas
        self._uploads = Uploads(store, slack)
        self._wake = asyncio.Event()
        self._served: dict[str, int] = {}  # by channel: the number of its last call
        self._calls = 0
        self._aged: set[tuple[str, str]] = set()  # channels and methods: the last call there went ahead for its age
        self._busy: set[str] = set()  # channels with a call under way, or whose outcome isn't recorded
        self._outcomes: dict[str, Outcome] = {}  # by channel: what to record of calls that have ended
        self._record_at = 0.0  # on the monotonic clock, while there are any
        self._latest = 0  # what the clock has shown; 0: not looked at yet
        self._is_store_away = False
        self.problem = ""
        """Why nothing at all can be sent, as a sentence; "" while it can."""

    def wake(self) -> None:
        """Check for due messages now."""
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled. A post that is under way then is found again by its `post_id`."""
        self._busy.clear()
        self._outcomes.clear()
        self.problem = ""
        self._latest = 0
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                version = self._store.version()
                try:
                    if self._are_outcomes_due():
                        await self._record_outcomes()
                        version = self._store.version()
                    await self._follow_clock()
                    until = await self._start_due(group)
                except ResponderBotError as error:
                    until = self._pause_for_store(error)
                await self._pause(version, until)

    async def _follow_clock(self) -> None:
        """What waits for a time goes on at once when the clock was set back, and at the start, as it may have been."""
        now, latest = self._clock(), self._latest
        if latest and now >= latest - SET_BACK_MS:
            self._latest = now
            return
        if latest:
            log.warning("clock_set_back", ms=latest - now)
            self._rate_limiter.follow_clock(now - latest)
        self._latest = now
        await self._store.transaction(lambda tx: messages.stop_waiting(tx, now, now + DUPLICATE_CHECK_MS))

    def _are_outcomes_due(self) -> bool:
        """Whether all calls have ended, or the first one TOGETHER_MS ago."""
        have_all_ended = len(self._outcomes) == len(self._busy)
        return bool(self._outcomes) and (have_all_ended or time.monotonic() >= self._record_at)

    async def _record_outcomes(self) -> None:
        """Record what calls did. If that fails, the messages are still as they were, and are sent again."""
        outcomes, self._outcomes = self._outcomes, {}

        def work(tx: Transaction) -> None:
            for record in outcomes.values():
                record(tx)

        try:
            await self._store.transaction(work)
            if self._is_store_away:
                self._is_store_away = False
                self._set_problem("")
        finally:
            self._busy.difference_update(outcomes)

    async def _start_due(self, group: asyncio.TaskGroup) -> int:
        """Start the calls that may be made now; returns when to check again, in ms of the clock."""
        now, busy, aged = self._clock(), frozenset(self._busy), frozenset(self._aged)

        def work(reads: Reads) -> tuple[list[MessageRecord], list[Call], int]:
            self._replicas.refuse_others(reads)
            suspected = [record_of(row) for row in messages.suspected_duplicates(reads, now)]
            until = messages.next_due_at(reads, now) or now + ADMIN_RETRY_MS
            return suspected, order.due(reads, now, busy, aged), until

        suspected, due, until = await self._store.read(work)
        for message in suspected:
            if len(self._busy) < MAX_CALLS and message.channel not in self._busy:
                self._busy.add(message.channel)
                group.create_task(self._run(message.channel, self._delete_duplicates(message)))
        calls, until = self._choose(due, now, until)

        def start(call: Call) -> None:
            channel = call.message.channel
            self._rate_limiter.record(call.method, channel)
            self._busy.add(channel)
            self._calls += 1
            self._served[channel] = self._calls
            (self._aged.add if call.is_for_age else self._aged.discard)((channel, call.method))
            group.create_task(self._run(channel, self._send(call)))

        posts = [call for call in calls if call.is_new_post]
        for call in calls:
            if not call.is_new_post:
                start(call)
        if posts:

            def begin(tx: Transaction) -> list[Call]:
                return [call for call in posts if messages.begin_post(tx, call.message, now)]

            for call in await self._store.transaction(begin):
                call.post_began_at = now
                start(call)
        return until

    def _choose(self, due: Sequence[Call], now: int, until: int) -> tuple[Sequence[Call], int]:
        """Of what is due the calls that may be made now, and when to choose again, at the latest at `until`."""
        chosen: dict[str, Call] = {}
        for call in sorted(due, key=self._turn):
            channel = call.message.channel
            if len(self._busy) + len(chosen) >= MAX_CALLS:
                break
            if channel in chosen or channel in self._busy:
                continue
            if call.method != DELETE_FILE and not self._is_cleared(call.message):
                self._guard.on_blocked()
                continue
            ahead = sum(other.method == call.method for other in chosen.values())
            wait_ms = self._rate_limiter.wait_ms(call.method, channel, now, rank=call.rank, ahead=ahead)
            if wait_ms:
                until = min(until, now + wait_ms)
            else:
                chosen[channel] = call
        return list(chosen.values()), until

    def _turn(self, call: Call) -> tuple[int, int, int, bool]:
        """By rank; of one rank that of the channel first which was served longest ago."""
        served = self._served.get(call.message.channel, 0)
        return call.rank, served, call.message.pending_since, call.method != UPDATE

    def _is_cleared(self, message: MessageRecord) -> bool:
        return message.clearance != messages.UNKNOWN and message.clearance <= self._guard.clearance_of(message.channel)

    async def _pause(self, version: int, until: int) -> None:
        while not self._wake.is_set() and self._store.version() == version:
            now = self._clock()
            left = until - now
            if left <= 0 or now < self._latest - SET_BACK_MS:
                return
            self._latest = now
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, POLL_MS) / 1000):
                    await self._wake.wait()

    async def _run(self, channel: str, call: Coroutine[Any, Any, Outcome]) -> None:
        self._outcomes[channel] = await call
        if len(self._outcomes) == 1:
            self._record_at = time.monotonic() + TOGETHER_MS / 1000
            asyncio.get_running_loop().call_later(TOGETHER_MS / 1000 + 0.001, self._wake.set)
        if self._are_outcomes_due():
            self._wake.set()

    async def _send(self, call: Call) -> Outcome:
        message, outcome = call.message, RECORDED
        try:
            self._check_lease()
            if call.method == UPLOAD_FILE:
                await self._uploads.upload(message)
            elif call.method == DELETE_FILE:
                await self._uploads.delete(message)
            elif call.method == UPDATE:
                outcome = await self._update(message)
            else:
                outcome = await self._post(call)
        except _LeaseOverError:  # another replica sends it
            return RECORDED
        except ResponderBotError as error:
            self._pause_for_store(error)
            return RECORDED
        except Exception as error:
            return self._failure(call, error)
        if not self._is_store_away:
            self._set_problem("")
        return outcome

    def _set_problem(self, problem: str) -> None:
        if bool(problem) != bool(self.problem):
            write, event = (log.warning, "sending_stopped") if problem else (log.info, "sending_resumed")
            write(event, **({"reason": problem} if problem else {}))
        self.problem = problem

    def _check_lease(self) -> None:
        """Raise if another replica may lead by now, so that what was read before is not to be sent any more."""
        if not self._replicas.left_ms():
            raise _LeaseOverError

    def _pause_for_store(self, error: ResponderBotError) -> int:
        """Our own database failed: messages are still as they were there, and are sent again. Returns when."""
        self._is_store_away = True  # until something is recorded: what Slack took may not be
        self._set_problem(error.message)
        self._rate_limiter.block("", "", self._clock(), STORE_RETRY_MS)
        return self._clock() + STORE_RETRY_MS

    # --- posts and updates ------------------------------------------------------------------------------------------

    async def _post(self, call: Call) -> Outcome:
        message, channel = call.message, call.message.slack_channel
        if is_person(channel):
            channel = await self._open_conversation(message)
        if message.status == "posting":
            look_at = message.attempted_at + ANSWER_MS
            if message.attempted_at <= self._clock() < look_at:  # it may still arrive
                return lambda tx: messages.retry_at(tx, message.key, look_at, message.problem)
            if ts := await self._find_lost_post(message, channel):
                return self._sent(message, message.attempted_version, ts, channel)
            now = self._clock()
            check_at = now + DUPLICATE_CHECK_MS
            if not await self._store.transaction(lambda tx: messages.begin_post(tx, message, now, check_at)):
                return RECORDED
            call.post_began_at = now
        thread = {"thread_ts": message.root_ts} if message.root_ts else {}
        self._check_lease()
        response = await self._slack.api_call(
            POST, json={"channel": channel, **self._content(message), **thread, "unfurl_links": False}
        )
        return self._sent(message, message.version, str(response["ts"]), str(response["channel"]))

    async def _open_conversation(self, message: MessageRecord) -> str:
        """The channel id of the direct messages to a person."""
        response = await self._slack.api_call("conversations.open", json={"users": message.channel})
        channel = str(response["channel"]["id"])
        await self._store.transaction(lambda tx: messages.set_conversation(tx, message.key, channel))
        return channel

    async def _find_lost_post(self, message: MessageRecord, channel: str) -> str:
        """The `ts` of a post whose answer was lost; "" if it never arrived."""
        earliest = min(message.attempted_at, self._clock())  # which may have been set back since
        posts = lookup.posts_of(self._slack, message, channel, earliest, message.attempted_at)
        async with aclosing(posts) as matches:
            async for ts in matches:
                return ts
        return ""

    async def _update(self, message: MessageRecord) -> Outcome:
        channel = message.slack_channel
        await self._slack.api_call(UPDATE, json={"channel": channel, "ts": message.ts, **self._content(message)})
        return self._sent(message, message.version, message.ts, channel)

    def _sent(self, message: MessageRecord, version: int, ts: str, channel: str) -> Outcome:
        now = self._clock()
        return lambda tx: messages.mark_sent(tx, message, version, now, ts, channel, now + DUPLICATE_CHECK_MS)

    def _content(self, message: MessageRecord) -> dict[str, Any]:
        content = message.content()
        if message.is_plain:
            first_lines = "\n".join(content["text"].splitlines()[:3])[:3000]
            content = {"text": first_lines or "A message of responder-bot.", "blocks": []}
        waited_ms = self._clock() - message.pending_since
        # Only Slack's own limits are worth a line, and not where many are rendered again.
        is_news = message.rank not in (IN_BULK, WITHHOLDING)
        was_limited = is_news and (not message.problem or "429" in message.problem)
        if was_limited and waited_ms >= LATE_MS:
            content = _with_late_note(content, waited_ms)
        return {**content, "metadata": lookup.metadata(message.post_id)}

    # --- duplicates -------------------------------------------------------------------------------------------------

    async def _delete_duplicates(self, message: MessageRecord) -> Outcome:
        """A lost post that was repeated may have arrived late: delete all posts but the one whose `ts` is known."""
        next_check_at = 0  # never
        try:
            if not message.ts:  # it is still being posted
                raise TimeoutError
            posted_ms = int(float(message.ts) * 1000)
            candidates = lookup.posts_of(self._slack, message, message.slack_channel, posted_ms, posted_ms)
            async with aclosing(candidates) as posts:
                duplicates = [ts async for ts in posts if ts != message.ts]
            for ts in duplicates:
                self._check_lease()
                log.info("duplicate_deleted", key=message.key)
                await self._slack.api_call("chat.delete", json={"channel": message.slack_channel, "ts": ts})
        except Exception as error:
            log.info("duplicate_check_failed", key=message.key, reason=type(error).__name__)
            if isinstance(error, _LeaseOverError) or _classified(error, message).is_temporary:
                next_check_at = self._clock() + DUPLICATE_CHECK_MS
        return lambda tx: messages.suspect_duplicate(tx, message.key, next_check_at)

    # --- failures ---------------------------------------------------------------------------------------------------

    def _failure(self, call: Call, error: Exception) -> Outcome:
        message, method = call.message, call.method
        failure = _classified(error, message)
        if method == UPLOAD_FILE:
            failure = classify_upload(failure, message.channel)
        log.info(
            "slack_call_failed",
            method=method,
            channel=message.channel,
            key=message.key,
            kind=failure.kind,
            code=failure.code,
        )
        self._set_problem(failure.message if failure.kind in ("app_refused", "not_sent", "unknown") else "")
        now = self._clock()
        if failure.kind == "rate_limited":
            self._rate_limiter.block(method, message.channel, now, int(failure.wait_s * 1000))
        return lambda tx: _record_failure(tx, call, failure, now)


def _record_failure(tx: Transaction, call: Call, failure: DeliveryError, now: int) -> None:
    message, is_file = call.message, call.method in (UPLOAD_FILE, DELETE_FILE)
    if call.method == POST and failure.kind != "unknown":
        messages.post_failed(tx, message.key, call.post_began_at)
    if failure.kind == "content_refused" and not message.is_plain:
        log.error("blocks_refused", key=message.key, code=failure.code)
        messages.fall_back_to_text(tx, message.key, failure.message)
    elif failure.kind == "deleted":
        messages.mark_deleted(tx, message, now)
        files.give_up(tx, message.key)
    else:
        retry_at = files.retry_at if is_file else messages.retry_at
        failures = message.file_failures if is_file else message.failures
        due_at = now + _wait_ms(failure, failures)
        retry_at(tx, message.key, due_at, failure.message)
        if call.method == POST and failure.kind == "channel_unavailable":
            messages.retry_channel_at(tx, message.channel, now, due_at, failure.message)


def _wait_ms(failure: DeliveryError, failures: int) -> int:
    """How long to wait after a failure that came after `failures` others."""
    if failure.kind == "rate_limited":
        return int(failure.wait_s * 1000)
    if failure.kind in ("unknown", "not_sent"):
        return int(AFTER_FAILURE.after(failures + 1) * 1000)
    return ADMIN_RETRY_MS


def _classified(error: Exception, message: MessageRecord) -> DeliveryError:
    """What a failed call means; an error of our own is logged."""
    try:
        return classify(error, message.channel)
    except Exception:
        log.exception("delivery_failed", key=message.key)
        sentence = "A message could not be sent because of an internal error; the log has the details."
        return DeliveryError("not_sent", "bug", sentence)


def _with_late_note(content: dict[str, Any], waited_ms: int) -> dict[str, Any]:
    sentence = f"Delayed {waited_ms // 1000} s by Slack's rate limit."
    note = {"type": "context", "elements": [{"type": "plain_text", "text": sentence}]}
    if not content["blocks"] or len(content["blocks"]) >= 50:
        return content
    return {**content, "blocks": [*content["blocks"], note]}
