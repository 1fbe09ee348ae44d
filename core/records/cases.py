"""Cases, with their tasks, the tasks' logs, and artifacts (`semantics.md 2`)."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from core.access import Caller
from core.common.clock import Clock
from core.common.database.sqlite import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.models import (
    MAX_ARTIFACTS,
    MAX_CUSTOM_FIELDS,
    MAX_TAGS,
    OBJECT_TYPES,
    Alert,
    Artifact,
    ArtifactInput,
    ArtifactsInput,
    ArtifactUpdate,
    Case,
    CaseInput,
    CaseTemplate,
    CaseUpdate,
    FieldsUpdate,
    Input,
    Kind,
    Log,
    LogInput,
    LogUpdate,
    SearchInput,
    StoredModel,
    Task,
    TaskInput,
    TaskUpdate,
)
from core.records import events, files
from core.records.case_templates import by_name, with_ids
from core.records.search import Found, search
from core.store import objects
from core.store.search import newest

_NAMES: Mapping[Kind, str] = {
    "case": "Case",
    "case_task": "Task",
    "case_task_log": "Log",
    "case_artifact": "Artifact",
}
DEFAULT_LEVEL = 2  # medium, amber (semantics.md 2)
# A request of 1 MiB can ask for a text to be kept thousands of times: with each artifact, or with each of many alerts.
COPIED_LIMIT_CHARS = 8 * 1_048_576
ARTIFACT_CHARS = 256  # what an artifact takes beside its texts

T = TypeVar("T")
W = TypeVar("W", bound=StoredModel)


class Cases:
    """The cases of the store, and what is in them."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def create(self, caller: Caller, asked: CaseInput) -> Case:
        """Raises ResponderBotError("not_found") for an unknown template."""
        return await self._change(lambda tx, now: new_case(tx, asked, caller.login, now))

    async def add_task(self, caller: Caller, case_id: str, asked: TaskInput) -> Task:
        """Raises ResponderBotError("not_found") where there is no such case."""
        number = self._number("case", case_id)
        return await self._change(lambda tx, now: new_task(tx, load_case(tx, number), asked, caller.login, now))

    async def add_log(self, caller: Caller, task_id: str, asked: LogInput) -> Log:
        """A Waiting task becomes InProgress. Raises ResponderBotError("not_found") where there is no such task."""
        number = self._number("case_task", task_id)
        return await self._change(lambda tx, now: new_log(tx, load_task(tx, number), asked, caller.login, now))

    async def add_artifacts(self, caller: Caller, case_id: str, asked: ArtifactsInput) -> list[Artifact]:
        """All or none. Raises ResponderBotError("not_found") where there is no such case, "exists" where it has one."""
        number, artifacts = self._number("case", case_id), each([asked])

        def work(tx: Transaction, now: int) -> list[Artifact]:
            return new_artifacts(tx, load_case(tx, number), artifacts, caller.login, now)

        return await self._change(work)

    async def update_case(self, caller: Caller, case_id: str, asked: CaseUpdate) -> Case:
        """Raises ResponderBotError("not_found")."""
        number = self._number("case", case_id)

        def work(tx: Transaction, now: int) -> Case:
            case = load_case(tx, number)
            changed = case.model_copy(update=_case_changes(asked, case, now))
            return save_case(tx, changed, caller.login, now, before=case)

        return await self._change(work)

    async def update_task(self, caller: Caller, task_id: str, asked: TaskUpdate) -> Task:
        """Raises ResponderBotError("not_found")."""
        number = self._number("case_task", task_id)

        def work(tx: Transaction, now: int) -> Task:
            return save_task(tx, load_task(tx, number).model_copy(update=changes(asked)), caller.login, now)

        return await self._change(work)

    async def update_log(self, caller: Caller, log_id: str, asked: LogUpdate) -> Log:
        """Raises ResponderBotError("not_found")."""
        number = self._number("case_task_log", log_id)

        def work(tx: Transaction, now: int) -> Log:
            log = load_log(tx, number).model_copy(update=changes(asked))
            return _save(tx, "case_task_log", log, caller.login, now)

        return await self._change(work)

    async def update_artifact(self, caller: Caller, artifact_id: str, asked: ArtifactUpdate) -> Artifact:
        """Raises ResponderBotError("not_found")."""
        number = self._number("case_artifact", artifact_id)

        def work(tx: Transaction, now: int) -> Artifact:
            return save_artifact(tx, load_artifact(tx, number).model_copy(update=changes(asked)), caller.login, now)

        return await self._change(work)

    def get_case(self, case_id: str) -> Case:
        """By id or by its number. Raises ResponderBotError("not_found"), as do those below."""
        return Case.model_validate_json(self.json_case(case_id))

    def get_task(self, task_id: str) -> Task:
        return Task.model_validate_json(self.json_task(task_id))

    def get_log(self, log_id: str) -> Log:
        return Log.model_validate_json(self.json_log(log_id))

    def get_artifact(self, artifact_id: str) -> Artifact:
        return Artifact.model_validate_json(self.json_artifact(artifact_id))

    def json_case(self, case_id: str) -> str:
        return self._json("case", case_id)

    def json_task(self, task_id: str) -> str:
        return self._json("case_task", task_id)

    def json_log(self, log_id: str) -> str:
        return self._json("case_task_log", log_id)

    def json_artifact(self, artifact_id: str) -> str:
        return self._json("case_artifact", artifact_id)

    async def search(self, kind: Kind, asked: SearchInput) -> Found:
        """Cases, tasks, logs or artifacts. Raises ResponderBotError("bad_request")."""
        return await search(self._database, kind, asked)

    async def _change(self, work: "Callable[[Transaction, int], T]") -> T:
        now = self._clock()
        return await self._database.transaction(lambda tx: work(tx, now))

    def _number(self, kind: Kind, text: str) -> int:
        number = objects.parse_id(text)
        if number is not None:
            return number
        if kind == "case":
            return case_number_of(self._database, text)
        raise _missing(kind)

    def _json(self, kind: Kind, text: str) -> str:
        return str(_row(self._database, kind, self._number(kind, text))["doc"])


