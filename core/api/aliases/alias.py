"""The connector's routes with a vendor's field names, for public clients (core/docs/http-interface.md#vendor-alias)."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from core.api.http.endpoint import Endpoint

_PREFIX = "/api/connector/engine/"
_ENDINGS = ("Id", "JobId", "Ids")  # engineId, engineJobId, engineIds
_FIELD_ERRORS = b'{"type":"AttributeCheckingError"'


def endpoints(table: Iterable[Endpoint], vendor: str) -> list[Endpoint]:
    """The connector's endpoints under the vendor's path and with its field names; none if no vendor is set."""
    if not vendor or vendor == "engine":
        return []
    translate_response = _response_translator(vendor)
    return [
        replace(
            endpoint,
            path=f"/api/connector/{vendor}/{endpoint.path.removeprefix(_PREFIX)}",
            translate_request=_request_translator(endpoint, vendor),
            translate_response=translate_response,
        )
        for endpoint in table
        if endpoint.path.startswith(_PREFIX)
    ]


def _request_translator(endpoint: Endpoint, vendor: str) -> Callable[[Any], Any]:
    """Maps the vendor's field names in a body to core's: its keys, and in a search every field that it names."""
    names = {f"{vendor}{ending}": f"engine{ending}" for ending in _ENDINGS}

    def translate_keys(raw: Any) -> Any:
        return {names.get(key, key): value for key, value in raw.items()} if isinstance(raw, Mapping) else raw

    def translate_query(raw: Any) -> Any:
        if isinstance(raw, list):
            return [translate_query(item) for item in raw]
        if not isinstance(raw, Mapping):
            return raw
        named = {"_field": names.get(str(raw["_field"]), raw["_field"])} if "_field" in raw else {}
        return {names.get(key, key): translate_query(value) for key, value in raw.items()} | named

    return translate_query if endpoint.path.endswith("/_search") else translate_keys


def _response_translator(vendor: str) -> Callable[[bytes], bytes]:
    """Maps core's keys in a response body to the vendor's.

    `":` after a name marks a key, because quotes within JSON strings are escaped. So the stored JSON need not be
    parsed, and the strings `report` and `operations` stay as they are. Only field errors name keys in their texts.
    """
    endings = "|".join(_ENDINGS).encode()
    key, vendor_key = re.compile(rb'"engine(' + endings + rb')":'), rb'"' + vendor.encode() + rb'\1":'
    name, vendor_name = re.compile(rb"\bengine(" + endings + rb")\b"), vendor.encode() + rb"\1"

    def translate(body: bytes) -> bytes:
        return name.sub(vendor_name, body) if body.startswith(_FIELD_ERRORS) else key.sub(vendor_key, body)

    return translate
