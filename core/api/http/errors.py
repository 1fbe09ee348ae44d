"""Error responses: the status, type and JSON body for every error code."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.responses import Response

from core.api.http.endpoint import JSON_TYPE
from core.common.errors import ERRORS, ResponderBotError
from core.field_types import ERRORS_LIMIT, wrong_fields
from core.models import ApiModel

VALUE_LIMIT_CHARS = 100

_EXPECTED: Mapping[str, str] = {
    "string_type": "string",
    "int_type": "integer",
    "float_type": "number",
    "bool_type": "boolean",
    "list_type": "array",
    "tuple_type": "array",
    "dict_type": "object",
    "mapping_type": "object",
    "model_type": "object",
    "model_attributes_type": "object",
    "string_too_short": "non-empty string",
}
"""What was expected, for each type of pydantic's errors that has a plain name in JSON."""


class MethodNotAllowedError(ResponderBotError):
    """A 405 with the methods for its `Allow` header."""

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__("method_not_allowed", f"This address takes {' and '.join(allowed)} only.")
        self.allowed = ", ".join(allowed)


def error_response(error: ResponderBotError, request_id: str) -> Response:
    """The response for an error, with the headers that belong to its status."""
    status, text = error_body(error, request_id)
    headers: dict[str, str] = {}
    if isinstance(error, MethodNotAllowedError):
        headers["Allow"] = error.allowed
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        headers["Retry-After"] = "1"
    if status == 429:
        headers["Retry-After"] = str(error.details.get("retryAfter", 60))
    return Response(text, status, headers, JSON_TYPE)


def error_body(error: ResponderBotError, request_id: str) -> tuple[int, str]:
    """Status and JSON body of an error (core/docs/http-interface.md#errors)."""
    status, kind = ERRORS[error.code]
    body: dict[str, Any] = {"type": kind, "message": error.message}
    if error.fields:
        body["errors"] = list(error.fields)
    for key, value in error.details.items():
        body.setdefault(key, json.loads(value.to_json()) if isinstance(value, ApiModel) else value)
    body.setdefault("requestId", request_id)
    return status, json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=str)


def field_errors(error: ValidationError) -> ResponderBotError:
    """The error for a body that failed validation, with an entry for each wrong field."""
    details = error.errors(include_url=False, include_context=True)
    if any(not item["loc"] for item in details):
        return ResponderBotError("bad_request", "The body must be a JSON object.")
    return wrong_fields([_field_error(item) for item in details[:ERRORS_LIMIT]])


def _field_error(error: ErrorDetails) -> dict[str, Any]:
    name, kind = _field_name(error["loc"]), error["type"]
    if kind == "missing":
        return {"name": name, "type": "MissingAttributeError"}
    if kind == "too_long":
        expected = f"at most {error['ctx']['max_length']} entries"
    else:
        expected = _EXPECTED.get(kind) or error["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return {
        "name": name,
        "type": "InvalidFormatAttributeError",
        "format": expected,
        "value": _truncated(error["input"]),
    }


def _field_name(loc: Sequence[str | int]) -> str:
    """The path of a nested field, dotted and indexed: `tasks[0].title`."""
    name = ""
    for part in loc:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name


def _truncated(value: Any) -> Any:
    """A value that a client sent, short enough to send back."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= VALUE_LIMIT_CHARS else text[:VALUE_LIMIT_CHARS] + "…"
