"""The models of core's responses; the store keeps the same JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationInfo, model_validator
from pydantic.json_schema import SkipJsonSchema

from core.field_types import (
    AlertStatus,
    CaseStatus,
    Level,
    Millis,
    ObjectId,
    Severity,
    TaskStatus,
)
from core.models.base import (
    RED,
    ActionStatus,
    ApiModel,
    Attachment,
    Kind,
    Named,
    Outcome,
    Permission,
    Profile,
    number_of,
)
from core.models.parameters import Parameter, ParameterType
from core.protection import MalformedError, TargetKind, parse


class Identified(ApiModel):
    """An object with an id."""

    id_: ObjectId = Field(alias="_id")
    id: ObjectId

    @property
    def number(self) -> int:
        return number_of(self.id)


class StoredModel(Identified):
    """The fields of all objects. Alerts and cases show absent values as null, so they override `to_json`."""

    created_by: Named
    updated_by: Named | None = None
    created_at: Millis
    updated_at: Millis | None = None


def _is_absent(value: Any) -> bool:
    return value is None


class ArtifactTarget(ApiModel):
    """What an observable names (core/docs/guards.md#notations)."""

    kind: TargetKind | None = Field(None, exclude_if=_is_absent)
    """Absent if it names nothing."""
    value: str | None = Field(None, exclude_if=_is_absent)
    """Its canonical form; absent where that is `data`."""
    problem: str | None = Field(None, exclude_if=_is_absent)
    """Why it names nothing, as a sentence without its full stop."""

    @staticmethod
    def of(data_type: str, data: str) -> "ArtifactTarget":
        """What a text of this data type names."""
        try:
            parsed = parse(data_type, data)
        except MalformedError as error:
            return ArtifactTarget(problem=str(error))
        return ArtifactTarget(kind=parsed.kind, value=None if parsed.value == data else parsed.value)


def is_same_target(data_type: str, data: str, text: str) -> bool:
    """Whether a text names the same target as the data of an artifact of this data type."""
    try:
        return parse(data_type, text) == parse(data_type, data)
    except MalformedError:
        return False


class Artifact(StoredModel):
    """An observable: a text, or a file."""

    type_: Literal["case_artifact"] = Field("case_artifact", alias="_type")
    data_type: str
    data: str | None = Field(None, exclude_if=_is_absent)
    """Absent for a file."""
    attachment: Attachment | None = Field(None, exclude_if=_is_absent)
    target: ArtifactTarget | None = Field(None, exclude_if=_is_absent)
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
        """The texts that identify it: the data and its canonical form, or name and hashes of the file."""
        file, canonical = self.attachment, None if self.target is None else self.target.value
        found = [file.name, *file.hashes] if file else [self.data, canonical]
        return [text for text in found if text is not None]


class Tagged(StoredModel):
    """An alert or a case."""

    tag_levels: dict[str, Level] = Field(default_factory=dict, exclude_if=lambda levels: not levels)
    """Of a tag that only runs have added the clearance that it takes to see one of them."""
    field_levels: dict[str, Level] = Field(default_factory=dict, exclude_if=lambda levels: not levels)
    """Likewise of a custom field that only runs have set."""

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True)


class Alert(Tagged):
    """An alert. Its JSON has the keys in this order."""

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
    assignee: Named | None = None
    """The login of the person who works on it."""
    summary: str | None = Field(None, exclude_if=_is_absent)
    """Why it was closed."""
    follow: bool = True
    custom_fields: dict[str, Any]
    case_template: str | None = None
    artifacts: list[Artifact]
    similar_cases: list[Any] = Field(default_factory=list)
    count: int | None = Field(None, exclude_if=_is_absent)
    """How often its source has sent it; absent for once."""
    last_date: Millis | None = Field(None, exclude_if=_is_absent)
    """When its source sent it last; absent if it did so once."""
    resolved_by: str | None = Field(None, exclude_if=_is_absent)
    """The source that says it is over."""
    severity_before: Severity | None = Field(None, exclude_if=_is_absent)
    """What it was before its source raised it last."""
    raised_at: Millis | None = Field(None, exclude_if=_is_absent)
    source_severity: Severity | None = Field(None, exclude_if=_is_absent)
    """The highest that its source has said; absent where no person has set another."""
    closed_by: str | None = Field(None, exclude_if=_is_absent)
    closed_at: Millis | None = Field(None, exclude_if=_is_absent)
    """Who made it `Ignored`, and when, while it is."""


class OpenAlert(ApiModel):
    """An alert in the list of open ones."""

    id: str
    severity: Severity


class Task(StoredModel):
    """A task of a case or a case template."""

    type_: Literal["case_task"] = Field("case_task", alias="_type")
    title: str
    group: str
    description: str
    order: int
    status: TaskStatus = "Waiting"
    flag: bool = False
    owner: Named | None = None
    start_date: Millis | None = None
    end_date: Millis | None = None
    due_date: Millis | None = None


class Case(Tagged):
    """A case. Its tasks, logs and artifacts are found by search."""

    type_: Literal["case"] = Field("case", alias="_type")
    case_id: int
    title: str
    description: str
    severity: Severity
    start_date: Millis
    end_date: Millis | None = None
    owner: Named | None = None
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


