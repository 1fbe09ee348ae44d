"""The settings of the bot: `[bot]`, `[slack]` and `[[channel]]` of the TOML file, and the environment."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from core.common.settings_file import (
    RetentionSection,
    Sections,
    SettingsSection,
    SharedSection,
    SlackId,
    section,
    section_list,
    settings_error,
    shared_section,
)
from core.models import TLP_NAMES

SLACK_NAMES = {
    "bot_token": "SLACK_BOT_TOKEN",
    "app_token": "SLACK_APP_TOKEN",
    "signing_secret": "SLACK_SIGNING_SECRET",
    "api_url": "SLACK_API_URL",
}


class BotSection(SettingsSection):
    """`[bot]`."""

    core_url: str = Field(
        "http://127.0.0.1:9000", pattern=r"^https?://\S+$", description="an address such as http://127.0.0.1:9000"
    )
    core_api_key: str = ""
    allow_http: bool = False
    """Whether the key may go unencrypted to another machine."""
    health_port: int | None = Field(None, ge=0, le=65535)
    """Port of `/health` and `/metrics` on the loopback; over HTTP they are also served where Slack sends requests."""


class SlackSection(SettingsSection):
    """`[slack]`. With `app_token` the bot uses Socket Mode, else HTTP with `signing_secret` on host and port."""

    bot_token: str = Field("", description="the bot's token, xoxb-...; what begins with xapp- is app_token")
    app_token: str = Field("", description="the app's token, xapp-...; what begins with xoxb- is bot_token")
    signing_secret: str = ""
    api_url: Annotated[str, AfterValidator(lambda url: url.rstrip("/") + "/")] = Field(
        "https://slack.com/api/", pattern=r"^https?://\S+$", description="an address such as https://slack.com/api/"
    )
    host: str = "127.0.0.1"
    port: int = Field(3000, ge=0, le=65535)
    command: str = Field("/responder", pattern=r"^/\S+$", description="a slash and a word, such as /responder")
    link_by_email: bool = False

    @field_validator("bot_token", "app_token")
    @classmethod
    def _not_the_other_token(cls, token: str, info: ValidationInfo) -> str:
        if token.startswith("xapp-" if info.field_name == "bot_token" else "xoxb-"):
            raise ValueError("the other token")
        return token


class Grouping(SettingsSection):
    """Which alerts of a channel say the same, and share a card: those with equal fields within a time.

    Of the title digits, addresses and hashes don't count. Each of the first `after` has a card of its own.
    """

    by: tuple[Literal["source", "type", "title", "severity"], ...] = Field(("source", "type", "title"), min_length=1)
    after: int = Field(3, ge=1, le=1000)
    window_minutes: int = Field(30, ge=1, le=1440)


class Route(SettingsSection):
    """Which alerts are posted into a channel. Every list must match; `*` matches anything, an empty list nothing."""

    severity_at_least: int = Field(1, ge=1, le=4)
    sources: tuple[str, ...] = ("*",)
    tags: tuple[str, ...] = ("*",)
    types: tuple[str, ...] = ("*",)

    def matches(self, *, severity: int, source: str, type: str, tags: Iterable[str]) -> bool:
        """Whether an alert with these fields is posted there."""
        return (
            severity >= self.severity_at_least
            and _any_matches(self.sources, [source])
            and _any_matches(self.types, [type])
            and _any_matches(self.tags, tags)
        )


class ChannelSection(SettingsSection):
    """`[[channel]]`: what is posted there. `clearance` is the highest TLP that is shown there."""

    id: str = Field(
        pattern=r"^[CGD][A-Z0-9]+$",
        description="the channel's id, such as C0123456789, which stands at the bottom of the channel's details",
    )
    alerts: Route | None = Field(
        None, description='a table, such as { severity_at_least = 2, sources = ["*"] }, or {} for all alerts'
    )
    clearance: int = Field(description=f"one of {', '.join(TLP_NAMES)}")
    mention: Mapping[Literal["low", "medium", "high", "critical"], SlackId] = Field(
        {},
        description='a table of who is mentioned about a new alert, such as { critical = "S0123456789" }, the id of a'
        " user group in Slack or of a person",
    )
    """By severity: the id of a user group in Slack or of a person."""
    group: Grouping | None = Field(
        Grouping(), description='a table, such as { by = ["source", "type", "title"], after = 3 }, or false'
    )

    @field_validator("group", mode="before", json_schema_input_type=Grouping | Literal[False])
    @classmethod
    def _false_is_none(cls, value: Any) -> Any:
        return None if value is False else value

    @field_validator("clearance", mode="before", json_schema_input_type=Literal["clear", "green", "amber", "red"])
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if value in TLP_NAMES:
            return TLP_NAMES.index(value)
        raise ValueError("no such level")


class BotSettings(SettingsSection):
    """All settings of the bot."""

    core: SharedSection = Field(default_factory=SharedSection)
    bot: BotSection = Field(default_factory=BotSection)
    slack: SlackSection = Field(default_factory=SlackSection)
    channel: tuple[ChannelSection, ...] = ()
    retention: RetentionSection = Field(default_factory=RetentionSection)

    @property
    def health_address(self) -> str:
        """Where the bot on this machine serves `/health`, such as "127.0.0.1:3000"; "" if nowhere."""
        if self.bot.health_port is not None:
            return f"127.0.0.1:{self.bot.health_port}"
        is_any = self.slack.host in ("0.0.0.0", "::")  # noqa: S104  # nothing is bound here
        return "" if self.slack.app_token else f"{'127.0.0.1' if is_any else self.slack.host}:{self.slack.port}"


def parse(tree: Mapping[str, Any], folder: Path) -> BotSettings:
    """Read the bot's settings from parsed TOML; paths in it are relative to `folder`. Raises as `bot_settings` does."""
    return bot_settings(Sections(folder, "the settings", tree))


def bot_settings(sections: Sections) -> BotSettings:
    """Read the bot's settings. Raises ResponderBotError("bad_request") with one sentence that names the key."""
    return BotSettings(**{name: read(sections) for name, read in READERS.items()})


def _channels(sections: Sections) -> tuple[ChannelSection, ...]:
    channels = section_list(ChannelSection, "channel", sections)
    for channel_id, uses in Counter(channel.id for channel in channels).items():
        if uses > 1:
            raise settings_error(f"The channel {channel_id} stands twice in the settings; keep one [[channel]] for it.")
    return channels


def _any_matches(patterns: Collection[str], values: Iterable[str]) -> bool:
    return "*" in patterns or not set(patterns).isdisjoint(values)


def _bot(sections: Sections) -> BotSection:
    bot = section(BotSection, "bot", sections)
    url = urlsplit(bot.core_url)
    if url.scheme == "http" and not bot.allow_http and not _is_loopback(url.hostname or ""):
        raise settings_error(
            f"{sections.source}: [bot] core_url is {bot.core_url}, where the bot's key, which acts for anybody, goes"
            " unencrypted; use https://, or set [bot] allow_http = true if nobody else is on that network."
        )
    return bot


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


READERS: Mapping[str, Callable[[Sections], Any]] = {
    "core": shared_section,
    "bot": _bot,
    "slack": partial(section, SlackSection, "slack", also=SLACK_NAMES),
    "channel": _channels,
    "retention": partial(section, RetentionSection, "retention"),
}
"""What reads each section of the bot's."""
