"""A database that lost its last changes gives no list of another change, and no reader what it never read."""

from pathlib import Path

from core.actions.blocklist import BlockLists
from core.engines.own import OwnEngine
from core.settings import CoreSettings, ReaderSection
from tests import stores
from tests.core.actions.harness import ANNA, another_core, caller, open_harness, run_input
from tests.core.blocklist.harness import BLOCK

TARGETS = ("198.51.100.1", "198.51.100.2", "198.51.100.3")


async def test_a_change_that_was_lost_shows_in_no_list_and_in_no_reader(tmp_path: Path) -> None:
    settings = CoreSettings(reader={"edge-fw": ReaderSection()})
    edge = caller("edge-fw", "reader")
    artifacts = [{"dataType": "ip", "data": target} for target in TARGETS]
    async with (
        open_harness(tmp_path, artifacts=artifacts) as harness,
        another_core(harness, OwnEngine(settings)) as core,
    ):
        lists = BlockLists(settings, core.database, core.clock)
        await harness.people.add("edge-fw", "reader")

        async def block(target: str) -> str:
            core.clock.now_ms += 1
            started = await core.actions.start(ANNA, run_input(harness, BLOCK, target=target))
            return (await core.ended(started.action.id)).id

        async def read() -> list[str]:
            body = await lists.read(edge, "ip", {})
            lists.was_read(edge, "ip", body)
            return body.content.decode().split()

        await block(TARGETS[0])
        before = await read()
        await lists.store_reads()
        put_back = stores.kept(tmp_path / "core.db")
        lost = await block(TARGETS[1])
        with_lost = await read()
        put_back()
        new = await block(TARGETS[2])
        await lists.store_reads()
        unread = (await core.action(new)).readers
        after = await read()
    assert new == lost
    assert (before, with_lost, after) == ([TARGETS[0]], [*TARGETS[:2]], [TARGETS[0], TARGETS[2]])
    assert [reader.at for reader in unread or ()] == [None]
