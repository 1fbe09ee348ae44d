"""Initial content of an emulated workspace."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SeedUser:
    """A user of the seed."""

    id: str
    name: str
    real_name: str
    email: str = ""
    is_bot: bool = False


@dataclass(frozen=True)
class SeedChannel:
    """A channel of the seed; `members=None` adds all its users."""

    id: str
    name: str
    members: Sequence[str] | None = None
    is_private: bool = False
    is_shared: bool = False
    bot: bool = True


@dataclass(frozen=True)
class SeedMessage:
    """A message of the seed."""

    channel_id: str
    user_id: str
    text: str


@dataclass(frozen=True)
class Seed:
    """Users, channels and messages to start with."""

    users: Sequence[SeedUser] = field(default_factory=tuple)
    channels: Sequence[SeedChannel] = field(default_factory=tuple)
    messages: Sequence[SeedMessage] = field(default_factory=tuple)
