"""Who has read a block, and the lists after a restore (core/docs/blocklist.md#who-has-read-it)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from core.common.clock import now_ms
from core.common.database import Database
from core.settings import ReaderSection
from core.store import blocklist as stored
from core.store.database import backup
from tests.core.blocklist.harness import BLOCK, RUN, asked, block, ended, listed, observable, unblock
from tests.core.running import RunningCore, running_core


async def readers(core: RunningCore, action: dict[str, Any], wanted: dict[str, bool]) -> dict[str, Any]:
    """The readers of an action, once they are these; whether each has read it."""
    async with asyncio.timeout(10):
        while True:
            shown = (await core.send("GET", f"{RUN}/{action['_id']}")).json()
            found = {one["name"]: one.get("at") for one in shown.get("readers") or []}
            if {name: at is not None for name, at in found.items()} == wanted:
                return found
            await asyncio.sleep(0.05)


async def read(core: RunningCore, name: str, *, method: str = "GET", tag: str = "") -> Any:
    headers = {"Authorization": f"Bearer {await core.key('reader', name)}", "If-None-Match": tag}
    return await core.send(method, "/api/blocklist/ip.txt", profile=None, headers=headers)


async def known(core: RunningCore, count: int) -> None:
    """Wait until it is stored that so many readers have read a list."""
    async with asyncio.timeout(10):
        while len(await core.core.database.read(stored.readers)) < count:  # noqa: ASYNC110 - its own pace
            await asyncio.sleep(0.05)


async def test_a_block_says_who_has_read_it_and_a_release_who_still_has_it(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        for name in ("edge-fw", "dc-fw"):
            await read(core, name)
        await known(core, 2)
        await block(core, "192.0.2.1")
        first = await block(core, "198.51.100.23")
        await readers(core, first, {"dc-fw": False, "edge-fw": False})
        before = now_ms()
        answer = await read(core, "edge-fw")
        at = (await readers(core, first, {"dc-fw": False, "edge-fw": True}))["edge-fw"]
        measures = (await core.send("GET", "/api/connector/engine/measure")).json()
        await read(core, "dc-fw", method="HEAD")
        again = await read(core, "edge-fw", tag=answer.headers["etag"])
        await asyncio.sleep(1.5)  # until what was read would have been stored
        assert (await readers(core, first, {"dc-fw": False, "edge-fw": True}))["edge-fw"] == at
        await unblock(core, "198.51.100.23")
        await readers(core, first, {"edge-fw": True})
        await read(core, "edge-fw")
        await readers(core, first, {})
    assert before <= at <= now_ms()
    assert again.status_code == 304
    of_first = next(one for one in measures if one["actions"] == [first["_id"]])
    assert of_first["readers"] == [{"name": "dc-fw"}, {"name": "edge-fw", "at": at}]


async def test_a_304_of_that_version_counts_and_an_error_does_not(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        await read(core, "edge-fw")
        await known(core, 1)
        await block(core, "198.51.100.23")
        tag = (await core.send("GET", "/api/blocklist/ip.txt")).headers["etag"]
        action = await block(core, "198.51.100.23")  # the list is the same
        assert (await read(core, "edge-fw", tag=tag)).status_code == 304
        await readers(core, action, {"edge-fw": True})
        other = await block(core, "198.51.100.24")
        bad = {"Authorization": f"Bearer {await core.key('reader', 'edge-fw')}"}
        refused = await core.send("GET", "/api/blocklist/ip.txt?family=7", profile=None, headers=bad)
        await asyncio.sleep(1.5)
        await readers(core, other, {"edge-fw": False})
    assert refused.status_code == 400


async def test_an_empty_list_has_a_comment_for_a_reader_that_takes_nothing_for_an_error(tmp_path: Path) -> None:
    async with running_core(tmp_path, reader={"edge-fw": ReaderSection(comment=True)}) as core:

        async def read_by_both() -> list[str]:
            return [(await read(core, name)).text for name in ("edge-fw", "dc-fw")]

        before = await read_by_both()
        await block(core, "198.51.100.23")
        with_one = await read_by_both()
        await unblock(core, "198.51.100.23")
        assert await read_by_both() == before == ["# empty\n", ""]
    assert with_one == ["198.51.100.23\n"] * 2


async def test_what_nobody_reads_is_said_before_the_click_with_what_else_a_block_hits(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        artifact = await observable(core, "1.1.1.1")

        async def hints() -> list[str]:
            path = f"/api/connector/engine/responder/case_artifact/{artifact}?explain=true"
            offered = (await core.send("GET", path, profile="analyst")).json()
            return list(next(one for one in offered if one["name"] == BLOCK)["hints"])

        before = await hints()
        await read(core, "edge-fw")
        async with asyncio.timeout(10):
            while (after := await hints()) == before:  # noqa: ASYNC110 - its own pace
                await asyncio.sleep(0.05)
    hint = "1.1.1.1 is a resolver of Cloudflare, which much depends on"
    assert before == [
        hint,
        "⚠ nothing reads the block list ip.txt: `responder-bot user add NAME --profile reader` makes a firewall's key",
    ]
    assert after == [hint, "the block list is read by edge-fw"]


async def test_health_names_a_reader_that_stopped(tmp_path: Path) -> None:
    sections = {"edge-fw": ReaderSection(expect_every="1s"), "dc-fw": ReaderSection(expect_every="1h")}
    async with running_core(tmp_path, reader=sections) as core:
        await read(core, "edge-fw")
        await asyncio.sleep(2)
        parts = (await core.send("GET", "/health")).json()["parts"]
    (part,) = [one for one in parts if one["name"] == "block list"]
    assert part["message"].startswith("edge-fw has read no block list since ")


async def test_after_a_restore_the_lists_wait_and_rows_keep_their_times(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        action = await block(core, "198.51.100.23")
        waiting = await asked(core, BLOCK, await observable(core, "198.51.100.24"))
        await ended(core, waiting)
        key = await core.key("reader")
        admin = await core.key("org-admin")
        await core.core.database.transaction(lambda tx: backup.mark(tx, now_ms()))
    async with running_core(tmp_path) as core:
        core.keys |= {"reader": key, "org-admin": admin}
        answer = await core.send("GET", "/api/blocklist/ip.txt", profile="reader")
        shown = (await core.send("GET", f"{RUN}/{action['_id']}")).json()
        part = [one for one in (await core.send("GET", "/health")).json()["parts"] if one["name"] == "block list"]
        await core.core.database.transaction(stored.resume)
        assert await listed(core) == ["198.51.100.23", "198.51.100.24"]
    assert answer.status_code == 503
    assert "responder-bot blocklist show" in answer.json()["message"]
    assert len(part) == 1
    assert (shown["measure"]["state"], shown["undo"]["status"]) == ("in_force", "available")
    assert shown["undo"]["at"] == action["undo"]["at"]


async def test_a_list_is_answered_while_something_writes(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        await block(core, "198.51.100.23")
        database: Database = core.core.database
        writing, free = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def write(_: Any) -> None:
            loop.call_soon_threadsafe(writing.set)
            asyncio.run_coroutine_threadsafe(free.wait(), loop).result()

        task = asyncio.create_task(database.transaction(write))
        await writing.wait()
        assert await listed_with(core) == ["198.51.100.23"]
        free.set()
        await task


async def listed_with(core: RunningCore) -> list[str]:
    answer = await core.send("GET", "/api/blocklist/ip.txt")
    return answer.text.splitlines()


@pytest.mark.parametrize("count", [50])
async def test_many_readers_at_once_get_the_same_list(tmp_path: Path, count: int) -> None:
    async with running_core(tmp_path) as core:
        await core.key("reader")
        await block(core, "198.51.100.23")
        answers = await asyncio.gather(*(listed(core) for _ in range(count)))
    assert answers == [["198.51.100.23"]] * count
