"""Lists that public clients offer to choose from, such as custom fields, users and statuses.

Core has no definitions of custom fields; the list has those of the newest objects.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.responses import Response

from core.api.aliases import v1
from core.api.http.endpoint import Endpoint, Request, json_response
from core.common.database import Database
from core.field_types import CUSTOM_FIELD_KINDS
from core.people import People
from core.store import search as stored

NEWEST = 200
"""How many objects of each kind are searched for custom fields."""
DATA_TYPES = (
    *("autonomous-system", "domain", "file", "filename", "fqdn", "hash", "hostname", "ip", "mail", "mail-subject"),
    *("other", "regexp", "registry", "uri_path", "url", "user-agent"),
)
"""Data types that public responders know; an artifact may have any other too."""

ChoiceList = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]


def choice_lists(people: People, database: Database) -> Mapping[str, ChoiceList]:
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


def endpoints(lists: Mapping[str, ChoiceList]) -> list[Endpoint]:
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
