"""What clients of the interface's version 1 send and get, where it differs from ours (`semantics.md 9`).

The addresses are ours under other names. An object is shown with version 1's fields and no others: strict clients
refuse an answer with a field that they don't know, or without one that they need. What version 1 has beyond these
objects is not here.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from core.api.endpoint import Endpoint, Request, json_response
from core.common.errors import ResponderBotError
from core.models import SEVERITY_NAMES, TLP_NAMES, kind_of_value

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
"""The version whose addresses these are: both its own, and those of version 1 of the interface."""
_CONNECTOR = "/api/connector/"
_LISTS = ("/api/alert", "/api/case")
"""What version 1 lists by queries only."""
_MANY = ("/api/alert/{id}/artifact", "/api/case/{id}/artifact")
"""What version 1 answers as a list, also where there is one."""

_SENT_AS: Mapping[str, str] = {"observables": "artifacts", "assignee": "owner"}
_SEARCHED_AS: Mapping[str, Mapping[str, str]] = {
    "alert": {"caseId": "case", "newDate": "createdAt"},
    "case": {"number": "caseId", "newDate": "createdAt"},
    "case_task_log": {"date": "startDate"},
}
_STAMPS = ("createdBy", "createdAt", "updatedBy", "updatedAt")
_KINDS_OF_VALUES = ("string", "integer", "float", "boolean", "date", "number")
ALERT_STAGES: Mapping[str, str] = {"New": "New", "Updated": "New", "Ignored": "Closed", "Imported": "Imported"}
CASE_STAGES: Mapping[str, str] = {
    "Open": "InProgress",
    "Resolved": "Closed",
    "Duplicate": "Closed",
    "Deleted": "Closed",
}
"""What version 1 makes of each status."""


def endpoints(table: Iterable[Endpoint]) -> list[Endpoint]:
    """The endpoints that version 1 has too."""
    return [
        replace(
            endpoint, path=_PATHS[endpoint.path], translate_request=_incoming, translate_response=_outgoing(endpoint)
        )
        for endpoint in table
        if endpoint.path in _PATHS and not (endpoint.method == "GET" and endpoint.path in _LISTS)
    ]


def connector_endpoints(table: Iterable[Endpoint]) -> list[Endpoint]:
    """The operations on responders, which version 1 has below its own prefix, in the words of public clients."""
    return [
        replace(endpoint, path=f"/api/v1/{endpoint.path.removeprefix('/api/')}", translate_response=_outgoing(endpoint))
        for endpoint in table
        if endpoint.path.startswith(_CONNECTOR)
    ]


def status_endpoints() -> list[Endpoint]:
    """What public clients ask first: which version they talk to, and so what they may ask."""

    async def answered(_: Request) -> Response:
        return json_response(json.dumps({"versions": {"TheHive": THEHIVE_VERSION}}))

    paths = ("/api/status", "/api/v1/status", "/api/v1/status/public")
    return [Endpoint("GET", path, answered, "Which version is spoken", allow_source_profile=True) for path in paths]


def search_field(kind: str, name: str) -> str:
    """Our name of a field that a query of version 1 names."""
    own = name.removeprefix("_")
    return own if own in _STAMPS else _SEARCHED_AS.get(kind, {}).get(name, _SENT_AS.get(name, name))


def to_v1(doc: Mapping[str, Any]) -> dict[str, Any]:
    """An object as version 1 shows it; what is absent is left out. What is no object of ours stays as it is."""
    kind = doc.get("_type") or ("action" if "responderId" in doc else "")
    if kind not in _SHAPES:
        return dict(doc)
    name, fields, more = _SHAPES[kind]
    shape = {"_id": doc["_id"]} | ({"_type": name} if name else {})
    mark = "" if kind == "comment" else "_"
    shape |= {f"{mark}{stamp}": doc[stamp] for stamp in _STAMPS if doc.get(stamp) is not None}
    shape |= {key: doc[key] for key in fields.split() if doc.get(key) is not None}
    for label, scale in (("severity", SEVERITY_NAMES), ("tlp", TLP_NAMES), ("pap", TLP_NAMES)):
        if label in shape:
            shape[f"{label}Label"] = scale[shape[label]].upper()
    if "customFields" in doc:
        shape["customFields"] = [_custom_field(key, value) for key, value in doc["customFields"].items()]
    return shape | {key: value for key, value in more(doc).items() if value is not None}


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
        "stage": CASE_STAGES[doc["status"]],
        "access": {"_kind": "OrganisationAccessKind"},
        "extraData": {},
        "newDate": doc["createdAt"],
        "timeToDetect": 0,
    }


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
    """When a user was made, and by whom, is not kept."""
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
        f"type source sourceRef externalLink title description severity date tags {_LEVELS} follow caseTemplate status",
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
"""For each kind its name in version 1, if it shows one, the fields that are ours too, and what is made of the rest."""


def _custom_field(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    kind = next((kind for kind in _KINDS_OF_VALUES if kind in value), "string")
    own = {"_id": value.get("_id", ""), "name": name, "type": kind, "order": value.get("order", 0)}
    return own if value.get(kind) is None else {**own, "value": value[kind]}


def _incoming(raw: Any) -> Any:
    if not isinstance(raw, Mapping):
        return raw
    body = _in_our_words(raw)
    if isinstance(body.get("customFields"), list):
        body["customFields"] = dict(map(_sent_field, body["customFields"]))
    if isinstance(body.get("tasks"), list):
        body["tasks"] = [_in_our_words(task) for task in body["tasks"]]
    if "caseTemplate" in body:
        body.setdefault("template", body["caseTemplate"])
    return body


def _in_our_words(raw: Any) -> Any:
    return {_SENT_AS.get(name, name): value for name, value in raw.items()} if isinstance(raw, Mapping) else raw


def _sent_field(item: Any) -> tuple[str, Any]:
    if not isinstance(item, Mapping) or not isinstance(name := item.get("name"), str):
        sentence = 'Each of a list of custom fields is {"name": ..., "value": ...}; send it so, or leave it out.'
        raise ResponderBotError("bad_request", sentence)
    value = item.get("value")
    return name, value if item.get("order") is None else {kind_of_value(value): value, "order": item["order"]}


def _outgoing(endpoint: Endpoint) -> Callable[[bytes], bytes]:
    """An answer in the shape of version 1, and then in the words that the endpoint had it in."""
    words, many = endpoint.translate_response, endpoint.path in _MANY

    def shaped(content: bytes) -> bytes:
        found = json.loads(content)
        if isinstance(found, list):
            shape: Any = [to_v1(item) for item in found]
        else:
            shape = [to_v1(found)] if many and "_id" in found else to_v1(found)
        text = json.dumps(shape, ensure_ascii=False, separators=(",", ":")).encode()
        return words(text) if words is not None else text

    return shaped
