"""The words on core's wire: what requests carry and what answers hold.

Two kinds: an `...Input` is what a client may send (strict; null means absent; unknown fields are ignored,
`semantics.md 1`), the others are answers, whose JSON is also what the store keeps. All are frozen.
"""

import math
from collections.abc import Mapping, Sized
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticKnownError

Kind = Literal["alert", "case", "case_task", "case_task_log", "case_artifact"]
KINDS: tuple[Kind, ...] = ("alert", "case", "case_task", "case_task_log", "case_artifact")

OBJECT_TYPES: Mapping[Kind, str] = {
    "alert": "Alert",
    "case": "Case",
    "case_task": "Task",
    "case_task_log": "Log",
    "case_artifact": "Observable",
}
"""How answers name a kind (`interface.md 2.1`: a listing says `Alert`, a run on a log says `Log`)."""

ActionStatus = Literal["Waiting", "InProgress", "Success", "Failure", "Deleted"]
OPEN_STATUSES: tuple[ActionStatus, ...] = ("Waiting", "InProgress")

Permission = Literal[
    "manageAction",
    "manageCaseTemplate",
    "manageAlert",
    "createAlert",
    "manageCase",
    "manageTask",
    "actOnBehalf",
    "manageUser",
]
"""`manageAlert` is enough wherever `createAlert` is."""
Profile = Literal["analyst", "org-admin", "read-only", "service", "source"]

_ANALYST: tuple[Permission, ...] = ("manageAction", "manageAlert", "manageCase", "manageTask")
PROFILES: Mapping[Profile, tuple[Permission, ...]] = {
    "analyst": _ANALYST,
    "org-admin": (*_ANALYST, "manageCaseTemplate", "manageUser"),
    "read-only": (),
    "service": ("actOnBehalf",),
    "source": ("createAlert",),
}
PROGRAM_PROFILES: tuple[Profile, ...] = ("service", "source")
"""The profiles of programs: nobody in Slack is such a user, and nobody acts for one."""

TLP_NAMES = ("clear", "green", "amber", "red")
SEVERITY_NAMES = ("", "low", "medium", "high", "critical")


# Far more than public clients send, and few enough that the largest request that is taken holds neither the loop nor
# the writer for longer than some 50 ms.
MAX_TAGS = 1_000
MAX_ARTIFACT_TAGS = 100  # each of a thousand artifacts may have them
MAX_TASKS = 1_000
MAX_ARTIFACTS = 1_000  # of an alert, and in one request
MAX_CUSTOM_FIELDS = 1_000
MAX_BULK = 1_000
MAX_BULK_VALUES = 40_000  # of the JSON of all objects that one request changes together
MAX_REFERENCE_CHARS = 2_048  # as long as an address may be
MAX_SORTS = 5

ERRORS_LIMIT = 1_000
"""So many wrong fields are told; what comes after them in a list is not looked at."""


def _whole(value: Any) -> Any:
    """`2.0` as 2: JSON has one kind of number, and its schema language counts that one among the integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer = Annotated[int, BeforeValidator(_whole)]
Level = Annotated[Integer, Field(ge=0, le=3, description="0 clear, 1 green, 2 amber, 3 red")]
Severity = Annotated[Integer, Field(ge=1, le=4, description="1 low, 2 medium, 3 high, 4 critical")]
Millis = Annotated[Integer, Field(ge=0, le=2**53, description="milliseconds since the epoch")]
ObjectId = Annotated[str, Field(pattern=r"^~\d+$", description="`~` and digits")]
Text = Annotated[str, Field(min_length=1)]
Reference = Annotated[str, Field(max_length=MAX_REFERENCE_CHARS)]
Order = Annotated[Integer, Field(ge=-(2**31), lt=2**31)]
TaskStatus = Literal["Waiting", "InProgress", "Completed", "Cancel"]
AlertStatus = Literal["New", "Ignored", "Imported", "Updated"]
CaseStatus = Literal["Open", "Resolved", "Deleted", "Duplicate"]

INT_LIMIT = 2**63  # what the store can hold


def _without_duplicates(tags: list[str]) -> list[str]:
    return list(dict.fromkeys(tags))


Tags = Annotated[list[str], Field(max_length=MAX_TAGS), AfterValidator(_without_duplicates)]
"""Labels in the order given, each once (`semantics.md 3`)."""
ArtifactTags = Annotated[list[str], Field(max_length=MAX_ARTIFACT_TAGS), AfterValidator(_without_duplicates)]


class ErrorCount:
    """Counts, as the context of one validation, the errors in the entries of its lists."""

    def __init__(self) -> None:
        self.found = 0


def _while_few_errors(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """An entry of a list, not looked at once the entries before it have more errors than anybody is told of."""
    count = info.context
    if not isinstance(count, ErrorCount):
        return handler(value)
    if count.found >= ERRORS_LIMIT:
        return value  # the body is refused whatever this is
    try:
        return handler(value)
    except ValidationError as error:
        count.found += error.error_count()
        raise


UntilErrorLimit = WrapValidator(_while_few_errors)

CUSTOM_FIELD_KINDS: Mapping[str, str] = {
    "string": "a string or null",
    "integer": "an integer or null",
    "float": "a number or null",
    "boolean": "true, false or null",
    "date": "milliseconds since the epoch or null",
    "number": "a number or null",  # what thehive4py 1.8 sends for a number
}
"""What a value of each kind of custom field is to be."""


def _kind_fits(kind: str, value: Any) -> bool:
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
    """The kind that the short form `"name": value` stands for."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    return "float" if isinstance(value, float) else "string"


