"""The fields of each kind of object that can be searched and sorted by, and what their values must be."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from core.common.errors import bad_request
from core.field_types import CUSTOM_FIELD_KINDS, INT_LIMIT
from core.models import Action, ApiModel, parse_id
from core.records import query_string
from core.store.search import JsonPath, Scalar

MAX_PATTERN_CHARS = 1_000
SHOWN_CHARS = 60
NO_ID = -1  # replaces an invalid id, and matches nothing

_JSON = ("operations", "parameters", "report")  # of an action; searching them would read them in full


def _plain_fields(model: type[ApiModel]) -> Iterator[str]:
    """The fields of a stored model that are one text or number each, but for JSON."""
    for name, field in model.model_fields.items():
        if _is_plain(field.annotation) and not field.exclude and name not in _JSON:
            yield field.alias or name


def _is_plain(kind: Any) -> bool:
    if get_origin(kind) in (Union, UnionType):
        return all(map(_is_plain, get_args(kind)))
    if get_origin(kind) is Annotated:
        return _is_plain(get_args(kind)[0])
    return kind in (str, int, NoneType) or get_origin(kind) is Literal


_STORED = "_id id createdBy updatedBy createdAt updatedAt"
_FIELDS: Mapping[str, str] = {
    "alert": f"{_STORED} type source sourceRef externalLink case title description severity date tags tlp pap status"
    " assignee summary follow caseTemplate artifacts.dataType artifacts.data artifacts.message artifacts.tlp"
    " artifacts.ioc artifacts.sighted",
    "case": f"{_STORED} caseId title description severity startDate endDate owner flag tlp pap tags status"
    " resolutionStatus impactStatus summary template",
    "case_task": f"{_STORED} title group description order status flag owner startDate endDate dueDate",
    "case_task_log": f"{_STORED} message startDate status owner",
    "case_artifact": f"{_STORED} dataType data message tlp tags ioc sighted startDate attachment.name attachment.id"
    " attachment.hashes attachment.size attachment.contentType",
    "comment": f"{_STORED} message isEdited",
    "case_template": f"{_STORED} name displayName titlePrefix description severity tlp pap tags flag status"
    " tasks.title tasks.group tasks.description",
    "action": " ".join(_plain_fields(Action)),
}
"""By kind; alerts, cases and case templates have `customFields.<name>[.<kind>]` too."""
_ALERT_COLUMNS = {
    "case": "case_id",
    "status": "status",
    "assignee": "assignee",
    "source": "source",
    "sourceRef": "source_ref",
    "severity": "severity",
    "date": "date",
    "createdAt": "created_at",
}
_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "alert": _ALERT_COLUMNS,
    "case": {"status": "status", "owner": "assignee", "severity": "severity", "createdAt": "created_at"},
    "case_task": {"status": "status", "owner": "assignee", "createdAt": "created_at"},
    "action": {
        "status": "status",
        "createdBy": "created_by",
        "createdAt": "created_at",
        "responderName": "responder_name",
        "outcome": "outcome",
    },
}
"""The fields with a column (schema.py), which an index finds; other fields are read from each document."""
ID_COLUMNS = ("id", "object_id")
_WITH_CUSTOM_FIELDS = ("alert", "case", "case_template")

_NUMBERS = frozenset(
    [
        "createdAt",
        "updatedAt",
        "severity",
        "date",
        "tlp",
        "pap",
        "caseId",
        "startDate",
        "dispatchedAt",
        "endDate",
        "dueDate",
    ]
) | {"order", "artifacts.tlp", "attachment.size"}
_FLAGS = frozenset(["flag", "follow", "isEdited", "ioc", "sighted", "artifacts.ioc", "artifacts.sighted"])

PARENTS: Mapping[str, tuple[str, ...]] = {
    "case_task": ("case",),
    "case_task_log": ("case_task",),
    "case_artifact": ("case",),
    "comment": ("alert", "case"),
}
_KIND_NAMES: Mapping[str, str] = {"caseTemplate": "case_template", "task": "case_task"}
"""Clients' names of kinds that differ from ours."""


@dataclass(frozen=True)
class FieldPath(JsonPath):
    """Where a field is stored, and the check of its values."""

    check: "Callable[[Any], Scalar]" = lambda value: value


