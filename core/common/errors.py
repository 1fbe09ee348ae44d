"""The error that responder-bot raises for expected failures: a code and a sentence that says what to do."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

Code = Literal[
    "authentication",  # no valid key
    "bad_request",  # the request is malformed, or a business rule forbids it
    "invalid_fields",  # fields of a body are wrong; `fields` names each
    "exists",  # a unique name is taken
    "forbidden",  # a permission is missing
    "not_found",  # no such route or object
    "log_not_found",  # a task log; the API has an error type of its own for it
    "method_not_allowed",
    "conflict",  # the current state forbids it; `details["action"]` may name the action that blocks it
    "gone",  # older than the retention
    "rate_limited",  # a rate of the settings is used up; `details["until"]` is when it is free again (ms), if known
    "too_large",  # the body, a header or a query is over its limit
    "key_reused",  # an Idempotency-Key that was used with another body
    "unavailable",  # the database, core or an engine does not answer
    "internal",  # a bug; the request id leads to the log
]

ERRORS: Mapping[Code, tuple[int, str]] = {
    "authentication": (401, "AuthenticationError"),
    "bad_request": (400, "BadRequest"),
    "invalid_fields": (400, "AttributeCheckingError"),
    "exists": (400, "CreateError"),
    "forbidden": (403, "AuthorizationError"),
    "not_found": (404, "NotFoundError"),
    "log_not_found": (404, "AuthenticationError"),  # the public interface answers a run on a missing log like this
    "method_not_allowed": (405, "MethodNotAllowed"),
    "conflict": (409, "ConflictError"),
    "gone": (410, "GoneError"),
    "too_large": (413, "TooLargeError"),
    "key_reused": (422, "KeyReusedError"),
    "rate_limited": (429, "RateLimitError"),
    "unavailable": (503, "UnavailableError"),
    "internal": (500, "InternalError"),
}
"""HTTP status and `type` for each code; of those with one status the first is the usual one."""


class ResponderBotError(Exception):
    """A failure with a `code` and a `message`: one sentence with what to do next.

    `fields` (for `invalid_fields`) has one entry for each wrong field. `details` are added to the body of the HTTP
    error, such as `action` for a conflict (core/docs/http-interface.md#errors).
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        fields: Sequence[Mapping[str, Any]] = (),
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code: Code = code
        self.message = message
        self.fields = tuple(fields)
        self.details = dict(details or {})


RefusedKey = Literal["missing", "unknown", "login", "disabled", "expired", "address", "signature"]


class AuthenticationError(ResponderBotError):
    """A request without a valid key. The client doesn't learn the reason."""

    def __init__(self, reason: RefusedKey) -> None:
        super().__init__("authentication", "Authentication failure")
        self.reason: RefusedKey = reason


class StoreUnavailableError(ResponderBotError):
    """The database can't be used. The sentence is for administrators: it may say where the database is."""

    def __init__(self, message: str) -> None:
        super().__init__("unavailable", message)


class Ignoring(AbstractContextManager[None]):
    """Goes on below it after an error with one of these codes."""

    def __init__(self, *codes: Code) -> None:
        self._codes = codes

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> bool:
        return isinstance(error, ResponderBotError) and error.code in self._codes


def bad_request(sentence: str) -> ResponderBotError:
    """The error for a sentence without its full stop."""
    return ResponderBotError("bad_request", f"{sentence}.")