def _custom_field(name: str, value: Any, position: int, wrong: list[InitErrorDetails]) -> dict[str, Any]:
    """One entry in its long form; what is wrong with it is added to `wrong`."""

    def complain(expected: str, *loc: str) -> None:
        error = PydanticCustomError("custom_field", "Input should be {expected}", {"expected": expected})
        wrong.append(InitErrorDetails(type=error, loc=(name, *loc), input=value))

    if not name:
        complain("under a name")
    entry = dict(value) if isinstance(value, Mapping) else {kind_of_value(value): value}
    if "" in entry:  # a client that does not know the kind leaves it empty
        unnamed = entry.pop("")
        unnamed = unnamed if isinstance(unnamed, Mapping) else {kind_of_value(unnamed): unnamed}
        for key in unnamed.keys() & entry.keys():
            complain("given once, not under an empty name as well", key)
        entry = {**unnamed, **entry}
    kinds = [kind for kind in CUSTOM_FIELD_KINDS if kind in entry]
    strange = [key for key in entry if key not in (*CUSTOM_FIELD_KINDS, "order", "_id")]
    if len(kinds) != 1:
        kinds_text = ", ".join(list(CUSTOM_FIELD_KINDS)[:5])
        complain(f"one value under one of {kinds_text}", *(strange[:1] if not kinds else kinds[1:2]))
        return entry
    kind, order = kinds[0], _whole(entry.get("order"))
    held = _whole(entry[kind]) if kind in ("integer", "date") else entry[kind]
    if not _kind_fits(kind, held):
        complain(CUSTOM_FIELD_KINDS[kind], kind)
    if not _kind_fits("integer", order):
        complain("an integer", "order")
    known = {"_id": entry["_id"]} if isinstance(entry.get("_id"), str) else {}
    return {kind: held, "order": position if order is None else order, **known}


def _refuse_more(value: Sized, most: int) -> None:
    if len(value) > most:
        context = {"field_type": "Value", "max_length": most, "actual_length": len(value)}
        raise PydanticKnownError("too_long", context)


def _custom_fields(value: Any) -> Any:
    """Each entry in its long form, as `semantics.md 3` has it; all wrong ones at once."""
    if not isinstance(value, Mapping):
        return value
    _refuse_more(value, MAX_CUSTOM_FIELDS)
    wrong: list[InitErrorDetails] = []
    items = enumerate(value.items(), start=1)
    fields = {name: _custom_field(name, item, position, wrong) for position, (name, item) in items}
    if wrong:
        raise ValidationError.from_exception_data("customFields", wrong)
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
"""`{"name": {"<kind>": value or null, "order": n}}`, or short `{"name": value}`; validated into the long form."""


class ApiModel(BaseModel):
    """A frozen word whose names on the wire are camelCase."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")

    def to_json(self) -> str:
        """Its JSON on the wire, keys in the order in which they are declared; absent values are left out."""
        return self.model_dump_json(by_alias=True, exclude_none=True)


class Input(ApiModel):
    """What a client sends: types are strict, and a null counts as absent (`semantics.md 1`)."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _null_means_absent(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: item for key, item in value.items() if item is not None}
        return value


# --- requests -------------------------------------------------------------------------------------------------------


