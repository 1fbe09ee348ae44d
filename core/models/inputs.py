"""The bodies of requests: an `...Input` or `...Update` is strict, null means absent, unknown fields are ignored."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
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
    Order,
    Reference,
    Severity,
    Tags,
    TaskStatus,
    Text,
    UntilErrorLimit,
    check_length,
    in_a_list,
)
from core.models.base import ApiModel, Attachment, Kind

MAX_TARGETS = 100
"""The largest number of objects that one request may run a responder on."""
MAX_UNDO_MINUTES = 366 * 24 * 60


class Input(ApiModel):
    """The body of a request: types are strict, and null means absent."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _null_means_absent(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: item for key, item in value.items() if item is not None}
        return value


class _Observable(Input):
    """What one observable has, and what several share."""

    data_type: Text
    is_file: SkipJsonSchema[bool] = Field(False, exclude=True)
    """Whether `data` is a file, whatever `data_type` says."""
    start_date: Millis | None = None
    message: str | None = None
    tlp: Level = 2
    tags: ArtifactTags = Field(default_factory=list)
    ioc: bool = False
    sighted: bool = False


class ArtifactInput(_Observable):
    """An observable of an alert or a case."""

    data: Text
    attachment: SkipJsonSchema[Attachment | None] = Field(None, exclude=True)
    """Set once the file in `data` is stored; clients don't send it."""


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


class ArtifactsInput(_Observable):
    """One or several observables that differ only in their `data`.

    A file is `attachment`, or `data` if `dataType` is `file`, as `name;type;content in base64`. Public clients also use
    `attachment` for a file beside the JSON (core/api/http/requests.py), and `{"name", "contentType", "id"}` for one
    that is stored.
    """

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
        fields = {**self.model_dump(exclude_unset=True), "is_file": self.is_file or self.data_type == "file"}
        return [ArtifactInput.model_validate({**fields, "data": data}) for data in self.data]


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


class _Fields(Input):
    """What may be set of an alert and of a case."""

    title: Text | None = None
    description: str | None = None
    severity: Severity | None = None
    tlp: Level | None = None
    pap: Level | None = None
    tags: Tags | None = None
    custom_fields: CustomFields | None = None


class FieldsUpdate(_Fields):
    """An update of an alert or a case.

    `customFields` replaces all custom fields; a key such as `customFields.unit.string` or `customFields.unit` replaces
    one.
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
    """`PATCH /api/alert/{id}`; absent fields keep their values, and so does null but for `assignee`."""

    date: Millis | None = None
    external_link: str | None = None
    follow: bool | None = None
    status: AlertStatus | None = None
    assignee: str | None = Field(None, max_length=254)
    """A login; null or an empty text for nobody."""
    summary: str | None = None
    """Why it is closed; a change of the status without it clears it."""
    case_template: str | None = None
    artifacts: list[Annotated[ArtifactsInput, UntilErrorLimit]] | None = Field(None, max_length=MAX_ARTIFACTS)

    @model_validator(mode="before")
    @classmethod
    def _null_is_nobody(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "assignee" in value and value["assignee"] is None:
            return {**value, "assignee": ""}
        return value


class AlertsUpdate(AlertUpdate):
    """`PATCH /api/alert/_bulk`."""

    ids: list[Reference] = Field(max_length=MAX_BULK)


class CaseUpdate(FieldsUpdate):
    """`PATCH /api/case/{id}`; absent fields keep their values."""

    start_date: Millis | None = None
    end_date: Millis | None = None
    owner: str | None = None
    """A login; an empty text for nobody."""
    flag: bool | None = None
    status: CaseStatus | None = None
    resolution_status: str | None = None
    impact_status: str | None = None
    summary: str | None = None


class TaskUpdate(Input):
    """`PATCH /api/case/task/{id}`; absent fields keep their values."""

    title: Text | None = None
    group: str | None = None
    description: str | None = None
    order: Order | None = None
    status: TaskStatus | None = None
    flag: bool | None = None
    owner: str | None = None
    """A login; an empty text for nobody."""
    start_date: Millis | None = None
    end_date: Millis | None = None
    due_date: Millis | None = None


class ArtifactUpdate(Input):
    """`PATCH /api/case/artifact/{id}`; absent fields keep their values."""

    data_type: Text | None = None
    message: str | None = None
    tlp: Level | None = None
    tags: ArtifactTags | None = None
    ioc: bool | None = None
    sighted: bool | None = None


class CreateCaseInput(_Fields):
    """`POST /api/alert/{id}/createCase`: fields that replace the alert's; tags and custom fields are added."""

    start_date: Millis | None = None
    owner: str | None = None
    flag: bool | None = None
    tasks: list[Annotated[CaseTaskInput, UntilErrorLimit]] | None = Field(None, max_length=MAX_TASKS)
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
    count: bool = True


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


