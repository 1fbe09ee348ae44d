"""What clients of the interface's version 1 send and get, where it differs from ours (`semantics.md 9`).

The four operations have one form in both versions. Alerts, cases and what is in them differ in a few names, so these
addresses are ours under other names; what version 1 has beyond that is not here.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from core.api.wire import Endpoint

_PATHS: Mapping[str, str] = {
    "/api/alert": "/api/v1/alert",
    "/api/alert/{id}": "/api/v1/alert/{id}",
    "/api/alert/{id}/artifact": "/api/v1/alert/{id}/observable",
    "/api/alert/{id}/createCase": "/api/v1/alert/{id}/case",
    "/api/alert/{id}/merge/{caseId}": "/api/v1/alert/{id}/merge/{caseId}",
    "/api/case": "/api/v1/case",
    "/api/case/{id}": "/api/v1/case/{id}",
    "/api/case/{id}/task": "/api/v1/case/{id}/task",
    "/api/case/{id}/artifact": "/api/v1/case/{id}/observable",
    "/api/case/task/{id}": "/api/v1/task/{id}",
    "/api/case/task/{id}/log": "/api/v1/task/{id}/log",
    "/api/case/artifact/{id}": "/api/v1/observable/{id}",
    "/api/case/template": "/api/v1/caseTemplate",
    "/api/case/template/{idOrName}": "/api/v1/caseTemplate/{idOrName}",
    "/api/user/current": "/api/v1/user/current",
    "/health": "/api/health",
}
_TYPES: Mapping[str, str] = {
    "alert": "Alert",
    "case": "Case",
    "case_task": "Task",
    "case_task_log": "Log",
    "case_artifact": "Observable",
    "caseTemplate": "CaseTemplate",
}
_STAMPS = ("createdBy", "createdAt", "updatedBy", "updatedAt")
_SENT_AS: Mapping[str, str] = {"observables": "artifacts", "assignee": "owner"}
_KINDS_OF_VALUES = ("string", "integer", "float", "boolean", "date", "number")


def aliased(endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    """The endpoints that version 1 has too, but for lists, which it asks for in queries."""
    return [
        replace(endpoint, path=_PATHS[endpoint.path], incoming=_incoming, outgoing=_outgoing)
        for endpoint in endpoints
        if endpoint.path in _PATHS and not (endpoint.method == "GET" and endpoint.path in ("/api/alert", "/api/case"))
    ]


def field(name: str) -> str:
    """Our name of a field that a query of version 1 names."""
    own = name.removeprefix("_")
    return own if own in _STAMPS else _SENT_AS.get(name, name)


def shown(doc: Mapping[str, Any]) -> dict[str, Any]:
    """An object as version 1 shows it: our names stay, its own come on top, and what is absent is left out."""
    shape = {name: value for name, value in doc.items() if value is not None}
    shape |= {f"_{name}": shape[name] for name in _STAMPS if name in shape}
    kind = doc.get("_type", "")
    shape["_type"] = _TYPES.get(kind, "Action")
    if "owner" in shape:
        shape["assignee"] = shape["owner"]
    if kind == "case":
        shape["number"] = doc["caseId"]
    if kind == "alert":
        shape |= {"observableCount": len(doc["artifacts"])} | ({"caseId": doc["case"]} if doc["case"] else {})
    if isinstance(doc.get("customFields"), Mapping):
        shape["customFields"] = [_custom_field(name, value) for name, value in doc["customFields"].items()]
    return shape


def _custom_field(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    kind = next((kind for kind in _KINDS_OF_VALUES if kind in value), "string")
    own = {"_id": value.get("_id", ""), "name": name, "type": kind, "order": value.get("order", 0)}
    return own if value.get(kind) is None else {**own, "value": value[kind]}


def _incoming(raw: Any) -> Any:
    if not isinstance(raw, Mapping):
        return raw
    body = {_SENT_AS.get(name, name): value for name, value in raw.items()}
    if isinstance(body.get("customFields"), list):
        body["customFields"] = {
            item["name"]: item.get("value")
            for item in body["customFields"]
            if isinstance(item, Mapping) and isinstance(item.get("name"), str)
        }
    if "caseTemplate" in body:
        body.setdefault("template", body["caseTemplate"])
    return body


def _outgoing(content: bytes) -> bytes:
    answer = json.loads(content)
    if isinstance(answer, list):
        return _text([shown(item) for item in answer])
    return _text(shown(answer)) if "_id" in answer else content


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
