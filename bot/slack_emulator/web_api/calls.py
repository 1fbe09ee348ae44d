"""What the methods of the Web API work with: the emulator's services, and the arguments of a call."""

import json
from dataclasses import dataclass
from typing import Any

from bot.slack_emulator.delivery import AppDelivery
from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.files import Files
from bot.slack_emulator.manifest import Manifest
from bot.slack_emulator.rates import RateLimits
from bot.slack_emulator.socket_mode import SocketMode
from bot.slack_emulator.state import Channel, Json, Team
from bot.slack_emulator.views import Views


@dataclass
class Tokens:
    """State of the app's tokens."""

    revoked: bool = False


@dataclass(frozen=True)
class WebApi:
    """Services that the methods use."""

    url: str
    team: Team
    manifest: Manifest
    delivery: AppDelivery
    views: Views
    files: Files
    rates: RateLimits
    socket: SocketMode
    bot_token: str
    app_token: str
    tokens: "Tokens"

    def require(self, scope: str) -> None:
        """Raise `missing_scope` unless the manifest has this scope."""
        if not self.manifest.has_scope(scope):
            raise SlackError("missing_scope", needed=scope, provided=",".join(self.manifest.scopes))

    def member_channel(self, channel_id: Any) -> Channel:
        """A channel that the bot is a member of. Raises `channel_not_found` or `not_in_channel`."""
        channel = self.known_channel(channel_id)
        if self.team.bot_user_id not in channel.members:
            raise SlackError("not_in_channel")
        return channel

    def known_channel(self, channel_id: Any) -> Channel:
        """A channel visible to the bot. Raises `channel_not_found`, also for private channels of others."""
        channel = self.team.channel(str(channel_id))
        if not channel.is_visible_to(self.team.bot_user_id):
            raise SlackError("channel_not_found")
        return channel


@dataclass(frozen=True)
class Args:
    """Arguments of a call, from a form or JSON."""

    values: Json

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def need(self, name: str) -> str:
        """A required string. Raises `invalid_arguments`."""
        value = self.values.get(name)
        if value in (None, ""):
            messages = [f"[ERROR] missing required field: {name}"]
            raise SlackError("invalid_arguments", response_metadata={"messages": messages})
        return str(value)

    def flag(self, name: str) -> bool:
        """A boolean: True, "true" or "1"."""
        return str(self.values.get(name, "")).lower() in ("true", "1")

    def number(self, name: str, default: int) -> int:
        value = self.values.get(name)
        if value in (None, ""):
            return default
        try:
            return int(str(value))
        except ValueError:
            raise SlackError("invalid_arguments") from None

    def parsed(self, name: str, error_code: str = "invalid_arguments") -> Any:
        """A JSON value; in a form it is sent as text."""
        value = self.values.get(name)
        if not isinstance(value, str):
            return value
        if not value:
            return None
        try:
            return json.loads(value)
        except ValueError:
            raise SlackError(error_code) from None
