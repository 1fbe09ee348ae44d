"""The one error of responder-bot: a code from a short closed list, a sentence that a person can act on."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Code = Literal[
    "authentication",  # nobody we know
    "bad_request",  # the request makes no sense, or a rule of the business forbids it
    "invalid_fields",  # fields of a body are wrong; `fields` names each
    "exists",  # a unique name is taken
    "forbidden",  # a right is missing
    "not_found",  # the address or the object does not exist
    "log_not_found",  # its own code, since interface.md 7 gives it a type of its own
    "method_not_allowed",
    "conflict",  # the state of things forbids it now; `action` may say what stands in the way
    "gone",  # older than what is kept
    "too_large",  # the body, a header or a query is over its limit
    "key_reused",  # an Idempotency-Key that came before with another body
    "unavailable",  # the store, core or an engine does not answer now
    "internal",  # a bug of ours; the request id leads to the log
]


class ResponderBotError(Exception):
    """What went wrong, as `code`, and what to do next, as `message` (one sentence).

    `fields` (for `invalid_fields`) is one entry for each wrong field (`semantics.md 1`), `details` are keys added
    to the error body, such as `action` for a conflict (`semantics.md 5`).
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
