"""A machine loses its power: what was acknowledged is in the database once it is there again."""

import asyncio
import fcntl
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from core.common.database.location import Location, PostgresqlUrl
from tests import stores
from tests.postgresql_process import PostgresqlServer

EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_FLUSH = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH
WRITER = """
import asyncio, itertools, sys

from slack_sdk.web.async_client import AsyncWebClient

from bot.outbox.outbox import MessageOutbox
from bot.outbox.store import open_stores
from core.common.clock import now_ms
from core.common.database.location import parse_location
from core.store import objects
from core.store.database.opening import open_database


async def main(location):
    database = open_database(location)
    inbox = MessageOutbox(open_stores(location), AsyncWebClient(token="x"), now_ms).inbox
    for number in itertools.count(1):
        await database.transaction(lambda tx: objects.insert(tx, number, "case", '"a case"'))
        await inbox.accept(str(number), {})
        print("acknowledged", number, flush=True)


asyncio.run(main(parse_location(sys.argv[1])))
"""
"""Stores cases and clicks, and prints their numbers."""


class Disk:
    """A disk with a file system of its own."""

    def __init__(self, image: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="responder-bot-disk-"))
        self._image = image

    def make(self) -> None:
        """Make the file system. Skips the test where that can't be done."""
        with self._image.open("wb") as image:
            image.truncate(256 * 1024 * 1024)
        try:
            subprocess.run(["mkfs.ext4", "-q", self._image], check=True, capture_output=True, text=True)
            self.mount()
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no disk of its own can be had here: {getattr(error, 'stderr', '') or error}")
        self.folder.chmod(0o755)

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self._image, self.folder], check=True, capture_output=True, text=True)

    def unmount(self) -> None:
        subprocess.run(["umount", self.folder], check=True)

    def flush(self) -> None:
        subprocess.run(["sync", "-f", self.folder], check=True)

    def lose_power(self) -> None:
        """From now on nothing is written: the disk has what it had flushed."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
        finally:
            os.close(descriptor)


@contextmanager
def disk_in(folder: Path) -> Iterator[Disk]:
    disk = Disk(folder / "disk.img")
    try:
        disk.make()
        yield disk
    finally:
        if disk.folder.is_mount():
            disk.unmount()
        disk.folder.rmdir()


class Machine:
    """A disk, and the database on it while the machine is on."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._server: PostgresqlServer | None = None
        if stores.dialect() == "postgresql":
            # The product asks for `synchronous_commit`, whatever the server's setting is.
            self._server = PostgresqlServer(disk.folder, synchronous_commit="off")
        self.database: Location = (
            disk.folder / "core.db" if self._server is None else PostgresqlUrl(self._server.url("core"))
        )

    async def install(self) -> None:
        if self._server is not None:
            await self._server.create()
        self._disk.flush()

    async def lose_power(self) -> None:
        self._disk.lose_power()
        await self.stop()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.kill()

    async def start(self) -> None:
        self._disk.unmount()
        self._disk.mount()
        if self._server is not None:
            await self._server.start()


@asynccontextmanager
async def machine_in(folder: Path) -> AsyncIterator[Machine]:
    with disk_in(folder) as disk:
        machine = Machine(disk)
        await machine.install()
        try:
            yield machine
        finally:
            await machine.stop()


@pytest.mark.slow
async def test_what_was_acknowledged_is_there_after_a_power_loss(tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        location = stores.setting(machine.database)
        program = [sys.executable, "-c", WRITER, location]
        writer = await asyncio.create_subprocess_exec(
            *program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        assert writer.stdout is not None
        await writer.stdout.readuntil(b"acknowledged 20\n")
        await machine.lose_power()
        writer.kill()
        later, _ = await writer.communicate()
        acknowledged = {*range(1, 21), *map(int, re.findall(rb"acknowledged (\d+)\n", later))}
        await machine.start()
        async with stores.opened(machine.database), stores.opened_bots(machine.database):
            cases = {row[0] for row in stores.rows(machine.database, "SELECT id FROM object")}
            clicks = {int(row[0]) for row in stores.clicks(machine.database, "SELECT key FROM inbox")}
        assert acknowledged <= cases
        assert acknowledged <= clicks
