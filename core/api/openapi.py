"""The description of core's wire, made from the endpoints and the models: OpenAPI 3.1, and a page that shows it."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter
from starlette.responses import Response

from core.api.endpoint import Endpoint, Request, json_response
from core.api.errors import ERRORS
from core.api.requests import has_required_fields
from core.models import KINDS, Input

_REF = "#/components/schemas/{model}"
_ALWAYS = (400, 405, 413, 500, 503)
_WITH_KEY = (401, 403)

_ERROR_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "title": "Error",
    "required": ["type", "message"],
    "properties": {
        "type": {"type": "string", "enum": sorted({kind for _, kind in ERRORS.values()})},
        "message": {"type": "string", "description": "what happened, and what to do next"},
        "requestId": {"type": "string", "description": "leads to the log"},
        "errors": {
            "type": "array",
            "description": "one entry for each wrong field",
            "items": {
                "type": "object",
                "required": ["name", "type"],
                "properties": {
                    "name": {"type": "string", "description": "such as `tasks[0].title`"},
                    "type": {"type": "string", "enum": ["MissingAttributeError", "InvalidFormatAttributeError"]},
                    "format": {"type": "string", "description": "what was expected"},
                    "value": {"description": "what was sent, cut short"},
                },
            },
        },
    },
}

_IN_PATH: Mapping[str, Mapping[str, Any]] = {
    "kind": {
        "schema": {"type": "string", "enum": list(KINDS)},
        "description": "the kind of object; the words of answers, such as `Alert`, are taken too",
    },
    "id": {"description": "the object's id, `~` and digits"},
    "fileId": {"description": "the `id` of an artifact's `attachment`: its SHA-256"},
    "caseId": {"description": "the case's id, `~` and digits"},
    "idOrName": {"description": "the id, `~` and digits, or the name"},
    "team": {"description": "Slack's id of the workspace, such as T0123ABCD"},
    "user": {"description": "Slack's id of the person, such as U0123ABCD"},
}
"""What a part of an address is; where nothing else is said, a text."""

_REQUEST_ID = {"X-Request-Id": {"schema": {"type": "string"}, "description": "leads to the log"}}


def endpoints(described: Sequence[Endpoint], version: str) -> list[Endpoint]:
    """The two addresses of the description; `described` are all others."""

    @cache
    def text() -> str:  # made when somebody first asks: it takes half as long as all the rest of a start
        return json.dumps(openapi_document(everything, version), separators=(",", ":"))

    async def openapi(request: Request) -> Response:
        return json_response(text())

    async def docs(request: Request) -> Response:
        return Response(_PAGE, 200, {"Content-Security-Policy": _POLICY, "Referrer-Policy": "no-referrer"}, "text/html")

    own = [
        Endpoint(
            "GET", "/api/openapi.json", openapi, "Describe this interface", response=dict[str, Any], is_public=True
        ),
        Endpoint("GET", "/api/docs", docs, "Show this description as a page", response="text/html", is_public=True),
    ]
    everything = [*described, *own]
    return own


def openapi_document(described: Iterable[Endpoint], version: str) -> dict[str, Any]:
    """The OpenAPI document of some endpoints."""
    schemas: dict[str, Any] = {"Error": _ERROR_SCHEMA}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in described:
        operation = _operation(endpoint, schemas)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "responder-bot core", "version": version},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key."},
                "login": {"type": "http", "scheme": "basic", "description": "Login and API key."},
            },
        },
    }


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(endpoint),
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint),
        "responses": {str(status): item for status, item in sorted(_responses(endpoint, schemas).items())},
        "security": [] if endpoint.is_public else [{"key": []}, {"login": []}],
    }
    if endpoint.permission:
        either = f" or {endpoint.or_permission}" if endpoint.or_permission else ""
        operation["description"] = f"Needs the permission {endpoint.permission}{either}."
    if endpoint.body is not None:
        schema = _schema(endpoint.body, "validation", schemas)
        required = has_required_fields(endpoint.body)
        operation["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    return operation


def _operation_id(endpoint: Endpoint) -> str:
    return endpoint.method.lower() + re.sub(r"[^A-Za-z0-9]+", "_", endpoint.path.removeprefix("/api")).rstrip("_")


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    found = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
            **_IN_PATH.get(name, {}),
        }
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    found += [_optional(name, "query", text) for name, text in endpoint.query.items()]
    found += [_optional(name, "header", text) for name, text in endpoint.request_headers.items()]
    if not endpoint.is_public:
        found.append(_optional("X-On-Behalf-Of", "header", "login of the user to act for (permission actOnBehalf)"))
    return found


def _optional(name: str, place: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": False, "schema": {"type": "string"}, "description": text}


def _responses(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[int, dict[str, Any]]:
    success = {"description": "Success", "headers": _REQUEST_ID, "content": _content(endpoint.response, schemas)}
    found = {endpoint.status: success}
    for status in {*_ALWAYS, *(() if endpoint.is_public else _WITH_KEY), *endpoint.errors}:
        if status < 400:  # another success, such as a repeated request that started nothing
            found[status] = success
            continue
        content = {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}}
        found[status] = {"description": HTTPStatus(status).phrase, "headers": _REQUEST_ID, "content": content}
    if endpoint.path == "/health":
        found[503] = success
    return found


def _content(shape: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if isinstance(shape, str):
        return {shape: {"schema": {"type": "string"}}}
    schema = {} if shape is None else _schema(shape, "serialization", schemas)
    return {"application/json": {"schema": schema}}


def _schema(shape: Any, mode: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema of a model or of a type made of models; what it refers to goes to `schemas`."""
    schema = TypeAdapter(shape).json_schema(ref_template=_REF, mode=mode)
    parts: dict[str, Any] = schema.pop("$defs", {})
    if isinstance(shape, type) and "title" in schema and "properties" in schema:
        parts[schema["title"]] = schema
        schema = {"$ref": _REF.format(model=schema["title"])}
    for name, part in parts.items():
        schemas[name] = _nullable(part) if _is_input(name) else part
    return schema


