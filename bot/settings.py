"""The settings of the bot: `[bot]`, `[slack]`, `[[channel]]` of the TOML file, and the environment (`surface.md`)."""

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from core.errors import ResponderBotError
from core.models import TLP_NAMES

DEFAULT_FILE = Path("responder-bot.toml")
PREFIX = "RESPONDER_BOT_"
CORE_SECTIONS = ("core", "engine", "responder")  # read by core, from the same file
SECRETS = {("bot", "core_api_key"), ("slack", "bot_token"), ("slack", "app_token"), ("slack", "signing_secret")}
SLACK_NAMES = {
    "bot_token": "SLACK_BOT_TOKEN",
    "app_token": "SLACK_APP_TOKEN",
    "signing_secret": "SLACK_SIGNING_SECRET",
    "api_url": "SLACK_API_URL",
}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BotSection(_Section):
    """`[bot]`."""

    core_url: str = "http://127.0.0.1:9000"
    core_api_key: str = ""
    database: Path = Path("responder-bot-slack.db")


class SlackSection(_Section):
    """`[slack]`. With `app_token`: Socket Mode; else HTTP with `signing_secret` on host and port."""

    bot_token: str = ""
    app_token: str = ""
    signing_secret: str = ""
    api_url: str = "https://slack.com/api/"
    host: str = "127.0.0.1"
    port: int = Field(3000, ge=0, le=65535)
    command: str = Field("/responder", pattern=r"^/\S+$")
    link_by_email: bool = False


class Route(_Section):
    """Which alerts are posted into a channel. Each list that is given must match; `*` matches all."""

    severity_at_least: int = Field(1, ge=1, le=4)
    sources: tuple[str, ...] = ("*",)
    tags: tuple[str, ...] = ("*",)
    types: tuple[str, ...] = ("*",)

    def takes(self, *, severity: int, source: str, type: str, tags: Iterable[str]) -> bool:
        """Whether an alert like this belongs there."""
        return (
            severity >= self.severity_at_least
            and _one_of(self.sources, [source])
            and _one_of(self.types, [type])
            and _one_of(self.tags, tags)
        )


class ChannelSection(_Section):
    """`[[channel]]`; `clearance` is the highest TLP that is shown there."""

    id: str = Field(pattern=r"^[CGD][A-Z0-9]+$")
    clearance: int
    alerts: Route | None = None

    @field_validator("clearance", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if value in TLP_NAMES:
            return TLP_NAMES.index(value)
        raise ValueError(f"is one of {', '.join(TLP_NAMES)}")


class BotSettings(_Section):
    """All that the bot is told."""

    bot: BotSection = Field(default_factory=BotSection)
    slack: SlackSection = Field(default_factory=SlackSection)
    channel: tuple[ChannelSection, ...] = ()


def load(file: Path | None, environment: Mapping[str, str] | None = None) -> BotSettings:
    """The settings of `file` (None: `responder-bot.toml` if there is one) and of the environment, which wins.

    Raises ResponderBotError("bad_request") with one sentence that names the key.
    """
    environment = os.environ if environment is None else environment
    path = file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    tree = _read(path) if path else {}
    for section, model in (("bot", BotSection), ("slack", SlackSection)):
        tree[section] = {**_table(tree, section), **_from_environment(section, model, environment)}
    return parse(tree, path.parent if path else Path())


def parse(tree: Mapping[str, Any], folder: Path) -> BotSettings:
    """The bot's part of a settings tree; paths in it are relative to `folder`."""
    _refuse_unknown(tree)
    ours = {key: value for key, value in tree.items() if key not in CORE_SECTIONS}
    try:
        settings = BotSettings.model_validate(ours)
    except ValidationError as error:
        raise _wrong(error) from None
    _refuse_twice(settings)
    bot = settings.bot.model_copy(update={"database": (folder / settings.bot.database).absolute()})
    return settings.model_copy(update={"bot": bot})


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise _bad(f"The settings file {path} can't be read ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _bad(f"The settings file {path} is not TOML: {error}.") from error


def _table(tree: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    table = tree.get(section, {})
    if not isinstance(table, Mapping):
        raise _bad(f"[{section}] in the settings is to be a table.")
    return table


def _from_environment(section: str, model: type[_Section], environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in model.model_fields:
        value = _lookup(section, key, environment)
        if value is not None:
            found[key] = value
    return found


def _lookup(section: str, key: str, environment: Mapping[str, str]) -> str | None:
    """Our own name wins over Slack's usual one; a secret may stand in a file."""
    names = [f"{PREFIX}{section}_{key}".upper()]
    if section == "slack" and key in SLACK_NAMES:
        names.append(SLACK_NAMES[key])
    for name in names:
        plain = environment.get(name)
        in_file = environment.get(f"{name}_FILE") if (section, key) in SECRETS else None
        if plain is not None and in_file is not None:
            raise _bad(f"Both {name} and {name}_FILE are set; keep one of them.")
        if in_file is not None:
            return _secret(f"{name}_FILE", in_file)
        if plain is not None:
            return plain
    return None


def _secret(name: str, path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(f"The file {path} that {name} names can't be read.") from error


def _refuse_unknown(tree: Mapping[str, Any]) -> None:
    _refuse_keys(tree, (*BotSettings.model_fields, *CORE_SECTIONS), "")
    for name, field in BotSettings.model_fields.items():
        model = BotSection if name == "bot" else SlackSection if name == "slack" else ChannelSection
        tables = tree.get(name, ())
        if get_origin(field.annotation) is not tuple:
            tables = [tables] if tables else []
        for table in tables if isinstance(tables, list | tuple) else []:
            _refuse_keys(table, model.model_fields, name)
            alerts = table.get("alerts") if name == "channel" and isinstance(table, Mapping) else None
            _refuse_keys(alerts, Route.model_fields, "channel.alerts")


def _refuse_keys(table: Any, known: Iterable[str], where: str) -> None:
    if not isinstance(table, Mapping):
        return
    known = list(known)
    for key in table:
        if key in known:
            continue
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
        place = f"[{where}] " if where else ""
        raise _bad(f"Unknown key {key!r} in the settings {place}- did you mean {near[0] if near else known[0]!r}?")


def _refuse_twice(settings: BotSettings) -> None:
    seen: set[str] = set()
    for channel in settings.channel:
        if channel.id in seen:
            raise _bad(f"The channel {channel.id} stands twice in the settings; keep one [[channel]] for it.")
        seen.add(channel.id)


def _wrong(error: ValidationError) -> ResponderBotError:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return _bad(f"The setting {where} is wrong: {first['msg'].removeprefix('Value error, ')}.")


def _bad(sentence: str) -> ResponderBotError:
    return ResponderBotError("bad_request", sentence)


def _one_of(patterns: Iterable[str], given: Iterable[str]) -> bool:
    patterns = list(patterns)
    return "*" in patterns or bool(set(patterns) & set(given))
