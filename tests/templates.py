"""Empty databases of core, with the triggers of `tests.audited` or without: made once by a process, copied for tests.

Making one takes up to forty transactions; `tests/core/store/test_migrations.py` and others make theirs afresh.
"""

import asyncio
import shutil
import sqlite3
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from pathlib import Path

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


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="responder-bot-template-")


async def copy_to(location: Location, *, audited: bool) -> None:
    """Have a database in this place, unless there is one; without effect on PostgreSQL."""
    if not isinstance(location, Path) or location.exists() or not location.parent.is_dir():
        return
    template = Path(_folder().name) / ("audited.db" if audited else "core.db")
    if not template.exists():
        database = open_database(template)
        if audited:
            await require_rows(database)
        await database.close()
    shutil.copyfile(template, location)
    location.chmod(0o600)
    with closing(sqlite3.connect(location)) as copied, copied:  # each database has an identity of its own
        copied.execute("UPDATE identity SET id = lower(hex(randomblob(16)))")
