"""Delivers rows of the audit to a collector, from the table and at least once (core/docs/audit.md#delivery)."""

import asyncio
from collections.abc import Callable

import aiohttp
import structlog

from core.audit import store as stored
from core.audit.verify import canonical, row_line
from core.common.clock import MINUTE_MS, Clock
from core.common.database import Database, Reads, Row
from core.common.errors import ResponderBotError

BATCH = 500  # rows
TICK_S = 5.0  # between looks at the table, and attempts
TIMEOUT_S = 30.0
LATE_MS = 5 * MINUTE_MS  # until health says that the collector lags

log = structlog.get_logger("core.audit")


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
        tick_s: float = TICK_S,
    ) -> None:
        """`observe_lag` is given how many seconds ago the oldest row was written that is not delivered."""
        self._database = database
        self._clock = clock
        self._url = url
        self._headers = {"Content-Type": "application/x-ndjson"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._observe_lag = observe_lag
        self._tick_s = tick_s
        self._reason = ""
        self._late_since: int | None = None
        """When the oldest row was written that is not delivered (ms)."""

    async def run(self) -> None:
        """Deliver what is new until cancelled."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session:
            while True:
                self._reason = ""
                try:
                    while await self._deliver(session):
                        pass
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    self._reason = str(error) or type(error).__name__
                except ResponderBotError as error:
                    self._reason = error.message
                if self._reason:
                    log.warning("audit_not_delivered", reason=self._reason)
                late = 0 if self._late_since is None else self._clock() - self._late_since
                self._observe_lag(max(late, 0) / 1000)
                await asyncio.sleep(self._tick_s)

    async def problem(self) -> str:
        """Why the collector lags, as a sentence; "" if it doesn't."""
        if self._late_since is None or self._clock() - self._late_since < LATE_MS:
            return ""
        minutes = (self._clock() - self._late_since) // MINUTE_MS
        reason = f" ({self._reason})" if self._reason else ""
        return f"The collector of [core] audit_url lacks rows of the last {minutes} minutes{reason}; look at it."

    async def _deliver(self, session: aiohttp.ClientSession) -> bool:
        """Deliver the next rows; False if there are none."""

        def read(reads: Reads) -> tuple[str, list[Row]]:
            rows = stored.page(reads, stored.delivered(reads, self._url), None, BATCH)
            return (stored.hash_before(reads, rows[0]["number"]) if rows else ""), rows

        before, rows = await self._database.snapshot(read)
        self._late_since = rows[0]["at"] if rows else None
        if not rows:
            return False
        last = rows[-1]
        lines = [
            canonical({"anchor": {"number": rows[0]["number"] - 1, "hash": before, "texts": False}}),
            *(row_line(row["hash"], row["doc"]) for row in rows),
            canonical({"head": {"number": last["number"], "hash": last["hash"]}}),
        ]
        body = "".join(f"{line}\n" for line in lines).encode()
        async with session.post(self._url, data=body, headers=self._headers, allow_redirects=False) as response:
            if not 200 <= response.status < 300:
                self._reason = f"it answered {response.status}"
                return False
        number, now = last["number"], self._clock()
        await self._database.transaction(lambda tx: stored.set_delivered(tx, self._url, number, now))
        return True
