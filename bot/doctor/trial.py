"""`responder-bot doctor --post`: posts what the bot posts, says what Slack answered, and deletes all of it."""

import asyncio
import secrets
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.block_kit.text import count
from bot.doctor import examples
from bot.features.base import Check
from bot.outbox.errors import classify
from bot.outbox.sending.lookup import metadata, query_params
from bot.outbox.sending.uploads import DELETE_FILE, NO_FILE, UPLOAD_FILE

MAX_WAITS = 5  # how often one call waits for Slack's rate limit
LOOKS = 20  # how often an uploaded file is looked for in its thread, where Slack shows it a moment later
LOOK_S = 0.5
MAX_SHOWN = 3  # differences of one message
REPORT = b"A long report.\n"
NOTICE = "`responder-bot doctor --post` tries this channel: all that follows is made up, and deleted within minutes."
MAX_BLOCKS = 50  # of a message
UPDATED: Mapping[str, Any] = {"type": "context", "elements": [{"type": "plain_text", "text": "Updated."}]}
_RELIED_ON = ("type", "action_id", "value")  # what clicks are understood by

Json = Mapping[str, Any]


class _RefusedError(Exception):
    """Slack didn't do what it was asked for; the text is one sentence without a full stop."""


class _Trial:
    """Calls Slack, measures it, and knows what has to be deleted."""

    def __init__(self, slack: AsyncWebClient, channel: str) -> None:
        self._slack = slack
        self._channel = channel
        self.ms: dict[str, list[float]] = defaultdict(list)
        """How long each method took, in ms."""
        self.remarks: set[str] = set()
        """Warnings of Slack, and what it held back."""
        self._posted: list[str] = []
        self._files: dict[str, str] = {}
        """By the id of each file the `ts` of its thread."""

    async def call(self, method: str, body: Json | None = None, query: Json | None = None) -> Json:
        """The response to a POST with a JSON body, or to a GET. Raises _RefusedError."""
        options: dict[str, Any] = (
            {"json": body} if query is None else {"http_verb": "GET", "params": query_params({**query})}
        )
        for _ in range(MAX_WAITS):
            started = time.perf_counter()
            try:
                response = await self._slack.api_call(method, **options)
            except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError) as error:
                failure = classify(error, self._channel)
                if failure.kind != "rate_limited":
                    raise _RefusedError(f"{method}: {_reason(error, failure.message)}") from error
                self.remarks.add(f"{method} was held back for {failure.wait_s:g} s")
                await asyncio.sleep(failure.wait_s)
                continue
            self.ms[method].append((time.perf_counter() - started) * 1000)
            about = response.get("response_metadata") or {}
            warnings = [*(about.get("warnings") or []), *(about.get("messages") or [])]
            self.remarks.update(f"{method} warns: {warning}" for warning in warnings)
            data: Json = response.data if isinstance(response.data, dict) else {}
            return data
        raise _RefusedError(f"{method}: Slack held it back {MAX_WAITS} times")

    async def post(self, content: Json, thread_ts: str = "") -> str:
        """Post a message; returns its `ts`."""
        thread = {"thread_ts": thread_ts} if thread_ts else {}
        body = {"channel": self._channel, **content, **thread, "unfurl_links": False}
        posting = asyncio.create_task(self.call("chat.postMessage", body))
        try:
            await asyncio.shield(posting)
        finally:  # if this is cancelled meanwhile, it has to be deleted as well
            ts = str((await posting)["ts"])
            self._posted.append(ts)
        return ts

    async def update(self, ts: str, content: Json) -> None:
        await self.call("chat.update", {"channel": self._channel, "ts": ts, **content})

    async def read(self, ts: str) -> Json:
        """The message as Slack keeps it; {} if it has none."""
        period = {"oldest": ts, "latest": ts, "inclusive": True, "limit": 1, "include_all_metadata": True}
        response = await self.call("conversations.history", query={"channel": self._channel, **period})
        kept = [message for message in response.get("messages") or [] if message.get("ts") == ts]
        return kept[0] if kept and kept[0].get("subtype") != "tombstone" else {}

    async def replies(self, ts: str) -> list[Json]:
        """The messages in its thread."""
        query = {"channel": self._channel, "ts": ts, "limit": 200}
        response = await self.call("conversations.replies", query=query)
        return [message for message in response.get("messages") or [] if message.get("ts") != ts]

    async def upload(self, thread_ts: str) -> str:
        """Upload a text file into a thread; returns its id."""
        query = {"filename": "report.txt", "length": len(REPORT)}
        place = await self.call("files.getUploadURLExternal", query=query)
        file_id = str(place["file_id"])
        self._files[file_id] = thread_ts
        started = time.perf_counter()
        try:
            async with aiohttp.request("POST", str(place["upload_url"]), data=REPORT) as response:
                response.raise_for_status()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:  # its text would show the address, a secret
            raise _RefusedError(f"upload: Slack doesn't take the content ({type(error).__name__})") from None
        self.ms["upload"].append((time.perf_counter() - started) * 1000)
        where = {"channel_id": self._channel, "thread_ts": thread_ts}
        await self.call(UPLOAD_FILE, {"files": [{"id": file_id, "title": "report.txt"}], **where})
        return file_id

    async def delete(self, ts: str) -> None:
        await self.call("chat.delete", {"channel": self._channel, "ts": ts})
        self._posted.remove(ts)

    async def delete_file(self, file_id: str) -> None:
        """Delete a file, and the messages in its thread, which have nothing else."""
        await self.call(DELETE_FILE, {"file": file_id})
        shown = [str(message["ts"]) for message in await self.replies(self._files.pop(file_id))]
        self._posted += shown
        for ts in shown:
            await self.delete(ts)

    async def delete_all(self) -> str:
        """Delete what is left, the newest first. Returns a sentence about what can't be deleted, or ""."""
        left = []
        for file_id in list(self._files):
            try:
                await self.delete_file(file_id)
            except _RefusedError as error:
                if not any(code in str(error) for code in NO_FILE):
                    left.append(f"the file {file_id} ({error})")
        for ts in reversed(self._posted):
            try:
                await self.call("chat.delete", {"channel": self._channel, "ts": ts})
            except _RefusedError as error:
                if "message_not_found" not in str(error):
                    left.append(f"the message {ts} ({error})")
        return f"delete by hand in {self._channel}: {'; '.join(left)}" if left else ""


