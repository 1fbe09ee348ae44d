"""Types and limits of the fields of models, and their validation."""

import math
from collections.abc import Mapping, Sequence, Sized
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticKnownError

from core.common.errors import ResponderBotError

# Far more than public clients send, and so few that no request blocks the event loop or the writer for more than some
# 50 ms.
MAX_TAGS = 1_000
MAX_ARTIFACT_TAGS = 100  # on each of up to a thousand artifacts
MAX_TASKS = 1_000
MAX_ARTIFACTS = 1_000  # of an alert, and of one request
MAX_CUSTOM_FIELDS = 1_000
MAX_BULK = 1_000
MAX_BULK_VALUES = 40_000  # JSON values in all objects that one request changes
MAX_REFERENCE_CHARS = 2_048  # the limit of a path
MAX_SORTS = 5

ERRORS_LIMIT = 1_000
"""How many wrong fields an error names; further entries of a list are not validated."""
_TOLD_ERRORS = 10  # in the sentence


def wrong_fields(entries: Sequence[Mapping[str, Any]]) -> ResponderBotError:
    """The error for these fields, each with its `name`, the `type` of what is wrong, and the `format` expected."""
    texts = [_SENTENCES[entry["type"]].format_map(entry) for entry in entries[:_TOLD_ERRORS]]
    if len(entries) > _TOLD_ERRORS:
        texts.append(f"and {len(entries) - _TOLD_ERRORS} more")
    return ResponderBotError("invalid_fields", "".join(f"[{text}]" for text in texts), fields=entries[:ERRORS_LIMIT])


_SENTENCES = {
    "MissingAttributeError": "Attribute {name} is missing",
    "UnknownAttributeError": "Unknown attribute {name}, expected {format}",
    "InvalidFormatAttributeError": "Invalid format for {name}, expected {format}",
}


def _to_integer(value: Any) -> Any:
    """`2.0` becomes 2, because JSON Schema counts it as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer = Annotated[int, BeforeValidator(_to_integer)]
Level = Annotated[Integer, Field(ge=0, le=3, description="0 clear, 1 green, 2 amber, 3 red")]
Severity = Annotated[Integer, Field(ge=1, le=4, description="1 low, 2 medium, 3 high, 4 critical")]
Millis = Annotated[Integer, Field(ge=0, le=2**53, description="milliseconds since the epoch")]
ObjectId = Annotated[str, Field(pattern=r"^~\d+$", description="`~` and digits")]
Text = Annotated[str, Field(min_length=1)]
Reference = Annotated[str, Field(max_length=MAX_REFERENCE_CHARS)]
Order = Annotated[Integer, Field(ge=-(2**31), lt=2**31)]
TaskStatus = Literal["Waiting", "InProgress", "Completed", "Cancel"]
AlertStatus = Literal["New", "Ignored", "Imported", "Updated"]
"""In no case: `New`, or `Ignored` once read or closed. In a case: `Updated`, or `Imported` once read."""
CaseStatus = Literal["Open", "Resolved", "Deleted", "Duplicate"]

INT_LIMIT = 2**63  # SQLite's integers have 64 bits


def _without_duplicates(tags: list[str]) -> list[str]:
    return list(dict.fromkeys(tags))


Tags = Annotated[list[str], Field(max_length=MAX_TAGS), AfterValidator(_without_duplicates)]
"""Tags in the order given, without duplicates."""
ArtifactTags = Annotated[list[str], Field(max_length=MAX_ARTIFACT_TAGS), AfterValidator(_without_duplicates)]


class ErrorCount:
    """The context of one validation: counts the errors in entries of lists."""

    def __init__(self) -> None:
        self.found = 0


def _until_error_limit(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Validate an entry of a list, unless the entries before it have ERRORS_LIMIT errors already."""
    count = info.context
    if not isinstance(count, ErrorCount):
        return handler(value)
    if count.found >= ERRORS_LIMIT:
        return value  # the body is rejected anyway
    try:
        return handler(value)
    except ValidationError as error:
        count.found += error.error_count()
        raise


UntilErrorLimit = WrapValidator(_until_error_limit)

