"""Routes and shapes of version 1 of the interface, where they differ (core/docs/http-interface.md#version-1).

The routes are core's own under other paths. Objects have version 1's fields and no others, because strict clients
reject unknown and missing fields.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from core.api.http.endpoint import Endpoint, Request, json_response
from core.common.errors import ResponderBotError, bad_request
from core.field_types import CUSTOM_FIELD_KINDS, kind_of_value
from core.models import SEVERITY_NAMES, TLP_NAMES

_PATHS: Mapping[str, str] = {
    "/api/alert": "/api/v1/alert",
    "/api/alert/{id}": "/api/v1/alert/{id}",
    "/api/alert/_bulk": "/api/v1/alert/_bulk",
    "/api/alert/{id}/artifact": "/api/v1/alert/{id}/observable",
    "/api/alert/{id}/follow": "/api/v1/alert/{id}/follow",
    "/api/alert/{id}/unfollow": "/api/v1/alert/{id}/unfollow",
    "/api/alert/{id}/comment": "/api/v1/alert/{id}/comment",
    "/api/alert/{id}/createCase": "/api/v1/alert/{id}/case",
    "/api/alert/merge/_bulk": "/api/v1/alert/merge/_bulk",
    "/api/alert/{id}/merge/{caseId}": "/api/v1/alert/{id}/merge/{caseId}",
    "/api/case": "/api/v1/case",
    "/api/case/{id}": "/api/v1/case/{id}",
    "/api/case/{id}/task": "/api/v1/case/{id}/task",
    "/api/case/{id}/comment": "/api/v1/case/{id}/comment",
    "/api/case/{id}/artifact": "/api/v1/case/{id}/observable",
    "/api/case/task/{id}": "/api/v1/task/{id}",
    "/api/case/task/{id}/log": "/api/v1/task/{id}/log",
    "/api/case/task/log/{id}": "/api/v1/log/{id}",
    "/api/case/artifact/{id}": "/api/v1/observable/{id}",
    "/api/comment/{id}": "/api/v1/comment/{id}",
    "/api/case/template": "/api/v1/caseTemplate",
    "/api/case/template/{idOrName}": "/api/v1/caseTemplate/{idOrName}",
    "/api/user/current": "/api/v1/user/current",
    "/health": "/api/health",
}
THEHIVE_VERSION = "4.1.0"
"""A version that has both core's own routes and those of version 1."""
_CONNECTOR = "/api/connector/"
_LISTS = ("/api/alert", "/api/case")
"""Routes that version 1 doesn't have as a GET: it lists by queries only."""
_LIST_RESPONSES = ("/api/alert/{id}/artifact", "/api/case/{id}/artifact")
"""Routes that version 1 answers with a list, even of one object."""

_INPUT_FIELDS: Mapping[str, str] = {"observables": "artifacts", "assignee": "owner"}
_SEARCH_FIELDS: Mapping[str, Mapping[str, str]] = {
    "alert": {"caseId": "case", "newDate": "createdAt", "assignee": "assignee"},
    "case": {"number": "caseId", "newDate": "createdAt"},
    "case_task_log": {"date": "startDate"},
}
_SCALES: Mapping[str, Sequence[str]] = {"severity": SEVERITY_NAMES, "tlp": TLP_NAMES, "pap": TLP_NAMES}
_AUDIT_FIELDS = ("createdBy", "createdAt", "updatedBy", "updatedAt")
ALERT_STAGES: Mapping[str, str] = {"New": "New", "Updated": "New", "Ignored": "Closed", "Imported": "Imported"}
"""Version 1's stage for each status of an alert."""
CASE_STAGES: Mapping[str, str] = {
    "New": "New",
    "TruePositive": "Closed",
    "FalsePositive": "Closed",
    "Indeterminate": "Closed",
    "Other": "Closed",
    "Duplicated": "Closed",
    "Deleted": "Closed",
}
"""The stage for each status of a case in version 1, which has how it was resolved in it."""
_RESOLUTIONS = ("TruePositive", "FalsePositive", "Indeterminate")
_CORE_STATUSES: Mapping[str, Mapping[str, str]] = {
    "New": {"status": "Open"},
    **{name: {"status": "Resolved", "resolutionStatus": name} for name in (*_RESOLUTIONS, "Other")},
    "Duplicated": {"status": "Duplicate", "resolutionStatus": "Duplicated"},
    "Deleted": {"status": "Deleted"},
    **{name: {"status": name} for name in ("Open", "Resolved", "Duplicate")},  # in the first releases of version 1
}
"""Core's fields for each status of a case that clients send."""
_STATUS_FILTERS: Mapping[str, Mapping[str, Any]] = {
    "New": {"status": "Open"},
    **{name: {"_and": [{"status": "Resolved"}, {"resolutionStatus": name}]} for name in _RESOLUTIONS},
    "Other": {"status": "Resolved", "_not": {"_in": {"_field": "resolutionStatus", "_values": list(_RESOLUTIONS)}}},
    "Duplicated": {"status": "Duplicate"},
}
"""The criterion for each status whose name differs."""


