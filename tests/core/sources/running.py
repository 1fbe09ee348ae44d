"""A core with sources, for tests."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from core.settings import SourceSection
from tests.core.running import RunningCore, running_core

MINE: dict[str, Any] = {
    "map": {
        "title": "rule.name",
        "description": "full_log",
        "sourceRef": "id",
        "severity": "rule.level",
        "tags": "rule.groups",
        "date": "timestamp",
        "link": "url",
        "tlp": "tlp",
    },
    "severity": {"0-6": 1, "7-11": 2, "12-14": 3, "15-": 4},
    "observables": [{"type": "ip", "path": "srcip", "message": "source"}, {"path": "full_log"}],
    "resolved": {"state": "resolved"},
}
EVENT: dict[str, Any] = {
    "id": "1",
    "rule": {"name": "Beacon", "level": 12, "groups": ["c2", "web"]},
    "full_log": "10.1.2.3 asked for https://evil.example/a",
    "srcip": "10.1.2.3",
    "timestamp": "2026-11-23T08:17:00+01:00",
    "url": "https://siem.example/1",
}


@dataclass
class RunningSource:
    """A running core with the sources `mine` and, where asked for, others."""

    core: RunningCore
    keys: Mapping[str, str]

    async def send(self, body: Any, *, to: str = "mine", key: str = "", **headers: str) -> httpx.Response:
        """Send a body, as JSON unless it is bytes, with that source's own key."""
        sent = {"Authorization": f"Bearer {key or self.keys[to]}", **headers}
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        return await self.core.http.post(f"/api/ingest/{to}", headers=sent, **content)

    async def counts(self, body: Any, **options: Any) -> dict[str, int]:
        """What became of a body: the counts that are not 0."""
        answer = await self.send(body, **options)
        assert answer.status_code in (200, 201), answer.text
        return {name: count for name, count in answer.json().items() if count}

    async def alerts(self, **query: Any) -> list[dict[str, Any]]:
        """All alerts with these values, oldest first."""
        answer = await self.core.send("POST", "/api/alert/_search?range=all&sort=%2BcreatedAt", {"query": query})
        found: list[dict[str, Any]] = answer.json()
        return sorted(found, key=lambda alert: int(alert["id"][1:]))


@asynccontextmanager
async def running_source(
    folder: Path,
    *,
    others: Mapping[str, dict[str, Any]] | None = None,
    parts: dict[str, Any] | None = None,
    **changes: Any,
) -> AsyncIterator[RunningSource]:
    """`changes` are keys of `mine`, `others` further sources, `parts` other sections."""
    sections = {"mine": {**MINE, **changes}, **(others or {})}
    source = {name: SourceSection.model_validate(section) for name, section in sections.items()}
    async with running_core(folder, source=source, **(parts or {})) as core:
        keys = {name: await core.key("source", name) for name in sections}
        yield RunningSource(core, keys)