class ClosedObjects(ApiModel):
    """Which objects belong to closed alerts and cases (core/docs/storage.md#retention)."""

    closed_at: dict[ObjectId, Millis]
    """By object, when its alert or case was last changed. Objects of open ones are left out."""
    missing: list[ObjectId]
    """Ids that no object or action has."""
    database: str


class Log(StoredModel):
    """An entry in a task's log."""

    type_: Literal["case_task_log"] = Field("case_task_log", alias="_type")
    message: str
    start_date: Millis
    status: Literal["Ok", "Deleted"] = "Ok"
    owner: Named


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


class Vote(ApiModel):
    """Somebody's decision on an action that waits for approval."""

    login: str
    vote: Literal["approve", "deny"]
    at: Millis
    acted_through: str | None = None
    """The login whose key it came with, if not their own."""
    key: str = ""
    """The name of that key."""
    clearance: Level | None = None
    """The lower one of the key's and the person's then, and it counts while this and the person's now cover the run.

    Absent for an own key without a clearance, which nothing binds.
    """


class Approval(ApiModel):
    """The approvals that an action needs before it is dispatched, and those that it has.

    `votes` has the votes of `approvedBy` with their times, and the denial if there is one.
    """

    needed: int
    approved_by: list[Named]
    expires_at: Millis
    votes: list[Vote] = Field(default_factory=list)


class InputTitle(ApiModel):
    """The title of a responder's parameter."""

    name: str
    title: str
    type: ParameterType


OVERRIDE = "an administrator may override it, with a reason and another administrator's approval"
"""What lifts a rule that is overridable."""


class Refusal(ApiModel):
    """A rule that blocks a run (core/docs/guards.md)."""

    rule: Literal["target", "run_by", "only_on", "approval", "protect", "blocklist", "rate", "rate_per_target"]
    message: str
    """Such as `only @containment may run it`, without `until` and a full stop; `lift` has none either."""
    lift: str
    """Who can lift it, and how."""
    until: Millis | None = None
    """When it ends by itself (ms), if known."""

    @property
    def overridable(self) -> bool:
        """Whether an org-admin may override it, with a reason and the approval of another."""
        return self.rule in ("protect", "rate", "rate_per_target")


class Override(ApiModel):
    """Why the rules that blocked a run were overridden; the action's votes say who did so and when."""

    reason: str
    overrides: list[Refusal]
    approved_by: Named | None = None
    """The org-admin who approved it."""


class EngineLoad(ApiModel):
    """An engine of a core: how many of its slots (`slots`, absent if it has no limit) are taken."""

    name: str
    up: bool
    running: int
    slots: int | None = None


class CoreEntry(ApiModel):
    """A core of a host. `leaseUntil` is by the clock of that host."""

    id: str
    version: str
    state: Literal["running", "draining", "stopped", "silent"]
    """`stopped`: it has ended, and its programs wait for the next core of its host. `silent`: it may be lost."""
    started_at: Millis | None
    lease_until: Millis
    engines: list[EngineLoad]
    actions: list[ObjectId]
    """What it runs, at most 100."""


class HostEntry(ApiModel):
    """A host on which cores run or ran."""

    name: str
    state: Literal["running", "draining", "stopped", "silent", "lost"]
    """The best state of its cores; `lost` if none is left."""
    lost_at: Millis | None = None
    actions_ended: int | None = None
    """How many actions ended with a lost host."""
    cores: list[CoreEntry]


class Extension(ApiModel):
    """A request to undo an action later than was approved, which needs as many approvals as its run."""

    id: ObjectId
    asked_by: Named
    asked_at: Millis
    at: Millis | None = None
    """When core would undo it (ms); absent: never."""
    before: Millis | None = None
    """When it does otherwise."""
    note: str | None = None
    """Why, as who asked said."""
    request: ObjectId | None = None
    """The request of several at once that it is of."""
    approval: Approval
    targets: list[ObjectId] = Field(default_factory=list)
    """What it is for, of what the action has left in force."""
    outcome: Literal["approved", "denied", "cancelled", "expired", "lapsed"] | None = None
    """Absent while it waits. `lapsed`: all of it was undone before, or given another time."""
    ended_by: Named | None = None
    """Who denied or cancelled it."""
    message: str | None = None
    """Why."""
    earlier: list["Extension"] = Field(default_factory=list)
    """The last ones that ended before this was asked for, newest first."""
    replaces: ObjectId | None = None
    """The single one that waited until this took its place."""
    asked_before: Named | None = None
    """Who asked for that."""

    @property
    def denials(self) -> list["Extension"]:
        """Those before it that were denied since one was approved, the oldest first."""
        since = takewhile(lambda one: one.outcome != "approved", self.earlier)
        return [one for one in since if one.outcome == "denied"][::-1]


class EndChange(ApiModel):
    """Who changed when core undoes an action, from when to when; absent: not by itself."""

    by: Named
    at: Millis
    before: Millis | None = None
    after: Millis | None = None


