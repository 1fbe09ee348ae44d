"""A core that takes bodies is killed fifty times: every alert is there once, and every repeat is counted."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from core.models import Alert
from tests import stores
from tests.core.core_process import core_process, setup_in

BODIES, KEYS, KILLS, SENDERS = 2_500, 750, 50, 16
LOGIN = "load@responder-bot.local"
SECTION = """
[source."load"]
map = { title = "title", sourceRef = "key" }
rate = "100000/1s"
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_no_kill_loses_an_alert_or_a_repeat(tmp_path: Path) -> None:
    """Each sender repeats a body with its Idempotency-Key until core says that it is stored."""
    setup = await setup_in(tmp_path, responders={})
    with (tmp_path / "settings.toml").open("a") as settings:
        settings.write(SECTION)
    await setup.users((LOGIN, "source"))
    chosen = random.Random(27)  # noqa: S311 - the same each time
    keys = [*range(KEYS), *chosen.choices(range(KEYS), k=BODIES - KEYS)]
    chosen.shuffle(keys)
    bodies, stored, url, due = iter(enumerate(keys)), list[int](), [""], asyncio.Event()
    goals = [BODIES * kill // (KILLS + 1) for kill in range(1, KILLS + 1)]

    async def send_all(http: httpx.AsyncClient, bodies: Iterator[tuple[int, int]]) -> None:
        for number, key in bodies:
            while True:
                try:
                    answer = await http.post(
                        f"{url[0]}/api/ingest/load",
                        json={"title": f"alert {key}", "key": key},
                        headers={"Idempotency-Key": str(number)},
                    )
                except (httpx.TransportError, AttributeError):  # anyio's, of a socket that closes as it is opened
                    await asyncio.sleep(0.02)  # until a core listens again
                    continue
                if answer.status_code in (200, 201):
                    break
                assert answer.status_code == 503, answer.text
            stored.append(number)
            if goals and len(stored) >= goals[0]:
                due.set()

    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {setup.keys[LOGIN]}"}, timeout=30) as http:
        sending = None
        for _ in range(KILLS):
            async with core_process(setup) as core:
                url[0] = core.url
                sending = sending or asyncio.gather(*(send_all(http, bodies) for _ in range(SENDERS)))
                await due.wait()
                del goals[0]
                due.clear()
                await core.kill()
        async with core_process(setup) as core:
            url[0] = core.url
            assert sending is not None
            await sending
    alerts = [Alert.model_validate_json(doc) for (doc,) in stores.rows(setup.database, "SELECT doc FROM object")]
    assert len(stored) == BODIES
    assert {alert.source_ref: alert.count or 1 for alert in alerts} == Counter(map(str, keys))
    assert len(alerts) == KEYS
    counted = stores.rows(setup.database, "SELECT created, repeated, unreadable FROM source")
    assert counted == [(KEYS, BODIES - KEYS, 0)]