def endpoints(table: Iterable[Endpoint]) -> list[Endpoint]:
    """Core's endpoints that version 1 has too, under its paths."""
    return [
        replace(
            endpoint,
            path=_PATHS[endpoint.path],
            translate_request=_translate_case if endpoint.path == "/api/case/{id}" else _translate_request,
            translate_response=_response_translator(endpoint),
        )
        for endpoint in table
        if endpoint.path in _PATHS and not (endpoint.method == "GET" and endpoint.path in _LISTS)
    ]


def connector_endpoints(table: Iterable[Endpoint]) -> list[Endpoint]:
    """The vendor's connector endpoints (alias.py) under version 1's prefix."""
    return [
        replace(
            endpoint,
            path=f"/api/v1/{endpoint.path.removeprefix('/api/')}",
            translate_response=_response_translator(endpoint),
        )
        for endpoint in table
        if endpoint.path.startswith(_CONNECTOR)
    ]


def status_endpoints() -> list[Endpoint]:
    """The routes that public clients call first, to learn which version they talk to."""

    async def get_status(_: Request) -> Response:
        return json_response(json.dumps({"versions": {"TheHive": THEHIVE_VERSION}}))

    paths = ("/api/status", "/api/v1/status", "/api/v1/status/public")
    return [
        Endpoint("GET", path, get_status, "Get the version of the interface", programs=("source",)) for path in paths
    ]


def search_field(kind: str, name: str) -> str:
    """Core's name of a field in a query of version 1."""
    bare = name.removeprefix("_")
    return bare if bare in _AUDIT_FIELDS else _SEARCH_FIELDS.get(kind, {}).get(name, _INPUT_FIELDS.get(name, name))


def to_v1(doc: Mapping[str, Any]) -> dict[str, Any]:
    """An object in the shape of version 1, without absent values. Other JSON stays as it is."""
    kind = doc.get("_type") or ("action" if "responderId" in doc else "")
    if kind not in _SHAPES:
        return dict(doc)
    name, fields, derive = _SHAPES[kind]
    shape = {"_id": doc["_id"]} | ({"_type": name} if name else {})
    prefix = "" if kind == "comment" else "_"
    shape |= {f"{prefix}{name}": doc[name] for name in _AUDIT_FIELDS if doc.get(name) is not None}
    shape |= {key: doc[key] for key in fields.split() if doc.get(key) is not None}
    shape |= {f"{label}Label": scale[shape[label]].upper() for label, scale in _SCALES.items() if label in shape}
    if "customFields" in doc:
        shape["customFields"] = [_custom_field(key, value) for key, value in doc["customFields"].items()]
    return shape | {key: value for key, value in derive(doc).items() if value is not None}


def _alert(doc: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "observableCount": len(doc["artifacts"]),
        "caseId": doc["case"],
        "stage": ALERT_STAGES[doc["status"]],
        "extraData": {},
        "newDate": doc["createdAt"],
        "timeToDetect": max(0, doc["createdAt"] - doc["date"]),
    }


def _case(doc: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "number": doc["caseId"],
        "assignee": doc["owner"],
        "status": (status := _case_status(doc)),
        "stage": CASE_STAGES[status],
        "access": {"_kind": "OrganisationAccessKind"},
        "extraData": {},
        "newDate": doc["createdAt"],
        "timeToDetect": 0,
    }


def _case_status(doc: Mapping[str, Any]) -> str:
    if doc["status"] == "Resolved":
        return next((name for name in _RESOLUTIONS if name == doc["resolutionStatus"]), "Other")
    return {"Open": "New", "Duplicate": "Duplicated"}.get(doc["status"], "Deleted")


def case_filter(criterion: Any) -> Any:
    """A criterion of cases with core's term for each status that it names."""
    if isinstance(criterion, list):
        return [case_filter(item) for item in criterion]
    if not isinstance(criterion, Mapping):
        return criterion
    if "_field" in criterion:
        is_status = criterion["_field"] == "status" and isinstance(criterion.get("_value"), str)
        return _has_status([criterion["_value"]]) if is_status else criterion
    parts = [_status_part(key, value) or {key: value} for key, value in criterion.items()]
    return parts[0] if len(parts) == 1 else {"_and": parts}


def _status_part(key: str, value: Any) -> dict[str, Any] | None:
    """One part of a criterion in core's terms; None if it isn't about a status."""
    match key, value:
        case (("_and" | "_or" | "_not"), _):
            return {key: case_filter(value)}
        case "status", str(status):
            return _has_status([status])
        case (("_eq" | "_ne"), ({"_field": "status", "_value": str(status)} | {"status": str(status)})):
            return {"_not": _has_status([status])} if key == "_ne" else _has_status([status])
        case "_in", {"_field": "status", "_values": [*statuses]}:
            return _has_status(statuses)
    return None


def _has_status(statuses: Iterable[Any]) -> dict[str, Any]:
    return {"_or": [_STATUS_FILTERS.get(str(status), {"status": status}) for status in statuses]}


def _task(doc: Mapping[str, Any]) -> dict[str, Any]:
    return {"assignee": doc.get("owner"), "mandatory": False, "extraData": {}}


