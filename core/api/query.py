"""`POST /api/v1/query`, as public clients send it: where to begin, what is below that, filter, sort, page, count."""

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from starlette.responses import Response

from core.actions.service import Actions
from core.api import choices as choices_api
from core.api import v1
from core.api.endpoint import Endpoint, Request, json_response
from core.common.errors import ResponderBotError
from core.models import Kind, SearchInput
from core.records.alerts import Alerts
from core.records.case_templates import CaseTemplates
from core.records.cases import Cases
from core.records.comments import Comments
from core.records.search import Found, parse_range

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
_BELOW: Mapping[tuple[str, str], str] = {
    ("case", "tasks"): "case_task",
    ("case", "observables"): "case_artifact",
    ("case", "comments"): "comment",
    ("alert", "comments"): "comment",
    ("case_task", "logs"): "case_task_log",
}

_LINKED: Mapping[str, tuple[str, str]] = {"alerts": ("alert", "case"), "actions": ("action", "objectId")}
"""What names the object that a query began with, and in which field."""
_NEVER = frozenset(["procedures", "attachments", "similarAlerts", "similarCases"])
"""What is not kept here, so that an object has none."""

Search = Callable[[SearchInput], Coroutine[Any, Any, Found]]
Get = Callable[[str], str]
"""The JSON of an object by its id or name; raises ResponderBotError("not_found")."""


