"""As `large_store`, on PostgreSQL, up to a tenth of its size; by time, since the server takes most of it."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.bench.comparison import Row, Scale
from tests.bench.grown import fill_postgresql
from tests.bench.large_store import compared, sizes
from tests.bench.processes import CLIENT_CPUS, SERVER_CPUS, on_cpus, serving
from tests.postgresql import url_with
from tests.postgresql_process import PostgresqlServer


async def measure(folder: Path, scale: Scale) -> list[Row]:
    server = PostgresqlServer()
    with on_cpus(SERVER_CPUS | CLIENT_CPUS):
        await server.create()
    try:
        async with AsyncExitStack() as stack:
            servers = {}
            for alerts in sizes(scale)[:-1]:
                url = url_with(server.url("bench"), options=f"-csearch_path=bench_{alerts}")
                of_size: dict[str, Any] = {
                    "folder": folder / str(alerts),
                    "mode": "ends_at_once",
                    "core": {"database": url},
                }
                async with serving("servers.core", **of_size):  # it makes the tables
                    pass
                await asyncio.to_thread(fill_postgresql, url, alerts)
                servers[alerts] = await stack.enter_async_context(serving("servers.core", **of_size))
            return await compared(servers, scale, "time, on PostgreSQL")
    finally:
        await server.close()
