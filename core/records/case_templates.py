"""Case templates and custom fields (core/docs/semantics.md#case-templates)."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from core.authorization import Caller
from core.common.database import Reads, Transaction
from core.common.errors import ResponderBotError
from core.field_types import CustomFields, wrong_fields
from core.models import CaseTemplate, CaseTemplateInput
from core.records.writes import Records, made, new_task
from core.store import events, objects

KIND = "case_template"

_FIELDS: TypeAdapter[dict[str, dict[str, Any]]] = TypeAdapter(CustomFields)


class CaseTemplates(Records):
    """Case templates as people and clients read and create them."""

    async def create(self, caller: Caller, request: CaseTemplateInput) -> CaseTemplate:
        """Create a case template. Raises ResponderBotError("exists") if its name is taken."""
        return await self._change(lambda tx, now: _create(tx, request, caller.login, now))

    async def get_json(self, id_or_name: str) -> str:
        """A template's JSON. Raises ResponderBotError("not_found")."""
        row = await self._database.read(lambda reads: objects.named(reads, KIND, id_or_name, [id_or_name]))
        return str(row["doc"])


def by_name(reads: Reads, name: str) -> CaseTemplate:
    """The template of exactly that name. Raises ResponderBotError("not_found")."""
    row = objects.find_unique(reads, KIND, name)
    if row is None:
        raise objects.missing(KIND)
    return CaseTemplate.model_validate_json(row["doc"])


def custom_fields(raw: Any, path: str) -> dict[str, Any]:
    """Custom fields in their long form, each with a value under its kind and an `order`.

    Raises ResponderBotError("invalid_fields") naming each wrong one as `<path>.<name>.<kind>`.
    """
    try:
        return _FIELDS.validate_python(raw)
    except ValidationError as error:
        entries = [
            {
                "name": ".".join([path, *map(str, item["loc"])]),
                "type": "InvalidFormatAttributeError",
                "format": item["msg"].removeprefix("Input should be "),
            }
            for item in error.errors(include_url=False)
        ]
        raise wrong_fields(entries) from None


def with_ids(
    tx: Transaction, fields: Mapping[str, Any], known: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """The custom fields with an `_id` each, last in the entry.

    A field in `known`, the stored ones, keeps its `_id`; what a client sends as one is ignored.
    """
    ids = {name: entry["_id"] for name, entry in (known or {}).items() if "_id" in entry}
    new = [name for name in fields if name not in ids]
    if new:
        ids |= zip(new, map("~{}".format, objects.next_ids(tx, len(new))), strict=True)
    return {
        name: {**{key: item for key, item in entry.items() if key != "_id"}, "_id": ids[name]}
        for name, entry in fields.items()
    }


def _create(tx: Transaction, request: CaseTemplateInput, user: str, now: int) -> CaseTemplate:
    if objects.find_unique(tx, KIND, request.name) is not None:
        raise ResponderBotError("exists", f'The case template "{request.name}" already exists')
    number, task_numbers = objects.next_id(tx), objects.next_ids(tx, len(request.tasks))
    own = {
        "tasks": [new_task(number, task, user, now) for number, task in zip(task_numbers, request.tasks, strict=True)],
        "custom_fields": with_ids(tx, request.custom_fields),
    }
    template = CaseTemplate(**{**vars(request), **made(number, user, now), **own})
    objects.insert(tx, number, KIND, template.to_json(), unique_key=request.name)
    events.record(
        tx, number, at=now, type="case_template.created", object_type="CaseTemplate", root_id=number, user=user
    )
    return template