# --- inside a transaction -------------------------------------------------------------------------------------------


def case_number_of(reads: Reads, text: str) -> int:
    """The number of the case with that id or case number. Raises ResponderBotError("not_found")."""
    number = objects.parse_id(text)
    row = objects.find_unique(reads, "case", text) if number is None else objects.find(reads, "case", number)
    if row is None:
        raise _missing("case")
    return int(row["id"])


def load_case(reads: Reads, object_id: int) -> Case:
    """Raises ResponderBotError("not_found"), as do those below."""
    return Case.model_validate_json(_row(reads, "case", object_id)["doc"])


def load_task(reads: Reads, object_id: int) -> Task:
    return Task.model_validate_json(_row(reads, "case_task", object_id)["doc"])


def load_log(reads: Reads, object_id: int) -> Log:
    return Log.model_validate_json(_row(reads, "case_task_log", object_id)["doc"])


def load_artifact(reads: Reads, object_id: int) -> Artifact:
    return Artifact.model_validate_json(_row(reads, "case_artifact", object_id)["doc"])


def case_of_task(reads: Reads, task_id: int) -> Case:
    return case_of(reads, "case_task", task_id)


def task_of_log(reads: Reads, log_id: int) -> Task:
    return load_task(reads, _row(reads, "case_task_log", log_id)["parent_id"])


def case_of(reads: Reads, kind: Kind, object_id: int) -> Case:
    """The case that a case, task, log or artifact belongs to."""
    return load_case(reads, _root(reads, kind, object_id))


def new_case(tx: Transaction, asked: CaseInput, user: str, now: int) -> Case:
    """A case, from its template where it names one (`semantics.md 3`). Raises ResponderBotError("not_found")."""
    template = by_name(tx, asked.template) if asked.template else None
    number, case_number = objects.next_id(tx), _next_case_number(tx)
    case = Case(
        id_=f"~{number}",
        id=f"~{number}",
        created_by=user,
        created_at=now,
        case_id=case_number,
        title=_title(template, asked.title),
        description=asked.description,
        severity=_first(asked.severity, template.severity if template else None),
        start_date=now if asked.start_date is None else asked.start_date,
        owner=asked.owner or user,
        flag=asked.flag,
        tlp=_first(asked.tlp, template.tlp if template else None),
        pap=_first(asked.pap, template.pap if template else None),
        tags=united(template.tags if template else [], asked.tags),
        template=asked.template or None,
        custom_fields=with_ids(tx, _merged_fields(template, asked.custom_fields)),
    )
    objects.insert(tx, number, "case", case.to_json(), unique_key=str(case_number))
    _tell(tx, "case", "created", number, number, user, now)
    new_tasks(tx, case, [*(_as_asked(task) for task in (template.tasks if template else [])), *asked.tasks], user, now)
    return case


