"""The whole installation, for the transcripts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.features.stage import Stage, stage


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as made:
        yield made
