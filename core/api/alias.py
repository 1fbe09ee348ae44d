"""The same operations under the words of public clients, so that they work unmodified (`semantics.md 9`)."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from core.api.endpoint import Endpoint

_PREFIX = "/api/connector/engine/"
_ENDINGS = ("Id", "JobId", "Ids")  # engineId, engineJobId, engineIds
_FIELD_ERRORS = b'{"type":"AttributeCheckingError"'


def endpoints(table: Iterable[Endpoint], vendor: str) -> list[Endpoint]:
    """The endpoints that exist under another vendor's word too; none where there is no such word."""
    if not vendor or vendor == "engine":
        return []
    outgoing = _outgoing(vendor)
    return [
        replace(
            endpoint,
            path=_path(endpoint.path, vendor),
            translate_request=_incoming(endpoint, vendor),
            translate_response=outgoing,
        )
        for endpoint in table
        if endpoint.path.startswith(_PREFIX)
    ]


def _path(path: str, vendor: str) -> str:
    return f"/api/connector/{vendor}/{path.removeprefix(_PREFIX)}"


def _incoming(endpoint: Endpoint, vendor: str) -> Callable[[Any], Any]:
    """Turns a body into the interface's words: its keys, and of a search every field that it names."""
    names = {f"{vendor}{ending}": f"engine{ending}" for ending in _ENDINGS}

    def keys(raw: Any) -> Any:
        return {names.get(key, key): value for key, value in raw.items()} if isinstance(raw, Mapping) else raw

    def fields(raw: Any) -> Any:
        if isinstance(raw, list):
            return [fields(item) for item in raw]
        if not isinstance(raw, Mapping):
            return raw
        named = {"_field": names.get(str(raw["_field"]), raw["_field"])} if "_field" in raw else {}
        return {names.get(key, key): fields(value) for key, value in raw.items()} | named

    return fields if endpoint.path.endswith("/_search") else keys


def _outgoing(vendor: str) -> Callable[[bytes], bytes]:
    """Keys of an answer, in the vendor's words.

    A key is told from text by its closing quote and colon: within a JSON string every quote has a backslash before
    it. So the stored JSON need not be parsed, and `report` and `operations`, which are strings, stay as they are.
    Only the errors of fields name keys in their text.
    """
    endings = "|".join(_ENDINGS).encode()
    keys, words = re.compile(rb'"engine(' + endings + rb')":'), rb'"' + vendor.encode() + rb'\1":'
    named, names = re.compile(rb"\bengine(" + endings + rb")\b"), vendor.encode() + rb"\1"

    def renamed(body: bytes) -> bytes:
        return named.sub(names, body) if body.startswith(_FIELD_ERRORS) else keys.sub(words, body)

    return renamed
