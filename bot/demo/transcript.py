"""The channel as an analyst sees it, told line by line while it happens."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bot.slack_emulator import EmulatedUser, EmulatorView

Message = Mapping[str, Any]
EVER_S = 86_400.0

_LINK = re.compile(r"<(?:[^<>|]+)\|([^<>]+)>")
_RUN = re.compile(r"([○◐✓✗–]) ([A-Za-z]\w*_\d\w*) (?:waiting|running|done|failed|cancelled)")
STATUSES = {"○": "Waiting", "◐": "InProgress", "✓": "Success", "✗": "Failure", "–": "Deleted"}
_DATE = re.compile(r"<!date\^(\d+)\^[^|]*\|([^>]*)>")


class Transcript:
    """Prints what is new and what changed; as JSON lines with `as_json`."""

    def __init__(self, tell: Callable[[str], None], *, as_json: bool) -> None:
        self._tell = tell
        self._as_json = as_json
        self._seen: dict[tuple[str, str], list[str]] = {}
        self.step = ""

    async def follow(self, who: EmulatedUser, channel: str, name: str) -> None:
        """Tell what this person sees in the channel, for ever; ends by cancellation."""
        while True:
            for message in await who.until(lambda view: self._news(view, channel), EVER_S):
                self._show(message, channel, name)

    def say(self, user: str, text: str, channel: str = "", **more: Any) -> None:
        """Something a person did."""
        if self._as_json:
            self.line(channel=channel, user=user, text=text, **more)
        else:
            self._tell(f"\n> {user}: {text}")

    def line(self, **values: Any) -> None:
        """One JSON line with every key of `surface.md`."""
        keys = ("channel", "ts", "thread_ts", "user", "text", "action_id", "responder", "status")
        self._tell(json.dumps({"step": self.step, **{key: values.get(key) for key in keys}}, ensure_ascii=False))

    def end(self, is_ok: bool, why: str) -> None:
        """The last line."""
        if self._as_json:
            self._tell(json.dumps({"step": "end", "ok": is_ok, **({"why": why} if why else {})}, ensure_ascii=False))
        else:
            self._tell(f"\n{'It all ended as it should.' if is_ok else f'Not as it should: {why}'}")

    def _news(self, view: EmulatorView, channel: str) -> list[Message]:
        return [m for m in everything(view, channel) if self._seen.get((channel, m["ts"])) != lines_of(m)]

    def _show(self, message: Message, channel: str, name: str) -> None:
        before = self._seen.get((channel, message["ts"]))
        lines = lines_of(message)
        self._seen[channel, message["ts"]] = lines
        shown = [line for line in lines if before is None or line not in before]
        if not shown:
            return
        if self._as_json:
            place = {"ts": message["ts"], "thread_ts": message.get("thread_ts"), "user": message.get("user")}
            self.line(channel=channel, text="\n".join(shown), **place, **_run_in(shown))
            return
        mark = "changed" if before is not None else "only you" if message.get("ephemeral") else "new"
        indent = "    | " if message.get("thread_ts") not in (None, message["ts"]) else "  "
        self._tell(f"{indent}[#{name} {mark}] " + f"\n{indent}    ".join(shown))


def _run_in(lines: list[str]) -> dict[str, str]:
    """Responder and status of the first run that the lines tell of."""
    for line in lines:
        if found := _RUN.match(line):
            return {"responder": found[2], "status": STATUSES[found[1]]}
    return {}


def everything(view: EmulatorView, channel: str) -> list[Message]:
    """Messages with their threads, in order."""
    found: list[Message] = []
    for root in view.messages(channel):
        found += view.thread(channel, root["ts"]) or [root]
    return found


def lines_of(message: Message) -> list[str]:
    """A message as lines of plain text."""
    blocks = [*(message.get("blocks") or []), *_attached(message)]
    lines = [line for block in blocks for line in _texts(block)]
    return [_plain(line) for text in (lines or [message.get("text") or ""]) for line in text.splitlines() if line]


def _attached(message: Message) -> Iterator[Message]:
    for attachment in message.get("attachments") or []:
        yield from attachment.get("blocks") or []


def _texts(block: Message) -> Iterator[str]:
    """What stands in a block: its text, its fields side by side, its context, its buttons."""
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


def _plain(text: str) -> str:
    text = _LINK.sub(r"\1", _DATE.sub(r"\2", text))
    for escaped, plain in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"), ("*", "")):
        text = text.replace(escaped, plain)
    return text
