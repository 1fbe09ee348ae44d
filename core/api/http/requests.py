"""The steps before a handler: headers, size limits, credentials, and the body from bytes to a model."""

import base64
import math
import re
import time
import zlib
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import parse_qsl, unquote

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from core.api.http.endpoint import Endpoint, Request
from core.api.http.errors import field_errors
from core.common.decoding import VALUES_LIMIT, has_more_values
from core.common.errors import AuthenticationError, ResponderBotError, bad_request
from core.common.listener import BODY_TIMEOUT_S, read_body
from core.field_types import INT_LIMIT, ErrorCount
from core.models import ArtifactsInput, Input

BODY_LIMIT_BYTES = 1_048_576
QUERY_LIMIT_BYTES = 8_192
HEADERS_LIMIT_BYTES = 32_768
PATH_LIMIT_BYTES = 2_048
QUERY_LIMIT_FIELDS = 64
AT_ONCE_S = 0.1  # after a slower body the caller is authenticated again

_MAYBE_HUGE_NUMBER = re.compile(rb"[0-9]{19}|[0-9][eE]\+?[0-9]{2}")


def check_sizes(request: Request) -> None:
    """Raises ResponderBotError("too_large") for headers, path or query over their limits."""
    for what, size, limit in (
        ("headers are", request.headers_bytes, HEADERS_LIMIT_BYTES),
        ("path is", len(request.raw_path), PATH_LIMIT_BYTES),
        ("query is", len(request.raw_query), QUERY_LIMIT_BYTES),
    ):
        if size > limit:
            raise ResponderBotError("too_large", f"The {what} over the limit of {limit} bytes.")


def query_of(request: Request) -> dict[str, str]:
    """Query parameters by name; values of a repeated one (`sort=a&sort=b`) are joined by commas.

    Raises ResponderBotError("bad_request") for too many.
    """
    params: dict[str, str] = {}
    if not request.raw_query:
        return params
    try:
        text = request.raw_query.decode("latin-1")
        pairs = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=QUERY_LIMIT_FIELDS)
    except ValueError as error:
        raise bad_request(f"The query has more than {QUERY_LIMIT_FIELDS} parameters") from error
    for name, value in pairs:
        params[name] = f"{params[name]},{value}" if name in params else value
    return params


