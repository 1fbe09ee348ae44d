from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.common.database import Database
from tests.stores import opened


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with opened(tmp_path / "core.db") as opened_database:
        yield opened_database