class Attachment(ApiModel):
    """A file: `id` is the SHA-256 of its content, `hashes` are its SHA-256, SHA-1 and MD5, `size` is in bytes."""

    name: str
    hashes: list[str]
    size: int
    content_type: str
    id: str


class ArtifactInput(Input):
    """An observable, inside an alert or added to a case (`semantics.md 2`)."""

    data_type: Text
    data: Text
    attachment: SkipJsonSchema[Attachment | None] = Field(None, exclude=True)
    """Set once the file is kept that `data` is; clients don't send it."""
    is_file: SkipJsonSchema[bool] = Field(False, exclude=True)
    """Whether `data` is a file, whatever `data_type` says."""
    start_date: Millis | None = None
    message: str | None = None
    tlp: Level = 2
    tags: ArtifactTags = Field(default_factory=list)
    ioc: bool = False
    sighted: bool = False


def _texts(value: Any) -> Any:
    """One text, or several, as a list."""
    many = isinstance(value, list)
    if many:
        _refuse_more(value, MAX_ARTIFACTS)
    items = value if many and value else [value]
    wrong = [
        InitErrorDetails(
            type="string_too_short" if item == "" else "string_type",
            loc=(number,) if many and value else (),
            input=item,
            ctx={"min_length": 1} if item == "" else {},
        )
        for number, item in enumerate(items)
        if not isinstance(item, str) or not item
    ]
    if wrong:
        raise ValidationError.from_exception_data("data", wrong)
    return items


