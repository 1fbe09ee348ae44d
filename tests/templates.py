"""Empty databases of core, with the triggers of `tests.audited` and the bot's tables or without, copied for tests.

Making one takes up to forty transactions, so each kind is made once in a process; `tests/core/store/test_migrations.py`
and others make theirs afresh.
"""

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from bot.outbox.store import inbox_file, open_stores
from core.common.database.location import Location
from core.store.database.opening import open_database
from tests.audited import require_rows


def made(location: Location, *, bots: bool = False) -> Location:
    """This location, once core, and the bot if `bots`, has made its tables there, for tests of the bot's alone."""

    async def make() -> None:
        await copy_to(location, audited=False, bots=bots)
        if not isinstance(location, Path):
            await open_database(location).close()

    with ThreadPoolExecutor(1) as thread:  # the caller may have a loop
        thread.submit(asyncio.run, make()).result()
    return location


@dataclass(frozen=True)
class _Template:
    database: bytes
    identity: bytes
    inbox: bytes


_TEMPLATES: dict[tuple[bool, bool], _Template] = {}
"""With and without the triggers, with and without the bot's tables."""


async def copy_to(location: Location, *, audited: bool, bots: bool = False) -> None:
    """Have a database in this place, unless there is one; without effect on PostgreSQL."""
    if not isinstance(location, Path) or location.exists() or not location.parent.is_dir():
        return
    if (audited, bots) not in _TEMPLATES:
        _TEMPLATES[audited, bots] = await _template(audited, bots)
    template = _TEMPLATES[audited, bots]
    identity = token_hex(16).encode()  # each database has one of its own
    _write(location, template.database.replace(template.identity, identity))
    if bots:
        _write(inbox_file(location), template.inbox)


def _write(file: Path, content: bytes) -> None:
    file.touch(0o600)
    file.chmod(0o600)  # whatever the umask
    file.write_bytes(content)


async def _template(audited: bool, bots: bool) -> _Template:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "core.db"
        database = open_database(file)
        if audited:
            await require_rows(database)
        if bots:
            await open_stores(file).close()
        (row,) = await database.read(lambda reads: reads.rows("SELECT id FROM identity"))
        await database.close()
        inbox = inbox_file(file).read_bytes() if bots else b""
        return _Template(file.read_bytes(), str(row["id"]).encode(), inbox)
