"""Health of the database, found by a durable write and by errors that other work has met."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from core.common.database.base import Database, Transaction
from core.common.errors import ResponderBotError, StoreUnavailableError

TIMEOUT_S = 2.0
PROBE_EVERY_S = 1.0  # a probe is a durable write, so all callers together cause one per second at most
FAILURE_SHOWN_S = 30.0  # how long an error of other reads and writes is reported while the probe succeeds


@dataclass(frozen=True)
class ProbeResult:
    """What is wrong and what to do, or "" if nothing is."""

    message: str = ""
    is_down: bool = False
    """Nothing can be written; otherwise only some reads or writes fail."""


class Probe:
    """Checks a write of its own (`touch`), the free space, and recent errors of other reads and writes."""

    def __init__(
        self,
        database: Database,
        touch: Callable[[Transaction], None],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._touch = touch
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._checked_at = float("-inf")
        self._result = ProbeResult()
        self.write_s = 0.0

    async def check(self) -> ProbeResult:
        """Check the database, or return the result of the last second."""
        async with self._lock:
            if self._seconds() - self._checked_at >= PROBE_EVERY_S:
                self._result = await self._check()
                self._checked_at = self._seconds()
            return self._result

    async def _check(self) -> ProbeResult:
        started = self._seconds()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._database.transaction(self._touch)
                self.write_s = self._seconds() - started
                out_of_space = await self._database.out_of_space()
        except TimeoutError:
            sentence = f"The store did not take a write within {TIMEOUT_S:g} s"
            return ProbeResult(f"{sentence}; see what locks its tables or slows its disk.", True)
        except ResponderBotError as error:
            return ProbeResult(error.message, True)
        except RuntimeError as error:  # no thread can be started
            return ProbeResult(f"The store can't be checked ({error}); raise the limit on processes.")
        if out_of_space:
            return ProbeResult(f"The disk of the store is almost full ({out_of_space}); free some space on it.", True)
        if self._result.is_down:  # earlier failures of other work had the same cause
            self._database.forget_failure()
        return ProbeResult(self._database.damage() or self._database.failure(FAILURE_SHOWN_S))


# --- the last failure, as other work met it ---------------------------------------------------------------------------


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
