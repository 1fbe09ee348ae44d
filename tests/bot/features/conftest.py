"""The whole installation, for the transcripts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.features.environment import FeatureEnvironment, stage


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[FeatureEnvironment]:
    async with stage(tmp_path) as made:
        yield made
