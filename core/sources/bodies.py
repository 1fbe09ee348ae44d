"""Bodies of sources from bytes to plain values: JSON, JSON lines, or an e-mail."""

import hashlib
import re
from collections.abc import Iterable
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parsedate_to_datetime
from html import unescape
from typing import Any, Literal

from core.common.decoding import VALUES_LIMIT, TooManyValues, decode_json, has_more_values

MAX_ALERTS = 200  # of one body
MAX_NESTED, MAX_PARTS, MAX_HEADER_LINES = 20, 100, 5_000  # of one e-mail
HEADER_LIMIT_CHARS = 4_096
PARAMETERS_LIMIT_CHARS = 500
TEXT_LIMIT_BYTES = 256 * 1024  # of a part of an e-mail

Reason = Literal["format", "values", "each", "title", "alerts"]


class UnreadableError(Exception):
    """A body, or one alert of it, can't be read: the reason, and a sentence."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


def decode_lines(content: bytes) -> list[Any]:
    """The values of JSON, or of lines of JSON. Raises UnreadableError."""
    if has_more_values(content, VALUES_LIMIT):
        raise UnreadableError("values", f"It holds over {VALUES_LIMIT} values; send fewer at once.")
    try:
        value = decode_json(content)
        return value if isinstance(value, list) else [value]
    except TooManyValues as error:
        raise UnreadableError("values", f"It can't be read: {error}; send fewer at once.") from None
    except ValueError as error:
        lines = [line for line in content.splitlines() if line.strip()]
        if len(lines) < 2:
            raise UnreadableError("format", f"It is not JSON: {error}.") from None
    try:
        return [decode_json(line) for line in lines[: MAX_ALERTS + 1]]
    except ValueError as error:
        raise UnreadableError("format", f"It is neither JSON nor lines of JSON: {error}.") from None


def decode_email(content: bytes) -> dict[str, Any]:
    """An e-mail as plain values: `subject`, `from`, `to`, `messageId`, `date`, `text`, `attachments`.

    Raises UnreadableError. What takes the standard library long is refused first: it looks at each line once for each
    part around it.
    """
    nested = sum(content.lower().count(kind) for kind in (b"multipart/", b"message/"))
    parts = content.replace(b"\r\n", b"\n").split(b"\n--")
    header_lines = sum(part.partition(b"\n\n")[0].count(b"\n") for part in parts)
    if nested > MAX_NESTED or len(parts) > MAX_PARTS or header_lines > MAX_HEADER_LINES:
        sentence = f"It has over {MAX_NESTED} nested parts, {MAX_PARTS} others, or {MAX_HEADER_LINES} lines of headers."
        raise UnreadableError("format", sentence)
    try:
        return _email(message_from_bytes(content))
    except (LookupError, ValueError, TypeError, AttributeError) as error:  # for odd headers and parts
        raise UnreadableError("format", f"It is no e-mail that can be read: {type(error).__name__}.") from error


def _email(message: Message) -> dict[str, Any]:
    parts = [part for part in message.walk() if not part.is_multipart() and _is_short(part)]
    files = [part for part in parts if part.get_filename()]
    return {
        "subject": _header(message, "subject"),
        "from": _address(_header(message, "from")),
        "to": _address(_header(message, "to")),
        "messageId": _header(message, "message-id").strip("<>"),
        "date": _date(_header(message, "date")),
        "text": _text(part for part in parts if not part.get_filename()),
        "attachments": [
            {
                "name": _decoded_words(part.get_filename() or ""),
                "contentType": part.get_content_type(),
                "sha256": hashlib.sha256(_bytes(part)).hexdigest(),
            }
            for part in files
        ],
    }


def _is_short(part: Message) -> bool:
    """Whether the headers that describe a part are of a length that nobody reads slowly."""
    names = ("content-type", "content-disposition", "content-transfer-encoding")
    return all(len(str(part.get(name, ""))) <= PARAMETERS_LIMIT_CHARS for name in names)


def _header(message: Message, name: str) -> str:
    return " ".join(_decoded_words(str(message.get(name, ""))[:HEADER_LIMIT_CHARS]).split())


def _address(text: str) -> str:
    """The first address of a header; the standard library's parser recurses into comments without end."""
    match = _ADDRESS.search(text)
    return match[0] if match else ""


def _decoded_words(text: str) -> str:
    """A header without its encoding (`=?utf-8?q?...?=`); as it is if that is wrong."""
    try:
        return str(make_header(decode_header(text)))
    except (HeaderParseError, LookupError, ValueError):
        return text


def _date(text: str) -> str:
    try:
        return parsedate_to_datetime(text).isoformat()
    except (ValueError, TypeError, IndexError):
        return ""


def _bytes(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _text(parts: Iterable[Message]) -> str:
    """The plain text, or that of the HTML where there is none."""
    texts: dict[str, list[str]] = {"text/plain": [], "text/html": []}
    for part in parts:
        if part.get_content_type() in texts:
            texts[part.get_content_type()].append(_decoded(part))
    plain = "\n".join(texts["text/plain"]).strip()
    return plain or _html_text("\n".join(texts["text/html"]))


def _decoded(part: Message) -> str:
    content = _bytes(part)[:TEXT_LIMIT_BYTES]
    try:
        return content.decode(part.get_content_charset() or "utf-8", "replace")
    except LookupError:
        return content.decode("utf-8", "replace")


def _html_text(html: str) -> str:
    """The text of HTML, with the addresses of its links, in passes: the standard library's parser can take minutes."""
    for tag in ("script", "style"):
        first, *rest = re.split(f"<{tag}", html, flags=re.IGNORECASE)
        html = first + "".join(re.split(f"</{tag}", part, maxsplit=1, flags=re.IGNORECASE)[-1] for part in rest)
    html = _LINK.sub(lambda match: f"> {match[1]} <", html)
    text = unescape(_TAG.sub(" ", _BREAK.sub("\n", html)))
    return "\n".join(line for line in (" ".join(line.split()) for line in text.splitlines()) if line)


_ADDRESS = re.compile(r"[^\s<>()\"',;]+@[^\s<>()\"',;]+")
_LINK = re.compile(r"""href=["']?([^"'\s<>]+)["']?""", re.IGNORECASE)
_BREAK = re.compile(r"(?=<(?:br|div|p|tr)[\s/>])", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
