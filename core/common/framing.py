"""HTTP/1.1 framing: find the end of a request's body, and reject ambiguous heads."""

import re
from collections.abc import Sequence

LINE_LIMIT_BYTES = 4_096  # for a chunk's size line or a trailer
FRAMING_LIMIT_BYTES = 262_144  # for size lines and trailers, beyond the length of the body itself

SINGLE_HEADERS = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"expect",
        b"host",
        b"idempotency-key",
        b"transfer-encoding",
        b"x-on-behalf-of",
        b"x-slack-request-timestamp",
        b"x-slack-signature",
    }
)
"""Headers that must not be repeated: a proxy may have checked the one that is not used here."""

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")


class BodyFraming:
    """Finds the end of a body: after `length` bytes or, if None, after the last chunk and its trailers."""

    def __init__(self, length: int | None) -> None:
        self.left = length or 0
        """Bytes of the body or the current chunk that have not been received."""
        self.is_chunked = length is None
        self.is_done = length == 0
        self._is_in_trailers = False
        self._is_after_chunk = False
        self._framing_bytes = 0
        self._body_bytes = 0

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Split received data into the body's bytes and the unused rest. Raises ValueError for invalid framing."""
        if not self.is_chunked:
            part, rest = data[: self.left], data[self.left :]
            self.left -= len(part)
            self.is_done = not self.left
            return part, rest
        parts: list[bytes] = []
        at = 0
        while at < len(data) and not self.is_done:
            if self.left:
                part = data[at : at + self.left]
                parts.append(part)
                self.left -= len(part)
                self._body_bytes += len(part)
                self._is_after_chunk = not self.left
                at += len(part)
                continue
            end = data.find(b"\r\n", at, at + LINE_LIMIT_BYTES)
            if end < 0:
                if len(data) - at >= LINE_LIMIT_BYTES:
                    raise ValueError("a line is too long")
                break
            self._take_line(data[at:end])
            self._framing_bytes += end + 2 - at
            if self._framing_bytes > FRAMING_LIMIT_BYTES + self._body_bytes:
                raise ValueError("the framing is much larger than the body")
            at = end + 2
        return b"".join(parts), data[at:]

    def _take_line(self, line: bytes) -> None:
        if self._is_after_chunk:
            if line:
                raise ValueError("a chunk is longer than its size")
            self._is_after_chunk = False
        elif self._is_in_trailers:
            if b"\n" in line or b"\r" in line:
                raise ValueError("a trailer is not one line")
            self.is_done = not line  # trailers are ignored: the request was authenticated by its head
        else:
            match = _CHUNK_SIZE.fullmatch(line)
            if match is None:
                raise ValueError("a chunk has no size")
            self.left = int(match[1], 16)
            self._is_in_trailers = not self.left


def head_refusal(
    version: str, headers: Sequence[tuple[bytes, bytes]], by_name: dict[bytes, bytes]
) -> tuple[int, str, str] | None:
    """Status, error type and message if the head must be rejected, else None."""
    if version not in ("1.0", "1.1"):
        return 505, "BadRequest", "Only HTTP/1.1 and HTTP/1.0 are supported; use one of them."
    if len(by_name) < len(headers):
        names = [name for name, _ in headers]
        if repeated := sorted(name.decode() for name in SINGLE_HEADERS & by_name.keys() if names.count(name) > 1):
            return 400, "BadRequest", f"The request has more than one {repeated[0]} header; send it once."
    if version == "1.1" and b"host" not in by_name:
        return 400, "BadRequest", "The request has no Host header; send it with one."
    coding = by_name.get(b"transfer-encoding")
    if coding is not None and (version == "1.0" or coding.lower() != b"chunked" or b"content-length" in by_name):
        return 400, "BadRequest", "The only Transfer-Encoding is chunked, without Content-Length; use one of the two."
    return None