class UndoState(ApiModel):
    """How far what is in force is undone."""

    status: Literal["available", "waiting", "running", "undone", "failed", "replaced"] | None = None
    """Absent unless the action has succeeded.

    `waiting`: it was due and refused, which `message` says, and core tries again. `replaced`: another run keeps the
    same in force for longer. `undone` without `actionId`: somebody marked it as ended, and `message` says why.
    """
    at: Millis | None = None
    """When core undoes it, or should have (ms); of what was undone only where core did, as its time had come."""
    action_id: ObjectId | None = None
    """The newest run that is to undo it."""
    message: str | None = None
    approved_until: Millis | None = None
    """The latest time that was approved (ms); absent if the run needed no approval, or was approved without end."""
    changed: EndChange | None = None
    """The newest change of `at` that somebody made."""


class Undo(UndoState):
    """How an action can be undone (core/docs/semantics.md#undo).

    Of several targets the state is that of the one that needs most attention.
    """

    responder: str
    """The name of the responder that undoes it."""
    title: SkipJsonSchema[str] = Field("", exclude=True)
    """Its title; set in documents only."""
    installed: bool | None = None
    """False if it was not when the run was asked for; it undoes the run once it is."""
    after_minutes: int | None = None
    """How many minutes after its success core undoes it, as requested; absent: never."""
    extension: Extension | None = None
    """The newest one that was asked for."""


class InForceState(ApiModel):
    """Whether something is in force (core/docs/in-force.md)."""

    state: Literal["in_force", "unknown", "ended"]
    """`unknown`: nobody knows whether it took effect, or whether it still lasts."""
    since: Millis
    ended_at: Millis | None = None
    ended_by: Named | None = None
    message: str | None = None
    """Why somebody marked it as ended, or why nobody knows any more."""


class InForce(InForceState):
    """What a run has left in force on one target."""

    id: ObjectId
    target: ObjectId | None = None
    """The artifact, as in the action's `target`; absent for all of the object."""
    undo: UndoState | None = None
    """Absent if nothing undoes it."""


class MeasureOfRun(InForceState):
    """What a run has left in force, of several targets the most that is."""

    targets: list[InForce] = Field(default_factory=list)


class TargetArtifact(ApiModel):
    """An artifact that a run acts on, or may act on."""

    id: ObjectId
    data_type: str
    data: str
    """As the responder gets it: in its canonical form; or the name of the file."""
    tlp: Level
    kind: TargetKind = "text"
    message: str | None = Field(None, exclude_if=_is_absent)
    """What the alert or case says of it."""


class Reader(ApiModel):
    """Who reads a list of what is blocked (core/docs/blocklist.md#who-has-read-it)."""

    name: str
    at: Millis | None = None
    """When it first read the list since (ms); absent: not yet."""


class DecidedAgainst(NamedTuple):
    """Who denied a run, or undid what it did, and when (ms)."""

    how: Literal["denied", "undone"]
    by: str
    at: int


MOST_DENIALS = 3  # of the same, whose reasons are said


class EarlierDecision(ApiModel):
    """What is said with a run that was denied or undone, for another of the same on its target."""

    root_id: ObjectId
    times: int = 1
    """How often the same was decided so, of the newest that are read."""
    clearance: Level = RED
    """That it takes to know of it, and of the other times."""
    clearance_of_texts: Level = RED
    """That it takes to read why, of another alert or case: the highest of all that the reason may name."""


