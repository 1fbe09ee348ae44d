"""Makes Slack show what is desired: paced, a person's wish first, never twice."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.outbox import tables
from bot.outbox.errors import DeliveryError, classify, of_upload
from bot.outbox.models import MessageRecord, is_person, shown
from bot.outbox.rate_limiter import RateLimiter
from bot.redaction import RED
from core.common.database.sqlite import Database, Transaction
from core.common.errors import ResponderBotError

AT_ONCE = 8  # calls on their way at a time, each to another channel
LOOK_MS = 200  # how soon the wish of another replica is seen
SETTLE_MS = 2_000  # a post without an answer may still be on its way for this long before it is looked for
PARKED_MS = 60_000  # a channel or token that an administrator must mend is tried again this often
BACKOFF_MS = (500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
HELD_BACK_MS = 15_000  # a card that waited longer says so
SKEW_S = 600  # Slack's clock and ours may differ by this much when a lost post is looked for
LOOK_PAGES = 10
DOUBT_MS = 60_000  # when a post was repeated: how much later the first attempt can't arrive any more
NO_FILE = ("file_not_found", "file_deleted")
EVENT_TYPE = "responder_bot"
UPLOAD = "files.completeUploadExternal"  # the last of an upload's steps, which stands for all of them

log = structlog.get_logger("bot.outbox")


@dataclass(frozen=True)
class ClearanceGuard:
    """The last look before something leaves: what a channel may show may have changed since it was made.

    `ceiling` is the highest clearance of a channel (or a person) now, `held` is told that something was held for it.
    """

    ceiling: Callable[[str], int] = lambda _channel: RED
    held: Callable[[], None] = lambda: None


class Sender:
    """One task that sends; of several replicas only the one that holds the lease runs it."""

    def __init__(
        self,
        store: Database,
        slack: AsyncWebClient,
        clock_ms: Callable[[], int],
        pace: RateLimiter,
        gate: ClearanceGuard,
    ) -> None:
        self._store = store
        self._slack = slack
        self._clock = clock_ms
        self._pace = pace
        self._gate = gate
        self._wake = asyncio.Event()
        self._busy: set[str] = set()
        self.trouble = ""

    def wake(self) -> None:
        """Something may be due."""
        self._wake.set()

    async def run(self) -> None:
        """Send for ever; ends by cancellation. What was on its way is then found again by its mark."""
        self._busy.clear()
        async with asyncio.TaskGroup() as group:
            while True:
                version = self._store.version()
                self._wake.clear()
                until = self._start_due(group)
                await self._pause(version, until)

    def _start_due(self, group: asyncio.TaskGroup) -> int:
        """Start what may go now; returns when to look again, in ms of the clock."""
        now = self._clock()
        until = tables.next_due_at(self._store, now) or now + PARKED_MS
        for message in map(shown, tables.doubtful(self._store, now)):
            if len(self._busy) < AT_ONCE and message.channel not in self._busy:
                self._busy.add(message.channel)
                group.create_task(self._look_for_double(message))
        until = min(until, tables.next_doubt_at(self._store, now) or until)
        for message in map(shown, tables.due(self._store, now, self._busy)):
            if len(self._busy) >= AT_ONCE:
                break
            if message.channel in self._busy:
                continue
            method = _method(message)
            if method != "files.delete" and not self._may_leave(message):
                self._gate.held()
                continue
            wait_ms = self._pace.wait_ms(method, message.channel, now, by_person=message.by_person)
            if wait_ms:
                until = min(until, now + wait_ms)
                continue
            self._pace.took(method, message.channel, now)
            self._busy.add(message.channel)
            group.create_task(self._send(message, method))
        return until

    def _may_leave(self, message: MessageRecord) -> bool:
        return message.clearance != tables.UNKNOWN and message.clearance <= self._gate.ceiling(message.channel)

    async def _pause(self, version: int, until: int) -> None:
        while not self._wake.is_set() and self._store.version() == version:
            left = until - self._clock()
            if left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_MS) / 1000):
                    await self._wake.wait()

    async def _send(self, message: MessageRecord, method: str) -> None:
        try:
            await self._make_true(message)
        except ResponderBotError as error:  # our own database: the next round tries again
            self.trouble = error.message
            self._pace.hold("", "", self._clock(), BACKOFF_MS[1])
        except Exception as error:
            await self._meet(message, method, error)
        else:
            self.trouble = ""
        finally:
            self._busy.discard(message.channel)
            self._wake.set()

    async def _make_true(self, message: MessageRecord) -> None:
        if _only_file_left(message):
            await (self._upload(message) if message.file_name else self._take_file_away(message))
        elif message.ts:
            await self._update(message)
        else:
            await self._post(message)

    # one message

    async def _post(self, message: MessageRecord) -> None:
        place = message.place
        if is_person(place):
            place = await self._open(message)
        doubt_ms = 0
        if message.tried_at:
            if await self._waits_for_answer(message):
                return
            if ts := await self._found(message, place):
                await self._done(message, message.tried, ts, place)
                return
            doubt_ms = self._clock() + DOUBT_MS
        now = self._clock()
        await self._store.transaction(lambda tx: tables.begin(tx, message.key, message.wanted, now, doubt_ms))
        thread = {"thread_ts": message.root_ts} if message.root_ts else {}
        answer = await self._slack.api_call(
            "chat.postMessage", json={"channel": place, **self._content(message), **thread, "unfurl_links": False}
        )
        await self._done(message, message.wanted, str(answer["ts"]), str(answer["channel"]))

    async def _open(self, message: MessageRecord) -> str:
        answer = await self._slack.api_call("conversations.open", json={"users": message.channel})
        place = str(answer["channel"]["id"])
        await self._store.transaction(lambda tx: tables.set_conversation(tx, message.key, place))
        return place

    async def _waits_for_answer(self, message: MessageRecord) -> bool:
        settled = message.tried_at + SETTLE_MS
        if settled <= self._clock():
            return False
        await self._store.transaction(lambda tx: tables.later(tx, message.key, settled, message.problem))
        return True

    async def _update(self, message: MessageRecord) -> None:
        await self._slack.api_call(
            "chat.update", json={"channel": message.place, "ts": message.ts, **self._content(message)}
        )
        await self._done(message, message.wanted, message.ts, message.place)

    async def _done(self, message: MessageRecord, number: int, ts: str, place: str) -> None:
        now = self._clock()
        await self._store.transaction(lambda tx: tables.done(tx, message.key, number, now, ts, place))

    def _content(self, message: MessageRecord) -> dict[str, Any]:
        content = message.content()
        if message.plain:
            content = {"text": _three_lines(content["text"]), "blocks": [], "attachments": []}
        waited_ms = self._clock() - message.wanted_at
        if self._pace_held(message) and waited_ms >= HELD_BACK_MS:
            content = _held_back(content, waited_ms)
        return {**content, "metadata": {"event_type": EVENT_TYPE, "event_payload": {"key": message.mark}}}

    def _pace_held(self, message: MessageRecord) -> bool:
        """Only Slack's own limits are worth a word in the channel, where it is news; a parked one can't show one."""
        return not message.in_bulk and (not message.problem or "429" in message.problem)

    async def _found(self, message: MessageRecord, place: str) -> str:
        """The timestamp of an attempt whose answer was lost, by the mark in its metadata; "" if it never arrived."""
        async with aclosing(self._standing(message, place, message.tried_at)) as found:
            async for ts in found:
                return ts
        return ""

    async def _look_for_double(self, message: MessageRecord) -> None:
        """A post that was repeated may have arrived after all, late: of two the one that isn't ours to know goes."""
        try:
            if not message.ts:  # it is still being posted
                raise TimeoutError
            async with aclosing(self._standing(message, message.place, int(float(message.ts) * 1000))) as found:
                doubles = [ts async for ts in found if ts != message.ts]
            for ts in doubles:
                log.info("double_deleted", key=message.key)
                await self._slack.api_call("chat.delete", json={"channel": message.place, "ts": ts})
            next_ms = 0
        except Exception as error:
            log.info("double_not_looked_for", key=message.key, reason=type(error).__name__)
            next_ms = self._clock() + DOUBT_MS if _passes(error, message.channel) else 0
        try:
            await self._store.transaction(lambda tx: tables.set_doubt(tx, message.key, next_ms))
        except ResponderBotError as error:
            self.trouble = error.message
            self._pace.hold("", "", self._clock(), BACKOFF_MS[1])
        finally:
            self._busy.discard(message.channel)
            self._wake.set()

    async def _standing(self, message: MessageRecord, place: str, around_ms: int) -> AsyncGenerator[str, None]:
        """The timestamps under which this message stands, by the mark in its metadata, posted at about that time."""
        method = "conversations.replies" if message.root_ts else "conversations.history"
        asked: dict[str, Any] = {
            "channel": place,
            "include_all_metadata": True,
            "limit": 200,
            "oldest": str(around_ms // 1000 - SKEW_S),
            "latest": str(around_ms // 1000 + 2 * SKEW_S),
        }
        if message.root_ts:
            asked["ts"] = message.root_ts
        for _ in range(LOOK_PAGES):
            answer = await self._slack.api_call(method, http_verb="GET", params=_params(asked))
            for candidate in answer.get("messages") or []:
                if _mark(candidate) == message.mark:
                    yield str(candidate["ts"])
            asked["cursor"] = (answer.get("response_metadata") or {}).get("next_cursor") or ""
            if not asked["cursor"]:
                break

    # its file

    async def _upload(self, message: MessageRecord) -> None:
        """Put the file under its message. Only the last of three steps shows it, so only that one is looked for."""
        file_id = message.file_id
        if not file_id:
            file_id = await self._uploaded(message)
            await self._store.transaction(lambda tx: tables.set_file(tx, message.key, file_id))
        elif await self._file_stands(message, file_id):
            await self._store.transaction(lambda tx: tables.file_done(tx, message.key))
            return
        try:
            await self._slack.api_call(
                UPLOAD,
                json={
                    "files": [{"id": file_id, "title": message.file_name}],
                    "channel_id": message.place,
                    "thread_ts": message.root_ts or message.ts,
                },
            )
        except SlackApiError as error:
            if _code(error) not in NO_FILE or not message.file_id:
                raise
            # It was taken away after it had been uploaded, and shall stand again.
            await self._store.transaction(lambda tx: tables.set_file(tx, message.key, ""))
            return
        await self._store.transaction(lambda tx: tables.file_done(tx, message.key))

    async def _take_file_away(self, message: MessageRecord) -> None:
        try:
            await self._slack.api_call("files.delete", json={"file": message.file_id})
        except SlackApiError as error:
            if _code(error) not in NO_FILE:
                raise
        await self._store.transaction(lambda tx: tables.set_file(tx, message.key, ""))

    async def _uploaded(self, message: MessageRecord) -> str:
        content = message.file_text.encode("utf-8", "replace")
        answer = await self._slack.api_call(
            "files.getUploadURLExternal",
            http_verb="GET",
            params={"filename": message.file_name, "length": str(len(content))},
        )
        async with aiohttp.ClientSession() as session, session.post(str(answer["upload_url"]), data=content) as put:
            put.raise_for_status()
        return str(answer["file_id"])

    async def _file_stands(self, message: MessageRecord, file_id: str) -> bool:
        thread = {"channel": message.place, "ts": message.root_ts or message.ts}
        answer = await self._slack.api_call(
            "conversations.replies", http_verb="GET", params=_params({**thread, "oldest": message.ts, "limit": 200})
        )
        files = [file for one in answer.get("messages") or [] for file in one.get("files") or []]
        return any(file.get("id") == file_id and file.get("mode") != "tombstone" for file in files)

    # what goes wrong

    async def _meet(self, message: MessageRecord, method: str, error: Exception) -> None:
        try:
            met = classify(error, message.channel)
            if method == UPLOAD:
                met = of_upload(met, message.channel)
        except Exception:
            log.exception("delivery_failed", key=message.key)
            met = DeliveryError(
                "undone", "bug", "A message could not be sent because of a fault of ours; it is in the log."
            )
        log.info("delivery_trouble", key=message.key, kind=met.kind, code=met.code)
        self.trouble = met.message if met.kind in ("app", "undone", "unknown") else ""
        with suppress(ResponderBotError):  # our own database is down too: the next round finds the row as it was
            await self._store.transaction(lambda tx: self._note(tx, message, method, met))

    def _note(self, tx: Transaction, message: MessageRecord, method: str, met: DeliveryError) -> None:
        now = self._clock()
        if met.kind != "unknown":
            tables.never_begun(tx, message.key, message.tried_at)
        if met.kind == "held":
            self._pace.hold(method, message.channel, now, int(met.wait_s * 1000))
            tables.later(tx, message.key, now + int(met.wait_s * 1000), met.message)
        elif met.kind == "blocks" and not message.plain:
            log.error("blocks_refused", key=message.key, code=met.code)
            tables.make_plain(tx, message.key, met.message)
        elif met.kind == "gone":
            self._note_gone(tx, message, now)
        elif met.kind in ("unknown", "undone"):
            wait_ms = BACKOFF_MS[min(message.failures, len(BACKOFF_MS) - 1)]
            tables.later(tx, message.key, now + wait_ms, met.message)
        else:
            tables.later(tx, message.key, now + PARKED_MS, met.message)

    def _note_gone(self, tx: Transaction, message: MessageRecord, now: int) -> None:
        """Somebody took the card away: machine news leave it so, what a person asks for is posted anew."""
        tables.set_gone(tx, message.key)
        if message.by_person and not message.thread_of:
            tables.anew(tx, message.key, now)


def _only_file_left(message: MessageRecord) -> bool:
    return message.sent >= message.wanted or message.gone


def _code(error: SlackApiError) -> str:
    return str(error.response.get("error")) if isinstance(error.response.data, dict) else ""


def _passes(error: Exception, channel: str) -> bool:
    """Whether it makes sense to try again later."""
    try:
        return classify(error, channel).kind in ("held", "unknown", "undone")
    except Exception:
        log.exception("delivery_failed", channel=channel)
        return False


def _method(message: MessageRecord) -> str:
    if _only_file_left(message):
        return UPLOAD if message.file_name else "files.delete"
    return "chat.update" if message.ts else "chat.postMessage"


def _mark(message: dict[str, Any]) -> str:
    metadata = message.get("metadata") or {}
    if metadata.get("event_type") != EVENT_TYPE:
        return ""
    return str((metadata.get("event_payload") or {}).get("key", ""))


def _params(asked: dict[str, Any]) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in asked.items() if value}


def _three_lines(text: str) -> str:
    return "\n".join(text.splitlines()[:3])[:3000] or "A message of responder-bot."


def _held_back(content: dict[str, Any], waited_ms: int) -> dict[str, Any]:
    """The same, with a line that says that it is late (`slack.md 2`: when Slack holds us back, the card says so)."""
    words = f"Slack held this back for {waited_ms // 1000} s."
    note = {"type": "context", "elements": [{"type": "plain_text", "text": words}]}
    if not content["blocks"] or len(content["blocks"]) >= 50:
        return content
    return {**content, "blocks": [*content["blocks"], note]}
