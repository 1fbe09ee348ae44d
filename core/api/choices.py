"""What there is to choose from: public clients ask it, so that people can pick (`semantics.md 9`).

Nothing here is defined beforehand: custom fields are those that the newest objects have.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from core.access import Access
from core.api import v1
from core.api.endpoint import Endpoint, Request, json_response
from core.common.database.sqlite import Database
from core.models import CUSTOM_FIELD_KINDS
from core.store import search as stored

NEWEST = 200
"""Of each kind of object, so many are looked at for custom fields."""
DATA_TYPES = (
    *("autonomous-system", "domain", "file", "filename", "fqdn", "hash", "hostname", "ip", "mail", "mail-subject"),
    *("other", "regexp", "registry", "uri_path", "url", "user-agent"),
)
"""Kinds of observables that public responders know; an artifact may be of any other too."""

ChoiceList = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]


def choice_lists(access: Access, database: Database) -> Mapping[str, ChoiceList]:
    """What each list is called in a query, and what is in it."""

    async def custom_fields() -> list[Mapping[str, Any]]:
        kinds = await stored.custom_fields(database, CUSTOM_FIELD_KINDS, NEWEST)
        return [_custom_field(name, kind) for name, kind in sorted(kinds.items())]

    async def users() -> list[Mapping[str, Any]]:
        active = [(row["login"], row["profile"]) for row in access.list_users() if not row["disabled"]]
        return [
            v1.to_v1({"_type": "user", "_id": login, "login": login, "name": login, "profile": profile})
            for login, profile in active
        ]

    return {
        "listCustomField": custom_fields,
        "listUser": users,
        "listObservableType": _always([_data_type(name) for name in DATA_TYPES]),
        "listAlertStatus": _always([_status("AlertStatus", *item) for item in v1.ALERT_STAGES.items()]),
        "listCaseStatus": _always([_status("CaseStatus", *item) for item in v1.CASE_STAGES.items()]),
    }


def endpoints(lists: Mapping[str, ChoiceList]) -> list[Endpoint]:
    """The addresses of some of these lists; the oldest are objects, whose values count."""

    async def custom_fields(_: Request) -> Response:
        return json_response(json.dumps(await lists["listCustomField"]()))

    async def custom_fields_by_name(_: Request) -> Response:
        return json_response(json.dumps({field["name"]: field for field in await lists["listCustomField"]()}))

    async def data_types(_: Request) -> Response:
        return json_response(json.dumps(await lists["listObservableType"]()))

    async def data_types_by_name(_: Request) -> Response:
        return json_response(json.dumps({name: name for name in DATA_TYPES}))

    handlers: Mapping[str, Callable[[Request], Awaitable[Response]]] = {
        "/api/customField": custom_fields,
        "/api/v1/customField": custom_fields,
        "/api/list/custom_fields": custom_fields_by_name,
        "/api/observable/type": data_types,
        "/api/v1/observable/type": data_types,
        "/api/list/list_artifactDataType": data_types_by_name,
    }
    return [Endpoint("GET", path, handler, "What there is to choose from") for path, handler in handlers.items()]


def _always(items: Sequence[Mapping[str, Any]]) -> ChoiceList:
    async def listing() -> Sequence[Mapping[str, Any]]:
        return items

    return listing


_NOBODY = {"_createdBy": "", "_createdAt": 0}


def _custom_field(name: str, kind: str) -> dict[str, Any]:
    return {
        "_id": name,
        "_type": "CustomField",
        **_NOBODY,
        "name": name,
        "reference": name,
        "displayName": name,
        "group": "default",
        "description": "",
        "type": kind,
        "options": [],
        "mandatory": False,
    }


def _data_type(name: str) -> dict[str, Any]:
    return {"_id": name, "_type": "ObservableType", **_NOBODY, "name": name, "isAttachment": name == "file"}


def _status(kind: str, value: str, stage: str) -> dict[str, Any]:
    return {"_id": value, "_type": kind, **_NOBODY, "value": value, "stage": stage, "hidden": False, "extraData": {}}
