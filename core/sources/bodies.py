"""Bodies of sources from bytes to plain values: JSON, JSON lines, or an e-mail."""

import hashlib
from collections.abc import Iterable
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parseaddr
from html.parser import HTMLParser
from itertools import islice
from typing import Any, Literal

from core.common.decoding import TooManyValues, decode_json, has_more_values

MAX_ALERTS = 200  # of one body
MAX_PARTS = 100  # of one e-mail
TEXT_LIMIT_BYTES = 256 * 1024  # of a part of an e-mail
VALUES_LIMIT = 30_000

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
    """An e-mail as plain values: `subject`, `from`, `to`, `messageId`, `date`, `text`, `attachments`."""
    try:
        message = message_from_bytes(content, policy=policy.default)
        assert isinstance(message, EmailMessage)  # noqa: S101 - so says its policy
        return _email(message)
    except (
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:  # the standard library's, on odd headers
        raise UnreadableError("format", f"It is no e-mail that can be read: {type(error).__name__}.") from error


def _email(message: EmailMessage) -> dict[str, Any]:
    def header(name: str) -> str:
        return " ".join(str(message.get(name, "")).split())

    leaves = [part for part in islice(message.walk(), MAX_PARTS) if not part.is_multipart()]
    files = [part for part in leaves if part.get_filename()]
    date = message["date"]
    return {
        "subject": header("subject"),
        "from": parseaddr(header("from"))[1],
        "to": parseaddr(header("to"))[1],
        "messageId": header("message-id").strip("<>"),
        "date": date.datetime.isoformat() if date is not None and date.datetime is not None else "",
        "text": _text(part for part in leaves if not part.get_filename()),
        "attachments": [
            {
                "name": part.get_filename(),
                "contentType": part.get_content_type(),
                "sha256": hashlib.sha256(_bytes(part)).hexdigest(),
            }
            for part in files
        ],
    }


def _bytes(part: Any) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _text(parts: Iterable[Any]) -> str:
    """The plain text, or that of the HTML where there is none."""
    texts: dict[str, list[str]] = {"text/plain": [], "text/html": []}
    for part in parts:
        if part.get_content_type() in texts:
            texts[part.get_content_type()].append(_decoded(part))
    if any(text.strip() for text in texts["text/plain"]):
        return "\n".join(texts["text/plain"]).strip()
    reader = _HtmlText()
    reader.feed("\n".join(texts["text/html"]))
    reader.close()
    return "\n".join(line for line in map(str.strip, "".join(reader.texts).splitlines()) if line)


def _decoded(part: Any) -> str:
    content = _bytes(part)[:TEXT_LIMIT_BYTES]
    try:
        return content.decode(part.get_content_charset() or "utf-8", "replace")
    except LookupError:
        return content.decode("utf-8", "replace")


class _HtmlText(HTMLParser):
    """The text of HTML, with the addresses of its links."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.texts += [f" {value} " for name, value in attrs if name == "href" and value]
        if tag in ("br", "div", "p", "tr"):
            self.texts.append("\n")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