def _is_input(name: str) -> bool:
    return any(model.__name__ == name for model in _subclasses(Input))


def _subclasses(model: type[Input]) -> Iterable[type[Input]]:
    for child in model.__subclasses__():
        yield child
        yield from _subclasses(child)


def _nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """In requests null means absent (`semantics.md 1`), so whatever may be absent may be null."""
    required = schema.get("required", ())
    properties = {
        name: item if name in required or _takes_null(item) else _or_null(item)
        for name, item in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties}


def _or_null(item: Mapping[str, Any]) -> dict[str, Any]:
    about = {key: item[key] for key in ("title", "description", "default") if key in item}
    plain = {key: value for key, value in item.items() if key not in about}
    return {**about, "anyOf": [plain, {"type": "null"}]}


def _takes_null(item: Mapping[str, Any]) -> bool:
    return any(choice.get("type") == "null" for choice in item.get("anyOf", ()))


# --- the page -------------------------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
details { border: 1px solid color-mix(in srgb, currentColor 25%, transparent); border-radius: 6px; margin: .5rem 0; }
summary { padding: .5rem .75rem; cursor: pointer; overflow-wrap: anywhere; }
summary b { display: inline-block; min-width: 4.5rem; font-family: ui-monospace, monospace; }
summary span { opacity: .75; margin-left: .75rem; }
pre { margin: 0; padding: .75rem; overflow: auto; max-height: 30rem; font-size: 13px; }
"""

# Foreign text cannot become markup here: every text is set as a text node.
_SCRIPT = """
const make = (tag, text, ...children) => {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
};
const show = (title, note, value, at) => {
  const summary = make("summary", "", ...title, make("span", note));
  at.append(make("details", "", summary, make("pre", JSON.stringify(value, null, 2))));
};
fetch("/api/openapi.json").then((answer) => answer.json()).then((api) => {
  document.getElementById("version").textContent = api.info.version;
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, operation] of Object.entries(methods))
      show([make("b", method.toUpperCase()), path], operation.summary, operation, document.getElementById("paths"));
  for (const [name, schema] of Object.entries(api.components.schemas))
    show([name], schema.description || "", schema, document.getElementById("schemas"));
}).catch((error) => { document.getElementById("version").textContent = "can't be read: " + error; });
"""

_PAGE = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>responder-bot core</title><style>{_STYLE}</style></head>
<body>
<h1>responder-bot core <small id="version"></small></h1>
<p>Send <code>Authorization: Bearer &lt;API key&gt;</code>. The whole description: <a href="/api/openapi.json">
/api/openapi.json</a>.</p>
<h2>Operations</h2><div id="paths"></div>
<h2>Words</h2><div id="schemas"></div>
<script>{_SCRIPT}</script>
</body></html>
"""


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


_POLICY = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
