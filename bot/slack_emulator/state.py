"""Users, channels and messages of the emulated workspace, in memory."""

import json
import re
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.feed import PageFeed

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class User:
    """A member of the workspace."""

    id: str
    name: str
    real_name: str
    email: str
    is_bot: bool = False
    deleted: bool = False
    is_restricted: bool = False
    """A single-channel or multi-channel guest."""
    is_ultra_restricted: bool = False
    """A single-channel guest."""
    is_email_confirmed: bool | None = True
    """None: absent from users.info."""
    team_id: str = ""
    """Home workspace of a Slack Connect user; empty for members."""

    def for_page(self) -> Json:
        """The user as the page receives it."""
        return {"id": self.id, "name": self.name, "real_name": self.real_name, "is_bot": self.is_bot}


@dataclass
class Channel:
    """A channel or a direct message."""

    id: str
    name: str
    members: set[str]
    is_private: bool = False
    is_shared: bool = False
    is_im: bool = False
    is_archived: bool = False
    created: int = 0
    messages: dict[str, Json] = field(default_factory=dict)
    earlier: dict[str, deque[Json]] = field(default_factory=dict)  # the last versions of those that were updated
    ephemerals: dict[str, dict[str, Json]] = field(default_factory=dict)
    last_read: dict[str, str] = field(default_factory=dict)
    mentions: dict[str, Collection[str]] = field(default_factory=dict)
    """The users that each message mentioned when it was posted: an edit notifies nobody."""

    @property
    def kind(self) -> str:
        """`channel_type` of message events."""
        if self.is_im:
            return "im"
        return "group" if self.is_private else "channel"

    @property
    def scope_prefix(self) -> str:
        """Prefix of the scopes that read this channel, such as `channels` in `channels:read`."""
        return {"im": "im", "group": "groups", "channel": "channels"}[self.kind]

    def is_visible_to(self, user_id: str) -> bool:
        """Whether this user can read the channel."""
        return user_id in self.members or self.kind == "channel"

    def roots(self) -> list[Json]:
        """Messages outside threads, and replies also sent to the channel; oldest first."""
        return [m for m in self.messages.values() if is_root(m)]

    def thread(self, ts: str) -> list[Json]:
        """A message and its replies, oldest first."""
        return [m for m in self.messages.values() if m["ts"] == ts or m.get("thread_ts") == ts]

    def ephemerals_for(self, user_id: str) -> list[Json]:
        """Ephemeral messages of this user."""
        return list(self.ephemerals.get(user_id, {}).values())


def is_root(message: Json) -> bool:
    """Whether the message appears in the channel itself, not only in a thread."""
    thread_ts = message.get("thread_ts")
    return thread_ts in (None, message["ts"]) or message.get("subtype") == "thread_broadcast"


def mentioned(message: Json, members: Collection[str], usergroups: Mapping[str, Sequence[str]]) -> set[str]:
    """The users that a message notifies. As in Slack, what is only in attachments notifies nobody."""
    text = json.dumps(message.get("blocks") or message.get("text") or "")
    users = set(re.findall(r"<@(\w+)", text))
    for group in re.findall(r"<!subteam\^(\w+)", text):
        users.update(usergroups.get(group, ()))
    if re.search(r"<!(?:here|channel|everyone)\b", text):
        users.update(members)
    return users


def copied(value: T) -> T:
    """A copy of this JSON, made in a fraction of the time that `copy.deepcopy` takes."""
    copy: T = json.loads(json.dumps(value))
    return copy


def new_id(prefix: str) -> str:
    """An unguessable id in Slack's style."""
    return prefix + secrets.token_hex(5).upper()


