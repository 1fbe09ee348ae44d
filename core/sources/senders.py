"""Who may send to a source: a key, or a signature over body and time; and how often."""

import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass

from core.common.clock import MINUTE_MS
from core.common.errors import ResponderBotError
from core.settings import Rate

SIGNATURE_HEADER = "x-signature"
TIME_HEADER = "x-timestamp"
CLOCKS_DIFFER_MS = 5 * MINUTE_MS


@dataclass(frozen=True)
class Signature:
    """The headers of a signed request: `X-Signature` is the HMAC-SHA256 of `X-Timestamp`, `:` and the body."""

    digest: str
    timestamp: str

    @staticmethod
    def of(headers: Mapping[str, str], now: int) -> "Signature":
        """Raises ResponderBotError("authentication") if it is not of now, give or take CLOCKS_DIFFER_MS."""
        digest, timestamp = headers.get(SIGNATURE_HEADER, ""), headers.get(TIME_HEADER, "")
        is_number = timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 12
        if not is_number or abs(int(timestamp) * 1000 - now) > CLOCKS_DIFFER_MS:
            minutes = CLOCKS_DIFFER_MS // MINUTE_MS
            sentence = f"X-Timestamp must be the time now in seconds since 1970, to within {minutes} min."
            raise ResponderBotError("authentication", sentence)
        return Signature(digest.removeprefix("sha256=").lower(), timestamp)

    def is_by(self, key: str, content: bytes) -> bool:
        """Whether who made it knows this key."""
        signed = hmac.new(key.encode(), f"{self.timestamp}:".encode() + content, hashlib.sha256).hexdigest()
        return hmac.compare_digest(signed.encode(), self.digest.encode("utf-8", "replace"))


class Limiter:
    """Holds a source to its rate; after a pause it may send as many at once."""

    def __init__(self, rate: Rate) -> None:
        self._rate, self._free, self._at = rate, float(rate.runs), time.monotonic()

    def take(self, name: str) -> None:
        """Raises ResponderBotError("rate_limited")."""
        now, per_s = time.monotonic(), self._rate.runs * 1000 / self._rate.ms
        self._free = min(self._rate.runs, self._free + (now - self._at) * per_s)
        self._at = now
        if self._free < 1:
            wait_s = int((1 - self._free) / per_s) + 1
            sentence = (
                f"{name} sends more than {self._rate.text}; send again in {wait_s} s, several alerts in one body."
            )
            raise ResponderBotError("rate_limited", sentence, details={"retryAfter": wait_s})
        self._free -= 1