NOTE_LIMIT = 500  # characters


class OverrideInput(Input):
    """Override protection and rates, as an org-admin, with another org-admin's approval."""

    reason: str = Field(min_length=1, max_length=NOTE_LIMIT, pattern=r"\S")
    """Why, for anybody who looks at it later."""


class RunOptions(Input):
    """What a run and a bulk have in common."""

    responder_id: Text
    """The responder's id, or its name."""
    engine_id: str | None = None
    """The engine to run it; default: the first that can."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """The responder's inputs; any object, if it declares none."""
    only_if_idle: bool = False
    """Whether it is a 409 if the same responder is still open on what may be the same target of the object."""
    undo_after_minutes: int | None = Field(None, ge=0, le=MAX_UNDO_MINUTES)
    """Minutes from its success until core undoes it; 0: never; default: as the settings say."""
    note: str = Field("", max_length=NOTE_LIMIT)
    """Why, for everybody who sees the run; with `breakGlass`, its reason is the note."""


class RunTarget(Input):
    """An object to run a responder on."""

    object_type: Kind
    """The kind of the object to run it on."""
    object_id: str
    """The object's id, `~` and digits."""
    target: Annotated[list[Reference], BeforeValidator(in_a_list)] = Field(default_factory=list, max_length=MAX_TARGETS)
    """The artifacts that it is to act on, by id or data, where several fit; a text or a list."""


class RunInput(RunTarget, RunOptions):
    """`POST /api/connector/engine/action`."""

    override: OverrideInput | None = Field(None, alias="breakGlass")
    """Override protection and rates, as an org-admin; another one has to approve."""


class DrainInput(Input):
    """`POST /api/host/{name}/drain`."""

    core: str = ""
    """The id of the only core to drain; default: all cores of the host."""


class UndoInput(Input):
    """`POST /api/connector/engine/action/{id}/undo`."""

    parameters: dict[str, Any] = Field(default_factory=dict)
    """Inputs of the responder that undoes it; default: the run's own, by name."""


class UndoTimeInput(Input):
    """`PATCH /api/connector/engine/action/{id}/undo`."""

    undo_after_minutes: int = Field(ge=0, le=MAX_UNDO_MINUTES)
    """Minutes from now until core undoes it; 0: never."""


class EndInput(Input):
    """`POST /api/connector/engine/measure/{id}/extend` and `.../shorten`."""

    until: Millis | None = None
    """When core is to undo it; null for not by itself."""
    note: str = Field("", max_length=NOTE_LIMIT)
    """Why, for whoever decides on it."""


class EndsInput(Input):
    """`POST /api/connector/engine/measure/_extend`."""

    ends: dict[str, Millis | None] = Field(min_length=1, max_length=MAX_TARGETS)
    """By id, when core is to undo it; null for not by itself."""
    note: str = Field("", max_length=NOTE_LIMIT)
    """Why, for whoever decides on it."""


class MarkEndedInput(Input):
    """`POST /api/connector/engine/measure/{id}/end`."""

    reason: str = Field(min_length=1, max_length=NOTE_LIMIT, pattern=r"\S")
    """How you know, for whoever looks at it later."""


class BulkInput(RunOptions):
    """`POST /api/connector/engine/action/_bulk`."""

    targets: list[Annotated[RunTarget, UntilErrorLimit]] = Field(min_length=1, max_length=MAX_TARGETS)
    retries: str | None = None
    """The bulk that this repeats where that did not succeed or was undone, once; default: none."""

    def on(self, target: RunTarget) -> RunInput:
        """The run on one of the targets."""
        options = {name: value for name, value in self if name in RunOptions.model_fields}
        return RunInput.model_construct(**options, **dict(target))


class Decision(Input):
    """`POST .../approve`, `.../deny` and `.../cancel`, with a reason if there is one."""

    message: str = ""


class BulkDecision(Decision):
    """Likewise for a bulk: on those of its runs that wait or, with `actions`, on those of them that are named."""

    actions: Annotated[list[str], Field(max_length=MAX_TARGETS)] | None = None


class GroupInput(Input):
    """`PUT /api/group/{name}`: the logins of all its members."""

    members: list[Reference] = Field(max_length=MAX_BULK)
