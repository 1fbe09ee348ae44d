"""Forms: fields in place of a JSON body, and multipart forms, in which public clients send files beside it.

The part `_json` is the body; any other part with a file name is a file. The JSON refers to a file by the part's name
under `attachment`; a part that is itself called `attachment` needs no reference. A file becomes the text
`name;type;content in base64`, as in JSON bodies.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import parse_qsl, unquote

from core.common.errors import ResponderBotError
from core.models import Input

BODY = "_json"
KEY = "attachment"
MAX_PARTS = 100
DEFAULT_TYPE = "application/octet-stream"


def are_fields(content_type: str, content: bytes) -> bool:
    """Whether a body is a URL-encoded form: curl calls whatever it sends so, JSON too."""
    return content_type.lower().startswith("application/x-www-form-urlencoded") and content.lstrip()[:1] not in b"{["


def fields(content: bytes, model: type[Input] | None, most: int) -> dict[str, Any]:
    """The fields of a URL-encoded form: texts, and lists of them where the model takes a list or a name is repeated.

    Raises ResponderBotError("bad_request").
    """
    try:
        pairs = parse_qsl(content.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=most)
    except ValueError as error:
        sentence = f"The body is not a form of at most {most} fields in UTF-8, percent-encoded; or send JSON."
        raise ResponderBotError("bad_request", sentence) from error
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name.removesuffix("[]"), []).append(value)
    lists = {item.alias for item in model.model_fields.values() if _takes_list(item.annotation)} if model else set()
    return {name: value if len(value) > 1 or name in lists else value[0] for name, value in values.items()}


def _takes_list(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return any(map(_takes_list, get_args(annotation)))
    return get_origin(annotation) is list


def is_form(content_type: str) -> bool:
    return content_type.lower().startswith("multipart/form-data")


def split(content: bytes, content_type: str) -> tuple[bytes, dict[str, list[str]]]:
    """The JSON of a form (`{}` without one), and its files by the names of their parts.

    Raises ResponderBotError("bad_request").
    """
    boundary = _parameters(content_type).get("boundary")
    if not boundary:
        raise ResponderBotError("bad_request", "The form's Content-Type has no boundary; add it, or send JSON.")
    # The first boundary may be at the very start; the texts before it and after the last one are not parts.
    pieces = (b"\r\n" + content).split(b"\r\n--" + boundary.encode())
    if len(pieces) < 2 or len(pieces) > MAX_PARTS or not pieces[-1].startswith(b"--"):
        raise ResponderBotError("bad_request", f"The body is not a form of at most {MAX_PARTS - 2} parts.")
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
            media_type = headers.get("content-type", "").partition(";")[0].strip() or DEFAULT_TYPE
            file_name = part["filename"].replace(";", "_") or "file"
            files.setdefault(name, []).append(f"{file_name};{media_type};{base64.b64encode(value).decode()}")
        else:
            sentence = f"The form's part {name or 'without a name'} is not read; put what it says into one {BODY}."
            raise ResponderBotError("bad_request", sentence)
    return b"{}" if text is None else text, files


def insert_files(body: Any, files: Mapping[str, list[str]], *, takes_file: bool, limit_bytes: int) -> Any:
    """The body with its files in place of the references to them.

    `takes_file` says whether a part called `attachment` belongs to the body itself. Raises ResponderBotError:
    "bad_request" for a file without a reference, "too_large" if repeated references make the body too large.
    """
    inserter = _FileInserter(files, limit_bytes)
    filled = inserter.insert(body)
    if takes_file and KEY in files and KEY not in inserter.used and isinstance(filled, dict):
        filled = {**filled, KEY: inserter.contents([KEY])}
    if unused := sorted(files.keys() - inserter.used):
        raise ResponderBotError("bad_request", f"No file is kept here; send the request without {', '.join(unused)}.")
    return filled


class _FileInserter:
    def __init__(self, files: Mapping[str, list[str]], limit_bytes: int) -> None:
        self.used: set[str] = set()
        self._files = files
        self._limit_bytes = limit_bytes
        self._left = 2 * limit_bytes  # all files once are at most 4/3 of the limit, in base64

    def insert(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.insert(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {key: self._resolve(item) if key == KEY else self.insert(item) for key, item in value.items()}

    def contents(self, names: Sequence[str]) -> list[str]:
        """The files with these names, each as often as it is named."""
        self._left -= sum(len(text) for name in names for text in self._files[name])
        if self._left < 0:
            sentence = f"With a copy of each file that it refers to, the body is over {self._limit_bytes} bytes."
            raise ResponderBotError("too_large", sentence)
        self.used.update(names)
        return [text for name in names for text in self._files[name]]

    def _resolve(self, value: Any) -> Any:
        names = value if isinstance(value, list) else [value]
        is_reference = names and all(isinstance(name, str) and name in self._files for name in names)
        return self.contents(names) if is_reference else value


def _headers(head: bytes) -> Mapping[str, str]:
    lines = [line.partition(":") for line in head.decode("utf-8", "replace").split("\r\n") if ":" in line]
    headers = {name.strip().lower(): value.strip() for name, _, value in lines}
    if "content-disposition" not in headers:
        raise ResponderBotError("bad_request", "A part of the form has no Content-Disposition; send it with a name.")
    return headers


_PARAMETER = re.compile(r';\s*([\w-]+)(\*?)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;]*))', re.ASCII)


def _parameters(header: str) -> dict[str, str]:
    """Parameters of a header such as `form-data; name="a"`; the extended form `name*=utf-8''a` wins."""
    params: dict[str, str] = {}
    for name, extended, quoted, plain in _PARAMETER.findall(header):
        value = re.sub(r"\\(.)", r"\1", quoted) or plain.strip()
        if extended:
            params[name.lower()] = unquote(value.rpartition("'")[2])
        else:
            params.setdefault(name.lower(), value)
    return params
