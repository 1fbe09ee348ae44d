"""Transcript of a channel as an analyst sees it, printed while it changes."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from bot.features.runs.views.runs import MARKS
from bot.slack_emulator import EmulatedUser, EmulatorView

Message = Mapping[str, Any]
FOLLOW_TIMEOUT_S = 86_400.0

_LINK = re.compile(r"<(?:[^<>|]+)\|([^<>]+)>")
_RUN = re.compile(f"({'|'.join(MARKS.values())}) (.+?) (?:\\(.*\\) )?(?:needs|waiting|running|done|failed|withdrawn)")
STATUSES = {
    **{MARKS[state]: "Waiting" for state in ("approval", "waiting")},
    **{MARKS[state]: "Failure" for state in ("failed", "denied", "expired", "stopped")},
    MARKS["running"]: "InProgress",
    MARKS["succeeded"]: "Success",
    MARKS["cancelled"]: "Deleted",
}
_DATE = re.compile(r"<!date\^(\d+)\^[^>]*>")


class Transcript:
    """Prints new and changed messages, with `as_json` as JSON lines."""

    def __init__(self, print_line: Callable[[str], None], *, as_json: bool) -> None:
        self._print = print_line
        self._as_json = as_json
        self._seen: dict[tuple[str, str], list[str]] = {}
        self.step = ""

    async def follow(self, user: EmulatedUser, channel: str, name: str) -> None:
        """Print what this user sees in the channel until cancelled."""
        while True:
            for message in await user.until(lambda view: self._changed_messages(view, channel), FOLLOW_TIMEOUT_S):
                self._show(message, channel, name)

    def say(self, user: str, text: str, channel: str = "", **more: Any) -> None:
        """Print a user's action."""
        if self._as_json:
            self.line(channel=channel, user=user, text=text, **more)
        else:
            self._print(f"\n> {user}: {text}")

    def line(self, **values: Any) -> None:
        """Print one JSON line that has every key."""
        keys = ("channel", "ts", "thread_ts", "user", "text", "action_id", "responder", "status")
        self._print(json.dumps({"step": self.step, **{key: values.get(key) for key in keys}}, ensure_ascii=False))

    def end(self, failure: str) -> None:
        """Print the last line; `failure` is "" on success."""
        if self._as_json:
            self._print(
                json.dumps(
                    {"step": "end", "ok": not failure, **({"why": failure} if failure else {})}, ensure_ascii=False
                )
            )
        else:
            self._print(f"\n{f'Failed: {failure}' if failure else 'All steps succeeded.'}")

    def _changed_messages(self, view: EmulatorView, channel: str) -> list[Message]:
        return [m for m in messages_with_threads(view, channel) if self._seen.get((channel, m["ts"])) != lines_of(m)]

    def _show(self, message: Message, channel: str, name: str) -> None:
        before = self._seen.get((channel, message["ts"]))
        lines = lines_of(message)
        self._seen[channel, message["ts"]] = lines
        shown = [line for line in lines if before is None or line not in before]
        if not shown:
            return
        if self._as_json:
            origin = {"ts": message["ts"], "thread_ts": message.get("thread_ts"), "user": message.get("user")}
            self.line(channel=channel, text="\n".join(shown), **origin, **_run_in(shown))
            return
        mark = "changed" if before is not None else "only you" if message.get("ephemeral") else "new"
        indent = "    | " if message.get("thread_ts") not in (None, message["ts"]) else "  "
        self._print(f"{indent}[#{name} {mark}] " + f"\n{indent}    ".join(shown))


def _run_in(lines: list[str]) -> dict[str, str]:
    """Responder and status of the first run in the lines."""
    for line in lines:
        if match := _RUN.match(line):
            return {"responder": match[2], "status": STATUSES[match[1]]}
    return {}


def messages_with_threads(view: EmulatorView, channel: str) -> list[Message]:
    """Messages of the channel, each followed by its thread."""
    messages: list[Message] = []
    for root in view.messages(channel):
        messages += view.thread(channel, root["ts"]) or [root]
    return messages


def text_of(message: Message) -> str:
    return "\n".join(lines_of(message))


def lines_of(message: Message) -> list[str]:
    """A message, or a view with the buttons that leave it, as lines of plain text."""
    lines = [line for block in message.get("blocks") or [] for line in _texts(block)]
    ways_out = [f"[{message[key]['text']}]" for key in ("close", "submit") if message.get(key)]
    lines += [" ".join(ways_out)] if ways_out else []
    return [_plain(line) for text in (lines or [message.get("text") or ""]) for line in text.splitlines() if line]


def _texts(block: Message) -> Iterator[str]:
    """The texts of a block: text, fields, context, buttons."""
    if isinstance(block.get("text"), Mapping):
        yield str(block["text"].get("text", ""))
    fields = [
        str(field.get("text", "")).replace("*\n", "* ").replace("\n", ", ") for field in block.get("fields") or []
    ]
    yield from fields
    elements = [element for element in block.get("elements") or [] if isinstance(element, Mapping)]
    if block.get("type") == "context":
        yield " ".join(str(element.get("text", "")) for element in elements)
    elif labels := [label for element in elements if (label := _label(element))]:
        yield " ".join(f"[{label}]" for label in labels)
    if isinstance(block.get("accessory"), Mapping) and (label := _label(block["accessory"])):
        yield f"[{label}]"


def _label(element: Message) -> str:
    for key in ("text", "placeholder"):
        if isinstance(element.get(key), Mapping):
            return str(element[key].get("text", ""))
    return "..." if element.get("type") == "overflow" else ""


def _local_time(date: re.Match[str]) -> str:
    """A time as Slack shows it: in the reader's zone, without the day if that is today."""
    at, now = (one.astimezone() for one in (datetime.fromtimestamp(int(date[1]), UTC), datetime.now(UTC)))
    return f"{at:%H:%M}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}"


def _plain(text: str) -> str:
    text = _LINK.sub(r"\1", _DATE.sub(_local_time, text))
    for escaped, plain in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"), ("*", "")):
        text = text.replace(escaped, plain)
    return text
