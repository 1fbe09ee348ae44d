"""What callers ask the outbox to show, and what it knows of a message."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from bot.clearance import RedactedView
from bot.message import Intent, Message
from core.common.database import Row

# Values of the column `rank`: what is sent first has the lowest (bot/docs/delivery.md#what-goes-first).
FOR_PERSON = 0  # a person waits for it
WITHHOLDING = 1  # Slack may show what may no longer be seen
FIRST_ALERT, LAST_ALERT = 2, 5  # new alerts, from critical to low
SUM = 6  # edits of the messages of a bulk, before those of the cards of its alerts
CARD = 7  # edits of alerts' cards on which a run has ended: they say what is in force, and have its Undo
NEWS = 8  # ends of runs, approvals, changes of other messages
OTHER = 9  # progress
IN_BULK = 10  # one of many that are rendered again

DIGEST_BYTES = 6  # in the id of a button
BULK = "bulk"  # the kind of the message that tells how far a run on several objects is
BULK_TOLD = f"{BULK}told"  # of the direct message that tells who asked for it how it ended
BULK_UNDONE = f"{BULK}undone"  # of that which tells them that somebody else has undone some of it
BULK_MOVED = f"{BULK}moved"  # of that which tells them that somebody else has given some of it another end
# Kinds of messages that ask for approval, or count what else there is.
ASKS = ("ask", "asks", "new", "approval", "extension", "remind", f"{BULK}ask")
LOST = "lost"  # of the direct message that tells who worked on an alert that somebody else took it
LOG = "log"  # of a task log's card
NEWS_KINDS = ("end", "told", "undone", "moved", LOST, BULK_TOLD, BULK_UNDONE, BULK_MOVED)  # of messages, by their keys

Status = Literal[
    "unsent",  # Slack doesn't have it
    "posting",  # a post began, and whether it arrived isn't known
    "shown",  # Slack shows the desired content
    "outdated",  # Slack shows older content
    "deleted",  # somebody deleted it in Slack, or the root of its thread before it was posted
]
"""The state of a message in Slack; bot/docs/delivery.md#states-of-a-message has the transitions."""

FileStatus = Literal[
    "unsent",
    "uploading",  # Slack has the content, and whether it shows the file isn't known
    "shown",
    "removing",  # it may no longer be shown
]
"""The state of a message's file in Slack; a message without a file has no row of it."""


@dataclass
class ButtonSet:
    """The buttons of one rendering, which calls it for the id of each; store them with what was rendered."""

    channel: str
    message_key: str
    nonce: str
    expires_at: int
    stored: frozenset[str]
    """The digests of what is stored already."""
    intents: dict[str, Intent] = field(default_factory=dict)

    def __call__(self, intent: Intent) -> str:
        digest = hashlib.blake2b(json.dumps(list(vars(intent).values())).encode(), digest_size=DIGEST_BYTES).hexdigest()
        self.intents[digest] = intent
        return f"{self.nonce}.{digest}"


@dataclass(frozen=True)
class RefreshRequest:
    """Somebody waits to see an alert or a case, and with it the message with the key `also`, if one is named.

    That is a task log's card, or says to somebody that another took the alert. It may also be the id of a run, and then
    what asked for more time for it before the newest request is shown as over. `root_id` may also be the key of a
    message: that of a group or a bulk; or that of an alert's card, for an alert that is to leave its group in this
    channel only. `after` is the number of an event that the messages must reflect; None: render them again in any case.
    """

    root_id: str
    also: str = ""
    after: int | None = None


