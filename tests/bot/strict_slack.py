"""A second stand-in for Slack: what `doctor --post` calls, as strict as docs.slack.dev says, and slow where Slack is.

It shares no code with the emulator, so that an error of one isn't an error of both. It shows messages as Slack does:
with ids for blocks, `emoji` and `verbatim` in texts, and names in place of emoji.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import web

TOKEN = "xoxb-strict-1"
CHANNEL = "C0STRICT"
BOT = {"user": "U0BOT", "bot_id": "B0BOT", "app_id": "A0BOT", "team": "T0STRICT"}
HELD_BACK = 4  # this post is answered with 429, once
LOOKS_UNTIL_SHARED = 2  # a file stands in its thread at this look
GETS = ("conversations.info", "conversations.history", "conversations.replies", "files.getUploadURLExternal")
# Of each object its keys: required ones, then others, each with the longest text or list that it takes, or None.
Limits = Mapping[str, int | None]
BLOCKS: Mapping[str, tuple[Limits, Limits]] = {
    "section": ({}, {"text": 3000, "fields": 10, "accessory": None, "expand": None}),
    "header": ({"text": 150}, {}),
    "context": ({"elements": 10}, {}),
    "actions": ({"elements": 25}, {}),
    "divider": ({}, {}),
    "rich_text": ({"elements": None}, {}),
}
ELEMENTS: Mapping[str, tuple[Limits, Limits]] = {
    "button": ({"text": 75}, {"action_id": 255, "value": 2000, "url": 3000, "style": None, "confirm": None,
                              "accessibility_label": 75}),
    "overflow": ({"options": 5}, {"action_id": 255, "confirm": None}),
    "static_select": ({}, {"options": 100, "option_groups": 100, "placeholder": 150, "initial_option": None,
                           "action_id": 255, "confirm": None, "focus_on_load": None}),
    "external_select": ({}, {"placeholder": 150, "min_query_length": None, "initial_option": None, "action_id": 255,
                             "confirm": None, "focus_on_load": None}),
    "image": ({"alt_text": 2000}, {"image_url": 3000, "slack_file": None}),
}  # fmt: skip
OBJECTS: Mapping[str, tuple[Limits, Limits]] = {
    "confirm": ({"title": 100, "text": 300, "confirm": 30, "deny": 30}, {"style": None}),
    "options": ({"text": 75, "value": 150}, {"description": 75, "url": 3000}),
    "option_groups": ({"label": 75, "options": 100}, {}),
}


class RefusedError(Exception):
    """An error of Slack's, with further fields of the response."""

    def __init__(self, code: str, **more: Any) -> None:
        super().__init__(code)
        self.more = more


def check_blocks(blocks: Any) -> None:
    """Raise `invalid_blocks` for what Slack wouldn't take in a message."""
    problems = list(block_problems(blocks))
    if problems:
        messages = [f"[ERROR] {problem}" for problem in problems]
        raise RefusedError("invalid_blocks", response_metadata={"messages": messages})


def block_problems(blocks: Any) -> Iterator[str]:
    if not isinstance(blocks, list) or len(blocks) > 50:
        yield "no more than 50 items allowed [json-pointer:/blocks]"
        return
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    if len(ids) != len(set(ids)):
        yield "`block_id` must be unique [json-pointer:/blocks]"
    for number, block in enumerate(blocks):
        at = f"/blocks/{number}"
        if block.get("type") not in BLOCKS:
            yield f"unsupported type: {block.get('type')} [json-pointer:{at}/type]"
            continue
        if block["type"] == "section" and not {"text", "fields"} & block.keys():
            yield f"missing required field: text [json-pointer:{at}]"
        yield from object_problems(block, *BLOCKS[block["type"]], at)