def _reason(error: Exception, sentence: str) -> str:
    """What Slack said, and what to do."""
    data = error.response.data if isinstance(error, SlackApiError) and isinstance(error.response.data, dict) else {}
    said = "; ".join(str(message) for message in (data.get("response_metadata") or {}).get("messages") or [])
    return f"{data.get('error', 'no answer')}{f' ({said})' if said else ''}: {sentence.rstrip('.')}"


async def post(slack: AsyncWebClient, channel: str, now_ms: int, show: Callable[[Check], None]) -> bool:
    """Post, read, update, answer and delete a message of each kind, and a file; `show` is called with each result.

    Returns whether all was as it should be. What is posted is deleted even if this is cancelled.
    """
    trial, are_well = _Trial(slack, channel), [True]

    def tell(name: str, message: str, *, is_well: bool = True) -> None:
        are_well.append(is_well)
        show(Check(name, is_well, message))

    async def attempt(name: str, steps: Coroutine[Any, Any, str]) -> bool:
        try:
            tell(name, await steps)
        except _RefusedError as error:
            tell(name, str(error), is_well=False)
        return are_well[-1]

    kinds = [(name, payload) for name, (kind, payload) in examples.payloads(now_ms).items() if kind == "message"]
    try:
        if await attempt("channel", _enter(trial, channel)):
            for name, payload in kinds:
                await attempt(name, _message(trial, payload))
            await attempt("file", _file(trial))
    finally:
        left = await trial.delete_all()
        tell("left behind", left or "nothing", is_well=not left)
    for remark in sorted(trial.remarks):
        tell("remark", remark)
    for method, ms in sorted(trial.ms.items()):
        times = f"{min(ms):.0f} to {max(ms):.0f} ms, median {statistics.median(ms):.0f}"
        tell("time", f"{method}: {count(len(ms), 'call')}, {times}")
    return all(are_well)


