"""The dashboard and the alert rules name metrics that core or the bot exports, and each of those is documented."""

import re
from pathlib import Path

import aiohttp
import pytest

from tests.bot.running import running_bot
from tests.documents import ROOT

DEPLOY = ROOT / ".github" / "deploy"
PREFIX = "responder_bot_"


def series(metrics: str) -> set[str]:
    """The names that queries can have, of a response of `/metrics`."""
    names = set()
    for name, kind in re.findall(rf"^# TYPE {PREFIX}(\w+) (\w+)$", metrics, re.M):
        names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    return names


async def exported(folder: Path) -> set[str]:
    async with running_bot(folder) as env, aiohttp.ClientSession() as session:
        assert env.bot.health_server is not None
        names = set()
        for url in (env.core.url, env.bot.health_server.url):
            async with session.get(f"{url}/metrics") as response:
                names |= series(await response.text())
        return names


def documented() -> set[str]:
    page = (ROOT / "core/docs/operations.md").read_text()
    section = page.partition("## Metrics of core")[2].partition("## Logs")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)", cell)}


@pytest.mark.sqlite
async def test_each_metric_that_is_named_is_exported_and_each_exported_one_documented(tmp_path: Path) -> None:
    names = await exported(tmp_path)
    for file in ("responder-bot.json", "prometheus-rules.yml"):
        used = set(re.findall(rf"{PREFIX}(\w+)", (DEPLOY / file).read_text()))
        assert used
        assert used <= names, file
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in names} == documented()
