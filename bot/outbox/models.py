"""What delivery is told, and what it tells."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from bot.cards.message import Message
from bot.redaction import RedactedView
from core.common.database.sqlite import Row


@dataclass(frozen=True)
class DesiredMessage:
    """The state that one message shall have. Ten that pile up become one; only the last is sent.

    `key` names the message for ever, such as `alert:~12:C0SOC`; `thread_of` is the key of the message that it
    answers; `subject` the alert or case whose story it belongs to. `file` (name, text) stands under it; None takes it
    away. `view` is what it was made through. `is_progress`: more is likely to follow in a moment, and an end
    does not wait because of it; `in_bulk`: one of many that are made anew, which let all other news go first.
    """

    key: str
    channel: str
    message: Message
    thread_of: str = ""
    subject: str = ""
    by_person: bool = False
    is_progress: bool = False
    in_bulk: bool = False
    file: tuple[str, str] | None = None
    view: RedactedView | None = None

    def payload(self) -> str:
        return json.dumps(self.message.payload(), ensure_ascii=False, separators=(",", ":"))


def is_person(channel: str) -> bool:
    """Whether it is somebody's id, which stands for direct messages to them."""
    return channel.startswith(("U", "W"))


def digest(payload: str) -> str:
    return hashlib.sha256(payload.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class MessageRecord:
    """A message as delivery knows it: what it shows, for which clearance it was made, how far Slack has it."""

    key: str
    channel: str
    conversation: str
    subject: str
    thread_of: str
    payload: str
    wanted: int
    sent: int
    tried: int
    tried_at: int
    mark: str
    ts: str
    by_person: bool
    in_bulk: bool
    wanted_at: int
    failures: int
    problem: str
    plain: bool
    gone: bool
    file_name: str
    file_text: str
    file_id: str
    file_sent: bool
    clearance: int
    about: str
    fingerprint: str
    doubt_at: int
    root_ts: str

    @property
    def place(self) -> str:
        """The channel as Slack knows it."""
        return self.conversation or self.channel

    @property
    def is_done(self) -> bool:
        """Slack has all of it."""
        return self.sent >= self.wanted and self.file_sent

    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.payload)
        return content


def shown(row: Row) -> MessageRecord:
    columns = {"fingerprint": "sight"}
    values = {name: row[columns.get(name, name)] for name in MessageRecord.__dataclass_fields__ if name != "in_bulk"}
    values["in_bulk"] = values["by_person"] < 0
    values["by_person"] = values["by_person"] > 0
    for name in ("plain", "gone", "file_sent"):
        values[name] = bool(values[name])
    return MessageRecord(**values)
