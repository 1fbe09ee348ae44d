"""Retention while core drains, fails over or is restored: what stays is whole, and what is due goes at last."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.app import Core
from core.common.clock import DAY_MS, now_ms
from core.common.database import Dialect
from core.common.database.location import Location, PostgresqlUrl
from core.common.database.opening import forget_place
from core.common.errors import ResponderBotError
from core.common.settings_file import RetentionSection
from core.store.database.backup import copy, restore_backup
from tests import stores
from tests.core.actions.test_prune_kills import PRUNE, left, seed
from tests.core.actions.test_retention import DAYS, Soc, due_roots, soc_in
from tests.core.core_process import CoreSetup, core_process, setup_in, until
from tests.core.running import settings_in

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("dialect", stores.DIALECTS)]


@dataclass
class Before:
    """What was stored before anything went."""

    docs: Mapping[str, Mapping[str, Any]]
    """By kind and id."""
    root_of: Mapping[str, str]
    """The alert or case that each part belongs to."""
    due: set[str]
    """The alerts and cases that are to go."""

    def check(self, soc: Soc, *, is_over: bool = True) -> None:
        """What stays has all its parts, unchanged but for ends of runs; once it is over, nothing else is left."""
        now = soc.docs()
        for kind, docs in self.docs.items():
            for part, doc in docs.items():
                is_due, is_left = self.root_of[part] in self.due, part in now[kind]
                assert is_left or is_due
                assert not (is_left and is_due and is_over)
                assert not is_left or kind == "action" or now[kind][part] == doc

    def has_due(self, soc: Soc) -> bool:
        ids = ", ".join(one[1:] for one in self.due)
        return bool(stores.rows(soc.parts.location, f"SELECT 1 FROM object WHERE id IN ({ids}) LIMIT 1"))  # noqa: S608


async def seeded(soc: Soc) -> Before:
    """Some alerts and cases are due, also by the clock of the machine."""
    soc.clock.now_ms = now_ms() - (DAYS + 1) * DAY_MS
    for _ in range(3):  # so that it isn't over within one look at it
        await seed(soc)
    soc.later(DAYS + 1)
    docs = soc.docs()
    rows = stores.rows(soc.parts.location, "SELECT id, parent_id FROM object UNION ALL SELECT id, root_id FROM action")
    parents = dict(rows)

    def root(number: int) -> int:
        return number if parents[number] is None else root(parents[number])

    root_of = {f"~{number}": f"~{root(number)}" for number in parents}
    return Before(docs, root_of, due_roots(docs, soc.clock.now_ms - DAYS * DAY_MS))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_core_that_ends_in_the_middle(tmp_path: Path, dialect: Dialect, number: signal.Signals) -> None:
    """Where it is killed another core is at it as well; after a drain the next one goes on."""
    with stores.using(dialect):
        async with soc_in(tmp_path) as soc:
            before = await seeded(soc)
        first, second = [await host_in(tmp_path / name, soc) for name in ("first", "second")]
        goal = left(soc) - 20
        async with AsyncExitStack() as stack:
            core = await stack.enter_async_context(core_process(first))
            if number == signal.SIGKILL:
                await stack.enter_async_context(core_process(second))
            await until(lambda: left(soc) <= goal or None, "some parts are gone")
            core.process.send_signal(number)
            assert await core.process.wait() == (0 if number == signal.SIGTERM else -number)
            before.check(soc, is_over=False)
            if number == signal.SIGTERM:
                assert before.has_due(soc), "it was over before it was told to end"
                await stack.enter_async_context(core_process(second))
            await until(lambda: not before.has_due(soc) or None, "all that is due is gone")
            before.check(soc)


async def host_in(folder: Path, soc: Soc) -> CoreSetup:
    """Settings of a core on the database of `soc`, with retention."""
    folder.mkdir()
    assert isinstance(soc.parts.location, Path)
    beside = CoreSetup(folder, shared=soc.parts.location)
    setup = await setup_in(folder, beside=beside, host_name=folder.name)
    with (folder / "settings.toml").open("a") as settings:
        settings.write(f"[retention]\nalert_days = {DAYS}\n")
    return setup


async def test_a_backup_of_its_middle_is_restored(tmp_path: Path, dialect: Dialect) -> None:
    with stores.using(dialect):
        async with soc_in(tmp_path) as soc:
            before = await seeded(soc)
        async with pruning(soc) as child:
            goal = left(soc) - 40
            await until(lambda: left(soc) <= goal or None, "some parts are gone")
            child.send_signal(signal.SIGSTOP)  # a dump is of one moment, but `stores.kept` is not
            restore = backed_up(soc.parts.location)
            child.send_signal(signal.SIGCONT)
            await until(lambda: not before.has_due(soc) or None, "all that is due is gone")
            if dialect == "sqlite":
                with pytest.raises(ResponderBotError, match="is in use; stop every responder-bot"):
                    restore()
        restore()
        assert before.has_due(soc), "some are back"
        settings = settings_in(tmp_path, retention=RetentionSection(alert_days=DAYS))
        core = await Core.open(settings, soc.clock)
        try:
            await until(lambda: not before.has_due(soc) or None, "all that is due is gone")
            before.check(soc)
        finally:
            await core.close()


@asynccontextmanager
async def pruning(soc: Soc) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that deletes one part in each transaction; it is killed in the end."""
    arguments = stores.setting(soc.parts.location), str(soc.clock.now_ms), str(DAYS)
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", PRUNE, *arguments)
    try:
        yield child
    finally:
        child.kill()
        await child.wait()


def backed_up(path: Location) -> Callable[[], object]:
    """Keep a backup; gives what restores it."""
    location = stores.location(path)
    if isinstance(location, PostgresqlUrl):
        put_back = stores.kept(Path(str(path)))

        def restore() -> None:
            put_back()
            forget_place(location, "responder_core")

        return restore
    backup = location.with_name("backup.db")
    copy(location, backup, now_ms())
    return lambda: restore_backup(backup, location)
