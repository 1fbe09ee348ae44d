"""The OpenAPI 3.1 document of core's interface, made from the endpoints and models, and a page that shows it."""

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from http import HTTPStatus
from inspect import cleandoc, getsource
from itertools import pairwise
from sys import modules
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema
from starlette.responses import Response

from core.api.http.endpoint import Endpoint, Request, json_response
from core.api.http.requests import has_required_fields
from core.common.errors import ERRORS
from core.models import KINDS, ApiModel, Input

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
        "tlp": {"type": "integer", "description": "of a 403 for a clearance: the object's level, 0 to 3"},
        "clearance": {"type": "integer", "description": "of the same 403: what the user may see in Slack, 0 to 3"},
        "permission": {"type": "string", "description": "of a 403 for a permission: the one that the user hasn't"},
        "action": {"type": "object", "description": "of a 409: the action that blocks the request, if one does"},
        "requestId": {"type": "string", "description": "identifies the request in the log"},
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
                    "value": {"description": "what was sent, truncated"},
                },
            },
        },
    },
}

_IN_PATH: Mapping[str, Mapping[str, Any]] = {
    "kind": {
        "schema": {"type": "string", "enum": list(KINDS)},
        "description": "the kind of object; the `objectType` of answers, such as `Alert`, works too",
    },
    "id": {"description": "the object's id, `~` and digits"},
    "extension": {"description": "the `id` of an action's `undo.extension`"},
    "fileId": {"description": "the `id` of an artifact's `attachment`: its SHA-256"},
    "caseId": {"description": "the case's id, `~` and digits"},
    "idOrName": {"description": "the id, `~` and digits, or the name"},
    "login": {"description": "a user's login, or its first part"},
    "name": {"description": "the name of a group, a responder or a source"},
    "team": {"description": "Slack's id of the workspace, such as T0123ABCD"},
    "user": {"description": "Slack's id of the person, such as U0123ABCD"},
}
"""Descriptions of path parameters; one without a schema is a string."""

_REQUEST_ID = {"X-Request-Id": {"schema": {"type": "string"}, "description": "identifies the request in the log"}}
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds until it may be tried again"}}
_LAST_EVENT = {
    "X-Last-Event": {"schema": {"type": "integer"}, "description": "an event at or after that of the change"}
}


def endpoints(described: Sequence[Endpoint], version: str) -> list[Endpoint]:
    """Routes of the document and its page; `described` are all other endpoints."""

    @cache
    def texts() -> tuple[str, str]:  # made on demand: it takes half as long as the rest of a start
        document = openapi_document(everything, version)
        return json.dumps(document, separators=(",", ":")), _page(document)

    async def openapi(request: Request) -> Response:
        return json_response(texts()[0])

    async def docs(request: Request) -> Response:
        return Response(texts()[1], 200, _PAGE_HEADERS, "text/html")

    own = [
        Endpoint(
            "GET", "/api/openapi.json", openapi, "Get the OpenAPI document", response=dict[str, Any], is_public=True
        ),
        Endpoint("GET", "/api/docs", docs, "Show the OpenAPI document as a page", response="text/html", is_public=True),
    ]
    everything = [*described, *own]
    return own


def openapi_document(described: Iterable[Endpoint], version: str) -> dict[str, Any]:
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
    name = re.sub(r"[^A-Za-z0-9]+", "_", endpoint.path.removeprefix("/api")).rstrip("_")
    operation: dict[str, Any] = {
        "operationId": endpoint.method.lower() + name,
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
    elif endpoint.reads_bytes:
        operation["requestBody"] = {"required": True, "content": {"*/*": {}}}
    return operation


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
            **_IN_PATH.get(name, {}),
        }
        for name in endpoint.parameters
    ]
    parameters += [_optional_parameter(name, "query", text) for name, text in endpoint.query.items()]
    parameters += [_optional_parameter(name, "header", text) for name, text in endpoint.request_headers.items()]
    if not endpoint.is_public:
        parameters.append(
            _optional_parameter("X-On-Behalf-Of", "header", "login of the user to act for (permission actOnBehalf)")
        )
        text = "with it: team, user and channel in Slack, such as T1:U1:C1, for the audit"
        parameters.append(_optional_parameter("X-Slack-Origin", "header", text))
    return parameters


