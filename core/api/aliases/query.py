"""The route `POST /api/v1/query`: a list of steps such as `listAlert`, `filter`, `sort`, `page`, `count`."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from starlette.responses import Response

from core.actions.service import Actions
from core.api.aliases import v1
from core.api.http.endpoint import Endpoint, Request, SearchFunction, json_response
from core.common.database import Database
from core.common.errors import bad_request
from core.field_types import CUSTOM_FIELD_KINDS
from core.models import Kind, SearchInput
from core.people import People
from core.records import artifacts
from core.records.alerts import Alerts
from core.records.cases import Cases, CaseTemplates
from core.records.comments import Comments
from core.records.search import SearchResult, parse_range
from core.store import search as stored

PATH = "/api/v1/query"
MAX_STEPS = 20

_KINDS: Mapping[str, str] = {
    "Alert": "alert",
    "Case": "case",
    "Task": "case_task",
    "Log": "case_task_log",
    "Observable": "case_artifact",
    "CaseTemplate": "case_template",
    "Comment": "comment",
    "Action": "action",
}
_LISTS: Mapping[str, str] = {f"list{name}": kind for name, kind in _KINDS.items()}
_GETS: Mapping[str, str] = {f"get{name}": kind for name, kind in _KINDS.items()}
_CHILDREN: Mapping[tuple[str, str], str] = {
    ("case", "tasks"): "case_task",
    ("case", "observables"): "case_artifact",
    ("case", "comments"): "comment",
    ("alert", "comments"): "comment",
    ("case_task", "logs"): "case_task_log",
}

_REFERENCES: Mapping[str, tuple[str, str]] = {"alerts": ("alert", "case"), "actions": ("action", "objectId")}
"""Steps to what refers to the query's object: its kind, and the field with the object's id."""
_ALWAYS_EMPTY = frozenset(["procedures", "attachments", "similarAlerts", "similarCases"])
"""Steps to what core doesn't keep."""


Get = Callable[[str], Awaitable[str]]
"""The JSON of an object by its id or name; raises ResponderBotError("not_found")."""
ChoiceList = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]


