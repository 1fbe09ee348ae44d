"""Who may send to a source: two keys at a time, or a signature over body and time."""

import hashlib
import hmac
import json
import time
from pathlib import Path

import httpx

from core.authorization import COMMAND_LINE
from tests.core.sources.running import EVENT, RunningSource, running_source

KEYS = ["first secret of the sender", "second secret of the sender"]


async def signed(
    source: RunningSource,
    body: bytes,
    *,
    key: str = KEYS[0],
    age_s: int = 0,
    to: str = "mine",
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    at = str(int(time.time()) - age_s)
    digest = hmac.new(key.encode(), f"{at}:".encode() + body, hashlib.sha256).hexdigest()
    sent = {"X-Signature": digest, "X-Timestamp": at, **(headers or {})}
    return await source.core.http.post(f"/api/ingest/{to}", content=body, headers=sent)


async def test_a_signature_stands_for_a_key_and_a_replay_changes_nothing(tmp_path: Path) -> None:
    body = json.dumps(EVENT).encode()
    async with running_source(tmp_path, hmac_keys=KEYS, others={"plain": {"map": {"title": "t"}}}) as source:
        first = await signed(source, body)
        sent = {name: first.request.headers[name] for name in ("x-signature", "x-timestamp")}
        replayed = [await source.core.http.post("/api/ingest/mine", content=body, headers=sent) for _ in range(3)]
        changed = await source.core.http.post("/api/ingest/mine", content=body + b" ", headers=sent)
        elsewhere = await source.core.http.post("/api/ingest/plain", content=body, headers=sent)
        second = await signed(source, body, key=KEYS[1])
        refused = [
            await signed(source, body, key="another secret of 16"),
            await signed(source, body, age_s=301),
            await signed(source, body, age_s=-330),
            await signed(source, body, headers={"X-Timestamp": "now"}),
            await signed(source, body, headers={"X-Signature": "sha256=00"}),
            await signed(source, body, to="unknown"),
        ]
        other_route = await source.core.http.get("/api/alert/~1", headers={"X-Signature": "x"})
        other_post = await source.core.http.post("/api/alert", json={}, headers={"X-Signature": "x"})
        (alert,) = await source.alerts()
    assert (first.status_code, second.json()["repeated"]) == (201, 1)
    assert [answer.json()["isDuplicate"] for answer in replayed] == [True] * 3
    assert [answer.status_code for answer in (changed, elsewhere, *refused, other_route, other_post)] == [401] * 10
    assert alert["count"] == 2


async def test_who_can_t_sign_uses_up_no_rate(tmp_path: Path) -> None:
    body = json.dumps(EVENT).encode()
    async with running_source(tmp_path, hmac_keys=KEYS[:1], rate="2/1h") as source:
        refused = [await signed(source, body, key="another secret of 16") for _ in range(5)]
        taken = [await signed(source, body, age_s=number) for number in range(3)]
    assert [answer.status_code for answer in (*refused, *taken)] == [401] * 5 + [201, 200, 429]


async def test_a_disabled_user_can_neither_sign_nor_use_its_key(tmp_path: Path) -> None:
    body = json.dumps(EVENT).encode()
    async with running_source(tmp_path, hmac_keys=KEYS) as source:
        await source.core.core.people.disable(COMMAND_LINE, "mine")
        answers = [await signed(source, body), await source.send(EVENT)]
        await source.core.core.people.enable(COMMAND_LINE, "mine")
        await source.core.core.people.set_profile("mine", "analyst")
        answers += [await signed(source, body), await source.send(EVENT)]
        assert await source.alerts() == []
    assert [answer.status_code for answer in answers] == [401, 401, 401, 403]


async def test_an_old_key_works_beside_the_new_one_where_it_is_kept(tmp_path: Path) -> None:
    async with running_source(tmp_path) as source:
        people, first = source.core.core.people, source.keys["mine"]
        second = (await people.new_key(COMMAND_LINE, "mine", keep_old=True)).key
        both = [await source.send(EVENT, key=key) for key in (first, second)]
        third = (await people.new_key(COMMAND_LINE, "mine")).key
        only = [await source.send(EVENT, key=key) for key in (first, second, third)]
    assert [answer.status_code for answer in (*both, *only)] == [201, 200, 401, 401, 200]
