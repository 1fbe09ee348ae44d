"""A PostgreSQL of a test's own, durable and over TCP, that can be killed and started again."""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from core.engines.process.processes import wait_readable
from tests.ports import free_port
from tests.postgresql import programs

POLL_S = 0.02
READY_S = 60.0


class PostgresqlServer:
    """A PostgreSQL that can be killed, over TCP at `address`; its data is durable. `settings` are more of its own.

    Its files are in a folder of their own in `folder`, or where temporary files are.
    """

    def __init__(self, folder: Path | None = None, /, address: str = "127.0.0.1", **settings: str) -> None:
        self._settings = settings
        self.address, self.port = address, free_port()
        self.kills = 0
        self._folder = Path(tempfile.mkdtemp(prefix="responder-bot-machines-", dir=folder))
        self._programs = programs()
        self._as_other: dict[str, Any] = {}
        if os.getuid() == 0:  # PostgreSQL refuses it; tests count the processes of nobody
            account = pwd.getpwnam("daemon")
            os.chown(self._folder, account.pw_uid, account.pw_gid)
            self._as_other = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, schema: str, address: str = "", port: int = 0) -> str:
        """Where that schema is; through another address if one is given."""
        where = f"{address or self.address}:{port or self.port}"
        return f"postgresql://postgres@{where}/postgres?options=-csearch_path%3D{schema}"

    def rows(self, schema: str, sql: str) -> list[tuple[Any, ...]]:
        """What core's tables there say, or the bot's beside them."""
        with psycopg.connect(self.url(f"{schema},{schema}_bot")) as connection:
            return connection.execute(sql.encode()).fetchall()

    async def create(self) -> None:
        """Make its files, and start it."""
        await asyncio.to_thread(self._init)
        await self.start()

    def _init(self) -> None:
        options = ("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
        self._run("initdb", "-D", self._folder / "data", *options)
        with (self._folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write("host all all samenet trust\n")

    async def take_place_of(self, other: "PostgresqlServer") -> None:
        """Start as a copy of a running server, which goes on by itself from here."""
        await asyncio.to_thread(self._copy, other)
        await self.start()
        await asyncio.to_thread(self._run, "pg_ctl", "promote", "-w", "-D", self._folder / "data")

    def _copy(self, other: "PostgresqlServer") -> None:
        where = ("-h", other.address, "-p", str(other.port), "-U", "postgres")
        self._run("pg_basebackup", *where, "-D", self._folder / "data", "-c", "fast", "--no-sync")
        (self._folder / "data" / "standby.signal").touch()

    def _run(self, program: str, *arguments: str | Path) -> None:
        subprocess.run(
            [self._programs / program, *arguments],
            check=True,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            **self._as_other,
        )

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        await asyncio.to_thread(self._start)
        async with asyncio.timeout(READY_S):
            while not await asyncio.to_thread(self._answers):  # noqa: ASYNC110 - it tells nobody that it is ready
                await asyncio.sleep(POLL_S)

    def _start(self) -> None:
        settings = {
            "listen_addresses": self.address,
            "port": self.port,
            "unix_socket_directories": self._folder,
            "max_connections": 200,
            "logging_collector": "off",
            **self._settings,
        }
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder / "data", *arguments],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._as_other,
            )

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url("public"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def pids(self) -> list[int]:
        """Its processes."""
        assert self._process is not None
        pid = self._process.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    async def kill(self) -> None:
        """SIGKILL for the server and all its processes, as without memory or power."""
        assert self._process is not None
        killed = list[int]()
        for one in self.pids():
            with suppress(ProcessLookupError):
                killed.append(os.pidfd_open(one))
                os.kill(one, signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)
        for one in killed:
            await wait_readable(one)
            os.close(one)
        self.kills += 1

    async def close(self) -> None:
        """Stop it, and delete its files."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            await asyncio.to_thread(self._process.wait)
        await asyncio.to_thread(shutil.rmtree, self._folder)