class ArtifactsInput(Input):
    """Observables that differ in their `data` only: public clients send one, or a list of them.

    A file is `attachment`, or `data` where `dataType` is `file`, as `name;type;content in base64`. Under the name
    `attachment` public clients also send the file itself beside the JSON (forms.py), or `{"name", "contentType", "id"}`
    of one that is kept already.
    """

    data_type: Text
    is_file: SkipJsonSchema[bool] = Field(False, exclude=True)
    start_date: Millis | None = None
    data: Annotated[
        list[str],
        BeforeValidator(_texts),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": MAX_ARTIFACTS,
                        "items": {"type": "string", "minLength": 1},
                    },
                ]
            }
        ),
    ]
    message: str | None = None
    tlp: Level = 2
    tags: ArtifactTags = Field(default_factory=list)
    ioc: bool = False
    sighted: bool = False

    @model_validator(mode="before")
    @classmethod
    def _attachment_is_data(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        body = {key: item for key, item in value.items() if key != "isFile"}
        attachment = body.pop("attachment", None)
        if attachment is None:
            return body
        if body.get("data") not in (None, ""):
            error = PydanticCustomError("both", "Input should be left out beside data")
            wrong = InitErrorDetails(type=error, loc=("attachment",), input=attachment)
            raise ValidationError.from_exception_data("attachment", [wrong])
        many = attachment if isinstance(attachment, list) else [attachment]
        return {**body, "data": [_file_text(item) for item in many[: MAX_ARTIFACTS + 1]], "isFile": True}

    def expand(self) -> list[ArtifactInput]:
        """One artifact for each entry of `data`."""
        given = {**self.model_dump(exclude_unset=True), "is_file": self.is_file or self.data_type == "file"}
        return [ArtifactInput.model_validate({**given, "data": data}) for data in self.data]


def _file_text(attachment: Any) -> Any:
    """A file that is kept already, as the text that names it; anything else as it is."""
    if not isinstance(attachment, Mapping) or not isinstance(attachment.get("id"), str):
        return attachment
    name, kind = attachment.get("name"), attachment.get("contentType")
    name = name.replace(";", "_") if isinstance(name, str) and name else "file"
    kind = kind.replace(";", "_") if isinstance(kind, str) else "application/octet-stream"
    return f"{name};{kind};sha256:{attachment['id']}"


class AlertInput(Input):
    """`POST /api/alert` (`semantics.md 2`)."""

    type: Text
    source: Text
    source_ref: Text
    title: Text
    description: str
    severity: Severity = 2
    date: Millis | None = None
    tags: Tags = Field(default_factory=list)
    tlp: Level = 2
    pap: Level = 2
    external_link: str | None = None
    follow: bool = True
    custom_fields: CustomFields = Field(default_factory=dict)
    case_template: str | None = None
    artifacts: list[Annotated[ArtifactsInput, UntilErrorLimit]] = Field(default_factory=list, max_length=MAX_ARTIFACTS)


class TaskInput(Input):
    """A task: in a template (`interface.md 2.4`), in a case, or on its own."""

    title: Text
    group: str = "default"
    description: str = ""
    order: Order = 0


class CaseTaskInput(TaskInput):
    """`POST /api/case/{id}/task`, and each task in `POST /api/case`."""

    status: TaskStatus = "Waiting"
    flag: bool = False
    owner: str | None = None
    start_date: Millis | None = None
    due_date: Millis | None = None


class LogInput(Input):
    """`POST /api/case/task/{id}/log`."""

    message: Text
    start_date: Millis | None = None


class LogUpdate(Input):
    """`PATCH /api/case/task/log/{id}`: what is absent stays as it is."""

    message: Text | None = None
    start_date: Millis | None = None


class CommentInput(Input):
    """`POST /api/alert/{id}/comment`, `POST /api/case/{id}/comment` and `PATCH /api/comment/{id}`."""

    message: Text


_FIELD_PATH = "customFields."


class FieldsUpdate(Input):
    """A change that may name its custom fields one by one, and tags to add or to remove.

    `customFields` replaces them all, keys such as `customFields.unit.string` or `customFields.unit` only those named.
    """

    add_tags: Tags | None = None
    remove_tags: Tags | None = None
    named_fields: SkipJsonSchema[bool] = Field(False, exclude=True)
    """Whether the custom fields are only those to change."""

    @model_validator(mode="before")
    @classmethod
    def _with_named_fields(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        body = {key: item for key, item in value.items() if not str(key).startswith(_FIELD_PATH)}
        body.pop("namedFields", None)
        if len(body) == len(value):
            return body
        whole = body.get("customFields")
        if whole is not None and not isinstance(whole, Mapping):
            return body
        if len(value) - len(body) > MAX_CUSTOM_FIELDS:
            return {**body, "customFields": value}  # refused by its length, before anything is made of the keys
        named: dict[str, Any] = dict(whole or {})
        for key, item in value.items():
            if str(key).startswith(_FIELD_PATH):
                name, dot, kind = key.removeprefix(_FIELD_PATH).rpartition(".")
                if dot and (kind in CUSTOM_FIELD_KINDS or not kind):
                    named[name] = {kind: item}
                else:
                    named[key.removeprefix(_FIELD_PATH)] = item
        return {**body, "customFields": named, "namedFields": whole is None}


class AlertUpdate(FieldsUpdate):
    """`PATCH /api/alert/{id}`: what is absent stays as it is."""

    title: Text | None = None
    description: str | None = None
    severity: Severity | None = None
    date: Millis | None = None
    tags: Tags | None = None
    tlp: Level | None = None
    pap: Level | None = None
    external_link: str | None = None
    follow: bool | None = None
    custom_fields: CustomFields | None = None
    status: AlertStatus | None = None
    case_template: str | None = None
    artifacts: list[Annotated[ArtifactsInput, UntilErrorLimit]] | None = Field(None, max_length=MAX_ARTIFACTS)


class AlertsUpdate(AlertUpdate):
    """`PATCH /api/alert/_bulk`: the same for several alerts."""

    ids: list[Reference] = Field(max_length=MAX_BULK)


class CaseUpdate(FieldsUpdate):
    """`PATCH /api/case/{id}`: what is absent stays as it is."""

    title: Text | None = None
    description: str | None = None
    severity: Severity | None = None
    start_date: Millis | None = None
    end_date: Millis | None = None
    owner: Text | None = None
    flag: bool | None = None
    tlp: Level | None = None
    pap: Level | None = None
    tags: Tags | None = None
    status: CaseStatus | None = None
    resolution_status: str | None = None
    impact_status: str | None = None
    summary: str | None = None
    custom_fields: CustomFields | None = None


class TaskUpdate(Input):
    """`PATCH /api/case/task/{id}`: what is absent stays as it is."""

    title: Text | None = None
    group: str | None = None
    description: str | None = None
    order: Order | None = None
    status: TaskStatus | None = None
    flag: bool | None = None
    owner: str | None = None
    start_date: Millis | None = None
    end_date: Millis | None = None
    due_date: Millis | None = None


class ArtifactUpdate(Input):
    """`PATCH /api/case/artifact/{id}`: what is absent stays as it is."""

    message: str | None = None
    tlp: Level | None = None
    tags: ArtifactTags | None = None
    ioc: bool | None = None
    sighted: bool | None = None


class CreateCaseInput(Input):
    """`POST /api/alert/{id}/createCase`; without a template, the alert's own is used."""

    case_template: str | None = None


class MergeInput(Input):
    """`POST /api/alert/merge/_bulk`."""

    case_id: str
    alert_ids: list[Reference] = Field(max_length=MAX_BULK)


class SearchInput(Input):
    """`POST .../_search`; what may stand in `query` is checked by core.search."""

    query: dict[str, Any] | None = None
    range: str | None = None
    sort: str | Annotated[list[str], Field(max_length=MAX_SORTS)] | None = None


class CaseInput(Input):
    """`POST /api/case`; `template` is the name of a case template (`semantics.md 2, 3`)."""

    title: Text
    description: str
    severity: Severity | None = None
    start_date: Millis | None = None
    owner: str | None = None
    flag: bool = False
    tlp: Level | None = None
    pap: Level | None = None
    tags: Tags = Field(default_factory=list)
    tasks: list[Annotated[CaseTaskInput, UntilErrorLimit]] = Field(default_factory=list, max_length=MAX_TASKS)
    custom_fields: CustomFields = Field(default_factory=dict)
    template: str | None = None


class CaseTemplateInput(Input):
    """`POST /api/case/template` (`interface.md 4.3`); only the name is required (`semantics.md 3`)."""

    name: Text
    display_name: str = ""
    title_prefix: str = ""
    description: str = ""
    severity: Severity = 2
    tlp: Level = 2
    pap: Level = 2
    tags: Tags = Field(default_factory=list)
    tasks: list[Annotated[TaskInput, UntilErrorLimit]] = Field(default_factory=list, max_length=MAX_TASKS)
    custom_fields: CustomFields = Field(default_factory=dict)


class RunInput(Input):
    """`POST /api/connector/engine/action` (`interface.md 4.4`, additions of `semantics.md 5`)."""

    responder_id: Text = Field(description="the responder's id, or its name")
    object_type: Kind = Field(description="the kind of the object to run it on")
    object_id: str = Field(description="the object's id, `~` and digits")
    engine_id: str | None = Field(None, description="the engine that is to run it; absent: the first that can")
    parameters: dict[str, Any] = Field(default_factory=dict, description="handed to the responder as they are")
    only_if_idle: bool = Field(False, description="409 where the same responder is still open on the object")


class Decision(Input):
    """`POST .../approve` and `.../deny`: why, if somebody says so."""

    message: str = ""


# --- answers --------------------------------------------------------------------------------------------------------


class StoredModel(ApiModel):
    """What every object has. Alerts and cases show absent values as null, so they override `wire`."""

    id_: ObjectId = Field(alias="_id")
    id: ObjectId
    created_by: str
    updated_by: str | None = None
    created_at: Millis
    updated_at: Millis | None = None


def _is_absent(value: Any) -> bool:
    return value is None


class Artifact(StoredModel):
    """An observable: a text, or a file."""

    type_: Literal["case_artifact"] = Field("case_artifact", alias="_type")
    data_type: str
    data: str | None = Field(None, exclude_if=_is_absent)
    """None where it is a file."""
    attachment: Attachment | None = Field(None, exclude_if=_is_absent)
    start_date: Millis | None = None
    message: str | None = None
    tlp: Level = 2
    tags: list[str] = Field(default_factory=list)
    ioc: bool = False
    sighted: bool = False
    reports: dict[str, Any] = Field(default_factory=dict)
    stats: dict[str, Any] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """The data, or the name of the file."""
        return self.data if self.data is not None else self.attachment.name if self.attachment else ""

    @property
    def texts(self) -> list[str]:
        """All that identifies it: the data, or name and hashes of the file."""
        file = self.attachment
        return [*([] if self.data is None else [self.data]), *([file.name, *file.hashes] if file else [])]


class Alert(StoredModel):
    """An alert; keys in the order of `semantics.md 2`."""

    type_: Literal["alert"] = Field("alert", alias="_type")
    type: str
    source: str
    source_ref: str
    external_link: str | None = None
    case: str | None = None
    title: str
    description: str
    severity: Severity
    date: Millis
    tags: list[str]
    tlp: Level
    pap: Level
    status: AlertStatus = "New"
    follow: bool = True
    custom_fields: dict[str, Any]
    case_template: str | None = None
    artifacts: list[Artifact]
    similar_cases: list[Any] = Field(default_factory=list)

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True)


class Task(StoredModel):
    """A task of a case or of a template (`interface.md 2.4`)."""

    type_: Literal["case_task"] = Field("case_task", alias="_type")
    title: str
    group: str
    description: str
    order: int
    status: TaskStatus = "Waiting"
    flag: bool = False
    owner: str | None = None
    start_date: Millis | None = None
    end_date: Millis | None = None
    due_date: Millis | None = None


class Case(StoredModel):
    """A case, with its tasks' ids found by search."""

    type_: Literal["case"] = Field("case", alias="_type")
    case_id: int
    title: str
    description: str
    severity: Severity
    start_date: Millis
    end_date: Millis | None = None
    owner: str
    flag: bool = False
    tlp: Level
    pap: Level
    tags: list[str]
    status: CaseStatus = "Open"
    resolution_status: str | None = None
    impact_status: str | None = None
    summary: str | None = None
    template: str | None = None
    custom_fields: dict[str, Any]
    metrics: dict[str, Any] = Field(default_factory=dict)
    stats: dict[str, Any] = Field(default_factory=dict)
    permissions: list[str] = Field(default_factory=list)

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True)


