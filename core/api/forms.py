"""Bodies that public clients send as forms, to put files beside the JSON (`semantics.md 9`).

The part `_json` is the body; any other part with a file name is a file. The JSON names a file by the part's name under
`attachment`, or has it there when the part itself is called so. A file becomes the text `name;type;content in base64`,
which is how JSON carries one.
"""

import base64
from collections.abc import Mapping
from email.message import Message
from typing import Any

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
    boundary = _header(content_type).get_param("boundary")
    if not isinstance(boundary, str) or not boundary:
        raise ResponderBotError("bad_request", "The form's Content-Type names no boundary; send JSON, or name it.")
    # The first boundary may stand at the very start; what is before it and after the last one is no part.
    pieces = (b"\r\n" + content).split(b"\r\n--" + boundary.encode())
    if len(pieces) < 2 or len(pieces) > MAX_PARTS or not pieces[-1].startswith(b"--"):
        raise ResponderBotError("bad_request", f"The body is no form of at most {MAX_PARTS - 2} parts; send it again.")
    text, files = b"{}", dict[str, list[str]]()
    for piece in pieces[1:-1]:
        head, _, value = piece.partition(b"\r\n\r\n")
        headers = _headers(head)
        name = headers["content-disposition"].get_param("name", header="content-disposition")
        if name == "_json":  # some clients give it a file name too
            text = value
        elif headers["content-disposition"].get_filename() is not None:
            files.setdefault(str(name), []).append(_text(headers, value))
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


def _headers(head: bytes) -> Mapping[str, Message]:
    lines = [line.partition(":") for line in head.decode("utf-8", "replace").split("\r\n") if ":" in line]
    found = {name.strip().lower(): _header(value.strip(), name.strip()) for name, _, value in lines}
    if "content-disposition" not in found:
        raise ResponderBotError("bad_request", "A part of the form has no Content-Disposition; send it with a name.")
    return found


def _header(value: str, name: str = "Content-Type") -> Message:
    header = Message()
    header[name] = value
    return header


def _text(headers: Mapping[str, Message], content: bytes) -> str:
    name = headers["content-disposition"].get_filename() or "file"
    kind = headers["content-type"].get_content_type() if "content-type" in headers else DEFAULT_TYPE
    return f"{name.replace(';', '_')};{kind};{base64.b64encode(content).decode()}"
