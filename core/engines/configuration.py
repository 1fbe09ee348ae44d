"""The configuration of a responder: the items of its definition with the values of the settings."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.common.settings_file import variable_name
from core.common.words import SECRET_WORDS
from core.engines.base import Skipped
from core.engines.definitions import ConfigurationItem, Definition, UnusableDefinitionError
from core.engines.secret_redaction import secrets_in_url
from core.settings import SecretSource

DEFAULT_TIMEOUT_MINUTES = 30.0

RUN_SETTINGS = ("jobTimeout", "check_tlp", "max_tlp", "check_pap", "max_pap", "proxy_http", "proxy_https", "cacerts")
"""What the settings may set for every responder, beside its own configuration items."""

_READABLE_RUN_SETTINGS = ("proxy_http", "proxy_https")
"""Those that a command or a file may provide. The others are needed to list responders, or are paths already."""


class _MissingValuesError(UnusableDefinitionError):
    """Required configuration items have no value."""

    def __init__(self, name: str, missing: Sequence[str]) -> None:
        plural = "s" if len(missing) > 1 else ""
        super().__init__(
            f"required configuration without a value: {', '.join(missing)}."
            f' Set the value{plural} in [responder."{name}"] config.'
        )
        self.missing = missing


@dataclass(frozen=True)
class ConfiguredResponder:
    """A definition with its values."""

    definition: Definition
    config: Mapping[str, Any]
    """The definition's fixed values, then its items; without RUN_SETTINGS."""
    secret_names: frozenset[str]
    """Keys of `config` whose values reports never show."""
    check_tlp: bool
    max_tlp: int
    check_pap: bool
    max_pap: int
    timeout_minutes: float
    proxy_http: str | None
    proxy_https: str | None
    cacerts: str | None
    """PEM text, or the path of a file."""
    given: Mapping[str, Any]
    """The values of the settings."""
    sources: Mapping[str, SecretSource]
    """The sources that a run must read first, by item; `config` has no values for these until then."""
    read_secrets: frozenset[str] = frozenset()
    """Texts that were read from sources; all are redacted."""


def configure(definition: Definition, given: Mapping[str, Any]) -> ConfiguredResponder | Skipped:
    """Put the settings' values into a definition; Skipped when one doesn't fit or is missing."""
    try:
        return _configure(definition, given)
    except _MissingValuesError as error:
        reason = f"not configured: {', '.join(error.missing)} missing; an administrator can set it"
        return Skipped(definition.name, f"{definition.file}: {error}", public_reason=reason)
    except UnusableDefinitionError as error:
        reason = f"wrongly configured: {str(error).rstrip('.')}; an administrator can correct it"
        return Skipped(definition.name, f"{definition.file}: {error}", public_reason=reason)


def with_read_values(configured: ConfiguredResponder, texts: Mapping[str, str]) -> ConfiguredResponder:
    """Fill in the texts of the sources. Raises UnusableDefinitionError when one doesn't fit its item."""
    complete = _configure(configured.definition, {**configured.given, **texts})
    return replace(
        complete,
        secret_names=complete.secret_names | texts.keys(),
        read_secrets=frozenset(texts.values()).union(*map(secrets_in_url, texts.values())),
    )


def _configure(definition: Definition, given: Mapping[str, Any]) -> ConfiguredResponder:
    values = {variable_name(key): value for key, value in given.items()} | dict(given)
    sources = _sources(definition, values)
    values = {key: None if isinstance(value, SecretSource) else value for key, value in values.items()}
    config: dict[str, Any] = dict(definition.config)
    missing = []
    for item in definition.items:
        given_value = values.get(item.name, values.get(variable_name(item.name)))
        value = _item_value(item, given_value)
        is_missing = value in (None, [], "") or (item.has_placeholder and given_value is None)
        if item.required and is_missing and item.name not in sources:
            missing.append(item.name)
        config[item.name] = value
    if missing:
        raise _MissingValuesError(definition.name, missing)
    run = _RunSettings(config, values)
    check_tlp, check_pap = run.boolean("check_tlp"), run.boolean("check_pap")
    return ConfiguredResponder(
        definition=definition,
        config={key: value for key, value in config.items() if key not in RUN_SETTINGS},
        secret_names=_secret_names(definition, config),
        check_tlp=check_tlp,
        max_tlp=run.maximum("max_tlp", check_tlp),
        check_pap=check_pap,
        max_pap=run.maximum("max_pap", check_pap),
        timeout_minutes=run.minutes("jobTimeout"),
        proxy_http=run.text("proxy_http"),
        proxy_https=run.text("proxy_https"),
        cacerts=run.certificates(),
        given=given,
        sources=sources,
    )


