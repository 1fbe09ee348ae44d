"""The parameters that a responder declares, and their values (core/docs/responder-process.md#inputs)."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StrictFloat, StrictInt, TypeAdapter, ValidationError, model_validator
from pydantic_core import SchemaError

from core.common.words import SECRET_WORDS, some_of, spaced
from core.models.base import ApiModel
from core.protection import MalformedError, parse

OWN_PARAMETERS = ("user", "organisation", "undoes")
"""Parameters that core sets; no client and no definition can. `undoes` is the id of the run that this one undoes."""
ParameterType = Literal[
    "string", "text", "number", "boolean", "choice", "choices", "date", "user", "ip", "hostname", "url", "mail", "hash"
]
_TEXTS = ("string", "text")
Number = Annotated[StrictInt | StrictFloat, Field(allow_inf_nan=False)]

MAX_PARAMETERS = 50
MAX_OPTIONS = 100  # the limits of a menu in Slack
MAX_OPTION_CHARS = 75
MAX_CHARS: Mapping[str, int] = {"string": 3_000, "text": 30_000, "user": 254}
MAX_PATTERN_CHARS = 200
MAX_REPEATS = 2_000  # of all `{n,m}` in a pattern, multiplied
MAX_MATCHED_CHARS = 1_000
"""With these two the worst pattern takes a fraction of a second; the engine takes linear time."""
_REPEAT = re.compile(r"\{(\d*)(?:,(\d*))?\}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


class Parameter(ApiModel):
    """One parameter of a responder; people read "input"."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_\-]{0,63}$")
    title: str = Field("", max_length=150)
    """For people; derived from the name if empty."""
    description: str = Field("", max_length=2_000)
    type: ParameterType = "string"
    required: bool = False
    secret: bool = Field(False, exclude_if=lambda value: not value)
    """Whether its values are kept secret, and only until the run has ended. A name such as `token` implies it."""
    default: Any = Field(None, exclude_if=lambda value: value is None)
    options: list[Annotated[str, Field(min_length=1, max_length=MAX_OPTION_CHARS)]] | None = Field(
        None, min_length=1, max_length=MAX_OPTIONS
    )
    """Of `choice` and `choices`: what can be chosen."""
    pattern: str | None = Field(None, min_length=1, max_length=MAX_PATTERN_CHARS)
    """What the whole of a `string` or `text` has to match."""
    minimum: Number | None = None
    """The least value of a number, length of a text, or count of `choices`; so is `maximum`."""
    maximum: Number | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if fault := _fault(self):
            raise ValueError(fault)
        if self.pattern is not None:
            _matcher(self.pattern)
        if self.default is not None:
            try:
                object.__setattr__(self, "default", self.read(self.default))
            except ValueError as error:
                raise ValueError(f"its default should be {error}") from error
        if self.type in _TEXTS and any(word in self.name.lower() for word in SECRET_WORDS):
            object.__setattr__(self, "secret", True)
        if not self.title:
            object.__setattr__(self, "title", spaced(self.name))
        return self

    def read(self, value: Any) -> Any:
        """The value as the responder gets it. Raises ValueError with what is expected, such as `a number`."""
        return _READERS[self.type](self, value)


def _fault(parameter: Parameter) -> str:
    """Which of its declarations contradict each other, or ""."""
    kind, options = parameter.type, parameter.options or ()
    is_text, is_choice = kind in _TEXTS, kind in ("choice", "choices")
    bounds = [bound for bound in (parameter.minimum, parameter.maximum) if bound is not None]
    has_bounds = is_text or kind in ("number", "choices")
    faults = {
        "core gives every responder this one itself": parameter.name in OWN_PARAMETERS,
        "`choice` and `choices` need options, and only they have any": (parameter.options is not None) != is_choice,
        "two of its options are the same": len({*options}) < len(options),
        "only `string` and `text` have a pattern": parameter.pattern is not None and not is_text,
        "only a `string` or `text` is secret, and it has no default": parameter.secret
        and (not is_text or parameter.default is not None),
        f"`{kind}` has no minimum and no maximum": bool(bounds) and not has_bounds,
        "its minimum is above its maximum": bounds != sorted(bounds),
    }
    return next((fault for fault, is_there in faults.items() if is_there), "")


