"""A core that really runs, for tests: real SQLite file, real HTTP on a free port of the loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from httpx_aiohttp import AiohttpTransport

from core.app import Core, serving
from core.common.clock import now_ms
from core.common.settings_file import RetentionSection
from core.models import Profile
from core.retention.pruning import Retention
from core.settings import CoreSection, CoreSettings
from tests import stores, templates
from tests.audited import require_rows


@dataclass
class RunningCore:
    """What a test needs of a running core."""

    core: Core
    url: str
    http: httpx.AsyncClient
    """Plain HTTP without a key."""
    keys: dict[str, str] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    """For tests to tell their alerts apart."""

    async def key(self, profile: Profile = "analyst", login: str = "") -> str:
        """The key of a user with this profile, made at the first call: `analyst@responder-bot.local` and so on."""
        name = login or profile
        if name not in self.keys:
            self.keys[name] = await self.core.people.add(name, profile)
        return self.keys[name]

    async def prune_events(self, days: int) -> None:
        """Delete the events that are older; -1: all."""
        await Retention(self.core.database, now_ms, RetentionSection(), event_days=days, pause_s=0).prune()

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        profile: Profile | None = "org-admin",
        headers: dict[str, str] | None = None,
        **options: Any,
    ) -> httpx.Response:
        """A request as a user with this profile; None sends no key. `body` is sent as JSON."""
        sent = dict(headers or {})
        if profile is not None:
            sent.setdefault("Authorization", f"Bearer {await self.key(profile)}")
        if body is not None:
            options["json"] = body
        return await self.http.request(method, path, headers=sent, **options)


def settings_in(folder: Path, **parts: Any) -> CoreSettings:
    """Settings with all files below `folder` and a free port; `parts` as CoreSettings has them.

    `core=` is a dict of what differs in `[core]`.
    """
    core = {
        "database": stores.location(folder / "core.db"),
        "state": folder,
        "port": 0,
        "confinement": "none",  # programs of these tests signal outside their job folders
        **parts.pop("core", {}),
    }
    return CoreSettings(core=CoreSection(**core), **parts)


@asynccontextmanager
async def running_core(folder: Path, **parts: Any) -> AsyncIterator[RunningCore]:
    """Start a core in this loop, stop it at the end. `parts`: see `settings_in`.

    With `audited=False` tests may change runs in the database themselves.
    """
    audited = parts.pop("audited", True)
    settings = settings_in(folder, **parts)
    await templates.copy_to(settings.core.database, audited=audited)
    async with (
        serving(settings, grace_s=0) as (core, url),
        httpx.AsyncClient(base_url=url, transport=AiohttpTransport(verify=False), timeout=30) as http,
    ):
        if audited:
            await require_rows(core.database)
        yield RunningCore(core, url, http)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCore]:
    """One for all tests of the module that imports it, which have alerts of their own."""
    async with running_core(tmp_path_factory.mktemp("core")) as running:
        yield running


async def sent(core: RunningCore, method: str, path: str, body: Any = None, status: int = 200, **options: Any) -> Any:
    """The JSON of the answer to a request, which has this status."""
    answer = await core.send(method, path, body, **options)
    assert answer.status_code == status, answer.text
    return answer.json()


async def made(core: RunningCore, path: str, body: Any, status: int = 201) -> Any:
    """As `sent`, of a POST."""
    return await sent(core, "POST", path, body, status)


async def ended(core: RunningCore, action_id: str) -> dict[str, Any]:
    """An action, once it has ended."""
    action: dict[str, Any] = {}
    while "endDate" not in action:
        action = await sent(core, "GET", f"/api/connector/engine/action/{action_id}?wait=20")
    return action