def object_problems(item: Mapping[str, Any], required: Limits, others: Limits, at: str) -> Iterator[str]:
    for key in required.keys() - item.keys():
        yield f"missing required field: {key} [json-pointer:{at}]"
    known = {**required, **others, "type": None, "block_id": 255}
    for key, value in item.items():
        if key not in known:
            yield f"invalid additional property: {key} [json-pointer:{at}]"
            continue
        limit = known[key]
        length = len(value["text"]) if isinstance(value, dict) and "text" in value and limit else 0
        length = len(value) if isinstance(value, str | list) else length
        if limit is not None and length > limit:
            yield f"must be less than {limit + 1} characters [json-pointer:{at}/{key}]"
        if value in ("", []) or (isinstance(value, dict) and value.get("text") == ""):
            yield f"must be more than 0 characters [json-pointer:{at}/{key}]"
        yield from value_problems(item, key, value, f"{at}/{key}")


def value_problems(item: Mapping[str, Any], key: str, value: Any, at: str) -> Iterator[str]:
    if isinstance(value, dict) and value.get("type") in ("plain_text", "mrkdwn"):
        is_plain_only = item.get("type") in ("header", "button") or key in (
            "placeholder",
            "title",
            "confirm",
            "deny",
            "label",
        )
        if is_plain_only and value["type"] != "plain_text":
            yield f"must be plain_text [json-pointer:{at}]"
        unknown = value.keys() - (
            {"type", "text", "emoji"} if value["type"] == "plain_text" else {"type", "text", "verbatim"}
        )
        if unknown:
            yield f"invalid additional property: {unknown.pop()} [json-pointer:{at}]"
    elif key == "confirm":
        yield from object_problems(value, *OBJECTS["confirm"], at)
    elif key == "initial_option" and value not in [*item.get("options", []), *grouped(item)] and "options" in item:
        yield f"must be one of the options [json-pointer:{at}]"
    elif key in ("options", "option_groups"):
        for number, option in enumerate(value):
            yield from object_problems(option, *OBJECTS[key], f"{at}/{number}")
    elif key in ("elements", "accessory") and item.get("type") != "rich_text":
        for number, element in enumerate(value if isinstance(value, list) else [value]):
            if element.get("type") in ("plain_text", "mrkdwn") and item["type"] == "context":
                continue
            if element.get("type") not in ELEMENTS:
                yield f"unsupported type: {element.get('type')} [json-pointer:{at}/{number}]"
                continue
            yield from object_problems(element, *ELEMENTS[element["type"]], f"{at}/{number}")


def grouped(item: Mapping[str, Any]) -> list[Any]:
    return [option for group in item.get("option_groups", []) for option in group["options"]]


