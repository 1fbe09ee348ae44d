"""Case templates: made once under a unique name, used by cases (`semantics.md 3`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from core.access import Caller
from core.common.clock import Clock
from core.common.database.sqlite import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.models import CaseTemplate, CaseTemplateInput, CustomFields, SearchInput, Task, TaskInput
from core.records import events
from core.records.search import Found, search
from core.store import objects

KIND = "case_template"

_FIELDS: TypeAdapter[dict[str, dict[str, Any]]] = TypeAdapter(CustomFields)


class CaseTemplates:
    """The case templates of the store."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def create(self, caller: Caller, asked: CaseTemplateInput) -> CaseTemplate:
        """Raises ResponderBotError("exists") where the name is taken (`interface.md 4.3`)."""
        now = self._clock()
        return await self._database.transaction(lambda tx: _create(tx, asked, caller.login, now))

    def get(self, id_or_name: str) -> CaseTemplate:
        """Raises ResponderBotError("not_found")."""
        return CaseTemplate.model_validate_json(self.json(id_or_name))

    def json(self, id_or_name: str) -> str:
        """Its JSON on the wire. Raises ResponderBotError("not_found")."""
        return str(_row(self._database, id_or_name)["doc"])

    async def search(self, asked: SearchInput) -> Found:
        """Raises ResponderBotError("bad_request") for a query that makes no sense."""
        return await search(self._database, KIND, asked)


def by_name(reads: Reads, name: str) -> CaseTemplate:
    """The template of exactly that name. Raises ResponderBotError("not_found")."""
    row = objects.find_unique(reads, KIND, name)
    if row is None:
        raise ResponderBotError("not_found", "CaseTemplate not found")
    return CaseTemplate.model_validate_json(row["doc"])


def custom_fields(raw: Any, path: str) -> dict[str, Any]:
    """Custom fields in their long form, each with one value under its kind and an `order` (`semantics.md 3`).

    Raises ResponderBotError("invalid_fields") naming each wrong one as `<path>.<name>.<kind>`.
    """
    try:
        return _FIELDS.validate_python(raw)
    except ValidationError as error:
        entries = [_wrong(path, item["loc"], item["msg"]) for item in error.errors(include_url=False)]
        message = "".join(f"[Invalid format for {entry['name']}, expected {entry['format']}]" for entry in entries)
        raise ResponderBotError("invalid_fields", message, fields=entries) from None


def with_ids(
    tx: Transaction, fields: Mapping[str, Any], known: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """The fields with an `_id` each, last in the entry; a field that was there before keeps the one it had.

    `known` holds those of before; an `_id` that a client made up is not taken.
    """
    ids = {name: entry["_id"] for name, entry in (known or {}).items() if "_id" in entry}
    without = [name for name in fields if name not in ids]
    if without:
        ids |= zip(without, map("~{}".format, objects.next_ids(tx, len(without))), strict=True)
    return {name: {**_without_id(entry), "_id": ids[name]} for name, entry in fields.items()}


def new_tasks(tx: Transaction, asked: Sequence[TaskInput], user: str, now: int) -> list[Task]:
    """Tasks with ids of their own, in the order of the request."""
    return [
        _task(number, task, user, now) for number, task in zip(objects.next_ids(tx, len(asked)), asked, strict=True)
    ]


def _create(tx: Transaction, asked: CaseTemplateInput, user: str, now: int) -> CaseTemplate:
    if objects.find_unique(tx, KIND, asked.name) is not None:
        raise ResponderBotError("exists", f'The case template "{asked.name}" already exists')
    number = objects.next_id(tx)
    template = CaseTemplate(
        id_=f"~{number}",
        id=f"~{number}",
        created_by=user,
        created_at=now,
        name=asked.name,
        display_name=asked.display_name,
        title_prefix=asked.title_prefix,
        description=asked.description,
        severity=asked.severity,
        tlp=asked.tlp,
        pap=asked.pap,
        tags=asked.tags,
        tasks=new_tasks(tx, asked.tasks, user, now),
        custom_fields=with_ids(tx, asked.custom_fields),
    )
    objects.insert(tx, number, KIND, template.to_json(), unique_key=asked.name)
    events.record(
        tx,
        at=now,
        type="case_template.created",
        object_type="CaseTemplate",
        object_id=number,
        root_id=number,
        user=user,
    )
    return template


def _row(reads: Reads, id_or_name: str) -> Row:
    number = objects.parse_id(id_or_name)
    row = None if number is None else objects.find(reads, KIND, number)
    row = row or objects.find_unique(reads, KIND, id_or_name)
    if row is None:
        raise ResponderBotError("not_found", "CaseTemplate not found")
    return row


def _task(number: int, asked: TaskInput, user: str, now: int) -> Task:
    return Task(
        id_=f"~{number}",
        id=f"~{number}",
        created_by=user,
        created_at=now,
        title=asked.title,
        group=asked.group,
        description=asked.description,
        order=asked.order,
    )


def _without_id(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in entry.items() if key != "_id"}


def _wrong(path: str, loc: Sequence[str | int], message: str) -> dict[str, str]:
    name = ".".join([path, *map(str, loc)])
    return {"name": name, "type": "InvalidFormatAttributeError", "format": message.removeprefix("Input should be ")}