def new_task(tx: Transaction, case: Case, asked: TaskInput, user: str, now: int) -> Task:
    return new_tasks(tx, case, [asked], user, now)[0]


def new_tasks(tx: Transaction, case: Case, asked: Sequence[TaskInput], user: str, now: int) -> list[Task]:
    root, numbers = _number_of(case), objects.next_ids(tx, len(asked))
    tasks = [_task_of(number, task, user, now) for number, task in zip(numbers, asked, strict=True)]
    _insert_all(tx, "case_task", [objects.New(_number_of(task), task.to_json()) for task in tasks], root, user, now)
    return tasks


def new_log(tx: Transaction, task: Task, asked: LogInput, user: str, now: int) -> Log:
    """A log; a Waiting task becomes InProgress (`semantics.md 2`)."""
    number, task_number = objects.next_id(tx), _number_of(task)
    log = Log(
        id_=f"~{number}",
        id=f"~{number}",
        created_by=user,
        created_at=now,
        message=asked.message,
        start_date=now if asked.start_date is None else asked.start_date,
        owner=user,
    )
    objects.insert(tx, number, "case_task_log", log.to_json(), parent_id=task_number)
    _tell(tx, "case_task_log", "created", number, _root(tx, "case_task", task_number), user, now)
    if task.status == "Waiting":
        save_task(tx, task.model_copy(update={"status": "InProgress"}), user, now)
    return log


def new_artifact(tx: Transaction, case: Case, asked: ArtifactInput, user: str, now: int) -> Artifact:
    """Raises ResponderBotError("exists") where the case has that artifact already."""
    return new_artifacts(tx, case, [asked], user, now)[0]


def new_artifacts(
    tx: Transaction,
    case: Case,
    asked: Sequence[ArtifactInput | Artifact],
    user: str,
    now: int,
    *,
    skip_known: bool = False,
) -> list[Artifact]:
    """All, or with `skip_known` those that the case does not have yet. Raises as `new_artifact` does."""
    root, asked = _number_of(case), with_files(tx, asked)
    keys = [_artifact_key(root, item) for item in asked]
    seen, new = objects.taken(tx, "case_artifact", keys), list[tuple[str, ArtifactInput | Artifact]]()
    for key, item in zip(keys, asked, strict=True):
        if key not in seen:
            seen.add(key)
            new.append((key, item))
        elif not skip_known:
            raise ResponderBotError("exists", f"The case {case.id} has this {item.data_type} already.")
    numbers = objects.next_ids(tx, len(new))
    artifacts = [artifact_of(number, item, user, now) for number, (_, item) in zip(numbers, new, strict=True)]
    rows = [
        objects.New(_number_of(artifact), artifact.to_json(), key)
        for artifact, (key, _) in zip(artifacts, new, strict=True)
    ]
    _insert_all(tx, "case_artifact", rows, root, user, now)
    return artifacts


def each(asked: Sequence[ArtifactsInput], *, times: int = 1, more_chars: int = 0) -> list[ArtifactInput]:
    """One for each `data`; all of them and `more_chars` are to be kept so many `times`.

    Raises ResponderBotError("too_large") where that would be over the limit.
    """
    shared = ((len(item.data), ARTIFACT_CHARS + len(item.message or "") + sum(map(len, item.tags))) for item in asked)
    if sum(len(item.data) for item in asked) > MAX_ARTIFACTS:
        raise ResponderBotError("bad_request", f"These are over {MAX_ARTIFACTS} artifacts; send fewer at once.")
    if times * (more_chars + sum(count * chars for count, chars in shared)) > COPIED_LIMIT_CHARS:
        sentence = f"What is to be kept is over the limit of {COPIED_LIMIT_CHARS} characters; send fewer at once."
        raise ResponderBotError("too_large", sentence)
    return [artifact for item in asked for artifact in item.expand()]