@dataclass(frozen=True)
class Chain:
    """What the steps of a query ask for."""

    kind: str
    criteria: Sequence[Mapping[str, Any]] = ()
    sort: Sequence[str] = ()
    range: str = "all"
    counted: bool = False
    words: Mapping[str, str] = field(default_factory=dict)
    """What the client calls `engineId` and the like."""
    of: "Chain | None" = None
    """The alerts whose parts these are: an alert's observables are kept in it."""
    is_choice: bool = False
    """Whether these are what there is to choose from, and no objects."""

    def step(self, step: Mapping[str, Any]) -> "Chain":
        """With one more step. Raises ResponderBotError("bad_request")."""
        match step:
            case {"_name": "filter"} if self.of is not None or self.is_choice:
                raise _bad("Only objects can be filtered; leave `filter` out and pick from the answer")
            case {"_name": "filter"}:
                criterion = {key: value for key, value in step.items() if key != "_name"}
                return replace(self, criteria=[*self.criteria, self._in_our_words(criterion)])
            case {"_name": "sort", "_fields": list(fields)}:
                return replace(self, sort=[*self.sort, *(self._sort(item) for item in fields)])
            case {"_name": "page", "from": int(start), "to": int(end)}:
                return replace(self, range=f"{start}-{end}")
            case {"_name": "count"}:
                return replace(self, counted=True)
            case {"_name": str(name)} if name in _NEVER and not self.is_choice:
                return Chain(self.kind, [{"_not": {"_any": ""}}], words=self.words)
            case {"_name": str(name)} if name in _LINKED and self.id:
                kind, link = _LINKED[name]
                return Chain(kind, [{link: self.id}], words=self.words)
            case {"_name": "observables"} if self.kind == "alert":
                return Chain("case_artifact", words=self.words, of=self)
            case {"_name": str(name)} if (self.kind, name) in _BELOW:
                above = {"_parent": {"_type": self.kind, "_query": {"_and": list(self.criteria)}}}
                return Chain(_BELOW[self.kind, name], [above], words=self.words)
        raise _bad(f"{_shown(step)} is no step that can follow here")

    @property
    def id(self) -> str:
        """That of the object that the query began with, where it goes no further."""
        match self.criteria:
            case [{"_id": str(object_id)}]:
                return object_id
        return ""

    def asked(self) -> SearchInput:
        """The same question to our own search."""
        return SearchInput(query={"_and": list(self.criteria)}, sort=list(self.sort), range=self.range)

    def _sort(self, item: Any) -> str:
        match item:
            case dict() if len(item) == 1:
                name, way = next(iter(item.items()))
                return f"{'-' if way == 'desc' else ''}{self._field(name)}"
        raise _bad(f'{_shown(item)} is no field to sort by; one is {{"title": "asc"}}')

    def _field(self, name: str) -> str:
        return self.words.get(name, v1.search_field(self.kind, name))

    def _in_our_words(self, value: Any) -> Any:
        """A criterion with our names of fields; how deep it may be is for the search to say."""
        if isinstance(value, list):
            return [self._in_our_words(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        renamed = {self._field(key): self._in_our_words(item) for key, item in value.items()}
        if isinstance(name := value.get("_field"), str):
            renamed["_field"] = self._field(name)
        return renamed


def endpoints(
    alerts: Alerts,
    cases: Cases,
    comments: Comments,
    templates: CaseTemplates,
    actions: Actions,
    vendor: str,
    choices: Mapping[str, choices_api.ChoiceList],
) -> list[Endpoint]:
    """The one address. `vendor` is the word that its clients have for an engine (alias.py)."""
    in_cases: tuple[Kind, ...] = ("case", "case_task", "case_task_log", "case_artifact")
    searches: dict[str, Search] = {kind: partial(cases.search, kind) for kind in in_cases}
    searches |= {
        "comment": comments.search,
        "alert": alerts.search,
        "case_template": templates.search,
        "action": actions.search,
    }
    gets: dict[str, Get] = {
        "alert": alerts.json,
        "comment": comments.json,
        "case": cases.json_case,
        "case_task": cases.json_task,
        "case_task_log": cases.json_log,
        "case_artifact": cases.json_artifact,
        "case_template": templates.json,
        "action": actions.get_json,
    }
    words = {f"{vendor}{ending}": f"engine{ending}" for ending in ("Id", "JobId")} if vendor else {}

    async def parts(alerts_asked: Chain) -> list[Mapping[str, Any]]:
        docs = (await alerts.search(alerts_asked.asked())).docs
        return await asyncio.to_thread(lambda: [artifact for doc in docs for artifact in json.loads(doc)["artifacts"]])

    async def found_by(chain: Chain) -> Found:
        if chain.of is None and not chain.is_choice:
            return await searches[chain.kind](chain.asked())
        found = list(await (choices[chain.kind]() if chain.of is None else parts(chain.of)))
        return await asyncio.to_thread(part_of, chain, found)

    def part_of(chain: Chain, found: list[Mapping[str, Any]]) -> Found:
        for name in reversed(chain.sort):
            found.sort(key=partial(_text_of, name.removeprefix("-")), reverse=name.startswith("-"))
        window = parse_range(chain.range)
        end = None if window.limit is None else window.offset + window.limit
        return Found([json.dumps(item) for item in found[window.offset : end]], len(found))

    async def query(request: Request) -> Response:
        chain = _begun(request.raw, gets, words, choices)
        found = await request.run_search(found_by(replace(chain, range="0-0") if chain.counted else chain))
        if chain.counted:
            return json_response(str(found.total))
        theirs = {own: name for name, own in words.items()} if chain.kind == "action" else {}

        def shown(doc: str) -> str:  # one by one, so that the loop has its turn in between
            item = v1.to_v1(json.loads(doc))
            return json.dumps({theirs.get(key, key): value for key, value in item.items()}, ensure_ascii=False)

        def text() -> str:
            return "[" + ",".join(map(shown, found.docs)) + "]"

        return json_response(await asyncio.to_thread(text), headers={"X-Total": str(found.total)})

    return [Endpoint("POST", PATH, query, "Ask as version 1 does", errors=(404,))]


def _begun(raw: Any, gets: Mapping[str, Get], words: Mapping[str, str], choices: Collection[str]) -> Chain:
    match raw:
        case {"query": [dict(first), *rest]} if len(rest) < MAX_STEPS:
            chain = _first(first, gets, words, choices)
            for step in rest:
                chain = chain.step(step)
            return chain
    raise _bad(f'A query is {{"query": [step, ...]}}, of at most {MAX_STEPS} steps')


def _first(
    step: Mapping[str, Any], gets: Mapping[str, Get], words: Mapping[str, str], choices: Collection[str]
) -> Chain:
    match step:
        case {"_name": str(name)} if name in choices:
            return Chain(name, is_choice=True)
        case {"_name": str(name)} if name in _LISTS:
            return Chain(_LISTS[name], words=words)
        case {"_name": str(name), "idOrName": str(wanted)} if name in _GETS:
            found = json.loads(gets[_GETS[name]](wanted))
            return Chain(_GETS[name], [{"_id": found["id"]}], words=words)
    raise _bad(f"{_shown(step)} is no step to begin with; there are {', '.join([*_LISTS, *_GETS, *choices])}")


def _text_of(name: str, item: Mapping[str, Any]) -> str:
    return str(item.get(name))


def _shown(value: Any) -> str:
    return repr(value)[:100]


def _bad(sentence: str) -> ResponderBotError:
    return ResponderBotError("bad_request", f"{sentence}.")
