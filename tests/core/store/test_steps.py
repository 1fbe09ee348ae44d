"""Databases on PostgreSQL of newer releases."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from core.common.database import Database, Transaction
from core.common.database.opening import open_postgresql
from core.common.database.postgresql.migrations import ADDS_ONLY
from core.common.errors import ResponderBotError
from core.store import objects
from core.store.opening import SCHEMA, SETTING, STORE
from core.store.postgresql import STEPS
from tests import stores

ADDING = f"{ADDS_ONLY}CREATE TABLE later (x BIGINT)"
CHANGING = "ALTER TABLE later RENAME COLUMN x TO y"


def opened_with(path: Path, steps: Sequence[str]) -> Database:
    """The database for this path, by a release that knows these steps."""

    def prepare(tx: Transaction, is_copy: bool) -> None:
        assert not is_copy

    location = stores.on_postgresql(path)
    return open_postgresql(location, SCHEMA, steps, prepare, table=STORE.table, setting=SETTING)


async def test_a_release_goes_on_with_tables_to_which_a_newer_one_only_added(tmp_path: Path) -> None:
    for steps in (STEPS, (*STEPS, ADDING), STEPS):
        database = opened_with(tmp_path, steps)
        assert await database.transaction(objects.next_id)
        await database.close()
    await opened_with(tmp_path, (*STEPS, ADDING, CHANGING)).close()
    for steps in (STEPS, (*STEPS, ADDING)):
        with pytest.raises(ResponderBotError, match="made by a newer release") as refused:
            opened_with(tmp_path, steps)
        assert refused.value.code == "bad_request"
    await opened_with(tmp_path, (*STEPS, ADDING, CHANGING, ADDING.replace("later", "latest"))).close()