CUSTOM_FIELD_KINDS: Mapping[str, str] = {
    "string": "a string or null",
    "integer": "an integer or null",
    "float": "a number or null",
    "boolean": "true, false or null",
    "date": "milliseconds since the epoch or null",
    "number": "a number or null",  # what thehive4py 1.8 sends for a number
}
"""Allowed values of each kind of custom field."""


def _fits_kind(kind: str, value: Any) -> bool:
    if value is None:
        return True
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool) or (isinstance(value, int) and not -INT_LIMIT <= value < INT_LIMIT):
        return False
    if kind in ("integer", "date"):
        return isinstance(value, int)
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def kind_of_value(value: Any) -> str:
    """The kind of the value in the short form `"name": value`."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    return "float" if isinstance(value, float) else "string"


def _by_kind(value: Any) -> dict[str, Any]:
    """A value under its kind, as in the long form, which stays as it is."""
    return dict(value) if isinstance(value, Mapping) else {kind_of_value(value): value}


def _custom_field(name: str, value: Any, position: int, errors: list[InitErrorDetails]) -> dict[str, Any]:
    """The long form of one custom field; its errors are added to `errors`."""

    def reject(expected: str, *loc: str) -> None:
        error = PydanticCustomError("custom_field", "Input should be {expected}", {"expected": expected})
        errors.append(InitErrorDetails(type=error, loc=(name, *loc), input=value))

    if not name:
        reject("under a name")
    entry = _by_kind(value)
    if "" in entry:  # n8n leaves the kind empty if it doesn't know it
        unnamed = _by_kind(entry.pop(""))
        for key in unnamed.keys() & entry.keys():
            reject("given once, not under an empty name as well", key)
        entry = {**unnamed, **entry}
    kinds = [kind for kind in CUSTOM_FIELD_KINDS if kind in entry]
    unknown = [key for key in entry if key not in (*CUSTOM_FIELD_KINDS, "order", "_id")]
    if len(kinds) != 1:
        kinds_text = ", ".join(list(CUSTOM_FIELD_KINDS)[:5])
        reject(f"one value under one of {kinds_text}", *(unknown[:1] if not kinds else kinds[1:2]))
        return entry
    kind, order = kinds[0], _to_integer(entry.get("order"))
    number = _to_integer(entry[kind]) if kind in ("integer", "date") else entry[kind]
    if not _fits_kind(kind, number):
        reject(CUSTOM_FIELD_KINDS[kind], kind)
    if not _fits_kind("integer", order):
        reject("an integer", "order")
    entry_id = {"_id": entry["_id"]} if isinstance(entry.get("_id"), str) else {}
    return {kind: number, "order": position if order is None else order, **entry_id}


def check_length(value: Sized, maximum: int) -> None:
    """Raises a validation error for more than `maximum` entries."""
    if len(value) > maximum:
        context = {"field_type": "Value", "max_length": maximum, "actual_length": len(value)}
        raise PydanticKnownError("too_long", context)


def _custom_fields(value: Any) -> Any:
    """The long form of all custom fields. Raises one ValidationError for all that is wrong."""
    if not isinstance(value, Mapping):
        return value
    check_length(value, MAX_CUSTOM_FIELDS)
    errors: list[InitErrorDetails] = []
    items = enumerate(value.items(), start=1)
    fields = {name: _custom_field(name, item, position, errors) for position, (name, item) in items}
    if errors:
        raise ValidationError.from_exception_data("customFields", errors)
    return fields


_CUSTOM_FIELD_SCHEMA = {
    "type": "object",
    "properties": {
        "string": {"type": ["string", "null"]},
        "integer": {"type": ["integer", "null"]},
        "float": {"type": ["number", "null"]},
        "boolean": {"type": ["boolean", "null"]},
        "date": {"type": ["integer", "null"]},
        "order": {"type": ["integer", "null"]},
    },
}

CustomFields = Annotated[
    dict[str, dict[str, Any]],
    BeforeValidator(_custom_fields),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": MAX_CUSTOM_FIELDS,
            "additionalProperties": {
                "anyOf": [_CUSTOM_FIELD_SCHEMA, {"type": ["string", "integer", "number", "boolean", "null"]}]
            },
        }
    ),
]
"""`{"name": {"<kind>": value or null, "order": n}}` or short `{"name": value}`; validation gives the long form."""


def in_a_list(value: Any) -> Any:
    """A single text as a list of one."""
    return [value] if isinstance(value, str) else value