class Action(Identified):
    """One run of a responder on one object (core/docs/http-interface.md#action)."""

    responder_id: str
    """What runs, as are name and definition; final when the action is created."""
    responder_name: Named
    responder_title: SkipJsonSchema[str] = Field("", exclude=True)
    """The responder's title; set in documents only."""
    inputs: SkipJsonSchema[list[InputTitle]] = Field(default_factory=list, exclude=True)
    """The titles of its parameters; set in documents only."""
    artifacts: SkipJsonSchema[list[Artifact]] = Field(default_factory=list, exclude=True)
    """The artifacts of the alert that it gets, while it waits for approval; set in documents only."""
    only_tells: SkipJsonSchema[bool] = Field(False, exclude=True)
    """Whether its responder only reads or tells what it gets; set in documents only."""
    already: SkipJsonSchema[list["Measure"]] = Field(default_factory=list, exclude=True)
    """What else is in force on its targets, while it waits for approval or is, and what waits as it does.

    Set in documents only.
    """
    decided_before: SkipJsonSchema[list["Action"]] = Field(default_factory=list, exclude=True)
    """The same that somebody denied or undid before, while this waits for approval; set in documents only."""
    why_not_decide: SkipJsonSchema[str] = Field("", exclude=True)
    """Why the person who reads it may not approve and deny what waits; "" if they may; set in documents only."""
    earlier: SkipJsonSchema[EarlierDecision | None] = None
    """Only of what was decided before, for who asks for the same or decides on that."""
    responder_definition: str
    engine_id: str
    """The name of the engine that runs it."""
    engine_job_id: str
    """The engine's own id of the job; `""` while a remote engine has not told it."""
    object_type: str
    """`Alert`, `Case`, `Task`, `Log` or `Observable`."""
    object_id: ObjectId
    """The object it runs on."""
    target: list[TargetArtifact] | None = None
    """What it acts on, of several any; absent if nobody knows: then it may act on anything in its object."""
    status: ActionStatus
    outcome: Outcome | None = None
    """How it ended, `cancelled` before it was dispatched, `stopped` after; absent until then."""
    start_date: Millis
    """When core accepted it."""
    dispatched_at: Millis | None = None
    """When it was handed to its engine, so that `endDate - dispatchedAt` is the run's own duration; absent before."""
    end_date: Millis | None = None
    """When it ended; absent until then."""
    ended_by: Named | None = None
    """Who denied, cancelled or stopped it."""
    operations: str
    """A JSON array as a string: what the responder changed; `"[]"` until the end."""
    parameters: str | None = None
    """A JSON object as a string: what the requester gave, without secrets."""
    report: str
    """A JSON object as a string; `"{}"` until the end."""
    created_by: Named
    """Who asked for it."""
    created_at: Millis
    note: str | None = None
    """Why, as the requester said, or the reason of `breakGlass`; the responder doesn't get it."""
    approval: Approval | None = None
    """Absent if its policy asks for none."""
    override: Override | None = Field(None, alias="breakGlass")
    """Absent if no rules were overridden."""
    bulk: ObjectId | None = None
    """The bulk that it belongs to, if it was started with others."""
    also_for: list[ObjectId] | None = None
    """The other targets of that bulk that it covers, without those that take more clearance than it."""
    undo: Undo | None = None
    """Absent if its responder has none, and for an undo itself."""
    measure: MeasureOfRun | None = None
    """Absent until it has ended, and if it has left nothing in force."""
    undoes: ObjectId | None = None
    """The action that it undoes."""
    readers: list[Reader] | None = None
    """Of a Block: who has read it, or is to; once it has ended, who still has it."""

    @property
    def extensions(self) -> list[Extension]:
        """Those that were asked for, the newest first."""
        newest = self.undo.extension if self.undo is not None else None
        return [] if newest is None else [newest, *newest.earlier]

    @property
    def approved_by(self) -> list[str]:
        """Who has approved it."""
        return [] if self.approval is None else self.approval.approved_by

    @property
    def moved_by(self) -> str | None:
        """Who asked for the end that it has now, or set it; absent if it is as it was at first."""
        return self.undo.changed.by if self.undo is not None and self.undo.changed is not None else None

    @property
    def more_time_by(self) -> list[str]:
        """Who approved the later end that it has now."""
        changed = self.undo.changed if self.undo is not None else None
        approved = (one for one in self.extensions if one.outcome == "approved" and changed and one.at == changed.after)
        return next((one.approval.approved_by for one in approved), [])

    @property
    def undone_by(self) -> str:
        """Who undid it, or marked it as ended; "" unless that is so, and where it ended on time by itself."""
        ended, undo = self.measure, self.undo
        if ended is None or undo is None or undo.status != "undone" or undo.at is not None:
            return ""
        return ended.ended_by or ""

    @property
    def decided_against(self) -> DecidedAgainst | None:
        """Absent if nobody denied it or undid it; that somebody marked it as ended is no decision."""
        if self.outcome == "denied":
            return DecidedAgainst("denied", self.ended_by or "", self.end_date or self.start_date)
        if self.undo is None or self.undo.action_id is None or self.measure is None or not self.undone_by:
            return None
        return DecidedAgainst("undone", self.undone_by, self.measure.ended_at or 0)

    def _decided(self, times: int) -> "Action":
        """With how often the same was decided as it was."""
        return self.model_copy(update={"earlier": self.earlier and self.earlier.model_copy(update={"times": times})})

    def by_target(self) -> list[tuple["Action", str]]:
        """A run for each of several targets on which it left something, as if it had acted on that alone, with its id.

        Of a run on one target, or on all of its object, the run itself and "".
        """
        measure, undo, targets = self.measure, self.undo, {one.id: one for one in self.target or ()}
        if measure is None or len(measure.targets) < 2:
            return [(self, "")]
        found = []
        for one in measure.targets:
            own = None if undo is None or one.undo is None else undo.model_copy(update=dict(one.undo))
            state = one.model_dump(exclude={"id", "target", "undo"})
            alone = measure.model_copy(update={**state, "targets": [one]})
            target = [targets[one.target]] if one.target in targets else self.target
            # Who still has one target that ended before the others is not known.
            readers = None if one.state == "ended" and measure.state != "ended" else self.readers
            part = {"target": target, "undo": own, "measure": alone, "readers": readers}
            found.append((self.model_copy(update=part), one.id))
        return found

    def by_decision(self) -> list["Action"]:
        """A run for each decision against it, on those targets alone: people may have undone it one by one."""
        same = dict[DecidedAgainst | None, list[Action]]()
        for one, _ in self.by_target():
            same.setdefault(one.decided_against, []).append(one)
        same.pop(None, None)
        on = [(ones[0], [of for one in ones for of in one.target or ()]) for ones in same.values()]
        return [one.model_copy(update={"target": targets or None}) for one, targets in on]