def _log(doc: Mapping[str, Any]) -> dict[str, Any]:
    return {"date": doc["startDate"], "extraData": {}}


def _observable(doc: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "attachment": _attachment(doc),
        "pap": 2,
        "papLabel": TLP_NAMES[2].upper(),
        "extraData": {},
        "ignoreSimilarity": False,
        "external": False,
    }


def _attachment(doc: Mapping[str, Any]) -> dict[str, Any] | None:
    file = doc.get("attachment")
    if file is None:
        return None
    return {
        "_id": file["id"],
        "_type": "Attachment",
        "_createdBy": doc["createdBy"],
        "_createdAt": doc["createdAt"],
        **file,
        "path": "",
        "extraData": {},
        "external": False,
    }


def _template(doc: Mapping[str, Any]) -> dict[str, Any]:
    return {"tasks": [to_v1(task) for task in doc["tasks"]], "extraData": {}}


def _user(doc: Mapping[str, Any]) -> dict[str, Any]:
    """Creation of users is not recorded, so it has placeholders."""
    return {
        "_createdBy": doc["login"],
        "_createdAt": 0,
        "hasKey": True,
        "hasPassword": False,
        "hasMFA": False,
        "locked": False,
        "type": "Service" if doc["profile"] == "service" else "Normal",
        "extraData": {},
    }


_LEVELS = "tlp pap"
_SHAPES: Mapping[str, tuple[str, str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "alert": (
        "Alert",
        f"type source sourceRef externalLink title description severity date tags {_LEVELS} follow caseTemplate status"
        " assignee summary",
        _alert,
    ),
    "case": (
        "Case",
        f"title description severity startDate endDate tags flag {_LEVELS} status summary impactStatus",
        _case,
    ),
    "case_task": ("Task", "title group description status flag startDate endDate order dueDate", _task),
    "case_task_log": ("Log", "message owner", _log),
    "case_artifact": ("Observable", "dataType data startDate tlp tags ioc sighted message reports", _observable),
    "comment": ("Comment", "message isEdited", lambda _: {"extraData": {}, "external": False}),
    "caseTemplate": (
        "CaseTemplate",
        f"name displayName titlePrefix description severity tags flag {_LEVELS}",
        _template,
    ),
    "action": (
        "Action",
        "responderId responderName responderDefinition engineId engineJobId objectType objectId status startDate"
        " endDate operations report",
        lambda _: {},
    ),
    "user": ("", "login name profile permissions organisation", _user),
}
"""For each kind: its `_type` in version 1 (`""` for none), the fields both have, and the derived ones."""


def _custom_field(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    kind = next((kind for kind in CUSTOM_FIELD_KINDS if kind in value), "string")
    field = {"_id": value.get("_id", ""), "name": name, "type": kind, "order": value.get("order", 0)}
    return field if value.get(kind) is None else {**field, "value": value[kind]}


def _translate_case(raw: Any) -> Any:
    body = _translate_request(raw)
    if not isinstance(raw, Mapping) or not isinstance(status := raw.get("status"), str):
        return body
    if status not in _CORE_STATUSES:
        raise bad_request(f"A case has one of the statuses {', '.join(CASE_STAGES)}; choose one of them")
    return {**body, **_CORE_STATUSES[status]}


def _translate_request(raw: Any) -> Any:
    if not isinstance(raw, Mapping):
        return raw
    body = _rename_fields(raw)
    if "assignee" in raw:  # of an alert; all others have an owner
        body["assignee"] = raw["assignee"]
        body["owner"] = "" if raw["assignee"] is None else raw["assignee"]
    if isinstance(body.get("customFields"), list):
        body["customFields"] = dict(map(_input_field, body["customFields"]))
    if isinstance(body.get("tasks"), list):
        body["tasks"] = [_rename_fields(task) for task in body["tasks"]]
    if "caseTemplate" in body:
        body.setdefault("template", body["caseTemplate"])
    return body


def _rename_fields(raw: Any) -> Any:
    return {_INPUT_FIELDS.get(name, name): value for name, value in raw.items()} if isinstance(raw, Mapping) else raw


def _input_field(item: Any) -> tuple[str, Any]:
    if not isinstance(item, Mapping) or not isinstance(name := item.get("name"), str):
        sentence = 'Each entry of a list of custom fields must be {"name": ..., "value": ...}.'
        raise ResponderBotError("bad_request", sentence)
    value = item.get("value")
    return name, value if item.get("order") is None else {kind_of_value(value): value, "order": item["order"]}


def _response_translator(endpoint: Endpoint) -> Callable[[bytes], bytes]:
    """Gives responses the shape of version 1, then the field names that the endpoint already translates to."""
    rename, is_list = endpoint.translate_response, endpoint.path in _LIST_RESPONSES

    def translate(content: bytes) -> bytes:
        value = json.loads(content)
        if isinstance(value, list):
            shape: Any = [to_v1(item) for item in value]
        else:
            shape = [to_v1(value)] if is_list and "_id" in value else to_v1(value)
        text = json.dumps(shape, ensure_ascii=False, separators=(",", ":")).encode()
        return rename(text) if rename is not None else text

    return translate
