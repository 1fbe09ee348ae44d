"""What callers ask the outbox to show, and what it knows of a message."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from bot.cards.message import Message
from bot.redaction import RedactedView
from core.common.database.sqlite import Row

# Values of the column `priority`: what is sent first has the highest.
FOR_PERSON = 1  # a person waits for it
FOR_EVENT = 0
IN_BULK = -1  # one of many that are rendered again


@dataclass(frozen=True)
class DesiredMessage:
    """The content that a message should have. Of several that pile up only the last is sent.

    `key` identifies the message for ever, such as `alert:~12:C0SOC`; `thread_of` is the key of the message that it
    replies to; `root_id` the id of its alert or case. `file` (name, text) is posted in the same thread; None deletes
    it. `view` is the view that the content was rendered from.
    """

    key: str
    channel: str
    message: Message
    thread_of: str = ""
    root_id: str = ""
    by_person: bool = False  # a person waits for it: it goes first
    is_progress: bool = False  # more is likely to follow soon: it may wait to be merged with that
    in_bulk: bool = False  # one of many that are rendered again: it goes last
    file: tuple[str, str] | None = None
    view: RedactedView | None = None

    def payload(self) -> str:
        """The message as JSON."""
        return json.dumps(self.message.payload(), ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class MessageRecord:
    """A message as stored. Times are in ms; 0 means never."""

    key: str
    channel: str  # as in the settings; a user id for a direct message
    conversation: str  # the channel id that Slack answers with; differs for a direct message
    root_id: str
    thread_of: str
    payload: str
    version: int  # of the desired content; grows with each change
    sent_version: int  # what Slack has
    attempted_version: int  # of the post that is under way
    attempted_at: int  # when a post began whose outcome isn't known
    post_id: str  # random, in the message's metadata, by which a post is found in Slack
    ts: str
    priority: int  # FOR_PERSON, FOR_EVENT or IN_BULK
    pending_since: int  # since when Slack lacks something
    failures: int
    problem: str  # why it couldn't be sent, for `doctor`
    is_plain: bool  # Slack refused its blocks: only text is sent
    is_deleted: bool  # somebody deleted it in Slack
    file_name: str
    file_text: str
    file_id: str
    file_sent: bool  # Slack has the file, or has deleted it, as desired
    clearance: int  # that the content was rendered for
    about: str  # kind and id of the object that it is about, such as `case_task ~9`
    fingerprint: str  # of what the content withholds
    root_ts: str  # of the message that it replies to

    @property
    def slack_channel(self) -> str:
        """The channel id that Slack's methods take."""
        return self.conversation or self.channel

    @property
    def by_person(self) -> bool:
        """Whether a person waits for it."""
        return self.priority == FOR_PERSON

    @property
    def in_bulk(self) -> bool:
        """Whether it is one of many that are rendered again."""
        return self.priority == IN_BULK

    @property
    def is_delivered(self) -> bool:
        """Whether Slack has all of it."""
        return self.sent_version >= self.version and self.file_sent

    def content(self) -> dict[str, Any]:
        """The fields of chat.postMessage and chat.update."""
        content: dict[str, Any] = json.loads(self.payload)
        return content


def record_of(row: Row) -> MessageRecord:
    """A row of the message table, with its root's `ts` as `root_ts`."""
    values = {name: row[name] for name in MessageRecord.__dataclass_fields__}
    for name in ("is_plain", "is_deleted", "file_sent"):
        values[name] = bool(values[name])
    return MessageRecord(**values)


def is_person(channel: str) -> bool:
    """Whether it is a Slack user id, which stands for direct messages to that person."""
    return channel.startswith(("U", "W"))


def digest(payload: str) -> str:
    """A hash by which equal contents are recognized."""
    return hashlib.sha256(payload.encode("utf-8", "surrogatepass")).hexdigest()
