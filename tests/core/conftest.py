"""Fixtures: a core over HTTP, and its objects without HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.core.object_api import ObjectApi, object_api
from tests.core.running import RunningCore, running_core


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path) as opened:
        yield opened


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ObjectApi]:
    async with object_api(tmp_path) as opened:
        yield opened
