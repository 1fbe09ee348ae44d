"""Empty databases of core, with the triggers of `tests.audited` or without: made once in a process, copied for tests.

Making one takes up to forty transactions; `tests/core/store/test_migrations.py` and others make theirs afresh.
"""

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex

from core.common.database.location import Location
from core.store.database.opening import open_database
from tests.audited import require_rows


def made(location: Location) -> Location:
    """This location, once core has made its database there, for tests of the bot's tables alone."""

    async def make() -> None:
        await copy_to(location, audited=False)
        if not isinstance(location, Path):
            await open_database(location).close()

    with ThreadPoolExecutor(1) as thread:  # the caller may have a loop
        thread.submit(asyncio.run, make()).result()
    return location


_TEMPLATES: dict[bool, tuple[bytes, bytes]] = {}
"""The bytes of a database and its identity, with and without the triggers."""


async def copy_to(location: Location, *, audited: bool) -> None:
    """Have a database in this place, unless there is one; without effect on PostgreSQL."""
    if not isinstance(location, Path) or location.exists() or not location.parent.is_dir():
        return
    if audited not in _TEMPLATES:
        _TEMPLATES[audited] = await _template(audited)
    template, identity = _TEMPLATES[audited]
    location.touch(0o600)
    location.chmod(0o600)  # whatever the umask
    location.write_bytes(template.replace(identity, token_hex(16).encode()))  # each database has an identity of its own


async def _template(audited: bool) -> tuple[bytes, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "core.db"
        database = open_database(file)
        if audited:
            await require_rows(database)
        (row,) = await database.read(lambda reads: reads.rows("SELECT id FROM identity"))
        await database.close()
        return file.read_bytes(), str(row["id"]).encode()