def last_decided(same: Sequence[Action], *, is_in_force: bool, approved_at: int) -> list[Action]:
    """Which of several runs of the same were decided against last, newest first; what was undone unless in force.

    The last that was denied and undone, with how often, and denials before that, whose reasons may matter more. None if
    all was before the same was approved, `approved_at` last. Each has its `earlier`.
    """
    all_decided = [(decided, one) for one in reversed(same) if (decided := one.decided_against) is not None]
    # By decision, as one undo may have ended several runs.
    found = {decided: one for decided, one in all_decided if decided.how == "denied" or not is_in_force}
    newest = sorted(found, key=lambda one: one.at, reverse=True)
    if not newest or newest[0].at < approved_at:
        return []
    denied, undone = ([one for one in newest if one.how == how] for how in ("denied", "undone"))
    times = dict.fromkeys(denied[:MOST_DENIALS], len(denied)) | dict.fromkeys(undone[:1], len(undone))
    return [found[one]._decided(times[one]) for one in newest if one in times]


class MeasureRun(ApiModel):
    """A run that has something in force."""

    title: str
    root_id: ObjectId
    state: Literal["asked", "starting", "in_force", "unknown", "ended"]
    """asked: it waits for approval; ended: it has undone the same; both in documents only."""
    created_by: Named
    approved_by: list[Named]
    moved_by: Named | None = None
    """Who asked for the end that it has now, or set it; absent if it is as it was at first."""
    more_time_by: list[Named] = Field(default_factory=list)
    """Who approved the later end that it has now."""
    since: Millis
    """When it was dispatched, or asked for."""
    until: Millis | None = None
    """When core undoes it, or should have; absent: not by itself."""


class Measure(MeasureRun):
    """What is in force: all that runs with the same undo have left on the same target.

    It is as the run that ends last; its state, its beginning and its end are those of all.
    """

    id: ObjectId
    """Of what the first of its runs has left."""
    actions: list[ObjectId]
    """Its runs; the one that ends last is the last."""
    others: list[MeasureRun] = Field(default_factory=list)
    """The runs before the last one, in the same order: what undoes one ends all."""
    responder_name: Named
    object_type: str
    object_id: ObjectId
    target: list[TargetArtifact] | None = None
    """The only one; absent if nobody knows what it acts on in its object."""
    note: str | None = None
    undo: Undo | None = None
    """Absent if nothing undoes it."""
    readers: list[Reader] | None = None
    """As of the action."""
    clearance: Level | None = Field(None, exclude_if=_is_absent)
    """That it takes to see the last of its runs; in documents only."""
    clearance_of_texts: Level | None = Field(None, exclude_if=_is_absent)
    """That it takes to read why more time was denied, as of `EarlierDecision`; absent if none was asked for."""


class BulkEntry(ApiModel):
    """The outcome for one target of a request: its action, or why there is none."""

    object_id: str
    status: int
    """201 with an action; otherwise the status that a run on this object alone would have answered."""
    action: Action | None = None
    target: list[str] = Field(default_factory=list)
    """Without an action: the artifacts that the request named there, by id or data."""
    covered_by: ObjectId | None = None
    """The action of the target that this one repeats."""
    type: str | None = None
    message: str | None = None


class BulkAnswer(ApiModel):
    """The response to a bulk; the targets are in the order of the request."""

    id: ObjectId
    actions: list[BulkEntry]


class BulkCounts(ApiModel):
    """The progress of a bulk."""

    id: ObjectId
    created_by: Named
    created_at: Millis
    responder_name: Named
    """Empty if no engine has it."""
    title: str
    """Its name for people."""
    total: int
    """The number of targets; what the run on another one covers is none."""
    objects: int = 0
    """The number of alerts and other objects that the request named."""
    refused: int
    """Targets without an action."""
    counts: dict[ActionStatus, int]
    """The number of actions by status; the refused ones are not among them."""
    outcomes: dict[Outcome, int] = Field(default_factory=dict)
    """The number of actions that did not succeed, by outcome."""
    awaiting: int = 0
    """Actions that wait for approval."""
    expires_at: Millis | None = None
    """When the first of them expires."""
    later_ends: int = 0
    """Actions whose extension waits for approval."""
    severity: int | None = None
    """Of what waits: the highest severity of its alerts and cases."""
    undo_after_minutes: int | None = None
    """How long what they do lasts; 0: until somebody undoes it; absent: nothing undoes it."""
    timed: int = 0
    """Actions that core is to undo by itself."""
    release_at: Millis | None = None
    """When core undoes the last of them (ms)."""
    first_release_at: Millis | None = None
    """When core undoes the first of them (ms)."""
    endless: int = 0
    """Actions that have left something in force with no end."""
    undoing: int = 0
    """Actions whose undo is under way, or waits for approval."""
    undone: int = 0
    """Actions whose effect was undone, or marked as ended."""
    undone_at: Millis | None = None
    """When the last of them was undone."""
    by_itself: int = 0
    """How many of them core undid by itself."""
    not_released: int = 0
    """Actions whose timed undo failed or waits."""
    free_at: Millis | None = None
    """When the rates that refused a target are free again; absent if they are, or if runs that wait decide that."""
    approved_by: list[Named] = Field(default_factory=list)
    """Who have approved runs of it, each once; the first 20, as of `undoneBy`."""
    undone_by: list[Named] = Field(default_factory=list)
    """Who have undone runs of it, or marked them as ended; not core, by itself."""
    retries: ObjectId | None = None
    """The bulk that this one retried."""
    retried_by: ObjectId | None = None
    """The bulk that retried this one."""