def field_path(name: Any, kind: str) -> FieldPath:
    """The path of a field of a kind. Raises ResponderBotError("bad_request") if there is no such field."""
    if not isinstance(name, str):
        raise bad_request("A field is named by a text")
    if name.startswith("customFields.") and kind in _WITH_CUSTOM_FIELDS:
        return _custom_path(name)
    if name == query_string.ANYWHERE and kind != "action":  # of actions this would read all reports
        return FieldPath(("$",), is_anywhere=True, check=text)
    if name not in _FIELDS[kind].split():
        raise bad_request(f"There is no field {shown(name)}; there are {', '.join(_FIELDS[kind].split())}")
    if name in ("_id", "id"):
        return FieldPath(("$.id",), column="id", check=text)
    if kind == "action" and name == "objectId":
        return FieldPath((f"$.{name}",), column="object_id", check=text)
    check = _check_of(name)
    if name.startswith("attachment."):
        return FieldPath((f"$.{name}",), many=name == "attachment.hashes", check=check)
    if name in _COLUMNS.get(kind, {}):
        return FieldPath((f"$.{name}",), column=_COLUMNS[kind][name], check=check)
    outer, _, inner = name.partition(".")
    many = name == "tags" or bool(inner)
    is_tag = name == "tags" and kind == "alert"
    return FieldPath((f"$.{outer}",), many=many, inner=f"$.{inner}" if inner else "", is_tag=is_tag, check=check)


def _check_of(name: str) -> Callable[[Any], Scalar]:
    """The check of the values of a field."""
    if name in _NUMBERS:
        return number
    return flag if name in _FLAGS else text


def _custom_path(name: str) -> FieldPath:
    """`customFields.<name>` is the value of any kind, `customFields.<name>.<kind>` the one of that kind."""
    field = name.removeprefix("customFields.")
    head, dot, kind = field.rpartition(".")
    kinds = [kind] if dot and kind in CUSTOM_FIELD_KINDS else list(CUSTOM_FIELD_KINDS)
    field = head if len(kinds) == 1 else field
    # A quoted key of a JSON path can hold all but these.
    if not field or any(char in field for char in '"\\\0') or len(field) > MAX_PATTERN_CHARS:
        raise bad_request(f"There is no custom field {shown(field)}")
    return FieldPath(tuple(f'$.customFields."{field}".{value_kind}' for value_kind in kinds), check=scalar)


def scalar(value: Any) -> Scalar:
    """The value, if any field can be compared with it. Raises ResponderBotError("bad_request")."""
    if isinstance(value, bool | str) or (isinstance(value, int) and -INT_LIMIT <= value < INT_LIMIT):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise bad_request("A value is a text, a number that fits into 64 bits, true or false; use _in for several")


def number(value: Any) -> Scalar:
    """The value, if a field of numbers can be compared with it. Raises ResponderBotError("bad_request")."""
    if isinstance(value, bool | str):
        raise bad_request(f"{shown(value)} is not a number, and this field holds numbers")
    return scalar(value)


def flag(value: Any) -> Scalar:
    """The value, if it is true or false. Raises ResponderBotError("bad_request")."""
    if not isinstance(value, bool):
        raise bad_request(f"{shown(value)} is neither true nor false, and this field is one of them")
    return value


def text(value: Any) -> Scalar:
    """The value, if it is a text. Raises ResponderBotError("bad_request")."""
    if not isinstance(value, str):
        raise bad_request(f"{shown(value)} is not a text, and this field holds text; use _in for several")
    return value


def field_value(path: FieldPath, value: Any) -> Scalar:
    """The value to compare a field with. Raises ResponderBotError("bad_request") if it doesn't fit."""
    checked = path.check(value)
    if path.column not in ID_COLUMNS:
        return checked
    return parse_id(str(checked)) or NO_ID


def kind_of(name: Any) -> str:
    """The kind that a client names. Raises ResponderBotError("bad_request")."""
    kind = _KIND_NAMES.get(name, name) if isinstance(name, str) else ""
    if kind not in _FIELDS:
        raise bad_request(f"There is no type {shown(name)}; there are {', '.join(_FIELDS)}")
    return kind


def shown(value: Any) -> str:
    """A client's value, shortened for a sentence."""
    return repr(value)[:SHOWN_CHARS]
