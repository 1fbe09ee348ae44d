"""Of several hosts on one PostgreSQL some die, also the PostgreSQL; in the end each thing has happened once."""

import json
from pathlib import Path

import pytest

from tests.bot.chaos_hosts import SEED, SHORT, run
from tests.bot.machines import namespaces_work

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


async def test_whichever_host_is_lost_each_thing_happens_once_and_slack_shows_it(tmp_path: Path) -> None:
    said: list[str] = []
    found = await run(tmp_path, SHORT, said.append, in_namespaces=namespaces_work())
    print("\n".join([f"CHAOS_SEED={SEED}", *said, json.dumps(found, indent=1)]))  # noqa: T201 - shown where it fails
    assert found["wrong"] == []
    assert (found["ended"], found["twice"], found["messages wrong"]) == (found["actions"], 0, 0)
    assert found["actions"] >= SHORT.analysts
    assert (found["database killed"], found["network cut"]) == (SHORT.outages, SHORT.cuts)