class BulkTarget(ApiModel):
    """One target of a bulk, as it is now."""

    object_type: Kind
    object_id: str
    target: list[str] = Field(default_factory=list)
    """The artifacts that the request named there, by id or data."""
    status: int
    """201 if there is an action."""
    has_failed: bool = False
    """Whether a retry runs it again: it was refused, or did not succeed, or somebody undid it before its time.

    What the run on another object covers is as that.
    """
    action_id: ObjectId | None = None
    covered_by: ObjectId | None = None
    """As of a BulkEntry."""
    action_status: ActionStatus | None = None
    outcome: Outcome | None = None
    type: str | None = None
    message: str | None = None


class Bulk(BulkCounts):
    """A bulk with its targets, in the order of the request, and what all its runs get."""

    targets: list[BulkTarget]
    parameters: str = "{}"
    """Their inputs without secrets, as JSON."""
    note: str = ""

    @property
    def own_targets(self) -> list[BulkTarget]:
        """Those that no other's run covers."""
        return [one for one in self.targets if not one.covered_by]


class Policy(ApiModel):
    """A responder's policy: the text to confirm, and how many approvals a run needs."""

    confirm: str = ""
    """What people are asked before a run."""
    approval: int = 0
    """How many other people have to approve a run."""
    run_by: list[Named] | None = None
    """Logins and `@groups` of the settings; absent for everybody who may run responders."""
    approve_by: list[Named] | None = None
    """Likewise."""
    ask: list[str] | None = None
    """The Slack user groups and people who are asked to approve, in place of whoever may."""
    rate: list[str] | None = None
    """Such as `5/1h`."""
    rate_per_target: list[str] | None = None
    """Likewise, on the same target."""
    undo: str | None = None
    """The name of the responder that undoes a run of it."""
    undo_title: str | None = None
    """That one's title."""
    undo_after_minutes: int | None = None
    """How many minutes after its success core undoes a run; absent: never."""
    allow_permanent: bool | None = None
    """Whether a run may request a longer time, or no end."""
    contains: bool | None = None
    """True if its runs leave something in force."""
    is_undo: bool | None = None
    """True if its runs undo those of another responder."""
    sends_to: list[str] | None = None
    """Of one that only reads or tells: to which hosts and mail addresses its settings send; absent if it may act."""


_NO_POLICY = Policy()
"""Of a responder whose policy was not asked for."""


class AuditRow(ApiModel):
    """A row of the audit (core/docs/audit.md)."""

    number: int
    hash: str
    """SHA-256 of `row` as canonical JSON."""
    at: Millis
    what: str
    """Such as `run.approved`."""
    by: Named
    """A login, or `core`."""
    object: str
    """What it is about: an id, a login, `@` and a group, and so on."""
    sentence: str
    """The row for people."""
    row: dict[str, Any]
    """All that is in the chain."""
    texts: dict[str, str]
    """What `row` names by a hash, unless it was erased."""


class OfferedTarget(ApiModel):
    """What a responder would act on."""

    data_types: list[str]
    """Those that it acts on, such as `hostname`."""
    artifacts: list[TargetArtifact]
    """Those of the object that fit, at most 100; without those that the caller may not see."""
    total: int
    """How many fit."""
    required: bool
    """Whether one of several has to be chosen; otherwise it may act on any."""
    protected: dict[str, str] = Field(default_factory=dict)
    """Where one has to be chosen: why those of the `artifacts` that are protected are, by id."""
    open_runs: dict[str, str] = Field(default_factory=dict)
    """How far an open run of the responder on one of the `artifacts` is, by that one's id."""