class BodyReader:
    """Reads a body within its limits, decompresses, decodes and validates it."""

    def __init__(self, limit_bytes: int = BODY_LIMIT_BYTES, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self._limit_bytes = limit_bytes
        self._timeout_s = timeout_s

    async def read(self, request: Request, endpoint: Endpoint) -> bool:
        """Set `raw` and `body` of a request; returns whether the body was so late that rights may have changed.

        Raises ResponderBotError("bad_request"), "invalid_fields" and "too_large", and ClientDisconnected.
        """
        if not endpoint.takes_body:
            return False
        began = time.monotonic()
        content = await self.receive(request)
        is_late = time.monotonic() - began > AT_ONCE_S
        kind = request.headers.get("content-type", "")
        is_urlencoded = _is_urlencoded(kind, content)
        if is_urlencoded:
            request.raw = _urlencoded_fields(content, endpoint.body, VALUES_LIMIT)
        elif content and kind.lower().startswith("multipart/form-data"):
            text, files = _split_multipart(content, kind)
            takes_file, limit = endpoint.body is ArtifactsInput, self._limit_bytes
            request.raw = _insert_files(decode_body(text), files, takes_file=takes_file, limit_bytes=limit)
        elif content:
            request.raw = decode_body(content)
        elif endpoint.body is not None and has_required_fields(endpoint.body):
            raise bad_request("The body is empty; it must be a JSON object")
        if endpoint.translate_request is not None:
            request.raw = endpoint.translate_request(request.raw)
        if endpoint.body is not None:
            # Without anything to say, some clients send no body and others null.
            is_nothing = request.raw is None and not has_required_fields(endpoint.body)
            request.body = _validate(endpoint.body, {} if is_nothing else request.raw, is_strict=not is_urlencoded)
        return is_late

    async def receive(self, request: Request) -> bytes:
        """The body without its Content-Encoding. Raises as `read` does."""
        request.is_unread = True
        text = request.headers.get("content-length", "0")
        if text.isascii() and text.isdigit() and len(text) < 16 and int(text) > self._limit_bytes:
            raise self._too_large()
        try:
            body = await read_body(request.receive, self._limit_bytes, self._timeout_s)
        except TimeoutError:
            raise bad_request(f"The body did not arrive within {self._timeout_s:g} s; send it again") from None
        request.is_unread = False
        return self._decompress(request.headers.get("content-encoding", "").lower(), body)

    def _decompress(self, encoding: str, content: bytes) -> bytes:
        """The body without its Content-Encoding; the limit holds for the result too."""
        if encoding in ("", "identity") or not content:
            return content
        if encoding not in ("gzip", "x-gzip"):
            raise bad_request("The only supported Content-Encoding is gzip; use it, or none")
        decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            text = decompressor.decompress(content, self._limit_bytes + 1)
        except zlib.error as error:
            raise bad_request("The body is not gzip, although its header says so") from error
        if len(text) > self._limit_bytes:
            raise self._too_large()
        if not decompressor.eof or decompressor.unused_data:
            raise bad_request("The body is not one complete gzip stream; send it again")
        return text

    def _too_large(self) -> ResponderBotError:
        return ResponderBotError("too_large", f"The body is over the limit of {self._limit_bytes} bytes.")


def credentials(headers: Mapping[str, str]) -> tuple[str, str | None]:
    """The API key and, with Basic, the login. Raises ResponderBotError("authentication")."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    value = value.strip(" \t")  # other white space is a part of the key
    if scheme.lower() == "bearer" and value:
        return value, None
    if scheme.lower() == "basic":
        try:
            login, colon, key = base64.b64decode(value, validate=True).decode().partition(":")
        except ValueError:
            colon = login = key = ""
        if colon:
            return key, login
    raise AuthenticationError("missing")


def client_address(peer: str, forwarded: str, proxies: Sequence[IPv4Network | IPv6Network]) -> str:
    """Where a request comes from: behind proxies the last of `X-Forwarded-For` that is none of them; "" if unknown."""
    address = _plain(peer)
    for text in reversed(forwarded.split(",")) if forwarded else ():
        if not address or not any(ip_address(address) in proxy for proxy in proxies):
            break
        if not (before := _plain(text.strip())):
            break
        address = before
    return address


def _plain(address: str) -> str:
    """An address in its usual form, IPv4 also where IPv6 carries it; "" for what is none."""
    try:
        found = ip_address(address)
    except ValueError:
        return ""
    return str(getattr(found, "ipv4_mapped", None) or found)


def decode_body(content: bytes) -> Any:
    """The JSON value of a body. Raises ResponderBotError("bad_request").

    The parser rejects NaN, lone surrogates and deep nesting; numbers of over 64 bits and too many values are rejected
    here, since the store can't hold the former and the latter would block the event loop.
    """
    if has_more_values(content, VALUES_LIMIT):
        raise bad_request(f"The body holds over {VALUES_LIMIT} values; send fewer at once")
    try:
        value = from_json(content.removeprefix(BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise bad_request(f"The body is not valid JSON: {error}") from error
    if _MAYBE_HUGE_NUMBER.search(content) and not _numbers_fit(value):
        raise bad_request("The body holds a number out of range; send it as a string")
    return value


def _numbers_fit(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -INT_LIMIT <= value < INT_LIMIT
    if isinstance(value, dict):
        return all(_numbers_fit(item) for item in value.values())
    if isinstance(value, list):
        return all(_numbers_fit(item) for item in value)
    return True


def _validate(model: type[Input], raw: Any, *, is_strict: bool) -> Input:
    """The body as the model; unless `is_strict`, texts stand for numbers and flags too. Raises "invalid_fields"."""
    try:
        # By alias only: Python's names are not part of the interface, and checks on aliases would not see them.
        strict = None if is_strict else False
        return model.model_validate(raw, strict=strict, context=ErrorCount(), by_alias=True, by_name=False)
    except ValidationError as error:
        raise field_errors(error) from None  # its cause would keep the whole body alive


def has_required_fields(model: type[BaseModel]) -> bool:
    return any(item.is_required() for item in model.model_fields.values())


# --- forms: fields in place of a JSON body, and multipart forms, in which public clients send files beside it ---------

# In a multipart form the part `_json` is the body; any other part with a file name is a file. The JSON refers to a file
# by the part's name under `attachment`; a part that is itself called `attachment` needs no reference. A file becomes
# the text `name;type;content in base64`, as in JSON bodies.

BODY = "_json"
KEY = "attachment"
MAX_PARTS = 100
DEFAULT_TYPE = "application/octet-stream"


def _is_urlencoded(content_type: str, content: bytes) -> bool:
    """Whether a body is a URL-encoded form: curl calls whatever it sends so, JSON too."""
    return content_type.lower().startswith("application/x-www-form-urlencoded") and content.lstrip()[:1] not in b"{["


def _urlencoded_fields(content: bytes, model: type[Input] | None, most: int) -> dict[str, Any]:
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


def _split_multipart(content: bytes, content_type: str) -> tuple[bytes, dict[str, list[str]]]:
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


def _insert_files(body: Any, files: Mapping[str, list[str]], *, takes_file: bool, limit_bytes: int) -> Any:
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
