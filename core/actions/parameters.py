"""Checks the parameters of a run against those of its responder (core/docs/semantics.md#inputs-of-a-run)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from core.authorization import require_person
from core.common.database import Reads
from core.common.errors import ResponderBotError
from core.engines.secret_redaction import redact_keys
from core.field_types import wrong_fields
from core.models import OWN_PARAMETERS, Parameter

SHOWN_CHARS = 100


def check_parameters(
    reads: Reads, declared: Sequence[Parameter], parameters: Mapping[str, Any], full_login: Callable[[str], str]
) -> dict[str, Any]:
    """The values as the responder gets them, with defaults; all values unchanged, if it declares no parameters.

    Raises ResponderBotError("invalid_fields") with an entry for each that is unknown, missing or wrong.
    """
    if not declared:
        return dict(parameters)
    known = {parameter.name for parameter in declared}
    errors = [_unknown(name, declared) for name in parameters if name not in known and name not in OWN_PARAMETERS]
    values: dict[str, Any] = {}
    for parameter in declared:
        value = parameters.get(parameter.name)
        value = parameter.default if value is None or value in ("", []) else value
        if value is None and parameter.required:
            errors.append({"name": f"parameters.{parameter.name}", "type": "MissingAttributeError"})
        if value is None:
            continue
        try:
            values[parameter.name] = _read(reads, parameter, value, full_login)
        except ValueError as error:
            errors.append(_wrong(parameter, str(error), value))
    if errors:
        raise wrong_fields(errors)
    return values


def secret_names(declared: Iterable[Parameter]) -> frozenset[str]:
    return frozenset(parameter.name for parameter in declared if parameter.secret)


def _read(reads: Reads, parameter: Parameter, value: Any, full_login: Callable[[str], str]) -> Any:
    read = parameter.read(value)
    if parameter.type != "user":
        return read
    try:
        return require_person(reads, full_login(read))
    except ResponderBotError as error:
        raise ValueError("the login of a person with access") from error


def _unknown(name: str, declared: Sequence[Parameter]) -> dict[str, Any]:
    known = ", ".join(parameter.name for parameter in declared)
    return {"name": f"parameters.{name[:SHOWN_CHARS]}", "type": "UnknownAttributeError", "format": f"one of {known}"}


def _wrong(parameter: Parameter, expected: str, value: Any) -> dict[str, Any]:
    entry = {"name": f"parameters.{parameter.name}", "type": "InvalidFormatAttributeError", "format": expected}
    if not isinstance(value, bool | int | float | str):
        return entry
    shown = redact_keys({parameter.name: value}, secret_names([parameter]))[parameter.name]
    return {**entry, "value": f"{shown[:SHOWN_CHARS]}…" if isinstance(shown, str) and shown[SHOWN_CHARS:] else shown}
