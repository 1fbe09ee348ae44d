"""Several clients, and several cores, at once."""

import asyncio
from pathlib import Path
from typing import get_args

from core.models import Profile
from tests import stores
from tests.core.object_api import ALERT
from tests.core.running import running_core


async def test_an_alert_becomes_a_case_with_a_log(tmp_path: Path) -> None:
    async with running_core(tmp_path, core={"organisation": "soc"}) as core:
        alert = (await core.send("POST", "/api/alert", ALERT, profile="analyst")).json()
        twice = await core.send("POST", "/api/alert", ALERT, profile="analyst")
        assert twice.json()["message"] == "Alert siem:elastalert:8257b4 already exist in organisation soc"
        path = alert["id"].replace("~", "%7E")
        case = (await core.send("POST", f"/api/alert/{path}/createCase", {}, profile="analyst")).json()
        task = await core.send("POST", f"/api/case/{case['id']}/task", {"title": "t"}, profile="analyst")
        log = await core.send("POST", f"/api/case/task/{task.json()['id']}/log", {"message": "m"}, profile="analyst")
        assert log.status_code == 201
        found = await core.send("POST", "/api/case/task/log/_search", {}, profile="read-only")
        assert (found.json(), found.headers["X-Total"]) == ([log.json()], "1")


async def test_three_people_who_search_for_long_keep_nobody_else_waiting(tmp_path: Path) -> None:
    copies = (
        "WITH RECURSIVE n (i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 12000)"
        " INSERT INTO object (id, kind, doc) SELECT i, 'alert', doc FROM n, object WHERE kind = 'alert'"
    )
    in_any = {"_or": [{"_like": {"_field": "description", "_value": f"*{n}*"}} for n in range(150)]}
    async with running_core(tmp_path) as core:
        await core.send("POST", "/api/alert", {**ALERT, "description": "long " * 200})
        stores.rows(tmp_path / "core.db", copies)
        others: list[Profile] = ["analyst", "read-only", "service"]
        for profile in get_args(Profile):
            await core.key(profile)
        long = [
            asyncio.create_task(core.send("POST", "/api/alert/_search", {"query": in_any}, profile=profile))
            for profile in others
            for _ in range(3)
        ]
        try:
            for _ in range(10):
                found = await core.send("POST", "/api/alert/_search", {"query": {"_id": "~1"}})
                assert (found.status_code, len(found.json())) == (200, 1)
            assert not any(search.done() for search in long)
        finally:
            for search in long:
                search.cancel()
            await asyncio.gather(*long, return_exceptions=True)
