"""The routes of hosts; tests/core/test_host_processes.py has several of them."""

from pathlib import Path

from core.models import PROFILES, HostEntry
from tests.core.running import running_core


async def test_org_admins_list_hosts_and_nobody_else_lists_or_drains_them(tmp_path: Path) -> None:
    async with running_core(tmp_path, core={"host_name": "web-1"}) as core:
        (found,) = (await core.send("GET", "/api/host")).json()
        host = HostEntry.model_validate(found)
        (one,) = host.cores
        assert (host.name, host.state, one.state, host.lost_at) == ("web-1", "running", "running", None)
        assert [(engine.name, engine.up, engine.running, engine.slots) for engine in one.engines] == [
            ("core", True, 0, None),
            ("local", True, 0, 4),
        ]
        for profile in sorted(set(PROFILES) - {"org-admin"}):
            for method, path, body in (
                ("GET", "", None),
                ("POST", "/web-1/drain", {}),
                ("DELETE", "/web-1/drain", None),
            ):
                answer = await core.send(method, f"/api/host{path}", body, profile=profile)
                assert answer.status_code == 403, (profile, method)
        for name, core_id in (("nowhere", ""), ("web-1", "nobody")):
            answer = await core.send("POST", f"/api/host/{name}/drain", {"core": core_id})
            assert (answer.status_code, "`responder-bot hosts` lists them." in answer.text) == (404, True)
        assert (await core.send("DELETE", "/api/host/nowhere/drain")).status_code == 404
        (after,) = (await core.send("GET", "/api/host")).json()
        assert after["state"] == "running"
