"""New alerts from a source, against the same alerts through `POST /api/alert`, 32 at once."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from core.common.clock import now_ms
from core.people import People
from core.sources import preset
from core.sources.mapping import BodyMap
from core.store.database.opening import open_database
from tests.bench import comparison
from tests.bench.comparison import Goal, Row, Sample, Scale
from tests.bench.load import LoadMeter, request
from tests.bench.processes import serving

INGEST, PUBLIC = "source", "POST /api/alert"
PER_SECOND = 4_000  # more requests than are answered, so that no trial sends one twice


def suricata(number: int) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((preset.FOLDER / "suricata.body.json").read_text())[0]
    return {**event, "src_ip": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"}


def wazuh(number: int) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((preset.FOLDER / "wazuh.body.json").read_text())
    return {**event, "rule": {**event["rule"], "id": str(number)}}


async def measure(folder: Path, scale: Scale) -> list[Row]:
    return [row for event in (suricata, wazuh) for row in await _measured(folder / event.__name__, scale, event)]


async def _measured(folder: Path, scale: Scale, event: Callable[[int], dict[str, Any]]) -> list[Row]:
    name = event.__name__
    folder.mkdir(parents=True)
    database = open_database(folder / "core.db")
    key = await People(database, "responder-bot.local", now_ms).add(name, "source")
    await database.close()
    body_map = BodyMap(preset.load(name), type=name, source=name, tlp=2, withheld_tags=())
    headers, meter, numbers = {"Authorization": f"Bearer {key}"}, LoadMeter(), count()

    async with serving("servers.core", folder, source={name: {"preset": name, "rate": "900000/1s"}}) as server:

        def ingest(number: int) -> bytes:
            return request("POST", server.url, f"/api/ingest/{name}", headers=headers, body=event(number))

        def public(number: int) -> bytes:
            (incoming,) = body_map.read(json.dumps(event(number)).encode()).incoming
            body = incoming.request.model_dump_json(by_alias=True, exclude_unset=True, exclude_none=True).encode()
            return request("POST", server.url, "/api/alert", headers=headers, body=body)

        async def new(trial: str, of: Callable[[int], bytes]) -> Sample:
            requests = [of(next(numbers)) for _ in range(max(200, int(PER_SECOND * scale.seconds)))]
            return await meter.rate(trial, server, requests, seconds=scale.seconds, status=201)

        found = await comparison.interleaved(
            {INGEST: lambda: new(INGEST, ingest), PUBLIC: lambda: new(PUBLIC, public)}, scale.rounds
        )
    text = f"new alert of {name} from its source, processor time"
    cpu = meter.cpu_s_per_answer
    return [
        comparison.row(text, cpu, INGEST, PUBLIC, comparison.microseconds, Goal("at most", 1.3)),
        comparison.row("the same, by rate", found, INGEST, PUBLIC, comparison.per_second),
    ]