class Log(StoredModel):
    """An entry in a task's log."""

    type_: Literal["case_task_log"] = Field("case_task_log", alias="_type")
    message: str
    start_date: Millis
    status: Literal["Ok", "Deleted"] = "Ok"
    owner: str


class Comment(StoredModel):
    """A comment on an alert or a case."""

    type_: Literal["comment"] = Field("comment", alias="_type")
    message: str
    is_edited: bool = False


class CaseTemplate(StoredModel):
    """A case template with its tasks (`interface.md 2.3`)."""

    type_: Literal["caseTemplate"] = Field("caseTemplate", alias="_type")
    name: str
    display_name: str
    title_prefix: str
    description: str
    severity: Severity
    tlp: Level
    pap: Level
    tags: list[str]
    tasks: list[Task]
    custom_fields: dict[str, Any]
    metrics: dict[str, Any] = Field(default_factory=dict)
    flag: bool = False
    status: Literal["Ok"] = "Ok"


class Approval(ApiModel):
    """What a policy asks for before an action is handed to its engine (`semantics.md 5`)."""

    needed: int
    approved_by: list[str]
    expires_at: Millis


class Action(ApiModel):
    """One run of a responder (`interface.md 2.1`, additions of `semantics.md 5`)."""

    id_: ObjectId = Field(alias="_id")
    id: ObjectId
    responder_id: str
    responder_name: str
    responder_definition: str
    engine_id: str
    engine_job_id: str
    object_type: str
    object_id: ObjectId
    status: ActionStatus
    start_date: Millis
    end_date: Millis | None = None
    operations: str
    report: str
    created_by: str
    created_at: Millis
    approval: Approval | None = None


