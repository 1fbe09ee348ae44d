"""The same operations under the words of public clients, so that they work unmodified (`semantics.md 9`)."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from core.api.wire import Endpoint

_PREFIX = "/api/connector/engine/"
_ENDINGS = ("Id", "JobId", "Ids")  # engineId, engineJobId, engineIds


def aliased(endpoints: Iterable[Endpoint], vendor: str) -> list[Endpoint]:
    """The endpoints that exist under another vendor's word too; none where there is no such word."""
    if not vendor or vendor == "engine":
        return []
    incoming, outgoing = _incoming(vendor), _outgoing(vendor)
    return [
        replace(endpoint, path=_path(endpoint.path, vendor), incoming=incoming, outgoing=outgoing)
        for endpoint in endpoints
        if endpoint.path.startswith(_PREFIX)
    ]


def _path(path: str, vendor: str) -> str:
    return f"/api/connector/{vendor}/{path.removeprefix(_PREFIX)}"


def _incoming(vendor: str) -> Callable[[Any], Any]:
    """Top-level keys of a body, in the interface's words."""
    names = {f"{vendor}{ending}": f"engine{ending}" for ending in _ENDINGS}

    def renamed(raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        return {names.get(key, key): value for key, value in raw.items()}

    return renamed


def _outgoing(vendor: str) -> Callable[[bytes], bytes]:
    """Keys of an answer, in the vendor's words.

    A key is told from text by its closing quote and colon: within a JSON string every quote has a backslash before
    it. So the stored JSON need not be parsed, and `report` and `operations`, which are strings, stay as they are.
    """
    keys = re.compile(rb'"engine(' + "|".join(_ENDINGS).encode() + rb')":')
    words = rb'"' + vendor.encode() + rb'\1":'
    return lambda body: keys.sub(words, body)
