"""The last failure of a database, for its health."""

import time

from core.common.errors import StoreUnavailableError


class Failures:
    """The last error, and what is damaged."""

    def __init__(self) -> None:
        self._last: tuple[float, str] | None = None
        self.damage = ""
        """A sentence about damage found since the database was opened, or ""."""

    def unavailable(
        self, sentence: str, cause: Exception | None = None, *, is_damage: bool = False
    ) -> StoreUnavailableError:
        """Record this failure; returns the error to raise."""
        self._last = (time.monotonic(), sentence)
        if is_damage:
            self.damage = sentence
        failure = StoreUnavailableError(sentence)
        failure.__cause__ = cause
        return failure

    def last(self, within_s: float) -> str:
        """The sentence of the last failure, if it is at most `within_s` old; else ""."""
        if self._last is None or time.monotonic() - self._last[0] > within_s:
            return ""
        return self._last[1]

    def forget(self) -> None:
        """Clear what `last` returns."""
        self._last = None