A = TypeVar("A", ArtifactInput, ArtifactInput | Artifact)


def with_files(tx: Transaction, asked: Iterable[A]) -> list[A]:
    """The same artifacts, once their files are kept. Raises ResponderBotError("bad_request") for an unknown file."""
    return [_with_file(tx, item) if isinstance(item, ArtifactInput) and item.is_file else item for item in asked]


def identity(artifact: ArtifactInput | Artifact) -> tuple[str, ...]:
    """What is equal for two artifacts that are the same."""
    if artifact.attachment is not None:
        return artifact.data_type, "file", artifact.attachment.id
    return artifact.data_type, artifact.data or ""


def copy_artifacts(tx: Transaction, case: Case, artifacts: Iterable[Artifact], user: str, now: int) -> None:
    """Add an alert's artifacts to a case, but for those that it has."""
    new_artifacts(tx, case, list(artifacts), user, now, skip_known=True)


def artifact_of(number: int, asked: ArtifactInput | Artifact, user: str, now: int) -> Artifact:
    """An artifact under a number; not stored yet."""
    return Artifact(
        id_=f"~{number}",
        id=f"~{number}",
        created_by=user,
        created_at=now,
        data_type=asked.data_type,
        data=asked.data if asked.attachment is None else None,
        attachment=asked.attachment,
        start_date=now if asked.start_date is None else asked.start_date,
        message=asked.message,
        tlp=asked.tlp,
        tags=asked.tags,
        ioc=asked.ioc,
        sighted=asked.sighted,
    )


def save_case(tx: Transaction, case: Case, user: str, now: int, *, before: Case | None = None) -> Case:
    """Keep a changed case, as alerts.save does."""
    number = _number_of(case)
    before = before or load_case(tx, number)
    refuse_growth(before, case)
    fields = with_ids(tx, case.custom_fields, before.custom_fields)
    saved = case.model_copy(update={"custom_fields": fields, "updated_by": user, "updated_at": now})
    objects.update(tx, number, saved.to_json())
    _tell(tx, "case", "updated", number, number, user, now)
    return saved


def save_task(tx: Transaction, task: Task, user: str, now: int) -> Task:
    """Keep a changed task, as `save_case` does."""
    return _save(tx, "case_task", _dated(task, now), user, now)


def save_artifact(tx: Transaction, artifact: Artifact, user: str, now: int) -> Artifact:
    """Keep a changed artifact, as `save_case` does."""
    return _save(tx, "case_artifact", artifact, user, now)


def refuse_growth(before: Alert | Case, after: Alert | Case) -> None:
    """Raises ResponderBotError("bad_request") where what may only be added to in small steps would get too many."""
    for name, most in (("tags", MAX_TAGS), ("artifacts", MAX_ARTIFACTS), ("custom_fields", MAX_CUSTOM_FIELDS)):
        had, has = (len(getattr(item, name, ())) for item in (before, after))
        if has > max(had, most):
            words = name.replace("_", " ")
            raise ResponderBotError(
                "bad_request", f"{after.id} would have {has} {words}; at most {most} are kept, so remove some first."
            )


def united(*lists: Iterable[str]) -> list[str]:
    """All tags, each once, in the order of their first mention."""
    return list(dict.fromkeys(tag for tags in lists for tag in tags))


def changes(asked: Input, to: Alert | Case | None = None) -> dict[str, Any]:
    """What a request names, by the names of our words; what it adds to an alert or a case, added already."""
    changed = {name: getattr(asked, name) for name in asked.model_fields_set}
    if not isinstance(asked, FieldsUpdate) or to is None:
        return changed
    added, removed = changed.pop("add_tags", None) or [], changed.pop("remove_tags", None) or []
    if added or removed:
        gone = frozenset(removed)
        changed["tags"] = [tag for tag in united(changed.get("tags", to.tags), added) if tag not in gone]
    if changed.pop("named_fields", False):
        changed["custom_fields"] = _with_named(to.custom_fields, changed["custom_fields"])
    return changed


