"""The models of core's HTTP interface.

An `...Input` or `...Update` is the body of a request: strict, null means absent, unknown fields are ignored. The others
are answers; the store keeps the same JSON. All are immutable.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError

from core.field_types import (
    CUSTOM_FIELD_KINDS,
    MAX_ARTIFACTS,
    MAX_BULK,
    MAX_CUSTOM_FIELDS,
    MAX_SORTS,
    MAX_TASKS,
    AlertStatus,
    ArtifactTags,
    CaseStatus,
    CustomFields,
    Level,
    Millis,
    ObjectId,
    Order,
    Reference,
    Severity,
    Tags,
    TaskStatus,
    Text,
    UntilErrorLimit,
    check_length,
)

Kind = Literal["alert", "case", "case_task", "case_task_log", "case_artifact"]
KINDS: tuple[Kind, ...] = ("alert", "case", "case_task", "case_task_log", "case_artifact")

OBJECT_TYPES: Mapping[Kind, str] = {
    "alert": "Alert",
    "case": "Case",
    "case_task": "Task",
    "case_task_log": "Log",
    "case_artifact": "Observable",
}
"""The `objectType` of each kind in answers."""

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
"""`manageAlert` includes `createAlert`."""
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
"""Profiles of programs: they can't be linked to Slack, and nobody can act on their behalf."""

TLP_NAMES = ("clear", "green", "amber", "red")
SEVERITY_NAMES = ("", "low", "medium", "high", "critical")


class ApiModel(BaseModel):
    """An immutable model with camelCase names in JSON."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")

    def to_json(self) -> str:
        """JSON with keys in the order of declaration, without absent values."""
        return self.model_dump_json(by_alias=True, exclude_none=True)


class Input(ApiModel):
    """The body of a request: types are strict, and null means absent."""

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
    """An observable of an alert or a case."""

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
    """A string, or a list of them, as a list."""
    many = isinstance(value, list)
    if many:
        check_length(value, MAX_ARTIFACTS)
    items = value if many and value else [value]
    errors = [
        InitErrorDetails(
            type="string_too_short" if item == "" else "string_type",
            loc=(number,) if many and value else (),
            input=item,
            ctx={"min_length": 1} if item == "" else {},
        )
        for number, item in enumerate(items)
        if not isinstance(item, str) or not item
    ]
    if errors:
        raise ValidationError.from_exception_data("data", errors)
    return items


class ArtifactsInput(Input):
    """One or several observables that differ only in their `data`.

    A file is `attachment`, or `data` if `dataType` is `file`, as `name;type;content in base64`. Public clients also use
    `attachment` for a file beside the JSON (core/api/forms.py), and `{"name", "contentType", "id"}` for a stored one.
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
    """The text that refers to a stored file; anything else is returned as it is."""
    if not isinstance(attachment, Mapping) or not isinstance(attachment.get("id"), str):
        return attachment
    name, kind = attachment.get("name"), attachment.get("contentType")
    name = name.replace(";", "_") if isinstance(name, str) and name else "file"
    kind = kind.replace(";", "_") if isinstance(kind, str) else "application/octet-stream"
    return f"{name};{kind};sha256:{attachment['id']}"


class AlertInput(Input):
    """`POST /api/alert`."""

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
    """A task of a case template; base of a case's task."""

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
    """`PATCH /api/case/task/log/{id}`; absent fields keep their values."""

    message: Text | None = None
    start_date: Millis | None = None


class CommentInput(Input):
    """`POST /api/alert/{id}/comment`, `POST /api/case/{id}/comment` and `PATCH /api/comment/{id}`."""

    message: Text


_FIELD_PATH = "customFields."