class OfferedResponder(ApiModel):
    """A responder that can run on an object; with `explain=true` also one that can't.

    Only with `explain=true` there are a title, parameters, a verdict, reasons, the policy and recent runs.
    """

    id: str
    name: str
    version: str
    description: str
    data_type_list: list[str]
    """What it can run on, such as `thehive:alert`."""
    engine_ids: list[str]
    """The engines that have it."""
    title: str | None = None
    """Its name for people."""
    parameters: list[Parameter] | None = None
    """The parameters that it declares."""
    target: OfferedTarget | None = None
    """Absent if nobody knows what it acts on: then it may act on anything in the object."""
    verdict: Literal["can_run", "cannot_run"] | None = None
    reasons: list[str] | None = None
    """Why it can't run, besides `refusals`; or notes, if it can."""
    hints: list[str] | None = None
    """What else to know before it runs, also against a rule: what may be the same is in force, who reads the list."""
    refusals: list[Refusal] | None = None
    """The rules that block it; absent without any."""
    open_run: str | None = None
    """Its open run, if another can act on nothing else: `already running since 14:02, started by anna`; else absent."""
    lacks: list[str] | None = None
    """What it reads and this object has not: `case`, or custom fields."""
    policy: Policy = Field(default_factory=lambda: _NO_POLICY, exclude_if=lambda policy: policy is _NO_POLICY)
    approvers: list[Named] | None = None
    """Who in Slack may approve a run that the caller asks for, at most ten; absent without any, or without need."""
    recent_runs: int | None = None
    """How many of the newest 300 runs are of it, by which menus put first what is used most."""

    @property
    def can_run(self) -> bool:
        return self.verdict != "cannot_run"

    @property
    def notes(self) -> list[str]:
        """All that there is to know of it, where it can run."""
        return [*(self.reasons or ()), *(self.hints or ())]

    @property
    def can_be_overridden(self) -> bool:
        """Whether an org-admin may override everything that blocks it."""
        return bool(self.refusals) and not self.reasons and all(refusal.overridable for refusal in self.refusals or ())

    def on(self, chosen: Sequence[str] | None) -> Self:
        """As it is for a run that acts on these artifacts: what is open there, and that one is protected, count."""
        open_runs = self.target.open_runs if self.target is not None else {}
        open_run = self.open_run or next((open_runs[one] for one in chosen or () if one in open_runs), None)
        protected = self.target.protected if self.target is not None and self.can_run else {}
        found = [protected[one] for one in chosen or () if one in protected]
        refusals = [Refusal(rule="protect", message=one, lift=OVERRIDE) for one in found]
        refused = {"verdict": "cannot_run", "reasons": None, "refusals": refusals} if refusals else {}
        return self.model_copy(update={"open_run": open_run, **refused})

    @property
    def is_timed(self) -> bool:
        """Whether core undoes its runs by itself, so that people choose how long one lasts."""
        return bool(self.policy.undo_after_minutes)


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
    request_id: str = ""
    """The id of the request that made the change, as in the log; "" if core made it by itself."""


class SlackUsers(ApiModel):
    """The Slack users that a person is linked to, each as `team:user`; the team may be empty."""

    login: str
    slack_ids: list[str]

    def in_team(self, team: str) -> list[str]:
        """The users that they are in a team, first those of links with that team, then of links without any."""
        by_team = sorted((slack_id.rpartition(":") for slack_id in self.slack_ids), reverse=True)
        return [user for of, _, user in by_team if of in ("", team)]


class Document(ApiModel):
    """An alert or a case with all that its card shows (core/docs/http-interface.md#documents).

    `tasks`, `logs` and `artifacts` are those of a case that an event or a request names, or that a named action ran
    on; an alert has its own. `actions` are those on all these objects, newest first.
    """

    id: ObjectId
    """The alert or case: the `rootId` of the events."""
    deleted: bool = False
    """Whether the case is deleted."""
    alert: Alert | None = Field(None, exclude_if=_is_absent)
    case: Case | None = Field(None, exclude_if=_is_absent)
    case_tlp: Level | None = Field(None, exclude_if=_is_absent)
    """Of an alert in a case: that of the case, which runs on its artifacts get with them; red for one that is gone."""
    alert_ids: list[ObjectId] = Field(default_factory=list)
    """The first 20 alerts that became this case or were merged into it."""
    alert_count: int = 0
    """How many there are, at most 10,000."""
    is_complete: bool = False
    """Of a case: whether all artifacts that its texts may repeat are here; an older core doesn't say so."""
    alerts_with: dict[ObjectId, int] = Field(default_factory=dict)
    """Of a case: how many of its alerts have each of its artifacts that they brought."""
    tasks: list[Task] = Field(default_factory=list)
    logs: list[Log] = Field(default_factory=list)
    artifacts: list[Artifact] = Field(default_factory=list)
    """Each with the highest `tlp` of its own and of the alerts that have it."""
    other_artifacts: list[Artifact] = Field(default_factory=list)
    """The other artifacts of the case, also of an alert's case, which texts may repeat."""
    alert_artifacts: list[Artifact] = Field(default_factory=list)
    """Of a case: those that only its alerts have, each with at least the `tlp` of its alert."""
    actions: list[Action] = Field(default_factory=list)
    action_counts: dict[ObjectId, int] = Field(default_factory=dict)
    """How many actions each object has in all; in `actions` are its open and its newest, 30 at most."""
    shortened: list[ObjectId] = Field(default_factory=list)
    """The actions whose report, operations or parameters are not whole here."""
    unreadable: list[ObjectId] = Field(default_factory=list)
    """Objects and actions that are left out because their stored JSON is damaged."""
    policies: dict[str, Policy] = Field(default_factory=dict)
    """By the name of the responder, for each in `actions`."""
    titles: dict[str, str] = Field(default_factory=dict)
    """By the name of the responder, its title."""
    inputs: dict[str, list[InputTitle]] = Field(default_factory=dict)
    """By the name of the responder, the titles of the parameters that it declares, if any."""
    asked: dict[ObjectId, list[Artifact]] = Field(default_factory=dict)
    """By action on an alert that waits for approval: the artifacts that it gets, even if the alert has changed."""
    already: dict[ObjectId, list[Measure]] = Field(default_factory=dict)
    """By action that waits for approval or is in force: what else is in force on its targets, as the key may see.

    Of one that waits also at most ten that wait to act on them, the newest first (`asked`), and what has run since that
    undoes it there (`ended`). By alert: what runs on others, which cover it, have in force.
    """
    decided: dict[ObjectId, list[Action]] = Field(default_factory=dict)
    """By action that waits for approval: for each target the last run of its responder that somebody denied or undid.

    Whatever alert or case that was for; once for each clearance, from the lowest on. What was undone is left out while
    something is in force there.
    """
    may_decide: dict[ObjectId, list[SlackUsers]] = Field(default_factory=dict)
    """By action that waits for approval, or whose extension does: who in Slack may decide now.

    At most ten, those who decided last first.
    """
    why_not_decide: dict[ObjectId, str] = Field(default_factory=dict)
    """By such an action, for who asks on behalf of somebody: why that person may not decide; "" if they may."""
    responders: dict[ObjectId, list[OfferedResponder]] = Field(default_factory=dict)
    """By object, if they were asked for: all responders with verdict, reasons and policy."""
    artifact_responders: dict[ObjectId, list[str]] = Field(default_factory=dict)
    """By artifact of an alert that was named, if they were asked for: the names of those that can run on it."""

    @model_validator(mode="after")
    def _actions_have_details(self, info: ValidationInfo) -> Self:
        if info.context is not None:
            info.context.update(self.titles)
        for action in self.actions:
            object.__setattr__(action, "responder_title", self.titles.get(action.responder_name, ""))
            if action.undo is not None:
                object.__setattr__(action.undo, "title", self.titles.get(action.undo.responder, ""))
            object.__setattr__(action, "inputs", self.inputs.get(action.responder_name, []))
            policy = self.policies.get(action.responder_name)
            object.__setattr__(action, "only_tells", policy is not None and policy.sends_to is not None)
            object.__setattr__(action, "artifacts", self.asked.get(action.id, []))
            object.__setattr__(action, "already", self.already.get(action.id, []))
            object.__setattr__(action, "decided_before", self.decided.get(action.id, []))
            object.__setattr__(action, "why_not_decide", self.why_not_decide.get(action.id, ""))
        return self