# --- inside ---------------------------------------------------------------------------------------------------------


def _save(tx: Transaction, kind: Kind, word: W, user: str, now: int) -> W:
    number = _number_of(word)
    saved = word.model_copy(update={"updated_by": user, "updated_at": now})
    objects.update(tx, number, saved.to_json())
    _tell(tx, kind, "updated", number, _root(tx, kind, number), user, now)
    return saved


def _task_of(number: int, asked: TaskInput, user: str, now: int) -> Task:
    task = Task(
        id_=f"~{number}",
        id=f"~{number}",
        created_by=user,
        created_at=now,
        title=asked.title,
        group=asked.group,
        description=asked.description,
        order=asked.order,
    ).model_copy(update=changes(asked))
    return _dated(task, now)


def _insert_all(tx: Transaction, kind: Kind, new: Sequence[objects.New], root: int, user: str, now: int) -> None:
    """Add what belongs to a case, and tell of each."""
    objects.insert_all(tx, kind, new, parent_id=root)
    events.record_all(
        tx,
        at=now,
        type=f"{kind}.created",
        object_type=OBJECT_TYPES[kind],
        object_ids=[item.id for item in new],
        root_id=root,
        user=user,
    )


def _dated(task: Task, now: int) -> Task:
    """A task that has begun has a start, one that is over an end."""
    if task.status in ("InProgress", "Completed") and task.start_date is None:
        task = task.model_copy(update={"start_date": now})
    if task.status == "Completed" and task.end_date is None:
        task = task.model_copy(update={"end_date": now})
    return task


def _with_named(fields: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Custom fields with some of them changed; each keeps its place, a new one is the last."""
    places = {name: fields[name]["order"] if name in fields else len(fields) + 1 for name in named}
    return {**fields, **{name: {**field, "order": places[name]} for name, field in named.items()}}


def _case_changes(asked: CaseUpdate, case: Case, now: int) -> dict[str, Any]:
    changed = changes(asked, case)
    if asked.status in ("Resolved", "Duplicate"):
        changed.setdefault("end_date", now)
    return changed


def _title(template: CaseTemplate | None, title: str) -> str:
    prefix = template.title_prefix.rstrip() if template else ""
    return f"{prefix} {title}" if prefix else title


def _first(asked: int | None, of_template: int | None) -> int:
    given = of_template if asked is None else asked
    return DEFAULT_LEVEL if given is None else given


def _merged_fields(template: CaseTemplate | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    return {**(template.custom_fields if template else {}), **asked}


def _as_asked(task: Task) -> TaskInput:
    return TaskInput(title=task.title, group=task.group, description=task.description, order=task.order)


def _next_case_number(tx: Transaction) -> int:
    last = newest(tx, "case")
    return 1 if last is None else int(json.loads(last["doc"])["caseId"]) + 1


def _artifact_key(case_number: int, artifact: ArtifactInput | Artifact) -> str:
    """Hashed, since data may be long."""
    return hashlib.sha256(json.dumps([case_number, *identity(artifact)]).encode()).hexdigest()


def _with_file(tx: Transaction, asked: ArtifactInput) -> ArtifactInput:
    return asked.model_copy(update={"attachment": files.keep(tx, asked.data), "is_file": False})


def _number_of(word: StoredModel) -> int:
    return int(word.id[1:])


def _root(reads: Reads, kind: Kind, object_id: int) -> int:
    row = _row(reads, kind, object_id)
    if kind == "case":
        return int(row["id"])
    if kind == "case_task_log":
        return _root(reads, "case_task", row["parent_id"])
    return int(row["parent_id"])


def _row(reads: Reads, kind: Kind, object_id: int) -> Row:
    row = objects.find(reads, kind, object_id)
    if row is None:
        raise _missing(kind)
    return row


def _missing(kind: Kind) -> ResponderBotError:
    return ResponderBotError("not_found", f"{_NAMES[kind]} not found")


def _tell(tx: Transaction, kind: Kind, what: str, number: int, root: int, user: str, now: int) -> None:
    events.record(
        tx,
        at=now,
        type=f"{kind}.{what}",
        object_type=OBJECT_TYPES[kind],
        object_id=number,
        root_id=root,
        user=user,
    )
