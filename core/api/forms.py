"""Bodies that public clients send as forms, to put files beside the JSON (`semantics.md 9`).

The part `_json` is the body; any other part with a file name is a file. The JSON names a file by the part's name under
`attachment`, or has it there when the part itself is called so. A file becomes the text `name;type;content in base64`,
which is how JSON carries one.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from core.common.errors import ResponderBotError

BODY = "_json"
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
    text: bytes | None = None
    files: dict[str, list[str]] = {}
    for piece in pieces[1:-1]:
        head, _, value = piece.partition(b"\r\n\r\n")
        headers = _headers(head)
        part = _parameters(headers["content-disposition"])
        name = part.get("name", "")
        if name == BODY and text is None:  # some clients give it a file name too
            text = value
        elif "filename" in part:
            kind = headers.get("content-type", "").partition(";")[0].strip() or DEFAULT_TYPE
            files.setdefault(name, []).append(f"{_clean(part['filename'])};{kind};{base64.b64encode(value).decode()}")
        else:
            sentence = f"The form's part {name or 'without a name'} is not read; put what it says into one {BODY}."
            raise ResponderBotError("bad_request", sentence)
    return b"{}" if text is None else text, files


def filled(raw: Any, files: Mapping[str, list[str]], *, takes_file: bool, limit_bytes: int) -> Any:
    """The body with its files.

    Raises ResponderBotError("bad_request") for a file that would be lost, "too_large" where they are named so often
    that their copies are over the limit.
    """
    kept = _Files(files, limit_bytes)
    body = kept.filled(raw)
    if takes_file and KEY in files and KEY not in kept.named and isinstance(body, dict):
        body = {**body, KEY: kept.texts([KEY])}
    if lost := sorted(files.keys() - kept.named):
        raise ResponderBotError("bad_request", f"No file is kept here; send the request without {', '.join(lost)}.")
    return body


class _Files:
    """The files of a form, and which of them the JSON has named so far."""

    def __init__(self, files: Mapping[str, list[str]], limit_bytes: int) -> None:
        self.named: set[str] = set()
        self._files = files
        self._limit_bytes = limit_bytes
        self._left = 2 * limit_bytes  # each once takes 4/3 of the limit at most, in base64

    def filled(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {key: self._attached(item) if key == KEY else self.filled(item) for key, item in value.items()}

    def texts(self, names: Sequence[str]) -> list[str]:
        """Those of these names, a name for each time that they are to be kept."""
        self._left -= sum(len(text) for name in names for text in self._files[name])
        if self._left < 0:
            sentence = f"With its files as often as they are named, the body is over {self._limit_bytes} bytes."
            raise ResponderBotError("too_large", sentence)
        self.named.update(names)
        return [text for name in names for text in self._files[name]]

    def _attached(self, value: Any) -> Any:
        names = value if isinstance(value, list) else [value]
        known = names and all(isinstance(name, str) and name in self._files for name in names)
        return self.texts(names) if known else value


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