class Policy(ApiModel):
    """What a responder's settings ask of who runs it."""

    confirm: str = ""
    approval: int = 0


class OfferedResponder(ApiModel):
    """A responder that may run on an object (`interface.md 2.2`).

    With `explain=true` also those that may not, each with a verdict, reasons and the policy (`semantics.md 4`).
    """

    id: str
    name: str
    version: str
    description: str
    data_type_list: list[str]
    engine_ids: list[str]
    verdict: Literal["can_run", "cannot_run"] | None = None
    reasons: list[str] | None = None
    policy: Policy | None = None


class ObjectInContext(ApiModel):
    """An object with what it belongs to, and the levels that hold for it (`semantics.md 2, 7`)."""

    object_type: str
    object_id: ObjectId
    root_id: ObjectId
    tlp: Level
    pap: Level
    object: dict[str, Any]
    """As the wire shows it, with its parents: a log has `case_task`, which has `case`."""


class Event(ApiModel):
    """One change of one object (`semantics.md 8`); ids only."""

    seq: int
    at: Millis
    type: str
    object_type: str
    object_id: ObjectId
    root_id: ObjectId
    user: str


class EventPage(ApiModel):
    """An answer of the feed."""

    events: list[Event]
    last: int
    database: str = ""
    """Identifies core's database: numbers of another one mean something else."""


class Person(ApiModel):
    """Who somebody is, and what they may do (`semantics.md 10`)."""

    login: str
    profile: Profile
    permissions: list[Permission]
    clearance: Level