async def _enter(trial: _Trial, channel: str) -> str:
    """Look whether the channel may be used, and say there what comes."""
    info = (await trial.call("conversations.info", query={"channel": channel})).get("channel") or {}
    if info.get("is_archived"):
        raise _RefusedError(f"{channel} is archived; name another channel")
    if info.get("is_ext_shared"):
        raise _RefusedError(f"{channel} is shared with another organisation, which would see it; name another channel")
    if not info.get("is_member"):
        raise _RefusedError(f"the bot is not in {channel}; invite it there with /invite")
    await trial.post({"text": NOTICE})
    return f"{channel}, and the bot is in it"


async def _message(trial: _Trial, payload: Json) -> str:
    content = {**payload, "metadata": metadata(f"doctor-{secrets.token_hex(8)}")}
    ts = await trial.post(content)
    _differences(content, await trial.read(ts))
    content["blocks"] = [*content["blocks"][: MAX_BLOCKS - 1], UPDATED]
    await trial.update(ts, content)
    changed = _differences(content, await trial.read(ts))
    reply = await trial.post({"text": "A reply in its thread."}, ts)
    if reply not in [message["ts"] for message in await trial.replies(ts)]:
        raise _RefusedError("conversations.replies doesn't show the reply")
    await trial.delete(reply)
    await trial.delete(ts)
    if await trial.read(ts):
        raise _RefusedError("conversations.history still shows it after chat.delete")
    shown = f"; Slack writes otherwise {', '.join(changed[:MAX_SHOWN])}" if changed else ""
    return f"posted, read, updated, answered and deleted{shown}"


async def _file(trial: _Trial) -> str:
    root = await trial.post({"text": "A message with a file in its thread."})
    file_id = await trial.upload(root)
    for _ in range(LOOKS):
        messages = await trial.replies(root)
        if any(file.get("id") == file_id for message in messages for file in message.get("files") or []):
            break
        await asyncio.sleep(LOOK_S)
    else:
        raise _RefusedError(f"{UPLOAD_FILE}: after {LOOKS * LOOK_S:g} s it is not in its thread")
    await trial.delete_file(file_id)
    await trial.delete(root)
    return "uploaded into a thread, and deleted"


def _differences(sent: Json, shown: Json) -> list[str]:
    """Where Slack keeps other values than were sent. Raises _RefusedError if something is gone that clicks need."""
    found = list(_compared({key: sent[key] for key in ("text", "blocks", "metadata")}, shown, ""))
    for path, is_gone in found:
        if is_gone or path.rpartition("/")[2] in _RELIED_ON:
            raise _RefusedError(f"Slack doesn't keep {path} as it was sent")
    return [path for path, _ in found]


def _compared(sent: Any, shown: Any, path: str) -> Iterator[tuple[str, bool]]:
    """The path of each difference, and whether a part is missing. What Slack adds is no difference."""
    if isinstance(sent, Mapping) and isinstance(shown, Mapping):
        for key, value in sent.items():
            if key in shown:
                yield from _compared(value, shown[key], f"{path}/{key}")
            else:
                yield f"{path}/{key}", True
    elif isinstance(sent, list) and isinstance(shown, list) and len(sent) == len(shown):
        for number, (one, other) in enumerate(zip(sent, shown, strict=True)):
            yield from _compared(one, other, f"{path}/{number}")
    elif sent != shown:
        yield path, isinstance(sent, list)
