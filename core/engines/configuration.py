"""The configuration of a responder: values of the settings put into the items that its definition asks for."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.engines.base import Skipped
from core.engines.definitions import ConfigurationItem, Definition, UnusableDefinitionError
from core.engines.redaction import SECRET_WORDS

DEFAULT_TIMEOUT_MINUTES = 30.0

RUN_SETTINGS = ("jobTimeout", "check_tlp", "max_tlp", "check_pap", "max_pap", "proxy_http", "proxy_https", "cacerts")
"""What the settings may set for every responder, beside its own configuration items."""


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
    """A definition with its values: what a run needs to know."""

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


def configure(definition: Definition, given: Mapping[str, Any]) -> ConfiguredResponder | Skipped:
    """Put the settings' values into a definition; Skipped when one doesn't fit or is missing."""
    try:
        return _configure(definition, given)
    except _MissingValuesError as error:
        objection = f"not configured: {', '.join(error.missing)} missing; an administrator can set it"
        return Skipped(definition.name, f"{definition.file}: {error}", objection=objection)
    except UnusableDefinitionError as error:
        objection = f"wrongly configured: {str(error).rstrip('.')}; an administrator can correct it"
        return Skipped(definition.name, f"{definition.file}: {error}", objection=objection)


def section_for(name: str, sections: Mapping[str, Any]) -> Any:
    """The settings of the responder `name`, also when an environment variable spelled it in capitals; else None."""
    if name in sections:
        return sections[name]
    return next((section for key, section in sections.items() if _variable_name(key) == _variable_name(name)), None)


def _variable_name(name: str) -> str:
    """The name as it is spelled in an environment variable: capitals, digits and underscores."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _configure(definition: Definition, given: Mapping[str, Any]) -> ConfiguredResponder:
    values = {_variable_name(key): value for key, value in given.items()} | dict(given)
    config: dict[str, Any] = dict(definition.config)
    missing = []
    for item in definition.items:
        value = _item_value(item, values.get(item.name, values.get(_variable_name(item.name))))
        if item.required and value in (None, [], ""):
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
        cacerts=run.text("cacerts"),
    )


def _secret_names(definition: Definition, config: Mapping[str, Any]) -> frozenset[str]:
    by_word = {name for name in config if any(word in name.lower() for word in SECRET_WORDS)}
    return frozenset(by_word | {item.name for item in definition.items if item.is_secret})


def _item_value(item: ConfigurationItem, given: Any) -> Any:
    if given is None or (given == "" and (item.multi or item.type in ("number", "boolean"))):
        given = item.default  # an empty string that was set stays: it unsets a default such as a login
    if item.multi:
        return [_convert(item, value) for value in _as_list(item.name, given)]
    return None if given is None or (given == "" and item.type in ("number", "boolean")) else _convert(item, given)


def _as_list(name: str, given: Any) -> Sequence[Any]:
    """A string, which comes from an environment variable, is a JSON list or comma-separated values."""
    if given is None or given == "":
        return ()
    if isinstance(given, list | tuple):
        return given
    if not isinstance(given, str):
        return (given,)
    if given.lstrip().startswith("["):
        try:
            return list(json.loads(given))
        except ValueError as error:
            raise UnusableDefinitionError(f"the list of the configuration item {name!r} is not valid JSON.") from error
    return [part.strip() for part in given.split(",")]


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
        value = self.given.get(name, self.given.get(_variable_name(name)))
        return self.defined.get(name) if value is None or value == "" else value

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
