"""As `large_store`, on PostgreSQL: the processor time of core and of all processes of the server."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.comparison import Row, Scale
from tests.bench.grown import fill_postgresql
from tests.bench.large_store import compared, sizes
from tests.bench.processes import CLIENT_CPUS, CLOCK_TICK_S, SERVER_CPUS, ServerProcess, on_cpus, serving
from tests.postgresql import url_with
from tests.postgresql_process import PostgresqlServer

QUIET = {"autovacuum": "off"}  # it would run at any time; the tables are vacuumed once they are filled


@dataclass
class _OnPostgresql(ServerProcess):
    """A core, with its share of a server that works for one core at a time."""

    postgresql: PostgresqlServer

    def cpu_s(self) -> float:
        ticks = 0
        for pid in self.postgresql.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])  # also of processes that have ended
        return super().cpu_s() + ticks * CLOCK_TICK_S


async def measure(folder: Path, scale: Scale) -> list[Row]:
    server = PostgresqlServer(**QUIET)
    with on_cpus(SERVER_CPUS | CLIENT_CPUS):
        await server.create()
    try:
        async with AsyncExitStack() as stack:
            servers = {}
            for alerts in sizes(scale):
                url = url_with(server.url("bench"), options=f"-csearch_path=bench_{alerts}")
                of_size: dict[str, Any] = {
                    "folder": folder / str(alerts),
                    "mode": "ends_at_once",
                    "core": {"database": url},
                }
                async with serving("servers.core", **of_size):  # it makes the tables
                    pass
                await asyncio.to_thread(fill_postgresql, url, alerts)
                core = await stack.enter_async_context(serving("servers.core", **of_size))
                servers[alerts] = _OnPostgresql(core.process, core.ready, server)
            return await compared(servers, scale, "processor time of core and PostgreSQL")
    finally:
        await server.close()