@dataclass(frozen=True)
class DesiredMessage:
    """The content that a message should have. Of several that pile up only the last is sent.

    `key` identifies the message for ever, such as `alert:~12:C0SOC`; `thread_of` is the key of the message that it
    replies to; `root_id` the id of its alert or case, or of the bulk whose targets it names. `file` (name, text) is
    posted in the same thread; None deletes it. `view` is the view that the content was rendered from; `buttons` are
    those that it was rendered with.
    """

    key: str
    channel: str
    message: Message
    thread_of: str = ""
    root_id: str = ""
    by_person: bool = False  # a person waits for it: it goes first
    must_go: bool = False  # Slack may show what may no longer be seen
    is_progress: bool = False  # more is likely to follow soon
    in_bulk: bool = False  # one of many that are rendered again: it goes last
    file: tuple[str, str] | None = None
    view: RedactedView | None = None
    fingerprint: str = ""  # of what it withholds, where it names more than the subject of its view
    buttons: ButtonSet | None = None
    counted: int = 0  # how many requests or new alerts it counts, where it counts some

    def payload(self) -> str:
        """The message as JSON."""
        return json.dumps(self.message.payload(), ensure_ascii=False, separators=(",", ":"))

    @property
    def is_secret(self) -> bool:
        """Whether nobody in its channel may learn that there is such a message."""
        return self.view is not None and self.view.is_secret

    @property
    def rank(self) -> int:
        """How urgent an update of it is."""
        if self.by_person:
            return FOR_PERSON
        if self.must_go:
            return WITHHOLDING
        if self.in_bulk:
            return IN_BULK
        if self.is_progress:
            return NEWS if is_bulk(self.key) and not is_person(self.channel) else OTHER
        return SUM if is_bulk(self.key) else CARD if self.key.startswith("alert:") else NEWS

    @property
    def post_rank(self) -> int:
        """How urgent its post is: that of an alert by severity; that of a group, in which many stand, before those."""
        kind, _, _ = self.key.partition(":")
        if self.by_person:
            return FOR_PERSON
        severity = max(1, self.view.subject.severity if self.view else 1)
        if kind == "alert":
            return LAST_ALERT + 1 - severity
        if kind == "group":
            return max(FIRST_ALERT, LAST_ALERT - severity)
        if kind in ("digest", "mention"):
            return FIRST_ALERT
        if kind in ASKS or (kind == BULK and is_person(self.channel)):
            return FIRST_ALERT + 1  # a storm of requests delays no critical card
        return NEWS if kind in NEWS_KINDS else OTHER


@dataclass(frozen=True)
class MessageRecord:
    """A message as stored, with its file. Times are in ms; 0 means never."""

    key: str
    channel: str  # as in the settings; a user id for a direct message
    conversation: str  # the channel id in Slack's response; differs for a direct message
    root_id: str
    thread_of: str
    payload: str
    status: Status
    version: int  # of the desired content; grows with each change
    attempted_version: int  # of the post whose outcome isn't known
    attempted_at: int  # when that began
    post_id: str  # random, in the message's metadata, by which a post is found in Slack
    ts: str
    rank: int  # from FOR_PERSON to IN_BULK
    pending_since: int  # since when Slack lacks something
    failures: int
    problem: str  # why it couldn't be sent, for `doctor`
    is_plain: bool  # Slack refused its blocks: only text is sent
    clearance: int  # that the content was rendered for
    about: str  # kind and id of the object that it is about, such as `case_task ~9`
    fingerprint: str  # of what the content withholds
    counted: int  # of how many requests or new alerts it tells
    root_ts: str  # of the message that it replies to
    file_name: str  # "" without a file
    file_text: str  # "" once Slack shows it
    file_id: str  # of Slack; "" before the upload
    file_status: FileStatus | None
    file_failures: int

    @property
    def slack_channel(self) -> str:
        """The channel id that Slack's methods take."""
        return self.conversation or self.channel

    @property
    def is_delivered(self) -> bool:
        """Whether Slack shows it, with its file if it has one."""
        return self.status == "shown" and self.file_status in (None, "shown")

    def content(self) -> dict[str, Any]:
        """The fields of chat.postMessage and chat.update."""
        content: dict[str, Any] = json.loads(self.payload)
        return content


def record_of(row: Row) -> MessageRecord:
    """A row of the message table with its root's `ts` as `root_ts` and its file."""
    values = {name: row[name] for name in MessageRecord.__dataclass_fields__}
    values["is_plain"] = bool(values["is_plain"])
    return MessageRecord(**values)


def card_key(alert_id: str, channel: str) -> str:
    return f"alert:{alert_id}:{channel}"


def case_key(case_id: str, channel: str) -> str:
    return f"case:{case_id}:{channel}"


def bulk_key(bulk_id: str, destination: str) -> str:
    """The key of a bulk's message; `destination` is a channel, or `team:user` for a direct message."""
    return f"{BULK}:{bulk_id}:{destination}"


def is_bulk(key: str) -> bool:
    """Whether it is of a message about a bulk."""
    return key.startswith(BULK)


def is_person(channel: str) -> bool:
    """Whether it is a Slack user id, which stands for direct messages to that person."""
    return channel.startswith(("U", "W"))


def digest(payload: str) -> str:
    """A hash by which equal contents are recognized."""
    return hashlib.sha256(payload.encode("utf-8", "surrogatepass")).hexdigest()
