"""Delivers rows of the audit to a collector, from the table and at least once (core/docs/audit.md#delivery)."""

import json
from collections.abc import Callable
from functools import partial

import aiohttp

from core.audit import store as stored
from core.audit.verify import canonical, row_line
from core.common.clock import MINUTE_MS, Clock, boot_ms
from core.common.database import Database, Row
from core.common.errors import ResponderBotError
from core.common.tasks import repeat

BATCH = 500  # rows
TICK_S = 5.0  # between looks at the table, and attempts
TIMEOUT_S = 30.0
LATE_MINUTES = 5  # until health says that the collector lags


class Delivery:
    """Sends what a collector lacks. Several cores may do so at once: it gets a batch twice then."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        url: str,
        token: str,
        *,
        observe_lag: Callable[[float], None] = lambda _: None,
        steady_clock: Clock = boot_ms,
        tick_s: float = TICK_S,
    ) -> None:
        """`observe_lag` is given how many seconds ago the oldest row was written that is not delivered."""
        self._database = database
        self._clock = clock
        self._steady = steady_clock
        self._url = url
        self._headers = {"Content-Type": "application/x-ndjson"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._observe_lag = observe_lag
        self._tick_s = tick_s
        self._reason = ""
        self._oldest: tuple[int, int] | None = None
        """The oldest row that is not delivered, and when it was written by the steady clock (ms)."""

    async def run(self) -> None:
        """Deliver what is new until cancelled."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session:
            await repeat("delivery of the audit", self._tick_s, partial(self._deliver_all, session))

    async def problem(self) -> str:
        """Why the collector lags, as a sentence; "" if it doesn't."""
        minutes = self._lag_ms() // MINUTE_MS
        if minutes < LATE_MINUTES:
            return ""
        reason = f" ({self._reason})" if self._reason else ""
        return f"The collector of [core] audit_url lacks rows of the last {minutes} minutes{reason}; look at it."

    def _lag_ms(self) -> int:
        return 0 if self._oldest is None else self._steady() - self._oldest[1]

    def _note(self, oldest: Row | None) -> None:
        """Note the oldest row that is not delivered. Its time is by the wall clock, which may be set back meanwhile."""
        if oldest is None:
            self._oldest = None
            return
        written = self._steady() - max(0, self._clock() - oldest["at"])
        if self._oldest is not None and self._oldest[0] == oldest["number"]:
            written = min(written, self._oldest[1])
        self._oldest = oldest["number"], written

    async def _deliver_all(self, session: aiohttp.ClientSession) -> None:
        reason = "the log says why"
        try:
            while await self._deliver(session):
                pass
            reason = ""
        except ResponderBotError as error:
            reason = error.message
            raise
        finally:
            self._reason = reason
            self._observe_lag(self._lag_ms() / 1000)

    async def _deliver(self, session: aiohttp.ClientSession) -> bool:
        """Deliver the next rows; False if there are none. Raises ResponderBotError("unavailable")."""
        rows = await self._database.snapshot(
            lambda reads: stored.page(reads, stored.delivered(reads, self._url), None, BATCH)
        )
        self._note(rows[0] if rows else None)
        if not rows:
            return False
        last, previous = rows[-1], json.loads(rows[0]["doc"])["previous"]
        lines = [
            canonical({"anchor": {"number": rows[0]["number"] - 1, "hash": previous, "texts": False}}),
            *(row_line(row["hash"], row["doc"]) for row in rows),
            canonical({"head": {"number": last["number"], "hash": last["hash"]}}),
        ]
        body = "".join(f"{line}\n" for line in lines).encode()
        try:
            async with session.post(self._url, data=body, headers=self._headers, allow_redirects=False) as response:
                if not 200 <= response.status < 300:
                    raise ResponderBotError("unavailable", f"it answered {response.status}")
        except (aiohttp.ClientError, OSError) as error:
            raise ResponderBotError("unavailable", str(error) or type(error).__name__) from error
        number, now = last["number"], self._clock()
        await self._database.transaction(lambda tx: stored.set_delivered(tx, self._url, number, now))
        return True
