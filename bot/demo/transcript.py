"""Transcript of a channel as an analyst sees it, printed while it changes."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from bot.slack_emulator import EmulatedUser, EmulatorView

Message = Mapping[str, Any]
FOLLOW_TIMEOUT_S = 86_400.0

_LINK = re.compile(r"<(?:[^<>|]+)\|([^<>]+)>")
_DATE = re.compile(r"<!date\^(\d+)\^[^>]*>")


class Transcript:
    """Prints new and changed messages."""

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print = print_line
        self._seen: dict[str, list[str]] = {}  # by `ts`, in the one channel

    async def follow(self, user: EmulatedUser, channel: str, name: str) -> None:
        """Print what this user sees in the channel until cancelled."""
        while True:
            for message in await user.until(lambda view: self._changed_messages(view, channel), FOLLOW_TIMEOUT_S):
                self._show(message, name)

    def say(self, user: str, text: str) -> None:
        """Print a user's action."""
        self._print(f"\n> {user}: {text}")

    def _changed_messages(self, view: EmulatorView, channel: str) -> list[Message]:
        return [m for m in messages_with_threads(view, channel) if self._seen.get(m["ts"]) != lines_of(m)]

    def _show(self, message: Message, name: str) -> None:
        before = self._seen.get(message["ts"])
        lines = lines_of(message)
        self._seen[message["ts"]] = lines
        shown = [line for line in lines if before is None or line not in before]
        if not shown or (before is not None and all(line.startswith("[") for line in shown)):
            return  # buttons alone tell nothing
        mark = "changed" if before is not None else "only you" if message.get("ephemeral") else "new"
        indent = "    | " if message.get("thread_ts") not in (None, message["ts"]) else "  "
        self._print(f"{indent}[#{name} {mark}] " + f"\n{indent}    ".join(shown))


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
