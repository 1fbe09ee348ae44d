"""What changes of alerts, cases and their parts share: fields of a request, bounds, tags and events."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from core.common.clock import Clock
from core.common.database import Database, Transaction
from core.common.errors import ResponderBotError
from core.field_types import MAX_ARTIFACTS, MAX_CUSTOM_FIELDS, MAX_TAGS
from core.models import OBJECT_TYPES, Alert, Case, FieldsUpdate, Input, Kind, SearchInput, Task, TaskInput
from core.records.search import SearchResult, search
from core.store import events, objects

T = TypeVar("T")


class Records:
    """What services of records have in common."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def _change(self, work: Callable[[Transaction, int], T]) -> T:
        """Do this in a transaction, with the time in ms."""
        now = self._clock()
        return await self._database.transaction(lambda tx: work(tx, now))

    async def search(self, kind: str, request: SearchInput) -> SearchResult:
        """Search what is of this kind. Raises ResponderBotError("bad_request") for an invalid query."""
        return await search(self._database, kind, request)


def made(number: int, user: str, now: int) -> dict[str, Any]:
    """The fields of all new objects."""
    return {"id_": f"~{number}", "id": f"~{number}", "created_by": user, "created_at": now}


def new_task(number: int, request: TaskInput, user: str, now: int) -> Task:
    return Task(**{**vars(request), **made(number, user, now)})


def record_event(tx: Transaction, kind: Kind, verb: str, number: int, root_id: int, user: str, now: int) -> None:
    """Record `<kind>.<verb>` for one object, at `now` (ms)."""
    events.record(tx, number, at=now, type=f"{kind}.{verb}", object_type=OBJECT_TYPES[kind], root_id=root_id, user=user)


def insert_children(
    tx: Transaction, kind: Kind, new: Sequence[objects.NewObject], case: int, user: str, now: int
) -> None:
    """Add objects of one kind to the case with that number, each with its event."""
    objects.insert_all(tx, kind, new, parent_id=case)
    numbers = [item.id for item in new]
    events.record(tx, *numbers, at=now, type=f"{kind}.created", object_type=OBJECT_TYPES[kind], root_id=case, user=user)


def merge_tags(*lists: Iterable[str]) -> list[str]:
    """All tags, each once, in the order of their first appearance."""
    return list(dict.fromkeys(tag for tags in lists for tag in tags))


def merge_levels(*merged: Alert | Case) -> dict[str, int]:
    """The levels of all their tags: of one that several have the lowest."""
    each = ((tag, one.tag_levels.get(tag, 0)) for one in merged for tag in one.tags)
    lowest = dict(sorted(each, key=itemgetter(1), reverse=True))
    return {tag: level for tag, level in lowest.items() if level}


def check_growth(before: Alert | Case, after: Alert | Case, one_more: str = "") -> None:
    """Raises ResponderBotError("bad_request") if a change adds more tags, artifacts or custom fields than are kept.

    Or if it would with `one_more` of these.
    """
    for name, most in (("tags", MAX_TAGS), ("artifacts", MAX_ARTIFACTS), ("custom_fields", MAX_CUSTOM_FIELDS)):
        had, has = (len(getattr(item, name, ())) for item in (before, after))
        has += name == one_more
        if has > max(had, most):
            label = name.replace("_", " ")
            raise ResponderBotError(
                "bad_request", f"{after.id} would have {has} {label}; at most {most} are kept, so remove some first."
            )


def requested_changes(request: Input, to: Alert | Case | None = None) -> dict[str, Any]:
    """The fields that a request sets, by their names in core.models.

    Tags and custom fields that it adds to or removes from an alert or a case (`to`) are merged with what that has.
    """
    changed = {name: getattr(request, name) for name in request.model_fields_set}
    if changed.get("owner") == "":
        changed["owner"] = None
    if isinstance(request, FieldsUpdate) and to is not None:
        _merge_tags_into(changed, to)
        _merge_fields_into(changed, to)
    return changed


def _merge_tags_into(changed: dict[str, Any], to: Alert | Case) -> None:
    """Put all tags, with their levels, in place of those that are added and removed."""
    added, removed = changed.pop("add_tags", None) or [], frozenset(changed.pop("remove_tags", None) or [])
    if added or removed:
        changed["tags"] = [tag for tag in merge_tags(changed.get("tags", to.tags), added) if tag not in removed]
    if to.tag_levels and "tags" in changed:  # what somebody adds is theirs
        kept = {*changed["tags"]}.difference(added)
        changed["tag_levels"] = {tag: level for tag, level in to.tag_levels.items() if tag in kept}


def _merge_fields_into(changed: dict[str, Any], to: Alert | Case) -> None:
    """Put all custom fields, with their levels, in place of those that are named."""
    fields = changed.get("custom_fields")
    if fields is None:
        return
    kept = {name for name, field in fields.items() if field.items() <= to.custom_fields.get(name, {}).items()}
    if changed.pop("named_fields", False):
        kept, changed["custom_fields"] = {*to.custom_fields} - fields.keys(), _with_named(to.custom_fields, fields)
    changed["field_levels"] = {name: level for name, level in to.field_levels.items() if name in kept}


def _with_named(fields: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Custom fields with some of them changed; each keeps its `order`, a new one is the last."""
    orders = {name: fields[name]["order"] if name in fields else len(fields) + 1 for name in named}
    return {**fields, **{name: {**field, "order": orders[name]} for name, field in named.items()}}
