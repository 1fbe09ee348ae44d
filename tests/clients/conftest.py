"""What the clients' tests share: a record of the calls, kept where CLIENT_TRANSCRIPTS names a file."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.transcript import Transcript


@pytest.fixture
def transcript(request: pytest.FixtureRequest) -> Iterator[Transcript]:
    record = Transcript(f"{request.path.stem}: {request.node.name}")
    yield record
    if file := os.environ.get("CLIENT_TRANSCRIPTS"):
        with Path(file).open("a", encoding="utf-8") as out:
            out.write(record.text)