def _sources(definition: Definition, values: Mapping[str, Any]) -> Mapping[str, SecretSource]:
    names = (*(item.name for item in definition.items), *RUN_SETTINGS)
    by_name = {name: values.get(name, values.get(variable_name(name))) for name in names}
    sources = {name: value for name, value in by_name.items() if isinstance(value, SecretSource)}
    for name in sources:
        if name in RUN_SETTINGS and name not in _READABLE_RUN_SETTINGS:
            raise UnusableDefinitionError(f"{name} can't come from a command or a file; set its value.")
    return sources


def _secret_names(definition: Definition, config: Mapping[str, Any]) -> frozenset[str]:
    by_word = {
        name
        for name, value in config.items()
        if not isinstance(value, bool) and any(word in name.lower() for word in SECRET_WORDS)
    }
    return frozenset(by_word | {item.name for item in definition.items if item.is_secret})


def _item_value(item: ConfigurationItem, given: Any) -> Any:
    if given is None or (given == "" and (item.multi or item.type in ("number", "boolean"))):
        given = item.default  # an empty string that was set stays: it unsets a default such as a login
    if item.multi:
        return [_convert(item, value) for value in _as_list(item.name, given)]
    return None if given is None or (given == "" and item.type in ("number", "boolean")) else _convert(item, given)


def _as_list(name: str, value: Any) -> Sequence[Any]:
    """A string, which comes from an environment variable, is a JSON list or comma-separated values."""
    if value is None or value == "":
        return ()
    if isinstance(value, list | tuple):
        return value
    if not isinstance(value, str):
        return (value,)
    if value.lstrip().startswith("["):
        try:
            return list(json.loads(value))
        except ValueError as error:
            raise UnusableDefinitionError(f"the list of the configuration item {name!r} is not valid JSON.") from error
    return [part.strip() for part in value.split(",")]


def _convert(item: ConfigurationItem, value: Any) -> Any:
    """Convert a value to the item's type. Environment variables give numbers and booleans as strings."""
    if item.type == "boolean":
        return _as_boolean(item.name, value)
    if item.type == "number":
        return _as_number(item.name, value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnusableDefinitionError(f"the configuration item {item.name!r} must be a string.")
    return str(value)


def _as_boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise UnusableDefinitionError(f"the configuration item {name!r} must be true or false.")


def _as_number(name: str, value: Any) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value.strip())
            except ValueError:
                continue
    raise UnusableDefinitionError(f"the configuration item {name!r} must be a number.")


@dataclass(frozen=True)
class _RunSettings:
    """RUN_SETTINGS of one responder: values of the settings win over those of the definition."""

    defined: Mapping[str, Any]
    given: Mapping[str, Any]

    def _get(self, name: str) -> Any:
        value = self._given(name)
        return self.defined.get(name) if value is None or value == "" else value

    def _given(self, name: str) -> Any:
        return self.given.get(name, self.given.get(variable_name(name)))

    def boolean(self, name: str) -> bool:
        value = self._get(name)
        return False if value is None else _as_boolean(name, value)

    def maximum(self, name: str, check: bool) -> int:
        """A check without a maximum allows 2 (AMBER); without a check, 3 (RED) is allowed."""
        value = self._get(name)
        return (2 if check else 3) if value is None else int(_as_number(name, value))

    def minutes(self, name: str) -> float:
        value = self._get(name)
        minutes = DEFAULT_TIMEOUT_MINUTES if value is None else _as_number(name, value)
        if not 0 < minutes < float("inf"):
            raise UnusableDefinitionError(f"{name} must be a number of minutes above 0.")
        return minutes

    def text(self, name: str) -> str | None:
        value = self._get(name)
        return None if value is None or value == "" else str(value)

    def certificates(self) -> str | None:
        """PEM text or a path. The program can read what a path leads to, so a definition can't name one."""
        value = self.text("cacerts")
        if value and not self._given("cacerts") and "-----BEGIN" not in value:
            raise UnusableDefinitionError("cacerts must be PEM text here; a path can be set in the settings only.")
        return value
