"""The app manifest: commands, shortcuts, scopes, event subscriptions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def _lookup(tree: Mapping[str, Any], *path: str) -> Any:
    value: Any = tree
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


# Each event requires one of these scopes (docs.slack.dev, "Events").
EVENT_SCOPES = {
    "app_mention": ("app_mentions:read",),
    "message.channels": ("channels:history",),
    "message.groups": ("groups:history",),
    "message.im": ("im:history",),
    "message.mpim": ("mpim:history",),
    "channel_archive": ("channels:read",),
    "channel_rename": ("channels:read",),
    "channel_shared": ("channels:read", "groups:read"),
    "channel_unarchive": ("channels:read",),
    "channel_unshared": ("channels:read", "groups:read"),
    "group_archive": ("groups:read",),
    "group_rename": ("groups:read",),
    "group_unarchive": ("groups:read",),
    "member_joined_channel": ("channels:read", "groups:read"),
    "member_left_channel": ("channels:read", "groups:read"),
}

EVERY_SCOPE = (
    "app_mentions:read",
    *(f"{kind}:{right}" for kind in ("channels", "groups", "im", "mpim") for right in ("history", "read")),
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "im:write",
    "metadata.message:read",
    "users:read",
    "users:read.email",
)
"""All bot scopes that the emulator supports."""


@dataclass(frozen=True)
class Manifest:
    """The app's manifest. Without one (`tree` is None) everything is allowed."""

    tree: Mapping[str, Any] | None

    @property
    def app_name(self) -> str:
        """Display name of the bot."""
        name = _lookup(self.tree or {}, "features", "bot_user", "display_name")
        return str(name or _lookup(self.tree or {}, "display_information", "name") or "app")

    @property
    def commands(self) -> list[dict[str, str]]:
        """Slash commands, for the page's autocompletion."""
        listed = _lookup(self.tree or {}, "features", "slash_commands") or []
        return [
            {key: str(entry.get(key) or "") for key in ("command", "description", "usage_hint")} for entry in listed
        ]

    @property
    def shortcuts(self) -> list[dict[str, str]]:
        """Global and message shortcuts."""
        listed = _lookup(self.tree or {}, "features", "shortcuts") or []
        return [{key: str(entry.get(key) or "") for key in ("callback_id", "name", "type")} for entry in listed]

    @property
    def scopes(self) -> list[str]:
        """The bot token's scopes."""
        if self.tree is None:
            return list(EVERY_SCOPE)
        return [str(scope) for scope in _lookup(self.tree or {}, "oauth_config", "scopes", "bot") or []]

    def has_scope(self, scope: str) -> bool:
        """Whether the bot's token has this scope."""
        return self.tree is None or scope in self.scopes

    def has_command(self, command: str) -> bool:
        """Whether the app has this slash command."""
        return self.tree is None or any(entry["command"] == command for entry in self.commands)

    def escapes_mentions(self, command: str) -> bool:
        """Whether mentions in this command's text are escaped (`should_escape`)."""
        listed = _lookup(self.tree or {}, "features", "slash_commands") or []
        return any(entry.get("command") == command and entry.get("should_escape") for entry in listed)

    def has_shortcut(self, callback_id: str, kind: str) -> bool:
        """Whether the app has this shortcut; `kind` is `global` or `message`."""
        return self.tree is None or any(
            entry["callback_id"] == callback_id and entry["type"] == kind for entry in self.shortcuts
        )

    def subscribes_to(self, event: str) -> bool:
        """Whether the app subscribed to this event, such as `message.channels`."""
        events = _lookup(self.tree or {}, "settings", "event_subscriptions", "bot_events") or []
        return self.tree is None or event in events

    def problems(self) -> list[str]:
        """Missing scopes for which Slack would reject this manifest."""
        if self.tree is None:
            return []
        events = _lookup(self.tree, "settings", "event_subscriptions", "bot_events") or []
        problems = [
            f"The event {event} needs the bot scope {' or '.join(EVENT_SCOPES[event])}."
            for event in events
            if event in EVENT_SCOPES and not set(EVENT_SCOPES[event]) & set(self.scopes)
        ]
        if (self.commands or self.shortcuts) and "commands" not in self.scopes:
            problems.append("Slash commands and shortcuts need the bot scope commands.")
        return problems

    @property
    def has_home(self) -> bool:
        """Whether the App Home's Home tab is enabled."""
        return self.tree is None or bool(_lookup(self.tree, "features", "app_home", "home_tab_enabled"))