def _optional_parameter(name: str, location: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": location, "required": False, "schema": {"type": "string"}, "description": description}


def _responses(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[int, dict[str, Any]]:
    headers = _REQUEST_ID if endpoint.method == "GET" else {**_REQUEST_ID, **_LAST_EVENT}
    success = {"description": "Success", "headers": headers, "content": _content(endpoint.response, schemas)}
    responses = {endpoint.status: success}
    for status in {*_ALWAYS, *(() if endpoint.is_public else _WITH_KEY), *endpoint.errors}:
        if status < 400:  # another success, such as a repeated Idempotency-Key
            responses[status] = {**success, "content": {}} if status == HTTPStatus.NOT_MODIFIED else success
            continue
        content = {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}}
        more = _RETRY_AFTER if status in (429, 503) else {}
        of_error = {**_REQUEST_ID, **more}
        responses[status] = {"description": HTTPStatus(status).phrase, "headers": of_error, "content": content}
    if endpoint.path == "/health":
        responses[503] = success
    return responses


def _content(shape: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if isinstance(shape, str):
        return {shape: {"schema": {"type": "string"}}}
    schema = {} if shape is None else _schema(shape, "serialization", schemas)
    return {"application/json": {"schema": schema}}


def _schema(shape: Any, mode: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema of a model or a type made of models; the schemas that it refers to are added to `schemas`."""
    schema = dict(_json_schema(shape, mode))
    definitions: dict[str, Any] = schema.pop("$defs", {})
    if isinstance(shape, type) and "title" in schema and "properties" in schema:
        definitions[schema["title"]] = schema
        schema = {"$ref": _REF.format(model=schema["title"])}
    for name, definition in definitions.items():
        schemas[name] = _with_nulls(definition) if name in _input_names(Input) else definition
    return schema


@cache  # a model is in many operations
def _json_schema(shape: Any, mode: Any) -> Mapping[str, Any]:
    return TypeAdapter(shape).json_schema(ref_template=_REF, schema_generator=_WithDocstrings, mode=mode)


class _WithDocstrings(GenerateJsonSchema):
    """Describes each field by the docstring below it. Pydantic would read these at each start."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        model = schema["cls"]
        for parent in reversed([parent for parent in model.__mro__ if issubclass(parent, ApiModel)]):
            for name, text in _docstrings(parent.__module__).get(parent.__name__, {}).items():
                described = found["properties"].get(model.model_fields[name].alias, {})
                unit = described.get("description")
                described["description"] = f"{text} ({unit})" if unit else text
        return found


@cache
def _docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """By class of a module, the docstrings of its fields."""
    found: dict[str, dict[str, str]] = {}
    classes = (node for node in ast.parse(getsource(modules[module])).body if isinstance(node, ast.ClassDef))
    for model in classes:
        for pair in pairwise(model.body):
            match pair:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found.setdefault(model.name, {})[name] = cleandoc(text)
    return found


def _input_names(model: type[Input]) -> Iterable[str]:
    for child in model.__subclasses__():
        yield child.__name__
        yield from _input_names(child)


def _with_nulls(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an input: null means absent, so every optional field may be null."""
    required = schema.get("required", ())
    properties = {
        name: item
        if name in required or any(choice.get("type") == "null" for choice in item.get("anyOf", ()))
        else _or_null(item)
        for name, item in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties}


def _or_null(item: Mapping[str, Any]) -> dict[str, Any]:
    annotations = {key: item[key] for key in ("title", "description", "default") if key in item}
    plain = {key: value for key, value in item.items() if key not in annotations}
    return {**annotations, "anyOf": [plain, {"type": "null"}]}


def _page(document: Mapping[str, Any]) -> str:
    """The document as HTML, without a script or a style."""
    operations = (
        (f"{method.upper()} {path}: {operation['summary']}", {k: v for k, v in operation.items() if k != "summary"})
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    parts = (*operations, *document["components"]["schemas"].items())
    texts = ((escape(title), escape(json.dumps(part, indent=1), quote=False)) for title, part in parts)
    shown = "\n".join(f"<details><summary>{title}</summary><pre>{text}</pre></details>" for title, text in texts)
    return _PAGE.format(version=escape(document["info"]["version"]), parts=shown)


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<title>responder-bot core</title>
<h1>responder-bot core {version}</h1>
<p>Send <code>Authorization: Bearer &lt;API key&gt;</code>. The OpenAPI document:
<a href="/api/openapi.json">/api/openapi.json</a>. Below are its operations, then its schemas.</p>
{parts}
</html>
"""
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