def parse_parameters(value: Any) -> tuple[Parameter, ...]:
    """The inputs in a list of declarations. Raises ValueError with a sentence."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise ValueError("parameters must be a list of objects.")
    if len(value) > MAX_PARAMETERS:
        raise ValueError(f"there are over {MAX_PARAMETERS} parameters.")
    parameters: dict[str, Parameter] = {}
    for number, item in enumerate(value, start=1):
        name = item.get("name")
        which = repr(name[:64]) if isinstance(name, str) and name else f"number {number}"
        try:
            parameter = Parameter.model_validate(dict(item))
        except ValidationError as error:
            raise ValueError(f"the parameter {which} can't be used: {_first(error)}.") from error
        if parameter.name in parameters:
            raise ValueError(f"two parameters have the name {which}.")
        parameters[parameter.name] = parameter
    return tuple(parameters.values())


def _first(error: ValidationError) -> str:
    """The first error in words, without the value."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    text = first["msg"].removeprefix("Value error, ").rstrip(".")
    return f"{key}: {text[:1].lower()}{text[1:]}" if key else text


@lru_cache
def _matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text matches as a whole. Raises ValueError for a pattern that can't be used."""
    repeats = 1
    for low, high in _REPEAT.findall(pattern):
        repeats *= max(int(low[:9] or 1), int(high[:9] or 1), 1)
    if repeats > MAX_REPEATS:
        raise ValueError(f"its pattern repeats too much; all {{n}} multiplied may be {MAX_REPEATS}")
    try:
        TypeAdapter(Annotated[str, Field(pattern=pattern)])  # alone, so that its groups are its own
        adapter = TypeAdapter(Annotated[str, Field(pattern=rf"\A(?:{pattern})\z")])
    except SchemaError as error:
        raise ValueError("its pattern is not a regular expression without look-around and back references") from error

    def matches(text: str) -> bool:
        try:
            adapter.validate_python(text)
        except ValidationError:
            return False
        return True

    return matches


def _text(parameter: Parameter, value: Any) -> str:
    most = MAX_CHARS[parameter.type] if parameter.pattern is None else MAX_MATCHED_CHARS
    most = most if parameter.maximum is None else min(most, int(parameter.maximum))
    least = 0 if parameter.minimum is None else int(parameter.minimum)
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise ValueError(f"a text of {f'{least} to ' if least else 'at most '}{most} characters")
    if parameter.type == "string" and "\n" in value:
        raise ValueError("a text of one line")
    if parameter.pattern is not None and not _matcher(parameter.pattern)(value):
        raise ValueError(f"a text that matches {parameter.pattern}")
    return value


def _number(parameter: Parameter, value: Any) -> int | float:
    low, high = parameter.minimum, parameter.maximum
    if not _is_number(value) or (low is not None and value < low) or (high is not None and value > high):
        bounds = [f"at least {low}"] if low is not None else []
        bounds += [f"at most {high}"] if high is not None else []
        raise ValueError(f"a number{' of ' if bounds else ''}{' and '.join(bounds)}")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_number(value: Any) -> bool:
    """Whether it is a number that fits a float, as programs read it."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _boolean(_: Parameter, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _choice(parameter: Parameter, value: Any) -> str:
    if not isinstance(value, str) or value not in (parameter.options or ()):
        raise ValueError(f"one of {some_of(parameter.options or (), 10)}")
    return value


def _choices(parameter: Parameter, value: Any) -> list[str]:
    options = parameter.options or ()
    least, most = int(parameter.minimum or 0), len(options) if parameter.maximum is None else int(parameter.maximum)
    if not isinstance(value, list) or len(value) > MAX_OPTIONS or not all(item in options for item in value):
        raise ValueError(f"a list of {some_of(options, 10)}")
    chosen = list(dict.fromkeys(value))
    if not least <= len(chosen) <= most:
        raise ValueError(f"a list of {least} to {most} of {some_of(options, 10)}")
    return chosen


def _date(_: Parameter, value: Any) -> str:
    if isinstance(value, str) and _DATE.fullmatch(value):
        try:
            return date.fromisoformat(value).isoformat()
        except ValueError:
            pass
    raise ValueError("a date such as 2026-01-31")


def _target(parameter: Parameter, value: Any) -> str:
    """In its canonical form."""
    if not isinstance(value, str):
        raise ValueError(f"a text that is a target of the type {parameter.type}")
    try:
        return parse(parameter.type, value).value
    except MalformedError as error:
        raise ValueError(f"a target of the type {parameter.type}: {error}") from error


_READERS: Mapping[str, Callable[[Parameter, Any], Any]] = {
    "string": _text,
    "text": _text,
    "number": _number,
    "boolean": _boolean,
    "choice": _choice,
    "choices": _choices,
    "date": _date,
    "user": _text,
    **dict.fromkeys(("ip", "hostname", "url", "mail", "hash"), _target),
}