class FieldsUpdate(Input):
    """An update with single custom fields, and with tags to add or remove.

    `customFields` replaces all custom fields; a key such as `customFields.unit.string` or `customFields.unit` one.
    """

    add_tags: Tags | None = None
    remove_tags: Tags | None = None
    named_fields: SkipJsonSchema[bool] = Field(False, exclude=True)
    """Whether `custom_fields` has only those to change."""

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
            return {**body, "customFields": value}  # validation rejects it by its length
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
    """`PATCH /api/alert/{id}`; absent fields keep their values."""

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
    """`PATCH /api/alert/_bulk`."""

    ids: list[Reference] = Field(max_length=MAX_BULK)


class CaseUpdate(FieldsUpdate):
    """`PATCH /api/case/{id}`; absent fields keep their values."""

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
    """`PATCH /api/case/task/{id}`; absent fields keep their values."""

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
    """`PATCH /api/case/artifact/{id}`; absent fields keep their values."""

    message: str | None = None
    tlp: Level | None = None
    tags: ArtifactTags | None = None
    ioc: bool | None = None
    sighted: bool | None = None


class CreateCaseInput(Input):
    """`POST /api/alert/{id}/createCase`; the default is the alert's own template."""

    case_template: str | None = None


class MergeInput(Input):
    """`POST /api/alert/merge/_bulk`."""

    case_id: str
    alert_ids: list[Reference] = Field(max_length=MAX_BULK)


class SearchInput(Input):
    """`POST .../_search`; core.records.search validates `query`."""

    query: dict[str, Any] | None = None
    range: str | None = None
    sort: str | Annotated[list[str], Field(max_length=MAX_SORTS)] | None = None


class CaseInput(Input):
    """`POST /api/case`; `template` is the name of a case template."""

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
    """`POST /api/case/template`."""

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
    """`POST /api/connector/engine/action`."""

    responder_id: Text = Field(description="the responder's id, or its name")
    object_type: Kind = Field(description="the kind of the object to run it on")
    object_id: str = Field(description="the object's id, `~` and digits")
    engine_id: str | None = Field(None, description="the engine to run it; default: the first that can")
    parameters: dict[str, Any] = Field(default_factory=dict, description="passed to the responder as they are")
    only_if_idle: bool = Field(False, description="409 if the same responder is still open on the object")


class Decision(Input):
    """`POST .../approve` and `.../deny`, with a reason if there is one."""

    message: str = ""


# --- answers --------------------------------------------------------------------------------------------------------


class StoredModel(ApiModel):
    """What all objects have. Alerts and cases show absent values as null, so they override `to_json`."""

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
    """An alert; keys in the order of core/docs/http-interface.md#alert."""

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
    """A task of a case or a case template."""

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
    """A case. Its tasks, logs and artifacts are found by search."""

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
    """A case template with its tasks."""

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
    """The approvals that an action needs before it is dispatched, and those it has."""

    needed: int
    approved_by: list[str]
    expires_at: Millis


class Action(ApiModel):
    """One run of a responder on one object (core/docs/http-interface.md#action)."""

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
    """A responder's policy: the text to confirm, and how many approvals a run needs."""

    confirm: str = ""
    approval: int = 0


class OfferedResponder(ApiModel):
    """A responder that can run on an object; with `explain=true` also one that can't.

    Only with `explain=true` there are a verdict, reasons and the policy.
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
    """An object with its parents, and the levels that count (core/docs/semantics.md#levels-that-count)."""

    object_type: str
    object_id: ObjectId
    root_id: ObjectId
    tlp: Level
    pap: Level
    object: dict[str, Any]
    """The object's JSON with its parents: a log has `case_task`, which has `case`."""


class Event(ApiModel):
    """One change of one object, with ids only (core/docs/http-interface.md#event-feed)."""

    seq: int
    at: Millis
    type: str
    object_type: str
    object_id: ObjectId
    root_id: ObjectId
    user: str


class EventPage(ApiModel):
    """A page of the event feed."""

    events: list[Event]
    last: int
    database: str = ""
    """Id of core's database; sequence numbers of another one mean other events."""


class Person(ApiModel):
    """A user with permissions and clearance."""

    login: str
    profile: Profile
    permissions: list[Permission]
    clearance: Level
