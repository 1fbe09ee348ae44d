"""The newest event that this host has seen. A database that ends before it has lost events."""

import asyncio
from pathlib import Path

import structlog

from core.common.database import Database
from core.common.errors import ResponderBotError
from core.common.private_files import replace_text
from core.common.tasks import repeat
from core.store import events as stored

LOOK_S = 5.0
FILE = "last-event"  # beside `host-id`

log = structlog.get_logger(__name__)


class LastEvent:
    """Reads the number of the newest event, and notices when it goes back."""

    def __init__(self, database: Database, database_id: str) -> None:
        self._database = database
        self._database_id = database_id
        self._file: Path | None = None
        self._newest = self._seen = self._remembered = 0
        self.went_back = asyncio.Event()
        """Set once the newest event of the database is older than one seen before: nothing may run on it."""

    async def read(self) -> int:
        """The number of the newest event. Raises ResponderBotError("unavailable") if it went back."""
        seen = self._seen  # before the read: another one may end meanwhile
        number = await self._database.read(stored.last)
        if number < seen:
            if not self.went_back.is_set():
                log.error("database_went_back", newest=number, seen=seen)
            self._newest = number
            self.went_back.set()
            raise self.error()
        self._seen = max(self._seen, number)
        return number

    def error(self) -> ResponderBotError:
        """The error once the number went back, with what to do."""
        return ResponderBotError(
            "unavailable",
            f"The database ends with event {self._newest}, and this host has seen event {self._seen}: a copy without"
            " the last changes has taken its place. Stop every responder-bot and put the right one back, or run"
            " `responder-bot restore` (core/docs/storage.md#a-copy-without-the-last-changes), and start again.",
        )

    async def remember_in(self, folder: Path) -> None:
        """Continue from the number that this host has seen, and keep it up to date. Raises as `read` does."""
        self._file = folder / FILE
        self._seen = await asyncio.to_thread(self._read_file, self._file)
        await self._look()

    async def watch(self) -> None:
        """Poll the number until cancelled."""
        await repeat("newest event", LOOK_S, self._look)

    async def _look(self) -> None:
        await self.read()
        await self.remember()

    async def remember(self) -> None:
        """Save the number for the next process of this host."""
        if self._file is None or self._remembered == self._seen:
            return
        number = self._seen
        try:
            await asyncio.to_thread(replace_text, self._file, f"{self._database_id} {number}")
        except OSError as error:
            log.warning("last_event_not_remembered", reason=error.strerror)
        else:
            self._remembered = number

    def _read_file(self, file: Path) -> int:
        """0 if nothing is remembered of this database."""
        try:
            database_id, _, number = file.read_text().partition(" ")
            return int(number) if database_id == self._database_id else 0
        except (OSError, ValueError):
            return 0