class Team:
    """Users, channels and messages of one workspace. Each change is published to the open pages."""

    def __init__(self, team_id: str, clock: Callable[[], float], feed: PageFeed, app_name: str) -> None:
        self.id = team_id
        self.name = "Local workspace"
        self.domain = "local"
        self.clock = clock
        self.feed = feed
        self.users: dict[str, User] = {}
        self.channels: dict[str, Channel] = {}
        self.usergroups: dict[str, Sequence[str]] = {}
        self.notifications: dict[str, list[Json]] = {}
        """What the phone of each person showed, oldest first: `channel, ts, text`."""
        self.app_id = "A0LOCAL"
        self.bot_id = "B0LOCAL"
        self.bot_user_id = "U0BOT"
        self._last_us = 0
        name = "".join(letter for letter in app_name.lower() if letter.isalnum() or letter in "-_") or "app"
        self.add_user(User(self.bot_user_id, name, app_name, "", is_bot=True))

    # users and channels

    def add_user(self, user: User) -> User:
        """Add or replace a user."""
        self.users[user.id] = user
        return user

    def add_channel(self, channel: Channel) -> Channel:
        """Add a channel and publish it to the pages of those who can see it."""
        channel.created = channel.created or int(self.clock())
        self.channels[channel.id] = channel
        self.publish_channel(channel)
        return channel

    def user(self, user_id: str) -> User:
        """The user with this id. Raises `user_not_found`."""
        user = self.users.get(user_id)
        if user is None:
            raise SlackError("user_not_found")
        return user

    def channel(self, channel_id: str) -> Channel:
        """The channel with this id. Raises `channel_not_found`."""
        channel = self.channels.get(channel_id)
        if channel is None:
            raise SlackError("channel_not_found")
        return channel

    def visible_channels(self, user_id: str) -> Iterator[Channel]:
        """Channels that this user can read."""
        return (channel for channel in self.channels.values() if channel.is_visible_to(user_id))

    def open_dm(self, user: str, other: str) -> Channel:
        """The direct message channel of two users, created if necessary."""
        for channel in self.channels.values():
            if channel.is_im and channel.members == {user, other}:
                return channel
        return self.add_channel(Channel(new_id("D"), "directmessage", {user, other}, is_private=True, is_im=True))

    # timestamps

    def next_ts(self) -> str:
        """A message timestamp, unique and strictly increasing."""
        self._last_us = max(self._last_us + 1, int(self.clock() * 1_000_000))
        return f"{self._last_us // 1_000_000}.{self._last_us % 1_000_000:06d}"

    # messages

    def post(self, channel: Channel, message: Json) -> Json:
        """Add a message, set its `ts` if missing, and update the reply counts of its thread."""
        message["ts"] = message.get("ts") or self.next_ts()
        channel.messages[message["ts"]] = message
        channel.mentions[message["ts"]] = mentioned(message, channel.members, self.usergroups)
        root = channel.messages.get(message.get("thread_ts") or "")
        if root is not None and root is not message:
            self._count_replies(channel, root)
        self._publish(channel, "message", message)
        self._notify(channel, message)
        for user_id in self._readers(channel):
            event = {"type": "unread", "channel": channel.id, **self.unread(channel, user_id)}
            self.feed.publish(event, to={user_id})
        return message

    def change(self, channel: Channel, ts: str, changes: Json) -> Json:
        """Update a message; keys set to None are removed."""
        message = channel.messages[ts]
        message.update(changes)
        for key in [key for key, value in message.items() if value is None]:
            del message[key]
        self._publish(channel, "message_changed", message)
        return message

    def remove(self, channel: Channel, ts: str) -> None:
        """Delete a message. A message with replies becomes a tombstone, as in Slack."""
        message = channel.messages[ts]
        if message.get("reply_count"):
            gone = {"subtype": "tombstone", "text": "This message was deleted.", "hidden": True}
            self.change(channel, ts, {**gone, "blocks": None, "attachments": None, "files": None, "metadata": None})
            return
        del channel.messages[ts]
        self._publish(channel, "message_deleted", message)
        root = channel.messages.get(message.get("thread_ts") or "")
        if root is not None:
            self._count_replies(channel, root)

    def post_ephemeral(self, channel: Channel, user_id: str, message: Json) -> Json:
        """Show a message to one user only."""
        message["ts"] = message.get("ts") or self.next_ts()
        message["ephemeral"] = True
        visible = channel.ephemerals.setdefault(user_id, {})
        kind = "ephemeral_replaced" if message["ts"] in visible else "ephemeral"
        visible[message["ts"]] = message
        self.feed.publish({"type": kind, "channel": channel.id, "message": message}, to={user_id})
        return message

    def delete_ephemeral(self, channel: Channel, user_id: str, ts: str) -> None:
        """Delete an ephemeral message."""
        message = channel.ephemerals.get(user_id, {}).pop(ts, None)
        if message is not None:
            event = {"type": "message_deleted", "channel": channel.id, "ts": ts, "message": message}
            self.feed.publish(event, to={user_id})

    # unread counts and channel info

    def unread(self, channel: Channel, user_id: str) -> dict[str, int]:
        """The numbers of `unread` messages by others and of `mentions` among them, in threads too.

        In a direct message each counts as a mention.
        """
        last = channel.last_read.get(user_id, "")
        unread = [m for m in channel.messages.values() if m["ts"] > last and m.get("user") != user_id]
        return {
            "unread": sum(map(is_root, unread)),
            "mentions": sum(channel.is_im or user_id in channel.mentions.get(m["ts"], ()) for m in unread),
        }

    def mark_read(self, channel: Channel, user_id: str) -> None:
        """Mark the channel as read by this user."""
        channel.last_read[user_id] = max(channel.messages, default=self.next_ts())
        self.feed.publish({"type": "unread", "channel": channel.id, "unread": 0, "mentions": 0}, to={user_id})

    def channel_for_page(self, channel: Channel, user_id: str) -> Json:
        """The channel as this user's page receives it."""
        return {
            "id": channel.id,
            "name": self.display_name(channel, user_id),
            "is_im": channel.is_im,
            "is_private": channel.is_private,
            "is_shared": channel.is_shared,
            "is_archived": channel.is_archived,
            "members": sorted(channel.members),
            **self.unread(channel, user_id),
        }

    def display_name(self, channel: Channel, user_id: str) -> str:
        """Channel name; for a direct message, the other user's name."""
        if not channel.is_im:
            return channel.name
        other = next(iter(channel.members - {user_id}), user_id)
        return self.users[other].name if other in self.users else other

    def publish_channel(self, channel: Channel) -> None:
        """Publish the channel's current state to every page that can see it."""
        for user_id in self.users:
            if channel.is_visible_to(user_id):
                event = {"type": "channel", "channel": self.channel_for_page(channel, user_id)}
                self.feed.publish(event, to={user_id})

    def _notify(self, channel: Channel, message: Json) -> None:
        """Show the `text` of a new message on the phones of those who are notified of it."""
        notified = channel.members if channel.is_im else channel.mentions[message["ts"]]
        shown = {"channel": channel.id, "ts": message["ts"], "text": str(message.get("text", ""))}
        for user_id in sorted(notified):
            if user_id in self.users and user_id != message.get("user") and channel.is_visible_to(user_id):
                self.notifications.setdefault(user_id, []).append(shown)
                self.feed.publish({"type": "notification", **shown}, to={user_id})

    def _count_replies(self, channel: Channel, root: Json) -> None:
        replies = [m for m in channel.thread(root["ts"]) if m is not root]
        if not replies:
            self.change(channel, root["ts"], dict.fromkeys(THREAD_FIELDS))
            return
        authors = list(dict.fromkeys(m["user"] for m in replies))
        counts = {
            "thread_ts": root["ts"],
            "reply_count": len(replies),
            "reply_users": authors,
            "reply_users_count": len(authors),
            "latest_reply": replies[-1]["ts"],
        }
        self.change(channel, root["ts"], counts)

    def _publish(self, channel: Channel, kind: str, message: Json) -> None:
        readers = self._readers(channel)
        if readers:
            event = {"type": kind, "channel": channel.id, "ts": message["ts"], "message": message}
            self.feed.publish(event, to=readers)

    def _readers(self, channel: Channel) -> list[str]:
        return [u for u in self.users if self.feed.is_open(u) and channel.is_visible_to(u)]


THREAD_FIELDS = ("thread_ts", "reply_count", "reply_users", "reply_users_count", "latest_reply")