class DocumentList(ApiModel):
    """The documents of the objects that a request names."""

    as_of: int
    """Number of the newest event that they reflect."""
    database: str
    documents: list[Document]
    missing: list[ObjectId]
    """Ids of the request that no object or action has."""
    left: list[ObjectId]
    """Ids of the request that didn't fit into this response; request them again."""
    bulks: list[BulkCounts] = Field(default_factory=list)
    """Those whose ids the request named."""


class EventPage(ApiModel):
    """A page of the event feed."""

    events: list[Event]
    last: int
    database: str = ""
    """Id of core's database; sequence numbers of another one mean other events."""
    as_of: int | None = None
    """Number of the newest event that `documents` reflect; only with them."""
    documents: list[Document] | None = None
    """Of the objects that the events are about, each alert or case once; only with `include=documents`."""
    bulks: list[BulkCounts] | None = None
    """Of actions of the events, and of all on what has changed; only with documents."""


class Person(ApiModel):
    """A user with permissions and clearance."""

    login: str
    profile: Profile
    permissions: list[Permission]
    clearance: Level


class UserEntry(ApiModel):
    """A user as admins see it."""

    login: str
    profile: Profile
    clearance: Level
    disabled: bool
    created_at: Millis
    slack_ids: list[str]
    """`T0123:U0123`, or `U0123` if the team isn't known."""
    groups: list[str]


class NewKey(ApiModel):
    """A user's new API key, which can't be shown again."""

    login: str
    key: str


class Group(ApiModel):
    """A user group, which policies name as `@containment`."""

    name: str
    members: list[str]
    """Their logins."""


# --- of core and of the bot: what was checked, and the answer of `/health` --------------------------------------------


@dataclass(frozen=True)
class Check:
    """A component in `/health`, or a line of `doctor`: whether it is well, and what to do if it isn't."""

    name: str
    ok: bool
    message: str = ""
    is_vital: bool = False
    """Nothing works without it."""
    is_warning: bool = False
    """It is well, but something that most people want is not set."""


class HealthPartModel(ApiModel):
    """A component in the answer of `/health`."""

    name: str
    ok: bool
    message: str


class HealthModel(ApiModel):
    """The answer of `/health`."""

    status: Literal["ok", "degraded", "down"]
    parts: list[HealthPartModel]

    @staticmethod
    def of(checks: Sequence[Check]) -> "HealthModel":
        """Down if a vital check fails, degraded if another does."""
        failed = [check for check in checks if not check.ok]
        status = "down" if any(check.is_vital for check in failed) else "degraded" if failed else "ok"
        parts = [HealthPartModel(name=check.name, ok=check.ok, message=check.message) for check in checks]
        return HealthModel(status=status, parts=parts)
