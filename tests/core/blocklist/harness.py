"""What tests of the block lists share: alerts with one observable each, Block and Unblock on them, the lists."""

from collections.abc import Sequence
from typing import Any

import httpx

from core.common.clock import now_ms
from core.common.database import Transaction
from core.store import blocklist as stored
from tests.core import running
from tests.core.running import RunningCore

BLOCK, UNBLOCK = "ResponderBot_Block_1_0", "ResponderBot_Unblock_1_0"
RUN = "/api/connector/engine/action"
LISTS = ("ip", "domain", "url", "hash")


async def observable(core: RunningCore, data: str, data_type: str = "ip", *, tlp: int = 2, **more: Any) -> str:
    """The id of the only artifact of a new alert."""
    alert = {"type": "ids", "source": "s", "sourceRef": f"{data} {len(core.made)}", "title": "t", "description": "d"}
    core.made.append(data)
    artifacts = [{"dataType": data_type, "data": data, "tlp": tlp}]
    answer = await core.send("POST", "/api/alert", {**alert, "tlp": tlp, "artifacts": artifacts, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["artifacts"][0]["id"])


async def asked(core: RunningCore, responder: str, artifact: str, **more: Any) -> httpx.Response:
    """The answer to a run on an artifact."""
    body = {"responderId": responder, "objectType": "case_artifact", "objectId": artifact, **more}
    return await core.send("POST", RUN, body, profile="analyst")


async def ended(core: RunningCore, answer: httpx.Response) -> dict[str, Any]:
    """The action of an answer, once it has ended."""
    assert answer.status_code == 201, answer.text
    return await running.ended(core, answer.json()["_id"])


async def block(core: RunningCore, data: str, data_type: str = "ip", **more: Any) -> dict[str, Any]:
    """A Block that has succeeded, on a new alert."""
    action = await ended(core, await asked(core, BLOCK, await observable(core, data, data_type), **more))
    assert action["status"] == "Success", action["report"]
    return action


async def unblock(core: RunningCore, data: str, data_type: str = "ip") -> dict[str, Any]:
    return await ended(core, await asked(core, UNBLOCK, await observable(core, data, data_type)))


async def fill(core: RunningCore, kind: str, values: Sequence[str]) -> None:
    """Have these targets of a kind in force of one Block, of the first of them; needs `audited=False`."""
    action = await block(core, values[0], {"address": "ip"}.get(kind, kind))
    number = int(action["_id"][1:])

    def work(tx: Transaction) -> None:
        row = tx.row("SELECT * FROM in_force WHERE action_id = :id", {"id": number})
        assert row is not None
        names = list(row.keys())
        sql = f"INSERT INTO in_force ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"  # noqa: S608 - columns
        whole = {name: row[name] for name in names}
        tx.run_all(sql, [{**whole, "id": 10**9 + n, "target": one, "digest": one} for n, one in enumerate(values[1:])])
        stored.changed(tx, now_ms())

    await core.core.database.transaction(work)


async def listed(core: RunningCore, name: str = "ip", query: str = "") -> list[str]:
    answer = await core.send("GET", f"/api/blocklist/{name}.txt{query}", profile="reader")
    assert answer.status_code == 200, answer.text
    return answer.text.splitlines()
