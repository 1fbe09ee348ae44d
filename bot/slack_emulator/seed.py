"""What an emulator holds at its start."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SeedUser:
    """A person to begin with."""

    id: str
    name: str
    real_name: str
    email: str = ""
    is_bot: bool = False


@dataclass(frozen=True)
class SeedChannel:
    """A channel to begin with; `members=None` means everybody."""

    id: str
    name: str
    members: Sequence[str] | None = None
    is_private: bool = False
    is_shared: bool = False
    bot: bool = True


@dataclass(frozen=True)
class SeedMessage:
    """A message to begin with."""

    channel_id: str
    user_id: str
    text: str


@dataclass(frozen=True)
class Seed:
    """People, channels, messages."""

    users: Sequence[SeedUser] = field(default_factory=tuple)
    channels: Sequence[SeedChannel] = field(default_factory=tuple)
    messages: Sequence[SeedMessage] = field(default_factory=tuple)