def as_kept(value: Any) -> Any:
    """A part of a message as Slack gives it back."""
    if isinstance(value, list):
        return [as_kept(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: as_kept(item) for key, item in value.items()}
    if value.get("type") in ("plain_text", "mrkdwn"):
        kept["text"] = re.sub("[\U0001f300-\U0001faff]", ":emoji:", value["text"])
        kept = ({"emoji": True} if value["type"] == "plain_text" else {"verbatim": False}) | kept
    return kept


@dataclass
class StrictSlack:
    """One workspace with one channel."""

    url: str = ""
    lacks: str = ""
    """A scope that the token doesn't have."""
    channel: dict[str, Any] = field(default_factory=dict)
    """What differs from a channel that the bot is in, such as `is_archived`."""
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By `ts`, with replies and what is left of deleted ones."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """By method: the error that it is answered with from now on."""
    altered: Callable[[dict[str, Any]], Any] = lambda message: message
    """Changes what is kept of a message."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    async def answer(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        self.calls.append(method)
        scope, run = METHODS.get(method, ("", None))
        if method == "chat.postMessage" and self.calls.count(method) == HELD_BACK:
            return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers={"Retry-After": "1"})
        try:
            arguments, warnings = await self.arguments(request, method)
            if request.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise RefusedError("invalid_auth")
            if run is None:
                raise RefusedError("unknown_method", req_method=method)
            if scope == self.lacks:
                raise RefusedError("missing_scope", needed=scope)
            if method in self.refused:
                raise RefusedError(self.refused[method])
            response = run(self, arguments)
        except RefusedError as error:
            return web.json_response({"ok": False, "error": str(error), **error.more})
        about = {"response_metadata": {"warnings": warnings}} if warnings else {}
        return web.json_response({"ok": True, **response, **about})

    async def arguments(self, request: web.Request, method: str) -> tuple[dict[str, Any], list[str]]:
        """The arguments, and warnings about how they came."""
        if request.method == "GET":
            if method not in GETS:
                raise RefusedError("method_not_allowed")
            return dict(request.query), []
        if request.content_type != "application/json":
            return dict(await request.post()), []
        if method == "files.getUploadURLExternal":
            raise RefusedError("invalid_arguments")  # it takes forms only
        body = json.loads(await request.text())
        return body, [] if request.charset else ["missing_charset"]

    def _channel(self, arguments: Mapping[str, Any], name: str = "channel") -> None:
        if arguments.get(name) != CHANNEL:
            raise RefusedError("channel_not_found")
        if not self.channel.get("is_member", True):
            raise RefusedError("not_in_channel")
        if self.channel.get("is_archived"):
            raise RefusedError("is_archived")

    def _own(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._channel(arguments)
        message = self.messages.get(str(arguments.get("ts")))
        if message is None or message.get("subtype") == "tombstone":
            raise RefusedError("message_not_found")
        return message

    def _ts(self) -> str:
        return f"1795456800.{next(self._numbers):06d}"

    def _content(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if not arguments.get("text") and not arguments.get("blocks"):
            raise RefusedError("no_text")
        check_blocks(arguments.get("blocks", []))
        event = arguments.get("metadata")
        if event is not None and not (event.keys() == {"event_type", "event_payload"} and event["event_payload"]):
            raise RefusedError("invalid_metadata_format")
        blocks = [
            {"block_id": f"b{number}", **as_kept(block)} for number, block in enumerate(arguments.get("blocks", []))
        ]
        kept = {"text": arguments.get("text", ""), "blocks": blocks, **({"metadata": event} if event else {})}
        self.altered(kept)
        return kept

    def chat_post_message(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._channel(arguments)
        parent = arguments.get("thread_ts")
        if parent and (parent not in self.messages or "thread_ts" in self.messages[parent]):
            raise RefusedError("thread_not_found")
        message = {"type": "message", **BOT, "ts": self._ts(), **self._content(arguments)}
        self.messages[message["ts"]] = message | ({"thread_ts": parent} if parent else {})
        return {"channel": CHANNEL, "ts": message["ts"], "message": message}

    def chat_update(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        message = self._own(arguments)
        if len(arguments.get("text", "")) > 4000:
            raise RefusedError("msg_too_long")
        message.update(self._content(arguments), edited={"user": BOT["user"], "ts": self._ts()})
        return {"channel": CHANNEL, "ts": message["ts"], "text": message["text"], "message": message}

    def chat_delete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        ts = self._own(arguments)["ts"]
        if any(message.get("thread_ts") == ts for message in self.messages.values()):
            self.messages[ts] = {
                "type": "message",
                "subtype": "tombstone",
                "ts": ts,
                "text": "This message was deleted.",
            }
        else:
            del self.messages[ts]
        return {"channel": CHANNEL, "ts": ts}

    def conversations_info(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if arguments.get("channel") != CHANNEL:
            raise RefusedError("channel_not_found")
        known = {"id": CHANNEL, "is_member": True, "is_archived": False, "is_ext_shared": False}
        return {"channel": {**known, **self.channel}}

    def _shown(self, message: dict[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
        has_metadata = arguments.get("include_all_metadata") == "true" and self.lacks != "metadata.message:read"
        return {key: value for key, value in message.items() if has_metadata or key != "metadata"}

    def conversations_history(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._channel(arguments)
        oldest, latest = arguments.get("oldest", "0"), arguments.get("latest", "9")
        is_inclusive = arguments.get("inclusive") == "true"
        roots = [m for ts, m in sorted(self.messages.items(), reverse=True) if "thread_ts" not in m]
        within = [m for m in roots if oldest < m["ts"] < latest or (is_inclusive and m["ts"] in (oldest, latest))]
        shown = [self._shown(message, arguments) for message in within[: int(arguments.get("limit", 100))]]
        return {"messages": shown, "has_more": len(shown) < len(within)}

    def conversations_replies(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._channel(arguments)
        ts = arguments.get("ts")
        if ts not in self.messages:
            raise RefusedError("thread_not_found")
        for file in self.files.values():
            if file.get("thread_ts") == ts and not file["is_deleted"]:
                file["looks"] += 1
                if file["looks"] == LOOKS_UNTIL_SHARED:
                    at = self._ts()
                    shared = {"type": "message", **BOT, "ts": at, "thread_ts": ts, "text": ""}
                    self.messages[at] = {**shared, "files": [{"id": file["id"]}]}
        thread = [m for key, m in sorted(self.messages.items()) if key == ts or m.get("thread_ts") == ts]
        return {"messages": [self._shown(message, arguments) for message in thread], "has_more": False}

    def files_get_upload_url(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if not arguments.get("filename") or not str(arguments.get("length", "")).isdigit():
            raise RefusedError("invalid_arguments")
        file_id, length = f"F{next(self._numbers)}", int(arguments["length"])
        self.files[file_id] = {"id": file_id, "length": length, "is_deleted": False, "has_content": False, "looks": 0}
        return {"file_id": file_id, "upload_url": f"{self.url}/upload/a-secret-{file_id}"}

    async def take_content(self, request: web.Request) -> web.Response:
        file = self.files[request.match_info["key"].rpartition("-")[2]]
        file["has_content"] = len(await request.read()) == file["length"]
        return web.Response(text="OK", status=200 if file["has_content"] else 400)

    def files_complete_upload(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._channel(arguments, "channel_id")
        if arguments["thread_ts"] not in self.messages or "thread_ts" in self.messages[arguments["thread_ts"]]:
            raise RefusedError("invalid_thread_ts")
        for item in arguments["files"]:
            file = self.files.get(item["id"])
            if file is None or not file["has_content"]:
                raise RefusedError("file_not_found")
            file["thread_ts"] = arguments["thread_ts"]
        return {"files": arguments["files"]}

    def files_delete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        file = self.files.get(arguments.get("file", ""))
        if file is None or file["is_deleted"]:
            raise RefusedError("file_not_found" if file is None else "file_deleted")
        file["is_deleted"] = True
        for message in self.messages.values():
            if {"id": file["id"]} in message.get("files", []):
                message["files"] = [{"id": file["id"], "mode": "tombstone"}]
        return {}


METHODS: Mapping[str, tuple[str, Callable[[StrictSlack, Mapping[str, Any]], dict[str, Any]]]] = {
    "chat.postMessage": ("chat:write", StrictSlack.chat_post_message),
    "chat.update": ("chat:write", StrictSlack.chat_update),
    "chat.delete": ("chat:write", StrictSlack.chat_delete),
    "conversations.info": ("channels:read", StrictSlack.conversations_info),
    "conversations.history": ("channels:history", StrictSlack.conversations_history),
    "conversations.replies": ("channels:history", StrictSlack.conversations_replies),
    "files.getUploadURLExternal": ("files:write", StrictSlack.files_get_upload_url),
    "files.completeUploadExternal": ("files:write", StrictSlack.files_complete_upload),
    "files.delete": ("files:write", StrictSlack.files_delete),
}
"""Each method with the scope that it needs."""


@asynccontextmanager
async def strict_slack(**options: Any) -> AsyncIterator[StrictSlack]:
    """The stand-in, on a free port of the loopback."""
    slack = StrictSlack(**options)
    app = web.Application()
    app.router.add_route("*", "/api/{method}", slack.answer)
    app.router.add_post("/upload/{key}", slack.take_content)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        slack.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield slack
    finally:
        await runner.cleanup()