@dataclass(frozen=True)
class Query:
    """The state of a query after some of its steps."""

    kind: str
    criteria: Sequence[Mapping[str, Any]] = ()
    sort: Sequence[str] = ()
    range: str = "all"
    is_count: bool = False
    field_names: Mapping[str, str] = field(default_factory=dict)
    """Core's names of the vendor's fields, such as `engineId`."""
    parents: "Query | None" = None
    """The alerts whose observables the query is about; no other search finds these."""
    is_choice: bool = False
    """Whether `kind` names a list to choose from (below) instead of objects."""

    def step(self, step: Mapping[str, Any]) -> "Query":
        """The query with one more step. Raises ResponderBotError("bad_request")."""
        match step:
            case {"_name": "filter"}:
                return replace(self, criteria=[*self.criteria, self._criterion(step)])
            case {"_name": "sort", "_fields": list(fields)}:
                return replace(self, sort=[*self.sort, *(self._sort(item) for item in fields)])
            case {"_name": "page", "from": int(start), "to": int(end)}:
                return replace(self, range=f"{start}-{end}")
            case {"_name": "count"}:
                return replace(self, is_count=True)
            case {"_name": str(name)} if name in _ALWAYS_EMPTY and not self.is_choice:
                return Query(self.kind, [{"_not": {"_any": ""}}], field_names=self.field_names)
            case {"_name": str(name)} if name in _REFERENCES and self.id:
                kind, link = _REFERENCES[name]
                return Query(kind, [{link: self.id}], field_names=self.field_names)
            case {"_name": "observables"} if self.kind == "alert":
                return Query("case_artifact", field_names=self.field_names, parents=self)
            case {"_name": str(name)} if (self.kind, name) in _CHILDREN:
                parent = {"_parent": {"_type": self.kind, "_query": {"_and": list(self.criteria)}}}
                return Query(_CHILDREN[self.kind, name], [parent], field_names=self.field_names)
        raise bad_request(f"{_excerpt(step)} can't follow here")

    @property
    def id(self) -> str:
        """The id of the query's only object, `""` if it isn't one object."""
        match self.criteria:
            case [{"_id": str(object_id)}]:
                return object_id
        return ""

    def to_search(self) -> SearchInput:
        """The query as a body of `_search`."""
        return SearchInput(query={"_and": list(self.criteria)}, sort=list(self.sort), range=self.range)

    def _criterion(self, step: Mapping[str, Any]) -> Any:
        """The criterion of a step `filter`, in core's terms."""
        if self.is_choice:
            raise bad_request("Only objects can be filtered; leave out `filter`")
        criterion: Any = {key: value for key, value in step.items() if key != "_name"}
        return self._rename_fields(v1.case_filter(criterion) if self.kind == "case" else criterion)

    def _sort(self, item: Any) -> str:
        match item:
            case dict() if len(item) == 1:
                name, direction = next(iter(item.items()))
                return f"{'-' if direction == 'desc' else ''}{self._field(name)}"
        raise bad_request(f'{_excerpt(item)} is not a field to sort by, such as {{"title": "asc"}}')

    def _field(self, name: str) -> str:
        return self.field_names.get(name, v1.search_field(self.kind, name))

    def _rename_fields(self, value: Any) -> Any:
        """A criterion with core's names of fields; the search itself limits its depth."""
        if isinstance(value, list):
            return [self._rename_fields(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        renamed = {self._field(key): self._rename_fields(item) for key, item in value.items()}
        for key in ("_field", "_contains", "_has"):
            if isinstance(name := value.get(key), str):
                renamed[key] = self._field(name)
        return renamed


def endpoints(
    alerts: Alerts,
    cases: Cases,
    comments: Comments,
    templates: CaseTemplates,
    actions: Actions,
    people: People,
    database: Database,
    vendor: str,
) -> list[Endpoint]:
    """The route, and those of lists. `vendor` is the name of an engine in clients' field names (alias.py)."""
    choices = _choice_lists(people, database)
    in_cases: tuple[Kind, ...] = ("case", "case_task", "case_task_log", "case_artifact")
    gets: dict[str, Get] = {
        "alert": alerts.get_json,
        "comment": comments.get_json,
        **{kind: partial(cases.get_json, kind) for kind in in_cases},
        "case_template": templates.get_json,
        "action": actions.get_json,
    }
    searches: dict[str, SearchFunction] = {kind: partial(cases.search, kind) for kind in gets}
    searches["action"] = actions.search
    field_names = {f"{vendor}{ending}": f"engine{ending}" for ending in ("Id", "JobId")} if vendor else {}

    async def run(query: Query) -> SearchResult:
        if query.kind == artifacts.KIND and query.id:  # an artifact may be in an alert, where no search finds it
            return _window_of(query, [json.loads(await gets[query.kind](query.id))])
        if query.parents is not None:
            return await alerts.search_artifacts(query.parents.to_search(), query.to_search())
        if query.is_choice:
            return _window_of(query, list(await choices[query.kind]()))
        return await searches[query.kind](query.to_search())

    async def handle(request: Request) -> Response:
        query = await _parse(request.raw, gets, field_names, choices)
        result = await request.run_search(run(replace(query, range="0-0") if query.is_count else query))
        if query.is_count:
            return json_response(str(result.total))
        vendor_names = {own: name for name, own in field_names.items()} if query.kind == "action" else {}

        def translate(doc: str) -> str:  # one at a time, so that other threads get their turn
            item = v1.to_v1(json.loads(doc))
            return json.dumps({vendor_names.get(key, key): value for key, value in item.items()}, ensure_ascii=False)

        def text() -> str:
            return "[" + ",".join(map(translate, result.docs)) + "]"

        return json_response(await asyncio.to_thread(text), headers={"X-Total": str(result.total)})

    return [*_list_endpoints(choices), Endpoint("POST", PATH, handle, "Run a query of version 1", errors=(404,))]


async def _parse(raw: Any, gets: Mapping[str, Get], field_names: Mapping[str, str], choices: Collection[str]) -> Query:
    match raw:
        case {"query": [dict(first), *rest]} if len(rest) < MAX_STEPS:
            query = await _first_step(first, gets, field_names, choices)
            for step in rest:
                query = query.step(step)
            return query
    raise bad_request(f'A query must be {{"query": [step, ...]}} with at most {MAX_STEPS} steps')


async def _first_step(
    step: Mapping[str, Any], gets: Mapping[str, Get], field_names: Mapping[str, str], choices: Collection[str]
) -> Query:
    match step:
        case {"_name": str(name)} if name in choices:
            return Query(name, is_choice=True)
        case {"_name": str(name)} if name in _LISTS:
            return Query(_LISTS[name], field_names=field_names)
        case {"_name": str(name), "idOrName": str(wanted)} if name in _GETS:
            found = json.loads(await gets[_GETS[name]](wanted))
            return Query(_GETS[name], [{"_id": found["id"]}], field_names=field_names)
    raise bad_request(
        f"{_excerpt(step)} can't be the first step; that is one of {', '.join([*_LISTS, *_GETS, *choices])}"
    )


def _window_of(query: Query, items: list[Mapping[str, Any]]) -> SearchResult:
    """What a query selects of these, sorted."""
    for name in reversed(query.sort):
        items.sort(key=partial(_text_of, name.removeprefix("-")), reverse=name.startswith("-"))
    window = parse_range(query.range)
    end = None if window.limit is None else window.offset + window.limit
    return SearchResult([json.dumps(item) for item in items[window.offset : end]], len(items))


def _text_of(name: str, item: Mapping[str, Any]) -> str:
    return str(item.get(name))


def _excerpt(value: Any) -> str:
    return repr(value)[:100]


# --- lists that public clients offer to choose from, such as custom fields, users and statuses ------------------------

# Core has no definitions of custom fields; the list has those of the newest objects.

NEWEST = 200
"""How many objects of each kind are searched for custom fields."""
DATA_TYPES = (
    *("autonomous-system", "domain", "file", "filename", "fqdn", "hash", "hostname", "ip", "mail", "mail-subject"),
    *("other", "regexp", "registry", "uri_path", "url", "user-agent"),
)
"""Data types that public responders know; an artifact may have any other too."""


def _choice_lists(people: People, database: Database) -> Mapping[str, ChoiceList]:
    """Each list by its name in a query of version 1."""

    async def custom_fields() -> list[Mapping[str, Any]]:
        kinds = await stored.custom_fields(database, CUSTOM_FIELD_KINDS, NEWEST)
        return [_custom_field(name, kind) for name, kind in sorted(kinds.items())]

    async def users() -> list[Mapping[str, Any]]:
        active = [(user.login, user.profile) for user in await people.all() if not user.disabled]
        return [
            v1.to_v1({"_type": "user", "_id": login, "login": login, "name": login, "profile": profile})
            for login, profile in active
        ]

    data_types = [
        {"_id": name, "_type": "ObservableType", **_NO_CREATOR, "name": name, "isAttachment": name == "file"}
        for name in DATA_TYPES
    ]
    return {
        "listCustomField": custom_fields,
        "listUser": users,
        "listObservableType": _fixed(data_types),
        "listAlertStatus": _fixed([_status("AlertStatus", *item) for item in v1.ALERT_STAGES.items()]),
        "listCaseStatus": _fixed([_status("CaseStatus", *item) for item in v1.CASE_STAGES.items()]),
    }


def _list_endpoints(lists: Mapping[str, ChoiceList]) -> list[Endpoint]:
    """Routes of these lists."""

    async def answer(name: str, _: Request) -> Response:
        return json_response(json.dumps(await lists[name]()))

    return [
        Endpoint("GET", f"{prefix}/{path}", partial(answer, name), "List values to choose from")
        for path, name in (("customField", "listCustomField"), ("observable/type", "listObservableType"))
        for prefix in ("/api", "/api/v1")
    ]


def _fixed(items: Sequence[Mapping[str, Any]]) -> ChoiceList:
    async def listing() -> Sequence[Mapping[str, Any]]:
        return items

    return listing


_NO_CREATOR = {"_createdBy": "", "_createdAt": 0}


def _custom_field(name: str, kind: str) -> dict[str, Any]:
    return {
        "_id": name,
        "_type": "CustomField",
        **_NO_CREATOR,
        "name": name,
        "reference": name,
        "displayName": name,
        "group": "default",
        "description": "",
        "type": kind,
        "options": [],
        "mandatory": False,
    }


def _status(kind: str, value: str, stage: str) -> dict[str, Any]:
    return {
        "_id": value,
        "_type": kind,
        **_NO_CREATOR,
        "value": value,
        "stage": stage,
        "hidden": False,
        "extraData": {},
    }
