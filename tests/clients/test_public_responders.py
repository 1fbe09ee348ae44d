"""Each public responder of the profiles, unchanged: what is offered of it gets to its vendor.

TEST_PUBLIC_RESPONDERS names the folder `responders` of a clone of Cortex-Analyzers, and TEST_PUBLIC_PYTHON an
interpreter with the packages of their requirements. The vendor is a proxy, which notes where it was to connect to.
"""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core.engines.definitions import Definition, load
from core.responders.profiles import profiles
from core.responders.settings_section import settings_section
from core.settings import EngineSection, ResponderSection
from tests.core.running import RunningCore, running_core

FOLDER, PYTHON = (os.environ.get(f"TEST_PUBLIC_{name}", "") for name in ("RESPONDERS", "PYTHON"))
pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (FOLDER and PYTHON), reason="TEST_PUBLIC_RESPONDERS and TEST_PUBLIC_PYTHON name none"),
]
ENGINE = "/api/connector/engine"
DATA = {
    **{"ip": "198.51.100.7", "hostname": "srv-7", "fqdn": "srv-7.corp.example", "domain": "evil.example"},
    **{"url": "https://evil.example/a", "hash": "a" * 64, "mail": "eve@evil.example", "username": "eve"},
    "sha1": "c" * 40,
    **{"other": "6c5a9c2e-0000-4000-8000-000000000001", "cidr": "198.51.100.0/24", "sha256": "b" * 64},
}
FIELDS = {name: {"string": "003"} for profile in profiles().values() for name in profile.needs if name != "case"}
ELSEWHERE = {"MSDefenderOffice365": "it runs PowerShell"}
"""Folders whose responders get no further here, and why."""
TRIED = re.compile(r"Connection refused|Name or service not known|Temporary failure in name resolution")
"""What reports say of connections that go to no proxy."""


class Proxy:
    """An HTTP proxy that refuses everything, and keeps the hosts that were asked for."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        async with await asyncio.start_server(self._refuse, "127.0.0.1", 0) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode(errors="replace").split()
        if len(line) > 1:
            self.hosts.append(line[1])
        while (await reader.readline()).strip():
            pass
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()


def section_of(definition: Definition, proxy: str) -> ResponderSection:
    """Settings as somebody would fill them in; addresses are the definition's or made up."""
    config: dict[str, Any] = {"proxy_http": proxy, "proxy_https": proxy}
    profiled = {need.partition("|")[0] for need in profiles()[definition.name].config}
    for item in definition.items:
        if item.name in profiled or (item.required and (item.has_placeholder or item.default in (None, "", []))):
            name, values = item.name.lower(), {"number": 1, "boolean": False}
            text = "https://vendor.example" if "url" in name or "instance" in name else "vendor.example"
            text = "c2VjcmV0" if "key" in name else "https://vendor.example:8443" if "manager" in name else text
            value = values.get(item.type, text)
            config[item.name] = [value] if item.multi else value
    return ResponderSection(config=config, confinement="none")


async def alert_of(core: RunningCore, *, in_case: bool) -> Mapping[str, Any]:
    body = {"type": "edr", "source": "edr", "sourceRef": f"{in_case}", "title": "t", "description": "d"}
    artifacts = [{"dataType": "hash" if kind == "sha1" else kind, "data": data} for kind, data in DATA.items()]
    made = await core.send("POST", "/api/alert", {**body, "artifacts": artifacts, "customFields": FIELDS})
    alert: Mapping[str, Any] = made.json()
    if in_case:
        assert (await core.send("POST", f"/api/alert/{alert['id']}/createCase", {})).status_code < 300
    return alert


async def outcome(core: RunningCore, proxy: Proxy, name: str, alert: Mapping[str, Any], types: Sequence[str]) -> str:
    """How far it gets: why it isn't offered, which host it asked for, or with what it failed before."""
    fits = [artifact for artifact in alert["artifacts"] if artifact["dataType"] in (types or ["ip"])]
    wanted = [artifact for artifact in fits if artifact["data"] == DATA["sha1"] and name.startswith("SentinelOne")]
    places = [*(("case_artifact", artifact["id"]) for artifact in (wanted or fits)[:1]), ("alert", alert["id"])]
    reasons = "it is in no list"
    for kind, number in places:
        listed = (await core.send("GET", f"{ENGINE}/responder/{kind}/{number}?explain=true")).json()
        found = next((one for one in listed if one["name"] == name), None)
        if found is None or any("kind of target" in reason for reason in found["reasons"]):
            continue
        if found["verdict"] == "cannot_run":
            reasons = "; ".join(found["reasons"])
            continue
        before = len(proxy.hosts)
        body = {"responderId": name, "objectType": kind, "objectId": number}
        action = (await core.send("POST", f"{ENGINE}/action", body)).json()
        while "endDate" not in action:
            action = (await core.send("GET", f"{ENGINE}/action/{action['id']}?wait=20")).json()
        hosts = dict.fromkeys(proxy.hosts[before:])
        if hosts or (tried := TRIED.search(action["report"])):
            return f"reached {', '.join(hosts)}" if hosts else f"tried: {tried and tried[0]}"
        return f"failed: {action['report']}"
    return f"not offered: {reasons}"


async def test_what_is_offered_of_each_profile_gets_to_its_vendor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    responders = tmp_path / "responders"
    shutil.copytree(FOLDER, responders, ignore=shutil.ignore_patterns("requirements.txt"))
    (responders / "CheckPoint" / "fingerprints.txt").write_text('{"vendor.example": "AA"}')  # made by hand, once
    known = {definition.name: definition for definition in load([responders]).definitions}
    public = {name: profile for name, profile in profiles().items() if not name.startswith("ResponderBot_")}
    absent = public.keys() - known.keys()
    assert {name.partition("-")[0] for name in absent} < {"MSDefender", "MSDefenderForEndpoint"}  # renamed in 2026
    public = {name: profile for name, profile in public.items() if name not in absent}
    for name in public:
        settings_section(known[name])
    table: dict[tuple[str, bool], str] = {}
    async with Proxy().running() as proxy:
        engine = EngineSection(name="local", responders=(responders,), python=Path(PYTHON))
        sections = {name: section_of(known[name], proxy.url) for name in public}
        async with running_core(tmp_path, engine=(engine,), responder=sections) as core:
            for in_case in (False, True):
                alert = await alert_of(core, in_case=in_case)
                for name, profile in public.items():
                    table[name, in_case] = await outcome(core, proxy, name, alert, profile.target)
    with capsys.disabled():
        for (name, in_case), said in table.items():
            print(f"{name} | {'case' if in_case else 'alert'} | {said[:300]}")  # noqa: T201 - for who reads the output
    followed = {key: said for key, said in table.items() if known[key[0]].folder.name not in ELSEWHERE}
    assert {key: said for key, said in followed.items() if said.startswith("failed")} == {}
    for name, profile in public.items():
        if "case" in profile.needs:
            assert "it reads the case, and there is none" in table[name, False]
