"""Bodies that public clients send as forms, to put files beside the JSON (`semantics.md 9`).

The part `_json` is the body; any other part with a file name is a file. The JSON names a file by the part's name under
`attachment`, or has it there when the part itself is called so. A file becomes the text `name;type;content in base64`,
which is how JSON carries one.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from core.errors import ResponderBotError

KEY = "attachment"
MAX_PARTS = 100
DEFAULT_TYPE = "application/octet-stream"


def is_form(content_type: str) -> bool:
    return content_type.lower().startswith("multipart/form-data")


def split(content: bytes, content_type: str) -> tuple[bytes, dict[str, list[str]]]:
    """The JSON of a form, `{}` where there is none, and its files by the names of their parts.

    Raises ResponderBotError("bad_request").
    """
    boundary = _parameters(content_type).get("boundary")
    if not boundary:
        raise ResponderBotError("bad_request", "The form's Content-Type names no boundary; send JSON, or name it.")
    # The first boundary may stand at the very start; what is before it and after the last one is no part.
    pieces = (b"\r\n" + content).split(b"\r\n--" + boundary.encode())
    if len(pieces) < 2 or len(pieces) > MAX_PARTS or not pieces[-1].startswith(b"--"):
        raise ResponderBotError("bad_request", f"The body is no form of at most {MAX_PARTS - 2} parts; send it again.")
    text, files = b"{}", dict[str, list[str]]()
    for piece in pieces[1:-1]:
        head, _, value = piece.partition(b"\r\n\r\n")
        headers = _headers(head)
        part = _parameters(headers["content-disposition"])
        name = part.get("name", "")
        if name == "_json":  # some clients give it a file name too
            text = value
        elif "filename" in part:
            kind = headers.get("content-type", "").partition(";")[0].strip() or DEFAULT_TYPE
            files.setdefault(name, []).append(f"{_clean(part['filename'])};{kind};{base64.b64encode(value).decode()}")
    return text, files


def filled(raw: Any, files: Mapping[str, list[str]], *, takes_file: bool) -> Any:
    """The body with its files. Raises ResponderBotError("bad_request") for one that would be lost."""
    left = dict(files)
    body = _filled(raw, files, left)
    if takes_file and KEY in left and isinstance(body, dict):
        body = {**body, KEY: left.pop(KEY)}
    if left:
        names = ", ".join(sorted(left))
        raise ResponderBotError("bad_request", f"No file is kept here; send the request without {names}.")
    return body


def _filled(value: Any, files: Mapping[str, list[str]], left: dict[str, list[str]]) -> Any:
    if isinstance(value, list):
        return [_filled(item, files, left) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _named(item, files, left) if key == KEY else _filled(item, files, left) for key, item in value.items()}


def _named(value: Any, files: Mapping[str, list[str]], left: dict[str, list[str]]) -> Any:
    """The files that an `attachment` names."""
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name in files for name in names):
        return value
    for name in names:
        left.pop(name, None)
    return [text for name in names for text in files[name]]


def _headers(head: bytes) -> Mapping[str, str]:
    lines = [line.partition(":") for line in head.decode("utf-8", "replace").split("\r\n") if ":" in line]
    found = {name.strip().lower(): value.strip() for name, _, value in lines}
    if "content-disposition" not in found:
        raise ResponderBotError("bad_request", "A part of the form has no Content-Disposition; send it with a name.")
    return found


_PARAMETER = re.compile(r';\s*([\w-]+)(\*?)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;]*))', re.ASCII)


def _parameters(header: str) -> dict[str, str]:
    """Those of a header such as `form-data; name="a"`; `name*=utf-8''a` is its other form, and wins."""
    found: dict[str, str] = {}
    for name, encoded, quoted, plain in _PARAMETER.findall(header):
        value = re.sub(r"\\(.)", r"\1", quoted) or plain.strip()
        if encoded:
            found[name.lower()] = unquote(value.rpartition("'")[2])
        else:
            found.setdefault(name.lower(), value)
    return found


def _clean(file_name: str) -> str:
    """A name that can stand before a `;`."""
    return file_name.replace(";", "_") or "file"
