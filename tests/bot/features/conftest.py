"""Fixtures for the tests of features."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.features.environment import FeatureEnvironment, feature_environment


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[FeatureEnvironment]:
    async with feature_environment(tmp_path) as environment:
        yield environment
