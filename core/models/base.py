"""The base of core's models, and the values of the interface that they share."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo
from pydantic.alias_generators import to_camel

from core.common.errors import bad_request

Kind = Literal["alert", "case", "case_task", "case_task_log", "case_artifact"]
KINDS: tuple[Kind, ...] = ("alert", "case", "case_task", "case_task_log", "case_artifact")

OBJECT_TYPES: Mapping[Kind, str] = {
    "alert": "Alert",
    "case": "Case",
    "case_task": "Task",
    "case_task_log": "Log",
    "case_artifact": "Observable",
}
"""The `objectType` of each kind in responses."""

ActionStatus = Literal["Waiting", "InProgress", "Success", "Failure", "Deleted"]
Outcome = Literal["succeeded", "failed", "denied", "expired", "cancelled", "stopped"]
"""How an action ended; `cancelled` before it was dispatched, `stopped` after."""
OPEN_STATUSES: tuple[ActionStatus, ...] = ("Waiting", "InProgress")
CAN_UNDO = ("available", "waiting", "failed", "replaced")
"""The states of an undo in which somebody may ask for it."""

Permission = Literal[
    "manageAction",
    "manageCaseTemplate",
    "manageAlert",
    "createAlert",
    "manageCase",
    "manageTask",
    "actOnBehalf",
    "manageUser",
    "readAudit",
]
"""`manageAlert` includes `createAlert`."""
Profile = Literal["analyst", "org-admin", "read-only", "auditor", "service", "source", "reader"]

_ANALYST: tuple[Permission, ...] = ("manageAction", "manageAlert", "manageCase", "manageTask")
PROFILES: Mapping[Profile, tuple[Permission, ...]] = {
    "analyst": _ANALYST,
    "org-admin": (*_ANALYST, "manageCaseTemplate", "manageUser", "readAudit"),
    "read-only": (),
    "auditor": ("readAudit",),
    "service": ("actOnBehalf",),
    "source": ("createAlert",),
    "reader": (),
}
PROGRAM_PROFILES: tuple[Profile, ...] = ("service", "source", "reader")
"""Profiles of programs: they can't be linked to Slack, and nobody can act on their behalf."""

TLP_NAMES = ("clear", "green", "amber", "red")
AMBER, RED = TLP_NAMES.index("amber"), TLP_NAMES.index("red")
SEVERITY_NAMES = ("", "low", "medium", "high", "critical")


GROUP_NAME = r"[a-z0-9][a-z0-9._-]{0,63}"
NEW_ALERT = "alert.created"  # the type of an event
RAISED_ALERT = "alert.raised"  # by its source, to a higher severity
MAX_IDS = 200  # in one request
MAX_ID_DIGITS = 18  # what fits into SQLite's integer


def parse_id(text: str) -> int | None:
    """The number of an id (`~12`); None if the text isn't one."""
    digits = text.removeprefix("~")
    if len(text) - len(digits) != 1 or not (digits.isascii() and digits.isdigit()) or len(digits) > MAX_ID_DIGITS:
        return None
    return int(digits)


def parse_ids(texts: Iterable[str]) -> dict[str, int]:
    """The numbers of 1 to MAX_IDS ids, by each id. Raises ResponderBotError("bad_request")."""
    unique = dict.fromkeys(texts)
    numbers = {text: number for text in unique if (number := parse_id(text)) is not None}
    if not 0 < len(unique) <= MAX_IDS or len(numbers) < len(unique):
        raise bad_request(f"ids must be 1 to {MAX_IDS} ids such as ~12, with commas between")
    return numbers


def number_of(object_id: str) -> int:
    """The number of an id that core made."""
    return int(object_id[1:])


class ApiModel(BaseModel):
    """An immutable model with camelCase names in JSON."""

    # A model is built when it is first used: a command needs few of them.
    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore", defer_build=True
    )

    def to_json(self) -> str:
        """JSON with keys in the order of declaration, without absent values."""
        return self.model_dump_json(by_alias=True, exclude_none=True)


def _named(name: str, info: ValidationInfo) -> str:
    if info.context is not None:
        info.context.setdefault(name, "")
    return name


Named = Annotated[str, AfterValidator(_named)]
"""A login or a responder's name. The context of the validation, if there is one, gets it with its title, or with ""."""


class Attachment(ApiModel):
    """A file: `id` is the SHA-256 of its content, `hashes` are its SHA-256, SHA-1 and MD5, `size` is in bytes."""

    name: str
    hashes: list[str]
    size: int
    content_type: str
    id: str
